"""Timers that fire in portions, with commits, restarts and crashes in between, do what they do at once."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings

import tests.unit.test_windows_portions as portions
from streamrt import Context, CoProcessFunction, ProcessFunction, TimeDomain, TimerContext
from streamrt.config import ProcessingMode
from streamrt.dataframe import StreamingDataFrame
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.state.base import Change
from streamrt.state.layout import TIMER_SPACE
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.windows import CountTrigger
from tests.sim.simulation import replaced
from tests.support import LONG
from tests.unit.test_windows_portions import (
    GUARANTEES,
    LOOK_S,
    PLACES,
    TASKS,
    Cut,
    World,
    history,
    judge,
    plans,
    thoroughly,
)
from tests.unit.test_windows_replay import chunk_of
from tests.unit.window_model import Record

CLOCKS = pytest.mark.parametrize("clock", ["partition", "watermark"])


class Waits(ProcessFunction):
    """Registers timers that register others, and tells what they find in the state."""

    outputs = ("odd",)

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        begin = max(ctx.timestamp, ctx.current_watermark)
        for distance in (1, 5, 20):
            ctx.register_event_time_timer(begin + distance)
        last = ctx.state.value("last", default=0)
        ctx.delete_event_time_timer(last.value() + 20)
        last.update(begin)
        ctx.state.list("seen").add(ctx.timestamp)
        counts = ctx.state.map("counts")
        counts[begin % 3] = counts.get(begin % 3, 0) + 1
        yield ["record", ctx.timestamp]

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        if timestamp % 7 == 0:
            ctx.register_event_time_timer(timestamp - 3)
            ctx.register_event_time_timer(timestamp + 4)
        if timestamp % 5 == 0:
            ctx.output("odd", ["odd", timestamp])
        yield [timestamp, list(ctx.state.list("seen")), list(ctx.state.map("counts").items())]
        if timestamp % 3 == 0:
            ctx.state.list("seen").clear()


class WaitsForBoth(Waits):
    """Also registers timers of processing time. They are later than now: those that are due fire where a portion begins."""

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        last, now = ctx.state.value("last wall", default=0), ctx.current_processing_time
        ctx.delete_processing_time_timer(last.value())
        # Every key has some that are not deleted.
        for due in (now + 1 + ctx.timestamp % 3, now + 2 + ctx.timestamp % 9):
            ctx.register_processing_time_timer(due)
        last.update(due)
        yield from super().process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        if ctx.time_domain is TimeDomain.EVENT_TIME:
            yield from super().on_timer(timestamp, ctx)
            return
        now = ctx.current_processing_time
        counts = ctx.state.map("counts")
        counts["wall"] = counts.get("wall", 0) + 1
        if timestamp % 5 == 2:
            # Nothing comes out, and what has changed is committed all the same.
            return
        if timestamp % 4 == 0:
            ctx.register_processing_time_timer(now + 3)
            ctx.register_event_time_timer(max(ctx.current_watermark, 0) + 2)
        yield ["wall", timestamp, now, list(ctx.state.list("seen")), counts["wall"], ctx.current_watermark]


def waiting(
    clock: Any, function: type[Waits] = WaitsForBoth
) -> Callable[[StreamingDataFrame], list[StreamingDataFrame]]:
    def build(sdf: StreamingDataFrame) -> list[StreamingDataFrame]:
        arguments: dict[str, Any] = {"idle_timeout_ms": 10_000} if clock == "watermark" else {}
        frame = sdf.process(function(), name="Waits", clock=clock, **arguments)
        odd = frame.side_output("odd")
        return [frame.apply(lambda value: ["main", value]), odd.apply(lambda value: ["odd", value])]

    return build


@pytest.mark.slow
@GUARANTEES
@CLOCKS
@settings(thoroughly, max_examples=500 if LONG else 10)
@given(plans)
def test_timers_in_portions(
    processing_mode: ProcessingMode, clock: str, guarantee: str, plan: tuple[Any, Any, Any]
) -> None:
    judge(waiting(clock), guarantee, processing_mode, plan, by_key=False)


@GUARANTEES
@CLOCKS
def test_there_are_portions_and_crashes_in_between(processing_mode: ProcessingMode, clock: str, guarantee: str) -> None:
    records = [Record(b"%d" % (number % 7), 2 * number, number, number % 2) for number in range(60)]
    records += [Record(b"last", 1_000, 0, partition) for partition in range(2)]
    crashes = [Cut(0, event, crash) for crash in range(12) for event in ("", "restart", "wipe")]
    world = judge(waiting(clock), guarantee, processing_mode, (records, [50, 5_000], crashes), by_key=False)
    assert world.portions > 10
    fired = [value for values in world.outputs().values() for _, _, value in values if value[0] == "wall"]
    assert len(fired) > 60
    # At its time or after it, and not all at the same time of the clock.
    assert all(timestamp <= now for _, timestamp, now, *_ in fired)
    assert len({now for _, _, now, *_ in fired}) > 1
    assert (world.crashes > 5) is (guarantee == "exactly-once")


def _keep_deletions_of_timers(self: ProcessTransaction) -> list[Change]:
    return [change for change in _REAL_PREPARE(self) if change[0][0] != TIMER_SPACE or change[1] is not None]


_REAL_PREPARE = ProcessTransaction.prepare
IN_BATCHES = "ticks do not commit"
MUTANTS: dict[str, tuple[Any, str, Any]] = {
    IN_BATCHES: (TaskStores, "dirty", property(lambda self: False)),
    "timers that have fired stay in the changelog": (ProcessTransaction, "prepare", _keep_deletions_of_timers),
}


@pytest.mark.slow
@GUARANTEES
def test_mutants_are_found(processing_mode: ProcessingMode, guarantee: str) -> None:
    records = [Record(b"%d" % (number % 7), 2 * number, number, number % 2) for number in range(24)]
    # A restart before each portion, so that it finds what the one before has committed.
    cuts = [Cut(2, "wipe")] * 60
    plan = (records, [20, 40, 60], cuts)
    judge(waiting("partition"), guarantee, processing_mode, plan, by_key=False)
    for what, mutant in MUTANTS.items():
        if processing_mode == "resident" and what == IN_BATCHES:
            # There, what a tick has changed waits in the open transaction for the next commit, and is repeated if it is lost.
            continue
        with pytest.raises(AssertionError), replaced(*mutant), replaced(World, "most_batches", 300):
            judge(waiting("partition"), guarantee, processing_mode, plan, by_key=False)


@GUARANTEES
def test_records_wait_for_the_timers_that_are_due(processing_mode: ProcessingMode, guarantee: str) -> None:
    """Timers that are due and have not fired survive the process, and fire before the next record."""
    records = [Record(b"%d" % key, 1, key) for key in range(20)] + [Record(b"late", 20, 0), Record(b"0", 21, 0)]
    world = World(waiting("partition", Waits), guarantee, processing_mode)
    world.feed([records, []], [20, 0])
    written = len(world.written())
    chunk = chunk_of(0, records, 20, 2)
    report = world._process.run([chunk], BatchContext(dict(world.positions), time_limit_s=5 * LOOK_S))
    assert report.unfinished[TASKS[0]]
    assert report.ranges[PLACES[0]].end == 21
    assert len(world.written()) - written < 10
    world.positions[PLACES[0]] = 21
    world._start(wipe=True)
    world.feed([records, []], [22, 0])
    found = [value for values in world.outputs().values() for _, _, value in values if value[0] in (2, 6, "record")]
    # The timers of 2 and 6 of all keys come before the last record.
    assert found.index(["record", 21]) == len(found) - 1
    assert sum(value[0] != "record" for value in found) == 40
    world.close()


# -- Records that operators above multiply -------------------------------------------------------------------------------


def _expanded(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.apply(lambda value: [value] * 3, expand=True)


def _windows(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return (
        sdf.tumbling_window(10, name="above")
        .count()
        .final(closing_strategy="partition")
        .apply(lambda row: row["start"])
    )


def _spread(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.apply(lambda value: [[value, number] for number in range(3)], expand=True).set_timestamp(
        lambda value, key, timestamp, headers: timestamp + 7 * value[1]
    )


def _triggered(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.tumbling_window(10, name="above").count().trigger(CountTrigger(2)).apply(lambda row: row["start"])


def _late(sdf: StreamingDataFrame) -> StreamingDataFrame:
    windows = sdf.tumbling_window(10, name="above").count().final(closing_strategy="partition")
    return windows.side_output("late")


def _by_key(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.tumbling_window(3, grace_ms=9, name="above").count().final().apply(lambda row: row["start"])


async def _call(value: Any) -> Any:
    return value


def _process(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.process(Waits(), name="above", clock="partition")


MULTIPLIED: dict[str, Callable[[StreamingDataFrame], StreamingDataFrame]] = {
    "expand": _expanded,
    "windows that expire": _windows,
    "a process function": _process,
    "a side output": lambda sdf: _process(sdf).side_output("odd"),
    "expand, and a process function": lambda sdf: _process(_expanded(sdf)),
    "expand in time, and a process function": lambda sdf: _process(_spread(sdf)),
    "expand, and windows that expire": lambda sdf: _windows(_spread(sdf)),
    "expand, and windows with a trigger": lambda sdf: _triggered(_spread(sdf)),
    "expand, and late records": lambda sdf: _late(_spread(sdf).concat(sdf)),
    "expand, and windows by key": lambda sdf: _by_key(_spread(sdf)),
    "expand, and a count": lambda sdf: _spread(sdf).tumbling_count_window(2, name="above").count().current(),
    "expand, and state": lambda sdf: _spread(sdf).apply(lambda value, state: value, stateful=True),
    "a frame concatenated with itself": lambda sdf: _spread(sdf).concat(sdf),
    "a join with itself": lambda sdf: _spread(sdf).join_interval(
        sdf, on_merge=lambda left, right: left, how="left", backward_ms=30, forward_ms=30
    ),
}


@GUARANTEES
@pytest.mark.parametrize("above", MULTIPLIED)
def test_a6_results_behind_what_multiplies_records_are_those_without_portions(
    processing_mode: ProcessingMode, above: str, guarantee: str
) -> None:
    records = [Record(b"%d" % (number % 3), 2 * number, number, number % 2) for number in range(24)]
    records += [Record(b"last", 300, 0, partition) for partition in range(2)]
    crashes = [Cut(0, event, crash) for crash in range(4) for event in ("", "restart", "wipe")]

    def build(sdf: StreamingDataFrame) -> list[StreamingDataFrame]:
        return waiting("partition", Waits)(MULTIPLIED[above](sdf))

    world = judge(build, guarantee, processing_mode, (records, [50, 5_000], crashes), by_key=False)
    assert world.portions > 5


class BothWait(CoProcessFunction):
    """Does the same for the records of both inputs."""

    outputs = Waits.outputs
    process_element1 = process_element2 = Waits.process_element
    on_timer = Waits.on_timer


@GUARANTEES
def test_a6_results_of_a_frame_connected_with_itself_are_those_without_portions(
    processing_mode: ProcessingMode, guarantee: str
) -> None:
    records = [Record(b"%d" % (number % 3), 2 * number, number, number % 2) for number in range(24)]
    records += [Record(b"last", 300, 0, partition) for partition in range(2)]
    crashes = [Cut(0, event, crash) for crash in range(4) for event in ("", "restart", "wipe")]

    def build(sdf: StreamingDataFrame) -> list[StreamingDataFrame]:
        frame = _spread(sdf)
        waits = frame.connect(frame).process(BothWait(), name="Waits", clock="partition")
        odd = waits.side_output("odd")
        return [waits.apply(lambda value: ["main", value]), odd.apply(lambda value: ["odd", value])]

    world = judge(build, guarantee, processing_mode, (records, [50, 5_000], crashes), by_key=False)
    assert world.portions > 5


class Rings(ProcessFunction):
    """Registers a timer, and tells of it."""

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        if value == "arm":
            ctx.register_event_time_timer(ctx.timestamp + ctx.key[0])
        return iter(())

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield timestamp


async def _twice(value: Any) -> Any:
    return [value, value]


def _matches(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.join_interval(sdf, on_merge=lambda left, right: left, how="left", backward_ms=0, forward_ms=0)


def _itself(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.concat(sdf)


IN_PORTIONS: dict[str, Callable[[StreamingDataFrame], StreamingDataFrame]] = {
    "nothing": lambda sdf: sdf,
    "expand": lambda sdf: sdf.apply(lambda value: [value] * 2, expand=True),
    "expand with state": lambda sdf: sdf.apply(lambda value, state: [value] * 2, stateful=True, expand=True),
    "a frame concatenated with itself": _itself,
    "a join with itself": lambda sdf: _itself(_matches(sdf)),
    "asynchronous calls": lambda sdf: sdf.apply_async(_twice, timeout=60, expand=True),
    "asynchronous calls of what is expanded": lambda sdf: _expanded(sdf).apply_async(_call, timeout=60),
    "asynchronous calls out of order": lambda sdf: _expanded(sdf).apply_async(_call, timeout=60, ordered=False),
}


@GUARANTEES
@pytest.mark.parametrize("above", IN_PORTIONS)
def test_a6_timers_that_a_record_makes_due_fire_in_portions_and_once(
    processing_mode: ProcessingMode, above: str, guarantee: str
) -> None:
    armed = [Record(bytes((key,)), 1, "arm") for key in range(2, 42)]
    records = [*armed, Record(b"go", 100, "go"), Record(b"after", 101, "after")]

    def build(sdf: StreamingDataFrame) -> list[StreamingDataFrame]:
        return [
            IN_PORTIONS[above](sdf).process(Rings(), name="Rings", clock="partition").apply(lambda value: ["", value])
        ]

    cut = Cut(5)
    world = World(build, guarantee, processing_mode, [cut, Cut(5, crash=3), Cut(5, "wipe"), cut])
    for end in range(len(armed) + 1):
        world.feed([records, []], [end, 0])
    assert not world.written()
    chunk = chunk_of(0, records, len(armed), 2)
    report = world._process.run([chunk], BatchContext(dict(world.positions), time_limit_s=5 * LOOK_S))
    assert report.unfinished[TASKS[0]]
    done = report.ranges[PLACES[0]].end
    # Calls may be in flight, so that the next record begins.
    assert done == len(armed) + 1 or "async" in above
    assert len(world.written()) < 15
    world.positions[PLACES[0]] = done
    world.feed([records, []], [len(records), 0])
    found = [json.loads(record.value or b"")[1][1] for record in world.written()]
    assert found == [1 + key for key in range(2, 42)]
    assert world.portions > 5
    world.close()


def _grouped(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.group_by(lambda value: b"%d" % (value % 3), name="g", key_serializer="bytes", key_deserializer="bytes")


GROUPED: dict[str, Callable[[StreamingDataFrame], StreamingDataFrame]] = {
    "expand": lambda sdf: _grouped(_expanded(sdf)),
    "expand twice": lambda sdf: _grouped(
        sdf.apply(lambda value: [value], expand=True).apply(lambda value: [value] * 3, expand=True)
    ),
    "two exchanges": lambda sdf: _grouped(_expanded(sdf).group_by(lambda value: value, name="first")),
    "asynchronous calls": lambda sdf: _grouped(sdf.apply_async(_thrice, timeout=60, expand=True)),
}


async def _thrice(value: Any) -> Any:
    return [value] * 3


@GUARANTEES
@pytest.mark.parametrize("above", GROUPED)
def test_a6_behind_an_exchange_in_memory_portions_give_what_a_topic_gives(
    monkeypatch: pytest.MonkeyPatch, processing_mode: ProcessingMode, above: str, guarantee: str
) -> None:
    """In a topic, each record would be one of its own, whose timers fire before the next."""
    monkeypatch.setattr(portions, "PARTITIONS", 1)
    monkeypatch.setattr(portions, "PLACES", PLACES[:1])
    monkeypatch.setattr(portions, "TASKS", TASKS[:1])
    records = [Record(b"%d" % (number % 3), 2 * number + 1, number) for number in range(24)] + [Record(b"0", 300, 0)]
    behind = [
        Record(b"%d" % (record.value % 3), record.timestamp, record.value) for record in records for _ in range(3)
    ]
    cuts = [Cut(3, event, crash) for crash in range(6) for event in ("", "restart", "wipe")]

    def build(sdf: StreamingDataFrame) -> list[StreamingDataFrame]:
        return waiting("partition", Waits)(GROUPED[above](sdf))

    found = history(World(build, guarantee, processing_mode, cuts), records, [5_000])
    wanted = history(World(waiting("partition", Waits), guarantee, processing_mode), behind, [5_000])
    assert found.portions > 5
    assert {name: [(time, value) for _, time, value in values] for name, values in found.outputs().items()} == {
        name: [(time, value) for _, time, value in values] for name, values in wanted.outputs().items()
    }
