"""`State` over the entries of a transaction.

A number, a bool or an ASCII string is kept as it is until the commit, which encodes it once: such values cannot change,
and their JSON gives them back exactly. All other values are encoded when they are set, and decoded at each read: what a
function does to a list or a dict afterwards must not change state.
"""

import enum
from collections.abc import Callable
from datetime import timedelta
from math import isfinite
from typing import Any, Final, NoReturn, Protocol, cast

from streamrt.errors import SerializationError, StateError
from streamrt.state.access.collections import Overlay
from streamrt.state.access.handles import (
    AggregatingState,
    Aggregation,
    ListState,
    MapState,
    ReducingState,
    StateTtl,
    Ttl,
    ValueState,
    Writer,
    milliseconds_of,
)
from streamrt.state.access.state import State
from streamrt.state.journal import Journal
from streamrt.state.layout import LIST_SPACE, MAP_SPACE, Expiring

__all__ = ["OVER", "UNKNOWN", "CachedEntries", "Entry", "KeyedState", "Unknown", "is_plain", "new_state", "no_key"]

_join = b"".join


class Unknown(enum.Enum):
    """Marker for the stored value of a key that was written without a read."""

    UNKNOWN = enum.auto()


UNKNOWN: Final = Unknown.UNKNOWN

PLAIN: Final = frozenset((int, float, str, bool))
"""Types of the values that are kept as they are."""

Entry = bytes | Expiring | int | float | str | None
"""A cached value: a payload, one that expires, a plain value, or None for a missing key."""

_HIGHEST: Final = 1 << 63


def is_plain(value: Any) -> bool:
    """Return whether a value cannot change, and its JSON gives it back exactly.

    Example:
        >>> [is_plain(value) for value in (5, 0.5, "five", True, 2**64, float("nan"), "fünf", None, [5])]
        [True, True, True, True, False, False, False, False, False]
    """
    kind = type(value)
    if kind is int:
        return bool(-_HIGHEST <= value < _HIGHEST)
    if kind is str:
        # Others may have lone surrogates, which JSON does not have.
        return bool(value.isascii())
    # NaN and infinities are null in JSON.
    return kind is bool or (kind is float and isfinite(value))


put_back: Final = dict.__setitem__
"""Undoes a write of a key that was written before."""


def forget_write(entries: dict[bytes, Any], written: dict[bytes, Any], key: bytes) -> None:
    """Undo the first write of a key."""
    former = written.pop(key)
    if former is UNKNOWN:
        entries.pop(key, None)
    else:
        entries[key] = former


class CachedEntries(Writer, Protocol):
    """The entries of a transaction, with direct access to its dictionaries: one look-up for a cached key."""

    reads: int
    journal: Journal | None
    _dumps: Callable[[Any], bytes]
    _loads: Callable[[bytes], Any]
    _names: dict[str, bytes]
    _plain: bool
    _entries: "dict[bytes, Entry]"
    _written: "dict[bytes, Entry | Unknown]"

    def name_bytes(self, key: str) -> bytes:
        """Return the bytes of a state key that is a string, and remember them."""


