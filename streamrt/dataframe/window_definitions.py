"""Window definitions, which `sdf.tumbling_window(...)` and the like return: what to compute and when to emit it."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

from streamrt.dataframe.clocks import Clock, WindowClock
from streamrt.dataframe.ranking import make_ranking
from streamrt.dataframe.triggering import at_end, each_record, triggered, with_function, with_trigger
from streamrt.dataframe.unfinished import NOT_EMITTED, AddWindow, refuse_use_as_frame
from streamrt.dataframe.whole_windows import WholeWindow, make_partial_window
from streamrt.errors import ArgumentValueError, InvalidOperationError, argument_error
from streamrt.operators.ranking import RankMethod
from streamrt.topology import WhenAllIdle
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
from streamrt.windows.closing import TimeWindowOperator, WindowOperator
from streamrt.windows.evictors import Evictor
from streamrt.windows.functions import WindowFunction
from streamrt.windows.session import DynamicSessionWindow, SessionWindow
from streamrt.windows.top import RankedRows, TopValues
from streamrt.windows.triggered import TriggeredWindow
from streamrt.windows.triggers import Trigger

__all__ = [
    "AssignedWindow",
    "AssignedWindowDefinition",
    "CountWindow",
    "CountWindowDefinition",
    "TimeWindow",
    "TimeWindowDefinition",
]

_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)

_NOT_DEFINED = "say what it computes, such as .count(), and when it is emitted, by .final() or .current()"

# A dataframe.
F = TypeVar("F")
# The product of a definition: an object with `current()` and `final()`.
W = TypeVar("W")

_NO_WHOLE_COUNT = (
    "the records of different partitions have no common order in which they could be counted; "
    "group_by brings them together"
)

_NOT_COUNTED = (
    "for a function or a trigger of a number of records, use "
    "sdf.global_window().process(function).trigger(PurgingTrigger(CountTrigger(n))), with count() or another aggregation "
    "in place of process()"
)


@refuse_use_as_frame(_NOT_DEFINED)
class _Definition(abc.ABC, Generic[F, W]):
    """The definition of which records are in a window. Next, say what to compute.

    All methods return an object with `current()` and `final()`, which say when to emit the result. Values of None are
    skipped, except by `reduce` and `collect`.
    """

    def __init__(
        self, add: AddWindow[F], store: str, template: WindowOperator | TriggeredWindow, name: str | None
    ) -> None:
        if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
            raise argument_error(
                f"a window cannot be called {name!r}: name=... becomes part of the name of its store, so it must "
                "consist of letters, digits, '_' and '-'",
                of_type=isinstance(name, str),
            )
        self._add_window = add
        self._store = store if name is None else f"{name}_{store}"
        self._template = template

    def sum(self) -> W:
        """Add up the values, starting with the int 0: ints stay exact."""
        return self._make_window(Aggregation.of(Sum()), "sum")

    def count(self) -> W:
        """Count the values."""
        return self._make_window(Aggregation.of(Count()), "count")

    def mean(self) -> W:
        """Compute the sum of the values divided by their number: a float, or None without values."""
        return self._make_window(Aggregation.of(Mean()), "mean")

    def min(self) -> W:
        """Compute the lowest value, or None without values."""
        return self._make_window(Aggregation.of(Min()), "min")

    def max(self) -> W:
        """Compute the highest value, or None without values."""
        return self._make_window(Aggregation.of(Max()), "max")

    def first(self) -> W:
        """Keep the value that arrived first, or None without values."""
        return self._make_window(Aggregation.of(First()), "first")

    def last(self) -> W:
        """Keep the value that arrived last, or None without values."""
        return self._make_window(Aggregation.of(Last()), "last")

    def earliest(self) -> W:
        """Keep the value with the lowest event time, or None without values."""
        return self._make_window(Aggregation.of(Earliest()), "earliest")

    def latest(self) -> W:
        """Keep the value with the highest event time, or None without values."""
        return self._make_window(Aggregation.of(Latest()), "latest")

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        initializer: Callable[[Any], Any],
        merger: Callable[[Any, Any], Any] | None = None,
    ) -> W:
        """Aggregate with functions, which also receive values of None.

        Args:
            reducer: function from the aggregate so far and a value to the new aggregate.
            initializer: function from the first value of a window to the aggregate.
            merger: function from the aggregates of an earlier and a later session that a record has joined to the
                merged aggregate. Session windows need it.

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
        return self._make_window(Aggregation.of(Reduce(reducer, initializer, merger)), "reduce")

    def collect(self) -> W:
        """Collect all values in a list, None included, in the order of event time. Works with `final()` only."""
        return self._make_window(Aggregation.of(Collect()), "collect")

    def agg(self, **aggregations: Aggregator | Collector) -> W:
        """Compute several aggregations.

        Args:
            aggregations: objects of `Sum`, `Count` and the like, or of your subclasses of `Aggregator` or `Collector`,
                by result name.

        Raises:
            InvalidOperationError: if there is no aggregation, a name is `start` or `end`, or an argument is not an
                aggregation.

        Example:
            ```python
            delays = sdf.tumbling_window(3_600_000).agg(mean=Mean("dep_delay"), worst=Max("dep_delay"), n=Count())
            delays.final()  # {"start": ..., "end": ..., "mean": 12.5, "worst": 41, "n": 8}
            ```
        """
        return self._make_window(Aggregation.named(**aggregations), None)

    @abc.abstractmethod
    def _make_window(self, aggregation: Aggregation, suffix: str | None) -> W:
        """Return the window with its aggregation; `suffix` is the end of its store's name."""


