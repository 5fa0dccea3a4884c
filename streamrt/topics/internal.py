"""Internal topics: how repartition and changelog topics are named, set up and checked. Decisions only, no cluster.

```
repartition__<group>--<topic>--<name>                   what group_by puts between two sub-topologies
changelog__<group>--<topic>--<store>                    the changes of a store
changelog__<group>--repartition.<topic>.<name>--<store> the same, of a store behind a group_by
changelog__<group>--<topic>--<store>.<name>             the same, where the topic has one partition
```

What is behind a `group_by` has stores of its own, whose names end with that of the grouping: `default.<name>`, and
`default.<a>.<b>` where one grouping follows another. On a topic of one partition they lie beside the store of the input,
and the name tells them apart. Behind a repartition topic, which has the name in its own already, the changelog goes
without it.
"""

from streamrt.errors import ConfigurationError
from streamrt.kafka import TopicConfig
from streamrt.topics.topic import NAME

# These decide what a topic takes and when a record counts as written; internal topics take what their input takes.
_CARRIED = ("max.message.bytes", "min.insync.replicas")
# Limits on how far a record's timestamp may be from the broker's clock. Event times may be anywhere.
_TIMESTAMP_LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
_UNLIMITED = str(2**63 - 1)
_MAX_LENGTH = 249
_STORE = "the name of the store, which ends with the names of groupings"


def repartition_prefix(group: str) -> str:
    """Return how the names of all repartition topics of a group begin.

    Example:
        >>> repartition_prefix("shop")
        'repartition__shop--'
    """
    return f"repartition__{group}--"


def repartition_topic_name(group: str, topic: str, name: str) -> str:
    """Return the name of the topic that a `group_by` goes through.

    Args:
        group: the consumer group.
        topic: the topic that the dataframe reads.
        name: the name of the `group_by`.

    Raises:
        ConfigurationError: if no topic can have that name.

    Example:
        >>> repartition_topic_name("shop", "orders", "customer")
        'repartition__shop--orders--customer'
        >>> repartition_topic_name("shop", "repartition__shop--orders--customer", "day")
        'repartition__shop--repartition.orders.customer--day'
    """
    full = f"{repartition_prefix(group)}{topic_alias(group, topic)}--{name}"
    return _checked("repartition", full, {"consumer_group": group, "group_by(name='...')": name})


def changelog_topic_name(group: str, topic: str, store: str) -> str:
    """Return the name of the topic that keeps the changes of a store.

    Args:
        group: the consumer group.
        topic: the topic that the store belongs to: an input topic or a repartition topic.
        store: the name of the store.

    Raises:
        ConfigurationError: if no topic can have that name.

    Example:
        >>> changelog_topic_name("shop", "orders", "default")
        'changelog__shop--orders--default'
        >>> changelog_topic_name("shop", "repartition__shop--orders--customer", "default.customer")
        'changelog__shop--repartition.orders.customer--default'
        >>> changelog_topic_name("shop", "orders", "default.customer")
        'changelog__shop--orders--default.customer'
    """
    alias = topic_alias(group, topic)
    name, _, grouping = store.partition(".")
    if alias != topic and grouping and alias.endswith(f".{grouping.replace('--', '.')}"):
        store = name
    return _checked("changelog", f"changelog__{group}--{alias}--{store}", {"consumer_group": group, _STORE: store})


def topic_alias(group: str, topic: str) -> str:
    """Return what stands for a topic in the names of internal topics that belong to it.

    Args:
        group: the consumer group.
        topic: an input topic or a repartition topic.

    Example:
        >>> topic_alias("shop", "repartition__shop--orders--customer")
        'repartition.orders.customer'
    """
    prefix = repartition_prefix(group)
    if not topic.startswith(prefix):
        return topic
    return f"repartition.{topic.removeprefix(prefix).replace('--', '.')}"


