"""Meaning of windows with triggers, in the simplest way: everything in dicts and lists, timers in one set.

Written from the definitions of Flink's window operator, without a look at how streamrt.windows does it. `Model` says what a
window puts out for each step, and `on_frame` puts the same window on a dataframe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from streamrt import StreamingDataFrame
from streamrt.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessions,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeSessions,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowContext,
)

BEFORE = -(1 << 63)
FOREVER = 1 << 63

Bounds = tuple[int, int]


class Spec(NamedTuple):
    """Which windows.

    Attributes:
        kind: "fixed", "session", "dynamic" (a session whose gap is the size plus the value modulo 5) or "global".
        size: length, or gap, in milliseconds.
        step: distance of fixed windows.
        offset: of fixed windows.
        grace: milliseconds.
        trigger: its name, and arguments; "purging" has another one.
        result: "collect", "reduce" or "process".
        evictor: its name, argument, and whether it evicts after; None for none.
        time: "event" or "processing".
    """

    kind: str
    size: int
    step: int
    offset: int
    grace: int
    trigger: tuple[Any, ...]
    result: str
    evictor: tuple[str, int, bool] | None
    time: str


class Step(NamedTuple):
    """A record, or a number of milliseconds that pass."""

    key: str | None
    timestamp: int
    value: int
    passed: int = 0


Output = tuple[Any, str, int]
"""Value, key and timestamp."""


@dataclass
class _Pane:
    elements: list[tuple[int, int, int]] = field(default_factory=list)
    reduced: list[int] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    fired: int = 0


class Model:
    """The windows of all keys of one partition.

    Args:
        spec: which ones.

    Attributes:
        late: the values of the records that are in no window.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.late: list[int] = []
        self.now = 0
        self.watermark = BEFORE
        self.panes: dict[tuple[str, Bounds], _Pane] = {}
        self.totals: dict[str, list[int]] = {}
        self.timers: dict[str, set[tuple[int, int, str, Bounds]]] = {"event": set(), "processing": set()}
        self.arrivals = 0
        self.merging = spec.kind in ("session", "dynamic")
        self.out: list[Output] = []

    def step(self, step: Step) -> list[Output]:
        """Return what a step puts out, in order."""
        self.out = []
        if step.key is None:
            self.now += step.passed
        else:
            self.record(step.key, step.timestamp, step.value)
            self.watermark = max(self.watermark, step.timestamp - 1)
        self.run("event", self.watermark)
        self.run("processing", self.now - 1)
        return self.out

    def assigned(self, timestamp: int, value: int) -> list[Bounds]:
        spec = self.spec
        time = timestamp if spec.time == "event" else self.now
        if spec.kind == "global":
            return [(0, FOREVER)]
        if self.merging:
            return [(time, time + spec.size + (value % 5 if spec.kind == "dynamic" else 0))]
        return [
            (max(start, 0), start + spec.size)
            for start in range(-spec.size - spec.step, time + 1)
            if (start - spec.offset) % spec.step == 0 and start <= time < start + spec.size and start > -spec.step
        ]

    def record(self, key: str, timestamp: int, value: int) -> None:
        counted = False
        self.arrivals += 1
        for assigned in self.assigned(timestamp, value):
            bounds = self.merge(key, assigned) if self.merging else assigned
            if self.spec.time == "event" and self.end(bounds) <= self.watermark:
                continue
            counted = True
            pane = self.panes.setdefault((key, bounds), _Pane())
            pane.elements.append((self.arrivals, timestamp, value))
            pane.reduced.append(value)
            self.act(key, bounds, pane, self.on_element(self.spec.trigger, key, bounds, pane, timestamp))
            self.register(self.spec.time, key, bounds, self.end(bounds))
        if not counted:
            self.late.append(value)

    def merge(self, key: str, new: Bounds) -> Bounds:
        met = sorted(
            bounds for owner, bounds in self.panes if owner == key and bounds[0] <= new[1] and new[0] <= bounds[1]
        )
        result = (min(new[0], *(low for low, _ in met)), max(new[1], *(high for _, high in met))) if met else new
        if not met or met == [result]:
            return result
        old = [self.panes.pop((key, bounds)) for bounds in met]
        pane = _Pane(
            sorted(element for each in old for element in each.elements),
            [value for each in old for value in each.reduced],
        )
        for bounds in met:
            for timers in self.timers.values():
                timers -= {timer for timer in timers if timer[2:] == (key, bounds)}
        self.panes[key, result] = pane
        name, *_ = trigger = _inner(self.spec.trigger)
        if name == "count" and any("count" in each.memory for each in old):
            pane.memory["count"] = sum(each.memory.get("count", 0) for each in old)
        following = [each.memory["next"] for each in old if "next" in each.memory]
        if following:
            pane.memory["next"] = min(following)
            self.register("processing" if trigger[0].endswith("processing") else "event", key, result, min(following))
        if name in ("event", "continuous") and result[1] - 1 > self.watermark:
            self.register("event", key, result, result[1] - 1)
        if name == "processing" and result[1] - 1 > self.now:
            self.register("processing", key, result, result[1] - 1)
        self.register(self.spec.time, key, result, self.end(result))
        return result

    def run(self, domain: str, bound: int) -> None:
        """Fire the timers up to a time: the earliest first, then by key, in the order of its stored form, and window."""
        timers = self.timers[domain]
        while due := [timer for timer in timers if timer[0] <= bound]:
            timer = min(due)
            timers.remove(timer)
            time, _, key, bounds = timer
            pane = self.panes.get((key, bounds))
            if pane is None:
                continue
            ask = self.on_event_time if domain == "event" else self.on_processing_time
            self.act(key, bounds, pane, ask(self.spec.trigger, key, bounds, pane, time))
            if domain == self.spec.time and time == self.end(bounds):
                del self.panes[key, bounds]
                for others in self.timers.values():
                    others -= {other for other in others if other[2:] == (key, bounds)}
                if self.spec.result == "process":
                    self.totals.setdefault(key, [0, 0])[1] += 1

    def end(self, bounds: Bounds) -> int:
        return bounds[1] - 1 + self.spec.grace

    def register(self, domain: str, key: str, bounds: Bounds, time: int) -> None:
        if time < FOREVER - 1:
            self.timers[domain].add((time, len(key), key, bounds))

    # -- Triggers: what they return is "", "F" (fire), "P" (purge) or "FP" -----------------------------------------------

    def on_element(self, trigger: tuple[Any, ...], key: str, bounds: Bounds, pane: _Pane, timestamp: int) -> str:
        name, argument = _split(trigger)
        last = bounds[1] - 1
        if name == "purging":
            return _purging(self.on_element(argument, key, bounds, pane, timestamp))
        if name in ("event", "continuous") and last <= self.watermark:
            return "F"
        if name in ("event", "continuous"):
            self.register("event", key, bounds, last)
        if name == "processing":
            self.register("processing", key, bounds, last)
        if name in ("continuous", "continuous_processing") and "next" not in pane.memory:
            time = timestamp if name == "continuous" else self.now
            begun = time - time % argument
            self.following(name, key, bounds, pane, begun, min(argument, last - begun))
        if name == "count":
            pane.memory["count"] = pane.memory.get("count", 0) + 1
            if pane.memory["count"] >= argument:
                del pane.memory["count"]
                return "F"
        return "F" if name == "current" else ""

    def on_event_time(self, trigger: tuple[Any, ...], key: str, bounds: Bounds, pane: _Pane, time: int) -> str:
        name, argument = _split(trigger)
        if name == "purging":
            return _purging(self.on_event_time(argument, key, bounds, pane, time))
        if name in ("event", "continuous") and time == bounds[1] - 1:
            return "F"
        if name == "continuous" and pane.memory.get("next") == time:
            self.following(name, key, bounds, pane, time, argument)
            return "F"
        return "F" if name == "final" and time == self.end(bounds) else ""

    def on_processing_time(self, trigger: tuple[Any, ...], key: str, bounds: Bounds, pane: _Pane, time: int) -> str:
        name, argument = _split(trigger)
        if name == "purging":
            return _purging(self.on_processing_time(argument, key, bounds, pane, time))
        if name == "continuous_processing" and pane.memory.get("next") == time:
            self.following(name, key, bounds, pane, time, argument)
            return "F"
        return "F" if name == "processing" or (name == "final" and time == bounds[1] - 1) else ""

    def following(self, name: str, key: str, bounds: Bounds, pane: _Pane, time: int, interval: int) -> None:
        last, following = bounds[1] - 1, time + interval
        pane.memory["next"] = last if time < last < following else following
        self.register("event" if name == "continuous" else "processing", key, bounds, pane.memory["next"])

    # -- Results -------------------------------------------------------------------------------------------------------

    def act(self, key: str, bounds: Bounds, pane: _Pane, what: str) -> None:
        if "F" in what and pane.elements:
            start = min(time for _, time, _ in pane.elements) if bounds[1] == FOREVER else bounds[0]
            high = max(time for _, time, _ in pane.elements)
            before = evict(self.spec.evictor, pane.elements, after=False)
            values: Any = [value for _, _, value in before]
            if self.spec.result == "process":
                pane.fired += 1
                total = self.totals.setdefault(key, [0, 0])
                total[0] += 1
                value: Any = [*bounds[: 1 if bounds[1] == FOREVER else 2], values, *total]
                if not self.merging:
                    value.append(pane.fired)
            else:
                end = high if bounds[1] == FOREVER else bounds[1]
                value = {"start": start, "end": end, "value": values}
                if self.spec.result == "reduce":
                    value["value"] = [*pane.reduced]
            self.out.append((value, key, start))
            pane.elements = evict(self.spec.evictor, before, after=True)
        if "P" in what:
            pane.elements, pane.reduced = [], []


