"""Schemas as the registry stores them."""

import uuid
from dataclasses import dataclass
from typing import Literal

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]

KEY_SCHEMA_ID_HEADER = "__key_schema_id"
VALUE_SCHEMA_ID_HEADER = "__value_schema_id"


@dataclass(frozen=True)
class SchemaReference:
    """A schema that another one refers to.

    Args:
        name: how the other schema names it: an Avro type, a JSON Schema `$ref`, a path that Protobuf imports.
        subject: the subject that it is registered under.
        version: its version there.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegistrySchema:
    """A schema, and the schemas that it refers to.

    Give it to a serializer instead of the schema alone where the schema has references.

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
    """A schema as the registry knows it.

    Attributes:
        schema: the schema.
        type: its format.
        id: its number in the registry, unless it was asked for by its guid.
        guid: its global id, where the registry gives one.
        subject: what it is registered under, where that is known.
        version: its version there, where that is known.
        rules: kinds of rules of a data contract that it carries: "domain", "encoding", "migration". StreamRT runs none.
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
