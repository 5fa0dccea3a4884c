"""`KafkaTransactionalWriter` against a real broker: all or nothing, one at a time, and honest about doubt."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from streamrt.errors import ProducerError, TransactionError
from streamrt.kafka import ConnectionConfig, Producer, TopicAdmin
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.partitioner import partition_for
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter, WriterState
from streamrt.models import TopicPartition
from streamrt.testing.kafka import EmbeddedKafka
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class Setting:
    """An input and an output topic, a group, and writers that all have the same transactional id."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.input = TopicPartition(kafka.topic("input"), 0)
        self.output = kafka.topic("output")
        self.group = unique("group")
        self.writers: list[KafkaTransactionalWriter] = []

    def writer(self, options: dict[str, Any] | None = None, timeout_s: float = 30.0) -> KafkaTransactionalWriter:
        """Return a new writer that has fenced the former ones."""
        connection = ConnectionConfig(bootstrap_servers=self.kafka.address)
        writer = KafkaTransactionalWriter(connection, self.group, self.group, options, 0.0, timeout_s)
        self.writers.append(writer)
        writer.init(30, self.input.topic)
        return writer

    def send(self, writer: KafkaTransactionalWriter, *values: str) -> None:
        """Produce values."""
        for value in values:
            writer.produce(self.output, value.encode(), b"key", 0, None)

    def visible(self) -> list[str]:
        """Return the values that readers of committed records see now."""
        return read_committed(self.kafka, self.output)

    def committed(self) -> CommittedOffset:
        """Return what the group has committed."""
        return self.kafka.admin.committed_stable(self.group, [self.input])[self.input]

    def wait_for_markers(self) -> None:
        """Wait until no transaction is open on the output; markers come after the answer to the producer."""
        place = TopicPartition(self.output, 0)
        admin = self.kafka.admin
        wait_until(
            lambda: admin.offset_bounds([place], isolation_level="read_committed") == admin.offset_bounds([place])
        )


def state_of(writer: KafkaTransactionalWriter) -> WriterState:
    """Return the state; unlike of an attribute, type checkers expect it to change."""
    return writer.state


def read_committed(kafka: Kafka, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in kafka.receive_committed(topic)]


@pytest.fixture
def setting(kafka: Kafka) -> Iterator[Setting]:
    setting = Setting(kafka)
    yield setting
    for writer in setting.writers:
        writer.close()


@pytest.fixture
def own(mortal_broker: EmbeddedKafka, tmp_path: Any) -> Iterator[Setting]:
    setting = Setting(Kafka(mortal_broker.bootstrap_servers, tmp_path))
    yield setting
    for writer in setting.writers:
        writer.close()


def test_records_are_visible_once_they_are_committed(setting: Setting) -> None:
    writer = setting.writer()
    setting.send(writer, "a", "b")
    assert state_of(writer) is WriterState.OPEN
    assert writer.flush() == []
    assert setting.visible() == []
    assert setting.committed() == CommittedOffset(None)
    writer.commit({setting.input: 2}, "stores: caf\N{LATIN SMALL LETTER E WITH ACUTE}")
    assert state_of(writer) is WriterState.READY
    assert setting.committed() == CommittedOffset(2, "stores: caf\N{LATIN SMALL LETTER E WITH ACUTE}")
    setting.wait_for_markers()
    assert setting.visible() == ["a", "b"]


def test_a_writer_commits_many_transactions(setting: Setting) -> None:
    writer = setting.writer()
    for number in range(5):
        setting.send(writer, str(number))
        writer.commit({setting.input: number + 1})
    assert writer.usable
    assert setting.committed() == CommittedOffset(5)
    setting.wait_for_markers()
    assert setting.visible() == ["0", "1", "2", "3", "4"]


def test_aborted_records_are_never_visible(setting: Setting) -> None:
    writer = setting.writer()
    setting.send(writer, "lost")
    writer.flush()
    writer.abort()
    assert writer.usable
    writer.abort()
    setting.send(writer, "kept")
    writer.commit({setting.input: 1})
    setting.wait_for_markers()
    assert setting.visible() == ["kept"]
    assert setting.committed() == CommittedOffset(1)


