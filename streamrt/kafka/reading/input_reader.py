"""Reads records of input topics in the processing task itself, ahead of their delivery by Spark."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from confluent_kafka import Message

from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.reading.message_headers import read_headers
from streamrt.kafka.reading.reader import PartitionReader
from streamrt.records import Headers, TopicPartition

__all__ = ["InputBatch", "InputReader"]


class InputBatch(NamedTuple):
    """Consecutive records of an input partition, column by column.

    Attributes:
        offsets: their offsets.
        keys: the keys.
        values: the values.
        timestamps: milliseconds since the Unix epoch.
        timestamp_types: types of the timestamps, as librdkafka's numbers.
        headers: the headers, or None if no record has any.
    """

    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    timestamp_types: list[int]
    headers: list[Headers | None] | None

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "InputBatch":
        """Return the columns of messages from the client."""
        # Column by column, without a line of Python for each record.
        times = list(map(Message.timestamp, messages))
        try:
            headers = list(map(Message.headers, messages))
        except SystemError:
            headers = list(map(read_headers, messages))
        return cls(
            list(map(Message.offset, messages)),
            list(map(Message.key, messages)),
            list(map(Message.value, messages)),
            [timestamp for _, timestamp in times],
            [kind for kind, _ in times],
            headers if any(headers) else None,
        )


class InputReader(PartitionReader):
    """Read committed records of input partitions, one partition after the other.

    Example:
        ```python
        with contextlib.closing(InputReader(connection)) as reader:
            for batch in reader.read(partition, 0, end, timeout_s=30):
                print(batch.offsets, batch.values)
        ```
    """

    _what: ClassVar[str] = "input"
    _lost_advice: ClassVar[str] = "check the retention of the topic"
    # Small, because fetched records that are not used are thrown away.
    _defaults: ClassVar[Mapping[str, Any]] = {"queued.min.messages": 5_000, "max.partition.fetch.bytes": 1024 * 1024}

    def read(self, partition: TopicPartition, start: int, end: int, *, timeout_s: float) -> Iterator[InputBatch]:
        """Yield the committed records of an offset range until all of it is read. Batches may be empty.

        Exhaust or close an iterator before you start the next one.

        Args:
            partition: the partition.
            start: first offset to read.
            end: offset after the last one.
            timeout_s: seconds without any progress after which the read fails.

        Raises:
            KafkaRequestError: if records were already deleted, the topic is missing or may not be read, or there was no
                progress in time.
            InvalidOperationError: if another iterator of this reader started in the meantime.
        """
        for messages, _ in self._read_messages(partition, start, end, timeout_s):
            yield InputBatch.of(messages)

    def _make_failure(self, message: str) -> Exception:
        return KafkaRequestError(message, retriable=True)
