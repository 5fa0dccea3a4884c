"""The side of StreamRT: runs cases in the test driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Literal

from streamrt import Context, ProcessFunction, StreamingDataFrame, TimerContext
from streamrt.state import StateTtl
from streamrt.testing import TopologyTestDriver
from streamrt.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeSessions,
    EventTimeTrigger,
    GlobalWindows,
    Mean,
    MergeContext,
    NeverTrigger,
    ProcessingTimeSessions,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowAssigner,
    WindowContext,
)
from tests.oracle.actions import in_the_past, play
from tests.unit.apps import application

__all__ = ["run"]

Case = dict[str, Any]
Results = list[list[Any]]
Clock = Literal["watermark", "partition"]

TICKER = "~"
"""The key of records that only move the clock."""


def run(case: Case, **settings: Any) -> Results:
    """Return what StreamRT puts out at each step of a case."""
    app = application(**settings)
    topic = app.topic("in", key_deserializer="str", key_serializer="str")
    found: list[Any] = []
    BUILD[case["kind"]](app.dataframe(topic), case, case["clock"], found)
    results = []
    highest = -1
    with TopologyTestDriver(app) as driver:
        for kind, *step in case["steps"]:
            if kind == "e":
                key, timestamp, value = step
                driver.pipe(topic, value, key=key, timestamp=timestamp)
                highest = max(highest, timestamp)
            elif kind == "c":
                if step[0] > highest:
                    driver.pipe(topic, 0, key=TICKER, timestamp=step[0])
                    highest = step[0]
            else:
                driver.advance(step[0] - driver.now)
            results.append(found[:])
            found.clear()
    return results


def gather(frame: StreamingDataFrame, found: list[Any], shape: Callable[[Any, Any, int], Any]) -> None:
    def note(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        if key != TICKER:
            found.append(shape(value, key, timestamp))

    frame.update(note, metadata=True)


# -- Process functions -------------------------------------------------------------------------------------------------


class Player(ProcessFunction):
    """Plays the actions of elements and timers."""

    outputs = ("side",)

    def __init__(self, case: Case) -> None:
        self._timers = case["timers"]
        self._past = in_the_past(case)
        self._ttl = case.get("ttl")

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        if value:
            yield from filter(None, play(value, Call(ctx, self._ttl), self._past))

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield ["timer", ctx.time_domain.name, ctx.current_watermark]
        yield from filter(None, play(self._timers.get(str(timestamp), ()), Call(ctx, self._ttl), self._past))


class Call:
    """A call of StreamRT, as `play` needs it."""

    def __init__(self, ctx: Context, ttl: tuple[int, bool] | None = None) -> None:
        self._ctx = ctx
        self._ttl: StateTtl | None = None
        if ttl is not None:
            ms, reads = ttl
            self._ttl = StateTtl(timedelta(milliseconds=ms), "read-and-write" if reads else "write", "processing")

    def watermark(self) -> int:
        return self._ctx.current_watermark

    def now(self) -> int:
        return self._ctx.current_processing_time

    def timestamp(self) -> int:
        return self._ctx.timestamp

    def key(self) -> Any:
        return self._ctx.key

    def register(self, domain: str, time: int) -> None:
        getattr(self._ctx, f"register_{domain}_time_timer")(time)

    def delete(self, domain: str, time: int) -> None:
        getattr(self._ctx, f"delete_{domain}_time_timer")(time)

    def value(self) -> Any:
        return self._ctx.state.value("v", ttl=self._ttl)

    def list(self) -> Any:
        return self._ctx.state.list("l", ttl=self._ttl)

    def map(self) -> Any:
        return _Map(self._ctx.state.map("m", ttl=self._ttl))

    def reducing(self) -> Any:
        return self._ctx.state.reducing("r", lambda one, other: one + other, ttl=self._ttl)

    def aggregating(self) -> Any:
        return self._ctx.state.aggregating("a", Mean(), ttl=self._ttl)

    def side(self, value: Any) -> None:
        self._ctx.output("side", value)


class _Map:
    """A map with the names of PyFlink's methods."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self.get, self.items, self.keys = state.get, state.items, state.keys
        self.put_all, self.clear, self.is_empty, self.remove = (
            state.put_all,
            state.clear,
            state.is_empty,
            state.discard,
        )

    def put(self, key: Any, value: Any) -> None:
        self._state[key] = value

    def contains(self, key: Any) -> bool:
        return key in self._state


def _process(sdf: StreamingDataFrame, case: Case, clock: Clock, found: list[Any]) -> None:
    frame = sdf.process(
        Player(case),
        clock=clock,
        grace_ms=timedelta(milliseconds=case["delay"]),
        when_all_idle="hold" if clock == "watermark" else None,
    )
    gather(frame, found, lambda value, key, timestamp: ["main", key, value, timestamp])
    gather(frame.side_output("side"), found, lambda value, key, timestamp: ["side", key, value, timestamp])


# -- Windows that are emitted once -------------------------------------------------------------------------------------


def _append(values: list[Any], value: Any) -> list[Any]:
    return [*values, value]


