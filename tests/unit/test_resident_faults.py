"""The resident task under whatever may befall it, in an order that a seed decides; nothing may be lost, late or repeated."""

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from streamrt import Application
from streamrt.connectors import BaseSink, BatchingSink, ListSink, SinkBatch
from streamrt.errors import SinkBackpressureError, StoreCorruptedError, TransactionError
from streamrt.event_time.event_time import EventTime
from streamrt.kafka import KafkaRequestError
from streamrt.models import TopicPartition
from streamrt.runtime.link_messages import Ack, AssignmentRequest, BatchDone, ProgressUpdate, Time
from streamrt.topology import TaskId
from tests.support import LONG
from tests.unit.resident_world import FIRST, SECOND, World, committed, tally

PLACES = (FIRST, SECOND, TopicPartition("in", 2))
TASKS = tuple(TaskId("in", place.partition) for place in PLACES)
SEEDS = range(1_000 if LONG else 12)


class Noting:
    """Notes of both kinds of sinks: the records that they have written, and those that were the group's long ago."""

    def __init__(self) -> None:
        super().__init__()
        self.moods: list[float] = []
        self.written: set[tuple[int, int]] = set()
        self.stale: list[tuple[TopicPartition, int]] = []
        self.offsets: Mapping[TopicPartition, int] = {}

    def refuse(self) -> None:
        if self.moods:
            raise SinkBackpressureError(self.moods.pop())

    def note(self, place: TopicPartition, value: int, offset: int) -> None:
        if offset < self.offsets.get(place, 0):
            self.stale.append((place, offset))
        if value >= 0:
            self.written.add((place.partition, value))


class Apart(Noting, BatchingSink):
    """A sink that tells partitions apart."""

    def write(self, batch: SinkBatch) -> None:
        self.refuse()
        for item in batch:
            self.note(TopicPartition(batch.topic, batch.partition), item.value, item.offset)


