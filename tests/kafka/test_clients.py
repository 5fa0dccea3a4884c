"""`Producer` and `Consumer` against a real broker."""

import gc
import pickle
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streamrt.connectors.sources.producer import TransactionalSourceProducer
from streamrt.errors import ConfigurationError, InvalidOperationError, ProducerError
from streamrt.kafka import ConnectionConfig, Consumer, KafkaRequestError, Producer, TopicAdmin, TopicConfig
from streamrt.kafka.connection import SecretsNotPicklableError
from streamrt.kafka.writing.record_writer import KafkaRecordWriter
from streamrt.kafka.writing.sender import KafkaSender, TransactionalSender
from streamrt.testing.plugin import KafkaBroker
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@dataclass
class Definition:
    name: str
    config: TopicConfig | None = None


@pytest.fixture
def address(kafka_broker: KafkaBroker) -> str:
    return kafka_broker.bootstrap_servers


@pytest.fixture
def topic(address: str) -> str:
    name = f"clients-{uuid.uuid4().hex[:12]}"
    TopicAdmin(address).create_topics([Definition(name, TopicConfig(2, 1))])
    return name


@pytest.fixture
def consumer(address: str, topic: str) -> Iterator[Consumer]:
    with Consumer(address, topic, "earliest", auto_commit_enable=False) as consumer:
        yield consumer


def read(consumer: Consumer, count: int, timeout_s: float = 150) -> list[Any]:
    messages: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            messages.append(message)
    return messages


def test_a_record_arrives_as_it_was_produced(address: str, topic: str, consumer: Consumer) -> None:
    delivered: list[tuple[KafkaError | None, int]] = []
    with Producer(address) as producer:
        producer.produce(
            topic,
            value=b"v",
            key="k",
            headers={"h": b"1"},
            partition=1,
            timestamp=1234,
            on_delivery=lambda error, message: delivered.append((error, message.offset())),
        )
        producer.produce(topic, value=None, key=b"k", headers=[("a", b"1"), ("a", None)], partition=1)
    assert delivered == [(None, 0)]
    consumer.assign([TopicPartition(topic, 1, 0)])
    first, second = read(consumer, 2)
    assert (first.value(), first.key(), first.headers(), first.timestamp()[1]) == (
        b"v",
        b"k",
        [("h", b"1")],
        1234,
    )
    assert (second.value(), second.headers()) == (None, [("a", b"1"), ("a", None)])


def test_all_producers_write_the_epoch_as_the_first_millisecond_and_refuse_earlier_times(
    address: str, topic: str, consumer: Consumer
) -> None:
    connection = ConnectionConfig(bootstrap_servers=address)
    writer, plain, sender = KafkaRecordWriter(connection), Producer(address), KafkaSender(connection)
    transactional = TransactionalSender(connection, unique("stamps"))
    source = TransactionalSourceProducer(connection, None, unique("stamps"))
    source.open(topic)
    sends: list[Callable[[int | None], None]] = [
        lambda timestamp: writer.produce(topic, b"v", None, timestamp, None, 0),
        lambda timestamp: plain.produce(topic, b"v", partition=0, timestamp=timestamp),
        lambda timestamp: sender.produce(topic, b"v", None, timestamp, partition=0),
        lambda timestamp: transactional.produce(topic, b"v", None, timestamp, partition=0),
        lambda timestamp: source.produce(topic, b"v", partition=0, timestamp=timestamp),
    ]
    begun = time.time() * 1_000 - 1
    for send in sends:
        for timestamp in (0, 7, None):
            send(timestamp)
        with pytest.raises(ProducerError, match="its timestamp is -1 ms"):
            send(-1)
    assert (writer.flush(), plain.flush(), sender.flush(60)) == ([], 0, 0)
    transactional.commit()
    source.commit()
    for each in (writer, sender, transactional):
        each.close()
    source.close(10)
    consumer.assign([TopicPartition(topic, 0, 0)])
    times = [message.timestamp()[1] for message in read(consumer, 3 * len(sends))]
    assert sorted(times)[: 2 * len(sends)] == [1] * len(sends) + [7] * len(sends)
    assert all(time > begun for time in sorted(times)[2 * len(sends) :])


