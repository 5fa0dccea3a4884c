"""How the records of an input topic are read: deserializers, and the timestamps of extractors."""

from collections.abc import Callable
from typing import Any

from streamrt.operators.metadata import checked_timestamp
from streamrt.records import Headers, TimestampType
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.place import Input
from streamrt.serializers import BytesDeserializer, MessageField
from streamrt.topics import Topic
from streamrt.topology import RecordHandler

__all__ = ["fails", "input_of", "time_of"]


def input_of(topic: Topic, execute: RecordHandler) -> Input:
    """Return how the records of a topic are read, and what executes them."""
    plain_keys = type(topic.key_deserializer) is BytesDeserializer
    return Input(
        execute,
        topic.value_deserializer.bind(topic.name, MessageField.VALUE),
        None if plain_keys else topic.key_deserializer.bind(topic.name, MessageField.KEY),
        topic.value_deserializer.split_values,
        topic.timestamp_extractor,
    )


def time_of(source: Input, chunk: Chunk, index: int) -> int:
    """Return the timestamp that a topic's extractor returns for a record; with several items, that of the first."""
    timestamp, data = chunk.timestamps[index], chunk.values[index]
    headers = None if chunk.headers is None else chunk.headers[index]
    try:
        value = None if data is None else source.load_value(data, headers)
        item = next(iter(value)) if source.split and value is not None else value
        kind = TimestampType(chunk.timestamp_types[index])
        extract = source.extract_timestamp
        return timestamp if extract is None else checked_timestamp(extract(item, headers, timestamp, kind))
    except Exception:  # noqa: BLE001 - the record fails again when it is processed; callbacks decide then
        return timestamp


def fails(load: Callable[[bytes, Headers | None], Any], data: bytes, headers: Headers | None) -> bool:
    """Return whether a deserializer fails."""
    try:
        load(data, headers)
    except Exception:  # noqa: BLE001 - only the failure matters
        return True
    return False
