"""What links of tables do, in memory and on Kafka alike."""

import contextlib
import time
from typing import Any

import pytest

from streamrt.errors import TransactionError
from streamrt.kafka import TopicConfig
from streamrt.records import TopicPartition
from streamrt.tables.links import TableLinks
from streamrt.topics import Topic


def create(links: TableLinks, name: str, partitions: int = 1) -> TopicPartition:
    """Create a topic, and return its first partition."""
    topic = Topic(name, config=TopicConfig(partitions, 1))
    links.admin().create_topics([topic])
    return TopicPartition(name, 0)


def values_in(links: TableLinks, partition: TopicPartition, start: int = 0) -> list[bytes | None]:
    """Return the committed values of a partition."""
    end = links.admin().offset_bounds([partition], isolation_level="read_committed")[partition][1]
    found: list[bytes | None] = []
    with contextlib.closing(links.feed()) as feed:
        feed.add({partition: start})
        feed.resume([partition])
        deadline = time.monotonic() + 60
        while feed.ends().get(partition, -1) < end and time.monotonic() < deadline:
            for _, batch in feed.poll(0.1, 100):
                found += batch.values
    return found


class LinksCases:
    """Tests for links that a fixture `links` makes, and names of topics that a fixture `topic_name` gives."""

    def test_outcome_of_each_record(self, links: TableLinks, topic_name: str) -> None:
        partition = create(links, topic_name)
        told: list[Any] = []
        with contextlib.closing(links.sender()) as sender:
            for number in range(3):
                sender.produce(
                    topic_name, b"%d" % number, None, 1_000 + number, None, 0, lambda *args: told.append(args)
                )
            assert sender.flush(60) == 0
        assert told == [(None, 0, 0, 1_000), (None, 0, 1, 1_001), (None, 0, 2, 1_002)]
        assert values_in(links, partition) == [b"0", b"1", b"2"]
        assert links.admin().offsets_at([partition], 1_001)[partition] == 1
        assert links.admin().offsets_at([partition], 5_000)[partition] == 3

    def test_readers_see_what_is_committed(self, links: TableLinks, topic_name: str) -> None:
        partition = create(links, topic_name)
        with contextlib.closing(links.sender(transactional_id=f"{topic_name}-id")) as sender:
            sender.produce(topic_name, b"kept", None)
            sender.commit()
            sender.produce(topic_name, b"dropped", None)
            assert sender.flush(60) == 0
            assert links.admin().offset_bounds([partition], isolation_level="read_committed")[partition] == (0, 2)
            sender.abort()
        assert values_in(links, partition) == [b"kept"]

    def test_second_sender_with_the_id_fences_the_first(self, links: TableLinks, topic_name: str) -> None:
        partition = create(links, topic_name)
        with contextlib.closing(links.sender(transactional_id=f"{topic_name}-id")) as first:
            first.produce(topic_name, b"1", None)
            with contextlib.closing(links.sender(transactional_id=f"{topic_name}-id")) as second:
                second.produce(topic_name, b"2", None)
                second.commit()
                # Only the answer to a request tells it.
                assert [first.usable] == [True]
                with pytest.raises(TransactionError) as error:
                    first.commit()
                assert error.value.fenced
                assert [first.usable, second.usable] == [False, True]
        assert values_in(links, partition) == [b"2"]

    def test_topic_that_was_created_again_has_another_id(self, links: TableLinks, topic_name: str) -> None:
        create(links, topic_name)
        first = links.admin().topic_ids([topic_name])[topic_name]
        assert [each.partition for each in links.admin().partition_replicas(topic_name)] == [0]
        assert links.admin().partition_replicas(f"{topic_name}-of-nobody") == []
        links.admin().delete_topics([topic_name])
        deadline = time.monotonic() + 60
        while links.admin().inspect_topics([topic_name])[topic_name] is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        create(links, topic_name)
        assert links.admin().topic_ids([topic_name])[topic_name] not in (None, first)
