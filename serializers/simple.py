"""Serializers of single values: bytes, strings, integers and doubles, as the Java clients write them."""

import struct
from typing import Any

from streamrt.errors import SerializationError, argument_error
from streamrt.records import Headers
from streamrt.serializers.base import (
    BoundDeserializer,
    BoundSerializer,
    Deserializer,
    MessageField,
    SerializationContext,
    Serializer,
)

_INT = struct.Struct(">i")
_DOUBLE = struct.Struct(">d")


class BytesSerializer(Serializer):
    """Passes bytes and None through unchanged; copies other bytes-like objects and writes strings as UTF-8.

    Raises:
        SerializationError: if the value is neither bytes-like nor a string.
    """

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        return _to_bytes(value, None)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        return _to_bytes


class BytesDeserializer(Deserializer):
    """Passes bytes through unchanged."""

    def __call__(self, value: bytes, ctx: SerializationContext) -> bytes:  # noqa: D102
        return value

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        return _return_bytes


class StringSerializer(Serializer):
    """Encodes strings.

    Args:
        codec: name of a Python text encoding.

    Raises:
        ConfigurationError: if the encoding does not exist.
    """

    def __init__(self, codec: str = "utf_8") -> None:
        self._codec = _text_codec(codec)

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        return StringSerializer.bind(self, ctx.topic, ctx.field)(value, ctx.headers)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        codec = self._codec

        def serialize(value: Any, headers: Headers | None) -> bytes | None:
            if value is None:
                return None
            if not isinstance(value, str):
                raise SerializationError(_wrong_type("string", value))
            try:
                return value.encode(codec)
            except UnicodeError as error:
                raise SerializationError(f"the string cannot be encoded: {error}") from error

        return serialize


class StringDeserializer(Deserializer):
    """Decodes strings.

    Args:
        codec: name of a Python text encoding.

    Raises:
        ConfigurationError: if the encoding does not exist.
    """

    def __init__(self, codec: str = "utf_8") -> None:
        self._codec = _text_codec(codec)

    def __call__(self, value: bytes, ctx: SerializationContext) -> str:  # noqa: D102
        text: str = StringDeserializer.bind(self, ctx.topic, ctx.field)(value, ctx.headers)
        return text

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        codec = self._codec

        def deserialize(value: bytes, headers: Headers | None) -> str:
            try:
                return value.decode(codec)
            except UnicodeError as error:
                raise SerializationError(f"the bytes are not {codec} text: {error}") from error

        return deserialize


class IntegerSerializer(Serializer):
    """Writes integers as 4 bytes, big-endian, signed."""

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        return _pack_int(value, None)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        return _pack_int


class IntegerDeserializer(Deserializer):
    """Reads integers of 4 bytes, big-endian, signed."""

    def __call__(self, value: bytes, ctx: SerializationContext) -> int:  # noqa: D102
        return _unpack_int(value, None)

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        return _unpack_int


class DoubleSerializer(Serializer):
    """Writes floats and integers as 8 bytes, big-endian IEEE 754."""

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        return _pack_double(value, None)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        return _pack_double


class DoubleDeserializer(Deserializer):
    """Reads floats of 8 bytes, big-endian IEEE 754."""

    def __call__(self, value: bytes, ctx: SerializationContext) -> float:  # noqa: D102
        return _unpack_double(value, None)

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        return _unpack_double


def _text_codec(name: str) -> str:
    try:
        # Test by encoding, also for deserializers: decoding an empty value succeeds with any name.
        "".encode(name)
    except (LookupError, TypeError, UnicodeError):
        raise argument_error(
            f"{name!r} is not a text encoding of Python: give one such as 'utf_8'", of_type=isinstance(name, str)
        ) from None
    return name


def _wrong_type(wanted: str, value: object) -> str:
    return f"the {wanted} serializer got a {type(value).__name__}"


def _return_bytes(value: bytes, headers: Headers | None) -> bytes:
    return value


def _to_bytes(value: Any, headers: Headers | None) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeError as error:
            raise SerializationError(f"the string cannot be encoded: {error}") from error
    raise SerializationError(_wrong_type("bytes", value))


def _pack_int(value: Any, headers: Headers | None) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, int):
        raise SerializationError(_wrong_type("int", value))
    try:
        return _INT.pack(value)
    except struct.error as error:
        raise SerializationError(f"{value} does not fit into 4 signed bytes") from error


def _unpack_int(value: bytes, headers: Headers | None) -> int:
    try:
        result: int = _INT.unpack(value)[0]
    except struct.error as error:
        raise SerializationError(f"an int has 4 bytes, got {len(value)}") from error
    return result


def _pack_double(value: Any, headers: Headers | None) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise SerializationError(_wrong_type("double", value))
    try:
        return _DOUBLE.pack(value)
    except (struct.error, OverflowError) as error:
        raise SerializationError(f"{value} does not fit into a double") from error


def _unpack_double(value: bytes, headers: Headers | None) -> float:
    try:
        result: float = _DOUBLE.unpack(value)[0]
    except struct.error as error:
        raise SerializationError(f"a double has 8 bytes, got {len(value)}") from error
    return result
