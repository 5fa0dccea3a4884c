"""Where the records and the state of a key are: the partitioner of a `group_by`, or Kafka's hash of the serialized key."""

from typing import Any

from streamrt.errors import ConfigurationError
from streamrt.kafka.partitioner import partition_for
from streamrt.operators import Repartition
from streamrt.operators.partitioning import KeyPartitioner, checked_partition
from streamrt.serializers import (
    MessageField,
)
from streamrt.topics import Topic
from streamrt.topics.key_serializers import find_key_serializer
from streamrt.topology import MergeOperator, SourceOperator, Topology

__all__ = ["partition_of_key", "partitioner_of", "refuse_unlike_partitioners", "topic_of_keys"]


def topic_of_keys(topology: Topology, scope: str) -> Topic:
    """Return the topic of a scope whose keys say where state is: a repartition topic, if there is one."""
    # A broadcast topic has the keys of other records.
    topics = [name for name in topology.scopes[scope] if name not in topology.broadcasts]
    grouped = [name for name in topics if name in topology.exchanges] or topics
    source = topology.sources[grouped[0]].operator
    if not isinstance(source, SourceOperator):
        raise TypeError(f"{grouped[0]} is not read by a source")
    return source.topic


def partitioner_of(topology: Topology, topic: str) -> KeyPartitioner | None:
    """Return the function that chooses the partitions of a repartition topic; None for Kafka's."""
    exchange = topology.exchanges.get(topic)
    return exchange.operator.partitioner if exchange and isinstance(exchange.operator, Repartition) else None


def partition_of_key(topic: Topic, partitioner: KeyPartitioner | None, key: Any, count: int) -> int:
    """Return the partition of the records of a key, as producers choose it.

    Args:
        topic: the topic.
        partitioner: the partitioner of the `group_by` that writes the topic; None for Kafka's.
        key: the key, as operators see it; not None without a partitioner.
        count: number of partitions.

    Raises:
        StreamRTError: if the serializer of the topic refuses the key.
        TypeError: if the partitioner returns no int.
        ValueError: if the partitioner returns no partition.
    """
    if partitioner is not None:
        return checked_partition(partitioner(key, count), count, partitioner, topic.name)
    serialized = find_key_serializer(topic).bind(topic.name, MessageField.KEY)(key, None)
    return 0 if serialized is None else partition_for(serialized, count)


def refuse_unlike_partitioners(topology: Topology) -> None:
    """Raise if a join would look for equal keys in different partitions, because only one side has a partitioner.

    Args:
        topology: the operators, resolved, because a `group_by` without a topic has no partitions to choose.

    Raises:
        ConfigurationError: if the sides of a join have different partitioners.
    """
    for node in topology.nodes:
        if not (isinstance(node.operator, MergeOperator) and node.operator.by_key):
            continue
        roots = [root.operator.topic.name for root in topology.roots(node) if isinstance(root.operator, SourceOperator)]
        found = {name: partitioner_of(topology, name) for name in roots if name not in topology.broadcasts}
        if len(set(map(id, found.values()))) > 1:
            raise ConfigurationError(
                f"{node} joins topics whose records have different partitioners ({', '.join(sorted(found))}): equal keys "
                "would be in different partitions and not match; give group_by() of both sides the same partitioner"
            )
