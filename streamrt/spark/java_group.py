"""Consumer group operations that librdkafka lacks, by the Java client in Spark's JVM.

The client removes static members from the group. A static member that stops keeps its partitions until its session
times out, so that a restart finds them again; after a clean stop the other instances would wait for that. The client
also describes the group: with librdkafka 2.16, that ends the process if the coordinator goes away in the meantime.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

logger = logging.getLogger("streamrt")

_LEAVE_S = 5
_DESCRIBE_S = 10


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
