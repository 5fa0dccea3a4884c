"""The DuckDB sink."""

import datetime
import decimal
import importlib.util
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pytest

from streamrt import Application
from streamrt.connectors import DuckDBSink, PositionChange, SinkCommit, SinkPosition
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import TransactionalSinkConformance, Written
from tests.connectors import sql_statements
from tests.connectors.duckdb_writer import FAST, write_many
from tests.connectors.sql_matrix import Database
from tests.connectors.sql_tables import VALUES, batch_of, table_by_kind, written

CONFIG = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
"""How the sink opens a database; a process that has it open with other settings cannot open it again."""


def rows(path: Path, query: str) -> list[Any]:
    with closing(duckdb.connect(str(path))) as connection:
        found: list[Any] = connection.execute(query).fetchall()
        return found


def execute(path: Path, *statements: str) -> None:
    with closing(duckdb.connect(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)


class TestDuckDBSink(TransactionalSinkConformance):
    values = VALUES
    rejected: ClassVar[Any] = {"n": "no number"}
    many = 2_000

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "shop.duckdb"

    def make(self) -> DuckDBSink:
        return DuckDBSink(self.path, "orders")

    def written(self) -> list[Written]:
        if not self.path.exists() or not rows(self.path, "SELECT 1 FROM duckdb_tables() WHERE table_name = 'orders'"):
            return []
        with closing(duckdb.connect(str(self.path))) as connection:
            found = connection.execute("SELECT * REPLACE (epoch_ms(timestamp) AS timestamp) FROM orders ORDER BY rowid")
            return written([column[0] for column in found.description], found.fetchall())


def sink_of(path: Path, **options: Any) -> DuckDBSink:
    sink = DuckDBSink(path, **{"table_name": "orders", "include_metadata": False, "retries": FAST, **options})
    sink.start()
    return sink


@contextmanager
def opened_elsewhere(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Let another process have the database open."""
    program = f"import duckdb, sys\nc = duckdb.connect({str(path)!r})\nprint(flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(30)


def test_types_of_columns(tmp_path: Path) -> None:
    berlin = datetime.timezone(datetime.timedelta(hours=1))
    value: dict[str, Any] = {
        "whole": -(1 << 63),
        "huge": -(1 << 100),
        "truth": True,
        "real": 1e-300,
        "exact": decimal.Decimal("1.10"),
        "data": b"\0\xff'\\x41",
        "moment": datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=berlin),
        "local": datetime.datetime(2026, 1, 2, 3, 4, 5),
        "day": datetime.date(2026, 1, 2),
        "clock": datetime.time(3, 4, 5, 6),
        "span": datetime.timedelta(hours=-100, microseconds=5),
        "id": uuid.UUID(int=7),
        "text": "größer 🚆 '\\\"%s?\0\n",
        "list": [1, {"a": None, "when": datetime.date(2026, 1, 2)}],
    }
    sink_of(tmp_path / "db").write(batch_of(value, {"real": float("nan")}))
    columns = ", ".join(f'"{name}"' for name in value if name not in ("moment", "local"))
    row, other = rows(tmp_path / "db", f"SELECT {columns}, epoch_us(moment), epoch_us(local) FROM orders")
    expected = {**value, "list": '[1, {"a": null, "when": "2026-01-02"}]'}
    at, local = expected.pop("moment"), expected.pop("local")
    assert row[:-2] == tuple(expected.values())
    assert row[-2:] == (at.timestamp() * 1e6, local.replace(tzinfo=datetime.timezone.utc).timestamp() * 1e6)
    assert other[3] != other[3]
    kinds = dict(
        rows(tmp_path / "db", "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'orders'")
    )
    assert kinds == {
        "whole": "BIGINT",
        "huge": "HUGEINT",
        "truth": "BOOLEAN",
        "real": "DOUBLE",
        "exact": "DECIMAL(38,18)",
        "data": "BLOB",
        "moment": "TIMESTAMP WITH TIME ZONE",
        "local": "TIMESTAMP WITH TIME ZONE",
        "day": "DATE",
        "clock": "TIME",
        "span": "INTERVAL",
        "id": "UUID",
        "text": "VARCHAR",
        "list": "JSON",
    }


def test_existing_tables_keep_types_and_defaults(tmp_path: Path) -> None:
    execute(
        tmp_path / "db",
        "CREATE SEQUENCE ids",
        "CREATE TABLE orders (Id INT DEFAULT nextval('ids'), price DECIMAL(8, 2), tags VARCHAR[], shape STRUCT(a INT),"
        " status VARCHAR DEFAULT 'new', n INT, moment TIMESTAMP, data BLOB)",
    )
    sink = sink_of(tmp_path / "db")
    at = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    sink.write(
        batch_of({"Price": 1.239, "tags": ["a", "b"], "shape": {"a": 1}}, {"N": 7, "status": None}, {"moment": at})
    )
    sink.write(batch_of({"data": "\\x41"}))
    assert rows(tmp_path / "db", "SELECT * FROM orders ORDER BY id") == [
        (1, decimal.Decimal("1.24"), ["a", "b"], {"a": 1}, "new", None, None, None),
        (2, None, None, None, None, 7, None, None),
        (3, None, None, None, "new", None, datetime.datetime(2026, 1, 2, 1), None),
        (4, None, None, None, "new", None, None, b"\\x41"),
    ]
    with pytest.raises(
        SinkError, match=r"two fields of orders\[0\] at offset 1 belong to column 'n' of table 'orders'"
    ):
        sink.write(batch_of({"n": 1}, {"n": 1, "N": 2}))


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("i", 2.5, "digits after the point"),
        ("i", "2.5", "digits after the point"),
        ("i", "canary", "not of the column's type"),
        ("i", 1 << 40, "out of range"),
        ("i", 1 << 200, "out of range"),
        ("i", float("nan"), "out of range"),
        ("d", decimal.Decimal("1.239"), "digits after the point"),
        ("d", 1e30, "out of range"),
        ("moment", "canary", "not of the column's type"),
        ("day", datetime.datetime(2026, 1, 2, 3), "time of day"),
        ("clock", datetime.time(1, tzinfo=datetime.timezone.utc), "no time zone"),
        ("must", None, "null is not allowed"),
        ("once", "first", "its key exists"),
        ("once", "canary", "a CHECK constraint"),
        ("l", "\ud800", "not valid Unicode"),
        ("l", b"canary", "bytes"),
        ("l", object(), "no column holds the type object"),
        ("l", [float("nan")], "no form in JSON"),
        ("j", "{canary", "not of the column's type"),
    ],
)
def test_a_value_that_would_change_is_named_and_not_shown(
    tmp_path: Path, column: str, value: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    execute(
        tmp_path / "db",
        "CREATE TABLE orders (n INT, i INT, d DECIMAL(8, 2), moment TIMESTAMP, day DATE, clock TIME,"
        " must INT NOT NULL DEFAULT 1, once VARCHAR UNIQUE CHECK (once <> 'canary'), l VARCHAR, j JSON)",
    )
    sink = sink_of(tmp_path / "db")
    sink.write(batch_of({"once": "first"}))
    with pytest.raises(
        SinkError, match=rf"table 'orders' rejects the value of orders\[0\] at offset 7: .*{reason}"
    ) as caught:
        sink.write(batch_of({"n": 1}, {"n": 2}, {column: value}, {"n": 3}, start=5))
    assert ("column" in str(caught.value).partition(" rejects")[0]) == (column != "once")
    assert "canary" not in str(caught.value) + caplog.text
    assert caught.value.__cause__ is None
    # Nothing of the chunk is there, and the sink goes on.
    sink.write(batch_of({"n": 9}))
    assert rows(tmp_path / "db", "SELECT n FROM orders") == [(None,), (9,)]


def test_a_rejected_row_behind_others_is_found(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", primary_key_columns="id")
    values = [{"id": n, "text": "x"} for n in range(1_500)]
    with pytest.raises(
        SinkError, match=r"table 'orders' rejects the value of orders\[0\] at offset 1500: its key exists"
    ):
        sink.write(batch_of(*values, {"id": 3}, {"id": 1_501}))
    sink.write(batch_of(*values))
    assert rows(tmp_path / "db", "SELECT COUNT(*), SUM(id) FROM orders") == [(1_500, sum(range(1_500)))]


@pytest.mark.parametrize(
    ("poison", "reason"),
    [
        ({"j": "{canary"}, "column 'j' .* offset 7: it is not of the column's type"),
        ({"must": None}, "column 'must' .* offset 7: null is not allowed"),
        ({"n": 2.5}, "column 'n' .* offset 7: it has more than 0 digits"),
        ({"n": 1 << 70}, "column 'n' .* offset 7: it is out of range"),
        ({"n": "canary"}, "column 'n' .* offset 7: it is not of the column's type"),
    ],
)
def test_many_rows_are_as_strict_as_few(tmp_path: Path, poison: dict[str, Any], reason: str) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    execute(
        tmp_path / "db",
        "CREATE TABLE orders (n BIGINT, j JSON, must VARCHAR NOT NULL, r DOUBLE, moment TIMESTAMPTZ, data BLOB, b BOOLEAN)",
    )
    value = {"n": 1, "j": {"a": 1}, "must": "ü", "r": 0.5, "moment": moment, "data": b"\0\xff", "b": True}
    sink = sink_of(tmp_path / "db")
    values = [value] * 300
    with pytest.raises(SinkError, match=reason) as caught:
        sink.write(batch_of(*values[:7], {**value, **poison}, *values))
    assert "canary" not in str(caught.value)
    sink.write(batch_of(*values, {**value, "n": "2", "r": 1, "must": 3, "b": 0, "moment": moment.replace(tzinfo=None)}))
    query = "SELECT n, j, must, r, epoch(moment), data, b, COUNT(*) FROM orders GROUP BY ALL ORDER BY n"
    assert rows(tmp_path / "db", query) == [
        (1, '{"a": 1}', "ü", 0.5, moment.timestamp(), b"\0\xff", True, 300),
        (2, '{"a": 1}', "3", 1.0, moment.timestamp() + 7_200, b"\0\xff", False, 1),
    ]


def test_rows_replace_the_columns_of_their_key(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", primary_key_columns=["id"], upsert_on_primary_key=True)
    sink.write(batch_of({"id": 1, "a": 1}, {"id": 2, "a": 1, "list": [1]}, {"id": 1, "b": 2}, {"id": 1, "a": 3}))
    sink.write(batch_of({"id": 2, "b": 5, "list": [2]}, {"ID": 1, "b": None}, {"id": 3}))
    assert rows(tmp_path / "db", "SELECT * FROM orders ORDER BY id") == [
        (1, 3, None, None),
        (2, 1, "[2]", 5),
        (3, None, None, None),
    ]
    with pytest.raises(SinkError, match=r"column 'a' of table 'orders' rejects the value of orders\[0\] at offset 1"):
        sink.write(batch_of({"id": 5, "a": 1}, {"id": 6, "a": "text"}))


def test_rows_whose_key_exists_are_dropped(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", primary_key_columns="id", on_conflict_do_nothing=True)
    sink.write(batch_of({"id": 1, "a": 1}, {"id": 1, "a": 2}))
    sink.write(batch_of({"id": 1, "a": 3}, {"id": 2, "a": 4}))
    assert rows(tmp_path / "db", "SELECT id, a FROM orders ORDER BY id") == [(1, 1), (2, 4)]


def test_another_unique_index_does_not_decide(tmp_path: Path) -> None:
    execute(tmp_path / "db", "CREATE TABLE orders (id INT PRIMARY KEY, mail VARCHAR UNIQUE)")
    sink = sink_of(tmp_path / "db", primary_key_columns="id", upsert_on_primary_key=True)
    sink.write(batch_of({"id": 1, "mail": "a"}, {"id": 2, "mail": "b"}))
    with pytest.raises(SinkError, match=r"table 'orders' rejects the value of orders\[0\] at offset 1: its key exists"):
        sink.write(batch_of({"id": 5, "mail": "e"}, {"id": 4, "mail": "a"}))
    assert rows(tmp_path / "db", "SELECT * FROM orders ORDER BY id") == [(1, "a"), (2, "b")]


def test_names_from_data_are_quoted(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", table_name=table_by_kind, name="by kind")
    names = ['x"; DROP TABLE y; --', "a%sb", "a?b", "größer", "GRÖSSER", "Select", "';--", "\\", "main.x", "É", "é"]
    sink.write(batch_of(*({"kind": name, name: 1} for name in names)))
    sink.write(batch_of({"kind": "SELECT", "select": 2}))
    found = {name for (name,) in rows(tmp_path / "db", "SELECT table_name FROM duckdb_tables()")}
    assert found == {*names, "streamrt_positions"}
    assert rows(tmp_path / "db", 'SELECT "Select" FROM "Select"') == [(1,), (2,)]


def test_the_database_is_open_during_a_transaction_alone(tmp_path: Path) -> None:
    sink, other = sink_of(tmp_path / "db"), sink_of(tmp_path / "db", name="other")
    for n in range(3):
        sink.write(batch_of({"n": n}))
        other.write(batch_of({"n": n}))
        sink.positions("g", [("orders", 0)])
        with opened_elsewhere(tmp_path / "db"):
            pass
    assert rows(tmp_path / "db", "SELECT COUNT(*) FROM orders") == [(6,)]


def test_a_database_that_is_open_elsewhere_pauses_the_partition(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", timeout=0.05)
    change = {("orders", 0): PositionChange(None, SinkPosition(1, 1))}
    sink.write_transaction([batch_of({"n": 1})], SinkCommit("g", change))
    with opened_elsewhere(tmp_path / "db"):
        with pytest.raises(SinkBackpressureError, match="Could not set lock on file") as caught:
            sink.write(batch_of({"n": 2}))
        assert caught.value.retry_after == 7
        with pytest.raises(SinkBackpressureError):
            sink.positions("g", [("orders", 0)])
        with pytest.raises(SinkError, match="cannot be used: IO Error: Could not set lock"):
            sink_of(tmp_path / "db", timeout=0)
    assert sink.positions("g", [("orders", 0)]) == {("orders", 0): SinkPosition(1, 1)}
    sink.write(batch_of({"n": 2}))
    assert rows(tmp_path / "db", "SELECT n FROM orders") == [(1,), (2,)]


def test_a_process_that_is_killed_leaves_the_database_usable(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db")
    sink.write(batch_of({"n": 1}))
    with opened_elsewhere(tmp_path / "db") as process:
        process.kill()
        sink.write(batch_of({"n": 2}))
    assert rows(tmp_path / "db", "SELECT n FROM orders") == [(1,), (2,)]


def test_processes_take_turns(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_many, args=(tmp_path / "db", number)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert rows(tmp_path / "db", "SELECT SUM(c0), SUM(c1), SUM(n) FROM orders") == [(10, 10, 90)]


def test_transactions_of_one_process_that_meet_are_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sink = sink_of(tmp_path / "db", primary_key_columns="id", on_conflict_do_nothing=True)
    sink.write(batch_of({"id": "first"}))
    with closing(duckdb.connect(str(tmp_path / "db"), config=CONFIG)) as other:
        other.execute("BEGIN")
        other.execute("INSERT INTO orders VALUES ('canary')")
        insert = sink._insert_rows

        def meet(rows: Any, columns: Any) -> None:
            insert(rows, columns)
            if "failed" not in caplog.text:
                other.execute("COMMIT")

        sink._insert_rows = meet  # type: ignore[method-assign]
        sink.write(batch_of({"id": "canary"}))
    assert "another transaction of this process was faster" in caplog.text
    assert "canary" not in caplog.text
    assert rows(tmp_path / "db", "SELECT id FROM orders") == [("first",), ("canary",)]


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"the directory of the database .* does not exist"):
        sink_of(tmp_path / "no" / "db")
    (tmp_path / "text").write_text("This is not a database, but a text." * 500)
    with pytest.raises(SinkError, match=r"cannot be opened: .* not a valid DuckDB database file"):
        sink_of(tmp_path / "text")
    with pytest.raises(SinkError, match="table 'orders' does not exist, and schema_auto_update=False"):
        sink_of(tmp_path / "db", schema_auto_update=False)
    with closing(duckdb.connect(str(tmp_path / "other"))), pytest.raises(SinkError, match="different configuration"):
        sink_of(tmp_path / "other")


def test_a_table_with_another_key_is_refused(tmp_path: Path) -> None:
    execute(tmp_path / "db", "CREATE TABLE orders (id INTEGER, a INTEGER)")
    sink = sink_of(tmp_path / "db", primary_key_columns="id", upsert_on_primary_key=True)
    with pytest.raises(SinkError, match=r"table 'orders' has no primary key, and the sink needs \(id\)"):
        sink.write(batch_of({"id": 1, "a": 1}))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"path": ""}, "the path of a file"),
        ({"path": ":memory:"}, "the path of a file"),
        ({"path": 3}, "the path of a file"),
        ({"timeout": -1}, "0 seconds or more"),
        ({"timeout": "1"}, "0 seconds or more"),
        ({"memory_limit": "much"}, "a size such as"),
        ({"threads": 0}, "1 or more"),
        ({"upsert_on_primary_key": True}, "needs primary_key_columns"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        DuckDBSink(**{"path": tmp_path / "db", "table_name": "orders", **options})


def test_memory_and_threads_are_limited(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", memory_limit="100 MB", threads=1)
    sink.write(batch_of({"n": 1}))
    connection = sink._connect()
    cursor = connection.cursor()
    cursor.execute("SELECT current_setting('memory_limit'), current_setting('threads')")
    assert cursor.fetchone() == ("95.3 MiB", 1)
    connection.close()


def test_an_application_writes_each_value_once(tmp_path: Path) -> None:
    app = Application("unused:9092", consumer_group="shop", processing_guarantee="exactly-once")
    app.dataframe(app.topic("orders")).sink(DuckDBSink(tmp_path / "db", "orders"))
    with TopologyTestDriver(app) as driver:
        for number in range(3):
            driver.pipe("orders", {"n": number}, timestamp=number)
    assert rows(tmp_path / "db", "SELECT n FROM orders") == [(0,), (1,), (2,)]
    assert rows(tmp_path / "db", "SELECT sink, topic, next_offset, version FROM streamrt_positions") == [
        ("orders", "orders", 3, 3)
    ]


def test_without_duckdb_an_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"DuckDBSink needs the package duckdb: run pip install .*\[duckdb\]"):
        DuckDBSink("db", "t")


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, if there is one: the sink opens the database for each transaction, and waits for the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="streamrt-duckdb-", dir=memory) as directory:
        yield Path(directory)


@pytest.mark.slow
def test_c4_each_value_is_stored_exactly_or_refused_by_name(memory_path: Path) -> None:
    path = memory_path / "db"
    types = [
        "INT",
        "BIGINT",
        "DOUBLE",
        "REAL",
        "NUMERIC(8, 2)",
        "VARCHAR",
        "BOOLEAN",
        "BLOB",
        "DATE",
        "TIME",
        "TIMESTAMP",
    ]
    keys: list[tuple[str, list[Any]]] = [
        ("INT", ["7", "07", 7]),
        ("DECIMAL(8, 2)", [1.5, "1.50", decimal.Decimal("1.500")]),
        ("UUID", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
        ("TIMESTAMPTZ", ["2026-01-02 03:00:00+02", "2026-01-02 01:00:00Z"]),
        ("VARCHAR COLLATE NOCASE", ["a", "a"]),
    ]
    found: dict[str, list[Any]] = {}

    def define(*statements: str) -> None:
        for statement in statements:
            held.execute(statement)

    def query(text: str) -> list[Any]:
        found[text] = held.execute(text).fetchall()
        return found[text]

    # As long as the process has the database open, each commit opens it in a tenth of the time.
    with closing(duckdb.connect(str(path), config=CONFIG)) as held:
        database = Database(
            "DuckDB",
            lambda table, **options: sink_of(path, **{"table_name": table, "position_table": None, **options}),
            define,
            query,
            [*types, "TIMESTAMP_S", "TIMESTAMPTZ", "UUID", "JSON", "INTEGER[]", "STRUCT(a INT)"],
            keys,
            # As docs/connectors/duckdb.md says.
            {"REAL": ("1e22",)},
            sparseness=16,
        )
        print(database.judge())
    # It is the same in the file.
    with closing(duckdb.connect(str(path))) as connection:
        assert repr({text: connection.execute(text).fetchall() for text in found}) == repr(found)


def test_c1_a_collation_that_the_index_does_not_know_merges_no_keys(tmp_path: Path) -> None:
    # In DuckDB, NOCASE is only for comparisons: the primary key takes both.
    execute(tmp_path / "db", "CREATE TABLE orders (id VARCHAR COLLATE NOCASE PRIMARY KEY, n INT)")
    sink = sink_of(tmp_path / "db", primary_key_columns="id", upsert_on_primary_key=True)
    sink.write(batch_of({"id": "a", "n": 1}, {"id": "A", "n": 2}))
    sink.write(batch_of({"id": "A", "n": 3}))
    assert sorted(rows(tmp_path / "db", "SELECT id, n FROM orders")) == [("A", 3), ("a", 1)]


def test_c10_rows_with_many_sets_of_fields_go_in_few_statements(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "db", primary_key_columns="id", upsert_on_primary_key=True)
    values = [{"id": n % 600, **{f"c{n * k % 41}": n for k in range(1, 4)}} for n in range(700)]
    sink.write(batch_of(*values))
    expected: dict[int, dict[str, int]] = {}
    for value in values:
        expected.setdefault(value["id"], {}).update(value)
    names = [f"c{n}" for n in range(41)]
    for row in rows(tmp_path / "db", f"SELECT id, {', '.join(names)} FROM orders"):
        assert {name: value for name, value in zip(("id", *names), row, strict=True) if value is not None} == expected[
            row[0]
        ]


@pytest.mark.rows("PF-M10")
@pytest.mark.slow
def test_d6_statements_in_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "db"

    def started(**options: Any) -> DuckDBSink:
        sink = DuckDBSink(path, **options)
        sink.start()
        return sink

    sql_statements.judge(
        started, lambda text: execute(path, text), lambda text: rows(path, text), ["x", float("nan"), [1]]
    )
