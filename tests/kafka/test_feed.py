"""`PartitionFeed` against a real broker: each committed record once, in order, as soon as it is there."""

import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message

from streamrt.errors import InvalidOperationError, OffsetOutOfRangeError
from streamrt.kafka import ConnectionConfig, Consumer, KafkaRequestError, Producer
from streamrt.kafka.client import partition_offsets
from streamrt.kafka.reading import stalled_reads
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.kafka.reading.partition_feed import PartitionFeed
from streamrt.kafka.reading.reader import look_up
from streamrt.kafka.reading.stalled_reads import StalledReads
from streamrt.kafka.writing.record_writer import KafkaRecordWriter
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter
from streamrt.models import TopicPartition
from streamrt.testing.kafka import EmbeddedKafka
from tests.kafka.feed_world import World, assign
from tests.support import LONG, Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Partitions that are added wait for so long.
QUICK = {"fetch.wait.max.ms": 10}

Found = dict[TopicPartition, list[tuple[int, bytes | None]]]


@pytest.fixture
def feed(kafka: Kafka) -> Iterator[PartitionFeed]:
    with contextlib.closing(PartitionFeed(ConnectionConfig(bootstrap_servers=kafka.address), QUICK)) as feed:
        yield feed


@pytest.fixture
def places(kafka: Kafka) -> list[TopicPartition]:
    topic = kafka.topic("input", partitions=3)
    return [TopicPartition(topic, number) for number in range(3)]


@pytest.fixture
def writer(kafka: Kafka, places: list[TopicPartition]) -> Iterator[KafkaTransactionalWriter]:
    writer = KafkaTransactionalWriter(ConnectionConfig(bootstrap_servers=kafka.address), unique("id"), unique("group"))
    writer.init(30, places[0].topic)
    yield writer
    writer.close()


def produce(kafka: Kafka, place: TopicPartition, *values: object) -> None:
    kafka.produce(place.topic, [str(value).encode() for value in values], partition=place.partition, raw=True)


def poll_until(
    feed: PartitionFeed, done: Callable[[Found], object], timeout_s: float = 150.0, records: int = 100
) -> Found:
    """Poll until a function of all that was found returns something true."""
    found: Found = defaultdict(list)
    deadline = time.monotonic() + timeout_s
    while not done(found):
        assert time.monotonic() < deadline, f"found only {dict(found)}, ends {feed.ends()}"
        batches = feed.poll(0.1, records)
        assert sum(len(batch.offsets) for _, batch in batches) <= records
        assert len({place for place, _ in batches}) == len(batches)
        for place, batch in batches:
            found[place] += zip(batch.offsets, batch.values, strict=True)
    return found


def poll_records(feed: PartitionFeed, count: int) -> Found:
    """Poll until there are so many records; there must be no more of them."""
    found = poll_until(feed, lambda found: sum(map(len, found.values())) >= count)
    assert sum(map(len, found.values())) == count
    return found


def poll_to_ends(feed: PartitionFeed, ends: dict[TopicPartition, int]) -> Found:
    return poll_until(feed, lambda _: feed.ends() == ends)


def numbered(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(start, end)]


def nothing_comes(feed: PartitionFeed, timeout_s: float = 0.3) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if feed.poll(0.05, 100):
            return False
    return True


def test_all_columns(kafka: Kafka, feed: PartitionFeed) -> None:
    place = TopicPartition(kafka.topic(), 0)
    kafka.produce(place.topic, [b"a"], key=b"k", timestamp=1_000, raw=True)
    kafka.produce(place.topic, [None], key=None, timestamp=2_000, raw=True)
    kafka.produce(place.topic, [b""], key=b"", timestamp=3_000, headers=[("h", b"1"), ("h", None)], raw=True)
    assign(feed, {place: 0})
    columns: list[InputBatch] = []
    while sum(len(batch.keys) for batch in columns) < 3:
        columns += [batch for _, batch in feed.poll(10, 3)]
    assert [key for batch in columns for key in batch.keys] == [b"k", None, b""]
    assert [value for batch in columns for value in batch.values] == [b"a", None, b""]
    assert [stamp for batch in columns for stamp in batch.timestamps] == [1_000, 2_000, 3_000]
    assert {kind for batch in columns for kind in batch.timestamp_types} == {1}
    headers = [found for batch in columns for found in batch.headers or [None] * len(batch.keys)]
    assert headers == [None, None, [("h", b"1"), ("h", None)]]


