"""Maintained tables in a catalogue: rules, documents, topics, and the log of changes."""

import json
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from streamrt import Catalog
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CatalogError,
    ConfigurationError,
    SchemaError,
    SchemaEvolutionError,
    StreamRTError,
    TableNotFoundError,
    TopicConfigurationError,
)
from streamrt.kafka import TopicConfig
from streamrt.tables import Aggregate, ListAgg, Maintenance, MemoryCatalog, SequenceGroups, Versioned
from streamrt.tables.catalogue.records import read_table, table_record
from streamrt.tables.descriptions.maintenance import describe_merge
from streamrt.tables.descriptions.rule_texts import parse_merge, parse_ttl, show_ttl
from streamrt.testing.memory_topics import MemoryLinks

COLUMNS = (
    "id BIGINT, name STRING, n BIGINT, at TIMESTAMP, ok BOOLEAN, code VARCHAR(3), must INT NOT NULL, PRIMARY KEY (id)"
)
DAY = timedelta(days=1)


class NewTopic(NamedTuple):
    name: str
    config: TopicConfig


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(store=MemoryCatalog(), links=MemoryLinks())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, None),
        ({"maintained": False}, None),
        ({"maintained": True}, Maintenance()),
        ({"merge": "first"}, Maintenance("first", "ignore")),
        ({"merge": Versioned("at"), "deletes": "refuse"}, Maintenance(Versioned("at"), "refuse")),
        ({"merge": Versioned("n")}, Maintenance(Versioned("n"), "ignore")),
        (
            {"merge": SequenceGroups({"at": ["n", "name"]})},
            Maintenance(SequenceGroups({"at": ["n", "name"]}), "ignore"),
        ),
        ({"merge": Aggregate(n="sum"), "deletes": "allow"}, Maintenance(Aggregate(n="sum"), "allow")),
        ({"deletes": "ignore"}, Maintenance("last", "ignore")),
        ({"ttl": DAY, "changelog": True}, Maintenance("last", "allow", True, 86_400_000)),
    ],
)
def test_rules_are_kept(catalog: Catalog, arguments: Any, expected: Maintenance | None) -> None:
    info = catalog.create_table("customers", COLUMNS, **arguments).info
    assert info.maintenance == expected
    assert catalog.load("customers") == info
    assert read_table(info.name, table_record(info)).maintenance == expected
    assert catalog.alter_table("customers", add="more INT").maintenance == expected
    assert json.loads(json.dumps(info.as_dict()))["maintenance"] == info.as_dict()["maintenance"]
    other = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    other.import_objects(json.loads(json.dumps(catalog.export())))
    assert other.load("customers").maintenance == expected


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"maintained": False, "ttl": DAY},
            ConfigurationError,
            r"maintained=False, ttl=...\): only a maintained table",
        ),
        ({"maintained": 1}, ArgumentTypeError, "must be True or False, got int"),
        ({"changelog": "yes"}, ArgumentTypeError, "must be True or False, got str"),
        ({"merge": "latest"}, ConfigurationError, "must be 'last', 'first', Versioned"),
        ({"merge": 7}, ArgumentTypeError, "got int"),
        ({"merge": Versioned(7)}, ArgumentTypeError, "must be a name, got int"),  # type: ignore[arg-type]
        ({"merge": Versioned("name")}, SchemaError, r"'name' \(STRING\) cannot say which row is newer"),
        ({"merge": Versioned("gone")}, SchemaError, "'gone', which the table does not have: id, name"),
        ({"merge": Versioned("id")}, SchemaError, "'id' of the primary key"),
        ({"merge": "first", "deletes": "allow"}, ConfigurationError, "came too late"),
        ({"merge": Versioned("n"), "deletes": "allow"}, ConfigurationError, "came too late"),
        ({"deletes": "disable"}, ConfigurationError, "must be 'allow', 'ignore' or 'refuse', got 'disable'"),
        ({"ttl": 5}, ArgumentTypeError, "must be a timedelta, got int"),
        ({"ttl": timedelta(0)}, ConfigurationError, "must be a millisecond or more"),
        ({"merge": SequenceGroups({})}, ConfigurationError, "must have a group or more"),
        ({"merge": SequenceGroups({"at": []})}, ConfigurationError, "each with a column or more"),
        ({"merge": SequenceGroups({"at": "name"})}, ArgumentTypeError, "must have lists of columns by sequence"),
        ({"merge": SequenceGroups({"at": ["n"], "must": ["n"]})}, SchemaError, "group of 'at' and in that of 'must'"),
        ({"merge": SequenceGroups({"at": ["n", "n"]})}, SchemaError, "twice in the group"),
        ({"merge": SequenceGroups({"at": ["n"], "n": ["ok"]})}, SchemaError, "'n' is a sequence"),
        ({"merge": SequenceGroups({"ok": ["n"]})}, SchemaError, r"'ok' \(BOOLEAN\) cannot say"),
        ({"merge": SequenceGroups({"at": ["must"]})}, SchemaError, "new rows without 'at' would not have it"),
        ({"merge": Aggregate()}, ConfigurationError, "needs a function for a column"),
        (
            {"merge": Aggregate(n="median")},
            ConfigurationError,
            "must be ListAgg.* or one of sum",
        ),
        (
            {"merge": Aggregate(name="sum")},
            SchemaError,
            r"'sum' cannot take the column 'name' \(STRING\): it needs a number",
        ),
        ({"merge": Aggregate(ok="max")}, SchemaError, "it needs a number, a text, or a date"),
        ({"merge": Aggregate(n="bool_or")}, SchemaError, "it needs BOOLEAN"),
        ({"merge": Aggregate(code="listagg")}, SchemaError, "it needs STRING, of any length"),
        ({"merge": Aggregate(n=ListAgg(";"))}, SchemaError, "'listagg' cannot take the column 'n'"),
        (
            {"merge": Aggregate(name=ListAgg(5))},  # type: ignore[arg-type]
            ArgumentTypeError,
            r"ListAgg\(delimiter\) must be a text, got int",
        ),
        ({"merge": Aggregate(name="rbm32")}, SchemaError, "it needs BINARY, of any length"),
        ({"merge": Aggregate(id="max")}, SchemaError, "of the primary key"),
    ],
)
def test_rules_that_are_refused(catalog: Catalog, arguments: Any, error: type[StreamRTError], message: str) -> None:
    with pytest.raises(error, match=message):
        catalog.create_table("customers", COLUMNS, **arguments)
    assert catalog.tables() == []
    assert catalog.links.admin().inspect_topics(["default.customers"]) == {"default.customers": None}


