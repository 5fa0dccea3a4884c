"""Batches of rows, taken apart and put together row by row, or column by column."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streamrt.errors import SerializationError
from streamrt.schema import Column, Schema
from streamrt.schema.columns import NO_DEFAULT

__all__ = ["batch_of", "has_default", "objects_of", "one_by_one", "plain_columns", "rows_of"]

Given = TypeVar("Given")
Made = TypeVar("Made")


def one_by_one(convert: Callable[[Given], Made], given: Iterable[Given]) -> list[Made]:
    """Convert rows; an error names the number of the row, from 0 on."""
    made: list[Made] = []
    try:
        for each in given:
            made.append(convert(each))
    except SerializationError as error:
        raise SerializationError(f"row {len(made)}: {error}") from None
    return made


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch.

    Raises:
        SerializationError: if Python has no such value.
    """
    try:
        if any(map(_has_odd_times, batch.columns)):
            raise ValueError
        yield from batch.to_pylist()
    except _NO_OBJECTS:
        for number in range(batch.num_rows):
            yield _row_of(batch.slice(number, 1))


def _row_of(batch: pa.RecordBatch) -> dict[str, Any]:
    row = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = objects_of(column)[0]
        except _NO_OBJECTS:
            raise SerializationError(f"column {name!r} ({column.type}) has a value that Python cannot hold") from None
    return row


def objects_of(array: pa.Array) -> list[Any]:
    """Return the values of an array.

    Raises:
        ValueError: if Python has no such value. Arrow also raises other errors: ArithmeticError and its own.
    """
    if _has_odd_times(array):
        raise ValueError
    objects: list[Any] = array.to_pylist()
    return objects


def _has_odd_times(array: pa.Array) -> bool:
    """Whether there is a time of day below 0 or of 24 hours or more, which Arrow would hand out as another one."""
    dtype = array.type
    if pa.types.is_time(dtype):
        numbers = array.view(pa.int32() if pa.types.is_time32(dtype) else pa.int64())
        bounds = pc.min_max(numbers).as_py()
        return bounds["min"] is not None and (bounds["min"] < 0 or bounds["max"] >= _DAYS_OF[dtype.unit])
    if not _has_times(dtype):
        return False
    if pa.types.is_struct(dtype):
        return any(map(_has_odd_times, array.flatten()))
    if pa.types.is_map(dtype):
        return _has_odd_times(array.keys) or _has_odd_times(array.items)
    return _has_odd_times(array.flatten())


def _has_times(dtype: pa.DataType) -> bool:
    if not pa.types.is_nested(dtype):
        return bool(pa.types.is_time(dtype))
    return any(_has_times(dtype.field(number).type) for number in range(dtype.num_fields))


_DAYS_OF = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_NO_OBJECTS = (pa.ArrowException, ArithmeticError, ValueError)


def batch_of(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.RecordBatch:
    """Return checked rows as a batch with the types of their schema."""
    arrow = schema.arrow
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in arrow]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def plain_columns(batch: pa.RecordBatch, schema: Schema) -> list[pa.Array] | None:
    """Return the columns of a batch, if they can only hold rows of the schema; otherwise rows must be checked.

    Args:
        batch: a batch.
        schema: what rows must fit.
    """
    if set(batch.schema.names) != set(schema.names) or len(batch.schema.names) != len(schema):
        return None
    columns = []
    for column in schema.fields:
        array = _plain_column(batch.column(column.name), column)
        if array is None:
            return None
        columns.append(array)
    return columns


def _plain_column(array: pa.Array, column: Column) -> pa.Array | None:
    dtype = column.dtype
    if array.null_count and not column.nullable:
        return None
    if array.type != dtype:
        same = pa.types.is_integer(array.type) and pa.types.is_integer(dtype)
        if not same and not (dtype == pa.string() and array.type in (pa.large_string(), pa.string_view())):
            return None
        try:
            array = array.cast(dtype)
        except pa.ArrowException:
            return None
    if column.length is not None and (pc.max(pc.utf8_length(array)).as_py() or 0) > column.length:
        return None
    return None if _may_miss(dtype) or _has_odd_times(array) else array


def _may_miss(dtype: pa.DataType) -> bool:
    """Whether a part of the values must not be null."""
    if pa.types.is_map(dtype):
        return not dtype.item_field.nullable or _may_miss(dtype.item_type) or pa.types.is_nested(dtype.key_type)
    nested = [dtype.field(number) for number in range(dtype.num_fields)]
    return any(not field.nullable or _may_miss(field.type) for field in nested)


def has_default(column: Column) -> bool:
    """Whether rows that leave a column out get a value other than None."""
    return column.default is not NO_DEFAULT and column.default is not None
