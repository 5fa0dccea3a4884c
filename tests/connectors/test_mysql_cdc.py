"""`MySQLCdcSource` and `MySqlCdcLiteSource` against a real MariaDB."""

import importlib.util
import json
import logging
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from pydantic import SecretStr

from streamrt.connectors import MySqlCdcLiteSource, MySQLCdcSource, StatefulSource
from streamrt.connectors.mysql.mysql_binlog import truncated_table
from streamrt.errors import ConfigurationError
from streamrt.secret import collect_secrets
from streamrt.testing.connectors import MemorySourceStore, StatefulSourceConformance
from tests.connectors import changes
from tests.connectors.certificates import certify
from tests.connectors.changes import followed, living, refused, values, wait_for
from tests.connectors.mariadb_server import DATABASE, USER, MariaDB, mariadb
from tests.connectors.sources import Run
from tests.servers import workspace
from tests.support import unique, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def certificate() -> Iterator[Path]:
    """A certificate that trusts itself, and the file of its key, next to it."""
    with workspace("certificate") as directory:
        certify(directory)
        path = directory / "certificate.pem"
        yield path


@pytest.fixture(scope="module")
def server(certificate: Path) -> Iterator[MariaDB]:
    options = {
        "log-bin": "binlog",
        "server-id": "1",
        "binlog-format": "ROW",
        "binlog-row-image": "FULL",
        "binlog-row-metadata": "FULL",
        "ssl-cert": str(certificate),
        "ssl-key": str(certificate.with_name("key.pem")),
    }
    with mariadb(options) as running:
        yield running


@pytest.fixture
def table(server: MariaDB) -> Iterator[str]:
    """A table with one row."""
    name = unique("t").replace("-", "_")
    server.execute(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(20))", f"INSERT INTO {name} VALUES (1, 'ann')"
    )
    yield name
    server.execute(f"DROP TABLE IF EXISTS {name}")


def make(server: MariaDB, *tables: str, **options: Any) -> MySQLCdcSource:
    chosen: dict[str, Any] = {
        "name": unique("cdc"),
        "commit_interval": 0.05,
        "heartbeat_interval": 0.1,
        "tls": False,
        "password": server.password,
        "database": DATABASE,
        "port": server.port,
        **options,
    }
    return MySQLCdcSource(
        chosen.pop("host", "127.0.0.1"),
        chosen.pop("user", USER),
        chosen.pop("password"),
        chosen.pop("database"),
        list(tables) or None,
        **chosen,
    )


def brief(record: Any) -> tuple[Any, ...]:
    return record["op"], record["before"], record["after"]


def started(records: Any) -> None:
    """Wait until a source without a snapshot has its position."""
    wait_until(lambda: list(records) or records.run.source._committed, what="the position")


class TestConformance(StatefulSourceConformance):
    def identity(self, record: Any) -> Any:
        # Without times and names.
        value = json.loads(record.value or b"null")
        return record.key, value["op"], str(value["after"])

    @pytest.fixture(autouse=True)
    def place(self, server: MariaDB, table: str) -> None:
        self.server, self.table, self.name = server, table, unique("cdc")

    def make(self) -> StatefulSource:
        return make(self.server, self.table, name=self.name)


def test_each_kind_of_change(server: MariaDB, table: str) -> None:
    with living(make(server, table)) as records:
        wait_for(records, 1)
        now_ms = int(time.time() * 1000)
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
            ("u", {"id": 2, "name": "bob"}, {"id": 2, "name": None}),
            ("d", {"id": 2, "name": None}, None),
            ("c", None, {"id": 3, "name": None}),
            ("d", {"id": 3, "name": None}, None),
            ("t", None, None),
        ]
        keys = [b'{"id":1}', b'{"id":2}', b'{"id":2}', b'{"id":2}', b'{"id":3}', b'{"id":3}', None]
        assert [record.key for record in records] == keys
        for record, value in zip(records, found, strict=True):
            source = value["source"]
            assert (source["database"], source["table"]) == (DATABASE, table)
            assert source["snapshot"] is (value["op"] == "r")
            assert source["ts_ms"] == record.timestamp
            assert abs(source["ts_ms"] - now_ms) < 10_000


