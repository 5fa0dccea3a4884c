"""Columns as a JSON Schema of the objects that rows are in JSON, and back.

The property `streamrt.type` has the word of each column, since JSON has fewer types. Foreign schemas do not have it.
"""

import base64
import binascii
import datetime
import decimal
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamrt.errors import SchemaError
from streamrt.schema.columns import NO_DEFAULT, Column
from streamrt.schema.ddl import parse_type
from streamrt.schema.types import checked_name, type_word

__all__ = ["columns_of_json_schema", "columns_to_json_schema"]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_WORD = "streamrt.type"
_MAX_DEPTH = 64

_TO: dict[pa.DataType, dict[str, Any]] = {
    pa.bool_(): {"type": "boolean"},
    pa.float32(): {"type": "number"},
    pa.float64(): {"type": "number"},
    pa.string(): {"type": "string"},
    pa.binary(): {"type": "string", "contentEncoding": "base64"},
    pa.date32(): {"type": "string", "format": "date"},
    pa.time32("ms"): {"type": "string"},
    pa.timestamp("us"): {"type": "string"},
    pa.timestamp("us", "UTC"): {"type": "string", "format": "date-time"},
}
_FORMATS = {"date": pa.date32(), "date-time": pa.timestamp("us", "UTC")}


def columns_to_json_schema(columns: Sequence[Column], comment: str | None) -> dict[str, Any]:
    """Return the schema of rows as objects.

    Args:
        columns: the columns.
        comment: what a row means.
    """
    required = [each.name for each in columns if not each.nullable and each.default is NO_DEFAULT]
    schema: dict[str, Any] = {"$schema": _DRAFT, "type": "object"}
    if comment is not None:
        schema["description"] = comment
    schema["properties"] = {each.name: _column_property(each) for each in columns}
    if required:
        schema["required"] = required
    return schema


def _column_property(column: Column) -> dict[str, Any]:
    described = _make_nullable(_describe_type(column.dtype), column.nullable)
    if column.length is not None:
        described |= {_WORD: column.word, "maxLength": column.length}
    if column.comment is not None:
        described["description"] = column.comment
    if column.default is not NO_DEFAULT:
        described["default"] = _json_default(column.default)
    return described


def _json_default(value: Any) -> Any:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _describe_type(dtype: pa.DataType) -> dict[str, Any]:
    if not pa.types.is_nested(dtype):
        return _describe_scalar(dtype) | {_WORD: type_word(dtype)}
    if pa.types.is_list(dtype):
        return {"type": "array", "items": _of_field(dtype.value_field)}
    if pa.types.is_map(dtype):
        if pa.types.is_nested(dtype.key_type):
            raise SchemaError(f"{type_word(dtype)} has no JSON Schema: keys of its maps are not strings")
        names = {"propertyNames": {_WORD: type_word(dtype.key_type)}} if dtype.key_type != pa.string() else {}
        return {"type": "object", **names, "additionalProperties": _of_field(dtype.item_field)}
    schema: dict[str, Any] = {"type": "object", "properties": {field.name: _of_field(field) for field in dtype}}
    required = [field.name for field in dtype if not field.nullable]
    return schema | ({"required": required} if required else {})


def _describe_scalar(dtype: pa.DataType) -> dict[str, Any]:
    if pa.types.is_integer(dtype):
        highest = (1 << (dtype.bit_width - 1)) - 1
        return {"type": "integer", "minimum": ~highest, "maximum": highest}
    if pa.types.is_decimal128(dtype):
        return {"type": "string"}
    return dict(_TO[pa.binary() if pa.types.is_fixed_size_binary(dtype) else dtype])


def _of_field(field: pa.Field) -> dict[str, Any]:
    return _make_nullable(_describe_type(field.type), field.nullable)


def _make_nullable(described: dict[str, Any], nullable: bool) -> dict[str, Any]:
    return {**described, "type": [described["type"], "null"]} if nullable else described


def columns_of_json_schema(schema: str | Mapping[str, Any]) -> tuple[list[dict[str, Any]], str | None]:
    """Return a mapping for each property of an object, and what the object means.

    Args:
        schema: a schema of objects, as JSON or as objects.

    Raises:
        SchemaError: if it is none, or a column cannot hold the values of a property.
    """
    try:
        given = json.loads(schema) if isinstance(schema, str) else schema
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the JSON Schema is not JSON: {error}") from None
    if (
        not isinstance(given, Mapping)
        or given.get("type") != "object"
        or not isinstance(given.get("properties"), Mapping)
    ):
        raise SchemaError("the JSON Schema does not describe objects with properties; rows are objects")
    required = _read_required(given, "the schema")
    columns = [_read_column(name, each, name in required) for name, each in given["properties"].items()]
    comment = given.get("description")
    return columns, comment if isinstance(comment, str) else None


