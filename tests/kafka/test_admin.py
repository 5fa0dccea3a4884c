"""`TopicAdmin` against a real broker."""

import logging
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState

from streamrt import Application
from streamrt.errors import KafkaBrokerUnavailableError, TopicCreationError
from streamrt.kafka import ConnectionConfig, Consumer, KafkaError, KafkaRequestError, Producer, TopicAdmin, TopicConfig
from streamrt.kafka.client import partition_offsets
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.models import TopicPartition
from streamrt.testing.kafka import EmbeddedKafka
from streamrt.testing.plugin import KafkaBroker
from tests.kafka.brokers import fake_broker, group_state, pending_commit
from tests.support import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@dataclass
class Definition:
    name: str
    config: TopicConfig | None = None


@pytest.fixture
def name() -> str:
    return f"admin-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def admin(kafka_broker: KafkaBroker) -> TopicAdmin:
    return TopicAdmin(kafka_broker.bootstrap_servers)


@pytest.fixture
def dead_address() -> Iterator[str]:
    # Bound but not listening: no other program can take the port while the test runs.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def produce(address: str, topic: str, count: int, partition: int = 0) -> None:
    with Producer(address) as producer:
        for number in range(count):
            producer.produce(topic, value=str(number), partition=partition)


def test_a_created_topic_is_ready_and_has_its_settings(admin: TopicAdmin, name: str) -> None:
    admin.create_topics([Definition(name, TopicConfig(3, 1, {"retention.ms": "60000"}))])
    found = admin.inspect_topics([name])[name]
    assert found is not None
    assert (found.num_partitions, found.replication_factor) == (3, 1)
    assert found.extra_config["retention.ms"] == "60000"
    assert found.extra_config["cleanup.policy"] == "delete"
    assert name in admin.list_topics(timeout=10)
    assert len(admin.offset_bounds([TopicPartition(name, number) for number in range(3)])) == 3


def test_creating_an_existing_topic_leaves_it_as_it_is(admin: TopicAdmin, name: str) -> None:
    admin.create_topics([Definition(name, TopicConfig(2, 1))])
    admin.create_topics([Definition(name, TopicConfig(5, 1))])
    found = admin.inspect_topics([name])[name]
    assert found is not None
    assert found.num_partitions == 2


def test_without_settings_the_cluster_decides(admin: TopicAdmin, name: str) -> None:
    admin.create_topics([Definition(name)])
    found = admin.inspect_topics([name])[name]
    assert found is not None
    assert (found.num_partitions, found.replication_factor) == (1, 1)


def test_inspecting_an_absent_topic_does_not_create_it(admin: TopicAdmin, name: str) -> None:
    other = f"{name}-other"
    admin.create_topics([Definition(other)])
    found = admin.inspect_topics([name, other])
    assert list(found) == [name, other]
    assert found[name] is None
    assert found[other] is not None
    assert admin.inspect_topics([name]) == {name: None}


def test_failures_are_told_together_and_the_others_are_created(admin: TopicAdmin, name: str) -> None:
    topics = [
        Definition(f"{name}-many", TopicConfig(1, 7)),
        Definition(f"{name}-odd", TopicConfig(1, 1, {"no.such.option": "1"})),
        Definition(f"{name}-good", TopicConfig(1, 1)),
    ]
    with pytest.raises(TopicCreationError) as caught:
        admin.create_topics(topics)
    text = str(caught.value)
    assert text.startswith("2 of 3 topics")
    assert f"{name}-many" in text
    assert "set a replication_factor that is not above the number of brokers" in text
    assert f"{name}-odd" in text
    assert "correct extra_config" in text
    assert f"{name}-good" not in text
    assert admin.inspect_topics([f"{name}-good"])[f"{name}-good"] is not None


def test_deleting(admin: TopicAdmin, name: str) -> None:
    admin.create_topics([Definition(name)])
    admin.delete_topics([name, f"{name}-absent"])
    wait_until(lambda: admin.inspect_topics([name]) == {name: None})


def test_watermarks(admin: TopicAdmin, name: str, kafka_broker: KafkaBroker) -> None:
    admin.create_topics([Definition(name, TopicConfig(2, 1))])
    produce(kafka_broker.bootstrap_servers, name, 5, partition=1)
    assert admin.offset_bounds([TopicPartition(name, 0), TopicPartition(name, 1)]) == {
        TopicPartition(name, 0): (0, 0),
        TopicPartition(name, 1): (0, 5),
    }
    assert admin.offset_bounds([]) == {}


