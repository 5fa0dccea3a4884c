"""Internal topics: names, settings and checks of repartition and changelog topics. Pure decisions, no cluster access.

```
repartition__<group>--<topic>--<name>                   what group_by puts between two sub-topologies
changelog__<group>--<topic>--<store>                    the changes of a store
changelog__<group>--source-<name>                       the state of a source
changelog__<group>--repartition.<topic>.<name>--<store> the same, of a store behind a group_by
changelog__<group>--<topic>--<store>.<name>             the same, where the topic has one partition
layout__<group>                                         the layout of the group, and the positions of its inputs
```

Operators behind a `group_by` have separate stores, whose names end with that of the grouping: `default.<name>`, or
`default.<a>.<b>` if one grouping follows another. On a topic of one partition they lie next to the store of the input,
and the name distinguishes them. Behind a repartition topic, whose name already contains the grouping, the name of the
changelog omits it.

Parts are joined by `--`, so a part that contains it, or begins or ends with a hyphen, could be taken for two, and two groups
could have one topic. `name_part` writes such a part as `-.` and the part with `-.` for each hyphen: `shop--eu` is
`-.shop-.-.eu`. All other parts stay as they are. A topic, or merged ones, may contain `--`, since it is the only part that is
neither the first nor the last one; so may the names of groupings at the end of a store.

A topic behind several groupings and joins has the names of all of them, more than Kafka allows. Then the topic, and if need
be the store, is written as a digest of the whole and its end, such as `300e72bff14706c4ff17._customer_id.matches.orders`.
"""

import re
from hashlib import blake2b

from streamrt.common.texts import shorten_name
from streamrt.errors import ConfigurationError
from streamrt.kafka import TopicConfig
from streamrt.topics.topic import NAME

# These options define which records a topic accepts and when a record counts as written. Internal topics copy their
# input's.
_CARRIED = ("max.message.bytes", "min.insync.replicas")
# Limits for the distance of a record's timestamp from the broker's clock. Event times must not be limited.
_TIMESTAMP_LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
_UNLIMITED = str(2**63 - 1)
_MAX_LENGTH = 249
_SHORT_PART = 60
_STORE = "the name of the store, which ends with the names of groupings"


_PLAIN = re.compile(r"[^-](?:(?!--).)*(?<!-)", re.DOTALL)
"""A part that cannot be mistaken: no `--` in it, and no hyphen at its ends."""


def name_part(text: str) -> str:
    """Return a part of the name of an internal topic, so that parts joined by `--` can be told apart.

    Args:
        text: the part.

    Example:
        >>> name_part("shop"), name_part("shop--eu"), name_part("shop-")
        ('shop', '-.shop-.-.eu', '-.shop-.')
    """
    return text if not text or _PLAIN.fullmatch(text) else "-." + text.replace("-", "-.")


def changelog_prefix(group: str) -> str:
    """Return the common prefix of the names of a group's changelog topics.

    Example:
        >>> changelog_prefix("shop"), changelog_prefix("shop--eu")
        ('changelog__shop--', 'changelog__-.shop-.-.eu--')
    """
    return f"changelog__{name_part(group)}--"


def source_changelog_name(group: str, store: str) -> str:
    """Return the name of the changelog topic of a source.

    Args:
        group: the consumer group.
        store: the name of the state of the source.

    Example:
        >>> source_changelog_name("shop", "source-csv")
        'changelog__shop--source-csv'
    """
    return changelog_prefix(group) + name_part(store)


def repartition_prefix(group: str) -> str:
    """Return the common prefix of the names of a group's repartition topics.

    Example:
        >>> repartition_prefix("shop")
        'repartition__shop--'
    """
    return f"repartition__{name_part(group)}--"