@pytest.mark.rows("PF-J14")
def test_the_time_of_the_broker(kafka: Kafka, feed: PartitionFeed) -> None:
    place = TopicPartition(kafka.topic(config={"message.timestamp.type": "LogAppendTime"}), 0)
    kafka.produce(place.topic, [b"a"], timestamp=1_000, raw=True)
    assign(feed, {place: 0})
    [(_, batch)] = feed.poll(20, 10)
    assert batch.timestamp_types == [2]
    assert abs(batch.timestamps[0] / 1000 - time.time()) < 60
    assert batch.headers is None


def test_several_partitions_in_order(kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition]) -> None:
    for place in places:
        produce(kafka, place, *range(500))
    assign(feed, {places[0]: 0, places[1]: 100, places[2]: 500})
    found = poll_until(feed, lambda found: len(feed.ends()) == 3, records=70)
    assert found == {places[0]: numbered(0, 500), places[1]: numbered(100, 500)}
    assert feed.ends() == dict.fromkeys(places, 500)


def test_the_first_record_comes_alone_and_at_once(
    kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition]
) -> None:
    assign(feed, {places[0]: 0})
    poll_to_ends(feed, {places[0]: 0})
    produce(kafka, places[0], 0)
    begun = time.monotonic()
    [(place, batch)] = feed.poll(120, 10_000)
    assert (place, batch.offsets, batch.values) == (places[0], [0], [b"0"])
    # It has not waited for more records until its time was over, nor until 10,000 were there.
    assert time.monotonic() - begun < 60
    poll_to_ends(feed, {places[0]: 1})


def test_a_poll_waits_no_longer_than_it_may(feed: PartitionFeed, places: list[TopicPartition]) -> None:
    def time_of(timeout_s: float) -> float:
        begun = time.monotonic()
        assert feed.poll(timeout_s, 10) == []
        return time.monotonic() - begun

    assert 0.09 < time_of(0.1) < 20
    assign(feed, {})
    assert 0.09 < time_of(0.1) < 20
    assign(feed, {places[0]: 0})
    poll_to_ends(feed, {places[0]: 0})
    assert 0.09 < time_of(0.1) < 20
    assert sum(time_of(0) for _ in range(200)) < 10


def test_partitions_come_and_go_while_others_go_on(
    kafka: Kafka, places: list[TopicPartition], feed: PartitionFeed
) -> None:
    for place in places[:3]:
        kafka.produce(place.topic, [b"%d" % number for number in range(10)], partition=place.partition, raw=True)
    assign(feed, {places[0]: 0, places[1]: 0})
    # Some of what the client has read is not returned yet.
    found = poll_until(feed, lambda found: found, records=3)
    feed.add({places[2]: 5})
    with pytest.raises(InvalidOperationError, match="is already assigned to the feed"):
        feed.add({places[2]: 5})
    feed.remove([places[1]])
    assert places[1] not in feed.ends()
    for place, records in poll_until(feed, lambda _: feed.ends().keys() == {places[0]}).items():
        found[place] += records
    assert found[places[0]] == numbered(0, 10), "it goes on, without a gap or a record that comes twice"
    feed.resume([places[2]])
    assert poll_until(feed, lambda _: feed.ends().keys() == {places[0], places[2]}) == {places[2]: numbered(5, 10)}
    # What comes back begins where it is told to.
    feed.add({places[1]: 8})
    feed.resume([places[1]])
    assert poll_records(feed, 2) == {places[1]: numbered(8, 10)}


class CountingFeed(PartitionFeed):
    """Counts how often the client is asked."""

    asked = 0

    def _drain_client(self, timeout_s: float, most: int) -> list[Message]:
        self.asked += 1
        return super()._drain_client(timeout_s, most)


