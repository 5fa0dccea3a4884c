"""`Topic`: a name, serializers, and settings in the cluster."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, overload

from streamrt.arguments import checked, type_name
from streamrt.config import AutoOffsetReset
from streamrt.errors import ArgumentTypeError, ArgumentValueError, IgnoreMessage, argument_error
from streamrt.kafka import TopicConfig
from streamrt.kafka.reading.message_headers import read_headers
from streamrt.records import (
    ConsumedMessage,
    Headers,
    HeadersMapping,
    HeaderValue,
    MessageContext,
    MessageTimestamp,
    Record,
    TimestampType,
    merge_headers,
)
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
from streamrt.topics.watermarks import WatermarkStrategy

TimestampExtractor = Callable[[Any, Headers | None, int, TimestampType], int]
"""Function of value, headers, timestamp (ms) and its type; returns the timestamp (ms) to use instead."""

_NOT_GIVEN: Any = object()

NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
"""Pattern of valid topic names, except `.` and `..`, which are also invalid."""


@dataclass(frozen=True)
class KafkaMessage:
    """A record ready to be produced, or one that was consumed and deserialized.

    Attributes:
        key: the key, serialized or deserialized, or None.
        value: the value, serialized or deserialized, or None for a tombstone.
        headers: its headers, or None.
        timestamp: milliseconds since the Unix epoch, or None for the time of production.
    """

    key: Any
    value: Any
    headers: Headers | None = None
    timestamp: int | None = None


class Topic:
    """A topic, with the serializers of its keys and values. It holds no client and is immutable.

    Args:
        name: name of the topic: at most 249 letters, digits, `.`, `_` and `-`.
        config: settings in the cluster, to create a missing topic or to compare with an existing one.
        value_deserializer: name of a deserializer, or an object.
        key_deserializer: name of a deserializer, or an object.
        value_serializer: name of a serializer, or an object.
        key_serializer: name of a serializer, or an object.
        timestamp_extractor: function that replaces the broker's timestamp of records.
        watermark_strategy: event time of windows and process functions below, unless they choose one.
        create_config: alias of `config`, as in newer versions of Quix Streams.
        auto_offset_reset: where the application starts in partitions of this topic without a committed offset: "earliest",
            "latest" or "error"; by default as the application says.

    Raises:
        ConfigurationError: if the name is invalid, a serializer is unknown, or both `config` and `create_config` are
            given.

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
        "_auto_offset_reset",
        "_config",
        "_key_deserializer",
        "_key_serializer",
        "_name",
        "_timestamp_extractor",
        "_value_deserializer",
        "_value_serializer",
        "_watermark_strategy",
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
        *,
        create_config: TopicConfig | None = None,
        auto_offset_reset: AutoOffsetReset | None = None,
        watermark_strategy: WatermarkStrategy | None = None,
    ) -> None:
        if config is not None and create_config is not None:
            raise ArgumentValueError(f"topic {name!r} got both config and create_config, its alias: pass only one")
        chosen = config if create_config is None else create_config
        checked("the config of a topic", chosen, TopicConfig, "a TopicConfig", optional=True, show=type_name)
        if timestamp_extractor is not None and not callable(timestamp_extractor):
            raise ArgumentTypeError(f"timestamp_extractor must be a function, got {type(timestamp_extractor).__name__}")
        if auto_offset_reset not in (None, *get_args(AutoOffsetReset)):
            raise argument_error(
                f"auto_offset_reset of topic {name!r} is {auto_offset_reset!r}: use 'earliest', 'latest' or 'error'",
                of_type=isinstance(auto_offset_reset, str),
            )
        self._auto_offset_reset = auto_offset_reset
        _check_strategy(name, watermark_strategy)
        self._name = _checked_name(name)
        self._config = chosen
        self._value_deserializer = resolve_deserializer(value_deserializer)
        self._key_deserializer = resolve_deserializer(key_deserializer)
        self._value_serializer = resolve_serializer(value_serializer)
        self._key_serializer = resolve_serializer(key_serializer)
        self._timestamp_extractor = timestamp_extractor
        self._watermark_strategy = watermark_strategy

    @property
    def name(self) -> str:
        """Name of the topic."""
        return self._name

    @property
    def config(self) -> TopicConfig | None:
        """Declared settings in the cluster, or None."""
        return self._config

    @property
    def create_config(self) -> TopicConfig | None:
        """Alias of `config`."""
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
        """Function that replaces the timestamps of records, or None."""
        return self._timestamp_extractor

    @property
    def auto_offset_reset(self) -> AutoOffsetReset | None:
        """Where the application starts in partitions without a committed offset; None if it decides for all topics."""
        return self._auto_offset_reset

    @property
    def watermark_strategy(self) -> WatermarkStrategy | None:
        """Event time of windows and process functions that choose none, or None."""
        return self._watermark_strategy

    def serialize(
        self,
        key: object = None,
        value: object = None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
        timestamp_ms: int | None = None,
    ) -> KafkaMessage:
        """Serialize one record, ready for `Producer.produce`.

        A key of None stays None. The serializer decides about a value of None: as JSON it is `null`, which is not a
        tombstone.

        Args:
            key: the key.
            value: the value.
            headers: pairs of name and value, or a mapping.
            timestamp_ms: milliseconds since the Unix epoch.

        Raises:
            SerializationError: if key or value cannot be serialized.
        """
        pairs = _header_pairs(headers)
        if self._key_serializer.writes_headers or self._value_serializer.writes_headers:
            # A separate list, because these serializers append to it.
            pairs = list(pairs or ())
        key_bytes = None if key is None else self._key_serializer(key, self._make_context(MessageField.KEY, pairs))
        value_bytes = self._value_serializer(value, self._make_context(MessageField.VALUE, pairs))
        extra = self._value_serializer.extra_headers
        if extra:
            pairs = merge_headers(pairs, extra)
        return KafkaMessage(key_bytes, value_bytes, pairs, timestamp_ms)

    @overload
    def deserialize(self, message: ConsumedMessage, /) -> KafkaMessage: ...

    @overload
    def deserialize(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
    ) -> tuple[Any, Any]: ...

    def deserialize(
        self,
        key: Any,
        value: Any = _NOT_GIVEN,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
    ) -> KafkaMessage | tuple[Any, Any]:
        """Deserialize one record: a consumed message, or the bytes of key and value.

        Args:
            key: bytes of the key, or None; or, as the only argument, a message with the methods of
                `confluent_kafka.Message`, such as the result of `Consumer.poll`.
            value: bytes of the value, or None.
            headers: pairs of name and value, or a mapping.

        Returns:
            A `KafkaMessage` for a message, otherwise key and value; None stays None.

        Raises:
            SerializationError: if key or value cannot be deserialized.
            IgnoreMessage: if a deserializer skips the record.
            ArgumentTypeError: if the only argument is not a message.

        Example:
            ```python
            with app.get_consumer() as consumer:
                consumer.subscribe([orders.name])
                message = consumer.poll(10.0)
                if message is not None and message.error() is None:
                    print(orders.deserialize(message).value)
            ```
        """
        if value is not _NOT_GIVEN:
            return self._deserialize_pair(key, value, _header_pairs(headers))
        message = _make_consumed(key)
        found = read_headers(message)
        key, value = self._deserialize_pair(message.key(), message.value(), found)
        return KafkaMessage(key, value, found, message.timestamp()[1])

    def row_serialize(self, row: Record, key: Any) -> KafkaMessage:
        """Serialize a record under a key, with its headers and its timestamp.

        Args:
            row: record with value, headers and timestamp.
            key: the key, which may differ from the record's.

        Raises:
            SerializationError: if key or value cannot be serialized.
        """
        return self.serialize(key, row.value, row.headers, row.timestamp)

    def row_deserialize(self, message: ConsumedMessage) -> Record | list[Record] | None:
        """Deserialize a message as applications do, with the timestamp from `timestamp_extractor`.

        Args:
            message: object with the methods of `confluent_kafka.Message`.

        Returns:
            The record; a list if the deserializer splits values into several records; None if it skips the message.

        Raises:
            SerializationError: if key or value cannot be deserialized.
        """
        headers, (kind, sent_ms) = read_headers(message), message.timestamp()
        split = self._value_deserializer.split_values
        try:
            key, value = self._deserialize_pair(message.key(), message.value(), headers)
            values = list(value) if split and value is not None else [value]
        except IgnoreMessage:
            return None
        context = MessageContext(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            size=len(message.key() or b"") + len(message.value() or b""),
            key=key,
            timestamp=MessageTimestamp.create(kind, sent_ms),
            headers=headers,
            leader_epoch=message.leader_epoch(),
        )
        extract = self._timestamp_extractor or _sent_at
        rows = [
            Record(item, key, extract(item, headers, sent_ms, TimestampType(kind)), headers, context) for item in values
        ]
        return rows if split else rows[0]

    def _deserialize_pair(self, key: bytes | None, value: bytes | None, pairs: Headers | None) -> tuple[Any, Any]:
        key_context, value_context = (
            self._make_context(MessageField.KEY, pairs),
            self._make_context(MessageField.VALUE, pairs),
        )
        return (
            None if key is None else self._key_deserializer(key, key_context),
            None if value is None else self._value_deserializer(value, value_context),
        )

    def _make_context(self, field: MessageField, headers: Headers | None) -> SerializationContext:
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
        return [name for name in names if not _are_alike(getattr(self, name), getattr(other, name))]

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
            auto_offset_reset=self._auto_offset_reset,
            watermark_strategy=self._watermark_strategy,
        )

    def __repr__(self) -> str:
        # Without serializers, because those with a schema registry hold credentials.
        return f"Topic({self._name!r})"


