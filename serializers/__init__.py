"""Serializers and deserializers: from objects to bytes and back, by name or as objects."""

from streamrt.errors import IgnoreMessage, SerializationError
from streamrt.serializers.avro import AvroDeserializer, AvroSerializer
from streamrt.serializers.base import (
    BatchDeserializer,
    BoundDeserializer,
    BoundSerializer,
    Deserializer,
    DeserializerType,
    MessageField,
    SerializationContext,
    Serializer,
    SerializerType,
)
from streamrt.serializers.json import JSONDeserializer, JSONSerializer
from streamrt.serializers.names import DESERIALIZERS, SERIALIZERS, resolve_deserializer, resolve_serializer
from streamrt.serializers.protobuf import ProtobufDeserializer, ProtobufSerializer
from streamrt.serializers.quix import (
    QuixDeserializer,
    QuixEventsSerializer,
    QuixSerializer,
    QuixTimeseriesSerializer,
)
from streamrt.serializers.registry import (
    RegistrySchema,
    SchemaReference,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
)
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
    "DESERIALIZERS",
    "SERIALIZERS",
    "AvroDeserializer",
    "AvroSerializer",
    "BatchDeserializer",
    "BoundDeserializer",
    "BoundSerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "Deserializer",
    "DeserializerType",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IgnoreMessage",
    "IntegerDeserializer",
    "IntegerSerializer",
    "JSONDeserializer",
    "JSONSerializer",
    "MessageField",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "QuixDeserializer",
    "QuixEventsSerializer",
    "QuixSerializer",
    "QuixTimeseriesSerializer",
    "RegistrySchema",
    "SchemaReference",
    "SchemaRegistryClientConfig",
    "SchemaRegistrySerializationConfig",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "SerializerType",
    "StringDeserializer",
    "StringSerializer",
    "resolve_deserializer",
    "resolve_serializer",
]
