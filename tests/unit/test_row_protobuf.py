"""Rows in Protobuf, compared with a message type of the same fields that is written by hand."""

import datetime
import math
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt.errors import ConfigurationError, SchemaError, SchemaEvolutionError, SerializationError
from streamrt.schema import Schema
from streamrt.serializers.row_formats import RowFormat, row_format
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import LONG

_UTC = datetime.timezone.utc
_SCHEMA = Schema(
    "n BIGINT, f DOUBLE, s STRING, b BOOLEAN, at TIMESTAMP_LTZ, ns ARRAY<INT>, fs ARRAY<DOUBLE>, m MAP<STRING, INT>"
)


def _rows(columns: str, **options: Any) -> RowFormat:
    return row_format("protobuf", Schema(columns), options)


def _by_hand() -> Any:
    file = FileDescriptorProto(name="t.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"])
    message = file.message_type.add(name="Row")
    kinds = FieldDescriptorProto
    for number, (name, kind) in enumerate({"n": 3, "f": 1, "s": 9, "b": 8}.items(), 1):
        field = message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL, proto3_optional=True)
        field.oneof_index = number - 1
        field.type = kind  # type: ignore[assignment]
        message.oneof_decl.add(name=f"_{name}")
    at = message.field.add(name="at", number=5, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_MESSAGE)
    at.type_name = ".google.protobuf.Timestamp"
    ns = message.field.add(name="ns", number=6, label=kinds.LABEL_REPEATED, type=kinds.TYPE_INT64)
    ns.options.packed = False
    message.field.add(name="fs", number=7, label=kinds.LABEL_REPEATED, type=kinds.TYPE_DOUBLE)
    entry = message.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_STRING)
    entry.field.add(name="value", number=2, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_INT64)
    message.field.add(name="m", number=8, label=kinds.LABEL_REPEATED, type=kinds.TYPE_MESSAGE, type_name=".Row.MEntry")
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("Row"))


_MESSAGE = _by_hand()
_VALUES = {
    "n": st.integers(-(1 << 63), (1 << 63) - 1) | st.none(),
    "f": st.floats(allow_nan=False) | st.none(),
    "s": st.text(st.characters(codec="utf-8"), max_size=5) | st.none(),
    "b": st.booleans() | st.none(),
    "at": st.datetimes(timezones=st.just(_UTC)) | st.none(),
    "ns": st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=9),
    "fs": st.lists(st.floats(allow_nan=False), max_size=9),
    "m": st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), st.integers(-9, 9), max_size=3),
}


@settings(max_examples=2_000 if LONG else 60, deadline=None)
@given(st.fixed_dictionaries(_VALUES))
def test_rows_are_messages_of_protobuf(row: dict[str, Any]) -> None:
    rows = row_format("protobuf", _SCHEMA)
    message = _MESSAGE(**{name: value for name, value in row.items() if name != "at" and value is not None})
    if row["at"] is not None:
        message.at.FromDatetime(row["at"].replace(tzinfo=None))
        message.at.SetInParent()
    written = message.SerializeToString(deterministic=True)
    assert rows.encode(row, "t") == written
    assert rows.decode(written, "t") == row
    assert rows.encode_batch(rows.decode_batch([written], "t"), "t") == [written]


def test_numbers_that_json_does_not_have() -> None:
    rows = _rows("a DOUBLE, b FLOAT, c ARRAY<DOUBLE>")
    row = rows.decode(rows.encode([math.nan, -math.inf, [math.inf, -0.0]], "t"), "t")
    assert math.isnan(row["a"])
    assert row["b"] == -math.inf
    assert str(row["c"]) == "[inf, -0.0]"


@pytest.mark.parametrize("item", ["ARRAY<{}>", "STRUCT<a: ARRAY<{}>>", "MAP<STRING, {}>", "{}"])
def test_integers_are_never_read_as_doubles(item: str) -> None:
    older = _rows(f"c {item.format('INT')}")
    newer = _rows(f"c {item.format('DOUBLE')}", **older.options)
    # As many bytes as a double has.
    value: Any = [1] * 8 if "ARRAY" in item else {"a": 1} if "MAP" in item else 1
    written = older.encode({"c": {"a": value} if "STRUCT" in item else value}, "t")
    with pytest.raises(SerializationError, match="was written with another type"):
        newer.decode(written, "t")
    with pytest.raises(SerializationError, match="was written with another type"):
        newer.decode_batch([written], "t")


def test_a_null_is_not_read_as_a_default() -> None:
    rows = _rows("a INT DEFAULT 5, b INT DEFAULT NULL, c INT")
    assert rows.decode(rows.encode({}, "t"), "t") == {"a": 5, "b": None, "c": None}
    for write in (
        lambda: rows.encode({"a": None}, "t"),
        lambda: rows.encode_batch(pa.RecordBatch.from_pylist([{"a": None, "b": 1, "c": 1}]), "t"),
    ):
        with pytest.raises(SerializationError, match="'a' must not be null: it would be read as its default"):
            write()


