"""JSON serializers."""

from streamrt.serializers.json import JSONDeserializer, JSONSerializer

__all__ = ["JSONDeserializer", "JSONSerializer"]