class TimeWindowDefinition(_Definition[F, "TimeWindow[F]"], Generic[F]):
    """A window over event time. Next, say what to compute. Each method returns a `TimeWindow`.

    Values of None are skipped, except by `reduce` and `collect`.
    """

    def process(self, function: WindowFunction) -> AssignedWindow[F]:
        """Call a function with all records of a window when it is emitted.

        Args:
            function: an object of a class derived from `ProcessWindowFunction`, or a function of key, context and
                elements. Each result goes on with the key of the records and the start of the window.

        Raises:
            ConfigurationError: if it is none of both, or this kind of window does not go with it.

        Example:
            ```python
            def spread(key, ctx, elements):
                yield max(elements) - min(elements)


            sdf.tumbling_window(60_000).process(spread).final()
            ```
        """
        template = triggered(cast("TimeWindowOperator", self._template), None)
        return AssignedWindow(self._add_window, f"{self._store}_process", with_function(template, function))

    def agg_all(self, **aggregations: Aggregator) -> WholeWindow[F]:
        """Aggregate all records of the stream in each window, whatever their keys are, in two phases.

        Each partition aggregates its own records, and sends one record for each window to one task, which merges them: so
        the work is shared by all tasks, and the result is that of all partitions. Records without a key also count. Only
        for tumbling and hopping windows of event time.

        Args:
            aggregations: objects of `Sum`, `Count` and the like, or of your subclasses of `Aggregator` that have `merge`, by
                result name.

        Raises:
            InvalidOperationError: as for `agg`; if an aggregation cannot be merged from parts: `First` and `Last`,
                `Collect`, `CollectSet`, `CountDistinct`, and classes of yours without `merge`; or if the windows cannot be.

        Example:
            ```python
            highest = bids.tumbling_window(10_000).agg_all(price=Max("price"), bids=Count()).final()
            # {"start": ..., "end": ..., "price": 99, "bids": 1000}, with the key "all"
            ```
        """
        parts = make_partial_window(cast("TimeWindowOperator", self._template), Aggregation.named(**aggregations))
        return WholeWindow(self._add_window, f"{self._store}_all", parts)

    def top(
        self,
        n: int,
        by: str | list[str],
        *,
        descending: bool | list[bool] = True,
        method: RankMethod = "row_number",
        rank: str = "rank",
    ) -> AssignedWindow[F]:
        """Keep the first n values of each window in the order of columns.

        When the window is emitted, each of them goes on with its rank, in the order of ranks. It also has the columns `start`
        and `end` of the window, unless it is the result of another window and has them already. Values of None are skipped.
        The state has only values with a rank, and is deleted with the window.

        Args:
            n: number of values of each window, or highest rank.
            by: the column by which values are ordered, or a list of columns, the first one first. None comes last.
            descending: whether the highest values come first; for several columns, one for all or a list.
            method: how equal values are ranked: "row_number", "rank" or "dense_rank"; see `StreamingDataFrame.top`.
            rank: name of the column of the rank.

        Raises:
            InvalidOperationError: if an argument cannot be used, or this kind of window does not go with it.

        Example:
            ```python
            counts = bids.tumbling_window(60_000).agg(auction=First("auction"), bids=Count()).final()
            counts.group_by("start").tumbling_window(60_000).top(3, by="bids", method="rank").final()
            ```
        """
        ranking = make_ranking(n, by, descending, method, rank)
        return self._make_window(Aggregation.of(TopValues(ranking)), "top").process(RankedRows(ranking))

    def _make_window(self, aggregation: Aggregation, suffix: str | None) -> TimeWindow[F]:
        template = cast("TimeWindowOperator", self._template)
        if isinstance(template, SessionWindow | DynamicSessionWindow) and (names := aggregation.unmergeable()):
            wanted = "reduce() needs a merger" if aggregation.single else f"{', '.join(names)} need a merge(a, b)"
            raise ArgumentValueError(
                f"session_window(): a record may join two sessions, whose states are then merged: {wanted}, a function "
                "of the aggregates of the earlier and of the later session"
            )
        store = self._store if suffix is None else f"{self._store}_{suffix}"
        return TimeWindow(self._add_window, store, replace(template, aggregation=aggregation))