def test_a_transaction_has_one_time_and_its_changes_are_numbered(server: MariaDB, table: str) -> None:
    with living(make(server, table, snapshot="never")) as records:
        started(records)
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES (2, 'x'), (3, 'x')")
            cursor.execute("SAVEPOINT here")
            cursor.execute(f"INSERT INTO {table} VALUES (9, 'x')")
            cursor.execute("ROLLBACK TO SAVEPOINT here")
            cursor.execute(f"DELETE FROM {table} WHERE id = 2")
            connection.commit()
        found = [value["source"] for value in wait_for(records, 3)]
        assert [source["seq"] for source in found] == [1, 2, 3]
        assert len({(source["file"], source["pos"], source["ts_ms"], source["gtid"]) for source in found}) == 1


def test_flat_rows_and_tombstones(server: MariaDB, table: str) -> None:
    with (
        living(make(server, table, flat=True)) as flat,
        living(make(server, table, tombstones=True)) as marked,
    ):
        wait_for(flat, 1)
        wait_for(marked, 1)
        server.execute(f"UPDATE {table} SET id = 2", f"DELETE FROM {table}", f"TRUNCATE {table}")
        found = wait_for(marked, 7)
        assert [value and value["op"] for value in found] == ["r", "d", None, "c", "d", None, "t"]
        assert wait_for(flat, 4) == [{"id": 1, "name": "ann"}, None, {"id": 2, "name": "ann"}, None]
        assert [record.key for record in flat] == [b'{"id":1}', b'{"id":1}', b'{"id":2}', b'{"id":2}']


TYPES = {
    "a TINYINT": ("-128", -128),
    "b BIGINT UNSIGNED": ("18446744073709551615", 2**64 - 1),
    "c DECIMAL(30, 2)": ("-1234567890123456789.10", "-1234567890123456789.10"),
    "d FLOAT": ("1.1", 1.1),
    "e DOUBLE": ("1e300", 1e300),
    "f DATE": ("'2024-02-29'", "2024-02-29"),
    "g DATETIME(3)": ("'2024-02-29 01:02:03.5'", "2024-02-29T01:02:03.500000"),
    "h TIMESTAMP(6) NULL": ("'2024-02-29 01:02:03.5'", "2024-02-28T19:32:03.500000+00:00"),
    "i TIME(2)": ("'-100:02:03.5'", "-100:02:03.500000"),
    "j YEAR": ("1999", 1999),
    "k CHAR(5)": ("'ab  '", "ab"),
    "l VARCHAR(20)": ("'größer 🚆'", "größer 🚆"),
    "m VARCHAR(20) CHARACTER SET latin1": ("'größer'", "größer"),
    "n TEXT": ("'it''s'", "it's"),
    "o BINARY(4)": ("x'0100'", "AQAAAA=="),
    "p VARBINARY(5)": ("x'00ff'", "AP8="),
    "q BLOB": ("x'ff00'", "/wA="),
    "r BIT(10)": ("b'1000000001'", 513),
    "s ENUM('x', 'it''s')": ("'it''s'", "it's"),
    "t SET('p', 'it''s', 'q')": ("'q,p'", ["p", "q"]),
    "u SET('p')": ("''", []),
    "v POINT": ("ST_GeomFromText('POINT(1 2)')", "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA=="),
    "w JSON": ("""'{"a": [1]}'""", '{"a": [1]}'),
    "x MEDIUMINT UNSIGNED": ("16777215", 2**24 - 1),
    "y DECIMAL(3, 3)": ("-0.5", "-0.500"),
    "z FLOAT": ("123456.789", 123456.79),
}


def test_types_are_the_same_in_snapshot_and_stream(server: MariaDB) -> None:
    columns = ", ".join(TYPES)
    names = ", ".join(column.split()[0] for column in TYPES)
    cells = ", ".join(sql for sql, _ in TYPES.values())
    server.execute(f"CREATE TABLE kinds (id INT AUTO_INCREMENT PRIMARY KEY, {columns}, twice INT AS (id * 2))")

    def insert() -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+05:30'")
            cursor.execute(f"INSERT INTO kinds ({names}) VALUES ({cells})")
            cursor.execute("INSERT INTO kinds () VALUES ()")

    insert()
    with living(make(server, "kinds")) as records:
        wait_for(records, 2)
        insert()
        found = [value["after"] for value in wait_for(records, 4)]
    wanted = {column.split()[0]: value for column, (_, value) in TYPES.items()}
    for number, row in enumerate(found, start=1):
        row.pop("twice")
        assert row == {"id": number, **(wanted if number % 2 else dict.fromkeys(wanted))}
    with living(make(server, "kinds", decimals="float", snapshot_chunk=1)) as records:
        assert wait_for(records, 4)[0]["after"]["y"] == -0.5
    server.execute("CREATE TABLE unreadable (id INT PRIMARY KEY, u UUID)")
    refused(make(server, "unreadable"), "cannot read the type uuid of column 'u'")


