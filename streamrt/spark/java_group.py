"""Consumer group operations that librdkafka lacks, by the Java client in Spark's JVM.

The client removes static members from the group. A static member that stops keeps its partitions until its session
times out, so that a restart finds them again; after a clean stop the other instances would wait for that. The client
also describes the group: with librdkafka 2.16, that ends the process if the coordinator goes away in the meantime. The
description shows other applications in the group, which take partitions of the topics that both read.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from streamrt.topics.internal import repartition_prefix

logger = logging.getLogger("streamrt")

_LEAVE_S = 5
_DESCRIBE_S = 10
_FIRST_LOOK_S = 5.0
"""Delay of the first look, because an application has more urgent work at its start."""
_LONGEST_PAUSE_S = 600.0


class Member(NamedTuple):
    """A member of a consumer group.

    Attributes:
        client: name of its client.
        host: its host.
        topics: topics of its assigned partitions.
    """

    client: str
    host: str
    topics: frozenset[str]


def leave_group(
    session: SparkSession, bootstrap_servers: str, options: Mapping[str, str], group: str, instance_ids: Iterable[str]
) -> None:
    """Remove static members from their group. A failure is only logged: the session timeout has the same effect later.

    Args:
        session: gives access to the JVM.
        bootstrap_servers: Kafka brokers.
        options: connection options of the Java client.
        group: the consumer group.
        instance_ids: `group.instance.id` of each member.
    """
    leaving = list(instance_ids)
    if not leaving:
        return
    try:
        jvm: Any = session.sparkContext._jvm
        kafka = jvm.org.apache.kafka.clients.admin
        with _open_admin(jvm, bootstrap_servers, options) as client:
            members = jvm.java.util.ArrayList()
            for instance_id in leaving:
                members.add(kafka.MemberToRemove(instance_id))
            request = kafka.RemoveMembersFromConsumerGroupOptions(members)
            client.removeMembersFromConsumerGroup(group, request).all().get(
                _LEAVE_S, jvm.java.util.concurrent.TimeUnit.SECONDS
            )
    except Exception as error:  # noqa: BLE001 - stopping continues after any error of the JVM
        logger.debug("the members could not leave group %s: %s", group, error)


def members_of_group(
    session: SparkSession, bootstrap_servers: str, options: Mapping[str, str], group: str
) -> list[Member] | None:
    """Return the members of a consumer group; None during a rebalance or if the request fails.

    Args:
        session: gives access to the JVM.
        bootstrap_servers: Kafka brokers.
        options: connection options of the Java client.
        group: the consumer group.
    """
    try:
        jvm: Any = session.sparkContext._jvm
        with _open_admin(jvm, bootstrap_servers, options) as client:
            asked = client.describeConsumerGroups(jvm.java.util.Collections.singletonList(group)).describedGroups()
            found = asked.get(group).get(_DESCRIBE_S, jvm.java.util.concurrent.TimeUnit.SECONDS)
            if str(found.state().toString()) != "Stable":
                return None
            return [_make_member(member) for member in found.members().toArray()]
    except Exception as error:  # noqa: BLE001 - nothing depends on it
        logger.debug("group %s could not be described: %s", group, error)
        return None


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
    pause_s = _FIRST_LOOK_S
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
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


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


def _make_member(described: Any) -> Member:
    topics = frozenset(str(partition.topic()) for partition in described.assignment().topicPartitions().toArray())
    return Member(str(described.clientId()), str(described.host()).removeprefix("/"), topics)


@contextlib.contextmanager
def _open_admin(jvm: Any, bootstrap_servers: str, options: Mapping[str, str]) -> Iterator[Any]:
    properties = jvm.java.util.Properties()
    for name, value in {"bootstrap.servers": bootstrap_servers, **options}.items():
        properties.setProperty(name, value)
    client = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    try:
        yield client
    finally:
        # By default, it waits for brokers that are away. With 0, it would wait for its thread without limit.
        client.close(jvm.java.time.Duration.ofSeconds(1))
