"""Random schedules over instances: no record is late that is not late in the order of its own partition.

Input partitions span different times, each in order, and lie in Kafka as a backlog. Batches of random sizes, moves of tasks
between instances, restarts, pauses and lag must not make a record late, behind a `group_by` or not. In the
end each record is counted once.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.event_time.barriers import Barrier
from streamrt.event_time.event_time import EventTime, Peer
from streamrt.kafka.partitioner import partition_for
from streamrt.models import TimestampType, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.driver.life.unfinished import Unfinished
from streamrt.runtime.placement import ScopeInfo, StateSettings
from streamrt.runtime.report import Report
from streamrt.runtime.sent import Sent, SentTimes, sent_times
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.testing.memory import MemoryClients
from streamrt.topics import TopicConfig
from streamrt.topology import TaskId
from tests.support import LONG

PARTITIONS = 3
IDLE_MS = 400
WINDOW_MS = 100
KEYS = 7
SHAPES = ("plain", "grouped", "grouped twice", "window in front", "windows in front", "window between", "two between")


class Instance:
    """A running process of the application: what it owns, and what it knows of event time."""

    def __init__(self, world: "World") -> None:
        self.event_time = EventTime(world.topology, world.partitions)
        self.tasks = TaskExecutor(world.spec, world.clients, world.catalog, clock=world.tell_time)
        self.unfinished = Unfinished(world.topology)
        self.sent = SentTimes(world.topology)
        self.owned: set[TaskId] = set()
        self.paused: set[TaskId] = set()


class World:
    """Kafka, several instances, and what is committed.

    Args:
        seed: of the schedule.
        shape: of the topology.
    """

    def __init__(self, seed: int, shape: str) -> None:
        self.rng = random.Random(seed)
        self.late: list[Any] = []
        self.counted: Counter[tuple[Any, int]] = Counter()
        app = self._application(shape)
        declared = app.topology
        self.partitions = dict.fromkeys(declared.sources, PARTITIONS)
        self.topology = declared.resolve(self.partitions)
        sources = {
            scope: ScopeInfo(None, PARTITIONS, {store.name: None for store in self.topology.stores(scope)})
            for scope in self.topology.scopes
            if self.topology.stores(scope)
        }
        state = StateSettings("group", Path("unused"), None, sources, in_memory=True)
        self.spec = replace(
            definition_of(app).task_spec(collect=True, count_outputs=True), topology=self.topology, state=state
        )
        self.now = 0
        self.clients = MemoryClients(lambda: self.now)
        self.catalog = StoreCatalog(state)
        self.logs: dict[TopicPartition, list[tuple[bytes | None, bytes, int]]] = defaultdict(list)
        self.taken: Counter[str] = Counter()
        # What the group has: offsets, and the metadata of event time.
        self.committed: dict[TopicPartition, int] = defaultdict(int)
        self.sent: dict[TaskId, Mapping[str, Sent]] = defaultdict(dict)
        self.steps = 0
        self.inputs = [TopicPartition(topic, n) for topic in self.topology.sources for n in range(PARTITIONS)]
        self.work = sorted({self.topology.task(place) for place in self.inputs})
        self.instances = [Instance(self) for _ in range(2)]
        self._fill()

    def _application(self, shape: str) -> Application:
        app = Application(broker_address="unused:9092", consumer_group="group", loglevel=None)
        config = TopicConfig(PARTITIONS, 1)
        sdf = app.dataframe(app.topic("in", value_deserializer="json", key_deserializer="str", config=config))

        def on_late(*found: Any) -> bool:
            self.late.append(found)
            return False

        def window(frame: Any, name: str) -> Any:
            defined = frame.tumbling_window(WINDOW_MS, name=name, on_late=on_late).sum()
            return defined.final(closing_strategy="watermark", idle_timeout_ms=IDLE_MS)

        def group(frame: Any, name: str, keys: int) -> Any:
            def key_of(value: Any) -> str:
                return f"{name} {self.rng.randrange(keys)}"

            return frame.group_by(key_of, name=name, value_deserializer="json", key_deserializer="str")

        def sums(frame: Any, name: str) -> Any:
            return window(frame, name).apply(lambda value: value["value"])

        if shape == "window in front":
            sdf = sums(sdf, "first")
        if shape == "windows in front":
            sdf = self._split(sdf, sums)
        if shape != "plain":
            sdf = sdf.group_by(lambda value: "all", name="once", value_deserializer="json", key_deserializer="str")
        if shape == "grouped twice":
            sdf = sdf.filter(lambda value: True)
            sdf = sdf.group_by(lambda value: "again", name="twice", value_deserializer="json", key_deserializer="str")
        if shape in ("window between", "two between"):
            sdf = group(sdf, "several", 5)
            sdf = group(sums(sdf, "second") if shape == "window between" else self._split(sdf, sums), "twice", 3)
        window(sdf, "last").update(lambda value, key, *_: self._count(key, value), metadata=True)
        return app

    def _split(self, frame: Any, sums: Any) -> Any:
        """Return a frame of two windows, each with a part of the keys, and both with many that close at once."""
        odd = frame.filter(lambda value, key, *_: ord(key[-1]) % 2 == 1, metadata=True)
        even = frame.filter(lambda value, key, *_: ord(key[-1]) % 2 == 0, metadata=True)
        return sums(odd, "odd").concat(sums(even, "even"))

    def tell_time(self) -> float:
        """Return seconds, which pass with each call: slices end after so many steps."""
        self.steps += 1
        return float(self.steps)

    def _count(self, key: Any, value: dict[str, Any]) -> None:
        assert (key, value["start"]) not in self.counted, "a window was emitted twice"
        self.counted[key, value["start"]] = value["value"]

    def _fill(self) -> None:
        """Lay a backlog into Kafka: one partition spans much more time than another one."""
        self.total = 0
        for number in range(PARTITIONS):
            now, step = self.rng.randint(0, 2_000), self.rng.choice((1, 10, 60, 300))
            for _ in range(self.rng.choice((0, 10, 40))):
                now += self.rng.randint(0, step)
                key = b"%d-%d" % (number, self.rng.randrange(KEYS))
                self.logs[TopicPartition("in", number)].append((key, b"1", now))
                self.total += 1

    # -- What happens ------------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Give tasks to other instances, at random; those that leave are committed."""
        owned: list[set[TaskId]] = [set() for _ in self.instances]
        number = self.rng.randrange(len(self.instances))
        for task in self.work:
            if self.rng.random() < 0.4:
                number = self.rng.randrange(len(self.instances))
            owned[number].add(task)
        for instance, mine in zip(self.instances, owned, strict=True):
            if self.rng.random() < 0.2:
                # It is restarted as well.
                instance.event_time.assign(())
            instance.owned, instance.paused = mine, set()
            instance.event_time.assign(mine)
            instance.event_time.ready(mine)
            instance.event_time.processed({place: self.committed[place] for place in self._inputs(mine)})
            # What the offsets tell with which it begins.
            begun = {task: self._times_sent(task) for task in mine}
            instance.event_time.report({}, sent_times(begun))
            instance.sent.begin(begun, mine)
            instance.unfinished.forget()
            instance.unfinished.assign(mine)
        self._tell_ends()

    def pause(self) -> None:
        """Have a sink pause some tasks of an instance, or let them go on."""
        instance = self.rng.choice(self.instances)
        mine = sorted(instance.owned)
        instance.paused = (
            set(self.rng.sample(mine, self.rng.randint(0, len(mine)))) if self.rng.random() < 0.5 else set()
        )
        instance.event_time.ready(instance.owned - instance.paused)
        self._tell_ends()

    def batch(self, most: int) -> None:
        """Let an instance process some records of some of its tasks."""
        instance = self.rng.choice(self.instances)
        chunks = []
        for place in self._inputs(instance.owned - instance.paused):
            start = self.committed[place]
            records = self.logs[place][start : start + self.rng.randint(0, most)]
            if records:
                offsets = list(range(start, start + len(records)))
                keys, timestamps = [record[0] for record in records], [record[2] for record in records]
                values: list[bytes | None] = [record[1] for record in records]
                kinds: list[int] = [TimestampType.TIMESTAMP_CREATE_TIME] * len(records)
                chunks.append(Chunk(*place, offsets, keys, values, timestamps, kinds, None))
        if chunks:
            self._note(instance, instance.tasks.run(chunks, self._context(instance)))

    def look_around(self) -> None:
        """Let an instance ask what it needs to know of Kafka and of others, and tick what is due."""
        instance = self.rng.choice(self.instances)
        event_time = instance.event_time
        event_time.peers({task: self._peer(task) for task in event_time.foreign_tasks()})
        barrier = event_time.barrier()
        if barrier is not None:
            self.answer(event_time, barrier)
        due = sorted((event_time.due(self.now) | instance.unfinished.tasks) - instance.paused)
        if due:
            self._note(instance, instance.tasks.tick(due, self._context(instance)))

    def answer(self, event_time: EventTime, barrier: Barrier) -> None:
        event_time.add_barrier(barrier, {place: len(self.logs[place]) for place in barrier.partitions})

    def elapse(self, milliseconds: int) -> None:
        self.now += milliseconds
        self._tell_ends()
        for instance in self.instances:
            instance.event_time.elapse(milliseconds)

    # -- Helpers -----------------------------------------------------------------------------------------------------

    def _inputs(self, tasks: set[TaskId]) -> list[TopicPartition]:
        return [place for task in sorted(tasks) for place in self.topology.inputs(task)]

    def _is_at_end(self, task: TaskId) -> bool:
        return all(self.committed[place] == len(self.logs[place]) for place in self.topology.inputs(task))

    def _tell_ends(self) -> None:
        for instance in self.instances:
            instance.event_time.at_end(task for task in instance.owned if self._is_at_end(task))

    def _peer(self, task: TaskId) -> Peer:
        positions = {place: self.committed[place] for place in self.topology.inputs(task)}
        told = {topic: each for topic, each in self.sent[task].items() if each.pending}
        deadlines = {topic: each.deadline for topic, each in told.items() if each.deadline is not None}
        return Peer(self._is_at_end(task), self._times_sent(task), frozenset(told), positions, deadlines)

    def _times_sent(self, task: TaskId) -> dict[str, int]:
        """Return the highest event times that a task has sent, as its commit tells them."""
        return {topic: each.time for topic, each in self.sent[task].items() if each.time is not None}

    def _context(self, instance: Instance) -> BatchContext:
        positions = {place: self.committed[place] for place in self._inputs(instance.owned)}
        event_time = instance.event_time
        slice_s = self.rng.choice((3.0, 10.0, float("inf")))
        watermarks, others = event_time.watermarks(), event_time.others()
        return BatchContext(
            positions, slice_s, now=self.now, watermarks=watermarks, sent=event_time.sent(), others=others
        )

    def _note(self, instance: Instance, report: Report) -> None:
        assert report.failure is None, report.failure.message
        assert not report.interrupted
        positions = {place: done.end for place, done in report.ranges.items()}
        self.committed.update(positions)
        told = instance.unfinished.report(report)
        instance.sent.note(report)
        for place, sent in instance.sent.of(positions).items():
            self.sent[self.topology.task(place)] = sent
        for topic in self.topology.exchanges:
            written = self.clients.written(topic)
            for record in written[self.taken[topic] :]:
                number = partition_for(record.key or b"", PARTITIONS)
                self.logs[TopicPartition(topic, number)].append((record.key, record.value or b"", record.timestamp))
            self.taken[topic] = len(written)
        instance.event_time.report(report.times, told)
        instance.event_time.processed(positions)
        self._tell_ends()


