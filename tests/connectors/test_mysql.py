"""The MySQL sink, against a real MariaDB."""

import copy
import datetime
import decimal
import importlib.util
import logging
import pickle
import threading
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

import cloudpickle
import pymysql
import pytest

from streamrt.connectors import MySQLSink, PositionChange, SinkCommit, SinkPosition
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError
from streamrt.testing.connectors import TransactionalSinkConformance, Written
from tests.connectors import sql_statements
from tests.connectors.mariadb_server import MariaDB, mariadb
from tests.connectors.sql_matrix import Database
from tests.connectors.sql_tables import VALUES, batch_of, table_by_kind, written
from tests.support import wait_until

FAST = Retries(attempts=2, first_wait_s=0.01, retry_after_s=3)
# Rows of the conformance suite come in the order of this column.
ORDER = "arrival"


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    # Another default than utf8mb4, and modes in which literals have other meanings.
    options = {"character-set-server": "latin1", "collation-server": "latin1_swedish_ci"}
    with mariadb({**options, "sql-mode": "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "max-allowed-packet": "2M"}) as running:
        yield running


@pytest.fixture
def database(server: MariaDB) -> str:
    name = f"d{uuid.uuid4().hex}"
    server.execute(f"CREATE DATABASE {name}")
    return name


def rows(server: MariaDB, database: str, query: str) -> list[Any]:
    with server.connect(database=database, charset="utf8mb4", sql_mode="") as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(query)
        return list(cursor.fetchall())


class TestMySQLSink(TransactionalSinkConformance):
    values = VALUES
    rejected: ClassVar[Any] = {"n": "no number"}
    many = 2_000

    @pytest.fixture(autouse=True)
    def place(self, server: MariaDB, database: str) -> None:
        self.server, self.database = server, database
        # A table without a primary key has no order that a query could ask for.
        server.execute(
            f"CREATE TABLE {database}.orders ({ORDER} BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, n BIGINT, text LONGTEXT)"
            " CHARACTER SET utf8mb4"
        )

    def make(self) -> MySQLSink:
        return MySQLSink(**{**self.server.settings, "database": self.database}, table_name="orders")

    def written(self) -> list[Written]:
        names = [row[0] for row in rows(self.server, self.database, "SHOW COLUMNS FROM orders")][1:]
        columns = ", ".join(f"`{name}`" for name in names)
        found = rows(self.server, self.database, f"SELECT {columns} FROM orders ORDER BY {ORDER}")
        zone = datetime.timezone.utc
        return written(names, found, lambda time: round(time.replace(tzinfo=zone).timestamp() * 1_000))


def sink_of(server: MariaDB, database: str, **options: Any) -> MySQLSink:
    chosen = {"table_name": "orders", "include_metadata": False, "retries": FAST, "tls": False, **options}
    settings = {**server.settings, **chosen}
    sink = MySQLSink(**{**settings, "database": database})
    sink.start()
    return sink


def test_types_of_columns(server: MariaDB, database: str) -> None:
    sink = sink_of(server, database)
    berlin = datetime.timezone(datetime.timedelta(hours=1))
    value = {
        "whole": -(1 << 63),
        "huge": 10**64,
        "truth": True,
        "real": 1e-300,
        "short": 0.1,
        "exact": decimal.Decimal("1.10"),
        "data": b"\0\xff'\\\"",
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=berlin),
        "local": datetime.datetime(1, 1, 1),
        "day": datetime.date(2026, 1, 2),
        "clock": datetime.time(3, 4, 5, 6),
        "span": datetime.timedelta(hours=-100, microseconds=5),
        "id": uuid.UUID(int=7),
        "text": "größer 🚆 '\\\"%s\0\x1a\n",
        "list": [1, {"a": None, "when": datetime.date(2026, 1, 2)}],
    }
    sink.write(batch_of(value))
    columns = ", ".join(f"`{name}`" for name in value)
    (row,) = rows(server, database, f"SELECT {columns} FROM orders")
    assert dict(zip(value, row, strict=True)) == {
        **value,
        "truth": 1,
        "at": datetime.datetime(2026, 1, 2, 2, 4, 5, 678_901),
        "clock": datetime.timedelta(hours=3, minutes=4, seconds=5, microseconds=6),
        "id": str(uuid.UUID(int=7)),
        "list": '[1, {"a": null, "when": "2026-01-02"}]',
    }


def test_existing_tables_keep_types_and_defaults(server: MariaDB, database: str) -> None:
    server.execute(
        f"CREATE TABLE {database}.orders (Id SERIAL, price DECIMAL(8, 2), status VARCHAR(9) DEFAULT 'new', n INT)"
    )
    sink = sink_of(server, database)
    # Names of columns have no case.
    sink.write(batch_of({"Price": 1.239}, {"n": 7, "status": None}, {"N": 8, "note": "größer"}, {"price": "1.5"}))
    assert rows(server, database, "SELECT Id, price, status, n, note FROM orders ORDER BY Id") == [
        (1, decimal.Decimal("1.24"), "new", None, None),
        (2, None, None, 7, None),
        (3, None, "new", 8, "größer"),
        (4, decimal.Decimal("1.50"), "new", None, None),
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
        ("i", float("nan"), "no NaN"),
        ("d", decimal.Decimal("1.239"), "digits after the point"),
        ("d", 1e30, "out of range"),
        ("v", "canary", "too long"),
        # Spaces at the end are cut with only a note.
        ("v", "abc ", "it would be cut"),
        ("at", "canary", "not of the column's type"),
        ("at", "2026-02-31", "not of the column's type"),
        ("day", datetime.datetime(2026, 1, 2, 3), "time of day"),
        ("clock", datetime.time(1, tzinfo=datetime.timezone.utc), "no time zone"),
        ("clock", datetime.timedelta(days=90), "not of the column's type"),
        ("must", None, "null is not allowed"),
        ("once", "first", "its key exists"),
        ("l", "🚆", "not of the column's type"),
        ("l", "\ud800", "not valid Unicode"),
        ("l", object(), "no column holds the type object"),
        ("l", [float("nan")], "no form in JSON"),
        ("j", "canary", "a CHECK constraint forbids it"),
        ("real", decimal.Decimal("Infinity"), "no infinity"),
    ],
)
def test_a_value_that_would_change_is_named_and_not_shown(
    server: MariaDB, database: str, column: str, value: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.execute(
        f"CREATE TABLE {database}.orders (n INT, i INT, d DECIMAL(8, 2), v VARCHAR(3), at DATETIME, day DATE, clock TIME,"
        " must INT NOT NULL DEFAULT 1, once VARCHAR(9) UNIQUE, l LONGTEXT, j JSON, `real` DOUBLE)"
    )
    sink = sink_of(server, database)
    sink.write(batch_of({"once": "first"}))
    with pytest.raises(
        SinkError, match=rf"table 'orders' rejects the value of orders\[0\] at offset 7: .*{reason}"
    ) as caught:
        sink.write(batch_of({"n": 1}, {"n": 2}, {column: value}, {"n": 3}, start=5))
    assert ("column" in str(caught.value)) == (column not in ("once", "j"))
    assert "canary" not in str(caught.value) + caplog.text
    assert caught.value.__cause__ is None
    # Nothing of the chunk is there, and the sink goes on.
    sink.write(batch_of({"n": 9}))
    assert rows(server, database, "SELECT n FROM orders") == [(None,), (9,)]


def test_rows_replace_the_columns_of_their_key(server: MariaDB, database: str) -> None:
    sink = sink_of(server, database, primary_key_columns=["id"], upsert_on_primary_key=True)
    sink.write(batch_of({"id": 1, "a": 1}, {"id": 2, "a": 1}, {"id": 1, "b": 2}, {"id": 1, "a": 3}))
    sink.write(batch_of({"id": 2, "b": 5}, {"ID": 1, "b": None}))
    assert rows(server, database, "SELECT id, a, b FROM orders ORDER BY id") == [(1, 3, None), (2, 1, 5)]
    with pytest.raises(SinkError, match=r"column 'a' of table 'orders' rejects the value of orders\[0\] at offset 1"):
        sink.write(batch_of({"id": 5, "a": 1}, {"id": 6, "a": "text"}))
    # Keys on their own change nothing.
    sink.write(batch_of({"id": 1}, {"id": 3}))
    assert rows(server, database, "SELECT id, a FROM orders ORDER BY id") == [(1, 3), (2, 1), (3, None)]


def test_rows_whose_key_exists_are_dropped(server: MariaDB, database: str) -> None:
    sink = sink_of(server, database, primary_key_columns="id", on_conflict_do_nothing=True)
    sink.write(batch_of({"id": 1, "a": 1}, {"id": 1, "a": 2}))
    sink.write(batch_of({"id": 1, "a": 3}, {"id": 2, "a": 4}))
    assert rows(server, database, "SELECT id, a FROM orders ORDER BY id") == [(1, 1), (2, 4)]
    # Other errors are not hidden.
    with pytest.raises(SinkError, match=r"column 'a' of table 'orders' rejects the value of orders\[0\] at offset 0"):
        sink.write(batch_of({"id": 3, "a": "text"}))


def test_keys_that_differ_are_different_rows(server: MariaDB, database: str) -> None:
    sink = sink_of(server, database, primary_key_columns=["a", "b"], upsert_on_primary_key=True)
    keys = [("a", b"\0"), ("A", b"\0"), ("ä", b"\0"), ("a ", b"\0"), ("a", b"\0\0"), ("", b"")]
    sink.write(batch_of(*({"a": a, "b": b, "n": 1} for a, b in keys)))
    sink.write(batch_of(*({"a": a, "b": b, "n": 2} for a, b in keys)))
    assert set(rows(server, database, "SELECT a, b, n FROM orders")) == {(a, b, 2) for a, b in keys}
    with pytest.raises(
        SinkError, match=r"column 'a' of table 'orders' rejects the value of orders\[0\] at offset 0: .*too long"
    ):
        sink.write(batch_of({"a": "x" * 256, "b": b""}))


@pytest.mark.parametrize("mode", ["upsert_on_primary_key", "on_conflict_do_nothing"])
def test_another_unique_index_does_not_decide(server: MariaDB, database: str, mode: str) -> None:
    server.execute(f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, mail VARCHAR(9) UNIQUE, n INT)")
    sink = sink_of(server, database, primary_key_columns="id", **{mode: True})
    sink.write(batch_of({"id": 1, "mail": "a", "n": 1}, {"id": 2, "mail": "b", "n": 1}))
    sink.write(batch_of({"id": 1, "mail": "a", "n": 2}, {"id": 3, "mail": "c", "n": 2}))
    expected = [(1, "a", 2 if mode.startswith("upsert") else 1), (2, "b", 1), (3, "c", 2)]
    assert rows(server, database, "SELECT * FROM orders ORDER BY id") == expected
    # ON DUPLICATE KEY would change, or drop, the row of the other mail.
    with pytest.raises(SinkError, match=r"table 'orders' rejects the value of orders\[0\] at offset 1: its key exists"):
        sink.write(batch_of({"id": 5, "mail": "e"}, {"id": 4, "mail": "a"}))
    assert rows(server, database, "SELECT * FROM orders ORDER BY id") == expected


def test_names_from_data_are_quoted(server: MariaDB, database: str) -> None:
    sink = sink_of(server, database, table_name=table_by_kind, name="by kind")
    names = ["x`; DROP TABLE y; --", "a%sb", "a?b", "größer" * 10, "Select", "';--", "\\", '"']
    sink.write(batch_of(*({"kind": name, name: 1} for name in names)))
    found = rows(
        server, database, f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}'"
    )
    assert {name for (name,) in found} == {*names, "streamrt_positions"}
    for name, reason in (("x" * 65, "64 characters at most, not 65"), ("a ", "end with a space"), ("🚆", "U.FFFF")):
        with pytest.raises(SinkError, match=rf"orders\[0\] at offset 0: a name must .*{reason}"):
            sink.write(batch_of({"kind": name}))


