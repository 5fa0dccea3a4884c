"""The state interface that is passed to the functions of stateful operators."""

import abc
from datetime import timedelta
from typing import Any

__all__ = ["State"]


class State(abc.ABC):
    """The state of the current record's key.

    A key is any object with a JSON form. Keys differ if their JSON differs: `5`, `"5"`, `True` and `1.0` are four keys.
    A value is any object with a JSON form. It is read back as JSON represents it, so a tuple becomes a list. Each `get`
    returns a new object; changing it has no effect without `set`.

    All operations see earlier writes, by this record or a previous one. If a commit fails, its writes are discarded.
    """

    __slots__ = ()

    @abc.abstractmethod
    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key.

        Args:
            key: the key in the state.
            default: result for a missing or expired key. A stored None is not missing.

        Raises:
            SerializationError: if the key has no JSON form, or the stored bytes are not JSON.
        """

    @abc.abstractmethod
    def get_bytes(self, key: Any, default: bytes | None = None) -> bytes | None:
        """Return the stored bytes of a key: the argument of `set_bytes`, or the JSON of the value that `set` stored."""

    @abc.abstractmethod
    def set(self, key: Any, value: Any, ttl: timedelta | None = None) -> None:
        """Store a value.

        Args:
            key: the key in the state.
            value: the value; None is a value, too.
            ttl: time to live, in event time. The entry expires when stream time, the highest timestamp of any record
                that reached the store in this partition, has advanced by `ttl`. None: never.

        Raises:
            SerializationError: if key or value has no JSON form.
            StateError: if `ttl` is not positive.
        """

    @abc.abstractmethod
    def set_bytes(self, key: Any, value: bytes, ttl: timedelta | None = None) -> None:
        """Store bytes unchanged, without JSON; see `set`."""

    @abc.abstractmethod
    def delete(self, key: Any) -> None:
        """Delete a key. A missing key is not an error."""

    @abc.abstractmethod
    def exists(self, key: Any) -> bool:
        """Return whether a key has a value, which may be None."""
