"""The rules of event time: the slowest busy partition counts, idle ones are left out, exchanges are passed by barriers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.event_time.event_time import EventTime, Peer, StepClock
from streamrt.models import TopicPartition
from streamrt.operators.concat import Concat
from streamrt.operators.group_by import ColumnKey, Repartition
from streamrt.runtime.report import StoreTime
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics import Topic
from streamrt.topology import (
    MergeOperator,
    Node,
    Operator,
    OperatorContext,
    RecordHandler,
    SourceOperator,
    TaskId,
    TopologyBuilder,
    WatermarkStrategy,
    WhenAllIdle,
)

STORE = "windows"
FIRST, SECOND = TaskId("clicks", 0), TaskId("clicks", 1)
GROUPED = "repartition__shop--clicks--user"
BEHIND = TaskId(GROUPED, 0), TaskId(GROUPED, 1)
GROUPED_PARTITIONS = TopicPartition(GROUPED, 0), TopicPartition(GROUPED, 1)


@dataclass(frozen=True)
class Waiting(Operator):
    """An operator that does nothing but wait for event time, or for the wall clock."""

    name: ClassVar[str] = "waiting"
    idle_ms: int | None
    when_all_idle: WhenAllIdle = "advance"
    wall_clock: bool = False
    hold_ms: int | None = 0
    store: str = STORE
    lag_ms: int = 0

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:
        return child

    def stores(self) -> tuple[StoreSpec, ...]:
        return (StoreSpec(self.store, transaction=TimedTransaction),)

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:
        return (
            () if self.wall_clock else ((self.store, WatermarkStrategy(self.lag_ms, self.idle_ms, self.when_all_idle)),)
        )

    def wall_clock_stores(self) -> tuple[str, ...]:
        return (self.store,) if self.wall_clock else ()

    @property
    def holds_back_ms(self) -> int | None:
        return self.hold_ms


@dataclass(frozen=True)
class Merged(Waiting, MergeOperator):
    """Waits for event time behind two inputs."""

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:
        return (child, child)


def begin(event_time: EventTime, tasks: Iterable[TaskId]) -> EventTime:
    """Have tasks that can be ticked and are at their ends."""
    known = list(tasks)
    event_time.assign(known)
    event_time.ready(known)
    event_time.at_end()
    return event_time


def make(idle_ms: int | None = 100, tasks: Iterable[TaskId] = (FIRST, SECOND), **options: Any) -> EventTime:
    builder = TopologyBuilder()
    builder.add(builder.add_source(SourceOperator(Topic("clicks"))), Waiting(idle_ms, **options))
    return begin(EventTime(builder.build(), {"clicks": 2}), tasks)


def see(event_time: EventTime, task: TaskId, observed: int | None, deadline: int | None = None) -> None:
    event_time.report({(task, STORE): StoreTime(observed, deadline)}, {})


def at(event_time: EventTime, task: TaskId = FIRST) -> int | None:
    return event_time.watermarks()[task].get(STORE)


# -- One stream ----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-J8")
def test_the_slowest_partition_counts() -> None:
    event_time = make()
    see(event_time, FIRST, 5_000)
    see(event_time, SECOND, 3_000)
    assert at(event_time) == at(event_time, SECOND) == 3_000


@pytest.mark.rows("PF-J5")
def test_a_partition_without_records_holds_the_others_up_until_it_is_idle() -> None:
    event_time = make(idle_ms=100)
    event_time.elapse(50)
    see(event_time, FIRST, 5_000)
    event_time.elapse(49)
    assert at(event_time) is None
    event_time.elapse(1)
    assert at(event_time) == 5_000


def test_an_idle_partition_comes_back() -> None:
    event_time = make(idle_ms=100)
    see(event_time, FIRST, 1_000)
    see(event_time, SECOND, 2_000)
    event_time.elapse(120)
    see(event_time, SECOND, 9_000)
    assert at(event_time) == 9_000
    see(event_time, FIRST, 4_000)
    assert at(event_time) == 4_000, "stores have clocks that never go back, watermarks are made of the facts of now"
    see(event_time, SECOND, 10_000)
    see(event_time, FIRST, 9_500)
    assert at(event_time) == 9_500


def test_what_a_store_remembers_counts_until_its_partition_is_known() -> None:
    event_time = make(idle_ms=100)
    event_time.report({(FIRST, STORE): StoreTime(None, None, 1_000)}, {})
    event_time.elapse(90)
    see(event_time, SECOND, 2_000)
    assert at(event_time) == 1_000
    # The watermark was applied to the store, by a batch without a record that has a time.
    event_time.report({(FIRST, STORE): StoreTime(None, None, 1_050)}, {})
    event_time.elapse(20)
    assert at(event_time) == 2_000, "nothing has come from the first partition for 110 ms"


def test_event_time_runs_on_while_all_are_idle() -> None:
    event_time = make(idle_ms=100)
    event_time.elapse(10)
    see(event_time, FIRST, 1_000)
    event_time.elapse(30)
    see(event_time, SECOND, 2_000)
    event_time.elapse(99)
    assert at(event_time) == 2_000, "the first partition is idle, the second is not"
    event_time.elapse(1)
    assert at(event_time) == 2_100
    event_time.elapse(900)
    assert at(event_time) == 3_000


@pytest.mark.rows("PF-J5")
def test_fault_25_event_time_holds_while_all_are_idle_if_it_is_asked_to() -> None:
    event_time = make(idle_ms=100, when_all_idle="hold")
    see(event_time, FIRST, 1_000)
    see(event_time, SECOND, 2_000)
    assert at(event_time) == 1_000
    event_time.elapse(1_000_000)
    assert at(event_time) == 2_000


def test_without_idle_timeout_nobody_is_left_out() -> None:
    event_time = make(idle_ms=None)
    see(event_time, FIRST, 1_000)
    event_time.elapse(1_000_000)
    assert at(event_time) is None
    see(event_time, SECOND, 500)
    event_time.elapse(9_000_000)
    assert at(event_time) == 500


def test_fault_3_a_quiet_partition_is_idle_although_others_are_busy() -> None:
    event_time = make(idle_ms=100)
    see(event_time, FIRST, 1_000)
    event_time.at_end([SECOND])
    for step in range(1, 11):
        assert at(event_time) is None
        event_time.elapse(10)
        see(event_time, FIRST, 1_000 + step)
    assert at(event_time) == 1_010


def test_what_is_not_read_to_its_end_is_not_idle_however_long_it_was_quiet() -> None:
    event_time = make(idle_ms=100)
    see(event_time, FIRST, 1_000)
    see(event_time, SECOND, 2_000)
    event_time.elapse(500)
    event_time.at_end([SECOND], [FIRST, SECOND])
    event_time.elapse(500)
    assert at(event_time) == 1_000, "the first partition has records that nobody has processed"


def test_fault_2_a_task_that_waits_holds_the_others_up_and_is_not_due() -> None:
    event_time = make(idle_ms=100)
    see(event_time, FIRST, 1_000, deadline=1_500)
    see(event_time, SECOND, 2_000)
    event_time.ready([SECOND])
    event_time.at_end()
    event_time.elapse(1_000)
    assert at(event_time) == 1_000
    assert event_time.due(0) == set()
    event_time.ready([FIRST, SECOND])
    see(event_time, FIRST, 1_600, deadline=1_500)
    assert event_time.due(0) == {FIRST}


def test_tasks_are_due_when_their_deadline_is_reached() -> None:
    event_time = make()
    assert event_time.due(0) == {FIRST, SECOND}, "nobody knows yet what they wait for"
    see(event_time, FIRST, 1_000, deadline=2_000)
    see(event_time, SECOND, 1_999, deadline=None)
    assert event_time.due(0) == set()
    assert event_time.latest == event_time.watermarks()
    see(event_time, FIRST, 2_500, deadline=2_000)
    see(event_time, SECOND, 2_000, deadline=None)
    assert event_time.due(0) == {FIRST}
    see(event_time, FIRST, 2_500, deadline=3_000)
    assert event_time.due(0) == set()


def test_deadlines_on_the_wall_clock_wait_for_nothing_else() -> None:
    event_time = make(idle_ms=None, wall_clock=True)
    see(event_time, FIRST, None, deadline=2_000)
    see(event_time, SECOND, None)
    event_time.at_end([])
    assert (event_time.due(1_999), event_time.due(2_000)) == (set(), {FIRST})
    assert event_time.watermarks() == {FIRST: {}, SECOND: {}}


def test_an_assignment_forgets_what_others_have_now() -> None:
    event_time = make()
    see(event_time, FIRST, 1_000)
    see(event_time, SECOND, 9_000)
    event_time.assign([SECOND])
    assert at(event_time, SECOND) == 9_000
    see(event_time, FIRST, 9_500)
    assert event_time.due(0) == set()


def test_fault_1_a_partition_that_lags_behind_is_told_no_more_than_its_own_time() -> None:
    event_time = make(tasks=[FIRST])
    see(event_time, FIRST, 12_000)
    assert at(event_time) == 12_000
    event_time.assign([FIRST, SECOND])
    event_time.ready([FIRST, SECOND])
    assert at(event_time, SECOND) is None
    event_time.report({(SECOND, STORE): StoreTime(None, 11_500, 11_000)}, {})
    assert at(event_time, SECOND) == 11_000
    assert event_time.due(0) == set()


def test_a_task_that_begins_again_counts_from_where_it_is_committed() -> None:
    event_time = make()
    see(event_time, FIRST, 5_000)
    see(event_time, SECOND, 3_000)
    event_time.restart([FIRST])
    assert at(event_time) is None
    assert event_time.due(0) == {FIRST}, "it must tell what it waits for"
    event_time.report({(FIRST, STORE): StoreTime(None, None, 1_000)}, {})
    assert at(event_time) == 1_000


def test_nothing_is_wanted_without_operators_that_ask() -> None:
    builder = TopologyBuilder()
    builder.add_source(SourceOperator(Topic("clicks")))
    event_time = begin(EventTime(builder.build(), {"clicks": 2}), [FIRST])
    see(event_time, FIRST, 5)
    assert not event_time.wanted
    assert event_time.watermarks() == {}
    assert event_time.due(0) == set()
    assert event_time.barrier() is None


def test_a_long_gap_counts_for_a_second_unless_nothing_happened_in_it() -> None:
    clock = StepClock()
    assert clock.step(100.0) == 0
    assert clock.step(100.25) == 250
    assert clock.step(500.0) == 1_000
    assert clock.gap(600.0) == 100_000


@pytest.mark.parametrize("idle_ms", [None, 50])
@given(st.data())
def test_a_watermark_is_the_lowest_time_of_all_that_are_not_idle(idle_ms: int | None, data: Any) -> None:
    event_time = make(idle_ms)
    newest: dict[TaskId, int] = {}
    quiet = {FIRST: 0, SECOND: 0}
    ends = {FIRST, SECOND}
    for _ in range(data.draw(st.integers(1, 20))):
        step = data.draw(st.integers(0, 40))
        event_time.elapse(step)
        for task in ends:
            quiet[task] += step
        ends = data.draw(st.sets(st.sampled_from([FIRST, SECOND])))
        event_time.at_end(ends)
        task = data.draw(st.sampled_from([FIRST, SECOND]))
        seen = max(data.draw(st.integers(0, 1_000)), newest.get(task, 0))
        if seen != newest.get(task):
            newest[task], quiet[task] = seen, 0
        see(event_time, task, seen)
        idle = {task for task in ends if idle_ms is not None and quiet[task] >= idle_ms}
        if active := {FIRST, SECOND} - idle:
            expected = min(newest[task] for task in active) if active <= newest.keys() else None
        else:
            expected = max(newest.values()) + min(quiet[task] for task in newest)
        assert at(event_time) == expected


# -- Behind exchanges ----------------------------------------------------------------------------------------------------


def grouped(
    idle_ms: int | None = 100,
    before: Operator | None = None,
    tasks: Iterable[TaskId] = (FIRST, SECOND, *BEHIND),
    **options: Any,
) -> EventTime:
    """Return event time of windows behind a `group_by`."""
    builder = TopologyBuilder()
    node = builder.add_source(SourceOperator(Topic("clicks")))
    node = node if before is None else builder.add(node, before)
    builder.add(node, Repartition(Topic(GROUPED), ColumnKey("user"), "user"))
    builder.add(builder.add_source(SourceOperator(Topic(GROUPED))), Waiting(idle_ms, **options))
    event_time = begin(EventTime(builder.build(), {"clicks": 2, GROUPED: 2}), tasks)
    event_time.processed(dict.fromkeys(GROUPED_PARTITIONS, 0))
    for task in BEHIND:
        see(event_time, task, None, deadline=1)
    return event_time


def send(event_time: EventTime, task: TaskId, time: int) -> None:
    event_time.report({}, {(task, GROUPED): time})


def let_pass(event_time: EventTime, *ends: int) -> bool:
    barrier = event_time.barrier()
    if barrier is not None:
        event_time.add_barrier(barrier, dict(zip(GROUPED_PARTITIONS, ends, strict=True)))
    return barrier is not None


def test_fault_0_a_watermark_holds_behind_an_exchange_when_all_that_it_stands_for_is_processed() -> None:
    event_time = grouped()
    send(event_time, FIRST, 5_000)
    assert not let_pass(event_time, 0, 0), "the second partition may be far behind"
    send(event_time, SECOND, 3_000)
    assert let_pass(event_time, 7, 9)
    assert [at(event_time, task) for task in BEHIND] == [None, None]
    event_time.processed({GROUPED_PARTITIONS[0]: 6, GROUPED_PARTITIONS[1]: 9})
    assert [at(event_time, task) for task in BEHIND] == [None, 3_000]
    event_time.processed({GROUPED_PARTITIONS[0]: 7})
    assert [at(event_time, task) for task in BEHIND] == [3_000, 3_000]
    assert not let_pass(event_time, 0, 0), "nothing new"


def test_a20_what_a_former_owner_has_read_lets_no_watermark_pass() -> None:
    event_time = grouped()
    send(event_time, FIRST, 5_000)
    send(event_time, SECOND, 5_000)
    assert let_pass(event_time, 7, 9)
    # Its work is lost, and the new owner has not read these records again.
    event_time.record_positions({GROUPED_PARTITIONS[0]: 7, GROUPED_PARTITIONS[1]: 9}, {BEHIND[1]})
    assert [at(event_time, task) for task in BEHIND] == [None, 5_000]


def test_an_idle_partition_in_front_is_left_out_and_all_of_them_let_time_run_on() -> None:
    event_time = grouped(idle_ms=100)
    send(event_time, FIRST, 5_000)
    event_time.elapse(100)
    send(event_time, FIRST, 6_000)
    assert let_pass(event_time, 0, 0)
    assert at(event_time, BEHIND[0]) == 6_000
    event_time.elapse(150)
    assert let_pass(event_time, 0, 0)
    assert at(event_time, BEHIND[0]) == 6_150


def test_open_windows_in_front_hold_time_back_for_what_is_behind() -> None:
    event_time = grouped(idle_ms=100, before=Waiting(100, store="before"))
    event_time.report({(task, "before"): StoreTime(5_000, None) for task in (FIRST, SECOND)}, {})
    event_time.report({(FIRST, "before"): StoreTime(5_000, 9_000)}, {(FIRST, GROUPED): 4_000, (SECOND, GROUPED): 5_000})
    event_time.elapse(1_000)
    assert let_pass(event_time, 0, 0)
    assert at(event_time, BEHIND[0]) == 4_000
    event_time.report({(FIRST, "before"): StoreTime(5_000, None)}, {})
    assert let_pass(event_time, 0, 0)
    assert at(event_time, BEHIND[0]) == 6_000


def windows_in_front(tasks: Iterable[TaskId], hold_ms: int | None = 10_000) -> EventTime:
    """Return event time behind a `group_by` with two windows in front of it: a long one, and a short one."""
    builder = TopologyBuilder()
    node = builder.add_source(SourceOperator(Topic("clicks")))
    windows = [
        builder.add(node, Waiting(100, store="long", hold_ms=hold_ms)),
        builder.add(node, Waiting(100, store="short", hold_ms=100)),
    ]
    node = builder.add_merge(windows, Concat())
    builder.add(node, Repartition(Topic(GROUPED), ColumnKey("user"), "user"))
    builder.add(builder.add_source(SourceOperator(Topic(GROUPED))), Waiting(100))
    event_time = begin(EventTime(builder.build(), {"clicks": 1, GROUPED: 2}), tasks)
    event_time.processed(dict.fromkeys(GROUPED_PARTITIONS, 0))
    return event_time


def test_each_open_window_in_front_bounds_what_is_behind() -> None:
    event_time = windows_in_front([FIRST, *BEHIND])
    see(event_time, BEHIND[0], None, deadline=1)
    event_time.report({(FIRST, "short"): StoreTime(17_000, 17_050)}, {(FIRST, GROUPED): 16_900})
    assert not let_pass(event_time, 0, 0), "nothing is known of the long windows"
    event_time.report({(FIRST, "long"): StoreTime(17_000, 20_000)}, {})
    assert let_pass(event_time, 0, 0)
    assert at(event_time, BEHIND[0]) == 10_000, "this is the time of a result that is still to come"
    event_time.report({(FIRST, "long"): StoreTime(20_000, 30_000), (FIRST, "short"): StoreTime(20_000, None)}, {})
    assert let_pass(event_time, 0, 0)
    assert at(event_time, BEHIND[0]) == 16_900


@pytest.mark.parametrize(("hold_ms", "expected"), [(10_000, 10_000), (None, 16_900)])
def test_windows_of_other_instances_bound_it_if_their_results_have_known_times(
    hold_ms: int | None, expected: int
) -> None:
    event_time = windows_in_front(BEHIND, hold_ms)
    see(event_time, BEHIND[0], None, deadline=1)
    event_time.peers({FIRST: Peer(True, {GROUPED: 16_900}, frozenset({GROUPED}), {}, {GROUPED: 20_000})})
    assert let_pass(event_time, 0, 0)
    assert at(event_time, BEHIND[0]) == expected


def test_partitions_of_other_instances_count_by_what_they_have_committed() -> None:
    event_time = grouped(tasks=[FIRST, BEHIND[0]])
    assert event_time.foreign_tasks() == {SECOND}
    send(event_time, FIRST, 5_000)
    event_time.elapse(1_000)
    assert not let_pass(event_time, 0, 0), "nothing is known of the other instance"
    partition = TopicPartition("clicks", 1)
    peer = Peer(at_end=False, sent={GROUPED: 2_000}, pending=frozenset(), positions={partition: 4})
    event_time.peers({SECOND: peer})
    event_time.elapse(1_000)
    assert let_pass(event_time, 0, 0)
    assert at(event_time, BEHIND[0]) == 2_000
    event_time.peers({SECOND: Peer(True, {GROUPED: 2_000}, frozenset({GROUPED}), {partition: 5})})
    event_time.elapse(1_000)
    assert not let_pass(event_time, 0, 0), "it has open windows"
    event_time.peers({SECOND: Peer(True, {GROUPED: 2_000}, frozenset(), {partition: 5})})
    event_time.elapse(100)
    assert let_pass(event_time, 0, 0)
    assert at(event_time, BEHIND[0]) == 6_100


def test_what_a_partition_has_sent_before_it_came_here_is_known() -> None:
    event_time = grouped(tasks=[FIRST, BEHIND[0]])
    event_time.peers({SECOND: Peer(False, {GROUPED: 2_000}, frozenset(), {TopicPartition("clicks", 1): 4})})
    send(event_time, FIRST, 5_000)
    event_time.assign([FIRST, SECOND, BEHIND[0]])
    assert event_time.foreign_tasks() == set()
    assert let_pass(event_time, 0, 0)
    assert at(event_time, BEHIND[0]) == 2_000


def test_partitions_behind_an_exchange_begin_anew_where_they_go() -> None:
    event_time = grouped()
    send(event_time, FIRST, 5_000)
    send(event_time, SECOND, 5_000)
    assert let_pass(event_time, 0, 0)
    event_time.assign([FIRST, SECOND, BEHIND[1]])
    event_time.assign([FIRST, SECOND, *BEHIND])
    assert at(event_time, BEHIND[0]) is None
    assert at(event_time, BEHIND[1]) == 5_000


@pytest.mark.parametrize("hold_ms", [0, 250])
def test_time_passes_two_exchanges_less_what_operators_hold_back(hold_ms: int) -> None:
    builder = TopologyBuilder()
    node = builder.add_source(SourceOperator(Topic("clicks")))
    builder.add(node, Repartition(Topic(GROUPED), ColumnKey("user"), "user"))
    node = builder.add(builder.add_source(SourceOperator(Topic(GROUPED))), Waiting(100, hold_ms=hold_ms))
    builder.add(node, Repartition(Topic("again"), ColumnKey("shop"), "shop"))
    builder.add(builder.add_source(SourceOperator(Topic("again"))), Waiting(100))
    last = TaskId("again", 0)
    event_time = begin(EventTime(builder.build(), {"clicks": 1, GROUPED: 2, "again": 1}), [FIRST, *BEHIND, last])
    event_time.processed(dict.fromkeys((*GROUPED_PARTITIONS, TopicPartition("again", 0)), 0))
    see(event_time, last, None, deadline=1)
    for task in BEHIND:
        see(event_time, task, None)
    send(event_time, FIRST, 5_000)
    for end in (0, 0):
        barrier = event_time.barrier()
        assert barrier is not None
        event_time.add_barrier(barrier, dict.fromkeys(barrier.partitions, end))
    # Nothing was sent through the second exchange, and the first task is busy.
    assert at(event_time, last) == 5_000 - hold_ms


def pass_twice(tasks: Iterable[TaskId], hold_ms: int = 1_000, lag_ms: int = 0) -> EventTime:
    """Return event time of windows behind a `group_by`, and behind a second one after them."""
    builder = TopologyBuilder()
    node = builder.add_source(SourceOperator(Topic("clicks")))
    builder.add(node, Repartition(Topic(GROUPED), ColumnKey("user"), "user"))
    node = builder.add(builder.add_source(SourceOperator(Topic(GROUPED))), Waiting(100, hold_ms=hold_ms, lag_ms=lag_ms))
    builder.add(node, Repartition(Topic("again"), ColumnKey("shop"), "shop"))
    builder.add(builder.add_source(SourceOperator(Topic("again"))), Waiting(100, lag_ms=lag_ms))
    event_time = begin(EventTime(builder.build(), {"clicks": 1, GROUPED: 2, "again": 1}), tasks)
    event_time.processed(dict.fromkeys((*GROUPED_PARTITIONS, TopicPartition("again", 0)), 0))
    return event_time


def pass_all(event_time: EventTime) -> None:
    """Let the watermarks pass all exchanges, whose records are processed."""
    while (barrier := event_time.barrier()) is not None:
        event_time.add_barrier(barrier, dict.fromkeys(barrier.partitions, 0))


LAST = TaskId("again", 0)


def test_windows_that_are_due_hold_time_back_behind_a_second_exchange() -> None:
    event_time = pass_twice([FIRST, *BEHIND, LAST])
    see(event_time, LAST, None, deadline=1)
    send(event_time, FIRST, 900_000)
    pass_all(event_time)
    assert at(event_time, LAST) is None, "nothing is known of the windows in between"
    # A backlog has filled many windows before any watermark was known. Their results are still to come.
    see(event_time, BEHIND[0], None, deadline=70_000)
    see(event_time, BEHIND[1], None)
    pass_all(event_time)
    assert [at(event_time, task) for task in BEHIND] == [900_000, 900_000]
    assert at(event_time, LAST) == 70_000 - 1 - 1_000
    see(event_time, BEHIND[0], None, deadline=80_000)
    pass_all(event_time)
    assert at(event_time, LAST) == 80_000 - 1 - 1_000
    # All that is due was passed on.
    see(event_time, BEHIND[0], None, deadline=900_001)
    pass_all(event_time)
    assert at(event_time, LAST) == 900_000 - 1_000


def test_windows_are_due_when_the_lag_of_their_strategy_has_passed() -> None:
    event_time = pass_twice([FIRST, *BEHIND, LAST], lag_ms=500)
    see(event_time, LAST, None, deadline=1)
    send(event_time, FIRST, 10_000)
    see(event_time, BEHIND[0], None, deadline=9_600)
    see(event_time, BEHIND[1], None)
    pass_all(event_time)
    assert at(event_time, BEHIND[0]) == 9_500
    # What is in front of the second exchange, and its own lag.
    assert at(event_time, LAST) == 10_000 - 1_000 - 500 - 500


@pytest.mark.parametrize(
    ("deadlines", "expected"), [({"again": 70_000}, 68_999), ({}, 899_000), ({"again": 900_001}, 899_000)]
)
def test_windows_of_other_instances_hold_time_back_as_well(deadlines: dict[str, int], expected: int) -> None:
    event_time = pass_twice([FIRST, BEHIND[0], LAST])
    see(event_time, LAST, None, deadline=1)
    see(event_time, BEHIND[0], None)
    send(event_time, FIRST, 900_000)
    positions = {GROUPED_PARTITIONS[1]: 0}
    event_time.peers({BEHIND[1]: Peer(True, {}, frozenset({"again"}), positions, deadlines)})
    pass_all(event_time)
    event_time.peers({BEHIND[1]: Peer(True, {}, frozenset({"again"}), positions, deadlines)})
    pass_all(event_time)
    assert at(event_time, LAST) == expected


def test_a_partition_far_behind_passes_the_last_of_many_barriers() -> None:
    event_time = grouped()
    for step in range(1, 100):
        send(event_time, FIRST, step)
        send(event_time, SECOND, step)
        assert let_pass(event_time, step, step)
        event_time.processed({GROUPED_PARTITIONS[0]: step})
        assert at(event_time, BEHIND[0]) == step
    found = []
    for step in range(100):
        event_time.processed({GROUPED_PARTITIONS[1]: step})
        found.append(at(event_time, BEHIND[1]))
    known = [time for time in found if time is not None]
    assert known == sorted(known)
    assert found[-1] == 99
    assert all(time is None or time <= step for step, time in enumerate(found))


def test_a_stream_that_feeds_itself_through_an_exchange_does_not_wait_for_itself() -> None:
    builder = TopologyBuilder()
    source = builder.add_source(SourceOperator(Topic("clicks")))
    windowed = builder.add(source, Waiting(100, store="before"))
    builder.add(windowed, Repartition(Topic(GROUPED), ColumnKey("user"), "user"))
    again = builder.add_source(SourceOperator(Topic(GROUPED)))
    builder.add_merge((again, source), Merged(100))
    topology = builder.build()
    (stream,) = topology.streams
    tasks = [TaskId(stream, number) for number in (0, 1)]
    event_time = begin(EventTime(topology, {"clicks": 2, GROUPED: 2}), tasks)
    event_time.processed(dict.fromkeys(GROUPED_PARTITIONS, 0))
    for task in tasks:
        seen = {(task, "before"): StoreTime(5_000, None), (task, STORE): StoreTime(5_000, 9_000)}
        event_time.report(seen, {(task, GROUPED): 4_000})
    assert event_time.watermarks()[tasks[0]] == {"before": 5_000}
    assert let_pass(event_time, 3, 3)
    event_time.processed(dict.fromkeys(GROUPED_PARTITIONS, 3))
    assert event_time.watermarks()[tasks[0]] == {"before": 5_000, STORE: 4_000}
