"""Transactions of stores for operators that depend on time: windows, joins, timers.

Each record key, which is identified by its *prefix*, has

- a **head**: one small object, kept decoded across records and commits, and encoded once for each commit;
- a **timeline**: items in time order (`timeline.py`);
- **counted values**: sets of values that are too large for a head (`counted_values.py`);
- a **deadline** of the head: the time at which its operator processes it again, even without a record of its key.

Deadlines lie in two places: stored ones in the expiry index, which is read once from front to back, and those that this
transaction has set, in a heap. An entry of either is valid only while the head still has that deadline. A moved
deadline thus leaves an outdated entry behind, and no search is necessary.
"""

import marshal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import chain, islice
from typing import Any, ClassVar, Final

import orjson

from streamrt.errors import SerializationError, StateError, StoreCorruptedError
from streamrt.state.base import BEFORE_ALL, Change, Transaction
from streamrt.state.encoding import dumps_exact, loads_exact, packing_of
from streamrt.state.expiry import index_start
from streamrt.state.journal import Journal
from streamrt.state.layout import (
    ARRIVAL_KEY,
    BYTES_KEY,
    EXPIRY_SPACE,
    FIRST_KEY,
    HEAD_SPACE,
    JSON_KEY,
    LATEST_EXPIRY,
    NO_KEY,
    decode_value,
    expiry_key,
    key_prefix,
    split_expiry_key,
    split_prefix,
)
from streamrt.state.options import RocksDBOptions
from streamrt.state.store import StorePartition
from streamrt.state.transactions.counted_values import CountedValues
from streamrt.state.transactions.timeline import ENTRY_BYTES, Refusing, Timelines

__all__ = ["NEVER", "TimedTransaction"]

NEVER: Final = LATEST_EXPIRY + 1
"""A time later than all deadlines."""

_NO_KEY_PREFIX: Final = key_prefix(NO_KEY, b"")
# Beginnings of prefixes whose length fits into one byte, as almost all do.
_SHORT_BYTES: Final = tuple(bytes((BYTES_KEY, length)) for length in range(128))
_SHORT_JSON: Final = tuple(bytes((JSON_KEY, length)) for length in range(128))
_HEAD_START: Final = bytes((HEAD_SPACE,))
_HEAD_END: Final = bytes((HEAD_SPACE + 1,))
_INDEX_END: Final = bytes((EXPIRY_SPACE + 1,))
_GROWTH: Final = 8
# Numbers of index entries that are read at a time: few at first, because most transactions have few deadlines that are
# due.
_FIRST_LOOK, _LONGEST_LOOK = 8, 512
_SMALL_HEAP: Final = 1024
_MARSHAL: Final = 2
"""Later versions look for shared objects, of which heads have none."""
_DEFAULT_OPTIONS: Final = RocksDBOptions()


class _Head:
    """The cached head of one record key.

    Attributes:
        value: the object; None if there is no head.
        deadline: its deadline.
        stored: its deadline in the store.
        exists: whether the store has it.
        written: whether this transaction has changed it.
        size: its approximate size in bytes.
        noted: turn of the journal in which it was noted.
    """

    __slots__ = ("deadline", "exists", "noted", "size", "stored", "value", "written")

    def __init__(self, value: Any, deadline: int | None, size: int) -> None:
        self.value = value
        self.deadline = self.stored = deadline
        self.exists = value is not None
        self.written = False
        self.size = size
        self.noted = -1


class _Heads(dict[bytes, _Head]):
    """Heads by prefix; a missing head is read from the store."""

    read: Callable[[bytes], _Head]

    def __missing__(self, prefix: bytes) -> _Head:
        return self.read(prefix)


