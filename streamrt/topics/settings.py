"""Settings of topics: their text form in Kafka, and differences between declared and actual ones."""

import logging
from collections.abc import Mapping
from typing import Any

from streamrt.common.texts import option_text
from streamrt.errors import TopicConfigurationError
from streamrt.kafka import TopicConfig

logger = logging.getLogger(__name__)


def declared_config(config: TopicConfig | None) -> TopicConfig | None:
    """Return the settings of a topic, or None if all of them are defaults.

    Example:
        >>> declared_config(TopicConfig(1, 1, defaulted=frozenset({"num_partitions", "replication_factor"})))
        >>> declared_config(TopicConfig(3, 1, defaulted=frozenset({"replication_factor"})))
        TopicConfig(num_partitions=3, replication_factor=1, extra_config={})
    """
    if config is None or {"num_partitions", "replication_factor", *config.extra_config} <= config.defaulted:
        return None
    return config


def config_differences(declared: TopicConfig, actual: TopicConfig) -> list[str]:
    """Return the differences between declared settings and those in the cluster.

    Args:
        declared: declared settings; unset ones and defaults are not compared.
        actual: settings in the cluster.

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
    """Log a warning for each topic whose settings differ from the declaration.

    Args:
        declared: declared settings, by topic.
        actual: settings in the cluster, by topic.
    """
    for name, config in declared.items():
        differences = [] if config is None else config_differences(config, actual[name])
        if differences:
            logger.warning(
                "Topic %s differs from its declaration: %s. StreamRT does not change existing topics; change the topic "
                "or the declaration.",
                name,
                "; ".join(differences),
            )


def refuse_different_counts(counts: Mapping[str, int | None]) -> None:
    """Check that topics have the same partition count.

    Args:
        counts: partition counts, by topic.

    Raises:
        TopicConfigurationError: if they differ.

    Example:
        >>> refuse_different_counts({"orders": 4, "customers": 4})
    """
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise TopicConfigurationError(
            f"these topics must have the same number of partitions ({listed}), because later operators have state or a "
            "group_by and need equal keys in partitions with equal numbers; copy one of them, with to_topic(), to a "
            "topic with as many partitions as the other"
        )
