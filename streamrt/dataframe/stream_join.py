"""Joins of two streams by columns. The public function is a method of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, get_args

from streamrt.arguments import type_name
from streamrt.dataframe.branch import Frame
from streamrt.dataframe.clocks import Clock, stream_clock
from streamrt.dataframe.grouping import bring_together, column_list
from streamrt.dataframe.joining import join_store, require_frame, require_one_of
from streamrt.dataframe.stream_table_join import join_table
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.joins import IntervalHow, OnMerge
from streamrt.joins.merging import merge_of
from streamrt.joins.sides import Sides
from streamrt.joins.stream import StreamJoin
from streamrt.joins.windowed import PairsOfWindow, TagSides
from streamrt.operators import Apply
from streamrt.operators.functions import require_name
from streamrt.state.spec import StoreSpec
from streamrt.topics.durations import milliseconds
from streamrt.windows import (
    Collect,
    EventTimeSessions,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.fixed import FixedWindow
from streamrt.windows.session import DynamicSessionWindow, SessionWindow

__all__ = ["JoinColumns", "join"]

F = TypeVar("F", bound=Frame)

JoinColumns = str | Sequence[str] | tuple[str | Sequence[str], str | Sequence[str]]
"""The columns of a join: a name, a list of names, or a pair of those of the left side and of those of the right one."""

_METHOD = "join"
_RECORDS = Aggregation.named(records=Collect())


def join(
    self: F,
    right: Frame | StreamingTable[Any],
    on: JoinColumns | Callable[[Any], Any] | None = None,
    how: IntervalHow = "inner",
    *,
    within: int | timedelta | tuple[int | timedelta, int | timedelta] | None = None,
    retention: int | timedelta | None = None,
    window: WindowAssigner | None = None,
    grace_ms: int | timedelta | None = None,
    on_merge: OnMerge = "raise",
    closing_strategy: Clock | None = None,
    name: str | None = None,
) -> F:
    """Merge each record with records of another stream that have equal values in some columns, or with a row of a table.

    **A table**: each record is merged with the present row that has the record's key, or the key that the column or the
    columns `on` name. Then records go through an internal topic to where the row is. Changes of the table produce no
    output. `how` is "inner" or "left"; the result has the key of the row, and timestamp and headers of the record.

    **A stream**: each record is merged with all records that have equal values in the columns and a time near by.

    Frames that are not grouped by these columns go through an internal topic, as with `group_by`; both need equal
    numbers of partitions. A pair is passed on once, by the second of its records to arrive, with the columns as key, the
    later timestamp of both, and without headers. Records with None in one of the columns, or with no key, match nothing.

    Which records are a pair depends only on the records. Give one of

    - `within`: the times of both differ at most by this;
    - `retention`: the same, for streams whose times have no relation: the time for which a match is waited for;
    - `window`: both are in the same window. Pairs are passed on when the window closes, with its `start` and `end` as
      columns, and with its start as timestamp.

    A record that is more than `grace_ms` behind the clock is late: it is dropped, counted, and passed to the side output
    "late". Records are kept until no record can match them that is not late; state is bounded by the time between.

    A record without a match is passed on by itself if `how` says so, once, when no match can come any more: when the
    clock has passed its time, the time that a match may be after it, and the grace period; or at the end of a bounded
    run.

    Args:
        right: the table, or the other dataframe, of the same application. It may be a branch of the same topic, or this
            dataframe: then each record also matches itself.
        on: name of the column that must be equal; a list of names; a pair of the column or columns of this frame and
            those of the other one, such as `("id", "seller")`. By default the keys of the records, without an internal
            topic.
        how: records that are passed on without a match: "inner" none, "left" and "right" those of one side, "outer" all.
        within: a duration, in milliseconds or as a timedelta; or a pair of how long before a left record its match may
            be, and how long after it.
        retention: a duration, in milliseconds or as a timedelta.
        window: windows of event time, such as `TumblingEventTimeWindows(timedelta(seconds=10))`.
        grace_ms: how far a record may be behind the clock, in milliseconds or as a timedelta. By default as long as the
            longer part of `within`, or as `retention`; with `window`, how long windows stay open after their end, by
            default 0.
        on_merge: rule that merges two values. "raise" fails if both have a column, except those of `on` that have the
            same name; "keep-left" and "keep-right" choose one side; None counts as a value without columns. Or a function
            of left and right value; a missing value is None, and the function may change the values.
        closing_strategy: the clock: "watermark", event time of the whole stream, which waits for the slowest partition;
            "partition", the highest timestamp in the partition; or a `WatermarkStrategy`. By default "watermark", with
            the strategy of the topics.
        name: name of the store, and part of the names of internal topics; required if the same topics are joined again.

    Returns:
        A new frame.

    Raises:
        InvalidOperationError: if an argument cannot be used, nothing bounds the state, or the same topics are joined
            again without a name.

    Example:
        ```python
        auctions = app.dataframe(app.topic("auctions"))
        persons = app.dataframe(app.topic("persons"))
        sellers = persons.join(auctions, on=("id", "seller"), on_merge="keep-left", retention=timedelta(days=1))
        ```
    """
    if isinstance(right, StreamingTable):
        _refuse_bounds(
            within=within, retention=retention, window=window, grace_ms=grace_ms, closing_strategy=closing_strategy
        )
        return self._with(join_table(self._branch, right._branch, on, how, on_merge, name, right._key_columns))
    require_name(_METHOD, name)
    require_one_of(_METHOD, "how", how, get_args(IntervalHow))
    other = require_frame(_METHOD, self, right)
    columns = _parse_columns(on)
    merge = merge_of(_METHOD, on_merge, _equal_columns(columns))
    _require_bound(within, retention, window)
    left_branch, right_branch = self._branch, other._branch
    reach = (0, 0) if window is not None else _parse_reach(within, retention)
    grace = _parse_grace(grace_ms, None if window is not None else max(reach))
    template = None if window is None else _make_window(window, grace)
    if columns is not None:
        left_branch, right_branch = bring_together(_METHOD, left_branch, right_branch, columns, name)
    closing = stream_clock(left_branch.meeting((right_branch,)), closing_strategy)
    store = join_store(_METHOD, name, left_branch, right_branch)
    if template is None:
        joined = left_branch.merge((right_branch,), StreamJoin(Sides(how, merge, *reach), store, grace, closing))
    else:
        joined = left_branch.merge((right_branch,), TagSides())
        joined = joined.add(replace(template, store=store, closing=closing))
        joined = joined.add(Apply(PairsOfWindow(how, merge), expand=True))
    if columns is not None and columns[0] == columns[1] and isinstance(on_merge, str):
        # The key is also in the columns of the results.
        joined = replace(joined, key_columns=columns[0])
    return self._with(joined)


def _refuse_bounds(**given: Any) -> None:
    """Refuse arguments that say which records of a stream match."""
    for name, value in given.items():
        if value is not None:
            raise ArgumentValueError(
                f"{_METHOD}({name}=...) is for the records of another stream: a table has one row for each key, and each "
                "record is merged with the present one; for the row at the record's time, see join_asof()"
            )


def _parse_columns(on: Any) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the columns of both sides; None for the keys of the records."""
    if on is None:
        return None
    call = f"{_METHOD}(on=...)"
    if isinstance(on, tuple):
        if len(on) != 2:
            raise ArgumentValueError(
                f"{call} takes a tuple only as a pair, of the column of the left side and that of the right one, got "
                f"{on!r}; give several columns as a list"
            )
        left, right = (_parse_side(call, each) for each in on)
        if len(left) != len(right):
            raise ArgumentValueError(
                f"{call} got {len(left)} columns for the left side and {len(right)} for the right one: they must be as many"
            )
        return left, right
    columns = _parse_side(call, on)
    return columns, columns


