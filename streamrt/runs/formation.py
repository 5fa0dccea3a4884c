"""Gathers the tasks of a job before they join the consumer group, so that the group forms once.

A task joins the group after `Welcome`. If the first task joined on its own, it would be assigned all partitions, open all of
their stores, and have to return most of them when the next task joins. So::

    the first task connects --> all have connected --> all join --> all know what they are assigned --> all begin
                                     (or patience is over)                (or patience is over)

Brokers with `group.initial.rebalance.delay.ms=0` assign everything to the first member, even if others join a moment
later. The second wait is for these brokers. Members would hear of each other with their next heartbeats, so the driver
has them join again.
"""

import time
from collections.abc import Callable

__all__ = ["HANDOVER_S", "Formation"]

_PATIENCE_S = 10.0
"""Python workers start within a second of each other. If Spark has no slot for a task, the others wait in vain."""
_TOGETHER_S = 0.05
"""Members that join at the same time have their assignments within that time, unless the group has formed without some."""
_APART_S = 1.0
"""By then, heartbeats have told the members of each other."""
HANDOVER_S = 15.0
"""A task releases parked stores sooner (`runtime.parking`). A stuck task must not block the next one forever."""


class Formation:
    """Decides how long the tasks of a job wait for each other; each decision is final.

    Args:
        count: number of tasks.
        ignored_after_s: seconds after which tasks that have not begun are ignored, because Spark has no slot for them. By
            then, the group must have given their partitions to the others.
        patience_s: seconds for each of the two waits.
        clock: returns seconds; only differences count.

    Attributes:
        count: number of tasks.

    Example:
        >>> formation = Formation(2, ignored_after_s=60.0)
        >>> formation.gathered(1), formation.gathered(2), formation.formed(all_know=False), formation.formed(all_know=True)
        (False, True, False, True)
    """

    def __init__(
        self,
        count: int,
        ignored_after_s: float,
        patience_s: float = _PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.count = count
        self._patience_s = patience_s
        self._clock = clock
        self._ignored_from = clock() + ignored_after_s
        self._gathering_until: float | None = None
        self._forming_until: float | None = None
        self._formed = False
        self._rejoin_at: float | None = None
        self._rejoin_s = _TOGETHER_S

    def gathered(self, connected: int) -> bool:
        """Return whether tasks may join the group.

        Args:
            connected: number of connected tasks; at least one.
        """
        if self._forming_until is not None:
            return True
        now = self._clock()
        if self._gathering_until is None:
            self._gathering_until = now + self._patience_s
        if connected < self.count and now < self._gathering_until:
            return False
        self._forming_until = now + self._patience_s
        return True

    def formed(self, *, all_know: bool) -> bool:
        """Return whether tasks may begin to process their assigned partitions.

        Args:
            all_know: whether each connected task knows its assignment.
        """
        now = self._clock()
        over = self._forming_until is not None and now >= self._forming_until
        self._formed = self._formed or over or (all_know and self._forming_until is not None)
        return self._formed

    def join_again(self) -> bool:
        """Return whether the tasks should join the group again: some know their partitions, and wait for the others.

        Call it repeatedly meanwhile. The time between two attempts grows, since each of them delays the group.
        """
        now = self._clock()
        if self._rejoin_at is None:
            self._rejoin_at = now + self._rejoin_s
        if self._formed or now < self._rejoin_at or self._rejoin_s > _APART_S:
            return False
        self._rejoin_s *= 2
        self._rejoin_at = now + self._rejoin_s
        return True

    def is_complete(self, begun: int) -> bool:
        """Return whether all tasks have begun, or the others are ignored.

        Args:
            begun: number of tasks that have begun.
        """
        return begun == self.count or (begun > 0 and self._clock() >= self._ignored_from)
