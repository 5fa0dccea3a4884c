"""Aggregates of the records before each record. `over` is a method of `StreamingDataFrame`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Literal, TypeVar

from streamrt.arguments import checked, checked_choice
from streamrt.dataframe.branch import Branch, Frame
from streamrt.dataframe.clocks import Clock, lag_ms, stream_clock
from streamrt.errors import ArgumentValueError
from streamrt.operators.closing import Closing
from streamrt.operators.functions import require_name
from streamrt.operators.in_order import InOrder
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics.durations import milliseconds
from streamrt.windows import Aggregator, Collector
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.over import OverRange, OverRows

__all__ = ["Over", "OverOrder", "over"]

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

    def agg(self, **aggregations: Aggregator | Collector) -> F:
        """Add aggregates to each record, as columns.

        Args:
            aggregations: objects of `Sum`, `Mean` and the like, by column. A column that the value has is replaced.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if there is no aggregation, an argument is not one, or the frame has another `over` with
                the same store.

        Example:
            ```python
            sold.group_by("seller").over(rows=10).agg(average=Mean("price"))
            ```
        """
        aggregation = Aggregation.named(**aggregations)
        branch, name = self._frame._branch, "over" if self._name is None else f"over_{self._name}"
        grace = (self._range_ms or 0) if self._grace_ms is None else self._grace_ms
        if self._order == "time":
            closing = stream_clock(branch, self._clock)
            if self._grace_ms is None and self._rows is not None and lag_ms(closing.watermark) == 0:
                raise ArgumentValueError(
                    "over(rows=..., order='time') needs grace_ms=..., how far a record may be behind the clock, or a "
                    "watermark that leaves time, WatermarkStrategy(out_of_orderness=...): otherwise every record that is "
                    "out of order would be late"
                )
            store = branch.store(_own_store(branch, f"{name}_order"), TimedTransaction)
            branch = branch.add(InOrder(store, grace, closing))
        store = branch.store(_own_store(branch, name), TimedTransaction)
        if self._rows is not None:
            return self._frame._with(branch.add(OverRows(store, aggregation, self._rows)))
        span = self._range_ms or 0
        if self._order == "time":
            # Records come in order, so none is late, and none is needed for later ones.
            return self._frame._with(
                branch.add(OverRange(store, aggregation, span, 0, Closing("partition"), ordered=True))
            )
        closing = stream_clock(branch, self._clock)
        return self._frame._with(branch.add(OverRange(store, aggregation, span, grace, closing)))


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

    Give one of

    - `rows`: the last so many records of the key, with the record itself;
    - `range`: those whose time is at most so much before that of the record, and not after it.

    With `order="arrival"`, each record is passed on at once, with what has arrived before it. With `order="time"`, records
    wait until no earlier one can come: results then depend on the records only, as those of SQL's `OVER (ORDER BY time)`.
    Records of a key with equal times keep the order of their arrival.

    State holds `rows` records for each key, for ever; or the records of `range`, and of the grace period. With
    `order="time"`, it also holds the records that wait. Records without a key are left out. A record that is more than
    `grace_ms` behind the clock is late, except for `rows` by arrival: it is dropped and counted.

    Each record reads the records that it aggregates: for thousands of them, use a window.

    Args:
        rows: number of records, at least 1.
        range: a duration, in milliseconds or as a timedelta.
        order: "arrival" or "time".
        grace_ms: how far a record may be behind the clock, in milliseconds or as a timedelta. By default as long as
            `range`; for `rows` by time, 0 if the watermark leaves time for records that are out of order, and else
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
        ```
    """
    checked_choice("over(order=...)", order, ("arrival", "time"), "'arrival' or 'time'")
    require_name("over", name)
    if (rows is None) is (range is None):
        raise ArgumentValueError("over() takes one of rows=..., a number of records, and range=..., a time")
    if rows is not None:
        checked("over(rows=...)", rows, int, "a number of records, at least 1", lambda count: count >= 1)
        for argument, value in (("grace_ms", grace_ms), ("closing_strategy", closing_strategy)):
            if value is not None and order == "arrival":
                raise ArgumentValueError(
                    f"over({argument}=...) has no effect on rows in the order of arrival, of which none is late: leave it "
                    "out, or set order='time'"
                )
    span = None if range is None else milliseconds("over(range=...)", range)
    grace = None if grace_ms is None else milliseconds("over(grace_ms=...)", grace_ms)
    return Over(self, rows, span, order, grace, closing_strategy, name)


def _own_store(branch: Branch, name: str) -> str:
    return branch.own_store(name, "over()", "over(..., name='...')")
