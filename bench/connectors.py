"""Values per second that each sink writes, and records per second that each source reads, without Kafka and Spark.

A sink gets batches of 10,000 orders, each with its positions in a transaction if the sink has them. A source starts, and
gives its records to a producer that counts them. Servers are started on this machine.

    python -m bench.connectors
    python -m bench.connectors --only postgresql parquet
    python -m bench.connectors --kind sources
"""

import argparse
import datetime
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bench import common
from streamrt.connectors import (
    BatchingSink,
    CSVSink,
    DeltaSink,
    DuckDBSink,
    IcebergSink,
    KafkaReplicatorSink,
    KafkaReplicatorSource,
    LocalFileSink,
    LocalFileSource,
    MySQLSink,
    PositionChange,
    PostgresCdcSource,
    PostgreSQLSink,
    RateSource,
    SinkBatch,
    SinkCommit,
    SinkPosition,
    Source,
    SQLiteSink,
    TransactionalSink,
)
from streamrt.testing.connectors import MemorySourceStore, RunningSource
from streamrt.topics import Topic
from tests.connectors.mariadb_server import mariadb
from tests.postgres import DATABASE, USER, postgres

BATCH = 10_000
LIMIT_S = 300.0


def order(number: int) -> dict[str, Any]:
    """Return a value of about 100 bytes."""
    return {
        "id": number,
        "sku": f"sku-{number % 1_000:06}",
        "pieces": number % 7,
        "price": number % 1_000 / 4,
        "note": "leave it at the door, please",
        "paid": number % 3 == 0,
    }


def batches(count: int) -> Iterator[SinkBatch]:
    """Return batches of consecutive values."""
    for start in range(0, count, BATCH):
        batch = SinkBatch("orders", 0)
        for number in range(start, start + BATCH):
            batch.append(order(number), b"key-%d" % (number % 100), 1_700_000_000_000 + number, None, number)
        yield batch


def write(sink: BatchingSink, count: int) -> float:
    """Write values, and return the seconds that the sink took."""
    sink.start()
    seconds = 0.0
    before: SinkPosition | None = None
    for version, batch in enumerate(batches(count), 1):
        after = SinkPosition(batch.last_offset + 1, version)
        begun = time.perf_counter()
        if isinstance(sink, TransactionalSink):
            sink.write_transaction([batch], SinkCommit("bench", {("orders", 0): PositionChange(before, after)}))
        else:
            sink.write(batch)
        seconds += time.perf_counter() - begun
        before = after
    return seconds


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


def read(source: Source, count: int, store: MemorySourceStore | None = None) -> float:
    """Run a source, and return the seconds until it has produced as many records."""
    producer = CountingProducer(count)
    source.configure(Topic("orders"), producer, store_partition=store or MemorySourceStore())
    begun = time.perf_counter()
    with RunningSource(source):
        if not producer.enough.wait(LIMIT_S):
            raise TimeoutError(f"{count:,} records did not come within {LIMIT_S:g} s")
        return time.perf_counter() - begun


@dataclass(frozen=True)
class SinkCase:
    """A sink to measure.

    Attributes:
        name: its name.
        make: makes the sink; servers end with the stack.
        values: how many values it writes.
    """

    name: str
    make: Callable[[ExitStack, Path], BatchingSink]
    values: int = 200_000
    kind = "sinks"

    def seconds(self, stack: ExitStack, directory: Path) -> float:
        """Write the values, and return the seconds that the sink took."""
        return write(self.make(stack, directory), self.values)


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

    def seconds(self, stack: ExitStack, directory: Path) -> float:
        """Produce the records, and return the seconds that the source took."""
        source, store = self.make(stack, directory, self.values)
        return read(source, self.values, store)


def postgresql(stack: ExitStack, directory: Path, **options: Any) -> BatchingSink:
    """Return a sink for a server of this run. The server does not wait for the disk."""
    server = stack.enter_context(postgres())
    return PostgreSQLSink(**server.settings, table_name="orders", **options)


def mysql(stack: ExitStack, directory: Path, **options: Any) -> BatchingSink:
    """Return a sink for a MariaDB of this run. The server does not wait for the disk."""
    server = stack.enter_context(mariadb())
    return MySQLSink(**server.settings, table_name="orders", **options)


def kafka(stack: ExitStack, directory: Path) -> BatchingSink:
    """Return a sink for a broker of this run."""
    return KafkaReplicatorSink(stack.enter_context(common.broker()), "orders")


def iceberg(stack: ExitStack, directory: Path) -> BatchingSink:
    """Return a sink for a table with a catalog in a SQLite file."""
    catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.sqlite", "warehouse": f"file://{directory}"}
    return IcebergSink("shop.orders", catalog_properties=catalog)


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


CASES: tuple[SinkCase | SourceCase, ...] = (
    SinkCase("postgresql", postgresql),
    SinkCase(
        "postgresql, upsert",
        lambda stack, directory: postgresql(stack, directory, primary_key_columns="id", upsert_on_primary_key=True),
        100_000,
    ),
    SinkCase("mysql", mysql, 100_000),
    SinkCase(
        "mysql, upsert",
        lambda stack, directory: mysql(stack, directory, primary_key_columns="id", upsert_on_primary_key=True),
        100_000,
    ),
    SinkCase("duckdb", lambda stack, directory: DuckDBSink(directory / "shop.duckdb", "orders"), 50_000),
    SinkCase("sqlite", lambda stack, directory: SQLiteSink(directory / "shop.sqlite", "orders")),
    SinkCase("csv", lambda stack, directory: CSVSink(directory / "orders.csv")),
    SinkCase("json lines", lambda stack, directory: LocalFileSink(directory=directory)),
    SinkCase("parquet", lambda stack, directory: LocalFileSink(directory=directory, format="parquet")),
    SinkCase("delta", lambda stack, directory: DeltaSink(directory / "orders")),
    SinkCase("iceberg", iceberg),
    SinkCase("kafka", kafka),
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
    arguments = parser.parse_args()
    print(f"{datetime.date.today()}, best of {arguments.rounds} rounds, batches of {BATCH:,}")
    for case in CASES:
        if arguments.only and not case.name.startswith(tuple(arguments.only)):
            continue
        if arguments.kind not in (None, case.kind):
            continue
        best = float("inf")
        for _ in range(arguments.rounds):
            with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
                best = min(best, case.seconds(stack, Path(directory)))
        print(f"{case.kind[:-1]:<7} {case.name:<24} {case.values / best:>12,.0f} values/s", flush=True)


if __name__ == "__main__":
    main()
