"""Reads of state on their way: the resident loop, the driver's part in both modes, and tasks that are not at work."""

from collections.abc import Sequence
from typing import Any

import pytest

from streamrt.errors import StateNotOwnedError, StateUnavailableError
from streamrt.kafka.membership.group_state import GroupAssignment
from streamrt.records import TopicPartition
from streamrt.runs.driver_reads import BatchReads, Owned, SlotReads
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.link_messages import Settle, StateRead, StateRows
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.state.layout import BYTES_KEY, after_prefix, record_prefix
from streamrt.state.reading import StoredRows, StoreRead
from streamrt.topology import TaskId
from tests.unit.resident_world import BOTH, FIRST, FIRST_TASK, GUARANTEES, SECOND, World, committed, seen

PREFIX = record_prefix(BYTES_KEY, b"key")
READ = TaskRead(FIRST_TASK, "default", StoreRead(PREFIX, after_prefix(PREFIX), 10))


def ask(world: World, number: int) -> TaskRows:
    """Have the loop read the state of the key; return its answer."""
    world.link.inbox.append(StateRead(number, READ))
    world.until(lambda: any(each.number == number for each in world.link.told(StateRows)))
    (answer,) = [each.rows for each in world.link.told(StateRows) if each.number == number]
    return answer


def value(rows: TaskRows) -> bytes | None:
    assert rows.found is not None, rows.trouble
    return rows.found.rows[0][1] if rows.found.rows else None


# -- The resident loop -------------------------------------------------------------------------------------------------


@GUARANTEES
def test_a_loop_answers_with_committed_state_alone(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1, 2)
    world.member.assign(FIRST)
    world.member.current = world.member._owned = GroupAssignment(1, frozenset({FIRST}), member=b"member-1")
    world.until_begun()
    world.until(lambda: committed(world) == {FIRST: 2})
    rows = ask(world, 1)
    assert (value(rows), rows.position, rows.member) == (b"\x002", {FIRST: 2}, b"member-1")
    # Processed, and not committed.
    world.put(FIRST, 3)
    world.until(lambda: seen(world) == 3)
    if committed(world) == {FIRST: 2}:
        rows = ask(world, 2)
        assert (value(rows), rows.position) in ((b"\x002", {FIRST: 2}), (b"\x003", {FIRST: 3}))
        assert (value(rows) == b"\x003") is (committed(world) == {FIRST: 3})
    world.until(lambda: committed(world) == {FIRST: 3})
    assert value(ask(world, 3)) == b"\x003"


@GUARANTEES
def test_a_loop_does_not_answer_for_what_it_may_have_lost(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: committed(world) == {FIRST: 1})
    assert value(ask(world, 1)) == b"\x001"
    world.revoke()
    assert "moving" in ask(world, 2).trouble
    # It comes back.
    world.member.assign(FIRST, unbroken=True)
    world.until(lambda: world.task._answered)
    assert value(ask(world, 3)) == b"\x001"
    world.member.assign(SECOND)
    assert "moving" in ask(world, 4).trouble


def test_a_loop_that_is_paused_answers() -> None:
    world = World()
    world.put(FIRST, 1)
    world.begin(FIRST, SECOND)
    world.until(lambda: committed(world).get(FIRST) == 1)
    world.link.inbox.append(Settle(1, frozenset({"in"})))
    world.steps(5)
    assert value(ask(world, 1)) == b"\x001"


# -- Tasks that are not at work ----------------------------------------------------------------------------------------


@GUARANTEES
def test_stores_are_opened_for_a_read_and_closed_again(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1, 2)
    world.begin(FIRST)
    world.until(lambda: committed(world) == {FIRST: 2})
    world.let_go()
    tasks: TaskExecutor = world.task._tasks
    calls = list(world.clients.calls)
    (rows,) = tasks.read(FIRST_TASK, [READ], BatchContext({FIRST: 2}))
    assert (value(rows), rows.position) == (b"\x002", {FIRST: 2})
    # Nothing was taken over.
    assert "init" not in world.clients.calls[len(calls) :]
    assert world.counted() == 2
    # A changelog that is ahead of the offsets belongs to another owner by now, or cannot be explained.
    if transactional:
        (refused,) = tasks.read(FIRST_TASK, [READ], BatchContext({FIRST: 1}))
        assert refused.found is None
        assert "cannot be read now" in refused.trouble


# -- The driver, with resident tasks -----------------------------------------------------------------------------------


class Link:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


def test_answers_find_their_questions_and_a_lost_task_refuses_its_own() -> None:
    reads = SlotReads()
    one, other = Link(), Link()
    asked = [reads.ask(link, READ) for link in (one, one, other)]  # type: ignore[arg-type]
    reads.answered(StateRows(one.sent[1].number, TaskRows(None, trouble="second")))
    assert asked[1].result(0).trouble == "second"
    reads.lost(one)  # type: ignore[arg-type]
    assert "has ended" in asked[0].result(0).trouble
    assert not asked[2].done()
    # No one waits for it any more.
    asked[2].cancel()
    reads.answered(StateRows(other.sent[0].number, TaskRows(None)))
    assert reads._waiting == {}


# -- The driver, with micro-batches ------------------------------------------------------------------------------------


class Batches:
    def __init__(self) -> None:
        self.owned: Owned | None = Owned(BOTH, b"member-1", 1)
        self.reads = BatchReads(lambda: self.owned, lambda task: (TopicPartition("in", task.partition),))
        self.ran: list[Sequence[TaskRead]] = []

    def run(self, reads: Sequence[TaskRead]) -> list[TaskRows]:
        self.ran.append(reads)
        return [TaskRows(StoredRows((), (), None)) for _ in reads]


def test_one_job_answers_all_reads_that_wait() -> None:
    batches = Batches()
    asked = [batches.reads.ask(READ) for _ in range(3)]
    assert batches.reads.pending
    batches.reads.serve({FIRST: 7, SECOND: 8}, batches.run)
    assert [len(each) for each in batches.ran] == [3]
    assert [(each.result(0).position, each.result(0).member) for each in asked] == [({FIRST: 7}, b"member-1")] * 3
    assert not batches.reads.pending


def test_reads_are_refused_where_partitions_move() -> None:
    batches = Batches()
    first, second = batches.reads.ask(READ), batches.reads.ask(TaskRead(TaskId("in", 1), "default", READ.read))
    # The second partition waits for a sink.
    batches.reads.serve({FIRST: 7}, batches.run)
    assert first.result(0).found is not None
    assert "wait for others" in second.result(0).trouble

    def run_and_move(reads: Sequence[TaskRead]) -> list[TaskRows]:
        batches.owned = Owned(BOTH, b"member-1", 2)
        return batches.run(reads)

    third = batches.reads.ask(READ)
    batches.reads.serve({FIRST: 7}, run_and_move)
    assert third.result(0).found is None

    def fail(reads: Sequence[TaskRead]) -> list[TaskRows]:
        raise RuntimeError("spark")

    fourth = batches.reads.ask(READ)
    batches.reads.serve({FIRST: 7}, fail)
    assert "RuntimeError" in fourth.result(0).trouble
    fifth = batches.reads.ask(READ)
    batches.reads.refuse("the application is stopping")
    assert fifth.result(0).trouble == "the application is stopping"
    batches.owned = Owned(frozenset({SECOND}), b"member-1", 3)
    with pytest.raises(StateNotOwnedError):
        batches.reads.ask(READ)
    batches.owned = None
    with pytest.raises(StateUnavailableError):
        batches.reads.ask(READ)
