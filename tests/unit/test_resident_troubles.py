"""The resident loop in trouble: tasks that fail, stores that are damaged, offsets that are gone."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import (
    ProducerError,
    RunnerError,
    StateError,
    StoreCorruptedError,
    StoreLockedError,
    TransactionError,
)
from streamrt.kafka import KafkaRequestError
from streamrt.runtime.link_messages import (
    AssignmentRequest,
    ProgressUpdate,
    StartPositions,
)
from streamrt.runtime.tasks.task_clients import no_writer
from streamrt.state import RocksDBOptions, RocksDBStore, StorePartition
from tests.unit.resident_world import (
    FIRST,
    FIRST_TASK,
    GUARANTEES,
    SECOND,
    World,
    committed,
    plain,
    seen,
)

# -- Troubles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["out", "log-default", "commit", "store write"])
def test_an_interrupted_session_is_done_again(point: str) -> None:
    error = StoreCorruptedError("injected") if point.startswith("store") else TransactionError("injected")
    world = World(transactional=True)
    world.put(FIRST, 1)
    world.put(SECOND, 2)
    world.begin()
    world.commit()
    world.clients.troubles[point] = error
    world.put(FIRST, 3)
    world.put(SECOND, 4)
    world.until(lambda: committed(world) == {FIRST: 2, SECOND: 2})
    assert not world.clients.troubles
    assert sorted(world.counts()) == [(1, 1), (2, 1), (3, 2), (4, 2)]
    world.let_go()
    assert [world.counted(0), world.counted(1)] == [2, 2]


def test_after_eight_interruptions_without_progress_the_application_ends() -> None:
    world = World(plain, transactional=True, commits={"transaction_interval": 0.1})
    world.put(FIRST, 1)
    world.begin(FIRST)
    times: list[float] = []

    def step() -> bool:
        if "commit" not in world.clients.troubles:
            times.append(world.clock())
            world.clients.troubles["commit"] = TransactionError("injected")
        return False

    with pytest.raises(RunnerError, match="9 times without progress: injected"):
        world.until(step, 2_000)
    assert len(times) == 9
    pauses = [later - former for former, later in itertools.pairwise(times)]
    assert 10 > pauses[-1] > pauses[1] > 0.1


def test_progress_forgives_interruptions() -> None:
    world = World(plain, transactional=True)
    world.begin(FIRST)
    for number in range(20):
        world.put(FIRST, number)
        world.clients.troubles["commit"] = TransactionError("injected")
        world.until(lambda wanted=number + 1: committed(world).get(FIRST) == wanted)  # type: ignore[misc]
    assert world.outputs() == list(range(20))


def test_nothing_to_do_forgives_interruptions() -> None:
    world = World(transactional=True)
    for _ in range(12):
        world.clients.troubles["store open"] = StoreLockedError("injected")
        world.begin(FIRST)
        assert not world.clients.troubles
        # A quiet day.
        world.clock.wait(86_400)
        world.steps(100)
        world.revoke()


def test_interruptions_are_forgotten_with_the_partition() -> None:
    world = World(transactional=True)
    for _ in range(5):
        world.clients.troubles["store open"] = StoreLockedError("injected")
        world.begin(FIRST)
        world.revoke()
    world.begin(SECOND)
    world.revoke()
    for _ in range(5):
        world.clients.troubles["store open"] = StoreLockedError("injected")
        world.begin(FIRST)
        world.revoke()


def test_another_attempt_has_come_further() -> None:
    world = World(transactional=True)
    world.put(FIRST, *range(6))
    world.begin(FIRST)
    world.until(lambda: seen(world) == 6)
    # A zombie, whose commit arrives before this one's: this one is fenced.
    world.clients.troubles["commit"] = TransactionError("fenced", fenced=True)
    committed(world)[FIRST] = 4
    world.until(lambda: committed(world)[FIRST] == 6)
    assert [value for value, _ in world.counts()] == [4, 5]


@pytest.mark.parametrize("transactional", [False, True])
def test_a_record_that_fails_ends_the_task_and_its_state_is_rolled_back(transactional: bool) -> None:
    def build(app: Application) -> None:
        app.dataframe(app.topic("in")).apply(_fail_at_3, stateful=True).to_topic(app.topic("out"))

    world = World(build, transactional=transactional)
    world.put(SECOND, 10)
    world.put(FIRST, 1, 2, 3)
    world.begin()
    world.until(lambda: world.reports)
    failure = world.reports[0].failure
    assert failure is not None
    assert (failure.kind, failure.partition, failure.offset) == ("processing", FIRST, 2)
    world.steps(5)
    assert FIRST not in committed(world) or committed(world)[FIRST] == 0
    assert len(world.reports) == 1
    world.revoke()
    assert world.counted(0) == 0


def _fail_at_3(value: int, state: Any) -> int:
    state.set("n", state.get("n", 0) + 1)
    if value == 3:
        raise ValueError("three")
    return value


def test_a_lost_delivery_ends_the_task() -> None:
    world = World()
    world.put(FIRST, 1)
    world.put(SECOND, 2)
    world.begin()
    world.until(lambda: seen(world) == 2)
    world.clients.lost = [ProducerError("injected")]
    world.until(lambda: world.reports)
    assert world.reports[0].failure is not None
    assert committed(world) == {}
    assert "store" not in world.clients.calls


def test_state_that_cannot_be_used_ends_the_task() -> None:
    world = World()
    world.clients.troubles["store open"] = StateError("the disk is full")
    world.put(FIRST, 1)
    world.member.assign(FIRST)
    world.until(lambda: world.reports)
    failure = world.reports[0].failure
    assert failure is not None
    assert failure.kind == "state"
    world.steps(5)
    assert world.outputs() == []


@GUARANTEES
def test_a_store_that_cannot_be_written_when_it_is_let_go_is_an_error(
    transactional: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Committed data stays; no later report can end the application."""
    world = World(transactional=transactional)
    world.put(FIRST, 1, 2)
    world.begin(FIRST)
    world.commit()
    world.clients.troubles["store close"] = StateError("the disk is full")
    world.let_go()
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert error.getMessage() == f"the state of {FIRST} must be restored from its changelog: the disk is full"
    assert committed(world) == {FIRST: 2}


