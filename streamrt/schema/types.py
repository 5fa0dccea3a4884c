"""Types of columns: Arrow's types, and the words for them in DDL.

| word | Arrow | values of rows |
|---|---|---|
| `BOOLEAN` | `bool` | `bool` |
| `TINYINT`, `SMALLINT`, `INT`, `BIGINT` | `int8` to `int64` | `int` |
| `FLOAT`, `DOUBLE` | `float32`, `float64` | `float` |
| `STRING`, `VARCHAR(n)` | `string` | `str` |
| `BINARY`, `BINARY(n)` | `binary`, `fixed_size_binary(n)` | `bytes` |
| `DATE` | `date32` | `datetime.date` |
| `TIME` | `time32("ms")` | `datetime.time` |
| `TIMESTAMP` | `timestamp("us")` | `datetime.datetime` without time zone |
| `TIMESTAMP_LTZ` | `timestamp("us", "UTC")` | `datetime.datetime` in UTC |
| `DECIMAL(p, s)` | `decimal128(p, s)` | `decimal.Decimal` |
| `ARRAY<T>` | `list` | `list` |
| `STRUCT<name: T, ...>` | `struct` | `dict` |
| `MAP<K, V>` | `map` | `dict` |

Elements of lists, values of maps and fields of structs that are never null have `NOT NULL` behind their type:
`ARRAY<INT NOT NULL>`.
"""

from typing import Any

import pyarrow as pa

from streamrt.errors import SchemaError

__all__ = [
    "MAX_LEVELS",
    "SCALARS",
    "can_be_key",
    "checked_name",
    "column_type",
    "has_floats",
    "is_utf8",
    "quoted",
    "type_word",
]

MAX_LEVELS = 30
"""Levels of lists, maps and structs within each other. Avro and Protobuf, and programs that read them, also have limits."""

SCALARS: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"),
}
"""The types without parameters, by their words."""

_WORDS = {dtype: word for word, dtype in SCALARS.items()}
# What Arrow stores in another way, and means the same.
_SAME: dict[pa.DataType, pa.DataType] = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.timestamp("s"): pa.timestamp("us"),
    pa.timestamp("ms"): pa.timestamp("us"),
    pa.time32("s"): pa.time32("ms"),
}


def column_type(dtype: pa.DataType, where: str = "a column") -> pa.DataType:
    """Return the type of a column for a type of Arrow: the type itself, or the one that means the same.

    Args:
        dtype: type of Arrow.
        where: what has the type, for the error.

    Raises:
        SchemaError: if columns cannot have the type.

    Example:
        >>> column_type(pa.large_string())
        DataType(string)
    """
    # Before anything compares or hashes the type, which takes as many calls as it has levels.
    _check_levels(dtype, where)
    return _column_type(dtype, where)


def _column_type(dtype: pa.DataType, where: str) -> pa.DataType:
    dtype = _SAME.get(dtype, dtype)
    if dtype in _WORDS or _is_sized(dtype):
        return dtype
    if pa.types.is_timestamp(dtype) and dtype.tz is not None and dtype.unit != "ns":
        return pa.timestamp("us", "UTC")
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        return pa.list_(_check_nested(dtype.value_field, f"the elements of {where}"))
    if pa.types.is_struct(dtype):
        return pa.struct(_check_fields(dtype, where))
    if pa.types.is_map(dtype):
        key = _check_nested(dtype.key_field, f"the keys of {where}")
        if pa.types.is_nested(key.type):
            raise SchemaError(
                f"{where} has a MAP whose keys are lists, maps or structs, which Python's dicts cannot have"
            )
        return pa.map_(key.type, _check_nested(dtype.item_field, f"the values of {where}"))
    raise SchemaError(f"{where} has the type {dtype}, which columns cannot have; they can have {', '.join(_ALL)}")


def can_be_key(dtype: pa.DataType) -> bool:
    """Return whether equal values of a type have equal bytes, as those of columns of a key must."""
    return not (pa.types.is_floating(dtype) or pa.types.is_nested(dtype))


