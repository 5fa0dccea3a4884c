"""Leaves the consumer group on behalf of static members.

A static member that stops keeps its partitions until its session times out, so that a restart finds them again. After a
clean stop that would make the other copies wait; librdkafka has no way to say so, but the Java client in Spark's JVM has.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession

logger = logging.getLogger("streamrt")

_LEAVE_S = 5


def leave_group(
    session: SparkSession, bootstrap_servers: str, options: Mapping[str, str], group: str, instance_ids: Iterable[str]
) -> None:
    """Remove static members from their group. A failure is logged only: then the session time-out does the same.

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
        properties = jvm.java.util.Properties()
        for name, value in {"bootstrap.servers": bootstrap_servers, **options}.items():
            properties.setProperty(name, value)
        kafka = jvm.org.apache.kafka.clients.admin
        client = kafka.Admin.create(properties)
        try:
            members = jvm.java.util.ArrayList()
            for instance_id in leaving:
                members.add(kafka.MemberToRemove(instance_id))
            request = kafka.RemoveMembersFromConsumerGroupOptions(members)
            client.removeMembersFromConsumerGroup(group, request).all().get(
                _LEAVE_S, jvm.java.util.concurrent.TimeUnit.SECONDS
            )
        finally:
            # By default, it waits for the answers of brokers that are away; with 0, for its thread however long that takes.
            client.close(jvm.java.time.Duration.ofSeconds(1))
    except Exception as error:  # noqa: BLE001 - stopping goes on whatever the JVM says
        logger.debug("the members could not leave group %s: %s", group, error)
