"""Header names that are not UTF-8 fail no reader, however many records have them."""

import contextlib
from typing import Any

import pytest
from confluent_kafka import Consumer

from streamrt.kafka import ConnectionConfig
from streamrt.kafka.reading.partition_feed import PartitionFeed
from streamrt.kafka.reading.stored import StoredReader
from streamrt.records import Record, TopicPartition
from tests.kafka.brokers import produce_headers
from tests.kafka.feed_world import assign
from tests.support import Kafka, unique

pytestmark = pytest.mark.kafka

# Python specializes calls that are made often.
NUMBER = 20
FOUND = [
    [("h", b"2"), ("\ufffd", b"3"), ("\u00fc", b"4"), ("\ufffd", b"5")],
    None,
    *[[("\ufffd", b"6")]] * NUMBER,
]


@pytest.fixture
def place(kafka: Kafka) -> TopicPartition:
    topic = kafka.topic()
    produce_headers(
        kafka.address, topic, [(b"h", b"2"), (b"\xff\xfe", b"3"), ("\u00fc".encode(), b"4"), (b"\xc3", b"5")]
    )
    kafka.produce(topic, [b"2"], raw=True)
    for _ in range(NUMBER):
        produce_headers(kafka.address, topic, [(b"\x80", b"6")])
    return TopicPartition(topic, 0)


def test_records_of_a_feed(kafka: Kafka, place: TopicPartition) -> None:
    found: list[Any] = []
    with contextlib.closing(PartitionFeed(ConnectionConfig(bootstrap_servers=kafka.address))) as feed:
        assign(feed, {place: 0})
        while len(found) < len(FOUND):
            for _, batch in feed.poll(10, 4):
                found += batch.headers or [None] * len(batch.keys)
    assert found == FOUND


def test_stored_records(kafka: Kafka, place: TopicPartition) -> None:
    with contextlib.closing(StoredReader(ConnectionConfig(bootstrap_servers=kafka.address))) as reader:
        found = [record.headers for record in reader.read(place, 0, len(FOUND), timeout_s=60)]
    assert found == [headers or [] for headers in FOUND]


def test_messages_of_a_consumer(kafka: Kafka, place: TopicPartition) -> None:
    topic = kafka.app(unique("group")).topic(place.topic, key_deserializer="bytes", value_deserializer="bytes")
    rows: list[Any] = []
    settings = {"bootstrap.servers": kafka.address, "group.id": unique("group"), "auto.offset.reset": "earliest"}
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.subscribe([place.topic])
        while len(rows) < len(FOUND):
            message = consumer.poll(10)
            if message is not None and message.error() is None:
                row = topic.row_deserialize(message)
                assert isinstance(row, Record)
                rows.append((topic.deserialize(message).headers, row.headers))
    assert rows == [(headers, headers) for headers in FOUND]
