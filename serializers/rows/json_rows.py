"""Rows of a schema as values of a topic, in JSON."""

import base64
import datetime
import decimal
import math
from collections.abc import Mapping
from typing import Any

import orjson

from streamrt.errors import SchemaMismatchError, SerializationError
from streamrt.schema import RowCheck, Schema
from streamrt.schema.types import has_floats
from streamrt.serializers.base import (
    BoundDeserializer,
    BoundSerializer,
    Deserializer,
    MessageField,
    SerializationContext,
    Serializer,
)

__all__ = ["RowDeserializer", "RowSerializer", "json_value", "name_infinite", "write_json"]

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_NON_STR_KEYS


class RowSerializer(Serializer):
    """Writes rows of a schema as JSON objects.

    Dates and times are strings in ISO 8601 (`TIMESTAMP_LTZ` ends with `Z`), decimals strings, bytes base64, and keys of
    maps strings. Numbers that JSON does not have are the strings `NaN`, `Infinity` and `-Infinity`, as Spark and Flink write
    them.

    Args:
        schema: what rows must fit.

    Raises:
        SerializationError: by a row that does not fit: the message names column, type and rule, and no value.

    Example:
        >>> from streamrt.schema import Schema
        >>> from streamrt.serializers import MessageField
        >>> serialize = RowSerializer(Schema("id BIGINT NOT NULL, price DECIMAL(10, 2), at TIMESTAMP_LTZ"))
        >>> serialize([7, "9.5", "2026-03-29T10:00:00+02:00"], SerializationContext("orders", MessageField.VALUE))
        b'{"id":7,"price":"9.50","at":"2026-03-29T08:00:00Z"}'
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._floats = [each for each in schema.fields if has_floats(each.dtype)]

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes:  # noqa: D102
        return self._write_row(value, None)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        return self._write_row

    def _write_row(self, value: Any, headers: Any) -> bytes:
        try:
            row = self.schema.check(value)
        except SchemaMismatchError as error:
            raise SerializationError(str(error)) from None
        return self.write(row)

    def write(self, row: Mapping[str, Any]) -> bytes:
        """Return a row that `Schema.check` has returned as JSON.

        Raises:
            SerializationError: if JSON cannot carry it.
        """
        named = {each.name: name_infinite(row[each.name]) for each in self._floats if not _is_finite(row[each.name])}
        try:
            return write_json({**row, **named} if named else row)
        except orjson.JSONEncodeError as error:
            raise SerializationError(str(error)) from None


class RowDeserializer(Deserializer):
    """Reads rows of a schema from JSON objects.

    Columns that an object does not have get their default, or None; what it has besides the columns is left out, so that a
    newer program may write more. A `STRING` column holds the JSON of a value that is not text.

    Args:
        schema: what rows must fit.

    Raises:
        SerializationError: by bytes that are not a JSON object, or a row that does not fit.

    Example:
        >>> from streamrt.schema import Schema
        >>> from streamrt.serializers import MessageField
        >>> deserialize = RowDeserializer(Schema("id BIGINT NOT NULL, price DECIMAL(10, 2)"))
        >>> deserialize(b'{"id": 7, "price": "9.50", "more": 1}', SerializationContext("orders", MessageField.VALUE))
        {'id': 7, 'price': Decimal('9.50')}
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._rows = RowCheck(schema.fields, from_json=True, decoded=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowDeserializer, (self.schema,)

    def __call__(self, value: bytes, ctx: SerializationContext) -> dict[str, Any]:  # noqa: D102
        return self._read_row(value, None)

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        return self._read_row

    def _read_row(self, value: bytes, headers: Any) -> dict[str, Any]:
        try:
            row = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise SerializationError(f"not JSON: {error.msg} at character {error.pos}") from None
        if not isinstance(row, dict):
            raise SerializationError(f"a row must be a JSON object, not {type(row).__name__}")
        try:
            return self._rows.mapping(row)
        except SchemaMismatchError as error:
            raise SerializationError(str(error)) from None


def write_json(row: Any) -> bytes:
    """Return a checked row as JSON.

    Raises:
        orjson.JSONEncodeError: if JSON does not have it; it is a TypeError.
    """
    return orjson.dumps(row, json_value, _OPTIONS)


def json_value(value: Any) -> str:
    """Return a value of a column that JSON has none for as its text."""
    # orjson itself drops zeros of fractions of a time of day.
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


def name_infinite(value: Any) -> Any:
    """Return a value with the names of the numbers that JSON does not have; orjson writes them as null.

    Example:
        >>> name_infinite([1.5, float("nan"), float("-inf")])
        [1.5, 'NaN', '-Infinity']
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name_infinite(key): name_infinite(each) for key, each in value.items()}
    return list(map(name_infinite, value)) if isinstance(value, list) else value


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values())) and all(map(_is_finite, value))
    return not isinstance(value, list) or all(map(_is_finite, value))
