"""Lists of rows brought into columns, where that means the same as a check of each row."""

import datetime
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamrt.errors import ArgumentTypeError
from streamrt.schema import Column, Schema
from streamrt.schema.columns import NO_DEFAULT
from streamrt.tables.rows.arrow_rows import Frame, is_frame

__all__ = ["columns_of_rows", "list_rows"]

_NONE = type(None)
_UNSURE = (pa.ArrowException, ArithmeticError, ValueError, TypeError)
_FEWEST = 16
"""Fewer rows are faster one by one."""


def list_rows(rows: Any, what: str = "rows") -> Any:
    """Return a frame as it is, a single mapping as a list, and another iterable as a list.

    Args:
        rows: the rows, or keys of rows.
        what: the word for them, for errors.

    Raises:
        ArgumentTypeError: if it is none of these.
    """
    if is_frame(rows):
        return rows
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise ArgumentTypeError(f"{what} are a list of {what}, or a table of Arrow, not {type(rows).__name__}")
    return [rows] if isinstance(rows, Mapping) else list(rows)


def columns_of_rows(rows: Sequence[Any], given: Schema) -> Frame | None:
    """Return rows as columns, if their values have the types that their columns expect; None if they must be checked.

    A value of an exact type, such as `int` and not a subclass of it, is taken by Arrow as by the check of a single row. All
    others, and rows that are wrong, are left to that check, whose errors name the rule.

    Args:
        rows: the rows.
        given: the columns that rows give.

    Example:
        >>> frame = columns_of_rows([{"id": 1}, {"id": 2}] * 8, Schema("id BIGINT"))
        >>> frame.columns["id"].to_pylist()[:2]
        [1, 2]
        >>> columns_of_rows([{"id": "1"}] * 16, Schema("id BIGINT")) is None
        True
    """
    if len(rows) < _FEWEST:
        return None
    values_of = _make_taker(rows, given)
    if values_of is None:
        return None
    columns: dict[str, Any] = {}
    for place, column in enumerate(given.fields):
        array = _make_array(values_of(place, column), column.dtype)
        if array is None:
            return None
        columns[column.name] = array
    return Frame(columns)


def _make_taker(rows: Sequence[Any], given: Schema) -> Callable[[int, Column], list[Any]] | None:
    """Return what makes the list of the values of a column."""
    kinds = set(map(type, rows))
    count = len(given)
    if kinds <= {list, tuple}:
        return (lambda place, _: [row[place] for row in rows]) if set(map(len, rows)) == {count} else None
    if kinds != {dict}:
        return None
    names = set(given.names)
    if not all(map(names.issuperset, rows)):
        return None

    def values(_: int, column: Column) -> list[Any]:
        name = column.name
        default = None if column.default is NO_DEFAULT else column.default
        if default is None:
            return [row.get(name) for row in rows]
        return [row.get(name, default) for row in rows]

    return values


def _make_array(values: list[Any], dtype: pa.DataType) -> pa.ChunkedArray | None:
    taken = _TAKEN.get(dtype.id)
    if taken is None:
        return None
    types, arrow = taken
    if not types.issuperset(map(type, values)):
        return None
    if pa.types.is_timestamp(dtype) and not _zones_fit(values, dtype):
        return None
    try:
        array = pa.array(values, dtype if arrow is None else arrow)
    except _UNSURE:
        return None
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _zones_fit(values: list[Any], dtype: pa.DataType) -> bool:
    zone = None if dtype.tz is None else datetime.timezone.utc
    return {each.tzinfo for each in values if each is not None} <= {zone}


# By type of a column: the types of its values, and that of Arrow which holds them all; None is that of the column.
_TAKEN: Mapping[int, tuple[set[type], pa.DataType | None]] = {
    **{each.id: ({int, _NONE}, pa.int64()) for each in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{each.id: ({float, int, _NONE}, pa.float64()) for each in (pa.float32(), pa.float64())},
    pa.bool_().id: ({bool, _NONE}, None),
    pa.string().id: ({str, _NONE}, None),
    pa.binary().id: ({bytes, _NONE}, None),
    pa.date32().id: ({datetime.date, _NONE}, None),
    pa.timestamp("us").id: ({datetime.datetime, _NONE}, None),
    pa.decimal128(1).id: ({decimal.Decimal, _NONE}, None),
}
