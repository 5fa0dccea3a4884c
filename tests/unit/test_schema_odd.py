"""Odd schemas: each comes back as it was from its text, its pickle, a catalogue, Avro and JSON Schema, or is refused."""

import datetime
import decimal
import io
import json
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt.cli.tables.row_input import read_rows
from streamrt.errors import ArgumentTypeError, SchemaError, SchemaMismatchError, SerializationError
from streamrt.schema import Schema
from streamrt.serializers.row_formats import key_format, row_format
from streamrt.tables.descriptions.schema_documents import schema_document, schema_of
from streamrt.testing.row_formats import ROW_VALUES
from tests.support import LONG

_SCALARS = tuple(word for word in ROW_VALUES if "<" not in word)
_NAMES = st.sampled_from(
    [
        "id",
        "a b",
        "a`b",
        "a.b",
        "select",
        "null",
        "NOT",
        "true",
        "primary",
        "constraint",
        "unique",
        "class",
        "\u00e9",
        "-- x",
    ]
)
_AVRO_NAMES = st.sampled_from(["id", "_x", "None", "select", "A1"])


def _types(names: st.SearchStrategy[str]) -> st.SearchStrategy[pa.DataType]:
    scalars = st.sampled_from([word for word in _SCALARS if not word.startswith("VARCHAR")]).map(
        lambda word: Schema({"c": word}).arrow.field(0).type
    )

    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        parts = st.tuples(inner, st.booleans())
        structs = st.dictionaries(names, parts, min_size=1, max_size=3)
        return (
            parts.map(lambda part: pa.list_(pa.field("item", *part)))
            | parts.map(lambda part: pa.map_(pa.string(), pa.field("value", *part)))
            | structs.map(lambda fields: pa.struct([pa.field(name, *part) for name, part in fields.items()]))
        )

    return st.recursive(scalars, nested, max_leaves=4)


def _schemas(names: st.SearchStrategy[str]) -> st.SearchStrategy[Schema]:
    def made(columns: Mapping[str, tuple[pa.DataType, bool]]) -> Schema:
        return Schema(
            [{"name": name, "type": dtype, "nullable": nullable} for name, (dtype, nullable) in columns.items()]
        )

    return st.dictionaries(names, st.tuples(_types(names), st.booleans()), min_size=1, max_size=4).map(made)


def _value(dtype: pa.DataType, nullable: bool) -> st.SearchStrategy[Any]:
    if pa.types.is_list(dtype):
        values: st.SearchStrategy[Any] = st.lists(_of(dtype.value_field), max_size=3)
    elif pa.types.is_map(dtype):
        values = st.dictionaries(ROW_VALUES["STRING"], _of(dtype.item_field), max_size=2)
    elif pa.types.is_struct(dtype):
        values = st.fixed_dictionaries({field.name: _of(field) for field in dtype})
    else:
        values = ROW_VALUES[Schema({"c": dtype}).types[0]]
    return values | st.none() if nullable else values


def _of(field: pa.Field) -> st.SearchStrategy[Any]:
    return _value(field.type, field.nullable)


_many = settings(max_examples=1_500 if LONG else 50, deadline=None)


@_many
@given(_schemas(_NAMES))
def test_any_schema_comes_back(schema: Schema) -> None:
    assert Schema(str(schema)) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert schema_of(json.loads(json.dumps(schema_document(schema)))) == schema
    assert Schema.of_json_schema(json.dumps(schema.to_json_schema())) == schema


@_many
@given(_schemas(_AVRO_NAMES))
def test_any_schema_comes_back_from_avro(schema: Schema) -> None:
    assert Schema.of_avro(json.dumps(schema.to_avro())) == schema


@_many
@given(st.data())
def test_rows_follow_their_json_schema(data: st.DataObject) -> None:
    schema = data.draw(_schemas(_NAMES))
    row = {each.name: data.draw(_value(each.dtype, each.nullable)) for each in schema.fields}
    rows = row_format("json", schema)
    written = rows.encode(row, "t")
    assert rows.decode(written, "t") == row
    jsonschema.Draft202012Validator(schema.to_json_schema()).validate(json.loads(written))


@_many
@given(st.data())
def test_fastavro_writes_and_reads_the_same_rows(data: st.DataObject) -> None:
    schema = data.draw(_schemas(_AVRO_NAMES))
    row = {each.name: data.draw(_value(each.dtype, each.nullable)) for each in schema.fields}
    rows = row_format("avro", schema)
    record = fastavro.parse_schema(schema.to_avro())
    written = io.BytesIO()
    fastavro.schemaless_writer(written, record, row)
    assert rows.encode(row, "t") == written.getvalue()
    assert rows.decode(written.getvalue(), "t") == row
    batch = rows.decode_batch([written.getvalue()] * 2, "t")
    assert rows.encode_batch(batch, "t") == [written.getvalue()] * 2