@GUARANTEES
@pytest.mark.parametrize("point", ["store open", "store get"])
def test_a_damaged_store_is_repaired(transactional: bool, point: str) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1, 2)
    world.begin(FIRST)
    world.commit()
    world.revoke()
    world.put(FIRST, 3)
    world.clients.troubles[point] = StoreCorruptedError("injected")
    world.member.assign(FIRST)
    world.until(lambda: committed(world) == {FIRST: 3})
    assert world.catalog.destroyed == 1
    assert world.counts()[-1] == (3, 3)


@GUARANTEES
def test_a_damaged_store_that_somebody_else_has_opened_meanwhile_is_repaired_later(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.commit()
    world.revoke()
    world.put(FIRST, 2)
    world.clients.troubles["store get"] = StoreCorruptedError("injected")
    world.clients.troubles["store destroy"] = StoreLockedError("injected")
    world.member.assign(FIRST)
    world.until(lambda: committed(world) == {FIRST: 2})
    assert not world.clients.troubles
    assert world.counts()[-1] == (2, 2)


def test_fault_7_values_that_others_have_overwritten_in_a_changelog_are_written_again() -> None:
    world = World(commits={"commit_every": 1})
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.commit()
    # A zombie counts the record again.
    key = next(record.key for record in world.clients.written("log-default"))
    world.clients.produce("log-default", b"7", key, 0, None, 0)
    world.put(FIRST, 2)
    world.commit()
    world.steps(3)
    assert world.catalog.opened == [0], "our own values are in the store"
    assert [record.value for record in world.clients.written("log-default") if record.key == key][-1] == b"\x002"
    world.put(FIRST, 3)
    world.commit()
    assert world.counts() == [(1, 1), (2, 2), (3, 3)]


def test_a_spent_writer_is_not_used_again() -> None:
    world = World(commits={"commit_every": 1}, transactional=True)
    world.clients.spent = True
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.commit()
    world.clients.spent = False
    assert world.clients.calls.count("release") == 1
    world.put(FIRST, 2)
    world.commit()
    assert world.clients.calls.count("committed") == 2
    assert world.counts() == [(1, 1), (2, 2)]


def test_the_next_cycle_takes_the_writer_that_there_is_then() -> None:
    world = World(plain, commits={"commit_every": 1})
    world.begin()
    for place in (FIRST, SECOND):
        world.put(place, 1)
        world.commit()
    # The producer of before has met a fatal error meanwhile.
    for task in world.tasks.assigned.values():
        task._commit.writer = no_writer  # type: ignore[misc]
    world.put(FIRST, 2)
    world.put(SECOND, 2)
    world.until(lambda: committed(world) == {FIRST: 2, SECOND: 2})
    assert all(report.failure is None for report in world.reports)


def test_before_gone_offsets_are_asked_for_all_is_committed() -> None:
    world = World(plain, commits={"commit_every": 2, "commit_interval": 100.0})
    world.put(FIRST, 1, 2)
    world.begin(FIRST)
    world.until(lambda: world.reports)
    world.member.troubles.append(KafkaRequestError("the coordinator moves", retriable=True))
    world.feed.low[FIRST] = 4
    world.link.begins = False
    world.until(lambda: len(world.link.told(AssignmentRequest)) == 2)
    assert committed(world) == {FIRST: 2}


def test_offsets_that_are_gone_are_asked_for_again() -> None:
    world = World(plain)
    world.put(FIRST, 1, 2)
    world.put(SECOND, 3)
    world.begin()
    world.until(lambda: seen(world) == 3)
    world.put(FIRST, 4, 5, 6)
    world.feed.low[FIRST] = 4
    world.link.begins = False
    world.until(lambda: len(world.link.told(AssignmentRequest)) == 2)
    # What was done is committed before.
    assert committed(world) == {FIRST: 2, SECOND: 1}
    world.link.inbox.append(StartPositions(1, {FIRST: 4, SECOND: 1}, {FIRST: 4}))
    world.until(lambda: len(world.outputs()) == 4)
    assert sorted(world.outputs()) == [1, 2, 3, 6]
    assert {FIRST: 4} in world.member.commits


def test_records_that_cannot_be_read_now_are_read_later() -> None:
    world = World(plain)
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: seen(world) == 1)
    world.put(FIRST, 2)
    world.feed.troubles = [KafkaRequestError("a broker starts", retriable=True)]
    world.until(lambda: committed(world) == {FIRST: 2})
    assert world.outputs() == [1, 2]
    world.feed.troubles = [KafkaRequestError("not allowed")]
    with pytest.raises(KafkaRequestError, match="not allowed"):
        world.steps()


