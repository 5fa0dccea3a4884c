"""Reads records of input topics in the process that works on them, ahead of whoever delivers them."""

import contextlib
import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from confluent_kafka import Message

from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.reader import PartitionReader
from streamrt.models import Headers, TopicPartition

__all__ = ["InputBatch", "InputReader"]

_NO_TEXT = "\ufffd"
"""What Java's clients read in place of a byte that is no UTF-8."""
# Tells by 0 that an item is missing, where Python itself would follow the pointer.
_item_of = ctypes.pythonapi.PyTuple_GetItem
_item_of.argtypes, _item_of.restype = (ctypes.py_object, ctypes.c_ssize_t), ctypes.c_void_p


class InputBatch(NamedTuple):
    """Consecutive records of an input partition, column by column.

    Attributes:
        offsets: their offsets.
        keys: the keys.
        values: the values.
        timestamps: milliseconds since the Unix epoch.
        timestamp_types: what the timestamps are, in librdkafka's numbers.
        headers: the headers, or None where no record has any.
    """

    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    timestamp_types: list[int]
    headers: list[Headers | None] | None

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "InputBatch":
        """Return the columns of what the client has read."""
        # Column by column, without a line of Python for each record.
        times = list(map(Message.timestamp, messages))
        try:
            headers = list(map(Message.headers, messages))
        except SystemError:
            headers = list(map(_headers_of, messages))
        return cls(
            list(map(Message.offset, messages)),
            list(map(Message.key, messages)),
            list(map(Message.value, messages)),
            [timestamp for _, timestamp in times],
            [kind for kind, _ in times],
            headers if any(headers) else None,
        )


def _headers_of(message: Message) -> Headers | None:
    """Return the headers of a record, also if names are not UTF-8.

    Of such headers, confluent-kafka 2.16 makes tuples that lack their first items, and then raises SystemError, the first
    time that it is asked. Python must not touch what is missing: that ends the process.
    """
    with contextlib.suppress(SystemError):
        message.headers()
    found: Headers | None = message.headers()
    return found and [header if _item_of(header, 0) else (_NO_TEXT, *header[1:]) for header in found]


class InputReader(PartitionReader):
    """Reads committed records of input partitions, one partition after the other.

    Example:
        ```python
        with contextlib.closing(InputReader(connection)) as reader:
            for batch in reader.read(place, 0, end, timeout_s=30):
                print(batch.offsets, batch.values)
        ```
    """

    _what: ClassVar[str] = "input"
    _lost_advice: ClassVar[str] = "see the retention of the topic"
    # What is fetched and not used is thrown away.
    _defaults: ClassVar[Mapping[str, Any]] = {"queued.min.messages": 5_000, "max.partition.fetch.bytes": 1024 * 1024}

    def read(self, place: TopicPartition, start: int, end: int, *, timeout_s: float) -> Iterator[InputBatch]:
        """Yield the committed records of an offset range; end when all of it is read. Batches may be empty.

        An iterator must be used up or closed before the next one begins.

        Args:
            place: the partition.
            start: first offset to read.
            end: offset after the last one.
            timeout_s: seconds without any progress after which the read fails.

        Raises:
            KafkaRequestError: if records are deleted already, the topic is gone or may not be read, or there was no progress
                in time.
            InvalidOperationError: if another iterator of this reader began meanwhile.
        """
        for messages, _ in self._messages(place, start, end, timeout_s):
            yield InputBatch.of(messages)

    def _failure(self, message: str) -> Exception:
        return KafkaRequestError(message, retriable=True)