def test_nothing_connects_before_the_first_use() -> None:
    producer = Producer("nowhere.invalid:1")
    assert len(producer) == 0
    assert producer
    assert producer.flush() == 0
    Consumer("nowhere.invalid:1", "g", "earliest").close()


def test_options_of_librdkafka_are_checked_on_first_use() -> None:
    producer = Producer("localhost:1", extra_config={"no.such.option": 1})
    with pytest.raises(ConfigurationError, match=r"no\.such\.option"):
        producer.poll()
    consumer = Consumer("localhost:1", "g", "earliest", extra_config={"fetch.min.bytes": "many"})
    with pytest.raises(ConfigurationError, match=r"fetch\.min\.bytes"):
        consumer.poll(0)


@pytest.mark.parametrize(
    "kind", [Producer, TopicAdmin, partial(Consumer, consumer_group="g", auto_offset_reset="earliest")]
)
def test_clients_are_not_pickled_with_their_secrets(kind: Callable[..., object]) -> None:
    client = kind(ConnectionConfig(bootstrap_servers="localhost:1", sasl_username="me", sasl_password="canary"))
    with pytest.raises(SecretsNotPicklableError, match="cannot be pickled") as caught:
        cloudpickle.dumps(lambda: client)
    assert "canary" not in str(caught.value)


def test_what_a_callback_raises_can_be_caught(address: str, topic: str) -> None:
    stranger = Consumer("localhost:1", "another", "earliest")

    def fail(*_: object) -> None:
        stranger.incremental_unassign([TopicPartition(topic, 0)])

    lonely = Consumer("localhost:1", "g", "earliest", error_callback=fail)
    with pytest.raises(KafkaException, match="subtract"):
        wait_until(lambda: lonely.poll(0.1))
    with Consumer(address, topic, "earliest") as consumer:
        consumer.subscribe([topic], on_assign=fail)
        with pytest.raises(KafkaException, match="subtract"):
            wait_until(lambda: consumer.poll(0.1))
    producer = Producer(address)
    producer.produce(topic, b"v", on_delivery=fail)
    with pytest.raises(KafkaException, match="subtract"):
        wait_until(lambda: producer.poll(0.1) < 0)
    stranger.close()


def test_a_full_buffer_is_waited_for(address: str, topic: str) -> None:
    options = {"queue.buffering.max.messages": 10, "linger.ms": 50}
    with Producer(address, extra_config=options) as producer:
        for number in range(50):
            producer.produce(topic, value=str(number))


def test_a_buffer_that_stays_full_raises() -> None:
    producer = Producer("localhost:1", extra_config={"queue.buffering.max.messages": 1})
    producer.produce("t", value=b"1")
    started = time.monotonic()
    with pytest.raises(BufferError):
        producer.produce("t", value=b"2", poll_timeout=0.1, buffer_error_max_tries=2)
    assert 0.15 < time.monotonic() - started < 30
    with pytest.raises(BufferError):
        producer.produce("t", value=b"2", buffer_error_max_tries=0)
    producer.purge()
    assert producer.flush(5) == 0


def test_leaving_the_context_with_undelivered_records_raises() -> None:
    producer = Producer("localhost:1", flush_timeout=0.1)
    with pytest.raises(KafkaRequestError, match="1 records were not delivered") as caught, producer:
        producer.produce("t", value=b"1")
    assert caught.value.retriable
    producer.purge()


def test_transactions_need_an_id_and_the_other_way_round() -> None:
    with pytest.raises(ConfigurationError, match=r"transactional\.id"):
        Producer("localhost:1", transactional=True)
    with pytest.raises(ConfigurationError, match=r"transactional\.id"):
        Producer("localhost:1", extra_config={"transactional.id": "t"})
    with pytest.raises(InvalidOperationError, match="transactional=True"):
        Producer("localhost:1").begin_transaction()


