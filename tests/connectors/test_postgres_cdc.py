"""`PostgresCdcSource` against a real PostgreSQL."""

import importlib.util
import json
import logging
import pickle
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import cloudpickle
import psycopg
import pytest
from pydantic import SecretStr

from streamrt.connectors import PostgresCdcSource, StatefulSource
from streamrt.connectors.postgresql.pgoutput import lsn_number
from streamrt.errors import ConfigurationError
from streamrt.secret import collect_secrets
from streamrt.testing.connectors import MemorySourceStore, RecordingProducer, StatefulSourceConformance
from tests.connectors import changes
from tests.connectors.changes import followed, living, refused, values, wait_for
from tests.connectors.sources import Run
from tests.postgres import DATABASE, USER, Postgres, postgres
from tests.servers import free_port
from tests.support import unique, wait_until

pytestmark = pytest.mark.slow

CONFIGURATION = {
    "wal_level": "logical",
    "max_replication_slots": "60",
    "max_wal_senders": "20",
    "wal_sender_timeout": "5s",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres(CONFIGURATION) as running:
        yield running


@pytest.fixture
def table(server: Postgres) -> Iterator[str]:
    """A table with one row."""
    name = unique("t").replace("-", "_")
    server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, name TEXT)", f"INSERT INTO {name} VALUES (1, 'ann')")
    yield name
    server.execute(f"DROP TABLE IF EXISTS {name}")


def make(server: Postgres, *tables: str, **options: Any) -> PostgresCdcSource:
    chosen: dict[str, Any] = {"name": unique("cdc"), "commit_interval": 0.05, "heartbeat_interval": 0.1, **options}
    return PostgresCdcSource(
        "127.0.0.1",
        server.port,
        DATABASE,
        USER,
        chosen.pop("password", server.password),
        list(tables) or None,
        **chosen,
    )


def brief(record: Any) -> tuple[Any, ...]:
    return record["op"], record["before"], record["after"]


