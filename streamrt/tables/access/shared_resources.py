"""`SharedResources`: objects with connections that several handles use, and that end with their catalogue."""

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from streamrt.errors import InvalidOperationError

__all__ = ["SharedResource", "SharedResources"]


class SharedResource(Protocol):
    """An object that is closed once."""

    @property
    def is_usable(self) -> bool:
        """Whether it can be used; otherwise another one takes its place."""

    def close(self) -> None:
        """Close its connections."""


R = TypeVar("R", bound=SharedResource)


class SharedResources:
    """Makes objects on first use, and closes them together. It may be used in any thread.

    Example:
        >>> class Door:
        ...     is_usable = True
        ...     def close(self) -> None:
        ...         print("closed")
        >>> doors = SharedResources()
        >>> doors.get("front", Door) is doors.get("front", Door)
        True
        >>> doors.close()
        closed
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making: dict[Any, threading.Lock] = {}
        self._made: dict[Any, Any] = {}
        self._closed = False

    def get(self, name: Any, make: Callable[[], R]) -> R:
        """Return the object of a name; one that is not usable is closed and replaced.

        Args:
            name: its name.
            make: returns a new one; what it raises is raised.

        Raises:
            InvalidOperationError: if they are closed.
        """
        with self._lock:
            making = self._making.setdefault(name, threading.Lock())
        # Others are not kept waiting while one connects.
        with making:
            with self._lock:
                self._require_open()
                found: R | None = self._made.get(name)
            if found is not None and found.is_usable:
                return found
            if found is not None:
                found.close()
            made = make()
            with self._lock:
                if not self._closed:
                    self._made[name] = made
                    return made
            made.close()
            self._require_open()
            return made

    def is_replaceable(self, name: Any) -> bool:
        """Return whether there is an object of a name that is not usable, so that `get` would replace it."""
        with self._lock:
            made = self._made.get(name)
        return made is not None and not made.is_usable

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            self._closed = True
            made, self._made = self._made, {}
        for each in made.values():
            each.close()

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidOperationError("the catalogue is closed: create another one")
