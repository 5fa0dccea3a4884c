"""Values of Avro as JSON that people read and write, in both directions: the command `streamrt` uses it.

This is not Avro's own JSON encoding, which names the branches of unions and has bytes as text.
"""

import uuid
from collections.abc import Callable, Mapping
from datetime import timezone
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import orjson

from streamrt.errors import SerializationError
from streamrt.schema.iso8601 import parse_date, parse_datetime, parse_time

if TYPE_CHECKING:
    from streamrt.serializers.avro.compiled_schema import AvroSchema

__all__ = ["AvroValues", "shown_json"]

_NUMBERS = frozenset({"int", "long", "float", "double"})


def _read_instant(text: str) -> Any:
    moment = parse_datetime(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


_OF_TEXT: dict[str, tuple[str, Callable[[str], Any]]] = {
    "decimal": ("a decimal number", Decimal),
    "date": ("a date in ISO 8601", parse_date),
    "time-millis": ("a time in ISO 8601", parse_time),
    "time-micros": ("a time in ISO 8601", parse_time),
    "timestamp-millis": ("a time in ISO 8601", _read_instant),
    "timestamp-micros": ("a time in ISO 8601", _read_instant),
    "local-timestamp-millis": ("a time in ISO 8601", parse_datetime),
    "local-timestamp-micros": ("a time in ISO 8601", parse_datetime),
    "uuid": ("a UUID", uuid.UUID),
}
_HEX = ("hexadecimal digits", bytes.fromhex)


def shown_json(value: Any) -> str:
    r"""Return a value that a deserializer has read, as JSON.

    Bytes are hexadecimal digits, and decimal numbers strings; dates and times are in ISO 8601.

    Args:
        value: the value.

    Example:
        >>> shown_json({"price": Decimal("12.50"), "photo": b"\xca\xfe"})
        '{"price":"12.50","photo":"cafe"}'
    """
    return orjson.dumps(value, default=lambda part: part.hex() if isinstance(part, bytes) else str(part)).decode()


class AvroValues:
    r"""Makes values of one schema from JSON.

    Bytes are hexadecimal digits; decimal numbers are strings or numbers; dates and times are in ISO 8601, or the numbers that
    Avro has for them. The first branch of a union that a value fits is taken. Whether a value follows the schema is
    checked when it is written.

    Args:
        schema: the schema, compiled.

    Example:
        >>> from streamrt.serializers.avro.compiled_schema import compile_schema
        >>> AvroValues(compile_schema(["null", {"type": "bytes", "logicalType": "decimal", "precision": 6}])).of("12.50")
        Decimal('12.50')
        >>> AvroValues(compile_schema({"type": "array", "items": "bytes"})).of(["cafe"])
        [b'\xca\xfe']
    """

    def __init__(self, schema: "AvroSchema") -> None:
        self._schema = schema.parsed
        self._named = schema.named

    def of(self, value: Any) -> Any:
        """Return the value for a JSON value.

        Raises:
            SerializationError: if a text has not the form that its type needs.
        """
        return self._convert_value(self._schema, value)

    def _convert_value(self, declared: Any, value: Any) -> Any:
        declared = self._resolve_type(declared)
        if isinstance(declared, list):
            branch = next((each for each in declared if self._fits_type(each, value)), None)
            return value if branch is None else self._convert_value(branch, value)
        kind = declared["type"]
        if kind in ("record", "error") and isinstance(value, Mapping):
            types = {field["name"]: field["type"] for field in declared["fields"]}
            return {
                name: self._convert_value(types[name], each) if name in types else each for name, each in value.items()
            }
        if kind == "array" and isinstance(value, list):
            return [self._convert_value(declared["items"], each) for each in value]
        if kind == "map" and isinstance(value, Mapping):
            return {name: self._convert_value(declared["values"], each) for name, each in value.items()}
        form = _string_form(declared)
        if form is None:
            return value
        what, parse = form
        if isinstance(value, int | float) and not isinstance(value, bool) and parse is Decimal:
            return Decimal(str(value))
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except (ValueError, InvalidOperation):
            raise SerializationError(f"{value!r} is not {what}") from None

    def _fits_type(self, declared: Any, value: Any) -> bool:
        """Return whether a JSON value may be meant for a branch of a union."""
        declared = self._resolve_type(declared)
        if isinstance(declared, list):
            return any(self._fits_type(each, value) for each in declared)
        kind, form = declared["type"], _string_form(declared)
        if value is None or kind == "null":
            return value is None and kind == "null"
        if isinstance(value, bool) or kind == "boolean":
            return isinstance(value, bool) and kind == "boolean"
        if isinstance(value, int):
            return kind in _NUMBERS or (form is not None and form[1] is Decimal)
        if isinstance(value, float):
            return kind in ("float", "double") or (form is not None and form[1] is Decimal)
        if isinstance(value, str):
            return self._fits_text(declared, value)
        if isinstance(value, list):
            return bool(kind == "array")
        if kind in ("record", "error"):
            fields = {field["name"]: field for field in declared["fields"]}
            missing = [name for name, field in fields.items() if name not in value and "default" not in field]
            return not missing and all(
                name in fields and self._fits_type(fields[name]["type"], each) for name, each in value.items()
            )
        return bool(kind == "map") and all(self._fits_type(declared["values"], each) for each in value.values())

    def _fits_text(self, declared: Any, value: str) -> bool:
        kind, form = declared["type"], _string_form(declared)
        if kind == "enum":
            return value in declared["symbols"]
        if form is None:
            return bool(kind == "string")
        try:
            form[1](value)
        except (ValueError, InvalidOperation):
            return False
        return True

    def _resolve_type(self, declared: Any) -> Any:
        """Return a type as a dict with a name for its type, or a union as a list."""
        while True:
            if isinstance(declared, str):
                declared = self._named.get(declared, {"type": declared})
            elif isinstance(declared, Mapping) and not isinstance(declared["type"], str):
                declared = declared["type"]
            elif isinstance(declared, Mapping) and declared["type"] in self._named and "name" not in declared:
                declared = self._named[declared["type"]]
            else:
                return declared


def _string_form(declared: Mapping[str, Any]) -> tuple[str, Callable[[str], Any]] | None:
    """Return what a text of a type must be, and the function that reads it; None if a text is a text."""
    kind, logical = declared["type"], declared.get("logicalType")
    if kind in ("record", "error", "array", "map", "enum", "null", "boolean"):
        return None
    if logical in _OF_TEXT:
        return _OF_TEXT[logical]
    return _HEX if kind in ("bytes", "fixed") else None
