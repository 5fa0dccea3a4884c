"""Test double of a cluster, in memory, for the start of an application: its topics and committed offsets."""

import uuid
from collections.abc import Collection, Iterable

from streamrt.errors import TopicCreationError
from streamrt.kafka import TopicConfig
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.cluster.topic_config import TopicDefinition
from streamrt.kafka.cluster.topic_options import option_fault
from streamrt.records import TopicPartition

__all__ = ["MemoryCluster"]


class MemoryCluster:
    """Implements `ClusterAdministration`: stores the settings of topics. It has one broker and no committed offsets.

    Args:
        topics: settings of the existing topics, by name.

    Example:
        >>> from streamrt.topics import Topic
        >>> cluster = MemoryCluster()
        >>> cluster.create_topics([Topic("orders", TopicConfig(3, 1))])
        >>> cluster.inspect_topics(["orders", "customers"])["orders"].num_partitions
        3
    """

    def __init__(self, **topics: TopicConfig) -> None:
        self.topics: dict[str, TopicConfig] = dict(topics)
        self._id = uuid.uuid4().hex

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        """Return the settings of the topics, None for those that do not exist."""
        return {name: self.topics.get(name) for name in topic_names}

    def create_topics(
        self, topics: Iterable[TopicDefinition], timeout: float = 30, finalize_timeout: float = 60
    ) -> None:
        """Create topics, by default with one partition and one replica; existing ones are unchanged.

        Raises:
            TopicCreationError: if Kafka would refuse topics; it lists all of them. The others are created.
        """
        refused: dict[str, str] = {}
        for topic in topics:
            fault = self._find_fault(topic)
            if fault is not None:
                refused[topic.name] = fault
                continue
            wanted = topic.config or TopicConfig(None, None)
            settings = {name: str(value) for name, value in wanted.extra_config.items()}
            created = TopicConfig(wanted.num_partitions or 1, wanted.replication_factor or 1, settings)
            self.topics.setdefault(topic.name, created)
        if refused:
            listed = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
            raise TopicCreationError(f"{len(refused)} topics could not be created: {listed}")

    def topic_ids(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, str | None]:
        """Return ids of topics. They differ from those of other clusters, whose topics have other records."""
        return {name: f"{name} of {self._id}" if name in self.topics else None for name in topic_names}

    def broker_count(self, timeout: float = 30) -> int:
        """Return 1: no topic needs several replicas."""
        return 1

    def committed_stable(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return None for each partition: nothing is committed."""
        return {partition: CommittedOffset(None) for partition in partitions}

    committed_now = committed_stable

    def _find_fault(self, topic: TopicDefinition) -> str | None:
        """Return why Kafka would not create a topic, or None."""
        config = topic.config or TopicConfig(None, None)
        for name, number in (
            ("num_partitions", config.num_partitions),
            ("replication_factor", config.replication_factor),
        ):
            if number is not None and number < 1:
                return f"{name} is {number} and must be 1 or more"
        for name, value in config.extra_config.items():
            fault = option_fault(name, str(value))
            if fault is not None:
                return fault
        # Kafka's metric names have "_" for ".", so it refuses topics with the same metric names.
        alike = [name for name in self.topics if name != topic.name and _metric(name) == _metric(topic.name)]
        return (
            f"its name collides with that of topic {alike[0]}: Kafka takes '.' and '_' for the same" if alike else None
        )


def _metric(topic: str) -> str:
    return topic.replace(".", "_")
