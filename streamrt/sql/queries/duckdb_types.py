"""Names in DuckDB of types of Spark SQL and of columns; `streamrt.sql.expressions.coercion` has which types go together.

Times in UTC are times without a zone in DuckDB: its own type for them needs an extension, and the session is in UTC.
"""

import functools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamrt.sql.expressions.coercion import DAYS, INTERVAL, MONTHS, TIMESTAMP, TIMESTAMP_LTZ

__all__ = ["TypedText", "duckdb_type", "quote", "without_negative_zero"]

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
    **dict.fromkeys((DAYS, INTERVAL, MONTHS), "INTERVAL"),
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
        fields = ", ".join(f"{quote(field.name)} {duckdb_type(field.type)}" for field in dtype)
        return f"STRUCT({fields})"
    return "BLOB"


@functools.cache
def quote(name: str) -> str:
    """Return a name as DuckDB reads it.

    Example:
        >>> quote("a b")
        '"a b"'
    """
    return '"' + name.replace('"', '""') + '"'


def without_negative_zero(value: TypedText) -> str:
    """Return an expression for which -0.0 is 0.0, as it is in Spark where values are equal."""
    return f"({value.sql} + 0.0::DOUBLE)" if pa.types.is_floating(value.dtype) else value.sql
