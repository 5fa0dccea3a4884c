"""The contract of serializers."""

from streamrt.serializers.base import (
    Deserializer,
    DeserializerType,
    MessageField,
    SerializationContext,
    Serializer,
    SerializerType,
)

__all__ = ["Deserializer", "DeserializerType", "MessageField", "SerializationContext", "Serializer", "SerializerType"]
