"""Serializers of bytes, strings and numbers."""

from streamrt.serializers.simple import (
    BytesDeserializer,
    BytesSerializer,
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    StringDeserializer,
    StringSerializer,
)

__all__ = [
    "BytesDeserializer",
    "BytesSerializer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "StringDeserializer",
    "StringSerializer",
]
