"""Partitions that functions of the user choose: for outputs, and for the records between two sub-topologies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.operators.functions import function_name
from streamrt.records import Headers
from streamrt.topics import Topic
from streamrt.topology import ExchangeOperator, Node, OperatorContext, PartitionSender, RecordHandler

__all__ = ["KeyPartitioner", "Partitioner", "Rebalance", "checked_partition", "in_turn"]

Partitioner = Callable[[Any, Any, int], int]
"""Function of value, key and the number of partitions of the topic; returns the partition, from 0."""

KeyPartitioner = Callable[[Any, int], int]
"""Function of key and the number of partitions of the topic; returns the partition, from 0."""


def checked_partition(chosen: Any, count: int, partitioner: Any, topic: str) -> int:
    """Return what a partitioner has returned, if it is a partition.

    Args:
        chosen: what it has returned.
        count: number of partitions of the topic.
        partitioner: the function, for the error.
        topic: name of the topic.

    Raises:
        TypeError: if it is not an int.
        ValueError: if the topic has no such partition.

    Example:
        >>> checked_partition(2, 3, max, "orders")
        2
        >>> checked_partition(3, 3, max, "orders")
        Traceback (most recent call last):
        ValueError: the partitioner max returned 3 for topic 'orders', which has the partitions 0 to 2
    """
    if not isinstance(chosen, int) or isinstance(chosen, bool):
        raise TypeError(
            f"the partitioner {function_name(partitioner)} must return an int for topic {topic!r}, got "
            f"{type(chosen).__name__}"
        )
    if not 0 <= chosen < count:
        raise ValueError(
            f"the partitioner {function_name(partitioner)} returned {chosen} for topic {topic!r}, which has the partitions 0 "
            f"to {count - 1}"
        )
    # Subclasses of int, such as enums, are not for Kafka's client.
    return int(chosen)


def in_turn(send: PartitionSender, count: int, node: Node) -> RecordHandler:
    """Return the function that produces records to one partition after the other.

    Args:
        send: produces a record to a partition.
        count: number of partitions.
        node: the node of the operator.
    """
    last = -1

    def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
        nonlocal last
        last = (last + 1) % count
        send(value, key, timestamp, headers, last)

    return run


@dataclass(frozen=True)
class Rebalance(ExchangeOperator):
    """Produces the records to the partitions of a repartition topic in turn, whatever their keys are.

    Attributes:
        topic: the repartition topic, the source of the next sub-topology.
        group: name of the operation.

    Example:
        >>> Rebalance(Topic("repartition__shop--orders--rebalance"), "rebalance").describe()
        'rebalance'
    """

    name: ClassVar[str] = "rebalance"
    topic: Topic
    group: str

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        return in_turn(*context.partition_sender(self.topic), node)

    def describe(self) -> str:  # noqa: D102
        return self.group
