"""The topic of a table, as applications read and write it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from streamrt.errors import SchemaError
from streamrt.kafka.cluster.topic_config import TopicConfig
from streamrt.records import Headers, HeadersMapping, HeaderValue, TimestampType
from streamrt.topics import KafkaMessage, Topic

if TYPE_CHECKING:
    # With pyarrow, which programs without tables do not wait for.
    from streamrt.tables.descriptions.home import TableHome
    from streamrt.tables.descriptions.info import TableInfo
    from streamrt.tables.descriptions.keys import RowKey

__all__ = ["TableTopic", "TimeColumn", "endpoint_topic_name", "table_topic"]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MS = datetime.timedelta(milliseconds=1)


class TableTopic(Topic):
    """A topic that knows the table whose rows it holds.

    Args:
        table: name of the table.
        topic: the topic.
        key: function from a row to its key; None if the table has no key columns.
        schema_version: version of the schema by which rows are read and written.
    """

    __slots__ = ("_key", "_schema_version", "_table")

    def __init__(self, table: str, topic: Topic, key: RowKey | None = None, schema_version: int = 1) -> None:
        super().__init__(
            topic.name,
            topic.config,
            topic.value_deserializer,
            topic.key_deserializer,
            topic.value_serializer,
            topic.key_serializer,
            topic.timestamp_extractor,
            auto_offset_reset=topic.auto_offset_reset,
            watermark_strategy=topic.watermark_strategy,
        )
        self._table = table
        self._key = key
        self._schema_version = schema_version

    @property
    def table(self) -> str:
        """Name of the table, with its database."""
        return self._table

    @property
    def schema_version(self) -> int:
        """Version of the schema by which rows are read and written."""
        return self._schema_version

    @property
    def is_endpoint(self) -> bool:
        """Whether a source brings rows of an external table here."""
        return self.name == endpoint_topic_name(self._table)

    @property
    def row_key(self) -> RowKey | None:
        """Function from a row to its key; None if the table has no key columns."""
        return self._key

    def with_config(self, config: TopicConfig) -> Self:
        """Return the same topic with other settings in the cluster.

        Args:
            config: the settings.
        """
        return type(self)(self._table, super().with_config(config), self._key, self._schema_version)

    def serialize(
        self,
        key: object = None,
        value: object = None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
        timestamp_ms: int | None = None,
    ) -> KafkaMessage:
        """Serialize one row; without a key, it gets that of its key columns. See `Topic.serialize`."""
        if key is None and self._key is not None:
            key = self._key(value)
        return super().serialize(key, value, headers, timestamp_ms)


def endpoint_topic_name(table: str) -> str:
    """Return the name of the topic to which the source of an external table produces."""
    return f"source__{table}"


@dataclass(frozen=True)
class TimeColumn:
    """Takes the timestamp of a record from the time column of its row; rows without a time keep Kafka's.

    Times without a zone are UTC, dates the beginning of the day in UTC, and integers milliseconds.

    Args:
        column: name of the column.

    Example:
        >>> from streamrt.records import TimestampType
        >>> at = datetime.datetime(1970, 1, 1, 0, 1)
        >>> TimeColumn("at")({"at": at}, None, 5, TimestampType.TIMESTAMP_CREATE_TIME)
        60000
    """

    column: str

    def __call__(self, value: Any, headers: Headers | None, timestamp_ms: int, kind: TimestampType) -> int:
        """Return the timestamp in milliseconds since the Unix epoch."""
        at = None if value is None else value[self.column]
        if at is None:
            return timestamp_ms
        if isinstance(at, int):
            return at
        if not isinstance(at, datetime.datetime):
            at = datetime.datetime(at.year, at.month, at.day)
        return ((at if at.tzinfo else at.replace(tzinfo=datetime.timezone.utc)) - _EPOCH) // _MS


def table_topic(info: TableInfo, home: TableHome, name: str | None = None) -> TableTopic:
    """Return the topic of a table, with the serializers of its formats.

    Values are checked rows. Keys are those of the key columns; without any, bytes.

    Args:
        info: the table.
        home: the catalogue.
        name: name of the topic, if it is not that of the table.

    Raises:
        SchemaError: if the table has no schema.
    """
    if info.schema is None:
        raise SchemaError(
            f"table {info.name!r} has no schema, so its rows cannot be read or written: set one by set_schema(), or see "
            "detect_schema()"
        )
    from streamrt.tables.descriptions.keys import (
        KeylessSerializer,
        RowKey,
        TableKeyDeserializer,
        TableKeySerializer,
        UpsertSerializer,
    )

    rows, keys = home.row_format(info), home.key_format(info)
    # Settings of an external table's topic are the application's.
    config = None
    if name is None and (info.num_partitions is not None or info.config):
        config = TopicConfig(info.num_partitions, None, dict(info.config))
    topic = Topic(
        name or info.topic or info.name,
        config,
        rows.deserializer,
        "bytes" if keys is None else TableKeyDeserializer(keys),
        UpsertSerializer(rows.serializer) if info.kind == "primary-key" else rows.serializer,
        KeylessSerializer() if keys is None else TableKeySerializer(keys),
        None if info.schema.time is None else TimeColumn(info.schema.time),
    )
    row_key = None if keys is None else RowKey(info.schema, keys.columns)
    return TableTopic(info.name, topic, row_key, info.schema_version)