def _final(sdf: StreamingDataFrame, case: Case, clock: Clock, found: list[Any]) -> None:
    name, *lengths = case["assigner"]
    grace = timedelta(milliseconds=case["delay"])
    lengths = [timedelta(milliseconds=length) for length in lengths]
    if name == "tumbling":
        definition = sdf.tumbling_window(lengths[0], grace)
    elif name == "sliding":
        definition = sdf.hopping_window(lengths[0], lengths[1], grace)
    else:
        definition = sdf.session_window(lengths[0], grace)
    window = definition.reduce(_append, lambda value: [value], lambda one, other: [*one, *other])
    _emit(window.final(closing_strategy=clock), found)


def _emit(frame: StreamingDataFrame, found: list[Any]) -> None:
    gather(frame, found, lambda value, key, timestamp: ["main", key, value["start"], value["end"], value["value"]])
    gather(frame.side_output("late"), found, lambda value, key, timestamp: ["late", key, value])


def _counted(sdf: StreamingDataFrame, case: Case, clock: Clock, found: list[Any]) -> None:
    _, count, step = case["assigner"]
    definition = sdf.tumbling_count_window(count) if count == step else sdf.hopping_count_window(count, step)
    frame = definition.reduce(_append, lambda value: [value]).final()
    gather(frame, found, lambda value, key, timestamp: ["main", key, value["value"]])


# -- Windows with triggers ---------------------------------------------------------------------------------------------

_MERGING = ("session", "dynamic", "session-processing")


def _assigner(name: str, *options: int) -> WindowAssigner:
    if name == "dynamic":
        return EventTimeSessions(lambda value: 1 + value % options[0])
    made: WindowAssigner = {
        "tumbling": TumblingEventTimeWindows,
        "sliding": SlidingEventTimeWindows,
        "session": EventTimeSessions,
        "global": GlobalWindows,
        "tumbling-processing": TumblingProcessingTimeWindows,
        "session-processing": ProcessingTimeSessions,
    }[name](*options)
    return made


def _trigger(assigner: str, name: str, *options: Any) -> Trigger:
    if name == "purging":
        return PurgingTrigger(_trigger(assigner, *options[0]))
    if name == "own":
        return _Own(*options, timers=assigner != "global")
    made: Trigger = {
        "event": EventTimeTrigger,
        "processing": ProcessingTimeTrigger,
        "count": CountTrigger,
        "continuous": ContinuousEventTimeTrigger,
        "continuous-processing": ContinuousProcessingTimeTrigger,
        "never": NeverTrigger,
    }[name](*options)
    return made


class _Results(ProcessWindowFunction):
    """Puts out the bounds and elements of a window, the watermark, and how often it has been called."""

    def __init__(self, assigner: str, aggregated: bool) -> None:
        self._assigner = assigner
        self._aggregated = aggregated

    def process(self, key: Any, ctx: WindowContext, elements: list[Any]) -> Iterator[Any]:
        values = elements[0] if self._aggregated else elements
        bounds = [0, 0] if self._assigner == "global" else [ctx.window.start, ctx.window.end]
        total = ctx.global_state.get("total", 0) + 1
        ctx.global_state.set("total", total)
        calls = 0
        if self._assigner not in _MERGING:
            calls = ctx.window_state.get("calls", 0) + 1
            ctx.window_state.set("calls", calls)
        yield [*bounds, values, ctx.current_watermark, calls, total]


class _Own(Trigger):
    """A user's trigger with state: see `tests.oracle.flink` for the same one."""

    def __init__(self, limit: int, *, timers: bool) -> None:
        self._limit = limit
        self._timers = timers

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        seen = ctx.state.get("seen", 0) + 1
        ctx.state.set("seen", seen)
        if value % 7 == 0:
            return TriggerResult.PURGE
        if seen >= self._limit:
            ctx.state.delete("seen")
            return TriggerResult.FIRE_AND_PURGE if value % 2 else TriggerResult.FIRE
        if self._timers:
            ctx.register_event_time_timer(window.end + 2)
            if value % 5 == 0:
                ctx.delete_event_time_timer(window.end + 2)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.end + 2 else TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        merged = sum(state.get("seen", 0) for state in ctx.merged_states)
        if merged:
            ctx.state.set("seen", ctx.state.get("seen", 0) + merged)
        ctx.register_event_time_timer(window.end + 2)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        if self._timers:
            ctx.delete_event_time_timer(window.end + 2)


def _triggered(sdf: StreamingDataFrame, case: Case, clock: Clock, found: list[Any]) -> None:
    assigner, *_ = case["assigner"]
    definition: Any = sdf.window(_assigner(*case["assigner"]), grace_ms=timedelta(milliseconds=case["lateness"]))
    aggregated = case["function"] == "aggregate"
    if aggregated:
        definition = definition.reduce(_append, lambda value: [value], lambda one, other: [*one, *other])
    window = definition.process(_Results(assigner, aggregated))
    frame = window.trigger(_trigger(assigner, *case["trigger"]), closing_strategy=clock)
    gather(frame, found, lambda value, key, timestamp: ["main", key, *value])
    if case["kind"] == "triggered":
        gather(frame.side_output("late"), found, lambda value, key, timestamp: ["late", key, value])


BUILD: dict[str, Callable[[StreamingDataFrame, Case, Clock, list[Any]], None]] = {
    "process": _process,
    "final": _final,
    "counted": _counted,
    "triggered": _triggered,
    "timed": _triggered,
}
