"""Functions of the rows around a row: its number in its group, and values of other rows.

They are computed for rows of a group that are next to each other, in their order.
"""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

from streamrt.arguments import checked
from streamrt.windows.frames import Frame, OrderedRows

__all__ = [
    "CumulativeDistribution",
    "DenseRank",
    "FirstValue",
    "Lag",
    "LastValue",
    "Lead",
    "NTile",
    "NthValue",
    "OverColumn",
    "OverFunction",
    "PercentRank",
    "Rank",
    "Reach",
    "RowNumber",
]

Reach = tuple[int | None, int | None]
"""How many rows before and after a row its result depends on; None for any number."""

_WHOLE: Reach = (None, None)


class OverFunction(abc.ABC):
    """A function of the rows around a row, for `over()` of a table."""

    @abc.abstractmethod
    def compute(self, ordered: OrderedRows, frame: Frame) -> list[Any]:
        """Return the result of each row, from `ordered.first` on.

        Args:
            ordered: the rows of a group, or as many of them as the results depend on.
            frame: the frame.
        """

    def reach(self, frame: Frame) -> Reach:
        """Return how many rows before and after a row its result depends on; None for any number."""
        return _WHOLE

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"


class OverColumn(NamedTuple):
    """A column that is added to rows.

    Attributes:
        name: its name.
        function: what it is.
        frame: the rows that it is about, if the function has a frame.
    """

    name: str
    function: OverFunction
    frame: Frame


# -- Places ------------------------------------------------------------------------------------------------------------


class RowNumber(OverFunction):
    """The number of a row in its group, from 1. Rows with equal values are in an order that depends on the rows only.

    Example:
        >>> RowNumber().compute(OrderedRows.of([5, 5, 7], [{}, {}, {}]), Frame("rows", None, 0))
        [1, 2, 3]
    """

    def compute(self, ordered: OrderedRows, frame: Frame) -> list[int]:  # noqa: D102
        return list(range(ordered.first + 1, len(ordered.rows) + 1))


class Rank(OverFunction):
    """The number of the rows before, and 1; rows with equal values have the same rank, such as 1, 1, 3.

    Example:
        >>> Rank().compute(OrderedRows.of([5, 5, 7], [{}, {}, {}]), Frame("rows", None, 0))
        [1, 1, 3]
    """

    def compute(self, ordered: OrderedRows, frame: Frame) -> list[int]:  # noqa: D102
        return [first + 1 for first, _ in ordered.peers[ordered.first :]]


class DenseRank(OverFunction):
    """The number of different values up to a row, such as 1, 1, 2.

    Example:
        >>> DenseRank().compute(OrderedRows.of([5, 5, 7], [{}, {}, {}]), Frame("rows", None, 0))
        [1, 1, 2]
    """

    def compute(self, ordered: OrderedRows, frame: Frame) -> list[int]:  # noqa: D102
        ranks: dict[int, int] = {}
        return [ranks.setdefault(first, len(ranks) + 1) for first, _ in ordered.peers][ordered.first :]


class PercentRank(OverFunction):
    """The share of the other rows that are before a row: from 0.0 for the first one to 1.0.

    Example:
        >>> PercentRank().compute(OrderedRows.of([5, 5, 7], [{}, {}, {}]), Frame("rows", None, 0))
        [0.0, 0.0, 1.0]
    """

    def compute(self, ordered: OrderedRows, frame: Frame) -> list[float]:  # noqa: D102
        others = max(len(ordered.rows) - 1, 1)
        return [first / others for first, _ in ordered.peers[ordered.first :]]


class CumulativeDistribution(OverFunction):
    """The share of the rows that are not behind a row: SQL's `cume_dist`.

    Example:
        >>> CumulativeDistribution().compute(OrderedRows.of([5, 5, 7, 8], [{}, {}, {}, {}]), Frame("rows", None, 0))
        [0.5, 0.5, 0.75, 1.0]
    """

    def compute(self, ordered: OrderedRows, frame: Frame) -> list[float]:  # noqa: D102
        return [end / len(ordered.rows) for _, end in ordered.peers[ordered.first :]]


class NTile(OverFunction):
    """The number of a part, from 1, when the rows of a group are divided into parts whose sizes differ by 1 at most.

    Args:
        count: number of parts.

    Example:
        >>> NTile(2).compute(OrderedRows.of([5, 6, 7], [{}, {}, {}]), Frame("rows", None, 0))
        [1, 1, 2]
    """

    def __init__(self, count: int) -> None:
        checked("NTile(count)", count, int, "a number of parts, at least 1", lambda number: number >= 1)
        self.count = count

    def compute(self, ordered: OrderedRows, frame: Frame) -> list[int]:  # noqa: D102
        size, larger = divmod(len(ordered.rows), self.count)
        sizes = (size + (part < larger) for part in range(self.count))
        return [part for part, length in enumerate(sizes, 1) for _ in range(length)][ordered.first :]


