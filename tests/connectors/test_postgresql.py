"""The PostgreSQL sink, against a real server."""

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
import psycopg
import pytest

from streamrt.connectors import PositionChange, PostgreSQLSink, SinkBatch, SinkCommit, SinkPosition
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError
from streamrt.testing.connectors import TransactionalSinkConformance, Written
from tests.connectors import sql_statements
from tests.connectors.sql_matrix import Database, skip_refused
from tests.connectors.sql_tables import VALUES, batch_of, table_by_kind, written
from tests.postgres import Postgres, postgres
from tests.support import wait_until

FAST = Retries(attempts=2, first_wait_s=0.01, retry_after_s=3)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def schema(server: Postgres) -> str:
    name = f"s{uuid.uuid4().hex}"
    server.execute(f'CREATE SCHEMA "{name}"')
    return name


def rows(server: Postgres, query: str) -> list[Any]:
    with psycopg.connect(**server.settings) as connection:
        return connection.execute(query).fetchall()


class TestPostgreSQLSink(TransactionalSinkConformance):
    values = VALUES
    rejected: ClassVar[Any] = {"n": "no number"}
    many = 5_000

    @pytest.fixture(autouse=True)
    def place(self, server: Postgres, schema: str) -> None:
        self.server, self.schema = server, schema

    def make(self) -> PostgreSQLSink:
        return PostgreSQLSink(**self.server.settings, table_name="orders", schema_name=self.schema)

    def written(self) -> list[Written]:
        if not rows(
            self.server, f"SELECT 1 FROM pg_tables WHERE schemaname = '{self.schema}' AND tablename = 'orders'"
        ):
            return []
        with psycopg.connect(**self.server.settings) as connection:
            found = connection.execute(f"SELECT * FROM {self.schema}.orders ORDER BY ctid")
            names = [column.name for column in found.description or ()]
            return written(names, found.fetchall(), lambda time: round(time.timestamp() * 1_000))


def sink_of(server: Postgres, schema: str, **options: Any) -> PostgreSQLSink:
    settings = {**server.settings, "table_name": "orders", "include_metadata": False, "retries": FAST, **options}
    sink = PostgreSQLSink(**settings, schema_name=schema)
    sink.start()
    return sink


def test_types_of_columns(server: Postgres, schema: str) -> None:
    sink = sink_of(server, schema)
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    value = {
        "whole": 1 << 62,
        "huge": 1 << 70,
        "truth": True,
        "real": float("nan"),
        "exact": decimal.Decimal("1.10"),
        "data": b"\0\xff",
        "at": when,
        "day": when.date(),
        "list": [1, {"a": None}],
        "tabs": "a\tb\\N\n",
    }
    sink.write(batch_of(value))
    (row,) = rows(server, f"SELECT to_jsonb(o) - 'at' FROM {schema}.orders o")
    assert row[0] == {
        "whole": 1 << 62,
        "huge": 1 << 70,
        "truth": True,
        "real": "NaN",
        "exact": 1.1,
        "data": "\\x00ff",
        "day": "2026-01-02",
        "list": [1, {"a": None}],
        "tabs": "a\tb\\N\n",
    }
    assert rows(server, f"SELECT at FROM {schema}.orders") == [(when,)]


def test_existing_tables_keep_types_and_defaults(server: Postgres, schema: str) -> None:
    server.execute(
        f"CREATE TABLE {schema}.orders (id SERIAL, price NUMERIC(8, 2), tags TEXT[], status TEXT DEFAULT 'new', n INT)"
    )
    sink = sink_of(server, schema)
    sink.write(batch_of({"price": 1.239, "tags": ["a", "b"]}, {"n": 7, "status": "old"}, {"n": 8}))
    assert rows(server, f"SELECT * FROM {schema}.orders ORDER BY id") == [
        (1, decimal.Decimal("1.24"), ["a", "b"], "new", None),
        (2, None, None, "old", 7),
        (3, None, None, "new", 8),
    ]
    # An assignment would round it.
    with pytest.raises(SinkError, match=r"column 'n' of table 'orders' rejects the value of orders\[0\] at offset 2"):
        sink.write(batch_of({"n": 1}, {"n": 2}, {"n": 2.5}))


