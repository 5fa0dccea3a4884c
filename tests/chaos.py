"""Shared by tests with kill -9: a program that counts by key, with timers and in windows, records for it, and a judge."""

import json
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from streamrt.kafka import Producer, TopicAdmin
from streamrt.kafka.partitioner import partition_for
from tests.support import LONG, Kafka, RunningProgram, list_partitions, read_topic, wait_until
from tests.unit.window_model import Model, Record, Window

PROGRAM = """
from streamrt import Application, ProcessFunction


class Number(ProcessFunction):
    def process_element(self, value, ctx):
        count = ctx.state.value("n", default=0)
        count.update(count.value() + 1)
        ctx.register_event_time_timer(ctx.timestamp + {timer_ms})
        yield {{"id": value["id"], "n": count.value()}}

    def on_timer(self, timestamp, ctx):
        yield {{"window": "timers", "at": timestamp, "n": ctx.state.value("n").value()}}


def name(window):
    return lambda value: {{"window": window, **value}}


app = Application(
    {address!r},
    consumer_group={group!r},
    auto_offset_reset="earliest",
    state_dir={state_dir!r},
    processing_guarantee="exactly-once",
    commit_interval=1.0,
    consumer_extra_config={consumer!r},
)
sdf, target = app.dataframe(app.topic({source!r})), app.topic({target!r})
tumbling = sdf.tumbling_window(1_000, grace_ms=20).collect().final(closing_strategy="partition")
tumbling.apply(name("tumbling")).to_topic(target)
hopping = sdf.hopping_window(2_000, 500).count().final()
hopping.apply(name("hopping")).to_topic(target)
sdf.process(Number(), clock="partition").to_topic(target)

if __name__ == "__main__":
    app.run()
"""
WINDOWS = {
    "tumbling": Window("tumbling", 1_000, grace=20, aggregation="collect", closing="partition"),
    "hopping": Window("hopping", 2_000, 500, aggregation="count"),
}
TIMER_MS = 25
"""How long after a record its timer is due: some are due at once, because records come late."""
KEYS = 100
MOST_AHEAD = 3_000 if LONG else 1_000
"""Records that lie before an application, which is killed from time to time."""
SLOWER = 1 if LONG else 3
"""How many times fewer records flow in an ordinary run. They flow for as long as a test lasts, which takes time from it."""


def kill_tree(program: RunningProgram) -> None:
    """Kill a program with everything that it has started, JVM and Python workers, at once."""
    root = psutil.Process(program.process.pid)
    victims = [root, *root.children(recursive=True)]
    for victim in victims:
        try:
            victim.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(victims, timeout=30)
    program.kill()


def tasks_of(program: RunningProgram) -> list[psutil.Process]:
    """Return the processes in which the tasks of a program run: children of Spark's daemon, or of a fork server."""
    found: list[psutil.Process] = []
    for process in psutil.Process(program.process.pid).children(recursive=True):
        try:
            parent = process.parent()
            if parent is not None and any(
                word in parent.cmdline() and word in process.cmdline()
                for word in ("streamrt.spark.workers.daemon", "streamrt fork server")
            ):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


