"""Schemas as JSON documents, which a catalogue keeps."""

import base64
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from streamrt.errors import SchemaError
from streamrt.schema import Column, Schema
from streamrt.schema.columns import NO_DEFAULT
from streamrt.schema.ddl import parse_type
from streamrt.serializers.rows import json_value

__all__ = ["schema_document", "schema_of"]


def schema_document(schema: Schema) -> dict[str, Any]:
    """Return a schema as JSON has it.

    Example:
        >>> schema_document(Schema("id BIGINT, PRIMARY KEY (id)"))["columns"]
        [{'name': 'id', 'type': 'BIGINT', 'nullable': False}]
    """
    document: dict[str, Any] = {"columns": [_column_document(each) for each in schema.fields]}
    if schema.primary_key:
        document["primary_key"] = list(schema.primary_key)
    for name in ("time", "comment"):
        if getattr(schema, name) is not None:
            document[name] = getattr(schema, name)
    return document


def schema_of(document: Mapping[str, Any]) -> Schema:
    """Return the schema of a document.

    Raises:
        SchemaError: if it is none.
        TypeError, KeyError, ValueError, AttributeError: if it is not such a document.
    """
    for name in ("time", "comment"):
        if not isinstance(document.get(name), str | None):
            raise SchemaError(f"the {name} of a schema must be a text")
    keys = document.get("primary_key", [])
    if not isinstance(keys, list) or not all(isinstance(name, str) for name in keys):
        raise SchemaError("the primary key of a schema must be a list of names")
    return Schema(
        [_column_of(each) for each in document["columns"]],
        primary_key=keys,
        time=document.get("time"),
        comment=document.get("comment"),
    )


def _column_document(column: Column) -> dict[str, Any]:
    document: dict[str, Any] = {"name": column.name, "type": column.word, "nullable": column.nullable}
    if column.comment is not None:
        document["comment"] = column.comment
    if column.default is not NO_DEFAULT:
        # Written and read once, since strings stand for what JSON does not have.
        written = orjson.dumps(column.default, json_value, orjson.OPT_PASSTHROUGH_DATETIME)
        document["default"] = orjson.loads(written)
    return document


def _column_of(document: Mapping[str, Any]) -> dict[str, Any]:
    column = dict(document)
    if type(column.get("nullable", True)) is not bool or not isinstance(column.get("comment"), str | None):
        raise SchemaError("a column of a schema is damaged")
    default = column.get("default")
    if isinstance(default, str) and isinstance(column["type"], str):
        dtype = parse_type(column["type"], f"column {column['name']!r}")[0]
        if pa.types.is_binary(dtype) or pa.types.is_fixed_size_binary(dtype):
            column["default"] = base64.b64decode(default, validate=True)
    return column
