"""What functions of stateful operators are given."""

import abc
from datetime import timedelta
from typing import Any

__all__ = ["State"]


class State(abc.ABC):
    """The state of the current record's key.

    Keys are anything with a JSON form, and differ where their JSON differs: `5`, `"5"`, `True` and `1.0` are four keys.
    Values are anything with a JSON form, and what comes back is what JSON makes of it: a tuple comes back as a list, and each
    `get` gives an object of its own, so changing it has no effect without `set`.

    All operations see what was written before, by this record or an earlier one. Nothing is kept of a commit that fails.
    """

    __slots__ = ()

    @abc.abstractmethod
    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key.

        Args:
            key: the key in the state.
            default: what a missing or expired key gives. A stored None is not missing.

        Raises:
            SerializationError: if the key has no JSON form, or the value is bytes that are no JSON.
        """

    @abc.abstractmethod
    def get_bytes(self, key: Any, default: bytes | None = None) -> bytes | None:
        """Return the value of a key as it is stored: what `set_bytes` was given, or the JSON of what `set` was given."""

    @abc.abstractmethod
    def set(self, key: Any, value: Any, ttl: timedelta | None = None) -> None:
        """Store a value.

        Args:
            key: the key in the state.
            value: the value; None is a value, too.
            ttl: how long it lives, in event time: it is gone as soon as stream time, the highest timestamp of any record
                that has reached the store in this partition, has advanced by `ttl`. None: for ever.

        Raises:
            SerializationError: if key or value has no JSON form.
            StateError: if `ttl` is not positive.
        """

    @abc.abstractmethod
    def set_bytes(self, key: Any, value: bytes, ttl: timedelta | None = None) -> None:
        """Store bytes as they are, without JSON; see `set`."""

    @abc.abstractmethod
    def delete(self, key: Any) -> None:
        """Delete a key. A missing one is no error."""

    @abc.abstractmethod
    def exists(self, key: Any) -> bool:
        """Tell whether a key has a value, which may be None."""