def slots(server: Postgres, name: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(**server.settings) as connection:
        return connection.execute(
            "SELECT confirmed_flush_lsn, active FROM pg_replication_slots WHERE slot_name = %s", [name]
        ).fetchall()


class TestConformance(StatefulSourceConformance):
    # A slot belongs to one state: two sources of the suite cannot begin with none. test_source_kills.py kills this one.
    repeatable: ClassVar[bool] = False

    @pytest.fixture(autouse=True)
    def place(self, server: Postgres, table: str) -> None:
        self.server, self.table = server, table

    def make(self) -> StatefulSource:
        return make(self.server, self.table, name=unique("cdc") if not hasattr(self, "name") else self.name)

    def test_it_has_a_default_topic(self) -> None:
        self.name = unique("cdc")
        super().test_it_has_a_default_topic()


def test_each_kind_of_change(server: Postgres, table: str) -> None:
    with living(make(server, table)) as records:
        wait_for(records, 1)
        before_ms = int(time.time() * 1000)
        server.execute(
            f"INSERT INTO {table} VALUES (2, 'bob')",
            f"UPDATE {table} SET name = NULL WHERE id = 2",
            f"UPDATE {table} SET id = 3 WHERE id = 2",
            f"DELETE FROM {table} WHERE id = 3",
            f"TRUNCATE {table}",
        )
        found = wait_for(records, 7)
        assert [brief(value) for value in found] == [
            ("r", None, {"id": 1, "name": "ann"}),
            ("c", None, {"id": 2, "name": "bob"}),
            ("u", None, {"id": 2, "name": None}),
            ("d", {"id": 2}, None),
            ("c", None, {"id": 3, "name": None}),
            ("d", {"id": 3}, None),
            ("t", None, None),
        ]
        keys = [b'{"id":1}', b'{"id":2}', b'{"id":2}', b'{"id":2}', b'{"id":3}', b'{"id":3}', None]
        assert [record.key for record in records] == keys
        for record, value in zip(records, found, strict=True):
            source = value["source"]
            assert (source["schema"], source["table"], source["snapshot"]) == ("public", table, value["op"] == "r")
            assert source["ts_ms"] == record.timestamp
        assert records[1].timestamp is not None
        assert abs(records[1].timestamp - before_ms) < 10_000


def test_a_transaction_has_one_time_and_its_changes_are_numbered(server: Postgres, table: str) -> None:
    with living(make(server, table, snapshot="never")) as records:
        wait_until(lambda: slots(server, str(records_slot(records))), what="the slot")
        with psycopg.connect(**server.settings) as connection:
            connection.execute(f"INSERT INTO {table} SELECT n, 'x' FROM generate_series(2, 4) n")
            connection.execute(f"DELETE FROM {table} WHERE id = 2")
        found = [value["source"] for value in wait_for(records, 4)]
        assert [source["seq"] for source in found] == [1, 2, 3, 4]
        assert len({(source["lsn"], source["ts_ms"], source["xid"]) for source in found}) == 1


def records_slot(records: Any) -> str:
    slot: str = records.run.source._slot
    return slot


def test_flat_rows_and_tombstones(server: Postgres, table: str) -> None:
    with (
        living(make(server, table, flat=True)) as flat,
        living(make(server, table, tombstones=True)) as marked,
    ):
        wait_for(flat, 1)
        wait_for(marked, 1)
        server.execute(f"UPDATE {table} SET id = 2", f"DELETE FROM {table}", f"TRUNCATE {table}")
        assert wait_for(flat, 4) == [{"id": 1, "name": "ann"}, None, {"id": 2, "name": "ann"}, None]
        found = wait_for(marked, 7)
        assert [value and value["op"] for value in found] == ["r", "d", None, "c", "d", None, "t"]
        assert [record.key for record in flat] == [b'{"id":1}', b'{"id":1}', b'{"id":2}', b'{"id":2}']


TYPES = {
    "a BOOL": ("true", True),
    "b INT8": ("-9223372036854775808", -(2**63)),
    "c NUMERIC": ("12345678901234567890.10", "12345678901234567890.10"),
    "d FLOAT8": ("'-Infinity'", "-Infinity"),
    "e FLOAT4": ("1.5", 1.5),
    "f TIMESTAMP": ("'2024-02-29 01:02:03.5'", "2024-02-29T01:02:03.500000"),
    "g TIMESTAMPTZ": ("'2024-02-29 01:02:03+05:30'", "2024-02-28T19:32:03+00:00"),
    "h DATE": ("'0044-03-15 BC'", "0044-03-15 BC"),
    "i TIMESTAMP": ("'infinity'", "infinity"),
    "j TIME": ("'23:59:59.999999'", "23:59:59.999999"),
    "k TIMETZ": ("'01:02:03-08'", "01:02:03-08:00"),
    "l INTERVAL": ("'1 year 2 days 03:04:05'", "P1Y2DT3H4M5S"),
    "m BYTEA": ("'\\x00ff'", "AP8="),
    "n JSON": ("""'{"a": [1, null]}'""", {"a": [1, None]}),
    "o JSONB": ("'null'", None),
    "p INT[]": ("'{{1,NULL},{3,4}}'", [[1, None], [3, 4]]),
    "q TEXT[]": ("""'[0:3]={"a,b","NULL",NULL,"q\\"\\\\"}'""", ["a,b", "NULL", None, 'q"\\']),
    "r NUMERIC[]": ("'{1.10,NaN}'", ["1.10", "NaN"]),
    "s UUID": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "t INET": ("'10.0.0.1'", "10.0.0.1"),
    "u INT4RANGE": ("'[1,5)'", "[1,5)"),
    "v BOX[]": ("'{(2,2),(1,1);(4,4),(3,3)}'", ["(2,2),(1,1)", "(4,4),(3,3)"]),
    "w mood": ("'sad'", "sad"),
    "x mood[]": ("'{sad,ok}'", ["sad", "ok"]),
    "y small": ("7", 7),
    "z small[]": ("'{7,8}'", [7, 8]),
    "za OIDVECTOR": ("'1 2'", "1 2"),
    "zb CHAR(5)": ("'ab'", "ab   "),
    "zc JSON": ("""'"\\ud800"'""", '"\\ud800"'),
    "zd TEXT": ("'größer 🚆'", "größer 🚆"),
}


def test_types_are_the_same_in_snapshot_and_stream(server: Postgres) -> None:
    columns = ", ".join(TYPES)
    cells = ", ".join(sql for sql, _ in TYPES.values())
    server.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN small AS INT CHECK (VALUE < 100)",
        f"CREATE TABLE kinds (id SERIAL PRIMARY KEY, {columns}, gone INT, twice INT GENERATED ALWAYS AS (id * 2) STORED)",
        "ALTER TABLE kinds DROP COLUMN gone",
        # None of these may change what is produced.
        f"ALTER ROLE {USER} SET DateStyle = 'German'",
        f"ALTER ROLE {USER} SET TimeZone = 'Asia/Tokyo'",
        f"ALTER ROLE {USER} SET IntervalStyle = 'sql_standard'",
        f"ALTER ROLE {USER} SET bytea_output = 'escape'",
    )
    names = ", ".join(column.split()[0] for column in TYPES)
    insert = f"INSERT INTO kinds ({names}) VALUES ({cells})"
    empty = "INSERT INTO kinds DEFAULT VALUES"
    try:
        server.execute(insert, empty)
        with living(make(server, "kinds")) as records:
            wait_for(records, 2)
            server.execute(insert, empty)
            found = [value["after"] for value in wait_for(records, 4)]
        wanted = {column.split()[0]: value for column, (_, value) in TYPES.items()}
        for row, (place, number) in zip(found, [(0, 1), (1, 2), (0, 3), (1, 4)], strict=True):
            assert row == {"id": number, **(wanted if place == 0 else dict.fromkeys(wanted))}
        with living(make(server, "kinds", decimals="float")) as records:
            assert wait_for(records, 4)[0]["after"]["r"] == [1.1, "NaN"]
    finally:
        server.execute(f"ALTER ROLE {USER} RESET ALL")


