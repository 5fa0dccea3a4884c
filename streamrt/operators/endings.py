"""The end of time for timers of users' functions: what they must not do then, and what the log says of it."""

import logging
from collections.abc import Callable
from typing import Any

from streamrt.errors import StateError
from streamrt.state.transactions.timers import NEVER, Timers

__all__ = ["Endings"]

logger = logging.getLogger("streamrt")

_MOST_AGAIN = 10_000


class Endings:
    """Notes what happens when the timers of a function fire at the end of a bounded run.

    Args:
        function: name of the process function, or of the trigger, whose timers they are.
        store: name of its store.
    """

    def __init__(self, function: str, store: str) -> None:
        self._function = function
        self._store = store
        # By prefix of a record key or a window: timers that have registered another one.
        self._again: dict[bytes, int] = {}
        self._dropped = 0

    def note(self, timers: Timers, prefix: bytes, key: Any) -> None:
        """Note that a timer has registered another timer, which fires as well.

        Args:
            timers: the timers.
            prefix: prefix of the record key, or of the window.
            key: the record key.

        Raises:
            StateError: if that has happened so often that it will not end. Then the timers of the key are gone.
        """
        again = self._again[prefix] = self._again.get(prefix, 0) + 1
        if again > _MOST_AGAIN:
            for time in timers.times(prefix):
                timers.delete(prefix, time)
            raise StateError(
                f"at the end of the run, timers of {self._function} have registered a further timer {_MOST_AGAIN} times for "
                f"the record key {key!r}, and each of them fires: register none when ctx.current_watermark is (1 << 63) - 1"
            )

    def drop(self, timers: Timers, must_stop: Callable[[], bool]) -> None:
        """Drop the timers of processing time, after all timers of event time have fired; say how many, once all are dropped.

        Args:
            timers: the timers.
            must_stop: returns whether the portion is over.
        """
        while (timer := timers.due(NEVER)) is not None:
            if must_stop():
                return
            timers.delete(timer[1], timer[0])
            self._dropped += 1
        self._again.clear()
        dropped, self._dropped = self._dropped, 0
        if dropped:
            logger.warning(
                "the run has ended: dropped %d timers of processing time of %s (store %s)",
                dropped,
                self._function,
                self._store,
            )