def test_rows_that_are_large_come_in_several_statements(server: MariaDB, database: str) -> None:
    sink = sink_of(server, database)
    sink.write(batch_of(*({"n": n, "text": "'" * 150_000} for n in range(12))))
    assert rows(server, database, "SELECT COUNT(*), SUM(LENGTH(text)) FROM orders") == [(12, 12 * 150_000)]
    sink.write(batch_of({"n": 12, "text": "x" * 2_000_000}))
    with pytest.raises(SinkError, match=r"orders\[0\] at offset 4 .* raise its max_allowed_packet \(2,097,152\)"):
        sink.write(batch_of({"n": 13}, {"n": 14, "text": "'" * 1_100_000}, start=3))
    assert rows(server, database, "SELECT COUNT(*) FROM orders") == [(13,)]


def test_a_server_that_is_killed_pauses_the_partition_and_loses_nothing(server: MariaDB, database: str) -> None:
    sink = sink_of(server, database)
    change = {("orders", 0): PositionChange(None, SinkPosition(1, 1))}
    sink.write_transaction([batch_of({"n": 1})], SinkCommit("g", change))
    server.kill()
    try:
        with pytest.raises(SinkBackpressureError, match="failed, also when it was repeated") as caught:
            sink.write(batch_of({"n": 2}))
        assert caught.value.retry_after == 3
        assert server.password not in str(caught.value)
        with pytest.raises(SinkBackpressureError):
            sink.positions("g", [("orders", 0)])
    finally:
        server.start()
    assert sink.positions("g", [("orders", 0)]) == {("orders", 0): SinkPosition(1, 1)}
    sink.write(batch_of({"n": 2}))
    assert rows(server, database, "SELECT n FROM orders ORDER BY n") == [(1,), (2,)]


