"""Counted values: sets of values of record keys, each value with how often it is in the set.

A set may be large: a change writes one entry, and the values are in order, so the lowest and the highest one are found
without the others. A set belongs to a record key and has a number of its own, which an operator keeps in the head of the
key. Its entries are those of a map with this number as name: the key is `order_bytes` of the value, and the value is the
count, or a list of count and cell if the value must be read back.

The cached part of a set passes to the next transaction. A set that is complete in memory needs no reads.
"""

from collections.abc import Callable, Iterator
from heapq import merge
from operator import itemgetter
from typing import Any, Final

import orjson
from sortedcontainers import SortedSet

from streamrt.state.base import Change
from streamrt.state.base.status import TransactionStatus
from streamrt.state.encoding import Cell, dumps_exact, loads_exact
from streamrt.state.journal import Journal
from streamrt.state.layout import MAP_SPACE, PLAIN, collection_prefix, following
from streamrt.state.store import StorePartition
from streamrt.state.transactions.timeline import ENTRY_BYTES, Refusing

__all__ = ["CountedValues", "KeptValues"]

_VALUE_BYTES: Final = 200

Counted = tuple[int, Cell]
"""How often a value is in a set, and its cell; None if it need not be read back."""


class _Set:
    """The cached values of one set.

    Attributes:
        base: the beginning of its keys in the store.
        values: the cached values by their bytes; None for one that is not in the set.
        written: the values that this transaction has changed, and whether the store has them.
        complete: whether all other values are not in the set.
        ordered: the bytes of the cached values that are in the set; None before they are needed.
        size: approximate size in bytes.
    """

    __slots__ = ("base", "complete", "ordered", "size", "values", "written")

    def __init__(self, base: bytes, *, complete: bool) -> None:
        self.base = base
        self.values: dict[bytes, Counted | None] = {}
        self.written: dict[bytes, bool] = {}
        self.complete = complete
        self.ordered: Any = None
        self.size = ENTRY_BYTES

    def put(self, value: bytes, counted: Counted | None) -> None:
        """Set what is known of a value."""
        if self.ordered is not None:
            if counted is None:
                self.ordered.discard(value)
            else:
                self.ordered.add(value)
        self.values[value] = counted

    def order(self) -> Any:
        """Return the bytes of the cached values that are in the set, in order."""
        if self.ordered is None:
            self.ordered = SortedSet(value for value, counted in self.values.items() if counted is not None)
        return self.ordered


KeptValues = tuple[dict[bytes, _Set], int]
"""Sets that pass to the next transaction, and their approximate size in bytes."""


