"""The expiry indexes of a store: which entries expire, in the order of their expiries.

There are two, with a bound each (see `layout.py`): one by event time, and one by the wall clock. An index holds a key for
each stored value with an expiry. It may also hold outdated keys, so the value itself decides.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from streamrt.state.base import BEFORE_ALL, Change
from streamrt.state.layout import (
    EXPIRY_SPACE,
    FIRST_KEY,
    LATEST_EXPIRY,
    WALL_EXPIRY_SPACE,
    WALL_FIRST_KEY,
    decode_value,
    expiry_bound,
    expiry_key,
    index_key_of,
    split_expiry_key,
)
from streamrt.state.store import StorePartition

__all__ = [
    "EVENT_INDEX",
    "NO_INDEX",
    "WALL_INDEX",
    "ExpiryIndex",
    "IndexKind",
    "has_index",
    "index_bound",
    "index_start",
    "overwritten_index",
]

# Values of a bound that are not an expiry: not read yet, and no index.
UNREAD: Final = -2
NO_INDEX: Final = -1


@dataclass(frozen=True)
class IndexKind:
    """One of the indexes.

    Attributes:
        space: the first byte of its keys.
        bound_key: the key of its bound.
        former: whether former versions of StreamRT wrote it without a bound.
    """

    space: int
    bound_key: bytes
    former: bool


EVENT_INDEX: Final = IndexKind(EXPIRY_SPACE, FIRST_KEY, former=True)
WALL_INDEX: Final = IndexKind(WALL_EXPIRY_SPACE, WALL_FIRST_KEY, former=False)


def index_bound(partition: StorePartition, kind: IndexKind = EVENT_INDEX) -> int | None:
    """Return a lower bound for the expiries in an index; None if none was ever written, as by older versions."""
    data = partition.get(kind.bound_key)
    return None if data is None else int.from_bytes(data, "big")


def index_start(partition: StorePartition) -> int:
    """Return a lower bound for the expiries in the index of event time; 0 if none is known."""
    return index_bound(partition) or 0


def has_index(partition: StorePartition, kind: IndexKind = EVENT_INDEX) -> bool:
    """Return whether a store without a bound has index entries. The scan passes the tombstones of deleted entries."""
    if not kind.former:
        return False
    end = bytes((kind.space + 1,))
    return next(iter(partition.scan(expiry_key(0, b"", kind.space), end)), None) is not None


def overwritten_index(partition: StorePartition, keys: list[bytes]) -> list[Change]:
    """Return deletions of the index entries that belong to the stored values of some data keys."""
    return [
        (found, None)
        for key, value in zip(keys, partition.get_many(keys), strict=True)
        if value and (found := index_key_of(key, value)) is not None
    ]


class ExpiryIndex:
    """An index of a store with data, as one transaction sees it.

    Args:
        partition: the open store partition.
        kind: which index.
        first: what `first` of the previous transaction over the same open partition was.

    Attributes:
        kind: which index.
        first: a lower bound for the expiries, `NO_INDEX`, or a mark that it was not read yet.
    """

    __slots__ = ("_partition", "first", "kind")

    def __init__(self, partition: StorePartition, kind: IndexKind, first: int = UNREAD) -> None:
        self._partition = partition
        self.kind = kind
        self.first = first

    @property
    def start(self) -> int:
        """A lower bound for the expiries in the index, or `NO_INDEX`."""
        if self.first == UNREAD:
            bound = index_bound(self._partition, self.kind)
            if bound is None:
                bound = 0 if has_index(self._partition, self.kind) else NO_INDEX
            self.first = bound
        return self.first

    def lower(self, expiry: int) -> list[Change]:
        """Note that the index gets an entry; return the change of the bound if the entry is earlier."""
        if not 0 <= expiry < self.start:
            return []
        self.first = expiry
        return [self._bound_change()]

    def evict(
        self, now: int, own: list[Change], written: Collection[bytes], most: int
    ) -> tuple[list[tuple[bytes, int]], int]:
        """Find expired entries, and add the deletions of their keys in the index, and the bound, to the changes.

        Args:
            now: the time of the index, in milliseconds.
            own: changes of the indexes by this transaction; is extended.
            written: the keys of data that it has written.
            most: how many keys of the index may be looked at.

        Returns:
            Keys and sizes of the payloads of the entries to delete, and the number of keys looked at.
        """
        if now == BEFORE_ALL:
            return [], 0
        first, after = self.start, min(max(now + 1, 0), LATEST_EXPIRY + 1)
        if first >= after:
            return [], 0
        done = {key for key, _ in own}
        space = self.kind.space
        if first == NO_INDEX:
            if any(key[0] == space for key in done):
                # The first entries: they are later than now.
                self.first = after
                own.append(self._bound_change())
            return [], 0
        if most <= 0:
            return [], 0
        candidates = list(
            islice((entry for entry in self._find_due(first, now) if expiry_key(*entry, space) not in done), most)
        )
        found: list[tuple[bytes, int]] = []
        stored = self._partition.get_many([key for _, key in candidates])
        for (expiry, key), data in zip(candidates, stored, strict=True):
            own_key = expiry_key(expiry, key, space)
            own.append((own_key, None))
            # Another index key means that a restore without look-ups has rewritten the entry.
            if data is not None and key not in written and index_key_of(key, data) == own_key:
                payload = decode_value(data)
                found.append((key, 0 if isinstance(payload, bytes) else len(payload.payload)))
        # More entries may have the same expiry as the last one.
        self.first = after if len(candidates) < most else candidates[-1][0]
        if self.first != first:
            own.append(self._bound_change())
        return found, len(candidates)

    def _find_due(self, start: int, now: int) -> Iterable[tuple[int, bytes]]:
        """Return expiry and data key of the index entries from `start` up to a time, oldest first."""
        space = self.kind.space
        found = self._partition.scan(expiry_key(start, b"", space), expiry_bound(now, space))
        return (split_expiry_key(key) for key, _ in found)

    def _bound_change(self) -> Change:
        return self.kind.bound_key, self.first.to_bytes(8, "big")