def test_a_connection_that_was_cut_is_made_again(server: MariaDB, database: str) -> None:
    sink = sink_of(server, database)
    sink.write(batch_of({"n": 1}))
    for (number,) in server.query("SELECT id FROM information_schema.processlist WHERE db = %s", (database,)):
        server.execute(f"KILL {number}")
    sink.write(batch_of({"n": 2}))
    assert rows(server, database, "SELECT n FROM orders ORDER BY n") == [(1,), (2,)]


def test_a_server_that_hangs_pauses_the_partition(
    server: MariaDB, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(server, database, retries=Retries(attempts=1))
    first, second = SinkPosition(1, 1), SinkPosition(2, 2)
    sink.write_transaction([batch_of({"n": 1})], SinkCommit("g", {("orders", 0): PositionChange(None, first)}))
    again = [batch_of({"n": 2})], SinkCommit("g", {("orders", 0): PositionChange(first, second)})
    monkeypatch.setattr(sink._connection, "_read_timeout", 0.2)
    session = sink._connection.thread_id()
    server.freeze()
    try:
        with pytest.raises(SinkBackpressureError, match="failed, also when it was repeated"):
            sink.write_transaction(*again)
    finally:
        server.thaw()
    # Whether the server has got the request in time is known only to it, and what it has got, it does when it goes on.
    wait_until(
        lambda: not server.query("SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = %s", [session]),
        what="the end of the session that the sink has given up",
    )
    if sink.positions("g", [("orders", 0)]) == {("orders", 0): first}:
        sink.write_transaction(*again)
    assert sink.positions("g", [("orders", 0)]) == {("orders", 0): second}
    assert rows(server, database, "SELECT n FROM orders ORDER BY n") == [(1,), (2,)]


def test_many_processes_create_tables_at_once(server: MariaDB, database: str) -> None:
    failures: list[Exception] = []
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            barrier.wait()
            sink = sink_of(server, database, retries=Retries(attempts=8, first_wait_s=0.05))
            sink.write(batch_of({"n": number, f"c{number}": 1}))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert rows(server, database, "SELECT n FROM orders ORDER BY n") == [(number,) for number in range(6)]


@pytest.mark.parametrize("statement", ["LOCK TABLES orders WRITE", "SELECT * FROM orders FOR UPDATE"])
def test_a_lock_that_lasts_pauses_the_partition(server: MariaDB, database: str, statement: str) -> None:
    options = {"primary_key_columns": "n", "upsert_on_primary_key": True}
    sink = sink_of(server, database, statement_timeout_seconds=1, retries=Retries(attempts=1), **options)
    sink.write(batch_of({"n": 1, "m": 1}))
    with server.connect(database=database, autocommit=False) as other, other.cursor() as cursor:
        cursor.execute(statement)
        with pytest.raises(SinkBackpressureError, match=r"Lock wait timeout|max_statement_time"):
            sink.write(batch_of({"n": 1, "m": 2}))
    sink.write(batch_of({"n": 1, "m": 2}))
    assert rows(server, database, "SELECT n, m FROM orders") == [(1, 2)]


def test_what_is_wrong_with_the_settings_is_said_at_the_start(server: MariaDB, database: str) -> None:
    cannot = r"the MySQL database '\w+' at 127.0.0.1:\d+ cannot be used: "
    with pytest.raises(SinkError, match=cannot + "Access denied for user 'tester'") as caught:
        sink_of(server, database, password="wrong-canary")
    assert "wrong-canary" not in str(caught.value)
    with pytest.raises(SinkError, match=cannot + "Can't connect"):
        sink_of(server, database, port=1)
    with pytest.raises(SinkError, match=r"at nowhere.invalid:\d+ cannot be used: Can't connect"):
        sink_of(server, database, host="nowhere.invalid")
    with pytest.raises(SinkError, match=cannot + "Unknown database 'nowhere'"):
        sink_of(server, "nowhere")
    with pytest.raises(SinkError, match=r"table 'orders' does not exist, and schema_auto_update=False"):
        sink_of(server, database, schema_auto_update=False)
    with pytest.raises(SinkError, match=cannot + "No such file"):
        sink_of(server, database, tls=None, ssl_ca="/nowhere")
    with pytest.raises(SinkError, match=cannot + "SSL is required"):
        sink_of(server, database, tls=None, ssl_verify_cert=True)


def test_an_engine_without_transactions_is_refused(server: MariaDB, database: str) -> None:
    server.execute(f"CREATE TABLE {database}.orders (n INT) ENGINE = MyISAM")
    sink = sink_of(server, database)
    with pytest.raises(SinkError, match="table 'orders' is stored by MyISAM, which has no transactions"):
        sink.write(batch_of({"n": 1}))
    sink = sink_of(server, database, position_table=None)
    sink.write(batch_of({"n": 1}))
    assert sink.positions("group", [("orders", 0)]) == {}
    assert rows(server, database, "SHOW TABLES") == [("orders",), ("streamrt_positions",)]


def test_a_user_without_rights_is_told_what_to_do(server: MariaDB, database: str) -> None:
    server.execute(
        f"CREATE TABLE {database}.orders (n INT)",
        f"CREATE USER {database[:20]}@'%' IDENTIFIED BY 'p'",
        f"GRANT SELECT ON {database}.* TO {database[:20]}@'%'",
    )
    reader = {"user": database[:20], "password": "p"}
    with pytest.raises(SinkError, match=r"table 'streamrt_positions'.* cannot be created \(the user lacks the right"):
        sink_of(server, database, **reader)
    with pytest.raises(SinkError, match=r"rejects the value of orders\[0\] at offset 0: the user lacks the right"):
        sink_of(server, database, **reader, position_table=None).write(batch_of({"n": 1}))


def test_names_that_positions_cannot_hold_are_refused(server: MariaDB, database: str) -> None:
    sink = sink_of(server, database)
    for group, reason in (("g" * 256, "255 characters at most, not 256"), ("g ", "must not end with a space")):
        with pytest.raises(SinkError, match=reason):
            sink.positions(group, [("orders", 0)])
        change = {("orders", 0): PositionChange(None, SinkPosition(1, 1))}
        with pytest.raises(SinkError, match=reason):
            sink.write_transaction([batch_of({"n": 1})], SinkCommit(group, change))
    long = {("t" * 249, 2**31 - 1): PositionChange(None, SinkPosition(2**63 - 1, 2**62, "id", "ü" * 100_000))}
    sink.write_transaction([], SinkCommit("ü" * 255, long))
    assert sink.positions("ü" * 255, list(long)) == {key: change.after for key, change in long.items()}
    assert sink.positions("Ü" * 255, list(long)) == {}


def test_secrets_are_nowhere(server: MariaDB, database: str) -> None:
    sink = MySQLSink(**{**server.settings, "password": "canary-1"}, table_name="t", ssl_key_password="canary-2")
    texts = (repr(sink), str(vars(sink)), str(cloudpickle.dumps(sink)))
    assert not any(canary in text for canary in ("canary-1", "canary-2") for text in texts)
    settings = {**server.settings, "database": database, "password": lambda password=server.password: password}
    again = copy.deepcopy(pickle.loads(cloudpickle.dumps(MySQLSink(**settings, table_name="orders"))))
    again.start()
    again.write(batch_of({"n": 1}))
    wait_until(lambda: rows(server, database, "SELECT n FROM orders"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"connection_timeout_seconds": 0}, "1 second or more"),
        ({"statement_timeout_seconds": 2.5}, "1 second or more"),
        ({"port": 0}, "1 or more"),
        ({"password": 3}, "a string or a function"),
        ({"host": ""}, "non-empty"),
        ({"database": None}, "non-empty"),
        ({"name": "n" * 256}, "255 characters at most"),
        ({"charset": "latin1"}, "no parameter 'charset'"),
        ({"table_name": "t" * 65}, "64 characters at most"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(options: dict[str, Any], reason: str) -> None:
    settings = {"host": "h", "user": "u", "password": "p", "database": "d", "table_name": "t", **options}
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        MySQLSink(**settings)


def test_without_pymysql_an_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"MySQLSink needs the package pymysql: run pip install .*\[mysql\]"):
        MySQLSink("h", "u", "p", "d", "t")


def test_errors_of_a_broken_connection_pass() -> None:
    sink = MySQLSink("h", "u", "p", "d", "t")
    passing = [
        pymysql.InterfaceError(0, ""),
        pymysql.OperationalError(2013, "Lost"),
        pymysql.OperationalError(1213, ""),
    ]
    lasting = [
        pymysql.OperationalError(1045, ""),
        pymysql.OperationalError(2026, ""),
        pymysql.DataError(1406, ""),
        OSError(),
    ]
    assert [sink._may_pass(error) for error in (*passing, *lasting)] == [True] * 3 + [False] * 4


@pytest.mark.slow
def test_c4_each_value_is_stored_exactly_or_refused_by_name(server: MariaDB, database: str) -> None:
    types = ["INT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(8, 2)", "LONGTEXT CHARACTER SET utf8mb4", "VARCHAR(5)"]
    types += ["CHAR(5) CHARACTER SET utf8mb4", "BOOLEAN", "BLOB", "VARBINARY(9)", "DATE", "TIME(6)", "DATETIME(6)"]
    unicode_key = "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    keys: list[tuple[str, list[Any]]] = [
        ("INT", ["7", "07", 7]),
        ("DECIMAL(8, 2)", [1.5, "1.50", decimal.Decimal("1.500")]),
        ("DOUBLE", [1.5, "1.50"]),
        ("CHAR(5)", ["a", "a ", "A"]),
        (unicode_key, ["a", "A", "ä"]),
        ("VARCHAR(9)", ["a", "a "]),
        ("DATETIME", ["2026-01-02 03:00+02", "2026-01-02 01:00Z"]),
        ("VARCHAR(9)", [7, "7"]),
    ]
    settings = {**server.settings, "database": database}

    def execute(*statements: str) -> None:
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    cells = Database(
        "MySQL",
        lambda table, **options: sink_of(
            server, settings["database"], **{"table_name": table, "position_table": None, **options}
        ),
        execute,
        lambda query: rows(server, database, query),
        [*types, "DATETIME", "TIMESTAMP(6)", "UUID", "JSON"],
        keys,
        # As docs/connectors/mysql.md says.
        {"DATETIME": ("datetime", "datetime+02")},
        sparseness=10,
    )
    print(cells.judge())


