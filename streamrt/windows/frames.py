"""Frames: which rows of a group, in their order, belong to a row."""

import datetime
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

__all__ = ["ALL_ROWS", "UP_TO_PEERS", "Frame", "OrderedRows"]


class OrderedRows(NamedTuple):
    """The rows of a group in their order, or some that are next to each other.

    Attributes:
        rows: the rows.
        peers: for each of them, the place of the first row with equal values in the columns of the order, and the place
            behind the last one.
        column: the column of the order, if it is one; of several, the last one. None also for the order of `times`.
        descending: whether its highest values come first.
        times: event times of the rows of a stream, in milliseconds.
        first: the place of the first row whose result is needed.
    """

    rows: Sequence[Any]
    peers: Sequence[tuple[int, int]]
    column: str | None = None
    descending: bool = False
    times: Sequence[int] | None = None
    first: int = 0

    @classmethod
    def of(
        cls,
        orders: Sequence[Any],
        rows: Sequence[Any],
        column: str | None = None,
        *,
        descending: bool = False,
        times: Sequence[int] | None = None,
        first: int = 0,
    ) -> "OrderedRows":
        """Return rows in their order.

        Args:
            orders: what is equal for rows with equal values in the columns of the order.
            rows: the rows.
            column: see `OrderedRows`.
            descending: see `OrderedRows`.
            times: see `OrderedRows`.
            first: see `OrderedRows`.

        Example:
            >>> OrderedRows.of([1, 1, 2], ["a", "b", "c"]).peers
            [(0, 2), (0, 2), (2, 3)]
        """
        peers: list[tuple[int, int]] = []
        while (begin := len(peers)) < len(orders):
            end = begin + 1
            while end < len(orders) and orders[end] == orders[begin]:
                end += 1
            peers += [(begin, end)] * (end - begin)
        return cls(rows, peers, column, descending, times, first)


@dataclass(frozen=True)
class Frame:
    """Which rows of a group belong to a row: from one distance to another one, both inclusive.

    Attributes:
        unit: what a distance is: a number of rows, or a difference of the values of the order.
        start: the distance of the first row, below 0 for rows before; None for the first row of the group. In a range, 0
            stands for the first row with equal values.
        end: that of the last row; None for the last row of the group. In a range, 0 stands for the last row with equal
            values.

    Example:
        >>> rows = OrderedRows.of([1, 1, 2], ["a", "b", "c"])
        >>> Frame("rows", -1, 0).bounds(rows)
        [(0, 1), (0, 2), (1, 3)]
        >>> Frame("range", None, 0).bounds(rows)
        [(0, 2), (0, 2), (0, 3)]
    """

    unit: Literal["rows", "range"]
    start: Any
    end: Any

    def bounds(self, ordered: OrderedRows) -> list[tuple[int, int]]:
        """Return the place of the first row of each frame, and the place behind its last one; from `first` on."""
        count, start, end = len(ordered.rows), self.start, self.end
        if self.unit == "rows":
            places = range(ordered.first, count)
            firsts = [0 if start is None else min(max(place + start, 0), count) for place in places]
            ends = [count if end is None else min(max(place + end + 1, 0), count) for place in places]
            return list(zip(firsts, ends, strict=True))
        if start or end:
            return _bounds_by_value(ordered, start, end)
        return [
            (0 if start is None else first, count if end is None else last)
            for first, last in ordered.peers[ordered.first :]
        ]

    @property
    def reach(self) -> tuple[int | None, int | None]:
        """How many rows before and after a row may belong to it; None for any number."""
        if self.unit == "range":
            return None, None
        return (
            None if self.start is None else max(-self.start, 0),
            None if self.end is None else max(self.end, 0),
        )

    @property
    def is_reversed(self) -> bool:
        """Whether it ends before it starts."""
        if self.start is None or self.end is None:
            return False
        zero: Any = datetime.timedelta() if isinstance(self.start or self.end, datetime.timedelta) else 0
        return bool((self.start or zero) > (self.end or zero))

    def __str__(self) -> str:
        return f"{self.unit} {_say(self.start, 'first')} to {_say(self.end, 'last')}"


ALL_ROWS: Final = Frame("rows", None, None)
"""All rows of the group."""
UP_TO_PEERS: Final = Frame("range", None, 0)
"""All rows before, and those with equal values: what SQL's OVER with ORDER BY has without a frame."""


def _bounds_by_value(ordered: OrderedRows, start: Any, end: Any) -> list[tuple[int, int]]:
    """Return the bounds of frames of rows whose values differ so much. Those without a value only have each other."""
    column, descending = ordered.column, ordered.descending
    values: Sequence[Any] = ordered.times or ()
    if column is not None:
        values = [_comparable(row[column]) for row in ordered.rows]
    known = [place for place, value in enumerate(values) if value is not None]
    # Rows without a value are next to each other, first or last.
    first, behind = (known[0], known[-1] + 1) if known else (0, 0)
    sorted_values = list(values[first:behind])
    if descending:
        sorted_values.reverse()

    bounds = []
    for value, peers in zip(values[ordered.first :], ordered.peers[ordered.first :], strict=True):
        if value is None:
            low, high = peers
        elif descending:
            low = behind - bisect_right(sorted_values, value - start if start else value)
            high = behind - bisect_left(sorted_values, value - end if end else value)
        else:
            low = first + bisect_left(sorted_values, value + start if start else value)
            high = first + bisect_right(sorted_values, value + end if end else value)
        bounds.append((0 if start is None else low, len(values) if end is None else high))
    return bounds


def _comparable(value: Any) -> Any:
    """Return a value to which a distance can be added; None for one that is not before or after others."""
    if type(value) is datetime.date:
        # Dates have no hours.
        return datetime.datetime.combine(value, datetime.time())
    return None if value != value else value


def _say(distance: Any, edge: str) -> str:
    return f"the {edge} one" if distance is None else str(distance)
