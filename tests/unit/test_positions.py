"""Positions never fall, wherever they are kept: reports about a partition come in any order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.event_time.barriers import Barrier
from streamrt.kafka import KafkaRequestError
from streamrt.models import OffsetRange, TopicPartition
from streamrt.records import Positions
from streamrt.runtime.driver.life.schedule import CommitSchedule
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.runtime.link_messages import Committed
from streamrt.runtime.report import Report, StoreTime
from streamrt.runtime.resident.membership import NO_ASSIGNMENT, Membership
from streamrt.runtime.spec import TaskSpec
from streamrt.topology import TaskId, TopologyBuilder
from tests.unit.resident_world import Clock, MemoryLink, MemoryMember
from tests.unit.test_event_time import (
    BEHIND,
    FIRST,
    GROUPED,
    GROUPED_PARTITIONS,
    SECOND,
    at,
    grouped,
    let_pass,
    see,
    send,
)

ZERO, ONE = TopicPartition("in", 0), TopicPartition("in", 1)


@given(st.lists(st.tuples(st.sampled_from([ZERO, ONE]), st.integers(0, 9))))
def test_a20_positions_are_the_highest_of_what_was_reported(reports: list[tuple[TopicPartition, int]]) -> None:
    positions, known = Positions(), dict[TopicPartition, int]()
    for partition, reached in reports:
        before = positions.get(partition)
        raised = positions.advance({partition: reached})
        known[partition] = max(reached, known.get(partition, reached))
        assert dict(positions) == known
        assert raised == ({partition: reached} if before is None or reached > before else {})


def test_a20_only_an_assignment_or_a_rewind_sets_a_position_back() -> None:
    positions = Positions({ZERO: 7, ONE: 7})
    positions.begin({ZERO: 3})
    assert dict(positions) == {ZERO: 3, ONE: 7}
    positions.forget([ZERO])
    assert positions.advance({ZERO: 2}) == {ZERO: 2}
    positions.keep([ONE])
    assert dict(positions) == {ONE: 7}


def test_a20_positions_of_an_exchange_never_fall() -> None:
    """The report of a commit ends before the marker of its transaction, and comes after a report of the end."""
    event_time = grouped()
    event_time.processed({GROUPED_PARTITIONS[0]: 62, GROUPED_PARTITIONS[1]: 0})
    event_time.processed({GROUPED_PARTITIONS[0]: 61})
    send(event_time, FIRST, 5_000)
    send(event_time, SECOND, 5_000)
    assert let_pass(event_time, 62, 9)
    assert [at(event_time, task) for task in BEHIND] == [5_000, None]


def test_a20_a_partition_that_is_rewound_passes_its_watermarks_again() -> None:
    event_time = grouped()
    send(event_time, FIRST, 5_000)
    send(event_time, SECOND, 5_000)
    assert let_pass(event_time, 4, 4)
    event_time.processed(dict.fromkeys(GROUPED_PARTITIONS, 6))
    event_time.begin({GROUPED_PARTITIONS[0]: 2, GROUPED_PARTITIONS[1]: 6})
    assert [at(event_time, task) for task in BEHIND] == [None, 5_000]
    assert let_pass(event_time, 6, 6)
    event_time.processed({GROUPED_PARTITIONS[0]: 6})
    assert [at(event_time, task) for task in BEHIND] == [5_000, 5_000]


def test_a20_a_task_that_restarts_reports_its_positions_again() -> None:
    event_time = grouped()
    send(event_time, FIRST, 5_000)
    send(event_time, SECOND, 5_000)
    event_time.processed(dict.fromkeys(GROUPED_PARTITIONS, 6))
    event_time.restart([BEHIND[0]])
    event_time.report({(BEHIND[0], "windows"): StoreTime(None, 1)}, {})
    assert let_pass(event_time, 6, 6)
    assert [at(event_time, task) for task in BEHIND] == [None, 5_000]
    event_time.processed({GROUPED_PARTITIONS[0]: 4})
    assert let_pass(event_time, 6, 6) or at(event_time, BEHIND[0]) is None
    event_time.processed({GROUPED_PARTITIONS[0]: 6})
    assert at(event_time, BEHIND[0]) == 5_000


def test_a20_shown_positions_and_rates_do_not_fall_behind_a_marker() -> None:
    progress = Progress()
    progress.assigned({ZERO: 60})
    progress.processed_to({ZERO: 62})
    progress.report(Report(ranges={ZERO: OffsetRange(*ZERO, 60, 61)}))
    assert progress.snapshot().positions == {ZERO: 62}
    assert progress.snapshot().rates == {"in": 0.0}
    progress.assigned({ZERO: 60})
    assert progress.snapshot().positions == {ZERO: 60}, "another assignment begins where it begins"


def test_a20_the_schedule_of_commits_never_goes_back() -> None:
    schedule = CommitSchedule(1.0, 0)
    schedule.start({ZERO: 5}, 0.0)
    schedule.processed({ZERO: 9}, 4)
    schedule.committed({ZERO: 9}, 1.0)
    schedule.processed({ZERO: 8}, 1)
    schedule.committed({ZERO: 8}, 1.0)
    assert schedule.pending() == {}
    schedule.processed({ZERO: 10}, 1)
    assert schedule.pending() == {ZERO: 10}
    schedule.start({ZERO: 5}, 2.0)
    schedule.processed({ZERO: 6}, 1)
    assert schedule.pending() == {ZERO: 6}


def test_a20_a_commit_that_failed_is_not_repeated_with_lower_offsets() -> None:
    offsets: dict[TopicPartition, int] = {}
    link, members = MemoryLink(offsets, Clock()), list[MemoryMember]()

    def join(*callbacks: Any) -> MemoryMember:
        members.append(MemoryMember(offsets, *callbacks))
        return members[0]

    membership = Membership(join, link, TaskSpec(TopologyBuilder().build()))
    members[0].assign(ZERO)
    membership.assignment = members[0].current or NO_ASSIGNMENT
    members[0].troubles.append(KafkaRequestError("no answer", retriable=True))
    assert not membership.commit({ZERO: 9})
    assert membership.commit({ZERO: 8})
    assert offsets == {ZERO: 9}
    assert link.told(Committed) == [Committed({ZERO: 9})]


# -- A partition that comes to an instance whose watermark stands still -----------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"when_all_idle": "hold"}, {"idle_ms": None}])
def test_a7_a_partition_that_moves_here_gets_the_watermark_that_stands_still(options: dict[str, Any]) -> None:
    event_time = grouped(tasks=[FIRST, SECOND, BEHIND[0]], **options)
    send(event_time, FIRST, 5_000)
    send(event_time, SECOND, 5_000)
    assert let_pass(event_time, 4, 4)
    event_time.processed({GROUPED_PARTITIONS[0]: 4})
    see(event_time, BEHIND[0], 5_000)
    assert at(event_time, BEHIND[0]) == 5_000
    assert not let_pass(event_time, 4, 4), "nothing waits"
    event_time.assign([FIRST, SECOND, *BEHIND])
    event_time.begin({GROUPED_PARTITIONS[1]: 2})
    see(event_time, BEHIND[1], None, deadline=2_000)
    assert let_pass(event_time, 4, 4)
    assert at(event_time, BEHIND[1]) is None
    event_time.processed({GROUPED_PARTITIONS[1]: 4})
    assert at(event_time, BEHIND[1]) == 5_000
    assert not let_pass(event_time, 4, 4), "each partition has passed it"


class Quiescence:
    """An instance that owns what is in front of an exchange, and some of the partitions behind it, in any order of events."""

    def __init__(self) -> None:
        self.event_time = grouped(when_all_idle="hold")
        self.sent = dict.fromkeys((FIRST, SECOND), 0)
        self.ends = dict.fromkeys(GROUPED_PARTITIONS, 0)
        self.committed = dict.fromkeys(GROUPED_PARTITIONS, 0)
        self.owned = set(BEHIND)
        self.asked: list[tuple[Barrier, dict[TopicPartition, int]]] = []

    def move(self, number: int, amount: int) -> None:
        """Give the partitions behind the exchange to instances."""
        before, self.owned = self.owned, {BEHIND[each] for each in (0, 1) if amount >> each & 1}
        self.event_time.assign([FIRST, SECOND, *self.owned])
        self.event_time.ready([FIRST, SECOND, *self.owned])
        for task in self.owned - before:
            self._begin(task)

    def restart(self, number: int, amount: int) -> None:
        """Drop the uncommitted work of a task."""
        if BEHIND[number] in self.owned:
            self.event_time.restart([BEHIND[number]])
            self._begin(BEHIND[number])

    def send(self, number: int, amount: int) -> None:
        """Send records, of which some go to each partition."""
        self.sent[(FIRST, SECOND)[number]] += 100 * amount
        self.ends[GROUPED_PARTITIONS[amount % 2]] += 2
        self.event_time.report({}, {(task, GROUPED): time for task, time in self.sent.items()})

    def process(self, number: int, amount: int) -> None:
        """Process, up to any position: reports come late, and before the marker at the end."""
        if BEHIND[number] in self.owned:
            reached = min(self.ends[GROUPED_PARTITIONS[number]], self.committed[GROUPED_PARTITIONS[number]] + amount)
            self.event_time.processed({GROUPED_PARTITIONS[number]: reached})
            self.committed[GROUPED_PARTITIONS[number]] = max(0, reached - 1)

    def wait(self, number: int, amount: int) -> None:
        """Have a window wait, or none."""
        see(self.event_time, BEHIND[number], None, deadline=50 * amount or None)

    def ask(self, number: int, amount: int) -> None:
        """Ask for the ends of the topic; the answer comes later."""
        if (barrier := self.event_time.barrier()) is not None:
            self.asked.append((barrier, dict(self.ends)))

    def answer(self, number: int, amount: int) -> None:
        """Have an answer come, and no other one."""
        if self.asked:
            self.event_time.add_barrier(*self.asked.pop(0))
            self.asked.clear()

    def settle(self) -> set[TaskId]:
        """Let nothing more come, read all to the ends, and return the tasks that are due."""
        self.answer(0, 0)
        self.move(0, 3)
        for number, task in enumerate(BEHIND):
            see(self.event_time, task, None, deadline=1 + number)
            self.event_time.processed({GROUPED_PARTITIONS[number]: self.ends[GROUPED_PARTITIONS[number]]})
        self.event_time.at_end()
        for _ in range(3):
            self.ask(0, 0)
            self.answer(0, 0)
        return self.event_time.due(0)

    def _begin(self, task: TaskId) -> None:
        partition = GROUPED_PARTITIONS[task.partition]
        self.event_time.begin({partition: self.committed[partition]})


EVENTS = ("move", "restart", "send", "process", "wait", "ask", "answer")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 1), st.integers(0, 4)), max_size=30))
def test_a7_whatever_the_order_of_events_what_is_due_at_the_end_is_due(events: list[tuple[str, int, int]]) -> None:
    world = Quiescence()
    for name, number, amount in events:
        getattr(world, name)(number, amount)
    due = world.settle()
    if min(world.sent.values()) >= 2:
        assert due >= set(BEHIND)
    assert world.event_time.barrier() is None, "nothing is left to ask for"
