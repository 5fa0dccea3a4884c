"""Where the topics of an application end, and what its consumer group has committed."""

from collections.abc import Collection, Mapping

from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.driver.life.completion import KafkaOffsetView
from streamrt.runtime.driver.starting.definition import ApplicationDefinition, Environment
from streamrt.topology import Topology

__all__ = ["GroupOffsets"]

_SHORTEST_REQUEST_S = 1.0


class GroupOffsets:
    """Asks Kafka for offsets of the application's topics.

    Args:
        definition: the application.
        environment: where it runs.
    """

    def __init__(self, definition: ApplicationDefinition, environment: Environment) -> None:
        self._definition = definition
        self._environment = environment

    def view(self, timeout: float | None = None) -> KafkaOffsetView:
        """Return what makes the requests.

        Args:
            timeout: seconds that each may take; None for the `request_timeout` of the application, which is the limit.
        """
        config, limit = self._definition.config, self._definition.config.request_timeout
        if timeout is not None:
            limit = max(_SHORTEST_REQUEST_S, min(timeout, limit))
        return KafkaOffsetView(self._environment.admin, self._environment.connection, config.consumer_group, limit)

    def resolved(self, view: KafkaOffsetView) -> Topology:
        """Return the topology for the partitions that the input topics have."""
        topology = self._definition.topology
        inputs = topology.outer_topics
        counts = dict.fromkeys(inputs, 0)
        for partition in view.partitions(inputs):
            counts[partition.topic] += 1
        return topology.resolve(counts)

    def stable_ends(self, view: KafkaOffsetView) -> tuple[Mapping[TopicPartition, int], Topology]:
        """Return the last stable offsets of all topics that are read, and the resolved topology."""
        topology = self.resolved(view)
        return view.stable_ends(view.partitions(list(topology.sources))), topology

    def ends(self, view: KafkaOffsetView, topics: list[str]) -> Offsets:
        """Return the ends of topics: the high watermarks, because the last commit of a producer may still be under way."""
        return Offsets({each: end for each, (_, end) in view.bounds(view.partitions(topics)).items()})

    def committed(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the committed offsets of partitions that have one, with the ids of their topics."""
        config, admin = self._definition.config, self._environment.admin
        found = admin.committed(config.consumer_group, list(partitions), timeout=config.request_timeout)
        known = {partition: offset for partition, offset in found.items() if offset is not None}
        ids = admin.topic_ids({partition.topic for partition in known}, timeout=config.request_timeout)
        return Offsets(known, {topic: each for topic, each in ids.items() if each is not None})

    def unfinished_sources(self) -> list[str]:
        """Return the names of the sources that have not ended."""
        return [name for name, source in self._definition.sources.stats().items() if not source.ended]
