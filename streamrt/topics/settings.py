"""Settings of topics: how Kafka writes them, and how declared and actual ones differ."""

import logging
from collections.abc import Mapping
from typing import Any

from streamrt.errors import TopicConfigurationError
from streamrt.kafka import TopicConfig

logger = logging.getLogger(__name__)


def declared_config(config: TopicConfig | None) -> TopicConfig | None:
    """Return the settings of a topic, or None where all of them are defaults.

    Example:
        >>> declared_config(TopicConfig(1, 1, defaulted=frozenset({"num_partitions", "replication_factor"})))
        >>> declared_config(TopicConfig(3, 1, defaulted=frozenset({"replication_factor"})))
        TopicConfig(num_partitions=3, replication_factor=1, extra_config={})
    """
    if config is None or {"num_partitions", "replication_factor", *config.extra_config} <= config.defaulted:
        return None
    return config


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


def warn_of_differences(declared: Mapping[str, TopicConfig | None], actual: Mapping[str, TopicConfig]) -> None:
    """Log a warning for each topic that is not as it was declared.

    Args:
        declared: what was declared, by topic.
        actual: what the cluster says, by topic.
    """
    for name, config in declared.items():
        differences = [] if config is None else config_differences(config, actual[name])
        if differences:
            logger.warning(
                "Topic %s is not as declared: %s. An existing topic is left as it is; change the topic or the declaration.",
                name,
                "; ".join(differences),
            )


def option_text(value: object) -> str:
    """Return an option of a topic as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def refuse_different_counts(counts: Mapping[str, int | None]) -> None:
    """Check that topics have the same number of partitions.

    Args:
        counts: the numbers by topic.

    Raises:
        TopicConfigurationError: if they differ.

    Example:
        >>> refuse_different_counts({"orders": 4, "customers": 4})
    """
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise TopicConfigurationError(
            f"these topics must have the same number of partitions ({listed}): equal keys lie in partitions of equal "
            "number only then, and what follows has state or a group_by; copy one of them, by to_topic(), to a topic of as "
            "many partitions as the other has"
        )