def test_replica_identity(server: Postgres) -> None:
    long = "md5(n::text)"
    big = f"(SELECT string_agg({long}, '') FROM generate_series(1, 500) n)"
    server.execute(
        "CREATE TABLE full_id (id INT PRIMARY KEY, n INT, big TEXT)",
        "ALTER TABLE full_id REPLICA IDENTITY FULL",
        "CREATE TABLE no_key (n INT, big TEXT)",
        "ALTER TABLE no_key REPLICA IDENTITY FULL",
        "CREATE TABLE indexed (id INT PRIMARY KEY, code TEXT NOT NULL, n INT)",
        "CREATE UNIQUE INDEX indexed_code ON indexed (code)",
        "ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_code",
        "CREATE TABLE usual (id INT PRIMARY KEY, n INT, big TEXT)",
        "INSERT INTO no_key VALUES (0, 'x')",
    )
    with living(make(server, "full_id", "no_key", "indexed", "usual")) as records:
        assert brief(wait_for(records, 1)[0]) == ("r", None, {"n": 0, "big": "x"})
        for table in ("full_id", "usual"):
            server.execute(
                f"INSERT INTO {table} VALUES (1, 1, {big})",
                f"UPDATE {table} SET n = 2",
                f"DELETE FROM {table}",
            )
        server.execute("UPDATE no_key SET n = 1", "DELETE FROM no_key", "INSERT INTO indexed VALUES (1, 'a', 1)")
        server.execute("UPDATE indexed SET code = 'b'", "DELETE FROM indexed")
        found = wait_for(records, 13)
        text = found[1]["after"]["big"]
        assert len(text) == 16_000
        assert [brief(value) for value in found[2:4]] == [
            ("u", {"id": 1, "n": 1, "big": text}, {"id": 1, "n": 2, "big": text}),
            ("d", {"id": 1, "n": 2, "big": text}, None),
        ]
        # The value out of line was not sent.
        assert [brief(value) for value in found[5:7]] == [("u", None, {"id": 1, "n": 2}), ("d", {"id": 1}, None)]
        assert [brief(value) for value in found[7:9]] == [
            ("u", {"n": 0, "big": "x"}, {"n": 1, "big": "x"}),
            ("d", {"n": 1, "big": "x"}, None),
        ]
        assert [brief(value) for value in found[9:]] == [
            ("c", None, {"id": 1, "code": "a", "n": 1}),
            ("d", {"code": "a"}, None),
            ("c", None, {"id": 1, "code": "b", "n": 1}),
            ("d", {"code": "b"}, None),
        ]
        keys = [record.key for record in records]
        assert keys[0] is None
        assert keys[1:] == [b'{"id":1}'] * 6 + [None] * 2 + [b'{"code":"a"}'] * 2 + [b'{"code":"b"}'] * 2
    for statement, reason in (
        ("CREATE TABLE bare (n INT)", "no replica identity"),
        ("CREATE VIEW seen AS SELECT 1 AS n", "not views"),
        ("CREATE UNLOGGED TABLE fast (id INT PRIMARY KEY)", "unlogged"),
    ):
        server.execute(statement)
        refused(make(server, statement.split(" (")[0].split(" AS")[0].split()[-1]), reason)
    refused(make(server, "no_key", flat=True), "no primary key")