@pytest.mark.parametrize("schema", [None, "id BIGINT"])
def test_only_tables_with_a_primary_key_are_maintained(catalog: Catalog, schema: str | None) -> None:
    with pytest.raises(ConfigurationError, match="only a table with a primary key on Kafka is maintained"):
        catalog.create_table("visits", schema, ttl=DAY)


def test_columns_of_a_log_of_changes_are_free(catalog: Catalog) -> None:
    columns = "id BIGINT, _at TIMESTAMP, PRIMARY KEY (id)"
    with pytest.raises(SchemaError, match="has a column '_at', and a log of changes has its own"):
        catalog.create_table("customers", columns, changelog=True)
    catalog.create_table("customers", "id BIGINT, PRIMARY KEY (id)", changelog=True)
    with pytest.raises(SchemaEvolutionError, match="has a column '_at'"):
        catalog.alter_table("customers", add="_at TIMESTAMP")


def test_documents_of_maintained_tables_have_a_higher_version(catalog: Catalog) -> None:
    direct = json.loads(table_record(catalog.create_table("direct", COLUMNS).info))
    assert direct["v"] == 1
    assert "maintenance" not in direct
    info = catalog.create_table("customers", COLUMNS, merge=Versioned("at")).info
    document = json.loads(table_record(info))
    assert document["v"] == 3
    assert document["maintenance"] == {
        "merge": {"versioned": "at"},
        "deletes": "ignore",
        "changelog": False,
        "ttl_ms": None,
    }
    for damaged in (
        {"v": 1},
        {"maintenance": None},
        {"kind": "log"},
        {"schema": None},
        {"maintenance": {**document["maintenance"], "merge": {"versioned": "at", "aggregate": {}}}},
        {"maintenance": {**document["maintenance"], "merge": {"aggregate": {"n": "median"}}}},
        {"maintenance": {**document["maintenance"], "merge": {"sequence_groups": {"at": "n"}}}},
        {"maintenance": {**document["maintenance"], "deletes": "never"}},
        {"maintenance": {**document["maintenance"], "ttl_ms": 0}},
        {"maintenance": {**document["maintenance"], "changelog": 1}},
    ):
        with pytest.raises(CatalogError, match="is damaged"):
            read_table(info.name, json.dumps({**document, **damaged}).encode())
    with pytest.raises(CatalogError, match=r"newer version of StreamRT \(format 4, this one knows 3\)"):
        read_table(info.name, json.dumps({**document, "v": 4}).encode())


