"""Functions of the rows around a row of a table. `over` is a method of groups of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from streamrt.arguments import checked
from streamrt.dataframe.branch import Branch
from streamrt.dataframe.ranking import read_order
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.operators.functions import require_name
from streamrt.relations import OverChanges
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.windows.frame_aggregates import make_over_function
from streamrt.windows.frames import ALL_ROWS, UP_TO_PEERS, Frame
from streamrt.windows.over_functions import OverColumn, OverFunction

__all__ = ["Distance", "TableOver", "add_over", "make_table_over", "read_functions"]

T = TypeVar("T")
# A table.

Distance = int | float | timedelta | None
"""How far a row of a frame is; None for any distance."""


@dataclass(frozen=True)
class TableOver(Generic[T]):
    """In which order, and with which frame, `over` looks at the rows of a group. Next, say what to compute, by `agg`."""

    _branch: Branch
    _make_table: Callable[[Branch], T]
    _by: tuple[str, ...]
    _descending: tuple[bool, ...]
    _frame: Frame
    _name: str | None

    def agg(self, **functions: Any) -> T:
        """Add results to each row, as columns.

        Args:
            functions: by column, objects of `Sum`, `Mean` and the like, which aggregate the rows of the frame in their order;
                or of `RowNumber`, `Rank`, `Lag`, `FirstValue` and the like. A column that the rows have is replaced.

        Returns:
            A new table, whose rows have no key.

        Raises:
            InvalidOperationError: if there is no function, an argument is not one, or there is another `over` with the same
                store.

        Example:
            ```python
            auctions.group_by("seller").over("expires", rows=10).agg(average=Mean("price"), number=RowNumber())
            ```
        """
        columns = tuple(OverColumn(*each, self._frame) for each in read_functions(functions))
        return self._make_table(add_over(self._branch, self._by, self._descending, columns, self._name))


def read_functions(functions: Mapping[str, Any], *, timed: bool = False) -> list[tuple[str, OverFunction]]:
    """Return the arguments of `agg` behind `over` as names and functions.

    Args:
        functions: the arguments, by column.
        timed: whether rows have times, as those of streams.

    Raises:
        InvalidOperationError: if there is none, or an argument is not a function.
    """
    found = []
    for name, item in functions.items():
        function = make_over_function(name, item, timed=timed)
        if function is None:
            given = f"the class {item.__name__}" if isinstance(item, type) else type(item).__name__
            raise ArgumentTypeError(
                f"agg({name}=...) behind over() needs an object of Sum, RowNumber, Lag or the like, got {given}"
            )
        found.append((name, function))
    if not found:
        raise ArgumentValueError("agg() needs at least one function, such as agg(total=Sum('price'))")
    return found


def add_over(
    branch: Branch, by: tuple[str, ...], descending: tuple[bool, ...], columns: tuple[OverColumn, ...], name: str | None
) -> Branch:
    """Add columns to the rows of each group, and return the position of their changes.

    Args:
        branch: position of the changes of the rows of groups.
        by: the columns of the order.
        descending: of each of them, whether the highest values come first.
        columns: the columns that are added.
        name: part of the name of the store.

    Raises:
        InvalidOperationError: if the groups have another `over` with the same store.
    """
    store = branch.own_store("over" if name is None else f"over_{name}", "over()", "over(..., name='...')")
    return branch.add(OverChanges(branch.store(store, TimedTransaction), by, descending, columns)).of_bags()


def make_table_over(
    branch: Branch,
    make_table: Callable[[Branch], T],
    order_by: str | list[str] | None,
    descending: bool | list[bool],
    rows: Any,
    range_: Any,
    name: str | None,
) -> TableOver[T]:
    """Return what `over` of a table means.

    Args:
        branch: position of the changes of the rows of groups.
        make_table: makes a table of a position.
        order_by: columns of the order.
        descending: their directions.
        rows: the frame as numbers of rows.
        range_: the frame as differences of values.
        name: part of the name of the store.

    Raises:
        InvalidOperationError: if an argument cannot be used.
    """
    require_name("over", name)
    by, directions = ((), ()) if order_by is None else read_order("over", "order_by", order_by, descending)
    if rows is not None and range_ is not None:
        raise ArgumentValueError("over() takes one of rows=..., numbers of rows, and range=..., differences of values")
    if not by and (rows is not None or range_ is not None):
        raise ArgumentValueError(
            "over() without order_by=... is about all rows of the group: leave rows=... and range=... out, or give an order"
        )
    if rows is not None:
        frame = _read_rows(rows)
    elif range_ is not None:
        frame = _read_range(range_, len(by))
    else:
        frame = UP_TO_PEERS if by else ALL_ROWS
    return TableOver(branch, make_table, by, directions, frame, name)


def _read_rows(rows: Any) -> Frame:
    if not isinstance(rows, tuple):
        checked("over(rows=...)", rows, int, "a number of rows, at least 1, or a pair", lambda count: count >= 1)
        return Frame("rows", 1 - rows, 0)
    for distance in rows:
        checked("over(rows=(start, end))", distance, int, "a pair of numbers of rows, or None for all", optional=True)
    return _make_frame("rows", rows)


def _read_range(range_: Any, columns: int) -> Frame:
    if not isinstance(range_, tuple):
        checked("over(range=...)", range_, int | float | timedelta, "a number or a timedelta, or a pair of them")
        range_ = -range_, 0
    for distance in range_:
        checked(
            "over(range=(start, end))",
            distance,
            int | float | timedelta,
            "a pair of numbers or timedeltas, or None for all",
            optional=True,
        )
    # Python compares no timedelta with 0.
    range_ = tuple(0 if distance == timedelta() else distance for distance in range_)
    if columns > 1 and any(range_):
        raise ArgumentValueError(
            "over(range=...) is a difference of values of one column: give order_by=... one column"
        )
    return _make_frame("range", range_)


def _make_frame(unit: Any, bounds: tuple[Any, ...]) -> Frame:
    if len(bounds) != 2:
        raise ArgumentValueError(f"over({unit}=...) takes a pair of start and end, got {bounds!r}")
    frame = Frame(unit, *bounds)
    if frame.is_reversed:
        raise ArgumentValueError(
            f"over({unit}=...) ends before it starts: {bounds!r}; distances before a row are below 0"
        )
    return frame
