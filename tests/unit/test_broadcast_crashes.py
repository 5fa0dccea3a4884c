"""Broadcasts and connected frames with commits, restarts, empty disks and crashes at each step of a commit in between."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import streamrt.runtime.tasks.faults as faults_module
from streamrt import (
    BroadcastContext,
    BroadcastProcessFunction,
    BroadcastTimerContext,
    Context,
    CoProcessFunction,
    TimerContext,
)
from streamrt.app import definition_of
from streamrt.config import ProcessingMode
from streamrt.dataframe import StreamingDataFrame
from streamrt.kafka import TopicConfig
from streamrt.models import TimestampType, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.faults import InjectedFaultError
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.testing.cluster import MemoryCluster
from streamrt.testing.memory import MemoryClients, WrittenRecord
from tests.sim.simulation import replaced
from tests.unit.apps import application
from tests.unit.tasks import Process
from tests.unit.test_windows_portions import Cut, judge
from tests.unit.window_model import Record

PARTITIONS = 3
RULES, ORDERS = 12, 30
CRASHES = [Cut(event=event, crash=crash) for crash in range(14) for event in ("", "restart", "wipe")]


class Judge(BroadcastProcessFunction):
    """Counts how often a partition got each rule, and tells the counts with each order, at once and at a timer."""

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
        seen = ctx.broadcast_state("seen")
        seen[value["id"]] = seen.get(value["id"], 0) + 1

    def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        ctx.state.list("orders").add(value["n"])
        ctx.register_event_time_timer(ctx.timestamp)
        yield ["record", value["n"], list(ctx.broadcast_state("seen").items())]

    def on_timer(self, timestamp: int, ctx: BroadcastTimerContext) -> Iterator[Any]:
        yield ["timer", timestamp, list(ctx.state.list("orders"))]


class World:
    """Kafka in memory, with orders, rules and a machine with a process that runs tasks on it."""

    def __init__(self, mode: ProcessingMode, guarantee: str) -> None:
        app = application(processing_guarantee=guarantee, processing_mode=mode)
        orders = app.dataframe(app.topic("orders", config=TopicConfig(PARTITIONS, 1)))
        rules = app.dataframe(app.topic("rules"))
        orders.connect(rules.broadcast()).process(Judge(), clock="partition").to_topic(app.topic("out"))
        spec = definition_of(app).rehearse_start(definition_of(app).task_spec(), MemoryCluster(), Path("unused"))
        assert spec.state is not None
        self.spec = replace(spec, state=replace(spec.state, in_memory=True))
        (self.internal,) = spec.topology.exchanges
        self.logs: dict[TopicPartition, list[WrittenRecord]] = {
            TopicPartition("rules", 0): [_record({"id": number}, b"r", 10 * number) for number in range(RULES)]
        }
        for partition in range(PARTITIONS):
            self.logs[TopicPartition("orders", partition)] = [
                _record({"n": number}, b"k%d" % (number % 4), 4 * number)
                for number in range(partition, ORDERS, PARTITIONS)
            ]
        self.clients = MemoryClients(lambda: 0)
        self.positions = dict.fromkeys(
            [*self.logs, *(TopicPartition(self.internal, number) for number in range(PARTITIONS))], 0
        )
        self.crashes = 0
        self._mode: ProcessingMode = mode
        self._catalog = StoreCatalog(self.spec.state or spec.state)
        self._process = self._new_process()

    def log(self, place: TopicPartition) -> list[WrittenRecord]:
        if place.topic != self.internal:
            return self.logs[place]
        return [record for record in self.clients.written(self.internal) if record.partition == place.partition]

    def run(self, cuts: Iterator[Cut]) -> None:
        """Process all records, a few at a time."""
        for cut in cuts:
            self._turn(cut)
        for _ in range(200):
            if all(self.positions[place] == len(self.log(place)) for place in self.positions):
                break
            self._turn(Cut())
        else:
            raise AssertionError("the records do not come to their end")
        self._process.let_go()

    def outputs(self) -> list[Any]:
        return [json.loads(record.value or b"") for record in self.clients.written("out")]

    def _turn(self, cut: Cut) -> None:
        if cut.event:
            self._start(wipe=cut.event == "wipe")
        chunks = [
            _chunk(place, self.log(place), start, 2)
            for place, start in sorted(self.positions.items())
            if start < len(self.log(place))
        ]
        left = cut.crash

        def reached(point: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise InjectedFaultError(point)

        try:
            with replaced(faults_module, "reached", reached):
                report = self._process.run(chunks, BatchContext(dict(self.positions)))
        except InjectedFaultError:
            self.crashes += 1
            self._start(wipe=False)
            return
        assert report.failure is None, report.failure
        assert not report.interrupted
        self.positions.update({place: done.end for place, done in report.ranges.items()})

    def _start(self, *, wipe: bool) -> None:
        self._process.let_go()
        if wipe:
            self._catalog = StoreCatalog(self._catalog.settings)
        self._process = self._new_process()
        if self.spec.transactional:
            self.positions = {place: self.clients.committed(place) or 0 for place in self.positions}

    def _new_process(self) -> Process:
        return Process(TaskExecutor(self.spec, self.clients, self._catalog), self._mode)


def _record(value: Any, key: bytes, timestamp: int) -> WrittenRecord:
    return WrittenRecord(json.dumps(value).encode(), key, timestamp, None)


def _chunk(place: TopicPartition, log: list[WrittenRecord], start: int, size: int) -> Chunk:
    taken = log[start : start + size]
    return Chunk(
        topic=place.topic,
        partition=place.partition,
        offsets=list(range(start, start + len(taken))),
        keys=[record.key for record in taken],
        values=[record.value for record in taken],
        timestamps=[record.timestamp for record in taken],
        timestamp_types=[TimestampType.TIMESTAMP_CREATE_TIME] * len(taken),
        headers=None,
    )


@pytest.mark.rows("PF-I9", "PF-I10")
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_each_partition_gets_each_record_once(processing_mode: ProcessingMode, guarantee: str) -> None:
    exactly_once = guarantee == "exactly-once"
    world = World(processing_mode, guarantee)
    # At least once, records that are repeated after a crash would count twice.
    world.run(iter(CRASHES if exactly_once else [replace(cut, crash=0) for cut in CRASHES]))
    assert (world.crashes > 5) is exactly_once
    for partition in range(PARTITIONS):
        copies = world.log(TopicPartition(world.internal, partition))
        assert [json.loads(record.value or b"")["id"] for record in copies] == list(range(RULES))
        assert [(record.key, record.timestamp) for record in copies] == [(b"r", max(10 * n, 1)) for n in range(RULES)]
    found = world.outputs()
    assert sorted(number for kind, number, _ in found if kind == "record") == list(range(ORDERS))
    assert all(count == 1 for kind, _, seen in found if kind == "record" for _, count in seen)
    fired = [time for kind, time, _ in found if kind == "timer"]
    assert len(fired) == len(set(fired)) > ORDERS // 2
    # What all copies hold in the end.
    for partition in range(PARTITIONS):
        place = TopicPartition("orders", partition)
        world.logs[place].append(_record({"n": 100 + partition}, b"last", 1_000))
    before = len(found)
    world.run(iter([Cut(event="wipe")]))
    last = [value for value in world.outputs()[before:] if value[0] == "record"]
    assert sorted(number for _, number, _ in last) == [100 + number for number in range(PARTITIONS)]
    assert all(dict(seen) == dict.fromkeys(range(RULES), 1) for _, _, seen in last)


class Both(CoProcessFunction):
    """Gathers what came from each side, and tells it at timers."""

    def process_element1(self, value: Any, ctx: Context) -> Iterator[Any]:
        ctx.state.list("first").add(ctx.timestamp)
        for distance in (5, 100, 200, 300):
            ctx.register_event_time_timer(max(ctx.timestamp, ctx.current_watermark) + distance)
        yield ["first", ctx.timestamp]

    def process_element2(self, value: Any, ctx: Context) -> Iterator[Any]:
        count = ctx.state.value("count", default=0)
        count.update(count.value() + 1)
        yield ["second", count.value(), list(ctx.state.list("first"))]

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield ["timer", timestamp, ctx.state.value("count").value(), list(ctx.state.list("first"))]
        if timestamp % 3 == 0:
            ctx.state.clear()


def connected(clock: Any) -> Callable[[StreamingDataFrame], list[StreamingDataFrame]]:
    def build(sdf: StreamingDataFrame) -> list[StreamingDataFrame]:
        odd = sdf.filter(lambda value: value % 2 == 1)
        return [sdf.connect(odd).process(Both(), clock=clock).apply(lambda value: ["", value])]

    return build


@pytest.mark.parametrize("clock", ["partition", "watermark"])
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_connected_frames_in_portions(processing_mode: ProcessingMode, clock: str, guarantee: str) -> None:
    records = [Record(b"%d" % (number % 7), 2 * number, number, number % 2) for number in range(60)]
    records += [Record(b"last", 1_000, 0, partition) for partition in range(2)]
    crashes = [Cut(0, event, crash) for crash in range(12) for event in ("", "restart", "wipe")]
    world = judge(connected(clock), guarantee, processing_mode, (records, [50, 5_000], crashes), by_key=False)
    assert world.portions > 10
    assert (world.crashes > 5) is (guarantee == "exactly-once")
