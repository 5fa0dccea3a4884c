"""Formats of tables of a catalogue, over topics in memory."""

import pyarrow as pa
import pytest

from streamrt import Catalog
from streamrt.errors import ConfigurationError, SchemaError, SchemaMismatchError, SerializationError
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.serializers.row_formats import raw_format, row_format
from streamrt.testing.memory_topics import MemoryLinks
from tests.table_home import COLUMNS


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


@pytest.fixture
def catalog(links: MemoryLinks) -> Catalog:
    made = Catalog(links=links)
    made.create_database("shop", comment="what we sell", properties={"owner": "ann"})
    return made


def test_a_row_format_is_kept_by_name(catalog: Catalog) -> None:
    table = catalog.create_table("shop.orders", COLUMNS, format=row_format("json", Schema(COLUMNS)))
    assert table.info.format == "json"
    assert catalog.row_format(table.info).name == "json"
    assert catalog.key_format(table.info) is None
    assert catalog.create_table("shop.arrow", pa.schema([("x", pa.int32())])).schema.types == ("INT",)


@pytest.mark.rows("DK-092", "FL-121")
@pytest.mark.parametrize(
    ("word", "schema", "value"),
    [
        ("json", "id BIGINT, name STRING", b'{"id":1,"name":"a"}'),
        ("avro", "id BIGINT, name STRING", b"\x02\x02\x02\x02a"),
        ("protobuf", "id BIGINT, name STRING", b"\x08\x01\x12\x01a"),
        ("single", "id BIGINT", b"1"),
        ("string", "name STRING", b"a"),
        ("raw", None, b"1"),
    ],
)
def test_tables_have_formats(catalog: Catalog, links: MemoryLinks, word: str, schema: str | None, value: bytes) -> None:
    table = catalog.create_table("shop.rows", schema, format=word)
    assert catalog.load("shop.rows").format == word
    row = {"id": 1, "name": "a", "value": b"1"}
    table.append([{name: row[name] for name in table.schema.names}])
    feed = links.feed()
    feed.add({TopicPartition("shop.rows", 0): 0})
    feed.resume([TopicPartition("shop.rows", 0)])
    [(_, batch)] = feed.poll(10, 10)
    assert list(batch.values) == [value]
    assert list(table.scan().rows()) == [{name: row[name] for name in table.schema.names}]
    with pytest.raises(ConfigurationError, match=r"there is no format 'csv' of rows; there are json, avro"):
        catalog.create_table("shop.other", schema, format="csv")


@pytest.mark.rows("FL-121")
def test_raw_tables_need_no_schema(catalog: Catalog) -> None:
    raw = catalog.create_table("shop.raw", format="raw")
    assert str(raw.schema) == "value BINARY"
    assert raw.info.format_options == {"serializer": "bytes", "deserializer": "bytes"}
    with raw.writer() as writer:
        writer.append({"value": b"\xff"})
        writer.append([b""])
        writer.append_arrow(pa.table({"value": [b"a"]}))
        for row in ({"value": 7}, {"value": None}, {"other": b""}):
            with pytest.raises((SchemaMismatchError, SerializationError), match=r"value|other"):
                writer.append(row)
    expected = [{"value": each} for each in (b"\xff", b"", b"a")]
    assert list(catalog.table("shop.raw").scan().rows()) == raw.scan().to_arrow().to_pylist() == expected
    with raw.subscribe(start="earliest") as stream:
        assert [record.row for record in stream.poll(10)] == expected
    assert raw.topic.name == "shop.raw"
    catalog.create_table("shop.same", "value BINARY NOT NULL", format="raw")
    for schema in ("value STRING", "payload BINARY", "value BINARY, n INT"):
        with pytest.raises(SchemaError, match=r"one column, 'value'"):
            catalog.create_table("shop.other", schema, format="raw")
    with pytest.raises(SchemaError, match=r"one column, 'value'"):
        catalog.alter_table("shop.raw", add="n INT")
    for given in (
        {"format": "raw", "format_options": {"serializer": "json", "deserializer": "json"}},
        {"format": "raw", "format_options": {"deserializer": "json"}},
        {"format": raw_format("json", "json")},
    ):
        with pytest.raises(
            ConfigurationError, match=r"'raw' with the serializer 'json': a raw table has bytes; the format"
        ):
            catalog.create_table("shop.other", **given)
    assert "shop.other" not in catalog