def play(world: World) -> None:
    """Play a schedule until all records are counted."""
    world.move()
    for _ in range(60):
        action = world.rng.random()
        if action < 0.45:
            world.batch(world.rng.choice((1, 5, 30)))
        elif action < 0.75:
            world.look_around()
        elif action < 0.87:
            world.elapse(world.rng.choice((1, 100, 700)))
        elif action < 0.95:
            world.move()
        else:
            world.pause()
    for instance in world.instances:
        instance.paused = set()
        instance.event_time.ready(instance.owned)
    for _ in range(400):
        world.batch(50)
        world.look_around()
        world.elapse(IDLE_MS)
        if sum(world.counted.values()) == world.total:
            return
    pytest.fail(f"{sum(world.counted.values())} of {world.total} records were counted, {len(world.late)} were late")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(25))
def test_no_schedule_makes_a_record_late(seed: int, shape: str) -> None:
    world = World(seed, shape)
    play(world)
    assert world.late == []


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="takes minutes; make test-long runs it")
@pytest.mark.parametrize("shape", SHAPES)
def test_no_schedule_makes_a_record_late_long(shape: str) -> None:
    for seed in range(1_000, 4_000):
        world = World(seed, shape)
        play(world)
        assert world.late == [], seed


def test_the_schedules_find_watermarks_that_do_not_wait_for_what_is_on_its_way() -> None:
    class Hasty(World):
        def answer(self, event_time: EventTime, barrier: Barrier) -> None:
            event_time.add_barrier(barrier, dict.fromkeys(barrier.partitions, 0))

    found = 0
    for seed in range(40):
        world = Hasty(seed, "grouped")
        try:
            play(world)
        except pytest.fail.Exception:
            found += 1
    assert found > 0