def test_polls_are_not_busy(kafka: Kafka, places: list[TopicPartition]) -> None:
    with contextlib.closing(CountingFeed(ConnectionConfig(bootstrap_servers=kafka.address), QUICK)) as feed:
        assign(feed, dict.fromkeys(places, 0))
        poll_to_ends(feed, dict.fromkeys(places, 0))
        feed.asked = 0
        for _ in range(10):
            assert feed.poll(0.05, 100) == []
        # The client may also tell of its connections.
        assert feed.asked < 50


def test_seek_back_and_forward(kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition]) -> None:
    for place in places[:2]:
        produce(kafka, place, *range(300))
    assign(feed, {places[0]: 0, places[1]: 0})
    found = poll_until(feed, lambda found: len(found[places[0]]) >= 20, records=10)
    feed.seek(places[0], 7)
    other = len(found[places[1]])
    found = poll_to_ends(feed, dict.fromkeys(places[:2], 300))
    assert found == {places[0]: numbered(7, 300), **({places[1]: numbered(other, 300)} if other < 300 else {})}
    feed.seek(places[1], 299)
    assert feed.ends() == {places[0]: 300}
    assert poll_records(feed, 1) == {places[1]: numbered(299, 300)}
    feed.seek(places[0], 0)
    feed.seek(places[0], 290)
    assert poll_records(feed, 10) == {places[0]: numbered(290, 300)}
    with pytest.raises(InvalidOperationError, match="not assigned"):
        feed.seek(places[2], 0)


def test_a_paused_partition_gives_nothing(kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition]) -> None:
    for place in places[:2]:
        produce(kafka, place, *range(300))
    assign(feed, {places[0]: 0, places[1]: 0})
    before = poll_until(feed, lambda found: found[places[0]], records=10)
    feed.pause([places[0], places[0], places[2]])
    feed.pause([places[0]])
    rest = poll_until(feed, lambda _: places[1] in feed.ends())
    assert set(rest) <= {places[1]}
    produce(kafka, places[1], 300)
    assert poll_records(feed, 1) == {places[1]: numbered(300, 301)}
    feed.resume([places[0], places[1], places[2]])
    feed.resume([places[0]])
    after = poll_to_ends(feed, {places[0]: 300, places[1]: 301})
    assert before[places[0]] + after[places[0]] == numbered(0, 300)
    assert set(after) == {places[0]}


def test_a_seek_of_a_paused_partition(kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition]) -> None:
    produce(kafka, places[0], *range(10))
    assign(feed, {places[0]: 0})
    poll_to_ends(feed, {places[0]: 10})
    feed.pause([places[0]])
    assert feed.ends() == {places[0]: 10}
    feed.seek(places[0], 6)
    assert feed.ends() == {}
    assert nothing_comes(feed)
    feed.resume([places[0]])
    assert poll_records(feed, 4) == {places[0]: numbered(6, 10)}


def test_another_assignment(kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition]) -> None:
    for place in places:
        produce(kafka, place, *range(50))
    assign(feed, {places[0]: 0, places[1]: 0})
    poll_until(feed, lambda found: found, records=5)
    feed.pause([places[0]])
    assign(feed, {places[0]: 45, places[2]: 48})
    assert feed.ends() == {}
    found = poll_to_ends(feed, {places[0]: 50, places[2]: 50})
    assert found == {places[0]: numbered(45, 50), places[2]: numbered(48, 50)}
    assign(feed, {})
    assert feed.ends() == {}
    produce(kafka, places[0], 50)
    assert nothing_comes(feed)
    assign(feed, {places[0]: 50})
    assert poll_records(feed, 1) == {places[0]: numbered(50, 51)}


def test_a_closed_feed_connects_again(kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition]) -> None:
    produce(kafka, places[0], 0)
    for _ in range(2):
        assign(feed, {places[0]: 0})
        assert poll_records(feed, 1) == {places[0]: numbered(0, 1)}
        feed.close()
        feed.close()
        assert feed.poll(0, 10) == []


