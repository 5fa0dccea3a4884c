"""Topics and the topic manager, on a cluster that lives in memory."""

import logging
import pickle
from collections.abc import Collection, Mapping
from typing import Any

import cloudpickle
import pytest

from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    InvalidOperationError,
    SerializationError,
    TopicCreationError,
    TopicNotFoundError,
)
from streamrt.kafka import TopicAdmin, TopicConfig
from streamrt.models import Headers, TimestampType
from streamrt.serializers import (
    BytesDeserializer,
    JSONDeserializer,
    JSONSerializer,
    SerializationContext,
    Serializer,
    StringSerializer,
)
from streamrt.topics import KafkaMessage, Topic, TopicAdministration, TopicManager, config_differences
from tests.unit.cluster import MemoryCluster


class Stamping(Serializer):
    def __init__(self, **headers: str) -> None:
        self._headers = headers

    @property
    def extra_headers(self) -> dict[str, str]:
        return self._headers

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes:
        return f"{ctx.topic}/{ctx.field.value}/{ctx.headers}/{value}".encode()


def extract(value: Any, headers: Headers | None, timestamp: int, kind: TimestampType) -> int:
    return timestamp + 1


def manage(cluster: MemoryCluster | None = None, **options: Any) -> TopicManager:
    return TopicManager(cluster or MemoryCluster(), "group", **options)


# Topic.


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-"])
def test_names(name: str) -> None:
    assert Topic(name).name == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "a\n", "a\0", "é", "x" * 250, "a:b", None, 5])
def test_names_that_are_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="not a valid topic name"):
        Topic(name)


def test_defaults() -> None:
    topic = Topic("t")
    assert isinstance(topic.value_deserializer, JSONDeserializer)
    assert isinstance(topic.key_deserializer, BytesDeserializer)
    assert topic.config is None
    assert topic.timestamp_extractor is None
    assert repr(topic) == "Topic('t')"


def test_an_unknown_serializer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="xml"):
        Topic("t", value_serializer="xml")  # type: ignore[arg-type]


@pytest.mark.parametrize("attribute", ["name", "config", "value_serializer", "new"])
def test_a_topic_cannot_be_changed(attribute: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Topic("t"), attribute, "x")


def test_a_topic_may_say_where_to_start() -> None:
    topic = Topic("t", auto_offset_reset="earliest")
    assert topic.with_config(TopicConfig(2, 1)).auto_offset_reset == "earliest"
    assert pickle.loads(pickle.dumps(topic)).auto_offset_reset == "earliest"
    assert Topic("t").auto_offset_reset is None
    assert Topic("t").differences(topic) == ["auto_offset_reset"]
    with pytest.raises(ArgumentValueError, match="auto_offset_reset of topic 't' is 'first'"):
        Topic("t", auto_offset_reset="first")  # type: ignore[arg-type]


@pytest.mark.parametrize("library", [pickle, cloudpickle])
def test_a_topic_can_be_pickled(library: Any) -> None:
    topic = Topic("t", TopicConfig(2, 1), value_serializer="int", timestamp_extractor=extract)
    copy = pickle.loads(library.dumps(topic))
    assert copy.name == "t"
    assert copy.config == TopicConfig(2, 1)
    assert copy.serialize(value=1) == topic.serialize(value=1)
    assert copy.timestamp_extractor(None, None, 1, TimestampType.TIMESTAMP_CREATE_TIME) == 2


def test_a_topic_with_a_lambda_can_be_shipped() -> None:
    topic = Topic("t", timestamp_extractor=lambda value, headers, timestamp, kind: 5)
    assert pickle.loads(cloudpickle.dumps(topic)).timestamp_extractor(0, None, 0, 0) == 5


def test_serialize() -> None:
    topic = Topic("t", key_serializer="str", value_serializer="json")
    assert topic.serialize(key="k", value={"a": 1}, headers={"h": "1"}, timestamp_ms=5) == KafkaMessage(
        b"k", b'{"a":1}', [("h", "1")], 5
    )
    # A null is a value in JSON.
    assert topic.serialize() == KafkaMessage(None, b"null", None, None)
    assert topic.serialize(key="", headers=[]).key == b""


def test_serializers_know_where_they_are_and_add_headers() -> None:
    topic = Topic("t", key_serializer=Stamping(), value_serializer=Stamping(a="2", b="3"))
    message = topic.serialize(key="k", value="v", headers=[("a", "1"), ("c", b"4")])
    assert message.key == b"t/key/[('a', '1'), ('c', b'4')]/k"
    assert message.value == b"t/value/[('a', '1'), ('c', b'4')]/v"
    assert message.headers == [("c", b"4"), ("a", "2"), ("b", "3")]


