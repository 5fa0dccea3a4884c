"""Rows per second of writes and scans of tables, beside clients and libraries by hand in the same run; latency.

Seconds are processor time of the process, its threads that fetch included, so other programs on the machine have little
effect. A scan takes less than that if a second core fetches.

Scans read a topic of rows of about 100 bytes (50 in Avro) into a table of Arrow and a DataFrame of pandas. By hand, that is a
consumer of confluent-kafka, orjson or fastavro for each value, and `pandas.DataFrame` over the dicts. Both sides run in turn;
medians count, and the ratio is that of the medians.

Writes are of five columns as JSON. By hand, that is `orjson.dumps` of each dict, and a producer of confluent-kafka with the
same options, whose delivery callback notes errors, because a writer tells lost rows, too.

Latency is wall-clock time from before a row is written and flushed until a loop of another thread has it. By hand, that is a
producer, and a consumer with its defaults.

    python -m bench.tables
    python -m bench.tables --rows 1000000 --format json
"""

import argparse
import io
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import confluent_kafka
import fastavro
import orjson
import pandas as pd
import pyarrow as pa

from bench import common
from streamrt import Catalog
from streamrt.kafka.writing.record_writer import DEFAULTS
from streamrt.tables import MemoryCatalog, Table

COLUMNS = "id BIGINT NOT NULL, key BIGINT NOT NULL, value DOUBLE NOT NULL, padding STRING NOT NULL"
FORMATS = ("json", "avro")
PROBES = 200
Decode = Callable[[bytes], Any]


def frame(rows: int) -> pd.DataFrame:
    """Return rows to write."""
    numbers = range(rows)
    made: pd.DataFrame = pd.DataFrame(
        {"id": numbers, "key": [n % 1000 for n in numbers], "value": [n / 2 for n in numbers], "padding": "x" * 40}
    )
    return made


def write_by_hand(address: str, topic: str, rows: Iterable[dict[str, Any]], key: str | None = None) -> None:
    """Write rows as JSON, with a column as key if one is named, as one does without tables."""
    errors: list[Any] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            errors.append(error)

    producer = confluent_kafka.Producer({"bootstrap.servers": address, **DEFAULTS})
    for number, row in enumerate(rows):
        producer.produce(
            topic, orjson.dumps(row), None if key is None else orjson.dumps(row[key]), on_delivery=delivered
        )
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()
    if errors:
        raise RuntimeError(errors[0])


def writes(catalog: Catalog, address: str, rows: int, runs: int) -> list[list[object]]:
    """Return the lines of writes."""
    name = f"default.{common.unique('writes').replace('-', '_')}"
    table = catalog.create_table(name, f"{COLUMNS}, name STRING", num_partitions=common.PARTITIONS)
    data = frame(rows).assign(name=[f"name {n % 100}" for n in range(rows)])
    topic, dicts, arrow = str(table.info.topic), data.to_dict("records"), pa.Table.from_pandas(data)

    def write(given: Any) -> None:
        with table.writer() as writer:
            writer.append_rows(given)
            writer.flush(600)

    def write_one_by_one() -> None:
        with table.writer() as writer:
            for each in dicts:
                writer.append(each)
            writer.flush(600)

    sides: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "append_pandas": (lambda: write(data), lambda: write_by_hand(address, topic, data.to_dict("records"))),
        "append_arrow": (lambda: write(arrow), lambda: write_by_hand(address, topic, arrow.to_pylist())),
        "append_rows, dicts": (lambda: write(dicts), lambda: write_by_hand(address, topic, dicts)),
        "append, each": (write_one_by_one, lambda: write_by_hand(address, topic, dicts)),
    }
    return [compared("json", what, *each, rows, runs) for what, each in sides.items()]


def compared(
    row_format: str, what: str, ours: Callable[[], Any], theirs: Callable[[], Any], rows: int, runs: int
) -> list[object]:
    """Return a line: medians of both sides, which run in turn."""
    pairs = [(timed(ours, rows), timed(theirs, rows)) for _ in range(runs)]
    mine, hand = (common.median([pair[side] for pair in pairs]) for side in (0, 1))
    return [row_format, what, shown(mine), shown(hand), shown(mine / hand)]


def decoder(table: Table, row_format: str) -> Decode:
    """Return what one writes by hand to read a value."""
    if row_format == "json":
        return orjson.loads
    schema = fastavro.parse_schema(table.schema.to_avro(table.name.replace(".", "_")))
    return lambda value: fastavro.schemaless_reader(io.BytesIO(value), schema, None)


