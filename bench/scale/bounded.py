"""Units of work that are bounded in time: one record that closes many windows, and functions that are slow."""

import argparse
import threading
import time
from typing import Any

import orjson
from typing_extensions import Self

from bench import common
from bench.scale.costs import place_of
from bench.scale.running import at_work, await_that, end_of, make_app
from streamrt import Application
from streamrt.kafka import Consumer, Producer, TopicAdmin
from streamrt.models import TopicPartition

CLOSING_KEYS = (100_000, 1_000_000)
LONGEST_UNIT_S = 1.0
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Units(common.Watcher):
    """Measures the duration of the units of work: from one commit, or micro-batch, to the next.

    Args:
        app: a running application.
    """

    def __init__(self, app: Application) -> None:
        super().__init__(every_s=0.005)
        self.seconds: list[float] = []
        self._app = app
        self._batches = 0
        self._at = 0.0

    def __enter__(self) -> Self:
        self._batches, self._at = self._app.progress().batches, time.monotonic()
        return super().__enter__()

    def look(self) -> None:
        """Store the duration of the last unit, if one has ended."""
        batches, now = self._app.progress().batches, time.monotonic()
        if batches != self._batches:
            self.seconds.append(now - self._at)
            self._batches, self._at = batches, now


def closing(address: str, chosen: argparse.Namespace) -> bool:
    """Let one record close the windows of many keys; return whether no unit was too long."""
    units: list[float] = []
    rows = [close_windows(address, keys, chosen, units) for keys in chosen.keys or CLOSING_KEYS]
    columns = ["keys", "s", "windows/s", "units", "median unit s", "longest unit s", "peak MB before", "while closing"]
    common.show(f"one record closes all windows, {place_of(chosen)}", columns, rows)
    return max(units, default=0.0) <= LONGEST_UNIT_S


def close_windows(address: str, keys: int, chosen: argparse.Namespace, all_units: list[float]) -> list[object]:
    """Close a window of each of so many keys; add the units of work, in seconds, and return a row of figures."""
    admin, group = TopicAdmin(address), common.unique("bench")
    source, target = common.unique("in"), common.unique("out")
    common.create_topics(address, source, target, partitions=1)
    common.fill(address, source, keys, partitions=1, keys=keys, timestamp=lambda number: START_MS + number % 1_000)
    partition = TopicPartition(source, 0)
    with common.scratch() as state_dir:
        app = make_app(address, state_dir, chosen, consumer_group=group)
        frame = app.dataframe(app.topic(source)).tumbling_window(HOUR_MS).count()
        frame.final(closing_strategy="partition").to_topic(app.topic(target))
        with at_work(app) as thread:
            with common.PeakMemory() as before:
                await_that(
                    lambda: (admin.committed(group, [partition])[partition] or 0) >= keys,
                    thread,
                    "the records of all keys",
                )
            with Units(app) as units, common.PeakMemory() as memory:
                begun = time.monotonic()
                with Producer(address) as producer:
                    producer.produce(source, common.payload(0), key=b"0", partition=0, timestamp=START_MS + 2 * HOUR_MS)
                await_that(lambda: end_of(admin, target) >= keys, thread, "the windows")
                seconds = time.monotonic() - begun
                # Until the last commit.
                time.sleep(2)
    all_units += units.seconds
    # A unit that has ended before the first look is not seen.
    seen = units.seconds or [float("nan")]
    figures = (len(units.seconds), common.median(seen), max(seen), before.peak_mb, memory.peak_mb)
    return [f"{keys:,}", seconds, keys / seconds, *figures]


def slow(address: str, chosen: argparse.Namespace) -> bool:
    """Process a backlog of slow records on all partitions but one; return whether all make progress."""
    number = (chosen.partitions or [12])[0]
    pause_s, backlog = chosen.pause / 1_000, int(chosen.seconds / chosen.pause * 1_000) + 1
    source, target = common.unique("in"), common.unique("out")
    common.create_topics(address, source, partitions=number)
    common.create_topics(address, target, partitions=1)

    def work(value: dict[str, Any]) -> dict[str, Any]:
        begun = time.time()
        time.sleep(pause_s)
        return {**value, "waited": begun - value["sent"]}

    done: dict[int, int] = dict.fromkeys(range(number), 0)
    waits: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        with Consumer(address, common.unique("bench"), "earliest") as consumer:
            consumer.subscribe([target])
            while not ended.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    value = orjson.loads(message.value() or b"")
                    done[value["partition"]] += 1
                    if value["partition"] == number - 1:
                        waits.append(value["waited"])

    def send(producer: Producer, partition: int) -> None:
        value = orjson.dumps({"partition": partition, "sent": time.time()})
        producer.produce(source, value, key=b"%d" % partition, partition=partition)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with common.scratch() as state_dir, Producer(address) as producer:
        for partition in range(number - 1):
            for _ in range(backlog):
                send(producer, partition)
        producer.flush()
        app = make_app(address, state_dir, chosen)
        app.dataframe(app.topic(source)).apply(work).to_topic(app.topic(target))
        with at_work(app) as thread:
            await_that(lambda: sum(done.values()) > 0, thread, "the first record")
            end = time.monotonic() + chosen.seconds
            while time.monotonic() < end:
                send(producer, number - 1)
                producer.flush()
                time.sleep(min(5.0, chosen.seconds / 5))
            begun = time.monotonic()
        stopped_s = time.monotonic() - begun
    ended.set()
    watcher.join()
    least = min(done[partition] for partition in range(number - 1))
    row = [str(least), str(max(done.values())), str(len(waits)), max(waits, default=float("nan")), stopped_s]
    common.show(
        f"{number} partitions, {chosen.pause} ms per record, {chosen.seconds:.0f} s, {chosen.mode}, {chosen.guarantee}",
        ["least records of a partition", "most", "records of the idle one", "longest wait s", "stop s"],
        [row],
    )
    return least > 0 and bool(waits)
