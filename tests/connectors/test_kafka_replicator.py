"""`KafkaReplicatorSource` and `KafkaReplicatorSink`."""

import json
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

from streamrt.config import ApplicationConfig
from streamrt.connectors import KafkaReplicatorSink, KafkaReplicatorSource
from streamrt.connectors.sources.producer import KafkaSourceProducer
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError, SourceError
from streamrt.kafka import ConnectionConfig, KafkaError, Producer, TopicConfig
from streamrt.records import Headers, TopicPartition
from streamrt.testing.connectors import (
    BatchingSinkConformance,
    MemorySourceStore,
    StatefulSourceConformance,
    Written,
)
from streamrt.testing.kafka import EmbeddedKafka
from streamrt.topics import Topic
from tests.connectors.proxy import proxy
from tests.connectors.sources import Run
from tests.kafka.brokers import produce_headers
from tests.servers import free_port
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CONFIG = ApplicationConfig(commit_interval=0.2)
SECRET = "sesame-open"


def source(kafka: Kafka | str, topic: str, reset: Any = "earliest", **options: Any) -> KafkaReplicatorSource:
    address = kafka if isinstance(kafka, str) else kafka.address
    return KafkaReplicatorSource("copy", CONFIG, topic, address, reset, **options)


class TestSource(StatefulSourceConformance):
    @pytest.fixture(autouse=True)
    def topic(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.name = kafka.topic()
        kafka.produce(self.name, [1, 2, 3])

    def make(self) -> KafkaReplicatorSource:
        return source(self.kafka, self.name)


class TestSink(BatchingSinkConformance):
    many = 1_000
    # The key serializer is "bytes", which writes text as UTF-8.

    @pytest.fixture(autouse=True)
    def topic(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.name = kafka.topic()

    def make(self) -> KafkaReplicatorSink:
        return KafkaReplicatorSink(self.kafka.address, self.name)

    def written(self) -> list[Written]:
        found = self.kafka.receive(self.name, self.kafka.end(self.name))
        return [Written(json.loads(record.value or b""), record.key, record.timestamp) for record in found]


def test_records_are_copied_as_they_are(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    headers = [("a", b"\xff"), ("a", None), ("b", b"")]
    kafka.produce(topic, [b"\xff\x00", None, b""], key=b"\x00key", partition=1, timestamp=5, headers=headers, raw=True)
    kafka.produce(topic, [b"x"], key=None, partition=0, raw=True)
    run = Run(source(kafka, topic)).start()
    run.has(4)
    assert run.stop() < 8
    found = sorted(run.records, key=lambda record: record.partition or 0)
    assert (found[0].value, found[0].key, found[0].headers, found[0].partition) == (b"x", None, None, 0)
    assert (found[0].timestamp or 0) > 1_700_000_000_000
    assert [record[1:] for record in found[1:]] == [
        (value, b"\x00key", headers, 1, 5) for value in (b"\xff\x00", None, b"")
    ]
    assert {record.topic for record in found} == {"topic"}


def test_the_default_topic(kafka: Kafka) -> None:
    topic = source(kafka, kafka.topic(partitions=3), value_deserializer="bytes", key_deserializer="str").default_topic()
    assert topic.name == "copy"
    assert topic.config is not None
    assert topic.config.num_partitions == 3
    assert topic.deserialize(b"a", b"\xff") == ("a", b"\xff")
    with pytest.raises(SourceError, match="has no topic nothing-here for the source copy"):
        source(kafka, "nothing-here").default_topic()


def test_it_continues_where_it_was(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    for partition in (0, 1):
        kafka.produce(topic, list(range(100)), partition=partition)
    store = MemorySourceStore()
    first = Run(source(kafka, topic), store=store).start()
    first.has(200)
    first.stop()
    for partition in (0, 1):
        kafka.produce(topic, list(range(100, 150)), partition=partition)
    second = Run(source(kafka, topic, "latest"), store=store).start()
    second.has(100)
    second.stop()
    for partition in (0, 1):
        found = [json.loads(r.value or b"") for r in [*first.records, *second.records] if r.partition == partition]
        assert found == list(range(150))


def test_a_crash_repeats_and_loses_nothing(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, list(range(100)))

    class Dying(KafkaReplicatorSource):
        def produce(self, value: Any = None, *arguments: Any, **options: Any) -> None:
            number = json.loads(value)
            if number == 41:
                self.flush()
            if number == 60:
                raise RuntimeError("dead")
            super().produce(value, *arguments, **options)

        def cleanup(self, failed: bool) -> None:
            """As little as a crash does."""

    store = MemorySourceStore()
    first = Run(Dying("copy", CONFIG, topic, kafka.address, "earliest"), store=store).start()
    wait_until(lambda: first.error)
    assert first.values == list(range(60))
    second = Run(source(kafka, topic), store=store).start()
    second.has(59)
    second.stop()
    assert second.values == list(range(41, 100))


def test_where_it_begins(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [1, 2])
    store = MemorySourceStore()
    # The offset is kept before anything is read.
    first = Run(source(kafka, topic, "latest"), store=store).start()
    wait_until(lambda: store.commits)
    first.stop()
    assert first.records == []
    kafka.produce(topic, [3])
    second = Run(source(kafka, topic, "latest"), store=store).start()
    second.has(1)
    second.stop()
    assert second.values == [3]
    message = str(Run(source(kafka, topic, "error")).failure())
    assert message.startswith(f"the source copy has no offset of {topic}[0] yet")


def test_records_that_were_deleted_before_they_were_read(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [0, 1])
    store = MemorySourceStore()
    first = Run(source(kafka, topic), store=store).start()
    first.has(2)
    first.stop()
    kafka.produce(topic, [2, 3])
    kafka.admin.delete_records({TopicPartition(topic, 0): 3})
    second = Run(source(kafka, topic, "error"), store=store).start()
    second.has(1)
    second.stop()
    assert second.values == [3]
    assert "up to offset 2, but it has the offsets 3 to 4: it goes on at the first one" in caplog.text


def test_a_topic_of_the_same_name_is_copied_from_its_beginning(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [0, 1])
    store = MemorySourceStore()
    first = Run(source(kafka, topic), store=store).start()
    first.has(2)
    first.stop()
    kafka.admin.delete_topics([topic])
    wait_until(lambda: kafka.admin.inspect_topics([topic])[topic] is None)
    kafka.admin.create_topics([Topic(topic, TopicConfig(1, 1))])
    kafka.produce(topic, [10, 11, 12])
    second = Run(source(kafka, topic, "latest"), store=store).start()
    second.has(3)
    second.stop()
    assert second.values == [10, 11, 12]


def test_partitions_that_are_added(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    monkeypatch.setattr("streamrt.connectors.kafka.replicator_source._LOOK_FOR_PARTITIONS_S", 0.1)
    topic = kafka.topic()
    run = Run(source(kafka, topic, "latest")).start()
    wait_until(lambda: run.store.commits)
    client = AdminClient({"bootstrap.servers": kafka.address})
    client.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    wait_until(lambda: (kafka.admin.inspect_topics([topic])[topic] or TopicConfig(None, 1)).num_partitions == 2)
    kafka.produce(topic, ["new"], partition=1)
    run.has(1)
    run.stop()
    assert run.records[0].partition == 1


@pytest.mark.parametrize(("partitions", "expected"), [(2, [0, 1]), (1, [0, 0]), (3, [0, 1])])
def test_partitions_of_copies(kafka: Kafka, partitions: int, expected: list[int]) -> None:
    topic, target = kafka.topic(partitions=2), kafka.topic(partitions=partitions)
    for partition in (0, 1):
        kafka.produce(topic, [partition], key=None, partition=partition)
        kafka.produce(topic, [partition], key=b"key", partition=partition)
    one = pickle.loads(cloudpickle.dumps(source(kafka, topic)))
    run = Run(source(kafka, topic))
    one.configure(
        Topic(target), KafkaSourceProducer(ConnectionConfig(bootstrap_servers=kafka.address)), store_partition=run.store
    )
    run.source = one
    run.start()
    wait_until(lambda: run.error or kafka.end(target) >= 4)
    run.stop()
    found = kafka.receive_exactly(target, 4)
    assert sorted((json.loads(r.value or b""), r.partition) for r in found if r.key is None) == list(
        enumerate(expected)
    )
    keyed = {record.partition for record in found if record.key is not None}
    assert len(keyed) == (2 if partitions == 2 else 1)


def test_only_committed_records_are_copied(kafka: Kafka) -> None:
    topic = kafka.topic()
    producer = Producer(kafka.address, extra_config={"transactional.id": unique("t")}, transactional=True)
    producer.init_transactions(30)
    for value, ends in ((b"1", producer.abort_transaction), (b"2", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        ends(30)
    run = Run(source(kafka, topic)).start()
    run.has(1)
    run.stop()
    assert run.values == [2]


def test_names_of_headers_that_are_not_utf_8(kafka: Kafka) -> None:
    topic = kafka.topic()
    produce_headers(kafka.address, topic, [(b"\xff", b"1"), (b"a", b"2")])
    kafka.produce(topic, [2])
    run = Run(source(kafka, topic)).start()
    run.has(2)
    run.stop()
    assert [record.headers for record in run.records] == [[("\ufffd", b"1"), ("a", b"2")], None]


def test_a_topic_that_is_deleted(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamrt.connectors.kafka.replicator_source._LOOK_FOR_PARTITIONS_S", 0.1)
    topic = kafka.topic()
    kafka.produce(topic, [1, 2, 3])
    run = Run(source(kafka, topic)).start()
    run.has(3)
    kafka.admin.delete_topics([topic])
    wait_until(lambda: run.error)
    assert str(run.error) == f"the cluster at {kafka.address} has no topic {topic} for the source copy"


def test_errors_of_the_consumer() -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(SourceError, match="the source copy failed at c:1: records cannot be read: Broker: Topic auth"):
        source("c:1", "orders")._refuse_error(error)
    heard: list[Any] = []

    def go_on(*arguments: Any) -> bool:
        heard.append(arguments)
        return True

    source("c:1", "orders", on_consumer_error=go_on)._refuse_error(error)
    assert heard[0][1] is None
    source("c:1", "orders")._refuse_error(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))


@pytest.fixture(scope="module")
def other() -> Iterator[EmbeddedKafka]:
    """A second broker."""
    with EmbeddedKafka() as broker:
        yield broker


class TestOtherCluster:
    """A second broker, which is killed and started again."""

    def test_the_source_outlives_its_broker(self, other: EmbeddedKafka, kafka: Kafka) -> None:
        there = Kafka(other.bootstrap_servers, kafka.state_dir)
        topic = there.topic()
        there.produce(topic, list(range(10)))
        run = Run(source(there, topic)).start()
        run.has(10)
        other.kill()
        other.start()
        there.produce(topic, list(range(10, 20)))
        run.has(20)
        run.stop()
        assert run.values == list(range(20))

    def test_the_sink_outlives_its_broker(self, other: EmbeddedKafka, kafka: Kafka) -> None:
        there = Kafka(other.bootstrap_servers, kafka.state_dir)
        topic = there.topic()
        sink = KafkaReplicatorSink(other.bootstrap_servers, topic, flush_timeout=2)
        sink.start()

        def write(start: int, end: int) -> None:
            for number in range(start, end):
                sink.add(number, b"key", 1_000, None, "orders", 0, number)
            sink.flush()

        write(0, 5)
        other.kill()
        begun = time.monotonic()
        with pytest.raises(SinkBackpressureError, match=r"5 records for topic .* were not delivered within 2 s"):
            write(5, 10)
        assert time.monotonic() - begun < 30
        sink.on_paused()
        other.start()
        # A busy machine may take longer than that for what succeeds.
        sink._flush_timeout = 120.0
        write(5, 10)
        assert [json.loads(record.value or b"") for record in there.receive_exactly(topic, 10)] == list(range(10))


@pytest.fixture
def hanging(kafka: Kafka) -> Iterator[str]:
    """The address of a broker that accepts connections and answers nothing."""
    with proxy(int(kafka.address.rpartition(":")[2])) as gate:
        gate.hang()
        yield f"127.0.0.1:{gate.port}"


def test_stop_while_the_cluster_hangs(hanging: str) -> None:
    run = Run(source(hanging, "orders")).start()
    time.sleep(0.2)
    assert run.stop() < 8
    assert run.error is None


def test_wrong_hosts_and_topics(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("replicator_source", "replicator_sink"):
        monkeypatch.setattr(f"streamrt.connectors.kafka.{module}._REQUEST_S", 1.0)
    nowhere = f"127.0.0.1:{free_port()}"
    message = str(Run(source(nowhere, "orders")).failure())
    assert message.startswith(f"the source copy gets no answer from the cluster at {nowhere}: ")
    assert "has no topic nothing for the source copy" in str(Run(source(kafka, "nothing")).failure())
    with pytest.raises(SinkError, match=f"cannot write to topic orders at {nowhere}"):
        KafkaReplicatorSink(nowhere, "orders").start()
    with pytest.raises(SinkError, match=r"finds no topic nothing at .*auto_create_sink_topic=True"):
        KafkaReplicatorSink(kafka.address, "nothing", auto_create_sink_topic=False).start()


def test_the_sink_creates_its_topic(kafka: Kafka) -> None:
    for origin, count in ((None, 1), (Topic("orders", TopicConfig(3, 1, {"cleanup.policy": "compact"})), 3)):
        name = unique("created")
        KafkaReplicatorSink(kafka.address, name, origin_topic=origin).start()
        found = kafka.admin.inspect_topics([name])[name]
        assert found is not None
        assert found.num_partitions == count
        assert found.extra_config["cleanup.policy"] == ("compact" if origin else "delete")


def test_what_the_sink_writes(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    sink = KafkaReplicatorSink(kafka.address, topic, "bytes", "str")
    sink.start()
    headers: Headers = [("a", b"\xff"), ("a", b"2")]
    sink.add(b"\xff", "key", 5, headers, "orders", 0, 0)
    sink.add(None, "key", 6, None, "orders", 0, 1)
    sink.add(b"x", None, 7, None, "orders", 3, 0)
    sink.flush()
    found = kafka.receive_exactly(topic, 3)
    assert [record[:4] for record in found if record.key] == [(b"key", b"\xff", 5, headers), (b"key", None, 6, None)]
    assert [record.partition for record in found if record.key is None] == [1]


def test_records_that_are_refused(kafka: Kafka) -> None:
    topic = kafka.topic(config={"max.message.bytes": "2000"})
    sink = KafkaReplicatorSink(kafka.address, topic)
    sink.start()
    for value, message in (
        (SECRET * 400, rf"offset 7 of orders\[2\] was not written to topic {topic} at .*MSG_SIZE_TOO_LARGE"),
        (object(), rf"offset 7 of orders\[2\] cannot be written to topic {topic} at "),
    ):
        sink.add(value, b"key", 0, None, "orders", 2, 7)
        with pytest.raises(SinkError, match=message) as caught:
            sink.flush()
        assert SECRET not in str(caught.value)
        sink.on_paused()
    sink.add(1, b"key", 0, None, "orders", 2, 8)
    sink.flush()
    assert kafka.values(topic, 1) == [1]


def test_secrets_appear_nowhere() -> None:
    connection = ConnectionConfig(
        bootstrap_servers="localhost:1",
        security_protocol="sasl_plaintext",
        sasl_mechanism="PLAIN",
        sasl_password=SECRET,
    )
    options = {"sasl.username": "shop", "sasl.password": SECRET}
    for made in (
        KafkaReplicatorSource("copy", CONFIG, "orders", connection, consumer_extra_config=options),
        KafkaReplicatorSink(connection, "orders", producer_extra_config=options),
    ):
        assert SECRET.encode() not in cloudpickle.dumps(made)
        assert SECRET not in repr(made)
        assert SECRET not in repr(vars(made))


SOURCE: dict[str, Any] = {"name": "a", "app_config": CONFIG, "topic": "b", "broker_address": "c:1"}


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (KafkaReplicatorSource, {**SOURCE, "app_config": {}}, "must be the config of the application"),
        (KafkaReplicatorSource, {**SOURCE, "topic": "a b"}, "is not a valid topic name"),
        (KafkaReplicatorSource, {**SOURCE, "broker_address": 5}, "broker_address"),
        (KafkaReplicatorSource, {**SOURCE, "auto_offset_reset": "first"}, "must be one of earliest, latest, error"),
        (KafkaReplicatorSource, {**SOURCE, "consumer_poll_timeout": 0}, "must be above 0 seconds"),
        (KafkaReplicatorSource, {**SOURCE, "consumer_extra_config": "a=b"}, "must be a dict"),
        (KafkaReplicatorSource, {**SOURCE, "on_consumer_error": 5}, "must be a function"),
        (KafkaReplicatorSource, {**SOURCE, "value_deserializer": "xml"}, "xml"),
        (KafkaReplicatorSink, {"broker_address": "c:1", "topic_name": ""}, "is not a valid topic name"),
        (KafkaReplicatorSink, {"broker_address": 5, "topic_name": "a"}, "broker_address"),
        (KafkaReplicatorSink, {"broker_address": "c:1", "topic_name": "a", "flush_timeout": 0}, "flush_timeout"),
        (KafkaReplicatorSink, {"broker_address": "c:1", "topic_name": "a", "origin_topic": "b"}, "must be a Topic"),
        (
            KafkaReplicatorSink,
            {"broker_address": "c:1", "topic_name": "a", "auto_create_sink_topic": 1},
            "must be a bool",
        ),
        (
            KafkaReplicatorSink,
            {"broker_address": "c:1", "topic_name": "a", "producer_extra_config": {"enable.idempotence": False}},
            "must not set",
        ),
        (
            KafkaReplicatorSink,
            {"broker_address": "c:1", "topic_name": "a", "producer_extra_config": 5},
            "must be a dict",
        ),
    ],
)
def test_wrong_arguments(make: Callable[..., Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(**options)


def test_settings_of_the_application() -> None:
    config = ApplicationConfig(auto_offset_reset="earliest", consumer_poll_timeout=0.1, commit_every=5)
    made = KafkaReplicatorSource("a", config, "b", "c:1", auto_offset_reset=None)
    assert (made._reset, made._poll_s, made._flush_records) == ("earliest", 0.1, 5)
