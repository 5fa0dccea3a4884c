"""How the tasks of a job come into the consumer group: together, so that the group forms once.

A task joins the group when it is told `Welcome`. If the first one joined alone, it would be given all partitions, open all of
their stores, and have to give most of them back when the next one joins. So::

    the first task connects --> all have connected --> all join --> all know what they are assigned --> all begin
                                     (or patience is over)                (or patience is over)

Brokers with `group.initial.rebalance.delay.ms=0` give everything to the first member whoever joins a moment later. The second
wait is for them.
"""

import time
from collections.abc import Callable

__all__ = ["FORMATION_S", "HANDOVER_S", "Formation"]

FORMATION_S = 10.0
"""Python workers start within a second of each other. Where Spark has no slot for a task, the others wait in vain for it."""
HANDOVER_S = 15.0
"""A task lets go of parked stores sooner (`runtime.parking`). One that is stuck must not hold the next one up for ever."""


class Formation:
    """Decides how long the tasks of a job wait for each other; each decision is for good.

    Args:
        count: number of tasks.
        patience_s: seconds for each of the two waits.
        clock: gives seconds; only differences count.

    Example:
        >>> formation = Formation(2, patience_s=10.0)
        >>> formation.gathered(1), formation.gathered(2), formation.formed(all_know=False), formation.formed(all_know=True)
        (False, True, False, True)
    """

    def __init__(self, count: int, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._patience_s = patience_s
        self._clock = clock
        self._gathering_until: float | None = None
        self._forming_until: float | None = None
        self._formed = False

    def gathered(self, connected: int) -> bool:
        """Tell whether tasks may join the group.

        Args:
            connected: how many have connected; at least one.
        """
        if self._forming_until is not None:
            return True
        now = self._clock()
        if self._gathering_until is None:
            self._gathering_until = now + self._patience_s
        if connected < self._count and now < self._gathering_until:
            return False
        self._forming_until = now + self._patience_s
        return True

    def formed(self, *, all_know: bool) -> bool:
        """Tell whether tasks may begin with what they are assigned.

        Args:
            all_know: whether each task that has connected knows what it is assigned.
        """
        now = self._clock()
        over = self._forming_until is not None and now >= self._forming_until
        self._formed = self._formed or over or (all_know and self._forming_until is not None)
        return self._formed
