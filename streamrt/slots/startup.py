"""Log messages about a start: it takes seconds, and the user waits for it."""

import logging
import time
from collections.abc import Callable

from streamrt.common.throttle import Throttle
from streamrt.runtime.driver.observation.progress import Progress

logger = logging.getLogger("streamrt")

_EVERY_S = 3.0
_TOLD = float("inf")


class Startup:
    """Logs every few seconds what an application waits for until it begins to work, and why it has no work.

    Args:
        group: the consumer group.
        clock: returns seconds; only differences count.
        progress: receives the same.
        on_over: called once when the start is over.

    Example:
        >>> startup = Startup("shop", clock=lambda: 0.0)
        >>> startup.waits_for("Spark to start")
        >>> startup.over, startup.finish(), startup.over
        (False, None, True)
    """

    def __init__(
        self,
        group: str,
        clock: Callable[[], float] = time.monotonic,
        progress: Progress | None = None,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._group = group
        self._clock = clock
        self._begun = clock()
        self._throttle = Throttle(_EVERY_S, clock)
        # The first line also comes after an interval.
        self._throttle.admit()
        self._progress = Progress() if progress is None else progress
        self._on_over = on_over
        self._idle_since: float | None = None
        self.over = False

    def waits_for(self, what: str) -> None:
        """Set what the application waits for; call it repeatedly. It is logged every few seconds."""
        if self.over:
            return
        self._progress.waiting_for = what
        if self._throttle.admit():
            logger.info("starting, %.0f s so far: waiting for %s", self._clock() - self._begun, what)

    def finish(self) -> None:
        """Log no more about the start."""
        if not self.over:
            self.over = True
            self._progress.waiting_for = ""
            self._on_over()

    def has_partitions(self, assigned: bool) -> None:
        """Set whether this instance of the application has partitions; call it repeatedly.

        Having none is logged once, after some time, because a rebalance may take two steps.
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
                "this instance of the application has no partitions: the other members of the consumer group %s have "
                "all partitions of the topics; this instance takes over when one of them leaves",
                self._group,
            )
