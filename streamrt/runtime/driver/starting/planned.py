"""A client of the cluster that changes nothing: it shows topics as if they had been created.

The checks of a start run with it as they would with a real one. Changelogs and repartition topics that the start would
create exist for the checks that follow, empty, and are noted.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import NoReturn

from typing_extensions import override

from streamrt.errors import InvalidOperationError, TopicCreationError
from streamrt.kafka import ConnectionConfig, KafkaRequestError, TopicAdmin, TopicConfig
from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.cluster.partition_offsets import IsolationLevelName
from streamrt.kafka.cluster.topic_config import TopicDefinition
from streamrt.records import TopicPartition

__all__ = ["PlannedAdmin"]

# A failed request is raised, and so reported once.
_SILENT = logging.Logger("streamrt.plan", logging.CRITICAL)  # noqa: LOG001
_SETTLE_S = 1.0
"""How long to wait for transactions that move offsets; a running instance always has one open."""


class PlannedAdmin(TopicAdmin):
    """Reads the cluster, and notes what would be created.

    Args:
        connection: connection to the brokers.

    Attributes:
        created: settings of the topics that would be created, by name.
    """

    def __init__(self, connection: ConnectionConfig) -> None:
        super().__init__(connection, _SILENT)
        self.created: dict[str, TopicConfig] = {}

    @override
    def create_topics(
        self, topics: Iterable[TopicDefinition], timeout: float = 30, finalize_timeout: float = 60
    ) -> None:
        """Note topics; the brokers check them, and create nothing.

        Raises:
            TopicCreationError: if the brokers would refuse topics; it lists all of them.
        """
        wanted = list(topics)
        faults = self.creation_faults(wanted, timeout)
        if faults:
            listed = "; ".join(f"{name}: {reason}" for name, reason in faults.items())
            raise TopicCreationError(f"{len(faults)} of {len(wanted)} topics could not be created: {listed}")
        for topic in wanted:
            config = topic.config or TopicConfig(None, None)
            # With the cluster's default, the number is not known before the topic exists.
            self.created[topic.name] = TopicConfig(
                config.num_partitions or 1, config.replication_factor, dict(config.extra_config)
            )

    @override
    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        found = super().inspect_topics([name for name in topic_names if name not in self.created], timeout)
        return {name: self.created.get(name) or found[name] for name in dict.fromkeys(topic_names)}

    @override
    def topic_ids(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, str | None]:
        found = super().topic_ids([name for name in topic_names if name not in self.created], timeout)
        return {name: found.get(name) for name in topic_names}

    @override
    def offset_bounds(
        self,
        partitions: Collection[TopicPartition],
        timeout: float = 30,
        *,
        isolation_level: IsolationLevelName = "read_uncommitted",
    ) -> dict[TopicPartition, tuple[int, int]]:
        existing = [each for each in partitions if each.topic not in self.created]
        found = super().offset_bounds(existing, timeout, isolation_level=isolation_level) if existing else {}
        return {each: found.get(each, (0, 0)) for each in partitions}

    @override
    def bounds(self, partition: TopicPartition, timeout: float = 30) -> tuple[int, int]:
        # A start ends open transactions first. This client must not, so it looks at what can be read now.
        return self.offset_bounds([partition], timeout, isolation_level="read_committed")[partition]

    @override
    def committed_stable(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets; while a transaction is about to move one, those before it."""
        try:
            return super().committed_stable(group, partitions, min(timeout, _SETTLE_S))
        except KafkaRequestError:
            return self.committed_now(group, partitions, timeout)

    @override
    def delete_topics(self, topic_names: Collection[str], timeout: float = 30) -> NoReturn:
        raise _make_refusal()

    @override
    def delete_records(self, offsets: Mapping[TopicPartition, int], timeout: float = 30) -> NoReturn:
        raise _make_refusal()

    @override
    def set_committed(
        self, group: str, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None
    ) -> NoReturn:
        raise _make_refusal()


def _make_refusal() -> InvalidOperationError:
    return InvalidOperationError("a plan changes nothing in the cluster: run the application, or use `streamrt reset`")
