"""`TopicManager`: declares, creates and checks the topics of an application."""

import copy
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import Self

from streamrt.common.texts import option_text
from streamrt.config import AutoOffsetReset
from streamrt.errors import ConfigurationError, InvalidOperationError, TopicConfigurationError, TopicNotFoundError
from streamrt.kafka import TopicConfig
from streamrt.kafka.cluster.topic_ids import repeated
from streamrt.serializers import DeserializerType, SerializerType
from streamrt.topics.administration import TopicAdministration
from streamrt.topics.internal import (
    changelog_config,
    changelog_fault,
    changelog_topic_name,
    repartition_config,
    repartition_fault,
    repartition_topic_name,
    required_text,
    topic_alias,
)
from streamrt.topics.settings import declared_config, refuse_different_counts, warn_of_differences
from streamrt.topics.topic import TimestampExtractor, Topic
from streamrt.topics.watermarks import WatermarkStrategy

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Repartition:
    """A repartition topic.

    Attributes:
        topic: the topic.
        input: the topic of its records, or several, joined by `--`.
        operation: name of the `group_by` or broadcast.
        like: for a broadcast, the topic that decides on the number of partitions; None for the input.
        short: whether the name has a digest in place of the input.
    """

    topic: Topic
    input: str
    operation: str
    like: str | None
    short: bool = False


@dataclass(frozen=True)
class MergedTopics:
    """Topics that are processed together.

    Attributes:
        topics: their names.
        grouping: names of the groupings in the names of stores behind the merge, joined by dots.
    """

    topics: tuple[str, ...]
    grouping: str


def needed_topics(
    repartitions: Mapping[str, Repartition], origin: Callable[[str], str], found: Mapping[str, TopicConfig | None]
) -> dict[str, TopicConfig]:
    """Return the settings of the repartition topics that are needed, as far as their inputs exist.

    Args:
        repartitions: all repartition topics, by name.
        origin: returns the input topic that decides on the number of partitions of a topic.
        found: settings of the existing topics, by name.
    """
    needed: dict[str, TopicConfig] = {}
    for name, each in repartitions.items():
        source, size = found.get(origin(each.input)), found.get(origin(name))
        if source is None or size is None or source.num_partitions == size.num_partitions == 1:
            continue
        # A repartition topic keeps its partitions if its input gets more.
        like = found.get(each.like or "") or size
        needed[name] = replace(repartition_config(source), num_partitions=like.num_partitions)
    return needed


