"""Serializers for the formats of the Quix platform."""

from streamrt.serializers.quix import (
    QuixDeserializer,
    QuixEventsSerializer,
    QuixSerializer,
    QuixTimeseriesSerializer,
)

__all__ = ["QuixDeserializer", "QuixEventsSerializer", "QuixSerializer", "QuixTimeseriesSerializer"]
