"""Maps and lists of record keys: what one transaction has changed in them, over what the store has.

The entries themselves are in the dictionary of the transaction, as all others. An `Overlay` keeps the keys that the
transaction has written to one map or list, so that an iteration merges them with a scan of the store. The scan does not
fill the cache.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from streamrt.errors import StateError
from streamrt.state.journal import Journal
from streamrt.state.layout import (
    ARRIVAL_KEY,
    DATA_SPACE,
    LIST_SPACE,
    MAP_SPACE,
    NAME_SPACE,
    Expiring,
    collection_prefix,
    decode_value,
    following,
    name_key,
    owner_of,
)

__all__ = ["Collections", "Entries", "Overlay"]

_SPACES: Final = (DATA_SPACE, MAP_SPACE, LIST_SPACE)
# Names may be made from data; beyond this number, their types are not kept.
_MOST_NAMES: Final = 1_000


class Entries(Protocol):
    """The entries of a transaction, as maps and lists need them."""

    @property
    def written(self) -> dict[bytes, object]:
        """The keys that were written, in the order of their first writes."""

    def payload(self, key: bytes) -> bytes | None:
        """Return the current payload of a key; None if it is missing or expired."""

    def current(self, key: bytes, data: bytes | None) -> bytes | None:
        """Return the current payload of a key whose stored bytes are known, without caching it."""

    def put(self, key: bytes, entry: bytes | Expiring | None) -> None:
        """Write a payload; None deletes."""

    def put_new(self, key: bytes, entry: bytes | Expiring) -> None:
        """Write a payload under a key that the store does not have."""

    def erase(self, key: bytes, data: bytes) -> None:
        """Delete a key whose stored bytes are known."""

    def scan(self, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Return the stored keys and bytes of a range."""


class Overlay:
    """Changes of a transaction to one map or list.

    Attributes:
        name: its name.
        base: the beginning of all its keys.
        begin: stored keys before this one are deleted.
        end: the first key behind it.
        keys: the keys that were written, except those that were only prolonged.
        changes: number of changes.
    """

    __slots__ = ("base", "begin", "changes", "end", "keys", "name")

    def __init__(self, name: str, base: bytes) -> None:
        self.name = name
        self.base = self.begin = base
        self.end = following(base)
        self.keys: dict[bytes, None] = {}
        self.changes = 0


