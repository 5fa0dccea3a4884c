"""The order of a commit's steps, and what happens to a task when one of them fails."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import (
    ChangelogError,
    ProducerError,
    SinkBackpressureError,
    StateError,
    StoreCorruptedError,
    StoreLockedError,
    TransactionError,
)
from streamrt.kafka import KafkaRequestError
from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.placement import StateSettings
from streamrt.runtime.report import Pause
from streamrt.runtime.tasks.commit import AtLeastOnceCommit
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.runtime.tasks.stream_task import StreamTask, TaskStatus
from streamrt.runtime.tasks.task_clients import RecordWriter, TransactionalRecordWriter
from streamrt.state import Stamp, StoreIdentity
from streamrt.topology import TaskId
from tests.unit.commit_world import OTHER, Clients, Transaction, World
from tests.unit.tasks import PLACE, TASK, chunk, numbers

pytestmark = pytest.mark.usefixtures("processing_mode")

# -- The order -------------------------------------------------------------------------------------------------------


def test_exactly_once_stores_are_written_last() -> None:
    world = World()
    report = world.run(numbers(2))
    assert world.clients.calls == [
        "init",
        "committed",
        "bounds",
        *["out", "out"],
        *["log", "position"],
        "commit",
        "store",
    ]
    assert report.ranges == {PLACE: OffsetRange("in", 0, 0, 2)}
    assert report.workers == {TASK: world.clients.worker}


def test_at_least_once_stores_are_written_when_all_is_durable() -> None:
    world = World(transactional=False)
    world.run(numbers(2))
    assert world.clients.calls == ["bounds", "out", "out", "flush", "log", "position", "flush", "bounds", "store"]


def test_at_least_once_all_partitions_share_one_flush() -> None:
    world = World(transactional=False, stateful=False)
    report = world.run(numbers(2), numbers(1, partition=1))
    assert world.clients.calls == ["out", "out", "out", "flush"]
    assert {place: done.end for place, done in report.ranges.items()} == {PLACE: 2, OTHER: 1}


def test_a_process_that_made_the_last_commit_goes_on_with_its_producer() -> None:
    world = World()
    first = world.run(numbers(2))
    world.clients.calls.clear()
    world.run(numbers(2, start=2), positions={PLACE: 2}, last_committer=first.workers)
    assert world.clients.calls[:2] == ["reuse", "committed"]
    world.run(numbers(2, start=4), positions={PLACE: 4}, last_committer={TASK: "another"})
    assert world.clients.calls.count("init") == 1


def test_records_that_another_attempt_has_committed_are_dropped() -> None:
    world = World()
    world.clients.offsets[PLACE] = 3
    report = world.run(numbers(5))
    assert [output.offset for output in report.collected] == [3, 4]
    assert report.ranges == {PLACE: OffsetRange("in", 0, 0, 5)}


def test_if_all_is_committed_already_that_is_a_success() -> None:
    world = World()
    world.clients.offsets[PLACE] = 9
    report = world.run(numbers(5))
    assert report.ranges == {PLACE: OffsetRange("in", 0, 0, 9)}
    assert "commit" not in world.clients.calls
    assert report.complete
    assert report.failure is None


@pytest.mark.parametrize("committed", [None, 4])
def test_an_offset_that_was_set_back_ends_the_application(committed: int | None) -> None:
    world = World()
    if committed is None:
        world.clients.committed = lambda place: None  # type: ignore[method-assign]
    else:
        world.clients.offsets[PLACE] = committed
    report = world.run(numbers(5, start=5), positions={PLACE: 5})
    assert report.failure is not None
    assert "offsets of the consumer group were set back" in report.failure.message


def test_the_life_of_a_task() -> None:
    status = TaskStatus
    assert {each: each.successors for each in status} == {
        status.CREATED: {status.RESTORING, status.CLOSED},
        status.RESTORING: {status.RUNNING, status.WAITING},
        status.RUNNING: {status.PREPARED, status.SUSPENDED, status.WAITING},
        status.PREPARED: {status.PUBLISHED, status.WAITING},
        status.PUBLISHED: {status.COMMITTED, status.WAITING},
        status.COMMITTED: {status.RUNNING, status.WAITING},
        status.SUSPENDED: {status.RUNNING, status.WAITING},
        status.WAITING: {status.RESTORING, status.CLOSED},
        status.CLOSED: frozenset(),
    }
    assert [each for each in status if each.is_open] == [
        status.RUNNING,
        status.PREPARED,
        status.PUBLISHED,
        status.COMMITTED,
        status.SUSPENDED,
    ]


def _nothing() -> None: ...


def _task(status: TaskStatus) -> tuple[StreamTask, TaskStores]:
    """Return a task that has come to a status, and stores to open it with."""
    clients = Clients()
    catalog = StoreCatalog(StateSettings("group", Path("unused")))
    stores = TaskStores(catalog, {}, TASK, clients, transactional=False)
    task = StreamTask(TASK, {PLACE: 0}, AtLeastOnceCommit(clients), {})
    way: list[tuple[TaskStatus, Callable[[], object]]] = [
        (status.CREATED, lambda: None),
        (status.RUNNING, lambda: task.open(stores)),
        (status.PREPARED, lambda: task.prepare({PLACE: 1}, _nothing)),
        (status.PUBLISHED, task.publish),
        (status.COMMITTED, task.store),
    ]
    if status in (status.SUSPENDED, status.WAITING, status.CLOSED):
        end: Mapping[TaskStatus, Callable[[], object]] = {
            status.SUSPENDED: task.suspend,
            status.WAITING: task.abort,
            status.CLOSED: task.close,
        }
        way = [*way[:2], (status, end[status])]
    for reached, step in way:
        step()
        if reached is status:
            break
    assert task.status is status
    return task, stores


@pytest.mark.parametrize("status", [each for each in TaskStatus if each is not TaskStatus.RESTORING])
def test_a_task_refuses_each_step_that_its_status_does_not_allow(status: TaskStatus) -> None:
    steps: Mapping[TaskStatus, Callable[[StreamTask, TaskStores], object]] = {
        TaskStatus.RESTORING: lambda task, stores: task.open(stores),
        TaskStatus.PREPARED: lambda task, stores: task.prepare({PLACE: 1}, _nothing),
        TaskStatus.PUBLISHED: lambda task, stores: task.publish(),
        TaskStatus.COMMITTED: lambda task, stores: task.store(),
        TaskStatus.SUSPENDED: lambda task, stores: task.suspend(),
    }
    for wanted, step in steps.items():
        if wanted in status.successors or status in (TaskStatus.CREATED, TaskStatus.CLOSED):
            continue
        task, stores = _task(status)
        with pytest.raises(RuntimeError, match=f"cannot go from {status.value} to {wanted.value}"):
            step(task, stores)
        assert task.status is status
    for end in (StreamTask.abort, StreamTask.close):
        task, _ = _task(status)
        assert end(task) is None
        assert not task.is_open


def test_a_task_goes_on_from_commit_to_commit_and_through_rebalances() -> None:
    task, stores = _task(TaskStatus.COMMITTED)
    assert task.start == {PLACE: 1}
    assert task.proceed()
    task.suspend()
    task.resume()
    task.prepare({PLACE: 2}, _nothing)
    task.abort()
    assert task.start == task.end == {PLACE: 1}
    task.open(stores)
    assert task.is_open
    task.close()
    assert task.status is TaskStatus.CLOSED
    with pytest.raises(RuntimeError, match="cannot go from closed to restoring"):
        task.open(stores)


# -- Trouble that passes ---------------------------------------------------------------------------------------------

TROUBLES: tuple[Callable[[], Exception], ...] = (
    lambda: TransactionError("fenced", fenced=True),
    lambda: KafkaRequestError("no answer", retriable=True),
    lambda: StoreLockedError("somebody has it still"),
)


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("step", ["init", "committed", "bounds", "store open", "position", "commit"])
def test_exactly_once_trouble_at_a_step_leaves_everything_as_it_was(
    step: str, trouble: Callable[[], Exception]
) -> None:
    world = World()
    world.run(numbers(2))
    world.clients.troubles[step] = trouble()
    report = world.run(numbers(3, start=2), positions={PLACE: 2})
    assert report.failure is None
    assert [*report.interrupted, *report.locked] == [TASK]
    assert not report.complete
    assert report.ranges.get(PLACE, OffsetRange("in", 0, 2, 2)).end == 2
    assert (report.records, report.outputs, report.collected, report.workers) == (0, 0, [], {})
    assert world.counted == 2
    again = world.run(numbers(3, start=2), positions={PLACE: 2})
    assert again.ranges[PLACE].end == 5
    assert world.counted == 5


def test_a_transaction_that_fails_while_outputs_are_produced_is_tried_again() -> None:
    # It is not about the record at hand, so no callback may skip that either.
    asked = []

    def skip(error: Exception, record: Any, logger: Any) -> bool:
        asked.append(error)
        return True

    for callback in (None, skip):
        world = World(on_producer_error=callback)
        world.clients.troubles["out"] = TransactionError("fenced", fenced=True)
        report = world.run(numbers(3))
        assert report.failure is None
        assert report.interrupted == {TASK: "fenced"}
        assert world.counted == 0
    assert not asked


def test_at_least_once_a_lock_that_somebody_holds_is_waited_for() -> None:
    world = World(transactional=False)
    world.clients.troubles["store open"] = StoreLockedError("somebody has it still")
    report = world.run(numbers(2))
    assert report.failure is None
    assert report.locked == {TASK: "somebody has it still"}
    assert world.run(numbers(2)).ranges[PLACE].end == 2


# -- Damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("step", ["store open", "store get", "store scan"])
def test_a_damaged_store_is_restored_from_its_changelog(step: str, transactional: bool) -> None:
    world = World(transactional=transactional)
    world.run(numbers(2))
    world.clients.troubles[step] = StoreCorruptedError("a block is damaged")
    report = world.run(numbers(3, start=2), positions={PLACE: 2})
    if step != "store open":
        assert report.interrupted == {TASK: "a block is damaged"}
        report = world.run(numbers(3, start=2), positions={PLACE: 2})
    assert report.failure is None
    assert report.ranges[PLACE].end == 5
    assert world.catalog.destroyed == 1
    # At least once, what the first attempt has produced already may count.
    assert world.counted == 5 if transactional else world.counted >= 5


def test_damage_that_shows_during_a_restore_is_repaired_too() -> None:
    world = World()
    world.run(numbers(2))
    world.catalog.disk.destroy(0)
    world.clients.troubles["store scan"] = StoreCorruptedError("a block is damaged")
    report = world.tasks.restore([TASK], BatchContext({PLACE: 2}))
    assert report.interrupted == {TASK: "a block is damaged"}
    assert world.tasks.restore([TASK], BatchContext({PLACE: 2})).complete
    assert world.counted == 2


@pytest.mark.parametrize("step", ["store get", "store scan"])
def test_a_damaged_store_without_changelog_is_left_to_the_user(step: str) -> None:
    world = World(transactional=False, changelog=False)
    world.run(numbers(2))
    world.clients.troubles[step] = StoreCorruptedError("a block is damaged")
    report = world.run(numbers(3, start=2), positions={PLACE: 2})
    assert report.failure is not None
    assert "a block is damaged" in report.failure.message
    assert "use_changelog_topics=False" in report.failure.message
    assert world.catalog.destroyed == 0


# -- What ends the application ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("step", ["log", "position"])
def test_state_that_cannot_be_produced_ends_the_application(step: str, transactional: bool) -> None:
    def skip(error: Exception, record: Any, logger: Any) -> bool:
        return True

    world = World(transactional=transactional, on_producer_error=skip)
    world.run(numbers(2))
    world.clients.troubles[step] = ProducerError("the record is too large")
    report = world.run(numbers(3, start=2), positions={PLACE: 2})
    assert report.failure is not None
    assert (report.failure.kind, report.failure.partition) == ("producer", TASK)
    assert "the record is too large" in report.failure.message
    assert report.ranges[PLACE].end == 2
    assert world.counted == 2 if transactional else world.counted >= 2


def test_exactly_once_a_store_that_cannot_be_written_catches_up_later() -> None:
    world = World()
    world.run(numbers(2))
    world.clients.troubles["store write"] = StateError("the disk is full")
    report = world.run(numbers(3, start=2), positions={PLACE: 2})
    assert report.failure is not None
    assert report.failure.message == "the disk is full"
    assert world.clients.offsets[PLACE] == 5
    assert world.counted == 5


@pytest.mark.parametrize(
    ("transactional", "step"),
    [
        (transactional, step)
        for transactional in (True, False)
        for step in ("out", "log", "position", "commit" if transactional else "flush", "store write", "store get")
    ],
)
def test_whatever_is_raised_nobody_keeps_the_store(transactional: bool, step: str) -> None:
    class Killed(BaseException):
        pass

    world = World(transactional=transactional)
    world.clients.troubles[step] = Killed()  # type: ignore[assignment]
    with pytest.raises(Killed):
        world.run(numbers(2))
    assert world.run(numbers(2)).failure is None


@pytest.mark.parametrize("transactional", [True, False])
def test_a_store_that_cannot_be_written_when_it_is_closed_ends_the_application(
    transactional: bool, processing_mode: str
) -> None:
    """Committed data stays. Going on would replay it from the changelog in each micro-batch."""
    world = World(transactional=transactional)
    world.clients.troubles["store close"] = StateError("the disk is full")
    report = world.run(numbers(2))
    told = [] if report.failure is None else [report.failure.message]
    # Stores of a resident task stay open until it lets go of its partitions.
    assert told == ([] if processing_mode == "resident" else ["the disk is full"])
    assert report.ranges[PLACE].end == 2
    assert world.counted == 2


@pytest.mark.parametrize("transactional", [True, False])
def test_a_store_that_is_damaged_when_it_is_closed_takes_nothing_back(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.clients.troubles["store close"] = StoreCorruptedError("a block is damaged")
    report = world.run(numbers(2))
    assert report.failure is None
    assert report.ranges[PLACE].end == 2
    assert world.counted == 2


@pytest.mark.parametrize("transactional", [True, False])
def test_a_store_does_not_become_empty_because_its_changelog_is(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.run(numbers(2))
    world.clients.bounds = lambda place: (0, 0)  # type: ignore[method-assign]
    report = world.run(numbers(1, start=2), positions={PLACE: 2})
    assert report.failure is not None
    assert isinstance(report.failure.cause, ChangelogError)
    assert "log[0] is empty, but store 'default' of in[0]" in report.failure.message
    assert world.catalog.destroyed == 0


def test_a_store_that_was_kept_without_a_changelog_takes_an_empty_one() -> None:
    world = World(transactional=False)
    with contextlib.closing(world.catalog.disk.open(0)) as partition:
        identity = StoreIdentity("group", "in", 0, "default", None, None, 2)
        partition.write([], Stamp(identity, 0, None, None, 1_000))
    assert world.run(numbers(2)).failure is None
    assert world.counted == 2


# -- Stores without changelog ----------------------------------------------------------------------------------------


def test_without_changelog_a_store_that_is_behind_is_refused() -> None:
    world = World(transactional=False, changelog=False)
    world.run(numbers(2))
    report = world.run(numbers(2, start=4), positions={PLACE: 4})
    assert report.failure is not None
    assert "the state lacks the records" in report.failure.message


def test_without_changelog_a_store_that_is_ahead_counts_twice() -> None:
    world = World(transactional=False, changelog=False)
    world.run(numbers(2))
    assert world.run(numbers(3, start=1), positions={PLACE: 1}).failure is None
    assert world.counted == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"group": "other"}, "a separate state_dir"), ({"partitions": 3}, "had 3 partitions, but now it has 2")],
)
@pytest.mark.parametrize("changelog", [True, False])
def test_a_store_of_somebody_else_is_refused(changes: dict[str, Any], message: str, changelog: bool) -> None:
    world = World(transactional=False, changelog=changelog)
    world.run(numbers(2))
    with contextlib.closing(world.catalog.disk.open(0)) as partition:
        stamp = partition.stamp
        assert stamp is not None
        partition.write([], replace(stamp, identity=replace(stamp.identity, **changes)))
    report = world.run(numbers(2, start=2), positions={PLACE: 2})
    assert report.failure is not None
    assert message in report.failure.message


# -- A partition that comes twice in one micro-batch -----------------------------------------------------------------


def test_a_partition_may_come_twice() -> None:
    for transactional in (True, False):
        world = World(transactional=transactional)
        report = world.run(numbers(2), chunk(b"7", partition=1), numbers(3, start=2))
        assert report.ranges[PLACE] == OffsetRange("in", 0, 0, 5)
        assert (report.records, report.outputs, len(report.collected)) == (6, 6, 6)
        assert world.counted == 5


@pytest.mark.parametrize("stateful", [True, False])
def test_if_the_first_part_is_lost_the_second_one_is_not_processed(stateful: bool) -> None:
    world = World(transactional=False, stateful=stateful)
    world.clients.lost = [ProducerError("not delivered")]
    report = world.run(numbers(2), chunk(b"7", partition=1), numbers(3, start=2))
    assert report.failure is not None
    assert report.failure.kind == "producer"
    assert report.ranges[PLACE].end == 0
    assert report.collected == []


@pytest.mark.only_mode("micro-batch", reason="all parts that a partition has in a cycle are committed at once")
def test_if_the_second_part_fails_the_first_one_stays() -> None:
    world = World()
    world.clients.troubles["release"] = AssertionError("a writer without trouble is kept")
    first = numbers(2)
    calls = 0

    def second(task: TaskId, owner: TopicPartition | None = None) -> TransactionalRecordWriter:
        nonlocal calls
        calls += 1
        if calls == 3:
            world.clients.troubles["commit"] = TransactionError("fenced")
        return Transaction(world.clients)

    world.clients.transactional = world.clients.kept = second  # type: ignore[method-assign]
    report = world.run(first, chunk(b"7", partition=1), numbers(3, start=2))
    assert report.ranges[PLACE] == OffsetRange("in", 0, 0, 2)
    assert [(output.partition, output.offset) for output in report.collected] == [(0, 0), (0, 1), (1, 0)]
    assert (report.records, report.outputs) == (3, 3)
    assert report.interrupted == {TASK: "fenced"}


# -- Deliveries ------------------------------------------------------------------------------------------------------


def test_at_least_once_a_lost_delivery_takes_all_ranges_of_the_flush_back() -> None:
    world = World(transactional=False)
    world.clients.lost = [ProducerError("not delivered")]
    report = world.run(numbers(2), chunk(b"7", partition=1))
    assert {place: done.end for place, done in report.ranges.items()} == {PLACE: 0, OTHER: 0}
    assert report.failure is not None
    assert "not delivered" in report.failure.message
    assert "in[0], in[1]" in report.failure.message
    assert (report.records, report.outputs, report.collected) == (0, 0, [])
    assert world.catalog.disk.open(0).stamp is None


def test_a_sink_that_wants_a_pause_gets_the_records_again() -> None:
    class Sinks:
        exclusive = False

        def begin(self, stream: str, start: Mapping[TopicPartition, int]) -> None: ...

        def forget(self, places: tuple[TopicPartition, ...]) -> None: ...

        def flush(self, end: Mapping[TopicPartition, int]) -> None:
            raise SinkBackpressureError(2.0)

        def pause(self, places: tuple[TopicPartition, ...]) -> None: ...

        def take(self, places: tuple[TopicPartition, ...]) -> list[Any]:
            return []

    for transactional in (True, False):
        world = World(transactional=transactional)
        world.tasks._registry.sinks = Sinks()  # type: ignore[assignment]
        report = world.run(numbers(2))
        assert report.stalled == {TASK: Pause(2.0)}
        assert report.ranges[PLACE].end == 0
        assert world.counted == 0


def test_there_is_no_writer_before_a_transaction_is_open() -> None:
    world = World()
    task = world.tasks.assign(TASK, {PLACE: 0})
    writer: RecordWriter = task.writer
    assert writer.flush() == []
    with pytest.raises(RuntimeError, match="no task is open"):
        writer.produce("out", b"", None, 0, None)
    with pytest.raises(RuntimeError, match="has no stores before it is opened"):
        _ = task.stores
    world.tasks.release(task)
    assert task.status is TaskStatus.CLOSED