class _Over:
    """Stands for the transaction of a state whose call is over."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            # Python itself asks what the object can do.
            raise AttributeError(name)
        raise StateError(
            "state was used after its call: a State, its handles and their iterators are valid only during the call of the "
            "function that got them; do not keep them"
        )


OVER: Final = cast("CachedEntries", _Over())
"""Value that an operator sets as the `_transaction` of a state at the end of the call that got it."""


class KeyedState(State):
    """The state of one record key, for one call; `new_state` makes it. Handles keep the object, and not the transaction."""

    __slots__ = ("_full", "_key", "_prefix", "_timestamp", "_transaction")

    _transaction: CachedEntries
    _prefix: bytes
    _timestamp: int
    # The last state key that was a string, or UNKNOWN, and its bytes: what is read is often written.
    _key: str | Unknown
    _full: bytes

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: D102
        transaction = self._transaction
        full = self._full if key is self._key else self._full_key(key)
        value: Any = transaction._entries.get(full)
        kind = type(value)
        if kind in PLAIN:
            transaction.reads += 1
            return value
        if kind is bytes:
            transaction.reads += 1
        else:
            value = transaction.payload(full)
            if value is None:
                return default
        try:
            return transaction._loads(value)
        except ValueError as error:
            raise SerializationError(
                f"the value of state key {key!r} is not JSON ({error}): read values of set_bytes with get_bytes"
            ) from error

    def set(self, key: Any, value: Any, ttl: timedelta | None = None) -> None:  # noqa: D102
        transaction = self._transaction
        full = self._full if key is self._key else self._full_key(key)
        # Before any change, because it may raise.
        entry = value if ttl is None and transaction._plain and is_plain(value) else self._encode(key, value, ttl)
        entries = transaction._entries
        written = transaction._written
        # `StoreTransaction.put` inlined.
        journal = transaction.journal
        if full not in written:
            written[full] = entries.get(full, UNKNOWN)
            if journal is not None:
                journal.entries.append((forget_write, (entries, written, full)))
        elif journal is not None:
            journal.entries.append((put_back, (entries, full, entries[full])))
        entries[full] = entry

    def get_bytes(self, key: Any, default: bytes | None = None) -> bytes | None:  # noqa: D102
        value = self._transaction.payload(self._full_key(key))
        return default if value is None else value

    def set_bytes(self, key: Any, value: bytes, ttl: timedelta | None = None) -> None:  # noqa: D102
        if not isinstance(value, bytes | bytearray | memoryview):
            raise SerializationError(
                f"set_bytes takes bytes, not {type(value).__name__}, for state key {key!r}: use set for other values"
            )
        payload = bytes(value)
        self._put_payload(self._full_key(key), payload if ttl is None else self._make_expiring(payload, ttl))

    def delete(self, key: Any) -> None:  # noqa: D102
        self._put_payload(self._full_key(key), None)

    def exists(self, key: Any) -> bool:  # noqa: D102
        return self._transaction.payload(self._full_key(key)) is not None

    def _full_key(self, key: Any) -> bytes:
        transaction = self._transaction
        if type(key) is str:
            full = self._full = self._prefix + (transaction._names.get(key) or transaction.name_bytes(key))
            self._key = key
            return full
        return self._prefix + transaction.key_bytes(key)

    def _put_payload(self, full: bytes, value: "bytes | Expiring | None") -> None:
        self._transaction.put(full, value)

    def _encode(self, key: Any, value: Any, ttl: timedelta | None) -> "bytes | Expiring":
        try:
            # Copy the bytes: the result of orjson occupies 4 KB.
            payload = _join((self._transaction._dumps(value), b""))
        except TypeError as error:
            raise SerializationError(
                f"the value of type {type(value).__name__} for state key {key!r} has no JSON form: {error}"
            ) from error
        return payload if ttl is None else self._make_expiring(payload, ttl)

    def _make_expiring(self, payload: bytes, ttl: timedelta) -> Expiring:
        return Expiring(self._transaction.clock + milliseconds_of(ttl), payload)

    # -- Handles -------------------------------------------------------------------------------------------------------

    def value(self, name: str, *, default: Any = None, ttl: timedelta | StateTtl | None = None) -> ValueState:  # noqa: D102
        return ValueState(self, name, self._named_key(name, "value"), _make_ttl(ttl), default)

    def reducing(  # noqa: D102
        self, name: str, reduce: Callable[[Any, Any], Any], *, ttl: timedelta | StateTtl | None = None
    ) -> ReducingState:
        return ReducingState(self, name, self._named_key(name, "reducing"), _make_ttl(ttl), reduce)

    def aggregating(  # noqa: D102
        self, name: str, aggregator: Aggregation, *, ttl: timedelta | StateTtl | None = None
    ) -> AggregatingState:
        full = self._named_key(name, "aggregating")
        return AggregatingState(self, name, full, _make_ttl(ttl), aggregator, self._timestamp)

    def list(self, name: str, *, ttl: timedelta | StateTtl | None = None) -> ListState:  # noqa: D102
        return ListState(self, self._find_overlay(name, "list", LIST_SPACE), _make_ttl(ttl))

    def map(self, name: str, *, ttl: timedelta | StateTtl | None = None) -> MapState:  # noqa: D102
        return MapState(self, self._find_overlay(name, "map", MAP_SPACE), _make_ttl(ttl))

    def end(self) -> None:
        """Refuse all further use of the state, its handles and their iterators."""
        self._transaction = OVER

    def clear(self) -> None:  # noqa: D102
        self._transaction.collections.clear_all(self._prefix[1:])

    def _named_key(self, name: str, kind: str) -> bytes:
        """Return the key of an entry with a name, and note its type."""
        self._transaction.collections.note(name, kind)
        return self._full_key(name)

    def _find_overlay(self, name: str, kind: str, space: int) -> Overlay:
        collections = self._transaction.collections
        collections.note(name, kind)
        return collections.overlay(space, self._prefix[1:], name)


_new: Final = object.__new__


def new_state(transaction: CachedEntries, prefix: bytes, timestamp: int) -> KeyedState:
    """Return the state of the record key with a prefix, without an `__init__`, which would cost a third more.

    Args:
        transaction: the transaction.
        prefix: the beginning of the keys of its data.
        timestamp: event time for aggregators.
    """
    state = _new(KeyedState)
    state._transaction = transaction
    state._prefix = prefix
    state._timestamp = timestamp
    state._key = UNKNOWN
    return state


def _make_ttl(given: timedelta | StateTtl | None) -> Ttl | None:
    return None if given is None else Ttl(given)


def no_key(key: Any, error: TypeError) -> SerializationError:
    """Return the error for a state key without a JSON form."""
    return SerializationError(f"the state key {key!r} of type {type(key).__name__} has no JSON form: {error}")
