"""Schema registries with Confluent's API: connection settings and Confluent's wire format."""

from streamrt.serializers.registry.client import SchemaRegistry, open_registry
from streamrt.serializers.registry.config import (
    ReferenceSubjectNameStrategy,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
    SubjectNameStrategy,
    record_subject_name_strategy,
    reference_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from streamrt.serializers.registry.framing import SchemaReader, SchemaWriter, checked_configs
from streamrt.serializers.registry.schema import (
    KEY_SCHEMA_ID_HEADER,
    VALUE_SCHEMA_ID_HEADER,
    RegisteredSchema,
    RegistrySchema,
    SchemaReference,
)

__all__ = [
    "KEY_SCHEMA_ID_HEADER",
    "VALUE_SCHEMA_ID_HEADER",
    "ReferenceSubjectNameStrategy",
    "RegisteredSchema",
    "RegistrySchema",
    "SchemaReader",
    "SchemaReference",
    "SchemaRegistry",
    "SchemaRegistryClientConfig",
    "SchemaRegistrySerializationConfig",
    "SchemaWriter",
    "SubjectNameStrategy",
    "checked_configs",
    "open_registry",
    "record_subject_name_strategy",
    "reference_subject_name_strategy",
    "topic_record_subject_name_strategy",
    "topic_subject_name_strategy",
]
