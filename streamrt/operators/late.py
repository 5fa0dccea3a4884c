"""Late records: warnings, a function of the user, a side output."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from streamrt.common.throttle import Throttle
from streamrt.context import message_context
from streamrt.records import Headers
from streamrt.topology import OperatorContext, RecordHandler, SideOutput
from streamrt.topology.tallies import LATE_RECORDS

__all__ = ["LATE", "LateRecords", "OnLate", "drop_late_records"]

LATE: Final = SideOutput("late", late=True)
"""The side output of windows and joins: records that came too late for all of them."""

OnLate = Callable[[Any, Any, int, int, int, int, str, str, int, int], Any]
"""Function of value, key, event time, lateness, window start and end (ms), store name, topic, partition and offset."""

logger = logging.getLogger("streamrt")

_INTERVAL_S: Final = 30.0
_WINDOW: Final = "the window {start} to {end} of {store!r} and was not counted in it"


class LateRecords:
    """Reports late records: calls the user's function, and logs a warning.

    The first warning comes at once. Later warnings come at most once in 30 seconds, with the number of suppressed ones:
    a replay of old data must not fill the disk with warnings.

    Args:
        store: name of the store of the window or join.
        on_late: the user's function; a true result logs the record. None: all late records are logged.
        side: takes the records that are in no window; then nothing is logged. None: nothing takes them.
        clock: clock in seconds.
        missed: for the warning, what the record came too late for, and what that means, with `{start}`, `{end}` and
            `{store}`.

    Attributes:
        count: number of records that came too late for everything.
    """

    def __init__(
        self,
        store: str,
        on_late: OnLate | None,
        side: RecordHandler | None = None,
        clock: Callable[[], float] = time.monotonic,
        missed: str = _WINDOW,
    ) -> None:
        self._store = store
        self._missed = missed
        self._on_late = on_late
        self._side = side
        self._throttle = Throttle(_INTERVAL_S, clock)
        self.count = 0

    def __call__(self, value: Any, key: Any, timestamp: int, late_by: int, start: int, end: int) -> None:
        """Report a late record and one window that it missed.

        Args:
            value: the record's value.
            key: its key.
            timestamp: its event time in milliseconds.
            late_by: lateness: milliseconds before the oldest time that is still accepted.
            start: start of the window.
            end: end of the window.
        """
        context = message_context()
        origin = context.topic, context.partition, context.offset
        on_late = self._on_late
        if on_late is not None and not on_late(value, key, timestamp, late_by, start, end, self._store, *origin):
            return
        if self._side is not None or not self._throttle.admit():
            return
        others = f", like {self._throttle.rejected} more since the last warning" if self._throttle.rejected else ""
        logger.warning(
            "the record of %s[%s] at offset %s with timestamp %s came %s ms too late for %s%s; increase grace_ms to wait "
            "for such records",
            *origin,
            timestamp,
            late_by,
            self._missed.format(start=start, end=end, store=self._store),
            others,
        )

    def leave_out(self, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        """Pass on a record that is in no window; call it once, after the calls for the windows that it missed."""
        self.count += 1
        if self._side is not None:
            self._side(value, key, timestamp, headers)


def drop_late_records(store: str, context: OperatorContext) -> LateRecords:
    """Return what takes the late records of an operator without windows: they are dropped, counted and reported.

    Args:
        store: name of the store of the operator.
        context: the services of its task.
    """
    late = LateRecords(store, None, context.side_output(LATE.tag), missed="{store!r} and was dropped")
    context.watch(LATE_RECORDS, store, lambda: late.count)
    return late