def test_aborted_records_and_markers(
    feed: PartitionFeed, places: list[TopicPartition], writer: KafkaTransactionalWriter
) -> None:
    place = places[0]
    assign(feed, {place: 0})
    for _ in range(2):
        writer.produce(place.topic, b"good", None, 0, None, 0)
        writer.commit({})
        writer.produce(place.topic, b"bad", None, 0, None, 0)
        assert writer.flush() == []
        writer.abort()
    # good marker bad marker good marker bad marker
    assert poll_to_ends(feed, {place: 8}) == {place: [(0, b"good"), (4, b"good")]}
    feed.seek(place, 5)
    assert poll_to_ends(feed, {place: 8}) == {}
    feed.pause([place])
    feed.resume([place])
    writer.produce(place.topic, b"good", None, 0, None, 0)
    writer.commit({})
    assert poll_to_ends(feed, {place: 10}) == {place: [(8, b"good")]}


def test_an_open_transaction(
    kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition], writer: KafkaTransactionalWriter
) -> None:
    place = places[0]
    produce(kafka, place, 0)
    writer.produce(place.topic, b"open", None, 0, None, 0)
    assert writer.flush() == []
    produce(kafka, place, 2)
    assign(feed, {place: 0})
    assert poll_to_ends(feed, {place: 1}) == {place: [(0, b"0")]}
    options = {"isolation.level": "read_uncommitted", **QUICK}
    with contextlib.closing(PartitionFeed(ConnectionConfig(bootstrap_servers=kafka.address), options)) as uncommitted:
        assign(uncommitted, {place: 0})
        assert poll_to_ends(uncommitted, {place: 3}) == {place: [(0, b"0"), (1, b"open"), (2, b"2")]}
    assert nothing_comes(feed)
    writer.commit({})
    assert poll_to_ends(feed, {place: 4}) == {place: [(1, b"open"), (2, b"2")]}


@pytest.mark.skipif(not LONG, reason="it takes half a gigabyte of memory")
def test_a_record_that_librdkafka_refuses_by_itself(tmp_path: Path) -> None:
    # Its answers have 100 MB at most unless it is told otherwise, and requests to brokers have 5 % more.
    size = 102_000_000
    with EmbeddedKafka(config={"message.max.bytes": 104_000_000}) as broker:
        place = TopicPartition(Kafka(broker.bootstrap_servers, tmp_path).topic(), 0)
        with Producer(broker.bootstrap_servers, extra_config={"message.max.bytes": 104_000_000}) as producer:
            producer.produce(place.topic, bytes(size), partition=0)
        with contextlib.closing(PartitionFeed(ConnectionConfig(bootstrap_servers=broker.bootstrap_servers))) as feed:
            assign(feed, {place: 0})
            found = poll_records(feed, 1)
            assert [len(value or b"") for _, value in found[place]] == [size]


def test_records_that_are_deleted_already(kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition]) -> None:
    for place in places[:2]:
        produce(kafka, place, *range(6))
    kafka.admin.delete_records({places[0]: 3})
    assign(feed, {places[0]: 1, places[1]: 0})
    found: Found = defaultdict(list)

    def read() -> bool:
        for place, batch in feed.poll(0.1, 2):
            found[place] += zip(batch.offsets, batch.values, strict=True)
        return False

    message = rf"offset 1 of the input {places[0].topic}\[0\] no longer exists \(it has offsets 3 to 6\)"
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError, match=message):
            wait_until(read)
    feed.pause([places[0]])
    while len(found[places[1]]) < 6:
        read()
    assert found == {places[1]: numbered(0, 6)}
    feed.seek(places[0], 3)
    feed.resume([places[0]])
    assert poll_to_ends(feed, dict.fromkeys(places[:2], 6)) == {places[0]: numbered(3, 6)}
    feed.seek(places[0], 9)
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 9 .* no longer exists \(it has offsets 3 to 6\)"):
        wait_until(read)
    assign(feed, {places[0]: 5})
    assert poll_records(feed, 1) == {places[0]: numbered(5, 6)}