def evict(
    evictor: tuple[str, int, bool] | None, elements: Sequence[tuple[int, int, int]], *, after: bool
) -> list[tuple[int, int, int]]:
    """Return what an evictor leaves."""
    if evictor is None or evictor[2] != after or not elements:
        return [*elements]
    if evictor[0] == "count":
        return [*elements[-evictor[1] :]]
    newest = max(time for _, time, _ in elements)
    return [element for element in elements if element[1] > newest - evictor[1]]


def _split(trigger: tuple[Any, ...]) -> tuple[str, Any]:
    return trigger[0], trigger[1] if len(trigger) > 1 else None


def _purging(what: str) -> str:
    return "FP" if "F" in what else what


def _inner(trigger: tuple[Any, ...]) -> tuple[Any, ...]:
    return _inner(trigger[1]) if trigger[0] == "purging" else trigger


# -- The same on a dataframe -------------------------------------------------------------------------------------------


class Tell(ProcessWindowFunction):
    """Tells bounds, elements, and how often the key's windows have fired and closed, and this window has fired."""

    outputs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, merging: bool, endless: bool) -> None:
        self.merging, self.endless = merging, endless

    def process(self, key: Any, ctx: WindowContext, elements: list[Any]) -> Iterator[Any]:
        fired = ctx.global_state.get("fired", 0) + 1
        ctx.global_state.set("fired", fired)
        bounds = [ctx.window.start] if self.endless else [ctx.window.start, ctx.window.end]
        told = [*bounds, [*elements], fired, ctx.global_state.get("closed", 0)]
        if not self.merging:
            own = ctx.window_state.get("fired", 0) + 1
            ctx.window_state.set("fired", own)
            told.append(own)
        yield told

    def clear(self, ctx: WindowContext) -> None:
        ctx.global_state.set("closed", ctx.global_state.get("closed", 0) + 1)