def test_deserialize() -> None:
    topic = Topic("t", key_deserializer="str", value_deserializer="json")
    assert topic.deserialize(b"k", b'{"a":1}', {"h": b"1"}) == ("k", {"a": 1})
    assert topic.deserialize(None, None) == (None, None)
    with pytest.raises(SerializationError):
        topic.deserialize(None, b"{")


# Declaring topics.


def test_the_admin_client_is_what_the_manager_needs() -> None:
    admin: TopicAdministration = TopicAdmin("localhost:9092")
    assert TopicManager(admin, "group").consumer_group == "group"


def test_a_declared_topic_gets_the_default_settings() -> None:
    manager = manage()
    topic = manager.topic("t", value_deserializer="str")
    assert topic.config == TopicConfig(1, 1, {})
    assert manager.topics == manager.all_topics == manager.non_changelog_topics == {"t": topic}
    manager.topics.clear()
    assert manager.topics == {"t": topic}


def test_settings_can_be_given_in_part() -> None:
    manager = manage()
    assert manager.topic_config(num_partitions=4) == TopicConfig(4, 1, {})
    config = manager.topic_config(replication_factor=3, extra_config={"retention.ms": 5, "preallocate": True})
    assert config == TopicConfig(1, 3, {"retention.ms": "5", "preallocate": "true"})


@pytest.mark.parametrize(
    ("partitions", "replicas", "error"),
    [
        (0, 1, ArgumentValueError),
        (2**31, 1, ArgumentValueError),
        (1, -1, ArgumentValueError),
        ("3", 1, ArgumentTypeError),
        (True, 1, ArgumentTypeError),
    ],
)
def test_numbers_that_no_topic_can_have_are_refused(partitions: Any, replicas: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"TopicConfig\(\w+=\.\.\.\) must be"):
        TopicConfig(partitions, replicas)


def test_registering_returns_the_topic_to_use() -> None:
    manager = manage()
    bare, complete = Topic("a"), Topic("b", TopicConfig(2, 1))
    assert manager.register(bare).config == TopicConfig(1, 1)
    assert manager.register(complete) is complete
    assert sorted(manager.topics) == ["a", "b"]


def test_declaring_the_same_topic_twice_is_allowed() -> None:
    manager = manage()
    manager.topic("t", key_serializer="str", config=TopicConfig(2, 1))
    again = manager.topic("t", key_serializer=StringSerializer(), config=TopicConfig(2, 1))
    assert manager.topics == {"t": again}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"key_serializer": "int"}, ["key_serializer"]),
        ({"value_deserializer": "str", "key_deserializer": "str"}, ["key_deserializer", "value_deserializer"]),
        ({"timestamp_extractor": extract}, ["timestamp_extractor"]),
        ({"key_serializer": StringSerializer("ascii")}, ["key_serializer"]),
        ({"value_serializer": JSONSerializer(dumps=repr)}, ["value_serializer"]),
    ],
)
def test_a_topic_may_be_declared_twice_with_other_serializers(changes: dict[str, Any], named: list[str]) -> None:
    manager = manage()
    first = manager.topic("t", key_serializer="str")
    second = manager.topic("t", **{"key_serializer": "str", **changes})
    assert first.differences(second) == named
    assert manager.topics == {"t": second}


def test_settings_in_the_cluster_are_declared_once_and_must_not_contradict_each_other() -> None:
    manager = manage()
    first = manager.topic("t")
    assert first.config is not None
    manager.topic("t", config=TopicConfig(3, 1))
    assert manager.topic("t", key_serializer="str").config == TopicConfig(3, 1)
    assert manager.register(first).config == TopicConfig(3, 1)
    with pytest.raises(ConfigurationError, match="topic t is declared twice with different settings in the cluster"):
        manager.topic("t", config=TopicConfig(4, 1))


# Creating and checking them.


def test_only_missing_topics_are_created() -> None:
    cluster = MemoryCluster(old=TopicConfig(3, 1))
    manager = manage(cluster, timeout=5, create_timeout=6)
    manager.topic("old")
    manager.topic("new", config=TopicConfig(2, 1))
    manager.create_all_topics()
    assert cluster.asked_to_create == ["new"]
    assert cluster.topics["new"].num_partitions == 2
    assert cluster.timeouts == [(5, 6)]
    manager.topic("newer")
    manager.create_all_topics(timeout=1, create_timeout=2)
    assert cluster.timeouts == [(5, 6), (1, 2)]
    manager.create_all_topics()
    assert cluster.asked_to_create == ["new", "newer"]


