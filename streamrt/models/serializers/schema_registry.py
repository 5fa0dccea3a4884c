"""Settings of schema registries."""

from streamrt.serializers.registry import SchemaRegistryClientConfig, SchemaRegistrySerializationConfig

__all__ = ["SchemaRegistryClientConfig", "SchemaRegistrySerializationConfig"]
