"""Timers that fire in portions, with commits, restarts and crashes in between, do what they do at once."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from streamrt import Context, ProcessFunction, TimeDomain, TimerContext
from streamrt.config import ProcessingMode
from streamrt.dataframe import StreamingDataFrame
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.tasks.stores import TaskStores
from streamrt.state.base import Change
from streamrt.state.layout import TIMER_SPACE
from streamrt.state.process import ProcessTransaction
from tests.sim.simulation import replaced
from tests.support import LONG
from tests.unit.test_windows_portions import GUARANTEES, LOOK_S, PLACES, TASKS, Cut, World, judge, plans, thoroughly
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
    """Registers timers of processing time, too. They are later than now: those that are due fire where a portion begins."""

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
    # At its time or after it, and not at one clock alone.
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