def test_dates_that_are_none(server: MariaDB) -> None:
    server.execute("CREATE TABLE zeros (id INT PRIMARY KEY, d DATE, t DATETIME, s TIMESTAMP NULL, y YEAR)")

    def insert(number: int) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            cursor.execute(f"INSERT INTO zeros VALUES ({number}, 0, '2024-00-10 00:00:00', 0, 0)")

    insert(1)
    with living(make(server, "zeros")) as records:
        wait_for(records, 1)
        insert(2)
        for value in wait_for(records, 2):
            assert {**value["after"], "id": 0} == {"id": 0, "d": None, "t": None, "s": None, "y": 0}


def test_keys_of_several_types_are_read_in_parts(server: MariaDB) -> None:
    server.execute(
        "CREATE TABLE parts (a VARCHAR(10), b DATETIME(3), c VARBINARY(4), d DECIMAL(4, 1), PRIMARY KEY (a, b, c, d))",
        "INSERT INTO parts VALUES ('x''%s', '2024-01-01', x'00', 1.5), ('x''%s', '2024-01-01', x'00', 2.5), "
        "('x''%s', '2024-01-01', x'ff', 1.5), ('x''%s', '2024-01-02', x'00', 1.5), ('y', '2024-01-01', '', -1)",
        "CREATE TABLE listed (a ENUM('z', 'b', 'y') PRIMARY KEY)",
        "INSERT INTO listed VALUES ('y'), ('z'), ('b')",
        "CREATE TABLE no_key (n INT)",
        "INSERT INTO no_key VALUES (1), (1), (2)",
    )
    with living(make(server, "parts", snapshot_chunk=1)) as records:
        assert [value["after"]["d"] for value in wait_for(records, 5)] == ["1.5", "2.5", "1.5", "1.5", "-1.0"]
    with living(make(server, "listed", "no_key", snapshot_chunk=1)) as records:
        assert sorted(str(next(iter(value["after"].values()))) for value in wait_for(records, 6)) == [*"112byz"]
        server.execute("DELETE FROM no_key WHERE n = 2")
        assert wait_for(records, 7)[6]["before"] == {"n": 2}
        assert records[6].key is None
    refused(make(server, "no_key", flat=True), "no primary key")


def test_columns_are_added_and_dropped(server: MariaDB, table: str) -> None:
    with living(make(server, table)) as records:
        wait_for(records, 1)
        server.execute(
            f"ALTER TABLE {table} ADD COLUMN age INT DEFAULT 5 FIRST",
            f"INSERT INTO {table} VALUES (6, 2, 'bob')",
            f"ALTER TABLE {table} DROP COLUMN name",
            f"INSERT INTO {table} VALUES (7, 3)",
        )
        assert [value["after"] for value in wait_for(records, 3)[1:]] == [
            {"age": 6, "id": 2, "name": "bob"},
            {"age": 7, "id": 3},
        ]


def test_odd_names_are_quoted(server: MariaDB) -> None:
    name, column = "odd ` '\"; DROP TABLE x -- %s", "co`l %s"
    sql = "`odd `` '\"; DROP TABLE x -- %s`"
    server.execute(
        f"CREATE TABLE {sql} (`co``l %s` VARCHAR(20) PRIMARY KEY)", f"INSERT INTO {sql} VALUES ('a'), ('b\\'')"
    )
    with living(make(server, name, snapshot_chunk=1, name="odd/name")) as records:
        assert [value["after"] for value in wait_for(records, 2)] == [{column: "a"}, {column: "b'"}]
        server.execute(f"DELETE FROM {sql}", f"TRUNCATE TABLE {DATABASE}.{sql}")
        assert [value["op"] for value in wait_for(records, 5)] == ["r", "r", "d", "d", "t"]


