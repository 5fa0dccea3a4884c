"""Removes static members from a consumer group, which librdkafka cannot, by the Java client in Spark's JVM.

A static member that stops keeps its partitions until its session times out, so that a restart finds them again; after a
clean stop the other instances would wait for that.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

logger = logging.getLogger("streamrt")

_LEAVE_S = 5


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