def test_an_open_transaction_holds_back_what_is_committed(
    admin: TopicAdmin, name: str, kafka_broker: KafkaBroker
) -> None:
    admin.create_topics([Definition(name)])
    place = TopicPartition(name, 0)
    options = {"transactional.id": name}
    producer = Producer(kafka_broker.bootstrap_servers, extra_config=options, transactional=True)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, value=b"1")
    assert producer.flush(10) == 0
    assert admin.offset_bounds([place], isolation_level="read_uncommitted") == {place: (0, 1)}
    assert admin.offset_bounds([place], isolation_level="read_committed") == {place: (0, 0)}
    assert admin.offset_ends([place], [place]) == ({place: 0}, {place: 1})
    assert admin.offset_ends([], [place]) == ({}, {place: 1})
    producer.abort_transaction(30)
    # The abort marker takes an offset too; the broker writes it after it has answered the producer.
    wait_until(lambda: admin.offset_bounds([place], isolation_level="read_committed") == {place: (0, 2)})


def test_watermarks_of_an_absent_partition_name_the_reason(admin: TopicAdmin, name: str) -> None:
    admin.create_topics([Definition(name)])
    with pytest.raises(KafkaRequestError, match="start and end offsets could not be read"):
        admin.offset_bounds([TopicPartition(name, 9)], timeout=2)


def test_committed_offsets(admin: TopicAdmin, name: str, kafka_broker: KafkaBroker) -> None:
    admin.create_topics([Definition(name, TopicConfig(2, 1))])
    one, two = TopicPartition(name, 0), TopicPartition(name, 1)
    assert admin.committed(name, [one, two]) == {one: None, two: None}
    with Consumer(kafka_broker.bootstrap_servers, name, "earliest", auto_commit_enable=False) as consumer:
        consumer.commit(offsets=partition_offsets({two: 7}), asynchronous=False)
    assert admin.committed(name, [one, two]) == {one: None, two: 7}


def test_committed_waits_for_a_pending_transaction(admin: TopicAdmin, name: str, kafka_broker: KafkaBroker) -> None:
    admin.create_topics([Definition(name)])
    place = TopicPartition(name, 0)
    address = kafka_broker.bootstrap_servers
    with Consumer(address, name, "earliest", auto_commit_enable=False) as consumer:
        consumer.commit(offsets=partition_offsets({place: 3}), asynchronous=False)
        producer = Producer(address, extra_config={"transactional.id": name}, transactional=True)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(partition_offsets({place: 4}), consumer.consumer_group_metadata(), 30)
        assert admin.committed(name, [place], require_stable=False) == {place: 3}
        with pytest.raises(KafkaRequestError, match=r"(?i)unstable") as caught:
            admin.committed(name, [place], timeout=1)
        assert caught.value.retriable
        producer.commit_transaction(30)
        assert admin.committed(name, [place]) == {place: 4}


def test_metadata_of_committed_offsets(admin: TopicAdmin, name: str, kafka_broker: KafkaBroker) -> None:
    admin.create_topics([Definition(name, TopicConfig(3, 1))])
    one, two, three = (TopicPartition(name, number) for number in range(3))
    with Consumer(kafka_broker.bootstrap_servers, name, "earliest", auto_commit_enable=False) as consumer:
        consumer.commit(offsets=partition_offsets({one: 7}, "note \N{BLACK STAR}"), asynchronous=False)
        consumer.commit(offsets=partition_offsets({two: 8}), asynchronous=False)
    assert admin.committed_stable(name, [one, two, three]) == {
        one: CommittedOffset(7, "note \N{BLACK STAR}"),
        two: CommittedOffset(8),
        three: CommittedOffset(None),
    }
    assert admin.committed_stable(name, []) == {}


def test_stable_offsets_name_the_open_transaction(admin: TopicAdmin, name: str, kafka_broker: KafkaBroker) -> None:
    admin.create_topics([Definition(name)])
    place = TopicPartition(name, 0)
    with pending_commit(kafka_broker.bootstrap_servers, name, {place: 4}, "note") as producer:
        with pytest.raises(KafkaRequestError, match=r"transaction that may move them is open.* find-hanging") as caught:
            admin.committed_stable(name, [place], timeout=0.5)
        assert caught.value.code == KafkaError.UNSTABLE_OFFSET_COMMIT
        assert caught.value.retriable
        producer.abort_transaction(30)
    assert admin.committed_stable(name, [place]) == {place: CommittedOffset(None)}


