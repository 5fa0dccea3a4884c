"""The requests to a cluster that `TopicManager` needs."""

from collections.abc import Collection, Iterable
from typing import Protocol

from streamrt.kafka import TopicConfig
from streamrt.kafka.cluster.topic_config import TopicDefinition

__all__ = ["TopicAdministration"]


class TopicAdministration(Protocol):
    """The cluster operations that `TopicManager` needs; `streamrt.kafka.TopicAdmin` implements them."""

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        """Return the settings of the topics, None for missing ones."""

    def create_topics(
        self, topics: Iterable[TopicDefinition], timeout: float = 30, finalize_timeout: float = 60
    ) -> None:
        """Create the topics and wait until they are ready."""
