"""Limits how often an event is logged."""

import logging
import time
from collections.abc import Callable

__all__ = ["Throttle", "log_once"]

logger = logging.getLogger("streamrt")

_MAX_KEYS = 256


class Throttle:
    """Admits events, such as log lines, at most once per interval, and counts the events that it rejects.

    Args:
        interval_s: the interval in seconds.
        clock: function that returns the current time in seconds.

    Attributes:
        rejected: number of events, of all keys, that were rejected before the last admitted one.

    Example:
        >>> throttle = Throttle(30.0, clock=lambda: 0.0)
        >>> throttle.admit("broker away"), throttle.admit("broker away"), throttle.admit("other"), throttle.rejected
        (True, False, True, 1)
    """

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rejected = 0
        self._interval_s = interval_s
        self._clock = clock
        self._next_at: dict[object, float] = {}
        self._rejecting = 0

    def admit(self, key: object = None) -> bool:
        """Return whether the interval since the last admitted event with this key is over.

        Args:
            key: events with different keys have separate intervals.
        """
        now = self._clock()
        if now < self._next_at.get(key, now):
            self._rejecting += 1
            return False
        if len(self._next_at) >= _MAX_KEYS:
            self._next_at.clear()
        self._next_at[key] = now + self._interval_s
        self.rejected, self._rejecting = self._rejecting, 0
        return True


def log_once(text: str, *details: object) -> Callable[[], None]:
    """Return a function that logs a line at level DEBUG with its first call, and then nothing.

    Args:
        text: the line, with placeholders for the details.
        details: arguments of the line.
    """
    logged = False

    def note() -> None:
        nonlocal logged
        if not logged:
            logged = True
            logger.debug(text, *details)

    return note
