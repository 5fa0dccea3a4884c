"""Protobuf serializers."""

from streamrt.serializers.protobuf import ProtobufDeserializer, ProtobufSerializer

__all__ = ["ProtobufDeserializer", "ProtobufSerializer"]