def repartition_config(source: TopicConfig) -> TopicConfig:
    """Return the settings of a repartition topic.

    Its records are deleted when they have been processed, never by age or size: what is not processed yet must stay. It
    keeps the timestamps of the records, even where the cluster would set its own or limit them.

    Args:
        source: settings that the input topic has in the cluster.

    Example:
        >>> repartition_config(TopicConfig(3, 2)).extra_config["retention.ms"]
        '-1'
    """
    return _derived(source, {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})


def changelog_config(source: TopicConfig) -> TopicConfig:
    """Return the settings of a changelog topic.

    Compaction keeps the last value of each key for ever. Retention does not count while the policy is `compact`; it is
    unlimited all the same, so that somebody who adds `delete` to the policy of a live topic deletes no state.

    Args:
        source: settings that the input topic has in the cluster.

    Example:
        >>> changelog_config(TopicConfig(3, 2)).extra_config["cleanup.policy"]
        'compact'
    """
    return _derived(source, {"cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1"})


def repartition_fault(name: str, actual: TopicConfig) -> str | None:
    """Return what forbids to use an existing repartition topic, or None.

    It may have another number of partitions than its input, to which some were added: records are put into it by their new
    keys, and state behind it depends on its own number.

    Args:
        name: the repartition topic.
        actual: its settings in the cluster.
    """
    policy = actual.extra_config.get("cleanup.policy", "delete")
    if policy != "delete":
        return (
            f"repartition topic {name} has cleanup.policy={policy}, which removes records that are not processed yet: set "
            "it to delete"
        )
    return None


def changelog_fault(name: str, actual: TopicConfig, topic: str, source: TopicConfig) -> str | None:
    """Return what forbids to use an existing changelog topic, or None.

    Args:
        name: the changelog topic.
        actual: its settings in the cluster.
        topic: the topic that the store belongs to.
        source: the settings of that topic.
    """
    if actual.num_partitions != source.num_partitions:
        return (
            f"changelog topic {name} has {_count(actual)} and topic {topic} has {_count(source)}: keys have moved to other "
            "partitions than their state, so run under a new consumer_group, or make the input anew with "
            f"{_count(actual)}"
        )
    policy = actual.extra_config.get("cleanup.policy", "compact")
    if policy != "compact":
        return (
            f"changelog topic {name} has cleanup.policy={policy}, which deletes state: set it to compact; what is deleted "
            "already must be computed anew, under a new consumer_group"
        )
    return None


def required_text(config: TopicConfig) -> str:
    """Return settings in a few words, for those who create a topic by hand.

    Example:
        >>> required_text(changelog_config(TopicConfig(3, 1)))
        'num_partitions=3, cleanup.policy=compact, retention.ms=-1'
    """
    options = [f"{name}={config.extra_config[name]}" for name in ("cleanup.policy", "retention.ms")]
    return ", ".join([f"num_partitions={config.num_partitions}", *options])


def _checked(kind: str, full: str, parts: dict[str, str]) -> str:
    if NAME.fullmatch(full):
        return full
    if len(full) > _MAX_LENGTH:
        raise ConfigurationError(
            f"the {kind} topic {full!r} would have a name of {len(full)} characters, Kafka takes {_MAX_LENGTH}: shorten "
            f"{' or '.join(parts)}"
        )
    wrong = [part for part, text in parts.items() if not NAME.fullmatch(text)]
    raise ConfigurationError(
        f"no {kind} topic can have the name {full!r}: use letters, digits, '.', '_' and '-' only in {' and '.join(wrong)}"
    )


def _derived(source: TopicConfig, options: dict[str, str]) -> TopicConfig:
    settings = {"message.timestamp.type": "CreateTime", **options}
    settings.update((name, source.extra_config[name]) for name in _CARRIED if name in source.extra_config)
    # Older brokers do not know these options and would refuse them.
    settings.update(
        (name, _UNLIMITED) for name in _TIMESTAMP_LIMITS if source.extra_config.get(name, _UNLIMITED) != _UNLIMITED
    )
    return TopicConfig(source.num_partitions, source.replication_factor, settings)


def _count(config: TopicConfig) -> str:
    return f"{config.num_partitions} partition{'' if config.num_partitions == 1 else 's'}"