def test_records_that_were_not_sent_yet_are_dropped_by_abort(setting: Setting) -> None:
    writer = setting.writer({"linger.ms": 5_000})
    setting.send(writer, "lost", "lost")
    writer.abort()
    assert writer.usable
    assert writer.flush() == []
    setting.send(writer, "kept")
    writer.commit({})
    setting.wait_for_markers()
    assert setting.visible() == ["kept"]


def test_offsets_alone_and_nothing_at_all(setting: Setting) -> None:
    writer = setting.writer()
    writer.commit({})
    assert state_of(writer) is WriterState.READY
    writer.commit({setting.input: 7}, "alone")
    assert setting.committed() == CommittedOffset(7, "alone")
    assert setting.visible() == []


def test_values_headers_timestamps_and_partitions_arrive(kafka: Kafka) -> None:
    setting = Setting(kafka)
    setting.output = kafka.topic("wide", partitions=3)
    writer = setting.writer()
    writer.produce(setting.output, b"v", b"k", 1234, [("name", b"x")], 2)
    writer.produce(setting.output, None, b"k", 1235, None, 1)
    writer.produce(setting.output, b"", None, 1236, None, 0)
    writer.commit({})
    found = {record.partition: record for record in kafka.receive(setting.output, 3)}
    assert (found[2].key, found[2].value, found[2].timestamp, found[2].headers) == (b"k", b"v", 1234, [("name", b"x")])
    assert (found[1].value, found[1].timestamp) == (None, 1235)
    assert (found[0].key, found[0].value) == (None, b"")
    writer.close()


def test_a_second_writer_fences_the_first(setting: Setting) -> None:
    zombie = setting.writer()
    setting.send(zombie, "of the zombie")
    assert zombie.flush() == []
    writer = setting.writer()
    setting.send(writer, "of the owner")
    writer.commit({setting.input: 1})
    with pytest.raises(TransactionError, match="another producer has taken its id") as caught:
        zombie.commit({setting.input: 9})
    assert caught.value.fenced
    assert not zombie.usable
    zombie.abort()
    assert state_of(zombie) is WriterState.SPENT
    with pytest.raises(TransactionError):
        setting.send(zombie, "again")
    assert setting.committed() == CommittedOffset(1)
    setting.wait_for_markers()
    assert setting.visible() == ["of the owner"]


def test_a_fenced_writer_that_goes_on_producing_hears_of_it(setting: Setting) -> None:
    zombie = setting.writer()
    setting.send(zombie, "a")
    zombie.flush()
    setting.writer()
    setting.send(zombie, "b")
    [error] = zombie.flush()
    assert not zombie.usable
    with pytest.raises(TransactionError) as caught:
        setting.send(zombie, "c")
    assert caught.value.fenced, error
    zombie.abort()


def test_a_fenced_writer_without_an_open_transaction_cannot_commit(setting: Setting) -> None:
    zombie = setting.writer()
    setting.send(zombie, "a")
    zombie.commit({setting.input: 1})
    setting.writer()
    with pytest.raises(TransactionError) as caught:
        zombie.commit({setting.input: 5})
    assert caught.value.fenced
    assert setting.committed() == CommittedOffset(1)


def test_another_id_is_not_fenced(kafka: Kafka, setting: Setting) -> None:
    other = Setting(kafka)
    one, two = setting.writer(), other.writer()
    setting.send(one, "one")
    other.send(two, "two")
    one.commit({})
    two.commit({})
    assert one.usable
    assert two.usable
    two.close()


def test_a_refused_record_leaves_the_transaction_as_it_is(setting: Setting) -> None:
    writer = setting.writer({"message.max.bytes": 2_000})
    setting.send(writer, "before")
    with pytest.raises(ProducerError, match=r"3,0\d\d bytes for topic 'output-.*' was refused: .*too large"):
        writer.produce(setting.output, b"x" * 3_000, b"key", 0, None)
    assert writer.usable
    setting.send(writer, "after")
    writer.commit({setting.input: 3})
    setting.wait_for_markers()
    assert setting.visible() == ["before", "after"]


