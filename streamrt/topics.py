"""Topics: what is in them (serializers, timestamps) and what the cluster makes of them (partitions)."""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streamrt.errors import ConfigurationError, InvalidOperationError, TopicNotFoundError
from streamrt.kafka import TopicConfig, TopicDefinition
from streamrt.models import Headers, HeadersMapping, HeaderValue, TimestampType, merge_headers
from streamrt.serializers import (
    Deserializer,
    DeserializerType,
    MessageField,
    SerializationContext,
    Serializer,
    SerializerType,
    resolve_deserializer,
    resolve_serializer,
)

__all__ = [
    "KafkaMessage",
    "TimestampExtractor",
    "Topic",
    "TopicAdministration",
    "TopicConfig",
    "TopicManager",
]

TimestampExtractor = Callable[[Any, Headers | None, int, TimestampType], int]
"""Called with value, headers, timestamp (ms) and its type; returns the timestamp (ms) to use instead."""

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True)
class KafkaMessage:
    """A record ready to be produced.

    Attributes:
        key: the serialized key, or None.
        value: the serialized value, or None for a tombstone.
        headers: its headers, or None.
        timestamp: milliseconds since the Unix epoch, or None for the time at which it is produced.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    timestamp: int | None = None


class Topic:
    """A topic, with the serializers of its keys and values. It holds no client and cannot be changed.

    Args:
        name: name of the topic: letters, digits, `.`, `_` and `-`, at most 249 of them.
        config: settings in the cluster, to create the topic with and to compare an existing one with.
        value_deserializer: name of a deserializer, or an object.
        key_deserializer: name of a deserializer, or an object.
        value_serializer: name of a serializer, or an object.
        key_serializer: name of a serializer, or an object.
        timestamp_extractor: gives records another timestamp than the broker's.

    Raises:
        ConfigurationError: if the name is not allowed or a serializer is unknown.

    Example:
        >>> orders = Topic("orders", value_deserializer="json", key_serializer="str")
        >>> orders
        Topic('orders')
        >>> orders.serialize(key="a", value={"n": 1}).value
        b'{"n":1}'
        >>> orders.deserialize(b"a", b'{"n":1}')
        (b'a', {'n': 1})
    """

    __slots__ = (
        "_config",
        "_key_deserializer",
        "_key_serializer",
        "_name",
        "_timestamp_extractor",
        "_value_deserializer",
        "_value_serializer",
    )

    def __init__(
        self,
        name: str,
        config: TopicConfig | None = None,
        value_deserializer: DeserializerType = "json",
        key_deserializer: DeserializerType = "bytes",
        value_serializer: SerializerType = "json",
        key_serializer: SerializerType = "bytes",
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> None:
        self._name = _checked_name(name)
        self._config = config
        self._value_deserializer = resolve_deserializer(value_deserializer)
        self._key_deserializer = resolve_deserializer(key_deserializer)
        self._value_serializer = resolve_serializer(value_serializer)
        self._key_serializer = resolve_serializer(key_serializer)
        self._timestamp_extractor = timestamp_extractor

    @property
    def name(self) -> str:
        """Name of the topic."""
        return self._name

    @property
    def config(self) -> TopicConfig | None:
        """Settings in the cluster as they were declared, or None."""
        return self._config

    @property
    def value_deserializer(self) -> Deserializer:
        """Deserializer of the values."""
        return self._value_deserializer

    @property
    def key_deserializer(self) -> Deserializer:
        """Deserializer of the keys."""
        return self._key_deserializer

    @property
    def value_serializer(self) -> Serializer:
        """Serializer of the values."""
        return self._value_serializer

    @property
    def key_serializer(self) -> Serializer:
        """Serializer of the keys."""
        return self._key_serializer

    @property
    def timestamp_extractor(self) -> TimestampExtractor | None:
        """What gives records another timestamp, or None."""
        return self._timestamp_extractor

    def serialize(
        self,
        key: object = None,
        value: object = None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
        timestamp_ms: int | None = None,
    ) -> KafkaMessage:
        """Serialize one record, ready for `Producer.produce`.

        A key of None stays None. A value of None is up to the serializer: as JSON it is `null`, which is no
        tombstone.

        Args:
            key: the key.
            value: the value.
            headers: pairs of name and value, or a mapping.
            timestamp_ms: milliseconds since the Unix epoch.

        Raises:
            SerializationError: if key or value cannot be serialized.
        """
        pairs = _pairs(headers)
        key_bytes = None if key is None else self._key_serializer(key, self._context(MessageField.KEY, pairs))
        value_bytes = self._value_serializer(value, self._context(MessageField.VALUE, pairs))
        extra = self._value_serializer.extra_headers
        if extra:
            pairs = merge_headers(pairs, extra)
        return KafkaMessage(key_bytes, value_bytes, pairs, timestamp_ms)

    def deserialize(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
    ) -> tuple[Any, Any]:
        """Deserialize one record.

        Args:
            key: bytes of the key, or None.
            value: bytes of the value, or None.
            headers: pairs of name and value, or a mapping.

        Returns:
            Key and value; what was None stays None.

        Raises:
            SerializationError: if key or value cannot be deserialized.
            IgnoreMessage: if a deserializer wants the record to be skipped.
        """
        pairs = _pairs(headers)
        key_context, value_context = (
            self._context(MessageField.KEY, pairs),
            self._context(MessageField.VALUE, pairs),
        )
        return (
            None if key is None else self._key_deserializer(key, key_context),
            None if value is None else self._value_deserializer(value, value_context),
        )

    def _context(self, field: MessageField, headers: Headers | None) -> SerializationContext:
        return SerializationContext(self._name, field, headers)

    def differences(self, other: "Topic") -> list[str]:
        """Return the names of the properties in which two topics differ.

        Args:
            other: the topic to compare with.

        Example:
            >>> Topic("a", key_serializer="str").differences(Topic("a"))
            ['key_serializer']
        """
        names = (slot.removeprefix("_") for slot in Topic.__slots__)
        return [name for name in names if not _alike(getattr(self, name), getattr(other, name))]

    def with_config(self, config: TopicConfig) -> "Topic":
        """Return the same topic with other settings in the cluster.

        Args:
            config: the settings.
        """
        return Topic(
            self._name,
            config,
            value_deserializer=self._value_deserializer,
            key_deserializer=self._key_deserializer,
            value_serializer=self._value_serializer,
            key_serializer=self._key_serializer,
            timestamp_extractor=self._timestamp_extractor,
        )

    def __repr__(self) -> str:
        # Serializers are left out: one that talks to a schema registry holds credentials.
        return f"Topic({self._name!r})"


class TopicAdministration(Protocol):
    """What `TopicManager` needs of a cluster; `streamrt.kafka.TopicAdmin` is the real one."""

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        """Return the settings of the topics, None for those that do not exist."""

    def create_topics(
        self, topics: Iterable[TopicDefinition], timeout: float = 30, finalize_timeout: float = 60
    ) -> None:
        """Create the topics and wait until they are ready."""


class TopicManager:
    """Knows the topics of an application; creates those that are missing and checks those that are there.

    Args:
        topic_admin: access to the cluster.
        consumer_group: the consumer group of the application.
        timeout: seconds to wait for an answer of the cluster.
        create_timeout: seconds to wait until new topics are ready.
        auto_create_topics: whether topics that are missing are created.
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
        self._actual: dict[str, TopicConfig] = {}

    @property
    def consumer_group(self) -> str:
        """The consumer group of the application."""
        return self._consumer_group

    @property
    def topics(self) -> dict[str, Topic]:
        """The topics that the application declared, by name."""
        return dict(self._topics)

    @property
    def non_changelog_topics(self) -> dict[str, Topic]:
        """The topics that hold records rather than the changes of a store, by name."""
        return self.topics

    @property
    def all_topics(self) -> dict[str, Topic]:
        """All topics, by name."""
        return self.topics

    def topic(
        self,
        name: str,
        value_deserializer: DeserializerType = "json",
        key_deserializer: DeserializerType = "bytes",
        value_serializer: SerializerType = "json",
        key_serializer: SerializerType = "bytes",
        config: TopicConfig | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topic:
        """Declare a topic.

        Args:
            name: name of the topic.
            value_deserializer: name of a deserializer, or an object.
            key_deserializer: name of a deserializer, or an object.
            value_serializer: name of a serializer, or an object.
            key_serializer: name of a serializer, or an object.
            config: settings in the cluster; by default those of `topic_config()`.
            timestamp_extractor: gives records another timestamp than the broker's.

        Raises:
            ConfigurationError: if the name is not allowed, a serializer is unknown, or the topic was declared
                before with other settings.
        """
        return self.register(
            Topic(
                name,
                config,
                value_deserializer=value_deserializer,
                key_deserializer=key_deserializer,
                value_serializer=value_serializer,
                key_serializer=key_serializer,
                timestamp_extractor=timestamp_extractor,
            )
        )

    def register(self, topic: Topic) -> Topic:
        """Declare a topic that was made before.

        Args:
            topic: the topic.

        Returns:
            The topic to use, with the default settings where it has none of its own.

        Raises:
            ConfigurationError: if a topic of this name was declared before with other settings.
        """
        if self._topics.get(topic.name) is topic:
            return topic
        former = self._declared.get(topic.name)
        if former is not None:
            different = former.differences(topic)
            if different:
                raise ConfigurationError(
                    f"topic {topic.name} is declared twice with different {', '.join(different)}: "
                    "declare it once and use that object, or give both the same settings"
                )
        self._declared[topic.name] = topic
        complete = topic if topic.config is not None else topic.with_config(self.topic_config())
        self._topics[topic.name] = complete
        return complete

    def topic_config(
        self,
        num_partitions: int | None = None,
        replication_factor: int | None = None,
        extra_config: Mapping[str, Any] | None = None,
    ) -> TopicConfig:
        """Return settings with the defaults where none are given: 1 partition, 1 copy.

        Args:
            num_partitions: number of partitions.
            replication_factor: number of copies.
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

    def create_topics(
        self,
        topics: Sequence[Topic],
        timeout: float | None = None,
        create_timeout: float | None = None,
    ) -> None:
        """Create those of the given topics that do not exist.

        Args:
            topics: the topics.
            timeout: seconds to wait for an answer of the cluster; by default that of the manager.
            create_timeout: seconds to wait until the topics are ready; by default that of the manager.

        Raises:
            TopicCreationError: if a topic could not be created.
        """
        timeout = self._timeout if timeout is None else timeout
        found = self._admin.inspect_topics([topic.name for topic in topics], timeout=timeout)
        # Only the missing ones: a user who may not create topics may well use existing ones.
        missing = [topic for topic in topics if found[topic.name] is None]
        if missing:
            self._admin.create_topics(
                missing,
                timeout=timeout,
                finalize_timeout=self._create_timeout if create_timeout is None else create_timeout,
            )

    def create_all_topics(self, timeout: float | None = None, create_timeout: float | None = None) -> None:
        """Create those of the declared topics that do not exist, unless automatic creation is off.

        Args:
            timeout: seconds to wait for an answer of the cluster; by default that of the manager.
            create_timeout: seconds to wait until the topics are ready; by default that of the manager.

        Raises:
            TopicCreationError: if a topic could not be created.
        """
        if self._auto_create_topics and self._topics:
            self.create_topics(list(self._topics.values()), timeout, create_timeout)

    def validate_all_topics(self, timeout: float | None = None) -> None:
        """Check that all declared topics exist, and warn of settings that are not what was declared.

        Args:
            timeout: seconds to wait for an answer of the cluster; by default that of the manager.

        Raises:
            TopicNotFoundError: if topics do not exist; it names all of them.
        """
        found = self._admin.inspect_topics(list(self._topics), timeout=self._timeout if timeout is None else timeout)
        actual = {name: config for name, config in found.items() if config is not None}
        missing = sorted(set(self._topics) - set(actual))
        if missing:
            advice = "call create_all_topics()" if self._auto_create_topics else "set auto_create_topics=True"
            raise TopicNotFoundError(
                f"topics that do not exist: {', '.join(missing)}; create them by hand, or {advice}"
            )
        self._actual = actual
        for name, topic in self._declared.items():
            differences = config_differences(topic.config, actual[name]) if topic.config is not None else []
            if differences:
                logger.warning(
                    "Topic %s is not as declared: %s. An existing topic is left as it is; change the topic "
                    "or the declaration.",
                    name,
                    "; ".join(differences),
                )

    def broker_config(self, name: str) -> TopicConfig:
        """Return the settings that a topic has in the cluster.

        Args:
            name: name of the topic.

        Raises:
            InvalidOperationError: if the topics were not validated yet, or the topic was not declared.
        """
        if name not in self._actual:
            raise InvalidOperationError(
                f"the settings of topic {name} in the cluster are not known: declare it and call "
                "validate_all_topics() first"
            )
        return self._actual[name]


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


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise ConfigurationError(
            f"{name!r} is no name of a topic: use 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'"
        )
    return name


def _pairs(headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None) -> Headers | None:
    if headers is None:
        return None
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def _alike(one: object, other: object) -> bool:
    """Return whether two settings are the same; serializers need not define equality for that."""
    if one is other or one == other:
        return True
    if type(one) is not type(other) or not isinstance(one, Serializer | Deserializer):
        return False
    mine, theirs = vars(one), vars(other)
    return mine.keys() == theirs.keys() and all(_alike(mine[name], theirs[name]) for name in mine)
