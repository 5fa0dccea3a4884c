"""Schemas that change while writers, subscriptions and applications are open: they keep the schema with which they began."""

from collections.abc import Mapping
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ConsumerError, SchemaEvolutionError, SchemaMismatchError, SerializationError
from streamrt.runtime.driver.life.schema_changes import schema_change
from streamrt.tables import Catalog, MemoryCatalog, Table
from streamrt.testing import TopologyTestDriver
from streamrt.testing.memory_topics import MemoryLinks

FORMATS = ("json", "avro", "protobuf")
BEFORE = "id INT NOT NULL, name STRING, age INT"
OLD = {"id": 1, "name": "ann", "age": 30}
# What changes, and a row of the former and of the new schema as readers with the other one have it.
ADDITIVE: Mapping[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "added": ({"add": "city STRING"}, {**OLD, "city": "Lyon"}, OLD, {**OLD, "city": None}),
    "added with a default": (
        {"add": "city STRING DEFAULT 'Nice'"},
        {**OLD, "city": "Lyon"},
        OLD,
        {**OLD, "city": "Nice"},
    ),
    "dropped": ({"drop": ["age"]}, {"id": 1, "name": "ann"}, {**OLD, "age": None}, {"id": 1, "name": "ann"}),
    "widened": ({"widen": {"age": "BIGINT"}}, OLD, OLD, OLD),
}


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(store=MemoryCatalog(), links=MemoryLinks())


def created(catalog: Catalog, row_format: str = "json") -> Table:
    return catalog.create_table("people", BEFORE, format=row_format, num_partitions=1)


@pytest.mark.rows("DK-042")
@pytest.mark.parametrize("row_format", FORMATS)
@pytest.mark.parametrize("what", ADDITIVE)
def test_writers_and_subscriptions_outlive_changes(catalog: Catalog, row_format: str, what: str) -> None:
    change, row, as_old, old_as_new = ADDITIVE[what]
    table = created(catalog, row_format)
    if row_format == "avro" and what != "widened":
        # Without a registry, Avro's values do not say by which schema they were written: refused, and nothing changes.
        with table.writer() as writer, table.subscribe(start="earliest") as stream:
            with pytest.raises(SchemaEvolutionError):
                catalog.alter_table("people", **change)
            writer.append(OLD)
            writer.flush()
            assert next(stream).row == OLD
        return
    with table.writer() as writer, table.writer(id="loader") as loader, table.subscribe(start="earliest") as stream:
        writer.append(OLD)
        catalog.alter_table("people", **change)
        writer.append(OLD)
        writer.flush()
        loader.append(OLD)
        loader.checkpoint("1")
        new = catalog.table("people")
        new.append([row])
        assert [next(stream).row for _ in range(4)] == [OLD, OLD, OLD, as_old]
        with new.subscribe(start="earliest") as newer:
            assert [next(newer).row for _ in range(4)] == [old_as_new] * 3 + [row]
        with new.writer(id="loader") as again:
            assert again.state == "1"
    # A handle that is asked for again has the new schema.
    assert list(table.scan().rows()) == [OLD, OLD, OLD, as_old]
    table.refresh()
    assert list(table.scan().rows()) == [old_as_new] * 3 + [row]


def test_a_subscription_says_which_row_is_of_another_schema(catalog: Catalog) -> None:
    table = created(catalog)
    with table.writer() as writer, table.subscribe(start="earliest") as stream:
        writer.append(OLD)
        writer.flush()
        catalog.alter_table("people", schema="id STRING NOT NULL, name STRING", force=True)
        catalog.table("people").append([{"id": "x"}])
        assert next(stream).row == OLD
        with pytest.raises(SerializationError, match=r"default.people\[0\] at offset 1 is not a row .*'id' \(INT\)"):
            next(stream)
        with pytest.raises(SchemaMismatchError, match="'id'"):
            writer.append({"id": "x"})


def application(catalog: Catalog) -> tuple[Application, list[Any]]:
    app = Application("unused:9092", consumer_group="late", catalog=catalog)
    seen: list[Any] = []
    app.dataframe("default.people").update(seen.append)
    return app, seen


@pytest.mark.parametrize("row_format", ["json", "protobuf"])
@pytest.mark.parametrize("what", ADDITIVE)
def test_applications_outlive_changes(catalog: Catalog, row_format: str, what: str) -> None:
    change, row, as_old, _ = ADDITIVE[what]
    created(catalog, row_format)
    app, seen = application(catalog)
    with TopologyTestDriver(app) as driver:
        catalog.alter_table("people", **change)
        driver.table("default.people").append([row])
    assert seen == [as_old]
    # The next start has the new schema.
    again, seen = application(catalog)
    with TopologyTestDriver(again) as driver:
        driver.table("default.people").append([row])
    assert seen == [row]


@pytest.mark.parametrize("change", [{"schema": "id STRING, name STRING", "force": True}, {"widen": {"id": "BIGINT"}}])
def test_a_row_that_an_application_cannot_read_names_both_versions(catalog: Catalog, change: dict[str, Any]) -> None:
    created(catalog)
    app, _ = application(catalog)
    with TopologyTestDriver(app) as driver:
        catalog.alter_table("people", comment="no other schema")
        with pytest.raises(ConsumerError):
            driver.pipe_bytes("default.people", b"no row")
        catalog.alter_table("people", **change)
        new = 1 << 40 if "widen" in change else "x"
        with pytest.raises(
            SchemaEvolutionError,
            match=r"^table 'default.people' has schema version 2, and this application was defined with version 1, by which "
            r"it cannot read all rows: the value of default.people\[0\] at offset .*'id' \(INT\).*; start the program again$",
        ):
            driver.table("default.people").append([{"id": new}])


def test_a_run_says_it_too(catalog: Catalog) -> None:
    created(catalog)
    app, _ = application(catalog)
    error = ConsumerError("default.people[0] offset 1: no row")
    with pytest.raises(ConsumerError), app._tables.naming_schemas():
        raise error
    catalog.alter_table("people", add="city STRING")
    with pytest.raises(SchemaEvolutionError, match="has schema version 2") as caught, app._tables.naming_schemas():
        raise error
    assert caught.value.__cause__ is error
    topics = app.topic_manager.all_topics.values()
    assert schema_change(ConsumerError("orders[0] offset 1: no row"), topics, catalog.load) is None
    assert schema_change(ValueError("default.people[0]"), topics, catalog.load) is None
    # A catalogue that does not answer hides no error.
    catalog.drop_table("people")
    assert schema_change(error, topics, catalog.load) is None
