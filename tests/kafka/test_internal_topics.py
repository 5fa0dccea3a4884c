"""Repartition and changelog topics on a real broker: it accepts their settings, and they are as they must be."""

import pytest

from streamrt.errors import TopicConfigurationError
from streamrt.kafka import TopicConfig
from streamrt.topics import Topic, TopicManager
from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

UNLIMITED = "9223372036854775807"


@pytest.fixture
def manager(kafka: Kafka) -> TopicManager:
    return TopicManager(kafka.admin, unique("group"))


def declare(manager: TopicManager, topic: str) -> tuple[str, str, str]:
    """Declare a grouping, and the stores before and after it."""
    manager.topic(topic)
    repartition = manager.repartition_topic("a", topic).name
    changelog = manager.changelog_topic(topic, "default").name
    return repartition, changelog, manager.changelog_topic(repartition, "default.a").name


def test_internal_topics_are_made_from_their_inputs(kafka: Kafka, manager: TopicManager) -> None:
    settings = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "2000000", "retention.ms": "600000"}
    topic = kafka.topic("in", 3, settings)
    repartition, changelog, grouped = declare(manager, topic)
    manager.create_all_topics()
    manager.validate_all_topics()
    assert manager.missing_changelog_topics() == [changelog, grouped]
    manager.create_changelog_topics()
    manager.validate_changelog_topics()
    for name, policy in ((repartition, "delete"), (changelog, "compact"), (grouped, "compact")):
        actual = manager.broker_config(name)
        assert (actual.num_partitions, actual.replication_factor) == (3, 1)
        assert actual.extra_config["cleanup.policy"] == policy
        assert actual.extra_config["max.message.bytes"] == "2000000"
        assert actual.extra_config["retention.ms"] == actual.extra_config["retention.bytes"] == "-1"
        assert actual.extra_config["message.timestamp.type"] == "CreateTime"
        assert actual.extra_config.get("message.timestamp.after.max.ms", UNLIMITED) == UNLIMITED
    # A second start finds everything as it must be.
    manager.create_all_topics()
    manager.validate_all_topics()
    assert manager.missing_changelog_topics() == []


def test_an_event_time_far_ahead_survives_a_repartition_topic(kafka: Kafka, manager: TopicManager) -> None:
    repartition, *_ = declare(manager, kafka.topic("in", 2))
    manager.create_all_topics()
    far = 4_102_444_800_000  # the year 2100
    kafka.produce(repartition, [1], timestamp=far)
    (record,) = kafka.receive(repartition, 1)
    assert record.timestamp == far


def test_an_input_of_one_partition_gets_no_repartition_topic(kafka: Kafka, manager: TopicManager) -> None:
    topic = kafka.topic("in", 1)
    repartition, *_ = declare(manager, topic)
    manager.create_all_topics()
    manager.validate_all_topics()
    assert kafka.admin.inspect_topics([repartition]) == {repartition: None}
    assert manager.partition_counts() == {topic: 1}


def test_a_changelog_made_by_hand_must_be_compacted(kafka: Kafka, manager: TopicManager) -> None:
    manager.topic(kafka.topic("in", 2))
    changelog = manager.changelog_topic(next(iter(manager.topics)), "default").name
    kafka.admin.create_topics([Topic(changelog, TopicConfig(2, 1))])
    manager.validate_all_topics()
    with pytest.raises(TopicConfigurationError, match=f"{changelog} has cleanup.policy=delete, which deletes state"):
        manager.validate_changelog_topics()