def test_columns_that_are_not_asked_for_may_have_other_types() -> None:
    older = _rows("a INT, b INT")
    newer = _rows("a INT, b DOUBLE", **older.options)
    written = older.encode([1, 2], "t")
    assert newer.decode_batch([written], "t", ["a"]).to_pylist() == [{"a": 1}]


@pytest.mark.parametrize(
    "numbers", [{"c": 19_000}, {"c": 19_999}, {"c": True}, {"c": 0}, {"c": 1 << 29}, {"c": 1.0}, {5: 1}, [1]]
)
def test_numbers_that_fields_cannot_have(numbers: Any) -> None:
    with pytest.raises(ConfigurationError, match="must have a number for each column, from 1 to 536870911"):
        _rows("c INT", numbers=numbers)


def test_numbers_go_around_those_of_protobuf_and_end() -> None:
    assert _rows("c INT", numbers={"x": 18_999}).options["numbers"]["c"] == 20_000
    with pytest.raises(SchemaError, match="no number is left"):
        _rows("c INT", numbers={"x": (1 << 29) - 1})


@pytest.mark.parametrize("name", ["SerializeToString", "HasField", "DESCRIPTOR"])
def test_columns_named_as_methods_of_messages(name: str) -> None:
    with pytest.raises(SchemaError, match="messages have a method"):
        _rows(f"{name} INT")


@pytest.mark.parametrize("name", ["None", "class", "message", "optional", "a__b", "A_1", "X" * 200])
def test_columns_named_as_words(name: str) -> None:
    rows = _rows(f"`{name}` INT, `x{name}` ARRAY<STRUCT<`{name}`: INT>>")
    row = {name: 5, f"x{name}": [{name: 6}]}
    assert rows.decode(rows.encode(row, "t"), "t") == row


@pytest.mark.parametrize(
    ("seconds", "nanos", "reason"),
    [
        (-62_135_596_801, 0, "outside of the years 1 to 9999"),
        (253_402_300_800, 0, "outside of the years 1 to 9999"),
        (1 << 62, 0, "outside of the years 1 to 9999"),
        (0, 999, "nanoseconds"),
        (0, -1_000, "nanoseconds"),
    ],
)
def test_times_that_python_cannot_hold(seconds: int, nanos: int, reason: str) -> None:
    rows = row_format("protobuf", _SCHEMA)
    message = _MESSAGE()
    message.at.seconds, message.at.nanos = seconds, nanos
    with pytest.raises(SerializationError, match=f"column 'at' has a time .*{reason}"):
        rows.decode(message.SerializeToString(), "t")


@pytest.mark.parametrize(
    ("columns", "widened", "reason"),
    [
        ("c INT, x STRING", {"c": "DOUBLE"}, "integers to DOUBLE"),
        ("c ARRAY<INT>, x STRING", {"c": "ARRAY<DOUBLE>"}, "integers to DOUBLE"),
        ("c MAP<STRING, STRUCT<a: INT>>", {"c": "MAP<STRING, STRUCT<a: DOUBLE>>"}, "integers to DOUBLE"),
        ("c INT, x STRING", {"c": "BIGINT"}, None),
    ],
)
def test_tables_refuse_changes_that_protobuf_cannot_follow(columns: str, widened: Any, reason: str | None) -> None:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    catalog.create_table("rows", columns, format="protobuf")
    if reason is None:
        assert catalog.alter_table("rows", widen=widened).schema_version == 2
        return
    with pytest.raises(SchemaEvolutionError, match=reason):
        catalog.alter_table("rows", widen=widened)


@pytest.mark.parametrize(
    ("change", "follows"),
    [
        ({"add": "y STRING"}, False),
        ({"drop": ["x"]}, False),
        ({"widen": {"f": "DOUBLE"}}, False),
        ({"widen": {"c": "BIGINT", "d": "DECIMAL(12, 2)", "v": "VARCHAR(9)"}}, True),
    ],
)
def test_tables_of_avro_without_a_registry_refuse_changes_of_the_bytes(change: Any, follows: bool) -> None:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    table = catalog.create_table(
        "rows", "c INT, x STRING, f FLOAT, d DECIMAL(9, 2), v VARCHAR(5)", format="avro", num_partitions=1
    )
    row = {"c": -1, "x": "x", "f": 0.5, "d": "-1.50", "v": "v"}
    table.append([row])
    if follows:
        catalog.alter_table("rows", **change)
        assert list(catalog.table("rows").scan(["c", "v"]).rows()) == [{"c": -1, "v": "v"}]
        return
    with pytest.raises(SchemaEvolutionError, match="do not say with which schema they were written"):
        catalog.alter_table("rows", **change)
