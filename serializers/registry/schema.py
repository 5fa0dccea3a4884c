"""Schemas in the form of the registry."""

import uuid
from dataclasses import dataclass
from typing import Literal

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]

KEY_SCHEMA_ID_HEADER = "__key_schema_id"
VALUE_SCHEMA_ID_HEADER = "__value_schema_id"


@dataclass(frozen=True)
class SchemaReference:
    """A reference from one schema to another.

    Args:
        name: name in the referring schema: an Avro type, a JSON Schema `$ref`, a path that Protobuf imports.
        subject: subject of the referenced schema.
        version: version of the referenced schema in the subject.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegistrySchema:
    """A schema and its references to other schemas.

    Pass it to a serializer instead of the plain schema if the schema has references.

    Args:
        text: the schema: JSON for Avro and JSON Schema; for Protobuf the text of the .proto file, or a serialized
            `FileDescriptorProto` in base64.
        references: the registered schemas that it refers to.

    Example:
        >>> order = RegistrySchema(
        ...     '{"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "shop.Customer"}]}',
        ...     references=(SchemaReference("shop.Customer", "customers-value", 1),),
        ... )
        >>> order.references[0].subject
        'customers-value'
    """

    text: str
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema that is registered in the registry.

    Attributes:
        schema: the schema.
        type: its format.
        id: its id in the registry, unless it was requested by its guid.
        guid: its global id, if the registry has one.
        subject: its subject, if known.
        version: its version in the subject, if known.
        rules: kinds of its data contract rules: "domain", "encoding", "migration". StreamRT runs none.
    """

    schema: RegistrySchema
    type: SchemaType
    id: int | None
    guid: uuid.UUID | None = None
    subject: str | None = None
    version: int | None = None
    rules: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"schema {self.id if self.id is not None else self.guid}"
        return name if self.subject is None else f"{name} (subject {self.subject!r}, version {self.version})"
