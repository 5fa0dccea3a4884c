"""Aggregates of the records before each record. `over` is a method of `StreamingDataFrame`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

from streamrt.arguments import checked, checked_choice
from streamrt.dataframe.branch import Branch, Frame
from streamrt.dataframe.clocks import Clock, lag_ms, stream_clock
from streamrt.dataframe.table_over import read_functions
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.operators.closing import Closing
from streamrt.operators.functions import require_name
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics.durations import milliseconds
from streamrt.windows import Aggregator, Collector
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.frames import UP_TO_PEERS
from streamrt.windows.frames import Frame as RowFrame
from streamrt.windows.over import OverRange, OverRows, OverRunning
from streamrt.windows.over_functions import OverColumn, OverFunction
from streamrt.windows.over_time import OverTime
from streamrt.windows.running import is_up_to_row

__all__ = ["Over", "OverOrder", "add_time_over", "over"]

F = TypeVar("F", bound=Frame)

OverOrder = Literal["arrival", "time"]
"""The order of records: that of their arrival in the partition, or that of their timestamps."""


@dataclass(frozen=True)
class Over(Generic[F]):
    """Which records `over` aggregates. Next, say what to compute, by `agg`."""

    _frame: F
    _rows: int | None
    _range_ms: int | None
    _order: OverOrder
    _grace_ms: int | None
    _clock: Clock | None
    _name: str | None

    def agg(self, **functions: Aggregator | Collector | OverFunction) -> F:
        """Add results to each record, as columns.

        Args:
            functions: by column, objects of `Sum`, `Mean` and the like; with order="time", or of all records, also of
                `RowNumber`, `Rank`, `DenseRank`, `Lag`, `FirstValue`, `LastValue` and `NthValue`. A column that the value
                has is replaced.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if there is no function, an argument is not one, or the frame has another `over` with the
                same store.

        Example:
            ```python
            sold.group_by("seller").over(rows=10).agg(average=Mean("price"))
            ```
        """
        branch, name = self._frame._branch, "over" if self._name is None else f"over_{self._name}"
        if self._order == "time":
            columns, closing = self._columns(functions), stream_clock(branch, self._clock)
            if self._grace_ms is None and self._range_ms is None and lag_ms(closing.watermark) == 0:
                raise ArgumentValueError(
                    "over(order='time') needs grace_ms=..., how far a record may be behind the clock, or a "
                    "watermark that leaves time, WatermarkStrategy(out_of_orderness=...): otherwise every record that is "
                    "out of order would be late"
                )
            return self._frame._with(add_time_over(branch, columns, self._grace, closing, name))
        store = branch.store(_own_store(branch, name), TimedTransaction)
        if self._range_ms is None and self._rows is None:
            return self._frame._with(branch.add(OverRunning(store, self._columns(functions))))
        for column, item in functions.items():
            if isinstance(item, OverFunction):
                raise ArgumentTypeError(
                    f"agg({column}={item!r}) needs all records, over() without rows=... and range=..., or order='time'"
                )
        aggregation = Aggregation.named(**functions)
        if self._rows is not None:
            return self._frame._with(branch.add(OverRows(store, aggregation, self._rows)))
        closing = stream_clock(branch, self._clock)
        return self._frame._with(branch.add(OverRange(store, aggregation, self._range_ms or 0, self._grace, closing)))

    @property
    def _grace(self) -> int:
        return (self._range_ms or 0) if self._grace_ms is None else self._grace_ms

    def _columns(self, functions: dict[str, Any]) -> tuple[OverColumn, ...]:
        frame = RowFrame("rows", None, 0)
        if self._rows is not None:
            frame = RowFrame("rows", 1 - self._rows, 0)
        elif self._range_ms is not None:
            frame = RowFrame("range", -self._range_ms, 0)
        elif self._order == "time":
            frame = UP_TO_PEERS
        columns = tuple(OverColumn(*each, frame) for each in read_functions(functions, timed=True))
        for column in columns:
            if not is_up_to_row(column):
                raise ArgumentValueError(
                    f"agg({column.name}={column.function!r}) needs more than a state of the records so far: give rows=... "
                    "or range=..., or use a table, whose rows may change: to_rows()"
                )
        return columns


def add_time_over(
    branch: Branch,
    columns: tuple[OverColumn, ...],
    grace_ms: int,
    closing: Closing,
    name: str,
    time: str | None = None,
) -> Branch:
    """Add columns to the records of each key in the order of time, and return the position of the results.

    Args:
        branch: position of the records.
        columns: the columns.
        grace_ms: how far a record may be behind the clock, in milliseconds.
        closing: the clock.
        name: name of the store.
        time: the column that has the time more exactly than the timestamp.
    """
    store = branch.store(_own_store(branch, name), TimedTransaction)
    return branch.add(OverTime(store, columns, grace_ms, closing, time))


def over(
    self: F,
    rows: int | None = None,
    range: int | timedelta | None = None,  # noqa: A002
    *,
    order: OverOrder = "arrival",
    grace_ms: int | timedelta | None = None,
    closing_strategy: Clock | None = None,
    name: str | None = None,
) -> Over[F]:
    """Add aggregates of the records of its key before it, and of itself, to each record.

    These are all records of the key so far, or

    - `rows`: the last so many records of the key, with the record itself;
    - `range`: those whose time is at most so much before that of the record, and not after it.

    With `order="arrival"`, each record is passed on at once, with what has arrived before it. With `order="time"`, records
    wait until no earlier one can come: results then depend on the records only, as those of SQL's `OVER (ORDER BY time)`.
    There, records with equal times are in each other's results, as in SQL's RANGE, except for `rows`, numbers of rows and
    `Lag`: for these, they keep the order of their arrival.

    State holds one state for each key, for ever, or `rows` records; or the records of `range`, and of the grace period.
    With `order="time"`, it also holds the records that wait. Records without a key are left out. A record that is more than
    `grace_ms` behind the clock is late, except by arrival without `range`: it is dropped and counted.

    With `rows` and `range`, each record reads the records that it aggregates: for thousands of them, use a window.

    Args:
        rows: number of records, at least 1.
        range: a duration, in milliseconds or as a timedelta.
        order: "arrival" or "time".
        grace_ms: how far a record may be behind the clock, in milliseconds or as a timedelta. By default as long as
            `range`; without it, by time, 0 if the watermark leaves time for records that are out of order, and else
            required.
        closing_strategy: the clock: "watermark", "partition" or a `WatermarkStrategy`, as for `join`. By default
            "watermark", with the strategy of the topics.
        name: part of the name of the store; required for a second `over` of the same frame.

    Returns:
        What is aggregated: next, say what to compute, by `agg`.

    Raises:
        InvalidOperationError: if an argument cannot be used.

    Example:
        ```python
        sold = sold.group_by("seller").over(rows=10).agg(average=Mean("price"))
        recent = clicks.over(range=timedelta(minutes=5), order="time").agg(clicks=Count())
        running = sold.over(name="all").agg(total=Sum("price"), number=RowNumber(), former=Lag("price"))
        ```
    """
    checked_choice("over(order=...)", order, ("arrival", "time"), "'arrival' or 'time'")
    require_name("over", name)
    if rows is not None and range is not None:
        raise ArgumentValueError("over() takes one of rows=..., a number of records, and range=..., a time, or neither")
    if rows is not None:
        checked("over(rows=...)", rows, int, "a number of records, at least 1", lambda count: count >= 1)
    if range is None:
        for argument, value in (("grace_ms", grace_ms), ("closing_strategy", closing_strategy)):
            if value is not None and order == "arrival":
                raise ArgumentValueError(
                    f"over({argument}=...) has no effect on records in the order of arrival, of which none is late: leave it "
                    "out, or set order='time'"
                )
    span = None if range is None else milliseconds("over(range=...)", range)
    grace = None if grace_ms is None else milliseconds("over(grace_ms=...)", grace_ms)
    return Over(self, rows, span, order, grace, closing_strategy, name)


def _own_store(branch: Branch, name: str) -> str:
    return branch.own_store(name, "over()", "over(..., name='...')")
