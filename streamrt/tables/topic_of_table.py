"""The `Topic` of a table: where a topic stands in an application, its rows and keys have the formats of the table."""

import datetime
from collections.abc import Mapping
from typing import Any

from streamrt.errors import InvalidOperationError, SchemaMismatchError, SerializationError
from streamrt.kafka import TopicConfig
from streamrt.records import Headers, TimestampType
from streamrt.schema.columns import RowCheck
from streamrt.serializers import Deserializer, SerializationContext, Serializer
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.info import TableInfo
from streamrt.topics import Topic

__all__ = ["ColumnTime", "KeyDeserializer", "KeySerializer", "topic_of"]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MS = datetime.timedelta(milliseconds=1)


class KeySerializer(Serializer):
    """Writes keys as a table has them.

    Args:
        key_format: the format; a key is the value of its column, or a tuple, a list or a mapping with those of several.
    """

    def __init__(self, key_format: KeyFormat) -> None:
        self._format = key_format
        schema = key_format.schema
        self._check = RowCheck([schema.fields[schema.names.index(name)] for name in key_format.columns])

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        if value is None:
            return None
        several = len(self._format.columns) > 1 or isinstance(value, Mapping)
        try:
            return self._format.encode(self._check(value if several else [value]))
        except SchemaMismatchError as error:
            raise SerializationError(f"the key does not fit the table: {error}") from None


class KeyDeserializer(Deserializer):
    """Reads keys as a table has them: the value of one column, or a tuple with those of several.

    Args:
        key_format: the format.
    """

    def __init__(self, key_format: KeyFormat) -> None:
        self._format = key_format

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:  # noqa: D102
        values = tuple(self._format.decode(value).values())
        return values[0] if len(values) == 1 else values


class ColumnTime:
    """Returns the event time of a row: the column of its schema, or the timestamp of the record if it is null.

    Args:
        column: name of the column.
    """

    def __init__(self, column: str) -> None:
        self._column = column

    def __call__(self, value: Any, headers: Headers | None, timestamp_ms: int, kind: TimestampType) -> int:
        """Return the time in milliseconds since the Unix epoch; times without a zone are in UTC."""
        moment = value[self._column] if isinstance(value, Mapping) else None
        if moment is None:
            return timestamp_ms
        if isinstance(moment, int):
            return moment
        if not isinstance(moment, datetime.datetime):
            moment = datetime.datetime.combine(moment, datetime.time())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.timezone.utc)
        milliseconds: int = (moment - _EPOCH) // _MS
        return milliseconds


def topic_of(info: TableInfo, row_format: RowFormat, key_format: KeyFormat | None) -> Topic:
    """Return the topic of a table.

    Args:
        info: the table.
        row_format: format of its rows.
        key_format: format of its keys; None if it has none, and keys are bytes.

    Raises:
        InvalidOperationError: if it is in another system.
    """
    if info.topic is None:
        raise InvalidOperationError(
            f"table {info.name!r} is in another system ({info.connector}), and has no topic of its own"
        )
    event_time = row_format.schema.time
    config = None
    if info.num_partitions is not None or info.config:
        config = TopicConfig(info.num_partitions, None, dict(info.config))
    return Topic(
        info.topic,
        config,
        value_serializer=row_format.serializer,
        value_deserializer=row_format.deserializer,
        key_serializer="bytes" if key_format is None else KeySerializer(key_format),
        key_deserializer="bytes" if key_format is None else KeyDeserializer(key_format),
        timestamp_extractor=None if event_time is None else ColumnTime(event_time),
    )
