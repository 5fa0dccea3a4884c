"""Programs of process functions, of one frame and of two: timers, side outputs, time to live, broadcast state."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from streamrt import (
    BroadcastContext,
    BroadcastProcessFunction,
    Context,
    CoProcessFunction,
    ProcessFunction,
    TimeDomain,
    TimerContext,
)
from streamrt.state import StateTtl
from streamrt.topics import WatermarkStrategy
from tests.known_programs.program import BY_HAND, DOT, END, MINUTE, Advance, In, Out, Parts, Step, program

HOUR = timedelta(hours=1)


# -- 1: rolling reduce -------------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-D3")
@program(
    "p1-rolling-reduce",
    In("a", 1, 1),
    Out("a", 1, 1),
    In("a", 2, 2),
    Out("a", 3, 2),
    In("a", 3, 3),
    Out("a", 6, 3),
    In("b", 4, 4),
    Out("b", 4, 4),
    END,
    clocks=("watermark",),
)
def rolling_reduce(parts: Parts) -> None:
    parts.put_out(parts.frame().reduce(lambda a, b: a + b))


# -- 2 and 3: a count with a time-out ----------------------------------------------------------------------------------


class Sessions(ProcessFunction):
    """Tells the count of a key when nothing came for a minute."""

    def process_element(self, value: Any, ctx: Context) -> None:
        count, last = ctx.state.value("count", default=0), ctx.state.value("last")
        if last.value() is not None:
            ctx.delete_event_time_timer(last.value() + 60_000)
        count.update(count.value() + 1)
        last.update(ctx.timestamp)
        ctx.register_event_time_timer(ctx.timestamp + 60_000)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield {"count": ctx.state.value("count").value()}
        ctx.state.clear()


class PatientSessions(Sessions):
    """The same without deleting timers."""

    outputs: ClassVar[tuple[str, ...]] = ("called",)

    def process_element(self, value: Any, ctx: Context) -> None:
        count = ctx.state.value("count", default=0)
        count.update(count.value() + 1)
        ctx.state.value("last").update(ctx.timestamp)
        ctx.register_event_time_timer(ctx.timestamp + 60_000)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        ctx.output("called", timestamp)
        if ctx.state.value("last").value() + 60_000 == timestamp:
            yield from super().on_timer(timestamp, ctx)


@pytest.mark.rows("PF-E2", "PF-E7", "PF-E9")
@program(
    "p2-time-out",
    In("a", DOT, 1_000),
    In("b", DOT, 1_500),
    In("a", DOT, 2_000),
    In("c", DOT, 70_000),
    Out("b", {"count": 1}, 61_500),
    Out("a", {"count": 2}, 62_000),
    END,
    Out("c", {"count": 1}, 130_000),
)
def time_out(parts: Parts) -> None:
    parts.put_out(parts.frame().process(Sessions(), clock=parts.clock))


@program(
    "p3-time-out-without-deleting",
    In("a", DOT, 1_000),
    In("b", DOT, 1_500),
    In("a", DOT, 2_000),
    In("c", DOT, 70_000),
    Out("a", 61_000, 61_000, "called"),
    Out("b", 61_500, 61_500, "called"),
    Out("b", {"count": 1}, 61_500),
    Out("a", 62_000, 62_000, "called"),
    Out("a", {"count": 2}, 62_000),
    END,
    Out("c", 130_000, 130_000, "called"),
    Out("c", {"count": 1}, 130_000),
)
def time_out_without_deleting(parts: Parts) -> None:
    frame = parts.frame().process(PatientSessions(), clock=parts.clock)
    parts.put_out(frame)
    parts.put_out(frame.side_output("called"), "called")


# -- 4: timers that are repeated, deleted, past and nested -------------------------------------------------------------


class Nested(ProcessFunction):
    def process_element(self, value: Any, ctx: Context) -> None:
        if value == "first":
            for time in (5_000, 5_000, 6_000):
                ctx.register_event_time_timer(time)
            ctx.delete_event_time_timer(6_000)
            # There is none.
            ctx.delete_event_time_timer(7_000)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield timestamp
        if timestamp == 5_000:
            ctx.register_event_time_timer(4_000)
            ctx.register_event_time_timer(5_500)


@pytest.mark.rows("PF-E7", "PF-E9", "PF-E11")
@program(
    "p4-nested-timers",
    In("a", "first", 1_000),
    In("a", "second", 8_000),
    Out("a", 5_000, 5_000),
    Out("a", 4_000, 4_000),
    Out("a", 5_500, 5_500),
    END,
)
def nested_timers(parts: Parts) -> None:
    parts.put_out(parts.frame().process(Nested(), clock=parts.clock))


# -- 5: batches by processing time -------------------------------------------------------------------------------------


class Batches(ProcessFunction):
    def process_element(self, value: Any, ctx: Context) -> None:
        items = ctx.state.list("items")
        if not items:
            ctx.register_processing_time_timer(ctx.current_processing_time + 5_000)
        items.add(value)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        assert ctx.time_domain is TimeDomain.PROCESSING_TIME
        yield list(ctx.state.list("items"))
        ctx.state.list("items").clear()


@pytest.mark.rows("PF-A18", "PF-E5", "PF-E8", "PF-E10", "PF-E12")
@program(
    "p5-batches",
    In("k", "a", 0),
    Advance(3_000),
    In("k", "b", 0),
    Advance(1_999),
    # A timer fires as soon as the clock has its time; Flink's fires one millisecond later.
    Advance(1),
    Out("k", ["a", "b"], 5_000),
    Advance(1),
    In("k", "c", 0),
    Advance(5_001),
    Out("k", ["c"], 10_001),
    Advance(24 * 60 * MINUTE),
    END,
    in_driver_alone=BY_HAND,
)
def batches(parts: Parts) -> None:
    parts.put_out(parts.frame().process(Batches(), clock=parts.clock))


# -- 6: sorting by event time ------------------------------------------------------------------------------------------


class Sorted(ProcessFunction):
    outputs: ClassVar[tuple[str, ...]] = ("late",)

    def process_element(self, value: Any, ctx: Context) -> None:
        if ctx.timestamp <= ctx.current_watermark:
            ctx.output("late", value)
        waiting = ctx.state.map("waiting")
        waiting[ctx.timestamp] = [*waiting.get(ctx.timestamp, []), value]
        ctx.register_event_time_timer(ctx.timestamp)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield from ctx.state.map("waiting").pop(timestamp)


SORTED: tuple[Step, ...] = (
    In("k", 3, 3_000),
    In("k", 1, 1_000),
    In("k", 2, 2_000),
    In("k", 6, 6_000),
    Out("k", 1, 1_000),
    Out("k", 2, 2_000),
    Out("k", 3, 3_000),
)


@pytest.mark.rows("PF-E6", "PF-E11")
@program("p6-sorted", *SORTED, END, Out("k", 6, 6_000), clocks=("watermark",))
def sorted_by_event_time(parts: Parts) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=2))
    frame = parts.frame().process(Sorted(), clock=strategy)
    parts.put_out(frame)
    parts.put_out(frame.side_output("late"), "late")


@program(
    "p6-sorted-with-grace",
    *SORTED,
    In("k", 7, 8_000),
    In("k", 8, 8_001),
    Out("k", 6, 6_000),
    END,
    Out("k", 7, 8_000),
    Out("k", 8, 8_001),
)
def sorted_with_grace(parts: Parts) -> None:
    frame = parts.frame().process(Sorted(), clock=parts.clock, grace_ms=2_000)
    parts.put_out(frame)
    parts.put_out(frame.side_output("late"), "late")


# -- 7: two inputs, and what has no match ------------------------------------------------------------------------------


class MatchFares(CoProcessFunction):
    """Matches rides with their fares; what has no match after ten seconds goes aside."""

    outputs: ClassVar[tuple[str, ...]] = ("unmatched",)

    def process_element1(self, value: Any, ctx: Context) -> Iterator[Any]:
        fare = ctx.state.value("fare")
        if fare.value() is not None:
            yield {**value, **fare.value()}
            ctx.state.clear()
        else:
            ctx.state.value("ride").update(value)
            ctx.register_event_time_timer(ctx.timestamp + 10_000)

    def process_element2(self, value: Any, ctx: Context) -> Iterator[Any]:
        ride = ctx.state.value("ride")
        if ride.value() is not None:
            yield {**ride.value(), **value}
            ctx.state.clear()
        else:
            ctx.state.value("fare").update(value)
            ctx.register_event_time_timer(ctx.timestamp + 10_000)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> None:
        assert ctx.time_domain is TimeDomain.EVENT_TIME
        for side in ("ride", "fare"):
            if ctx.state.exists(side):
                ctx.output("unmatched", ctx.state.get(side))
        ctx.state.clear()


@program(
    "p7-fares",
    In("r1", {"id": 1}, 1_000, "rides"),
    In("r1", {"fare": 9}, 1_500, "fares"),
    Out("r1", {"id": 1, "fare": 9}, 1_500),
    In("r2", {"id": 2}, 2_000, "rides"),
    In("r3", {"fare": 7}, 3_000, "fares"),
    In("r4", {"id": 4}, 20_000, "rides"),
    # The timer of r1, at 11,000, finds nothing.
    Out("r2", {"id": 2}, 12_000, "unmatched"),
    Out("r3", {"fare": 7}, 13_000, "unmatched"),
    END,
    Out("r4", {"id": 4}, 30_000, "unmatched"),
)
def fares(parts: Parts) -> None:
    frame = parts.frame("rides").connect(parts.frame("fares")).process(MatchFares(), clock=parts.clock)
    parts.put_out(frame)
    parts.put_out(frame.side_output("unmatched"), "unmatched")


# -- 13: time to live --------------------------------------------------------------------------------------------------


class Once(ProcessFunction):
    """Passes the first record of a key on, until it is forgotten."""

    def __init__(self, ttl: StateTtl) -> None:
        self.ttl = ttl

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        seen = ctx.state.value("seen", ttl=self.ttl)
        if seen.value() is None:
            seen.update(True)
            yield value


@program(
    "p13-ttl",
    In("k", 0, 0),
    Out("k", 0, 0),
    Advance(59 * MINUTE),
    In("k", 59, 0),
    Advance(MINUTE),
    In("k", 60, 0),
    Out("k", 60, 0),
    Advance(MINUTE),
    In("k", 61, 0),
    END,
    in_driver_alone=BY_HAND,
)
def ttl(parts: Parts) -> None:
    parts.put_out(parts.frame().process(Once(StateTtl(HOUR, time="processing")), clock=parts.clock))


@program(
    "p13-ttl-prolonged-by-reads",
    In("k", 0, 0),
    Out("k", 0, 0),
    Advance(59 * MINUTE),
    In("k", 59, 0),
    Advance(MINUTE),
    In("k", 60, 0),
    Advance(MINUTE),
    In("k", 61, 0),
    END,
    in_driver_alone=BY_HAND,
)
def ttl_prolonged_by_reads(parts: Parts) -> None:
    chosen = StateTtl(HOUR, update="read-and-write", time="processing")
    parts.put_out(parts.frame().process(Once(chosen), clock=parts.clock))


@pytest.mark.rows("PF-F10")
@program(
    "p13-ttl-in-event-time",
    # A minute later, because Kafka's client takes the timestamp 0 for "now".
    In("k", 0, MINUTE),
    Out("k", 0, MINUTE),
    In("k", 59, 60 * MINUTE),
    In("k", 60, 61 * MINUTE),
    Out("k", 60, 61 * MINUTE),
    In("k", 61, 62 * MINUTE),
    END,
)
def ttl_in_event_time(parts: Parts) -> None:
    parts.put_out(parts.frame().process(Once(StateTtl(HOUR, time="event")), clock=parts.clock))


# -- 14: broadcast rules -----------------------------------------------------------------------------------------------


class Rules(BroadcastProcessFunction):
    """Tells the rules that an order is subject to."""

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
        ctx.broadcast_state("rules")[value["id"]] = value

    def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        for rule in ctx.broadcast_state("rules").values():
            if value["total"] >= rule["minimum"]:
                yield {**value, "rule": rule["id"]}


@pytest.mark.rows("PF-D9", "PF-I9")
@program(
    "p14-rules",
    In("o", {"total": 150}, 500, "orders", 0),
    In("r", {"id": "big", "minimum": 100}, 1_000, "rules"),
    In("o", {"total": 150}, 2_000, "orders", 1),
    Out("o", {"total": 150, "rule": "big"}, 2_000),
    In("o", {"total": 2_000}, 3_000, "orders", 2),
    Out("o", {"total": 2_000, "rule": "big"}, 3_000),
    In("r", {"id": "huge", "minimum": 1_000}, 5_000, "rules"),
    In("o", {"total": 2_000}, 6_000, "orders", 0),
    Out("o", {"total": 2_000, "rule": "big"}, 6_000),
    Out("o", {"total": 2_000, "rule": "huge"}, 6_000),
    END,
    partitions={"orders": 3},
)
def rules(parts: Parts) -> None:
    frame = parts.frame("orders").connect(parts.frame("rules").broadcast()).process(Rules(), clock=parts.clock)
    parts.put_out(frame)
