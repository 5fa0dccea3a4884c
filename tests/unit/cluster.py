"""The topics of a cluster that lives in memory."""

from collections.abc import Collection, Iterable

from streamrt.errors import TopicCreationError
from streamrt.kafka import TopicConfig, TopicDefinition


class MemoryCluster:
    """The topics of a cluster, without one."""

    def __init__(self, **topics: TopicConfig) -> None:
        self.topics = dict(topics)
        self.asked_to_create: list[str] = []
        self.timeouts: list[tuple[float, float]] = []

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        return {name: self.topics.get(name) for name in topic_names}

    def create_topics(
        self, topics: Iterable[TopicDefinition], timeout: float = 30, finalize_timeout: float = 60
    ) -> None:
        self.timeouts.append((timeout, finalize_timeout))
        for topic in topics:
            self.asked_to_create.append(topic.name)
            if topic.name.startswith("bad"):
                raise TopicCreationError(topic.name)
            config = topic.config or TopicConfig(1, 1)
            self.topics[topic.name] = TopicConfig(
                config.num_partitions or 1, config.replication_factor or 1, {"retention.ms": "7", **config.extra_config}
            )
