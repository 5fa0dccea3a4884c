"""Serializers and deserializers by their names."""

from collections.abc import Iterable

from streamrt.errors import argument_error
from streamrt.serializers.base import Deserializer, DeserializerType, Serializer, SerializerType
from streamrt.serializers.json import JSONDeserializer, JSONSerializer
from streamrt.serializers.quix import QuixDeserializer, QuixEventsSerializer, QuixTimeseriesSerializer
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

__all__ = ["DESERIALIZERS", "SERIALIZERS", "resolve_deserializer", "resolve_serializer"]

SERIALIZERS: dict[str, type[Serializer]] = {
    "bytes": BytesSerializer,
    "double": DoubleSerializer,
    "float": DoubleSerializer,
    "int": IntegerSerializer,
    "integer": IntegerSerializer,
    "json": JSONSerializer,
    "quix_events": QuixEventsSerializer,
    "quix_timeseries": QuixTimeseriesSerializer,
    "str": StringSerializer,
    "string": StringSerializer,
}
"""Serializers by the names that `Application.topic()` accepts."""

DESERIALIZERS: dict[str, type[Deserializer]] = {
    "bytes": BytesDeserializer,
    "double": DoubleDeserializer,
    "float": DoubleDeserializer,
    "int": IntegerDeserializer,
    "integer": IntegerDeserializer,
    "json": JSONDeserializer,
    "quix": QuixDeserializer,
    "str": StringDeserializer,
    "string": StringDeserializer,
}
"""Deserializers by the names that `Application.topic()` accepts."""

_OBJECTS = {
    "avro": "Avro{}(schema)",
    "csv": "CSV{}(schema) of streamrt.serializers.csv",
    "protobuf": "Protobuf{}(msg_type)",
}
"""Formats that need more than a name, with the object to pass instead."""


def resolve_serializer(serializer: SerializerType) -> Serializer:
    """Return the serializer of a name; return an object unchanged.

    Args:
        serializer: one of the names in `SERIALIZERS`, or a `Serializer`.

    Raises:
        ConfigurationError: if the name is unknown or the object is not a serializer.

    Example:
        >>> type(resolve_serializer("int")).__name__
        'IntegerSerializer'
    """
    if isinstance(serializer, Serializer):
        return serializer
    if isinstance(serializer, str) and serializer in SERIALIZERS:
        return SERIALIZERS[serializer]()
    raise argument_error(_advise_name(serializer, "serializer", SERIALIZERS), of_type=isinstance(serializer, str))


def resolve_deserializer(deserializer: DeserializerType) -> Deserializer:
    """Return the deserializer of a name; return an object unchanged.

    Args:
        deserializer: one of the names in `DESERIALIZERS`, or a `Deserializer`.

    Raises:
        ConfigurationError: if the name is unknown or the object is not a deserializer.
    """
    if isinstance(deserializer, Deserializer):
        return deserializer
    if isinstance(deserializer, str) and deserializer in DESERIALIZERS:
        return DESERIALIZERS[deserializer]()
    raise argument_error(
        _advise_name(deserializer, "deserializer", DESERIALIZERS), of_type=isinstance(deserializer, str)
    )


def _advise_name(given: object, kind: str, names: Iterable[str]) -> str:
    if isinstance(given, str) and given in _OBJECTS:
        return f"the {kind} {given!r} needs more than its name: give {_OBJECTS[given].format(kind.capitalize())}"
    return f"unknown {kind} {given!r}: give a {kind.capitalize()} object or one of {', '.join(names)}"
