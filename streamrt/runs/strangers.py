"""Looks for other applications in the consumer group: they take partitions of the topics that both read."""

import logging
from collections.abc import Callable, Collection, Iterable

from streamrt.kafka.cluster.groups import ListedMember
from streamrt.topics.internal import repartition_prefix

__all__ = ["strangers", "watch_strangers"]

logger = logging.getLogger("streamrt")

_FIRST_LOOK_S = 5.0
"""Delay of the first look, because an application has more urgent work at its start."""
_LONGEST_PAUSE_S = 600.0


def watch_strangers(
    group: str,
    topics: Collection[str],
    members: Callable[[], Iterable[ListedMember]],
    wait: Callable[[float], bool],
) -> None:
    """Look at the members of the group from time to time, and warn once of those that read other topics.

    The pauses between two looks grow, because such members are mostly there when an application starts.

    Args:
        group: the consumer group.
        topics: the topics that the application reads.
        members: returns the members of the group, none if they are unknown.
        wait: waits for a number of seconds; returns whether to end.
    """
    pause_s = _FIRST_LOOK_S
    while not wait(pause_s):
        found = strangers(members(), topics, group)
        if found:
            logger.warning(
                "consumer group %r has members that read topics which this application does not read: %s; applications in "
                "one group share the partitions of topics that both read, so each misses records: give each "
                "application another consumer_group, or run the same version of it everywhere",
                *(group, "; ".join(found)),
            )
            return
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def strangers(members: Iterable[ListedMember], topics: Collection[str], group: str) -> list[str]:
    """Return a description of each member that reads topics which an application does not read.

    Repartition topics of the group are ignored: another version of the application may have more of them.

    Args:
        members: the members of the group.
        topics: the topics that the application reads.
        group: the consumer group.

    Example:
        >>> from streamrt.records import TopicPartition
        >>> reads = (TopicPartition("orders", 0), TopicPartition("bills", 0))
        >>> strangers([ListedMember("rdkafka-1", "rdkafka", "10.0.0.7", reads)], ["orders"], "shop")
        ['rdkafka on 10.0.0.7 reads bills']
    """
    found = []
    for member in members:
        read = {partition.topic for partition in member.partitions}
        other = [name for name in sorted(read.difference(topics)) if not name.startswith(repartition_prefix(group))]
        if other:
            found.append(f"{member.client_id} on {member.host} reads {', '.join(other)}")
    return sorted(set(found))
