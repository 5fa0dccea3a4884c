"""What a batching sink gathers between two commits."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.models import Headers

__all__ = ["SinkBatch", "SinkItem"]


class SinkItem(NamedTuple):
    """One value on its way into a sink.

    Attributes:
        value: the value.
        key: the key of the record.
        timestamp: its event time in milliseconds since the Unix epoch.
        headers: its headers, or None.
        offset: the offset of the input record that the value came from; negative where time has made it, and no record.
    """

    value: Any
    key: Any
    timestamp: int
    headers: Headers | None
    offset: int


class SinkBatch:
    """The values for a sink that came from one partition since the last commit, in order.

    One input record can give several items, which then share its offset: `apply(expand=True)` above the sink does that,
    and so do several branches that end in the same sink. After a crash the records behind the last commit are
    processed again, and may then be cut into batches at other places. A sink that writes under the key (topic,
    partition, offset, number of the item within its offset), and replaces what is there, thus holds each result of a
    record once.

    What time has made, such as the result of a window that a watermark has closed, comes from no record. The items that
    one tick of the clock has made share a negative number in place of an offset, which no other tick of the partition
    has. After a crash such items may come again with another number.

    Args:
        topic: the topic that the input records came from.
        partition: its partition.

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
        """The topic that the input records came from."""
        return self._topic

    @property
    def partition(self) -> int:
        """The partition that the input records came from."""
        return self._partition

    @property
    def size(self) -> int:
        """How many items there are."""
        return len(self._items)

    @property
    def first_offset(self) -> int:
        """Offset of the first item: that of its input record, or a negative number.

        Raises:
            InvalidOperationError: if the batch is empty.
        """
        return self._item(0).offset

    @property
    def last_offset(self) -> int:
        """Offset of the last item: that of its input record, or a negative number.

        Raises:
            InvalidOperationError: if the batch is empty.
        """
        return self._item(-1).offset

    @property
    def start_offset(self) -> int:
        """The same as `first_offset`.

        Raises:
            InvalidOperationError: if the batch is empty.
        """
        return self.first_offset

    def append(self, value: Any, key: Any, timestamp: int, headers: Headers | None, offset: int) -> None:
        """Add one item at the end.

        Args:
            value: the value.
            key: the key of the record.
            timestamp: its event time in milliseconds since the Unix epoch.
            headers: its headers, or None.
            offset: the offset of the input record.
        """
        self._items.append(SinkItem(value, key, timestamp, headers, offset))

    def clear(self) -> None:
        """Drop all items."""
        self._items.clear()

    def empty(self) -> bool:
        """Return whether there are no items."""
        return not self._items

    def iter_chunks(self, n: int) -> Iterator[list[SinkItem]]:
        """Cut the batch into lists of `n` items; the last one may be shorter.

        Args:
            n: how many items a list has, at least 1.

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
            raise ArgumentValueError(f"a batch was to be cut into chunks of {n} items: give at least 1")
        return (self._items[start : start + n] for start in range(0, len(self._items), n))

    def _item(self, place: int) -> SinkItem:
        if not self._items:
            raise InvalidOperationError(
                f"the batch of {self._topic}[{self._partition}] is empty and has no offsets: ask empty() before"
            )
        return self._items[place]

    def __iter__(self) -> Iterator[SinkItem]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        # An empty batch is still a batch; ask empty().
        return True

    def __repr__(self) -> str:
        # Values are the user's data and do not belong into logs.
        return f"SinkBatch({self._topic!r}, {self._partition}, {len(self._items)} items)"