def repartition_topic_name(group: str, topic: str, name: str, *, short: bool = False) -> str:
    """Return the name of the repartition topic of a `group_by`.

    Args:
        group: the consumer group.
        topic: the topic that the dataframe reads.
        name: the name of the `group_by`.
        short: whether a digest stands for the topic.

    Raises:
        ConfigurationError: if the result is not a valid topic name.

    Example:
        >>> repartition_topic_name("shop", "orders", "customer")
        'repartition__shop--orders--customer'
        >>> repartition_topic_name("shop", "repartition__shop--orders--customer", "day")
        'repartition__shop--repartition.orders.customer--day'
    """
    read = digest_names(topic) if short else _join_parts(topic_alias(group, topic))
    full = _join_within_limit(repartition_prefix(group), read, name_part(name))
    return _check_name("repartition", full, {"consumer_group": group, "group_by(name='...')": name})


def changelog_topic_name(group: str, topic: str, store: str) -> str:
    """Return the name of the changelog topic of a store.

    Args:
        group: the consumer group.
        topic: the topic that the store belongs to: an input topic or a repartition topic.
        store: the name of the store.

    Raises:
        ConfigurationError: if the result is not a valid topic name.

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
    full = _join_within_limit(changelog_prefix(group), _join_parts(alias), _store_part(store))
    return _check_name("changelog", full, {"consumer_group": group, _STORE: store})


def dead_letter_topic_name(group: str) -> str:
    """Return the default name of the topic for dead letters of a consumer group.

    Args:
        group: the consumer group.

    Raises:
        ConfigurationError: if the result is not a valid topic name.

    Example:
        >>> dead_letter_topic_name("shop")
        'dead-letters__shop'
    """
    return _check_name("dead-letter", f"dead-letters__{group}", {"consumer_group": group})


def layout_topic_name(group: str) -> str:
    """Return the name of the topic with the layout of a consumer group: see `streamrt.runtime.layout_record`.

    Args:
        group: the consumer group.

    Raises:
        ConfigurationError: if the result is not a valid topic name.

    Example:
        >>> layout_topic_name("shop")
        'layout__shop'
    """
    return _check_name("layout", f"layout__{group}", {"consumer_group": group})


def topic_alias(group: str, topic: str) -> str:
    """Return the alias of a topic in the names of its internal topics.

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


def digest_names(names: str) -> str:
    """Return a short part of names that stands for the names of internal topics, or of groupings, joined by `--`.

    Args:
        names: the names.

    Example:
        >>> digest_names("repartition__shop--orders--customer.left--repartition__shop--people--customer.right")
        '1dbb2ce0d2'
    """
    return blake2b(names.encode(), digest_size=5).hexdigest()


def repartition_config(source: TopicConfig) -> TopicConfig:
    """Return the settings of a repartition topic.

    Its records are deleted after they have been processed, never by age or size, because unprocessed records must stay.
    It keeps the timestamps of records, even if the cluster's defaults would replace or limit them.

    Args:
        source: settings of the input topic in the cluster.

    Example:
        >>> repartition_config(TopicConfig(3, 2)).extra_config["retention.ms"]
        '-1'
    """
    return _derive_config(source, {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})


def changelog_config(source: TopicConfig) -> TopicConfig:
    """Return the settings of a changelog topic.

    Compaction keeps the last value of each key forever. Retention has no effect while the policy is `compact`. It is
    unlimited nevertheless, so that adding `delete` to the policy of a live topic deletes no state.

    Args:
        source: settings of the input topic in the cluster.

    Example:
        >>> changelog_config(TopicConfig(3, 2)).extra_config["cleanup.policy"]
        'compact'
    """
    return _derive_config(source, {"cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1"})


def repartition_fault(name: str, actual: TopicConfig) -> str | None:
    """Return the reason why an existing repartition topic cannot be used, or None.

    Its partition count may differ from that of its input, if partitions were added there: its records are partitioned
    by their new keys, and the state behind it depends only on its own partition count.

    Args:
        name: the repartition topic.
        actual: its settings in the cluster.
    """
    policy = actual.extra_config.get("cleanup.policy", "delete")
    if policy != "delete":
        return (
            f"repartition topic {name} has cleanup.policy={policy}, which removes unprocessed records: set it to delete"
        )
    return None


