"""Rate-limited log lines for events that may happen for each record."""

import logging
import time
from collections.abc import Callable

from streamrt.common.throttle import Throttle

logger = logging.getLogger("streamrt")

_PAUSE_S = 10.0


class Warnings:
    """Logs the first of many equal warnings at once, and then at most one line in ten seconds with their number.

    Args:
        text: the warning, with `%s` for the place and then placeholders for the arguments of `note`; no full stop.
        operator: the operator that warns.
        clock: clock in seconds, for tests.

    Example:
        >>> warnings = Warnings("%s dropped a record of key %s", "join_asof-3")
        >>> warnings.note("ann")
    """

    def __init__(self, text: str, operator: object, clock: Callable[[], float] = time.monotonic) -> None:
        self._text = text
        self._operator = str(operator)
        self._throttle = Throttle(_PAUSE_S, clock)

    def note(self, *details: object) -> None:
        """Log a warning, or count it for the next line."""
        if not self._throttle.admit():
            return
        rejected = self._throttle.rejected
        more = f" ({rejected} more like this since the last line)" if rejected else ""
        logger.warning(self._text + "%s", self._operator, *details, more)