def test_maintained_tables_keep_long_histories() -> None:
    store = MemoryCatalog()
    catalog = Catalog(store=store, links=MemoryLinks())
    comment = "What the column means, in many words. " * 40
    catalog.create_table("t", f"id BIGINT, n INT COMMENT '{comment}', PRIMARY KEY (id)", merge=Aggregate(n="sum"))
    for number in range(60):
        catalog.alter_table("t", add=f"c{number} INT COMMENT '{comment}'")
    stored = store.get("table/default.t")
    assert stored is not None
    document = json.loads(stored.value)
    assert document["v"] == 3
    assert document["history_in"]
    info = catalog.load("t")
    assert info.maintenance == Maintenance(Aggregate(n="sum"), "ignore")
    assert len(info.schema_history) == 60
    other = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    other.import_objects(catalog.export())
    assert other.load("t").schema_history == info.schema_history


def test_rules_hold_when_a_table_changes(catalog: Catalog) -> None:
    catalog.create_table("customers", COLUMNS, merge=SequenceGroups({"at": ["n"]}))
    for drop in ("at", "n"):
        with pytest.raises(SchemaEvolutionError, match="the rules of a maintained table stay as they are"):
            catalog.alter_table("customers", drop=[drop], force=True)
    with pytest.raises(ConfigurationError, match="is maintained, and its rows, requests"):
        catalog.alter_table("customers", topic="elsewhere")
    info = catalog.alter_table("customers", drop=["name"], comment="those who buy")
    assert info.maintenance == Maintenance(SequenceGroups({"at": ["n"]}), "ignore")


def test_topics_of_maintained_tables(catalog: Catalog) -> None:
    admin = catalog.links.admin()
    info = catalog.create_table(
        "customers", COLUMNS, changelog=True, num_partitions=3, config={"max.message.bytes": "2000000"}
    ).info
    topics = ["default.customers", "default.customers.requests", "default.customers.changelog"]
    assert [info.topic, info.requests_topic, info.changelog_topic] == topics
    found = admin.inspect_topics(topics)
    settings = {name: config.extra_config for name, config in found.items() if config is not None}
    assert settings[topics[1]] == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "max.message.bytes": "2000000",
    }
    assert settings[topics[2]] == {"cleanup.policy": "delete", "max.message.bytes": "2000000"}
    assert {config.num_partitions for config in found.values() if config is not None} == {3}
    catalog.alter_table("customers", config={"max.message.bytes": "3000000", "segment.ms": "60000"})
    config = admin.inspect_topics(topics)[topics[1]]
    assert config is not None
    assert config.extra_config == {**settings[topics[1]], "max.message.bytes": "3000000"}
    catalog.drop_table("customers")
    again = catalog.create_table("customers", COLUMNS, changelog=True)
    assert again.info.num_partitions == 3
    catalog.drop_table("customers", delete_data=True)
    assert set(admin.inspect_topics(topics).values()) == {None}


@pytest.mark.parametrize(
    ("partitions", "config", "message"),
    [
        (2, {"retention.ms": "-1"}, "has 2 partitions, and topic default.customers of table 'default.customers' has 1"),
        (1, {"retention.ms": "1000"}, "has retention.ms=1000, and would lose requests"),
        (1, {}, "has retention.ms=604800000, and would lose requests"),
        (1, {"retention.ms": "-1", "retention.bytes": "5000000"}, "has retention.bytes=5000000"),
        (1, {"cleanup.policy": "compact", "retention.ms": "-1"}, "has cleanup.policy=compact"),
    ],
)
def test_topics_with_requests_are_checked(
    catalog: Catalog, partitions: int, config: dict[str, str], message: str
) -> None:
    topic = NewTopic("default.customers.requests", TopicConfig(partitions, 1, config))
    catalog.links.admin().create_topics([topic])
    with pytest.raises(TopicConfigurationError, match=f"^topic default.customers.requests {message}"):
        catalog.create_table("customers", COLUMNS, maintained=True)
    assert catalog.tables() == []


def test_a_maintained_table_has_its_topic_for_itself(catalog: Catalog) -> None:
    catalog.create_table("customers", COLUMNS, maintained=True)
    with pytest.raises(ConfigurationError, match=r"is that of table 'default.customers', and a maintained table has"):
        catalog.create_table("others", COLUMNS, topic="default.customers")
    catalog.create_table("direct", COLUMNS)
    with pytest.raises(ConfigurationError, match=r"is that of table 'default.direct'"):
        catalog.create_table("others", COLUMNS, topic="default.direct", ttl=DAY)


