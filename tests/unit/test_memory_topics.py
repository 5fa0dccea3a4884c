"""Topics in memory: the double of Kafka for tables."""

import pytest

from streamrt.errors import OffsetOutOfRangeError
from streamrt.kafka import TopicConfig
from streamrt.records import TopicPartition
from streamrt.testing.links import TableConformance
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic


class TestMemoryLinks(TableConformance):
    """Links in memory do what Kafka does."""

    def make(self) -> MemoryLinks:
        return MemoryLinks()

    def test_records_of_others_come_before_the_error_of_a_partition(self, links: MemoryLinks) -> None:
        links.admin().create_topics([Topic("events", config=TopicConfig(2, 1))])
        zero, one = TopicPartition("events", 0), TopicPartition("events", 1)
        links.sender().produce("events", b"0", None, partition=0)
        feed = links.feed()
        feed.add({zero: 0, one: 7})
        feed.resume([zero, one])
        assert [(partition, batch.values) for partition, batch in feed.poll(60, 10)] == [(zero, [b"0"])]
        with pytest.raises(OffsetOutOfRangeError):
            feed.poll(60, 10)