def test_nothing_is_created_without_permission() -> None:
    cluster = MemoryCluster()
    manager = manage(cluster, auto_create_topics=False)
    topic = manager.topic("t")
    manager.create_all_topics()
    assert cluster.asked_to_create == []
    manager.create_topics([topic])
    assert cluster.asked_to_create == ["t"]


def test_failures_are_passed_on() -> None:
    manager = manage()
    manager.topic("bad")
    with pytest.raises(TopicCreationError):
        manager.create_all_topics()


@pytest.mark.parametrize(("auto", "advice"), [(False, "auto_create_topics=True"), (True, "create_all_topics()")])
def test_all_missing_topics_are_named(auto: bool, advice: str) -> None:
    manager = manage(MemoryCluster(there=TopicConfig(1, 1)), auto_create_topics=auto)
    for name in ("there", "two", "one"):
        manager.topic(name)
    with pytest.raises(TopicNotFoundError) as caught:
        manager.validate_all_topics()
    assert "these topics do not exist: one, two" in str(caught.value)
    assert advice in str(caught.value)


class Lagging(MemoryCluster):
    """A cluster of which some brokers do not know all topics yet."""

    unknown: Mapping[str, int]

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        found = super().inspect_topics(topic_names, timeout)
        left = {name: self.unknown.get(name, 0) for name in topic_names}
        self.unknown = {**self.unknown, **{name: count - 1 for name, count in left.items()}}
        return {name: None if left[name] > 0 else config for name, config in found.items()}


def test_a3_a_broker_that_does_not_know_a_topic_yet_refuses_no_start() -> None:
    cluster = Lagging(first=TopicConfig(2, 1), second=TopicConfig(1, 1))
    cluster.unknown = {"first": 2, "repartition__group--first--k": 1}
    manager = manage(cluster)
    topic = manager.topic("first")
    manager.topic("second")
    manager.repartition_topic("k", topic.name)
    manager.create_all_topics()
    cluster.unknown = {"first": 2, "repartition__group--first--k": 2}
    manager.validate_all_topics()
    assert manager.broker_config("first").num_partitions == 2
    manager.changelog_topic("first", "store")
    manager.create_changelog_topics()
    cluster.unknown = {"changelog__group--first--store": 3}
    manager.validate_changelog_topics()
    cluster.unknown = {"changelog__group--first--store": 9}
    with pytest.raises(TopicNotFoundError, match="changelog__group--first--store"):
        manager.validate_changelog_topics()


def test_one_warning_tells_all_differences_of_a_topic(caplog: pytest.LogCaptureFixture) -> None:
    cluster = MemoryCluster(
        other=TopicConfig(4, 2, {"retention.ms": "100", "cleanup.policy": "compact"}),
        same=TopicConfig(4, 2, {"retention.ms": "100", "preallocate": "true"}),
        bare=TopicConfig(9, 9, {"retention.ms": "9"}),
        partly=TopicConfig(9, 9),
    )
    manager = manage(cluster)
    manager.topic("other", config=TopicConfig(3, 1, {"retention.ms": "7", "x": "1"}))
    manager.topic("same", config=manager.topic_config(4, 2, {"retention.ms": 100, "preallocate": True}))
    manager.topic("bare")
    # Only what was declared counts: the default of one copy was not.
    manager.topic("partly", config=manager.topic_config(num_partitions=9))
    with caplog.at_level(logging.WARNING, "streamrt.topics"):
        manager.validate_all_topics()
    (message,) = caplog.messages
    assert message.startswith(
        "Topic other differs from its declaration: num_partitions declared 3, actual 4; replication_factor declared 1, "
        "actual 2; retention.ms declared 7, actual 100; x declared 1, actual not set."
    )


def test_the_settings_in_the_cluster_can_be_asked_for() -> None:
    manager = manage(MemoryCluster(t=TopicConfig(5, 1)))
    manager.topic("t")
    with pytest.raises(InvalidOperationError, match="validate_all_topics"):
        manager.broker_config("t")
    manager.validate_all_topics()
    assert manager.broker_config("t").num_partitions == 5


def test_differences_ignore_what_is_left_open() -> None:
    assert config_differences(TopicConfig(None, None), TopicConfig(3, 3, {"a": "b"})) == []
