"""The resident task and sinks: pauses, flushes that fail, and records that must be dropped or kept."""

import itertools
from typing import Any

import pytest

from streamrt import Application
from streamrt.connectors import BaseSink, BatchingSink, ListSink, SinkBatch
from streamrt.errors import (
    SinkBackpressureError,
    SinkError,
    StoreCorruptedError,
)
from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.link_messages import (
    Committed,
    Failed,
    ProgressUpdate,
    Time,
    Welcome,
)
from tests.unit.resident_world import (
    BOTH,
    FIRST,
    FIRST_TASK,
    GUARANTEES,
    SECOND,
    SECOND_TASK,
    World,
    committed,
    processed,
    seen,
    waiting_store,
)


class Moody(BatchingSink):
    """A sink of the task that wants a pause when it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.moods: dict[int, list[float]] = {}
        self.items: list[tuple[int, Any]] = []

    def write(self, batch: SinkBatch) -> None:
        if self.moods.get(batch.partition):
            raise SinkBackpressureError(self.moods[batch.partition].pop(0))
        self.items += [(batch.partition, item.value) for item in batch]


def sinking(sink: BaseSink) -> Any:
    def build(app: Application) -> None:
        sdf = app.dataframe(app.topic("in"))
        sdf.sink(sink)

    return build


@GUARANTEES
@pytest.mark.parametrize("first", [FIRST, SECOND])
def test_a_sink_that_wants_a_pause_gets_it_from_its_partition_alone(transactional: bool, first: TopicPartition) -> None:
    sink = Moody()
    world = World(sinking(sink), transactional=transactional)
    sink.moods = {0: [60.0]}
    world.begin()
    # In the order in which they begin to work.
    second = SECOND if first == FIRST else FIRST
    world.put(first, 1)
    world.steps(2)
    world.put(second, 2)
    world.until(lambda: committed(world).get(SECOND) == 1)
    assert world.feed.paused == {FIRST}
    begun = world.clock()
    for number in range(3, 6):
        world.put(SECOND, number)
        world.commit()
    assert FIRST not in committed(world)
    assert world.clock() - begun < 50
    world.put(FIRST, 9)
    world.until(lambda: committed(world).get(FIRST) == 2, 2_000)
    mine = {FIRST: [1, 9] if first == FIRST else [2, 9], SECOND: [2, 3, 4, 5] if first == FIRST else [1, 3, 4, 5]}
    for place, values in mine.items():
        assert [value for partition, value in sink.items if partition == place.partition] == values


@GUARANTEES
def test_a_sink_drops_what_it_took_from_partitions_that_were_lost(transactional: bool) -> None:
    sink = Moody()
    world = World(sinking(sink), transactional=transactional)
    world.put(FIRST, 1)
    world.put(SECOND, 2)
    world.begin()
    world.until(lambda: seen(world) == 2)
    world.member.lose()
    world.steps()
    # Another member has processed the records, and more of them.
    world.put(FIRST, 3)
    committed(world).update({FIRST: 2, SECOND: 1})
    world.begin()
    world.put(FIRST, 4)
    world.until(lambda: committed(world)[FIRST] == 3)
    assert sink.items == [(0, 4)]


@GUARANTEES
def test_a_sink_of_the_driver_gets_what_was_lost_once(transactional: bool) -> None:
    world = World(sinking(ListSink()), transactional=transactional)
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: seen(world) == 1)
    world.member.lose()
    world.steps()
    world.begin(FIRST)
    world.until(lambda: committed(world).get(FIRST) == 1)
    assert [item.value for report in world.reports for _, batch in report.sunk for item in batch] == [1]


class Whole(BaseSink):
    """A sink that cannot tell the records of partitions apart."""

    def __init__(self) -> None:
        self.moods: list[float] = []
        self.taken: list[Any] = []
        self.items: list[Any] = []
        self.flushed: list[list[Any]] = []

    def add(
        self,
        value: Any,
        key: Any,
        timestamp: int,
        headers: Any,
        topic: str,
        partition: int,
        offset: int,
    ) -> None:
        self.taken.append((partition, value))

    def flush(self) -> None:
        if self.moods and (pause := self.moods.pop(0)):
            raise SinkBackpressureError(pause)
        if self.taken:
            self.flushed.append(self.taken)
        self.taken = []

    def on_paused(self) -> None:
        self.taken = []


@GUARANTEES
def test_a_sink_that_cannot_tell_partitions_apart_gets_one_after_the_other(transactional: bool) -> None:
    sink = Whole()
    world = World(sinking(sink), transactional=transactional, on_message_processed=print)
    world.begin()
    for number in range(4):
        world.put(FIRST, number)
        world.put(SECOND, 100 + number)
        world.steps(1)
    world.revoke()
    assert all(len({partition for partition, _ in items}) == 1 for items in sink.flushed)
    assert sorted(itertools.chain.from_iterable(sink.flushed)) == [
        *((0, n) for n in range(4)),
        *((1, 100 + n) for n in range(4)),
    ]
    assert processed(world) == {FIRST: [0, 1, 2, 3], SECOND: [0, 1, 2, 3]}


@GUARANTEES
def test_a_second_commit_in_one_cycle_takes_only_its_own_work_along(transactional: bool) -> None:
    sink = Whole()
    world = World(sinking(sink), transactional=transactional, on_message_processed=print)
    world.begin()
    world.put(FIRST, 1)
    world.steps()
    world.put(SECOND, 2)
    world.steps()
    # The first work of FIRST is settled when it is delivered again; this one's flush fails.
    world.put(FIRST, 3)
    world.steps()
    sink.moods = [5.0]
    world.put(SECOND, 4)
    world.until(lambda: committed(world) == {FIRST: 2, SECOND: 2})
    assert processed(world) == {FIRST: [0, 1], SECOND: [0, 1]}
    assert sorted(itertools.chain.from_iterable(sink.flushed)) == [(0, 1), (0, 3), (1, 2), (1, 4)]


@GUARANTEES
def test_what_was_settled_in_a_cycle_stays_so_when_later_work_is_aborted(transactional: bool) -> None:
    sink = Whole()
    world = World(sinking(sink), transactional=transactional)
    world.begin()
    for place, value in ((FIRST, 0), (SECOND, 0), (FIRST, 1)):
        world.put(place, value)
        world.steps()
    # The first work of each is settled. The second one of FIRST is flushed when the next record of SECOND comes.
    sink.moods = [0.01]
    world.put(SECOND, 1)
    world.until(lambda: len(world.feed.resumed) == 2 and not world.feed.paused and not sink.moods)
    world.steps()
    sink.moods = [0.01]
    world.put(SECOND, 2)
    world.until(lambda: committed(world) == {FIRST: 2, SECOND: 3})
    assert not sink.moods
    assert sorted(itertools.chain.from_iterable(sink.flushed)) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    assert [report.ranges[FIRST] for report in world.reports] == [OffsetRange("in", 0, 0, 2)]
    assert world.link.told(Committed) == [Committed({FIRST: 2, SECOND: 3})]


@GUARANTEES
def test_sinks_of_the_driver_get_what_was_settled_when_later_work_is_aborted(transactional: bool) -> None:
    sink = Whole()

    def build(app: Application) -> None:
        sdf = app.dataframe(app.topic("in"))
        sdf.sink(sink)
        sdf.sink(ListSink())

    world = World(build, transactional=transactional)
    world.begin()
    for place, value in ((FIRST, 0), (SECOND, 10), (FIRST, 1)):
        world.put(place, value)
        world.steps()
    # The second work of FIRST is flushed when the next record of SECOND comes.
    sink.moods = [0.01]
    world.put(SECOND, 11)
    world.until(lambda: committed(world) == {FIRST: 2, SECOND: 2})
    assert not sink.moods
    sunk = [item.value for report in world.reports for _, batch in report.sunk for item in batch]
    assert sorted(sunk) == [0, 1, 10, 11]


@GUARANTEES
def test_what_was_committed_in_a_batch_is_told_although_the_rest_of_it_is_lost(transactional: bool) -> None:
    def build(app: Application) -> None:
        sdf = app.dataframe(app.topic("in"))
        sdf.sink(Whole())
        sdf.sink(ListSink())

    world = World(build, transactional=transactional, collect=True)
    world.begin()
    for place, value in ((FIRST, 0), (SECOND, 10), (FIRST, 1)):
        world.put(place, value)
        world.steps()
    # Exactly once, the first two transactions are committed; at least once, nothing is.
    done = {FIRST: 1, SECOND: 1} if transactional else {}
    assert committed(world) == done
    world.member.lose()
    world.begin()
    world.until(lambda: committed(world) == {FIRST: 2, SECOND: 1})
    sunk = [item.value for report in world.reports for _, batch in report.sunk for item in batch]
    assert sorted(sunk) == [0, 1, 10]
    # Both sinks are outputs.
    assert sorted(output.value for report in world.reports for output in report.collected) == [0, 0, 1, 1, 10, 10]
    assert sum(report.outputs for report in world.reports) == 6


@GUARANTEES
@pytest.mark.parametrize("first", [FIRST, SECOND])
def test_a_tick_after_work_was_aborted_opens_no_store_twice(transactional: bool, first: TopicPartition) -> None:
    sink = Whole()

    def build(app: Application) -> None:
        window = app.dataframe(app.topic("in")).tumbling_window(1_000).count()
        window.final(closing_strategy="watermark", idle_timeout_ms=5_000).sink(sink)

    world = World(build, transactional=transactional)
    for place in BOTH:
        world.put(place, 1, timestamp=1_500)
    world.begin()
    world.commit()
    world.put(first, 1, timestamp=1_600)
    world.steps()
    sink.moods = [1.0]
    due = frozenset({FIRST_TASK, SECOND_TASK})
    for _ in range(60):
        world.link.inbox.append(Time({task: {waiting_store(world): 2_000} for task in due}, due))
        world.steps(2)
    world.revoke()
    assert sorted(partition for items in sink.flushed for partition, _ in items) == [0, 1]
    assert not any(message.report.interrupted for message in world.link.told(ProgressUpdate))


@GUARANTEES
def test_a_sink_that_cannot_tell_partitions_apart_keeps_its_records_while_another_stream_is_given_up(
    transactional: bool,
) -> None:
    sink = Whole()

    def build(app: Application) -> None:
        app.dataframe(app.topic("in")).to_topic(app.topic("out"))
        app.dataframe(app.topic("other")).sink(sink)

    world = World(build, transactional=transactional)
    other = TopicPartition("other", 0)
    world.put(FIRST, 1)
    world.put(other, 2)
    # All sinks are flushed with each task.
    sink.moods = [1.0]
    world.begin(FIRST, other)
    world.until(lambda: committed(world) == {FIRST: 1, other: 1})
    assert sink.flushed == [[(0, 2)]]


def test_a_sink_that_fails_ends_the_task() -> None:
    class Broken(BatchingSink):
        def write(self, batch: SinkBatch) -> None:
            raise ValueError("broken")

    world = World(sinking(Broken()))
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: world.reports)
    failure = world.reports[0].failure
    assert failure is not None
    assert failure.kind == "sink"
    assert committed(world) == {}


@GUARANTEES
def test_a_sink_that_cannot_drop_records_ends_the_task_with_a_sentence(transactional: bool) -> None:
    class Stubborn(Whole):
        def on_paused(self) -> None:
            raise ValueError("no")

    sink = Stubborn()
    sink.moods = [1.0]
    world = World(sinking(sink), transactional=transactional)
    world.put(FIRST, 1)
    world.link.inbox.append(Welcome())
    world.member.assign(FIRST)
    world.task.run()
    (failed,) = world.link.told(Failed)
    assert isinstance(failed.error, SinkError)
    assert str(failed.error) == "the sink Stubborn failed to drop records of in[0]: ValueError: no"
    assert committed(world) == {}


@GUARANTEES
def test_sinks_of_the_driver_get_each_record_once_although_work_is_repeated(transactional: bool) -> None:
    def build(app: Application) -> None:
        sdf = app.dataframe(app.topic("in")).apply(_tally_plainly, stateful=True)
        sdf.sink(ListSink())

    world = World(build, transactional=transactional)
    world.begin()
    for number in range(6):
        world.put(FIRST, number)
        world.put(SECOND, 100 + number)
        if number == 3:
            world.clients.troubles["store get" if number % 2 else "commit"] = StoreCorruptedError("injected")
        world.until(lambda wanted=number + 1: committed(world) == {FIRST: wanted, SECOND: wanted})  # type: ignore[misc]
    sunk = [(batch.partition, item.value) for report in world.reports for _, batch in report.sunk for item in batch]
    assert sorted(sunk) == [*((0, n) for n in range(6)), *((1, 100 + n) for n in range(6))]


def _tally_plainly(value: int, state: Any) -> int:
    state.set("n", state.get("n", 0) + 1)
    return value
