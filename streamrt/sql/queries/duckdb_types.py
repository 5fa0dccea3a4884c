"""Types of Spark SQL in ANSI mode, and their names in DuckDB.

Times in UTC are times without a zone in DuckDB: its own type for them needs an extension, and the session is in UTC.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamrt.schema.types import type_word
from streamrt.sql.expressions.coercion import TIMESTAMP, TIMESTAMP_LTZ, bound_decimal, is_timestamp

__all__ = [
    "INTERVAL_DAYS",
    "INTERVAL_MONTHS",
    "TypedText",
    "as_decimal",
    "describe_type",
    "duckdb_type",
    "find_common_type",
    "is_interval",
    "is_number",
    "is_text",
    "without_negative_zero",
]

INTERVAL_DAYS = pa.duration("us")
"""An interval of days and times."""
INTERVAL_MONTHS = pa.month_day_nano_interval()
"""An interval of years and months."""

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    pa.time32("ms"): "TIME",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_LTZ: "TIMESTAMP",
    INTERVAL_DAYS: "INTERVAL",
    INTERVAL_MONTHS: "INTERVAL",
    pa.null(): '"NULL"',
}


@dataclass(frozen=True)
class TypedText:
    """An expression in DuckDB's SQL, in parentheses where it has operators, and its type in Spark.

    Attributes:
        sql: the expression.
        dtype: the type; `pa.null()` for NULL.
        literal: its value, if it is a literal.
    """

    sql: str
    dtype: pa.DataType
    literal: Any = None


def duckdb_type(dtype: pa.DataType) -> str:
    """Return the name of a type in DuckDB.

    Args:
        dtype: the type.

    Example:
        >>> duckdb_type(pa.list_(pa.decimal128(10, 2)))
        'DECIMAL(10, 2)[]'
    """
    name = _NAMES.get(dtype)
    if name is not None:
        return name
    if pa.types.is_decimal(dtype):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if pa.types.is_list(dtype):
        return f"{duckdb_type(dtype.value_type)}[]"
    if pa.types.is_map(dtype):
        return f"MAP({duckdb_type(dtype.key_type)}, {duckdb_type(dtype.item_type)})"
    if pa.types.is_struct(dtype):
        fields = ", ".join(f'"{_double(field.name)}" {duckdb_type(field.type)}' for field in dtype)
        return f"STRUCT({fields})"
    return "BLOB"


def describe_type(dtype: pa.DataType) -> str:
    """Return the word for a type in an error."""
    if dtype == pa.null():
        return "NULL"
    return "INTERVAL" if is_interval(dtype) else type_word(dtype)


def is_number(dtype: pa.DataType) -> bool:
    """Return whether a type is one of numbers."""
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def is_text(dtype: pa.DataType) -> bool:
    """Return whether a type is STRING."""
    return bool(dtype == pa.string())


def is_interval(dtype: pa.DataType) -> bool:
    """Return whether a type is one of intervals."""
    return dtype in (INTERVAL_DAYS, INTERVAL_MONTHS)


def as_decimal(dtype: pa.DataType) -> pa.DataType:
    """Return the decimal type that holds all values of a type of integers, or the decimal type itself."""
    return dtype if pa.types.is_decimal(dtype) else pa.decimal128(_DIGITS[dtype], 0)


def find_common_type(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type to which Spark brings values of several types, or None if there is none.

    Args:
        types: the types, such as those of the branches of CASE.

    Example:
        >>> find_common_type([pa.int32(), pa.decimal128(5, 2)])
        Decimal128Type(decimal128(12, 2))
    """
    found: pa.DataType | None = pa.null()
    for dtype in types:
        if found is None:
            return None
        found = _find_wider(found, dtype)
    return found


def _find_wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one == other or other == pa.null():
        return one
    if one == pa.null():
        return other
    if is_number(one) and is_number(other):
        return _find_wider_number(one, other)
    if is_text(one) or is_text(other):
        return _find_type_for_text(other if is_text(one) else one)
    times = (one == pa.date32() or is_timestamp(one)) and (other == pa.date32() or is_timestamp(other))
    if times:
        return TIMESTAMP_LTZ if TIMESTAMP_LTZ in (one, other) else TIMESTAMP
    if pa.types.is_list(one) and pa.types.is_list(other):
        inner = _find_wider(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    return None


def _find_wider_number(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        # Spark has no FLOAT for numbers of two types: integers would lose digits.
        return pa.float64()
    if one in _INTEGERS and other in _INTEGERS:
        return max(one, other, key=_INTEGERS.index)
    one, other = as_decimal(one), as_decimal(other)
    scale = max(one.scale, other.scale)
    return bound_decimal(max(one.precision - one.scale, other.precision - other.scale) + scale, scale)


def _find_type_for_text(other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(other):
        return pa.int64()
    if is_number(other):
        return pa.float64()
    if other in (pa.bool_(), pa.date32(), TIMESTAMP, TIMESTAMP_LTZ, pa.binary()):
        return other
    return None


@functools.cache
def _double(name: str) -> str:
    return name.replace('"', '""')


def without_negative_zero(value: TypedText) -> str:
    """Return an expression for which -0.0 is 0.0, as it is in Spark where values are equal."""
    return f"({value.sql} + 0.0::DOUBLE)" if pa.types.is_floating(value.dtype) else value.sql
