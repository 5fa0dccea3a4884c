"""How the records of an input topic are read: deserializers, and the timestamps of extractors."""

import logging
from collections.abc import Callable
from typing import Any

from streamrt.operators.metadata import checked_timestamp
from streamrt.records import Headers, TimestampType
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.chain.record_place import Input
from streamrt.serializers import BytesDeserializer, MessageField
from streamrt.topics import Topic
from streamrt.topology import RecordHandler

__all__ = ["error_of", "input_of", "time_of", "warn_of_seconds"]

logger = logging.getLogger("streamrt")

# As milliseconds, these are in the first two months of 1970; as seconds, from 1985 to 2128.
_LIKE_SECONDS = range(500_000_000, 5_000_000_000)


def input_of(topic: Topic, execute: RecordHandler) -> Input:
    """Return how the records of a topic are read, and what executes them."""
    plain_keys = type(topic.key_deserializer) is BytesDeserializer
    return Input(
        execute,
        topic.value_deserializer.bind(topic.name, MessageField.VALUE),
        None if plain_keys else topic.key_deserializer.bind(topic.name, MessageField.KEY),
        topic.value_deserializer.split_values,
        topic.timestamp_extractor,
        load_batch=topic.value_deserializer.bind_batch(topic.name, MessageField.VALUE),
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


def warn_of_seconds(topic: str, extracted: int, sent: int) -> None:
    """Log a warning if an extractor returned seconds for a record that was sent in our days.

    Args:
        topic: the topic of the record.
        extracted: the timestamp from the extractor.
        sent: that of the record in Kafka, in milliseconds.
    """
    if extracted in _LIKE_SECONDS and sent // 1_000 in _LIKE_SECONDS:
        logger.warning(
            "the timestamp extractor of topic %s returned %d, which is in 1970: timestamps are in milliseconds; if these "
            "are seconds, return 1000 times as many",
            topic,
            extracted,
        )


def error_of(load: Callable[[bytes, Headers | None], Any], data: bytes, headers: Headers | None) -> Exception | None:
    """Return the error with which a deserializer fails; None if it does not fail."""
    try:
        load(data, headers)
    except Exception as error:  # noqa: BLE001 - the code of users
        return error
    return None
