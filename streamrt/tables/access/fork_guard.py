"""Refuses the Kafka clients of a parent process after a fork: their threads do not exist in the child."""

import os
from typing import Any

from streamrt.errors import InvalidOperationError

__all__ = ["ForkGuard"]

_KEPT: list[Any] = []


class ForkGuard:
    """Knows in which process an object was made.

    Example:
        >>> ForkGuard().is_own
        True
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_own(self) -> bool:
        """Whether this is the process."""
        return os.getpid() == self._pid

    def require(self, what: str) -> None:
        """Check that this is the process.

        Args:
            what: the object, for the error.

        Raises:
            InvalidOperationError: if it is another one.
        """
        if not self.is_own:
            raise InvalidOperationError(
                f"{what} was made in process {self._pid}, and this one ({os.getpid()}) was forked from it, without its "
                "connections: make a new one here"
            )

    def keep(self, client: object) -> None:
        """Keep a client of another process until this one ends: to free it would wait for threads that are not here."""
        if not any(client is each for each in _KEPT):
            _KEPT.append(client)