class TimedTransaction(Transaction):
    """Keep heads, timelines and deadlines of record keys.

    Nothing is deleted automatically: at its deadline, the operator processes a head again.

    Args:
        partition: the open store partition.
        options: `dumps` and `loads` apply to users' values: items, and the arguments of `pack`.
        changelog: whether there is a changelog.

    Attributes:
        clock: stream time, or a number below all timestamps; operators may read it, and move it by `advance`.
        due_from: a lower bound for all deadlines, so `due(bound)` finds nothing while `bound < due_from`. Operators may
            read it for each record. It may be lower than the earliest deadline until `due` or `next_deadline` is used.
        observed: the watermark of this partition by itself, in milliseconds: the highest event time of its records, less what
            its strategy allows for; operators set it. It is stored with the stamp.
        others: the watermark of all other partitions; operators set it. A number below all timestamps if unknown.
        moves_from: a watermark of this partition above this time moves the clock; operators set it.
        timelines: the timelines of the record keys.
        counted: the counted values of the record keys.
        owner: the prefix of the record key whose head was read last, to which the states belong that an aggregation is
            computed from.
        arrival: returns a number that increases with each call, and with each item of a timeline.
        pack: encodes a user's value as a cell, to be put into a head.
        unpack: decodes a cell, to a new object each time.

    Example:
        >>> from pathlib import Path
        >>> from streamrt.state import MemoryStore
        >>> transaction = TimedTransaction(MemoryStore("default", "orders", Path("unused")).open(0))
        >>> prefix = transaction.prefix("customer")
        >>> transaction.head(prefix) is None
        True
        >>> transaction.set_head(prefix, [1, 9.5], deadline=60_000)
        >>> transaction.next_deadline
        60000
        >>> for deadline, prefix, head in transaction.due(60_000):
        ...     print(deadline, transaction.key_of(prefix), head)
        ...     transaction.delete_head(prefix)
        60000 customer [1, 9.5]
        >>> transaction.timelines.add(prefix, 1_000, {"price": 5})
        >>> transaction.timelines.items(prefix, 0, 2_000)
        [(1000, {'price': 5})]
    """

    __slots__ = (
        "_ahead",
        "_first",
        "_heads",
        "_heap",
        "_heap_limit",
        "_local",
        "_look",
        "_made",
        "_moved",
        "_prepared",
        "_scan",
        "_written",
        "arrival",
        "counted",
        "due_from",
        "moves_from",
        "observed",
        "others",
        "owner",
        "pack",
        "timelines",
        "unpack",
    )

    timed: ClassVar[bool] = True

    def __init__(
        self, partition: StorePartition, options: RocksDBOptions | None = None, changelog: bool = True
    ) -> None:
        super().__init__(partition, options, changelog)
        options = _DEFAULT_OPTIONS if options is None else options
        self.pack, self.unpack = packing_of(options)
        heads, timelines, counted = _Heads(), None, None
        stamp = partition.stamp
        self.observed: int | None = None if stamp is None else stamp.observed
        self.due_from: int = BEFORE_ALL
        self.others: int = BEFORE_ALL
        self.moves_from: int = NEVER
        # The stored bound of the index; None: not read yet.
        self._first: int | None = None
        if self._cache is not None:
            heads, self._size, timelines, counted, self.due_from, self._first, self.observed = self._cache
            self._cache = None
        self.timelines = Timelines(partition, options, self._make_room, timelines)
        self.arrival = self.timelines.arrival
        self.counted = CountedValues(partition, self._make_room, self.arrival, counted)
        self.owner = b""
        heads.read = self._read_head
        self._heads: dict[bytes, _Head] = heads
        # Only prefixes: pairs with the heads would cost more in garbage collection than the repeated look-up.
        self._written: list[bytes] = []
        self._moved = False
        # Deadlines that were set, as (deadline, prefix), and the next entries of the index; both may contain outdated
        # ones.
        self._heap: list[tuple[int, bytes]] = []
        self._heap_limit = _SMALL_HEAP
        self._ahead: deque[tuple[int, bytes]] = deque()
        self._scan: Iterator[tuple[bytes, bytes]] | None = None
        self._look = _FIRST_LOOK
        self._made: list[Change] = []
        # The heads of a prepared transaction, which must not be used.
        self._prepared: dict[bytes, _Head] = {}
        # Changes that are local to the store: those of the index.
        self._local: list[Change] = []

    @property
    def dirty(self) -> bool:  # noqa: D102
        return bool(self._written or self.timelines.dirty or self.counted.dirty or self._local)

    @property
    def observed_time(self) -> int | None:  # noqa: D102
        return self.observed

    # -- Record keys ---------------------------------------------------------------------------------------------

    @staticmethod
    def prefix(key: Any) -> bytes:
        """Return the prefix that identifies a record key in all other methods.

        Args:
            key: None, bytes, or an object with an exact JSON form.

        Raises:
            SerializationError: if the key has no exact JSON form.
        """
        if type(key) is bytes and len(key) < 128:
            return _SHORT_BYTES[len(key)] + key
        return _make_prefix(key)

    @staticmethod
    def key_of(prefix: bytes) -> Any:
        """Return the record key of a prefix: None, bytes, or the decoded JSON."""
        tag, key = split_prefix(prefix)
        return None if tag == NO_KEY else key if tag == BYTES_KEY else loads_exact(key)

    # -- Heads ---------------------------------------------------------------------------------------------------

    def head(self, prefix: bytes) -> Any:
        """Return the head of a record key, or None.

        It is the object that was passed to `set_head`, or a copy of it. You may change it in place if you then call
        `set_head` in the same transaction.

        Raises:
            StateError: if the transaction is over.
        """
        self.reads += 1
        self.owner = prefix
        head, journal = self._heads[prefix], self.journal
        if journal is not None and head.noted != journal.turn:
            # `_note_head` inlined.
            head.noted = journal.turn
            journal.entries.append((self._restore_head, (prefix, marshal.dumps(head.value, _MARSHAL), head.deadline)))
        return head.value

    def set_head(self, prefix: bytes, value: Any, deadline: int | None = None) -> None:
        """Store the head of a record key; also required after a change in place.

        Args:
            prefix: result of `prefix` for the record key.
            value: nested lists, or dicts with str keys, of int, float, str, bool and None. It is encoded when the transaction
                is prepared, and must not be None itself.
            deadline: event time in milliseconds at which `due` yields it; None for never. Times before 0 count as 0.

        Raises:
            StateError: if the transaction is over.
        """
        head = self._heads[prefix]
        if value is None:
            raise StateError("a head cannot be None, which means that there is no head: call delete_head instead")
        if self.journal is not None and head.noted != self.journal.turn:
            self._note_head(prefix, head, self.journal)
        head.value = value
        if head.deadline != deadline:
            self._move_deadline(prefix, head, deadline)
        if not head.written:
            head.written = True
            self._written.append(prefix)

    def heads(self) -> Iterator[tuple[bytes, Any]]:
        """Yield prefix and head of all record keys, in the order of the bytes of the prefixes.

        Heads may be changed meanwhile; those of further record keys must not be added.
        """
        heads = self._heads
        if type(heads) is Refusing:
            heads.refuse()
        stored = ((key[1:], data) for key, data in self._partition.scan(_HEAD_START, _HEAD_END))
        written = ((prefix, b"") for prefix in sorted(set(self._written)))
        last = None
        for prefix, data in merge(stored, written):
            if prefix == last:
                continue
            last = prefix
            if data and prefix not in heads:
                self._make_room()
                heads[prefix] = self._head_of(data)
            head = heads[prefix]
            if head.value is not None:
                if self.journal is not None:
                    self._note_head(prefix, head, self.journal)
                self.owner = prefix
                yield prefix, head.value

    def delete_head(self, prefix: bytes) -> None:
        """Delete the head of a record key and its deadline. A missing head is not an error."""
        head = self._heads[prefix]
        if head.value is None:
            return
        if self.journal is not None:
            self._note_head(prefix, head, self.journal)
        head.value = None
        if head.deadline is not None:
            head.deadline = None
            self._moved = True
        if not head.written:
            head.written = True
            self._written.append(prefix)

    # -- Deadlines -----------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> int | None:
        """The earliest deadline of all heads, as event time in milliseconds; None if there is none."""
        earliest = self._find_earliest()
        return None if earliest is None else earliest[0]

    def due(self, bound: int) -> Iterator[tuple[int, bytes, Any]]:
        """Yield deadline, prefix and head of each head whose deadline is not later than a bound.

        They are ordered by deadline and then by the bytes of the prefix, independently of commits. Before you request
        the next head, delete the current one, or call `set_head` with a later deadline or none.

        Args:
            bound: event time in milliseconds, inclusive.

        Raises:
            StateError: if a head keeps its deadline or gets an earlier one.
        """
        if bound < self.due_from:
            return
        while True:
            earliest = self._find_earliest()
            if earliest is None or earliest[0] > bound:
                return
            deadline, prefix = earliest
            head = self._heads.get(prefix)
            if head is None:
                self._read_due(bound)
                head = self._heads[prefix]
                if head.deadline != deadline:
                    # An outdated entry, left by a restore without look-ups.
                    self._local.append((expiry_key(deadline, _HEAD_START + prefix), None))
                    continue
            if self.journal is not None:
                self._note_head(prefix, head, self.journal)
            self.owner = prefix
            yield deadline, prefix, head.value
            # The head may have been dropped to give memory to another store, and read again.
            head = self._heads.get(prefix, head)
            if head.deadline is not None and head.deadline <= deadline:
                raise StateError(
                    f"the head of record key {self.key_of(prefix)!r} was due at {deadline} and still has the deadline "
                    f"{head.deadline}: the operator must set a later deadline or none, or delete the head"
                )

    def _find_earliest(self) -> tuple[int, bytes] | None:
        """Return the earliest deadline with its prefix, and drop the outdated entries before it."""
        heads, heap, ahead = self._heads, self._heap, self._ahead
        if type(heads) is Refusing:
            heads.refuse()
        found = None
        while heap:
            if heads[heap[0][1]].deadline == heap[0][0]:
                found = heap[0]
                break
            heappop(heap)
        while ahead or self._look_ahead():
            first = ahead[0]
            if found is not None and found <= first:
                break
            # A head that is not cached is unchanged: its deadline is the one in the index.
            head = heads.get(first[1])
            if head is None or head.deadline == first[0]:
                found = first
                break
            ahead.popleft()
        self.due_from = NEVER if found is None else found[0]
        return found

    def _look_ahead(self) -> bool:
        """Read the next entries of the index; return False if there are no more."""
        scan = self._scan
        if scan is None:
            self._first = index_start(self._partition)
            scan = self._scan = self._partition.scan(expiry_key(self._first, b""), _INDEX_END)
        entries = (split_expiry_key(key) for key, _ in islice(scan, self._look))
        self._look = min(self._look * 4, _LONGEST_LOOK)
        self._ahead.extend((deadline, key[1:]) for deadline, key in entries)
        return bool(self._ahead)

    def _read_due(self, bound: int) -> None:
        """Read several of the next due heads at once."""
        self._make_room()
        heads = self._heads
        wanted = [prefix for deadline, prefix in self._ahead if deadline <= bound and prefix not in heads]
        stored = self._partition.get_many([_HEAD_START + prefix for prefix in wanted])
        for prefix, data in zip(wanted, stored, strict=True):
            heads[prefix] = self._head_of(data)

    def follow(self, journal: Journal) -> None:  # noqa: D102
        super().follow(journal)
        self.timelines.journal = self.counted.journal = journal

    def _note_head(self, prefix: bytes, head: _Head, journal: Journal) -> None:
        """Note a head before it is changed, which may be in place."""
        if head.noted != journal.turn:
            head.noted = journal.turn
            # A copy; heads are plain data, for which this takes a fraction of the time of others.
            journal.entries.append((self._restore_head, (prefix, marshal.dumps(head.value, _MARSHAL), head.deadline)))

    def _restore_head(self, prefix: bytes, value: bytes, deadline: int | None) -> None:
        head = self._heads[prefix]
        head.value = marshal.loads(value)  # noqa: S302 - of this process
        if head.deadline != deadline:
            self._move_deadline(prefix, head, deadline)

    def _move_deadline(self, prefix: bytes, head: _Head, deadline: int | None) -> None:
        """Change the deadline of a head."""
        if deadline is not None:
            if not 0 <= deadline <= LATEST_EXPIRY:
                deadline = min(max(deadline, 0), LATEST_EXPIRY)
                if deadline == head.deadline:
                    return
            heap = self._heap
            heappush(heap, (deadline, prefix))
            if deadline < self.due_from:
                self.due_from = deadline
            if len(heap) > self._heap_limit:
                heads = self._heads
                heap[:] = {entry for entry in heap if entry[1] == prefix or heads[entry[1]].deadline == entry[0]}
                heapify(heap)
                self._heap_limit = max(_SMALL_HEAP, 2 * len(heap))
        head.deadline = deadline
        self._moved = True

    # -- Reading -------------------------------------------------------------------------------------------------

    @property
    def _used(self) -> int:
        return self._size + self.timelines.size + self.counted.size

    def _make_room(self) -> None:
        """Request more memory or drop unchanged reads, if necessary."""
        if self._size + self.timelines.size + self.counted.size > self._limit:
            self._fit_budget()

    def _read_head(self, prefix: bytes) -> _Head:
        self._make_room()
        self.misses += 1
        head = self._heads[prefix] = self._head_of(self._partition.get(_HEAD_START + prefix))
        return head

    def _head_of(self, data: bytes | None) -> _Head:
        if not data:
            self._size += ENTRY_BYTES
            return _Head(None, None, ENTRY_BYTES)
        size = ENTRY_BYTES + _GROWTH * len(data)
        self._size += size
        # `decode_value` and `loads_exact` inlined, because this runs for each key that is not cached.
        deadline: int | None = None
        if data[0] == 1 and len(data) > 9:
            deadline, payload = int.from_bytes(data[1:9], "big"), data[9:]
        elif data[0] == 0:
            payload = data[1:]
        else:
            decode_value(data)
            raise StoreCorruptedError(f"a head in the store is truncated: {data!r}")
        try:
            value = orjson.loads(payload)
        except ValueError:
            value = loads_exact(payload)
        return _Head(value, deadline, size)

    def _forget_reads(self, size: int) -> None:
        gone = []
        for prefix, head in self._heads.items():
            if size <= 0:
                break
            if not head.written:
                gone.append(prefix)
                size -= head.size
                self._size -= head.size
        for prefix in gone:
            del self._heads[prefix]
        before = self.timelines.size
        self.timelines.drop(size)
        self.counted.drop(size - before + self.timelines.size)

    # -- The end -------------------------------------------------------------------------------------------------

    def _decide_changes(self) -> list[Change]:
        removed: list[Change] = []
        added: list[Change] = []
        changes: list[Change] = []
        size = 0
        heads = self._heads
        for prefix in self._written:
            head = heads[prefix]
            key = _HEAD_START + prefix
            value, deadline, stored = head.value, head.deadline, head.stored
            before = head.size
            if value is None:
                head.size = ENTRY_BYTES
                if head.exists:
                    changes.append((key, None))
            else:
                data = dumps_exact(value)
                head.size = ENTRY_BYTES + _GROWTH * len(data)
                if deadline is None:
                    changes.append((key, b"\x00" + data))
                else:
                    changes.append((key, b"\x01" + deadline.to_bytes(8, "big") + data))
            size += head.size - before
            if stored != deadline:
                if stored is not None:
                    removed.append((b"\xf0" + stored.to_bytes(8, "big") + key, None))
                if deadline is not None:
                    added.append((b"\xf0" + deadline.to_bytes(8, "big") + key, b""))
        self._size += size
        if self._moved or self._scan is not None:
            self._find_earliest()
            if self.due_from != self._first:
                self._first = self.due_from
                added.append((FIRST_KEY, self._first.to_bytes(8, "big")))
        # Deletions first, so that a deadline that a head gets back keeps its entry.
        self._local += removed + added
        items = self.timelines.prepare(self._status)
        # The arrival counter comes first; see layout.py.
        counters = 1 if items and items[0][0] == ARRIVAL_KEY else 0
        self._made = items[:counters] + changes + items[counters:] + self.counted.prepare(self._status)
        self._prepared = self._heads
        self._heads = Refusing(self._status)
        return self._made

    def _stored_changes(self) -> Iterable[Change]:
        return chain(self._made, self._local)

    def _keep_cache(self) -> tuple[Any, ...] | None:
        heads = self._heads = self._prepared
        for prefix in self._written:
            head = heads[prefix]
            if head.value is None:
                self._size -= head.size
                del heads[prefix]
            else:
                head.stored = head.deadline
                head.exists = True
                head.written = False
        self.timelines.mark_stored()
        self.counted.mark_stored()
        self._make_room()
        # The cache outlives this transaction; its attribute would keep the transaction alive.
        vars(heads).clear()
        kept = self.timelines.keep(), self.counted.keep()
        return heads, self._size, *kept, self.due_from, self._first, self.observed

    def _release_data(self) -> None:
        self._heads = Refusing(self._status)
        self._prepared = {}
        self._written = []
        self._heap = []
        self._ahead = deque()
        self._scan = None
        self._made = []
        self._local = []
        self.timelines.end(self._status)
        self.counted.end(self._status)


def _make_prefix(key: Any) -> bytes:
    if key is None:
        return _NO_KEY_PREFIX
    if isinstance(key, bytes | bytearray | memoryview):
        return key_prefix(BYTES_KEY, bytes(key))
    if type(key) is str:
        try:
            data = orjson.dumps(key)
        except TypeError:
            data = dumps_exact(key)
    else:
        try:
            data = dumps_exact(key)
        except SerializationError as error:
            raise SerializationError(f"the record key {key!r} cannot have state: {error}") from error
    return _SHORT_JSON[len(data)] + data if len(data) < 128 else key_prefix(JSON_KEY, data)
