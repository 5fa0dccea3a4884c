"""The cost of many partitions, many keys and slow functions.

    closing     one record closes a window of each of so many keys: duration of the longest unit of work, and memory
    slow        a function of 300 ms per record over twelve partitions: progress of each, and waiting time of a record
                in a partition that is otherwise idle; duration of a stop
    keys        microseconds per record of a count in state, by the number of keys
    partitions  64 and 200 partitions on two slots beside 2: throughput, memory, start, restore, and the pause of a
                partition while an instance joins and leaves

Each case runs in one processing mode, and each figure comes from one run: compare versions in turn, on a quiet machine.

    python -m bench.scale closing --keys 1000000 --mode resident
    python -m bench.scale slow --seconds 30
    python -m bench.scale keys --keys 1000 100000
    python -m bench.scale partitions --partitions 2 64 --records 50000
"""

import argparse
import contextlib
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import orjson
from typing_extensions import Self

from bench import common, runners
from bench.runners import Runner, Running
from streamrt import Application
from streamrt.kafka import Consumer, Producer, TopicAdmin
from streamrt.models import TopicPartition

CLOSING_KEYS = (100_000, 1_000_000)
LONGEST_UNIT_S = 5.0
KEYS = (1_000, 100_000, 1_000_000, 10_000_000)
PARTITIONS = (2, 64, 200)
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
END_S = 600.0


# -- Applications in this process --------------------------------------------------------------------------------------


@contextlib.contextmanager
def at_work(app: Application) -> Iterator[threading.Thread]:
    """Run an application in a thread for as long as the block lasts; raise its error."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            app.run()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        app.stop()
        thread.join()
    if errors:
        raise errors[0]


def await_that(condition: Callable[[], bool], thread: threading.Thread, what: str) -> None:
    """Wait until a condition holds.

    Raises:
        RunnerError: if the application ended, or the condition does not hold in time.
    """
    deadline = time.monotonic() + END_S
    while not condition():
        if not thread.is_alive() or time.monotonic() > deadline:
            raise runners.RunnerError(f"{what} did not come")
        time.sleep(0.01)


class Units(common.Watcher):
    """Measures the duration of the units of work: from one commit, or micro-batch, to the next.

    Args:
        app: a running application.
    """

    def __init__(self, app: Application) -> None:
        super().__init__(every_s=0.005)
        self.longest_s = 0.0
        self.count = 0
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
            self.longest_s = max(self.longest_s, now - self._at)
            self.count += batches - self._batches
            self._batches, self._at = batches, now


def end_of(admin: TopicAdmin, topic: str, partitions: int = 1) -> int:
    """Return the number of offsets in a topic."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    return sum(high for _, high in admin.offset_bounds(places, isolation_level="read_uncommitted").values())


def closing(address: str, chosen: argparse.Namespace) -> bool:
    """Let one record close the windows of many keys; return whether no unit was too long."""
    found = [close_windows(address, keys, chosen) for keys in chosen.keys or CLOSING_KEYS]
    columns = ["keys", "s", "windows/s", "units", "longest unit s", "peak MB before", "while closing"]
    common.show(f"one record closes all windows, {chosen.mode}, {chosen.guarantee}", columns, [row for row, _ in found])
    return max(longest for _, longest in found) <= LONGEST_UNIT_S


def close_windows(address: str, keys: int, chosen: argparse.Namespace) -> tuple[list[object], float]:
    """Close a window of each of so many keys; return a row of figures, and the longest unit in seconds."""
    admin = TopicAdmin(address)
    source, target = common.unique("in"), common.unique("out")
    common.create_topics(address, source, target, partitions=1)
    common.fill(address, source, keys, partitions=1, keys=keys, timestamp=lambda number: START_MS + number % 1_000)
    with common.scratch() as state_dir:
        app = common.application(address, state_dir, mode=chosen.mode, guarantee=chosen.guarantee, master=chosen.master)
        frame = app.dataframe(app.topic(source)).tumbling_window(HOUR_MS).count()
        frame.final(closing_strategy="partition").to_topic(app.topic(target))
        with at_work(app) as thread:
            with common.PeakMemory() as before:
                await_that(lambda: app.progress().records >= keys, thread, "the records of all keys")
            with Units(app) as units, common.PeakMemory() as memory:
                begun = time.monotonic()
                with Producer(address) as producer:
                    producer.produce(source, common.payload(0), key=b"0", partition=0, timestamp=START_MS + 2 * HOUR_MS)
                await_that(lambda: end_of(admin, target) >= keys, thread, "the windows")
                seconds = time.monotonic() - begun
                # Until the last commit.
                time.sleep(2)
    row: list[object] = [f"{keys:,}", seconds, keys / seconds, str(units.count), units.longest_s]
    return [*row, before.peak_mb, memory.peak_mb], units.longest_s


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
        app = common.application(address, state_dir, mode=chosen.mode, guarantee=chosen.guarantee, master=chosen.master)
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


