"""Plain data types used throughout StreamRT: records, their metadata, partitions and offsets.

Topics and serializers are available here, too, as in Quix Streams. They belong to upper layers, and are imported on
use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from streamrt.models.headers import Headers, HeadersMapping, HeaderValue, merge_headers
from streamrt.models.partitions import OffsetRange, TopicPartition
from streamrt.models.record import ConsumedMessage, MessageContext, RawRecord, Record
from streamrt.models.record import Record as Row
from streamrt.models.tick import Tick
from streamrt.models.timestamps import MessageTimestamp, TimestampType

if TYPE_CHECKING:
    from streamrt.kafka import (
        TopicAdmin,
        TopicConfig,
    )
    from streamrt.serializers import (
        AvroDeserializer,
        AvroSerializer,
        BytesDeserializer,
        BytesSerializer,
        Deserializer,
        DeserializerType,
        DoubleDeserializer,
        DoubleSerializer,
        IgnoreMessage,
        IntegerDeserializer,
        IntegerSerializer,
        JSONDeserializer,
        JSONSerializer,
        MessageField,
        ProtobufDeserializer,
        ProtobufSerializer,
        QuixDeserializer,
        QuixEventsSerializer,
        QuixSerializer,
        QuixTimeseriesSerializer,
        SchemaRegistryClientConfig,
        SchemaRegistrySerializationConfig,
        SerializationContext,
        SerializationError,
        Serializer,
        SerializerType,
        StringDeserializer,
        StringSerializer,
    )
    from streamrt.topics import (
        KafkaMessage,
        Topic,
        TopicManager,
    )

_HOMES = {
    "AvroDeserializer": "streamrt.serializers",
    "AvroSerializer": "streamrt.serializers",
    "BytesDeserializer": "streamrt.serializers",
    "BytesSerializer": "streamrt.serializers",
    "Deserializer": "streamrt.serializers",
    "DeserializerType": "streamrt.serializers",
    "DoubleDeserializer": "streamrt.serializers",
    "DoubleSerializer": "streamrt.serializers",
    "IgnoreMessage": "streamrt.serializers",
    "IntegerDeserializer": "streamrt.serializers",
    "IntegerSerializer": "streamrt.serializers",
    "JSONDeserializer": "streamrt.serializers",
    "JSONSerializer": "streamrt.serializers",
    "KafkaMessage": "streamrt.topics",
    "MessageField": "streamrt.serializers",
    "ProtobufDeserializer": "streamrt.serializers",
    "ProtobufSerializer": "streamrt.serializers",
    "QuixDeserializer": "streamrt.serializers",
    "QuixEventsSerializer": "streamrt.serializers",
    "QuixSerializer": "streamrt.serializers",
    "QuixTimeseriesSerializer": "streamrt.serializers",
    "SchemaRegistryClientConfig": "streamrt.serializers",
    "SchemaRegistrySerializationConfig": "streamrt.serializers",
    "SerializationContext": "streamrt.serializers",
    "SerializationError": "streamrt.serializers",
    "Serializer": "streamrt.serializers",
    "SerializerType": "streamrt.serializers",
    "StringDeserializer": "streamrt.serializers",
    "StringSerializer": "streamrt.serializers",
    "Topic": "streamrt.topics",
    "TopicAdmin": "streamrt.kafka",
    "TopicConfig": "streamrt.kafka",
    "TopicManager": "streamrt.topics",
}

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "ConsumedMessage",
    "Deserializer",
    "DeserializerType",
    "DoubleDeserializer",
    "DoubleSerializer",
    "HeaderValue",
    "Headers",
    "HeadersMapping",
    "IgnoreMessage",
    "IntegerDeserializer",
    "IntegerSerializer",
    "JSONDeserializer",
    "JSONSerializer",
    "KafkaMessage",
    "MessageContext",
    "MessageField",
    "MessageTimestamp",
    "OffsetRange",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "QuixDeserializer",
    "QuixEventsSerializer",
    "QuixSerializer",
    "QuixTimeseriesSerializer",
    "RawRecord",
    "Record",
    "Row",
    "SchemaRegistryClientConfig",
    "SchemaRegistrySerializationConfig",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "SerializerType",
    "StringDeserializer",
    "StringSerializer",
    "Tick",
    "TimestampType",
    "Topic",
    "TopicAdmin",
    "TopicConfig",
    "TopicManager",
    "TopicPartition",
    "merge_headers",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'streamrt.models' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