def test_truncates_are_recognized() -> None:
    assert truncated_table("/* x */ TRUNCATE t", "db", "db") == "t"
    assert truncated_table("truncate -- x\n table `db`.`t`;", "other", "db") == "t"
    assert truncated_table("TRUNCATE other.t", "db", "db") is None
    assert truncated_table("TRUNCATE t", "other", "db") is None
    assert truncated_table("DROP TABLE t", "db", "db") is None


def test_tables_can_be_added(server: MariaDB, table: str) -> None:
    server.execute("CREATE TABLE late (id INT PRIMARY KEY)", "INSERT INTO late VALUES (1)")
    store, name = MemorySourceStore(), unique("cdc")
    with living(make(server, table, name=name), store=store) as records:
        wait_for(records, 1)
        server.execute("INSERT INTO late VALUES (2)", f"INSERT INTO {table} VALUES (2, 'x')")
        wait_for(records, 2)
    with living(make(server, table, "late", name=name), store=store) as records:
        assert [value["after"] for value in wait_for(records, 2)] == [{"id": 1}, {"id": 2}]
        server.execute("INSERT INTO late VALUES (3)")
        assert brief(wait_for(records, 3)[2]) == ("c", None, {"id": 3})
    with living(make(server, "late", name=name), store=store) as records:
        server.execute(f"INSERT INTO {table} VALUES (3, 'x')", "INSERT INTO late VALUES (4)")
        assert wait_for(records, 1)[0]["after"] == {"id": 4}


def test_it_resumes_without_repeating_and_without_losing(server: MariaDB, table: str) -> None:
    store, name = MemorySourceStore(), unique("cdc")
    with living(make(server, table, name=name), store=store) as records:
        wait_for(records, 1)
    server.execute(f"INSERT INTO {table} VALUES (2, 'bob')", "FLUSH BINARY LOGS")
    with living(make(server, table, name=name), store=store) as records:
        assert brief(wait_for(records, 1)[0]) == ("c", None, {"id": 2, "name": "bob"})
        server.execute("FLUSH BINARY LOGS", f"INSERT INTO {table} VALUES (3, 'bob')")
        wait_for(records, 2)


def test_lost_log(server: MariaDB, table: str) -> None:
    store, name = MemorySourceStore(), unique("cdc")
    with living(make(server, table, name=name), store=store) as records:
        wait_for(records, 1)
    server.execute(f"INSERT INTO {table} VALUES (2, 'bob')", "FLUSH BINARY LOGS")
    last = server.query("SHOW MASTER STATUS")[0][0]

    def purged() -> bool:
        # A file that is still being sent is kept.
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        return bool(server.query("SHOW BINARY LOGS")[0][0] == last)

    wait_until(purged, what="the end of the files")
    refused(make(server, table, name=name), "has lost changes", "lost_log='snapshot'", store=store)
    with living(make(server, table, name=name, lost_log="snapshot"), store=store) as records:
        assert [value["op"] for value in wait_for(records, 2)] == ["r", "r"]
    changed = store.state().get("position")
    store.state().set("position", {**changed, "server": "another"})
    refused(make(server, table, name=name), "not the one", store=store)


def test_lite(server: MariaDB, table: str, certificate: Path) -> None:
    def source(tls: bool | str) -> MySqlCdcLiteSource:
        return MySqlCdcLiteSource("127.0.0.1", USER, server.password, DATABASE, table, server.port, 0.05, tls)

    with living(source(str(certificate))) as records:
        started(records)
        assert records.run.source.default_topic().name == f"mysql-cdc-{DATABASE}-{table}"  # type: ignore[attr-defined]
        server.execute("CREATE TABLE IF NOT EXISTS aside (n INT)", "INSERT INTO aside VALUES (1)")
        server.execute(f"INSERT INTO {table} VALUES (2, 'bob')")
        assert brief(wait_for(records, 1)[0]) == ("c", None, {"id": 2, "name": "bob"})
    # The system does not trust the certificate.
    refused(source(True), "certificate verify failed")
    refused(source("/absent.pem"), "cannot read certificates from /absent.pem")


def test_c13_a_server_without_tls_is_refused_by_default(table: str) -> None:
    with mariadb() as plain:
        refused(
            MySQLCdcSource("127.0.0.1", USER, plain.password, DATABASE, [table], plain.port),
            "the server has no TLS: give it a certificate, or use tls=False",
        )
    with pytest.raises(ConfigurationError, match=r"no parameter 'ssl_ca': TLS is tls=True, the path of a file"):
        MySQLCdcSource("127.0.0.1", USER, "x", DATABASE, [table], ssl_ca="/x.pem")