@pytest.mark.parametrize("upsert", [False, True])
@pytest.mark.parametrize(
    ("lossy", "reason"),
    [
        ({"price": decimal.Decimal("1.239")}, "it has more than 2 digits after the point"),
        ({"day": datetime.datetime(2026, 1, 1, 10)}, "it has a time of day"),
    ],
)
def test_values_of_which_a_column_would_keep_a_part_are_refused(
    server: Postgres, schema: str, lossy: dict[str, Any], reason: str, upsert: bool
) -> None:
    server.execute(f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY, price NUMERIC(8, 2), day DATE)")
    keys: dict[str, Any] = {"primary_key_columns": ["id"], "upsert_on_primary_key": True} if upsert else {}
    sink = sink_of(server, schema, **keys)
    whole = {"id": 1, "price": decimal.Decimal("1.2300"), "day": datetime.datetime(2026, 1, 1)}
    sink.write(batch_of(whole))
    column = next(iter(lossy))
    with pytest.raises(
        SinkError, match=rf"column '{column}' of table 'orders' rejects the value of orders\[0\] at offset 1: {reason}"
    ):
        sink.write(batch_of({"id": 2}, {"id": 3, **lossy}))
    assert rows(server, f"SELECT id FROM {schema}.orders") == [(1,)]


def test_a_timestamp_that_is_no_time_is_named(server: Postgres, schema: str) -> None:
    sink = sink_of(server, schema, include_metadata=True)
    batch = SinkBatch("orders", 0)
    # In microseconds.
    batch.append({"n": 1}, b"key", 1_700_000_000_000_000, None, 4)
    with pytest.raises(SinkError, match=r"the timestamp of orders\[0\] at offset 4 is beyond the years 1 to 9999"):
        sink.write(batch)


def test_rows_replace_the_columns_of_their_key(server: Postgres, schema: str) -> None:
    sink = sink_of(server, schema, primary_key_columns=["id"], upsert_on_primary_key=True)
    sink.write(batch_of({"id": 1, "a": 1}, {"id": 2, "a": 1}, {"id": 1, "b": 2}, {"id": 1, "a": 3}))
    sink.write(batch_of({"id": 2, "b": 5}))
    assert rows(server, f"SELECT id, a, b FROM {schema}.orders ORDER BY id") == [(1, 3, 2), (2, 1, 5)]
    with pytest.raises(SinkError, match=r"column 'a' of table 'orders' rejects the value of orders\[0\] at offset 1"):
        sink.write(batch_of({"id": 5, "a": 1}, {"id": 6, "a": "text"}))


def test_rows_whose_key_exists_are_dropped(server: Postgres, schema: str) -> None:
    sink = sink_of(server, schema, primary_key_columns="id", on_conflict_do_nothing=True)
    sink.write(batch_of({"id": 1, "a": 1}, {"id": 1, "a": 2}))
    sink.write(batch_of({"id": 1, "a": 3}, {"id": 2, "a": 4}))
    assert rows(server, f"SELECT id, a FROM {schema}.orders ORDER BY id") == [(1, 1), (2, 4)]


