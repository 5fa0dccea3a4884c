"""JSON, as `streamrt consume --format avro` shows it, as values that Avro is written from."""

import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timezone
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from streamrt.errors import SerializationError

if TYPE_CHECKING:
    from streamrt.serializers.avro_schema import AvroSchema

__all__ = ["AvroValues"]

_NUMBERS = frozenset({"int", "long", "float", "double"})


def _moment(text: str) -> datetime:
    # Python 3.10 does not know Z.
    moment = datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


_OF_TEXT: dict[str, tuple[str, Callable[[str], Any]]] = {
    "decimal": ("a decimal number", Decimal),
    "date": ("a date in ISO 8601", date.fromisoformat),
    "time-millis": ("a time in ISO 8601", time.fromisoformat),
    "time-micros": ("a time in ISO 8601", time.fromisoformat),
    "timestamp-millis": ("a time in ISO 8601", _moment),
    "timestamp-micros": ("a time in ISO 8601", _moment),
    "local-timestamp-millis": ("a time in ISO 8601", datetime.fromisoformat),
    "local-timestamp-micros": ("a time in ISO 8601", datetime.fromisoformat),
    "uuid": ("a UUID", uuid.UUID),
}
_HEX = ("hexadecimal digits", bytes.fromhex)


class AvroValues:
    r"""Makes values of one schema from JSON.

    Bytes are hexadecimal digits; decimal numbers are texts or numbers; dates and times are in ISO 8601, or the numbers that
    Avro has for them. The first branch of a union that a value fits is taken. Whether a value follows the schema is
    checked when it is written.

    Args:
        schema: the schema, compiled.

    Example:
        >>> from streamrt.serializers.avro_schema import compile_schema
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
        return self._convert(self._schema, value)

    def _convert(self, declared: Any, value: Any) -> Any:
        declared = self._resolved(declared)
        if isinstance(declared, list):
            branch = next((each for each in declared if self._fits(each, value)), None)
            return value if branch is None else self._convert(branch, value)
        kind = declared["type"]
        if kind in ("record", "error") and isinstance(value, Mapping):
            types = {field["name"]: field["type"] for field in declared["fields"]}
            return {name: self._convert(types[name], each) if name in types else each for name, each in value.items()}
        if kind == "array" and isinstance(value, list):
            return [self._convert(declared["items"], each) for each in value]
        if kind == "map" and isinstance(value, Mapping):
            return {name: self._convert(declared["values"], each) for name, each in value.items()}
        form = _form(declared)
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

    def _fits(self, declared: Any, value: Any) -> bool:
        """Return whether a JSON value may be meant for a branch of a union."""
        declared = self._resolved(declared)
        if isinstance(declared, list):
            return any(self._fits(each, value) for each in declared)
        kind, form = declared["type"], _form(declared)
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
                name in fields and self._fits(fields[name]["type"], each) for name, each in value.items()
            )
        return bool(kind == "map") and all(self._fits(declared["values"], each) for each in value.values())

    def _fits_text(self, declared: Any, value: str) -> bool:
        kind, form = declared["type"], _form(declared)
        if kind == "enum":
            return value in declared["symbols"]
        if form is None:
            return bool(kind == "string")
        try:
            form[1](value)
        except (ValueError, InvalidOperation):
            return False
        return True

    def _resolved(self, declared: Any) -> Any:
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


def _form(declared: Mapping[str, Any]) -> tuple[str, Callable[[str], Any]] | None:
    """Return what a text of a type must be, and the function that reads it; None if a text is a text."""
    kind, logical = declared["type"], declared.get("logicalType")
    if kind in ("record", "error", "array", "map", "enum", "null", "boolean"):
        return None
    if logical in _OF_TEXT:
        return _OF_TEXT[logical]
    return _HEX if kind in ("bytes", "fixed") else None
