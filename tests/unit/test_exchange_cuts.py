"""Records that merges behind exchanges wait for."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from streamrt import Application, WatermarkStrategy
from streamrt.app import definition_of
from streamrt.event_time.exchange_cuts import UpstreamProgress, idle_timeouts
from streamrt.event_time.merge_cuts import MergeCuts
from streamrt.event_time.merge_phases import MergePhases
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.records import TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.resident import turns as turns_module
from streamrt.runtime.resident.turns import Turns
from streamrt.topology import TaskId, Topology

X, Y = "repartition__g--a--k", "repartition__g--b--k"
A0, A1, B0, B1 = (TopicPartition(topic, number) for topic in "ab" for number in (0, 1))
X0, X1, Y0, Y1 = (TopicPartition(topic, number) for topic in (X, Y) for number in (0, 1))


def topology(declare: Callable[[Application], Any], *inputs: str) -> Topology:
    app = Application("unused.invalid:9092", consumer_group="g", loglevel=None)
    declare(app)
    return definition_of(app).topology.resolve(dict.fromkeys(inputs or ("a", "b"), 2))


def frame(app: Application, name: str, **options: Any) -> Any:
    return app.dataframe(app.topic(name, key_deserializer="json", **options))


def both_grouped(app: Application) -> None:
    frame(app, "a").group_by("k").join_asof(frame(app, "b").group_by("k"))


class Kafka:
    """Answers what cuts ask for."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.stable: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.away = False
        self.asked = 0
        self.meanwhile: list[Callable[[], None]] = []

    def offset_bounds(
        self, partitions: Any, timeout: float = 30, *, isolation_level: Any = "read_uncommitted"
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        if self.away:
            raise KafkaRequestError("no broker", retriable=True)
        ends = {**self.ends, **self.stable} if isolation_level == "read_committed" else self.ends
        return {each: (0, ends.get(each, 0)) for each in partitions}

    def offset_ends(
        self, stable: Any, high: Any, timeout: float = 30
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        self.asked += 1
        found = self.offset_bounds(stable, isolation_level="read_committed"), self.offset_bounds(high)
        while self.meanwhile:
            self.meanwhile.pop()()
        return {each: end for each, (_, end) in found[0].items()}, {each: end for each, (_, end) in found[1].items()}

    def committed_now(
        self, group: str, partitions: Any, timeout: float = 30
    ) -> Mapping[TopicPartition, CommittedOffset]:
        return {each: CommittedOffset(self.committed.get(each)) for each in partitions}


class World:
    """Cuts of one process that owns all partitions, unless a test says otherwise."""

    def __init__(self, declare: Callable[[Application], Any] = both_grouped, *inputs: str) -> None:
        self.kafka, self.seconds = Kafka(), 0.0
        self.topology = topology(declare, *inputs)
        partitions = dict.fromkeys(self.topology.sources, 2)
        self.cuts = MergeCuts(self.kafka, "g", self.topology, partitions, 5.0, lambda: self.seconds)
        self.own = [TopicPartition(topic, number) for topic in partitions for number in (0, 1)]
        self.cuts.assign(self.own)
        (self.stream,) = self.cuts.streams

    def step(self, seconds: float = 0.0) -> Mapping[TopicPartition, int] | None:
        while seconds > 0:
            self.seconds += min(1.0, seconds)
            seconds -= 1.0
            if (found := self.cuts.step().get(self.stream)) is not None:
                return found
        return self.cuts.step().get(self.stream)


# -- Which exchanges are awaited ---------------------------------------------------------------------------------------


def test_a_merge_awaits_the_exchanges_among_its_inputs() -> None:
    found = topology(both_grouped)
    assert found.awaited_exchanges == {f"{X}--{Y}": (X, Y)}
    assert found.topics_before(f"{X}--{Y}") == {"a", "b"}


def test_without_a_merge_or_an_exchange_nothing_is_awaited() -> None:
    assert topology(lambda app: frame(app, "a").group_by("k").apply(len), "a").awaited_exchanges == {}
    assert topology(lambda app: frame(app, "a").concat(frame(app, "b")).apply(len)).awaited_exchanges == {}


def test_groupings_in_memory_are_not_awaited() -> None:
    app = Application("unused.invalid:9092", consumer_group="g", loglevel=None)
    both_grouped(app)
    assert definition_of(app).topology.resolve({"a": 1, "b": 1}).awaited_exchanges == {}


def test_an_exchange_that_the_merge_feeds_itself_is_not_awaited() -> None:
    def itself(app: Application) -> None:
        sdf = frame(app, "a")
        sdf.concat(sdf.group_by("k")).apply(len)

    assert topology(itself, "a").awaited_exchanges == {}


def test_two_merges_that_feed_each_other_do_not_await_each_other() -> None:
    def each_other(app: Application) -> None:
        a, b = frame(app, "a"), frame(app, "b")
        a.concat(b.group_by("k", name="x")).apply(len)
        b.concat(a.group_by("k", name="y")).apply(len)

    assert topology(each_other).awaited_exchanges == {}


def test_chains_are_awaited() -> None:
    chain = topology(lambda app: frame(app, "a").concat(frame(app, "b").group_by("h").group_by("k")).apply(len))
    (stream,) = chain.awaited_exchanges
    assert chain.topics_before(stream) == {"b", "repartition__g--b--h"}


# -- Cuts ---------------------------------------------------------------------------------------------------------------


def test_a19_a_cut_waits_for_what_is_in_front_of_the_exchanges() -> None:
    world = World()
    world.kafka.ends |= {A0: 5, B0: 3, B1: 1, X0: 5}
    world.cuts.note(dict.fromkeys(world.own, 0))
    world.cuts.begin(world.stream)
    assert world.step() is None
    world.cuts.note({A0: 5, B0: 2, B1: 1})
    assert world.step() is None
    world.kafka.ends |= {Y0: 3, Y1: 1}
    world.cuts.note({B0: 3})
    # The ends of the repartition topics are asked for after that.
    assert world.step() == {X0: 5, X1: 0, Y0: 3, Y1: 1}


def test_a_cut_does_not_wait_for_records_that_come_later() -> None:
    world = World()
    world.kafka.ends |= {A0: 5}
    world.cuts.note({**dict.fromkeys(world.own, 0), A0: 4})
    world.cuts.begin(world.stream)
    assert world.step() is None
    world.kafka.ends |= {A0: 9, B0: 100}
    world.cuts.note({A0: 5})
    assert world.step() is not None


def test_where_nothing_is_on_its_way_a_cut_is_complete_at_once() -> None:
    world = World()
    world.kafka.ends |= dict.fromkeys((A0, A1, B0, B1), 7)
    world.cuts.note(dict.fromkeys((A0, A1, B0, B1), 7))
    world.cuts.begin(world.stream)
    assert world.step() is not None


@pytest.mark.parametrize("chain", [False, True])
def test_where_nothing_is_on_its_way_all_ends_are_asked_for_together(chain: bool) -> None:
    def two(app: Application) -> None:
        frame(app, "a").concat(frame(app, "b").group_by("h").group_by("k")).apply(len)

    world = World(two if chain else both_grouped)
    world.kafka.ends |= dict.fromkeys(world.own, 7)
    world.cuts.note(dict.fromkeys(world.own, 7))
    world.cuts.begin(world.stream)
    assert set((world.step() or {}).values()) == {7}
    assert world.kafka.asked == 1


def test_a19_ends_that_were_asked_for_before_outputs_were_there_do_not_count() -> None:
    world = World()
    world.kafka.ends |= {A0: 5}
    world.cuts.note({**dict.fromkeys(world.own, 0), A0: 4})
    world.cuts.begin(world.stream)

    def arrive() -> None:
        # The answers are on their way, and say nothing of this.
        world.kafka.ends |= {X0: 9}
        world.cuts.note({A0: 5})

    world.kafka.meanwhile.append(arrive)
    assert world.step() == {X0: 9, X1: 0, Y0: 0, Y1: 0}
    assert world.kafka.asked == 2


def test_records_of_open_transactions_in_a_repartition_topic_are_waited_for() -> None:
    world = World()
    world.kafka.ends |= {Y0: 4}
    world.kafka.stable |= {Y0: 1}
    world.cuts.note(dict.fromkeys(world.own, 0))
    world.cuts.begin(world.stream)
    assert world.step() is None
    world.kafka.stable |= {Y0: 4}
    assert world.step() == {X0: 0, X1: 0, Y0: 4, Y1: 0}


def test_a_chain_of_exchanges_is_followed() -> None:
    world = World(lambda app: frame(app, "a").concat(frame(app, "b").group_by("h").group_by("k")).apply(len))
    first, second = TopicPartition("repartition__g--b--h", 1), TopicPartition("repartition__g--repartition.b.h--k", 0)
    world.kafka.ends |= {A0: 2, B0: 1}
    world.cuts.note(dict.fromkeys(world.own, 0))
    world.cuts.begin(world.stream)
    assert world.step() is None
    world.kafka.ends |= {first: 1}
    world.cuts.note({B0: 1})
    assert world.step() is None
    world.kafka.ends |= {second: 1, A0: 8}
    world.cuts.note({first: 1})
    ends = world.step()
    # Inputs without an exchange are read to the ends that they had first.
    assert ends is not None
    assert (ends[second], ends[A0]) == (1, 2)


def test_without_a_broker_a_cut_waits() -> None:
    world = World()
    world.cuts.note(dict.fromkeys(world.own, 0))
    world.cuts.begin(world.stream)
    world.kafka.away = True
    assert world.step(60) is None
    world.kafka.away = False
    assert world.step() is not None


def test_a19_a_wait_for_what_kafka_does_not_say_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.kafka.away = True
    world.cuts.begin(world.stream)
    assert world.step(29) is None
    assert caplog.messages == []
    assert world.step(2) is None
    assert caplog.messages == [
        "merges behind exchanges wait, because the ends of topics, or commits, are unknown: no broker"
    ]
    world.kafka.away = False
    world.cuts.note(dict.fromkeys(world.own, 0))
    assert world.step() is not None


# -- Idle timeouts ------------------------------------------------------------------------------------------------------


def test_a_task_that_does_not_move_is_waited_for_no_longer_than_the_idle_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.kafka.ends |= {A0: 5}
    world.cuts.note({**dict.fromkeys(world.own, 0), A0: 1})
    world.cuts.begin(world.stream)
    assert world.step(9) is None
    # It moves, and the time begins again.
    world.cuts.note({A0: 2})
    assert world.step(9) is None
    assert world.step(2) is not None
    assert "merges go on without waiting for a[0]" in caplog.text
    # The next cuts do not wait for it, nor tell it again, until it moves.
    caplog.clear()
    world.cuts.begin(world.stream)
    assert world.step() is not None
    world.cuts.note({A0: 3})
    world.cuts.begin(world.stream)
    assert world.step() is None
    assert not caplog.text


def test_no_time_passes_for_idle_timeouts_while_tasks_cannot_work() -> None:
    world = World()
    world.kafka.ends |= {A0: 5}
    world.cuts.note({**dict.fromkeys(world.own, 0)})
    world.cuts.begin(world.stream)
    for _ in range(100):
        world.seconds += 1
        assert not world.cuts.step(working=False)
    assert world.step(12) is not None


def test_the_idle_timeout_is_that_of_the_watermark_strategy_of_the_input() -> None:
    def declare(app: Application) -> None:
        brief = WatermarkStrategy(idle_timeout=timedelta(seconds=2))
        never = WatermarkStrategy(idle_timeout=None)
        left = frame(app, "a", watermark_strategy=brief).group_by("h").group_by("k")
        left.concat(frame(app, "b", watermark_strategy=never).group_by("k")).concat(frame(app, "c")).apply(len)

    found = topology(declare, "a", "b", "c")
    times = idle_timeouts(found, found.sources)
    assert (times["a"], times["repartition__g--a--h"], times["b"], times["c"]) == (2_000, 2_000, None, 10_000)


def test_without_an_idle_timeout_a_task_is_waited_for() -> None:
    progress = UpstreamProgress({"a": None}, 1)
    progress.assign([A0])
    progress.note({A0: 1})
    assert not progress.reached(A0, 2, 0)
    assert not progress.reached(A0, 2, 1 << 40)


def test_a_position_never_falls() -> None:
    progress = UpstreamProgress({}, None)
    progress.note({A0: 5})
    progress.note({A0: 3})
    assert progress.reached(A0, 5, 0)


# -- Other instances ----------------------------------------------------------------------------------------------------


def test_a_backlog_of_another_instance_is_waited_for() -> None:
    world = World()
    world.cuts.assign([A0, B0, X0, Y0])
    world.kafka.ends |= {B1: 3}
    world.cuts.note({A0: 0, B0: 0})
    world.cuts.begin(world.stream)
    assert world.step(1) is None
    world.kafka.committed |= {B1: 2}
    assert world.step(1) is None
    world.kafka.committed |= {B1: 3}
    assert world.step(1) is not None


def test_another_instance_that_keeps_up_holds_nobody_up_and_one_that_stays_behind_does() -> None:
    progress = UpstreamProgress({}, patience_ms=8_000)
    progress.note_commits({A0: (5, 5)}, 0)
    progress.note_commits({A0: (5, 9)}, 1_000)
    # Its commit is not due yet.
    assert progress.reached(A0, 9, 1_500)
    progress.note_commits({A0: (5, 9)}, 10_000)
    assert not progress.reached(A0, 9, 10_000)
    progress.note_commits({A0: (9, 9)}, 11_000)
    assert progress.reached(A0, 9, 11_000)


def test_a_partition_that_comes_from_another_instance_is_known_by_its_own_task() -> None:
    progress = UpstreamProgress({}, patience_ms=8_000)
    progress.note_commits({A0: (5, 5)}, 0)
    progress.assign([A0])
    assert not progress.reached(A0, 9, 0)
    assert progress.foreign([A0, A1]) == {A1}


# -- Micro-batches ------------------------------------------------------------------------------------------------------


def name_of(phases: MergePhases) -> str:
    return phases.phase.value


def test_a19_micro_batches_read_first_what_is_in_front_of_the_exchanges() -> None:
    world = World()
    phases = MergePhases(world.topology, world.cuts)
    positions = dict.fromkeys(world.own, 0)
    world.kafka.ends |= {A0: 5, B1: 2}
    assert name_of(phases) == "upstream"
    phases.advance(positions)
    assert phases.left_out(world.own) == {X0, X1, Y0, Y1}
    world.kafka.ends |= {X1: 5, Y0: 2}
    positions |= {A0: 5, B1: 2}
    assert phases.advance(positions)
    # Then the merge reads what has passed the exchanges, and nothing more comes meanwhile.
    assert name_of(phases) == "merges"
    assert phases.left_out(world.own) == {A0, A1, B0, B1}
    assert phases.advance({**positions, X1: 5, Y0: 2})
    assert name_of(phases) == "all"
    assert not phases.left_out(world.own)
    assert not phases.see_plan({A0: 6}, {A0: 6})
    assert not phases.see_plan({X0: 6}, {X0: 9})
    assert phases.see_plan({A0: 6}, {A0: 7})


def test_without_a_backlog_micro_batches_read_everything_at_once() -> None:
    world = World()
    phases = MergePhases(world.topology, world.cuts)
    phases.advance(dict.fromkeys(world.own, 0))
    assert name_of(phases) == "all"
    assert phases.needed


# -- Turns --------------------------------------------------------------------------------------------------------------


def chunk(partition: TopicPartition, *offsets: int) -> Chunk:
    count = len(offsets)
    return Chunk(*partition, list(offsets), [b""] * count, [b""] * count, [1] * count, [0] * count, None)


def test_records_of_a_merge_wait_for_a_cut_that_is_requested_after_them() -> None:
    stream = f"{X}--{Y}"
    task = TaskId(stream, 0)
    turns = Turns(lambda partition: TaskId(stream, partition.partition), {stream})
    turns.add([chunk(X0, 1, 2)])
    assert turns.request_cuts() == {stream: 1}
    turns.add([chunk(X0, 3)])
    assert turns.request_cuts() == {}
    assert not turns
    assert turns.awaits_cut
    assert task in turns
    turns.complete_cut(stream, 1, {X0: 9, Y0: 4, X1: 7})
    assert turns
    assert turns.request_cuts() == {stream: 2}
    assert turns.records == 3
    # The answer to another request changes nothing.
    turns.complete_cut(stream, 1, {})
    assert turns.awaits_cut
    turns.complete_cut(stream, 2, {})
    assert not turns.awaits_cut


def test_many_records_that_wait_for_a_cut_crowd_their_partition() -> None:
    stream = f"{X}--{Y}"
    turns = Turns(lambda partition: TaskId(stream, partition.partition), {stream})
    turns.add([chunk(X0, *range(5_000)), chunk(Y0, 1)])
    assert turns.crowding() == ({X0}, set())
    turns.complete_cut(stream, turns.request_cuts()[stream], {})
    assert turns.crowding()[0] == {Y0}


def test_a19_large_records_that_wait_for_a_cut_crowd_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "_MOST_AWAITING_BYTES", 1_000)
    stream = f"{X}--{Y}"
    turns = Turns(lambda partition: TaskId(stream, partition.partition), {stream})

    def large(partition: TopicPartition, offset: int) -> Chunk:
        return Chunk(*partition, [offset], [b"key"], [bytes(597)], [1], [0], None)

    turns.add([large(X0, 1)])
    assert turns.crowding() == (set(), set())
    # Of all tasks together.
    turns.add([large(Y1, 1), Chunk(*Y1, [2], [None], [None], [1], [0], None)])
    assert turns.crowding() == ({X0, Y1}, set())
    numbers = turns.request_cuts()
    turns.complete_cut(stream, numbers[stream], {})
    # Now they wait for a turn: another bound.
    assert turns.records == 3
    turns.add([large(X1, 1)])
    assert X1 not in turns.crowding()[0]
    turns.add([large(Y0, 1)])
    assert turns.crowding()[0] == {X1, Y0}
    closed: Any = SimpleNamespace(id=TaskId(stream, 0), inputs=(X0, Y0))
    turns.drop(closed)
    assert X1 in turns.crowding()[1]


def test_records_of_other_streams_get_a_turn_at_once() -> None:
    turns = Turns(lambda partition: TaskId("a", partition.partition))
    turns.add([chunk(A0, 1)])
    assert turns
    assert not turns.request_cuts()
