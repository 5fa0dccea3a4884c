"""Messages of a resident task to the driver and from it: time, quiet, lines, offsets; and tasks of several topics."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from streamrt import Application
from streamrt.connectors import ListSink
from streamrt.errors import (
    StoreCorruptedError,
    TransactionError,
)
from streamrt.joins import BaseField, BaseLookup, LookupBuffer
from streamrt.kafka import KafkaRequestError
from streamrt.models import TopicPartition
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.runtime.link_messages import (
    ProgressUpdate,
    Time,
)
from streamrt.runtime.report import Report, StoreTime
from streamrt.topology import TaskId
from tests.unit.resident_world import (
    FIRST,
    FIRST_TASK,
    GUARANTEES,
    METADATA,
    SECOND,
    SECOND_TASK,
    World,
    committed,
    plain,
    processed,
    seen,
    waiting_store,
    windows,
)

# -- Time, and what is told ---------------------------------------------------------------------------------------------


@GUARANTEES
def test_ticks_let_windows_end(transactional: bool) -> None:
    world = World(windows, transactional=transactional)
    world.put(FIRST, 1, 2, timestamp=1_500)
    world.begin()
    world.commit()
    assert world.clients.written("out") == []
    assert world.reports[0].times[FIRST_TASK, waiting_store(world)] == StoreTime(1_500, 2_000)
    world.link.inbox.append(Time({FIRST_TASK: {waiting_store(world): 2_000}}, frozenset({FIRST_TASK, TaskId("in", 7)})))
    world.commit()
    assert len(world.clients.written("out")) == 1
    assert world.reports[1].times[FIRST_TASK, waiting_store(world)].next_deadline is None


def test_a_tick_reaches_a_task_whose_session_has_no_successor() -> None:
    world = World(windows, transactional=True, commits={"transaction_interval": 0.1})
    world.clients.spent = True
    world.put(FIRST, 1, timestamp=1_500)
    world.begin(FIRST)
    world.commit()
    world.clients.spent = False
    for _ in range(20):
        world.link.inbox.append(Time({FIRST_TASK: {waiting_store(world): 2_000}}, frozenset({FIRST_TASK})))
        world.steps(2)
    assert len(world.clients.written("out")) == 1


def test_event_time_is_told_before_the_commit() -> None:
    world = World(windows, commits={"commit_interval": 100.0})
    world.put(FIRST, 1, timestamp=1_500)
    world.begin()
    world.until(lambda: seen(world) == 1)
    world.steps(10)
    told = [message.report.times for message in world.link.told(ProgressUpdate)]
    assert any(times.get((FIRST_TASK, waiting_store(world))) == StoreTime(1_500, 2_000) for times in told)
    assert world.reports == []


def windows_behind_windows(app: Application) -> None:
    window = app.dataframe(app.topic("in")).tumbling_window(1_000).count()
    results = window.final(closing_strategy="watermark").group_by("value")
    results.tumbling_window(1_000).count().final(closing_strategy="watermark").to_topic(app.topic("out"))


@GUARANTEES
def test_what_a_task_sends_behind_an_exchange_is_there_before_it_is_told_how_far_it_is(
    transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(
        windows_behind_windows,
        transactional=transactional,
        commits={"commit_interval": 100.0, "transaction_interval": 100.0},
    )
    monkeypatch.setattr(type(world.clients), "delivered", False, raising=False)

    def told() -> bool:
        return any(FIRST_TASK in {task for task, _ in each.report.times} for each in world.link.told(ProgressUpdate))

    world.begin(FIRST)
    world.put(FIRST, 1, timestamp=1_500)
    world.until(lambda: seen(world) == 1)
    world.link.sent.clear()
    world.steps(30)
    assert not told()
    monkeypatch.setattr(type(world.clients), "delivered", True, raising=False)
    world.steps(30)
    assert told() is not transactional
    world.revoke()
    assert any((FIRST_TASK, waiting_store(world)) in report.times for report in world.reports)


def _windows(world: World) -> list[int]:
    return [orjson.loads(record.value or b"")["start"] for record in world.clients.written("out")]


@GUARANTEES
@pytest.mark.parametrize("how", ["aborted", "lost"])
def test_records_that_are_processed_again_are_not_late_for_what_they_have_brought_themselves(
    transactional: bool, how: str
) -> None:
    world = World(windows, transactional=transactional, commits={"transaction_interval": 3.0, "commit_interval": 3.0})
    world.begin(FIRST)
    for timestamp in (1_000, 2_500, 4_500):
        world.put(FIRST, 1, timestamp=timestamp)
    world.until(lambda: seen(world) == 3)
    # Watermarks are made of what is told before it is committed.
    watermarks = {FIRST_TASK: {waiting_store(world): 4_500}}
    world.link.inbox.append(Time(watermarks, frozenset()))
    world.steps()
    if how == "aborted":
        world.clients.troubles[f"log-{waiting_store(world)}"] = TransactionError("injected")
        world.until(lambda: not world.clients.troubles)
    else:
        world.member.lose()
        world.steps()
        world.member.assign(FIRST)
    world.until(lambda: world.is_open(FIRST_TASK))
    world.link.inbox.append(Time(watermarks, frozenset({FIRST_TASK})))
    world.commit()
    # Read to its end, it hears of all time.
    world.link.inbox.append(Time(watermarks, frozenset({FIRST_TASK})))
    world.until(lambda: _windows(world) == [1_000, 2_000])


@GUARANTEES
def test_time_passes_for_a_partition_without_records_once_it_is_read_to_its_end(transactional: bool) -> None:
    world = World(windows, transactional=transactional)
    world.put(FIRST, 1, timestamp=1_000)
    world.begin(FIRST)
    world.commit()
    world.revoke()
    world.begin(FIRST)
    world.link.inbox.append(Time({FIRST_TASK: {waiting_store(world): 9_000}}, frozenset({FIRST_TASK})))
    world.until(lambda: _windows(world) == [1_000])


class _Unknown(BaseLookup[BaseField]):
    """Finds nothing."""

    def join(self, fields: Any, on: Any, value: dict[str, Any], key: Any, timestamp: int, headers: Any) -> None:
        value["found"] = None


@GUARANTEES
def test_what_waits_for_a_lookup_waits_from_its_own_time_on_and_not_from_that_of_the_batch(transactional: bool) -> None:
    def build(app: Application) -> None:
        buffer = LookupBuffer(grace_ms=1_000, is_resolved=lambda value: value["found"] is not None)
        sdf = app.dataframe(app.topic("in")).apply(lambda value: {"v": value})
        sdf.join_lookup(_Unknown(), {"found": BaseField()}, on="v", buffer=buffer).to_topic(app.topic("out"))

    world = World(build, transactional=transactional, commits={"commit_interval": 90.0, "transaction_interval": 90.0})
    world.clients.now = lambda: int(world.clock() * 1_000)  # type: ignore[method-assign]
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: seen(world) == 1)
    world.clock.wait(30)
    world.put(FIRST, 2)
    world.until(lambda: seen(world) == 2)

    def waiting() -> int | None:
        return world.tasks.assigned[FIRST_TASK].stores.times()[waiting_store(world)].next_deadline

    # The first one has waited for long enough.
    assert waiting() == pytest.approx(world.clients.now() + 1_000, abs=300)
    world.link.inbox.append(Time({}, frozenset({FIRST_TASK})))
    world.steps()
    assert waiting() == pytest.approx(world.clients.now() + 1_000, abs=300)


def test_ticks_that_fail_with_sinks_open_no_store_twice() -> None:
    def build(app: Application) -> None:
        sdf = app.dataframe(app.topic("in"))
        windows = sdf.tumbling_window(1_000).count()
        windows.final(closing_strategy="watermark", idle_timeout_ms=5_000).sink(ListSink())

    world = World(build)
    world.put(FIRST, 1, timestamp=1_500)
    world.put(SECOND, 1, timestamp=1_500)
    world.begin()
    world.commit()
    world.clients.troubles["store scan"] = StoreCorruptedError("injected")
    due = frozenset({FIRST_TASK, SECOND_TASK})
    for _ in range(30):
        world.link.inbox.append(Time({task: {waiting_store(world): 2_000} for task in due}, due))
        world.steps(2)
    assert not world.clients.troubles
    sunk = [batch.partition for report in world.reports for _, batch in report.sunk]
    assert sorted(sunk) == [0, 1]


@GUARANTEES
def test_quiet_is_told_when_it_changes_and_now_and_then(transactional: bool) -> None:
    world = World(plain, transactional=transactional)
    world.put(FIRST, 1, 2)
    world.begin()
    world.until(lambda: world.quiet == [True])
    world.clock.wait(1)
    world.until(lambda: world.quiet == [True, True])
    world.revoke()
    told = len(world.quiet)
    world.begin()
    world.until(lambda: world.quiet[told:] == [True])


@GUARANTEES
def test_a20_what_the_driver_knows_is_repeated_in_case_it_has_forgotten_it(transactional: bool) -> None:
    world = World(windows, transactional=transactional, commits={"commit_interval": 1.0})
    world.put(FIRST, 1, timestamp=1_500)
    world.begin(FIRST)
    world.commit()
    world.steps(10)
    told = len(world.link.told(ProgressUpdate))
    world.clock.wait(1)
    world.until(lambda: len(world.link.told(ProgressUpdate)) > told)
    repeated = world.link.told(ProgressUpdate)[told]
    assert repeated.ended == frozenset({FIRST_TASK})
    assert repeated.report.times == {(FIRST_TASK, waiting_store(world)): StoreTime(1_500, 2_000)}


def test_a20_offsets_that_have_fallen_are_committed_again() -> None:
    world = World(commits={"commit_interval": 1.0})
    world.put(FIRST, 1, 2)
    world.begin(FIRST)
    world.until(lambda: committed(world) == {FIRST: 2})
    # The request that timed out when the task began is carried out now.
    world.clients.offsets[FIRST] = 0
    world.clock.wait(10)
    world.until(lambda: committed(world) == {FIRST: 2})
    assert world.member.metadata == {METADATA}


@GUARANTEES
def test_markers_at_the_end_of_partitions_are_passed(transactional: bool) -> None:
    world = World(transactional=transactional, commits={"commit_interval": 1.0})
    world.put(FIRST, 1, None)
    world.put(SECOND, None, None)
    world.begin()
    world.until(lambda: committed(world) == {FIRST: 2, SECOND: 2})
    assert world.member.metadata == {METADATA}
    world.put(FIRST, 2)
    world.put(SECOND, 3)
    world.until(lambda: committed(world) == {FIRST: 3, SECOND: 3})
    assert world.reports[-1].ranges[FIRST].start == 2
    assert sorted(world.counts()) == [(1, 1), (2, 2), (3, 1)]
    # Stores also go on from there.
    world.revoke()
    world.begin()
    world.put(FIRST, 4)
    world.until(lambda: world.counts()[-1] == (4, 3))


def test_markers_that_could_not_be_passed_do_no_harm() -> None:
    world = World(transactional=True, commits={"commit_interval": 1.0})
    world.put(FIRST, 1, None)
    world.begin(FIRST)
    world.member.troubles = [KafkaRequestError("injected", retriable=True)]
    world.until(lambda: not world.member.troubles)
    world.clients.troubles["commit"] = TransactionError("injected")
    world.put(FIRST, 2)
    world.until(lambda: committed(world) == {FIRST: 3})
    assert all(report.failure is None for report in world.reports)


def test_a20_the_time_of_an_earlier_assignment_closes_no_window() -> None:
    world = World(windows, transactional=True, commits={"commit_interval": 1.0})
    world.put(FIRST, 1, timestamp=1_500)
    world.put(FIRST, 2, timestamp=1_600)
    world.begin(FIRST)
    world.steps(5)
    # What the driver says counts records whose transaction is lost with the partition.
    world.link.inbox.append(Time({FIRST_TASK: {waiting_store(world): 9_000}}, frozenset()))
    world.member.lose()
    world.begin(FIRST)
    assert world.task._batch_context().watermarks == {}
    world.until(lambda: committed(world) == {FIRST: 2})
    world.link.inbox.append(Time({FIRST_TASK: {waiting_store(world): 9_000}}, frozenset({FIRST_TASK})))
    world.until(lambda: bool(world.clients.written("out")))
    assert [orjson.loads(record.value or b"")["value"] for record in world.clients.written("out")] == [2]


@GUARANTEES
def test_a20_time_that_counts_lost_work_closes_no_window(transactional: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(windows, transactional=transactional, commits={"transaction_interval": 3.0, "commit_interval": 3.0})
    world.begin(FIRST)
    # As behind an exchange, which brings the records of a slow partition between those of a fast one.
    for timestamp in (4_500, 1_500):
        world.put(FIRST, 1, timestamp=timestamp)
    world.until(lambda: seen(world) == 2)
    # What the driver says counts both records. Their work is lost, and it says so once more before it hears of that.
    late = Time({FIRST_TASK: {waiting_store(world): 9_000}}, frozenset({FIRST_TASK}), rewinds=0)
    world.link.inbox.append(replace(late, due=frozenset()))
    world.steps()
    world.clients.troubles[f"log-{waiting_store(world)}"] = TransactionError("injected")
    world.until(lambda: not world.clients.troubles)
    world.link.inbox.append(late)
    # The records are read again in one cycle each.
    monkeypatch.setattr(world.task._schedule, "most", 1)
    world.until(lambda: committed(world) == {FIRST: 2})
    assert world.clients.written("out") == []
    told = [message for message in world.link.told(ProgressUpdate) if message.rewound]
    assert [(message.rewound, message.rewinds) for message in told] == [(frozenset({FIRST_TASK}), 1)]
    world.link.inbox.append(replace(late, rewinds=1))
    world.until(lambda: _windows(world) == [1_000, 4_000])


def test_a20_a_former_owner_may_set_the_group_back_in_front_of_markers() -> None:
    world = World(transactional=True, commits={"commit_interval": 1.0})
    world.put(FIRST, 1, None)
    world.begin(FIRST)
    world.until(lambda: committed(world) == {FIRST: 2})
    # Its transaction, which has no records, began before the group passed the markers.
    world.clients.offsets[FIRST] = 1
    world.clients.troubles["commit"] = TransactionError("injected")
    world.put(FIRST, 2)
    world.until(lambda: committed(world) == {FIRST: 3})
    assert all(report.failure is None for report in world.reports)
    assert world.counts()[-1] == (2, 2)


def test_shown_lines_are_told_soon_and_once() -> None:
    def build(app: Application) -> None:
        app.dataframe(app.topic("in")).print(metadata=False)

    world = World(build, commits={"commit_interval": 10.0})
    world.begin()
    for number in range(3):
        world.put(FIRST, number)
        world.clock.wait(1)
        world.steps(2)
    told = [line for message in world.link.told(ProgressUpdate) for _, line in message.report.shown]
    assert len(told) == 3
    world.commit()
    assert world.reports[0].shown == []


@GUARANTEES
def test_processed_offsets_are_told_once_each(transactional: bool) -> None:
    world = World(transactional=transactional, on_message_processed=print)
    world.put(FIRST, 1, 2)
    world.put(SECOND, 3)
    world.begin()
    world.until(lambda: seen(world) == 3)
    world.clients.troubles["store get"] = StoreCorruptedError("injected")
    world.put(FIRST, 4, 5)
    world.until(lambda: committed(world) == {FIRST: 4, SECOND: 1})
    world.put(SECOND, 6)
    world.until(lambda: committed(world) == {FIRST: 4, SECOND: 2})
    assert processed(world) == {FIRST: [0, 1, 2, 3], SECOND: [0, 1]}


def test_records_are_counted_once_in_all_that_is_told() -> None:
    world = World(plain, commits={"commit_every": 4})
    world.begin()
    for number in range(10):
        world.put(FIRST, number)
        world.clock.wait(0.2)
        world.steps()
    world.revoke()
    assert seen(world) + sum(report.records for report in world.reports) == 10


def test_the_rate_is_not_negative_after_records_were_taken_back() -> None:
    progress = Progress()
    progress.report(Report(records=-5))
    assert progress.snapshot().rate == 0


# -- Several topics ------------------------------------------------------------------------------------------------------


@GUARANTEES
def test_merged_topics_share_sessions_and_state(transactional: bool) -> None:
    def build(app: Application) -> None:
        sdf = app.dataframe(app.topic("in")).concat(app.dataframe(app.topic("other")))
        counted = sdf.apply(_number, stateful=True)
        counted.to_topic(app.topic("out"))

    world = World(build, transactional=transactional, partitions=1)
    other = TopicPartition("other", 0)
    world.put(FIRST, 1, timestamp=1_000)
    world.put(other, 2, timestamp=900)
    world.begin(FIRST, other)
    world.commit()
    assert world.counts() == [(2, 1), (1, 2)]
    assert committed(world) == {FIRST: 1, other: 1}
    world.put(other, 3)
    world.commit()
    world.put(FIRST, 4)
    world.commit()
    assert world.counts()[2:] == [(3, 3), (4, 4)]
    assert world.catalog.opened == [0]
    assert committed(world) == {FIRST: 2, other: 2}


def _number(value: int, state: Any) -> dict[str, int]:
    state.set("n", state.get("n", 0) + 1)
    return {"v": value, "n": state.get("n")}