def test_a_group_member_commits_metadata(admin: TopicAdmin, name: str, kafka_broker: KafkaBroker) -> None:
    admin.create_topics([Definition(name)])
    place = TopicPartition(name, 0)
    committed: list[CommittedOffset] = []
    member: GroupMember

    def on_revoke(partitions: frozenset[TopicPartition]) -> None:
        # Inside this callback commits take another way.
        member.commit({place: 6}, metadata="second")
        committed.append(admin.committed_stable(name, [place])[place])

    member = GroupMember(kafka_broker.bootstrap_servers, name, [name], on_revoke=on_revoke)
    with member:
        assert member.assignment(300) == frozenset({place})
        member.commit({place: 5}, metadata="first")
        assert admin.committed_stable(name, [place]) == {place: CommittedOffset(5, "first")}
        assert group_state(kafka_broker.bootstrap_servers, name) is ConsumerGroupState.STABLE
    assert committed == [CommittedOffset(6, "second")]
    assert group_state(kafka_broker.bootstrap_servers, name) is ConsumerGroupState.EMPTY


def test_ids(admin: TopicAdmin, name: str) -> None:
    admin.create_topics([Definition(name)])
    first = admin.topic_ids([name, f"{name}-absent"])
    assert first == {name: first[name], f"{name}-absent": None}
    assert first[name]
    admin.delete_topics([name])
    # It is gone, so that it can be created again.
    assert admin.topic_ids([name]) == {name: None}
    admin.create_topics([Definition(name)])
    assert admin.topic_ids([name])[name] not in (None, first[name])
    assert admin.topic_ids([]) == {}
    assert admin.cluster_id() == admin.cluster_id() != ""


def test_leaders_are_cached_before_requests_that_go_to_them(admin: TopicAdmin, name: str) -> None:
    # librdkafka crashes now and then when it looks for them itself.
    admin.create_topics([Definition(name, TopicConfig(2, 1))])
    one, two = TopicPartition(name, 0), TopicPartition(name, 1)
    # Brokers tell who leads a new partition a moment after its creation; until then, each request looks again.
    admin.offset_bounds([one, two])
    asked: list[str] = []
    list_topics = type(admin._requests.client).list_topics

    class Watched:
        """Notes for which topics metadata is requested."""

        def __getattr__(self, attribute: str) -> Any:
            return getattr(client, attribute)

        def list_topics(self, topic: str, timeout: float) -> Any:
            asked.append(topic)
            return list_topics(client, topic, timeout=timeout)

        def list_offsets(self, *args: Any, **options: Any) -> Any:
            assert asked, "the leaders are cached first"
            return client.list_offsets(*args, **options)

        def delete_records(self, *args: Any, **options: Any) -> Any:
            assert asked, "the leaders are cached first"
            return client.delete_records(*args, **options)

    for request in (lambda: admin.offset_bounds([one, two]), lambda: admin.delete_records({one: 0})):
        admin.close()
        asked.clear()
        client = admin._requests.client
        admin._requests._inner = Watched()
        for _ in range(3):
            request()
        assert asked == [name]


def test_deleting_records(admin: TopicAdmin, name: str, kafka_broker: KafkaBroker) -> None:
    admin.create_topics([Definition(name, TopicConfig(2, 1))])
    one, two = TopicPartition(name, 0), TopicPartition(name, 1)
    produce(kafka_broker.bootstrap_servers, name, 5, partition=0)
    admin.delete_records({})
    admin.delete_records({one: 3, two: 0})
    assert admin.offset_bounds([one, two]) == {one: (3, 5), two: (0, 0)}
    # Below the first offset and above the last one there is nothing to delete.
    admin.delete_records({one: 2, two: 9})
    assert admin.bounds(one) == (3, 5)
    admin.delete_records({one: 5})
    assert admin.bounds(one) == (5, 5)
    with pytest.raises(KafkaRequestError, match=rf"records of {name}-absent\[0\] could not be deleted"):
        admin.delete_records({TopicPartition(f"{name}-absent", 0): 1}, timeout=5)


def test_offsets_are_found_again_after_a_leader_election(name: str, mortal_broker: EmbeddedKafka) -> None:
    admin = TopicAdmin(mortal_broker.bootstrap_servers)
    admin.create_topics([Definition(name)])
    place = TopicPartition(name, 0)
    produce(mortal_broker.bootstrap_servers, name, 3)
    assert admin.bounds(place) == (0, 3)
    mortal_broker.kill()
    mortal_broker.start()
    # The partition's leader has a new epoch, of which the client has not heard.
    assert admin.bounds(place) == (0, 3)
    admin.delete_records({place: 2})
    assert admin.bounds(place) == (2, 3)


def test_waiting_for_a_broker_that_answers(admin: TopicAdmin) -> None:
    started = time.monotonic()
    admin.wait_for_broker(120)
    assert time.monotonic() - started < 60


