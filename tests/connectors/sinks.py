"""Common parts of tests of sinks: values in sinks and batches, and impatient retries."""

from typing import Any, TypeVar

from streamrt.connectors import BatchingSink
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch

S = TypeVar("S", bound=BatchingSink)

QUICK = Retries(attempts=2, first_wait_s=0.01, longest_wait_s=0.02, retry_after_s=3)


def add(sink: S, *values: Any, key: Any = b"key", start: int = 0, headers: Any = None) -> S:
    """Give values to a sink, from consecutive offsets."""
    for offset, value in enumerate(values, start):
        sink.add(value, key, 1_000 + offset, headers, "orders", 3, offset)
    return sink


def fill(sink: S, count: int = 1, start: int = 0, key: Any = b"k", value: Any = None) -> S:
    """Give a number of values to a sink: numbers, or the same value again and again."""
    offsets = range(start, start + count)
    return add(sink, *({"n": offset} if value is None else value for offset in offsets), key=key, start=start)


def batch_of(*values: Any, keys: Any = None, headers: Any = None, first: int = 40, topic: str = "orders") -> SinkBatch:
    """Return a batch of values from consecutive offsets, each under another key unless keys are given."""
    batch = SinkBatch(topic, 0)
    for number, value in enumerate(values):
        key = f"key-{number}" if keys is None else keys[number]
        batch.append(value, key, 1_000, headers, first + number)
    return batch
