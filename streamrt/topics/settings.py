"""Settings of topics: how Kafka writes them, and how declared and actual ones differ."""

from typing import Any

from streamrt.kafka import TopicConfig


def config_differences(declared: TopicConfig, actual: TopicConfig) -> list[str]:
    """Return what differs between the settings that the user declared and those in the cluster.

    Args:
        declared: what was declared; what it leaves open or took from defaults is not compared.
        actual: what the cluster says.

    Example:
        >>> config_differences(TopicConfig(3, None, {"retention.ms": "60000"}), TopicConfig(4, 2))
        ['num_partitions declared 3, actual 4', 'retention.ms declared 60000, actual not set']
    """
    wanted: dict[str, Any] = {
        "num_partitions": declared.num_partitions,
        "replication_factor": declared.replication_factor,
        **declared.extra_config,
    }
    found: dict[str, Any] = {
        "num_partitions": actual.num_partitions,
        "replication_factor": actual.replication_factor,
        **actual.extra_config,
    }
    return [
        f"{name} declared {option_text(value)}, actual {option_text(found.get(name, 'not set'))}"
        for name, value in wanted.items()
        if value is not None
        and name not in declared.defaulted
        and option_text(value) != option_text(found.get(name, "not set"))
    ]


def option_text(value: object) -> str:
    """Return an option of a topic as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
