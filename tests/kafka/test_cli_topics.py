"""`streamrt topics`, `groups` and `lag` on a real broker."""

import contextlib

import pytest

from streamrt.kafka import Consumer, Producer, TopicConfig
from streamrt.models import TopicPartition
from streamrt.topics import Topic
from tests.command_line import Outcome, streamrt
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_topics_are_created_shown_and_deleted(kafka: Kafka) -> None:
    name, other = unique("orders"), unique("other")

    def topics(*arguments: object, stdin: str | None = None) -> Outcome:
        return streamrt("topics", *arguments, "--broker", kafka.address, stdin=stdin)

    created = topics("create", name, "--partitions", 3, "--set", "retention.ms=60000")
    assert created.out == f"created {name}: 3 partitions, replicas: 1\n"
    assert topics("list", "--prefix", name, "--json").json == {
        "topics": [{"name": name, "partitions": 3, "replicas": 1, "kind": None}]
    }
    assert topics("list").out.splitlines()[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS", "KIND"]
    kafka.produce(name, [1, 2], partition=1)
    shown = topics("show", name, "--json").json
    assert [at["end_offset"] for at in shown["partitions"]] == [0, 2, 0]
    assert shown["partitions"][1] == {
        "partition": 1,
        "leader": 1,
        "replicas": [1],
        "in_sync": [1],
        "first_offset": 0,
        "stable_end": 2,
        "end_offset": 2,
    }
    assert shown["options"]["retention.ms"] == "60000"
    text = topics("show", name).out
    assert f"{name}: 3 partitions, replicas: 1\n" in text
    assert "retention.ms            60000\n" in text
    assert f"{name} already exists, and nothing was created" in topics("create", other, name).sentence
    assert kafka.admin.inspect_topics([other]) == {other: None}
    assert topics("create", other, name, "--if-missing", "--json").json["topics"] == [
        {"name": other, "partitions": 1, "replicas": 1, "created": True},
        {"name": name, "partitions": 3, "replicas": 1, "created": False},
    ]
    assert f"{name} exists already" in topics("create", other, name, "--if-missing").out
    assert f"topic {other}-no does not exist" in topics("delete", other, f"{other}-no", "--yes").sentence
    assert topics("delete", other, name, stdin="n\n").code == 1
    assert None not in kafka.admin.inspect_topics([name, other]).values()
    third = unique("third")
    topics("create", third)
    assert topics("delete", third, "--yes", "--json").json == {"deleted": [third]}
    assert topics("delete", other, name, stdin="y\n").out.endswith(f"deleted {other}, {name}\n")
    wait_until(lambda: set(kafka.admin.inspect_topics([name, other]).values()) == {None})
    assert f"topic {name} does not exist" in topics("show", name).sentence


def test_a_topic_that_brokers_refuse_is_one_sentence(kafka: Kafka) -> None:
    outcome = streamrt("topics", "create", unique("x"), "--replication-factor", 7, "--broker", kafka.address)
    assert "set a replication_factor that is not above the number of brokers" in outcome.sentence


def test_kinds_of_internal_topics_are_named(kafka: Kafka) -> None:
    name = unique("changelog__shop--orders--default")
    kafka.admin.create_topics([Topic(name, TopicConfig(1, 1))])
    assert streamrt("topics", "list", "--prefix", name, "--broker", kafka.address).out.split()[-1] == "changelog"


def test_groups_and_their_lag(kafka: Kafka) -> None:
    group, topic = unique("group"), kafka.topic(partitions=3)
    broker = ("--broker", kafka.address)
    assert f"group {group} does not exist" in streamrt("groups", "show", group, *broker).sentence
    assert f"group {group} has committed no offset" in streamrt("lag", group, *broker).sentence
    kafka.produce(topic, [1, 2, 3], partition=0)
    options = {"transactional.id": unique("transaction")}
    with Producer(kafka.address, extra_config=options, transactional=True) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"1", partition=1)
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce(topic, b"2", partition=1)
        producer.flush()
        kafka.admin.set_committed(group, {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 1})
        found = streamrt("lag", group, *broker, "--json").json
        # In partition 1: a record, the marker of its transaction, and a record of an open one.
        assert found == {
            "group": group,
            "total": 4,
            "partitions": [
                {"topic": topic, "partition": 0, "committed": 1, "end": 3, "lag": 2, "open": 0},
                {"topic": topic, "partition": 1, "committed": 1, "end": 3, "lag": 2, "open": 1},
                {"topic": topic, "partition": 2, "committed": None, "end": 0, "lag": None, "open": 0},
            ],
        }
        producer.abort_transaction(30)
    text = streamrt("lag", group, *broker, "--topic", topic).out
    assert "1 partition without a committed offset not counted" in text
    listed = streamrt("groups", "list", "--prefix", group, *broker, "--json").json
    assert listed == {"groups": [{"name": group, "state": "empty", "protocol": "classic"}]}
    with contextlib.closing(Consumer(kafka.address, group, "earliest", auto_commit_enable=False)) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is not None)
        shown = streamrt("groups", "show", group, *broker, "--json").json
        assert (shown["state"], shown["protocol"]) == ("stable", "classic")
        [member] = shown["members"]
        assert member["partitions"] == [{"topic": topic, "partition": number} for number in range(3)]
        assert member["host"] == "127.0.0.1"
        assert f"{topic}[0], {topic}[1], {topic}[2]" in streamrt("groups", "show", group, *broker).out


def test_members_of_the_new_protocol_are_shown(kafka: Kafka) -> None:
    group, topic = unique("group"), kafka.topic()
    kafka.produce(topic, [1])
    options = {"group.protocol": "consumer", "client.id": "shop"}
    with contextlib.closing(Consumer(kafka.address, group, "earliest", extra_config=options)) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is not None)
        shown = streamrt("groups", "show", group, "--broker", kafka.address, "--json").json
    assert (shown["state"], shown["protocol"]) == ("stable", "consumer")
    [member] = shown["members"]
    assert (member["client_id"], member["host"]) == ("shop", "127.0.0.1")
    assert member["partitions"] == [{"topic": topic, "partition": 0}]
