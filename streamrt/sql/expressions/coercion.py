"""Which types go together: Spark's rules in ANSI mode (https://spark.apache.org/docs/latest/sql-ref-ansi-compliance.html)."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
from pyarrow import types

from streamrt.schema.types import type_word
from streamrt.sql.expressions.nodes import Constant
from streamrt.sql.expressions.typed import TypedExpression

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
    "bound_decimal",
    "common_type",
    "common_type_of_all",
    "decimal_of",
    "describe_type",
    "is_binary",
    "is_integral",
    "is_interval",
    "is_numeric",
    "is_timestamp",
    "may_cast_silently",
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
    if dtype == NULL:
        return "NULL"
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


def is_interval(dtype: pa.DataType) -> bool:
    """Return whether values are intervals."""
    return dtype in _INTERVAL_WORDS


def is_binary(dtype: pa.DataType) -> bool:
    """Return whether values are bytes."""
    return bool(dtype == BINARY or types.is_fixed_size_binary(dtype))


def decimal_of(node: TypedExpression) -> pa.DataType:
    """Return the DECIMAL that holds what an integer or a decimal holds; for an integer constant, that of its digits."""
    dtype = node.dtype
    if types.is_decimal128(dtype):
        return dtype
    if isinstance(node, Constant) and node.value is not None:
        return pa.decimal128(len(str(abs(node.value))), 0)
    return pa.decimal128(_DIGITS[dtype], 0)


def bound_decimal(precision: int, scale: int) -> pa.DataType:
    """Return the type of a result: with more than 38 digits, it keeps those before the point, and 6 behind it."""
    if precision <= _MOST_DIGITS:
        return pa.decimal128(max(precision, 1), scale)
    before = precision - scale
    return pa.decimal128(_MOST_DIGITS, max(_MOST_DIGITS - before, min(scale, _LEAST_SCALE)))


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
    if (is_timestamp(a) or a == DATE) and (is_timestamp(b) or b == DATE):
        return TIMESTAMP_LTZ if TIMESTAMP_LTZ in (a, b) else TIMESTAMP
    return _common_nested(a, b)


def common_type_of_all(dtypes: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type that values of all types have in common; None if there is none."""
    # Strings come last, as Spark has them: with a number and a date among the others, there is no type anyway.
    ordered = sorted(dtypes, key=lambda dtype: dtype == STRING)
    return reduce(lambda a, b: None if a is None else common_type(a, b), ordered, NULL)


def _common_number(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if types.is_decimal128(a) or types.is_decimal128(b):
        if a in (FLOAT, DOUBLE) or b in (FLOAT, DOUBLE):
            return DOUBLE
        one, other = (each if types.is_decimal128(each) else pa.decimal128(_DIGITS[each], 0) for each in (a, b))
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
        key, item = common_type(a.key_type, b.key_type), _common_field(a.item_field, b.item_field)
        return None if key is None or item is None else pa.map_(key, item)
    if types.is_struct(a) and types.is_struct(b) and _field_names(a) == _field_names(b):
        fields = [_common_field(one, other) for one, other in zip(a, b, strict=True)]
        return None if None in fields else pa.struct(fields)
    return None


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
    if (is_timestamp(source) or source == DATE) and (is_timestamp(target) or target == DATE):
        return True
    return is_binary(source) and is_binary(target)
