"""Reads of state for state queries: from the driver to the processes that run tasks, in both processing modes."""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from streamrt.errors import StateNotOwnedError, StateUnavailableError
from streamrt.records import TopicPartition
from streamrt.runtime.link_messages import StateRead, StateRows
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.slots.worker_link import TaskLink
from streamrt.topology import TaskId

__all__ = ["BatchReads", "Owned", "SlotReads", "not_owned"]

_AT_ONCE = 500
"""Reads that one Spark job answers; callers wait for the others."""
_AHEAD = 10_000


def not_owned(task: TaskId) -> StateNotOwnedError:
    """Return the error for a task of another instance."""
    return StateNotOwnedError(f"{task} belongs to another instance of the application")


class SlotReads:
    """Reads that resident tasks answer; safe to use from any thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[TaskLink, Future[TaskRows]]] = {}
        self._lock = threading.Lock()

    def ask(self, link: TaskLink, read: TaskRead) -> "Future[TaskRows]":
        """Send a read to a task; the future gets the answer."""
        answer: Future[TaskRows] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = link, answer
        # A caller that does not wait any more cancels it.
        answer.add_done_callback(lambda _: self._forget_read(number))
        link.send(StateRead(number, read))
        return answer

    def answered(self, rows: StateRows) -> None:
        """Pass an answer on."""
        with self._lock:
            found = self._waiting.pop(rows.number, None)
        if found is not None and found[1].set_running_or_notify_cancel():
            found[1].set_result(rows.rows)

    def lost(self, link: TaskLink) -> None:
        """Refuse the reads of a task that is gone."""
        with self._lock:
            gone = [each for each in self._waiting.items() if each[1][0] is link]
            for number, _ in gone:
                del self._waiting[number]
        for _, (_, answer) in gone:
            if answer.set_running_or_notify_cancel():
                answer.set_result(TaskRows.refused("its process has ended, and is started again"))

    def _forget_read(self, number: int) -> None:
        with self._lock:
            self._waiting.pop(number, None)


@dataclass(frozen=True)
class Owned:
    """The partitions that the group has assigned to this process in micro-batch mode.

    Attributes:
        partitions: the assigned partitions.
        member: id of the member of the group.
        generation: number of the assignment.
    """

    partitions: frozenset[TopicPartition]
    member: bytes | None
    generation: int


class BatchReads:
    """Reads that wait for the end of a micro-batch; safe to use from any thread.

    Args:
        owned: returns what is assigned to this process; None while there is no assignment.
        inputs: returns the input partitions of a task.
    """

    def __init__(self, owned: Callable[[], Owned | None], inputs: Callable[[TaskId], Sequence[TopicPartition]]) -> None:
        self._owned = owned
        self._inputs = inputs
        self._waiting: list[tuple[TaskRead, Future[TaskRows]]] = []
        self._lock = threading.Lock()

    @property
    def pending(self) -> bool:
        """Whether reads wait."""
        return bool(self._waiting)

    def ask(self, read: TaskRead) -> "Future[TaskRows]":
        """Add a read; the future gets the answer.

        Raises:
            StateNotOwnedError: if another instance owns the partition.
            StateUnavailableError: if there is no assignment at the moment, or too many reads wait.
        """
        owned = self._owned()
        if owned is None:
            raise StateUnavailableError(f"the partitions of {read.task} are moving")
        if not owned.partitions.issuperset(self._inputs(read.task)):
            raise not_owned(read.task)
        answer: Future[TaskRows] = Future()
        with self._lock:
            if len(self._waiting) >= _AHEAD:
                raise StateUnavailableError("too many state queries are waiting for the end of a micro-batch")
            self._waiting.append((read, answer))
        return answer

    def serve(
        self, positions: Mapping[TopicPartition, int], run: Callable[[Sequence[TaskRead]], Sequence[TaskRows]]
    ) -> None:
        """Answer reads that wait, at most one job of them. No tasks are running.

        Args:
            positions: next offset of each partition that this process works on.
            run: runs the reads where tasks run; its errors refuse them.
        """
        with self._lock:
            taken, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
        due = [each for each in taken if each[1].set_running_or_notify_cancel()]
        owned = self._owned()
        reads: list[tuple[TaskRead, Future[TaskRows]]] = []
        for read, answer in due:
            inputs = self._inputs(read.task)
            if owned is None or not (owned.partitions.issuperset(inputs) and positions.keys() >= set(inputs)):
                answer.set_result(TaskRows.refused(f"the partitions of {read.task} are moving, or wait for others"))
            else:
                reads.append((read, answer))
        if not reads or owned is None:
            return
        try:
            found = run([read for read, _ in reads])
        except Exception as error:  # noqa: BLE001 - a failed job must not end the application: the next batch tells
            for _, answer in reads:
                answer.set_result(TaskRows.refused(f"the job that reads state failed ({type(error).__name__})"))
            return
        again = self._owned()
        moved = again is None or again.generation != owned.generation
        for (read, answer), rows in zip(reads, found, strict=True):
            if moved:
                answer.set_result(TaskRows.refused(f"the partitions of {read.task} are moving"))
            else:
                start = {partition: positions[partition] for partition in self._inputs(read.task)}
                answer.set_result(rows.of_member(owned.member, start))

    def refuse(self, trouble: str) -> None:
        """Refuse all reads that wait."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        for _, answer in taken:
            if answer.set_running_or_notify_cancel():
                answer.set_result(TaskRows.refused(trouble))