def _equal_columns(columns: tuple[tuple[str, ...], tuple[str, ...]] | None) -> frozenset[str]:
    """Return the columns of both sides that have the same name, and so the same value in a pair."""
    pairs = () if columns is None else zip(*columns, strict=True)
    return frozenset(one for one, other in pairs if one == other)


def _parse_side(call: str, columns: Any) -> tuple[str, ...]:
    if isinstance(columns, str):
        columns = [columns]
    if not isinstance(columns, list | tuple):
        raise ArgumentTypeError(
            f"{call} takes the name of a column, a list of names, or a pair of these for the left and the right side, got "
            f"{type(columns).__name__}"
        )
    return column_list(call, columns)


def _require_bound(within: Any, retention: Any, window: Any) -> None:
    """Refuse a join whose state nothing bounds, or several things."""
    given = [
        name for name, value in (("within", within), ("retention", retention), ("window", window)) if value is not None
    ]
    if not given:
        raise ArgumentValueError(
            f"{_METHOD}() would have to keep all records for ever, because a match may come at any time: say what bounds "
            "it, by within=... (how far apart the times of a pair may be), retention=... (how long a record waits for a "
            "match, in event time) or window=... (such as TumblingEventTimeWindows(timedelta(seconds=10)))"
        )
    if len(given) > 1:
        raise ArgumentValueError(f"{_METHOD}() takes only one of {' and '.join(f'{name}=...' for name in given)}")


