"""Reads of state that a resident loop answers between two slices."""

import time
from collections import deque
from collections.abc import Callable

from streamrt.errors import StateError
from streamrt.kafka.membership.group_state import GroupAssignment
from streamrt.runtime.link_messages import Link, StateRead, StateRows
from streamrt.runtime.read_messages import TaskRows
from streamrt.runtime.tasks.stream_task import StreamTask, TaskStatus

__all__ = ["ResidentReads"]

_BUDGET_S = 0.005
"""Time for reads between two slices; one read takes some milliseconds at most."""
_ATTENTIVE_S = 1.0
_ATTENTIVE_WAIT_S = 0.005


class ResidentReads:
    """The reads that wait, and their answers.

    Args:
        link: the link to the driver.
        clock: returns seconds; only differences count.
    """

    def __init__(self, link: Link, clock: Callable[[], float]) -> None:
        self._link = link
        self._clock = clock
        self._waiting: deque[StateRead] = deque()
        self._answered_at = float("-inf")

    def add(self, read: StateRead) -> None:
        """Add a read."""
        self._waiting.append(read)

    def longest_wait(self, wait_s: float) -> float:
        """Return how long the loop may wait for records: shorter while reads are coming.

        Args:
            wait_s: seconds that it would wait.
        """
        if self._waiting or self._clock() - self._answered_at < _ATTENTIVE_S:
            return min(wait_s, _ATTENTIVE_WAIT_S)
        return wait_s

    def answer(self, owned: GroupAssignment | None, find: Callable[[StateRead], StreamTask | None]) -> None:
        """Answer the reads that wait, for a limited time.

        Args:
            owned: the assignment that the loop works on; None while there is none, or partitions may have moved.
            find: returns the task of a read, if this process has it.
        """
        if not self._waiting:
            return
        # The clock of the loop may stand still in tests.
        until = time.monotonic() + _BUDGET_S
        while self._waiting:
            read = self._waiting.popleft()
            self._link.send(StateRows(read.number, _read_rows(read, owned, find(read))))
            if time.monotonic() >= until:
                break
        self._answered_at = self._clock()


def _read_rows(read: StateRead, owned: GroupAssignment | None, task: StreamTask | None) -> TaskRows:
    name = read.read.task
    if owned is None or task is None or not owned.partitions.issuperset(task.inputs):
        return TaskRows.refused(f"the partitions of {name} are moving")
    if task.status is not TaskStatus.RUNNING:
        return TaskRows.refused(f"the state of {name} is being restored")
    try:
        return task.stores.read(read.read.store, read.read.read).of_member(owned.member, task.start)
    except StateError as error:
        # The task itself finds damage at its next look-up, and repairs it.
        return TaskRows.refused(f"the state of {name} cannot be read: {error}", lasting=True)