@pytest.mark.parametrize("name", ["json", "avro", "protobuf"])
def test_formats_carry_as_many_levels_as_schemas_have(name: str) -> None:
    dtype, value = pa.int32(), 1
    for _ in range(30):
        dtype, value = pa.struct([pa.field("a", dtype)]), {"a": value}  # type: ignore[assignment]
    rows = row_format(name, Schema({"c": dtype}))
    written = rows.encode({"c": value}, "t")
    assert rows.decode(written, "t") == {"c": value}
    assert rows.decode_batch([written], "t").to_pylist() == [{"c": value}]


def _deep(levels: int) -> pa.DataType:
    dtype = pa.int32()
    for _ in range(levels):
        dtype = pa.list_(dtype)
    return dtype


def _wide(levels: int) -> pa.DataType:
    dtype = pa.int32()
    for _ in range(levels):
        dtype = pa.struct([pa.field(name, dtype) for name in "abcd"])
    return dtype


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        (_deep(31), "more than 30 levels"),
        (_deep(1_000), "more than 30 levels"),
        (_wide(10), "or 10000 fields"),
        (pa.struct([pa.field("a", pa.int32()), pa.field("a", pa.string())]), "the field 'a' twice"),
        (pa.list_(pa.struct([])), "a STRUCT without fields"),
        (pa.struct([pa.field("", pa.int32())]), "has no name"),
        (pa.map_(pa.struct([pa.field("a", pa.int32())]), pa.int32()), "whose keys are lists, maps or structs"),
        (pa.map_(pa.list_(pa.int32()), pa.int32()), "whose keys are lists, maps or structs"),
        (pa.binary(0), "which columns cannot have"),
    ],
)
def test_types_without_values(dtype: pa.DataType, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Schema({"c": dtype})


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ({"name": "\ud800", "type": "INT"}, "UTF-8"),
        ({"name": "c", "type": "INT", "comment": "\ud800"}, "UTF-8"),
        ({"name": "c", "type": "INT", "comment": 5}, "'comment' a text"),
        ({"name": "c", "type": "INT", "nullable": "false"}, "'nullable' must be true or false"),
        ({"name": "c", "type": "STRING", "length": True}, "has a length"),
        ({"name": "c", "type": "INT", 5: 6}, "a column has '5'"),
        ({"name": "c", "type": "DOUBLE", "default": float("nan")}, "must be a finite number"),
        ({"name": "c", "type": "FLOAT", "default": float("inf")}, "must be a finite number"),
    ],
)
def test_columns_that_are_none(column: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Schema([column])


def test_comments_that_are_none() -> None:
    with pytest.raises(ArgumentTypeError, match="comment"):
        Schema("a INT", comment=5)  # type: ignore[arg-type]
    odd = pa.schema([pa.field("a", pa.int32(), metadata={"comment": b"\xff"})])
    assert Schema(odd).columns[0]["comment"] == "\ufffd"


@pytest.mark.parametrize(
    "text",
    [
        "c STRUCT<`\ud800`: INT>",
        "c DECIMAL(\u0661\u0660, 2)",
        "c DECIMAL(5, 2) DEFAULT -'5'",
        "c DOUBLE DEFAULT 1e400",
        "c BINARY DEFAULT X'0'",
        "c ARRAY<NOT NULL>",
        "c MAP<INT NOT NULL>",
        "NOT NULL>",
    ],
)
def test_texts_that_are_no_schemas(text: str) -> None:
    with pytest.raises(SchemaError):
        Schema(text)


def test_elements_that_are_never_null() -> None:
    text = (
        "c ARRAY<DECIMAL(9, 2) NOT NULL> NOT NULL COMMENT 'null>', d MAP<STRING NOT NULL, ARRAY<INT NOT NULL> NOT NULL>"
    )
    schema = Schema(text)
    assert str(schema) == text.replace("STRING NOT NULL", "STRING")
    with pytest.raises(SchemaMismatchError, match=r"'c\[\]' .* must be not null"):
        schema.check({"c": [None]})
    assert str(Schema("c BINARY(2) DEFAULT X'00FF'")) == "c BINARY(2) DEFAULT X'00ff'"


@pytest.mark.parametrize(
    "given",
    [
        {"required": True, "properties": {"a": {"type": "integer"}}},
        {"required": None, "properties": {"a": {"type": "integer"}}},
        {"properties": {"a": {"type": "object", "properties": [1]}}},
        {"properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}, "required": 5}}},
        {"properties": {"a": {"type": "object", "properties": {1: {"type": "string"}}}}},
        {"properties": {"a": {"type": "object", "properties": {"\ud800": {"type": "string"}}}}},
        {"properties": {"a": {"type": "number", "default": float("nan")}}},
    ],
)
def test_damaged_json_schemas(given: Any) -> None:
    with pytest.raises(SchemaError):
        Schema.of_json_schema({"type": "object", **given})


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"type": "string", "streamrt.type": "BIGINT"}, "STRING"),
        ({"type": "string", "streamrt.type": "ARRAY<INT>"}, "STRING"),
        ({"type": "integer", "minimum": True, "maximum": True}, "BIGINT"),
        ({"type": "string", "maxLength": True}, "STRING"),
    ],
)
def test_json_schemas_that_others_changed(given: Any, word: str) -> None:
    assert Schema.of_json_schema({"type": "object", "properties": {"a": given}}).types == (word,)


