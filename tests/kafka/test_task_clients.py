"""The Kafka clients of tasks: transactional writers that start at once."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from streamrt.errors import ConfigurationError, TransactionError
from streamrt.kafka import ConnectionConfig
from streamrt.models import TopicPartition
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.topology import TaskId
from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def owners(kafka: Kafka) -> dict[TaskId, TopicPartition]:
    topic = kafka.topic(partitions=5)
    return {TaskId(topic, number): TopicPartition(topic, number) for number in range(5)}


@pytest.fixture
def clients(kafka: Kafka) -> Iterator[KafkaTaskClients]:
    with closing(KafkaTaskClients(ConnectionConfig(bootstrap_servers=kafka.address), unique("group"))) as opened:
        yield opened


def test_prepared_writers_are_those_of_their_tasks(
    clients: KafkaTaskClients, owners: dict[TaskId, TopicPartition]
) -> None:
    clients.prepare_writers(owners)
    prepared = dict(clients._prepared)
    clients.prepare_writers(owners)
    last, *others = owners
    for task in others:
        writer = clients.transactional(task, owners[task])
        assert writer is prepared[task]
        assert clients.kept(task) is writer
        writer.commit({owners[task]: 1})
    assert {clients.committed(owners[task]) for task in others} == {1}
    # It moves to another process before it is opened.
    clients.release(last)
    assert not clients._prepared
    assert clients.transactional(last, owners[last]) is not prepared[last]


def test_a_prepared_writer_is_fenced_by_a_later_one(
    clients: KafkaTaskClients, owners: dict[TaskId, TopicPartition]
) -> None:
    task, owner = next(iter(owners.items()))
    clients.prepare_writers(owners)
    with clients.claiming(owner, owner.topic), pytest.raises(TransactionError, match="fenced"):
        clients.transactional(task, owner).commit({owner: 1})
    # The next attempt has a new one.
    clients.transactional(task, owner).commit({owner: 2})
    assert clients.committed(owner) == 2


def test_what_fails_is_told_by_the_task(kafka: Kafka, owners: dict[TaskId, TopicPartition]) -> None:
    connection, options = ConnectionConfig(bootstrap_servers=kafka.address), {"transaction.timeout.ms": 3_600_000}
    task, owner = next(iter(owners.items()))
    with closing(KafkaTaskClients(connection, unique("group"), options)) as clients:
        clients.prepare_writers(owners)
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="transaction timeout"):
                clients.transactional(task, owner)