def _read_required(given: Mapping[str, Any], where: str) -> Sequence[Any]:
    required = given.get("required", [])
    if not isinstance(required, list | tuple):
        raise SchemaError(f"'required' of {where} must be a list of names")
    return required


def _read_column(name: str, given: Any, required: bool) -> dict[str, Any]:
    where = f"property {name!r}"
    dtype, nullable = _type_of(given, where, 0)
    has_default = given.get("default") is not None
    column: dict[str, Any] = {"name": name, "type": dtype, "nullable": nullable or not (required or has_default)}
    length = given.get("maxLength")
    if type(length) is int and length > 0 and column["type"] == pa.string():
        column["length"] = length
    if isinstance(given.get("description"), str):
        column["comment"] = given["description"]
    if has_default and not pa.types.is_nested(column["type"]):
        column["default"] = _default_of(given["default"], column["type"], where)
    return column


def _default_of(value: Any, dtype: pa.DataType, where: str) -> Any:
    if dtype != pa.binary() and not pa.types.is_fixed_size_binary(dtype):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise SchemaError(f"the default of {where} is not base64 text") from None


def _type_of(given: Any, where: str, depth: int) -> tuple[pa.DataType, bool]:
    """Return the type of a column for a schema, and whether it may be null."""
    if not isinstance(given, Mapping) or depth > _MAX_DEPTH:
        raise SchemaError(f"{where} cannot be a column: it has no schema, or one with more than {_MAX_DEPTH} levels")
    for word in ("$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if", "prefixItems"):
        if word in given:
            raise SchemaError(f"{where} cannot be a column: its schema has {word!r}; give the type instead")
    kinds = given.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list):
        raise SchemaError(f"{where} cannot be a column: its schema has no type")
    only = [kind for kind in kinds if kind != "null"]
    if len(only) != 1:
        raise SchemaError(f"{where} cannot be a column: it may have several types, or none but null")
    named = given.get(_WORD)
    dtype = _one_type(only[0], given, where, depth)
    if isinstance(named, str) and not pa.types.is_nested(dtype):
        word = parse_type(named, where)[0]
        # Others may have changed the schema and kept the property.
        dtype = word if not pa.types.is_nested(word) and _describe_scalar(word)["type"] == only[0] else dtype
    return dtype, len(kinds) > 1


def _one_type(kind: Any, given: Mapping[str, Any], where: str, depth: int) -> pa.DataType:
    if kind == "string":
        if given.get("contentEncoding") == "base64":
            return pa.binary()
        return _FORMATS.get(str(given.get("format")), pa.string())
    if kind == "integer":
        return _read_integer(given)
    if kind in ("boolean", "number"):
        return pa.bool_() if kind == "boolean" else pa.float64()
    if kind == "array":
        dtype, nullable = _type_of(given.get("items"), where, depth + 1)
        return pa.list_(pa.field("item", dtype, nullable))
    if kind != "object":
        raise SchemaError(f"{where} cannot be a column: there is no type {kind!r} in JSON")
    properties = given.get("properties")
    if not isinstance(properties, Mapping | None):
        raise SchemaError(f"{where} cannot be a column: its 'properties' must be a mapping")
    if not properties:
        dtype, nullable = _type_of(given.get("additionalProperties"), where, depth + 1)
        return pa.map_(_key_type(given, where), pa.field("value", dtype, nullable))
    fields = []
    required = _read_required(given, where)
    for part, each in properties.items():
        dtype, nullable = _type_of(each, f"{where}, {part!r}", depth + 1)
        fields.append(pa.field(checked_name(part, f"a part of {where}"), dtype, nullable or part not in required))
    return pa.struct(fields)


def _key_type(given: Mapping[str, Any], where: str) -> pa.DataType:
    names = given.get("propertyNames")
    word = names.get(_WORD) if isinstance(names, Mapping) else None
    return parse_type(word, where)[0] if isinstance(word, str) else pa.string()


def _read_integer(given: Mapping[str, Any]) -> pa.DataType:
    lowest, highest = given.get("minimum"), given.get("maximum")
    if type(lowest) is int and type(highest) is int:
        for dtype in (pa.int8(), pa.int16(), pa.int32()):
            limit = 1 << (dtype.bit_width - 1)
            if -limit <= lowest and highest < limit:
                return dtype
    return pa.int64()