@pytest.mark.parametrize(
    ("declared", "more"),
    [
        ({"type": "int", "logicalType": ["x"]}, {}),
        ({"type": "fixed", "name": "F", "size": 1 << 40}, {}),
        ({"type": "fixed", "name": "F", "size": True}, {}),
        ({"type": "bytes", "logicalType": "decimal", "precision": True}, {}),
        ({"type": "int", "logicalType": "date"}, {"default": 1.5}),
        ({"type": "int", "logicalType": "date"}, {"default": True}),
        ({"type": "int", "logicalType": "time-millis"}, {"default": 86_400_000}),
        ("double", {"default": float("inf")}),
        ({"type": "record", "name": "S", "fields": [{"name": "x", "type": "int"}, {"name": "x", "type": "int"}]}, {}),
    ],
)
def test_damaged_schemas_of_avro(declared: Any, more: Mapping[str, Any]) -> None:
    with pytest.raises(SchemaError):
        Schema.of_avro({"type": "record", "name": "R", "fields": [{"name": "a", "type": declared, **more}]})


def test_records_of_avro_that_are_named_again_and_again() -> None:
    fields: list[dict[str, Any]] = [{"name": "a", "type": "int"}]
    for level in range(30):
        record = {"type": "record", "name": f"N{level}", "fields": fields}
        fields = [{"name": "first", "type": record}, {"name": "second", "type": f"N{level}"}]
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        Schema.of_avro({"type": "record", "name": "R", "fields": fields})


@pytest.mark.parametrize("text", ["1_0", " 1", "1\n", "\u0661", "", "0x1", "1e", "NaN", "+", "1..0"])
def test_texts_that_are_no_decimals(text: str) -> None:
    rows = row_format("json", Schema("c DECIMAL(9, 2)"))
    for read in (lambda: rows.encode({"c": text}, "t"), lambda: rows.decode(json.dumps({"c": text}).encode(), "t")):
        with pytest.raises(SerializationError, match="a text with a number"):
            read()


@pytest.mark.parametrize("key", ["1_0", " 1", "+1", "01", "\u0661", "nan", "inf", "1e400", "", "1" * 5_000, ".5"])
def test_keys_of_json_maps_that_are_no_numbers(key: str) -> None:
    value = json.dumps({"c": {key: 1}}).encode()
    for word in ("INT", "DOUBLE"):
        with pytest.raises(SerializationError, match="must be a number, as JSON writes it"):
            row_format("json", Schema(f"c MAP<{word}, INT>")).decode(value, "t")


def test_numbers_of_other_libraries() -> None:
    schema = Schema("f DOUBLE, d DECIMAL(9, 2)")
    assert schema.check([np.float32(1.5), np.int64(5)]) == {"f": 1.5, "d": decimal.Decimal("5.00")}
    for odd in (np.True_, np.complex128(1 + 2j), np.timedelta64(5, "s"), np.array([1.0]), "1"):
        with pytest.raises(SchemaMismatchError, match="must be a number"):
            schema.check({"f": odd})


def test_a_text_column_refuses_json_that_cannot_be_written_again() -> None:
    rows = row_format("json", Schema("c STRING"))
    value = b'{"c":' + b"[" * 300 + b"]" * 300 + b"}"
    with pytest.raises(SerializationError, match="JSON with fewer levels"):
        rows.decode(value, "t")
    with pytest.raises(SerializationError, match=r"row 0: .*JSON with fewer levels"):
        rows.decode_batch([value], "t")


