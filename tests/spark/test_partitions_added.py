"""Partitions that are added to topics: read from their beginning where nothing depends on their number, refused elsewhere."""

from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from streamrt import Application
from streamrt.errors import TopicConfigurationError
from streamrt.models import TopicPartition
from tests.spark.stateful import admin_client, counting, feed
from tests.support import Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]


def grow(kafka: Kafka, topic: str, count: int) -> None:
    """Give a topic more partitions."""
    admin = admin_client(kafka)
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(20)
    wait_until(lambda: len(kafka.admin.list_topics()[topic].partitions) == count, what="the new partition")


def assigned(kafka: Kafka, group: str, topic: str, count: int) -> None:
    """Wait until an application has chosen where to begin in all partitions."""
    places = [TopicPartition(topic, number) for number in range(count)]
    wait_until(lambda: None not in kafka.admin.committed(group, places).values(), what="the assignment")


@pytest.mark.both_modes
@pytest.mark.rows("PF-B15")
def test_fault_5_added_partitions_are_read_from_their_beginning(kafka: Kafka) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out"), unique("group")
    feed(kafka, source, "z", 0)

    def app() -> Application:
        app = kafka.app(group, auto_offset_reset="latest")
        sdf = app.dataframe(app.topic(source, key_deserializer="str"))
        sdf = sdf.group_by(lambda value: value * 2, name="twice", key_serializer="str", key_deserializer="str")
        sdf.to_topic(app.topic(target, key_serializer="str"))
        return app

    with running(app()):
        assigned(kafka, group, source, 2)
        feed(kafka, source, "a", 1)
        kafka.values(target, 1)
        grow(kafka, source, 3)
        feed(kafka, source, "bc", 2)
        # It waits for a part of the 5 minutes after which librdkafka looks for partitions by itself.
        assert sorted(kafka.values(target, 3)) == ["a", "b", "c"]
    # Also while it is down; its repartition topic has the number of before.
    grow(kafka, source, 4)
    feed(kafka, source, "de", 3)
    feed(kafka, source, "f", 0)
    with running(app()):
        assert sorted(kafka.values(target, 6)) == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_fault_5_partitions_that_state_does_not_know_are_refused(kafka: Kafka, guarantee: str) -> None:
    source, group = kafka.topic("in", 2), unique("shop")
    seen: list[tuple[int, int]] = []
    app = counting(
        kafka,
        group,
        source,
        processing_guarantee=guarantee,
        on_message_processed=lambda topic, partition, offset: seen.append((partition, offset)),
    )

    def run() -> None:
        with running(app) as thread:
            assigned(kafka, group, source, 2)
            feed(kafka, source, "a", 0)
            wait_until(lambda: (0, 0) in seen, what="the first record")
            grow(kafka, source, 3)
            feed(kafka, source, "b", 2)
            wait_until(lambda: not thread.is_alive(), what="the refusal")

    with pytest.raises(TopicConfigurationError) as caught:
        run()
    message = str(caught.value)
    assert f"topic {source!r} has 3 partitions now, and had 2" in message
    assert "another consumer_group" in message
    assert seen == [(0, 0)]
    assert kafka.committed(group, source, 2) is None


def test_fault_5_merged_topics_may_grow_one_after_the_other(kafka: Kafka) -> None:
    left, right, group, target = kafka.topic("left", 2), kafka.topic("right", 2), unique("group"), kafka.topic("out")
    app = kafka.app(group, auto_offset_reset="latest")
    frames = [app.dataframe(app.topic(name)) for name in (left, right)]
    frames[0].concat(frames[1]).to_topic(app.topic(target))

    def values(count: int) -> list[Any]:
        return sorted(kafka.values(target, count))

    with running(app):
        assigned(kafka, group, left, 2)
        assigned(kafka, group, right, 2)
        grow(kafka, left, 3)
        feed(kafka, left, "a", 2)
        feed(kafka, left, "b", 0)
        assert values(1) == ["b"]
        grow(kafka, right, 3)
        feed(kafka, right, "c", 2)
        assert values(3) == ["a", "b", "c"]
