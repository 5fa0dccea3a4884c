"""Handles of a record key's state: a value, a list, a map, and values that are reduced or aggregated.

A handle is made by `State`, for one record. It holds no data: all of it is in the transaction, which a handle reaches
only through its state, so that it ends with the call that the state was passed to. `state/layout.py` describes the keys.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, Protocol, get_args

from streamrt.errors import StateError, argument_error
from streamrt.state.access.collections import Collections, Entries, Overlay
from streamrt.state.layout import Expiring, WallExpiring

__all__ = [
    "AggregatingState",
    "Aggregation",
    "ListState",
    "MapState",
    "ReducingState",
    "StateTtl",
    "Ttl",
    "TtlTime",
    "TtlUpdate",
    "ValueState",
    "milliseconds_of",
]

TtlUpdate = Literal["write", "read-and-write"]
TtlTime = Literal["event", "processing"]

_MILLISECOND: Final = timedelta(milliseconds=1)
_MISSING: Final = object()


@dataclass(frozen=True)
class StateTtl:
    """How long state lives, and what prolongs its life.

    By default time is event time: an entry expires when stream time, the highest timestamp of any record that reached the
    store in this partition, has advanced by `ttl`. With `time="processing"` it expires when the wall clock of the task has:
    replays then give other results, and clocks of machines differ.

    Attributes:
        ttl: time to live.
        update: "write": the time counts from the last write. "read-and-write": a read counts as well. Each key that is read
            is then written again, to the changelog as well, once for each commit.
        time: the kind of time that counts: "event", or "processing" for the wall clock.

    Raises:
        StateError: if `ttl` is not positive.
        ConfigurationError: if `update` or `time` is another value.

    Example:
        >>> from datetime import timedelta
        >>> StateTtl(timedelta(hours=1), update="read-and-write").ttl
        datetime.timedelta(seconds=3600)
    """

    ttl: timedelta
    update: TtlUpdate = "write"
    time: TtlTime = "event"

    def __post_init__(self) -> None:
        milliseconds_of(self.ttl)
        if self.update not in get_args(TtlUpdate):
            raise argument_error(
                f"StateTtl(update={self.update!r}): it must be 'write' or 'read-and-write'",
                of_type=isinstance(self.update, str),
            )
        if self.time not in get_args(TtlTime):
            raise argument_error(
                f"StateTtl(time={self.time!r}): it must be 'event' or 'processing'", of_type=isinstance(self.time, str)
            )


class Aggregation(Protocol):
    """Functions that `State.aggregating` needs; the aggregators of `streamrt.windows` have them."""

    def initialize(self) -> Any:
        """Return the aggregate of no values."""

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        """Return the aggregate after one more value."""

    def result(self, value: Any) -> Any:
        """Return the result for an aggregate."""


class Owner(Protocol):
    """The `State` that a handle was made from. When its call is over, it refuses all use of the transaction."""

    @property
    def _transaction(self) -> "Writer":
        """The transaction."""

    def get(self, key: Any, default: Any = None) -> Any:
        """Return a value, as a new object; the default if there is none."""

    def set(self, key: Any, value: Any) -> None:
        """Store a value."""


class Writer(Entries, Protocol):
    """The entries of a transaction, with the encoding of values."""

    @property
    def clock(self) -> int:
        """Stream time in milliseconds."""

    def wall_clock(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""

    @property
    def collections(self) -> Collections:
        """The maps and lists."""

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a state key or map key."""

    def encode(self, name: str, value: Any) -> bytes:
        """Return the payload of a value."""

    def decode(self, name: str, payload: bytes) -> Any:
        """Return the value of a payload."""

    def exact(self) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        """Return the functions that encode and decode aggregates without any loss."""


def milliseconds_of(ttl: timedelta) -> int:
    """Return a time to live in milliseconds, rounded up.

    Raises:
        StateError: if it is not a timedelta, or not positive.

    Example:
        >>> milliseconds_of(timedelta(microseconds=1))
        1
    """
    if not isinstance(ttl, timedelta):
        raise StateError(f"ttl must be a timedelta, not {type(ttl).__name__}")
    # Rounded up: less than a millisecond counts as one.
    whole, rest = divmod(ttl, _MILLISECOND)
    milliseconds = whole + bool(rest)
    if milliseconds <= 0:
        raise StateError(f"ttl must be positive, not {ttl}: use delete or clear to remove state")
    return milliseconds


class Ttl:
    """The time to live of a handle.

    Args:
        given: the argument of the user.
    """

    __slots__ = ("by_wall_clock", "milliseconds", "on_read")

    def __init__(self, given: timedelta | StateTtl) -> None:
        if isinstance(given, StateTtl):
            self.milliseconds, self.on_read = milliseconds_of(given.ttl), given.update == "read-and-write"
            self.by_wall_clock = given.time == "processing"
        else:
            self.milliseconds, self.on_read, self.by_wall_clock = milliseconds_of(given), False, False

    def entry(self, payload: bytes, writer: "Writer") -> Expiring:
        """Return the entry of a payload that is written, or read, now."""
        if self.by_wall_clock:
            return WallExpiring(writer.wall_clock() + self.milliseconds, payload)
        return Expiring(writer.clock + self.milliseconds, payload)


