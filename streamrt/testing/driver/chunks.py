"""Processes many records in the test driver with one commit for all of them."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from streamrt.records import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.report import Output, Report, StoreTime
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.runtime.tasks.work_cycle import WorkCycle
from streamrt.testing.memory import MemoryClients
from streamrt.topology import TaskId

__all__ = ["ChunkFailedError", "ChunkFeeding", "NoteProgress", "Sent", "Times"]

Times = Mapping[tuple[TaskId, str], StoreTime]
Sent = Mapping[tuple[TaskId, str], int]
NoteProgress = Callable[[Times, Sent, Mapping[TopicPartition, int]], None]
"""Notes event times of stores, event times sent into exchanges, and positions, before they are committed."""


class ChunkFailedError(Exception):
    """The work of a chunk cannot be committed as a whole, and nothing of it is."""


class ChunkFeeding:
    """Lets tasks process records and the passing of time in one work cycle, which `commit` ends.

    The tasks work in the same order as if each call were committed, and see the same watermarks: their progress counts
    before it is committed.

    Args:
        tasks: the tasks; none of them is assigned.
        clients: the clients of the tasks.
        context: positions of the group and current time.
        note: notes the progress of a task.
        whole: whether a record must be done before any other one is, also if it closes very many windows.
    """

    def __init__(
        self, tasks: TaskExecutor, clients: MemoryClients, context: BatchContext, note: NoteProgress, *, whole: bool
    ) -> None:
        self._tasks = tasks
        self._clients = clients
        self._note = note
        self._whole = whole
        self._cycle: WorkCycle = tasks.begin(context)
        # How many outputs tasks have made, call by call.
        self._outputs: list[tuple[TaskId, int]] = []

    def get_ready(self, make_context: Callable[[], BatchContext]) -> None:
        """Do nothing: a task opens when it first works."""

    def process(self, chunk: Chunk, context: BatchContext) -> None:
        """Process records of one partition.

        Raises:
            ChunkFailedError: if a record fails.
        """
        task_id = self._tasks.task_of(TopicPartition(chunk.topic, chunk.partition))
        self._work(task_id, [chunk], context)

    def tick(self, due: Iterable[TaskId], context: BatchContext) -> None:
        """Let time pass for tasks, without records.

        Raises:
            ChunkFailedError: if an operator fails.
        """
        for task_id in due:
            self._work(task_id, [], context)

    def commit(self) -> Report:
        """Commit the work, and return its report.

        Raises:
            ChunkFailedError: if nothing of it could be committed.
        """
        if self._tasks.spec.transactional and self._clients.has_lost:
            raise ChunkFailedError
        report = self._tasks.end(self._cycle)
        if _has_failed(report) and not any(done.end > done.start for done in report.ranges.values()):
            raise ChunkFailedError
        return report

    def outputs(self, report: Report) -> list[Output]:
        """Return the outputs of a report, which has them task by task, in the order of the calls that made them."""
        by_task: dict[TaskId, deque[Output]] = {}
        for output in report.collected:
            task_id = self._tasks.task_of(TopicPartition(output.topic, output.partition))
            by_task.setdefault(task_id, deque()).append(output)
        return [by_task[task_id].popleft() for task_id, count in self._outputs for _ in range(count)]

    def close(self) -> None:
        """Close the tasks. Uncommitted work is dropped."""
        try:
            self._cycle.close()
        finally:
            for task in list(self._tasks.assigned.values()):
                self._tasks.release(task)
            self._tasks.drain_shown()

    def _work(self, task_id: TaskId, rest: list[Chunk], context: BatchContext) -> None:
        cycle = self._cycle
        before, cycle.context = cycle.report.outputs, context
        while True:
            cycle.begin_slice()
            rest, _ = cycle.take_turn(task_id, rest)
            if _has_failed(cycle.report) or (self._whole and cycle.paused):
                raise ChunkFailedError
            # What a record makes due is done in portions.
            if not rest and not cycle.unfinished(task_id):
                break
        self._outputs.append((task_id, cycle.report.outputs - before))
        task = self._tasks.assigned[task_id]
        self._note(
            {(task_id, store): time for store, time in task.stores.times().items()},
            {(task_id, topic): time for topic, time in task.sent.items()},
            {partition: cycle.position(partition) for partition in task.inputs},
        )


def _has_failed(report: Report) -> bool:
    return bool(report.failure or report.stalled or report.interrupted or report.locked)
