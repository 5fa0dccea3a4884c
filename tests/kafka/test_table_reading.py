"""Tables are read from a real broker: scans, subscriptions and detection, with transactions, deletions and new partitions."""

import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest

from streamrt.errors import ConfigurationError, OffsetOutOfRangeError, StaleTokenError
from streamrt.records import TopicPartition
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.reading.stream import TableStream
from streamrt.tables.table import Table
from tests.support import Kafka, unique, wait_until
from tests.table_home import EVENTS, Home, ids, info_of, table, write
from tests.unit.test_table_options import FETCHING, WRITING


def events_at(kafka: Kafka, partitions: int = 1) -> Table:
    """Create a topic, and return its table."""
    return table(partitions, home=Home(KafkaLinks(kafka.address)), topic=unique("events"))


def polled(stream: TableStream, count: int) -> list[int]:
    """Return the ids of the next rows. A poll returns what is there, which may be less than what brokers have."""
    found: list[int] = []
    while len(found) < count:
        records = stream.poll(60, max_records=count - len(found))
        assert records
        found += [record.row["id"] for record in records]
    return found


def test_scan_sees_committed_rows_alone(kafka: Kafka, tmp_path: Path) -> None:
    events = events_at(kafka, partitions=3)
    topic = str(events.info.topic)
    assert events.scan().to_arrow().num_rows == 0
    assert events.offsets().partition_map(topic) == {0: 0, 1: 0, 2: 0}
    write(events, ids(2_000), 0)
    write(events, ids(3, 2_000), 1, transactional=True)
    write(events, ids(5, 9_000), 1, abort=True)
    scan = events.scan()
    assert scan.to_arrow().to_pylist() == ids(2_003)
    assert scan.end == events.offsets()
    assert scan.end.partition_map(topic) == {0: 2_000, 1: 10, 2: 0}
    assert events.scan(["id"], start={1: 1}).to_arrow()["id"].to_pylist() == [2_001, 2_002]
    assert len(list(events.scan(limit=7).rows())) == 7
    at = datetime.fromtimestamp(1_500, timezone.utc)
    # The marker of the transaction also has a time.
    assert events.offsets(at).partition_map(topic) == {0: 1_499, 1: 3, 2: 0}
    assert events.scan(start=at, partitions=[0]).count() == 501
    assert events.scan().to_parquet(tmp_path / "events.parquet") == 2_003
    assert events.detect_schema(limit=2, types=True).rows == ids(2, 1_998)


def test_subscription_follows_and_continues(kafka: Kafka) -> None:
    events = events_at(kafka)
    topic = str(events.info.topic)
    write(events, ids(3), transactional=True)
    with events.subscribe(["id"], start="earliest") as stream:
        assert [next(stream).row["id"] for _ in range(2)] == [0, 1]
        state = str(stream.position)
    found: list[int] = []
    with events.subscribe(["id"], start=state) as stream:

        def follow() -> None:
            for record in stream:
                found.append(record.row["id"])

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        wait_until(lambda: found == [2])
        write(events, ids(2, 50), abort=True)
        write(events, ids(1, 3), transactional=True)
        wait_until(lambda: found == [2, 3])
        wait_until(lambda: stream.position == events.offsets())
    thread.join(300)
    assert not thread.is_alive()
    with events.subscribe(start="earliest", max_records=2) as stream:
        stream._refresh_s = 0
        found = wait_until(lambda: stream.poll_arrow(0.1)["id"].to_pylist())
        assert found == [0, 1][: len(found)]
        assert found + polled(stream, 2 - len(found)) == [0, 1]
        stream.pause()
        assert not stream.poll(0.2)
        stream.resume()
        assert polled(stream, 2) == [2, 3]
        kafka.admin.add_partitions(topic, 2)
        write(events, ids(1, 70), 1)
        rows: list[int] = wait_until(lambda: [each.row["id"] for each in stream.poll(0.1)])
        assert rows == [70]


@pytest.mark.rows("FL-003", "FL-004", "FL-005", "FL-006", "FL-007", "FL-008")
@pytest.mark.rows("FL-013", "FL-014", "FL-015", "FL-016", "FL-017")
def test_options_of_clients(kafka: Kafka) -> None:
    # The client refuses names that it does not know.
    events = events_at(kafka)
    with events.writer(options={**WRITING, "sticky.partitioning.linger.ms": 0}) as writer:
        writer.append_rows(ids(3))
    assert events.scan(options=FETCHING).count() == 3
    with events.subscribe(start="earliest", options=FETCHING) as stream:
        assert polled(stream, 3) == [0, 1, 2]
    with pytest.raises(ConfigurationError, match=r"fetch.max.byte"):
        events.subscribe(options={"fetch.max.byte": 1})


def test_deleted_records_and_a_recreated_topic(kafka: Kafka) -> None:
    events = events_at(kafka)
    topic = str(events.info.topic)
    write(events, ids(4))
    token = events.offsets("earliest")
    scan = events.scan()
    kafka.admin.delete_records({TopicPartition(topic, 0): 2})
    with pytest.raises(OffsetOutOfRangeError, match=r"is not among its offsets 2 to 4"):
        events.scan(start=token)
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 0 of the input .* no longer exists"):
        list(scan.rows())
    assert [row["id"] for row in events.scan().rows()] == [2, 3]
    kafka.admin.delete_topics([topic])
    wait_until(lambda: kafka.admin.inspect_topics([topic])[topic] is None)
    again = table(home=Home(KafkaLinks(kafka.address)), topic=topic)
    with pytest.raises(StaleTokenError):
        again.scan(start=token)
    assert Table(info_of(topic, EVENTS), again._home).scan().count() == 0


def test_subscription_to_a_topic_that_is_created_again(kafka: Kafka) -> None:
    events = events_at(kafka)
    topic = str(events.info.topic)
    write(events, ids(2))
    with events.subscribe(start="earliest") as stream:
        assert polled(stream, 2) == [0, 1]
        former = stream.position
        kafka.admin.delete_topics([topic])
        wait_until(lambda: kafka.admin.inspect_topics([topic])[topic] is None)
        # It has the position of the stream, and more records.
        write(table(home=Home(KafkaLinks(kafka.address)), topic=topic), ids(4, 100))
        with pytest.raises(StaleTokenError, match="created again"):
            next(stream)
        with pytest.raises(StaleTokenError, match="created again"):
            stream.poll(0)
        assert stream.position == former
        stream.seek("earliest")
        assert polled(stream, 4) == [100, 101, 102, 103]
        assert stream.position == events.offsets()