def has_floats(dtype: pa.DataType) -> bool:
    """Return whether values are floats, or have some in them.

    Example:
        >>> has_floats(pa.list_(pa.float64())), has_floats(pa.int64())
        (True, False)
    """
    nested = (dtype.field(number).type for number in range(dtype.num_fields))
    return pa.types.is_floating(dtype) or any(map(has_floats, nested))


def type_word(dtype: pa.DataType) -> str:
    """Return the word for a type.

    Example:
        >>> type_word(pa.list_(pa.decimal128(10, 2)))
        'ARRAY<DECIMAL(10, 2)>'
    """
    word = _WORDS.get(dtype)
    if word is not None:
        return word
    if pa.types.is_null(dtype):
        return "NULL"
    if pa.types.is_decimal128(dtype):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if pa.types.is_fixed_size_binary(dtype):
        return f"BINARY({dtype.byte_width})"
    if pa.types.is_list(dtype):
        return f"ARRAY<{type_word(dtype.value_type)}{_not_null(dtype.value_field)}>"
    if pa.types.is_map(dtype):
        return f"MAP<{type_word(dtype.key_type)}, {type_word(dtype.item_type)}{_not_null(dtype.item_field)}>"
    fields = ", ".join(f"{quoted(field.name)}: {type_word(field.type)}{_not_null(field)}" for field in dtype)
    return f"STRUCT<{fields}>"


def quoted(name: str) -> str:
    """Return a name as DDL writes it."""
    plain = name.isidentifier() and name.isascii() and name.lower() not in _RESERVED
    return name if plain else "`" + name.replace("`", "``") + "`"


def checked_name(name: Any, where: str) -> str:
    """Return a name of a column or a field.

    Args:
        name: the name.
        where: what has the name, for the error.

    Raises:
        SchemaError: if it is empty, no text, or none that UTF-8 can hold.
    """
    if not isinstance(name, str) or not name:
        raise SchemaError(f"{where} has no name")
    if not is_utf8(name):
        raise SchemaError(f"{where} has a name that UTF-8 cannot hold")
    return name


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can hold a text: halves of surrogate pairs it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_levels(dtype: pa.DataType, where: str) -> None:
    level, here = 0, [dtype]
    while here:
        here = [each.field(number).type for each in here for number in range(each.num_fields)]
        level += 1
        if level > MAX_LEVELS + 1 or len(here) > _MAX_FIELDS:
            raise SchemaError(
                f"{where} has a type with more than {MAX_LEVELS} levels of lists, maps and structs, or {_MAX_FIELDS} fields"
            )


def _check_fields(dtype: pa.DataType, where: str) -> list[pa.Field]:
    if not dtype.num_fields:
        raise SchemaError(f"{where} has a STRUCT without fields, which has no values")
    names: set[str] = set()
    fields = []
    for field in dtype:
        checked_name(field.name, f"a field of {where}")
        if field.name in names:
            raise SchemaError(f"{where} has a STRUCT with the field {field.name!r} twice")
        names.add(field.name)
        fields.append(_check_nested(field, f"field {field.name!r} of {where}"))
    return fields


def _check_nested(field: pa.Field, where: str) -> pa.Field:
    return field.with_type(_column_type(field.type, where)).remove_metadata()


def _is_sized(dtype: pa.DataType) -> bool:
    is_decimal = pa.types.is_decimal128(dtype) and 0 <= dtype.scale <= dtype.precision
    return bool(is_decimal or (pa.types.is_fixed_size_binary(dtype) and dtype.byte_width > 0))


def _not_null(field: pa.Field) -> str:
    return "" if field.nullable else " NOT NULL"


# Words that readers of SQL take for something else than a name.
_RESERVED_WORDS = """
    alter and any as between case connect_by_root constraint create cross current_date current_timestamp current_user distinct
    drop else except exclude false fetch for from glob grant having ilike inner insert intersect into join lateral like minus
    not notnull null on or outer partitioned_by qualify regexp returning revoke rlike rollback select serdeproperties
    session_user tablesample then true uncache union unique using values when where with xor
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())
_MAX_FIELDS = 10_000
_ALL = [*SCALARS, "VARCHAR(n)", "BINARY(n)", "DECIMAL(p, s)", "ARRAY<>", "STRUCT<>", "MAP<>"]
