"""The SQLite sink."""

import datetime
import decimal
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streamrt import Application
from streamrt.connectors import SQLiteSink
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import TransactionalSinkConformance, Written
from tests.connectors.sql_matrix import Database
from tests.connectors.sql_tables import VALUES, batch_of, table_by_kind, written


class TestSQLiteSink(TransactionalSinkConformance):
    values = VALUES
    rejected: ClassVar[Any] = {"n": 1 << 70}
    many = 2_000

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "shop.sqlite"

    def make(self) -> SQLiteSink:
        return SQLiteSink(self.path, "orders")

    def written(self) -> list[Written]:
        if not self.path.exists():
            return []
        with closing(sqlite3.connect(self.path)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchall():
                return []
            found = connection.execute("SELECT * FROM orders ORDER BY rowid")
            return written([column[0] for column in found.description], found.fetchall())


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def sink_of(path: Path, **options: Any) -> SQLiteSink:
    sink = SQLiteSink(path, **{"table_name": "orders", "include_metadata": False, **options})
    sink.start()
    return sink


def test_columns_are_added_when_they_come(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db")
    sink.write(batch_of({"a": 1}))
    sink.write(batch_of({"a": 2, "b": 0.5}, {"c": b"\0\xff", "d": decimal.Decimal("1.10")}))
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    identity = uuid.UUID(int=7)
    sink.write(batch_of({"when": when, "id": identity}))
    assert rows(tmp_path / "db", "SELECT * FROM orders") == [
        (1, None, None, None, None, None),
        (2, 0.5, None, None, None, None),
        (None, None, b"\0\xff", "1.10", None, None),
        (None, None, None, None, when.isoformat(), str(identity)),
    ]


def test_names_of_columns_have_no_case(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", primary_key_columns="ID", upsert_on_primary_key=True)
    sink.write(batch_of({"id": 1, "A": 1}, {"Id": 2, "a": 2}, {"iD": 2, "ä": 3, "Ä": 4}))
    sink.write(batch_of({"ID": 1, "a": 5}))
    assert rows(tmp_path / "db", 'SELECT id, a, "ä", "Ä" FROM orders ORDER BY id') == [(1, 5, None, None), (2, 2, 3, 4)]
    with pytest.raises(
        SinkError, match=r"two fields of orders\[0\] at offset 0 belong to column 'A' of table 'orders'"
    ):
        sink.write(batch_of({"id": 1, "A": 1, "a": 2}))


def test_rows_replace_the_columns_of_their_key(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", primary_key_columns="id", upsert_on_primary_key=True)
    # In one batch and in several, the result is the same.
    sink.write(batch_of({"id": 1, "a": 1}, {"id": 2, "a": 1}, {"id": 1, "b": 2}, {"id": 1, "a": 3}))
    sink.write(batch_of({"id": 2, "b": 5}))
    assert rows(tmp_path / "db", "SELECT id, a, b FROM orders ORDER BY id") == [(1, 3, 2), (2, 1, 5)]


def test_rows_whose_key_exists_are_dropped(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", primary_key_columns=("id",), on_conflict_do_nothing=True)
    sink.write(batch_of({"id": 1, "a": 1}, {"id": 1, "a": 2}))
    sink.write(batch_of({"id": 1, "a": 3}, {"id": 2, "a": 4}))
    assert rows(tmp_path / "db", "SELECT id, a FROM orders ORDER BY id") == [(1, 1), (2, 4)]


def test_a_function_chooses_the_table(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", table_name=table_by_kind, name="by kind")
    sink.write(batch_of({"kind": "a b", "n": 1}, {"kind": 'x"; DROP TABLE y', "n": 2}))
    assert rows(tmp_path / "db", 'SELECT n FROM "a b"') == [(1,)]
    assert rows(tmp_path / "db", 'SELECT n FROM "x""; DROP TABLE y"') == [(2,)]
    with pytest.raises(SinkError, match=r"table_name returned no usable name of a table for orders\[0\] at offset 0"):
        sink.write(batch_of({"kind": "", "n": 1}))


def test_without_updates_of_the_schema_a_new_column_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as connection, connection:
        connection.execute("CREATE TABLE orders (a INTEGER)")
    sink = sink_of(tmp_path / "db", schema_auto_update=False)
    sink.write(batch_of({"a": 1, "b": None}))
    with pytest.raises(
        SinkError, match=r"column 'b' of table 'orders' does not exist.*orders\[0\] at offset 4"
    ) as caught:
        sink.write(batch_of({"a": 1}, {"b": 1}, start=3))
    assert caught.value.record == ("orders", 0, 4)
    assert rows(tmp_path / "db", "SELECT * FROM orders") == [(1,)]
    with pytest.raises(SinkError, match="table 'others' does not exist"):
        sink_of(tmp_path / "db", table_name="others", schema_auto_update=False)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "of type NoneType: rows are made of dicts"),
        ([1], "of type list: rows are made of dicts"),
        ({"a": object()}, "column 'a' of table 'orders' cannot hold a value of type object"),
        ({"": 1}, "no usable name of a column"),
        ({3: 1}, "no usable name of a column"),
        ({"a\0b": 1}, "zero character"),
        ({"a": 1 << 64}, "a value does not fit into a column"),
    ],
)
def test_a_value_that_cannot_be_a_row_is_named_and_not_shown(tmp_path: Path, value: Any, reason: str) -> None:
    sink = sink_of(tmp_path / "db")
    with pytest.raises(SinkError, match=r"orders\[0\] at offset 6") as caught:
        sink.write(batch_of({"n": 1}, value, start=5))
    assert reason in str(caught.value)
    assert str(1 << 64) not in str(caught.value)
    sink.write(batch_of({"n": 2}))
    assert rows(tmp_path / "db", "SELECT n FROM orders") == [(2,)]


@pytest.mark.parametrize("field", ["timestamp", "__key"])
def test_a_field_that_metadata_would_replace_is_refused(tmp_path: Path, field: str) -> None:
    sink = sink_of(tmp_path / "db", include_metadata=True)
    with pytest.raises(
        SinkError, match=rf"value of orders\[0\] at offset 0 has a field '{field}'.*rename the field, or"
    ):
        sink.write(batch_of({field: 1}))
    other = sink_of(tmp_path / "db", include_metadata=False)
    other.write(batch_of({field: 1}))
    assert rows(tmp_path / "db", f"SELECT {field} FROM orders") == [(1,)]


def test_a_database_that_stays_locked_pauses_the_partition(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", timeout=0.01, retries=Retries(attempts=2, first_wait_s=0.01, retry_after_s=7))
    sink.write(batch_of({"n": 1}))
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkBackpressureError, match="database is locked") as caught:
            sink.write(batch_of({"n": 2}))
        assert caught.value.retry_after == 7
        other.execute("ROLLBACK")
    sink.write(batch_of({"n": 2}))
    assert rows(tmp_path / "db", "SELECT n FROM orders") == [(1,), (2,)]


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_database_that_is_locked_at_the_start_is_named_with_the_cure(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        if statement == "BEGIN IMMEDIATE":
            other.execute("PRAGMA journal_mode = WAL")
        other.execute(statement)
        with pytest.raises(SinkError) as caught:
            sink_of(path, timeout=0.01)
    assert str(caught.value) == (
        f"the sink orders cannot prepare the database {path}: database is locked; end the transaction of the process that "
        "writes to it, or raise timeout=0.01"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"table_name": ""}, "non-empty"),
        ({"table_name": 3}, "a string or a function"),
        ({"table_name": table_by_kind}, "needs name="),
        ({"upsert_on_primary_key": True}, "needs primary_key_columns"),
        ({"primary_key_columns": "id", "upsert_on_primary_key": True, "on_conflict_do_nothing": True}, "not both"),
        ({"position_table": "a?b"}, "letters, digits and underscores"),
        ({"name": ""}, "non-empty"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        SQLiteSink(tmp_path / "db", **{"table_name": "orders", **options})


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"the directory of the database .* does not exist"):
        SQLiteSink(tmp_path / "no" / "db", "orders").start()
    (tmp_path / "text").write_text("This is not a database, but a text." * 100)
    with pytest.raises(SinkError, match="cannot be opened"):
        SQLiteSink(tmp_path / "text", "orders").start()


def test_a_table_with_another_key_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER, a INTEGER)")
    sink = sink_of(tmp_path / "db", primary_key_columns="id", upsert_on_primary_key=True)
    with pytest.raises(SinkError, match=r"table 'orders' has no primary key, and the sink needs \(id\)"):
        sink.write(batch_of({"id": 1, "a": 1}))
    with pytest.raises(SinkError, match=r"column 'id' of the primary key of table 'orders' is null in orders\[0\] at"):
        sink.write(batch_of({"a": 1}))


@pytest.mark.rows("PF-M10")
def test_an_application_writes_each_value_once(tmp_path: Path) -> None:
    def run(count: int) -> None:
        app = Application("unused:9092", consumer_group="shop", processing_guarantee="exactly-once")
        app.dataframe(app.topic("orders")).sink(SQLiteSink(tmp_path / "db", "orders"))
        with TopologyTestDriver(app) as driver:
            for number in range(count):
                driver.pipe("orders", {"n": number}, timestamp=number)

    run(3)
    assert rows(tmp_path / "db", "SELECT n FROM orders") == [(0,), (1,), (2,)]
    # The topics of another driver are other topics, so positions in them say nothing.
    run(2)
    assert [n for (n,) in rows(tmp_path / "db", "SELECT n FROM orders")] == [0, 1, 2, 0, 1]
    assert rows(tmp_path / "db", "SELECT sink, topic, next_offset, version FROM streamrt_positions") == [
        ("orders", "orders", 2, 5)
    ]


def test_two_sinks_of_one_name_are_refused(tmp_path: Path) -> None:
    app = Application("unused:9092", consumer_group="shop")
    sdf = app.dataframe(app.topic("orders"))
    sdf.sink(SQLiteSink(tmp_path / "one", "orders"))
    sdf.sink(SQLiteSink(tmp_path / "two", "orders"))
    with pytest.raises(ConfigurationError, match="two sinks of the class SQLiteSink have the name 'orders'"):
        TopologyTestDriver(app)


def test_positions_can_be_left_out(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", position_table=None)
    sink.write(batch_of({"n": 1}))
    assert sink.positions("group", [("orders", 0)]) == {}
    assert rows(tmp_path / "db", "SELECT name FROM sqlite_master") == [("orders",)]


@pytest.mark.slow
def test_c4_each_value_is_stored_exactly_or_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "db"

    def execute(*statements: str) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    types = ["INTEGER", "INT", "REAL", "NUMERIC(8, 2)", "TEXT", "VARCHAR(5)", "BLOB", "DATE", "TIMESTAMP"]
    keys: list[tuple[str, list[Any]]] = [
        ("INT", ["7", "07", 7]),
        ("TEXT COLLATE NOCASE", ["a", "A"]),
        ("NUMERIC", [1.5, "1.50"]),
    ]
    database = Database(
        "SQLite",
        lambda table, **options: sink_of(path, **{"table_name": table, "position_table": None, **options}),
        execute,
        lambda query: rows(path, query),
        types,
        keys,
        sparseness=2,
    )
    print(database.judge())


def test_c4_keys_of_columns_that_the_sink_has_made_do_not_merge(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", primary_key_columns="id", upsert_on_primary_key=True)
    sink.write(batch_of({"id": 123, "n": 1}))
    for key in ("0123", "00123", "123.0 "):
        with pytest.raises(SinkError, match=r"column 'id' .* offset 5: it is text") as caught:
            sink.write(batch_of({"id": key, "n": 2}, start=5))
        assert caught.value.record == ("orders", 0, 5)
    assert rows(tmp_path / "db", "SELECT id, n FROM orders") == [(123, 1)]


@pytest.mark.parametrize(
    "name",
    ["streamrt_positions", "STREAMRT_POSITIONS", '"streamrt_positions"', "main.Streamrt_Positions", "own_positions"],
)
def test_c7_no_record_names_the_table_of_positions(tmp_path: Path, name: str) -> None:
    sink = sink_of(tmp_path / "db", table_name=table_by_kind, name="by kind", position_table="own_positions")
    with pytest.raises(SinkError, match=r"for orders\[0\] at offset 3: .* names a table of positions") as caught:
        sink.write(batch_of({"kind": name, "consumer_group": "g"}, start=3))
    assert caught.value.record == ("orders", 0, 3)
    with pytest.raises(ConfigurationError, match="is a table of positions"):
        SQLiteSink(tmp_path / "db", name, position_table="own_positions")


def test_c7_a_table_of_positions_of_another_sink_is_recognized_by_its_columns(tmp_path: Path) -> None:
    sink_of(tmp_path / "db", position_table="others")
    sink = sink_of(tmp_path / "db", table_name=table_by_kind, name="by kind")
    with pytest.raises(SinkError, match=r"table 'others' holds positions of consumer groups.*at offset 3") as caught:
        sink.write(batch_of({"kind": "others", "consumer_group": "g"}, start=3))
    assert caught.value.record == ("orders", 0, 3)


def test_c6_a_record_with_too_many_fields_is_named_and_others_go_on(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db")
    wide = {f"c{n}": n for n in range(2_100)}
    for values in (({"n": 1}, wide), (wide, {"n": 1})):
        with pytest.raises(SinkError, match=r"can have 2,000 columns") as caught:
            sink.write(batch_of(*values))
        assert caught.value.record == ("orders", 0, values.index(wide))
    sink.write(batch_of({"n": 1}))
    assert rows(tmp_path / "db", "SELECT n FROM orders WHERE n IS NOT NULL") == [(1,)]
