"""Duplicates of streams. `drop_duplicates` is a method of `StreamingDataFrame`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, TypeVar, overload

from streamrt.arguments import checked_choice
from streamrt.dataframe.aggregating import as_table
from streamrt.dataframe.branch import Frame
from streamrt.dataframe.clocks import Clock, stream_clock
from streamrt.dataframe.grouping import column_list, group_by_columns
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.operators.closing import Closing
from streamrt.operators.drop_duplicates import DropDuplicates
from streamrt.operators.functions import require_name
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics.durations import milliseconds

__all__ = ["drop_duplicates"]

F = TypeVar("F", bound=Frame)

_METHOD = "drop_duplicates"


@overload
def drop_duplicates(
    self: F,
    on: str | list[str] | None = None,
    keep: Literal["first"] = "first",
    *,
    within: int | timedelta | None = None,
    grace_ms: int | timedelta | None = None,
    closing_strategy: Clock | None = None,
    name: str | None = None,
) -> F: ...


@overload
def drop_duplicates(
    self: F, on: str | list[str] | None = None, *, keep: Literal["last"], name: str | None = None
) -> StreamingTable[F]: ...


def drop_duplicates(
    self: F,
    on: str | list[str] | None = None,
    keep: Literal["first", "last"] = "first",
    *,
    within: int | timedelta | None = None,
    grace_ms: int | timedelta | None = None,
    closing_strategy: Clock | None = None,
    name: str | None = None,
) -> F | StreamingTable[F]:
    """Keep one of the records with equal values in some columns: the first one, or the last one.

    A frame that is not grouped by these columns goes through an internal topic, as with `group_by`; the columns become the
    key. "First" and "last" are by arrival in the partition, not by timestamp.

    `keep="first"` passes on the first record as it is. With `within`, a record is dropped if it is at most so much later than
    the one that was passed on: after that, the next one passes. So of two records that pass, one is later by more than
    `within`. A record that is more than `grace_ms` behind the clock is late: it is dropped, counted, and passed to the
    side output "late". State is bounded by both together. Without `within`, **every key is kept for ever**, and all
    further records are dropped. Records without a key pass.

    `keep="last"` is a table with the last record of each key: see `as_table`. Each record changes it.

    Args:
        on: name of a column, or a list of names; by default the key of the records, without an internal topic.
        keep: "first" or "last".
        within: a duration in event time, in milliseconds or as a timedelta; only for "first".
        grace_ms: how far a record may be behind the clock, in milliseconds or as a timedelta; by default as long as
            `within`.
        closing_strategy: the clock that `within` is measured with: "watermark", "partition" or a `WatermarkStrategy`, as for
            `join`. By default "watermark", with the strategy of the topics.
        name: part of the name of the store and of the internal topic; required for a second one of the same frame.

    Returns:
        A new frame; with `keep="last"`, a table.

    Raises:
        InvalidOperationError: if an argument cannot be used, or the frame has another `drop_duplicates` with the same store.

    Example:
        ```python
        orders = orders.drop_duplicates("order_id", within=timedelta(days=1))
        positions.drop_duplicates("vehicle", keep="last").to_table("fleet.present")
        ```
    """
    checked_choice(f"{_METHOD}(keep=...)", keep, ("first", "last"), "'first' or 'last'")
    require_name(_METHOD, name)
    duration = None if within is None else milliseconds(f"{_METHOD}(within=...)", within, least=1)
    grace = duration or 0 if grace_ms is None else milliseconds(f"{_METHOD}(grace_ms=...)", grace_ms)
    for argument, value in (("within", within), ("grace_ms", grace_ms), ("closing_strategy", closing_strategy)):
        if value is not None and (keep == "last" or within is None):
            raise ArgumentValueError(
                f"{_METHOD}({argument}=...) has no effect with keep='last', which is a table with a row for each key"
                if keep == "last"
                else f"{_METHOD}({argument}=...) has no effect without within=...: keys are kept for ever"
            )
    branch = self._branch
    if on is not None:
        columns = column_list(f"{_METHOD}(on=...)", _listed(on))
        branch = group_by_columns(_METHOD, branch, columns, name)
    if keep == "last":
        return as_table(self._with(branch), _METHOD if name is None else f"{_METHOD}_{name}")
    closing = Closing("partition") if within is None else stream_clock(branch, closing_strategy)
    own = branch.own_store(
        _METHOD if name is None else f"{_METHOD}_{name}", f"{_METHOD}()", f"{_METHOD}(..., name='...')"
    )
    return self._with(branch.add(DropDuplicates(branch.store(own, TimedTransaction), duration, grace, closing)))


def _listed(on: Any) -> list[Any] | tuple[Any, ...]:
    if isinstance(on, str):
        return [on]
    if not isinstance(on, list | tuple):
        raise ArgumentTypeError(
            f"{_METHOD}(on=...) takes the name of a column or a list of names, got {type(on).__name__}"
        )
    return on
