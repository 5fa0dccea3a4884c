"""Schemas as those of Avro and of JSON Schema, and back."""

import json
from typing import Any

import fastavro
import jsonschema
import orjson
import pyarrow as pa
import pytest

from streamrt.errors import SchemaError
from streamrt.schema import Schema
from streamrt.serializers.row_formats import row_format

EVERYTHING = """
    id BIGINT NOT NULL, tiny TINYINT, small SMALLINT NOT NULL, n INT DEFAULT 5, f FLOAT, d DOUBLE DEFAULT 0.5, ok BOOLEAN,
    name STRING COMMENT 'as in the passport', code VARCHAR(3) DEFAULT 'abc', raw BINARY, mac BINARY(6), day DATE, t TIME,
    at TIMESTAMP, seen TIMESTAMP_LTZ, price DECIMAL(10, 2) NOT NULL DEFAULT 0, tags ARRAY<STRING>,
    home STRUCT<street: STRING NOT NULL, floors: ARRAY<TINYINT>, price: DECIMAL(5, 1)>, counts MAP<STRING, INT>
"""


def everything() -> Schema:
    columns = Schema(EVERYTHING).columns
    columns += [
        {"name": "d1", "type": "DATE", "default": "1969-12-30"},
        {"name": "t1", "type": "TIME", "default": "01:02:03.004"},
        {"name": "a1", "type": "TIMESTAMP", "default": "2026-03-29T08:00:00.000001"},
        {"name": "s1", "type": "TIMESTAMP_LTZ", "default": "2026-03-29T08:00:00Z"},
        {"name": "b1", "type": "BINARY", "default": b"\0\xff"},
        {"name": "p1", "type": "DECIMAL(10, 2)", "default": "-1.28"},
        {"name": "items", "type": pa.list_(pa.field("item", pa.int16(), nullable=False))},
    ]
    return Schema(columns, comment="an order")


def test_a_schema_comes_back_from_avro() -> None:
    schema = everything()
    record = schema.to_avro("shop.Order")
    fastavro.parse_schema(json.loads(json.dumps(record)))
    assert Schema.of_avro(record) == schema
    assert Schema.of_avro(json.dumps(record)) == schema


def test_a_schema_comes_back_from_json_schema() -> None:
    schema = Schema([*everything().columns, {"name": "by_day", "type": "MAP<DATE, DECIMAL(5, 1)>"}], comment="an order")
    described = json.loads(json.dumps(schema.to_json_schema()))
    jsonschema.Draft202012Validator.check_schema(described)
    assert Schema.of_json_schema(described) == schema
    assert Schema.of_json_schema(json.dumps(described)) == schema
    row = {"id": 1, "small": 2, "home": {"street": "s", "price": "1.5"}, "by_day": {"2026-03-29": 1}, "mac": b"123456"}
    written = orjson.loads(row_format("json", schema).encode(row, "t"))
    jsonschema.validate(written, described)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**written, "tiny": 200}, described)


def field(declared: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "c", "type": declared}]}


@pytest.mark.parametrize(
    ("declared", "word"),
    [
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING NOT NULL"),
        (["null", {"type": "string", "logicalType": "uuid"}], "STRING"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP_LTZ NOT NULL"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP NOT NULL"),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9}, "DECIMAL(9, 0) NOT NULL"),
        (["string", "null"], "STRING"),
        ({"type": "map", "values": ["null", "long"]}, "MAP<STRING, BIGINT> NOT NULL"),
    ],
)
def test_foreign_types_of_avro(declared: Any, word: str) -> None:
    assert str(Schema.of_avro(field(declared))) == f"c {word}"


def test_types_of_avro_by_their_names() -> None:
    inner = {"type": "record", "name": "In", "namespace": "a.b", "fields": [{"name": "x", "type": "int"}]}
    record = field(inner)
    record["fields"].append({"name": "d", "type": "a.b.In"})
    assert Schema.of_avro(record).types == ("STRUCT<x: INT NOT NULL>",) * 2


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (["int", "string"], "union of several types"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "holds all values of long with timestamp-nanos"),
        ({"type": "long", "logicalType": "time-micros"}, "holds all values of long with time-micros"),
        ({"type": "record", "name": "R2", "fields": [{"name": "r", "type": ["null", "R2"]}]}, "contains itself"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "38 digits"),
        ("nowhere", "no type 'nowhere'"),
        ("null", "no type 'null'"),
        (None, "no type of Avro"),
        ({"type": "record", "name": "E", "fields": []}, "no fields"),
    ],
)
def test_types_of_avro_that_no_column_has(declared: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=f"field 'c'.* cannot be a column: .*{reason}"):
        Schema.of_avro(field(declared))


@pytest.mark.parametrize(
    "schema", ["{", "[]", '"int"', {"type": "record"}, {"type": "record", "fields": [1]}, "[" * 5000]
)
def test_what_is_no_record_of_avro(schema: Any) -> None:
    with pytest.raises(SchemaError, match="Avro schema"):
        Schema.of_avro(schema)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("m MAP<INT, INT>", r"column 'm' \(MAP<INT, INT>\) cannot be written in Avro: keys of its maps are texts"),
        ("`a-b` INT", "'a-b' has others"),
        ("s STRUCT<`ä`: INT>", "'ä' has others"),
    ],
)
def test_columns_that_avro_does_not_carry(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Schema(text).to_avro()
    with pytest.raises(SchemaError, match="not the name of a record"):
        Schema("c INT").to_avro("1st")


@pytest.mark.parametrize(
    ("described", "word"),
    [
        ({"type": "integer"}, "BIGINT"),
        ({"type": "integer", "minimum": 0, "maximum": 100}, "TINYINT"),
        ({"type": ["number", "null"]}, "DOUBLE"),
        ({"type": "string", "maxLength": 3}, "VARCHAR(3)"),
        ({"type": "string", "format": "date-time"}, "TIMESTAMP_LTZ"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "MAP<STRING, BOOLEAN NOT NULL>"),
        ({"type": "object", "properties": {"x": {"type": "string"}}}, "STRUCT<x: STRING>"),
        ({"type": "string", "default": "x"}, "STRING NOT NULL DEFAULT 'x'"),
    ],
)
def test_foreign_properties(described: Any, word: str) -> None:
    assert str(Schema.of_json_schema({"type": "object", "properties": {"c": described}})) == f"c {word}"


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ({"$ref": "#/x"}, "has '\\$ref'"),
        ({"type": ["string", "integer"]}, "several types"),
        ({"type": "array"}, "no schema"),
        ({"type": "null"}, "none but null"),
        ({}, "no type"),
        ({"type": "what"}, "no type 'what'"),
        (True, "no schema"),
    ],
)
def test_properties_that_no_column_has(described: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=f"property 'c' cannot be a column: .*{reason}"):
        Schema.of_json_schema({"type": "object", "properties": {"c": described}})


@pytest.mark.parametrize("schema", ["{", "[]", {"type": "array"}, {"type": "object"}])
def test_what_is_no_schema_of_objects(schema: Any) -> None:
    with pytest.raises(SchemaError, match="JSON Schema"):
        Schema.of_json_schema(schema)