def test_a_record_that_the_broker_refuses_fails_the_transaction(kafka: Kafka) -> None:
    setting = Setting(kafka)
    setting.output = kafka.topic("small", config={"max.message.bytes": "500"})
    writer = setting.writer()
    setting.send(writer, "fine")
    assert writer.flush() == []
    setting.send(writer, "x" * 1_000)
    with pytest.raises(
        TransactionError, match=r"a record for topic 'small-.*' was not delivered: .*too large"
    ) as caught:
        writer.commit({setting.input: 2})
    assert isinstance(caught.value.__cause__, ProducerError)
    assert not caught.value.fenced
    assert not writer.usable
    with pytest.raises(TransactionError):
        setting.send(writer, "more")
    writer.abort()
    assert state_of(writer) is WriterState.SPENT
    setting.wait_for_markers()
    assert setting.visible() == []
    assert setting.committed() == CommittedOffset(None)
    writer.close()


def test_flush_tells_what_was_not_delivered(kafka: Kafka) -> None:
    setting = Setting(kafka)
    setting.output = kafka.topic("small", config={"max.message.bytes": "500"})
    writer = setting.writer()
    setting.send(writer, "x" * 1_000)
    errors = writer.flush()
    assert len(errors) == 1
    assert isinstance(errors[0], ProducerError)
    with pytest.raises(TransactionError):
        writer.commit({setting.input: 1})
    writer.abort()
    assert not writer.usable
    writer.close()


def test_offsets_of_a_topic_that_is_gone_fail_the_transaction(setting: Setting) -> None:
    writer = setting.writer(timeout_s=2)
    setting.send(writer, "lost")
    with pytest.raises(TransactionError, match="could not include the offsets of group"):
        writer.commit({TopicPartition(unique("gone"), 0): 1})
    writer.abort()
    assert not writer.usable
    setting.wait_for_markers()
    assert setting.visible() == []


def test_a_new_writer_aborts_what_a_dead_one_left_open(setting: Setting) -> None:
    dead = setting.writer()
    setting.send(dead, "lost")
    assert dead.flush() == []
    place = TopicPartition(setting.output, 0)
    admin = setting.kafka.admin
    assert admin.offset_bounds([place], isolation_level="read_committed")[place][1] == 0
    setting.writer()
    # Once init has returned, the marker is written: from now on, a request for the end covers all of the past.
    assert (
        admin.offset_bounds([place], isolation_level="read_committed")
        == admin.offset_bounds([place])
        == {place: (0, 2)}
    )
    assert setting.visible() == []


def test_more_records_than_the_queue_holds(setting: Setting) -> None:
    writer = setting.writer({"queue.buffering.max.messages": 100, "linger.ms": 0})
    for number in range(2_500):
        setting.send(writer, str(number))
    writer.commit({setting.input: 2_500})
    setting.wait_for_markers()
    assert setting.visible() == [str(number) for number in range(2_500)]


def test_closing_with_an_open_transaction_aborts_it(setting: Setting) -> None:
    writer = setting.writer()
    setting.send(writer, "lost")
    writer.flush()
    begun = time.monotonic()
    writer.close()
    assert time.monotonic() - begun < 30
    assert state_of(writer) is WriterState.SPENT
    setting.wait_for_markers()
    assert setting.visible() == []


def test_a_transaction_timeout_that_the_brokers_do_not_allow(setting: Setting) -> None:
    with pytest.raises(ValueError, match="the brokers do not allow a transaction timeout of 5000 s"):
        setting.writer(timeout_s=5_000)


