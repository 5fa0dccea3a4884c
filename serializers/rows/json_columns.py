"""Columns of Arrow from values of JSON, and values of JSON from columns of Arrow.

Both are shortcuts for what most columns hold. `json_column` looks at the types of all values of a column at once, and
hands them to Arrow together. Where it is not sure to return what the check of single rows would, it returns None, and the
column is checked value by value. So a shortcut knows only the usual form of a string: Arrow's parsers accept other strings
than Python's do.
"""

import datetime
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamrt.serializers.rows.json_rows import json_value

__all__ = ["ColumnMaker", "json_column", "json_values"]

ColumnMaker = Callable[[list[Any]], "pa.Array | None"]
"""Returns values of JSON, None among them, as an array, or None if they need to be checked one by one."""

_NONE = type(None)
_LARGEST_PLAIN_SCALE = 6
_DATE = r"^\d{4}-\d\d-\d\d$"
_TIME = r"^\d\d:\d\d:\d\d(\.\d{6})?$"
_TIMESTAMP = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{3}|\.\d{6})?$"
_INSTANT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{3}|\.\d{6})?Z$"
_DECIMAL = r"^-?\d+(\.\d+)?$"
_UNSURE = (pa.ArrowException, OverflowError, ValueError, TypeError)


def json_column(dtype: pa.DataType, nullable: bool = True) -> ColumnMaker:
    """Return the shortcut for values of a type.

    Args:
        dtype: type of a column.
        nullable: whether values may be None.
    """
    make = _find_maker(dtype)

    def column(values: list[Any]) -> pa.Array | None:
        try:
            array = make(values)
        except _UNSURE:
            return None
        return array if array is None or nullable or array.null_count == 0 else None

    return column


def _find_maker(dtype: pa.DataType) -> ColumnMaker:
    if pa.types.is_integer(dtype):
        return _of_types({int, _NONE}, lambda values: pa.array(values, dtype))
    if pa.types.is_floating(dtype):
        return _of_types({float, _NONE}, lambda values: _finite_numbers(pa.array(values, dtype)))
    if dtype == pa.bool_():
        return _of_types({bool, _NONE}, lambda values: pa.array(values, dtype))
    if dtype == pa.string():
        return _of_types({str, _NONE}, lambda values: pa.array(values, dtype))
    if dtype == pa.date32():
        return _text_maker(_DATE, lambda texts: _not_before(texts.cast(dtype)))
    if dtype == pa.time32("ms"):
        return _text_maker(_TIME, _times_of_day)
    if pa.types.is_timestamp(dtype):
        form = _TIMESTAMP if dtype.tz is None else _INSTANT
        return _text_maker(form, lambda texts: _not_before(texts.cast(dtype)))
    if pa.types.is_decimal128(dtype):
        return _text_maker(_DECIMAL, lambda texts: texts.cast(dtype))
    if pa.types.is_list(dtype):
        return _list_maker(dtype)
    if pa.types.is_struct(dtype):
        return _struct_maker(dtype)
    if pa.types.is_map(dtype) and dtype.key_type == pa.string():
        return _map_maker(dtype)
    return lambda values: None


def _of_types(types: set[type], make: Callable[[list[Any]], pa.Array]) -> ColumnMaker:
    # Exact types: a bool is an int.
    return lambda values: make(values) if types.issuperset(map(type, values)) else None


def _text_maker(form: str, parse: Callable[[pa.Array], pa.Array]) -> ColumnMaker:
    def make(values: list[Any]) -> pa.Array | None:
        texts = pa.array(values, pa.string())
        usual = pc.all(pc.match_substring_regex(texts, form)).as_py()
        return None if usual is False else parse(texts)

    return _of_types({str, _NONE}, make)


def _times_of_day(texts: pa.Array) -> pa.Array:
    # Arrow reads no times of day. It refuses to drop microseconds.
    moments = pc.binary_join_element_wise(pa.scalar("1970-01-01T"), texts, pa.scalar(""))
    return moments.cast(pa.timestamp("us")).cast(pa.time64("us")).cast(pa.time32("ms"))


def _finite_numbers(numbers: pa.Array) -> pa.Array | None:
    # JSON has no infinity: it was too large for 32 bits.
    return None if pc.all(pc.is_finite(numbers)).as_py() is False else numbers


def _not_before(times: pa.Array) -> pa.Array | None:
    # Arrow has a year 0.
    lowest = pc.min(times)
    return times if not lowest.is_valid or pc.greater_equal(lowest, _first_time(times.type)).as_py() else None


@functools.cache
def _first_time(dtype: pa.DataType) -> pa.Scalar:
    """Return the first time that Python knows; made when it is needed, since Arrow imports pandas for it."""
    if dtype == pa.date32():
        return pa.scalar(datetime.date.min, dtype)
    zone = None if dtype.tz is None else datetime.timezone.utc
    return pa.scalar(datetime.datetime.min.replace(tzinfo=zone), pa.timestamp("us", dtype.tz))


def _list_maker(dtype: pa.DataType) -> ColumnMaker:
    items_of = json_column(dtype.value_type, dtype.value_field.nullable)

    def make(values: list[Any]) -> pa.Array | None:
        items = items_of([item for value in values if value is not None for item in value])
        if items is None:
            return None
        return pa.ListArray.from_arrays(_list_offsets(values), items, type=dtype, mask=_null_mask(values))

    return _of_types({list, _NONE}, make)


