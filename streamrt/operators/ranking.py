"""Ranks of rows: their order by columns, and which of them are the first ones."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from streamrt.errors import ColumnTypeError, ConfigurationError
from streamrt.operators.columns import column_of
from streamrt.state.ordered_bytes import order_columns

__all__ = ["RankMethod", "Ranking", "describe_order", "make_row_order"]

RankMethod = Literal["row_number", "rank", "dense_rank"]
"""How rows are numbered, as in SQL: "row_number" gives each row another rank; "rank" gives equal rows one rank, and the next
ones that of their place; "dense_rank" does so without gaps."""

T = TypeVar("T")


@dataclass(frozen=True)
class Ranking:
    """Which rows are the first ones.

    Attributes:
        count: the highest rank.
        by: the columns by which rows are ordered, the first one first. None comes last, in both directions.
        descending: of each of them, whether the highest values come first.
        method: how rows are numbered.
        rank: name of the column of the rank.

    Example:
        >>> ranking = Ranking(2, ("price", "time"), (True, False), "row_number", "rank")
        >>> ranking.describe()
        '2 by price descending, time, row_number'
        >>> rows = [{"price": 5, "time": 1}, {"price": 7, "time": 3}, {"price": 7, "time": 2}]
        >>> [row["time"] for row in sorted(rows, key=ranking.make_order())]
        [2, 3, 1]
    """

    count: int
    by: tuple[str, ...]
    descending: tuple[bool, ...]
    method: RankMethod
    rank: str

    @property
    def has_ties(self) -> bool:
        """Whether several rows may have one rank."""
        return self.method != "row_number"

    @property
    def rank_columns(self) -> tuple[str, ...]:
        """The columns that are added to rows: the rank, and if several may have it, their number in it, from 1."""
        return (self.rank, f"{self.rank}_tie") if self.has_ties else (self.rank,)

    def make_order(self) -> Callable[[Any], bytes]:
        """Return the function from a row to bytes that are ordered as rows are. Equal rows have equal ones.

        It raises `MissingColumnError` if the row has not got a column.
        """
        return make_row_order(self.by, self.descending)

    def rank_rows(self, rows: Iterable[tuple[bytes, T]]) -> Iterator[tuple[int, int, T]]:
        """Yield the rows that have a rank: the rank, their number in it, and the item. No row after them is read, but one.

        Args:
            rows: the order and an item of each row, in order.

        Example:
            >>> rows = [(b"a", "A"), (b"b", "B"), (b"b", "C"), (b"c", "D")]
            >>> [*Ranking(2, ("x",), (False,), "rank", "rank").rank_rows(rows)]
            [(1, 1, 'A'), (2, 1, 'B'), (2, 2, 'C')]
        """
        rank = tie = 0
        last = None
        for place, (order, item) in enumerate(rows, 1):
            if order == last and self.has_ties:
                tie += 1
            else:
                rank, tie, last = rank + 1 if self.method == "dense_rank" else place, 1, order
                if rank > self.count:
                    return
            yield rank, tie, item

    def is_full(self, rank: int, tie: int) -> bool:
        """Return whether no row that comes after a last one has a rank."""
        return rank >= self.count if self.method == "dense_rank" else rank + tie > self.count

    def add_rank(self, row: Any, rank: int, tie: int) -> dict[str, Any]:
        """Return a row with its rank."""
        return {**row, **dict(zip(self.rank_columns, (rank, tie), strict=False))}

    def check_row(self, row: Any) -> None:
        """Refuse a row without columns, or with one that a rank would replace.

        Raises:
            ColumnTypeError: if it is not a dict.
            ConfigurationError: if it has a column of the rank.
        """
        if not isinstance(row, dict):
            raise ColumnTypeError(f"top() orders values that are dicts by their columns, got {type(row).__name__}")
        for column in self.rank_columns:
            if column in row:
                raise ConfigurationError(
                    f"top() adds the column {column!r}, which the values already have: choose another name, "
                    "top(..., rank='...')"
                )

    def check_types(self, row: Any, other: Any) -> None:
        """Refuse a row with a value that cannot be compared with that of another row.

        Raises:
            ColumnTypeError: if there is one.
        """
        for column in self.by:
            value, known = column_of(row, column), column_of(other, column)
            if value is not None and known is not None:
                try:
                    bool(value < known)
                except TypeError as error:
                    raise ColumnTypeError(f"top() cannot order rows by column {column!r}: {error}") from None

    def check_order(self, row: Any, order: bytes, other: bytes) -> None:
        """Refuse a row whose first column cannot be compared with that of another row, by the bytes of both.

        Raises:
            ColumnTypeError: if it cannot.
        """
        # None, and then the tags of types, which None has not got.
        column = self.by[0]
        if order[0] == other[0] and order[:2] != other[:2] and row[column] is not None:
            kind = type(row[column]).__name__
            raise ColumnTypeError(
                f"top() cannot order rows by column {column!r}: a value is of type {kind}, others are not"
            )

    def describe(self) -> str:
        """Return the number of ranks and the order, in a few words."""
        return f"{self.count} by {describe_order(self.by, self.descending)}, {self.method}"


def make_row_order(by: Sequence[str], descending: Sequence[bool]) -> Callable[[Any], bytes]:
    """Return the function from a row to bytes that are ordered as rows are. Equal rows have equal ones.

    It raises `MissingColumnError` if the row has not got a column.

    Args:
        by: the columns by which rows are ordered.
        descending: of each of them, whether the highest values come first.
    """
    columns = tuple(zip(by, descending, strict=True))
    return lambda row: order_columns((column_of(row, column), falls) for column, falls in columns)


def describe_order(by: Sequence[str], descending: Sequence[bool]) -> str:
    """Return columns and their directions in a few words; the arguments are those of `make_row_order`.

    Example:
        >>> describe_order(("price", "time"), (True, False))
        'price descending, time'
    """
    return ", ".join(f"{column} descending" if falls else column for column, falls in zip(by, descending, strict=True))