@pytest.mark.parametrize("name", ["json", "str", "avro"])
def test_negative_zeros_are_the_same_key(name: str) -> None:
    schema = Schema("c DECIMAL(9, 2)")
    key = key_format(name, schema, ["c"])
    assert key.encode(schema.check({"c": "-0.00"})) == key.encode(schema.check({"c": 0}))


def test_times_of_any_zone_are_those_of_utc() -> None:
    schema = Schema("c TIMESTAMP_LTZ")
    for hours in (-14, 0, 14):
        zone = datetime.timezone(datetime.timedelta(hours=hours, minutes=30, seconds=1, microseconds=5))
        moment = datetime.datetime(1900, 1, 1, tzinfo=zone)
        for name in ("json", "avro", "protobuf"):
            rows = row_format(name, schema)
            assert rows.decode(rows.encode({"c": moment}, "t"), "t")["c"] == moment


@pytest.mark.parametrize("name", ["json", "avro", "protobuf"])
def test_values_at_the_ends_of_types_are_checked_however_they_come(name: str) -> None:
    wide = row_format(name, Schema("a BIGINT, b BIGINT, c STRING, d DOUBLE"))
    narrow = row_format(name, Schema("a TINYINT, b BIGINT, c VARCHAR(3), d FLOAT"))
    row = {"a": 127, "b": -(1 << 63), "c": "abc", "d": 0.5}
    if name != "avro":
        assert narrow.decode(wide.encode(row, "t"), "t") == row
        for column, value, rule in (
            ("a", 128, "an integer of 8 bits"),
            ("c", "abcd", "3 characters"),
            ("d", 1e300, "32 bits"),
        ):
            with pytest.raises(SerializationError, match=rule):
                narrow.decode(wide.encode({**row, column: value}, "t"), "t")
    for column, value, rule in (
        ("a", True, "an integer"),
        ("b", 1 << 63, "an integer of 64 bits"),
        ("c", "\ud800", "UTF-8"),
    ):
        with pytest.raises(SerializationError, match=rule):
            wide.encode({**row, column: value}, "t")
    with pytest.raises(SerializationError, match="an integer of 64 bits"):
        row_format("json", Schema("b BIGINT")).decode(b'{"b":9223372036854775808}', "t")


def test_rows_in_lists_have_the_rules_of_rows_in_mappings() -> None:
    schema = Schema("a INT NOT NULL, b STRING DEFAULT 'x', c ARRAY<STRUCT<n: INT NOT NULL>>")
    assert schema.check([1, None, [{"n": 2}]]) == {"a": 1, "b": None, "c": [{"n": 2}]}
    assert schema.check({"a": 1}) == {"a": 1, "b": "x", "c": None}
    for row, reason in (
        ([None, "x", None], r"column 'a' \(INT\) must be not null"),
        ([1, "x", [{"n": 1}, {}]], r"column 'c\[\].n' .* must be not null"),
        ([1, "x"], "2 values for 3 columns"),
        ({"b": "x"}, "column 'a' is missing"),
        ({"a": 1, "z": 1}, "there is no column 'z'"),
    ):
        with pytest.raises(SchemaMismatchError, match=reason):
            schema.check(row)


def _from_csv(tmp_path: Path, text: str) -> list[Any]:
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return list(read_rows(Schema("n BIGINT, f DOUBLE"), None, path, "csv"))


def test_numbers_in_csv(tmp_path: Path) -> None:
    rows = _from_csv(tmp_path, "n,f\n-1,1.5e3\n+2,-inf\n3,Infinity\n,\n")
    infinite = [{"n": 2, "f": -math.inf}, {"n": 3, "f": math.inf}]
    assert rows == [{"n": -1, "f": 1500.0}, *infinite, {"n": None, "f": None}]
    assert math.isnan(_from_csv(tmp_path, "f\nnan\n")[0]["f"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *(
            (f"n\n{cell}\n", "line 2: column 'n' must be BIGINT")
            for cell in ("1_0", " 1", "\u0661", "1.0", "9" * 5_000)
        ),
        *(
            (f"f\n{cell}\n", "line 2: column 'f' must be DOUBLE")
            for cell in ("1_0", "1 ", "\u0661", "infinite", "1e400")
        ),
        ("n,f,n\n1,2,3\n", "names the column 'n' twice"),
    ],
)
def test_csv_that_is_no_rows(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(SchemaMismatchError, match=reason):
        _from_csv(tmp_path, text)