def trigger_of(spec: tuple[Any, ...]) -> Trigger:
    """Return the trigger of a specification."""
    if spec[0] == "purging":
        return PurgingTrigger(trigger_of(spec[1]))
    kinds: dict[str, Any] = {
        "event": EventTimeTrigger,
        "processing": ProcessingTimeTrigger,
        "count": CountTrigger,
        "continuous": ContinuousEventTimeTrigger,
        "continuous_processing": ContinuousProcessingTimeTrigger,
        "never": NeverTrigger,
    }
    found: Trigger = kinds[spec[0]](*spec[1:])
    return found


def on_frame(sdf: StreamingDataFrame, spec: Spec, name: str, closing: str) -> StreamingDataFrame:
    """Return the dataframe of a window's results."""
    event = spec.time == "event"
    gap: Any = spec.size if spec.kind == "session" else lambda value: spec.size + value % 5
    assigner: Any = None
    if spec.kind in ("session", "dynamic"):
        assigner = (EventTimeSessions if event else ProcessingTimeSessions)(gap)
    elif spec.kind == "fixed" and spec.step == spec.size:
        assigner = (TumblingEventTimeWindows if event else TumblingProcessingTimeWindows)(spec.size, spec.offset)
    elif spec.kind == "fixed":
        sliding = SlidingEventTimeWindows if event else SlidingProcessingTimeWindows
        assigner = sliding(spec.size, spec.step, spec.offset)
    defined: Any = sdf.global_window(name) if assigner is None else sdf.window(assigner, spec.grace, name)
    if spec.result == "process":
        window = defined.process(Tell(merging=spec.kind in ("session", "dynamic"), endless=spec.kind == "global"))
    elif spec.result == "reduce":
        window = defined.reduce(_append, _single, _join)
    else:
        window = defined.collect()
    options: dict[str, Any] = {"closing_strategy": closing}
    if closing == "watermark":
        options |= {"idle_timeout_ms": 10_000, "when_all_idle": "hold"}
    frame: StreamingDataFrame
    if spec.trigger[0] in ("final", "current"):
        frame = getattr(window, spec.trigger[0])(**(options if event else {}))
    else:
        evictor: Any = None
        if spec.evictor is not None:
            kind, argument, after = spec.evictor
            evictor = CountEvictor(argument, after) if kind == "count" else TimeEvictor(argument, after)
        frame = window.trigger(trigger_of(spec.trigger), evictor=evictor, **options)
    return frame


def _append(values: list[Any], value: Any) -> list[Any]:
    return [*values, value]


def _single(value: Any) -> list[Any]:
    return [value]


def _join(left: list[Any], right: list[Any]) -> list[Any]:
    return [*left, *right]