class CountedValues:
    """The sets of counted values of a transaction.

    Args:
        partition: the open store partition.
        make_room: function that makes the transaction drop unchanged reads, if it holds too much memory.
        arrival: returns a number that no set has.
        kept: what `keep` of the previous transaction over the same open partition returned.

    Attributes:
        size: approximate size in bytes.

    Example:
        >>> from pathlib import Path
        >>> from streamrt.state import MemoryStore
        >>> from streamrt.state.transactions.timed import TimedTransaction
        >>> transaction = TimedTransaction(MemoryStore("default", "orders", Path("unused")).open(0))
        >>> sets, prefix = transaction.counted, transaction.prefix("customer")
        >>> number = sets.create(prefix)
        >>> [sets.add(prefix, number, value, 1) for value in (b"b", b"a", b"b")]
        [1, 1, 2]
        >>> sets.edge(prefix, number), sets.edge(prefix, number, last=True)
        ((b'a', None), (b'b', None))
        >>> sets.add(prefix, number, b"a", -1), sets.edge(prefix, number)
        (0, (b'b', None))
    """

    __slots__ = ("_arrival", "_kept", "_make_room", "_partition", "_sets", "_touched", "journal", "size")

    def __init__(
        self,
        partition: StorePartition,
        make_room: Callable[[], None],
        arrival: Callable[[], int],
        kept: KeptValues | None = None,
    ) -> None:
        self._partition = partition
        self._make_room: Callable[[], None] | None = make_room
        self._arrival: Callable[[], int] | None = arrival
        self._kept, self.size = ({}, 0) if kept is None else kept
        # Those that may be used: not those of a prepared transaction.
        self._sets: dict[bytes, _Set] = self._kept
        self._touched: dict[bytes, _Set] = {}
        self.journal: Journal | None = None

    @property
    def dirty(self) -> bool:
        """Whether there are changes for a commit to store."""
        return bool(self._touched)

    def create(self, prefix: bytes) -> int:
        """Return the number of a new, empty set of a record key."""
        number = self._arrival() if self._arrival is not None else 0
        self._open(_base_of(prefix, number), complete=True)
        return number

    def add(self, prefix: bytes, number: int, value: bytes, by: int, cell: Cell = None) -> int:
        """Change how often a value is in a set.

        A value that is in the set less often is taken out.

        Args:
            prefix: result of `TimedTransaction.prefix` for the record key.
            number: number of the set.
            value: bytes of the value.
            by: how many are added; below 0, how many are taken out.
            cell: what `edge` and `items` return for the value; None if nothing is needed.

        Returns:
            How often the value is in the set now.

        Raises:
            StateError: if the transaction is over.
        """
        each = self._find(prefix, number)
        old = self._read(each, value)
        count = by if old is None else old[0] + by
        if count <= 0 and old is None:
            return 0
        self._put(each, value, old, (count, cell if old is None else old[1]) if count > 0 else None)
        return max(count, 0)

    def insert(self, prefix: bytes, number: int, value: bytes, cell: Cell = None) -> bool:
        """Add a value to a set, with what `edge` and `items` return for it, unless it is there; return whether it was not.

        Raises:
            StateError: if the transaction is over.
        """
        each = self._find(prefix, number)
        if self._read(each, value) is not None:
            return False
        self._put(each, value, None, (1, cell))
        return True

    def take(self, prefix: bytes, number: int, value: bytes) -> int | None:
        """Take a value out of a set once; return how often it is in there now, and None if it was not.

        Raises:
            StateError: if the transaction is over.
        """
        each = self._find(prefix, number)
        old = self._read(each, value)
        if old is None:
            return None
        left = old[0] - 1
        self._put(each, value, old, (left, old[1]) if left else None)
        return left

    def edge(self, prefix: bytes, number: int, *, last: bool = False) -> tuple[bytes, Cell] | None:
        """Return the bytes and the cell of the first or the last value of a set; None if it is empty."""
        each = self._find(prefix, number)
        ordered = each.order()
        cached = ordered[-1 if last else 0] if ordered else None
        if not each.complete:
            for key, data in self._partition.scan(each.base, following(each.base), reverse=last):
                value = key[len(each.base) :]
                if cached is not None and (value <= cached if last else value >= cached):
                    break
                if value not in each.written:
                    return value, _decode(data)[1]
        if cached is None:
            return None
        return cached, each.values[cached][1]  # type: ignore[index]  # it is in the set

    def count(self, prefix: bytes, number: int, value: bytes) -> int:
        """Return how often a value is in a set."""
        counted = self._read(self._find(prefix, number), value)
        return 0 if counted is None else counted[0]

    def items(self, prefix: bytes, number: int, *, after: bytes | None = None) -> Iterator[tuple[bytes, int, Cell]]:
        """Yield bytes, count and cell of all values of a set in their order. It must not be changed meanwhile.

        What is not taken from the iterator is not read.

        Args:
            prefix: result of `TimedTransaction.prefix` for the record key.
            number: number of the set.
            after: the value behind which to begin; None for all.
        """
        each = self._find(prefix, number)
        values, start = each.values, len(each.base)
        ordered = each.order() if after is None else each.order().irange(after, inclusive=(False, False))
        cached = ((value, *values[value]) for value in ordered)  # type: ignore[misc]  # it is in the set
        if each.complete:
            yield from cached
            return
        first = each.base if after is None else each.base + after + b"\0"
        scan = self._partition.scan(first, following(each.base))
        yield from merge(
            cached,
            ((key[start:], *_decode(data)) for key, data in scan if key[start:] not in values),
            key=itemgetter(0),
        )

    def items_before(self, prefix: bytes, number: int, before: bytes) -> Iterator[tuple[bytes, int, Cell]]:
        """Yield what `items` does of the values before another one, the last one first.

        Args:
            prefix: result of `TimedTransaction.prefix` for the record key.
            number: number of the set.
            before: the other value, which need not be in the set.
        """
        each = self._find(prefix, number)
        values, start = each.values, len(each.base)
        ordered = each.order().irange(None, before, inclusive=(True, False), reverse=True)
        cached = ((value, *values[value]) for value in ordered)  # type: ignore[misc]  # it is in the set
        if each.complete:
            yield from cached
            return
        scan = self._partition.scan(each.base, each.base + before, reverse=True)
        yield from merge(
            cached,
            ((key[start:], *_decode(data)) for key, data in scan if key[start:] not in values),
            key=itemgetter(0),
            reverse=True,
        )

    def merge(self, prefix: bytes, into: int, number: int) -> int:
        """Add the values of a set to another one of the same record key, and delete it.

        Returns:
            The number of values that the other set did not have.
        """
        fresh = 0
        for value, count, cell in list(self.items(prefix, number)):
            fresh += self.add(prefix, into, value, count, cell) == count
        self.delete(prefix, number)
        return fresh

    def delete(self, prefix: bytes, number: int) -> None:
        """Delete a set."""
        each = self._find(prefix, number)
        if self.journal is not None:
            self.journal.entries.append((self._restore, (each, dict(each.values), dict(each.written), each.complete)))
        if not each.complete:
            for key, _ in self._partition.scan(each.base, following(each.base)):
                each.written.setdefault(key[len(each.base) :], True)
        for value, counted in each.values.items():
            each.written.setdefault(value, counted is not None)
        each.values = dict.fromkeys(each.written)
        each.ordered = None
        each.complete = True
        if each.written:
            self._touched[each.base] = each

    # -- Called by the transaction -------------------------------------------------------------------------------

    def prepare(self, status: TransactionStatus) -> list[Change]:
        """Return the changes. Further use raises an error.

        Args:
            status: the status of the transaction, for this error.
        """
        changes: list[Change] = []
        for base, each in self._touched.items():
            for value, stored in each.written.items():
                counted = each.values[value]
                if counted is not None:
                    changes.append((base + value, PLAIN + _encode(counted)))
                elif stored:
                    changes.append((base + value, None))
        self._sets = Refusing(status)
        return changes

    def mark_stored(self) -> None:
        """Note that the prepared changes are in the store."""
        self._sets = self._kept
        for base, each in self._touched.items():
            each.written = {}
            if each.complete:
                for value in [value for value, counted in each.values.items() if counted is None]:
                    del each.values[value]
            if not each.values and self._sets.get(base) is each:
                # An empty set is not worth its memory.
                del self._sets[base]
                self.size -= each.size

    def drop(self, excess: int) -> None:
        """Drop values that are not written, oldest sets first, until `excess` bytes are free."""
        gone = []
        for base, each in self._sets.items():
            if excess <= 0:
                break
            before = each.size
            if each.written:
                each.values = {value: each.values[value] for value in each.written}
                each.ordered, each.complete = None, False
                each.size = ENTRY_BYTES + sum(_VALUE_BYTES + len(value) for value in each.values)
            else:
                gone.append(base)
                each.size = 0
            excess -= before - each.size
            self.size -= before - each.size
        for base in gone:
            del self._sets[base]

    def keep(self) -> KeptValues:
        """Return the sets for the next transaction; call `end` afterwards."""
        return self._kept, self.size

    def end(self, status: TransactionStatus) -> None:
        """Release all data. Further use raises an error.

        Args:
            status: the status of the transaction, for this error.
        """
        self._sets = Refusing(status)
        self._kept = {}
        self._make_room = self._arrival = None
        self._touched = {}
        self.size = 0

    # -- Reading and writing -------------------------------------------------------------------------------------

    def _open(self, base: bytes, *, complete: bool) -> _Set:
        each = self._sets[base] = _Set(base, complete=complete)
        self.size += each.size
        return each

    def _find(self, prefix: bytes, number: int) -> _Set:
        # First, because it may drop the set.
        if self._make_room is not None:
            self._make_room()
        base = _base_of(prefix, number)
        sets = self._sets
        if type(sets) is Refusing:
            sets.refuse()
        return sets.get(base) or self._open(base, complete=False)

    def _read(self, each: _Set, value: bytes) -> Counted | None:
        try:
            return each.values[value]
        except KeyError:
            if each.complete:
                return None
        data = self._partition.get(each.base + value)
        counted = None if data is None else _decode(data)
        each.put(value, counted)
        self._grow(each, value)
        return counted

    def _put(self, each: _Set, value: bytes, old: Counted | None, counted: Counted | None) -> None:
        if self.journal is not None:
            self.journal.entries.append((self._put_back, (each, value, old, value in each.written)))
        if value not in each.written:
            each.written[value] = old is not None
            self._touched[each.base] = each
        if value not in each.values:
            self._grow(each, value)
        each.put(value, counted)

    def _grow(self, each: _Set, value: bytes) -> None:
        size = _VALUE_BYTES + len(value)
        each.size += size
        self.size += size

    # -- Undoing -----------------------------------------------------------------------------------------------------

    def _put_back(self, each: _Set, value: bytes, old: Counted | None, written: bool) -> None:
        """Undo a change of a value."""
        each.put(value, old)
        if not written:
            del each.written[value]

    def _restore(
        self, each: _Set, values: dict[bytes, Counted | None], written: dict[bytes, bool], complete: bool
    ) -> None:
        """Undo the deletion of a set."""
        each.values, each.written, each.complete, each.ordered = values, written, complete, None


def _base_of(prefix: bytes, number: int) -> bytes:
    return collection_prefix(MAP_SPACE, prefix, str(number))


def _encode(counted: Counted) -> bytes:
    count, cell = counted
    return str(count).encode() if cell is None else dumps_exact([count, cell])


def _decode(data: bytes) -> Counted:
    found = orjson.loads(data[1:]) if data[1:2] != b"~" else loads_exact(data[1:])
    return (found, None) if type(found) is int else (found[0], found[1])