class _Single:
    """A handle of one entry.

    Args:
        owner: the state that it belongs to.
        name: name of the state.
        key: key of the entry.
        ttl: its time to live; None for no limit.
    """

    __slots__ = ("_key", "_name", "_owner", "_ttl")

    def __init__(self, owner: Owner, name: str, key: bytes, ttl: Ttl | None) -> None:
        self._owner = owner
        self._name = name
        self._key = key
        self._ttl = ttl

    def clear(self) -> None:
        """Delete the state."""
        self._owner._transaction.put(self._key, None)

    def _read_payload(self, *, reading: bool = True) -> bytes | None:
        writer, ttl = self._owner._transaction, self._ttl
        payload = writer.payload(self._key)
        if payload is not None and reading and ttl is not None and ttl.on_read:
            writer.put(self._key, ttl.entry(payload, writer))
        return payload

    def _read_value(self, default: Any, *, reading: bool = True) -> Any:
        if self._ttl is None:
            return self._owner.get(self._name, default)
        payload = self._read_payload(reading=reading)
        return default if payload is None else self._owner._transaction.decode(self._name, payload)

    def _write_value(self, value: Any) -> None:
        if self._ttl is None:
            self._owner.set(self._name, value)
        else:
            self._write_payload(self._owner._transaction.encode(self._name, value))

    def _write_payload(self, payload: bytes) -> None:
        writer, ttl = self._owner._transaction, self._ttl
        writer.put(self._key, payload if ttl is None else ttl.entry(payload, writer))


class ValueState(_Single):
    """One value of a record key, as `State.value` returns it. `state.get(name)` reads the same entry."""

    __slots__ = ("_default",)

    def __init__(self, owner: Owner, name: str, key: bytes, ttl: Ttl | None, default: Any) -> None:
        super().__init__(owner, name, key, ttl)
        self._default = default

    def value(self) -> Any:
        """Return the value, as a new object; the default if there is none."""
        return self._read_value(self._default)

    def update(self, value: Any) -> None:
        """Store a value; None is a value as well.

        Raises:
            SerializationError: if it has no JSON form.
        """
        self._write_value(value)