class Together(Noting, BaseSink):
    """A sink that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[TopicPartition, int, int]] = []

    def add(self, value: Any, key: Any, timestamp: int, headers: Any, topic: str, partition: int, offset: int) -> None:
        self.taken.append((TopicPartition(topic, partition), value, offset))

    def flush(self) -> None:
        self.refuse()
        taken, self.taken = self.taken, []
        for each in taken:
            self.note(*each)

    def on_paused(self) -> None:
        self.taken = []


class Ordeal:
    """A task, its driver, and a group, all of whom a seed has do something at any time.

    Attributes:
        repeats: whether anything has happened after which records may be delivered again, at least once.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.transactional = rng.random() < 0.5
        self.sink = rng.choice((None, Apart, Together))
        self.noting: Any = self.sink() if self.sink else None
        commits = {
            "transaction_interval": rng.choice((None, 0.05, 1.0, 3.0)),
            "commit_interval": rng.choice((0.05, 1.0, 3.0)),
        }
        commits["commit_every"] = rng.choice((0, 0, 2))
        self.world = world = World(self.build, transactional=self.transactional, commits=commits)
        world.clients.has_records = self.has_records  # type: ignore[method-assign]
        if self.noting:
            self.noting.offsets = committed(world)
        self.event_time = EventTime(world.spec.topology, {"in": len(PLACES)})
        self.assign()
        self.heard = 0
        self.counts = dict.fromkeys(PLACES, 0)
        self.times = {place: rng.randint(0, 3_000) for place in PLACES}
        self.repeats = False
        stores = [f"log-{store.name}" for store in world.spec.topology.stores("in")]
        self.points = ["out", "windows", "commit", "store get", "store scan", "store open", *stores]

    def assign(self) -> None:
        self.event_time.assign(())
        self.event_time.assign(TASKS)
        self.event_time.ready(TASKS)

    def build(self, app: Application) -> None:
        sdf = app.dataframe(app.topic("in"))
        sdf.apply(tally, stateful=True).to_topic(app.topic("out"))
        sdf.sink(ListSink())
        if self.noting:
            sdf.sink(self.noting)
        windows = sdf.tumbling_window(1_000).count()
        windows.final(closing_strategy="watermark").to_topic(app.topic("windows"))

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        return any(entry is not None for entry in self.world.feed.logs.get(partition, ())[start:end])

    def step(self) -> None:
        """Let the driver do its part, and the task work for a moment."""
        world = self.world
        for message in itertools.islice(world.link.sent, self.heard, None):
            if isinstance(message, AssignmentRequest):
                self.assign()
            elif isinstance(message, ProgressUpdate | BatchDone):
                assert message.report.failure is None, message.report.failure.message
                self.event_time.restart((*message.report.stalled, *message.report.interrupted))
                self.event_time.report(message.report.times, message.report.sent)
        self.heard = len(world.link.sent)
        if self.rng.random() < 0.3:
            world.link.inbox.append(Time(self.event_time.watermarks(), frozenset(self.event_time.due(0))))
        world.task.step()

    def put(self, place: TopicPartition) -> None:
        self.times[place] += self.rng.randint(0, 900)
        self.world.put(place, self.counts[place], timestamp=self.times[place])
        self.counts[place] += 1
        if self.rng.random() < 0.1:
            self.world.put(place, None)

    def befall(self) -> None:
        """Have something happen."""
        rng, world, at = self.rng, self.world, self.rng.random()
        passing = KafkaRequestError("injected", retriable=True)
        if at < 0.35:
            self.put(rng.choice(PLACES))
        elif at < 0.41:
            point = rng.choice(self.points)
            damaged = point.startswith("store")
            world.clients.troubles[point] = StoreCorruptedError("injected") if damaged else TransactionError("injected")
        elif at < 0.44 and self.noting:
            self.noting.moods.append(rng.choice((0.01, 2.0)))
        elif at < 0.46:
            self.repeats = True
            world.member.lose()
            world.task.step()
            world.member.assign(*PLACES)
        elif at < 0.48:
            world.revoke()
            world.member.assign(*PLACES)
        elif at < 0.50:
            self.repeats = True
            self.let_take(not world.link.takes)
        elif at < 0.52:
            world.feed.troubles.append(passing)
        elif at < 0.54:
            world.member.troubles.append(passing)
        elif at < 0.56:
            world.clock.wait(rng.choice((0.2, 5.0)))

    def let_take(self, takes: bool) -> None:
        self.world.link.takes = takes
        self.world.link.inbox.append(Ack(len(self.world.reports)))

    def run(self) -> None:
        world = self.world
        world.member.assign(*PLACES)
        for _ in range(self.rng.randint(50, 200)):
            self.befall()
            self.step()
        # From now on all is well, and time passes for all windows.
        for troubles in (world.clients.troubles, world.feed.troubles, world.member.troubles):
            troubles.clear()
        if self.noting:
            self.noting.moods.clear()
        self.let_take(True)
        end = max(self.times.values()) + 5_000
        for place in PLACES:
            world.put(place, -1, timestamp=end)
            world.put(place, -2, timestamp=end + 10_000)
        for _ in range(3_000):
            if all(committed(world).get(place) == len(world.feed.logs[place]) for place in PLACES):
                break
            self.step()
        for _ in range(100):
            self.step()
        world.revoke()
        self.judge(end)

    def judge(self, end: int) -> None:
        world = self.world
        wanted = sorted((place.partition, value) for place in PLACES for value in range(self.counts[place]))
        sunk = [
            (batch.partition, item.value)
            for report in world.reports
            for _, batch in report.sunk
            for item in batch
            if item.value >= 0
        ]
        exact = self.transactional or not self.repeats
        assert (sorted(sunk) if exact else sorted(set(sunk))) == wanted
        if self.noting:
            assert sorted(self.noting.written) == wanted
            assert self.noting.stale == []
        found = [orjson.loads(record.value or b"") for record in world.clients.written("windows")]
        windows = sum(window["value"] for window in found if window["start"] < end - 1_000)
        numbers = [number for value, number in world.counts() if value >= 0]
        if self.transactional:
            assert windows == len(wanted), "no record is late, and none is counted twice"
            assert sorted(numbers) == sorted(value + 1 for _, value in wanted)
        else:
            assert windows >= len(wanted), "no record is late"
            assert set(numbers) >= {value + 1 for _, value in wanted}


def _parts(seeds: Sequence[int], size: int = 8) -> list[Sequence[int]]:
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", _parts(SEEDS), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_nothing_is_lost_late_or_repeated(seeds: Sequence[int]) -> None:
    for seed in seeds:
        try:
            Ordeal(seed).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
