"""Offsets of an application under test: where its topics end, and what it has processed."""

from collections.abc import Collection, Mapping

from streamrt.kafka.completion_token import Offsets
from streamrt.records import Positions, TopicPartition
from streamrt.testing.cluster import MemoryCluster

__all__ = ["DriverOffsets"]


class DriverOffsets:
    """Implements `OffsetView` and `TopicView`: in the driver, everything that was processed is committed.

    Args:
        cluster: has the topics.
        counts: number of partitions by topic, of the topics that are read.

    Attributes:
        counts: number of partitions by topic.
        ends: the next offset to write, by partition.
        positions: the next offset to process, by partition.
    """

    def __init__(self, cluster: MemoryCluster, counts: Mapping[str, int]) -> None:
        self._cluster = cluster
        self.counts = counts
        self.ends: dict[TopicPartition, int] = {}
        self.positions = Positions()

    def declared_partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """Return the declared partitions of topics."""
        return [TopicPartition(topic, number) for topic in topics for number in range(self.counts[topic])]

    def committed_offsets(self) -> Offsets:
        """Return the committed offset of each partition, with the ids of the topics."""
        offsets = dict.fromkeys(self.declared_partitions(self.counts), 0)
        offsets.update(self.positions)
        return Offsets(offsets, self.topic_ids({partition.topic for partition in offsets}))

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:  # noqa: D102
        # Tests need not declare the partitions that they pipe to.
        # The driver does not read all topics that it writes.
        declared = self.declared_partitions([topic for topic in topics if topic in self.counts])
        return sorted({*declared, *(each for each in self.ends if each.topic in topics)})

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:  # noqa: D102
        return {each: self.positions.get(each, 0) for each in partitions}

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:  # noqa: D102
        return {each: (0, end) for each, end in self.stable_ends(partitions).items()}

    def stable_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:  # noqa: D102
        return {each: self.ends.get(each, 0) for each in partitions}

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:  # noqa: D102
        return start < end

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:  # noqa: D102
        ids = self._cluster.topic_ids(topics)
        return {topic: known for topic, known in ids.items() if known is not None}
