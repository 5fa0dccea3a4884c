"""Broadcast state: maps that belong to no record key, of which each partition of a store has a whole copy."""

from typing import Any, Final, Protocol

from streamrt.errors import StateError
from streamrt.state.access.handles import MapState, Owner, Writer
from streamrt.state.layout import BROADCAST_KEY, MAP_SPACE, key_prefix

__all__ = ["BROADCAST_PREFIX", "BROADCAST_RANGE", "BroadcastMap", "ReadOnlyMap"]

BROADCAST_PREFIX: Final = key_prefix(BROADCAST_KEY, b"")
"""The prefix of all broadcast state, in the place of that of a record key."""
BROADCAST_RANGE: Final = bytes((MAP_SPACE,)) + BROADCAST_PREFIX
"""The beginning of the keys of all broadcast state."""


class _Counting(Writer, Protocol):
    broadcast_bytes: int


class _CountingOwner(Owner, Protocol):
    @property
    def _transaction(self) -> _Counting: ...


class BroadcastMap(MapState):
    """A map of broadcast state that counts the bytes of what is written."""

    __slots__ = ()
    _owner: _CountingOwner

    def _make_entry(self, value: Any) -> Any:
        entry = super()._make_entry(value)
        self._owner._transaction.broadcast_bytes += len(entry if isinstance(entry, bytes) else entry.payload)
        return entry


class ReadOnlyMap(MapState):
    """A map of broadcast state where it must not be changed, because other partitions would not have the change."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise self._make_refusal()

    def __delitem__(self, key: Any) -> None:
        raise self._make_refusal()

    def pop(self, key: Any, default: Any = None) -> Any:
        """Refuse: the map is read-only."""
        raise self._make_refusal()

    def discard(self, key: Any) -> None:
        """Refuse: the map is read-only."""
        raise self._make_refusal()

    def put_all(self, values: Any) -> None:
        """Refuse: the map is read-only."""
        raise self._make_refusal()

    def clear(self) -> None:
        """Refuse: the map is read-only."""
        raise self._make_refusal()

    def _make_refusal(self) -> StateError:
        return StateError(
            f"broadcast state {self._overlay.name!r} is read-only for records and timers, because the other partitions "
            "would not have the change: change it in process_broadcast_element"
        )
