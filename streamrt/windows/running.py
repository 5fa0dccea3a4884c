"""Functions of the rows up to a row, as states that each row enters: running totals, numbers of rows, values before.

Rows enter in their order. A column *by peers* has the result behind all rows with equal values of the order, its peers: as
SQL's RANGE has it. Other ones have the result behind the row itself.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from streamrt.errors import ColumnTypeError, MissingColumnError
from streamrt.windows.fold import Packing, return_state, start_at_zero, start_empty
from streamrt.windows.frame_aggregates import FrameAggregate, FrameCollection
from streamrt.windows.over_functions import (
    DenseRank,
    FirstValue,
    Lag,
    LastValue,
    NthValue,
    OverColumn,
    Rank,
    RowNumber,
)

__all__ = ["Running", "check_row", "is_up_to_row", "keeps_rows", "make_running", "require_row"]


class Running(NamedTuple):
    """A column of which a state is enough.

    Attributes:
        name: its name.
        key: the name of its state.
        by_peers: whether peers have the same result.
        initial: returns the state of no rows.
        enter: takes the state, a row, its time, whether it is the first of its peers, and the packing; returns the next
            state.
        result: takes the state and the packing; returns a new object.
    """

    name: str
    key: str
    by_peers: bool
    initial: Callable[[Packing], Any]
    enter: Callable[[Any, Any, int, bool, Packing], Any]
    result: Callable[[Any, Packing], Any]


_Parts = tuple[Callable[[Packing], Any], Callable[[Any, Any, int, bool, Packing], Any], Callable[[Any, Packing], Any]]
_KEPT: Final = (FrameAggregate, FrameCollection, NthValue, FirstValue, LastValue)


def is_up_to_row(column: OverColumn) -> bool:
    """Return whether a column depends on the rows up to a row and its peers only, with a state, or with as many rows.

    Example:
        >>> from streamrt.windows.frames import ALL_ROWS, Frame
        >>> is_up_to_row(OverColumn("n", RowNumber(), ALL_ROWS))
        True
        >>> is_up_to_row(OverColumn("last", LastValue("a"), ALL_ROWS))
        False
    """
    return make_running(column) is not None or keeps_rows(column)


def keeps_rows(column: OverColumn) -> bool:
    """Return whether a column depends on the rows of a frame that has a first row, and none behind the row's peers."""
    frame = column.frame
    if type(column.function) not in _KEPT or frame.start is None or frame.end is None:
        return False
    return bool(frame.end <= 0) if frame.unit == "rows" else not frame.end


def make_running(column: OverColumn) -> Running | None:
    """Return a column of which a state is enough; None if it is another one."""
    function, frame = column.function, column.frame
    kind = type(function)
    if kind in _NUMBERS:
        return Running(column.name, f"{column.name}/{kind.__name__}", kind is not RowNumber, *_NUMBERS[kind])
    if isinstance(function, Lag) and kind is Lag:
        key = f"{column.name}/Lag/{function.column}/{function.distance}"
        return Running(column.name, key, False, *_make_lag(function))
    if frame.start is not None or frame.end != 0:
        return None
    by_peers = frame.unit == "range"
    if isinstance(function, FrameAggregate):
        key = f"{column.name}/{function.aggregator.state_suffix}"
        return Running(column.name, key, by_peers, *_make_aggregate(function))
    if isinstance(function, NthValue) and kind in _KEPT:
        key = f"{column.name}/{kind.__name__}/{function.column}/{function.n}"
        return Running(
            column.name, key, by_peers, *(_make_last(function) if kind is LastValue else _make_nth(function))
        )
    return None


def check_row(column: OverColumn) -> Callable[[Any], Any] | None:
    """Return a function that raises an error for rows that a column cannot use; None if it can use any row."""
    function = column.function
    if isinstance(function, FrameAggregate):
        return function.growing_fold()[1]
    name: str | None = getattr(function, "column", None)
    return None if name is None else _read(name)


def _read(column: str) -> Callable[[Any], Any]:
    def read(row: Any) -> Any:
        try:
            return row[column]
        except KeyError:
            raise MissingColumnError(column, tuple(row)) from None

    return read


def _make_aggregate(function: FrameAggregate) -> _Parts:
    fold, extract = function.growing_fold()

    def enter(state: Any, row: Any, time: int, first: bool, packing: Packing) -> Any:
        return fold.step(state, row if extract is None else extract(row), time, packing)

    return fold.initial, enter, fold.result


def _make_lag(function: Lag) -> _Parts:
    """Return a state of the last values, the earliest one first."""
    read, count, default = _read(function.column), function.distance + 1, function.default

    def enter(state: Any, row: Any, time: int, first: bool, packing: Packing) -> Any:
        return [*(state or ()), packing.pack(read(row))][-count:]

    def result(state: Any, packing: Packing) -> Any:
        return packing.unpack(state[0]) if len(state) == count else default

    return start_empty, enter, result


def _make_nth(function: NthValue) -> _Parts:
    """Return a state of the number of rows that count, up to that one, and its value."""
    read, n, ignore_nulls = _read(function.column), function.n, function.ignore_nulls

    def enter(state: Any, row: Any, time: int, first: bool, packing: Packing) -> Any:
        if state is not None and state[0] == n:
            return state
        value = read(row)
        if ignore_nulls and value is None:
            return state
        number = 1 if state is None else state[0] + 1
        return [number, packing.pack(value)] if number == n else [number]

    def result(state: Any, packing: Packing) -> Any:
        return packing.unpack(state[1]) if state is not None and state[0] == n else None

    return start_empty, enter, result


def _make_last(function: NthValue) -> _Parts:
    read, ignore_nulls = _read(function.column), function.ignore_nulls

    def enter(state: Any, row: Any, time: int, first: bool, packing: Packing) -> Any:
        value = read(row)
        return state if ignore_nulls and value is None else [packing.pack(value)]

    def result(state: Any, packing: Packing) -> Any:
        return None if state is None else packing.unpack(state[0])

    return start_empty, enter, result


def _count_row(state: Any, row: Any, time: int, first: bool, packing: Packing) -> Any:
    return state + 1


def _count_peers(state: Any, row: Any, time: int, first: bool, packing: Packing) -> Any:
    return state + first


def _rank_row(state: Any, row: Any, time: int, first: bool, packing: Packing) -> Any:
    """Return the number of rows, and the rank of the last one."""
    rows, rank = state or (0, 0)
    return [rows + 1, rows + 1 if first else rank]


def _return_rank(state: Any, packing: Packing) -> Any:
    return state[1]


_NUMBERS: Final[dict[type, _Parts]] = {
    RowNumber: (start_at_zero, _count_row, return_state),
    Rank: (start_empty, _rank_row, _return_rank),
    DenseRank: (start_at_zero, _count_peers, return_state),
}


def require_row(value: Any) -> None:
    """Refuse a value that columns cannot be added to.

    Raises:
        ColumnTypeError: if it is not a dict.
    """
    if not isinstance(value, dict):
        raise ColumnTypeError(f"over() adds columns to values that are dicts, got {type(value).__name__}")
