"""Records of a catalogue: what was written is read, and nothing else is."""

import copy
import json
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

from streamrt import Catalog
from streamrt.errors import CatalogError, SchemaError
from streamrt.schema import Schema
from streamrt.tables import AWSConnection, MemoryCatalog
from streamrt.tables.catalogue.records import read_application, read_connection, read_database, read_table, table_record
from streamrt.tables.descriptions.schema_documents import schema_document, schema_of
from tests.support import LONG

ALL_TYPES = (
    "a TINYINT DEFAULT -1, b BIGINT NOT NULL DEFAULT 9223372036854775807, c DOUBLE DEFAULT 0.1, "
    "d DECIMAL(38, 9) DEFAULT '1.5', e STRING DEFAULT 'it\\'s' COMMENT 'x', f VARCHAR(20), g BINARY, "
    "h BINARY(4), i DATE DEFAULT '2026-01-31', "
    "j TIME DEFAULT '12:30:00.001', k TIMESTAMP DEFAULT '2026-01-31T12:30:00.000001', "
    "l TIMESTAMP_LTZ DEFAULT '2026-01-31T12:30:00Z', m ARRAY<STRUCT<x: INT, y: ARRAY<STRING>>>, "
    "n MAP<STRING, DECIMAL(5, 2)>, "
    "o BOOLEAN DEFAULT FALSE, p STRING DEFAULT NULL, `q q` INT, PRIMARY KEY (b, e)"
)
JUNK: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**70, 1.5, "", "x", [], {}, [None], {"x": 1}, [[]], {"v": 1}, "\ud800", "9" * 400, [1, "a"]),
    *({"name": "x"}, {"secret": "x"}, {"secret": 5}, "${env:X}", "${bad", {"version": -1}, {"columns": "x"}),
)


def filled() -> tuple[Catalog, MemoryCatalog]:
    store = MemoryCatalog()
    catalog = Catalog(store=store)
    catalog.create_database("shop", comment="c", properties={"a": "b"})
    catalog.add_connection("aws", AWSConnection(region="eu-west-1"))
    catalog.create_table("shop.orders", "id INT, name STRING", config={"retention.ms": "1"}, comment="c")
    catalog.alter_table("shop.orders", add="n BIGINT COMMENT 'PII'")
    catalog.record_usage("late", reads=["shop.orders"])
    return catalog, store


def test_schemas_of_all_types_come_back() -> None:
    schema = Schema(ALL_TYPES, time="k", comment="all")
    document = json.loads(json.dumps(schema_document(schema)))
    assert schema_of(document) == schema
    binary = Schema([{"name": "x", "type": "BINARY", "default": b"\x00\xff"}])
    assert schema_of(json.loads(json.dumps(schema_document(binary)))) == binary
    with pytest.raises(SchemaError, match="must be a finite number"):
        schema_document(Schema([{"name": "x", "type": "DOUBLE", "default": float("nan")}]))


def test_tables_come_back() -> None:
    catalog, _ = filled()
    info = catalog.load("shop.orders")
    assert read_table("shop.orders", table_record(info)) == info


def test_a_newer_form_is_refused_and_not_misread(caplog: pytest.LogCaptureFixture) -> None:
    catalog, store = filled()
    for key in ("table/shop.orders", "database/shop", "connection/aws", "usage/late"):
        stored = store.get(key)
        assert stored is not None
        store.put(key, json.dumps({**json.loads(stored.value), "v": 9}).encode(), stored.version)
    for read in (catalog.table, lambda _: catalog.database("shop"), lambda _: catalog.connection("aws")):
        with pytest.raises(CatalogError, match=r"was written by a newer version of StreamRT \(format 9"):
            read("shop.orders")
    with caplog.at_level(logging.WARNING, "streamrt.tables"):
        assert catalog.applications() == []
    assert "usage 'late'" in caplog.text
    with pytest.raises(CatalogError, match="newer version"):
        catalog.alter_table("shop.orders", comment="x")
    with pytest.raises(CatalogError, match="newer version"):
        catalog.drop_table("shop.orders")


def test_a_damaged_record_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    catalog, store = filled()
    store.put("table/shop.bad", b"\xff not JSON", None)
    with caplog.at_level(logging.WARNING, "streamrt.tables"):
        assert [info.name for info in catalog.infos()] == ["shop.orders"]
        assert [info.name for info in catalog.infos()] == ["shop.orders"]
    assert caplog.text.count("the record of table 'shop.bad' in the catalogue is damaged") == 1
    # Its name is there, so that it can be dropped or replaced.
    assert catalog.tables() == ["shop.bad", "shop.orders"]
    with pytest.raises(CatalogError, match="is damaged"):
        catalog.drop_table("shop.bad")
    catalog.create_table("shop.bad", "id INT", if_exists="replace")
    assert catalog.table("shop.bad").schema.names == ("id",)
    store.put("table/shop.worse", b"[]", None)
    catalog.drop_table("shop.worse", force=True)
    assert catalog.tables() == ["shop.bad", "shop.orders"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each part of a document."""
    yield path
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*path, key))


def changed(document: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    made = copy.deepcopy(document)
    part = made
    for key in path[:-1]:
        part = part[key]
    if junk == "absent":
        del part[path[-1]]
    else:
        part[path[-1]] = junk
    return made


def test_hostile_records_raise_declared_errors_alone() -> None:
    _, store = filled()
    readers: dict[str, Any] = {
        "table": read_table,
        "database": read_database,
        "connection": read_connection,
        "usage": read_application,
    }
    cases = [
        (readers[kind], name, changed(document, path, junk))
        for key, stored in store.list().items()
        for kind, _, name in [key.partition("/")]
        for document in [json.loads(stored.value)]
        for path in places(document)
        for junk in (*JUNK, "absent")
    ]
    random.Random(31).shuffle(cases)
    errors: list[str] = []
    for read, name, document in cases if LONG else cases[:600]:
        try:
            value = read(name, json.dumps(document).encode())
        except CatalogError as error:
            errors.append(str(error))
        else:
            # What is accepted can be used.
            assert repr(value)
            if read is read_table:
                value.as_dict()
                table_record(value)
    assert len(errors) > 300


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"null", b"[" * 3000, b'{"v":1}', b'{"v":1.0}', b'{"v":true}', b'{"v":"1"}']
)
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(CatalogError, match="is damaged"):
        read_table("shop.orders", data)
