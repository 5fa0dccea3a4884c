"""Detects other applications in the consumer group, which take partitions of the topics that both read."""

import logging
from collections.abc import Callable, Collection, Iterable

from streamrt.spark.java_group import Member
from streamrt.topics.internal import repartition_prefix

logger = logging.getLogger("streamrt")

_FIRST_S = 5.0
"""Delay of the first look, because an application has more urgent work at its start."""
_LONGEST_S = 600.0


def watch_strangers(
    group: str,
    topics: Collection[str],
    members: Callable[[], Iterable[Member] | None],
    wait: Callable[[float], bool],
) -> None:
    """Look at the members of the group from time to time, and warn once of those that read other topics.

    The pauses between two looks grow, because such members are mostly there when an application starts.

    Args:
        group: the consumer group.
        topics: the topics that the application reads.
        members: returns the members of the group, or None if they are unknown.
        wait: waits for a number of seconds; returns whether to end.
    """
    pause_s = _FIRST_S
    while not wait(pause_s):
        found = strangers(members() or (), topics, group)
        if found:
            logger.warning(
                "consumer group %r has members that read topics which this application does not read: %s; applications in "
                "one group share the partitions of topics that both read, so each misses records: give each "
                "application another consumer_group, or run the same version of it everywhere",
                *(group, "; ".join(found)),
            )
            return
        pause_s = min(pause_s * 2, _LONGEST_S)


def strangers(members: Iterable[Member], topics: Collection[str], group: str) -> list[str]:
    """Return a description of each member that reads topics which an application does not read.

    Repartition topics of the group are ignored: another version of the application may have more of them.

    Args:
        members: the members of the group.
        topics: the topics that the application reads.
        group: the consumer group.

    Example:
        >>> strangers([Member("rdkafka", "10.0.0.7", frozenset({"orders", "bills"}))], ["orders"], "shop")
        ['rdkafka on 10.0.0.7 reads bills']
    """
    found = []
    for member in members:
        other = [
            name for name in sorted(member.topics.difference(topics)) if not name.startswith(repartition_prefix(group))
        ]
        if other:
            found.append(f"{member.client} on {member.host} reads {', '.join(other)}")
    return sorted(set(found))
