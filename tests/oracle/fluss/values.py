"""Values and types of columns as JSON. Both sides use it, so it imports nothing but pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["TYPES", "arrow_schema", "decode", "encode", "type_name"]

TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "binary(3)": pa.binary(3),
    "date": pa.date32(),
    "time": pa.time32("ms"),
    "timestamp": pa.timestamp("us"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "list<int32>": pa.list_(pa.int32()),
    "list<string>": pa.list_(pa.string()),
    "struct": pa.struct([("n", pa.int32()), ("s", pa.string())]),
    "map": pa.map_(pa.string(), pa.int64()),
    "uint8": pa.uint8(),
    "duration": pa.duration("s"),
    "float16": pa.float16(),
    "null": pa.null(),
}
"""Types of columns by the name that cases give them; the last ones are refused."""


def arrow_schema(columns: list[list[Any]]) -> pa.Schema:
    """Return the schema of columns: name, type, and whether it may be null."""
    return pa.schema([pa.field(name, TYPES[word], nullable) for name, word, nullable in columns])


def type_name(dtype: pa.DataType) -> str:
    """Return a type as text: the name that cases give it, if they do."""
    return next((name for name, known in TYPES.items() if known == dtype), str(dtype))


def encode(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, time):
        return {"time": value.isoformat()}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(each)] for key, each in value.items()]}
    if isinstance(value, (list, tuple)):
        return [encode(each) for each in value]
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "decimal": Decimal,
    "bytes": bytes.fromhex,
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "dict": lambda pairs: {decode(key): decode(each) for key, each in pairs},
}


def decode(value: Any) -> Any:
    """Return the value that `encode` was given; tuples are lists."""
    if isinstance(value, dict):
        ((word, content),) = value.items()
        return _READERS[word](content)
    return [decode(each) for each in value] if isinstance(value, list) else value