class TopicManager:
    """Declare the topics of an application, create missing ones and check existing ones.

    Args:
        topic_admin: access to the cluster.
        consumer_group: the consumer group of the application.
        timeout: seconds to wait for an answer of the cluster.
        create_timeout: seconds to wait until new topics are ready.
        auto_create_topics: whether missing topics are created.
    """

    default_num_partitions = 1
    default_replication_factor = 1
    default_extra_config: Mapping[str, str] = {}

    def __init__(
        self,
        topic_admin: TopicAdministration,
        consumer_group: str,
        timeout: float = 30,
        create_timeout: float = 60,
        auto_create_topics: bool = True,
    ) -> None:
        self._admin = topic_admin
        self._consumer_group = consumer_group
        self._timeout = timeout
        self._create_timeout = create_timeout
        self._auto_create_topics = auto_create_topics
        self._topics: dict[str, Topic] = {}
        self._declared: dict[str, Topic] = {}
        self._repartitions: dict[str, Repartition] = {}
        self._merged: dict[str, MergedTopics] = {}
        self._changelogs: dict[tuple[str, str], Topic] = {}
        self._actual: dict[str, TopicConfig] = {}

    @property
    def consumer_group(self) -> str:
        """The consumer group of the application."""
        return self._consumer_group

    @property
    def topics(self) -> dict[str, Topic]:
        """The declared topics of the application, by name."""
        return dict(self._topics)

    @property
    def repartition_topics(self) -> dict[str, Topic]:
        """The repartition topics, which `group_by` uses if its input has several partitions, by name."""
        return {name: repartition.topic for name, repartition in self._repartitions.items()}

    @property
    def changelog_topics(self) -> dict[str, dict[str, Topic]]:
        """The changelog topics, by the topic that a store belongs to and the store's name."""
        result: dict[str, dict[str, Topic]] = {}
        for (topic, store), changelog in self._changelogs.items():
            result.setdefault(topic, {})[store] = changelog
        return result

    @property
    def changelog_topics_list(self) -> list[Topic]:
        """The changelog topics."""
        return list(self._changelogs.values())

    @property
    def non_changelog_topics(self) -> dict[str, Topic]:
        """All topics except changelog topics, by name."""
        return {**self._topics, **self.repartition_topics}

    @property
    def all_topics(self) -> dict[str, Topic]:
        """All topics, by name."""
        return {**self.non_changelog_topics, **{topic.name: topic for topic in self._changelogs.values()}}

    def topic(
        self,
        name: str,
        value_deserializer: DeserializerType = "json",
        key_deserializer: DeserializerType = "bytes",
        value_serializer: SerializerType = "json",
        key_serializer: SerializerType = "bytes",
        config: TopicConfig | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        auto_offset_reset: AutoOffsetReset | None = None,
        watermark_strategy: WatermarkStrategy | None = None,
    ) -> Topic:
        """Declare a topic.

        Args:
            name: name of the topic.
            value_deserializer: name of a deserializer, or an object.
            key_deserializer: name of a deserializer, or an object.
            value_serializer: name of a serializer, or an object.
            key_serializer: name of a serializer, or an object.
            config: settings in the cluster; by default those of `topic_config()`.
            timestamp_extractor: function that replaces the broker's timestamp of records.
            auto_offset_reset: where to start in partitions without a committed offset, if not as the application says.
            watermark_strategy: event time of windows and process functions below, unless they choose one.

        Raises:
            ConfigurationError: if the name is invalid, a serializer is unknown, or the topic was declared before with
                different settings in the cluster.
        """
        serializers = (value_deserializer, key_deserializer, value_serializer, key_serializer)
        return self.register(
            Topic(
                name,
                config,
                *serializers,
                timestamp_extractor,
                auto_offset_reset=auto_offset_reset,
                watermark_strategy=watermark_strategy,
            )
        )

    def register(self, topic: Topic) -> Topic:
        """Declare an existing `Topic` object.

        A topic may be declared several times with different serializers: one object reads it, another one writes it. A
        look-up by name returns the last declaration.

        Args:
            topic: the topic.

        Returns:
            The topic to use. If it has no settings, it gets those of an earlier declaration, or the defaults.

        Raises:
            ConfigurationError: if a topic of this name was declared before with different settings in the cluster.
        """
        if self._topics.get(topic.name) is topic:
            return topic
        former = self._topics.get(topic.name)
        declared = self._declared.get(topic.name)
        earlier, own = None if declared is None else declared_config(declared.config), declared_config(topic.config)
        if None not in (earlier, own) and earlier != own:
            raise ConfigurationError(
                f"topic {topic.name} is declared twice with different settings in the cluster ({earlier} and {own}): "
                "pass settings in only one of the declarations"
            )
        if former is None or own is not None:
            self._declared[topic.name] = topic
        config = own or (topic if former is None else former).config or self.topic_config()
        if topic.config != config:
            topic = topic.with_config(config)
        self._topics[topic.name] = topic
        return topic

    def topic_config(
        self,
        num_partitions: int | None = None,
        replication_factor: int | None = None,
        extra_config: Mapping[str, Any] | None = None,
    ) -> TopicConfig:
        """Return settings with the defaults for missing ones: 1 partition, 1 replica.

        Args:
            num_partitions: number of partitions.
            replication_factor: number of replicas.
            extra_config: options of the topic, such as `{"retention.ms": 3600000}`.

        Example:
            >>> from streamrt.kafka import TopicAdmin
            >>> manager = TopicManager(TopicAdmin("localhost:9092"), "shop")
            >>> manager.topic_config(num_partitions=4)
            TopicConfig(num_partitions=4, replication_factor=1, extra_config={})
        """
        given = {"num_partitions": num_partitions, "replication_factor": replication_factor}
        options = {**self.default_extra_config, **(extra_config or {})}
        return TopicConfig(
            self.default_num_partitions if num_partitions is None else num_partitions,
            self.default_replication_factor if replication_factor is None else replication_factor,
            {key: option_text(value) for key, value in options.items()},
            defaulted=frozenset(name for name, value in given.items() if value is None)
            | (self.default_extra_config.keys() - (extra_config or {}).keys()),
        )

    def on_cluster(self, topic_admin: TopicAdministration, *, create: bool = True) -> Self:
        """Return a manager of the same declared topics in another cluster.

        Args:
            topic_admin: access to that cluster.
            create: whether missing topics may be created there.
        """
        other = copy.copy(self)
        other._admin, other._auto_create_topics, other._actual = topic_admin, create, {}
        for registry in ("_topics", "_declared", "_repartitions", "_merged", "_changelogs"):
            setattr(other, registry, dict(getattr(self, registry)))
        return other

    def merged_topics(self, *topics: Topic, grouping: str = "") -> str:
        """Declare that topics are processed together, so that they may have common internal topics.

        Args:
            topics: input topics and repartition topics.
            grouping: names of the groupings in the names of stores behind the merge, joined by dots.

        Returns:
            The name that stands for them where a topic name is required: their sorted names, joined by `--`.

        Raises:
            InvalidOperationError: if one of them is not declared.
        """
        names = sorted(topic.name for topic in topics)
        for name in names:
            self._require_declared(name)
        together = "--".join(names)
        if len(names) > 1:
            self._merged[together] = MergedTopics(tuple(names), grouping)
        return together

    def declare_together(self, names: Collection[str]) -> None:
        """Declare that topics are processed together, as it turns out when the number of partitions is known.

        If inputs have one partition, a `group_by` needs no topic: its input then replaces the repartition topic.

        Args:
            names: names of input topics and repartition topics.

        Raises:
            InvalidOperationError: if one of them is not declared.
        """
        for name in names:
            self._require_declared(name)
        if len(names) > 1:
            # Frames that merge these topics directly declare their own groupings.
            self._merged.setdefault("--".join(sorted(names)), MergedTopics(tuple(sorted(names)), ""))

    def repartition_topic(
        self,
        operation: str,
        topic_name: str,
        value_deserializer: DeserializerType = "json",
        key_deserializer: DeserializerType = "json",
        value_serializer: SerializerType = "json",
        key_serializer: SerializerType = "json",
        like: str | None = None,
        *,
        short: bool = False,
    ) -> Topic:
        """Declare the repartition topic of a `group_by` or a broadcast. It is created if an input has several partitions.

        Args:
            operation: name of the `group_by`.
            topic_name: the topic that the `group_by` reads; may be a repartition topic, or a name from `merged_topics`.
            value_deserializer: name of a deserializer, or an object.
            key_deserializer: name of a deserializer, or an object.
            value_serializer: name of a serializer, or an object.
            key_serializer: name of a serializer, or an object.
            like: for a broadcast, the topic that decides on the number of partitions.
            short: whether the name has a digest in place of `topic_name`, if that is derived from others: names of operators
                that may follow each other would grow.

        Raises:
            ConfigurationError: if the resulting name is invalid or taken, or a serializer is unknown.
            InvalidOperationError: if `topic_name` is not declared.
        """
        self._require_declared(topic_name)
        short = short and (topic_name in self._repartitions or topic_name in self._merged)
        name = repartition_topic_name(self._consumer_group, topic_name, operation, short=short)
        topic = Topic(
            name,
            value_deserializer=value_deserializer,
            key_deserializer=key_deserializer,
            value_serializer=value_serializer,
            key_serializer=key_serializer,
        )
        method = "group_by(..., " if like is None else "broadcast("
        what, advice = method.partition("(")[0], f"such as {method}name='...')"
        former = self._repartitions.get(name)
        if former is not None and (former.input, former.operation, former.like) == (topic_name, operation, like):
            different = former.topic.differences(topic)
            if not different:
                return former.topic
            raise ConfigurationError(
                f"{what} {operation!r} of topic {topic_name} is declared twice with different {', '.join(different)}: "
                f"set another name for one of them, {advice}"
            )
        repartition = Repartition(topic, topic_name, operation, like, short)
        for other in self.non_changelog_topics:
            if self._is_mistakable(name, repartition, other):
                raise ConfigurationError(
                    f"the repartition topic of {what} {operation!r} on topic {topic_name} would be {name}, which "
                    f"collides with topic {other} in the names of internal topics and stores: choose another name, {advice}"
                )
        self._repartitions[name] = repartition
        return topic

    def names(self) -> dict[str, tuple[tuple[str, ...], str, bool]]:
        """Return what the names of repartition topics are made of: their inputs, the operation, and whether it is short."""
        return {
            name: (
                self._merged[each.input].topics if each.input in self._merged else (each.input,),
                each.operation,
                each.short,
            )
            for name, each in self._repartitions.items()
        }

    def changelog_topic(self, topic_name: str, store_name: str) -> Topic:
        """Declare the changelog topic of a store. `create_changelog_topics` creates it.

        Args:
            topic_name: the topic that the store belongs to; may be a repartition topic, or a name from `merged_topics`.
            store_name: name of the store.

        Raises:
            ConfigurationError: if the resulting name is invalid or taken.
            InvalidOperationError: if `topic_name` is not declared.
        """
        former = self._changelogs.get((topic_name, store_name))
        if former is not None:
            return former
        self._require_declared(topic_name)
        name = changelog_topic_name(self._consumer_group, topic_name, store_name)
        if name in self.all_topics:
            raise ConfigurationError(
                f"the changelog topic of store {store_name!r} of topic {topic_name} would be {name}, which is another topic "
                "of the application: rename one of the topics or stores"
            )
        topic = Topic(
            name,
            value_deserializer="bytes",
            key_deserializer="bytes",
            value_serializer="bytes",
            key_serializer="bytes",
        )
        self._changelogs[topic_name, store_name] = topic
        return topic

    def create_topics(
        self,
        topics: Sequence[Topic],
        timeout: float | None = None,
        create_timeout: float | None = None,
    ) -> None:
        """Create the missing ones of the given topics.

        Args:
            topics: the topics.
            timeout: seconds to wait for an answer of the cluster; by default that of the manager.
            create_timeout: seconds to wait until the topics are ready; by default that of the manager.

        Raises:
            TopicCreationError: if a topic could not be created.
        """
        timeout = self._timeout if timeout is None else timeout
        found = self._admin.inspect_topics([topic.name for topic in topics], timeout=timeout)
        # Only the missing ones, because a user without permission to create topics may use existing ones.
        missing = [topic for topic in topics if found[topic.name] is None]
        if missing:
            self._admin.create_topics(
                missing,
                timeout=timeout,
                finalize_timeout=self._create_timeout if create_timeout is None else create_timeout,
            )

    def create_all_topics(self, timeout: float | None = None, create_timeout: float | None = None) -> None:
        """Create the missing declared topics, unless automatic creation is off.

        Repartition topics come last, because they get the actual partition and replica counts of their input topics.
        Inputs of one partition need none. `create_changelog_topics` creates changelog topics, because the permission to
        create a missing one depends on the records that the application has processed.

        Args:
            timeout: seconds to wait for an answer of the cluster; by default that of the manager.
            create_timeout: seconds to wait until the topics are ready; by default that of the manager.

        Raises:
            TopicCreationError: if a topic could not be created.
        """
        if not self._auto_create_topics:
            return
        if self._topics:
            self.create_topics(list(self._topics.values()), timeout, create_timeout)
        if self._repartitions:
            found = self._inspect_topics(self.non_changelog_topics, timeout)
            found |= self._look_again((name for name in self._topics if found[name] is None), timeout)
            needed = needed_topics(self._repartitions, self._origin_topic, found)
            topics = [self._repartitions[name].topic.with_config(config) for name, config in needed.items()]
            self.create_topics(topics, timeout, create_timeout)

    def validate_all_topics(self, timeout: float | None = None) -> None:
        """Check that all topics except changelogs exist, and warn about settings that differ from the declaration.

        Args:
            timeout: seconds to wait for an answer of the cluster; by default that of the manager.

        Raises:
            TopicNotFoundError: if topics do not exist; the message lists all of them.
            TopicConfigurationError: if a repartition topic has unusable settings.
        """
        found = self._inspect_topics(self.non_changelog_topics, timeout)
        actual = {name: config for name, config in found.items() if config is not None}
        actual.update(self._look_again(self._topics.keys() - actual.keys(), timeout))
        missing = {name: "" for name in self._topics if name not in actual}
        needed = needed_topics(self._repartitions, self._origin_topic, actual)
        actual.update(self._look_again(needed.keys() - actual.keys(), timeout))
        missing.update((name, required_text(config)) for name, config in needed.items() if name not in actual)
        self._refuse_missing(missing, "create_all_topics()")
        _refuse_faults(repartition_fault(name, actual[name]) for name in needed)
        for name, config in needed.items():
            if actual[name].num_partitions != config.num_partitions:
                logger.info(
                    "repartition topic %s has %s partitions, its input %s has %s; one task runs for each repartition "
                    "partition",
                    name,
                    actual[name].num_partitions,
                    self._origin_topic(name),
                    config.num_partitions,
                )
        self._actual = actual
        declared = {name: topic.config for name, topic in self._declared.items()}
        declared.update((name, TopicConfig(None, None, {"retention.ms": "-1"})) for name in needed)
        warn_of_differences(declared, actual)

    def missing_changelog_topics(self, timeout: float | None = None) -> list[str]:
        """Return the names of the missing declared changelog topics.

        Args:
            timeout: seconds to wait for an answer of the cluster; by default that of the manager.
        """
        found = self._inspect_topics([topic.name for topic in self._changelogs.values()], timeout)
        return [name for name, config in found.items() if config is None]

    def create_changelog_topics(
        self,
        names: Collection[str] | None = None,
        timeout: float | None = None,
        create_timeout: float | None = None,
    ) -> None:
        """Create the missing declared changelog topics, unless automatic creation is off.

        They get the partition counts of the topics of their stores, and the replica counts of the input topics, which
        `validate_all_topics` has looked up.

        Args:
            names: the topics to create; by default all declared ones.
            timeout: seconds to wait for an answer of the cluster; by default that of the manager.
            create_timeout: seconds to wait until the topics are ready; by default that of the manager.

        Raises:
            TopicCreationError: if a topic could not be created.
            InvalidOperationError: if the input topics were not validated yet.
        """
        if self._auto_create_topics:
            self.create_topics(
                [
                    changelog.with_config(changelog_config(self._store_config(topic)))
                    for (topic, _), changelog in self._changelogs.items()
                    if names is None or changelog.name in names
                ],
                timeout,
                create_timeout,
            )

    def validate_changelog_topics(self, timeout: float | None = None) -> None:
        """Check that all declared changelog topics exist, and that no state would be missed or deleted.

        Args:
            timeout: seconds to wait for an answer of the cluster; by default that of the manager.

        Raises:
            TopicNotFoundError: if topics do not exist; the message lists all of them.
            TopicConfigurationError: if the partition count of a changelog differs from that of its store's topic, or
                the changelog is not compacted.
            InvalidOperationError: if the input topics were not validated yet.
        """
        belongs = {changelog.name: topic for (topic, _), changelog in self._changelogs.items()}
        former: dict[str, str] = {}
        inputs: dict[str, TopicConfig] = {}
        for (topic, store), changelog in self._changelogs.items():
            # While an input had one partition, operators behind its group_by kept their state next to that of the input,
            # in stores of the same names.
            origin = "--".join(sorted(self._origin_topics(topic)))
            before = changelog_topic_name(self._consumer_group, origin, store)
            former[before] = origin
            inputs[before], inputs[changelog.name] = (
                self.broker_config(self._origin_topic(topic)),
                self._store_config(topic),
            )
        found = self._inspect_topics({**former, **belongs}, timeout)
        actual = {name: config for name, config in found.items() if config is not None}
        actual.update(self._look_again(belongs.keys() - actual.keys(), timeout))
        self._refuse_missing(
            {name: required_text(changelog_config(inputs[name])) for name in belongs if name not in actual},
            "create_changelog_topics()",
        )
        _refuse_faults(
            changelog_fault(name, config, belongs.get(name) or former[name], inputs[name])
            for name, config in actual.items()
        )
        self._actual.update(actual)

    def partition_counts(self) -> dict[str, int]:
        """Return the partition counts of the topics that `validate_all_topics` found, by name."""
        return {name: config.num_partitions or 0 for name, config in self._actual.items()}

    def broker_config(self, name: str) -> TopicConfig:
        """Return the settings of a topic in the cluster.

        Args:
            name: name of the topic.

        Raises:
            InvalidOperationError: if the topics were not validated yet, or the topic was not declared.
        """
        if name not in self._actual:
            raise InvalidOperationError(
                f"the settings of topic {name} in the cluster are unknown: declare it and call "
                "validate_all_topics() first"
            )
        return self._actual[name]

    def ensure_topics_copartitioned(self, *topics: Topic) -> None:
        """Check that topics have the same partition count, so that equal keys are in partitions with equal numbers.

        Args:
            topics: the topics, usually two or more.

        Raises:
            TopicConfigurationError: if their partition counts differ.
            TopicNotFoundError: if one of them does not exist.
        """
        unknown = [topic.name for topic in topics if topic.name not in self._actual]
        found = {**self._actual, **(self._inspect_topics(unknown, None) if unknown else {})}
        self._refuse_missing({name: "" for name in unknown if found[name] is None}, "create_all_topics()")
        counts = {topic.name: config.num_partitions for topic in topics if (config := found[topic.name]) is not None}
        refuse_different_counts(counts)

    def declared_partitions(self, name: str) -> int | None:
        """Return the declared number of partitions of the input topic that sizes a topic, or merged ones; None if unknown.

        Args:
            name: an input topic, a repartition topic, or a name from `merged_topics`.
        """
        topic = self._topics.get(self._origin_topic(name))
        return None if topic is None or topic.config is None else topic.config.num_partitions

    def _is_mistakable(self, name: str, repartition: Repartition, other: str) -> bool:
        """Return whether state behind a new repartition topic would be mistaken for state behind another topic."""
        if topic_alias(self._consumer_group, other) == topic_alias(self._consumer_group, name):
            return True
        # On an input of one partition, only the names of the groupings distinguish stores.
        path = f"{self._grouping_suffix(repartition.input)}.{repartition.operation}"
        return (
            self._origin_topics(other) == self._origin_topics(repartition.input)
            and self._grouping_suffix(other) == path
        )

    def _grouping_suffix(self, name: str) -> str:
        """Return the names of the groupings that lead to a topic, as a suffix of store names."""
        if name in self._merged:
            return f".{self._merged[name].grouping}" if self._merged[name].grouping else ""
        found = self._repartitions.get(name)
        return "" if found is None else f"{self._grouping_suffix(found.input)}.{found.operation}"

    def _origin_topic(self, name: str) -> str:
        """Return the input topic whose settings apply to the internal topics that derive from it."""
        while name in self._repartitions or name in self._merged:
            each = self._repartitions.get(name)
            name = self._merged[name].topics[0] if each is None else each.like or each.input
        return name

    def _store_config(self, name: str) -> TopicConfig:
        """Return the settings of the input of a topic's records, with the partition count of the topic itself.

        A repartition topic keeps its partitions if its input gets more.
        """
        member = name
        while member in self._merged:
            member = self._merged[member].topics[0]
        settings = self.broker_config(self._origin_topic(name))
        own = self._actual.get(member, settings)
        return replace(settings, num_partitions=own.num_partitions)

    def _origin_topics(self, name: str) -> frozenset[str]:
        """Return the input topics of a topic's records; if they have one partition, all state belongs to them."""
        if name in self._merged:
            return frozenset().union(*map(self._origin_topics, self._merged[name].topics))
        return self._origin_topics(self._repartitions[name].input) if name in self._repartitions else frozenset({name})

    def _inspect_topics(self, names: Iterable[str], timeout: float | None) -> dict[str, TopicConfig | None]:
        return self._admin.inspect_topics(list(names), timeout=self._timeout if timeout is None else timeout)

    def _require_declared(self, name: str) -> None:
        if name not in self.non_changelog_topics and name not in self._merged:
            raise InvalidOperationError(f"topic {name} is unknown to the application: declare it with topic() first")

    def _look_again(self, names: Iterable[str], timeout: float | None) -> dict[str, TopicConfig]:
        """Return the settings of topics that one broker did not know, as right after they were created, and others do."""
        left, known = set(names), dict[str, TopicConfig]()

        def are_known() -> bool:
            found = self._inspect_topics(sorted(left), timeout)
            known.update((name, config) for name, config in found.items() if config is not None)
            left.difference_update(known)
            return not left

        if left:
            repeated(are_known, math.inf)
        return known

    def _refuse_missing(self, missing: Mapping[str, str], method: str) -> None:
        if missing:
            listed = ", ".join(f"{name} ({words})" if words else name for name, words in sorted(missing.items()))
            advice = f"call {method}" if self._auto_create_topics else "set auto_create_topics=True"
            raise TopicNotFoundError(f"these topics do not exist: {listed}; create them manually, or {advice}")


def _refuse_faults(faults: Iterable[str | None]) -> None:
    said = [fault for fault in faults if fault is not None]
    if said:
        raise TopicConfigurationError("; ".join(said))