def test_nothing_is_opened_while_no_broker_answers() -> None:
    world = World()
    world.put(FIRST, 1)
    world.member.away = True
    world.member.assign(FIRST)
    world.steps(20)
    assert world.catalog.opened == []
    world.member.away = False
    world.until(lambda: world.counts())


# -- Locked stores ---------------------------------------------------------------------------------------------------


def _hold(folder: Path, partition: int) -> StorePartition:
    """Open a store as another process would."""
    return RocksDBStore("default", "in", folder, RocksDBOptions(open_max_retries=0)).open(partition)


@GUARANTEES
def test_fault_23_a_locked_store_lets_its_task_wait_and_no_other(tmp_path: Path, transactional: bool) -> None:
    world = World(transactional=transactional, disk=tmp_path)
    held = _hold(tmp_path, 0)
    world.put(FIRST, 1)
    world.put(SECOND, 2)
    world.member.assign(FIRST, SECOND)
    world.until(lambda: committed(world).get(SECOND) == 1)
    begun = world.clock()
    world.put(SECOND, 3)
    world.until(lambda: committed(world).get(SECOND) == 2 and world.clock() > begun + 10)
    assert FIRST not in committed(world)
    told = [message.report.locked for message in world.link.told(ProgressUpdate) if message.report.locked]
    assert all(list(locked) == [FIRST_TASK] and "is in use by another process" in locked[FIRST_TASK] for locked in told)
    # One trial each three seconds.
    assert 2 <= len(told) <= (world.clock() - 1_000) / 3 + 1
    held.close()
    world.until(lambda: committed(world).get(FIRST) == 1)
    world.revoke()


def test_fault_23_a_store_that_stays_locked_ends_the_application_at_last(tmp_path: Path) -> None:
    """As often as the options say counts as one interruption; eight of them are too many."""
    world = World(disk=tmp_path, options=RocksDBOptions(open_max_retries=2, open_retry_backoff=1.0))
    held = _hold(tmp_path, 0)
    world.member.assign(FIRST)
    with pytest.raises(RunnerError, match=r"9 times without progress: store 'default' of in\[0\] .* is in use"):
        world.steps(5_000)
    assert sum(bool(message.report.locked) for message in world.link.told(ProgressUpdate)) == 9 * 3
    held.close()
