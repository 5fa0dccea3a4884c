"""The standbys of a slot: copies of the stores of tasks that it would take over if another instance went.

They get a part of the time, between two time slices of the own tasks. Before partitions move, the files are closed: the
task that takes one over opens them as its own.
"""

import logging
import time
from collections.abc import Callable, Collection
from typing import Protocol

from streamrt.errors import StateError, StoreLockedError
from streamrt.kafka import KafkaRequestError
from streamrt.topology import TaskId

__all__ = ["Copies", "Standbys"]

logger = logging.getLogger("streamrt")

_SLICE_S = 0.05
_SHARE = 4
"""After a slice, the own tasks have this many times what it took."""
_ROUND_S = 1.0
"""Seconds between two looks at a changelog that has been followed to its end."""
_ROUND_SHARE = 20
"""So many times what a look at all changelogs takes, if that is more."""
_RETRY_S = 60.0
"""Seconds until the next attempt with a copy that could not be used: the disk may have space again."""


class Copies(Protocol):
    """Copies of the stores of a task, see `FollowedStores`."""

    def catch_up(self, in_time: Callable[[], bool]) -> int:
        """Apply what is new; return what is left."""

    def close(self) -> None:
        """Close the files."""


class Standbys:
    """Follows the changelogs of tasks, a slice at a time.

    Args:
        make: makes the copies of the stores of a task.
        clock: returns seconds; only differences count.

    Attributes:
        left: by task, the changelog offsets that its copies lacked at the last look.
    """

    def __init__(self, make: Callable[[TaskId], Copies], clock: Callable[[], float] = time.monotonic) -> None:
        self.left: dict[TaskId, int] = {}
        self._make = make
        self._clock = clock
        self._copies: dict[TaskId, Copies] = {}
        self._waiting: list[TaskId] = []
        # By task, when to try again, and what was wrong.
        self._troubles: dict[TaskId, tuple[float, str]] = {}
        self._not_before = float("-inf")
        self._spent = 0.0

    @property
    def following(self) -> bool:
        """Whether there are tasks to follow."""
        return bool(self._copies)

    def follow(self, tasks: Collection[TaskId]) -> None:
        """Follow the changelogs of these tasks, and of no others."""
        for task in self._copies.keys() - tasks:
            self._forget(task)
        for task in sorted(set(tasks) - self._copies.keys()):
            self._copies[task] = self._make(task)
            self._waiting.append(task)

    def step(self) -> bool:
        """Follow changelogs for a slice of time, if one is due; return whether `left` says something new."""
        if not self._copies or (begun := self._clock()) < self._not_before:
            return False
        former = dict(self.left)
        if not self._waiting:
            self._waiting, self._spent = self._usable(begun), 0.0
        while self._waiting and self._clock() - begun < _SLICE_S:
            task = self._waiting[0]
            try:
                self.left[task] = self._copies[task].catch_up(lambda: self._clock() - begun < _SLICE_S)
            except KafkaRequestError as error:
                logger.debug("the standby of %s could not follow: %s", task, error)
                self._waiting.clear()
            except StateError as error:
                # Whoever takes the task over restores it, or says what is wrong.
                self._set_aside(task, error)
            else:
                self._troubles.pop(task, None)
                if not self.left[task] or self._clock() - begun < _SLICE_S:
                    # Its snapshot is on its way, or it has everything.
                    self._waiting.pop(0)
        now = self._clock()
        self._spent += now - begun
        pause = _SHARE * (now - begun) if self._waiting else max(_ROUND_S, _ROUND_SHARE * self._spent)
        self._not_before = now + pause
        return self.left != former

    def close(self) -> None:
        """Follow nothing any more, and close all files."""
        self.follow(())
        self._not_before = float("-inf")

    def _usable(self, now: float) -> list[TaskId]:
        return [task for task in sorted(self._copies) if task not in self._troubles or self._troubles[task][0] <= now]

    def _set_aside(self, task: TaskId, error: StateError) -> None:
        """Close a copy that cannot be used, until the next attempt."""
        reason = str(error)
        known = isinstance(error, StoreLockedError) or self._troubles.get(task, (0.0, ""))[1] == reason
        level = logging.DEBUG if known else logging.WARNING
        logger.log(level, "the standby of %s does not follow, and is tried again in %g s: %s", task, _RETRY_S, reason)
        self._troubles[task] = self._clock() + _RETRY_S, reason
        self._close(task)

    def _forget(self, task: TaskId) -> None:
        self._close(task)
        del self._copies[task]
        self._troubles.pop(task, None)

    def _close(self, task: TaskId) -> None:
        self._copies[task].close()
        self.left.pop(task, None)
        if task in self._waiting:
            self._waiting.remove(task)
