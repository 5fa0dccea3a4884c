"""Values per second that each sink writes, and records per second that each source reads, without Kafka and Spark.

A sink gets batches of 10,000 orders, each with its positions in a transaction if the sink has them. A source starts, and
gives its records to a producer that counts them. Servers are started on this machine.

    python -m bench.connectors
    python -m bench.connectors --only postgresql parquet
    python -m bench.connectors --kind sources

`--peer` names a Python that has Quix Streams (`bench/peers/quix_sinks.py`). Its sink for the same system then writes the
same values with the same arguments to another server of the same kind, in turn with that of StreamRT.

    python -m bench.connectors --kind sinks --peer build/peers/quix/bin/python
"""

import argparse
import datetime
import json
import math
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bench import common
from bench.peers.quix_sinks import BATCH, TOPIC, order, records
from streamrt.connectors import (
    BatchingSink,
    CSVSink,
    DeltaSink,
    DuckDBSink,
    IcebergSink,
    InfluxDB1Sink,
    KafkaReplicatorSink,
    KafkaReplicatorSource,
    LocalFileSink,
    LocalFileSource,
    MongoDBSink,
    MySQLSink,
    PositionChange,
    PostgresCdcSource,
    PostgreSQLSink,
    RateSource,
    RedisSink,
    SinkCommit,
    SinkPosition,
    Source,
    SQLiteSink,
    TransactionalSink,
)
from streamrt.testing.connectors import MemorySourceStore, RunningSource
from streamrt.topics import Topic
from tests.connectors.influxd import PASSWORD, influxd
from tests.connectors.influxd import USER as INFLUX_USER
from tests.connectors.mariadb_server import mariadb
from tests.connectors.mongo_server import mongo_double
from tests.connectors.redis_server import PASSWORD as REDIS_PASSWORD
from tests.connectors.redis_server import redis_server
from tests.postgres import DATABASE, USER, postgres

LIMIT_S = 300.0
_PEER_PROGRAM = Path(__file__).with_name("peers") / "quix_sinks.py"


class Cost(NamedTuple):
    """What values have cost.

    Attributes:
        seconds: by the clock.
        processor_s: seconds of the processor in the process of the connector, which other programs change less.
    """

    seconds: float
    processor_s: float

    def best(self, other: "Cost") -> "Cost":
        """Return the lower figures of two."""
        return Cost(min(self.seconds, other.seconds), min(self.processor_s, other.processor_s))


NONE = Cost(math.inf, math.inf)


def write(sink: BatchingSink, count: int) -> Cost:
    """Write values, and return what the sink has cost."""
    sink.start()
    seconds = processor_s = 0.0
    before: SinkPosition | None = None
    for version, start in enumerate(range(0, count, BATCH), 1):
        batch = records(start)
        after = SinkPosition(start + BATCH, version)
        begun, processor = time.perf_counter(), time.process_time()
        for value, key, timestamp, headers, offset in batch:
            sink.add(value, key, timestamp, headers, TOPIC, 0, offset)
        if isinstance(sink, TransactionalSink):
            commit = SinkCommit("bench", {(TOPIC, 0): PositionChange(before, after)})
            sink.write_transaction(sink.take_batches(), commit)
        else:
            sink.flush()
        seconds += time.perf_counter() - begun
        processor_s += time.process_time() - processor
        before = after
    sink.close()
    return Cost(seconds, processor_s)


def write_as_peer(python: str, sink: str, arguments: Mapping[str, Any], count: int) -> Cost:
    """Write values with a sink of the peer, and return what it has cost."""
    asked = json.dumps({"sink": sink, "arguments": arguments, "values": count})
    command = [python, "-I", str(_PEER_PROGRAM)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"the peer's {sink} failed: {done.stderr[-2_000:]}")
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


class CountingProducer:
    """A producer that counts records, and delivers them at once.

    Args:
        wanted: number of records.

    Attributes:
        enough: set when there are as many.
    """

    def __init__(self, wanted: int) -> None:
        self._left = wanted
        self.enough = threading.Event()

    def produce(self, *args: Any, **kwargs: Any) -> None:
        """Count one record."""
        self._left -= 1
        if not self._left:
            self.enough.set()

    def flush(self, timeout: float | None = None) -> int:
        """Return that nothing is left to deliver."""
        return 0


def read(source: Source, count: int, store: MemorySourceStore | None = None) -> Cost:
    """Run a source until it has produced as many records, and return what it has cost."""
    producer = CountingProducer(count)
    source.configure(Topic("orders"), producer, store_partition=store or MemorySourceStore())
    begun, processor = time.perf_counter(), time.process_time()
    with RunningSource(source):
        if not producer.enough.wait(LIMIT_S):
            raise TimeoutError(f"{count:,} records did not come within {LIMIT_S:g} s")
        return Cost(time.perf_counter() - begun, time.process_time() - processor)


