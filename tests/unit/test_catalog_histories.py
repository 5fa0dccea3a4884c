"""Long histories of schemas, documents that are too long, and fields of newer versions."""

import contextlib
import json
import random
from typing import Any

import pytest

from streamrt import Catalog
from streamrt.errors import CatalogConflictError, CatalogError, SchemaEvolutionError
from streamrt.schema import Schema
from streamrt.tables import AWSConnection, MemoryCatalog
from streamrt.tables.catalogue.catalog_store import Stored
from streamrt.tables.catalogue.documents import LONGEST_RECORD
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import LONG

VERSIONS = 600 if LONG else 200
COMMENT = "What the column means, in many words. " * 20
WIDE = ", ".join(f"c{number} BIGINT COMMENT '{COMMENT}'" for number in range(12))


LONG_SCHEMA = Schema([{"name": f"c{number}", "type": "INT", "comment": COMMENT} for number in range(300)])


class _Limited(MemoryCatalog):
    """A catalogue in memory that takes no record that brokers would refuse, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.fails_at = ""
        self.loses_at = ""

    def put(self, key: str, value: bytes, expected: str | None) -> str:
        assert len(value) + len(key) < 1_000_000
        self.largest = max(self.largest, len(value))
        if self.fails_at and key.startswith(self.fails_at):
            raise CatalogError("the broker went away")
        if self.loses_at and key.startswith(self.loses_at):
            self.loses_at = ""
            super().put(key, value, expected)
        return super().put(key, value, expected)


@pytest.fixture
def store() -> _Limited:
    return _Limited()


@pytest.fixture
def catalog(store: _Limited) -> Catalog:
    made = Catalog(store=store)
    made.create_database("shop")
    return made


def document_of(store: MemoryCatalog, key: str) -> dict[str, Any]:
    stored = store.get(key)
    assert stored is not None
    document: dict[str, Any] = json.loads(stored.value)
    return document


def test_a_wide_table_may_change_hundreds_of_times(catalog: Catalog, store: _Limited) -> None:
    table = catalog.create_table("shop.wide", WIDE + ", x0 STRING")
    for number in range(1, VERSIONS):
        catalog.alter_table(table.name, drop=[f"x{number - 1}"], add=f"x{number} STRING")
    assert store.largest < 500_000
    # A process that has read nothing yet knows all of it.
    with Catalog(store=store) as other:
        info = other.load(table.name)
        assert (info.schema_version, info.version) == (VERSIONS, VERSIONS)
        assert list(info.schema_history) == list(range(1, VERSIONS))
        assert all(schema.names[-1] == f"x{number - 1}" for number, schema in info.schema_history.items())
        # Rows of the first schema count as those of the latest do.
        with pytest.raises(SchemaEvolutionError, match=r"column 'x0' changes from STRING to BIGINT"):
            other.alter_table(table.name, add="x0 BIGINT")
        exported = other.export()
    # An older version does not take it for a table with a short history.
    assert document_of(store, "table/shop.wide")["v"] == 2
    assert exported["objects"]["table/shop.wide"]["v"] == 1
    copied = _Limited()
    with Catalog(store=copied) as other:
        other.import_objects(json.loads(json.dumps(exported)))
        assert other.load(table.name) == info
        assert other.export() == exported
        # Nothing is left of it.
        other.drop_table(table.name)
        assert list(copied.list()) == ["database/shop"]
    catalog.create_table(table.name, "id INT", if_exists="replace")
    assert list(store.list()) == ["database/shop", "table/shop.wide"]


def test_short_histories_stay_as_older_versions_read_them(catalog: Catalog, store: _Limited) -> None:
    catalog.create_table("shop.orders", "id INT")
    catalog.alter_table("shop.orders", add="name STRING")
    document = document_of(store, "table/shop.orders")
    assert document["v"] == 1
    assert [schema["version"] for schema in document["history"]] == [1]
    assert list(store.list()) == ["database/shop", "table/shop.orders"]


def test_a_change_that_is_cut_short_between_its_records_is_repeated(catalog: Catalog, store: _Limited) -> None:
    table = catalog.create_table("shop.wide", LONG_SCHEMA)
    store.fails_at = "table/"
    with pytest.raises(CatalogError, match="went away"):
        catalog.alter_table(table.name, add="x INT")
    store.fails_at = ""
    assert table.refresh().schema_version == 1
    catalog.alter_table(table.name, add="y INT")
    parts = list(store.list("schemas/"))
    catalog.alter_table(table.name, comment="x")
    assert list(store.list("schemas/")) == parts
    assert len(parts) == 1
    assert catalog.load(table.name).schema_history[1].names[-1] == "c299"


def test_a_lost_part_is_named_and_a_table_that_was_dropped_meanwhile_is_gone(
    catalog: Catalog, store: _Limited, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("shop.wide", LONG_SCHEMA)
    catalog.alter_table(table.name, add="y INT")
    get = store.get

    def dropped_meanwhile(key: str) -> Stored | None:
        if key.startswith("schemas/"):
            monkeypatch.undo()
            catalog.drop_table(table.name)
        return get(key)

    stored, part = store.get("table/shop.wide"), next(iter(store.list("schemas/").items()))
    assert stored is not None
    monkeypatch.setattr(store, "get", dropped_meanwhile)
    with Catalog(store=store) as other:
        assert "shop.wide" in other.tables()
        assert other.infos() == []
        assert "shop.wide" not in other
        store.put("table/shop.wide", stored.value, None)
        with pytest.raises(CatalogError, match=r"its earlier schemas 'schemas/.*/1-1-.*' are missing"):
            other.load(table.name)
        store.put(part[0], part[1].value, None)
        assert other.load(table.name).schema_history[1].names[-1] == "c299"


@pytest.mark.parametrize("parts", [None, "1-2-0123456789ab", [1], ["../x"], ["1-2"], [["1-2-0123456789ab"]]])
def test_damaged_lists_of_parts_are_found(catalog: Catalog, store: _Limited, parts: Any) -> None:
    catalog.create_table("shop.orders", "id INT")
    document = {**document_of(store, "table/shop.orders"), "v": 2, "history_in": parts}
    stored = store.get("table/shop.orders")
    assert stored is not None
    store.put("table/shop.orders", json.dumps(document).encode(), stored.version)
    with pytest.raises(CatalogError, match="is damaged"):
        catalog.load("shop.orders")
    assert catalog.infos() == []
    catalog.drop_table("shop.orders", force=True)


def test_what_is_too_long_is_refused_before_anything_is_done(store: _Limited) -> None:
    links = MemoryLinks()
    catalog = Catalog(store=store, links=links)
    long = Schema([{"name": f"c{n}", "type": "INT", "comment": "x" * 10_000} for n in range(100)])
    with pytest.raises(CatalogError, match=rf"^the record of table 'default.a' .* keeps {LONGEST_RECORD} at most"):
        catalog.create_table("a", long)
    assert links.admin().inspect_topics(["default.a"]) == {"default.a": None}
    catalog.create_table("b", "id INT", config={"retention.ms": "1000"})
    for change in ({"schema": Schema([{"name": "id", "type": "INT"}, *long.columns])}, {"comment": "x" * 950_000}):
        with pytest.raises(CatalogError, match="nothing was changed"):
            catalog.alter_table("b", config={"retention.ms": "2000"}, **change)
    config = links.admin().inspect_topics(["default.b"])["default.b"]
    assert config is not None
    assert config.extra_config == {"retention.ms": "1000"}
    assert catalog.load("b").version == 1
    for fail in (
        lambda: catalog.create_database("big", comment="x" * 950_000),
        lambda: catalog.record_usage("app", reads=[f"default.{'t' * 90}{number}" for number in range(10_000)]),
    ):
        with pytest.raises(CatalogError, match="would have"):
            fail()
    document = catalog.export()
    document["objects"]["table/default.c"] = {**document["objects"]["table/default.b"], "comment": "x" * 950_000}
    with pytest.raises(CatalogError, match=r"table 'default.c' would have"):
        Catalog(store=(empty := MemoryCatalog())).import_objects(document)
    assert empty.list() == {}


# -- Fields of newer versions ------------------------------------------------------------------------------------------


def strewn(value: Any, chance: random.Random, marks: list[str]) -> Any:
    """Return a document with fields that no one knows, in objects that have a fixed set of them."""
    if isinstance(value, list):
        return [strewn(each, chance, marks) for each in value]
    if not isinstance(value, dict):
        return value
    is_free = "columns" not in value and "v" not in value and "options" not in value
    made = {name: strewn(each, chance, marks) for name, each in value.items()}
    if not is_free and chance.random() < 0.7:
        mark = f"mark{len(marks)}"
        marks.append(mark)
        made[f"newer_{mark}"] = chance.choice([mark, {"a": [mark]}, [mark, {"b": None}]])
    return made


def test_an_older_version_keeps_what_a_newer_one_has_added() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(300 if LONG else 30):
        store = MemoryCatalog()
        catalog = Catalog(store=store)
        catalog.create_database("shop", comment="c", properties={"a": "b"})
        catalog.add_connection("aws", AWSConnection(region="eu-west-1"))
        catalog.create_table("shop.orders", "id INT, name STRING", properties={"x": "y"})
        catalog.alter_table("shop.orders", add="n0 BIGINT COMMENT 'PII'")
        marks: list[str] = []
        for key, stored in store.list().items():
            store.put(key, json.dumps(strewn(json.loads(stored.value), chance, marks)).encode(), stored.version)
        for number in range(1, chance.randrange(2, 6)):
            change: dict[str, Any] = chance.choice(
                [
                    {"add": f"n{number} INT"},
                    {"drop": ["name"]},
                    {"comment": f"c{number}"},
                    {"properties": {"x": None, "z": "1"}},
                    {"widen": {"id": "BIGINT"}},
                ]
            )
            # A column that is gone already.
            with contextlib.suppress(Exception):
                catalog.alter_table("shop.orders", **change)
        info = catalog.load("shop.orders")
        catalog.create_database("shop", comment="d", if_exists="replace")
        exported = catalog.export()
        copied = MemoryCatalog()
        Catalog(store=copied).import_objects(exported)
        assert Catalog(store=copied).load("shop.orders") == info, f"seed {seed}"
        for where in (store, copied):
            text = b"".join(stored.value for stored in where.list().values()).decode()
            assert [mark for mark in marks if f'"newer_{mark}"' not in text] == [], f"seed {seed}"
        assert "x" not in info.properties or info.properties["x"] == "y"


def test_fields_of_newer_versions_outlast_long_histories(catalog: Catalog, store: _Limited) -> None:
    table = catalog.create_table("shop.wide", WIDE)
    stored = store.get("table/shop.wide")
    assert stored is not None
    document = json.loads(stored.value)
    document["schema"]["sorted_by"] = "c0"
    store.put("table/shop.wide", json.dumps({**document, "owner": "ann"}).encode(), stored.version)
    for number in range(30):
        catalog.alter_table(table.name, add=f"x{number} STRING")
    assert len(store.list("schemas/")) >= 1
    whole = catalog.export()["objects"]["table/shop.wide"]
    assert whole["owner"] == "ann"
    assert {schema["sorted_by"] for schema in [*whole["history"], whole["schema"]]} == {"c0"}


def test_what_is_described_anew_has_no_fields_of_its_former_self(catalog: Catalog, store: _Limited) -> None:
    catalog.create_table("shop.orders", "id INT")
    catalog.record_usage("app", reads=["shop.orders"])
    for key in ("table/shop.orders", "usage/app"):
        stored = store.get(key)
        assert stored is not None
        store.put(key, json.dumps({**json.loads(stored.value), "newer": 1}).encode(), stored.version)
    catalog.create_table("shop.orders", "id INT", if_exists="replace")
    catalog.record_usage("app")
    assert "newer" not in document_of(store, "table/shop.orders")
    assert "newer" not in document_of(store, "usage/app")


# -- Imports at once ---------------------------------------------------------------------------------------------------


def test_of_two_imports_at_once_one_fails_and_leaves_nothing(catalog: Catalog) -> None:
    catalog.create_table("shop.a", "id INT")
    catalog.create_table("shop.b", "id INT")
    document = catalog.export()
    raced = _Limited()
    raced.loses_at = "table/shop.b"
    with pytest.raises(CatalogError, match=r"table/shop.b was created by another program meanwhile"):
        Catalog(store=raced).import_objects(document)
    # What the other program has made stays.
    assert list(raced.list()) == ["table/shop.b"]
    raced.loses_at = "table/shop.a"
    written = Catalog(store=raced).import_objects(document, if_exists="ignore")
    assert written == ["database/shop"]
    raced.fails_at = "table/shop.b"
    with pytest.raises(CatalogError, match="went away"):
        Catalog(store=raced).import_objects(document, if_exists="replace")


def test_an_import_that_replaces_is_repeated_after_a_change(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.create_table("shop.a", "id INT")
    document = catalog.export()
    store = MemoryCatalog()
    other = Catalog(store=store)
    other.import_objects(document)
    put, changes = store.put, [1]

    def interfering(key: str, value: bytes, expected: str | None) -> str:
        if changes and key == "table/shop.a":
            changes.pop()
            put(key, b"{}", expected)
            raise CatalogConflictError("too late")
        return put(key, value, expected)

    monkeypatch.setattr(store, "put", interfering)
    assert "table/shop.a" in other.import_objects(document, if_exists="replace")
    assert other.load("shop.a") == catalog.load("shop.a")