def test_c1_the_newest_of_equal_keys_wins_in_any_prefix_and_order(server: MariaDB, database: str) -> None:
    # Only the first three characters are the key, in a collation without case.
    server.execute(
        f"CREATE TABLE {database}.orders (id VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, a INT, b INT,"
        " PRIMARY KEY (id(3)))"
    )
    sink = sink_of(server, database, primary_key_columns="id", upsert_on_primary_key=True)
    sink.write(batch_of({"id": "abcd", "a": 1}, {"id": "ABCe", "b": 2}, {"id": "abC", "a": 3}, {"id": "x", "a": 4}))
    assert rows(server, database, "SELECT * FROM orders ORDER BY id") == [("abcd", 3, 2), ("x", 4, None)]


def test_c6_missing_rights_blame_no_record(server: MariaDB, database: str) -> None:
    server.execute(
        f"CREATE TABLE {database}.orders (n INT)",
        f"CREATE USER {database[:19]}w@'%' IDENTIFIED BY 'p'",
        f"GRANT SELECT ON {database}.* TO {database[:19]}w@'%'",
    )
    sink = sink_of(server, database, user=f"{database[:19]}w", password="p", position_table=None)
    with pytest.raises(SinkError, match="the user lacks the right") as caught:
        sink.write(batch_of({"n": 1}, {"n": 2}))
    assert caught.value.record is None


