"""What dataframe windows compute, and when they are emitted: what `sdf.tumbling_window(...)` and the like return."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar, cast, get_args

from streamrt.errors import ArgumentValueError, InvalidOperationError, UnfinishedWindowError, argument_error
from streamrt.operators.durations import milliseconds
from streamrt.topology import WatermarkStrategy, WhenAllIdle
from streamrt.windows import (
    Aggregator,
    Collect,
    Collector,
    Count,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Reduce,
    Sum,
)
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.closing import Closing, ClosingStrategy, TimeWindowOperator, WindowOperator
from streamrt.windows.session import SessionWindow

if TYPE_CHECKING:
    from streamrt.dataframe.windows import WindowedFrame

__all__ = ["CountWindow", "CountWindowDefinition", "TimeWindow", "TimeWindowDefinition"]

_IDLE_TIMEOUT_MS = 10_000
_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)

F = TypeVar("F", bound="WindowedFrame")
# What a definition makes: an object with `current()` and `final()`.
W = TypeVar("W")


class _Unfinished:
    """What is no dataframe yet, and says so to those who take it for one."""

    _missing: ClassVar[str]
    """What must be called first."""

    if not TYPE_CHECKING:  # or type checkers would take any attribute for one

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise UnfinishedWindowError(f"a window has no {name} yet: {self._missing}")

        def __getitem__(self, item: Any) -> NoReturn:
            raise UnfinishedWindowError(f"a window has no columns yet: {self._missing}")

        def __setitem__(self, item: Any, value: Any) -> NoReturn:
            self[item]


class _Definition(_Unfinished, Generic[F, W]):
    """Which records are in a window. Say what is to be computed of them.

    All methods return an object with `current()` and `final()`, which say when it is emitted. Values of None are skipped,
    except by `reduce` and `collect`.
    """

    _missing = "say what it computes, such as .count(), and when it is emitted, by .final() or .current()"

    def __init__(self, frame: F, store: str, template: WindowOperator, name: str | None) -> None:
        if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
            raise argument_error(
                f"a window cannot be called {name!r}: name=... becomes a part of the name of its store, so it is made of "
                "letters, digits, '_' and '-'",
                of_type=isinstance(name, str),
            )
        self._frame = frame
        self._store = store if name is None else f"{name}_{store}"
        self._template = template

    def sum(self) -> W:
        """Add up the values, beginning with the int 0: ints stay exact."""
        return self._window(Aggregation.of(Sum()), "sum")

    def count(self) -> W:
        """Count the values."""
        return self._window(Aggregation.of(Count()), "count")

    def mean(self) -> W:
        """Return the sum of the values divided by their number: a float, or None where there are none."""
        return self._window(Aggregation.of(Mean()), "mean")

    def min(self) -> W:
        """Return the lowest value, or None where there are none."""
        return self._window(Aggregation.of(Min()), "min")

    def max(self) -> W:
        """Return the highest value, or None where there are none."""
        return self._window(Aggregation.of(Max()), "max")

    def first(self) -> W:
        """Return the value that arrived first, or None where there are none."""
        return self._window(Aggregation.of(First()), "first")

    def last(self) -> W:
        """Return the value that arrived last, or None where there are none."""
        return self._window(Aggregation.of(Last()), "last")

    def earliest(self) -> W:
        """Return the value with the lowest event time, or None where there are none."""
        return self._window(Aggregation.of(Earliest()), "earliest")

    def latest(self) -> W:
        """Return the value with the highest event time, or None where there are none."""
        return self._window(Aggregation.of(Latest()), "latest")

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        initializer: Callable[[Any], Any],
        merger: Callable[[Any, Any], Any] | None = None,
    ) -> W:
        """Aggregate by functions, which are given None, too.

        Args:
            reducer: takes the aggregate so far and a value, and returns the new aggregate.
            initializer: takes the first value of a window and returns the aggregate.
            merger: takes the aggregates of an earlier and of a later session that a record has joined, and returns that of
                both. Session windows need it.

        Raises:
            InvalidOperationError: if one of them is not callable.

        Example:
            ```python
            def start(value):
                return {"low": value, "high": value}


            def add(old, value):
                return {"low": min(old["low"], value), "high": max(old["high"], value)}


            ranges = sdf.tumbling_window(60_000).reduce(add, start).final()
            ```
        """
        return self._window(Aggregation.of(Reduce(reducer, initializer, merger)), "reduce")

    def collect(self) -> W:
        """Return all values as a list, None included, in the order of event time. It works with `final()` only."""
        return self._window(Aggregation.of(Collect()), "collect")

    def agg(self, **aggregations: Aggregator | Collector) -> W:
        """Compute several things at once.

        Args:
            aggregations: objects of `Sum`, `Count` and the like, or of classes of your own that derive from `Aggregator` or
                `Collector`, by the names of their results.

        Raises:
            InvalidOperationError: if there is none, one is called `start` or `end`, or is something else.

        Example:
            ```python
            delays = sdf.tumbling_window(3_600_000).agg(mean=Mean("dep_delay"), worst=Max("dep_delay"), n=Count())
            delays.final()  # {"start": ..., "end": ..., "mean": 12.5, "worst": 41, "n": 8}
            ```
        """
        return self._window(Aggregation.named(**aggregations), None)

    def _window(self, aggregation: Aggregation, suffix: str | None) -> W:
        raise TypeError("a definition of windows makes windows of its own kind")


class TimeWindowDefinition(_Definition[F, "TimeWindow[F]"], Generic[F]):
    """A window over event time: say what is to be computed. Each method returns a `TimeWindow`.

    Values of None are skipped, except by `reduce` and `collect`.
    """

    def _window(self, aggregation: Aggregation, suffix: str | None) -> TimeWindow[F]:
        template = cast("TimeWindowOperator", self._template)
        if isinstance(template, SessionWindow) and (names := aggregation.unmergeable()):
            wanted = "reduce() needs a merger" if aggregation.single else f"{', '.join(names)} need a merge(a, b)"
            raise ArgumentValueError(
                f"session_window(): a record may join two sessions, so their states are merged: {wanted}, a function that "
                "takes the aggregates of the earlier and of the later session"
            )
        store = self._store if suffix is None else f"{self._store}_{suffix}"
        return TimeWindow(self._frame, store, replace(template, aggregation=aggregation))


class CountWindowDefinition(_Definition[F, "CountWindow[F]"], Generic[F]):
    """A window of so many records: say what is to be computed. Each method returns a `CountWindow`.

    Values of None are skipped, except by `reduce` and `collect`.
    """

    def _window(self, aggregation: Aggregation, suffix: str | None) -> CountWindow[F]:
        store = self._store if suffix is None else f"{self._store}_{suffix}"
        return CountWindow(self._frame, store, replace(self._template, aggregation=aggregation))


class TimeWindow(_Unfinished, Generic[F]):
    """A window over event time with its aggregation: say when it is emitted."""

    _missing = "say when it is emitted, by .final() or .current(), and go on with the frame that this returns"

    def __init__(self, frame: F, store: str, operator: TimeWindowOperator) -> None:
        self._frame = frame
        self._store = store
        self._operator = operator

    def final(
        self,
        closing_strategy: ClosingStrategy = "key",
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Emit each window once, when it closes.

        The value is `{"start": ..., "end": ..., "value": ...}`, for `agg()` `{"start": ..., "end": ..., <name>: ...}`,
        with the record's key, the start of the window as timestamp, and no headers. A window closes when the clock reaches
        its end plus the grace; windows of a key that close together come in the order of their starts.

        Args:
            closing_strategy: which clock closes windows. "key": the highest event time among the key's own records, so the
                last windows of a key wait for its next record. "partition": the highest event time of all records that
                reach the window in the partition. "watermark": event time of the whole stream: the lowest among the
                highest event times of all partitions, where partitions without records are left out after a while, and
                time runs on by the wall clock when nothing comes at all; so all windows close.
            idle_timeout_ms: with "watermark", after how much time without records a partition is left out, in milliseconds
                or as a timedelta; 10 seconds by default. Other strategies do not take it.
            when_all_idle: with "watermark", what event time does while all partitions are idle. "advance", the default, lets
                it run on with the wall clock, so that the last windows close. "hold" keeps it: windows wait for the next
                record, and records that were held up before they came to Kafka are not late. Other strategies do not take it.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: if there is no such strategy, or the timeout is not allowed.
            InvalidOperationError: if the dataframe has the same window with the same aggregation already.

        Example:
            ```python
            per_minute = sdf.tumbling_window(60_000).count().final(closing_strategy="watermark", idle_timeout_ms=30_000)
            ```
        """
        return self._add(True, closing_strategy, idle_timeout_ms, when_all_idle)

    def current(
        self,
        closing_strategy: ClosingStrategy = "key",
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Emit each window that a record changes, with each record, in the order of starts.

        Values are those of `final()`. Windows that close are not emitted again.

        Args:
            closing_strategy: which clock decides what is too late; see `final()`.
            idle_timeout_ms: see `final()`.
            when_all_idle: see `final()`.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: if there is no such strategy, or the timeout is not allowed.
            InvalidOperationError: if the dataframe has the same window with the same aggregation already, or the window
                collects values.

        Example:
            ```python
            so_far = sdf.tumbling_window(60_000).count().current()
            ```
        """
        _refuse_collectors(self._operator)
        return self._add(False, closing_strategy, idle_timeout_ms, when_all_idle)

    def _add(
        self,
        final: bool,
        strategy: ClosingStrategy,
        idle_timeout_ms: int | timedelta | None,
        when_all_idle: WhenAllIdle | None,
    ) -> F:
        closing = Closing(strategy, _watermark(strategy, idle_timeout_ms, when_all_idle))
        return self._frame._windowed(self._store, replace(self._operator, final=final, closing=closing))


class CountWindow(_Unfinished, Generic[F]):
    """A window of so many records with its aggregation: say when it is emitted."""

    _missing = "say when it is emitted, by .final() or .current(), and go on with the frame that this returns"

    def __init__(self, frame: F, store: str, operator: WindowOperator) -> None:
        self._frame = frame
        self._store = store
        self._operator = operator

    def final(self) -> F:
        """Emit each window once, when it has all its records.

        The value is as that of time windows, with the lowest and the highest event time of the records as start and end.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if the dataframe has the same window with the same aggregation already.
        """
        return self._frame._windowed(self._store, replace(self._operator, final=True))

    def current(self) -> F:
        """Emit each window that a record changes, with each record; the one that began first comes first.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if the dataframe has the same window with the same aggregation already, or the window
                collects values.
        """
        _refuse_collectors(self._operator)
        return self._frame._windowed(self._store, replace(self._operator, final=False))


def _watermark(
    strategy: ClosingStrategy, idle_timeout_ms: int | timedelta | None, when_all_idle: WhenAllIdle | None
) -> WatermarkStrategy | None:
    """Return how the watermark is made, if the strategy has one."""
    if strategy != "watermark":
        for name, given in (("idle_timeout_ms", idle_timeout_ms), ("when_all_idle", when_all_idle)):
            if given is not None:
                raise ArgumentValueError(
                    f"{name}={given!r} has no meaning with closing_strategy={strategy!r}: only "
                    "closing_strategy='watermark' waits for partitions"
                )
        return None
    if when_all_idle not in (None, *get_args(WhenAllIdle)):
        raise argument_error(
            f"when_all_idle={when_all_idle!r}: it is 'advance' (event time runs on with the wall clock) or 'hold' (it waits "
            "for the next record)",
            of_type=isinstance(when_all_idle, str),
        )
    given = _IDLE_TIMEOUT_MS if idle_timeout_ms is None else idle_timeout_ms
    idle = milliseconds("idle_timeout_ms=...", given, least=1)
    return WatermarkStrategy(idle, when_all_idle or "advance")


def _refuse_collectors(operator: WindowOperator) -> None:
    if operator.aggregation.collectors:
        raise InvalidOperationError(
            "current() cannot emit windows that collect values, all of which would be read again for each record: use "
            "final(), or an aggregation such as reduce()"
        )
