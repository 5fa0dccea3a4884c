"""Maintenance of a resident task between two time slices: flushes and snapshots of stores, and garbage collection.

Stores write without a log. Data reaches the disk when a buffer is full, or when `Upkeep` flushes a store that has held
back changes for too long. Garbage is collected here, because the thresholds of Python's collector are set so that it
never does a full collection by itself: state has many long-lived objects.
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
from streamrt.runtime.tasks.stream_task import StreamTask

__all__ = ["Garbage", "Upkeep"]

logger = logging.getLogger("streamrt")

_LOOK_S: Final = 1.0
_IDLE_S: Final = 1.0
_MIB: Final = 1024 * 1024
_PAGE: Final = mmap.PAGESIZE
_LEAST_GROWTH: Final = 64 * _MIB
# Maximum fraction of time for collections.
_SHARE: Final = 0.02
_BETWEEN_IDLE_S: Final = 10.0


class Upkeep:
    """Flushes stores in the background, and collects garbage.

    Args:
        clock: returns seconds; only differences count.
        garbage: collects garbage; None for Python's automatic collection.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, garbage: "Garbage | None" = None) -> None:
        self._clock = clock
        self._garbage = garbage
        self._looked_at = self._worked_at = clock()
        self._worked = False

    def worked(self) -> None:
        """Note that records were processed."""
        self._worked = True

    def step(self, tasks: Iterable[StreamTask]) -> None:
        """Do due maintenance; call this between two time slices.

        Args:
            tasks: the open tasks.
        """
        now = self._clock()
        if self._worked:
            self._worked = False
            self._worked_at = now
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        tasks = list(tasks)
        for task in tasks:
            task.stores.take_due_snapshots()
        for task in tasks:
            # A store error is handled when the store is used next.
            with contextlib.suppress(StateError):
                if task.stores.flush_held_back():
                    # One store per step, to keep the pause short.
                    break
        if self._garbage is not None:
            self._garbage.step(now, worked_at=self._worked_at)


class Garbage:
    """Collects garbage when memory has grown, and when the task is idle.

    Growth by a quarter, and at least by 64 MiB, triggers a collection. If it frees little, the memory is in use, and
    only further growth triggers the next one. If it frees much, the level stays, so that memory does not grow beyond
    it. A collection stops the task, for about 100 ms if the cache of decoded objects is full; the next one therefore
    waits 50 times as long.

    Args:
        memory: returns the memory that this process uses, in bytes.
        collect: runs a full collection.
        clock: returns seconds of this thread's processor time, to measure collections.
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
        self._level = self._limit_above(self._memory())
        self._collected_at = float("-inf")
        self._not_before = float("-inf")

    def step(self, now: float, *, worked_at: float) -> bool:
        """Collect garbage if it is due.

        Args:
            now: the current time in seconds.
            worked_at: the time of the last records in seconds.

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
            self._level = self._limit_above(self._memory())
        return True

    @staticmethod
    def _limit_above(memory: int) -> int:
        return memory + max(_LEAST_GROWTH, memory // 4)


def resident_memory() -> int:
    """Return the resident memory of this process in bytes, or an estimate if the system does not provide it."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE
    except OSError:
        return sys.getallocatedblocks() * 100
