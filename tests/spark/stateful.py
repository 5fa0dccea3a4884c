"""Common parts of tests of state on Spark: an application that counts per key, and a look at what Kafka holds of it."""

import json
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import AdminClient

from streamrt import Application
from streamrt.errors import StreamRTError
from streamrt.kafka import ConnectionConfig, Producer
from streamrt.kafka.reading.changelog_reader import ChangelogReader
from streamrt.models import TopicPartition
from streamrt.state import State
from streamrt.state.changelog import POSITION_KEY
from streamrt.topics.internal import changelog_topic_name
from tests.support import Kafka

GUARANTEES = ("at-least-once", "exactly-once")

Counts = list[tuple[str, int]]


def count(value: Any, state: State) -> int:
    """Return how often the key was seen."""
    seen: int = state.get("seen", 0) + 1
    state.set("seen", seen)
    return seen


def counting(kafka: Kafka, group: str, source: str, **settings: Any) -> Application:
    """Return an application that counts the records of each key."""
    app = kafka.app(group, **settings)
    app.dataframe(app.topic(source, key_deserializer="str")).apply(count, stateful=True)
    return app


def counts(app: Application, timeout: float = 0.5) -> Counts:
    """Run an application until nothing comes any more; return keys with their numbers, in the order of processing."""
    return [(row["_key"], row["_value"]) for row in app.run(timeout=timeout, metadata=True)]


def feed(kafka: Kafka, topic: str, keys: str, partition: int | None = 0) -> None:
    """Produce one record for each letter, which is its key."""
    # An idempotent producer takes half a second to begin.
    with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
        for key in keys:
            producer.produce(topic, json.dumps(key).encode(), key=key.encode(), partition=partition)


def changelog(group: str, topic: str, store: str = "default") -> str:
    """Return the name of a changelog topic."""
    return changelog_topic_name(group, topic, store)


def changes(kafka: Kafka, topic: str, partition: int = 0) -> list[tuple[bytes, bytes | None]]:
    """Return the committed changelog records of a partition but for positions."""
    place = TopicPartition(topic, partition)
    low, high = kafka.admin.bounds(place)
    reader = ChangelogReader(ConnectionConfig(bootstrap_servers=kafka.address))
    try:
        found = [
            pair
            for batch in reader.read(place, low, high, timeout_s=20)
            for pair in zip(batch.keys, batch.values, strict=True)
        ]
    finally:
        reader.close()
    return [(key, value) for key, value in found if key != POSITION_KEY]


def admin_client(kafka: Kafka) -> AdminClient:
    """Return what users change things with while the application is down."""
    return AdminClient({"bootstrap.servers": kafka.address})


def set_offset(kafka: Kafka, group: str, topic: str, offset: int, partition: int = 0) -> None:
    """Set the committed offset of a group without members."""
    # Not by an admin client: `streamrt.kafka.cluster.committed` tells what happens to it without the group's coordinator.
    client = ConfluentConsumer({"bootstrap.servers": kafka.address, "group.id": group})
    try:
        place = ConfluentTopicPartition(topic, partition, offset)
        (committed,) = client.commit(offsets=[place], asynchronous=False)
    finally:
        client.close()
    assert committed.error is None, committed.error


def refused(app: Application, error: type[StreamRTError], *words: str) -> str:
    """Assert that an application refuses to run, in one sentence with the given words, and processes nothing."""
    with pytest.raises(error) as caught:
        app.run(timeout=1)
    message = str(caught.value)
    assert type(caught.value) is error, (type(caught.value), message)
    for word in words:
        assert word in message, message
    assert "\n" not in message
    assert ". " not in message, f"more than one sentence: {message}"
    assert not message.endswith(".")
    assert app.progress().records == 0
    return message
