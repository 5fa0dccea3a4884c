"""Rows of BigQuery: types of columns, and the forms of Python values in JSON."""

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

__all__ = ["RefusedValueError", "column_type", "row_value"]

# `datetime` is a `date`, and `bool` is an `int`.
_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "BOOLEAN"),
    ((int, float, Decimal), "NUMERIC"),
    (str, "STRING"),
    ((bytes, bytearray, memoryview), "BYTES"),
    (datetime, "DATETIME"),
    (date, "DATE"),
    (time, "TIME"),
    ((Mapping, list, tuple), "JSON"),
)


class RefusedValueError(ValueError):
    """A value has no form in a column. The text does not show the value."""


def column_type(value: Any) -> str:
    """Return the type of a new column for a value.

    Args:
        value: the value, not None.

    Raises:
        RefusedValueError: if there is none.

    Example:
        >>> column_type(4.5), column_type([1, 2])
        ('NUMERIC', 'JSON')
    """
    for kinds, name in _TYPES:
        if isinstance(value, kinds):
            return name
    raise RefusedValueError(f"there is no column type for a {type(value).__name__}")


def row_value(value: Any, kind: str) -> Any:
    """Return a value as BigQuery takes it in JSON.

    Args:
        value: the value.
        kind: type of its column.

    Raises:
        RefusedValueError: if it has no form in such a column.

    Example:
        >>> row_value({"a": 1}, "JSON"), row_value(b"ada", "STRING"), row_value(b"ada", "BYTES")
        ('{"a": 1}', 'ada', 'YWRh')
    """
    if kind == "JSON":
        return json.dumps(_plain_value(value), allow_nan=False)
    if kind == "BYTES" and isinstance(value, str):
        value = value.encode(errors="surrogatepass")
    if kind == "STRING" and isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise RefusedValueError("the bytes are not UTF-8, and the column is a STRING") from None
    if kind == "DATETIME" and isinstance(value, datetime) and value.tzinfo is not None:
        # Such a column has no time zone.
        value = value.astimezone(timezone.utc).replace(tzinfo=None)
    return _plain_value(value)


def _plain_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RefusedValueError("the text has no form in UTF-8") from None
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RefusedValueError("the number is not finite")
        return value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise RefusedValueError("a name in it is not text")
        return {name: _plain_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    raise RefusedValueError(f"a {type(value).__name__} has no form in JSON")
