"""Statements of users for SQL sinks, in SQLite: what is a statement, and that each record's effect happens once."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streamrt import Application
from streamrt.connectors import SinkItem, SQLiteSink
from streamrt.connectors.sql.sql_rows import key_text
from streamrt.connectors.sql.sql_statement import Statement
from streamrt.errors import ConfigurationError, SinkError
from streamrt.tables.descriptions.connectors import SinkTable
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import TransactionalSinkConformance, Written
from tests.connectors.sql_statements import judge
from tests.connectors.sql_tables import batch_of


def parameters(item: SinkItem) -> dict[str, Any]:
    key = item.key if isinstance(item.key, str | None) else key_text(item.key)
    return {**item.value, "key": key, "at": item.timestamp}


@pytest.mark.rows("PF-M10")
class TestSQLiteStatement(TransactionalSinkConformance):
    values = ({"n": 1, "text": None}, {"n": 2, "text": "größer 🚆"}, {"n": 3, "text": "'\n\""})
    rejected: ClassVar[Any] = {"n": 1 << 70, "text": ""}
    many = 2_000

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "shop.sqlite"
        execute(self.path, "CREATE TABLE orders (n INTEGER, text TEXT, key TEXT, at INTEGER)")

    def make(self) -> SQLiteSink:
        statement = "INSERT INTO orders VALUES (:n, :text, :key, :at)"
        return SQLiteSink(self.path, statement=statement, parameters=parameters, name="orders")

    def written(self) -> list[Written]:
        found = rows(self.path, "SELECT n, text, key, at FROM orders ORDER BY rowid")
        return [Written({"n": n, "text": text}, key, at) for n, text, key, at in found]


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def started(path: Path, **options: Any) -> SQLiteSink:
    sink = SQLiteSink(path, **options)
    sink.start()
    return sink


@pytest.mark.rows("PF-M10")
def test_d6_statements_in_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "db"
    judge(
        lambda **options: started(path, **options),
        lambda statement: execute(path, statement),
        lambda query: rows(path, query),
        [float("nan")],
    )


@pytest.mark.rows("PF-M10")
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_d6_an_application_runs_each_statement_once_and_skips_bad_records(tmp_path: Path, guarantee: Any) -> None:
    path = tmp_path / "db"
    execute(path, "CREATE TABLE stock (sku TEXT PRIMARY KEY, n INTEGER CHECK (n >= 0))")
    execute(path, "INSERT INTO stock VALUES ('piano', 10)")
    app = Application("unused:9092", consumer_group="shop", processing_guarantee=guarantee, on_error="skip")
    statement = "UPDATE stock SET n = n - :n WHERE sku = :sku"
    app.dataframe(app.topic("orders")).sink(SQLiteSink(path, statement=statement, name="stock"))
    with TopologyTestDriver(app) as driver:
        for value in ({"n": 3}, {"n": 3, "sku": "piano"}, {"n": 8, "sku": "piano"}, {"n": 2, "sku": "piano"}, 5):
            driver.pipe("orders", value)
        assert rows(path, "SELECT n FROM stock") == [(5,)]
        driver.stop()
        driver.start()
        driver.pipe("orders", {"n": 5, "sku": "piano"})
    assert rows(path, "SELECT n FROM stock") == [(0,)]
    assert rows(path, "SELECT next_offset FROM streamrt_positions") == [(6,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be an INSERT"),
        ("SELECT 1", "must be an INSERT"),
        ("CREATE TABLE t (n INT)", "must be an INSERT"),
        ("COMMIT", "must be an INSERT"),
        ("CALL update_all()", "must be an INSERT"),
        ("WITH x AS (SELECT ' update ') SELECT * FROM x", "must be an INSERT"),
        ("DELETE FROM t; COMMIT", "without a semicolon"),
        ("DELETE FROM t -- :n", "comments"),
        ("DELETE /* :n */ FROM t", "comments"),
        ("DELETE FROM t # :n", "comments"),
        ("DELETE FROM t WHERE n = $1", "dollar"),
        ("DELETE FROM t WHERE n = $$x$$", "dollar"),
        ("DELETE FROM t WHERE n = 'it''s", "a quote without an end"),
        (r"DELETE FROM t WHERE n = 'it\'s' OR ':n'", "backslash"),
        (r'DELETE FROM t WHERE n = "a\" :n \" b"', "backslash"),
        ('DELETE FROM "Streamrt_Positions"', "names 'Streamrt_Positions'"),
        ("DELETE FROM public.own_positions", "names 'own_positions'"),
    ],
)
def test_d6_what_is_no_statement(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SQLiteSink(tmp_path / "db", statement=text, name="x", position_table="own_positions")


def test_d6_parameters_are_names_outside_of_texts() -> None:
    text = """
        WITH new AS (SELECT :a::int AS "a:b", ':c''":d', data #>> '{x}', times[1:n]) -- no
    """.replace("-- no", "")
    text += """INSERT INTO t SELECT a FROM new WHERE n=:a AND `x :e` > ':f' AND "100%" = :_g1 - :é"""
    statement = Statement(text, None, "SQLiteSink", None)
    assert statement.names == ("a", "_g1")
    assert statement.numbered().count("$1") == 2
    assert "' -" not in statement.render(lambda name: "?")
    assert statement.render(lambda name: f":{name}") == text.strip()
    assert {"new", "100%", "x :e", "a:b"} <= statement.words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"statement": 5}, "statement=...\\) must be a string"),
        ({"statement": "DELETE FROM t", "table_name": "t"}, "statement=... and table_name=..."),
        ({"statement": "DELETE FROM t", "primary_key_columns": "id"}, "statement=... and primary_key_columns=..."),
        ({"statement": "DELETE FROM t", "upsert_on_primary_key": True}, "statement=... and upsert_on_primary_key=..."),
        ({"statement": "DELETE FROM t", "on_conflict_do_nothing": True}, "and on_conflict_do_nothing=..."),
        ({"statement": "DELETE FROM t", "parameters": {"n": 1}}, "parameters=...\\) must be a function"),
        ({"statement": "DELETE FROM t", "name": None}, "needs name=..."),
        ({"table_name": "t", "parameters": dict}, "needs statement=..."),
        ({}, "table_name=...\\) must be a string or a function"),
    ],
)
def test_d6_options_that_do_not_go_together(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SQLiteSink(tmp_path / "db", **{"name": "x", **options})


def test_d6_parameters_that_fail_name_the_record_and_no_value(tmp_path: Path) -> None:
    execute(tmp_path / "db", "CREATE TABLE t (n INT)")

    def failing(item: SinkItem) -> Any:
        return item.value["n"] if item.value else int("a secret")

    sink = started(tmp_path / "db", statement="INSERT INTO t VALUES (:n)", parameters=failing, name="t")
    for value, reason in (({}, "parameters= failed for orders.0. at offset 7: ValueError$"), ({"n": 1}, "of type int")):
        with pytest.raises(SinkError, match=reason) as caught:
            sink.write(batch_of(value, start=7))
        assert caught.value.record == ("orders", 0, 7)


def test_d6_functions_of_the_database_that_refuse_a_value_name_its_record(tmp_path: Path) -> None:
    execute(tmp_path / "db", "CREATE TABLE t (n TEXT)")
    sink = started(tmp_path / "db", statement="INSERT INTO t VALUES (json(:n))", name="t")
    sink.write(batch_of({"n": {"a": 1}}))
    with pytest.raises(SinkError, match="malformed JSON") as caught:
        sink.write(batch_of({"n": "[]"}, {"n": "a secret"}, start=7))
    assert caught.value.record == ("orders", 0, 8)
    assert "secret" not in str(caught.value)
    # A table that is gone concerns all records.
    execute(tmp_path / "db", "DROP TABLE t")
    with pytest.raises(Exception, match="no such table") as gone:
        sink.write(batch_of({"n": 1}))
    assert getattr(gone.value, "record", None) is None


def test_d6_no_table_of_a_catalogue_has_a_statement() -> None:
    arguments = {"path": "shop.sqlite", "statement": "DELETE FROM orders", "name": "x"}
    with pytest.raises(ConfigurationError, match="tables take rows"):
        SinkTable("SQLiteSink", arguments)
    with pytest.raises(ConfigurationError, match="tables take rows"):
        SinkTable.from_options({"sink": "SQLiteSink", "arguments": arguments})
