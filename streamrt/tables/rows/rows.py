"""Results of reading: rows with their positions, one by one and in batches of Arrow."""

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import pyarrow as pa

from streamrt.records import TopicPartition

__all__ = ["ChangeType", "RecordBatch", "ScanRecord", "ScanRecords"]


class ChangeType(enum.IntEnum):
    """The effect of a record on a table."""

    APPEND = 0
    """A row of a log table."""
    INSERT = 1
    """A row with a new key."""
    UPDATE_BEFORE = 2
    """The row with this key as it was."""
    UPDATE_AFTER = 3
    """The row with this key as it is now."""
    DELETE = 4
    """The row that is gone."""

    @property
    def short(self) -> str:
        """Short form: +A, +I, -U, +U or -D.

        Example:
            >>> ChangeType.APPEND.short, ChangeType.DELETE.short
            ('+A', '-D')
        """
        return ("+A", "+I", "-U", "+U", "-D")[self]


class ScanRecord(NamedTuple):
    """A row, and where it was read.

    Attributes:
        offset: its offset.
        timestamp: time of the record in ms since the Unix epoch.
        change_type: what it does to the table.
        row: the row.
        key: key of the record, as bytes.
        partition: number of the partition.
    """

    offset: int
    timestamp: int
    change_type: ChangeType
    row: dict[str, Any]
    key: bytes | None
    partition: int


class RecordBatch(NamedTuple):
    """Consecutive rows of one partition as Arrow.

    Attributes:
        batch: the rows.
        partition: number of the partition.
        first_offset: offset of the first row.
        last_offset: offset of the last row. Between the two there may be offsets without a row: of records that were
            compacted or whose transaction was aborted, and of markers of transactions.
    """

    batch: pa.RecordBatch
    partition: int
    first_offset: int
    last_offset: int


class ScanRecords(Sequence[ScanRecord]):
    """Rows of several partitions: a sequence of all, and a mapping by partition.

    Partitions are in ascending order, and rows of a partition in the order of their offsets.

    Args:
        topic: name of the topic.
        by_partition: the rows of each partition.

    Example:
        >>> row = ScanRecord(0, 1_000, ChangeType.APPEND, {"id": 1}, None, 0)
        >>> records = ScanRecords("events", {0: [row]})
        >>> len(records), records[0].row, records[-1:] == [row], records["events", 0] == [row]
        (1, {'id': 1}, True, True)
    """

    def __init__(self, topic: str, by_partition: Mapping[int, Sequence[ScanRecord]]) -> None:
        self._by_partition = {
            TopicPartition(topic, number): list(by_partition[number])
            for number in sorted(by_partition)
            if by_partition[number]
        }
        self._topic = topic
        self._records = [record for records in self._by_partition.values() for record in records]

    @overload
    def __getitem__(self, item: int) -> ScanRecord: ...

    @overload
    def __getitem__(self, item: slice | tuple[str, int]) -> list[ScanRecord]: ...

    def __getitem__(self, item: int | slice | tuple[str, int]) -> ScanRecord | list[ScanRecord]:
        if isinstance(item, tuple):
            return list(self._by_partition[TopicPartition(*item)])
        return self._records[item]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ScanRecord]:
        return iter(self._records)

    def __contains__(self, item: object) -> bool:
        return item in self._records if isinstance(item, ScanRecord) else item in self._by_partition

    def __eq__(self, other: object) -> bool:
        return self._by_partition == other._by_partition if isinstance(other, ScanRecords) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counts = ", ".join(f"{each}: {len(records)}" for each, records in self._by_partition.items())
        return f"<ScanRecords {counts or 'none'}>"

    def of(self, partition: int | tuple[str, int]) -> list[ScanRecord]:
        """Return the rows of a partition; none if there are none of it.

        Args:
            partition: its number, or topic and number.
        """
        key = (self._topic, partition) if isinstance(partition, int) else partition
        return list(self._by_partition.get(TopicPartition(*key), ()))

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that have rows here."""
        return list(self._by_partition)

    def keys(self) -> Iterable[TopicPartition]:
        """Return the partitions that have rows here."""
        return self._by_partition.keys()

    def values(self) -> Iterable[list[ScanRecord]]:
        """Return the rows of each partition."""
        return self._by_partition.values()

    def items(self) -> Iterable[tuple[TopicPartition, list[ScanRecord]]]:
        """Return the partitions with their rows."""
        return self._by_partition.items()