def by_hand(address: str, topic: str, rows: int, decode: Decode) -> list[Any]:
    """Return all values of a topic, as a consumer reads them."""
    options = {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**options, "queued.min.messages": 100_000, "fetch.queue.backoff.ms": 2})
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(common.PARTITIONS)])
    found: list[Any] = []
    while len(found) < rows:
        found += [decode(message.value() or b"") for message in consumer.consume(5_000, 1.0)]
    consumer.close()
    return found


def timed(function: Callable[[], Any], rows: int) -> float:
    """Return rows per second of processor time."""
    begun = time.process_time()
    function()
    return rows / (time.process_time() - begun)


def scans(catalog: Catalog, address: str, row_format: str, rows: int, runs: int) -> list[list[object]]:
    """Return the lines of one format."""
    table = catalog.create_table(
        f"default.{common.unique(row_format).replace('-', '_')}",
        COLUMNS,
        format=row_format,
        num_partitions=common.PARTITIONS,
    )
    with table.writer(options={"assigner": "round-robin"}) as writer:
        writer.append_pandas(frame(rows))
        writer.flush(600)
    decode, topic = decoder(table, row_format), str(table.info.topic)
    sides: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "to Arrow": (
            lambda: table.scan().to_arrow(),
            lambda: pa.Table.from_pylist(by_hand(address, topic, rows, decode)),
        ),
        "to pandas": (
            lambda: table.scan().to_pandas(),
            lambda: pd.DataFrame(by_hand(address, topic, rows, decode)),
        ),
        "to dicts": (lambda: list(table.scan().rows()), lambda: by_hand(address, topic, rows, decode)),
    }
    return [compared(row_format, what, *each, rows, runs) for what, each in sides.items()]


def latency(catalog: Catalog, address: str) -> list[list[object]]:
    """Return the lines of milliseconds from a write to the row in the loop of a reader."""
    name = f"default.{common.unique('latency').replace('-', '_')}"
    table = catalog.create_table(name, "sent BIGINT", num_partitions=1)
    topic = str(table.info.topic)

    with table.subscribe(start="earliest") as stream, table.writer(options={"linger.ms": 0}) as writer:

        def append(sent: int) -> None:
            writer.append([sent])
            writer.flush()

        mine = probed(append, (record.row["sent"] for record in stream))
    producer = confluent_kafka.Producer({"bootstrap.servers": address, **DEFAULTS, "linger.ms": 0})
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, PROBES)])

    def produce(sent: int) -> None:
        producer.produce(topic, orjson.dumps({"sent": sent}))
        producer.flush()

    def received() -> Iterator[int]:
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                yield orjson.loads(message.value() or b"")["sent"]

    hand = probed(produce, received())
    consumer.close()
    sides = [(share, common.percentile(mine, share), common.percentile(hand, share)) for share in (0.5, 0.99)]
    return [
        ["json", f"append to row, ms, p{share * 100:.0f}", shown(ours), shown(theirs), shown(ours / theirs)]
        for share, ours, theirs in sides
    ]


def probed(write: Callable[[int], None], read: Iterator[int]) -> list[float]:
    """Return milliseconds from writes to reads, one after the other, without the first tenth."""
    found: list[float] = []
    ready = threading.Semaphore(0)

    def follow() -> None:
        for _ in range(PROBES):
            sent = next(read)
            found.append((time.perf_counter_ns() - sent) / 1e6)
            ready.release()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    for _ in range(PROBES):
        write(time.perf_counter_ns())
        if not ready.acquire(timeout=60):
            raise RuntimeError("a row did not arrive within 60 s")
        time.sleep(0.005)
    thread.join()
    return found[PROBES // 10 :]


def shown(number: float) -> str:
    """Return a number with three digits or more."""
    return f"{number:,.0f}" if number >= 100 else f"{number:,.2f}"


def main() -> None:
    """Run the benchmark."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="measured runs, of which medians are shown")
    options.add_argument("--rows", type=int, default=400_000, help="rows of each table")
    options.add_argument("--format", choices=FORMATS, action="append", help="format of scans; all by default")
    chosen = options.parse_args()
    with common.broker() as address, Catalog(address, store=MemoryCatalog()) as catalog:
        lines = writes(catalog, address, chosen.rows, chosen.runs)
        for each in chosen.format or FORMATS:
            lines += scans(catalog, address, each, chosen.rows, chosen.runs)
        lines += latency(catalog, address)
        title = f"Tables of {chosen.rows:,} rows: rows per second of processor time, or milliseconds"
        common.show(title, ["format", "what", "StreamRT", "by hand", "StreamRT / by hand"], lines)


if __name__ == "__main__":
    main()
