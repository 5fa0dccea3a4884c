"""Triggers: when windows are emitted."""

import abc
import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from streamrt.arguments import checked
from streamrt.errors import ArgumentTypeError
from streamrt.operators.functions import require_callable
from streamrt.topics.durations import milliseconds
from streamrt.windows.pane_contexts import MergeContext, TriggerContext
from streamrt.windows.window import END_OF_TIME, Window

__all__ = [
    "AtEnd",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "DeltaTrigger",
    "EachRecord",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Trigger",
    "TriggerResult",
    "clears_state",
]


class TriggerResult(enum.Enum):
    """The effect on a window: whether it is emitted, and whether its content is then deleted."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    FIRE_AND_PURGE = (True, True)
    PURGE = (False, True)

    @property
    def is_fire(self) -> bool:
        """Whether the window is emitted."""
        return self.value[0]

    @property
    def is_purge(self) -> bool:
        """Whether its content is deleted."""
        return self.value[1]


class Trigger(abc.ABC):
    """Says when a window is emitted, for `.trigger(...)` of windows. Derive from it for triggers of your own.

    The object is pickled with the operators and serves all keys and windows: what belongs to a window goes into `ctx.state`.

    Example:
        ```python
        class OnMarker(Trigger):
            def on_element(self, value, timestamp, window, ctx):
                return TriggerResult.FIRE_AND_PURGE if value["last"] else TriggerResult.CONTINUE
        ```
    """

    # Whether `clear` deletes all state of the window, so that nothing is left to look for.
    _clears_state: ClassVar[bool] = False

    @abc.abstractmethod
    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Decide after a record; called for each of its windows.

        Args:
            value: value of the record.
            timestamp: its event time in milliseconds.
            window: the window.
            ctx: state and timers of the window.
        """

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Decide when a timer of event time is due, and when the window is over."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Decide when a timer of processing time is due."""
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        """Take over the state and timers of windows that were merged. Triggers without this method cannot merge.

        Args:
            window: the result of merging.
            ctx: state and timers of the result; `merged_states` has the states of the former windows.
        """
        raise TypeError(f"{type(self).__name__} cannot merge windows")

    @property
    def can_merge(self) -> bool:
        """Whether windows may merge: whether the trigger has the method `on_merge`."""
        return type(self).on_merge is not Trigger.on_merge

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: B027 - there need not be anything
        """Delete the timers of a window; called when it is over, or was merged. Its state is then deleted anyway."""

    def describe(self) -> str:
        """Return a short description for drawings."""
        return type(self).__name__


@dataclass(frozen=True)
class EventTimeTrigger(Trigger):
    """Emits a window when event time has reached its end, and again with each late record."""

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        if window.max_timestamp <= ctx.current_watermark:
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        return TriggerResult.FIRE if time == window.max_timestamp else TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: MergeContext) -> None:  # noqa: D102
        if window.max_timestamp > ctx.current_watermark:
            ctx.register_event_time_timer(window.max_timestamp)

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: D102
        ctx.delete_event_time_timer(window.max_timestamp)


@dataclass(frozen=True)
class ProcessingTimeTrigger(Trigger):
    """Emits a window when the wall clock has passed its end."""

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        ctx.register_processing_time_timer(window.max_timestamp)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: MergeContext) -> None:  # noqa: D102
        if window.max_timestamp > ctx.current_processing_time:
            ctx.register_processing_time_timer(window.max_timestamp)

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: D102
        ctx.delete_processing_time_timer(window.max_timestamp)


@dataclass(frozen=True)
class CountTrigger(Trigger):
    """Emits a window after each `count` records. Fewer records at its end are not emitted.

    Attributes:
        count: number of records, at least 1.
    """

    _clears_state: ClassVar[bool] = True
    count: int

    def __post_init__(self) -> None:
        wanted = "a number of records, at least 1"
        checked("CountTrigger(count=...)", self.count, int, wanted, lambda count: count >= 1)

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        count = ctx.state.get("count", 0) + 1
        if count < self.count:
            ctx.state.set("count", count)
            return TriggerResult.CONTINUE
        ctx.state.delete("count")
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: MergeContext) -> None:  # noqa: D102
        merged = [state.get("count") for state in ctx.merged_states]
        if any(merged):
            ctx.state.set("count", ctx.state.get("count", 0) + sum(filter(None, merged)))

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: D102
        ctx.state.delete("count")

    def describe(self) -> str:  # noqa: D102
        return f"CountTrigger({self.count})"


@dataclass(frozen=True)
class _ContinuousTrigger(Trigger):
    """Common base of triggers that emit a window at multiples of an interval.

    Attributes:
        interval: the interval in milliseconds, or as a timedelta.
    """

    _clears_state: ClassVar[bool] = True
    interval: int | timedelta

    def __post_init__(self) -> None:
        interval = milliseconds(f"{type(self).__name__}(interval=...)", self.interval, least=1)
        object.__setattr__(self, "interval", interval)

    def _register_first(self, time: int, window: Window, ctx: TriggerContext) -> None:
        """Register the first timer of a window."""
        if ctx.state.get("next") is None:
            # The last millisecond of the window may be a multiple itself, and no other one comes after it.
            multiple = time - time % self.interval  # type: ignore[operator]
            self._register_next(min(multiple, window.max_timestamp - 1), window, ctx)

    def _register_next(self, time: int, window: Window, ctx: TriggerContext) -> None:
        following: int = time + self.interval  # type: ignore[operator]
        if time < window.max_timestamp < following:
            following = window.max_timestamp
        if window.end == END_OF_TIME and ctx.current_watermark >= END_OF_TIME - 1:
            # The inputs of a bounded run have ended, and a window without an end would go on for ever.
            return
        ctx.state.set("next", following)
        self._register_timer(following, ctx)

    @abc.abstractmethod
    def _register_timer(self, time: int, ctx: TriggerContext) -> None:
        """Register a timer."""

    def describe(self) -> str:
        return f"{type(self).__name__}({self.interval})"


