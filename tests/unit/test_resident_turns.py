"""Partitions of a resident task take turns: a slow function on one of them does not keep the others waiting."""

from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from streamrt import Application
from streamrt.models import TopicPartition
from streamrt.runtime.resident.turns import Turns
from streamrt.runtime.tasks.commit import AtLeastOnceCommit
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.testing.memory import MemoryClients
from streamrt.topology import TaskId
from tests.unit.resident_world import BOTH, FIRST, GUARANTEES, SECOND, Clock, World, committed
from tests.unit.tasks import numbers

THIRD = TopicPartition("in", 2)
SLICE_S = 0.2


class Slow:
    """An application whose function takes 20 ms for each record, on the clock of the test."""

    def __init__(self) -> None:
        self.clock = Clock()

    def __call__(self, app: Application) -> None:
        app.dataframe(app.topic("in")).apply(self.work).to_topic(app.topic("out"))

    def work(self, value: Any) -> Any:
        self.clock.seconds += 0.02
        return value


def slow_world(transactional: bool, partitions: int = 2, commit_every: int = 0) -> tuple[World, Clock]:
    """Return a resident task with a slow function, and the clock by which it is slow."""
    slow = Slow()
    world = World(slow, transactional=transactional, partitions=partitions, commits={"commit_every": commit_every})
    world.tasks._registry.clock = slow.clock
    return world, slow.clock


@GUARANTEES
def test_fault_9_a_record_waits_for_a_slice_of_each_busy_partition_and_not_for_all_polled_records(
    transactional: bool,
) -> None:
    world, clock = slow_world(transactional, 3)
    world.begin(FIRST, SECOND, THIRD)
    world.put(FIRST, *range(2_000))
    world.put(SECOND, *range(2_000, 4_000))
    world.steps(5)

    def processed(offset: int) -> bool:
        cycle = world.task._cycle
        return cycle is not None and cycle.position(THIRD) > offset

    for number in range(10):
        before = clock.seconds
        world.put(THIRD, 10_000 + number)
        world.until(partial(processed, number))
        assert clock.seconds - before <= 3 * (SLICE_S + 0.02)
    world.until(lambda: committed(world) == {FIRST: 2_000, SECOND: 2_000, THIRD: 10}, 3_000)
    outputs = world.outputs()
    assert [value for value in outputs if value < 2_000] == [*range(2_000)]
    assert [value for value in outputs if 2_000 <= value < 4_000] == [*range(2_000, 4_000)]
    assert [value for value in outputs if value >= 10_000] == [*range(10_000, 10_010)]