def test_columns_are_added_and_dropped(server: Postgres, table: str) -> None:
    with living(make(server, table)) as records:
        wait_for(records, 1)
        server.execute(
            f"ALTER TABLE {table} ADD COLUMN age INT DEFAULT 5",
            f"INSERT INTO {table} VALUES (2, 'bob', 6)",
            f"UPDATE {table} SET name = 'eve' WHERE id = 1",
            f"ALTER TABLE {table} DROP COLUMN name",
            f"ALTER TABLE {table} ALTER COLUMN age TYPE TEXT",
            f"INSERT INTO {table} VALUES (3, 'old')",
        )
        assert [value["after"] for value in wait_for(records, 4)[1:]] == [
            {"id": 2, "name": "bob", "age": 6},
            {"id": 1, "name": "eve", "age": 5},
            {"id": 3, "age": "old"},
        ]


def test_odd_names_are_quoted(server: Postgres) -> None:
    schema, name, column = 'Odd "schema', "odd ' ta\\ble; DROP TABLE x --", 'co"l %s'
    sql = '"Odd ""schema"."odd \' ta\\ble; DROP TABLE x --"'
    server.execute(
        'CREATE SCHEMA "Odd ""schema"',
        f'CREATE TABLE {sql} ("co""l %s" TEXT PRIMARY KEY)',
        f"INSERT INTO {sql} VALUES ('it''s \\'), ('z')",
    )
    source = PostgresCdcSource(
        "127.0.0.1",
        server.port,
        DATABASE,
        USER,
        server.password,
        [(schema, name)],
        name="odd/name 'x",
        publication="pub'; \"x",
        snapshot_chunk=1,
    )
    with living(source) as records:
        found = [value["after"] for value in wait_for(records, 2)]
        assert found == [{column: "it's \\"}, {column: "z"}]
        server.execute(f'DELETE FROM {sql} WHERE "co""l %s" = \'z\'')
        assert wait_for(records, 3)[2]["source"]["table"] == name