def test_transactions_commit_records_and_offsets_together(address: str, topic: str, consumer: Consumer) -> None:
    options = {"transactional.id": topic}
    producer = Producer(address, extra_config=options, transactional=True)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value=b"aborted", partition=0)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, value=b"committed", partition=0)
    metadata = pickle.loads(pickle.dumps(consumer.consumer_group_metadata()))
    producer.send_offsets_to_transaction([TopicPartition(topic, 1, 5)], metadata, 30)
    producer.commit_transaction(30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = read(consumer, 1)
    assert message.value() == b"committed"
    (committed,) = consumer.committed([TopicPartition(topic, 1)], 30)
    assert committed.offset == 5


def test_a_predecessor_is_fenced(address: str, topic: str) -> None:
    options = {"transactional.id": topic}
    first = Producer(address, extra_config=options, transactional=True)
    first.init_transactions(30)
    first.begin_transaction()
    first.produce(topic, value=b"1")
    second = Producer(address, extra_config=options, transactional=True)
    second.init_transactions(30)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(30)
    assert caught.value.args[0].code() == KafkaError._FENCED
    first.purge()


def test_a_consumer_reads_stores_and_commits(address: str, topic: str) -> None:
    with Producer(address) as producer:
        for number in range(3):
            producer.produce(topic, value=str(number), partition=0)
    assigned: list[int] = []
    revoked: list[int] = []
    with Consumer(address, topic, "earliest") as consumer:
        consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: assigned.extend(p.partition for p in partitions),
            on_revoke=lambda _, partitions: revoked.extend(p.partition for p in partitions),
        )
        messages = read(consumer, 3)
        assert [message.value() for message in messages] == [b"0", b"1", b"2"]
        assert sorted(assigned) == [0, 1]
        assert sorted(p.partition for p in consumer.assignment()) == [0, 1]
        assert consumer.memberid()
        consumer.store_offsets(messages[1])
    # Only what was stored is committed, here by close().
    assert sorted(revoked) == [0, 1]
    with Consumer(address, topic, "earliest") as consumer:
        (committed,) = consumer.committed([TopicPartition(topic, 0)], 30)
        assert committed.offset == 2


def test_the_position_can_be_changed(address: str, topic: str, consumer: Consumer) -> None:
    with Producer(address) as producer:
        for number in range(4):
            producer.produce(topic, value=str(number), partition=0, timestamp=1000 + number)
    place = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(place, 30) == (0, 4)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1002)], 30)
    assert found.offset == 2
    consumer.assign([TopicPartition(topic, 0, 2)])
    assert [message.value() for message in read(consumer, 2)] == [b"2", b"3"]
    assert consumer.position([place])[0].offset == 4
    consumer.seek(TopicPartition(topic, 0, 1))
    assert read(consumer, 1)[0].value() == b"1"
    consumer.pause([place])
    consumer.resume([place])
    consumer.incremental_unassign([place])
    consumer.incremental_assign([TopicPartition(topic, 0, 3)])
    assert read(consumer, 1)[0].value() == b"3"
    consumer.unassign()
    assert consumer.assignment() == []
    assert topic in consumer.list_topics(topic, 10).topics


def test_several_records_at_once(address: str, topic: str, consumer: Consumer) -> None:
    with Producer(address) as producer:
        for number in range(5):
            producer.produce(topic, value=str(number), partition=0)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [message.value() for message in consumer.consume(5, 20)] == [b"0", b"1", b"2", b"3", b"4"]
    assert consumer.consume(timeout=0.1) == []