class ReducingState(_Single):
    """Values of a record key that are reduced to one, as `State.reducing` returns it."""

    __slots__ = ("_reduce",)

    def __init__(self, owner: Owner, name: str, key: bytes, ttl: Ttl | None, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(owner, name, key, ttl)
        self._reduce = reduce

    def add(self, value: Any) -> None:
        """Reduce the state so far and a value to the new state; the first value is the state itself.

        Raises:
            SerializationError: if the result has no JSON form.
        """
        before = self._read_value(_MISSING, reading=False)
        self._write_value(value if before is _MISSING else self._reduce(before, value))

    def get(self) -> Any:
        """Return the reduced value; None if there is none."""
        return self._read_value(None)


class AggregatingState(_Single):
    """Values of a record key that are aggregated, as `State.aggregating` returns it."""

    __slots__ = ("_aggregator", "_timestamp")

    def __init__(
        self, owner: Owner, name: str, key: bytes, ttl: Ttl | None, aggregator: Aggregation, timestamp: int
    ) -> None:
        super().__init__(owner, name, key, ttl)
        self._aggregator = aggregator
        self._timestamp = timestamp

    def add(self, value: Any) -> None:
        """Aggregate one more value, with the timestamp of the record.

        Raises:
            SerializationError: if the aggregate cannot be stored exactly.
        """
        payload, aggregator = self._read_payload(reading=False), self._aggregator
        dumps, loads = self._owner._transaction.exact()
        old = aggregator.initialize() if payload is None else loads(payload)
        self._write_payload(dumps(aggregator.agg(old, value, self._timestamp)))

    def get(self) -> Any:
        """Return the result for all values so far; None if there are none."""
        payload = self._read_payload()
        return None if payload is None else self._aggregator.result(self._owner._transaction.exact()[1](payload))


class _Many:
    """A handle of many entries.

    Args:
        owner: the state that it belongs to.
        overlay: what it has changed.
        ttl: time to live of each entry; None for no limit.
    """

    __slots__ = ("_overlay", "_owner", "_ttl")

    def __init__(self, owner: Owner, overlay: Overlay, ttl: Ttl | None) -> None:
        self._owner = owner
        self._overlay = overlay
        self._ttl = ttl

    def is_empty(self) -> bool:
        """Return whether there are no entries. This reads until the first one that has not expired."""
        return next(self._owner._transaction.collections.items(self._overlay), None) is None

    def __bool__(self) -> bool:
        return not self.is_empty()

    def clear(self) -> None:
        """Delete all entries. The changelog gets a deletion for each of them."""
        self._owner._transaction.collections.clear(self._overlay)

    def _make_entry(self, value: Any) -> bytes | Expiring:
        writer, ttl = self._owner._transaction, self._ttl
        payload = writer.encode(self._overlay.name, value)
        return payload if ttl is None else ttl.entry(payload, writer)

    def _iterate_items(self, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and payloads, and prolong the life of what is read if the time to live says so."""
        writer, ttl, overlay = self._owner._transaction, self._ttl, self._overlay
        collections = writer.collections
        if ttl is None or not ttl.on_read:
            return collections.items(overlay, after)
        return self._prolong_items(ttl, after)

    def _prolong_items(self, ttl: Ttl, after: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        owner, overlay = self._owner, self._overlay
        for key, payload in owner._transaction.collections.items(overlay, after):
            writer = owner._transaction
            writer.collections.prolong(overlay, key, ttl.entry(payload, writer))
            yield key, payload


class ListState(_Many):
    """A list of a record key, as `State.list` returns it.

    An append costs the same, however long the list is. Elements are read in the order in which they were added; each
    iteration reads the store again, and must not change the list.
    """

    __slots__ = ()

    def add(self, value: Any) -> None:
        """Append an element.

        Raises:
            SerializationError: if it has no JSON form.
        """
        self._owner._transaction.collections.append(self._overlay, self._make_entry(value))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append several elements; none if one of them cannot be stored."""
        entries = [self._make_entry(value) for value in values]
        for entry in entries:
            self._owner._transaction.collections.append(self._overlay, entry)

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements."""
        entries = [self._make_entry(value) for value in values]
        self.clear()
        for entry in entries:
            self._owner._transaction.collections.append(self._overlay, entry)

    def get(self) -> Iterator[Any]:
        """Return an iterator over the elements, which are read when it advances."""
        # Asked for with each element: an iterator also ends with its call.
        owner, name = self._owner, self._overlay.name
        return (owner._transaction.decode(name, payload) for _, payload in self._iterate_items())

    __iter__ = get


class MapState(_Many):
    """A map of a record key, as `State.map` returns it. It is used like a dict, but has no `len`, which would read all.

    Keys differ if their JSON differs: `5`, `"5"`, `True` and `1.0` are four keys. Iterations are in the order of the
    bytes of keys, read the store step by step, and raise RuntimeError if the map changes meanwhile.
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        found = self.get(key, _MISSING)
        if found is _MISSING:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        full = self._full_key(key)
        self._owner._transaction.collections.put(self._overlay, full, self._make_entry(value))

    def __delitem__(self, key: Any) -> None:
        full = self._full_key(key)
        if self._owner._transaction.payload(full) is None:
            raise KeyError(key)
        self._owner._transaction.collections.put(self._overlay, full, None)

    def __contains__(self, key: Any) -> bool:
        return self._read_key(self._full_key(key)) is not None

    def __iter__(self) -> Iterator[Any]:
        return self.keys()

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, as a new object; `default` if there is none."""
        payload = self._read_key(self._full_key(key))
        return default if payload is None else self._owner._transaction.decode(self._overlay.name, payload)

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        """Delete a key and return its value, or `default` if there is none.

        Raises:
            KeyError: if there is neither.
        """
        found = self[key] if default is _MISSING else self.get(key, _MISSING)
        if found is _MISSING:
            return default
        self._owner._transaction.collections.put(self._overlay, self._full_key(key), None)
        return found

    def discard(self, key: Any) -> None:
        """Delete a key without reading it; a missing one is not an error."""
        self._owner._transaction.collections.put(self._overlay, self._full_key(key), None)

    def put_all(self, values: Mapping[Any, Any]) -> None:
        """Store several values; none if one of them cannot be stored."""
        entries = [(self._full_key(key), self._make_entry(value)) for key, value in values.items()]
        for full, entry in entries:
            self._owner._transaction.collections.put(self._overlay, full, entry)

    def keys(self, *, after: Any = _MISSING) -> Iterator[Any]:
        """Return an iterator over the keys, or over those behind a key, in the order of their bytes.

        Args:
            after: the key, which need not be in the map: an iteration that stopped there goes on without reading what is
                before.
        """
        start = None if after is _MISSING else self._full_key(after)
        return (self._key_of(key) for key, _ in self._iterate_items(start))

    def values(self) -> Iterator[Any]:
        """Return an iterator over the values."""
        # Asked for with each element: an iterator also ends with its call.
        owner, name = self._owner, self._overlay.name
        return (owner._transaction.decode(name, payload) for _, payload in self._iterate_items())

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return an iterator over keys and values."""
        owner, name = self._owner, self._overlay.name
        return ((self._key_of(key), owner._transaction.decode(name, payload)) for key, payload in self._iterate_items())

    def _full_key(self, key: Any) -> bytes:
        return self._overlay.base + self._owner._transaction.key_bytes(key)

    def _key_of(self, full: bytes) -> Any:
        return self._owner._transaction.decode(self._overlay.name, full[len(self._overlay.base) :])

    def _read_key(self, full: bytes) -> bytes | None:
        writer, ttl = self._owner._transaction, self._ttl
        payload = writer.payload(full)
        if payload is not None and ttl is not None and ttl.on_read:
            writer.collections.prolong(self._overlay, full, ttl.entry(payload, writer))
        return payload
