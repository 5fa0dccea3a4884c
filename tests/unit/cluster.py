"""The cluster in memory, with a word about what it was asked for."""

from collections.abc import Iterable

from streamrt.errors import TopicCreationError
from streamrt.kafka import TopicConfig
from streamrt.kafka.cluster.topic_config import TopicDefinition
from streamrt.testing import cluster


class MemoryCluster(cluster.MemoryCluster):
    """Remembers what it was asked for, sets `retention.ms` of each topic, and creates none whose name begins with "bad"."""

    def __init__(self, **topics: TopicConfig) -> None:
        super().__init__(**topics)
        self.asked_to_create: list[str] = []
        self.timeouts: list[tuple[float, float]] = []

    def create_topics(
        self, topics: Iterable[TopicDefinition], timeout: float = 30, finalize_timeout: float = 60
    ) -> None:
        self.timeouts.append((timeout, finalize_timeout))
        for topic in topics:
            self.asked_to_create.append(topic.name)
            if topic.name.startswith("bad"):
                raise TopicCreationError(topic.name)
            super().create_topics([topic])
            created = self.topics[topic.name]
            created.extra_config = {"retention.ms": "7", **created.extra_config}
