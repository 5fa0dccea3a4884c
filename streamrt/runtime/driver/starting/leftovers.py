"""Checks for unprocessed records in repartition topics that only a former version of the application reads."""

import contextlib

from streamrt.errors import TopicConfigurationError
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.records import TopicPartition
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.topics.internal import repartition_prefix
from streamrt.topology import Topology

__all__ = ["refuse_leftovers"]

_JOINED = "--"


def refuse_leftovers(
    topology: Topology,
    group: str,
    admin: TopicAdmin,
    connection: ConnectionConfig,
    timeout: float,
) -> None:
    """Raise if a `group_by` that this version does not have has left unprocessed records.

    Args:
        topology: the operators, resolved.
        group: the consumer group.
        admin: client for topics and offsets.
        connection: the connection to Kafka.
        timeout: seconds to wait for each response of the cluster.

    Raises:
        TopicConfigurationError: if there are such records; names the topic and the solution.
        KafkaRequestError: if Kafka does not respond.
    """
    prefix = repartition_prefix(group)
    for topic in admin.topic_names(prefix, timeout=timeout):
        if topic in topology.sources:
            continue
        config = admin.inspect_topics([topic], timeout=timeout)[topic]
        count = 0 if config is None else config.num_partitions or 0
        partitions = [TopicPartition(topic, number) for number in range(count)]
        committed = admin.committed_stable(group, partitions, timeout=timeout)
        if topic.removeprefix(prefix).count(_JOINED) > 1 and all(found.offset is None for found in committed.values()):
            # The topic may belong to another group, whose name begins with this one followed by "--".
            continue
        ends = admin.offset_bounds(partitions, timeout=timeout, isolation_level="read_committed")
        for partition in partitions:
            low, end = ends[partition]
            start = committed[partition].offset
            start = low if start is None else max(start, low)
            if start < end and _has_records(connection, group, partition, start, end):
                raise TopicConfigurationError(
                    f"{partition} has unprocessed records from offset {start} to {end}, and no group_by of this version of "
                    "the application uses this topic of a former version: the grouping was renamed or removed, or the input "
                    "has one partition now; stop new input and run the former version until its lag is 0, or keep the name "
                    f"of the grouping (group_by(name=...)); if these records may be lost, delete the topic {topic}"
                )


def _has_records(connection: ConnectionConfig, group: str, partition: TopicPartition, start: int, end: int) -> bool:
    """Return whether an offset range has committed records, and not only transaction markers."""
    with contextlib.closing(KafkaTaskClients(connection, group)) as clients:
        return clients.has_records(partition, start, end)