Place = Callable[[ExitStack, Path], dict[str, Any]]
"""Starts the system of a sink, and returns the arguments of the sink; servers end with the stack."""


@dataclass(frozen=True)
class SinkCase:
    """A sink to measure.

    Attributes:
        name: its name.
        sink: its class.
        place: starts its system.
        values: how many values it writes.
        peer: the peer's class for the same arguments, by its module below `quixstreams.sinks`.
    """

    name: str
    sink: Callable[..., BatchingSink]
    place: Place
    values: int = 200_000
    peer: str | None = None
    kind = "sinks"

    def cost(self, stack: ExitStack, directory: Path) -> Cost:
        """Write the values, and return what the sink has cost."""
        return write(self.sink(**self.place(stack, directory)), self.values)

    def cost_of_peer(self, stack: ExitStack, directory: Path, python: str) -> Cost:
        """Write the values with the sink of the peer, and return what it has cost."""
        assert self.peer is not None
        return write_as_peer(python, self.peer, self.place(stack, directory), self.values)


@dataclass(frozen=True)
class SourceCase:
    """A source to measure.

    Attributes:
        name: its name.
        make: makes the source, and its store if it has begun before, for a number of records; servers end with the stack.
        values: how many records it produces.
    """

    name: str
    make: Callable[[ExitStack, Path, int], tuple[Source, MemorySourceStore]]
    values: int = 200_000
    kind = "sources"

    def cost(self, stack: ExitStack, directory: Path) -> Cost:
        """Produce the records, and return what the source has cost."""
        source, store = self.make(stack, directory, self.values)
        return read(source, self.values, store)


def postgresql(stack: ExitStack, directory: Path, **options: Any) -> dict[str, Any]:
    """A server of this run, which does not wait for the disk."""
    return {**stack.enter_context(postgres()).settings, "table_name": "orders", **options}


def mysql(stack: ExitStack, directory: Path, **options: Any) -> dict[str, Any]:
    """A MariaDB of this run, which does not wait for the disk."""
    return {**stack.enter_context(mariadb()).settings, "table_name": "orders", **options}


def redis(stack: ExitStack, directory: Path) -> dict[str, Any]:
    """A server of this run, which writes what it acknowledges to the disk. Values replace those of their keys."""
    server = stack.enter_context(redis_server())
    return {"host": "127.0.0.1", "port": server.port, "db": 0, "password": REDIS_PASSWORD}


def mongodb(stack: ExitStack, directory: Path) -> dict[str, Any]:
    """A double of this run, with its data in memory. Values replace those of their keys."""
    return {"host": "127.0.0.1", "port": stack.enter_context(mongo_double()), "db": "shop", "collection": "orders"}


def influxdb(stack: ExitStack, directory: Path) -> dict[str, Any]:
    """A server of this run."""
    server = stack.enter_context(influxd())
    login = {"host": "127.0.0.1", "port": server.port, "username": INFLUX_USER, "password": PASSWORD}
    return {
        **login,
        "database": "shop",
        "measurement": "orders",
        "tags_keys": ["sku"],
        "fields_keys": ["id", "pieces", "price", "note", "paid"],
    }


def kafka(stack: ExitStack, directory: Path) -> dict[str, Any]:
    """A broker of this run."""
    return {"broker_address": stack.enter_context(common.broker()), "topic_name": "orders"}


def local_files(stack: ExitStack, directory: Path, file_format: str) -> dict[str, Any]:
    """A directory of this run."""
    return {"directory": str(directory), "format": file_format}


def iceberg(stack: ExitStack, directory: Path) -> dict[str, Any]:
    """A table with a catalog in a SQLite file."""
    catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.sqlite", "warehouse": f"file://{directory}"}
    return {"table_name": "shop.orders", "catalog_properties": catalog}


def path_in(name: str, parameter: str = "path", **arguments: Any) -> Place:
    """Return a place in the directory of this run."""
    return lambda stack, directory: {parameter: str(directory / name), **arguments}


def rate(stack: ExitStack, directory: Path, count: int) -> tuple[Source, MemorySourceStore]:
    """Return a source that generates orders as fast as it can."""
    return RateSource(math.inf, lambda number, rng: order(number), count=count), MemorySourceStore()


def files(
    stack: ExitStack, directory: Path, count: int, file_format: Literal["json", "parquet"]
) -> tuple[Source, MemorySourceStore]:
    """Return a source of the files that a sink has written."""
    write(LocalFileSink(directory=directory, format=file_format), count)
    return LocalFileSource(directory, file_format=file_format, replay_speed=0, name="files"), MemorySourceStore()


def replicated(stack: ExitStack, directory: Path, count: int) -> tuple[Source, MemorySourceStore]:
    """Return a source for a topic with orders, in a broker of this run."""
    address = stack.enter_context(common.broker())
    common.create_topics(address, "orders", partitions=1)
    common.fill(address, "orders", count, partitions=1)
    config = common.application(address, directory).config
    return KafkaReplicatorSource("copies", config, "orders", address, "earliest"), MemorySourceStore()


