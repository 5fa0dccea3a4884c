"""Statements of the catalogue."""

from typing import Any

import pytest

from streamrt import Catalog
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    SchemaError,
    SchemaEvolutionError,
    StreamRTError,
)
from streamrt.schema import Schema
from streamrt.secret import SecretRef
from streamrt.tables import HTTPSSE, MemoryCatalog, SQSQueue


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(store=MemoryCatalog())


@pytest.mark.rows("FL-035", "FL-116", "FE-150")
def test_tables_are_created_changed_and_dropped(catalog: Catalog) -> None:
    done = catalog.execute("CREATE DATABASE IF NOT EXISTS shop COMMENT 'what we sell';")
    assert (done.statement, done.name, done.changed) == ("CREATE DATABASE", "shop", True)
    assert not catalog.execute("create database if not exists shop").changed
    assert catalog.database("shop").comment == "what we sell"
    text = """
        -- paid orders
        CREATE TABLE shop.orders (
            id BIGINT NOT NULL COMMENT 'it\\'s (a) number',
            amount DECIMAL(10, 2) DEFAULT 0,
            `at` TIMESTAMP
        ) COMMENT 'paid' WITH (
            'format' = 'json', 'partitions' = 4, 'topic' = 'orders', 'key' = 'id, at', 'time' = 'at',
            'config.retention.ms' = '60000', 'property.team' = 'a', 'replicas' = '1', 'key.format' = 'json'
        )
    """
    done = catalog.execute(text)
    info = done.info
    assert info is not None
    assert (info.name, info.topic, info.num_partitions, info.key) == ("shop.orders", "orders", 4, ("id", "at"))
    assert (info.config, info.properties, info.comment) == ({"retention.ms": "60000"}, {"team": "a"}, "paid")
    assert info.schema == Schema(
        "id BIGINT NOT NULL COMMENT 'it\\'s (a) number', amount DECIMAL(10, 2) DEFAULT 0, at TIMESTAMP", time="at"
    )
    assert not catalog.execute(text.replace("TABLE", "TABLE IF NOT EXISTS")).changed
    assert catalog.execute(text.replace("CREATE", "CREATE OR REPLACE")).changed
    for sql, names in (
        ("ALTER TABLE shop.orders ADD COLUMNS (note STRING COMMENT 'x', n INT)", ("id", "amount", "at", "note", "n")),
        ("ALTER TABLE shop.orders ADD COLUMN m ARRAY<STRUCT<x: INT>>;", ("id", "amount", "at", "note", "n", "m")),
        ("ALTER TABLE shop.orders DROP COLUMNS (note, m)", ("id", "amount", "at", "n")),
        ("ALTER TABLE shop.orders DROP COLUMN n", ("id", "amount", "at")),
        ("ALTER TABLE shop.orders ALTER COLUMN amount TYPE DECIMAL(12, 2)", ("id", "amount", "at")),
    ):
        assert catalog.execute(sql).changed
        assert catalog.table("shop.orders").schema.names == names
    assert catalog.table("shop.orders").schema.types[1] == "DECIMAL(12, 2)"
    assert catalog.execute("ALTER TABLE shop.orders COMMENT 'new'").changed
    assert catalog.execute("DROP TABLE shop.orders").changed
    assert not catalog.execute("DROP TABLE IF EXISTS shop.orders").changed
    catalog.execute("CREATE TABLE shop.`x-1`")
    assert catalog.execute("DROP DATABASE IF EXISTS shop CASCADE").changed
    assert catalog.databases() == ["default"]


