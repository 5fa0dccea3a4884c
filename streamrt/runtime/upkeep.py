"""What a resident task does between two slices of work, so that neither memory nor a crash costs more with time.

Stores write without a log: what reaches the disk is decided by the size of a buffer, and by `Upkeep`, which flushes stores
that have held something back for too long. Garbage is collected here, because the thresholds of Python's collector are set
so that it never looks through all objects by itself: state makes many that live on.
"""

import contextlib
import gc
import logging
import mmap
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from streamrt.errors import StateError
from streamrt.runtime.commit import Session

__all__ = ["Garbage", "Upkeep"]

logger = logging.getLogger("streamrt")

_LOOK_S: Final = 1.0
_IDLE_S: Final = 1.0
_MIB: Final = 1024 * 1024
_PAGE: Final = mmap.PAGESIZE
_LEAST_GROWTH: Final = 64 * _MIB
# Collections take at most this part of the time.
_SHARE: Final = 0.02
_BETWEEN_IDLE_S: Final = 10.0


class Upkeep:
    """Flushes stores in the background, and collects garbage.

    Args:
        clock: gives seconds; only differences count.
        garbage: collects garbage; None leaves that to Python.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, garbage: "Garbage | None" = None) -> None:
        self._clock = clock
        self._garbage = garbage
        self._looked_at = self._worked_at = clock()
        self._worked = False

    def worked(self) -> None:
        """Note that there were records."""
        self._worked = True

    def step(self, sessions: Iterable[Session]) -> None:
        """Do what is due; call it between two slices of work.

        Args:
            sessions: the open sessions.
        """
        now = self._clock()
        if self._worked:
            self._worked = False
            self._worked_at = now
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        for session in sessions:
            # Trouble with a store is met when it is used next.
            with contextlib.suppress(StateError):
                if session.stores.flush_held_back():
                    # One at a time: each costs a moment.
                    break
        if self._garbage is not None:
            self._garbage.step(now, worked_at=self._worked_at)


class Garbage:
    """Collects garbage when memory has grown, and when there is nothing else to do.

    Growth by a quarter, 64 MiB at least, asks for a collection. If it frees little, what has grown is in use, and only
    further growth asks again. If it frees much, memory shall not grow beyond that, so the level stays. A collection stops the
    task, for some 100 ms where the cache of decoded objects is full; so the next one waits for 50 times as long.

    Args:
        memory: returns the memory that this process uses, in bytes.
        collect: looks through all objects.
        clock: gives seconds of this thread's processor time, to see how long that takes.
    """

    def __init__(
        self,
        memory: "Callable[[], int] | None" = None,
        collect: Callable[[], object] = gc.collect,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._memory = resident_memory if memory is None else memory
        self._collect = collect
        self._clock = clock
        self._level = self._above(self._memory())
        self._collected_at = float("-inf")
        self._not_before = float("-inf")

    def step(self, now: float, *, worked_at: float) -> bool:
        """Collect if it is time.

        Args:
            now: the time in seconds.
            worked_at: when there were records last.

        Returns:
            Whether garbage was collected.
        """
        if now < self._not_before:
            return False
        idle = (
            now - worked_at >= _IDLE_S
            and worked_at > self._collected_at
            and now - self._collected_at >= _BETWEEN_IDLE_S
        )
        grown = self._memory() >= self._level
        if not idle and not grown:
            return False
        blocks, begun = sys.getallocatedblocks(), self._clock()
        self._collect()
        seconds = self._clock() - begun
        freed = 1 - sys.getallocatedblocks() / max(1, blocks)
        logger.debug("collecting garbage took %.0f ms and freed %.0f %% of all objects", seconds * 1_000, freed * 100)
        self._collected_at = now
        self._not_before = now + seconds / _SHARE
        if grown and freed < 0.1:
            self._level = self._above(self._memory())
        return True

    @staticmethod
    def _above(memory: int) -> int:
        return memory + max(_LEAST_GROWTH, memory // 4)


def resident_memory() -> int:
    """Return how many bytes of memory this process has; where the system does not tell, a measure that grows with it."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE
    except OSError:
        return sys.getallocatedblocks() * 100