def _map_maker(dtype: pa.DataType) -> ColumnMaker:
    items_of = json_column(dtype.item_type, dtype.item_field.nullable)

    def make(values: list[Any]) -> pa.Array | None:
        some = [value for value in values if value is not None]
        items = items_of([item for value in some for item in value.values()])
        if items is None:
            return None
        keys = pa.array([key for value in some for key in value], pa.string())
        return pa.MapArray.from_arrays(_list_offsets(values), keys, items, type=dtype, mask=_null_mask(values))

    return _of_types({dict, _NONE}, make)


def _struct_maker(dtype: pa.DataType) -> ColumnMaker:
    fields = [(field, json_column(field.type)) for field in dtype]

    def make(values: list[Any]) -> pa.Array | None:
        mask = _null_mask(values)
        nulls = 0 if mask is None else mask.true_count
        arrays = []
        for field, column in fields:
            name = field.name
            array = column([None if value is None else value.get(name) for value in values])
            if array is None or (not field.nullable and array.null_count > nulls):
                return None
            arrays.append(array)
        return pa.StructArray.from_arrays(arrays, fields=list(dtype), mask=mask)

    return _of_types({dict, _NONE}, make)


def _list_offsets(values: list[Any]) -> pa.Array:
    lengths = (0 if value is None else len(value) for value in values)
    return pa.array(itertools.accumulate(lengths, initial=0), pa.int32())


def _null_mask(values: list[Any]) -> pa.Array | None:
    return pa.array([value is None for value in values]) if None in values else None


def json_values(array: pa.Array) -> list[Any]:
    """Return an array as objects that orjson writes as rows of JSON are written.

    Raises:
        ValueError: if it holds what JSON or Python do not have.
    """
    dtype = array.type
    if pa.types.is_floating(dtype) and _finite_numbers(array) is None:
        raise ValueError("a number is not finite")
    if pa.types.is_list(dtype):
        return _list_values(array)
    if pa.types.is_struct(dtype):
        names = [field.name for field in dtype]
        columns = [json_values(child) for child in array.flatten()]
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return _with_nulls(rows, array)
    if pa.types.is_map(dtype):
        maps: list[Any] = array.to_pylist(maps_as_pydicts="strict")
        _refuse_infinite(maps)
        return maps
    return _to_objects(_as_texts(array))


def _as_texts(array: pa.Array) -> pa.Array:
    """Return values that are strings in JSON as strings."""
    dtype = array.type
    if dtype == pa.date32():
        return _within_years(array, datetime.date.min, datetime.date.max).cast(pa.string())
    if dtype == pa.time32("ms"):
        return pc.replace_substring(array.cast(pa.time64("us")).cast(pa.string()), ".000000", "")
    if pa.types.is_timestamp(dtype):
        zone = None if dtype.tz is None else datetime.timezone.utc
        _within_years(array, datetime.datetime.min.replace(tzinfo=zone), datetime.datetime.max.replace(tzinfo=zone))
        # Arrow writes times with a zone slowly.
        texts = array.cast(pa.timestamp("us")).cast(pa.string())
        plain = pc.replace_substring(pc.replace_substring(texts, " ", "T"), ".000000", "")
        return plain if zone is None else pc.binary_join_element_wise(plain, pa.scalar("Z"), pa.scalar(""))
    # Arrow writes smaller steps with an exponent.
    if pa.types.is_decimal128(dtype) and dtype.scale <= _LARGEST_PLAIN_SCALE:
        return array.cast(pa.string())
    return array


def _within_years(times: pa.Array, first: Any, last: Any) -> pa.Array:
    outside = pc.or_(pc.less(times, pa.scalar(first, times.type)), pc.greater(times, pa.scalar(last, times.type)))
    if pc.any(outside).as_py():
        raise ValueError("a time is outside of the years 1 to 9999")
    return times


def _to_objects(array: pa.Array) -> list[Any]:
    dtype = array.type
    objects: list[Any]
    if pa.types.is_floating(dtype) or (pa.types.is_integer(dtype) and array.null_count == 0):
        objects = array.to_numpy(zero_copy_only=False).tolist()
        return _with_nulls(objects, array)
    if pa.types.is_integer(dtype) or dtype in (pa.bool_(), pa.string()):
        objects = array.to_pandas(integer_object_nulls=True).tolist()
        return objects
    return [None if each is None else json_value(each) for each in array.to_pylist()]


def _list_values(array: pa.Array) -> list[Any]:
    items = json_values(array.flatten())
    lengths = pc.list_value_length(array).fill_null(0).to_pylist()
    ends = itertools.accumulate(lengths)
    lists: list[Any] = [items[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    return _with_nulls(lists, array)


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    if array.null_count:
        for number, null in enumerate(array.is_null().to_numpy(zero_copy_only=False).tolist()):
            if null:
                values[number] = None
    return values


def _refuse_infinite(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    if isinstance(value, dict):
        _refuse_infinite([*value, *value.values()])
    elif isinstance(value, list):
        for each in value:
            _refuse_infinite(each)