def keys_cost(address: str, chosen: argparse.Namespace) -> bool:
    """Count records of so many keys."""
    rows = [count_keys(address, keys, chosen) for keys in chosen.keys or KEYS]
    columns = ["keys", "records", "µs per record", "peak memory MB"]
    common.show(f"count in state, {chosen.mode}, {chosen.guarantee}", columns, rows)
    return True


def count_keys(address: str, keys: int, chosen: argparse.Namespace) -> list[object]:
    """Count records of so many keys; all keys exist before the measured records come."""
    source, target = common.unique("in"), common.unique("out")
    common.create_topics(address, source, target)
    records = keys + (chosen.records or 500_000)
    common.fill(address, source, records, keys=keys)
    with common.scratch() as state_dir:
        app = common.application(address, state_dir, mode=chosen.mode, guarantee=chosen.guarantee, master=chosen.master)
        sdf = app.dataframe(app.topic(source))
        sdf = sdf.update(lambda value, state: state.set("n", state.get("n", 0) + 1), stateful=True)
        sdf.to_topic(app.topic(target))
        with common.PeakMemory() as memory, at_work(app) as thread:
            await_that(lambda: app.progress().records >= keys, thread, "the records of all keys")
            first, begun = app.progress().records, time.monotonic()
            await_that(lambda: app.progress().records >= records, thread, "the last record")
            seconds = time.monotonic() - begun
    measured = records - first
    cost = seconds / measured * 1_000_000 if measured else float("nan")
    return [f"{keys:,}", f"{measured:,}", cost, memory.peak_mb]


# -- Applications as processes -----------------------------------------------------------------------------------------


class Flow:
    """Produces to all partitions at a steady rate, and records the arrival of their outputs.

    Args:
        address: the broker.
        source: topic to write, with so many partitions.
        target: topic to read.
        partitions: number of partitions.
        rate: records per second in each partition.
    """

    def __init__(self, address: str, source: str, target: str, partitions: int, rate: float) -> None:
        self._address, self._source, self._target = address, source, target
        self._partitions, self._rate = partitions, rate
        self._arrivals: dict[bytes, list[float]] = defaultdict(list)
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def all_since(self, at: float) -> bool:
        """Return whether an output of each partition has come since a time of `time.monotonic()`."""
        return sum(times[-1] >= at for times in list(self._arrivals.values())) == self._partitions

    def pauses_since(self, at: float) -> list[float]:
        """Return the longest time without an output of each partition since a time, in seconds."""
        found = []
        for times in list(self._arrivals.values()):
            recent = [at, *(each for each in list(times) if each >= at), time.monotonic()]
            found.append(max(after - before for before, after in pairwise(recent)))
        return found

    def _produce(self) -> None:
        begun, number = time.monotonic(), 0
        with Producer(self._address, extra_config={"linger.ms": 5}) as producer:
            while not self._ended.is_set():
                for partition in range(self._partitions):
                    producer.produce(
                        self._source, common.payload(number), key=b"flow-%d" % partition, partition=partition
                    )
                producer.poll(0)
                number += 1
                self._ended.wait(max(0.0, begun + number / self._rate - time.monotonic()))

    def _consume(self) -> None:
        with Consumer(self._address, common.unique("bench"), "latest") as consumer:
            consumer.subscribe([self._target])
            while not self._ended.is_set():
                message = consumer.poll(0.1)
                key = None if message is None or message.error() is not None else message.key()
                if isinstance(key, bytes) and key.startswith(b"flow-"):
                    self._arrivals[key].append(time.monotonic())


