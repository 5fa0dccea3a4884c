"""Reads a changelog partition, fast and to its very end.

The end is the high watermark, taken by the caller without regard to open transactions. The records that can be read end
at the last stable offset: the place of the oldest transaction that is still open, whoever opened it. What lies between the
two may become visible at any moment, so a reader that stopped at the stable offset would restore state that lacks
committed changes, and nobody would notice. Hence: `read` ends when its position has reached `end`, and never below.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from confluent_kafka import Message

from streamrt.errors import ChangelogError
from streamrt.kafka.reader import PartitionReader
from streamrt.models import TopicPartition
from streamrt.models.headers import EPOCH_HEADER

__all__ = ["ChangelogBatch", "ChangelogReader"]

_FIRST_WINDOW = 1_000
_WINDOW_GROWTH = 8


class ChangelogBatch(NamedTuple):
    """Consecutive records of a changelog partition, column by column.

    Attributes:
        keys: the keys.
        values: the values; None deletes.
        timestamps: milliseconds since the Unix epoch.
        next_offset: the offset after all that the batch covers; up to here the partition is read.
        epochs: the epochs of their writers; None where a record has none.
    """

    keys: list[bytes]
    values: list[bytes | None]
    timestamps: list[int]
    next_offset: int
    epochs: list[bytes | None]


class ChangelogReader(PartitionReader):
    """Reads committed records of changelog partitions, one partition after the other.

    The client is created on first use and kept. Use a reader in one thread; several readers do not disturb each other.

    Args:
        connection: how to reach the brokers.
        options: consumer options, in librdkafka's words; those that say what is read cannot be changed.

    Example:
        ```python
        with contextlib.closing(ChangelogReader(connection)) as reader:
            low, high = admin.bounds(place)
            for batch in reader.read(place, low, high, timeout_s=60):
                store.write(zip(batch.keys, batch.values), ...)
        ```
    """

    _what: ClassVar[str] = "changelog"
    _lost_advice: ClassVar[str] = "restore from the beginning, and keep cleanup.policy=compact"

    def read(self, place: TopicPartition, start: int, end: int, *, timeout_s: float) -> Iterator[ChangelogBatch]:
        """Yield the committed records of an offset range; end when all of it is read, and not before.

        Batches have up to 10,000 records. The last one may have none: then it tells by its `next_offset` alone that the rest
        of the range holds no committed record. An iterator must be used up or closed before the next one begins.

        Args:
            place: the changelog partition.
            start: first offset to read.
            end: offset after the last one: the high watermark, as `TopicAdmin.bounds` returns it.
            timeout_s: seconds without any progress after which the read fails. An open transaction of another
                producer below `end` is waited for.

        Raises:
            ChangelogError: if records of the range are deleted already, the topic is gone or may not be read, or there was no
                progress in time.
            InvalidOperationError: if another iterator of this reader began meanwhile.
        """
        for messages, next_offset in self._messages(place, start, end, timeout_s):
            keys = list(map(Message.key, messages))
            if None in keys:
                offset = messages[keys.index(None)].offset()
                raise ChangelogError(
                    f"the record at offset {offset} of the changelog {place} has no key, so StreamRT did not write it: "
                    "see who else writes to the topic"
                )
            yield ChangelogBatch(
                keys,
                list(map(Message.value, messages)),
                [timestamp for _, timestamp in map(Message.timestamp, messages)],
                next_offset,
                [_epoch(headers) for headers in map(Message.headers, messages)],
            )

    def last_position(
        self, place: TopicPartition, is_position: Callable[[bytes], bool], start: int, end: int, *, timeout_s: float
    ) -> tuple[int, bytes | None] | None:
        """Return the newest committed record whose key is a position's, reading from the end in growing windows.

        Args:
            place: the changelog partition.
            is_position: tells the key of a position record.
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
            for messages, _ in self._messages(place, window_start, window_end, timeout_s):
                for message in reversed(messages):
                    if is_position(message.key() or b""):
                        newest = message
                        break
            if newest is not None:
                return newest.offset(), newest.value()
            window_end, window = window_start, window * _WINDOW_GROWTH
        return None

    def _failure(self, message: str) -> Exception:
        return ChangelogError(message)


def _epoch(headers: Sequence[tuple[str, bytes | str | None]] | None) -> bytes | None:
    """Return the epoch that the headers of a record tell."""
    for name, value in headers or ():
        if name == EPOCH_HEADER and isinstance(value, bytes):
            return value
    return None