def test_partitioned_tables_and_row_filters(server: Postgres) -> None:
    server.execute(
        "CREATE TABLE parts (id INT PRIMARY KEY, n INT) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)",
        "INSERT INTO parts VALUES (1, 1), (11, 1)",
        "CREATE TABLE filtered (id INT PRIMARY KEY, n INT, secret TEXT)",
        "INSERT INTO filtered VALUES (1, 1, 'x'), (2, 100, 'x')",
        "CREATE PUBLICATION filtered FOR TABLE filtered (id, n) WHERE (id < 100 AND n > 50) WITH (publish = 'insert')",
    )
    with living(make(server, "parts")) as parts, living(make(server, publication="filtered")) as filtered:
        wait_for(parts, 2)
        wait_for(filtered, 1)
        server.execute("UPDATE parts SET n = 2 WHERE id = 11", "INSERT INTO filtered VALUES (3, 100, 'x'), (4, 1, 'x')")
        server.execute("INSERT INTO filtered VALUES (5, 60, 'x')")
        assert {value["source"]["table"] for value in wait_for(parts, 3)} == {"parts"}
        assert [value["after"] for value in wait_for(filtered, 3)] == [
            {"id": 2, "n": 100},
            {"id": 3, "n": 100},
            {"id": 5, "n": 60},
        ]


def test_other_tables_are_left_out_and_tables_can_be_added(server: Postgres, table: str) -> None:
    server.execute("CREATE TABLE late (id INT PRIMARY KEY)", "INSERT INTO late VALUES (1)")
    store, name = MemorySourceStore(), unique("cdc")
    with living(make(server, table, name=name), store=store) as records:
        wait_for(records, 1)
        server.execute("INSERT INTO late VALUES (2)", f"INSERT INTO {table} VALUES (2, 'x')")
        wait_for(records, 2)
    refused(make(server, table, "late", name=name, create_publication=False), "does not contain", store=store)
    with living(make(server, table, "late", name=name), store=store) as records:
        assert [value["after"] for value in wait_for(records, 2)] == [{"id": 1}, {"id": 2}]
        server.execute("INSERT INTO late VALUES (3)")
        assert brief(wait_for(records, 3)[2]) == ("c", None, {"id": 3})
    with living(make(server, "late", name=name), store=store) as records:
        server.execute(f"INSERT INTO {table} VALUES (3, 'x')", "INSERT INTO late VALUES (4)")
        assert wait_for(records, 1)[0]["after"] == {"id": 4}


def test_it_resumes_without_repeating_and_without_losing(server: Postgres, table: str) -> None:
    store, name = MemorySourceStore(), unique("cdc")
    with living(make(server, table, name=name), store=store) as records:
        wait_for(records, 1)
    server.execute(f"INSERT INTO {table} VALUES (2, 'bob')")
    with living(make(server, table, name=name), store=store) as records:
        assert brief(wait_for(records, 1)[0]) == ("c", None, {"id": 2, "name": "bob"})


def test_only_what_was_flushed_is_acknowledged(server: Postgres, table: str) -> None:
    class Slow(RecordingProducer):
        confirmed: Sequence[Any] = ()

        def flush(self, timeout: float | None = None) -> int:
            self.confirmed = slots(server, source._slot)
            return super().flush(timeout)

    source, producer = make(server, table), Slow()
    with living(source, producer) as records:
        wait_for(records, 1)
        server.execute(f"INSERT INTO {table} VALUES (2, 'bob')")
        change = lsn_number(wait_for(records, 2)[1]["source"]["lsn"])
        wait_until(lambda: lsn_number(slots(server, source._slot)[0][0]) > change, what="the acknowledgement")
        server.execute(f"INSERT INTO {table} VALUES (3, 'bob')")
        change = lsn_number(wait_for(records, 3)[2]["source"]["lsn"])
        wait_until(lambda: producer.flushed == 3, what="the flush")
        assert lsn_number(producer.confirmed[0][0]) < change or producer.flushed == 3


def test_a_quiet_table_does_not_hold_back_the_log(server: Postgres, table: str) -> None:
    server.execute("CREATE TABLE noise (n INT)")
    source = make(server, table)
    with living(source) as records:
        wait_for(records, 1)
        begun = lsn_number(slots(server, source._slot)[0][0])
        server.execute("INSERT INTO noise SELECT generate_series(1, 10000)")
        wait_until(lambda: lsn_number(slots(server, source._slot)[0][0]) > begun + 500_000, what="the acknowledgement")
        assert len(records) == 1


