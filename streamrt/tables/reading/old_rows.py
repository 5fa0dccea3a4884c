"""`OldRows`: the rows of a table before each of its changes, by which upserts and deletes become full changes.

Kafka has no row that was there before a change. So the rows of a table as of the first position are read, and kept as the
bytes that were written; each record then replaces or deletes one of them.

Compaction may have removed a row that was there at the first position, because a newer record of its key came since. Such a
key then counts as new. If that newer record is a delete, it is reported with the key only, unless the key is known to be
absent: readers who keep rows by key end with the rows of the table in any case. If no offset is missing before the first
position, nothing was compacted.
"""

import collections
from collections.abc import Callable, Mapping
from typing import Any

from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.tables.access.positions import Bounds, Positions
from streamrt.tables.reading.ranges import RangeReader
from streamrt.tables.rows.rows import ChangeType

__all__ = ["OldRows"]

_UNKNOWN: Any = object()


class OldRows:
    """Keeps the rows of partitions, and makes full changes of their records. Use it in one thread at a time.

    Args:
        topic: name of the topic.
        read_bounds: returns what offsets partitions have now.
        read_range: returns a reader of the records between two positions.
        reports_all: whether upserts that change nothing are also changes.
    """

    def __init__(
        self,
        topic: str,
        read_bounds: Callable[[list[int]], Bounds],
        read_range: Callable[[Positions, Positions], RangeReader],
        *,
        reports_all: bool,
    ) -> None:
        self._topic = topic
        self._read_bounds = read_bounds
        self._read_range = read_range
        self._reports_all = reports_all
        # None is the row of a key that is known to be absent, as long as that is of interest.
        self._rows: dict[int, dict[bytes, Any]] = {}
        self._position: dict[int, int] = {}
        # Below these offsets, keys without a row may have had one that compaction has removed.
        self._doubtful_until: dict[int, int] = {}
        # What records have replaced, so that they can be taken back: offset, key, former row.
        self._journal: dict[int, collections.deque[tuple[int, bytes, Any]]] = {}
        self._settled: dict[int, int] = {}

    def clear(self) -> None:
        """Forget all rows: the topic is another one."""
        for each in (self._rows, self._position, self._doubtful_until, self._journal, self._settled):
            each.clear()

    def move_to(self, at: Mapping[int, int]) -> None:
        """Have the rows of partitions as they were at offsets; they are read, unless few records are taken back for it.

        Raises:
            StaleTokenError: if the topic was created again meanwhile.
            KafkaRequestError: if records cannot be read.
        """
        missing = {}
        for number, offset in at.items():
            if self._settled.get(number, offset + 1) <= offset <= self._position.get(number, -1):
                self._take_back(number, offset)
            else:
                missing[number] = offset
        if missing:
            self._load(missing)

    def settle(self, at: Mapping[int, int]) -> None:
        """Say that records before offsets will not be taken back."""
        for number, journal in self._journal.items():
            settled = min(at[number], self._position.get(number, 0))
            while journal and journal[0][0] < settled:
                journal.popleft()
            self._settled[number] = max(settled, self._settled.get(number, 0))
            if settled >= self._doubtful_until.get(number, settled + 1):
                del self._doubtful_until[number]
                rows = self._rows[number]
                for key in [key for key, value in rows.items() if value is None]:
                    del rows[key]

    def make_changes(self, number: int, records: InputBatch) -> tuple[InputBatch, list[ChangeType]]:
        """Return the changes that the next records of a partition make, with the old rows; both of an update in turn."""
        rows, journal = self._rows[number], self._journal[number]
        doubtful_until = self._doubtful_until.get(number, 0)
        places: list[int] = []
        values: list[bytes | None] = []
        changes: list[ChangeType] = []
        for index, (offset, key, value) in enumerate(zip(records.offsets, records.keys, records.values, strict=True)):
            if key is None:
                # It is not a row, which its reader says.
                found: tuple[tuple[ChangeType, bytes | None], ...] = ((ChangeType.UPDATE_AFTER, value),)
            else:
                old = rows.get(key, _UNKNOWN)
                found = self._compare_rows(old, value, offset < doubtful_until)
                journal.append((offset, key, old))
                if value is None and offset >= doubtful_until:
                    rows.pop(key, None)
                else:
                    rows[key] = value
            for change, data in found:
                places.append(index)
                values.append(data)
                changes.append(change)
        self._position[number] = records.offsets[-1] + 1
        headers = records.headers
        made = InputBatch(
            [records.offsets[index] for index in places],
            [records.keys[index] for index in places],
            values,
            [records.timestamps[index] for index in places],
            [records.timestamp_types[index] for index in places],
            None if headers is None else [headers[index] for index in places],
        )
        return made, changes

    def _compare_rows(
        self, old: Any, new: bytes | None, is_doubtful: bool
    ) -> tuple[tuple[ChangeType, bytes | None], ...]:
        if new is None:
            if old is _UNKNOWN:
                return ((ChangeType.DELETE, None),) if is_doubtful else ()
            return () if old is None else ((ChangeType.DELETE, old),)
        if old is _UNKNOWN or old is None:
            return ((ChangeType.INSERT, new),)
        if old == new and not self._reports_all:
            return ()
        return (ChangeType.UPDATE_BEFORE, old), (ChangeType.UPDATE_AFTER, new)

    def _take_back(self, number: int, offset: int) -> None:
        rows, journal = self._rows[number], self._journal[number]
        while journal and journal[-1][0] >= offset:
            _, key, old = journal.pop()
            if old is _UNKNOWN:
                rows.pop(key, None)
            else:
                rows[key] = old
        self._position[number] = offset

    def _load(self, at: Mapping[int, int]) -> None:
        for number in at:
            self._position.pop(number, None)
            self._settled.pop(number, None)
        bounds = self._read_bounds(sorted(at))
        start = Positions(self._topic, bounds.topic_id, {number: min(bounds.low[number], at[number]) for number in at})
        rows: dict[int, dict[bytes, Any]] = {number: {} for number in at}
        counts = dict.fromkeys(at, 0)
        for number, records in self._read_range(start, Positions(self._topic, bounds.topic_id, at)).read():
            counts[number] += len(records.offsets)
            # A key that was deleted is known to be absent.
            rows[number].update(
                (key, value) for key, value in zip(records.keys, records.values, strict=True) if key is not None
            )
        for number, offset in at.items():
            is_whole = counts[number] >= offset - bounds.low[number]
            self._rows[number] = {key: row for key, row in rows[number].items() if row is not None or not is_whole}
            self._journal[number] = collections.deque()
            self._doubtful_until.pop(number, None)
            if not is_whole:
                self._doubtful_until[number] = max(offset, bounds.high[number])
            self._position[number] = self._settled[number] = offset