def test_names_from_data_are_quoted(server: Postgres, schema: str) -> None:
    sink = sink_of(server, schema, table_name=table_by_kind, name="by kind")
    names = ['x"; DROP TABLE y; --', "a%sb", "a?b", "größer", "Select", "';--", "\\"]
    sink.write(batch_of(*({"kind": name, name: 1} for name in names)))
    found = rows(server, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    assert {name for (name,) in found} == {*names, "streamrt_positions"}
    with pytest.raises(SinkError, match=r"orders\[0\] at offset 0: a name must have 63 bytes at most, not 64"):
        sink.write(batch_of({"kind": "x" * 64}))


def test_values_are_in_no_error(server: Postgres, schema: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sink = sink_of(server, schema, primary_key_columns="id")
    sink.write(batch_of({"id": 1, "n": 1, "text": "a"}))
    for poison in ({"id": 2, "n": "canary"}, {"id": 1, "text": "canary"}, {"id": 3, "text": "canary\0"}):
        with pytest.raises(SinkError, match=r"orders\[0\] at offset 9") as caught:
            sink.write(batch_of(poison, start=9))
        assert "canary" not in str(caught.value)
    assert "canary" not in caplog.text


@pytest.mark.rows("PF-M10", "PF-M12")
def test_a_server_that_is_away_pauses_the_partition_and_loses_nothing(server: Postgres, schema: str) -> None:
    sink = sink_of(server, schema)
    change = {("orders", 0): PositionChange(None, SinkPosition(1, 1))}
    sink.write_transaction([batch_of({"n": 1})], SinkCommit("g", change))
    server.stop()
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
    assert rows(server, f"SELECT n FROM {schema}.orders ORDER BY n") == [(1,), (2,)]


def test_a_connection_that_was_cut_is_made_again(server: Postgres, schema: str) -> None:
    sink = sink_of(server, schema)
    sink.write(batch_of({"n": 1}))
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )
    sink.write(batch_of({"n": 2}))
    assert rows(server, f"SELECT n FROM {schema}.orders ORDER BY n") == [(1,), (2,)]


def test_many_processes_create_tables_at_once(server: Postgres, schema: str) -> None:
    failures: list[Exception] = []
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            barrier.wait()
            sink = sink_of(server, schema, retries=Retries(attempts=8, first_wait_s=0.05))
            sink.write(batch_of({"n": number, f"c{number}": 1}))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert rows(server, f"SELECT n FROM {schema}.orders ORDER BY n") == [(number,) for number in range(6)]


def test_a_lock_that_lasts_pauses_the_partition(server: Postgres, schema: str) -> None:
    sink = sink_of(server, schema, statement_timeout_seconds=1, retries=Retries(attempts=1))
    sink.write(batch_of({"n": 1}))
    with psycopg.connect(**server.settings) as other:
        other.execute(f"LOCK TABLE {schema}.orders")
        with pytest.raises(SinkBackpressureError, match=r"QueryCanceled \(SQLSTATE|canceling statement"):
            sink.write(batch_of({"n": 2}))
        other.rollback()
    sink.write(batch_of({"n": 2}))
    assert len(rows(server, f"SELECT n FROM {schema}.orders")) == 2


def test_what_is_wrong_with_the_settings_is_said_at_the_start(server: Postgres, schema: str) -> None:
    with pytest.raises(
        SinkError, match=r"database 'postgres' at 127.0.0.1:\d+ cannot be reached: .*password"
    ) as caught:
        sink_of(server, schema, password="wrong-canary")
    assert "wrong-canary" not in str(caught.value)
    with pytest.raises(SinkError, match=r"at 127.0.0.1:1 cannot be reached"):
        sink_of(server, schema, port=1)
    with pytest.raises(SinkError, match=r"has no schema 'nowhere': create it"):
        sink_of(server, "nowhere")
    with pytest.raises(SinkError, match=r"table 'orders' does not exist, and schema_auto_update=False"):
        sink_of(server, schema, schema_auto_update=False)


def test_a_user_without_rights_is_told_what_to_do(server: Postgres, schema: str) -> None:
    server.execute(
        f"CREATE ROLE {schema}_reader LOGIN PASSWORD 'p'", f"GRANT USAGE ON SCHEMA {schema} TO {schema}_reader"
    )
    with pytest.raises(SinkError, match=r"table 'streamrt_positions'.* cannot be created \(InsufficientPrivilege"):
        sink_of(server, schema, user=f"{schema}_reader", password="p")


@pytest.mark.rows("PF-M11")
def test_secrets_are_nowhere(server: Postgres, schema: str) -> None:
    sink = PostgreSQLSink(**{**server.settings, "password": "canary-1"}, table_name="t", sslpassword="canary-2")
    texts = (repr(sink), str(vars(sink)), str(cloudpickle.dumps(sink)))
    assert not any(canary in text for canary in ("canary-1", "canary-2") for text in texts)
    asked = PostgreSQLSink(
        **{**server.settings, "password": lambda password=server.password: password},
        table_name="orders",
        schema_name=schema,
    )
    again = copy.deepcopy(pickle.loads(cloudpickle.dumps(asked)))
    again.start()
    again.write(batch_of({"n": 1}))
    wait_until(lambda: rows(server, f"SELECT n FROM {schema}.orders"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"connection_timeout_seconds": 0}, "1 second or more"),
        ({"statement_timeout_seconds": 2.5}, "1 second or more"),
        ({"password": 3}, "a string or a function"),
        ({"schema_name": ""}, "non-empty"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(options: dict[str, Any], reason: str) -> None:
    settings = {"host": "h", "port": 1, "dbname": "d", "user": "u", "password": "p", "table_name": "t", **options}
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        PostgreSQLSink(**settings)


def test_without_psycopg_an_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigurationError, match=r"PostgreSQLSink needs the package psycopg: run pip install .*\[postgres\]"
    ):
        PostgreSQLSink("h", 1, "d", "u", "p", "t")


@pytest.mark.slow
def test_c4_each_value_is_stored_exactly_or_refused_by_name(server: Postgres, schema: str) -> None:
    types = ["INT", "BIGINT", "DOUBLE PRECISION", "REAL", "NUMERIC", "NUMERIC(8, 2)", "TEXT", "VARCHAR(5)", "CHAR(5)"]
    types += ["BOOLEAN", "BYTEA", "DATE", "TIME", "TIMETZ", "TIMESTAMP", "TIMESTAMP(0)", "TIMESTAMPTZ", "UUID", "JSON"]
    keys: list[tuple[str, list[Any]]] = [
        ("INT", ["7", "07", 7]),
        ("NUMERIC(8, 2)", [1.5, "1.50", decimal.Decimal("1.500")]),
        ("DOUBLE PRECISION", [1.5, "1.50"]),
        ("CHAR(5)", ["a", "a "]),
        ("UUID", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc999c0b4ef8bb6d6bb9bd380a11"]),
        ("TIMESTAMPTZ", ["2026-01-02 03:00+02", "2026-01-02 01:00Z"]),
        ("TIMESTAMP", ["2026-01-02 03:00+02", "2026-01-02 01:00Z"]),
        ("DATE", ["2026-01-02", "2026-1-2"]),
        ("BYTEA", ["a", b"a"]),
        ("TEXT", [7, "7"]),
    ]

    def execute(*statements: str) -> None:
        with psycopg.connect(**server.settings, options=f"-c search_path={schema}") as connection:
            for statement in statements:
                connection.execute(statement)

    def query(text: str) -> list[Any]:
        with psycopg.connect(**server.settings, options=f"-c search_path={schema} -c timezone=UTC") as connection:
            return connection.execute(text).fetchall()

    database = Database(
        "PostgreSQL",
        lambda table, **options: sink_of(server, schema, **{"table_name": table, "position_table": None, **options}),
        execute,
        query,
        [*types, "JSONB", "INT[]", "DATE[]"],
        keys,
        sparseness=10,
    )
    print(database.judge())


@pytest.mark.parametrize("upsert", [False, True])
def test_c6_poison_among_good_rows_is_named_with_its_column(server: Postgres, schema: str, upsert: bool) -> None:
    keys: dict[str, Any] = {"primary_key_columns": ["id"], "upsert_on_primary_key": True} if upsert else {}
    sink = sink_of(server, schema, **keys)
    poison: list[dict[str, Any]] = [
        {"text": "a\0b"},
        {"text": "\ud800"},
        {"nested": {"text": "\0"}},
        {"nested": {"data": b"\0"}},
        {"nested": {"when": datetime.datetime(2026, 1, 2), "n": decimal.Decimal(1), "id": uuid.UUID(int=1)}},
        {"list": [object()]},
        {"ctid": "x"},
        {f"c{n}": 1 for n in range(1_700)},
        {"text": "x", "n": "no number"},
        {"\0": 1},
    ]
    rows_by_offset: dict[int, Any] = {n * 2: {"id": n * 2, "n": n, "text": "good"} for n in range(len(poison) + 1)}
    rows_by_offset |= {n * 2 + 1: {"id": n * 2 + 1, **value} for n, value in enumerate(poison)}
    refused = skip_refused(sink, dict(sorted(rows_by_offset.items())))
    # Nested times, numbers and ids have forms in JSON.
    assert refused.keys() == {n * 2 + 1 for n in range(len(poison))} - {9}
    found = rows(server, f"SELECT id FROM {schema}.orders ORDER BY id")
    assert [row[0] for row in found] == sorted(rows_by_offset.keys() - refused.keys())
    with pytest.raises(
        SinkError, match=r"column 'text' of table 'orders' rejects the value of orders\[0\] at offset 7"
    ):
        sink.write(batch_of({"id": 100}, {"id": 101, "text": "a\0b"}, start=6))


def test_c6_a_row_that_a_constraint_rejects_is_found_behind_others(server: Postgres, schema: str) -> None:
    server.execute(
        f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY, n INT CHECK (n > 0),"
        " mail TEXT UNIQUE DEFERRABLE INITIALLY DEFERRED)"
    )
    sink = sink_of(server, schema, primary_key_columns="id", upsert_on_primary_key=True)
    values = [{"id": n, "n": 1 + n % 7, "mail": str(n)} for n in range(200)]
    for poison in ({"id": 500, "n": -1}, {"id": 501, "mail": "17"}):
        with pytest.raises(SinkError, match=r"table 'orders' rejects the value of orders\[0\] at offset 150") as caught:
            sink.write(batch_of(*values[:150], poison, *values[150:]))
        assert caught.value.record == ("orders", 0, 150)
    sink.write(batch_of(*values))
    assert rows(server, f"SELECT count(*) FROM {schema}.orders") == [(200,)]


def test_c6_missing_rights_blame_no_record(server: Postgres, schema: str) -> None:
    server.execute(f"CREATE TABLE {schema}.orders (n INT)", f"CREATE ROLE {schema}_w LOGIN PASSWORD 'p'")
    server.execute(f"GRANT USAGE ON SCHEMA {schema} TO {schema}_w", f"GRANT SELECT ON {schema}.orders TO {schema}_w")
    sink = sink_of(server, schema, user=f"{schema}_w", password="p", position_table=None)
    with pytest.raises(SinkError, match="table 'orders' cannot be written: InsufficientPrivilege") as caught:
        sink.write(batch_of({"n": 1}, {"n": 2}))
    assert caught.value.record is None


def test_c2_keys_that_are_bytes_stay_bytes_in_a_column_of_bytes(server: Postgres, schema: str) -> None:
    server.execute(f'CREATE TABLE {schema}.orders ("__key" BYTEA PRIMARY KEY, n INT, timestamp TIMESTAMP)')
    sink = sink_of(server, schema, include_metadata=True, primary_key_columns="__key", upsert_on_primary_key=True)
    keys: list[Any] = [b"\\x41", b"A", b"\xff\0", "\\x42", "\\134"]
    for start in (0, 100):
        batch = SinkBatch("orders", 0)
        for number, key in enumerate(keys, start):
            batch.append({"n": number}, key, 0, None, number)
        sink.write(batch)
    stored = [key if isinstance(key, bytes) else key.encode() for key in keys]
    found = rows(server, f'SELECT "__key", n FROM {schema}.orders ORDER BY n')
    assert [tuple(row) for row in found] == list(zip(stored, range(100, 105), strict=True))


def test_c1_the_first_spelling_of_a_key_stays_and_the_newest_row_wins(server: Postgres, schema: str) -> None:
    for table, cuts in (("one", [6]), ("many", [1, 2, 3, 4, 5, 6])):
        server.execute(f"CREATE TABLE {schema}.{table} (id CHAR(4) PRIMARY KEY, a INT, b INT DEFAULT 5, c INT[])")
        sink = sink_of(server, schema, table_name=table, primary_key_columns="id", upsert_on_primary_key=True)
        values: list[dict[str, Any]] = [
            {"id": "x", "a": 1, "c": [1]},
            {"id": "x ", "b": 7},
            {"id": "y", "b": None},
            {"id": "x", "a": 2},
            {"id": "x  ", "a": None, "c": [1, 2, 3]},
            {"id": "y ", "a": 3},
        ]
        start = 0
        for end in cuts:
            sink.write(batch_of(*values[start:end], start=start))
            start = end
        found = rows(server, f"SELECT id, a, b, c FROM {schema}.{table} ORDER BY id")
        assert found == [("x   ", None, 7, [1, 2, 3]), ("y   ", 3, None, None)]


@pytest.mark.slow
def test_c10_rows_with_many_sets_of_fields_go_in_few_statements(server: Postgres, schema: str) -> None:
    sink = sink_of(server, schema, primary_key_columns="id", upsert_on_primary_key=True)
    values = [{"id": n % 600, **{f"c{n * k % 41}": n for k in range(1, 6)}} for n in range(700)]
    sink.write(batch_of(*values))
    expected: dict[int, dict[str, int]] = {}
    for value in values:
        expected.setdefault(value["id"], {}).update(value)
    names = [f"c{n}" for n in range(41)]
    for row in rows(server, f"SELECT id, {', '.join(names)} FROM {schema}.orders"):
        assert {name: value for name, value in zip(("id", *names), row, strict=True) if value is not None} == expected[
            row[0]
        ]


def test_c7_no_record_names_the_table_of_positions(server: Postgres, schema: str) -> None:
    sink = sink_of(server, schema, table_name=table_by_kind, name="by kind")
    for name in (
        "streamrt_positions",
        "Streamrt_Positions",
        f'"{schema}"."streamrt_positions"',
        "\u017ftreamrt_positions",
    ):
        with pytest.raises(SinkError, match=r"for orders\[0\] at offset 0: .* names a table of positions") as caught:
            sink.write(batch_of({"kind": name, "consumer_group": "other", "next_offset": 9}))
        assert caught.value.record == ("orders", 0, 0)


def test_c13_tls_is_one_word(server: Postgres, schema: str) -> None:
    sink_of(server, schema, tls=False).write(batch_of({"n": 1}))
    # The server has none.
    with pytest.raises(SinkError, match="server does not support SSL"):
        sink_of(server, schema, tls=True)
    for options in ({"tls": True, "sslmode": "require"}, {"tls": ""}, {"tls": 5}):
        with pytest.raises(ConfigurationError, match="tls"):
            sink_of(server, schema, **options)


@pytest.mark.rows("PF-M10")
@pytest.mark.slow
def test_d6_statements_in_postgresql(server: Postgres, schema: str) -> None:
    def execute(text: str) -> None:
        server.execute(f"SET search_path = {schema}", text)

    settings = {"options": f"-c search_path={schema}", "table_name": None}
    sql_statements.judge(
        lambda **options: sink_of(server, schema, **settings, **options),
        execute,
        lambda text: rows(server, text.replace("stock", f"{schema}.stock")),
        # As in a table: an assignment would round the first one.
        [1.5, "x", float("nan"), [1], "1.5", True, {"n": 1}, b"1"],
    )


@pytest.mark.parametrize(
    ("kind", "kept", "refused"),
    [
        ("CHAR(3)", ["abc", 5], ["abcd", b"a"]),
        ("BIT(3)", ["101"], ["1010"]),
        ("DATE", [datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2)], ["2026-01-02 10:00", 1]),
        ("TEXT[]", [["a", "b"], []], ["a", [b"a"]]),
        ("JSONB", [{"a": [1, None]}, [1]], ["5", {"a": float("nan")}]),
        ("BYTEA", [b"\0\xff"], [5]),
        ("TIMESTAMPTZ", [datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.timezone.utc)], ["soon"]),
        ("NUMERIC", [decimal.Decimal("1.10"), 1 << 70, "2.5"], ["x", True]),
    ],
)
def test_d6_parameters_are_values_of_the_columns(
    server: Postgres, schema: str, kind: str, kept: list[Any], refused: list[Any]
) -> None:
    server.execute(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v {kind} NOT NULL)")
    statement = f"INSERT INTO {schema}.t VALUES (:id, :v)"
    sink = sink_of(server, schema, table_name=None, statement=statement, name="t")
    sink.write(batch_of(*({"id": number, "v": value} for number, value in enumerate(kept))))
    found = [value for (value,) in rows(server, f"SELECT v FROM {schema}.t ORDER BY id")]
    # A text in a column of fixed length comes back with blanks, and midnight as its day.
    expected = [value.date() if kind == "DATE" and isinstance(value, datetime.datetime) else value for value in kept]
    if kind == "CHAR(3)":
        expected = ["abc", "5  "]
    elif kind == "NUMERIC":
        expected = [decimal.Decimal("1.10"), 1 << 70, decimal.Decimal("2.5")]
    assert found == expected
    for value in [*refused, None]:
        with pytest.raises(SinkError, match="offset 1:") as caught:
            sink.write(batch_of({"id": 8, "v": kept[0]}, {"id": 9, "v": value}))
        assert caught.value.record == ("orders", 0, 1)
    assert len(rows(server, f"SELECT 1 FROM {schema}.t")) == len(kept)


def test_d6_a_parameter_whose_type_is_open_is_named_at_the_start(server: Postgres, schema: str) -> None:
    server.execute(f"CREATE TABLE {schema}.t (v TEXT)")
    statement = f"INSERT INTO {schema}.t SELECT pg_typeof(:v)"
    with pytest.raises(SinkError, match="could not determine data type of parameter"):
        sink_of(server, schema, table_name=None, statement=statement, name="t")
