"""Which types go together: Spark's rules in ANSI mode (https://spark.apache.org/docs/latest/sql-ref-ansi-compliance.html)."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from streamrt.schema.types import type_word

__all__ = [
    "BIGINT",
    "BINARY",
    "BOOLEAN",
    "DATE",
    "DAYS",
    "DOUBLE",
    "FLOAT",
    "INT",
    "INTERVAL",
    "MONTHS",
    "NULL",
    "STRING",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "all_comparable",
    "average_type",
    "bound_decimal",
    "can_store",
    "common_key",
    "common_type",
    "common_type_of_all",
    "decimal_of",
    "decimal_result",
    "describe_type",
    "is_binary",
    "is_integral",
    "is_interval",
    "is_moment",
    "is_numeric",
    "is_timestamp",
    "make_nullable",
    "may_cast_silently",
    "sum_type",
]

NULL: Final = pa.null()
BOOLEAN: Final = pa.bool_()
INT: Final = pa.int32()
BIGINT: Final = pa.int64()
FLOAT: Final = pa.float32()
DOUBLE: Final = pa.float64()
STRING: Final = pa.string()
BINARY: Final = pa.binary()
DATE: Final = pa.date32()
TIMESTAMP: Final = pa.timestamp("us")
TIMESTAMP_LTZ: Final = pa.timestamp("us", "UTC")
DAYS: Final = pa.duration("s")
"""Intervals of whole days; values are `timedelta`. Columns have no intervals."""
INTERVAL: Final = pa.duration("us")
"""Intervals of days, hours, minutes, and seconds; values are `timedelta`."""
MONTHS: Final = pa.month_day_nano_interval()
"""Intervals of years and months; values are numbers of months."""

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS: Final = dict(zip(_INTEGERS, (3, 5, 10, 20), strict=True))
_MOST_DIGITS: Final = 38
_LEAST_SCALE: Final = 6
_INTERVAL_WORDS: Final = {DAYS: "INTERVAL DAY", INTERVAL: "INTERVAL DAY TO SECOND", MONTHS: "INTERVAL YEAR TO MONTH"}


def describe_type(dtype: pa.DataType) -> str:
    """Return the word for a type, that of intervals and of NULL among them."""
    return _INTERVAL_WORDS.get(dtype) or type_word(dtype)


def is_integral(dtype: pa.DataType) -> bool:
    """Return whether values are integers of 8 to 64 bits."""
    return dtype in _INTEGERS


def is_numeric(dtype: pa.DataType) -> bool:
    """Return whether values are numbers."""
    return dtype in _INTEGERS or dtype in (FLOAT, DOUBLE) or types.is_decimal128(dtype)


def is_timestamp(dtype: pa.DataType) -> bool:
    """Return whether values are timestamps, with or without a time zone."""
    return dtype in (TIMESTAMP, TIMESTAMP_LTZ)


def is_moment(dtype: pa.DataType) -> bool:
    """Return whether values are dates or timestamps."""
    return is_timestamp(dtype) or bool(dtype == DATE)


def is_interval(dtype: pa.DataType) -> bool:
    """Return whether values are intervals."""
    return dtype in _INTERVAL_WORDS


def is_binary(dtype: pa.DataType) -> bool:
    """Return whether values are bytes."""
    return bool(dtype == BINARY or types.is_fixed_size_binary(dtype))


def decimal_of(dtype: pa.DataType, constant: Any = None) -> pa.DataType:
    """Return the DECIMAL that holds what an integer or a decimal holds.

    Args:
        dtype: the type.
        constant: the value, if it is known: an integer then has its own digits, and not all of its type.

    Example:
        >>> decimal_of(pa.int32()), decimal_of(pa.int32(), 25)
        (Decimal128Type(decimal128(10, 0)), Decimal128Type(decimal128(2, 0)))
    """
    if types.is_decimal128(dtype):
        return dtype
    return pa.decimal128(_DIGITS[dtype] if constant is None else len(str(abs(constant))), 0)


def bound_decimal(precision: int, scale: int) -> pa.DataType:
    """Return the type of a result: with more than 38 digits, it keeps those before the point, and 6 behind it."""
    if precision <= _MOST_DIGITS:
        return pa.decimal128(max(precision, 1), scale)
    before = precision - scale
    return pa.decimal128(_MOST_DIGITS, max(_MOST_DIGITS - before, min(scale, _LEAST_SCALE)))


def decimal_result(symbol: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the type of two decimals combined by `+`, `-`, `*`, `/` or `%`."""
    before = left.precision - left.scale, right.precision - right.scale
    scale = max(left.scale, right.scale)
    if symbol in ("+", "-"):
        return bound_decimal(max(before) + scale + 1, scale)
    if symbol == "*":
        return bound_decimal(left.precision + right.precision + 1, left.scale + right.scale)
    if symbol == "%":
        return bound_decimal(min(before) + scale, scale)
    scale = max(6, left.scale + right.precision + 1)
    return bound_decimal(before[0] + right.scale + scale, scale)


