"""Seconds from kill -9 of an instance to the first output of its partitions from another one, by size of state.

Two instances without Spark count records by key, each with half of the partitions. When all records are counted, and the
copies of state are complete if there are any, one instance is killed with all its processes, while records flow on.
Both have a control server, by which the other one notices.

    python -m bench.takeover --keys 100000 1000000
    python -m bench.takeover --standbys 1 --guarantees exactly-once
"""

import contextlib
import itertools
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import orjson
from confluent_kafka import TopicPartition as KafkaPartition

from bench import common
from bench.runners import PROCESSES, Runner, RunnerError, Running
from streamrt.kafka import Consumer, Producer, TopicAdmin
from streamrt.records import TopicPartition

PARTITIONS = 4
LONGEST_S = 900.0
RATE = 100
_LAG = "streamrt_standby_lag_offsets{"


def gauges(port: int, name: str) -> list[float]:
    """Return the values of a metric of the control server at a port; none without an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return []
    return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)]


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    """Wait for a condition.

    Raises:
        RunnerError: if it does not come true in time.
    """
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        if time.monotonic() > deadline:
            raise RunnerError(f"{what}: not within {LONGEST_S:.0f} s")
        time.sleep(0.2)


def has_copies(port: int) -> bool:
    """Return whether an instance has complete copies of what the other one has."""
    return gauges(port, _LAG) == [0.0] * (PARTITIONS // 2)


def take_over(address: str, guarantee: str, keys: int, standbys: int, directory: Path) -> float:
    """Return the seconds from the kill to the first output of the partitions that have moved."""
    source, target, group = (common.unique(name) for name in ("in", "out", "bench"))
    common.create_topics(address, source, target, partitions=PARTITIONS)
    common.fill(address, source, keys, PARTITIONS, keys)
    ports = [common.free_port(), common.free_port()]
    admin = TopicAdmin(address)

    def written() -> int:
        return sum(end for _, end in admin.offset_bounds(places_of(target)).values())

    with contextlib.ExitStack() as stack:
        instances = [
            stack.enter_context(
                Running(
                    Runner(PROCESSES, guarantee),
                    "count",
                    address,
                    source,
                    target,
                    group=group,
                    state_dir=directory / str(port),
                    options=["--control", str(port)],
                    environment={"STREAMRT_STANDBY_REPLICAS": str(standbys)},
                )
            )
            for port in ports
        ]
        wait_until("all records are counted", lambda: written() >= keys)
        wait_until("two instances", lambda: len(admin.group_members(group)) == 2 * len(ports))
        for port in ports if standbys else ():
            wait_until("copies are complete", partial(has_copies, port))
        instances[1].kill()
        return time_outputs(address, source, target)


def time_outputs(address: str, source: str, target: str) -> float:
    """Produce to all partitions; return the seconds until each of them has had an output.

    Raises:
        RunnerError: if one has none in time.
    """
    begun = time.monotonic()
    waiting = set(range(PARTITIONS))
    with Producer(address) as producer, Consumer(address, common.unique("bench"), "latest") as consumer:
        admin = TopicAdmin(address)
        ends = {place: end for place, (_, end) in admin.offset_bounds(places_of(target)).items()}
        consumer.assign([KafkaPartition(target, place.partition, end) for place, end in ends.items()])
        for number in itertools.count():
            for partition in range(PARTITIONS):
                producer.produce(
                    source,
                    orjson.dumps({"begun": begun, "partition": partition}),
                    key=b"%d" % number,
                    partition=partition,
                )
            message = consumer.poll(1 / RATE)
            if message is not None and message.error() is None:
                output = orjson.loads(message.value())
                if output.get("begun") == begun:
                    waiting.discard(output["partition"])
            seconds = time.monotonic() - begun
            if not waiting:
                return seconds
            if seconds > LONGEST_S:
                raise RunnerError(f"no output of partitions {sorted(waiting)} came for {LONGEST_S:.0f} s")
    raise AssertionError


def places_of(topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic."""
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


def main() -> int:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "", runs=3)
    options.add_argument("--keys", type=int, nargs="+", default=[1_000, 1_000_000])
    options.add_argument("--standbys", type=int, nargs="+", choices=(0, 1), default=[0, 1])
    options.add_argument("--guarantees", nargs="+", choices=common.GUARANTEES, default=list(common.GUARANTEES))
    chosen = options.parse_args()
    rows: list[list[object]] = []
    with common.broker() as address:
        for keys, guarantee, standbys in itertools.product(chosen.keys, chosen.guarantees, chosen.standbys):
            seconds = []
            for _ in range(chosen.runs):
                with common.scratch() as directory:
                    seconds.append(take_over(address, guarantee, keys, standbys, directory))
                common.console.print(f"{keys:,} keys, {guarantee}, {standbys} standby: {seconds[-1]:.1f} s")
            rows.append([f"{keys:,}", guarantee, str(standbys), common.median(seconds), max(seconds)])
    common.show("takeover after kill -9", ["keys", "guarantee", "standbys", "median s", "longest s"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
