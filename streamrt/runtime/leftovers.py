"""What a former version of the application has left in repartition topics that this one does not read."""

import contextlib

from streamrt.errors import TopicConfigurationError
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.models import TopicPartition
from streamrt.runtime.kafka_clients import KafkaTaskClients
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
    """Refuse to begin while records of a `group_by` are on their way that this version does not have.

    Args:
        topology: the operators, resolved.
        group: the consumer group.
        admin: answers questions about topics and offsets.
        connection: how to reach Kafka.
        timeout: seconds to wait for each answer of the cluster.

    Raises:
        TopicConfigurationError: naming the topic and what to do.
        KafkaRequestError: if Kafka does not answer.
    """
    prefix = repartition_prefix(group)
    for topic in admin.topic_names(prefix, timeout=timeout):
        if topic in topology.sources:
            continue
        config = admin.inspect_topics([topic], timeout=timeout)[topic]
        count = 0 if config is None else config.num_partitions or 0
        places = [TopicPartition(topic, number) for number in range(count)]
        committed = admin.committed_stable(group, places, timeout=timeout)
        if topic.removeprefix(prefix).count(_JOINED) > 1 and all(found.offset is None for found in committed.values()):
            # It may be that of another group, whose name begins with ours and goes on behind "--".
            continue
        ends = admin.watermarks(places, timeout=timeout, isolation_level="read_committed")
        for place in places:
            low, end = ends[place]
            start = committed[place].offset
            start = low if start is None else max(start, low)
            if start < end and _has_records(connection, group, place, start, end):
                raise TopicConfigurationError(
                    f"{place} has records from offset {start} to {end} that are not processed yet, and no group_by of this "
                    "version of the application goes through this topic, which a former version has left: the grouping was "
                    "renamed or removed, or the input has one partition now; run the former version until its lag is 0 while "
                    "nothing new comes in, or keep the name of the grouping (group_by(name=...)); if they may be lost, "
                    f"delete the topic {topic}"
                )


def _has_records(connection: ConnectionConfig, group: str, place: TopicPartition, start: int, end: int) -> bool:
    """Tell whether there are committed records in an offset range, which may hold markers of transactions only."""
    with contextlib.closing(KafkaTaskClients(connection, group)) as clients:
        return clients.has_records(place, start, end)