# -- Values of other rows ----------------------------------------------------------------------------------------------


class Lag(OverFunction):
    """The value of a column in the row that is so many rows before.

    Args:
        column: name of the column.
        distance: how many rows before.
        default: the result if there is no such row.

    Example:
        >>> Lag("a").compute(OrderedRows.of([5, 7], [{"a": 5}, {"a": 7}]), Frame("rows", None, 0))
        [None, 5]
    """

    def __init__(self, column: str, distance: int = 1, default: Any = None) -> None:
        name = type(self).__name__
        self.column = checked(f"{name}(column)", column, str, "the name of a column", bool)
        self.distance = checked(
            f"{name}(distance=...)", distance, int, "a number of rows, at least 0", _is_not_negative
        )
        self.default = default

    @property
    def _shift(self) -> int:
        return -self.distance

    def compute(self, ordered: OrderedRows, frame: Frame) -> list[Any]:  # noqa: D102
        rows, shift = ordered.rows, self._shift
        places = range(ordered.first + shift, len(rows) + shift)
        return [rows[place][self.column] if 0 <= place < len(rows) else self.default for place in places]

    def reach(self, frame: Frame) -> Reach:  # noqa: D102
        return max(-self._shift, 0), max(self._shift, 0)


class Lead(Lag):
    """The value of a column in the row that is so many rows behind.

    Args:
        column: name of the column.
        distance: how many rows behind.
        default: the result if there is no such row.

    Example:
        >>> Lead("a", default=0).compute(OrderedRows.of([5, 7], [{"a": 5}, {"a": 7}]), Frame("rows", None, 0))
        [7, 0]
    """

    @property
    def _shift(self) -> int:
        return self.distance


class NthValue(OverFunction):
    """The value of a column in a row of the frame; None if the frame has fewer rows.

    Args:
        column: name of the column.
        n: the number of the row in the frame, from 1.
        ignore_nulls: whether rows with None in the column do not count.

    Example:
        >>> NthValue("a", 2).compute(OrderedRows.of([5, 7], [{"a": 5}, {"a": 7}]), Frame("rows", None, 0))
        [None, 7]
    """

    _step = 1

    def __init__(self, column: str, n: int, *, ignore_nulls: bool = False) -> None:
        name = type(self).__name__
        self.column = checked(f"{name}(column)", column, str, "the name of a column", bool)
        self.n = checked(f"{name}(n)", n, int, "the number of a row, at least 1", lambda number: number >= 1)
        self.ignore_nulls = ignore_nulls

    def compute(self, ordered: OrderedRows, frame: Frame) -> list[Any]:  # noqa: D102
        values = [row[self.column] for row in ordered.rows]
        return [self._find(values, *bounds) for bounds in frame.bounds(ordered)]

    def _find(self, values: Sequence[Any], first: int, end: int) -> Any:
        places = range(first, end)[:: self._step]
        if not self.ignore_nulls:
            return values[places[self.n - 1]] if self.n <= len(places) else None
        left = self.n
        for place in places:
            left -= values[place] is not None
            if not left:
                return values[place]
        return None

    def reach(self, frame: Frame) -> Reach:  # noqa: D102
        return frame.reach


class FirstValue(NthValue):
    """The value of a column in the first row of the frame.

    Args:
        column: name of the column.
        ignore_nulls: whether it is the first row that has not None in the column.

    Example:
        >>> FirstValue("a").compute(OrderedRows.of([5, 7], [{"a": 5}, {"a": 7}]), Frame("rows", -1, 0))
        [5, 5]
    """

    def __init__(self, column: str, *, ignore_nulls: bool = False) -> None:
        super().__init__(column, 1, ignore_nulls=ignore_nulls)


class LastValue(FirstValue):
    """The value of a column in the last row of the frame.

    Args:
        column: name of the column.
        ignore_nulls: whether it is the last row that has not None in the column.

    Example:
        >>> LastValue("a").compute(OrderedRows.of([5, 7], [{"a": 5}, {"a": 7}]), Frame("rows", 0, 1))
        [7, 7]
    """

    _step = -1


def _is_not_negative(number: int) -> bool:
    return number >= 0
