"""Timelines: items of record keys, in time order.

The cached part of a timeline is a sorted list, which passes to the next transaction. It is complete from a certain time
on; earlier items are read on demand. A record with a cached key thus needs no scan, and a record that only appends
never needs one.

Deletions at the front advance the start index; the list is cut only when half of it is deleted.
"""

import sys
from bisect import bisect_left, insort
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NoReturn

from streamrt.errors import StateError
from streamrt.state.base import Change
from streamrt.state.base.status import TransactionStatus
from streamrt.state.encoding import PLAIN_TYPES, exact_of
from streamrt.state.journal import Journal
from streamrt.state.layout import ARRIVAL_KEY, LATEST_EXPIRY, PLAIN
from streamrt.state.options import RocksDBOptions
from streamrt.state.store import StorePartition

__all__ = ["Item", "KeptTimelines", "Timelines"]

Item = tuple[int, int, Any]
"""Event time, arrival number and value."""

KeptTimelines = tuple["_Lines", int, int]
"""Timelines that pass to the next transaction, their approximate size in bytes, and the next arrival number."""

# Python objects take several times their stored size.
ENTRY_BYTES: Final = 300
_ITEM_BYTES: Final = 150
_GROWTH: Final = 4

# Later than all times.
_END: Final = LATEST_EXPIRY + 1
_UNREAD: Final = -1
# Spans, in milliseconds, of the successive backward searches for items.
_SPANS: Final = (1_000, 100_000, 10_000_000, _END)
_TIME_AND_NUMBER: Final = Struct(">QQ")
_TIME: Final = Struct(">Q")
# Immutable types, whose objects the cache may keep without a copy.
_UNCHANGEABLE: Final = PLAIN_TYPES | {str}


class Timeline:
    """The cached items of one record key.

    Attributes:
        items: the cached items in order; those before index `first` are deleted.
        first: index of the first item.
        complete: all items from this time on are cached. Of earlier items, only those that this transaction added.
        begin: the store holds no items before this time.
        size: its approximate size in bytes.
        written: whether this transaction has changed it.
    """

    __slots__ = ("begin", "complete", "first", "items", "size", "written")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.first = 0
        self.complete = _END
        self.begin = 0
        self.size = ENTRY_BYTES
        self.written = False

    def merge(self, found: list[Item], complete: int) -> None:
        """Add items that were read from the store; the cache is then complete from a time on."""
        known = bisect_left(self.items, (self.complete,), self.first)
        added = self.items[self.first : known]
        self.items[:known] = sorted(found + added) if added else found
        self.first = 0
        self.complete = 0 if complete <= self.begin else complete
        self.size += len(found) * _ITEM_BYTES

    def cut(self, low: int, high: int) -> None:
        """Remove the items between two indexes."""
        items = self.items
        self.size -= (self.size - ENTRY_BYTES) * (high - low) // (len(items) - self.first)
        if low > self.first:
            del items[low:high]
        elif high * 2 > len(items):
            del items[:high]
            self.first = 0
        else:
            self.first = high

    def mark_stored(self) -> None:
        """Note that the added items are in the store now."""
        self.written = False
        if self.items and self.items[self.first][0] < self.complete:
            self.begin = min(self.begin, self.items[self.first][0])
            # Drop items before `complete`: unknown stored items may lie between them.
            known = bisect_left(self.items, (self.complete,), self.first)
            self.size -= (self.size - ENTRY_BYTES) * (known - self.first) // (len(self.items) - self.first)
            del self.items[:known]
            self.first = 0


class Refusing(dict[bytes, Any]):
    """Replace the cache of a transaction that must not be used any more; no cost while it may be used."""

    def __init__(self, status: TransactionStatus) -> None:
        self._status = status

    def refuse(self) -> NoReturn:
        """Raise the error for a use after the end."""
        raise StateError(
            f"a transaction that is {self._status.value} was used: get the running one for each record; do not keep it "
            "beyond the current record"
        )

    def __missing__(self, key: bytes) -> NoReturn:
        self.refuse()


class _Lines(dict[bytes, Timeline]):
    """Timelines by prefix; a missing one starts without cached items."""

    owner: "Timelines"

    def __missing__(self, prefix: bytes) -> Timeline:
        line = self[prefix] = Timeline()
        self.owner.size += line.size
        return line


