"""Avro serializers."""

from streamrt.serializers.avro import AvroDeserializer, AvroSerializer

__all__ = ["AvroDeserializer", "AvroSerializer"]