def test_a_deleted_topic(kafka: Kafka, places: list[TopicPartition]) -> None:
    other = TopicPartition(kafka.topic(), 0)
    # Until then it is not believed.
    options = {**QUICK, "topic.metadata.propagation.max.ms": 1_000}
    with contextlib.closing(PartitionFeed(ConnectionConfig(bootstrap_servers=kafka.address), options)) as feed:
        read_until_deleted(kafka, feed, places[0], other)


@pytest.mark.parametrize("before", ["AAAAAAAAAAAAAAAAAAAAAA", None])
def test_a3_a_topic_that_brokers_forgot_for_a_moment_is_compared(
    kafka: Kafka, places: list[TopicPartition], before: str | None
) -> None:
    place = places[0]
    produce(kafka, place, 1)
    ids = kafka.admin.topic_ids([place.topic]) if before is None else {place.topic: before}
    with contextlib.closing(PartitionFeed(ConnectionConfig(bootstrap_servers=kafka.address), topic_ids=ids)) as feed:
        assign(feed, {place: 0})
        feed._record_failure(place, 0, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        if before is None:
            assert poll_records(feed, 1)
            return
        with pytest.raises(KafkaRequestError, match=rf"created again: its id was {before} and is ") as error:
            feed.poll(0, 10)
        # The driver looks for start offsets then, and refuses the topic.
        assert error.value.retriable


def read_until_deleted(kafka: Kafka, feed: PartitionFeed, place: TopicPartition, other: TopicPartition) -> None:
    assign(feed, {place: 0, other: 0})
    poll_to_ends(feed, {place: 0, other: 0})
    kafka.admin.delete_topics([place.topic])
    message = rf"the input {place.topic}\[0\] could not be read at offset 0.*it no longer exists"
    with pytest.raises(KafkaRequestError, match=message) as caught:
        wait_until(lambda: feed.poll(0.1, 10))
    assert not caught.value.retriable
    assign(feed, {other: 0})
    produce(kafka, other, 0)
    assert poll_records(feed, 1) == {other: numbered(0, 1)}


def test_options_of_members_are_left_out(kafka: Kafka, places: list[TopicPartition]) -> None:
    produce(kafka, places[0], 0)
    options = {
        "auto.offset.reset": "latest",
        "enable.auto.commit": True,
        "group.id": "a-group",
        "group.instance.id": "one",
        "group.protocol": "consumer",
        "heartbeat.interval.ms": 1_000,
        "max.poll.interval.ms": 1_000,
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 5_000,
        "client.rack": "here",
    }
    with contextlib.closing(PartitionFeed(ConnectionConfig(bootstrap_servers=kafka.address), options)) as feed:
        assign(feed, {places[0]: 0})
        assert poll_records(feed, 1) == {places[0]: numbered(0, 1)}


def test_a_writer_in_a_hurry_does_not_linger(kafka: Kafka, places: list[TopicPartition]) -> None:
    connection = ConnectionConfig(bootstrap_servers=kafka.address)
    writer = KafkaRecordWriter(connection, {"linger.ms": 30_000})
    with contextlib.closing(writer), contextlib.closing(PartitionFeed(connection)) as feed:
        assign(feed, {places[0]: 0})

        def send_pending() -> bool:
            writer.produce(places[0].topic, b"v", b"k", 0, None, 0)
            writer.send_pending()
            writer.send_pending()
            return bool(feed.poll(0.1, 10))

        # The user has said how long records shall linger.
        assert not send_pending()
        assert not send_pending()
        writer._hurries = True
        wait_until(send_pending)
        assert writer.flush() == []


def test_topics_are_looked_up_in_the_same_time_however_many_there_are() -> None:
    client = Consumer("localhost:1", "g", "earliest")
    known: set[str] = set()
    begun = time.monotonic()
    look_up(client._client, map(str, range(300)), known, timeout_s=0.2)
    assert time.monotonic() - begun < 30
    assert not known
    client.close()


@pytest.mark.parametrize("seed", range(30) if LONG else [random.SystemRandom().randrange(10**6)])
def test_any_order_of_operations(kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition], seed: int) -> None:
    with contextlib.closing(World(kafka, feed, places, seed)) as world:
        steps = [world.poll] * 12 + [world.produce] * 3 + [world.seek, world.pause, world.resume, world.resume]
        steps += [world.transact, world.assign]
        world.assign()
        for number in range(1, 301):
            world.random.choice(steps)()
            if number % 100 == 0:
                world.drain()


