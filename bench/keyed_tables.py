"""Rows per second of tables with a primary key, beside clients and libraries by hand in the same run.

Seconds are processor time of the process. By hand, writes are `orjson.dumps` of each dict and a producer of confluent-kafka
with the same options; a copy is a dict of the records that a consumer has read, by their keys, and a lookup is `orjson.loads`
of the value there; changes are a second dict with the values before. Both sides run in turn; medians count.

Merges are requests of a partial update for one application that maintains the table, without Spark, at least once; seconds
are those of a clock, from its start until all requests are merged. There is nothing by hand that does the same.

    python -m bench.keyed_tables
    python -m bench.keyed_tables --rows 1000000
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import orjson

from bench import common
from bench.tables import compared, shown, write_by_hand
from streamrt import Application, Catalog
from streamrt.state import MemoryStore, RocksDBStore
from streamrt.tables import MemoryCatalog, Table

COLUMNS = "id BIGINT, name STRING, value DOUBLE, padding STRING, PRIMARY KEY (id)"
KEYS = 100_000
FORM = "json"


def rows_of(count: int, keys: int) -> list[dict[str, Any]]:
    """Return rows whose keys come again."""
    return [{"id": n % keys, "name": f"name {n}", "value": n / 2, "padding": "x" * 40} for n in range(count)]


def create_table(catalog: Catalog, name: str, **rules: Any) -> Table:
    """Create a table."""
    full = f"default.{common.unique(name).replace('-', '_')}"
    return catalog.create_table(full, COLUMNS, num_partitions=common.PARTITIONS, **rules)


def read_by_hand(address: str, topic: str, rows: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a topic."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False}
    )
    try:
        starts = [
            confluent_kafka.TopicPartition(topic, number, confluent_kafka.OFFSET_BEGINNING)
            for number in range(common.PARTITIONS)
        ]
        consumer.assign(starts)
        while rows > 0:
            for message in consumer.consume(10_000, 1.0):
                rows -= 1
                yield message.key(), message.value()
    finally:
        consumer.close()


def writes(catalog: Catalog, address: str, count: int, runs: int) -> list[list[object]]:
    """Return the lines of writes."""
    table, rows = create_table(catalog, "upserts"), rows_of(count, KEYS)
    topic = str(table.info.topic)

    def upsert_rows() -> None:
        with table.writer() as writer:
            writer.upsert_rows(rows)
            writer.flush(600)

    def upsert_each() -> None:
        with table.writer() as writer:
            for row in rows:
                writer.upsert(row)
            writer.flush(600)

    def by_hand() -> None:
        write_by_hand(address, topic, rows, "id")

    return [
        compared(FORM, "upsert_rows, dicts", upsert_rows, by_hand, count, runs),
        compared(FORM, "upsert, each", upsert_each, by_hand, count, runs),
    ]


def copies(catalog: Catalog, address: str, count: int, runs: int, directory: Path) -> list[list[object]]:
    """Return the lines of replicas, of lookups in them, and of changes."""
    table = create_table(catalog, "copies")
    with table.writer() as writer:
        writer.upsert_rows(rows_of(count, KEYS))
        end = writer.flush(600)
    topic, dice = str(table.info.topic), random.Random(1)
    chosen = [dice.randrange(min(KEYS, count)) for _ in range(count)]
    kept: dict[bytes, bytes] = {}

    def copy_by_hand() -> None:
        kept.update(read_by_hand(address, topic, count))

    def copy(**settings: Any) -> None:
        with table.replica(**settings) as replica:
            replica.wait_for(end, 600)

    def copy_on_disk() -> None:
        copy(store=RocksDBStore, directory=directory / common.unique("copy"))

    def find_by_hand() -> None:
        for number in chosen:
            orjson.loads(kept[orjson.dumps(number)])

    def follow() -> None:
        with table.subscribe(start="earliest", changes="full") as stream:
            while not stream.position.covers(end):
                stream.poll(1.0)

    def follow_by_hand() -> None:
        before: dict[bytes, Any] = {}
        changes = []
        for key, value in read_by_hand(address, topic, count):
            row = orjson.loads(value)
            changes.append((before.get(key), row))
            before[key] = row

    lines = [
        compared(FORM, "copy in memory", lambda: copy(store=MemoryStore), copy_by_hand, count, runs),
        compared(FORM, "copy in RocksDB", copy_on_disk, copy_by_hand, count, runs),
    ]
    for what, settings in (
        ("get, memory", {"store": MemoryStore}),
        ("get, RocksDB", {"store": RocksDBStore, "directory": directory / "lookups"}),
    ):
        with table.replica(**settings) as replica:
            replica.wait_for(end, 600)

            def find(get: Callable[[Any], Any] = replica.get) -> None:
                for number in chosen:
                    get(number)

            lines.append(compared(FORM, what, find, find_by_hand, count, runs))
    return [*lines, compared(FORM, "changes with former rows", follow, follow_by_hand, count, runs)]


def merges(catalog: Catalog, address: str, count: int, directory: Path) -> list[object]:
    """Return the line of an application that merges partial updates."""
    table = create_table(catalog, "merges", maintained=True)
    with table.writer(columns=["id", "value"]) as writer:
        writer.upsert_rows([{"id": n % KEYS, "value": n / 2} for n in range(count)])
        end = writer.flush(600)
    app = Application(
        address,
        consumer_group=common.unique("merges"),
        catalog=catalog,
        state_dir=directory / "state",
        spark_master="processes[2]",
        processing_mode="resident",
        loglevel=None,
    )
    app.maintain(table)
    begun = time.perf_counter()
    app.start()
    try:
        table.get(0, after=end, timeout=600)
        taken = time.perf_counter() - begun
    finally:
        app.stop(wait=True)
    return [FORM, "merges, by the clock", shown(count / taken), "", ""]


def main() -> None:
    """Run the benchmark."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="measured runs, of which medians are shown")
    options.add_argument("--rows", type=int, default=400_000, help="rows that are written")
    chosen = options.parse_args()
    store = MemoryCatalog()
    with common.broker() as address, common.scratch() as scratch, Catalog(address, store=store) as catalog:
        lines = writes(catalog, address, chosen.rows, chosen.runs)
        lines += copies(catalog, address, chosen.rows, chosen.runs, scratch)
        lines.append(merges(catalog, address, chosen.rows, scratch))
        title = f"{chosen.rows:,} rows of {KEYS:,} keys: per second of processor time"
        common.show(title, ["format", "what", "StreamRT", "by hand", "StreamRT / by hand"], lines)


if __name__ == "__main__":
    main()