def test_tables_of_other_systems(catalog: Catalog) -> None:
    catalog.execute(
        "CREATE TABLE rides (id INT) WITH ('connector' = 'http-sse', 'connector.url' = 'https://x/y', "
        "'connector.auth' = 'env:TOKEN', 'connector.last_event_id' = 'false')"
    )
    assert catalog.connector(catalog.load("rides")) == HTTPSSE(
        "https://x/y", auth=SecretRef.env("TOKEN"), last_event_id=False
    )
    catalog.execute(
        "CREATE TABLE jobs WITH ('connector' = 'sqs', 'connector.name' = 'q', 'connector.wait_time_s' = '5')"
    )
    assert catalog.connector(catalog.load("jobs")) == SQSQueue("q", wait_time_s=5)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 1", "line 1, column 1, at 'SELECT': a catalogue executes CREATE, ALTER and DROP"),
        ("\n  MERGE INTO t VALUES (1)", "line 2, column 3, at 'MERGE'"),
        ("CREATE VIEW v AS SELECT 1", "line 1, column 8, at 'VIEW'"),
        ("DROP VIEW v", "line 1, column 6, at 'VIEW'"),
        ("", "line 1, column 1, at the end"),
        ("CREATE TABLE", "line 1, column 13, at the end: a name was expected"),
        ("CREATE TABLE t (id INT", "line 1, column 16, at '\\(': this parenthesis has no end"),
        (
            "CREATE TABLE t (id INT) PARTITIONED BY (id)",
            "line 1, column 25, at 'PARTITIONED BY': the statement should end",
        ),
        ("CREATE TABLE t (id INT) AS SELECT 1", "at 'AS'"),
        (
            "CREATE TABLE t (id INT) WITH ('speed' = '5')",
            "line 1, column 31, at \"'speed'\": there is no option 'speed'",
        ),
        ("CREATE TABLE t (id INT) WITH ('format' = 'json', 'format' = 'json')", "is there twice"),
        ("CREATE TABLE t (id INT) WITH ('partitions' = 'x')", "line 1, column 46, .*must be a number of 1 or more"),
        ("CREATE TABLE t (id INT) WITH ('partitions' = '\u0664')", "must be a number of 1 or more"),
        (f"CREATE TABLE t (id INT) WITH ('partitions' = '{'9' * 5_000}')", "must be a number of 1 or more"),
        ("CREATE TABLE t (id INT) WITH ('format' 'json')", "= was expected"),
        ("CREATE TABLE t (id INT) WITH ()", "a text in quotes was expected"),
        ("CREATE TABLE t WITH ('connector' = 'carrier-pigeon')", "there is no connector 'carrier-pigeon'"),
        ("CREATE TABLE t WITH ('connector.url' = 'x')", "and no 'connector'"),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS t", "exclude each other"),
        ("CREATE TABLE\n  t (id FOO)", "line 2, column 5, .* the schema 'id FOO' cannot be read as columns"),
        ("CREATE TABLE t (id INT); DROP TABLE t", "line 1, column 26, at 'DROP': the statement should end before"),
        ("CREATE TABLE 'unended", "a quote or a comment in it has no end"),
        ("ALTER TABLE t RENAME TO u", "line 1, column 15, at 'RENAME'"),
        ("DROP TABLE nowhere", "there is no table 'default.nowhere'"),
        ("DROP DATABASE a.b", r"at '\.': the statement should end before"),
        ("x" * 100_001, "at most 100000 characters"),
    ],
)
def test_everything_else_is_refused_where_it_stands(catalog: Catalog, sql: str, message: str) -> None:
    catalog.execute("CREATE TABLE here (id INT)")
    with pytest.raises(StreamRTError, match=message):
        catalog.execute(sql)
    assert catalog.tables() == ["default.here"]


def test_a_change_that_does_not_fit_keeps_its_error(catalog: Catalog) -> None:
    catalog.execute("CREATE TABLE t (id BIGINT)")
    with pytest.raises(SchemaEvolutionError, match=r"line 1, column \d+, .*changes from BIGINT to INT"):
        catalog.execute("ALTER TABLE t ALTER COLUMN id TYPE INT")
    with pytest.raises(SchemaError):
        catalog.execute("ALTER TABLE t ADD COLUMN id INT")


def test_comments_and_options_may_be_parameters(catalog: Catalog) -> None:
    quoted = "it's :odd', 'format' = 'avro"
    info = catalog.execute(
        "CREATE TABLE t (id INT) COMMENT :note WITH ('partitions' = :n, 'property.owner' = :owner, 'topic' = :note2)",
        {"note": quoted, "n": 3, "owner": quoted, "note2": "x"},
    ).info
    assert info is not None
    assert (info.comment, info.num_partitions, info.properties, info.topic) == (quoted, 3, {"owner": quoted}, "x")
    changed = catalog.execute("ALTER TABLE t COMMENT :note", args={"note": ""}).info
    assert changed is not None
    assert changed.comment is None


@pytest.mark.parametrize(
    ("sql", "args", "error", "message"),
    [
        ("COMMENT :a", {}, SchemaError, r"line 1, column 32, at ':': .* has no value for the parameter :a"),
        ("COMMENT :a", {"a": 5}, SchemaError, "the parameter :a must be a text, got int"),
        ("WITH ('topic' = :a)", {"a": True}, SchemaError, ":a must be a text or an integer, got bool"),
        ("WITH ('partitions' = :a)", {"a": -1}, SchemaError, "line 1, column 45, .*a number of 1 or more"),
        ("WITH ('topic' = :1)", {"1": "x"}, SchemaError, "a name was expected"),
        ("WITH (:a = 'x')", {"a": "topic"}, SchemaError, "a text in quotes was expected"),
        ("COMMENT 'x'", {"a": "x"}, ArgumentValueError, "has 'a', and the statement no parameter :a"),
        ("COMMENT 'x'", ["x"], ArgumentTypeError, "must be a mapping, got list"),
    ],
)
def test_parameters_that_do_not_fit_are_refused_before_anything_is_done(
    catalog: Catalog, sql: str, args: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        catalog.execute(f"CREATE TABLE t (id INT){sql}", args)
    assert catalog.tables() == []
