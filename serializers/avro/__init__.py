"""Avro with fastavro: its serializer and deserializer, with checks of schemas and values, and columns of Arrow."""

from streamrt.serializers.avro.serializer import AvroDeserializer, AvroSerializer, compile_registered

__all__ = ["AvroDeserializer", "AvroSerializer", "compile_registered"]
