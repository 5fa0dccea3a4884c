"""Windows with what they compute, which methods of window definitions return: when to emit it."""

from __future__ import annotations

import abc
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar, Final, Generic, Literal, TypeVar

from streamrt.dataframe.clocks import Clock, WindowClock
from streamrt.dataframe.triggering import at_end, each_record, triggered, with_function, with_trigger
from streamrt.dataframe.unfinished import NOT_EMITTED, AddWindow, refuse_use_as_frame
from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.topology import WhenAllIdle
from streamrt.windows.closing import TimeWindowOperator, WindowOperator
from streamrt.windows.evictors import Evictor
from streamrt.windows.functions import WindowFunction
from streamrt.windows.triggered import TriggeredWindow
from streamrt.windows.triggers import Trigger

__all__ = ["NOT_COUNTED", "AssignedWindow", "CountWindow", "TimeWindow"]

# A dataframe.
F = TypeVar("F")

NOT_COUNTED: Final = (
    "for a function or a trigger of a number of records, use "
    "sdf.global_window().process(function).trigger(PurgingTrigger(CountTrigger(n))), with count() or another aggregation "
    "in place of process()"
)
"""Advice for methods that count windows lack."""


class _EmittedWindow(abc.ABC, Generic[F]):
    """A window over time with what it computes. Next, say when to emit it."""

    _default_clock: ClassVar[Literal["key", "watermark"]] = "watermark"

    def __init__(self, add: AddWindow[F], store: str) -> None:
        self._add_window = add
        self._store = store

    def final(
        self,
        closing_strategy: Clock | None = None,
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Emit each window once, when it closes.

        The value is `{"start": ..., "end": ..., "value": ...}`, for `agg()` `{"start": ..., "end": ..., <name>: ...}`,
        with the record's key, the start of the window as timestamp, and no headers. A window closes when the clock reaches
        its end plus the grace period. Windows of a key that close together come in the order of their starts.

        Args:
            closing_strategy: the clock that closes windows. "key": the highest event time among the key's records, so
                the last windows of a key wait for its next record; not for windows of an assigner. "partition": the highest
                event time of all records that reach the window in the partition. "watermark": event time of the whole
                stream, which is the lowest among the highest event times of all partitions. Idle partitions are left out
                after a timeout, and while all are idle, time advances with the wall clock; so all windows close. A
                `WatermarkStrategy` is the same with other rules. By default the watermark strategy of the topic, or else
                "key", and "watermark" for windows of an assigner.
            idle_timeout_ms: for "watermark": time without records after which a partition counts as idle, in
                milliseconds or as a timedelta; 10 seconds by default. Not allowed with other strategies.
            when_all_idle: for "watermark": behaviour of event time while all partitions are idle. "advance", the
                default: it advances with the wall clock, so that the last windows close. "hold": it stops, so windows
                wait for the next record, and records that were delayed on their way to Kafka are not late. Not allowed
                with other strategies.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: if the strategy is unknown, the timeout is not allowed, or the windows never end.
            InvalidOperationError: if the dataframe already has the same window with the same aggregation.

        Example:
            ```python
            per_minute = sdf.tumbling_window(60_000).count().final(closing_strategy="watermark", idle_timeout_ms=30_000)
            ```
        """
        return self._emit(True, WindowClock(closing_strategy, idle_timeout_ms, when_all_idle, self._default_clock))

    def current(
        self,
        closing_strategy: Clock | None = None,
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Emit, for each record, all windows that it changes, in the order of their starts.

        Values are as for `final()`. Windows are not emitted again when they close.

        Args:
            closing_strategy: the clock that decides which records are late; see `final()`.
            idle_timeout_ms: see `final()`.
            when_all_idle: see `final()`.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: if the strategy is unknown, the timeout is not allowed, or windows of an assigner keep their
                elements.
            InvalidOperationError: if the dataframe already has the same window with the same aggregation, or the window
                collects values.

        Example:
            ```python
            so_far = sdf.tumbling_window(60_000).count().current()
            ```
        """
        return self._emit(False, WindowClock(closing_strategy, idle_timeout_ms, when_all_idle, self._default_clock))

    def trigger(
        self,
        trigger: Trigger,
        *,
        evictor: Evictor | None = None,
        closing_strategy: Clock | None = None,
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Emit windows when a trigger says so.

        A window is deleted at its end plus the grace period. Until then, late records are added to it and given to the
        trigger: `EventTimeTrigger` emits the window again with each of them.

        Args:
            trigger: the trigger.
            evictor: chooses the elements that count when a window is emitted; needs `collect()` or `process()`.
            closing_strategy: the clock of event time: "watermark", "partition" or a `WatermarkStrategy`; by default the
                watermark strategy of the topic, or else "watermark". See `final()`.
            idle_timeout_ms: see `final()`.
            when_all_idle: see `final()`.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: if the arguments do not fit together: a trigger without `on_merge` for sessions, an evictor
                for an aggregation that keeps no elements.
            InvalidOperationError: if the dataframe already has the same window with the same aggregation.

        Example:
            ```python
            sdf.tumbling_window(60_000, grace_ms=5_000).count().trigger(EventTimeTrigger())
            ```
        """
        clock = WindowClock(closing_strategy, idle_timeout_ms, when_all_idle, default="watermark")
        store, template = self._make_triggered()
        return self._add_window(store, with_trigger(template, trigger, closing_strategy, evictor=evictor), clock)

    @abc.abstractmethod
    def _emit(self, final: bool, clock: WindowClock) -> F:
        """Return the frame of the results: of closed windows, or of each record."""

    @abc.abstractmethod
    def _make_triggered(self) -> tuple[str, TriggeredWindow]:
        """Return the name of the store, and the window, if a trigger emits it."""


@refuse_use_as_frame(NOT_EMITTED)
class TimeWindow(_EmittedWindow[F], Generic[F]):
    """A window over event time with its aggregation. Next, say when to emit it."""

    _default_clock = "key"

    def __init__(self, add: AddWindow[F], store: str, operator: TimeWindowOperator) -> None:
        super().__init__(add, store)
        self._operator = operator

    def process(self, function: WindowFunction) -> AssignedWindow[F]:
        """Call a function with the aggregate of a window when it is emitted.

        Args:
            function: as for `TimeWindowDefinition.process`; it gets a list with the aggregate, which is a dict after `agg()`.

        Raises:
            ConfigurationError: as there.
        """
        template = triggered(self._operator, self._operator.aggregation)
        return AssignedWindow(self._add_window, f"{self._store}_process", with_function(template, function))

    def _emit(self, final: bool, clock: WindowClock) -> F:
        if not final:
            _refuse_collectors(self._operator)
        return self._add_window(self._store, replace(self._operator, final=final), clock)

    def _make_triggered(self) -> tuple[str, TriggeredWindow]:
        return f"{self._store}_triggered", triggered(self._operator, self._operator.aggregation)


@refuse_use_as_frame(NOT_EMITTED, dict.fromkeys(("process", "trigger"), NOT_COUNTED), "a count window")
class CountWindow(Generic[F]):
    """A window of a number of records with its aggregation. Next, say when to emit it."""

    def __init__(self, add: AddWindow[F], store: str, operator: WindowOperator) -> None:
        self._add_window = add
        self._store = store
        self._operator = operator

    def final(self) -> F:
        """Emit each window once, when it has all its records.

        The value is as for time windows, with the lowest and the highest event time of the records as start and end.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if the dataframe already has the same window with the same aggregation.
        """
        return self._add_window(self._store, replace(self._operator, final=True))

    def current(self) -> F:
        """Emit, for each record, all windows that it changes, in the order of their starts.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if the dataframe already has the same window with the same aggregation, or the window
                collects values.
        """
        _refuse_collectors(self._operator)
        return self._add_window(self._store, replace(self._operator, final=False))


@refuse_use_as_frame(
    "say when it is emitted, by .trigger(), .final() or .current(), and continue with the returned frame"
)
class AssignedWindow(_EmittedWindow[F], Generic[F]):
    """Windows with what they compute, which may be a window function. Next, say when to emit them."""

    def __init__(self, add: AddWindow[F], store: str, operator: TriggeredWindow) -> None:
        super().__init__(add, store)
        self._operator = operator

    def process(self, function: WindowFunction) -> AssignedWindow[F]:
        """Call a function with the aggregate of a window when it is emitted; see `TimeWindow.process`.

        Raises:
            ConfigurationError: as there, and if there is a function already.
        """
        if self._operator.function is not None:
            raise ArgumentValueError("a window has one process() function: call the other one from it, or by apply()")
        return AssignedWindow(self._add_window, f"{self._store}_process", with_function(self._operator, function))

    def _emit(self, final: bool, clock: WindowClock) -> F:
        trigger = at_end(self._operator) if final else each_record(self._operator)
        verb, strategy = "final" if final else "current", clock.clock
        if not self._operator.by_event_time:
            if strategy not in (None, "watermark") or (clock.idle_timeout_ms, clock.when_all_idle) != (None, None):
                raise ArgumentValueError(
                    f"{verb}(): closing_strategy, idle_timeout_ms and when_all_idle have no effect on windows that end by "
                    "the wall clock; leave them out"
                )
            clock = WindowClock("partition", None, None)
        return self._add_window(self._store, with_trigger(self._operator, trigger, strategy, verb=verb), clock)

    def _make_triggered(self) -> tuple[str, TriggeredWindow]:
        return self._store, self._operator


def _refuse_collectors(operator: WindowOperator) -> None:
    if operator.aggregation.collectors:
        raise InvalidOperationError(
            "current() cannot emit windows that collect values, because each record would read all of them again: use "
            "final(), or an aggregation such as reduce()"
        )
