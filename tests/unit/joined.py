"""Joins on a store with its changelog, and a naive model of them written from their definitions."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamrt import MessageContext, set_message_context
from streamrt.joins import AsOfHow, IntervalHow
from streamrt.joins.asof import AsOfJoin
from streamrt.joins.interval import IntervalJoin
from streamrt.joins.sides import Sides
from streamrt.joins.stream import StreamJoin
from streamrt.models import Headers, Tick
from streamrt.operators.closing import Closing
from streamrt.state import MemoryStore, Store
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics import Topic
from streamrt.topology import MergeOperator, Node, PartitionSender, RecordHandler, StateAccess, TaskAccess
from streamrt.topology.tallies import LATE_RECORDS
from tests.unit.state_timed import Run

Output = tuple[Any, Any, int, Headers | None]
SPEC = StoreSpec("join", MemoryStore, TimedTransaction)
KEYS = (b"a", b"b", b"", "a", 7, None)
VALUES: tuple[Any, ...] = ({"x": 1}, {}, 0, "", [], None, False, 1.5, "text", [1, {"y": None}], {"n": [{}]})


def pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


class Joined:
    """A join with a store whose transactions begin and end when a test says so.

    Attributes:
        outputs: value, key, timestamp and headers of what the join has passed on.
    """

    repeats_records = False

    def __init__(self, operator: MergeOperator, folder: Path = Path("unused"), kind: type[Store] = MemoryStore) -> None:
        set_message_context(MessageContext("side", 0, 0, 0))
        self.run = Run(kind, folder)
        self.transaction = self.run.begin()
        self.outputs: list[Output] = []
        self.ticks: list[Callable[[Tick], None]] = []
        self.counts: dict[str, Callable[[], float]] = {}
        self.inputs = operator.build_inputs(self._take, Node(2, (0, 1), operator, "test.py:1"), self)

    def feed(self, side: int, value: Any, key: Any, timestamp: int, headers: Headers | None = None) -> list[Output]:
        """Send a record to the left side, 0, or the right one, 1; return what comes of it."""
        before = len(self.outputs)
        self.inputs[side](value, key, timestamp, headers)
        return self.outputs[before:]

    def tick(self, **moment: Any) -> list[Output]:
        """Tell the join what time it is; return what comes of it."""
        before = len(self.outputs)
        for tick in self.ticks:
            tick(Tick(0, **moment))
        return self.outputs[before:]

    def commit(self, then: Callable[[Run], None] | None = None) -> None:
        self.run.commit(self.transaction)
        if then is not None:
            then(self.run)
        self.transaction = self.run.begin()

    def _take(self, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        self.outputs.append((value, key, timestamp, headers))

    # What operators get from their task.

    def store(self, store: StoreSpec) -> Callable[[], TimedTransaction]:
        return lambda: self.transaction

    def follow(self, store: StoreSpec, changed: Any) -> None:
        raise AssertionError("joins ask for their transaction")

    def state(self, store: StoreSpec) -> StateAccess:
        raise AssertionError("joins have no State")

    def sender(self, topic: Topic, copies: int = 0) -> RecordHandler:
        raise AssertionError("joins send nothing")

    def access(self, store: StoreSpec) -> TaskAccess:
        return TaskAccess.of_test(store.name)

    def make_passage(self, topic: Topic, node: Node, child: RecordHandler) -> RecordHandler:
        return child

    def partition_sender(self, topic: Topic) -> tuple[PartitionSender, int]:
        raise AssertionError(f"no test has a partitioner for {topic}")

    def sink(self, sink: Any, check: Any = None) -> RecordHandler:
        raise AssertionError("joins have no sinks")

    def on_tick(self, node: Node, callback: Callable[[Tick], None]) -> None:
        self.ticks.append(callback)

    def side_output(self, tag: str) -> None:
        """No one reads it."""

    def hold_records(self, held: Any, child: RecordHandler) -> None:
        """Nothing is held."""

    def asynchronous(self, node: Node, calls: Any) -> RecordHandler:
        raise AssertionError("joins call nothing")

    def on_close(self, callback: Callable[[], None]) -> None:
        """Nothing ends."""

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        self.counts[kind] = total

    def when_complete(self, node: Node, work: Callable[[], None]) -> None:
        work()

    def begin_portion(self, node: Node) -> Callable[[], bool]:
        return lambda: False

    def show(self, node_id: int, item: Any) -> None:
        raise AssertionError("joins show nothing")


@dataclass(frozen=True)
class Sent:
    """A record of one side: 0 is left, 1 is right."""

    side: int
    key: Any
    timestamp: int
    value: Any
    headers: Headers | None = None


@dataclass
class Model:
    """Meaning of joins: all records that ever came are kept, and looked through from the first to the last."""

    grace: int
    seen: list[Sent] = field(default_factory=list)
    clock: int = -1

    def others(self, record: Sent, start: int, end: int, *, for_ever: bool = False) -> list[Sent]:
        """Records of the other side and the same key in a range of time, which are not too old, by time and arrival."""
        start = start if for_ever else max(start, self.clock - self.grace)
        return sorted(
            (
                other
                for other in self.seen
                if other.side != record.side
                and (type(other.key), other.key) == (type(record.key), record.key)
                and start <= other.timestamp <= end
            ),
            key=lambda other: other.timestamp,
        )

    def late(self, record: Sent) -> bool:
        self.clock = max(self.clock, record.timestamp)
        return record.timestamp < self.clock - self.grace

    def asof(self, record: Sent, how: str) -> list[Output]:
        late = record.key is None or self.late(record)
        if record.side == 1:
            if not late:
                self.seen.append(record)
            return []
        known = [] if late else self.others(record, 0, record.timestamp, for_ever=True)
        found = known[-1].value if known else None
        if found is None and how == "inner":
            return []
        return [([record.value, found], record.key, record.timestamp, record.headers)]

    def interval(self, record: Sent, how: str, backward: int, forward: int) -> list[Output]:
        met: list[Sent] = []
        if record.key is not None:
            if self.late(record):
                return []
            before, after = (backward, forward) if record.side == 0 else (forward, backward)
            met = self.others(record, record.timestamp - before, record.timestamp + after)
            self.seen.append(record)
        pairs: list[tuple[Any, Any, int]] = [(record.value, other.value, other.timestamp) for other in met]
        if not met and how in (("left", "outer") if record.side == 0 else ("right", "outer")):
            pairs = [(record.value, None, record.timestamp)]
        return [
            ([own, other] if record.side == 0 else [other, own], record.key, max(record.timestamp, time), None)
            for own, other, time in pairs
        ]


@dataclass
class StreamModel:
    """Meaning of `join`: every pair of records that came in time, and those that are in none once no match can come."""

    how: str
    backward: int
    forward: int
    grace: int
    seen: list[Sent] = field(default_factory=list)
    clock: int = -1
    late: int = 0

    def matches(self, one: Sent, other: Sent) -> bool:
        if one.side == other.side or (type(one.key), one.key) != (type(other.key), other.key):
            return False
        left, right = (one, other) if one.side == 0 else (other, one)
        return left.timestamp - self.backward <= right.timestamp <= left.timestamp + self.forward

    def alone(self, record: Sent) -> Output:
        return ([record.value, None] if record.side == 0 else [None, record.value], record.key, record.timestamp, None)

    def waits(self, record: Sent) -> bool:
        return self.how in (("left", "outer") if record.side == 0 else ("right", "outer"))

    def feed(self, record: Sent) -> list[Output]:
        if record.key is None:
            return [self.alone(record)] if self.waits(record) else []
        before = self.clock
        self.clock = max(before, record.timestamp)
        if record.timestamp < self.clock - self.grace:
            self.late += 1
            return []
        pairs = [
            (
                [record.value, other.value] if record.side == 0 else [other.value, record.value],
                record.key,
                max(record.timestamp, other.timestamp),
                None,
            )
            for other in self.seen
            if self.matches(record, other)
        ]
        self.seen.append(record)
        return pairs + self.unmatched(lambda settled: before < settled <= self.clock)

    def unmatched(self, due: Callable[[int], bool]) -> list[Output]:
        """Return the records without a match whose time to be settled is due."""
        found = []
        for each in self.seen:
            settled = each.timestamp + (self.forward if each.side == 0 else self.backward) + self.grace + 1
            if self.waits(each) and due(settled) and not any(self.matches(each, other) for other in self.seen):
                found.append(self.alone(each))
        return found


def records(rng: random.Random, count: int) -> list[Sent]:
    """Records out of order, with many equal timestamps and some that are late."""
    keys = rng.sample(KEYS, rng.randrange(1, 4))
    now, found = 0, []
    for _ in range(count):
        now += rng.choice((0, 0, 1, 2, 7, 40))
        timestamp = max(0, now - rng.choice((0, 0, 0, 1, 3, 15, 60)))
        headers: Headers | None = [("h", b"\x00")] if rng.random() < 0.2 else None
        found.append(Sent(rng.randrange(2), rng.choice(keys), timestamp, rng.choice(VALUES), headers))
    return found


def end_of_commit(rng: random.Random) -> Callable[[Run], None] | None:
    """Return what happens between two commits: nothing, a restart, or one elsewhere, from the changelog."""
    return rng.choice((None, Run.reopen, Run.move))


def check_asof(seed: int, how: AsOfHow, folder: Path = Path("unused"), kind: type[Store] = MemoryStore) -> int:
    """Compare a random history with the model; return the number of outputs."""
    rng = random.Random(seed)
    grace = rng.choice((0, 1, 5, 20, 1000))
    joined = Joined(AsOfJoin(how, pair, grace, SPEC), folder, kind)
    model = Model(grace)
    for number, sent in enumerate(records(rng, rng.randrange(2, 40))):
        found = joined.feed(sent.side, sent.value, sent.key, sent.timestamp, sent.headers)
        assert found == model.asof(sent, how), f"seed {seed}, record {number}"
        if rng.random() < 0.2:
            joined.commit(end_of_commit(rng))
    return len(joined.outputs)


def check_interval(seed: int, how: IntervalHow, folder: Path = Path("unused"), kind: type[Store] = MemoryStore) -> int:
    """Compare a random history with the model; return the number of outputs."""
    rng = random.Random(seed)
    grace = rng.choice((0, 1, 5, 20, 1000))
    backward, forward = (min(grace, rng.choice((0, 0, 1, 3, 20, 100))) for _ in range(2))
    joined = Joined(IntervalJoin(Sides(how, pair, backward, forward), grace, SPEC), folder, kind)
    model = Model(grace)
    for number, sent in enumerate(records(rng, rng.randrange(2, 40))):
        found = joined.feed(sent.side, sent.value, sent.key, sent.timestamp, sent.headers)
        assert found == model.interval(sent, how, backward, forward), f"seed {seed}, record {number}"
        if rng.random() < 0.2:
            joined.commit(end_of_commit(rng))
    return len(joined.outputs)


def check_stream(seed: int, how: IntervalHow, folder: Path = Path("unused"), kind: type[Store] = MemoryStore) -> int:
    """Compare a random history with the model; return the number of outputs."""
    rng = random.Random(seed)
    grace = rng.choice((0, 1, 5, 20, 1000))
    backward, forward = (rng.choice((0, 0, 1, 3, 20, 100)) for _ in range(2))
    joined = Joined(StreamJoin(Sides(how, pair, backward, forward), SPEC, grace, Closing("partition")), folder, kind)
    model = StreamModel(how, backward, forward, grace)
    for number, sent in enumerate(records(rng, rng.randrange(2, 40))):
        found = joined.feed(sent.side, sent.value, sent.key, sent.timestamp, sent.headers)
        assert sorted(found, key=repr) == sorted(model.feed(sent), key=repr), f"seed {seed}, record {number}"
        if rng.random() < 0.2:
            joined.commit(end_of_commit(rng))
    assert joined.counts[LATE_RECORDS]() == model.late
    if rng.random() < 0.5:
        rest = sorted(model.unmatched(lambda settled: settled > model.clock), key=repr)
        assert sorted(joined.tick(final=True), key=repr) == rest, f"seed {seed}, the end"
        # They are forgotten, and so not passed on once more.
        assert joined.tick(final=True) == []
    assert_nothing_is_kept(joined, model, rng)
    return len(joined.outputs)


def assert_nothing_is_kept(joined: Joined, model: StreamModel, rng: random.Random) -> None:
    """Move time on: what nothing needs any more is deleted, for all keys."""
    end = model.clock + model.backward + model.forward + model.grace + 2
    for later in range(3):
        joined.feed(rng.randrange(2), "end", "end", end * (later + 2) + 10_000 * later)
    joined.commit()
    kept = {joined.transaction.key_of(prefix)[1] for prefix, _ in joined.transaction.heads()}
    assert kept == {"end"}
