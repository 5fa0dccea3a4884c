"""`ChangelogReader` against a real broker: everything up to the end, whatever occupies the offsets."""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import ChangelogError, InvalidOperationError
from streamrt.kafka import ConnectionConfig, Producer
from streamrt.kafka.reading.changelog_reader import ChangelogBatch, ChangelogReader
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter
from streamrt.models import TopicPartition
from streamrt.testing.kafka import EmbeddedKafka
from tests.support import LONG, Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "100",
}


@pytest.fixture
def reader(kafka: Kafka) -> Iterator[ChangelogReader]:
    reader = ChangelogReader(ConnectionConfig(bootstrap_servers=kafka.address))
    yield reader
    reader.close()


@pytest.fixture
def place(kafka: Kafka) -> TopicPartition:
    return TopicPartition(kafka.topic("changelog"), 0)


def writer_of(kafka: Kafka, place: TopicPartition) -> KafkaTransactionalWriter:
    writer = KafkaTransactionalWriter(ConnectionConfig(bootstrap_servers=kafka.address), unique("id"), unique("group"))
    writer.init(30, place.topic)
    return writer


def produce(kafka: Kafka, place: TopicPartition, *keys: str, value: bytes | None = b"v") -> None:
    with Producer(kafka.address) as producer:
        for number, key in enumerate(keys):
            producer.produce(place.topic, value, key=key, partition=place.partition, timestamp=1_000 + number)


def transact(writer: KafkaTransactionalWriter, place: TopicPartition, *keys: str, commit: bool = True) -> None:
    for number, key in enumerate(keys):
        writer.produce(place.topic, b"v", key.encode(), 1_000 + number, None, place.partition)
    assert writer.flush() == []
    if commit:
        writer.commit({})
    else:
        writer.abort()


def end_of(kafka: Kafka, place: TopicPartition, at_least: int) -> int:
    """Return the high watermark once it is `at_least` so much; markers come after the answer to the producer."""
    return int(wait_until(lambda: (end := kafka.admin.bounds(place)[1]) >= at_least and end, what=f"end {at_least}"))


def keys_of(batches: list[ChangelogBatch]) -> list[str]:
    return [key.decode() for batch in batches for key in batch.keys]


