"""The lease among processes, with a broker; `test_sources.py` has processes that are frozen and killed."""

import time

import pytest
from confluent_kafka import TopicPartition

from streamrt.kafka import ConnectionConfig, Consumer
from streamrt.kafka.lease import GroupLease
from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka]


def test_brokers_are_asked_only_if_the_process_may_have_missed_its_end(kafka: Kafka) -> None:
    topic, group = kafka.topic(), unique("group")
    connection = ConnectionConfig(bootstrap_servers=kafka.address)
    reader = Consumer(connection, group, "earliest", auto_commit_enable=False)

    def asked() -> bool:
        """The question is a commit of the offset 0."""
        [partition] = reader.committed([TopicPartition(topic, 0)], 60)
        return bool(partition.offset == 0)

    with GroupLease(connection, group, topic, on_end=lambda: None) as lease:
        assert lease.acquire(60)
        assert lease.confirm()
        assert not asked()
        lease._ran_at = time.monotonic() - 3600
        assert lease.confirm()
        assert asked()
    reader.close()
