"""Types of columns: Arrow's types, and the words for them in DDL texts.

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
"""

import pyarrow as pa

from streamrt.errors import SchemaError

__all__ = ["SCALARS", "column_type", "quoted", "type_word"]

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
    dtype = _SAME.get(dtype, dtype)
    if dtype in _WORDS or _is_sized(dtype):
        return dtype
    if pa.types.is_timestamp(dtype) and dtype.tz is not None and dtype.unit != "ns":
        return pa.timestamp("us", "UTC")
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        return pa.list_(_nested(dtype.value_field, f"the elements of {where}"))
    if pa.types.is_struct(dtype):
        return pa.struct([_nested(field, f"field {field.name!r} of {where}") for field in dtype])
    if pa.types.is_map(dtype):
        key = _nested(dtype.key_field, f"the keys of {where}")
        return pa.map_(key.type, _nested(dtype.item_field, f"the values of {where}"))
    raise SchemaError(f"{where} has the type {dtype}, which columns cannot have; they can have {', '.join(_ALL)}")


def type_word(dtype: pa.DataType) -> str:
    """Return the word for a type.

    Example:
        >>> type_word(pa.list_(pa.decimal128(10, 2)))
        'ARRAY<DECIMAL(10, 2)>'
    """
    word = _WORDS.get(dtype)
    if word is not None:
        return word
    if pa.types.is_decimal128(dtype):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if pa.types.is_fixed_size_binary(dtype):
        return f"BINARY({dtype.byte_width})"
    if pa.types.is_list(dtype):
        return f"ARRAY<{type_word(dtype.value_type)}>"
    if pa.types.is_map(dtype):
        return f"MAP<{type_word(dtype.key_type)}, {type_word(dtype.item_type)}>"
    fields = ", ".join(f"{quoted(field.name)}: {type_word(field.type)}{_not_null(field)}" for field in dtype)
    return f"STRUCT<{fields}>"


def quoted(name: str) -> str:
    """Return a name as DDL texts write it."""
    return name if name.isidentifier() and name.isascii() else "`" + name.replace("`", "``") + "`"


def _nested(field: pa.Field, where: str) -> pa.Field:
    return field.with_type(column_type(field.type, where)).remove_metadata()


def _is_sized(dtype: pa.DataType) -> bool:
    is_decimal = pa.types.is_decimal128(dtype) and 0 <= dtype.scale <= dtype.precision
    return bool(is_decimal or pa.types.is_fixed_size_binary(dtype))


def _not_null(field: pa.Field) -> str:
    return "" if field.nullable else " NOT NULL"


_ALL = [*SCALARS, "VARCHAR(n)", "BINARY(n)", "DECIMAL(p, s)", "ARRAY<>", "STRUCT<>", "MAP<>"]