def _parse_reach(within: Any, retention: Any) -> tuple[int, int]:
    """Return how long before and after a left record its match may be, in milliseconds."""
    if retention is not None:
        reach = milliseconds(f"{_METHOD}(retention=...)", retention, least=1)
        return reach, reach
    if not isinstance(within, tuple):
        reach = milliseconds(f"{_METHOD}(within=...)", within)
        return reach, reach
    if len(within) != 2:
        raise ArgumentValueError(
            f"{_METHOD}(within=...) takes a tuple only as a pair, of the time before and the time after a left record, got "
            f"{within!r}"
        )
    before, after = (
        milliseconds(f"{_METHOD}(within=...), {place} a left record,", each)
        for place, each in zip(("before", "after"), within, strict=True)
    )
    return before, after


def _parse_grace(grace_ms: Any, reach: int | None) -> int:
    """Return how far a record may be behind the clock, by default as long as a match may be away; 0 for windows."""
    if grace_ms is not None:
        return milliseconds(f"{_METHOD}(grace_ms=...)", grace_ms)
    if reach is None:
        return 0
    if not reach:
        raise ArgumentValueError(
            f"{_METHOD}(within=0) needs grace_ms=..., how far a record may be behind the clock: the default is as long as "
            "within, and would drop every record that is out of order"
        )
    return reach


def _make_window(window: Any, grace: int) -> FixedWindow | SessionWindow | DynamicSessionWindow:
    """Return the operator that collects the records of both sides in a window, without its store and clock."""
    records: dict[str, Any] = {"store": StoreSpec(), "aggregation": _RECORDS, "final": True, "grace_ms": grace}
    kind = type(window)
    if kind is TumblingEventTimeWindows:
        return FixedWindow(**records, duration_ms=window.size, step_ms=window.size, offset_ms=window.offset)
    if kind is SlidingEventTimeWindows:
        return FixedWindow(**records, duration_ms=window.size, step_ms=window.slide, offset_ms=window.offset)
    if kind is EventTimeSessions:
        gap = window.gap
        if callable(gap):
            return DynamicSessionWindow(**records, gap=lambda tagged: gap(tagged[1]))
        return SessionWindow(**records, gap_ms=gap)
    raise ArgumentTypeError(
        f"{_METHOD}(window=...) takes windows of event time, which are objects of TumblingEventTimeWindows, "
        f"SlidingEventTimeWindows or EventTimeSessions, got {type_name(window)}"
    )