def changelog_fault(name: str, actual: TopicConfig, topic: str, source: TopicConfig) -> str | None:
    """Return the reason why an existing changelog topic cannot be used, or None.

    Args:
        name: the changelog topic.
        actual: its settings in the cluster.
        topic: the topic that the store belongs to.
        source: the settings of that topic.
    """
    if actual.num_partitions != source.num_partitions:
        grown = (actual.num_partitions or 0) < (source.num_partitions or 0)
        way = (
            f"give the state as many with `streamrt repartition --partitions {source.num_partitions}`"
            if grown
            else f"recreate the input topic with {_format_count(actual)}"
        )
        return (
            f"changelog topic {name} has {_format_count(actual)} and topic {topic} has {_format_count(source)}: keys "
            f"have moved to other partitions than their state, so {way}, or run under a new consumer_group"
        )
    policy = actual.extra_config.get("cleanup.policy", "compact")
    if policy != "compact":
        return (
            f"changelog topic {name} has cleanup.policy={policy}, which deletes state: set it to compact; recompute "
            "deleted state under a new consumer_group"
        )
    return None


def required_text(config: TopicConfig) -> str:
    """Return a short text of the settings, for users who create a topic manually.

    Example:
        >>> required_text(changelog_config(TopicConfig(3, 1)))
        'num_partitions=3, cleanup.policy=compact, retention.ms=-1'
    """
    options = [f"{name}={config.extra_config[name]}" for name in ("cleanup.policy", "retention.ms")]
    return ", ".join([f"num_partitions={config.num_partitions}", *options])


def _join_parts(topic: str) -> str:
    """Return the part of a topic, or of merged ones: only hyphens at the ends could be mistaken."""
    return name_part(topic) if topic.startswith("-") or topic.endswith("-") else topic


def _store_part(store: str) -> str:
    """Return the part of a store, whose groupings StreamRT also joins by `--`."""
    name, _, grouping = store.partition(".")
    return store if grouping and name_part(name) == name else name_part(store)


def _join_within_limit(prefix: str, topic: str, last: str) -> str:
    """Return the name of an internal topic; its parts are shortened if Kafka would not take it."""
    full = f"{prefix}{topic}--{last}"
    if len(full) > _MAX_LENGTH:
        topic = shorten_name(topic, _SHORT_PART)
        full = f"{prefix}{topic}--{last}"
    return full if len(full) <= _MAX_LENGTH else f"{prefix}{topic}--{shorten_name(last, _SHORT_PART)}"


def _check_name(kind: str, full: str, parts: dict[str, str]) -> str:
    if NAME.fullmatch(full):
        return full
    if len(full) > _MAX_LENGTH:
        raise ConfigurationError(
            f"the {kind} topic {full!r} would have a name of {len(full)} characters, but Kafka allows {_MAX_LENGTH}: "
            f"shorten {' or '.join(parts)}"
        )
    wrong = [part for part, text in parts.items() if not NAME.fullmatch(text)]
    raise ConfigurationError(
        f"{full!r} is not a valid {kind} topic name: use letters, digits, '.', '_' and '-' only in {' and '.join(wrong)}"
    )


def _derive_config(source: TopicConfig, options: dict[str, str]) -> TopicConfig:
    settings = {"message.timestamp.type": "CreateTime", **options}
    settings.update((name, source.extra_config[name]) for name in _CARRIED if name in source.extra_config)
    # Only if the broker knows them: older ones would refuse these options. Also if the input has no limit: newer brokers have
    # one for topics that do not say so.
    settings.update((name, _UNLIMITED) for name in _TIMESTAMP_LIMITS if name in source.extra_config)
    return TopicConfig(source.num_partitions, source.replication_factor, settings)


def _format_count(config: TopicConfig) -> str:
    return f"{config.num_partitions} partition{'' if config.num_partitions == 1 else 's'}"
