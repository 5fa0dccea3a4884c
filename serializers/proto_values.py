"""Dicts for Protobuf: what its JSON parser would take for another value is converted, or refused with the field's name.

The parser decodes any text in a field of bytes leniently, takes the last of two names of one field, and rounds integers in
fields of doubles.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from streamrt.errors import SerializationError

__all__ = ["proto_dict"]

_URL_SAFE: Final = str.maketrans("+/", "-_")
_WRAPPERS: Final = "google.protobuf."
_MAX_DEPTH: Final = 100


def proto_dict(value: Any, descriptor: Any, path: str = "", depth: int = 0) -> Any:
    """Return a value in Protobuf's JSON mapping for `ParseDict`.

    Args:
        value: the value of a message: a dict, or what the JSON mapping has for a well-known type.
        descriptor: the descriptor of the message.
        path: where the value is, for errors.
        depth: nesting depth.

    Raises:
        SerializationError: if a field has no exact form; the error names it, and does not show the value.

    Example:
        >>> from google.protobuf.wrappers_pb2 import BytesValue
        >>> proto_dict(b"abc", BytesValue.DESCRIPTOR)
        'YWJj'
    """
    if depth > _MAX_DEPTH:
        raise _make_refusal(path, f"the value is nested deeper than {_MAX_DEPTH} levels")
    name = descriptor.full_name
    if name.startswith(_WRAPPERS) and name != "google.protobuf.Empty":
        return _well_known(value, descriptor, name.removeprefix(_WRAPPERS), path)
    if not isinstance(value, Mapping):
        return value
    fields = {field.json_name: field for field in descriptor.fields}
    fields |= {field.name: field for field in descriptor.fields}
    found: dict[Any, Any] = {}
    given: dict[int, Any] = {}
    for key, item in value.items():
        field = fields.get(key) if isinstance(key, str) else None
        if field is None:
            # The parser refuses or ignores it.
            found[key] = item
            continue
        if field.number in given:
            raise _make_refusal(
                path, f"{given[field.number]!r} and {key!r} are names of the same field: give one of them"
            )
        given[field.number] = key
        found[key] = None if item is None else _check_field(item, field, f"{path}.{key}", depth)
    return found


def _check_field(value: Any, field: Any, path: str, depth: int) -> Any:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return _check_map(value, message, path, depth)
    if field.is_repeated:
        if isinstance(value, str | bytes | Mapping):
            raise _make_refusal(path, f"a value of type {type(value).__name__} is not a list")
        return [_check_single(item, field, f"{path}[{index}]", depth) for index, item in enumerate(value)]
    return _check_single(value, field, path, depth)


def _check_map(value: Any, entry: Any, path: str, depth: int) -> Any:
    if not isinstance(value, Mapping):
        return value
    key_field, value_field = entry.fields_by_name["key"], entry.fields_by_name["value"]
    is_text = key_field.type == key_field.TYPE_STRING
    found: dict[str, Any] = {}
    for key, item in value.items():
        if is_text and not isinstance(key, str):
            raise _make_refusal(path, f"a key of type {type(key).__name__} is not text")
        name = str(key).lower() if isinstance(key, bool) else str(key)
        if name in found:
            raise _make_refusal(path, f"two keys of the map are {name!r}")
        found[name] = _check_single(item, value_field, f"{path}[{name!r}]", depth)
    return found


def _check_single(value: Any, field: Any, path: str, depth: int) -> Any:
    if field.message_type is not None:
        return proto_dict(value, field.message_type, path, depth + 1)
    if field.type == field.TYPE_BYTES:
        return _check_base64(value, path)
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        return _check_number(value, path)
    return value


def _well_known(value: Any, descriptor: Any, name: str, path: str) -> Any:
    if name in ("BytesValue",):
        return None if value is None else _check_base64(value, path)
    if name in ("DoubleValue", "FloatValue"):
        return _check_number(value, path)
    if name in ("Struct", "Value", "ListValue"):
        _check_plain(value, path, 0)
    return value


def _check_base64(value: Any, path: str) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if not isinstance(value, str):
        raise _make_refusal(path, f"a value of type {type(value).__name__} is neither bytes nor base64 text")
    text = value.translate(_URL_SAFE).rstrip("=")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    # Also bits behind the last byte, which decoders drop.
    if base64.urlsafe_b64encode(data).decode().rstrip("=") != text:
        raise _make_refusal(path, "the text is not base64: give bytes, or text in base64")
    return base64.b64encode(data).decode()


def _check_number(value: Any, path: str) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            exact = int(float(value)) == value
        except OverflowError:
            exact = False
        if not exact:
            raise _make_refusal(path, "a double cannot hold the integer exactly")
    return value


def _check_plain(value: Any, path: str, depth: int) -> None:
    """Check a value of a Struct, whose numbers are doubles."""
    if depth > _MAX_DEPTH:
        raise _make_refusal(path, f"the value is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise _make_refusal(path, f"a key of type {type(key).__name__} is not text")
            _check_plain(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_plain(item, f"{path}[{index}]", depth + 1)
    else:
        _check_number(value, path)


def _make_refusal(path: str, reason: str) -> SerializationError:
    return SerializationError(f"field {path.lstrip('.')!r}: {reason}" if path else reason)