def test_c9_texts_of_all_character_sets_are_the_same_in_snapshot_and_log(server: MariaDB) -> None:
    charsets = ("utf16", "utf16le", "ucs2", "utf32", "utf8mb4", "utf8mb3", "latin1", "latin2", "cp1251", "sjis", "gbk")
    name = unique("t").replace("-", "_")
    columns = ", ".join(f"c{n} VARCHAR(20) CHARACTER SET {charset}" for n, charset in enumerate(charsets))
    members = (
        "e ENUM('a', 'b c') CHARACTER SET utf16, s SET('x', 'y z') CHARACTER SET latin1, l LONGTEXT CHARACTER SET utf16"
    )
    server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, {columns}, {members})")
    texts = [
        "größer 🚆",
        "größer 🚆",
        "größer",
        "größer 🚆",
        "größer 🚆",
        "größer",
        "größer",
        "größer",
        "привет",
        "テスト",
        "中文",
    ]
    values = ", ".join(f"_utf8mb4'{text}'" for text in texts)
    server.execute(f"INSERT INTO {name} VALUES (1, {values}, 'b c', 'x,y z', _utf8mb4'größer 🚆')")
    try:
        with living(make(server, name)) as records:
            wait_for(records, 1)
            server.execute(
                f"INSERT INTO {name} SELECT 2, {', '.join(f'c{n}' for n in range(len(texts)))}, e, s, l FROM {name}"
            )
            first, second = (record["after"] for record in wait_for(records, 2))
        assert [first[f"c{n}"] for n in range(len(texts))] == texts
        assert (first["e"], first["s"], first["l"]) == ("b c", ["x", "y z"], "größer 🚆")
        assert second == {**first, "id": 2}
    finally:
        server.execute(f"DROP TABLE {name}")


@pytest.mark.parametrize("column", ["c VARCHAR(9) CHARACTER SET dec8", "c ENUM('a', 'größer') CHARACTER SET latin1"])
def test_c9_texts_that_the_log_has_in_no_readable_form_are_refused(server: MariaDB, column: str) -> None:
    name = unique("t").replace("-", "_")
    with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, {column})")

    def follow() -> None:
        with living(make(server, name, snapshot="never")) as records:
            started(records)
            server.execute(f"INSERT INTO {name} VALUES (1, 'a')")
            wait_for(records, 1)

    with pytest.raises(Exception, match="convert it to utf8mb4"):
        follow()


def test_what_cannot_be_reached(server: MariaDB, table: str) -> None:
    refused(make(server, table, port=1), "cannot connect", "127.0.0.1:1")
    refused(make(server, table, host="no-such-host.invalid"), "no-such-host.invalid")
    assert "sesame" not in refused(make(server, table, password="sesame"), "Access denied")
    refused(make(server, "absent"), f"found no table {DATABASE}.absent")
    refused(make(server, table, database="absent"), f"found no table absent.{table}")
    server.execute("CREATE USER weak IDENTIFIED BY 'weak'", f"GRANT SELECT ON {DATABASE}.* TO weak")
    refused(make(server, table, user="weak", password="weak"), "denied")
    for setting, value in (("binlog_format", "STATEMENT"), ("binlog_row_metadata", "MINIMAL")):
        server.execute(f"SET GLOBAL {setting} = '{value}'")
        refused(make(server, table), f"{setting}={value}")
        server.execute(f"SET GLOBAL {setting} = '{'ROW' if value == 'STATEMENT' else 'FULL'}'")


def test_stop_ends_it_while_the_server_hangs(server: MariaDB, table: str) -> None:
    with living(make(server, table)) as records:
        wait_for(records, 1)
        server.freeze()
        try:
            begun = time.monotonic()
            records.run.source.stop()  # type: ignore[attr-defined]
            records.run.wait()  # type: ignore[attr-defined]
            assert time.monotonic() - begun < 8
            begun = time.monotonic()
            with living(make(server, table)):
                pass
            assert time.monotonic() - begun < 8
        finally:
            server.thaw()


