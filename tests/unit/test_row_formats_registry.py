"""Rows with their schema in a registry: what older, newer and foreign writers wrote."""

import datetime
import decimal
import io
import json
import pickle
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from streamrt import Catalog
from streamrt.errors import SerializationError
from streamrt.schema import Schema
from streamrt.serializers.avro.column_reading import AvroColumns, NotVectorizableError
from streamrt.serializers.avro.column_writing import avro_rows
from streamrt.serializers.row_formats import RowFormat, row_format
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.testing.row_formats import ROW_EXAMPLES
from tests.support import LONG
from tests.unit.registries import Answer, RegistryDouble

UTC = datetime.timezone.utc


class Schemas:
    """Answers as a registry that keeps all schemas."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []

    def __call__(self, method: str, path: str, body: Any) -> Answer:
        if method == "POST":
            return 200, {"id": self.keep(body), "version": 1, "subject": path.split("/")[2]}
        found = [each for number, each in enumerate(self.kept, 1) if path == f"/schemas/ids/{number}"]
        return (200, found[0]) if found else (404, {"error_code": 40403, "message": "unknown"})

    def keep(self, body: dict[str, Any]) -> int:
        if body not in self.kept:
            self.kept.append(body)
        return self.kept.index(body) + 1


@pytest.fixture(scope="module")
def schemas() -> Schemas:
    return Schemas()


@pytest.fixture(scope="module")
def registry(schemas: Schemas) -> Iterator[RegistryDouble]:
    with RegistryDouble(schemas) as double:
        yield double


def agree(made: RowFormat, values: Sequence[bytes]) -> list[dict[str, Any]] | str:
    """Read values one by one and in a batch, and return the rows, or the error of the first value that is none."""
    rows: list[dict[str, Any]] = []
    try:
        rows.extend(made.decode(value, "t") for value in values)
    except SerializationError as error:
        fault = f"row {len(rows)}: {error}"
    else:
        batch = made.decode_batch(values, "t")
        batch.validate(full=True)
        assert batch.schema == made.schema.arrow
        assert [made.schema.check(row) for row in batch.to_pylist()] == rows
        return rows
    with pytest.raises(SerializationError) as caught:
        made.decode_batch(values, "t")
    assert str(caught.value) == fault
    return fault


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_rows_of_older_and_newer_programs(name: str, registry: RegistryDouble) -> None:
    older = row_format(
        name, Schema("id INT NOT NULL, name STRING, gone STRING"), {"name": f"shop.{name}"}, registry.config()
    )
    assert older.options["wire"] == "confluent"
    newer = row_format(
        name,
        Schema("name STRING, id BIGINT NOT NULL, n INT NOT NULL DEFAULT 7, at TIMESTAMP"),
        older.options,
        registry.config(),
    )
    first = {"id": 1, "name": "Ann", "gone": "x"}
    second = {"name": None, "id": 2**40, "n": 8, "at": datetime.datetime(2026, 3, 29)}
    values = [older.encode(first, "t"), newer.encode(second, "t"), older.encode(first, "t")]
    assert values[0][0] == 0
    assert values[0][1:5] != values[1][1:5]
    read = {"name": "Ann", "id": 1, "n": 7, "at": None}
    assert agree(newer, values) == [read, second, read]
    assert agree(newer, values[:1]) == [read]
    assert newer.decode_batch(values, "t", ["id"]).to_pylist() == [{"id": 1}, {"id": 2**40}, {"id": 1}]
    # The one who knows less reads the rest.
    assert agree(older, [newer.encode({**second, "id": 5}, "t")]) == [{"id": 5, "name": None, "gone": None}]
    assert "row 0: column 'id' (INT) must be an integer of 32 bits" in agree(older, [newer.encode(second, "t")])
    again = pickle.loads(pickle.dumps(newer))
    assert agree(again, values) == [read, second, read]
    assert newer.encode_batch(newer.decode_batch(values, "t"), "t") == [
        newer.encode(row, "t") for row in (read, second, read)
    ]
    for value in (b"", b"\0\0", b"\0\0\0\x0f\xff1", b"\1" * 17, b"{}", values[0][:-1], values[0] + b"\0"):
        agree(newer, [values[0], value])
        agree(newer, [value])


@pytest.mark.parametrize(
    ("older", "newer", "value", "read"),
    [
        ("INT", "BIGINT", -5, -5),
        ("FLOAT", "DOUBLE", 0.5, 0.5),
        ("DATE", "TIMESTAMP", datetime.date(2026, 3, 29), datetime.datetime(2026, 3, 29)),
        ("BINARY(2)", "BINARY", b"ab", b"ab"),
        ("DECIMAL(3, 1)", "DECIMAL(9, 3)", decimal.Decimal("-9.5"), decimal.Decimal("-9.500")),
        ("STRUCT<x: INT>", "STRUCT<y: INT, x: BIGINT>", {"x": 1}, {"y": None, "x": 1}),
        ("INT", "DOUBLE", 5, 5.0),
    ],
)
@pytest.mark.parametrize("name", ["avro", "protobuf", "json"])
def test_types_become_wider(name: str, older: str, newer: str, value: Any, read: Any, registry: RegistryDouble) -> None:
    before = row_format(name, Schema({"c": older}), None, registry.config())
    after = row_format(name, Schema({"c": newer}), before.options, registry.config())
    values = [before.encode({"c": value}, "t"), after.encode({"c": read}, "t")]
    if name == "protobuf" and (older, newer) == ("INT", "DOUBLE"):
        assert "column 'c' was written with another type" in agree(after, values)
    else:
        assert agree(after, values) == [{"c": read}] * 2


def test_columns_of_protobuf_keep_their_numbers() -> None:
    first = row_format("protobuf", Schema("a INT, b STRING, s STRUCT<x: INT, y: INT>"))
    assert first.options["numbers"] == {"a": 1, "b": 2, "s": 3, "s.x": 1, "s.y": 2}
    second = row_format("protobuf", Schema("s STRUCT<z: INT, y: INT>, c INT, b STRING"), first.options)
    assert second.options["numbers"] == {"a": 1, "b": 2, "s": 3, "s.x": 1, "s.y": 2, "s.z": 3, "c": 4}
    value = first.encode({"a": 1, "b": "x", "s": {"x": 1, "y": 2}}, "t")
    assert agree(second, [value]) == [{"s": {"z": None, "y": 2}, "c": None, "b": "x"}]


DAY = datetime.date(2026, 3, 29)
MOMENT = datetime.datetime(2026, 3, 29, 8, 0, 0, 123_000)
FOREIGN: list[tuple[Any, list[Any]]] = [
    ("int", [0, -1, 127, 128, 2**31 - 1]),
    ("long", [5, -(2**63), 2**53 + 1]),
    ("float", [1.5, 3.4e38]),
    ("double", [0.1, 1e300, float("inf")]),
    ("boolean", [True, False]),
    ("string", ["", "ä", "2026-03-29", "1.5", "x" * 9]),
    ("bytes", [b"", b"abc"]),
    ("null", [None]),
    (["null", "string"], [None, "b"]),
    (["int", "string"], [1, "a"]),
    (["null", "int", "double"], [None, 1, 1.5]),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["B", "A"]),
    ({"type": "fixed", "name": "F", "size": 3}, [b"abc"]),
    ({"type": "string", "logicalType": "uuid"}, [uuid.UUID(int=5)]),
    ({"type": "int", "logicalType": "date"}, [DAY, datetime.date.min, datetime.date.max]),
    ({"type": "int", "logicalType": "time-millis"}, [datetime.time(8, 0, 0, 5_000)]),
    ({"type": "long", "logicalType": "time-micros"}, [datetime.time(8, 0, 0, 5), datetime.time(8)]),
    ({"type": "long", "logicalType": "timestamp-millis"}, [MOMENT.replace(tzinfo=UTC)]),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, [MOMENT]),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, [MOMENT]),
    ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, [decimal.Decimal("-1234.50")]),
    ({"type": "fixed", "name": "D", "size": 5, "logicalType": "decimal", "precision": 4, "scale": 1},
     [decimal.Decimal("-0.5")]),
    ({"type": "array", "items": ["null", "long"]}, [[1, None], [], [None]]),
    ({"type": "array", "items": {"type": "record", "name": "I", "fields": [
        {"name": "b", "type": {"type": "array", "items": "string"}}, {"name": "z", "type": "int"},
        {"name": "a", "type": "int"},
     ]}},
     [[{"a": 1, "b": ["x"], "z": 2}, {"a": 2, "b": [], "z": 2}], []]),
    ({"type": "map", "values": "int"}, [{"a": 1, "b": 2}, {}]),
    ({"type": "map", "values": {"type": "array", "items": "int"}}, [{"a": [1, 2]}, {}]),
    ({"type": "record", "name": "S", "fields": [{"name": "x", "type": "float"}, {"name": "other", "type": "string"}]},
     [{"x": 1.5, "other": "o"}]),
]  # fmt: skip


def written(declared: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, declared, value)
    return out.getvalue()


@pytest.mark.parametrize("number", range(len(FOREIGN)))
def test_any_writer_and_any_column(number: int, schemas: Schemas, registry: RegistryDouble) -> None:
    declared, objects = FOREIGN[number]
    record = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "c", "type": declared}, {"name": "more", "type": "int"}],
    }
    parsed = fastavro.parse_schema(json.loads(json.dumps(record)))
    prefix = struct.pack(">bI", 0, schemas.keep({"schema": json.dumps(record)}))
    values = [prefix + written(parsed, {"c": each, "more": 5}) for each in objects]
    words = [word for word in ROW_EXAMPLES if word != "MAP<BIGINT, STRING>"]
    for word in words if LONG else words[number % 2 :: 2]:
        for nullable in (True, False):
            made = row_format(
                "avro", Schema([{"name": "c", "type": word, "nullable": nullable}]), None, registry.config()
            )
            agree(made, values)
            for value in values if nullable else ():
                agree(made, [value, value])


@pytest.mark.parametrize("word", [word for word in ROW_EXAMPLES if word != "MAP<BIGINT, STRING>"])
def test_usual_records_are_read_side_by_side(word: str) -> None:
    schema = Schema({"c": word})
    made = row_format("avro", schema)
    parsed = fastavro.parse_schema(schema.to_avro())
    values = [made.encode({"c": each}, "t") for each in (ROW_EXAMPLES[word], None)] * 3
    read = AvroColumns(parsed, {}).read(values, 0, frozenset("c"))["c"]
    assert len(read) == 6
    assert read.null_count == 3


@pytest.mark.parametrize("word", [word for word in ROW_EXAMPLES if not word.startswith("MAP")])
def test_usual_columns_are_written_side_by_side(word: str) -> None:
    for nullable in (True, False):
        schema = Schema([{"name": "c", "type": word, "nullable": nullable}, {"name": "n", "type": "BIGINT"}])
        made = row_format("avro", schema)
        numbers = [0, -1, 63, 64, -65, 2**63 - 1, -(2**63), 300]
        rows = [{"c": None if nullable and n == 63 else ROW_EXAMPLES[word], "n": n} for n in numbers]
        batch = pa.RecordBatch.from_pylist(rows, schema=schema.arrow)
        for part in (batch, batch.slice(3, 2)):
            written = avro_rows(part.columns, schema.to_avro()["fields"])
            assert [made.decode(each, "t") for each in written] == [schema.check(row) for row in part.to_pylist()]
            assert written == made.encode_batch(part, "t")


def test_decimals_of_any_length_are_written_side_by_side() -> None:
    schema = Schema([{"name": "c", "type": "DECIMAL(38, 0)", "nullable": False}])
    numbers = [sign * (2**bits + more) for bits in range(0, 126, 1) for more in (-1, 0, 1) for sign in (1, -1)]
    rows = [{"c": decimal.Decimal(number)} for number in numbers if abs(number) < 10**38]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema.arrow)
    made = row_format("avro", schema)
    written = avro_rows(batch.columns, schema.to_avro()["fields"])
    assert [made.decode(each, "t") for each in written] == rows
    assert made.decode_batch(written, "t").to_pylist() == rows


def test_items_in_blocks_of_any_size() -> None:
    items = pa.list_(pa.field("item", pa.int32(), nullable=False))
    made = row_format("avro", Schema(pa.schema([pa.field("l", items, False), pa.field("n", pa.int32(), False)])))
    # One block of two items; two blocks, one of them with its size; none; an item that is too long.
    values = [b"\x04\x02\x04\x00\x0a", b"\x02\x06\x03\x04\x08\x0a\x00\x0a", b"\x00\x0a"]
    assert agree(made, values) == [{"l": [1, 2], "n": 5}, {"l": [3, 4, 5], "n": 5}, {"l": [], "n": 5}]
    for odd in (
        b"\x04\x02",
        b"\x80" * 11,
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x03\x00",
        b"\x02" + b"\xff" * 9 + b"\x01\x00\x0a",
    ):
        assert isinstance(agree(made, [values[0], odd]), str)
    parsed = fastavro.parse_schema(made.schema.to_avro())
    with pytest.raises(NotVectorizableError):
        AvroColumns(parsed, {}).read([b"\xd0\x0f" + b"\x02" * 1_000 + b"\x00\x0a"], 0, frozenset("l"))
    assert agree(made, [b"\xd0\x0f" + b"\x02" * 1_000 + b"\x00\x0a"]) == [{"l": [1] * 1_000, "n": 5}]


def test_a_catalogue_keeps_the_numbers_of_columns() -> None:
    catalog = Catalog(links=MemoryLinks())
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", "a STRING, b STRING", format="protobuf")
    assert table.info.format_options["numbers"] == {"a": 1, "b": 2}
    value = catalog.row_format(table.info).encode({"a": "x", "b": "y"}, "t")
    catalog.alter_table("shop.orders", drop=["a"])
    catalog.alter_table("shop.orders", add=[{"name": "c", "type": "STRING"}])
    info = catalog.table("shop.orders").info
    assert info.format_options["numbers"] == {"a": 1, "b": 2, "c": 3}
    assert catalog.row_format(info).decode(value, "t") == {"b": "y", "c": None}