def _check_strategy(topic: str, strategy: WatermarkStrategy | None) -> None:
    checked("watermark_strategy", strategy, WatermarkStrategy, "a WatermarkStrategy", optional=True, show=type_name)
    if strategy is not None and strategy.generator is not None:
        raise ArgumentValueError(
            f"the watermark_strategy of topic {topic!r} cannot have a generator, which needs the values of one operator: "
            "pass the strategy as closing_strategy= of a window, or as clock= of process()"
        )


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in (".", ".."):
        raise argument_error(
            f"{name!r} is not a valid topic name: use 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'",
            of_type=isinstance(name, str),
        )
    return name


def _sent_at(value: Any, headers: Headers | None, timestamp_ms: int, kind: TimestampType) -> int:
    return timestamp_ms


def _make_consumed(message: Any) -> ConsumedMessage:
    if not isinstance(message, ConsumedMessage):
        raise ArgumentTypeError(
            "deserialize() needs a message with the methods of confluent_kafka.Message, or the bytes of key and value; "
            f"got {type(message).__name__}"
        )
    return message


def _header_pairs(headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None) -> Headers | None:
    if headers is None:
        return None
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def _are_alike(one: object, other: object) -> bool:
    """Return whether two settings are the same; serializers without an equality are compared by their attributes."""
    if one is other or one == other:
        return True
    if type(one) is not type(other) or not isinstance(one, Serializer | Deserializer):
        return False
    mine, theirs = vars(one), vars(other)
    return mine.keys() == theirs.keys() and all(_are_alike(mine[name], theirs[name]) for name in mine)
