"""Window definitions, which `sdf.tumbling_window(...)` and the like return: what to compute."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from streamrt.dataframe.aggregated_windows import NOT_COUNTED, AssignedWindow, CountWindow, TimeWindow
from streamrt.dataframe.ranking import make_ranking
from streamrt.dataframe.triggering import triggered, with_function
from streamrt.dataframe.unfinished import AddWindow, refuse_use_as_frame
from streamrt.dataframe.whole_windows import WholeWindow, make_partial_window
from streamrt.errors import ArgumentValueError, argument_error
from streamrt.operators.ranking import RankMethod
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
from streamrt.windows.functions import WindowFunction
from streamrt.windows.session import DynamicSessionWindow, SessionWindow
from streamrt.windows.top import RankedRows, TopValues
from streamrt.windows.triggered import TriggeredWindow

__all__ = ["AssignedWindowDefinition", "CountWindowDefinition", "TimeWindowDefinition"]

_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)

_NOT_DEFINED = "say what it computes, such as .count(), and when it is emitted, by .final() or .current()"

# A dataframe.
F = TypeVar("F")
# The product of a definition: an object with `current()` and `final()`.
W = TypeVar("W")
T = TypeVar("T", bound="TimeWindow[Any] | AssignedWindow[Any]")

_NO_WHOLE_COUNT = (
    "the records of different partitions have no common order in which they could be counted; "
    "group_by brings them together"
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


class _TimedDefinition(_Definition[F, T], Generic[F, T]):
    """The definition of windows over time, whose results a function can get."""

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


class TimeWindowDefinition(_TimedDefinition[F, "TimeWindow[F]"], Generic[F]):
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
    {**dict.fromkeys(("process", "top", "trigger"), NOT_COUNTED), "agg_all": _NO_WHOLE_COUNT},
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


class AssignedWindowDefinition(_TimedDefinition[F, "AssignedWindow[F]"], Generic[F]):
    """Windows of an assigner, or by the wall clock. Next, say what to compute. Each method returns an `AssignedWindow`.

    Values of None are skipped, except by `reduce` and `collect`.
    """

    def process(self, function: WindowFunction) -> AssignedWindow[F]:
        """Call a function with all records of a window when it is emitted; as for `TimeWindowDefinition`."""
        template = with_function(cast("TriggeredWindow", self._template), function)
        return AssignedWindow(self._add_window, f"{self._store}_process", template)

    def _make_window(self, aggregation: Aggregation, suffix: str | None) -> AssignedWindow[F]:
        store = self._store if suffix is None else f"{self._store}_{suffix}"
        template = cast("TriggeredWindow", self._template)
        return AssignedWindow(self._add_window, store, replace(template, aggregation=aggregation))
