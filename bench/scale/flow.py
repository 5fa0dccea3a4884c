"""A steady flow of records through all partitions, and the pauses of its outputs."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import orjson
from typing_extensions import Self

from bench import common
from bench.runners import RunnerError, Running
from bench.scale.running import END_S
from streamrt.kafka import Consumer, Producer


class Flow:
    """Produces to all partitions at a steady rate, and records the arrival of their outputs.

    Args:
        address: the broker.
        source: topic to write, with so many partitions.
        target: topic to read, which the case `where` of `bench.scale.program` writes.
        partitions: number of partitions.
        rate: records per second in each partition.
    """

    def __init__(self, address: str, source: str, target: str, partitions: int, rate: float) -> None:
        self._address, self._source, self._target = address, source, target
        self._partitions, self._rate = partitions, rate
        self._arrivals: dict[bytes, list[float]] = defaultdict(list)
        self._processes: dict[bytes, int] = {}
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

    def wait(self, *several: Running) -> float:
        """Wait until all partitions have outputs from now on; return the seconds that it took."""
        begun = time.monotonic()
        self.wait_for(
            lambda: sum(times[-1] >= begun for times in list(self._arrivals.values())) == self._partitions, *several
        )
        return time.monotonic() - begun

    def wait_for(self, condition: Callable[[], bool], *several: Running) -> None:
        """Wait for a condition.

        Raises:
            RunnerError: if a program ended, or it does not come true in time.
        """
        deadline = time.monotonic() + END_S
        while not condition():
            for running in several:
                running.check()
            if time.monotonic() > deadline:
                raise RunnerError("outputs of partitions are missing")
            time.sleep(0.05)

    def processes(self) -> dict[bytes, int]:
        """Return the process that each partition was in last."""
        return dict(self._processes)

    def pauses(self, since: float) -> dict[bytes, float]:
        """Return the longest time without an output of each partition since a time, in seconds."""
        longest = {}
        for partition, times in list(self._arrivals.items()):
            recent = [since, *(each for each in list(times) if each >= since), time.monotonic()]
            longest[partition] = max(after - before for before, after in pairwise(recent))
        return longest

    def _produce(self) -> None:
        begun, number = time.monotonic(), 0
        with Producer(self._address, extra_config={"linger.ms": 5}) as producer:
            while not self._ended.is_set():
                for partition in range(self._partitions):
                    value, key = common.payload(number), b"flow-%d" % partition
                    producer.produce(self._source, value, key=key, partition=partition)
                producer.poll(0)
                number += 1
                self._ended.wait(max(0.0, begun + number / self._rate - time.monotonic()))

    def _consume(self) -> None:
        with Consumer(self._address, common.unique("bench"), "latest") as consumer:
            consumer.subscribe([self._target])
            while not self._ended.is_set():
                message = consumer.poll(0.1)
                if message is None or message.error() is not None:
                    continue
                key = message.key()
                if isinstance(key, bytes) and key.startswith(b"flow-"):
                    self._processes[key] = orjson.loads(message.value() or b"")["process"]
                    self._arrivals[key].append(time.monotonic())
