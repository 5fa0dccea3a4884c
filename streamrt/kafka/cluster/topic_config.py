"""Settings of topics in a cluster."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from streamrt.kafka.cluster.counts import check_count

__all__ = ["Broker", "PartitionReplicas", "TopicConfig", "TopicDefinition"]


@dataclass
class TopicConfig:
    """Settings of a topic in the cluster.

    Attributes:
        num_partitions: number of partitions; None leaves it to the cluster.
        replication_factor: number of replicas; None leaves it to the cluster.
        extra_config: options of the topic such as `{"retention.ms": "3600000"}`.
        defaulted: names of the settings that come from defaults and were not declared.

    Raises:
        ArgumentTypeError: if a number is not an integer.
        ArgumentValueError: if a number is below 1 or above 999,999.

    Example:
        >>> TopicConfig(num_partitions=3, replication_factor=1).as_dict()
        {'num_partitions': 3, 'replication_factor': 1, 'extra_config': {}}
    """

    num_partitions: int | None
    replication_factor: int | None
    extra_config: dict[str, str] = field(default_factory=dict)
    defaulted: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        check_count("TopicConfig(num_partitions=...)", self.num_partitions)
        check_count("TopicConfig(replication_factor=...)", self.replication_factor)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a dict."""
        return {
            "num_partitions": self.num_partitions,
            "replication_factor": self.replication_factor,
            "extra_config": dict(self.extra_config),
        }


@dataclass(frozen=True)
class PartitionReplicas:
    """Where a partition is.

    Attributes:
        partition: number of the partition.
        leader: id of the broker that leads it; None while there is none.
        replicas: ids of the brokers that have a replica.
        in_sync: ids of those whose replicas are in sync.
    """

    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]


@dataclass(frozen=True)
class Broker:
    """A broker of a cluster.

    Attributes:
        id: its number.
        host: its host, as it tells clients.
        port: its port.
        controller: whether it creates and deletes topics, as clients are told.
    """

    id: int
    host: str
    port: int
    controller: bool


class TopicDefinition(Protocol):
    """The properties of a topic that `TopicAdmin.create_topics` needs."""

    @property
    def name(self) -> str:
        """Name of the topic."""

    @property
    def config(self) -> TopicConfig | None:
        """Settings of the topic; None leaves them to the cluster."""