def test_a_broker_that_restarts(mortal_broker: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kafka = Kafka(mortal_broker.bootstrap_servers, tmp_path)
    place, other = (TopicPartition(kafka.topic(), 0) for _ in range(2))
    produce(kafka, place, *range(20_000))
    options = {"queued.min.messages": 1_000, "max.partition.fetch.bytes": 20_000}
    with contextlib.closing(PartitionFeed(ConnectionConfig(bootstrap_servers=kafka.address), options)) as feed:
        assign(feed, {place: 0, other: 0})
        found = poll_until(feed, lambda found: found, records=1_000)
        assert len(found[place]) < 20_000
        mortal_broker.kill()
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            for _, batch in feed.poll(0.1, 1_000):
                found[place] += zip(batch.offsets, batch.values, strict=True)
        feed.pause([place])
        mortal_broker.start()
        feed.resume([place])
        rest = poll_until(feed, lambda rest: len(found[place]) + len(rest[place]) >= 20_000)
        assert found[place] + rest[place] == numbered(0, 20_000)
        produce(kafka, other, 0)
        assert poll_records(feed, 1) == {other: numbered(0, 1)}
        mortal_broker.kill()
        begun = time.monotonic()
    assert time.monotonic() - begun < 30
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_client_that_delivers_nothing_is_replaced(
    kafka: Kafka, places: list[TopicPartition], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka stops reading at times, without a word; the client lacks its partition here, which looks the same."""
    monkeypatch.setattr(stalled_reads, "LOOK_S", 0.2)
    monkeypatch.setattr(stalled_reads, "_CONFIRM_S", 0.2)
    one, other = places[:2]
    for place in (one, other):
        produce(kafka, place, 0)
    doubted: list[object] = []
    connection = ConnectionConfig(bootstrap_servers=kafka.address)
    made = PartitionFeed(connection, QUICK, on_doubt=lambda reason, topics: doubted.append((reason, topics)))
    with contextlib.closing(made) as feed:
        assign(feed, {one: 0, other: 0})
        poll_until(feed, lambda found: set(feed.ends()) == {one, other})
        assert feed._client is not None
        feed._client.incremental_unassign(partition_offsets({one: 0}))
        produce(kafka, one, 1, 2)
        found = poll_until(feed, lambda found: len(found[one]) == 2)
        assert found == {one: [(1, b"1"), (2, b"2")]}
        produce(kafka, other, 1)
        produce(kafka, one, 3)
        found = poll_until(feed, lambda found: found[one] and found[other])
        assert found == {one: [(3, b"3")], other: [(1, b"1")]}
    assert doubted == [(f"{one}: the Kafka client was replaced", {one.topic})]
    assert [record.getMessage() for record in caplog.records if "connecting again" in record.getMessage()] == [
        f"{one}: there are records from offset 1 on, but the Kafka client delivers none; connecting again"
    ]


def test_a_client_that_waits_for_a_transaction_is_kept(
    kafka: Kafka,
    places: list[TopicPartition],
    writer: KafkaTransactionalWriter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(stalled_reads, "LOOK_S", 0.05)
    monkeypatch.setattr(stalled_reads, "_CONFIRM_S", 0.05)
    looks: list[object] = []
    find = StalledReads.find_stalled

    def counted(self: StalledReads, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        looks.append(positions)
        return find(self, positions)

    monkeypatch.setattr(StalledReads, "find_stalled", counted)
    with contextlib.closing(PartitionFeed(ConnectionConfig(bootstrap_servers=kafka.address), QUICK)) as feed:
        assign(feed, {places[0]: 0})
        writer.produce(places[0].topic, b"open", None, 0, None, 0)
        assert writer.flush() == []
        poll_until(feed, lambda found: len(looks) > 8)
    assert "connecting again" not in caplog.text