def test_all_columns_and_offsets(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    produce(kafka, place, "a", "b")
    produce(kafka, place, "c", value=None)
    produce(kafka, place, "d", value=b"")
    batches = list(reader.read(place, 0, 4, timeout_s=10))
    assert keys_of(batches) == ["a", "b", "c", "d"]
    assert [value for batch in batches for value in batch.values] == [b"v", b"v", None, b""]
    assert [stamp for batch in batches for stamp in batch.timestamps] == [1_000, 1_001, 1_000, 1_000]
    assert batches[-1].next_offset == 4


def test_a_range_in_the_middle(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    produce(kafka, place, *"abcdef")
    batches = list(reader.read(place, 2, 4, timeout_s=10))
    assert keys_of(batches) == ["c", "d"]
    assert batches[-1].next_offset == 4


def test_an_empty_range(reader: ChangelogReader, place: TopicPartition) -> None:
    begun = time.monotonic()
    assert list(reader.read(place, 0, 0, timeout_s=120)) == []
    assert list(reader.read(place, 5, 3, timeout_s=120)) == []
    assert time.monotonic() - begun < 60


def test_records_of_many_batches(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    count = 200_000 if LONG else 40_000
    options = {"queue.buffering.max.messages": 500_000, "linger.ms": 5}
    with Producer(kafka.address, extra_config=options) as producer:
        for number in range(count):
            producer.produce(place.topic, b"value", key=b"%d" % number)
    offset = 0
    for batch in reader.read(place, 0, count, timeout_s=20):
        assert 0 < len(batch.keys) <= 10_000
        assert len(batch.keys) == len(batch.values) == len(batch.timestamps)
        assert batch.keys[0] == b"%d" % offset
        offset += len(batch.keys)
        assert batch.next_offset == offset
        assert batch.keys[-1] == b"%d" % (offset - 1)
    assert offset == count


def test_markers_at_the_end_and_aborted_records(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    writer = writer_of(kafka, place)
    transact(writer, place, "a", "b")
    transact(writer, place, "lost", "lost", commit=False)
    transact(writer, place, "c")
    transact(writer, place, "lost", commit=False)
    writer.close()
    # a b marker, lost lost marker, c marker, lost marker.
    assert end_of(kafka, place, 10) == 10
    batches = list(reader.read(place, 0, 10, timeout_s=10))
    assert keys_of(batches) == ["a", "b", "c"]
    assert batches[-1].next_offset == 10


def test_nothing_but_markers_and_aborted_records(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    writer = writer_of(kafka, place)
    transact(writer, place, "a")
    transact(writer, place, "lost", "lost", commit=False)
    writer.close()
    assert end_of(kafka, place, 5) == 5
    assert list(reader.read(place, 1, 5, timeout_s=10)) == [ChangelogBatch([], [], [], 5, [])]
    assert list(reader.read(place, 1, 2, timeout_s=10)) == [ChangelogBatch([], [], [], 2, [])]


def test_records_beyond_the_end_are_left_out(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    writer = writer_of(kafka, place)
    transact(writer, place, "a")
    produce(kafka, place, "later", "later")
    writer.close()
    # Offset 1 is a marker, so the record that ends the range lies beyond it.
    assert end_of(kafka, place, 4) == 4
    batches = list(reader.read(place, 0, 2, timeout_s=10))
    assert keys_of(batches) == ["a"]
    assert batches[-1].next_offset == 2


def test_a_compacted_changelog(mortal_broker: EmbeddedKafka, tmp_path: Path) -> None:
    kafka = Kafka(mortal_broker.bootstrap_servers, tmp_path)
    reader = ChangelogReader(ConnectionConfig(bootstrap_servers=kafka.address))
    place = TopicPartition(kafka.topic("changelog", config=COMPACTED), 0)
    for _ in range(20):
        produce(kafka, place, "a", "b")
    produce(kafka, place, "c", value=None)
    # A segment is closed, and then compacted, when a record comes that is later than segment.ms.
    end = 41

    def offsets_left() -> int:
        nonlocal end
        with Producer(kafka.address) as producer:
            producer.produce(place.topic, b"v", key=b"z", timestamp=int(time.time() * 1000))
        end += 1
        return sum(len(batch.keys) for batch in reader.read(place, 0, end, timeout_s=10))

    wait_until(lambda: offsets_left() < 20, what="compaction")
    batches = list(reader.read(place, 0, end, timeout_s=10))
    state: dict[bytes, bytes | None] = {}
    for batch in batches:
        state.update(zip(batch.keys, batch.values, strict=True))
    assert {key for key, value in state.items() if value is not None} == {b"a", b"b", b"z"}
    assert batches[-1].next_offset == end
    reader.close()


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_is_waited_for(
    kafka: Kafka, reader: ChangelogReader, place: TopicPartition, caplog: pytest.LogCaptureFixture, commit: bool
) -> None:
    produce(kafka, place, "a")
    foreign = writer_of(kafka, place)
    foreign.produce(place.topic, b"v", b"foreign", 0, None)
    assert foreign.flush() == []
    produce(kafka, place, "b")
    assert kafka.admin.bounds(place) == (0, 3)
    found: list[ChangelogBatch] = []
    thread = threading.Thread(target=lambda: found.extend(reader.read(place, 0, 3, timeout_s=30)))
    with caplog.at_level(logging.WARNING, "streamrt"):
        thread.start()
        wait_until(lambda: caplog.records)
        time.sleep(0.5)
        assert thread.is_alive()
        assert keys_of(found) == ["a"]
        if commit:
            foreign.commit({})
        else:
            foreign.abort()
        thread.join(300)
    assert not thread.is_alive()
    assert keys_of(found) == (["a", "foreign", "b"] if commit else ["a", "b"])
    assert found[-1].next_offset == 3
    [record] = caplog.records
    text = record.getMessage()
    assert str(place) in text
    assert "up to offset 1" in text
    assert "ends at 3" in text
    assert "transaction.timeout.ms" in text
    foreign.close()


def test_an_open_transaction_that_does_not_end(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    foreign = writer_of(kafka, place)
    foreign.produce(place.topic, b"v", b"foreign", 0, None)
    assert foreign.flush() == []
    produce(kafka, place, "b")
    begun = time.monotonic()
    with pytest.raises(ChangelogError, match=r"up to offset 0 of 2.*transaction of another producer is still open"):
        list(reader.read(place, 0, 2, timeout_s=1.5))
    assert 1.4 < time.monotonic() - begun < 60
    foreign.abort()
    assert keys_of(list(reader.read(place, 0, 2, timeout_s=10))) == ["b"]
    foreign.close()


def test_records_that_are_deleted_already(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    produce(kafka, place, *"abcdef")
    kafka.admin.delete_records({place: 3})
    with pytest.raises(
        ChangelogError, match=r"offset 1 of the changelog changelog-.*no longer exists \(it has offsets 3 to 6"
    ):
        list(reader.read(place, 1, 6, timeout_s=10))
    assert keys_of(list(reader.read(place, 3, 6, timeout_s=10))) == ["d", "e", "f"]


def test_an_end_that_the_changelog_does_not_have(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    produce(kafka, place, "a")
    with pytest.raises(ChangelogError, match=r"it now ends at 1, so brokers have lost records"):
        list(reader.read(place, 0, 5, timeout_s=1))
    with pytest.raises(ChangelogError, match=r"offset 4 .*no longer exists \(it has offsets 0 to 1"):
        list(reader.read(place, 4, 5, timeout_s=5))


def test_a_topic_that_does_not_exist(reader: ChangelogReader) -> None:
    gone = TopicPartition(unique("gone"), 0)
    with pytest.raises(
        ChangelogError, match=r"gone-.* up to offset 0 of 5.*the start and end offsets could not be read"
    ):
        list(reader.read(gone, 0, 5, timeout_s=3))


def test_a_record_without_a_key_is_foreign(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    produce(kafka, place, "a")
    kafka.produce(place.topic, [b"x"], key=None, raw=True)
    with pytest.raises(ChangelogError, match=r"the record at offset 1 of the changelog .* has no key"):
        list(reader.read(place, 0, 2, timeout_s=10))


def test_one_reader_reads_several_partitions(kafka: Kafka, reader: ChangelogReader) -> None:
    topic, other = kafka.topic("changelog", partitions=4), kafka.topic("changelog")
    places = [TopicPartition(topic, number) for number in range(4)] + [TopicPartition(other, 0)]
    for place in places:
        produce(kafka, place, *(f"{place}-{number}" for number in range(300)))
    for _ in range(3):
        for place in places:
            assert keys_of(list(reader.read(place, 0, 300, timeout_s=10))) == [f"{place}-{n}" for n in range(300)]


def test_a_read_that_is_given_up(kafka: Kafka, reader: ChangelogReader) -> None:
    topic = kafka.topic("changelog", partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for place in (first, second):
        produce(kafka, place, *(f"{place.partition}-{number}" for number in range(20_000)))
    for batch in reader.read(first, 0, 20_000, timeout_s=10):
        assert batch.keys[0] == b"0-0"
        break
    assert keys_of(list(reader.read(second, 0, 20_000, timeout_s=10))) == [f"1-{number}" for number in range(20_000)]
    slow = reader.read(first, 0, 20_000, timeout_s=10)
    next(slow)
    assert keys_of(list(reader.read(second, 19_999, 20_000, timeout_s=10))) == ["1-19999"]
    with pytest.raises(InvalidOperationError, match="cancelled"):
        next(slow)


def test_a_closed_reader_connects_again(kafka: Kafka, reader: ChangelogReader, place: TopicPartition) -> None:
    produce(kafka, place, "a")
    assert keys_of(list(reader.read(place, 0, 1, timeout_s=10))) == ["a"]
    reader.close()
    reader.close()
    assert keys_of(list(reader.read(place, 0, 1, timeout_s=10))) == ["a"]


class Deaf:
    """A double of a client that has stopped reading, as librdkafka does at times after a restart of a broker."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def assign(self, partitions: object) -> None:
        """Read nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_a_read_without_an_answer_is_repeated_by_a_new_client(
    kafka: Kafka, reader: ChangelogReader, place: TopicPartition
) -> None:
    produce(kafka, place, "a", "b")
    deaf: Any = Deaf(reader._client)
    reader._inner = deaf
    with pytest.raises(ChangelogError, match="its leader sends no data"):
        list(reader.read(place, 0, 2, timeout_s=0.5))
    assert keys_of(list(reader.read(place, 0, 2, timeout_s=10))) == ["a", "b"]


def test_readers_in_threads(kafka: Kafka) -> None:
    topic = kafka.topic("changelog", partitions=4)
    places = [TopicPartition(topic, number) for number in range(4)]
    for place in places:
        produce(kafka, place, *(f"{place.partition}-{number}" for number in range(5_000)))
    found: dict[TopicPartition, list[str]] = {}

    def work(place: TopicPartition) -> None:
        reader = ChangelogReader(ConnectionConfig(bootstrap_servers=kafka.address))
        found[place] = keys_of(list(reader.read(place, 0, 5_000, timeout_s=20)))
        reader.close()

    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    for place in places:
        assert found[place] == [f"{place.partition}-{number}" for number in range(5_000)]


def test_the_time_that_the_caller_takes_is_no_standstill(
    kafka: Kafka, reader: ChangelogReader, place: TopicPartition
) -> None:
    writer = writer_of(kafka, place)
    transact(writer, place, "a")
    writer.close()
    end = end_of(kafka, place, 2)
    batches = []
    for batch in reader.read(place, 0, end, timeout_s=0.3):
        time.sleep(0.4)
        batches.append(batch)
    assert keys_of(batches) == ["a"]


@pytest.mark.parametrize("after", [0, 3, 5_000])
def test_the_newest_position(kafka: Kafka, reader: ChangelogReader, place: TopicPartition, after: int) -> None:
    def is_position(key: bytes) -> bool:
        return key.startswith(b"position")

    writer = writer_of(kafka, place)
    assert reader.last_position(place, is_position, 0, 0, timeout_s=10) is None
    transact(writer, place, "a")
    end = end_of(kafka, place, 2)
    assert reader.last_position(place, is_position, 0, end, timeout_s=10) is None
    writer.produce(place.topic, b"1", b"position", 0, None)
    writer.produce(place.topic, b"2", b"position", 0, None)
    transact(writer, place, *(f"key-{number}" for number in range(after)))
    writer.produce(place.topic, b"3", b"position", 0, None)
    writer.flush()
    writer.abort()
    writer.close()
    end = end_of(kafka, place, 4 + after + 1 + 2)
    assert reader.last_position(place, is_position, 0, end, timeout_s=10) == (3, b"2")


def test_a_broker_that_restarts_during_a_read(mortal_broker: EmbeddedKafka, tmp_path: Path) -> None:
    kafka = Kafka(mortal_broker.bootstrap_servers, tmp_path)
    place = TopicPartition(kafka.topic("changelog"), 0)
    produce(kafka, place, *(f"{number}" for number in range(15_000)))
    options = {"queued.min.messages": 500, "max.partition.fetch.bytes": 20_000}
    reader = ChangelogReader(ConnectionConfig(bootstrap_servers=kafka.address), options)
    keys: list[str] = []
    for batch in reader.read(place, 0, 15_000, timeout_s=60):
        if not keys:
            assert len(batch.keys) < 15_000
            mortal_broker.kill()
            mortal_broker.start()
        keys += keys_of([batch])
    assert keys == [str(number) for number in range(15_000)]
    mortal_broker.kill()
    try:
        with pytest.raises(
            ChangelogError, match=r"up to offset 0 of 15000.*the start and end offsets could not be read"
        ):
            list(reader.read(place, 0, 15_000, timeout_s=1))
    finally:
        mortal_broker.start()
    reader.close()