@dataclass(frozen=True)
class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Emits a window whenever event time has reached a multiple of an interval, and at its end.

    Attributes:
        interval: the interval in milliseconds, or as a timedelta.
    """

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        if window.max_timestamp <= ctx.current_watermark:
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp)
        self._register_first(timestamp, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        if time == window.max_timestamp:
            return TriggerResult.FIRE
        if ctx.state.get("next") != time:
            return TriggerResult.CONTINUE
        self._register_next(time, window, ctx)
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: MergeContext) -> None:  # noqa: D102
        _merge_next(ctx, ctx.register_event_time_timer)
        if window.max_timestamp > ctx.current_watermark:
            ctx.register_event_time_timer(window.max_timestamp)

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: D102
        ctx.delete_event_time_timer(window.max_timestamp)
        following = ctx.state.get("next")
        if following is not None:
            ctx.delete_event_time_timer(following)
            ctx.state.delete("next")

    def _register_timer(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_event_time_timer(time)


@dataclass(frozen=True)
class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Emits a window whenever the wall clock has passed a multiple of an interval.

    Attributes:
        interval: the interval in milliseconds, or as a timedelta.
    """

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        self._register_first(ctx.current_processing_time, window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        if ctx.state.get("next") != time:
            return TriggerResult.CONTINUE
        self._register_next(time, window, ctx)
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: MergeContext) -> None:  # noqa: D102
        _merge_next(ctx, ctx.register_processing_time_timer)

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: D102
        following = ctx.state.get("next")
        if following is not None:
            ctx.delete_processing_time_timer(following)
            ctx.state.delete("next")

    def _register_timer(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_processing_time_timer(time)


@dataclass(frozen=True)
class PurgingTrigger(Trigger):
    """Deletes the content of a window whenever another trigger emits it.

    Attributes:
        trigger: the other trigger.
    """

    trigger: Trigger

    def __post_init__(self) -> None:
        if not isinstance(self.trigger, Trigger):
            raise ArgumentTypeError(
                f"PurgingTrigger() needs an object of a subclass of Trigger, got {type(self.trigger).__name__}"
            )

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        return _add_purge(self.trigger.on_element(value, timestamp, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        return _add_purge(self.trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        return _add_purge(self.trigger.on_processing_time(time, window, ctx))

    def on_merge(self, window: Window, ctx: MergeContext) -> None:  # noqa: D102
        self.trigger.on_merge(window, ctx)

    @property
    def can_merge(self) -> bool:  # noqa: D102
        return self.trigger.can_merge

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: D102
        self.trigger.clear(window, ctx)

    def describe(self) -> str:  # noqa: D102
        return f"PurgingTrigger({self.trigger.describe()})"


@dataclass(frozen=True)
class NeverTrigger(Trigger):
    """Never emits a window."""

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        """Nothing to take over."""


@dataclass(frozen=True)
class DeltaTrigger(Trigger):
    """Emits a window when a record differs much from that of the last time. Windows with it cannot merge.

    Attributes:
        threshold: the difference that must be exceeded.
        delta: function of the value of the last time (at first, that of the first record) and of a new value; returns the
            difference.
    """

    _clears_state: ClassVar[bool] = True
    threshold: float
    delta: Callable[[Any, Any], float]

    def __post_init__(self) -> None:
        require_callable("DeltaTrigger(delta=...)", self.delta)

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        last = ctx.state.value("last", default=_NONE)
        known = last.value()
        if known is _NONE:
            last.update(value)
        elif self.delta(known, value) > self.threshold:
            last.update(value)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: D102
        ctx.state.delete("last")

    def describe(self) -> str:  # noqa: D102
        return f"DeltaTrigger({self.threshold})"


@dataclass(frozen=True)
class AtEnd(Trigger):
    """Emits a window once, when it closes; what `final()` stands for.

    Attributes:
        grace_ms: how long windows wait for late records, in milliseconds.
    """

    grace_ms: int

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        return TriggerResult.FIRE if time == window.max_timestamp + self.grace_ms else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        return TriggerResult.FIRE if time == window.max_timestamp else TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        """Nothing to take over: the operator has a timer for the end of each window."""

    def describe(self) -> str:  # noqa: D102
        return "final"


@dataclass(frozen=True)
class EachRecord(Trigger):
    """Emits a window with each record; what `current()` stands for."""

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: D102
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        """Nothing to take over."""

    def describe(self) -> str:  # noqa: D102
        return "current"


_NONE = object()


def clears_state(trigger: Trigger) -> bool:
    """Return whether a trigger deletes all state of a window in `clear`."""
    return clears_state(trigger.trigger) if isinstance(trigger, PurgingTrigger) else trigger._clears_state


def _add_purge(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire else result


def _merge_next(ctx: MergeContext, register: Callable[[int], None]) -> None:
    """Take over the earliest next time of the merged windows."""
    known = [state.get("next") for state in (ctx.state, *ctx.merged_states)]
    following = min((time for time in known if time is not None), default=None)
    if following is not None:
        ctx.state.set("next", following)
        register(following)
