"""What an application that starts tells its user: a start takes seconds, and somebody waits for it."""

import logging
import time
from collections.abc import Callable

from streamrt.runtime.progress import Progress

logger = logging.getLogger("streamrt")

_EVERY_S = 3.0
_TOLD = float("inf")


class Startup:
    """Tells every few seconds what an application is waiting for, until it has begun to work; and why it has no work.

    Args:
        group: the consumer group.
        clock: gives seconds; only differences count.
        progress: is told of it, too.

    Example:
        >>> startup = Startup("shop", clock=lambda: 0.0)
        >>> startup.waits_for("Spark to start")
        >>> startup.over, startup.finish(), startup.over
        (False, None, True)
    """

    def __init__(
        self, group: str, clock: Callable[[], float] = time.monotonic, progress: Progress | None = None
    ) -> None:
        self._group = group
        self._clock = clock
        self._begun = self._told = clock()
        self._progress = Progress() if progress is None else progress
        self._idle_since: float | None = None
        self.over = False

    def waits_for(self, what: str) -> None:
        """Say what is waited for now; call it again and again. It is told if nothing was for a few seconds."""
        now = self._clock()
        if self.over:
            return
        self._progress.waiting_for = what
        if now - self._told < _EVERY_S:
            return
        self._told = now
        logger.info("starting, %.0f s so far: waiting for %s", now - self._begun, what)

    def finish(self) -> None:
        """Tell of no start any more."""
        self.over = True
        self._progress.waiting_for = ""

    def has_partitions(self, assigned: bool) -> None:
        """Say whether the group has given partitions to this copy of the application; call it again and again.

        That it has none is told once, and only after a while: many a rebalance comes in two steps.
        """
        if assigned:
            self._idle_since = None
            return
        now = self._clock()
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since >= _EVERY_S:
            self._idle_since = _TOLD
            self.finish()
            logger.info(
                "this copy of the application has nothing to do: the other members of the consumer group %s have all "
                "partitions of the topics; it goes on when one of them leaves",
                self._group,
            )
