"""Output to topics. `to_topic` is a method of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from streamrt.dataframe.branch import Frame
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.operators import ToTopic
from streamrt.operators.functions import require_callable
from streamrt.operators.partitioning import Partitioner
from streamrt.topics import Topic

F = TypeVar("F", bound=Frame)


def to_topic(
    self: F,
    topic: Topic | Callable[[Any, Any, int, Any], Topic],
    key: Callable[[Any], Any] | None = None,
    partition: Partitioner | Literal["rebalance"] | None = None,
) -> F:
    """Produce the current value to a topic.

    The value is serialized at once: later changes do not affect the output. The output has the timestamp and
    headers of the record.

    Args:
        topic: the topic, or a function of value, key, timestamp and headers that returns it. Declare all topics
            with `Application.topic()` before `run()`.
        key: function from the value to the key of the output, which may be None; by default the record's key.
        partition: function of the value, the key of the output and the number of partitions of the topic, which returns
            the partition, from 0. By default the key determines it, as Kafka's clients do. The number is that of the start of
            the application: partitions that are added later are not used before the next start. "rebalance": one
            partition after the other, whatever the keys are.

    Returns:
        This frame; no assignment is needed.

    Raises:
        InvalidOperationError: if `topic` is neither a Topic nor callable, or `partition` neither callable nor "rebalance".

    Example:
        ```python
        sdf.to_topic(late, key=lambda value: value["carrier"])
        sdf.to_topic(lambda value, key, timestamp, headers: late if value["dep_delay"] > 0 else on_time)
        sdf.to_topic(by_day, partition=lambda value, key, count: value["day"] % count)
        ```
    """
    if isinstance(topic, str):
        raise ArgumentTypeError(
            f"to_topic() takes a Topic or a function that returns one, not a name: write to_topic(app.topic({topic!r}))"
        )
    if not isinstance(topic, Topic):
        require_callable("to_topic() takes a Topic or a function that returns one; it", topic)
    if key is not None:
        require_callable("to_topic(key=...)", key)
    if partition is not None and partition != "rebalance":
        if isinstance(partition, str):
            raise ArgumentValueError(f"to_topic(partition={partition!r}): it must be 'rebalance', or a function")
        require_callable("to_topic(partition=...)", partition)
    return self._in_place(ToTopic(topic, key, partition))
