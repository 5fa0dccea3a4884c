"""Applications that are killed while they write: each value once where sinks store positions, none lost elsewhere."""

import contextlib
import json
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import psycopg
import pyarrow.parquet
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from streamrt.kafka import Consumer, Producer
from streamrt.kafka.client import partition_offsets
from streamrt.records import TopicPartition
from tests.chaos import kill_tree
from tests.connectors.mariadb_server import mariadb
from tests.connectors.redis_server import PASSWORD, redis_server
from tests.postgres import postgres
from tests.support import LONG, Kafka, RunningProgram, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
from streamrt import Application
{imports}

def number(value, state):
    n = state.get("n", 0) + 1
    state.set("n", n)
    return {{**value, "n": n}}


app = Application(
    {address!r},
    consumer_group={group!r},
    auto_offset_reset="earliest",
    state_dir={state_dir!r},
    processing_guarantee="exactly-once",
    # The group gives the partitions of a killed process to the next one at once.
    consumer_extra_config={{"session.timeout.ms": 6_000}},
)
sdf = app.dataframe(app.topic({source!r}, key_deserializer="str"))
sdf.apply(number, stateful=True).sink({sink})

if __name__ == "__main__":
    app.run()
"""
RECORDS, KILLS = (20_000, 10) if LONG else (6_000, 2)
KEYS = 50


@dataclass(frozen=True)
class Destination:
    """A sink of a program, and what is in its system.

    Attributes:
        imports: imports of the program.
        sink: the expression for the sink.
        rows: returns the values there, with the columns id, k and n.
        repeats: whether values may come more than once.
        ordered: whether the rows of a key are in the order in which they were written.
    """

    imports: str
    sink: str
    rows: Callable[[], list[dict[str, Any]]]
    repeats: bool = False
    ordered: bool = False


@pytest.fixture
def sqlite(tmp_path: Path) -> Destination:
    path = tmp_path / "shop.sqlite"

    def rows() -> list[dict[str, Any]]:
        if not path.exists():
            return []
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchall():
                return []
            found = connection.execute("SELECT id, k, n FROM orders ORDER BY rowid").fetchall()
            return [dict(zip(("id", "k", "n"), row, strict=True)) for row in found]

    return Destination("from streamrt.connectors import SQLiteSink", f"SQLiteSink({str(path)!r}, 'orders')", rows)


@pytest.fixture
def postgresql() -> Iterator[Destination]:
    with postgres() as server:

        def rows() -> list[dict[str, Any]]:
            with psycopg.connect(**server.settings) as connection:
                if not connection.execute("SELECT 1 FROM pg_tables WHERE tablename = 'orders'").fetchall():
                    return []
                found = connection.execute("SELECT id, k, n FROM orders").fetchall()
                return [dict(zip(("id", "k", "n"), row, strict=True)) for row in found]

        sink = f"PostgreSQLSink(**{server.settings!r}, table_name='orders')"
        yield Destination("from streamrt.connectors import PostgreSQLSink", sink, rows)


@pytest.fixture
def mysql() -> Iterator[Destination]:
    with mariadb() as server:

        def rows() -> list[dict[str, Any]]:
            if not server.query("SHOW TABLES LIKE 'orders'"):
                return []
            return [
                dict(zip(("id", "k", "n"), row, strict=True)) for row in server.query("SELECT id, k, n FROM orders")
            ]

        sink = f"MySQLSink(**{server.settings!r}, table_name='orders')"
        yield Destination("from streamrt.connectors import MySQLSink", sink, rows)


@pytest.fixture
def duckdb_file(tmp_path: Path) -> Destination:
    path = tmp_path / "shop.duckdb"
    last: list[dict[str, Any]] = []

    def rows() -> list[dict[str, Any]]:
        if path.exists():
            # While a task writes, the rows are those of before.
            with contextlib.suppress(duckdb.IOException), closing(duckdb.connect(str(path))) as connection:
                if connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'orders'").fetchall():
                    found = connection.execute("SELECT id, k, n FROM orders ORDER BY rowid").fetchall()
                    last[:] = [dict(zip(("id", "k", "n"), row, strict=True)) for row in found]
        return list(last)

    sink = f"DuckDBSink({str(path)!r}, 'orders', timeout=20)"
    return Destination("from streamrt.connectors import DuckDBSink", sink, rows)


@pytest.fixture
def parquet(tmp_path: Path) -> Destination:
    path = tmp_path / "out"
    read: dict[Path, list[dict[str, Any]]] = {}

    def rows() -> list[dict[str, Any]]:
        for file in path.glob("[!_]*/*/*.parquet"):
            if file not in read:
                read[file] = pyarrow.parquet.read_table(file, columns=["id", "k", "n"]).to_pylist()
        return [row for found in read.values() for row in found]

    sink = f"LocalFileSink(directory={str(path)!r}, format='parquet')"
    return Destination("from streamrt.connectors import LocalFileSink", sink, rows)


@pytest.fixture
def delta(tmp_path: Path) -> Destination:
    path = tmp_path / "orders"

    def rows() -> list[dict[str, Any]]:
        if not deltalake.DeltaTable.is_deltatable(str(path)):
            return []
        table = deltalake.DeltaTable(path).to_pyarrow_table(columns=["id", "k", "n"])
        found: list[dict[str, Any]] = table.to_pylist()
        return found

    return Destination("from streamrt.connectors import DeltaSink", f"DeltaSink({str(path)!r})", rows)


@pytest.fixture
def iceberg(tmp_path: Path) -> Destination:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = load_catalog("default", **properties)
    read: dict[str, list[dict[str, Any]]] = {}

    def rows() -> list[dict[str, Any]]:
        try:
            table = catalog.load_table("shop.orders")
        except NoSuchTableError:
            return []
        files = {task.file.file_path for task in table.scan().plan_files()}
        for file in files - read.keys():
            path = file.removeprefix("file://")
            read[file] = pyarrow.parquet.read_table(path, columns=["id", "k", "n"]).to_pylist()
        return [row for file in files for row in read[file]]

    sink = f"IcebergSink('shop.orders', catalog_properties={properties!r})"
    return Destination("from streamrt.connectors import IcebergSink", sink, rows)


@pytest.fixture
def json_files(tmp_path: Path) -> Destination:
    path = tmp_path / "out"
    read: dict[Path, list[dict[str, Any]]] = {}

    def rows() -> list[dict[str, Any]]:
        for file in path.glob("[!_]*/*/*.jsonl"):
            if file not in read:
                read[file] = [json.loads(line)["_value"] for line in file.read_text().splitlines()]
        return [row for found in read.values() for row in found]

    sink = f"LocalFileSink(directory={str(path)!r}, format='json')"
    return Destination("from streamrt.connectors import LocalFileSink", sink, rows)


@pytest.fixture
def redis() -> Iterator[Destination]:
    with redis_server() as server, contextlib.closing(server.client) as client:

        def rows() -> list[dict[str, Any]]:
            keys = client.keys()
            return [json.loads(value) for value in client.mget(keys)] if keys else []

        key = "lambda key, value: f\"order:{value['id']}\""
        sink = f"RedisSink('127.0.0.1', {server.port}, 0, key_serializer={key}, password={PASSWORD!r})"
        yield Destination("from streamrt.connectors import RedisSink", sink, rows)


@pytest.fixture
def other_topic(kafka: Kafka) -> Iterator[Destination]:
    topic = kafka.topic("copy", partitions=2)
    found: list[dict[str, Any]] = []
    with Consumer(kafka.address, unique("reader"), "earliest", auto_commit_enable=False) as consumer:
        consumer.assign(partition_offsets({TopicPartition(topic, number): 0 for number in range(2)}))

        def rows() -> list[dict[str, Any]]:
            while messages := consumer.consume(1_000, 0.2):
                assert not any(message.error() for message in messages)
                found.extend(json.loads(message.value() or b"null") for message in messages)
            return list(found)

        sink = f"KafkaReplicatorSink({kafka.address!r}, {topic!r})"
        imports = "from streamrt.connectors import KafkaReplicatorSink"
        yield Destination(imports, sink, rows, repeats=True, ordered=True)


POINTS = ("sinks-flushed", "changelog-produced")


def set_fault(fault: Path, point: str) -> None:
    """Have the next process that reaches a point end there."""
    written = fault.with_suffix(".new")
    written.write_text(f"{point}:exit")
    written.replace(fault)


CASES = [
    pytest.param("postgresql", "resident", id="postgresql, resident"),
]
LONG_CASES = [
    pytest.param("sqlite", "micro-batch", id="sqlite, micro-batch"),
    pytest.param("sqlite", "resident", id="sqlite, resident"),
    pytest.param("postgresql", "micro-batch", id="postgresql, micro-batch"),
    pytest.param("mysql", "resident", id="mysql, resident"),
    pytest.param("mysql", "micro-batch", id="mysql, micro-batch"),
    pytest.param("duckdb_file", "micro-batch", id="duckdb, micro-batch"),
    pytest.param("duckdb_file", "resident", id="duckdb, resident"),
    pytest.param("parquet", "resident", id="parquet, resident"),
    pytest.param("delta", "micro-batch", id="delta, micro-batch"),
    pytest.param("iceberg", "micro-batch", id="iceberg, micro-batch"),
    pytest.param("json_files", "micro-batch", id="json files, micro-batch"),
    pytest.param("redis", "micro-batch", id="redis, micro-batch"),
    pytest.param("other_topic", "resident", id="other topic, resident"),
]


@pytest.mark.parametrize(("name", "mode"), CASES + (LONG_CASES if LONG else []))
def test_a_killed_application_writes_each_value_once(
    kafka: Kafka,
    program: Callable[..., RunningProgram],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    name: str,
    mode: str,
) -> None:
    destination: Destination = request.getfixturevalue(name)
    source = kafka.topic("in", partitions=2)
    source_code = PROGRAM.format(
        imports=destination.imports,
        sink=destination.sink,
        address=kafka.address,
        group=unique("group"),
        state_dir=str(kafka.state_dir),
        source=source,
    )
    fault = tmp_path / "fault"
    chance = random.Random(len(name))
    produced = 0
    begun = time.monotonic()

    def produce(count: int) -> None:
        nonlocal produced
        with Producer(kafka.address) as producer:
            for number in range(produced, produced + count):
                key = f"key-{number % KEYS}"
                producer.produce(
                    source, json.dumps({"id": number, "k": key}).encode(), key=key.encode(), timestamp=number
                )
        produced += count

    def written() -> int:
        return len(destination.rows())

    def reached(count: int) -> bool:
        return written() >= count

    for number in range(KILLS):
        produce(RECORDS // (KILLS + 1))
        before = written()
        if number % 3 != 2:
            # A worker dies between the transaction of the sink and that of Kafka.
            set_fault(fault, POINTS[number % len(POINTS)])
        running = program(source_code, STREAMRT_FAULT=str(fault), STREAMRT_PROCESSING_MODE=mode)
        wait_until(lambda: not fault.exists(), what="the fault")
        # Somewhere in the middle of the work.
        wanted = before + chance.randrange(1, max(2, (produced - before) * 3 // 4))
        wait_until(partial(reached, wanted), what=f"{wanted} rows, {running.err}")
        kill_tree(running)
    produce(RECORDS - produced)
    running = program(source_code, STREAMRT_PROCESSING_MODE=mode)
    wait_until(lambda: len({row["id"] for row in destination.rows()}) >= RECORDS, what="all rows")
    code, _ = running.end()
    assert code == 0, running.err
    found = destination.rows()
    # Records that are delivered again equal those delivered before.
    values = list(dict.fromkeys((row["id"], row["k"], row["n"]) for row in found))
    repeats, lost = len(found) - len(values), RECORDS - len({number for number, _, _ in values})
    took = f"{time.monotonic() - begun:.0f} s"
    print(f"{name}, {mode}: {KILLS} kills, {RECORDS} records, {took}, {repeats} repeats, {lost} lost")
    assert sorted(number for number, _, _ in values) == list(range(RECORDS))
    assert destination.repeats or len(found) == RECORDS
    # State has also counted each record once: the values of a key are numbered without a gap.
    numbers: dict[str, list[int]] = {}
    for _, k, n in values if destination.ordered else sorted(values):
        numbers.setdefault(k, []).append(n)
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())