def test_a_consumer_without_a_group_reads(address: str, topic: str) -> None:
    with Producer(address) as producer:
        producer.produce(topic, value=b"1", partition=0)
    with Consumer(address, None, "earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert read(consumer, 1)[0].value() == b"1"


def test_auto_offset_reset_error_is_reported(address: str, topic: str) -> None:
    with Consumer(address, topic, "error") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        message = consumer.poll(20)
        assert message is not None
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_a_closed_consumer_is_not_used(address: str, topic: str) -> None:
    consumer = Consumer(address, topic, "earliest")
    consumer.poll(0)
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def test_a_wrong_reset_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="auto_offset_reset"):
        Consumer("localhost:1", "g", "first")  # type: ignore[arg-type]


IMPATIENT = {"topic.metadata.propagation.max.ms": 300, "message.timeout.ms": 5_000}


def test_records_that_are_not_delivered_raise_once(
    address: str, topic: str, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    missing = f"missing-{topic}"
    producer = Producer(address, extra_config=IMPATIENT)
    for _ in range(2):
        producer.produce(missing, b"v")
    producer.produce(topic, b"v")
    with pytest.raises(
        ProducerError, match=rf"^2 records were not delivered: . for topic {missing} \(.*[Uu]nknown"
    ) as caught:
        producer.flush()
    assert caught.value.topic == missing
    lines = [line for line in caplog.messages if "was not delivered" in line]
    # The client finds out by itself, or is told by a broker: these are two kinds.
    assert len(lines) == len(set(lines)) in (1, 2), "the first of a kind"
    assert producer.flush() == 0
    outcomes: list[KafkaError | None] = []
    # The client refuses the other topic by now: it knows that there is none.
    producer.produce(f"other-{missing}", b"v", on_delivery=lambda error, message: outcomes.append(error))
    assert producer.flush() == 0, "who asks for the outcomes knows"
    assert outcomes[0] is not None
    consumer.assign([TopicPartition(topic, number, 0) for number in (0, 1)])
    assert len(read(consumer, 1)) == 1


def test_a_context_ends_with_the_error_of_records_or_with_its_own(address: str, topic: str) -> None:
    missing = f"missing-{topic}"
    with (
        pytest.raises(ProducerError, match="1 record was not delivered"),
        Producer(address, extra_config=IMPATIENT) as producer,
    ):
        producer.produce(missing, b"v")

    def fail() -> None:
        with Producer(address, extra_config=IMPATIENT) as producer:
            producer.produce(missing, b"v")
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        fail()


def test_records_that_are_purged_are_not_missed(address: str, topic: str) -> None:
    producer = Producer(address, extra_config={"linger.ms": 60_000})
    producer.produce(topic, b"v")
    producer.purge()
    assert producer.flush() == 0


def test_a_producer_that_is_given_up_sends_what_it_has(address: str, topic: str, consumer: Consumer) -> None:
    producer = Producer(address, extra_config={"linger.ms": 500})
    producer.produce(topic, b"v")
    del producer
    gc.collect()
    consumer.assign([TopicPartition(topic, number, 0) for number in (0, 1)])
    assert len(read(consumer, 1)) == 1


def test_topics_of_an_application_exist_before_its_clients_use_them(kafka: Kafka) -> None:
    app = kafka.app(unique("group"), auto_offset_reset="earliest")
    orders, refunds = app.topic(unique("orders")), app.topic(unique("refunds"))
    with app.get_consumer() as consumer:
        consumer.subscribe([refunds.name])
        assert kafka.admin.topic_ids([refunds.name])[refunds.name] is not None
        with app.get_producer() as producer:
            producer.produce(orders.name, b"1", b"k")
            producer.produce(refunds.name, b"2", b"k")
        (message,) = read(consumer, 1)
        assert message.value() == b"2"
    assert kafka.values(orders.name, 1) == [1]


def test_topics_are_not_created_where_that_is_off(kafka: Kafka) -> None:
    app = kafka.app(unique("group"), auto_create_topics=False, producer_extra_config=IMPATIENT)
    orders = app.topic(unique("orders"))
    with pytest.raises(ProducerError, match=orders.name), app.get_producer() as producer:
        producer.produce(orders.name, b"1")
