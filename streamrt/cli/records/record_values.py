"""Keys, values, times and headers of records as text: what `produce` reads and `consume` prints."""

import base64
import binascii
from collections.abc import Callable
from datetime import datetime, timezone
from enum import Enum
from typing import Any

import orjson
import typer

from streamrt.errors import SerializationError

__all__ = [
    "KeyFormat",
    "ReadFormat",
    "WriteFormat",
    "decode",
    "encode",
    "json_form",
    "parse_header",
    "parse_time_ms",
    "stored_form",
]


class _Format(str, Enum):
    @property
    def needs_schema(self) -> bool:
        """Whether bytes of this format have a schema, without which they are neither read nor written."""
        return self.value in ("avro", "json-schema", "protobuf")


class ReadFormat(_Format):
    """How `consume` shows bytes."""

    auto = "auto"
    json = "json"
    string = "string"
    hex = "hex"
    base64 = "base64"
    avro = "avro"
    json_schema = "json-schema"
    protobuf = "protobuf"


class WriteFormat(_Format):
    """Formats that `produce` is given, and writes."""

    string = "string"
    json = "json"
    bytes = "bytes"
    records = "records"
    avro = "avro"
    json_schema = "json-schema"
    protobuf = "protobuf"


class KeyFormat(str, Enum):
    """The formats of a key that `produce` is given."""

    string = "string"
    json = "json"
    avro = "avro"
    json_schema = "json-schema"
    protobuf = "protobuf"


_DECODERS: dict[str, Callable[[str], bytes]] = {
    "string": str.encode,
    "hex": bytes.fromhex,
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def decode(data: bytes, read_format: ReadFormat) -> tuple[str, str]:
    r"""Return bytes as text, and the name of the format that the text has.

    Args:
        data: the bytes of a key, value or header.
        read_format: the wanted format, without those that need a schema; "auto" is JSON, or text, or hexadecimal
            digits, whichever the bytes are first.

    Raises:
        SerializationError: if the bytes do not have the format.

    Example:
        >>> decode(b'{"a": 1}', ReadFormat.auto), decode(b"ann", ReadFormat.auto), decode(b"\xff", ReadFormat.auto)
        (('{"a": 1}', 'json'), ('ann', 'string'), ('ff', 'hex'))
    """
    if read_format is ReadFormat.hex:
        return data.hex(), "hex"
    if read_format is ReadFormat.base64:
        return base64.b64encode(data).decode(), "base64"
    if read_format is not ReadFormat.string:
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError as error:
            if read_format is ReadFormat.json:
                raise SerializationError(f"it is not JSON: {error}") from None
        else:
            return data.decode(), "json"
    try:
        return data.decode(), "string"
    except UnicodeDecodeError as error:
        if read_format is ReadFormat.string:
            raise SerializationError(f"it is not UTF-8: {error.reason}") from None
    return data.hex(), "hex"


def json_form(text: str, name: str) -> Any:
    """Return decoded bytes as a part of a JSON line.

    Args:
        text: the text of `decode`.
        name: its format.
    """
    if name != "json":
        return text
    # Unchanged, so that numbers keep their digits; but a JSON line must be one line.
    return orjson.loads(text) if "\n" in text or "\r" in text else orjson.Fragment(text)


def stored_form(value: Any, name: str | None) -> bytes | None:
    r"""Return the bytes for a part of a JSON line; the opposite of `json_form`.

    Args:
        value: the part; None has no bytes.
        name: its format: "json", "string", "hex" or "base64". Without it, a text is a string, and anything else JSON.

    Raises:
        SerializationError: if the part does not have the format.

    Example:
        >>> stored_form("ff", "hex"), stored_form("ff", None), stored_form({"a": 1}, None)
        (b'\xff', b'ff', b'{"a":1}')
    """
    if value is None and name != "json":
        return None
    if name is None:
        name = "string" if isinstance(value, str) else "json"
    if name == "json":
        return orjson.dumps(value)
    if name not in _DECODERS:
        raise SerializationError(f"format {name!r} is unknown: use json, string, hex or base64")
    if not isinstance(value, str):
        raise SerializationError(f"a value of format {name} must be a text, not {type(value).__name__}")
    try:
        return _DECODERS[name](value)
    except (ValueError, binascii.Error) as error:
        raise SerializationError(f"it is not {name}: {error}") from None


def encode(text: bytes, write_format: WriteFormat) -> bytes:
    """Return the bytes of one value that a user gives, after a check.

    Args:
        text: what the user gives.
        write_format: its format.

    Raises:
        SerializationError: if it does not have the format.
    """
    try:
        if write_format is WriteFormat.json:
            orjson.loads(text)
        elif write_format is WriteFormat.string:
            text.decode()
    except orjson.JSONDecodeError as error:
        raise SerializationError(f"it is not JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise SerializationError(f"it is not UTF-8: {error.reason}; use --format bytes") from None
    return text


def parse_header(text: str) -> tuple[str, bytes]:
    """Return the name and the value of `--header NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode()


def parse_time_ms(text: str) -> int | None:
    """Return a time in ISO 8601 as milliseconds since the Unix epoch, or None if the text is not such a time.

    Args:
        text: such as `2026-11-23T14:00:00Z`, or `2026-11-23`. Without a zone, it is UTC.

    Example:
        >>> parse_time_ms("2023-11-14T22:13:20.123Z"), parse_time_ms("1970-01-02"), parse_time_ms("soon")
        (1700000000123, 86400000, None)
    """
    # Python 3.10 knows neither Z nor fractions of other than 3 or 6 digits.
    try:
        moment = datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)
