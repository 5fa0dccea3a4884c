"""Transactions of stores that operators access as `State`; `state/base/transaction.py` describes their life cycle.

One dictionary caches all reads and writes of a transaction, so an operation on a cached key is one look-up. The
dictionary passes to the next transaction over the same open partition, unless it has become too large.

**Expiry.** An entry with a time to live expires for reads when stream time, the highest timestamp of any record of the
store, has advanced by that time since the entry was written. The time to live counts from stream time, not from the
timestamp of the record, which may be earlier. Otherwise an entry that a late record writes would expire at once, and so
would an entry that it rewrites, such as a list to which it appends. Expiry does not depend on the time of deletion, so
results do not depend on commits. `prepare()` deletes a bounded number of expired entries at a time, by an index in the
store. A bound next to the index holds its start; without it, each look-up would pass the tombstones of all deleted
entries. The bound never exceeds stream time plus one, and later entries expire after that. Entries that expire by the
wall clock have an index of their own, `state/expiry.py`; within a transaction that clock never goes back.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final

from streamrt.errors import SerializationError, StateError
from streamrt.state.access.collections import Collections
from streamrt.state.access.keyed_state import (
    UNKNOWN,
    Entry,
    KeyedState,
    Unknown,
    forget_write,
    new_state,
    no_key,
    put_back,
)
from streamrt.state.base import BEFORE_ALL, Change, Transaction
from streamrt.state.base.status import TransactionStatus
from streamrt.state.encoding import dumps_of, exact_of, loads_of
from streamrt.state.expiry import EVENT_INDEX, NO_INDEX, WALL_INDEX, ExpiryIndex, overwritten_index
from streamrt.state.journal import Journal
from streamrt.state.layout import (
    BYTES_KEY,
    JSON_KEY,
    NO_KEY_PREFIX,
    PLAIN,
    SHORT_BYTES_HEADS,
    Expiring,
    WallExpiring,
    decode_value,
    encode_value,
    record_prefix,
)
from streamrt.state.options import RocksDBOptions
from streamrt.state.store import DEFAULT_STORE, StorePartition

__all__ = ["StoreTransaction", "state_of"]

_DEFAULT_OPTIONS: Final = RocksDBOptions()
# Memory of a cache entry besides its bytes.
_ENTRY_BYTES: Final = 200
# How many state keys are remembered with their bytes, and of which length in characters at most.
_MOST_NAMES: Final = 256
_LONGEST_NAME: Final = 64


_join = b"".join


class _Refusing(dict[bytes, Any]):
    """Replace the written keys when no more writes are allowed; no cost while they are."""

    def __init__(self, status: TransactionStatus) -> None:
        self._status = status

    def __contains__(self, key: object) -> bool:
        raise StateError(
            f"state was changed after its transaction was {self._status.value}: a State is valid only during the call of the "
            "function that got it; do not keep it"
        )


class StoreTransaction(Transaction):
    r"""Buffer the writes of a task until its commit; reads see buffered writes.

    One transaction at a time uses a store partition.

    Args:
        partition: the open store partition.
        options: only `dumps`, `loads`, `max_evictions_per_flush` and `object_cache_size` apply here.
        changelog: whether there is a changelog. If not, deletions of expired entries are local to the store, and
            `prepare()` does not return them.

    Attributes:
        store: name of the store, for errors.

    Example:
        >>> from pathlib import Path
        >>> from streamrt.state import MemoryStore, Stamp, StoreIdentity
        >>> store = MemoryStore("default", "orders", Path("unused"))
        >>> transaction = StoreTransaction(store.open(0))
        >>> state = transaction.state(b"customer", timestamp=1_000)
        >>> state.set("total", 5)
        >>> state.get("total")
        5
        >>> transaction.prepare()
        [(b'\x01\x01\x08customer"total"', b'\x005')]
        >>> transaction.flush(Stamp(StoreIdentity("shop", "orders", 0, "default", None, None, 1), 1, None, 1_000, 0))
        >>> transaction.status
        <TransactionStatus.COMPLETE: 'complete'>
    """

    __slots__ = (
        "_changes",
        "_collections",
        "_dumps",
        "_entries",
        "_event_index",
        "_index",
        "_kinds",
        "_loads",
        "_max_evictions",
        "_names",
        "_options",
        "_plain",
        "_wall",
        "_wall_index",
        "_written",
        "store",
    )

    def __init__(
        self, partition: StorePartition, options: RocksDBOptions | None = None, changelog: bool = True
    ) -> None:
        super().__init__(partition, options, changelog)
        self._options = options = _DEFAULT_OPTIONS if options is None else options
        self._max_evictions = options.max_evictions_per_flush
        self._dumps = dumps_of(options)
        self._loads = loads_of(options)
        # The bytes of state keys, and whether plain values are kept as they are: nothing is known of users' functions.
        self._names: dict[str, bytes] = {}
        self._plain = options.dumps is None and options.loads is None
        # Cached keys.
        self._entries: dict[bytes, Entry] = {}
        self._event_index = ExpiryIndex(partition, EVENT_INDEX)
        self._wall_index = ExpiryIndex(partition, WALL_INDEX)
        self._wall = BEFORE_ALL
        # The type of state for each name of a handle; None before it is read from the store.
        self._kinds: dict[str, str] | None = None
        self.store = DEFAULT_STORE
        if self._cache is not None:
            # Subclasses have more to keep.
            self._entries, self._size, bounds, self._kinds, *self._cache = self._cache
            self._event_index.first, self._wall_index.first = bounds
        self._collections: Collections | None = None
        # The stored values of the keys that this transaction has written.
        self._written: dict[bytes, Entry | Unknown] = {}
        self._changes: list[Change] = []
        self._index: list[Change] = []

    def follow(self, journal: Journal) -> None:  # noqa: D102
        super().follow(journal)
        if self._collections is not None:
            self._collections.journal = journal

    @property
    def dirty(self) -> bool:  # noqa: D102
        return bool(self._written or self._changes or self._index)

    def state(self, key: Any, timestamp: int) -> KeyedState:
        """Return the state of a record key.

        Args:
            key: the record's key: None, bytes, or an object with a JSON form.
            timestamp: event time of the record, in milliseconds; it moves stream time.

        Raises:
            SerializationError: if the key has no JSON form.
            StateError: if the transaction is prepared or has ended.
        """
        if self._status is not TransactionStatus.STARTED:
            raise StateError(f"a transaction that is {self._status.value} cannot provide state")
        if timestamp > self.clock:
            self.clock = timestamp
        if type(key) is bytes and len(key) < 128:
            return new_state(self, SHORT_BYTES_HEADS[len(key)] + key, timestamp)
        return new_state(self, self._make_prefix(key), timestamp)

    # -- What handles use; see `Writer` --------------------------------------------------------------------------------

    @property
    def collections(self) -> Collections:
        """The maps and lists that this transaction has used."""
        found = self._collections
        if found is None:
            found = self._collections = Collections(self, self._kinds, self.store)
            found.journal = self.journal
            self._kinds = found.kinds
        return found

    @property
    def written(self) -> dict[bytes, Any]:
        """The keys that were written, in the order of their first writes."""
        return self._written

    def wall_clock(self) -> int:
        """Return the wall clock, in milliseconds since the Unix epoch; it does not go back within a transaction."""
        now = self._wall = max(self._wall, self.now())
        return now

    def payload(self, key: bytes) -> bytes | None:
        """Return the payload of a key at the current time; None if it is missing or expired.

        Raises:
            StateError: if the transaction is prepared or has ended.
        """
        if self._status is not TransactionStatus.STARTED:
            raise _make_ended_error(self._status)
        self.reads += 1
        value = self._entries.get(key, UNKNOWN)
        return self._live_payload(self._read_key(key) if value is UNKNOWN else value)

    def current(self, key: bytes, data: bytes | None) -> bytes | None:
        """Return the payload of a key at the current time, without caching it.

        Args:
            key: the key.
            data: its stored bytes; None only for a key that this transaction has written.

        Raises:
            StateError: if the transaction is prepared or has ended.
        """
        if self._status is not TransactionStatus.STARTED:
            raise _make_ended_error(self._status)
        return self._live_payload(self._entries[key] if data is None or key in self._written else decode_value(data))

    def put(self, key: bytes, entry: bytes | Expiring | None) -> None:
        """Write the payload of a key; None deletes."""
        entries, written, journal = self._entries, self._written, self.journal
        if key not in written:
            written[key] = entries.get(key, UNKNOWN)
            if journal is not None:
                journal.entries.append((forget_write, (entries, written, key)))
        elif journal is not None:
            journal.entries.append((put_back, (entries, key, entries[key])))
        entries[key] = entry

    def put_new(self, key: bytes, entry: bytes | Expiring) -> None:
        """Write the payload of a key that neither the store nor this transaction has."""
        if key in self._written:
            self.put(key, entry)
            return
        self._written[key] = None
        self._size += _ENTRY_BYTES + len(key)
        if self.journal is not None:
            self.journal.entries.append((self._forget_new, (key,)))
        self._entries[key] = entry

    def erase(self, key: bytes, data: bytes) -> None:
        """Delete a key whose stored bytes are known."""
        if key not in self._written:
            old = self._entries.get(key, UNKNOWN)
            if old is UNKNOWN:
                old = decode_value(data)
                self._size += _size_of(key, old)
                # As a read, which stays in the cache if the deletion is undone.
                self._entries[key] = old
        self.put(key, None)

    def scan(self, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Return the stored keys and bytes of a range.

        Raises:
            StateError: if the transaction is prepared or has ended.
        """
        if self._status is not TransactionStatus.STARTED:
            raise _make_ended_error(self._status)
        return self._partition.scan(start, end)

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a state key or map key.

        Raises:
            SerializationError: if it has no JSON form.
        """
        try:
            return self._dumps(key)
        except TypeError as error:
            raise no_key(key, error) from error

    def name_bytes(self, key: str) -> bytes:
        """Return the bytes of a state key that is a string, and remember them."""
        found, names = self.key_bytes(key), self._names
        if len(key) <= _LONGEST_NAME:
            if len(names) >= _MOST_NAMES:
                names.clear()
            names[key] = found
        return found

    def encode(self, name: str, value: Any) -> bytes:
        """Return the payload of a value.

        Args:
            name: name of the state, for the error.
            value: the value.

        Raises:
            SerializationError: if it has no JSON form.
        """
        try:
            # Copy the bytes: the result of orjson occupies 4 KB.
            return _join((self._dumps(value), b""))
        except TypeError as error:
            raise SerializationError(
                f"the value of type {type(value).__name__} for state key {name!r} has no JSON form: {error}"
            ) from error

    def decode(self, name: str, payload: bytes) -> Any:
        """Return the value of a payload.

        Args:
            name: name of the state, for the error.
            payload: the payload.

        Raises:
            SerializationError: if it is not JSON.
        """
        try:
            return self._loads(payload)
        except ValueError as error:
            raise SerializationError(
                f"the value of state key {name!r} is not JSON ({error}): read values of set_bytes with get_bytes"
            ) from error

    def exact(self) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        """Return the functions that encode and decode aggregates without any loss."""
        return exact_of(self._options)

    def _live_payload(self, value: Entry) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, Expiring):
            now = self.wall_clock() if type(value) is WallExpiring else self.clock
            return value.payload if value.expiry > now else None
        return self._dumps(value)

    def _decide_changes(self) -> list[Change]:
        """Return one change for each written key, in the order of first writes; deletions of expired entries follow."""
        written, self._written = self._written, _Refusing(self._status)
        self._changes = self._encode_written(written)
        evicted = self._evict_expired(written)
        if self._changelog:
            self._changes += evicted
        else:
            self._index += evicted
        return self._changes

    def _stored_changes(self) -> Iterable[Change]:
        return chain(self._changes, self._index)

    def _keep_cache(self) -> tuple[Any, ...] | None:
        # All entries are unchanged now, so all may be dropped.
        self._written = {}
        if self._collections is not None:
            for key in self._collections.passing:
                value = self._entries.pop(key, UNKNOWN)
                if value is not UNKNOWN:
                    self._size -= _size_of(key, value)
        if self._size > self._limit:
            self._fit_budget()
        return self._entries, self._size, (self._event_index.first, self._wall_index.first), self._kinds

    def _release_data(self) -> None:
        self._written = _Refusing(self._status)
        self._entries = {}
        self._collections = None
        self._changes = []
        self._index = []

    def _make_prefix(self, key: Any) -> bytes:
        if key is None:
            return NO_KEY_PREFIX
        if isinstance(key, bytes | bytearray | memoryview):
            return record_prefix(BYTES_KEY, bytes(key))
        try:
            return record_prefix(JSON_KEY, self._dumps(key))
        except TypeError as error:
            raise SerializationError(
                f"the record key {key!r} of type {type(key).__name__} has no JSON form and cannot have state: {error}"
            ) from error

    def _read_key(self, key: bytes) -> "bytes | Expiring | None":
        """Read a key from the store and cache it."""
        self.misses += 1
        data = self._partition.get(key)
        value = None if data is None else decode_value(data)
        self._size += _size_of(key, value)
        if self._size > self._limit:
            self._fit_budget()
        self._entries[key] = value
        return value

    def _forget_new(self, key: bytes) -> None:
        """Undo `put_new`."""
        del self._written[key], self._entries[key]
        self._size -= _ENTRY_BYTES + len(key)

    def _forget_reads(self, size: int) -> None:
        entries, written = self._entries, self._written
        gone = []
        for key, value in entries.items():
            if size <= 0:
                break
            if key not in written:
                gone.append(key)
                freed = _size_of(key, value)
                size -= freed
                self._size -= freed
        for key in gone:
            del entries[key]

    def _encode_written(self, written: "dict[bytes, Entry | Unknown]") -> list[Change]:
        """Return the changes of the written keys, and add those of the index to `_index`."""
        entries, clock, wall, index = self._entries, self.clock, self.wall_clock(), self._index
        changes: list[Change] = []
        size = 0
        unknown = []
        for key, old in written.items():
            if old is UNKNOWN:
                unknown.append(key)
                size += _ENTRY_BYTES + len(key)
            else:
                if isinstance(old, Expiring):
                    index.append((old.index_key(key), None))
                size -= _payload_size(old)
            value = entries[key]
            if value is None:
                # A key that the store did not have needs no deletion.
                if old is not None:
                    changes.append((key, None))
            elif type(value) is bytes:
                changes.append((key, PLAIN + value))
                size += len(value)
            elif not isinstance(value, Expiring):
                changes.append((key, PLAIN + self._dumps(value)))
                size += _payload_size(value)
            else:
                if value.expiry <= (wall if type(value) is WallExpiring else clock):
                    entries[key] = None
                    if old is not None:
                        changes.append((key, None))
                else:
                    changes.append((key, encode_value(value)))
                    size += len(value.payload)
        if unknown and (self._event_index.start != NO_INDEX or self._wall_index.start != NO_INDEX):
            index += overwritten_index(self._partition, unknown)
        # After the deletions, so that a value that is rewritten with the same expiry keeps its entry.
        expiring = [(value, key) for key in written if isinstance(value := entries[key], Expiring)]
        index += [(value.index_key(key), b"") for value, key in expiring]
        by_wall = [value.expiry for value, _ in expiring if type(value) is WallExpiring]
        if by_wall:
            index += self._wall_index.lower(min(by_wall))
        self._size += size
        return changes

    def _evict_expired(self, written: "dict[bytes, Entry | Unknown]") -> list[Change]:
        """Return deletions of expired entries that no record has touched, and add those of the index to `_index`."""
        most = self._max_evictions
        # Neither of the indexes may take it all.
        shared = self._wall_index.start != NO_INDEX
        evicted, looked = self._event_index.evict(
            self.clock, self._index, written, most - most // 2 if shared else most
        )
        evicted += self._wall_index.evict(self._wall, self._index, written, most - looked)[0]
        for key, size in evicted:
            if self._entries.get(key) is not None:
                self._size -= size
                self._entries[key] = None
        return [(key, None) for key, _ in evicted]


def _size_of(key: bytes, value: Entry) -> int:
    return _ENTRY_BYTES + len(key) + _payload_size(value)


def _payload_size(value: Entry) -> int:
    if isinstance(value, Expiring):
        return len(value.payload)
    # Numbers are smaller than the entry of a payload.
    return len(value) if isinstance(value, bytes | str) else 0


def state_of(store: str, transaction: Transaction) -> Callable[[Any, int], KeyedState]:
    """Return the function from a record's key and a time (ms) to the key's state in a transaction.

    Args:
        store: name of the store, for the error.
        transaction: its transaction.

    Raises:
        StateError: if the store holds no `State`.
    """
    if not isinstance(transaction, StoreTransaction):
        raise StateError(
            f"store {store!r} uses {type(transaction).__name__}, which has no State: use another store for the "
            "stateful operation"
        )
    return transaction.state


def _make_ended_error(status: TransactionStatus) -> StateError:
    return StateError(
        f"state was used after its transaction was {status.value}: a State, its handles and their iterators are valid only "
        "during the call of the function that got them; do not keep them"
    )
