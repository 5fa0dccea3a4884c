"""The resident task in trouble: sessions that fail, stores that are damaged, sinks that want a pause."""

import itertools
from typing import Any

import pytest

from streamrt import Application
from streamrt.connectors import BaseSink, BatchingSink, ListSink, SinkBatch
from streamrt.errors import (
    ProducerError,
    RunnerError,
    SinkBackpressureError,
    StateError,
    StoreCorruptedError,
    TransactionError,
)
from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.link import (
    Begin,
    Committed,
    Seen,
    Time,
    Wanted,
)
from tests.unit.resident_world import (
    BOTH,
    FIRST,
    GUARANTEES,
    SECOND,
    World,
    committed,
    plain,
    processed,
    seen,
    waiting_store,
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
    world.revoke()
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


def test_stores_whose_changelog_has_records_of_others_are_opened_anew() -> None:
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
    assert world.catalog.opened == [0, 0]
    world.put(FIRST, 3)
    world.commit()
    assert world.counts() == [(1, 1), (2, 2), (3, 3)], "the last write is ours"


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


def test_offsets_that_are_gone_are_asked_for_again() -> None:
    world = World(plain)
    world.put(FIRST, 1, 2)
    world.put(SECOND, 3)
    world.begin()
    world.until(lambda: seen(world) == 3)
    world.put(FIRST, 4, 5, 6)
    world.feed.low[FIRST] = 4
    world.link.begins = False
    world.until(lambda: len(world.link.told(Wanted)) == 2)
    # What was done is committed before.
    assert committed(world) == {FIRST: 2, SECOND: 1}
    world.link.inbox.append(Begin(1, {FIRST: 4, SECOND: 1}, {FIRST: 4}))
    world.until(lambda: len(world.outputs()) == 4)
    assert sorted(world.outputs()) == [1, 2, 3, 6]
    assert {FIRST: 4} in world.member.commits


def test_nothing_is_opened_while_no_broker_answers() -> None:
    world = World()
    world.put(FIRST, 1)
    world.member.away = True
    world.member.assign(FIRST)
    world.steps(20)
    assert world.catalog.opened == []
    world.member.away = False
    world.until(lambda: world.counts())


# -- Sinks -------------------------------------------------------------------------------------------------------------


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
    # In the order in which their sessions begin.
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
def test_a_second_session_in_one_batch_takes_only_its_own_work_along(transactional: bool) -> None:
    sink = Whole()
    world = World(sinking(sink), transactional=transactional, on_message_processed=print)
    world.begin()
    world.put(FIRST, 1)
    world.steps()
    world.put(SECOND, 2)
    world.steps()
    # The first session of FIRST is settled when it comes again; this one's flush fails.
    world.put(FIRST, 3)
    world.steps()
    sink.moods = [5.0]
    world.put(SECOND, 4)
    world.until(lambda: committed(world) == {FIRST: 2, SECOND: 2})
    assert processed(world) == {FIRST: [0, 1], SECOND: [0, 1]}
    assert sorted(itertools.chain.from_iterable(sink.flushed)) == [(0, 1), (0, 3), (1, 2), (1, 4)]


@GUARANTEES
def test_what_was_settled_in_a_batch_stays_so_when_later_sessions_are_given_up(transactional: bool) -> None:
    sink = Whole()
    world = World(sinking(sink), transactional=transactional)
    world.begin()
    for place, value in ((FIRST, 0), (SECOND, 0), (FIRST, 1)):
        world.put(place, value)
        world.steps()
    # Each first session is settled. The second one of FIRST is flushed when the next record of SECOND comes.
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
@pytest.mark.parametrize("first", [FIRST, SECOND])
def test_a_tick_after_a_session_was_given_up_opens_no_store_twice(transactional: bool, first: TopicPartition) -> None:
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
    for _ in range(60):
        world.link.inbox.append(Time({"in": {waiting_store(world): 2_000}}, BOTH))
        world.steps(2)
    world.revoke()
    assert sorted(partition for items in sink.flushed for partition, _ in items) == [0, 1]
    assert not any(message.report.interrupted for message in world.link.told(Seen))


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
def test_sinks_of_the_driver_get_each_record_once_although_sessions_are_done_again(transactional: bool) -> None:
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