def test_the_password_is_nowhere(server: MariaDB, table: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        source = make(server, table)
        with collect_secrets() as collected:
            data = cloudpickle.dumps(source)
        assert server.password.encode() not in data
        assert set(collected.values()) == {server.password}
        again = pickle.loads(data)
        with living(again) as records:
            wait_for(records, 1)
        assert server.password not in repr(again) + str(vars(again)) + caplog.text
    for password in (SecretStr(server.password), lambda: server.password):
        with living(make(server, table, password=password)) as records:
            wait_for(records, 1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tables": "orders"}, "list of names"),
        ({"tables": []}, "at least one table"),
        ({"tables": [5]}, "non-empty"),
        ({"snapshot": "always"}, "initial, never"),
        ({"decimals": "int"}, "string, float"),
        ({"lost_log": "x"}, "fail, snapshot"),
        ({"tombstones": 1}, "True or False"),
        ({"tls": 5}, "path of a file"),
        ({"server_id": 0}, "from 1 to"),
        ({"commit_interval": "x"}, "a number"),
        ({"snapshot_chunk": 0}, "1 or more"),
        ({"port": "3306"}, "an int"),
        ({"user": ""}, "non-empty"),
        ({"password": None}, "string or a function"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], reason: str) -> None:
    given = {"host": "h", "user": "u", "password": "p", "database": "d", "tables": ["t"], **options}
    with pytest.raises(ConfigurationError, match=reason):
        MySQLCdcSource(**given)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"MySqlCdcLiteSource needs the package pymysqlreplication: .*mysql"):
        MySqlCdcLiteSource("h", "u", "p", "d", "t")


def test_crashes_of_source_and_server_lose_nothing(server: MariaDB) -> None:
    server.execute(*changes.TABLES)
    name = unique("cdc")

    def restart() -> None:
        server.kill()
        server.start()

    changes.crash_often(
        lambda: make(
            server, "accounts", "items", "log", name=name, commit_every=50, commit_interval=0.2, snapshot_chunk=25
        ),
        lambda: changes.MariaDBConnection(server),
        lambda source: (source["file"], source["pos"], source["seq"]),
        lives=15,
        restarts={4: restart, 8: restart, 12: restart},
        seed=7,
    )


def test_a_long_transaction_resumes_in_its_middle(server: MariaDB, table: str) -> None:
    point = changes.Point()
    producer, name = changes.Producer(point), unique("cdc")
    store = changes.Store(point, producer)

    def source() -> MySQLCdcSource:
        return make(server, table, name=name, commit_every=100, commit_interval=60)

    with living(source(), producer, store) as records:
        wait_for(records, 1)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", [(number, "x" * 20) for number in range(2, 1002)])
    point.left = 950
    life = Run(source(), store, producer, copied=False)
    assert isinstance(life.failure(), changes.CrashError)
    del producer.records[producer.flushed :]
    store.crash()
    flushed = len(producer.records)
    assert flushed > 100
    point.left = None
    with living(source(), producer, store) as records:
        wait_until(lambda: len(records) >= 1001, what="the records")
    assert [json.loads(record.key or b"")["id"] for record in producer.records] == list(range(1, 1002))
    assert [value["source"]["seq"] for value in values(producer.records)[1:]] == list(range(1, 1001))


def test_a_log_that_cannot_be_read_ends_the_source(server: MariaDB, table: str) -> None:
    store, name = MemorySourceStore(), unique("cdc")
    with living(make(server, table, name=name), store=store) as records:
        wait_for(records, 1)
    position = store.state().get("position")
    # In the middle of an event.
    store.state().set("position", {**position, "offset": position["offset"] - 7})
    refused(make(server, table, name=name), "log", store=store)


def test_a_table_follows_its_origin(server: MariaDB, table: str) -> None:
    rows = followed("id INT, name STRING, PRIMARY KEY (id)")
    with living(make(server, table)) as records:
        wait_for(records, 1)
        server.execute(
            f"INSERT INTO {table} VALUES (2, 'bob'), (3, 'eve')",
            f"UPDATE {table} SET id = 5, name = NULL WHERE id = 2",
            f"DELETE FROM {table} WHERE id = 3",
        )
        wait_for(records, 6)
        assert rows(records) == set(server.query(f"SELECT id, name FROM {table}")) == {(1, "ann"), (5, None)}
        server.execute(f"TRUNCATE {table}", f"INSERT INTO {table} VALUES (1, 'new')")
        wait_for(records, 8)
        assert rows(records) == {(1, "new")}