class Timelines:
    """The timelines of a transaction.

    Args:
        partition: the open store partition.
        options: `dumps` and `loads` apply to the values of items.
        make_room: function that makes the transaction drop unchanged reads, if it holds too much memory.
        kept: what `keep` of the previous transaction over the same open partition returned.

    Attributes:
        size: approximate size in bytes.
    """

    __slots__ = (
        "_added",
        "_arrival",
        "_deleted",
        "_dumps",
        "_in_use",
        "_kept",
        "_lines",
        "_loads",
        "_make_room",
        "_own",
        "_partition",
        "_stored_arrival",
        "_touched",
        "journal",
        "size",
    )

    def __init__(
        self,
        partition: StorePartition,
        options: RocksDBOptions,
        make_room: Callable[[], None],
        kept: KeptTimelines | None = None,
    ) -> None:
        self._partition = partition
        self._make_room: Callable[[], None] | None = make_room
        self._dumps, self._loads = exact_of(options)
        # With users' functions, every value makes the round trip, because it may be read back as a different object.
        self._own = _UNCHANGEABLE if options.dumps is None and options.loads is None else frozenset[type]()
        self._kept, self.size, self._arrival = (_Lines(), 0, _UNREAD) if kept is None else kept
        self._kept.owner = self
        # Those that may be used: not those of a prepared transaction.
        self._lines: dict[bytes, Timeline] = self._kept
        self._stored_arrival = self._arrival
        # The timeline that is being read, which must not be dropped.
        self._in_use: Timeline | None = None
        # Keys and values of items that are not in the store yet, by arrival number.
        self._added: dict[int, tuple[bytes, bytes]] = {}
        self._deleted: list[bytes] = []
        self._touched: list[tuple[bytes, Timeline]] = []
        self.journal: Journal | None = None

    @property
    def dirty(self) -> bool:
        """Whether there are changes for a commit to store."""
        return bool(self._touched)

    def add(self, prefix: bytes, timestamp: int, value: Any) -> None:
        """Add an item to the timeline of a record key.

        Args:
            prefix: result of `TimedTransaction.prefix` for the record key.
            timestamp: its event time in milliseconds, 0 or more.
            value: the value; reads return an equal copy, with lists instead of tuples.

        Raises:
            StateError: if the time is negative, or the transaction is over.
            SerializationError: if the value cannot be stored.
        """
        line = self._lines[prefix]
        if not 0 <= timestamp <= LATEST_EXPIRY:
            raise StateError(
                f"a record with the timestamp {timestamp} cannot be stored by time: event times start at 0 (1970); "
                "change the timestamp with set_timestamp, or drop such records with filter"
            )
        data = self._dumps(value)
        if type(value) not in self._own:
            # Cache a copy, because the caller may change the object later.
            value = self._loads(data)
        number = self._arrival
        if number < 0:
            number = self._read_arrival()
        self._arrival = number + 1
        # Copy the bytes: the result of orjson occupies 4 KB.
        self._added[number] = (b"\x03" + prefix + _TIME_AND_NUMBER.pack(timestamp, number), PLAIN + data)
        if self.journal is not None:
            self.journal.entries.append((self._remove_item, (line, timestamp, number)))
        items = line.items
        if not items or timestamp >= items[-1][0]:
            items.append((timestamp, number, value))
        else:
            insort(items, (timestamp, number, value), line.first)
        size = _ITEM_BYTES + _GROWTH * len(data)
        line.size += size
        self.size += size
        if not line.written:
            line.written = True
            self._touched.append((prefix, line))

    def items(self, prefix: bytes, start: int, end: int) -> list[tuple[int, Any]]:
        """Return time and value of the items in a time range, ordered by time and then by arrival.

        Do not change the values.

        Args:
            prefix: result of `TimedTransaction.prefix` for the record key.
            start: first time, in milliseconds, inclusive. The earliest possible time of an item costs less than 0.
            end: last time, in milliseconds, exclusive.
        """
        return [(time, value) for time, _, value in self.items_with_arrival(prefix, start, end)]

    def items_with_arrival(self, prefix: bytes, start: int, end: int) -> list[Item]:
        """Return time, arrival number and value of the items in a time range, in the order of `items`.

        Arrival numbers increase with each item that is added to the store, for all keys together.
        """
        line = self._lines[prefix]
        if start < line.complete:
            self._complete_line(prefix, line, start)
        items = line.items
        low = bisect_left(items, (start,), line.first)
        if items and end > items[-1][0]:
            return items[low:]
        return items[low : bisect_left(items, (end,), low)]

    def first_time(self, prefix: bytes, start: int) -> int | None:
        """Return the time of the first item at a time or later; None if there is none.

        Args:
            prefix: result of `TimedTransaction.prefix` for the record key.
            start: the time in milliseconds. The earliest possible time of an item costs less than 0.
        """
        line = self._lines[prefix]
        if start < line.complete:
            self._complete_line(prefix, line, start)
        at = bisect_left(line.items, (start,), line.first)
        return line.items[at][0] if at < len(line.items) else None

    def latest(self, prefix: bytes, timestamp: int) -> tuple[int, Any] | None:
        """Return time and value of the last item that is not later than a timestamp; None if there is none.

        Of several items with the same time, it is the last to arrive.
        """
        line = self._lines[prefix]
        while True:
            items = line.items
            newest = items[-1][0] if items else 0
            at = len(items) if newest <= timestamp else bisect_left(items, (timestamp + 1,), line.first)
            found = items[at - 1] if at > line.first else None
            # An earlier item counts only if no unknown item can lie in between.
            if line.complete == 0 or (found is not None and found[0] >= line.complete):
                return None if found is None else (found[0], found[2])
            self._reach_time(prefix, line, timestamp, 0 if found is None else found[0])

    def delete(self, prefix: bytes, start: int, end: int, most: int = sys.maxsize) -> int:
        """Delete the items in a time range.

        Args:
            prefix: result of `TimedTransaction.prefix` for the record key.
            start: first time, in milliseconds, inclusive.
            end: last time, in milliseconds, exclusive.
            most: maximum number of items, earliest first. Items that are not read are always deleted together with all
                others of the same time.

        Returns:
            The number of deleted items.
        """
        line = self._lines[prefix]
        unread = 0
        if start < line.complete:
            if start <= line.begin and end < line.complete:
                unread = self._delete_unread(prefix, line, end, most)
            else:
                self._complete_line(prefix, line, start)
        items = line.items
        low = bisect_left(items, (start,), line.first)
        high = min(bisect_left(items, (end,), low), low + most - unread)
        if low >= high:
            return unread
        added, deleted = self._added, self._deleted
        if self.journal is not None:
            kept = [(item, added.get(item[1])) for item in items[low:high]]
            self.journal.entries.append((self._insert_items, (line, kept, len(deleted))))
        for time, number, _ in items[low:high]:
            if added.pop(number, None) is None:
                deleted.append(b"\x03" + prefix + _TIME_AND_NUMBER.pack(time, number))
        before = line.size
        line.cut(low, high)
        self.size += line.size - before
        self._touch_line(prefix, line)
        return unread + high - low

    def arrival(self) -> int:
        """Return a number that increases with each call and each item that is added."""
        number = self._arrival
        if number < 0:
            number = self._read_arrival()
        self._arrival = number + 1
        return number

    # -- Undoing -----------------------------------------------------------------------------------------------------

    def _remove_item(self, line: Timeline, timestamp: int, number: int) -> None:
        """Undo the addition of an item."""
        self._added.pop(number, None)
        at = bisect_left(line.items, (timestamp, number), line.first)
        if at < len(line.items) and line.items[at][1] == number:
            before = line.size
            line.cut(at, at + 1)
            self.size += line.size - before

    def _insert_items(self, line: Timeline, items: list[tuple[Item, tuple[bytes, bytes] | None]], deleted: int) -> None:
        """Undo the deletion of items."""
        del self._deleted[deleted:]
        for item, added in items:
            insort(line.items, item, line.first)
            if added is not None:
                self._added[item[1]] = added
        size = _ITEM_BYTES * len(items)
        line.size += size
        self.size += size

    def _begin_again(self, line: Timeline, begin: int, deleted: int) -> None:
        """Undo the deletion of items that were not read."""
        del self._deleted[deleted:]
        # What is before the time up to which they were deleted is not cached.
        line.complete = max(line.complete, line.begin)
        line.begin = begin

    # -- Called by the transaction -------------------------------------------------------------------------------

    def prepare(self, status: TransactionStatus) -> list[Change]:
        """Return the changes; the arrival counter comes first. Further use raises an error.

        Args:
            status: the status of the transaction, for this error.
        """
        changes: list[Change] = []
        if self._arrival != self._stored_arrival:
            changes.append((ARRIVAL_KEY, PLAIN + self._arrival.to_bytes(8, "big")))
        changes += self._added.values()
        changes += [(key, None) for key in self._deleted]
        self._lines = Refusing(status)
        return changes

    def mark_stored(self) -> None:
        """Note that the prepared changes are in the store, and that no timeline is in use."""
        self._lines = self._kept
        for prefix, line in self._touched:
            before = line.size
            line.mark_stored()
            self.size += line.size - before
            if not line.items:
                # An empty timeline is not worth its memory.
                del self._lines[prefix]
                self.size -= line.size
        self._in_use = None

    def drop(self, excess: int) -> None:
        """Drop timelines that are neither written nor in use, oldest first, until `excess` bytes are free."""
        gone = []
        for prefix, line in self._lines.items():
            if excess <= 0:
                break
            if not line.written and line is not self._in_use:
                gone.append(prefix)
                excess -= line.size
                self.size -= line.size
        for prefix in gone:
            del self._lines[prefix]

    def keep(self) -> KeptTimelines:
        """Return the timelines for the next transaction; call `end` afterwards."""
        # They outlive this object; their attribute would keep it alive.
        del self._kept.owner
        return self._kept, self.size, self._arrival

    def end(self, status: TransactionStatus) -> None:
        """Release all data. Further use raises an error.

        Args:
            status: the status of the transaction, for this error.
        """
        self._lines = Refusing(status)
        self._kept = _Lines()
        self._make_room = None
        self._added = {}
        self._deleted = []
        self._touched = []
        self.size = 0

    # -- Reading --------------------------------------------------------------------------------------------------

    def _touch_line(self, prefix: bytes, line: Timeline) -> None:
        if not line.written:
            line.written = True
            self._touched.append((prefix, line))

    def _complete_line(self, prefix: bytes, line: Timeline, start: int) -> None:
        """Read the items from a time on, unless they are cached."""
        start = max(start, line.begin)
        if start < line.complete:
            self._in_use = line
            if self._make_room is not None:
                self._make_room()
            before = line.size
            line.merge(self._read_items(prefix, line, start), start)
            self.size += line.size - before

    def _reach_time(self, prefix: bytes, line: Timeline, timestamp: int, least: int) -> None:
        """Read the items of one more span before a timestamp, but none before a least time.

        The scan runs forwards: a backward scan past the items of a key would pass the tombstones of all deleted items.
        """
        starts = (max(timestamp - span, least) for span in _SPANS)
        self._complete_line(prefix, line, next(start for start in starts if start < line.complete))

    def _read_items(self, prefix: bytes, line: Timeline, start: int) -> list[Item]:
        space = b"\x03" + prefix
        found: list[Item] = []
        size = 0
        for key, data in self._partition.scan(space + _TIME.pack(start), space + _TIME.pack(line.complete)):
            time, number = _TIME_AND_NUMBER.unpack(key[-16:])
            found.append((time, number, self._loads(data[1:])))
            size += len(data)
        line.size += _GROWTH * size
        return found

    def _delete_unread(self, prefix: bytes, line: Timeline, end: int, most: int) -> int:
        """Delete the stored items before a time without decoding them; return their number."""
        if end <= line.begin:
            return 0
        space = b"\x03" + prefix
        scan = self._partition.scan(space + _TIME.pack(line.begin), space + _TIME.pack(end))
        found: list[bytes] = []
        if self.journal is not None:
            self.journal.entries.append((self._begin_again, (line, line.begin, len(self._deleted))))
        line.begin = end
        for key, _ in scan:
            # Items of one time are deleted together, because `begin` cannot separate deleted from remaining ones.
            if len(found) >= most and key[:-8] != found[-1][:-8]:
                line.begin = _TIME_AND_NUMBER.unpack(key[-16:])[0]
                break
            found.append(key)
        if found:
            self._deleted += found
            self._touch_line(prefix, line)
        return len(found)

    def _read_arrival(self) -> int:
        data = self._partition.get(ARRIVAL_KEY)
        self._stored_arrival = 0 if data is None else int.from_bytes(data[1:], "big")
        return self._stored_arrival
