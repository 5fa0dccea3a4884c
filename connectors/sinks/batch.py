"""The batch of values that a batching sink gathers between two commits."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.records import Headers

__all__ = ["SinkBatch", "SinkItem"]


class SinkItem(NamedTuple):
    """One value on its way into a sink.

    Attributes:
        value: the value.
        key: the key of the record.
        timestamp: event time of the record in milliseconds since the Unix epoch.
        headers: headers of the record, or None.
        offset: offset of the input record; negative if time produced the value, not a record.
    """

    value: Any
    key: Any
    timestamp: int
    headers: Headers | None
    offset: int


class SinkBatch:
    """The values for a sink from one partition since the last commit, in order.

    Where frames were merged, a commit may have several batches of a partition: one ends where a key gets a value that a
    record of another topic has caused, so that the values of a key stay in order.

    One input record can give several items, which share its offset: `apply(expand=True)` before the sink does so, as
    do several branches that end in the same sink. After a crash the records after the last commit are processed again,
    and batches may have other boundaries. A sink that writes under the key (topic, partition, offset, index of the item
    within its offset), and replaces existing entries, therefore holds each result of a record once.

    A result that time produces, such as that of a window closed by a watermark, has no input record. The items of one
    tick of the clock share a negative number instead of an offset, which no other tick of the partition has. After a
    crash such items may be written again with another number.

    Args:
        topic: topic of the input records.
        partition: partition of the input records.

    Example:
        >>> batch = SinkBatch("orders", 0)
        >>> batch.append({"n": 1}, b"a", 1_000, None, 41)
        >>> batch.append({"n": 2}, b"a", 1_500, None, 42)
        >>> batch.size, batch.first_offset, batch.last_offset
        (2, 41, 42)
        >>> [item.value["n"] for item in batch]
        [1, 2]
    """

    __slots__ = ("_items", "_partition", "_topic")

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._items: list[SinkItem] = []

    @property
    def topic(self) -> str:
        """Topic of the input records."""
        return self._topic

    @property
    def partition(self) -> int:
        """Partition of the input records."""
        return self._partition

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self._items)

    @property
    def first_offset(self) -> int:
        """Offset of the first item: the offset of its input record, or a negative number.

        Raises:
            InvalidOperationError: if the batch is empty.
        """
        return self._find_item(0).offset

    @property
    def last_offset(self) -> int:
        """Offset of the last item: the offset of its input record, or a negative number.

        Raises:
            InvalidOperationError: if the batch is empty.
        """
        return self._find_item(-1).offset

    @property
    def start_offset(self) -> int:
        """The same as `first_offset`.

        Raises:
            InvalidOperationError: if the batch is empty.
        """
        return self.first_offset

    def record_of(self, item: SinkItem) -> tuple[str, int, int]:
        """Return topic, partition and offset of the record of an item, for a `SinkError` about it.

        Args:
            item: an item of this batch.

        Example:
            ```python
            raise SinkError(f"{item.value} is too large", batch.record_of(item))
            ```
        """
        return self.topic, self.partition, item.offset

    def append(self, value: Any, key: Any, timestamp: int, headers: Headers | None, offset: int) -> None:
        """Add one item at the end.

        Args:
            value: the value.
            key: the key of the record.
            timestamp: event time of the record in milliseconds since the Unix epoch.
            headers: headers of the record, or None.
            offset: the offset of the input record.
        """
        self._items.append(SinkItem(value, key, timestamp, headers, offset))

    def extend(self, items: Iterable[SinkItem]) -> None:
        """Add items at the end.

        Args:
            items: items of the same topic and partition.
        """
        self._items.extend(items)

    def clear(self) -> None:
        """Drop all items."""
        self._items.clear()

    def empty(self) -> bool:
        """Return whether there are no items."""
        return not self._items

    def iter_chunks(self, n: int) -> Iterator[list[SinkItem]]:
        """Split the batch into lists of `n` items; the last one may be shorter.

        Args:
            n: number of items in a list, at least 1.

        Raises:
            ConfigurationError: if `n` is less than 1.

        Example:
            >>> batch = SinkBatch("orders", 0)
            >>> for offset in range(5):
            ...     batch.append(offset, None, 0, None, offset)
            >>> [[item.offset for item in chunk] for chunk in batch.iter_chunks(2)]
            [[0, 1], [2, 3], [4]]
        """
        if n < 1:
            raise ArgumentValueError(f"iter_chunks got {n} items for each chunk: give at least 1")
        return (self._items[start : start + n] for start in range(0, len(self._items), n))

    def _find_item(self, partition: int) -> SinkItem:
        if not self._items:
            raise InvalidOperationError(
                f"the batch of {self._topic}[{self._partition}] is empty and has no offsets: call empty() first"
            )
        return self._items[partition]

    def __iter__(self) -> Iterator[SinkItem]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        # An empty batch is still a batch; use empty().
        return True

    def __repr__(self) -> str:
        # Values are the user's data and do not belong in logs.
        return f"SinkBatch({self._topic!r}, {self._partition}, {len(self._items)} items)"