def test_threads_with_writers_of_their_own(kafka: Kafka) -> None:
    settings = [Setting(kafka) for _ in range(4)]

    def work(setting: Setting) -> None:
        writer = setting.writer()
        for number in range(3):
            setting.send(writer, str(number))
            writer.commit({setting.input: number + 1})
        writer.close()

    threads = [threading.Thread(target=work, args=(setting,)) for setting in settings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    for setting in settings:
        setting.wait_for_markers()
        assert setting.visible() == ["0", "1", "2"]
        assert setting.committed() == CommittedOffset(3)


def test_keys_go_where_partition_for_says(kafka: Kafka) -> None:
    setting = Setting(kafka)
    setting.output = kafka.topic("keyed", partitions=7)
    writer = setting.writer()
    keys = [b"", *(bytes([number]) * (number % 9) + str(number).encode() for number in range(200))]
    for key in keys:
        writer.produce(setting.output, b"v", key, 0, None)
    # librdkafka, as Java's client, hashes an empty key like any other; only without a key it chooses freely.
    for _ in range(20):
        writer.produce(setting.output, b"v", b"", 0, None)
    writer.commit({})
    found = kafka.receive(setting.output, len(keys) + 20)
    assert {record.key for record in found} == set(keys)
    assert [record.partition for record in found] == [partition_for(record.key or b"", 7) for record in found]
    writer.close()


def test_a_transaction_that_outlives_its_timeout_is_lost(own: Setting) -> None:
    # The client gives up records after this time as well, which a busy machine may need for the first one.
    writer = own.writer(timeout_s=5)
    own.send(writer, "lost")
    assert writer.flush() == []
    own.wait_for_markers()
    with pytest.raises(TransactionError, match="it exceeded its timeout of 5 s") as caught:
        writer.commit({own.input: 1})
    assert caught.value.fenced
    writer.abort()
    assert not writer.usable
    assert own.visible() == []
    again = own.writer()
    own.send(again, "kept")
    again.commit({own.input: 1})
    own.wait_for_markers()
    assert own.visible() == ["kept"]


@pytest.mark.parametrize("flushed", [True, False])
def test_a_broker_restart_in_the_middle_of_a_transaction(
    own: Setting, mortal_broker: EmbeddedKafka, flushed: bool
) -> None:
    writer = own.writer()
    own.send(writer, "a")
    if flushed:
        assert writer.flush() == []
    mortal_broker.kill()
    own.send(writer, "b")
    mortal_broker.start()
    own.send(writer, "c")
    try:
        writer.commit({own.input: 3})
    except TransactionError:
        expected: list[str] = []
        writer.abort()
    else:
        expected = ["a", "b", "c"]
    # Whatever became of it, no transaction begins on this client: a request may be on its way still.
    assert not writer.usable
    writer.close()
    again = own.writer()
    assert own.committed().offset == (3 if expected else None)
    own.send(again, "d")
    again.commit({own.input: 4})
    own.wait_for_markers()
    assert own.visible() == [*expected, "d"]


def test_a_broker_that_is_away_at_the_commit(own: Setting, mortal_broker: EmbeddedKafka) -> None:
    writer = own.writer(timeout_s=2)
    own.send(writer, "lost")
    assert writer.flush() == []
    mortal_broker.kill()
    try:
        begun = time.monotonic()
        with pytest.raises(TransactionError):
            writer.commit({own.input: 1})
        # A writer with more time takes 15 s.
        assert time.monotonic() - begun < 14
        assert not writer.usable
        begun = time.monotonic()
        writer.abort()
        writer.close()
        assert time.monotonic() - begun < 40
    finally:
        mortal_broker.start()
    own.kafka.admin.wait_for_broker(30)
    own.writer()
    assert own.committed() == CommittedOffset(None)
    assert own.visible() == []


def test_zombies_and_owners_take_turns(setting: Setting) -> None:
    """Each attempt takes the id, compares the committed offset, and only then works; half of them stop in the middle."""
    admin, done = setting.kafka.admin, 0
    lock = threading.Lock()

    def attempt(number: int) -> None:
        nonlocal done
        try:
            writer = setting.writer()
            start = admin.committed_stable(setting.group, [setting.input])[setting.input].offset or 0
            for value in range(start, start + 5):
                setting.send(writer, str(value))
                if number % 2 and value == start + 2:
                    writer.flush()
                    time.sleep(0.01 * (number % 3))
            writer.commit({setting.input: start + 5})
        except TransactionError:
            return
        with lock:
            done += 1

    for round_ in range(5):
        threads = [threading.Thread(target=attempt, args=(round_ + index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    writer = setting.writer()
    end = setting.committed().offset or 0
    assert end == 5 * done
    setting.wait_for_markers()
    assert setting.visible() == [str(value) for value in range(end)]
    assert writer.usable


def test_the_plain_producer_reads_the_same_partitions(kafka: Kafka) -> None:
    topic = kafka.topic("plain", partitions=5)
    with Producer(kafka.address) as producer:
        for number in range(50):
            producer.produce(topic, b"v", key=f"key-{number}")
    for record in kafka.receive(topic, 50):
        assert record.partition == partition_for(record.key or b"", 5)


def test_admin_is_only_asked_for_what_is_stable(setting: Setting) -> None:
    writer = setting.writer()
    writer.commit({setting.input: 1}, "first")
    setting.send(writer, "a")
    assert TopicAdmin(setting.kafka.address).committed_stable(setting.group, [setting.input]) == {
        setting.input: CommittedOffset(1, "first")
    }
