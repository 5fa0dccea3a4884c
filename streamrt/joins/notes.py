"""Log lines for what would otherwise be logged for each record."""

import logging
import time
from collections.abc import Callable

logger = logging.getLogger("streamrt")

_PAUSE_S = 10.0


class Warnings:
    """Logs the first of many equal troubles at once, and then one line in ten seconds with their number.

    Args:
        text: what happened, with `%s` for the place and then for what `note` is given, and without a full stop.
        place: where it happens.
        clock: seconds, for tests.

    Example:
        >>> warnings = Warnings("%s dropped a record of key %s", "join_asof-3")
        >>> warnings.note("ann")
    """

    def __init__(self, text: str, place: object, clock: Callable[[], float] = time.monotonic) -> None:
        self._text = text
        self._place = str(place)
        self._clock = clock
        self._next = float("-inf")
        self._kept_back = 0

    def note(self, *details: object) -> None:
        """Log one more of them, or count it for the next line."""
        now = self._clock()
        if now < self._next:
            self._kept_back += 1
            return
        more = f" ({self._kept_back} more like this since the last line)" if self._kept_back else ""
        logger.warning(self._text + "%s", self._place, *details, more)
        self._next = now + _PAUSE_S
        self._kept_back = 0


class Once:
    """Logs one debug line, ever.

    Args:
        text: the line.
    """

    def __init__(self, text: str) -> None:
        self._text: str | None = text

    def note(self) -> None:
        """Log the line if it was not logged before."""
        if self._text is not None:
            logger.debug("%s", self._text)
            self._text = None
