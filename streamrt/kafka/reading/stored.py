"""Reads the records of any topic, as Kafka has them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from confluent_kafka import KafkaError, Message

from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.reading.message_headers import read_headers
from streamrt.kafka.reading.reader import PartitionReader
from streamrt.records import Headers, TopicPartition

if TYPE_CHECKING:
    from streamrt.kafka.reading.reader import _Wait

__all__ = ["StoredReader", "StoredRecord"]


@dataclass(frozen=True)
class StoredRecord:
    """A record as Kafka has it.

    Attributes:
        partition: its partition.
        offset: its offset.
        key: its key.
        value: its value; None is a tombstone.
        timestamp: milliseconds since the Unix epoch; 0 if it has none.
        headers: its headers.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class StoredReader(PartitionReader):
    """Reads committed records of partitions, one partition after the other.

    Args:
        connection: connection to the brokers.
        options: consumer options, named as in librdkafka.
    """

    _what: ClassVar[str] = "topic"
    _lost_advice: ClassVar[str] = "try again; if retention has deleted them, they are lost"

    def read(self, partition: TopicPartition, start: int, end: int, *, timeout_s: float) -> Iterator[StoredRecord]:
        """Yield the committed records of an offset range.

        Args:
            partition: the partition.
            start: first offset to read.
            end: offset after the last one.
            timeout_s: seconds without any progress after which the read fails.

        Raises:
            KafkaRequestError: if records of the range were deleted (code OFFSET_OUT_OF_RANGE), the topic may not be read, or
                there was no progress in time.
        """
        for messages, _ in self._read_messages(partition, start, end, timeout_s):
            yield from map(_make_stored, messages)

    def _make_failure(self, message: str) -> Exception:
        return KafkaRequestError(message)

    def _make_lost_error(self, wait: "_Wait") -> Exception:
        return KafkaRequestError(str(super()._make_lost_error(wait)), KafkaError.OFFSET_OUT_OF_RANGE)


def _make_stored(message: Message) -> StoredRecord:
    return StoredRecord(
        message.partition() or 0,
        message.offset() or 0,
        message.key(),
        message.value(),
        max(message.timestamp()[1], 0),
        list(read_headers(message) or ()),
    )
