"""The further topics of a maintained table: its requests, and the log of its changes."""

from collections.abc import Mapping
from typing import NamedTuple

from streamrt.errors import TopicConfigurationError
from streamrt.kafka import TopicConfig
from streamrt.tables.access.links import TableAdmin
from streamrt.tables.descriptions.info import TableInfo

__all__ = [
    "TopicDraft",
    "change_further_topics",
    "list_further_topics",
    "prepare_further_topics",
    "require_same_partitions",
]

_SHARED_SETTINGS = ("compression.type", "max.message.bytes", "min.insync.replicas")
"""Settings of the table's topic that the others have as well."""
_DEFAULT_RETENTION_MS = "604800000"
"""Kafka's default of retention.ms."""


class TopicDraft(NamedTuple):
    """A topic to create."""

    name: str
    config: TopicConfig


def list_further_topics(info: TableInfo) -> list[str]:
    """Return the topics that a table has in addition to that of its rows."""
    return [name for name in (info.requests_topic, info.changelog_topic) if name is not None]


def prepare_further_topics(admin: TableAdmin, info: TableInfo, of_table: TopicConfig, timeout: float) -> None:
    """Create the further topics of a table, or check those that exist.

    Args:
        admin: the administration.
        info: the table, with its topic resolved.
        of_table: settings of its topic.
        timeout: seconds to wait for brokers.

    Raises:
        TopicConfigurationError: if one that exists would lose requests, or has another number of partitions.
        TopicCreationError: if one could not be created.
    """
    names = list_further_topics(info)
    if not names:
        return
    found = admin.inspect_topics(names, timeout)
    shared = {name: info.config[name] for name in _SHARED_SETTINGS if name in info.config}
    drafts = []
    for name in names:
        config = {**shared, "cleanup.policy": "delete"}
        if name == info.requests_topic:
            config["retention.ms"] = "-1"
        if found[name] is None:
            drafts.append(TopicDraft(name, TopicConfig(of_table.num_partitions, of_table.replication_factor, config)))
    if drafts:
        admin.create_topics(drafts, timeout, timeout)
        # Another program may have created them in another way at the same moment.
        found = admin.inspect_topics(names, timeout)
    for name in names:
        settings = found[name]
        if settings is None:
            continue
        _require_deleting(info, name, settings.extra_config)
        require_same_partitions(info, name, settings.num_partitions, of_table.num_partitions)


def change_further_topics(
    admin: TableAdmin, info: TableInfo, settings: Mapping[str, str | None], timeout: float
) -> None:
    """Change those settings of the further topics of a table that they share with that of its rows.

    Args:
        admin: the administration.
        info: the table, with its topic resolved.
        settings: what changes; None returns to the cluster's.
        timeout: seconds to wait for brokers.
    """
    shared = {name: value for name, value in settings.items() if name in _SHARED_SETTINGS}
    names = list_further_topics(info) if shared else []
    for name, found in admin.inspect_topics(names, timeout).items() if names else ():
        if found is not None:
            admin.change_settings(name, shared, timeout)


def require_same_partitions(info: TableInfo, topic: str, partitions: int | None, of_table: int | None) -> None:
    """Refuse a further topic of a table if it has another number of partitions.

    Args:
        info: the table.
        topic: the topic.
        partitions: number of its partitions.
        of_table: number of partitions of the table's topic.

    Raises:
        TopicConfigurationError: if they differ.
    """
    if partitions != of_table:
        raise TopicConfigurationError(
            f"topic {topic} has {partitions} partitions, and topic {info.topic} of table {info.name!r} has {of_table}: what "
            f"belongs to a row must lie in its partition. Add partitions to {topic} if it has fewer; otherwise delete it "
            "when no requests wait, and create the table again with if_exists='replace'"
        )


def _require_deleting(info: TableInfo, topic: str, config: Mapping[str, str]) -> None:
    """Refuse settings with which a topic would lose requests or changes."""
    policy = config.get("cleanup.policy", "delete")
    if policy != "delete":
        raise TopicConfigurationError(
            f"topic {topic} has cleanup.policy={policy}, and would lose what it keeps for table {info.name!r}: set "
            "cleanup.policy=delete"
        )
    if topic != info.requests_topic:
        return
    for setting, default in (("retention.ms", _DEFAULT_RETENTION_MS), ("retention.bytes", "-1")):
        kept = config.get(setting, default)
        if kept != "-1":
            raise TopicConfigurationError(
                f"topic {topic} has {setting}={kept}, and would lose requests of table {info.name!r} that wait to be merged: "
                f"set {setting}=-1; what is merged is deleted by the application that maintains the table"
            )