@refuse_use_as_frame(
    _NOT_DEFINED,
    {**dict.fromkeys(("process", "top", "trigger"), _NOT_COUNTED), "agg_all": _NO_WHOLE_COUNT},
    "a count window",
)
class CountWindowDefinition(_Definition[F, "CountWindow[F]"], Generic[F]):
    """A window of a number of records. Next, say what to compute. Each method returns a `CountWindow`.

    Values of None are skipped, except by `reduce` and `collect`.
    """

    def _make_window(self, aggregation: Aggregation, suffix: str | None) -> CountWindow[F]:
        store = self._store if suffix is None else f"{self._store}_{suffix}"
        template = cast("WindowOperator", self._template)
        return CountWindow(self._add_window, store, replace(template, aggregation=aggregation))


class AssignedWindowDefinition(_Definition[F, "AssignedWindow[F]"], Generic[F]):
    """Windows of an assigner, or by the wall clock. Next, say what to compute. Each method returns an `AssignedWindow`.

    Values of None are skipped, except by `reduce` and `collect`.
    """

    def process(self, function: WindowFunction) -> AssignedWindow[F]:
        """Call a function with all records of a window when it is emitted; as for `TimeWindowDefinition`."""
        template = with_function(cast("TriggeredWindow", self._template), function)
        return AssignedWindow(self._add_window, f"{self._store}_process", template)

    def top(
        self,
        n: int,
        by: str | list[str],
        *,
        descending: bool | list[bool] = True,
        method: RankMethod = "row_number",
        rank: str = "rank",
    ) -> AssignedWindow[F]:
        """Keep the first n values of each window in the order of columns; as for `TimeWindowDefinition`."""
        ranking = make_ranking(n, by, descending, method, rank)
        return self._make_window(Aggregation.of(TopValues(ranking)), "top").process(RankedRows(ranking))

    def _make_window(self, aggregation: Aggregation, suffix: str | None) -> AssignedWindow[F]:
        store = self._store if suffix is None else f"{self._store}_{suffix}"
        template = cast("TriggeredWindow", self._template)
        return AssignedWindow(self._add_window, store, replace(template, aggregation=aggregation))