class Collections:
    """The maps and lists that a transaction has used.

    Args:
        entries: the entries of the transaction.
        kinds: the type of state for each name, as an earlier transaction has read it; None to read it from the store.
        store: name of the store, for errors.

    Attributes:
        kinds: the type of state for each name.
        passing: keys that need not stay in the cache, because only scans read them.
        journal: where changes are noted; None if no record is undone.
    """

    __slots__ = ("_cleared", "_data", "_entries", "_grouped", "_overlays", "_store", "journal", "kinds", "passing")

    def __init__(self, entries: Entries, kinds: dict[str, str] | None, store: str) -> None:
        self._entries = entries
        # By the prefix of the record key, and then by space and name.
        self._overlays: dict[bytes, dict[tuple[int, str], Overlay]] = {}
        # Record keys of which nothing stored is left.
        self._cleared: set[bytes] = set()
        # The written keys of data by the prefix of their record key, and how many written keys were grouped so far.
        self._data: dict[bytes, list[bytes]] = {}
        self._grouped = 0
        self._store = store
        self.kinds = self._stored_kinds() if kinds is None else kinds
        self.passing: list[bytes] = []
        self.journal: Journal | None = None

    def note(self, name: str, kind: str) -> None:
        """Note the type of state of a name; the first use writes it to the store.

        Raises:
            StateError: if the name is not a str, or has another type in the store.
        """
        known = self.kinds.get(name)
        if known == kind:
            return
        if not isinstance(name, str):
            raise StateError(f"the name of a {kind} state must be a str, got {type(name).__name__}")
        if known is not None:
            raise StateError(
                f"the name {name!r} in store {self._store!r} belongs to a state of type {known!r}, and is used for one of "
                f"type {kind!r}: give the new state another name, or delete the store with 'streamrt state forget' if "
                "nothing in it is needed"
            )
        if len(self.kinds) < _MOST_NAMES:
            self._entries.put_new(name_key(name), kind.encode())
            self.kinds[name] = kind
            if self.journal is not None:
                self.journal.entries.append((self._forget_kind, (name,)))

    def overlay(self, space: int, prefix: bytes, name: str) -> Overlay:
        """Return the overlay of a map or list.

        Args:
            space: `MAP_SPACE` or `LIST_SPACE`.
            prefix: prefix of the record key, without a space.
            name: its name.
        """
        own = self._overlays.get(prefix)
        if own is None:
            own = self._overlays[prefix] = {}
        found = own.get((space, name))
        if found is None:
            found = own[space, name] = Overlay(name, collection_prefix(space, prefix, name))
            if prefix in self._cleared:
                found.begin = found.end
        return found

    def put(self, overlay: Overlay, key: bytes, entry: bytes | Expiring | None) -> None:
        """Write an entry of a map; None deletes."""
        self._note_change(overlay)
        self._entries.put(key, entry)
        overlay.keys[key] = None
        overlay.changes += 1

    @property
    def next_number(self) -> int:
        """The arrival number of the next element of any list."""
        data = self._entries.payload(ARRIVAL_KEY)
        return 0 if data is None else int.from_bytes(data, "big")

    def arrival(self) -> int:
        """Return the next arrival number, and count on."""
        number = self.next_number
        self._entries.put(ARRIVAL_KEY, (number + 1).to_bytes(8, "big"))
        return number

    def append(self, overlay: Overlay, entry: bytes | Expiring) -> None:
        """Add an element to the end of a list; nothing is read but the counter, once."""
        entries = self._entries
        number = self.next_number
        # The counter comes first; see layout.py.
        entries.put(ARRIVAL_KEY, (number + 1).to_bytes(8, "big"))
        self._note_change(overlay)
        key = overlay.base + number.to_bytes(8, "big")
        entries.put_new(key, entry)
        overlay.keys[key] = None
        overlay.changes += 1
        self.passing.append(key)

    def prolong(self, overlay: Overlay, key: bytes, entry: Expiring) -> None:
        """Write an entry with a new expiry; this is not a change of its map or list."""
        self._entries.put(key, entry)
        if overlay.base[0] == LIST_SPACE:
            self.passing.append(key)

    def items(self, overlay: Overlay, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and payloads in the order of keys.

        Args:
            overlay: the map or list.
            after: a key, all keys up to which are left out.

        Raises:
            RuntimeError: if the map or list changes meanwhile.
            StateError: if the transaction is over.
        """
        current, before = self._entries.current, overlay.changes
        for key, data in self._merge_keys(overlay, after):
            payload = current(key, data)
            if payload is None:
                continue
            yield key, payload
            if overlay.changes != before:
                raise RuntimeError(
                    f"the state {overlay.name!r} changed while it was iterated: collect the changes, and make them after "
                    "the loop"
                )

    def clear(self, overlay: Overlay) -> None:
        """Delete all entries of a map or list."""
        self._note_change(overlay)
        put = self._entries.put
        for key in overlay.keys:
            put(key, None)
        self._erase_range(overlay.begin, overlay.end)
        overlay.keys = {}
        overlay.begin = overlay.end
        overlay.changes += 1

    def clear_all(self, prefix: bytes) -> None:
        """Delete all data, maps and lists of a record key.

        Args:
            prefix: prefix of the record key, without a space.
        """
        self._group_written()
        for key in self._data.get(prefix, ()):
            self._entries.put(key, None)
        for overlay in self._overlays.get(prefix, {}).values():
            self.clear(overlay)
        if self.journal is not None:
            self.journal.entries.append((self._forget_data, ()))
        if prefix not in self._cleared:
            for space in _SPACES:
                start = bytes((space,)) + prefix
                self._erase_range(start, following(start))
            self._cleared.add(prefix)

    def _note_change(self, overlay: Overlay) -> None:
        """Note how an overlay is restored, behind the changes of its entries; call it before them."""
        if self.journal is not None:
            self.journal.entries.append((self._rebuild_overlay, (overlay,)))

    def _rebuild_overlay(self, overlay: Overlay) -> None:
        """Derive an overlay from the written keys, after changes were undone. Then no stored key counts as deleted."""
        base = overlay.base
        overlay.begin = base
        overlay.keys = {key: None for key in self._entries.written if key.startswith(base)}
        overlay.changes += 1
        self._forget_data()

    def _forget_data(self) -> None:
        """Forget what is derived from the written keys, because some are not written any more."""
        self._cleared.clear()
        self._data = {}
        self._grouped = 0

    def _forget_kind(self, name: str) -> None:
        self.kinds.pop(name, None)

    def _stored_kinds(self) -> dict[str, str]:
        """Return the types of names in the store."""
        start = bytes((NAME_SPACE,))
        kinds = {}
        for key, data in self._entries.scan(start, following(start)):
            value = decode_value(data)
            payload = value.payload if isinstance(value, Expiring) else value
            kinds[key[1:].decode("utf-8", "surrogatepass")] = payload.decode("utf-8", "replace")
        return kinds

    def _merge_keys(self, overlay: Overlay, after: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the written and the stored keys of a map or list in their order, with the stored bytes if known."""
        begin, written = overlay.begin, overlay.keys.keys()
        own = iter(sorted(written if after is None else (key for key in written if key > after)))
        mine = next(own, None)
        if after is not None:
            begin = max(begin, after + b"\x00")
        stored = self._entries.scan(begin, overlay.end) if begin < overlay.end else ()
        for key, data in stored:
            while mine is not None and mine < key:
                yield mine, None
                mine = next(own, None)
            if mine == key:
                mine = next(own, None)
            yield key, data
        while mine is not None:
            yield mine, None
            mine = next(own, None)

    def _erase_range(self, start: bytes, end: bytes) -> None:
        if start < end:
            erase, passing = self._entries.erase, self.passing
            for key, data in self._entries.scan(start, end):
                erase(key, data)
                passing.append(key)

    def _group_written(self) -> None:
        """Group the keys of data that were written since the last call by their record keys."""
        written, data = self._entries.written, self._data
        for key in islice(reversed(written), len(written) - self._grouped):
            if key[0] == DATA_SPACE:
                data.setdefault(owner_of(key), []).append(key)
        self._grouped = len(written)