def test_waiting_for_a_broker_that_is_away(
    dead_address: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    connection = ConnectionConfig.from_librdkafka_dict(
        {"bootstrap.servers": dead_address, "sasl.password": "canary", "sasl.username": "me"}
    )
    admin = TopicAdmin(connection)
    started = time.monotonic()
    with (
        caplog.at_level(logging.DEBUG, "streamrt.kafka"),
        pytest.raises(KafkaBrokerUnavailableError, match="no Kafka broker answered at") as caught,
    ):
        admin.wait_for_broker(1.5)
    assert 1.0 < time.monotonic() - started < 30
    assert dead_address in str(caught.value)
    assert "refused" in str(caught.value)
    assert "canary" not in str(caught.value) + caplog.text
    loud = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 <= len(loud) <= 3, [record.getMessage() for record in loud]
    assert capfd.readouterr().err == ""


def test_a_broker_that_knows_of_no_broker_yet() -> None:
    # With such an answer to `describe_cluster`, librdkafka 2.16 aborts the process.
    with fake_broker() as broker:
        admin = TopicAdmin(broker.address)
        assert (admin.cluster_id(30), admin.broker_count(30)) == ("id", 1)
        broker.started = False
        with pytest.raises(KafkaRequestError, match="the cluster could not be described") as caught:
            admin.cluster_id(0.5)
        assert caught.value.retriable
        with pytest.raises(KafkaBrokerUnavailableError):
            admin.wait_for_broker(0.5)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(admin.wait_for_broker, 30)
            assert wait([waiting], 0.3).not_done
            broker.started = True
            waiting.result(300)


def test_topics_are_created_as_soon_as_the_broker_knows_of_itself() -> None:
    with fake_broker() as broker, ThreadPoolExecutor(2) as pool:
        broker.started = False
        admin = TopicAdmin(broker.address)
        created = pool.submit(admin.create_topics, [Definition("t")], 60)
        deleted = pool.submit(admin.delete_topics, ["t"], 60)
        assert wait([created, deleted], 0.3).not_done
        broker.started = True
        # It gets the request, which it does not support.
        with pytest.raises(TopicCreationError, match="not supported by broker"):
            created.result(300)
        with pytest.raises(KafkaRequestError, match="not supported by broker"):
            deleted.result(300)


def test_zero_does_not_wait_for_the_broker(dead_address: str) -> None:
    TopicAdmin(dead_address).wait_for_broker(0)


def test_requests_to_a_broker_that_is_away_end_in_time(dead_address: str) -> None:
    admin = TopicAdmin(dead_address)
    started = time.monotonic()
    with pytest.raises(KafkaRequestError):
        admin.inspect_topics(["t"], timeout=0.5)
    with pytest.raises(KafkaRequestError):
        admin.list_topics(timeout=0.5)
    with pytest.raises(KafkaRequestError):
        admin.committed("g", [TopicPartition("t", 0)], timeout=0.5)
    with pytest.raises(KafkaRequestError):
        admin.offset_bounds([TopicPartition("t", 0)], timeout=0.5)
    with pytest.raises(KafkaRequestError):
        admin.delete_topics(["t"], timeout=0.5)
    with pytest.raises(KafkaRequestError):
        admin.delete_records({TopicPartition("t", 0): 1}, timeout=0.5)
    with pytest.raises(KafkaRequestError):
        admin.cluster_id(timeout=0.5)
    with pytest.raises(TopicCreationError):
        admin.create_topics([Definition("t")], timeout=0.5)
    # Those that do not say so wait for 30 s or longer.
    assert time.monotonic() - started < 25


def test_n1_an_input_topic_that_is_misspelt(
    kafka_broker: KafkaBroker, admin: TopicAdmin, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    meant, misspelt = f"{name}-orders", f"{name}-ordrs"
    admin.create_topics([Definition(meant, TopicConfig(1, 1))])
    for topics in ([meant, misspelt], [misspelt]):
        app = Application(kafka_broker.bootstrap_servers, consumer_group=name, loglevel=None)
        for topic in topics:
            app.dataframe(app.topic(topic)).to_topic(app.topic(f"{name}-out"))
        app.setup_topics()
    [text] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"the input topic {misspelt} did not exist and was created (did you mean {meant}?)" in text


def test_an_output_topic_is_not_suggested_in_place_of_the_input(
    kafka_broker: KafkaBroker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Application(kafka_broker.bootstrap_servers, consumer_group=name, loglevel=None)
    app.dataframe(app.topic(f"{name}-flights")).to_topic(app.topic(f"{name}-late-flights"))
    with caplog.at_level("INFO"):
        app.setup_topics()
    assert f"the input topic {name}-flights did not exist and was created; nothing is read" in caplog.text
    assert "did you mean" not in caplog.text