def sum_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of the sum of numbers of a type."""
    if types.is_decimal128(dtype):
        return bound_decimal(min(dtype.precision + 10, _MOST_DIGITS), dtype.scale)
    return BIGINT if is_integral(dtype) else DOUBLE


def average_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of the mean of numbers of a type."""
    if types.is_decimal128(dtype):
        return bound_decimal(min(dtype.precision + 4, _MOST_DIGITS), min(dtype.scale + 4, _MOST_DIGITS))
    return DOUBLE


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that values of two types have in common, as in CASE, COALESCE, IN and set operations.

    Returns:
        The type, or None if there is none.

    Example:
        >>> common_type(pa.int32(), pa.decimal128(5, 2)), common_type(pa.int64(), pa.float32())
        (Decimal128Type(decimal128(12, 2)), DataType(double))
    """
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if is_numeric(a) and is_numeric(b):
        return _common_number(a, b)
    if STRING in (a, b):
        return _type_beside_string(b if a == STRING else a)
    if is_binary(a) and is_binary(b):
        return BINARY
    if a in (DAYS, INTERVAL) and b in (DAYS, INTERVAL):
        return INTERVAL
    if is_moment(a) and is_moment(b):
        return TIMESTAMP_LTZ if TIMESTAMP_LTZ in (a, b) else TIMESTAMP
    return _common_nested(a, b)


def common_type_of_all(dtypes: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type that values of all types have in common; None if there is none.

    As in Spark, the order counts next to STRING, which takes the type of its neighbour.

    Example:
        >>> common_type_of_all([pa.int32(), pa.string(), pa.decimal128(10, 2)])
        Decimal128Type(decimal128(22, 2))
        >>> common_type_of_all([pa.int32(), pa.decimal128(10, 2), pa.string()])
        DataType(double)
    """
    return reduce(lambda a, b: None if a is None else common_type(a, b), dtypes, NULL)


def _common_number(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if types.is_decimal128(a) or types.is_decimal128(b):
        if a in (FLOAT, DOUBLE) or b in (FLOAT, DOUBLE):
            return DOUBLE
        one, other = decimal_of(a), decimal_of(b)
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale
        beyond = max(precision - _MOST_DIGITS, 0)
        return pa.decimal128(precision - beyond, max(scale - beyond, 0))
    if is_integral(a) and is_integral(b):
        return max(a, b, key=_INTEGERS.index)
    # An integer next to a FLOAT would lose digits.
    return DOUBLE


def _type_beside_string(dtype: pa.DataType) -> pa.DataType | None:
    if is_integral(dtype):
        return BIGINT
    if is_numeric(dtype):
        return DOUBLE
    return None if types.is_nested(dtype) or is_interval(dtype) else dtype


def _common_nested(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if types.is_list(a) and types.is_list(b):
        item = _common_field(a.value_field, b.value_field)
        return None if item is None else pa.list_(item)
    if types.is_map(a) and types.is_map(b):
        key, item = common_key(a.key_type, b.key_type), _common_field(a.item_field, b.item_field)
        return None if key is None or item is None else pa.map_(key, item)
    if types.is_struct(a) and types.is_struct(b) and _field_names(a) == _field_names(b):
        fields = [_common_field(one, other) for one, other in zip(a, b, strict=True)]
        return pa.struct(fields) if all(fields) else None
    return None


def common_key(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that keys of two maps have in common, or None: a string that is cast to it might be NULL."""
    key = common_type(a, b)
    return None if STRING in (a, b) and key not in (STRING, BINARY) else key


def _common_field(a: pa.Field, b: pa.Field) -> pa.Field | None:
    dtype = common_type(a.type, b.type)
    return None if dtype is None else pa.field(a.name, dtype, nullable=a.nullable or b.nullable)


def _field_names(dtype: pa.DataType) -> list[str]:
    return [field.name.lower() for field in dtype]


def all_comparable(dtypes: Sequence[pa.DataType]) -> bool:
    """Return whether values of the types have an order and can be equal: maps cannot."""
    for dtype in dtypes:
        if types.is_map(dtype):
            return False
        if types.is_nested(dtype) and not all_comparable([dtype.field(n).type for n in range(dtype.num_fields)]):
            return False
    return True


def make_nullable(dtype: pa.DataType) -> pa.DataType:
    """Return a type with all of its parts nullable.

    Example:
        >>> make_nullable(pa.list_(pa.field("item", pa.int32(), nullable=False))) == pa.list_(pa.int32())
        True
    """
    if types.is_list(dtype):
        return pa.list_(make_nullable(dtype.value_type))
    if types.is_map(dtype):
        return pa.map_(dtype.key_type, make_nullable(dtype.item_type))
    if types.is_struct(dtype):
        return pa.struct([pa.field(field.name, make_nullable(field.type)) for field in dtype])
    return dtype


def may_cast_silently(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether an argument of one type may be given where another type is expected."""
    if source in (target, NULL):
        return True
    if is_numeric(source) and is_numeric(target):
        return True
    if types.is_nested(source) or is_interval(source):
        return False
    if target == STRING:
        return True
    if source == STRING:
        return not types.is_nested(target) and not is_interval(target)
    if is_moment(source) and is_moment(target):
        return True
    return is_binary(source) and is_binary(target)


def can_store(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether values of a type go to a column of another one without a cast in the text, as Spark stores them.

    Example:
        >>> can_store(pa.int64(), pa.int32()), can_store(pa.string(), pa.int32())
        (True, False)
    """
    if source in (target, NULL) or (is_numeric(source) and is_numeric(target)):
        return True
    if types.is_list(source) and types.is_list(target):
        return can_store(source.value_type, target.value_type)
    if types.is_map(source) and types.is_map(target):
        return can_store(source.key_type, target.key_type) and can_store(source.item_type, target.item_type)
    if types.is_struct(source) and types.is_struct(target) and source.num_fields == target.num_fields:
        return all(can_store(one.type, other.type) for one, other in zip(source, target, strict=True))
    if target == STRING:
        return not types.is_nested(source) and not is_interval(source)
    if is_binary(source) and is_binary(target):
        return True
    return is_moment(source) and is_moment(target)