def test_the_server_can_shut_down_while_the_source_follows(server: Postgres, table: str) -> None:
    source = make(server, table, commit_interval=60, heartbeat_interval=60)
    with living(source) as records:
        wait_for(records, 1)
        server.execute(f"INSERT INTO {table} VALUES (2, 'bob')")
        wait_for(records, 2)
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 30
        server.start()
        server.execute(f"INSERT INTO {table} VALUES (3, 'eve')")
        assert [value["after"]["id"] for value in wait_for(records, 3)] == [1, 2, 3]


def test_slots_that_cannot_be_used(server: Postgres, table: str) -> None:
    store, name = MemorySourceStore(), unique("cdc")
    slot = "streamrt_" + name.replace("-", "_")
    with living(make(server, table, name=name), store=store) as records:
        wait_for(records, 1)
    refused(make(server, table, name=name), "has no position", "create_slot=False")
    refused(make(server, table, name="other", slot=slot + "x"), "has lost changes", store=store)
    refused(make(server, table, slot="absent", create_slot=False), "found no slot")
    server.execute(f"INSERT INTO {table} VALUES (2, 'bob')")
    server.execute(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    refused(make(server, table, name=name), "by another program", store=store)
    server.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    refused(make(server, table, name=name), "no longer exists", "lost_slot='snapshot'", store=store)
    with living(make(server, table, name=name, lost_slot="snapshot"), store=store) as records:
        assert [value["op"] for value in wait_for(records, 2)] == ["r", "r"]
    server.execute("SELECT pg_create_physical_replication_slot('physical')")
    refused(make(server, table, slot="physical", create_slot=False), "not pgoutput")


def test_an_existing_slot_is_used(server: Postgres, table: str) -> None:
    slot = unique("own").replace("-", "_")
    server.execute(
        f"CREATE PUBLICATION {slot} FOR TABLE {table}",
        f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
        f"INSERT INTO {table} VALUES (2, 'bob')",
    )
    given: dict[str, Any] = {"slot": slot, "create_slot": False, "create_publication": False}
    with living(make(server, **given, publication=slot, snapshot="never")) as records:
        assert brief(wait_for(records, 1)[0]) == ("c", None, {"id": 2, "name": "bob"})


def test_a_slot_in_use_is_waited_for(server: Postgres, table: str, caplog: pytest.LogCaptureFixture) -> None:
    store, name = MemorySourceStore(), unique("cdc")
    with caplog.at_level(logging.WARNING), living(make(server, table, name=name), store=store) as first:
        wait_for(first, 1)
        with living(make(server, table, name=name), store=store):
            wait_until(lambda: "is active for PID" in caplog.text, what="the warning")


def test_what_cannot_be_reached(server: Postgres, table: str) -> None:
    def source(host: str = "127.0.0.1", port: int = server.port, dbname: str = DATABASE, **options: Any) -> Any:
        chosen = {"password": server.password, **options}
        return PostgresCdcSource(host, port, dbname, USER, chosen["password"], [table], name=unique("cdc"))

    refused(source(port=1), "cannot connect", "127.0.0.1:1")
    refused(source(host="no-such-host.invalid"), "no-such-host.invalid")
    refused(source(dbname="absent"), "'absent'", "does not exist")
    assert "sesame" not in refused(source(password="sesame"), "authentication failed")
    refused(make(server, "absent"), "found no table public.absent")
    refused(make(server, publication="nowhere"), "found no publication 'nowhere'")
    server.execute("CREATE ROLE weak LOGIN PASSWORD 'weak'", f"GRANT SELECT ON {table} TO weak")
    server.execute(f"CREATE PUBLICATION for_weak FOR TABLE {table}")
    weak = PostgresCdcSource("127.0.0.1", server.port, DATABASE, "weak", "weak", publication="for_weak", name="weak")
    refused(weak, "to start")


def test_a_server_that_is_away_when_the_source_starts_again_is_waited_for(
    server: Postgres, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, name = MemorySourceStore(), unique("cdc")
    with living(make(server, table, name=name), store=store) as records:
        wait_for(records, 1)
    away = PostgresCdcSource("127.0.0.1", free_port(), DATABASE, USER, server.password, [table], name=name)
    with living(away, store=store):
        wait_until(lambda: "cannot go on" in caplog.text, what="another attempt")
    assert "it waits for the database" in caplog.text


def test_stop_ends_it_while_the_server_hangs(server: Postgres, table: str) -> None:
    with living(make(server, table)) as records:
        wait_for(records, 1)
        server.freeze()
        try:
            begun = time.monotonic()
            records.run.source.stop()  # type: ignore[attr-defined]
            records.run.wait()  # type: ignore[attr-defined]
            assert time.monotonic() - begun < 8
            begun = time.monotonic()
            with living(make(server, table, connection_timeout_seconds=30)):
                pass
            assert time.monotonic() - begun < 8
        finally:
            server.thaw()


def test_the_password_is_nowhere(server: Postgres, table: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        source = make(server, table, sslpassword="other sesame")
        with collect_secrets() as collected:
            data = cloudpickle.dumps(source)
        assert server.password.encode() not in data
        assert b"other sesame" not in data
        assert set(collected.values()) == {server.password, "other sesame"}
        again = pickle.loads(data)
        with living(again) as records:
            wait_for(records, 1)
        assert server.password not in repr(again) + str(vars(again)) + caplog.text
    for password in (SecretStr(server.password), lambda: server.password):
        with living(make(server, table, password=password)) as records:
            wait_for(records, 1)
    refused(make(server, table, password=lambda: 5), "returned int")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tables": "orders"}, "list of names"),
        ({"tables": []}, "at least one table"),
        ({"tables": [5]}, "names or pairs"),
        ({"tables": ["x" * 64]}, "63 bytes"),
        ({"tables": [""]}, "63 bytes"),
        ({"slot": "Bad-Slot"}, "small letters"),
        ({"publication": "a\0b"}, "63 bytes"),
        ({"snapshot": "always"}, "initial, never"),
        ({"decimals": "int"}, "string, float"),
        ({"lost_slot": "x"}, "fail, snapshot"),
        ({"flat": 1}, "True or False"),
        ({"create_slot": None}, "True or False"),
        ({"commit_interval": -1}, "0 or more"),
        ({"commit_every": 0}, "1 or more"),
        ({"snapshot_chunk": 1.5}, "an int"),
        ({"connection_timeout_seconds": "x"}, "a number"),
        ({"port": 70_000}, "from 1 to 65535"),
        ({"host": ""}, "non-empty"),
        ({"password": None}, "string or a function"),
        ({"name": ""}, "non-empty"),
        ({"unknown": "value"}, "unsupported settings among unknown"),
        ({"options": "-c x=y"}, "sets it itself"),
        ({"sslmode": None}, "string or a number"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], reason: str) -> None:
    given = {"host": "h", "port": 1, "dbname": "d", "user": "u", "password": "p", "tables": ["t"], **options}
    with pytest.raises(ConfigurationError, match=reason):
        PostgresCdcSource(**given)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"PostgresCdcSource needs the package psycopg: .*postgres"):
        PostgresCdcSource("h", 1, "d", "u", "p", ["t"])


def test_crashes_of_source_and_server_lose_nothing(server: Postgres) -> None:
    server.execute(*changes.TABLES)
    name = unique("cdc")

    def restart() -> None:
        server.kill()
        server.start()

    changes.crash_often(
        lambda: make(
            server, "accounts", "items", "log", name=name, commit_every=50, commit_interval=0.2, snapshot_chunk=25
        ),
        lambda: changes.PostgresConnection(server),
        lambda source: (lsn_number(source["lsn"]), source["seq"]),
        lives=15,
        restarts={4: restart, 8: restart, 12: restart},
        seed=7,
    )


def test_a_long_transaction_resumes_in_its_middle(server: Postgres, table: str) -> None:
    point = changes.Point()
    producer, name = changes.Producer(point), unique("cdc")
    store = changes.Store(point, producer)

    def source() -> PostgresCdcSource:
        return make(server, table, name=name, commit_every=100, commit_interval=60)

    with living(source(), producer, store) as records:
        wait_for(records, 1)
    server.execute(f"INSERT INTO {table} SELECT n, 'x' FROM generate_series(2, 1001) n")
    point.left = 450
    life = Run(source(), store, producer, copied=False)
    assert isinstance(life.failure(), changes.CrashError)
    del producer.records[producer.flushed :]
    store.crash()
    flushed = len(producer.records)
    assert flushed > 300
    point.left = None
    with living(source(), producer, store) as records:
        wait_until(lambda: len(records) >= 1001, what="the records")
    assert [json.loads(record.key or b"")["id"] for record in producer.records] == list(range(1, 1002))
    assert [value["source"]["seq"] for value in values(producer.records)[1:]] == list(range(1, 1001))


def test_c9_what_the_log_lacks_is_said(server: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    name = unique("t").replace("-", "_")
    server.execute(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, big TEXT, twice INT GENERATED ALWAYS AS (id * 2) STORED)",
        f"ALTER TABLE {name} ALTER COLUMN big SET STORAGE EXTERNAL",
        f"INSERT INTO {name} VALUES (1, repeat('x', 10000))",
    )
    with living(make(server, name)) as records:
        wait_for(records, 1)
        server.execute(f"UPDATE {name} SET id = 2")
        found = wait_for(records, 3)
    big = "x" * 10_000
    assert [brief(value) for value in found] == [
        ("r", None, {"id": 1, "big": big}),
        ("d", {"id": 1}, None),
        # The value is stored apart, and the change does not repeat it: see docs/connectors/postgres-cdc.md.
        ("c", None, {"id": 2}),
    ]
    assert f"records lack 'twice' of table public.{name}" in caplog.text
    server.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    with living(make(server, name, snapshot="never")) as records:
        wait_until(lambda: records.run.source._committed, what="the position")  # type: ignore[attr-defined]
        server.execute(f"UPDATE {name} SET id = 3")
        assert [brief(value)[2] for value in wait_for(records, 2)] == [None, {"id": 3, "big": big}]
    server.execute(f"DROP TABLE {name}")


def test_a_table_follows_its_origin(server: Postgres, table: str) -> None:
    """Rows of a snapshot, changes of the log with values that it leaves out, changed keys and a truncate."""
    server.execute(f"ALTER TABLE {table} ADD COLUMN big TEXT, ALTER COLUMN name SET STORAGE MAIN")
    # Kept outside of the row, so that an update of another column does not log it.
    server.execute(f"ALTER TABLE {table} ALTER COLUMN big SET STORAGE EXTERNAL")
    server.execute(f"UPDATE {table} SET big = repeat('x', 10000)", f"INSERT INTO {table} VALUES (2, 'bob', 'short')")
    rows = followed("id INT, name STRING, big STRING, PRIMARY KEY (id)")
    with living(make(server, table)) as records:
        wait_for(records, 2)
        server.execute(
            f"UPDATE {table} SET name = 'anna' WHERE id = 1",
            f"UPDATE {table} SET id = 5, big = NULL WHERE id = 2",
            f"INSERT INTO {table} VALUES (3, 'eve', NULL)",
            f"DELETE FROM {table} WHERE id = 3",
        )
        found = wait_for(records, 7)
        assert "big" not in found[2]["after"]
        with psycopg.connect(**server.settings) as connection:
            present = connection.execute(f"SELECT id, name, big FROM {table}").fetchall()
        assert rows(records) == set(present) == {(1, "anna", "x" * 10_000), (5, "bob", None)}
        server.execute(f"TRUNCATE {table}", f"INSERT INTO {table} VALUES (1, 'new', NULL)")
        wait_for(records, 9)
        assert rows(records) == {(1, "new", None)}