def await_flow(flow: Flow, since: float, *several: Running) -> float:
    """Wait until outputs of all partitions come; return the seconds since a time."""
    deadline = time.monotonic() + END_S
    while not flow.all_since(since):
        for running in several:
            running.check()
        if time.monotonic() > deadline:
            raise runners.RunnerError("not all partitions have outputs")
        time.sleep(0.05)
    return time.monotonic() - since


def partitions_cost(address: str, chosen: argparse.Namespace) -> bool:
    """Measure a keyed count on several numbers of partitions."""
    rows: list[list[object]] = []
    runner = Runner(chosen.mode, chosen.guarantee)
    records = chosen.records or 400_000
    for partitions in chosen.partitions or PARTITIONS:
        source, target = common.unique("in"), common.unique("out")
        common.create_topics(address, source, target, partitions=partitions)
        common.fill(address, source, records, partitions=partitions, keys=max(1_000, partitions))
        with common.scratch() as state_dir:
            app = common.application(
                address, state_dir, mode=chosen.mode, guarantee=chosen.guarantee, master=chosen.master
            )
            app.dataframe(app.topic(source)).apply(lambda value: value).to_topic(app.topic(target))
            with common.PeakMemory() as memory:
                rate = common.measure(app, records)

        def instance(group: str | None = None, source: str = source, target: str = target) -> Running:
            return Running(runner, "count", address, source, target, master=chosen.master, group=group)

        with Flow(address, source, target, partitions, chosen.rate) as flow:
            begun = time.monotonic()
            with instance() as first:
                group = first.group
                start_s = await_flow(flow, begun, first)
                time.sleep(chosen.settle)
                stateful_mb = first.memory_mb()
                begun = time.monotonic()
                with instance(group) as second:
                    # Until it has joined, and all continue.
                    time.sleep(chosen.settle)
                    await_flow(flow, time.monotonic(), first, second)
                    joining = max(flow.pauses_since(begun))
                    begun = time.monotonic()
                await_flow(flow, time.monotonic(), first)
                leaving = max(flow.pauses_since(begun))
            # With another state directory: all of the state is restored.
            begun = time.monotonic()
            with instance(group) as again:
                restore_s = await_flow(flow, begun, again)
        rows.append([str(partitions), rate, memory.peak_mb, stateful_mb, start_s, joining, leaving, restore_s])
    columns = ["partitions", "records/s", "peak MB", "count MB", "start s", "longest pause, join", "leave", "restore s"]
    common.show(f"partitions on two slots, {chosen.mode}, {chosen.guarantee}", columns, rows)
    return True


CASES: dict[str, Callable[[str, argparse.Namespace], bool]] = {
    "closing": closing,
    "slow": slow,
    "keys": keys_cost,
    "partitions": partitions_cost,
}


def main() -> int:
    """Run the benchmark and print the figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("case", nargs="?", choices=CASES, help="only this case")
    options.add_argument("--master", default=common.MASTER, help="Spark's master")
    options.add_argument("--keys", type=int, nargs="+", help="closing, keys: only with so many keys")
    options.add_argument("--partitions", type=int, nargs="+", help="partitions, slow: only with so many")
    options.add_argument("--records", type=int, help="keys, partitions: records that are measured")
    options.add_argument("--seconds", type=float, default=60.0, help="slow: length of the run")
    options.add_argument("--pause", type=int, default=300, help="slow: milliseconds for each record")
    options.add_argument("--rate", type=float, default=2.0, help="partitions: records per second in each")
    options.add_argument("--settle", type=float, default=30.0, help="partitions: seconds for an instance to come up")
    options.add_argument("--guarantee", choices=common.GUARANTEES, default=common.GUARANTEES[0])
    common.add_mode(options)
    chosen = options.parse_args()
    with common.broker() as address:
        results = [CASES[name](address, chosen) for name in ([chosen.case] if chosen.case else CASES)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
