"""Shared by the benchmarks: a broker with topics, bulk loading, applications, rates, memory, statistics of runs."""

import abc
import argparse
import contextlib
import os
import platform
import socket
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import orjson
import psutil
from rich.console import Console
from rich.table import Table
from typing_extensions import Self

from streamrt import Application
from streamrt.config import ProcessingGuarantee, ProcessingMode
from streamrt.kafka import Producer, TopicAdmin, TopicConfig
from streamrt.testing import EmbeddedKafka
from streamrt.topics import Topic

PARTITIONS = 2
MODES: tuple[ProcessingMode, ...] = get_args(ProcessingMode)
GUARANTEES: tuple[ProcessingGuarantee, ...] = get_args(ProcessingGuarantee)
MASTER = "local[2]"
console = Console()


def parser(description: str, runs: int = 5) -> argparse.ArgumentParser:
    """Return the options of all benchmarks; `runs` is the default number of runs."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=runs, help="measured runs, of which medians are shown")
    options.add_argument("--master", default=MASTER, help="Spark's master")
    return options


def add_mode(options: argparse.ArgumentParser) -> None:
    """Add the option for the processing mode."""
    options.add_argument("--mode", choices=MODES, default=MODES[0])


@contextmanager
def broker(config: Mapping[str, str | int | bool] | None = None) -> Iterator[str]:
    """Yield the address of a fresh broker."""
    with EmbeddedKafka(config=config) as kafka:
        yield kafka.bootstrap_servers


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a directory for state that is removed afterwards."""
    # Processes that are about to end may still write.
    with tempfile.TemporaryDirectory(prefix="bench-state-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def application(
    address: str,
    state_dir: Path,
    *,
    mode: ProcessingMode = MODES[0],
    guarantee: ProcessingGuarantee = GUARANTEES[0],
    master: str = MASTER,
    **settings: Any,
) -> Application:
    """Return an application for the benchmarks: it reads from the first record on, in a new consumer group.

    Args:
        address: the broker.
        state_dir: directory for its state.
        mode: processing mode, one of `MODES`.
        guarantee: one of `GUARANTEES`.
        master: Spark's master.
        settings: additional settings; they override the others.
    """
    # A setting with its default value is taken from the environment.
    os.environ.pop("STREAMRT_PROCESSING_MODE", None)
    own: dict[str, Any] = {
        "consumer_group": unique("bench"),
        "auto_offset_reset": "earliest",
        "spark_master": master,
        "state_dir": state_dir,
        "processing_mode": mode,
        "processing_guarantee": guarantee,
        "loglevel": "WARNING",
    }
    return Application(address, **{**own, **settings})


def unique(name: str) -> str:
    """Return a name that no earlier run has used."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def create_topics(address: str, *names: str, partitions: int = PARTITIONS) -> None:
    """Create topics."""
    TopicAdmin(address).create_topics([Topic(name, TopicConfig(partitions, 1)) for name in names])


def payload(number: int, padding: int = 60) -> bytes:
    """Return a JSON object of about 100 bytes."""
    return orjson.dumps({"id": number, "key": number % 1000, "value": number * 0.5, "padding": "x" * padding})


def fill(
    address: str,
    topic: str,
    records: int,
    partitions: int = PARTITIONS,
    keys: int = 1000,
    timestamp: Callable[[int], int] | None = None,
) -> None:
    """Produce records, evenly over the partitions.

    Args:
        address: the broker.
        topic: the topic.
        records: number of records.
        partitions: partitions of the topic.
        keys: number of different keys.
        timestamp: returns the timestamp of a record, by its number, in milliseconds; the wall clock by default.
    """
    options = {"linger.ms": 50, "batch.num.messages": 10_000, "queue.buffering.max.messages": 1_000_000}
    with Producer(address, extra_config=options) as producer:
        for number in range(records):
            key = number % keys
            producer.produce(
                topic,
                payload(number),
                key=b"%d" % key,
                # Each key is in one partition.
                partition=key % partitions if keys >= partitions else number % partitions,
                timestamp=None if timestamp is None else timestamp(number),
            )
        producer.flush()


def measure(app: Application, records: int) -> float:
    """Run until so many records are processed; return records per second between the first and the last report."""
    marks: list[tuple[float, int]] = []
    ended = threading.Event()

    def watch() -> None:
        done = 0
        while done < records and not ended.wait(0.005):
            current = app.progress().records
            if current != done:
                done = current
                marks.append((time.monotonic(), done))
        app.stop()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        app.run()
    finally:
        ended.set()
    watcher.join()
    (first_at, first), (last_at, last) = marks[0], marks[-1]
    return (last - first) / (last_at - first_at)


class Watcher(abc.ABC):
    """Takes a measurement repeatedly, in a separate thread, for as long as a block lasts.

    Args:
        every_s: seconds between two measurements.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    @abc.abstractmethod
    def look(self) -> None:
        """Take one measurement."""

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            self.look()


class PeakMemory(Watcher):
    """Measures the peak memory of this process and all its descendants together, without the broker of the benchmark.

    Pages that processes share are counted once.

    Example:
        ```python
        with PeakMemory() as memory:
            app.run()
        print(memory.peak_mb)
        ```
    """

    def __init__(self, every_s: float = 0.5) -> None:
        super().__init__(every_s)
        self.peak_mb = 0.0

    def look(self) -> None:
        """Store the memory if it is the highest yet."""
        self.peak_mb = max(self.peak_mb, _memory_mb())


def _memory_mb() -> float:
    root = psutil.Process()
    total = 0
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            if "kafka.Kafka" not in process.cmdline():
                memory = process.memory_full_info()
                total += getattr(memory, "pss", 0) or memory.rss
    return total / 1_000_000


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which the fraction `share` of all values lies."""
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


def show_markdown(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of results for a page of the documentation."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    print(f"**{title}**\n", *("| " + " | ".join(line) + " |" for line in lines), sep="\n", end="\n\n", flush=True)
