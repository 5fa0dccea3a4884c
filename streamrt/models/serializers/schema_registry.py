"""How to use a schema registry."""

from streamrt.serializers.registry import SchemaRegistryClientConfig, SchemaRegistrySerializationConfig

__all__ = ["SchemaRegistryClientConfig", "SchemaRegistrySerializationConfig"]