def test_long_names_of_topics_leave_room(catalog: Catalog) -> None:
    with pytest.raises(ConfigurationError, match="leaves no room for the names of the topics with its requests"):
        catalog.create_table("customers", COLUMNS, topic="t" * 245, maintained=True)
    assert catalog.create_table("customers", COLUMNS, topic="t" * 245).info.topic == "t" * 245


def test_log_of_changes(catalog: Catalog) -> None:
    catalog.create_table("customers", COLUMNS, changelog=True)
    catalog.create_table("others", COLUMNS, maintained=True)
    log = catalog.table("customers$changelog")
    assert (log.kind, log.info.topic) == ("log", "default.customers.changelog")
    assert log.schema.names[:3] == ("_change_type", "_at", "id")
    assert log.schema.time == "_at"
    assert log.info.key == ("id",)
    catalog.alter_table("customers", add="more INT")
    assert log.refresh().schema_version == 2
    assert log.schema.names[-1] == "more"
    assert "default.customers$changelog" in catalog
    assert "others$changelog" not in catalog
    assert "5$changelog$changelog" not in catalog
    with pytest.raises(TableNotFoundError, match="was created without changelog=True"):
        catalog.table("others$changelog")
    with pytest.raises(TableNotFoundError, match=r"there is no table 'default.nothing'"):
        catalog.table("nothing$changelog")
    with pytest.raises(ArgumentValueError, match="cannot be the name of a table"):
        catalog.create_table("x$changelog", COLUMNS)


@pytest.mark.parametrize(
    "merge",
    [
        "last",
        "first",
        Versioned("at"),
        SequenceGroups({"at": ["name", "ok"], "must": ["n"]}),
        Aggregate(n="sum", name="listagg"),
        Aggregate(name=ListAgg(', "(a)" = b; '), n="sum"),
        Aggregate(name=ListAgg(""), code="max"),
    ],
)
def test_rules_as_texts(catalog: Catalog, merge: Any) -> None:
    assert parse_merge(describe_merge(merge)) == merge
    options = f"'merge' = '{describe_merge(merge)}', 'ttl' = '36h', 'changelog' = 'true', 'maintained' = 'TRUE'"
    catalog.execute(f"CREATE TABLE customers ({COLUMNS}) WITH ({options}, 'deletes' = 'refuse')")
    assert catalog.load("customers").maintenance == Maintenance(merge, "refuse", True, 129_600_000)


@pytest.mark.parametrize(
    "text",
    [
        *("", "newest", "versioned", "last()", "sequence_groups(at)", "aggregate()", "aggregate(n)", "aggregate(n=)"),
        *("aggregate(n=sum,)", "aggregate(n=sum,,m=sum)", "aggregate(n=listagg())", "aggregate(n=listagg(;))"),
        *('aggregate(n=listagg(";)', 'aggregate(n=listagg(";") m=sum)'),
    ],
)
def test_texts_that_are_no_rules(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a rule must be last, first, versioned"):
        parse_merge(text)


@pytest.mark.parametrize("milliseconds", [1, 1_000, 61_000, 60_000, 3_600_000, 86_400_000, 90_000_000, 10**15])
def test_times_as_texts(milliseconds: int) -> None:
    assert parse_ttl(show_ttl(milliseconds)) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize("text", ["", "5", "0d", "-1d", "1 week", "99999999999999d"])
def test_texts_that_are_no_times(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a ttl must be a number with ms, s, m, h or d"):
        parse_ttl(text)


def test_usages_of_maintained_tables(catalog: Catalog) -> None:
    catalog.create_table("customers", COLUMNS, changelog=True)
    catalog.record_usage("keeper", maintains=["customers"])
    catalog.record_usage("auditor", reads=["customers$changelog"])
    assert {(usage.kind, usage.application) for usage in catalog.usages("customers$changelog")} == {
        ("maintains", "keeper"),
        ("reads", "auditor"),
    }
    assert [each.maintains for each in catalog.applications()] == [(), ("default.customers",)]
    edges = {(start.name, end.name) for start, end in catalog.lineage().edges}
    assert edges == {("default.customers", "auditor"), ("keeper", "default.customers")}
    catalog.forget_usage("auditor")
    with pytest.raises(CatalogError, match=r"'keeper' maintains table 'default.customers'"):
        catalog.drop_table("customers")