def test_c6_a_record_with_too_many_fields_is_named_and_others_go_on(server: MariaDB, database: str) -> None:
    sink = sink_of(server, database)
    wide = {f"c{n}": n for n in range(1_100)}
    for values in (({"n": 1}, wide), (wide, {"n": 1})):
        with pytest.raises(SinkError, match=r"orders\[0\] at offset") as caught:
            sink.write(batch_of(*values))
        assert caught.value.record == ("orders", 0, values.index(wide))
    sink.write(batch_of({"n": 1}))
    assert rows(server, database, "SELECT n FROM orders WHERE n IS NOT NULL") == [(1,)]


def test_c13_tls_is_one_word(server: MariaDB, database: str) -> None:
    sink_of(server, database, tls=False).write(batch_of({"n": 1}))
    # The server has none.
    with pytest.raises(SinkError, match=r"no TLS|doesn't support"):
        sink_of(server, database, tls=True)
    with pytest.raises(SinkError, match=r"cannot read certificates from /absent.pem"):
        sink_of(server, database, tls="/absent.pem")
    with pytest.raises(ConfigurationError, match="got tls and ssl_ca, which say the same"):
        sink_of(server, database, tls=True, ssl_ca="/x.pem")


@pytest.mark.rows("PF-M10")
@pytest.mark.slow
def test_d6_statements_in_mysql(server: MariaDB, database: str) -> None:
    def execute(text: str) -> None:
        server.execute(f"USE {database}", text)

    sql_statements.judge(
        lambda **options: sink_of(server, database, table_name=None, **options),
        execute,
        lambda text: rows(server, database, text),
        ["x", float("nan")],
    )
    server.execute(f"CREATE TABLE {database}.counts (n INT) ENGINE = MyISAM")
    with pytest.raises(SinkError, match="table 'counts' is stored by MyISAM, which has no transactions"):
        sink_of(server, database, table_name=None, statement="UPDATE `counts` SET n = :n", name="x")
