"""Exceptions of serializers."""

from streamrt.errors import (
    IgnoreMessage,
    KeyDeserializationError,
    KeySerializationError,
    SerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)

__all__ = [
    "IgnoreMessage",
    "KeyDeserializationError",
    "KeySerializationError",
    "SerializationError",
    "ValueDeserializationError",
    "ValueSerializationError",
]