def test_fault_9_busy_partitions_get_equal_shares() -> None:
    world, _ = slow_world(False, 3)
    world.begin(FIRST, SECOND, THIRD)
    for number, place in enumerate((FIRST, SECOND, THIRD)):
        world.put(place, *range(1_000 * number, 1_000 * (number + 1)))
    world.until(lambda: len(world.outputs()) >= 300)
    shares = [sum(value // 1_000 == number for value in world.outputs()) for number in range(3)]
    assert max(shares) - min(shares) <= 11


@GUARANTEES
def test_fault_9_partitions_take_turns_though_commits_come_after_a_few_records(transactional: bool) -> None:
    """The first partition could by itself fill each poll that brings no more than what one commit may have."""
    world, clock = slow_world(transactional, commit_every=2)
    world.begin()
    world.put(FIRST, *range(1_000))
    world.steps(5)
    before = clock.seconds
    world.put(SECOND, 10_000)
    world.until(lambda: 10_000 in world.outputs())
    assert clock.seconds - before <= 2 * (SLICE_S + 0.02)
    world.until(lambda: committed(world) == {FIRST: 1_000, SECOND: 1}, 3_000)
    steps = [0, *(each.get(FIRST, 0) for each in world.member.commits)]
    assert transactional or max(after - before for before, after in pairwise(steps) if after) <= 2


def test_fault_9_partitions_with_much_to_do_are_not_polled_meanwhile() -> None:
    """Otherwise their records would gather in memory, and be in front of those of others in the client's queue."""
    world, _ = slow_world(False)
    world.begin()
    world.put(FIRST, *range(100))
    world.steps(2)
    assert world.feed.paused == {FIRST}
    world.put(FIRST, *range(100, 30_000))
    world.steps(3)
    assert world.feed.positions[FIRST] == 100
    # It is read again as soon as one more turn is enough for the rest, so that there is no gap.
    world.until(lambda: not world.feed.paused)
    assert world.task._turns.records > 0
    world.until(lambda: world.feed.positions[FIRST] > 100)
    world.until(lambda: world.feed.paused == {FIRST})
    assert world.feed.positions[FIRST] <= 20_000


@GUARANTEES
def test_records_that_wait_for_their_turn_are_processed_after_a_rebalance(transactional: bool) -> None:
    world, _ = slow_world(transactional)
    world.begin()
    world.put(FIRST, *range(1_000))
    world.put(SECOND, *range(1_000, 2_000))
    world.steps(4)
    read = dict(world.feed.positions)
    world.revoke()
    assert world.task._turns.records > 0
    world.member.assign(*BOTH, unbroken=True)
    world.steps()
    assert world.feed.positions == read, "nothing is read twice"
    world.until(lambda: committed(world) == {FIRST: 1_000, SECOND: 1_000}, 3_000)
    assert sorted(world.outputs()) == [*range(2_000)]


@GUARANTEES
def test_fault_9_revoking_waits_for_a_slice_at_most(transactional: bool) -> None:
    world, clock = slow_world(transactional)
    world.begin()
    world.put(FIRST, *range(1_000))
    world.put(SECOND, *range(1_000, 2_000))
    world.steps(4)
    before = clock.seconds
    world.revoke()
    assert clock.seconds - before <= SLICE_S + 0.02
    done = dict(committed(world))
    assert 0 < sum(done.values()) < 100
    world.member.assign()
    world.steps()
    assert not world.task._turns
    assert not world.task._turns._crowded
    world.begin()
    world.until(lambda: committed(world) == {FIRST: 1_000, SECOND: 1_000}, 3_000)
    assert sorted(world.outputs()) == [*range(2_000)]


def windows(app: Application) -> None:
    """Count in windows that stay open for long, so that one record closes many."""
    window = app.dataframe(app.topic("in")).tumbling_window(1_000, grace_ms=100_000)
    closed = window.count().final(closing_strategy="partition")
    closed.apply(lambda value: value["start"] // 1_000).to_topic(app.topic("out"))


@GUARANTEES
def test_fault_11_closing_is_committed_between_portions_and_goes_on_without_records(
    transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamrt.runtime.resident.loop._SLICE_S", 0.0)
    world = World(windows, transactional=transactional, partitions=1)
    world.begin(FIRST)
    for number in range(20):
        world.put(FIRST, number, timestamp=1_000 * number)
    world.until(lambda: committed(world).get(FIRST) == 20)
    world.put(FIRST, 20, timestamp=500_000)
    world.until(lambda: committed(world).get(FIRST) == 21)
    assert len(world.outputs()) < 10
    # A revocation in the middle is heard, and the one that has the partition next goes on, without a record.
    world.revoke()
    assert len(world.outputs()) < 12
    reports = len(world.reports)
    world.begin(FIRST)
    world.until(lambda: len(world.outputs()) == 20 and not world.task.busy)
    assert world.outputs() == [*range(20)]
    assert len(world.reports) >= reports + 8
    assert committed(world) == {FIRST: 21}


def test_turns_hold_records_in_order_and_know_what_is_crowded() -> None:
    clients = MemoryClients(lambda: 0)
    first, second = (
        StreamTask(TaskId("in", partition.partition), {partition: 0}, AtLeastOnceCommit(clients), {})
        for partition in (FIRST, SECOND)
    )
    third = TaskId("in", 2)
    turns = Turns(lambda partition: TaskId(partition.topic, partition.partition))
    assert not turns
    turns.add([numbers(3), numbers(2, partition=1)])
    turns.want(third)
    assert turns.records == 5
    assert third in turns
    # No turn has shown yet how much one can do.
    assert turns.crowding() == ({FIRST, SECOND}, set())
    assert turns.crowding() == (set(), set())
    assert turns.room == 9_995
    turns.add([numbers(20_000, start=3)])
    assert turns.room == 100
    turns.drop(first)
    assert turns.records == 2
    assert turns.crowding() == (set(), set())
    turns.drop(second)
    assert turns.records == 0
    assert third in turns
