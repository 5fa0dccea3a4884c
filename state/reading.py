"""Bounded reads of a store partition, for state queries: a range of keys in, rows of bytes out.

Record keys lie in a store in the order of tag, length and bytes (see `layout.py`), so the record keys with a common beginning
are not adjacent: each length has its own group. `KeyRange.next_key` tells where to go on after a key that does not match,
so that a read passes over the rest of a group with one step.
"""

from dataclasses import dataclass, replace
from itertools import islice

from streamrt.errors import StateError
from streamrt.state.identity import Stamp
from streamrt.state.layout import (
    CONTENT,
    DATA_SPACE,
    HEAD_SPACE,
    ITEM_SPACE,
    JSON_KEY,
    LIST_SPACE,
    OPENED,
    PANE_KEY,
    after_prefix,
    key_prefix,
    pane_prefix,
    split_key,
)
from streamrt.state.store import StorePartition

__all__ = ["KeyRange", "PaneRange", "StoreRead", "StoredRows", "read_rows"]

_MOST_VISITED = 2_000
"""Keys that one read may look at: some milliseconds of the task."""
_MOST_BYTES = 1 << 20
_MOST_ITEMS = 10_000

Row = tuple[bytes, bytes]


@dataclass(frozen=True)
class KeyRange:
    r"""Record keys of one kind between two bounds, compared by their bytes; strings by their JSON without the last quote.

    Attributes:
        tag: the kind: `BYTES_KEY`, or `JSON_KEY` for strings.
        low: the first key, inclusive.
        high: the end, exclusive; None for no end.

    Example:
        >>> from streamrt.state.layout import BYTES_KEY, record_prefix
        >>> wanted = KeyRange(BYTES_KEY, b"b", b"c")
        >>> wanted.next_key(record_prefix(BYTES_KEY, b"bob")) is None
        True
        >>> wanted.next_key(record_prefix(BYTES_KEY, b"ann")) == record_prefix(BYTES_KEY, b"b\0\0")
        True
    """

    tag: int
    low: bytes
    high: bytes | None

    def next_key(self, key: bytes) -> bytes | None:
        """Return None if a store key matches; else the next one that may match, or `key` for the one after it."""
        tag, record, _ = split_key(key)
        compared = record
        if tag == JSON_KEY:
            if not record.startswith(b'"'):
                return key
            compared = record[:-1]
        if self.low <= compared and (self.high is None or compared < self.high):
            return None
        space = key[:1]
        lowest = self.low[: len(record)].ljust(len(record), b"\0")
        if record < lowest:
            return space + key_prefix(tag, lowest)
        if self.high is not None and compared >= self.high:
            group = space + key_prefix(tag, record)[: -len(record) or None]
            return after_prefix(group) or key
        return key


@dataclass(frozen=True)
class PaneRange:
    """The contents of the panes of record keys.

    Attributes:
        keys: the record keys; None for all.
    """

    keys: KeyRange | None

    def next_key(self, key: bytes) -> bytes | None:
        """Return None if a store key matches; else `key`, for the one after it."""
        _, pane, rest = split_key(key)
        if rest or pane[-17] != CONTENT:
            return key
        return None if self.keys is None or self.keys.next_key(key[:1] + pane[:-17]) is None else key


@dataclass(frozen=True)
class StoreRead:
    """A read of one store partition.

    Attributes:
        start: the first store key, inclusive.
        end: the end, exclusive.
        limit: maximum number of rows.
        keys: the wanted record keys; None for all between start and end.
        items: for each head, also the items of its timeline; for each pane, the elements of all panes of its record key.
    """

    start: bytes
    end: bytes | None
    limit: int
    keys: KeyRange | PaneRange | None = None
    items: bool = False

    @classmethod
    def of_space(cls, space: int, limit: int, keys: KeyRange | None = None, *, items: bool = False) -> "StoreRead":
        """Return the read of all record keys, or of a range of them."""
        start = bytes((space,)) if keys is None else bytes((space, keys.tag))
        return cls(start, after_prefix(start), limit, keys, items)

    @classmethod
    def of_panes(cls, limit: int, keys: KeyRange | None = None, *, items: bool = False) -> "StoreRead":
        """Return the read of the panes of all record keys, or of a range of them."""
        start = bytes((DATA_SPACE, PANE_KEY))
        return cls(start, after_prefix(start), limit, PaneRange(keys), items)

    def continued(self, start: bytes) -> "StoreRead":
        """Return the read of the rest."""
        return replace(self, start=max(start, self.start))


@dataclass(frozen=True)
class StoredRows:
    """Result of a read.

    Attributes:
        rows: keys and values, in the order of the store.
        items: keys and values of items of timelines.
        stamp: the stamp of the store, which belongs to the rows; None for a store that was never written.
        next: where to go on; None at the end.
    """

    rows: tuple[Row, ...]
    items: tuple[Row, ...]
    stamp: Stamp | None
    next: bytes | None = None


def read_rows(partition: StorePartition, read: StoreRead) -> StoredRows:
    """Read a bounded number of rows; the store must not be written meanwhile.

    Raises:
        StateError: if the data is damaged, or a key has too many collected values.
    """
    rows: list[Row] = []
    items: list[Row] = []
    visited = size = 0
    former: bytes | None = None
    at: bytes | None = read.start
    while at is not None:
        jump: bytes | None = None
        for key, value in partition.scan(at, read.end):
            if visited >= _MOST_VISITED or len(rows) >= read.limit or size >= _MOST_BYTES:
                return StoredRows(tuple(rows), tuple(items), partition.stamp, key)
            visited += 1
            other = None if read.keys is None else read.keys.next_key(key)
            if other is not None:
                if other > key:
                    jump = other
                    break
                continue
            rows.append((key, value))
            size += len(key) + len(value)
            beside = _items_prefix(key) if read.items else None
            if beside is not None and beside != former:
                former = beside
                found = _read_items(partition, beside)
                items += found
                visited += len(found)
                size += sum(len(name) + len(item) for name, item in found)
        at = jump
    return StoredRows(tuple(rows), tuple(items), partition.stamp)


def _items_prefix(key: bytes) -> bytes | None:
    """Return the beginning of the keys of the items that belong to a row; None if it has none."""
    if key[0] == HEAD_SPACE:
        return bytes((ITEM_SPACE,)) + key[1:]
    tag, pane, _ = split_key(key)
    if tag != PANE_KEY:
        return None
    return bytes((LIST_SPACE,)) + pane_prefix(pane[:-17], OPENED, 0, 0)


def _read_items(partition: StorePartition, start: bytes) -> list[Row]:
    found = list(islice(partition.scan(start, after_prefix(start)), _MOST_ITEMS + 1))
    if len(found) > _MOST_ITEMS:
        raise StateError(f"the windows of a key hold more than {_MOST_ITEMS} collected values, too many for a query")
    return found
