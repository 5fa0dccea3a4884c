"""What the benchmarks share: a broker with topics, many records quickly, and figures of several runs."""

import argparse
import os
import platform
import statistics
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import orjson
from rich.console import Console
from rich.table import Table

from streamrt.kafka import Producer, TopicAdmin, TopicConfig
from streamrt.testing import EmbeddedKafka
from streamrt.topics import Topic

PARTITIONS = 2
console = Console()


def parser(description: str) -> argparse.ArgumentParser:
    """Return the options that all benchmarks have."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--runs", type=int, default=5, help="measured runs, after one that is not counted")
    options.add_argument("--master", default="local[2]", help="Spark's master")
    return options


@contextmanager
def broker() -> Iterator[str]:
    """Yield the address of a fresh broker."""
    with EmbeddedKafka() as kafka:
        yield kafka.bootstrap_servers


def unique(name: str) -> str:
    """Return a name that no earlier run has used."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def create_topics(address: str, *names: str, partitions: int = PARTITIONS) -> None:
    """Create topics."""
    TopicAdmin(address).create_topics([Topic(name, TopicConfig(partitions, 1)) for name in names])


def payload(number: int, padding: int = 60) -> bytes:
    """Return a JSON object of about 100 bytes."""
    return orjson.dumps({"id": number, "key": number % 1000, "value": number * 0.5, "padding": "x" * padding})


def fill(address: str, topic: str, records: int, partitions: int = PARTITIONS, keys: int = 1000) -> None:
    """Produce records, evenly over the partitions."""
    options = {"linger.ms": 50, "batch.num.messages": 10_000, "queue.buffering.max.messages": 1_000_000}
    with Producer(address, extra_config=options) as producer:
        for number in range(records):
            producer.produce(topic, payload(number), key=b"%d" % (number % keys), partition=number % partitions)
        producer.flush()


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of all values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def machine() -> str:
    """Return one line about the machine."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table of results."""
    table = Table(title=title, caption=machine())
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{cell:,.1f}" if isinstance(cell, float) else str(cell) for cell in row))
    console.print(table)
