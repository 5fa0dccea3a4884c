"""The serializer whose output the key deserializer of a topic reads."""

from collections.abc import Mapping

from streamrt.serializers import (
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JSONDeserializer,
    JSONSerializer,
    Serializer,
    StringDeserializer,
    StringSerializer,
)
from streamrt.topics.topic import Topic

__all__ = ["find_key_serializer"]

_COUNTERPARTS: Mapping[type, type[Serializer]] = {
    StringDeserializer: StringSerializer,
    IntegerDeserializer: IntegerSerializer,
    DoubleDeserializer: DoubleSerializer,
    JSONDeserializer: JSONSerializer,
}


def find_key_serializer(topic: Topic) -> Serializer:
    """Return the serializer whose output the key deserializer of a topic reads.

    That of the topic need not be it: a topic that is only read may be declared without one.

    Args:
        topic: the topic.

    Example:
        >>> type(find_key_serializer(Topic("orders", key_deserializer="str"))).__name__
        'StringSerializer'
    """
    reader, writer = topic.key_deserializer, topic.key_serializer
    counterpart = _COUNTERPARTS.get(type(reader))
    if counterpart is None or isinstance(writer, counterpart):
        return writer
    return counterpart()
