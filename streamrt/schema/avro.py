"""Columns as a schema of Avro, and back.

Types that Avro does not have (`TINYINT`, `VARCHAR(n)`) are its nearest type, with the word in the property `streamrt.type`.
"""

import datetime
import decimal
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamrt.errors import SchemaError
from streamrt.schema.columns import NO_DEFAULT, Column
from streamrt.schema.ddl import parse_type
from streamrt.schema.types import checked_name, type_word

__all__ = ["WORD", "avro_type", "columns_of_avro", "columns_to_avro"]

WORD = "streamrt.type"
"""Property with the type that a column has in a `Schema`."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EPOCH_DAY = datetime.date(1970, 1, 1)
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_MAX_DEPTH = 64
_MAX_FIELDS = 10_000
_MAX_SIZE = (1 << 31) - 1
_DAY_MILLISECONDS = 86_400_000

_TO: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): {"type": "int", WORD: "TINYINT"},
    pa.int16(): {"type": "int", WORD: "SMALLINT"},
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time32("ms"): {"type": "int", "logicalType": "time-millis"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
}
_FROM: dict[tuple[str, str | None], pa.DataType] = {
    ("boolean", None): pa.bool_(),
    ("int", None): pa.int32(),
    ("long", None): pa.int64(),
    ("float", None): pa.float32(),
    ("double", None): pa.float64(),
    ("string", None): pa.string(),
    ("string", "uuid"): pa.string(),
    ("enum", None): pa.string(),
    ("bytes", None): pa.binary(),
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
}


def columns_to_avro(columns: Sequence[Column], name: str, comment: str | None) -> dict[str, Any]:
    """Return the record type of rows.

    Args:
        columns: the columns.
        name: full name of the record.
        comment: what a row means.

    Raises:
        SchemaError: if Avro cannot carry a column, or has no such name.
    """
    for part in name.split("."):
        if not _NAME.fullmatch(part):
            raise SchemaError(f"{name!r} is not the name of a record in Avro: its parts have letters, digits and _")
    record: dict[str, Any] = {"type": "record", "name": name}
    if comment is not None:
        record["doc"] = comment
    record["fields"] = [_avro_field(each, name.rpartition(".")[2]) for each in columns]
    return record


def _avro_field(column: Column, record: str) -> dict[str, Any]:
    where = f"column {column.name!r} ({column.word})"
    dtype = avro_type(column.dtype, where, f"{record}_{_avro_name(column.name, where)}")
    if column.length is not None:
        dtype = {"type": "string", WORD: column.word}
    field: dict[str, Any] = {"name": column.name, "type": dtype}
    if column.default is not NO_DEFAULT and column.default is not None:
        field["default"] = _avro_default(column.default, column.dtype)
        # A default is one of the first branch.
        field["type"] = [dtype, "null"] if column.nullable else dtype
    elif column.nullable:
        field |= {"type": ["null", dtype], "default": None}
    if column.comment is not None:
        field["doc"] = column.comment
    return field


def avro_type(dtype: pa.DataType, where: str, name: str) -> Any:
    """Return Avro's type for a type of columns.

    Args:
        dtype: type of a column.
        where: the column, for errors.
        name: name for the type, if it needs one.

    Raises:
        SchemaError: if Avro has no such type.
    """
    if dtype in _TO:
        found = _TO[dtype]
        return dict(found) if isinstance(found, dict) else found
    if pa.types.is_decimal128(dtype):
        return {"type": "bytes", "logicalType": "decimal", "precision": dtype.precision, "scale": dtype.scale}
    if pa.types.is_fixed_size_binary(dtype):
        return {"type": "fixed", "name": name, "size": dtype.byte_width}
    if pa.types.is_list(dtype):
        return {"type": "array", "items": _avro_part(dtype.value_field, where, f"{name}_item")}
    if pa.types.is_struct(dtype):
        fields = []
        for field in dtype:
            part = _avro_part(field, where, f"{name}_{_avro_name(field.name, where)}")
            fields.append({"name": field.name, "type": part} | ({"default": None} if field.nullable else {}))
        return {"type": "record", "name": name, "fields": fields}
    if dtype.key_type != pa.string():
        raise SchemaError(
            f"{where} cannot be written in Avro: keys of its maps are texts, and these are {type_word(dtype.key_type)}"
        )
    return {"type": "map", "values": _avro_part(dtype.item_field, where, f"{name}_value")}


def _avro_part(field: pa.Field, where: str, name: str) -> Any:
    inner = avro_type(field.type, where, name)
    return ["null", inner] if field.nullable else inner


def _avro_name(name: str, where: str) -> str:
    if not _NAME.fullmatch(name):
        raise SchemaError(
            f"{where} cannot be written in Avro: its names have letters, digits and _, and {name!r} has others"
        )
    return name


def _avro_default(value: Any, dtype: pa.DataType) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, decimal.Decimal):
        unscaled = int(value.scaleb(dtype.scale, decimal.Context(prec=100)))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True).decode("latin-1")
    if isinstance(value, datetime.datetime):
        return (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    if isinstance(value, datetime.date):
        return (value - _EPOCH_DAY).days
    if isinstance(value, datetime.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1000 + value.microsecond // 1000
    return value


def columns_of_avro(schema: str | Mapping[str, Any]) -> tuple[list[dict[str, Any]], str | None]:
    """Return a mapping for each field of a record type, and what the record means.

    Args:
        schema: the record type, as JSON or as objects.

    Raises:
        SchemaError: if it is not a record type, or a column cannot hold the values of a field.
    """
    try:
        record = json.loads(schema) if isinstance(schema, str) else schema
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the Avro schema is not JSON: {error}") from None
    if not isinstance(record, Mapping) or record.get("type") not in ("record", "error"):
        raise SchemaError("the Avro schema is not a record; rows are records")
    named: dict[str, Any] = {}
    fields = _record_fields(record, "the record", 0)
    doc = record.get("doc")
    return [_read_column(field, named, _find_namespace(record, None)) for field in fields], doc if isinstance(
        doc, str
    ) else None


def _record_fields(record: Mapping[str, Any], where: str, depth: int) -> list[Any]:
    fields = record.get("fields")
    if depth > _MAX_DEPTH or not isinstance(fields, list):
        raise SchemaError(f"the Avro schema cannot be used: {where} has no list of fields, or too many levels of them")
    for field in fields:
        if not isinstance(field, Mapping) or not isinstance(field.get("name"), str) or "type" not in field:
            raise SchemaError(f"the Avro schema cannot be used: {where} has a field without a name or a type")
    return fields


def _read_column(field: Mapping[str, Any], named: dict[str, Any], space: str | None) -> dict[str, Any]:
    where = f"field {field['name']!r}"
    dtype, nullable = _type_of(field["type"], where, named, space, 0)
    inner = _strip_null(field["type"])
    word = inner.get(WORD) if isinstance(inner, Mapping) else None
    length = parse_type(word, where)[1] if isinstance(word, str) and dtype == pa.string() else None
    column: dict[str, Any] = {"name": field["name"], "type": dtype, "nullable": nullable}
    if length is not None:
        column["length"] = length
    if isinstance(field.get("doc"), str):
        column["comment"] = field["doc"]
    if field.get("default") is not None and not pa.types.is_nested(dtype):
        column["default"] = _default_of(field["default"], dtype, inner, where)
    return column


def _strip_null(declared: Any) -> Any:
    """Return a type without null."""
    if isinstance(declared, list):
        others = [each for each in declared if each not in ("null", {"type": "null"})]
        return others[0] if len(others) == 1 else declared
    return declared


def _by_word(declared: Mapping[str, Any], found: pa.DataType, where: str) -> pa.DataType:
    word = declared.get(WORD)
    # Others may have changed the schema and kept the property.
    if not isinstance(word, str) or found != pa.int32():
        return found
    given = parse_type(word, where)[0]
    return given if given in (pa.int8(), pa.int16()) else found


def _type_of(
    declared: Any, where: str, named: dict[str, Any], space: str | None, depth: int
) -> tuple[pa.DataType, bool]:
    """Return the type of a column for a type of Avro, and whether it may be null."""
    if depth > _MAX_DEPTH:
        raise SchemaError(f"{where} cannot be a column: its types have more than {_MAX_DEPTH} levels")
    if isinstance(declared, list):
        only = _strip_null(declared)
        if isinstance(only, list):
            raise SchemaError(f"{where} cannot be a column: it is a union of several types")
        return _type_of(only, where, named, space, depth + 1)[0], len(declared) > 1
    if isinstance(declared, str):
        declared = _named_type(declared, named, space, where)
    if not isinstance(declared, Mapping):
        raise SchemaError(f"{where} cannot be a column: it has no type of Avro")
    kind, logical = declared.get("type"), declared.get("logicalType")
    if isinstance(kind, (Mapping, list)):
        return _type_of(kind, where, named, space, depth + 1)
    if not isinstance(kind, str):
        raise SchemaError(f"{where} cannot be a column: it has no type of Avro")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _read_decimal(declared, where), False
    dtype = _FROM.get((kind, logical)) if isinstance(logical, str | None) else None
    if dtype is None and logical is None:
        return _read_composed(declared, kind, where, named, space, depth), False
    if dtype is None:
        raise SchemaError(f"{where} cannot be a column: no type of columns holds all values of {kind} with {logical}")
    if kind == "enum":
        _remember_named(declared, named, space)
    return _by_word(declared, dtype, where), False


def _named_type(name: str, named: dict[str, Any], space: str | None, where: str) -> Any:
    full = name if "." in name or space is None else f"{space}.{name}"
    found = named.get(full, named.get(name))
    if found is _OPEN:
        raise SchemaError(f"{where} cannot be a column: the record {name!r} contains itself")
    return {"type": name} if found is None else found


_OPEN = object()
_COUNT = "how many fields"


def _read_composed(
    declared: Mapping[str, Any], kind: str, where: str, named: dict[str, Any], space: str | None, depth: int
) -> pa.DataType:
    if kind == "array":
        dtype, nullable = _type_of(declared.get("items"), where, named, space, depth + 1)
        return pa.list_(pa.field("item", dtype, nullable))
    if kind == "map":
        dtype, nullable = _type_of(declared.get("values"), where, named, space, depth + 1)
        return pa.map_(pa.string(), pa.field("value", dtype, nullable))
    if kind == "fixed" and type(declared.get("size")) is int and 0 < declared["size"] <= _MAX_SIZE:
        _remember_named(declared, named, space)
        return pa.binary(declared["size"])
    if kind == "record":
        inner = _find_namespace(declared, space)
        full = _remember_named(declared, named, space)
        named[full] = _OPEN
        given = _record_fields(declared, where, depth)
        # A record that is named twice in each of a few others has billions of fields.
        named[_COUNT] = named.get(_COUNT, 0) + len(given)
        if named[_COUNT] > _MAX_FIELDS:
            raise SchemaError(f"the Avro schema cannot be used: it has more than {_MAX_FIELDS} fields")
        fields = []
        for field in given:
            name = checked_name(field["name"], f"a field of {where}")
            fields.append(pa.field(name, *_type_of(field["type"], f"{where}, {name!r}", named, inner, depth + 1)))
        named[full] = declared
        if not fields:
            raise SchemaError(f"{where} cannot be a column: the record {declared.get('name')!r} has no fields")
        return pa.struct(fields)
    raise SchemaError(f"{where} cannot be a column: there is no type {kind!r} for columns")


def _remember_named(declared: Mapping[str, Any], named: dict[str, Any], space: str | None) -> str:
    name = str(declared.get("name"))
    inner = _find_namespace(declared, space)
    full = name if "." in name or inner is None else f"{inner}.{name}"
    named[full] = declared
    return full


def _find_namespace(declared: Mapping[str, Any], space: str | None) -> str | None:
    name, own = declared.get("name"), declared.get("namespace")
    if isinstance(name, str) and "." in name:
        return name.rpartition(".")[0]
    if isinstance(own, str):
        # An empty one is that of names without a namespace.
        return own or None
    return space


def _read_decimal(declared: Mapping[str, Any], where: str) -> pa.DataType:
    precision, scale = declared.get("precision"), declared.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision <= 38 or precision < 1:
        raise SchemaError(f"{where} cannot be a column: decimals have 38 digits at most, and a scale within them")
    return pa.decimal128(precision, scale)


def _default_of(value: Any, dtype: pa.DataType, declared: Any, where: str) -> Any:
    logical = declared.get("logicalType", "") if isinstance(declared, Mapping) else ""
    try:
        if pa.types.is_temporal(dtype) and type(value) is not int:
            raise TypeError
        if pa.types.is_decimal128(dtype):
            unscaled = int.from_bytes(value.encode("latin-1"), "big", signed=True)
            return decimal.Decimal(unscaled).scaleb(-dtype.scale, decimal.Context(prec=100))
        if dtype == pa.binary() or pa.types.is_fixed_size_binary(dtype):
            return value.encode("latin-1")
        if dtype == pa.date32():
            return _EPOCH_DAY + datetime.timedelta(days=value)
        if dtype == pa.time32("ms"):
            if not 0 <= value < _DAY_MILLISECONDS:
                raise OverflowError
            return (_EPOCH + datetime.timedelta(milliseconds=value)).time()
        if pa.types.is_timestamp(dtype):
            moment = _EPOCH + value * _MICROSECOND * (1000 if logical.endswith("millis") else 1)
            return moment if dtype.tz is None else moment.replace(tzinfo=datetime.timezone.utc)
    except (AttributeError, TypeError, UnicodeError, OverflowError):
        raise SchemaError(f"the default of {where} does not fit its type") from None
    return value
