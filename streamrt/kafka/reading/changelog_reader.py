"""Reads a changelog partition, fast and completely.

The end is the high watermark, which the caller determines regardless of open transactions. Readable records end at the
last stable offset, the start of the oldest open transaction of any producer. Records between the two may become
visible at any moment. A reader that stopped at the last stable offset could silently restore state without committed
changes. `read` therefore ends only when its position has reached `end`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from confluent_kafka import Message

from streamrt.errors import ChangelogError
from streamrt.kafka.reading.reader import PartitionReader
from streamrt.records import TopicPartition
from streamrt.records.headers import EPOCH_HEADER

__all__ = ["ChangelogBatch", "ChangelogReader"]

_FIRST_WINDOW = 1_000
_WINDOW_GROWTH = 8


class ChangelogBatch(NamedTuple):
    """Consecutive records of a changelog partition, column by column.

    Attributes:
        keys: the keys.
        values: the values; None deletes.
        timestamps: milliseconds since the Unix epoch.
        next_offset: the offset after the range that the batch covers; the partition is read up to here.
        epochs: the epochs of the writers; None for a record without one.
    """

    keys: list[bytes]
    values: list[bytes | None]
    timestamps: list[int]
    next_offset: int
    epochs: list[bytes | None]


class ChangelogReader(PartitionReader):
    """Read committed records of changelog partitions, one partition after the other.

    The client is created on first use and kept. Use a reader in one thread; several readers are independent.

    Args:
        connection: connection to the brokers.
        options: consumer options, named as in librdkafka; those that define what is read cannot be changed.

    Example:
        ```python
        with contextlib.closing(ChangelogReader(connection)) as reader:
            low, high = admin.bounds(partition)
            for batch in reader.read(partition, low, high, timeout_s=60):
                store.write(zip(batch.keys, batch.values), ...)
        ```
    """

    _what: ClassVar[str] = "changelog"
    _lost_advice: ClassVar[str] = "restore from the beginning, and keep cleanup.policy=compact"

    def read(self, partition: TopicPartition, start: int, end: int, *, timeout_s: float) -> Iterator[ChangelogBatch]:
        """Yield the committed records of an offset range; end only when all of it is read.

        Batches have up to 10,000 records. The last one may be empty; its `next_offset` then says that the rest of the
        range holds no committed record. Exhaust or close an iterator before you start the next one.

        Args:
            partition: the changelog partition.
            start: first offset to read.
            end: offset after the last one: the high watermark, as `TopicAdmin.bounds` returns it.
            timeout_s: seconds without any progress after which the read fails. The read waits for an open transaction
                of another producer below `end`.

        Raises:
            ChangelogError: if records of the range were already deleted, the topic is missing or may not be read, or
                there was no progress in time.
            InvalidOperationError: if another iterator of this reader started in the meantime.
        """
        for messages, next_offset in self._read_messages(partition, start, end, timeout_s):
            keys = list(map(Message.key, messages))
            if None in keys:
                offset = messages[keys.index(None)].offset()
                raise ChangelogError(
                    f"the record at offset {offset} of the changelog {partition} has no key, so StreamRT did not write it: "
                    "find the other producer of this topic"
                )
            yield ChangelogBatch(
                keys,
                list(map(Message.value, messages)),
                [timestamp for _, timestamp in map(Message.timestamp, messages)],
                next_offset,
                [_read_epoch(headers) for headers in map(Message.headers, messages)],
            )

    def last_position(
        self, partition: TopicPartition, is_position: Callable[[bytes], bool], start: int, end: int, *, timeout_s: float
    ) -> tuple[int, bytes | None] | None:
        """Return the newest committed position record, reading backwards from the end in growing windows.

        Args:
            partition: the changelog partition.
            is_position: whether a key is that of a position record.
            start: first offset of the partition.
            end: its high watermark.
            timeout_s: seconds without any progress after which the search fails.

        Returns:
            Offset and value of the record, or None if there is none.

        Raises:
            ChangelogError: as `read` does.
        """
        window, window_end = _FIRST_WINDOW, end
        while window_end > start:
            window_start = max(start, window_end - window)
            newest: Message | None = None
            for messages, _ in self._read_messages(partition, window_start, window_end, timeout_s):
                for message in reversed(messages):
                    if is_position(message.key() or b""):
                        newest = message
                        break
            if newest is not None:
                return newest.offset(), newest.value()
            window_end, window = window_start, window * _WINDOW_GROWTH
        return None

    def _make_failure(self, message: str) -> Exception:
        return ChangelogError(message)


def _read_epoch(headers: Sequence[tuple[str, bytes | str | None]] | None) -> bytes | None:
    """Return the epoch in the headers of a record."""
    for name, value in headers or ():
        if name == EPOCH_HEADER and isinstance(value, bytes):
            return value
    return None