class Flow:
    """Produces records with keys, each with an id of its own, and knows what must come out for them.

    Args:
        address: the broker.
        source: topic to produce to.
        seed: makes keys.
    """

    def __init__(self, address: str, source: str, seed: int) -> None:
        self._address = address
        self._source = source
        self._random = random.Random(seed)
        self.sent: dict[bytes, list[int]] = {}
        self.records: list[Record] = []
        self.count = 0

    def produce(self, records: int) -> None:
        """Produce some records and wait until they are delivered."""
        with Producer(self._address) as producer:
            self._produce(producer, records)

    def _produce(self, producer: Producer, records: int) -> None:
        for _ in range(records):
            key = b"key-%d" % self._random.randrange(KEYS)
            value = {"id": self.count}
            # A millisecond for each record, but for some that come late.
            timestamp = 1_000 + self.count - self.count * 31 % 40
            producer.produce(self._source, json.dumps(value).encode(), key=key, timestamp=timestamp)
            self.sent.setdefault(key, []).append(self.count)
            self.records.append(Record(key, timestamp, value))
            self.count += 1
        producer.flush()

    def read_back(self) -> None:
        """Take what the topic holds for what was sent, which must be there.

        Around the death of a broker, an idempotent producer may write a record twice, as librdkafka's issue 4953 tells.
        """
        found = Kafka(self._address, Path()).receive_committed(self._source)
        self.records = [Record(record.key, record.timestamp, json.loads(record.value or b"")) for record in found]
        assert {record.value["id"] for record in self.records} == set(range(self.count))
        self.sent.clear()
        for record in self.records:
            self.sent.setdefault(record.key or b"", []).append(record.value["id"])
        self.count = len(self.records)

    def windows(self) -> dict[tuple[str, bytes], list[dict[str, Any]]]:
        """Return the windows that must come out, by name and key, in order."""
        partitions = len(list_partitions(TopicAdmin(self._address), self._source))
        windows: dict[tuple[str, bytes], list[dict[str, Any]]] = {}
        for name, window in WINDOWS.items():
            models = [Model(window) for _ in range(partitions)]
            for record in self.records:
                for output in models[partition_for(record.key or b"", partitions)].record(record):
                    windows.setdefault((name, output.key), []).append(output.value)
        return {**windows, **self._timers(partitions)}

    def _timers(self, partitions: int) -> dict[tuple[str, bytes], list[dict[str, Any]]]:
        """Return what timers must put out, by key, as `windows` does: each of them once, with the count of that moment."""
        found: dict[tuple[str, bytes], list[dict[str, Any]]] = {}
        counts: dict[bytes, int] = {}
        clocks = [0] * partitions
        waiting: list[set[tuple[int, bytes]]] = [set() for _ in range(partitions)]
        for record in self.records:
            key = record.key or b""
            partition = partition_for(key, partitions)
            counts[key] = counts.get(key, 0) + 1
            clocks[partition] = max(clocks[partition], record.timestamp)
            timers = waiting[partition]
            timers.add((record.timestamp + TIMER_MS, key))
            for timer in sorted(each for each in timers if each[0] < clocks[partition]):
                timers.remove(timer)
                time, owner = timer
                found.setdefault(("timers", owner), []).append({"at": time, "n": counts[owner]})
        return found

    @contextmanager
    def running(self, outputs: "Outputs", per_step: int, pause_s: float) -> Iterator[None]:
        """Go on producing as long as the context lasts, but not too far ahead: a slow machine would never catch up."""
        over = threading.Event()

        def run() -> None:
            with Producer(self._address) as producer:
                while not over.wait(pause_s):
                    if self.count - outputs.count < MOST_AHEAD:
                        self._produce(producer, per_step // SLOWER)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class Outputs:
    """Reads committed records of a topic all the time, as an application behind ours would.

    Args:
        address: the broker.
        topic: the topic.
    """

    def __init__(self, address: str, topic: str) -> None:
        self.received: dict[bytes, list[tuple[Any, int]]] = {}
        self.windows: dict[tuple[str, bytes], list[dict[str, Any]]] = {}
        self.count = 0
        self._over = threading.Event()
        self._consumer = read_topic(address, topic)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            value = json.loads(message.value() or b"null")
            if "window" in value:
                self.windows.setdefault((value.pop("window"), message.key() or b""), []).append(value)
                continue
            self.received.setdefault(message.key() or b"", []).append((value["id"], value["n"]))
            self.count += 1
        self._consumer.close()

    def wait_for(self, count: int, timeout_s: float = 300.0) -> None:
        """Wait until so many records were counted; windows come besides."""
        wait_until(lambda: self.count >= count, timeout_s, f"{count} outputs")

    def close(self) -> None:
        """Stop reading."""
        self._over.set()
        self._thread.join()


def judge(flow: Flow, outputs: Outputs) -> None:
    """Compare what came out with what went in: each record once, in order by key, with the right count."""
    judge_by_key(flow.sent, outputs)


def judge_by_key(sent: Mapping[bytes, Sequence[Any]], outputs: Outputs) -> None:
    """Compare what came out with the ids that must come out by key: each once, in order, with the right count."""
    expected = {key: [(number, n) for n, number in enumerate(ids, 1)] for key, ids in sent.items()}
    wrong = [key for key in expected.keys() | outputs.received if expected.get(key) != outputs.received.get(key)]
    assert not wrong, (
        f"{len(wrong)} of {len(expected)} keys are wrong, such as {wrong[0]!r}: sent {expected.get(wrong[0], [])[:20]}, "
        f"got {outputs.received.get(wrong[0], [])[:20]}"
    )


def judge_windows(flow: Flow, outputs: Outputs) -> None:
    """Compare the windows that came out with those of the naive model: each once, and in order by key."""
    windows = flow.windows()
    count = sum(map(len, windows.values()))
    wait_until(lambda: sum(map(len, list(outputs.windows.values()))) >= count, what=f"{count} windows")
    for place in windows.keys() | outputs.windows:
        assert outputs.windows.get(place) == windows.get(place), place


def program_source(
    address: str, source: str, target: str, state_dir: Path, group: str, consumer: dict[str, object] | None = None
) -> str:
    """Return the program."""
    return PROGRAM.format(
        address=address,
        group=group,
        state_dir=str(state_dir),
        source=source,
        target=target,
        consumer=consumer or {},
        timer_ms=TIMER_MS,
    )