@refuse_use_as_frame(NOT_EMITTED)
class TimeWindow(Generic[F]):
    """A window over event time with its aggregation. Next, say when to emit it."""

    def __init__(self, add: AddWindow[F], store: str, operator: TimeWindowOperator) -> None:
        self._add_window = add
        self._store = store
        self._operator = operator

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
                the last windows of a key wait for its next record. "partition": the highest event time of all records
                that reach the window in the partition. "watermark": event time of the whole stream, which is the lowest
                among the highest event times of all partitions. Idle partitions are left out after a timeout, and while
                all are idle, time advances with the wall clock; so all windows close. A `WatermarkStrategy` is the same
                with other rules. By default the watermark strategy of the topic, or else "key".
            idle_timeout_ms: for "watermark": time without records after which a partition counts as idle, in
                milliseconds or as a timedelta; 10 seconds by default. Not allowed with other strategies.
            when_all_idle: for "watermark": behaviour of event time while all partitions are idle. "advance", the
                default: it advances with the wall clock, so that the last windows close. "hold": it stops, so windows
                wait for the next record, and records that were delayed on their way to Kafka are not late. Not allowed
                with other strategies.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: if the strategy is unknown, or the timeout is not allowed.
            InvalidOperationError: if the dataframe already has the same window with the same aggregation.

        Example:
            ```python
            per_minute = sdf.tumbling_window(60_000).count().final(closing_strategy="watermark", idle_timeout_ms=30_000)
            ```
        """
        return self._add(True, closing_strategy, idle_timeout_ms, when_all_idle)

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
            ConfigurationError: if the strategy is unknown, or the timeout is not allowed.
            InvalidOperationError: if the dataframe already has the same window with the same aggregation, or the window
                collects values.

        Example:
            ```python
            so_far = sdf.tumbling_window(60_000).count().current()
            ```
        """
        _refuse_collectors(self._operator)
        return self._add(False, closing_strategy, idle_timeout_ms, when_all_idle)

    def process(self, function: WindowFunction) -> AssignedWindow[F]:
        """Call a function with the aggregate of a window when it is emitted.

        Args:
            function: as for `TimeWindowDefinition.process`; it gets a list with the aggregate, which is a dict after `agg()`.

        Raises:
            ConfigurationError: as there.
        """
        template = triggered(self._operator, self._operator.aggregation)
        return AssignedWindow(self._add_window, f"{self._store}_process", with_function(template, function))

    def trigger(
        self,
        trigger: Trigger,
        *,
        evictor: Evictor | None = None,
        closing_strategy: Clock | None = None,
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Emit windows when a trigger says so; see `AssignedWindow.trigger`."""
        window: AssignedWindow[F] = AssignedWindow(
            self._add_window, f"{self._store}_triggered", triggered(self._operator, self._operator.aggregation)
        )
        return window.trigger(
            trigger,
            evictor=evictor,
            closing_strategy=closing_strategy,
            idle_timeout_ms=idle_timeout_ms,
            when_all_idle=when_all_idle,
        )

    def _add(
        self,
        final: bool,
        clock: Clock | None,
        idle_timeout_ms: int | timedelta | None,
        when_all_idle: WhenAllIdle | None,
    ) -> F:
        chosen = WindowClock(clock, idle_timeout_ms, when_all_idle)
        return self._add_window(self._store, replace(self._operator, final=final), chosen)


@refuse_use_as_frame(NOT_EMITTED, dict.fromkeys(("process", "trigger"), _NOT_COUNTED), "a count window")
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
class AssignedWindow(Generic[F]):
    """Windows with what they compute, which may be a window function. Next, say when to emit them."""

    def __init__(self, add: AddWindow[F], store: str, operator: TriggeredWindow) -> None:
        self._add_window = add
        self._store = store
        self._operator = operator

    def process(self, function: WindowFunction) -> AssignedWindow[F]:
        """Call a function with the aggregate of a window when it is emitted; see `TimeWindow.process`.

        Raises:
            ConfigurationError: as there, and if there is a function already.
        """
        if self._operator.function is not None:
            raise ArgumentValueError("a window has one process() function: call the other one from it, or by apply()")
        return AssignedWindow(self._add_window, f"{self._store}_process", with_function(self._operator, function))

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
                watermark strategy of the topic, or else "watermark". See `TimeWindow.final`.
            idle_timeout_ms: see `TimeWindow.final`.
            when_all_idle: see `TimeWindow.final`.

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
        operator = with_trigger(self._operator, trigger, closing_strategy, evictor=evictor)
        return self._add_window(self._store, operator, clock)

    def final(
        self,
        closing_strategy: Clock | None = None,
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Emit each window once, when it closes: at its end plus the grace period.

        Args:
            closing_strategy: the clock that closes windows; see `trigger`.
            idle_timeout_ms: see `TimeWindow.final`.
            when_all_idle: see `TimeWindow.final`.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: if the strategy or the timeout is not allowed, or the windows never end.
            InvalidOperationError: if the dataframe already has the same window with the same aggregation.
        """
        return self._add(at_end(self._operator), "final", closing_strategy, idle_timeout_ms, when_all_idle)

    def current(
        self,
        closing_strategy: Clock | None = None,
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Emit, for each record, all its windows. Not for windows that keep their elements.

        Args:
            closing_strategy: the clock that decides which records are late; see `final`.
            idle_timeout_ms: see `final`.
            when_all_idle: see `final`.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: as for `final`, and if the windows keep their elements.
            InvalidOperationError: as for `final`.
        """
        return self._add(each_record(self._operator), "current", closing_strategy, idle_timeout_ms, when_all_idle)

    def _add(
        self,
        trigger: Trigger,
        verb: str,
        strategy: Clock | None,
        idle_timeout_ms: int | timedelta | None,
        when_all_idle: WhenAllIdle | None,
    ) -> F:
        clock = WindowClock(strategy, idle_timeout_ms, when_all_idle, default="watermark")
        if not self._operator.by_event_time:
            if strategy not in (None, "watermark") or idle_timeout_ms is not None or when_all_idle is not None:
                raise ArgumentValueError(
                    f"{verb}(): closing_strategy, idle_timeout_ms and when_all_idle have no effect on windows that end by "
                    "the wall clock; leave them out"
                )
            clock = WindowClock("partition", None, None)
        return self._add_window(self._store, with_trigger(self._operator, trigger, strategy, verb=verb), clock)


def _refuse_collectors(operator: WindowOperator) -> None:
    if operator.aggregation.collectors:
        raise InvalidOperationError(
            "current() cannot emit windows that collect values, because each record would read all of them again: use "
            "final(), or an aggregation such as reduce()"
        )