def changes(stack: ExitStack, directory: Path, count: int, begun: bool) -> tuple[Source, MemorySourceStore]:
    """Return a source for a table: of its rows, or of their insertion if the source has begun before."""
    server = stack.enter_context(postgres({"wal_level": "logical"}))

    def make() -> Source:
        return PostgresCdcSource("127.0.0.1", server.port, DATABASE, USER, server.password, ["orders"], name="changes")

    store = MemorySourceStore()
    server.execute(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, sku TEXT, pieces INT, price FLOAT8, note TEXT, paid BOOL)"
    )
    if begun:
        server.execute("INSERT INTO orders (id) VALUES (-1)")
        read(make(), 1, store)
    server.execute(
        "INSERT INTO orders SELECT n, 'sku-' || n % 1000, n % 7, n % 1000 / 4.0, 'leave it at the door, please', n % 3 = 0 "
        f"FROM generate_series(1, {count}) n"
    )
    return make(), store


_UPSERT: dict[str, Any] = {"primary_key_columns": "id", "upsert_on_primary_key": True}
_PEER_POSTGRESQL = "community.postgresql.PostgreSQLSink"
_PEER_FILES = "community.file.local.LocalFileSink"

CASES: tuple[SinkCase | SourceCase, ...] = (
    SinkCase("postgresql", PostgreSQLSink, postgresql, peer=_PEER_POSTGRESQL),
    SinkCase("postgresql, upsert", PostgreSQLSink, partial(postgresql, **_UPSERT), 100_000, _PEER_POSTGRESQL),
    SinkCase("mysql", MySQLSink, mysql, 100_000),
    SinkCase("mysql, upsert", MySQLSink, partial(mysql, **_UPSERT), 100_000),
    SinkCase("duckdb", DuckDBSink, path_in("shop.duckdb", table_name="orders"), 50_000),
    SinkCase("sqlite", SQLiteSink, path_in("shop.sqlite", table_name="orders")),
    SinkCase("redis", RedisSink, redis, peer="community.redis.RedisSink"),
    SinkCase("mongodb", MongoDBSink, mongodb, 20_000, "community.mongodb.MongoDBSink"),
    SinkCase("influxdb1", InfluxDB1Sink, influxdb, 100_000, "community.influxdb1.InfluxDB1Sink"),
    SinkCase("csv", CSVSink, path_in("orders.csv"), peer="core.csv.CSVSink"),
    SinkCase("json lines", LocalFileSink, partial(local_files, file_format="json"), peer=_PEER_FILES),
    SinkCase("parquet", LocalFileSink, partial(local_files, file_format="parquet"), peer=_PEER_FILES),
    SinkCase("delta", DeltaSink, path_in("orders", "table_uri")),
    SinkCase("iceberg", IcebergSink, iceberg),
    SinkCase("kafka", KafkaReplicatorSink, kafka, peer="community.kafka.KafkaReplicatorSink"),
    SourceCase("rate", rate),
    SourceCase("json lines", partial(files, file_format="json")),
    SourceCase("parquet", partial(files, file_format="parquet")),
    SourceCase("kafka", replicated),
    SourceCase("postgresql, rows", partial(changes, begun=False), 100_000),
    SourceCase("postgresql, changes", partial(changes, begun=True), 100_000),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="names of connectors, or their beginnings")
    parser.add_argument("--kind", choices=("sinks", "sources"), help="by default, both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", metavar="PYTHON", help="has Quix Streams")
    arguments = parser.parse_args()
    print(f"{datetime.date.today()}, best of {arguments.rounds} rounds, batches of {BATCH:,}")
    for case in CASES:
        if arguments.only and not case.name.startswith(tuple(arguments.only)):
            continue
        if arguments.kind not in (None, case.kind):
            continue
        print(measured(case, arguments.rounds, arguments.peer), flush=True)


def measured(case: SinkCase | SourceCase, rounds: int, peer: str | None) -> str:
    """Return a line with the best rates of a case, and of the peer, which takes turns with it."""
    best = best_of_peer = NONE
    for _ in range(rounds):
        with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
            best = best.best(case.cost(stack, Path(directory)))
        if peer is not None and isinstance(case, SinkCase) and case.peer is not None:
            with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
                best_of_peer = best_of_peer.best(case.cost_of_peer(stack, Path(directory), peer))
    line = f"{case.kind[:-1]:<7} {case.name:<24} {case.values / best.seconds:>12,.0f} values/s"
    if best_of_peer != NONE:
        line += f"   peer {case.values / best_of_peer.seconds:>9,.0f} values/s"
        line += f"   ratio {best_of_peer.seconds / best.seconds:.2f}"
        line += f", by processor time {best_of_peer.processor_s / best.processor_s:.2f}"
    return line


if __name__ == "__main__":
    main()
