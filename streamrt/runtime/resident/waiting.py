"""The tasks of a slot that wait for a retry, with their delays and limits."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from streamrt.errors import RunnerError
from streamrt.runtime.report import Report
from streamrt.runtime.tasks.stores.locks import StoreLocks
from streamrt.state import RocksDBOptions
from streamrt.topology import TaskId

__all__ = ["WaitingTasks"]

_ATTEMPTS: Final = 8
_FORGIVEN_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class WaitingTasks:
    """The tasks with retriable errors: backpressure of a sink, a locked store, a fenced transaction.

    Args:
        options: number and delay of the attempts to open locked stores.
        clock: returns seconds; only differences count.
    """

    def __init__(self, options: RocksDBOptions | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._locks = StoreLocks(options)
        self._until: dict[TaskId, float] = {}
        # The number of interruptions without progress, and the time of the last one.
        self._attempts: dict[TaskId, tuple[int, float]] = {}

    def ready_tasks(self, tasks: Iterable[TaskId]) -> list[TaskId]:
        """Return the tasks whose wait is over."""
        now = self._clock()
        return [task for task in tasks if self._until.get(task, now) <= now]

    def record_errors(self, report: Report) -> None:
        """Make the tasks wait whose retriable errors are in a report.

        Args:
            report: the report. Tasks whose stores were locked too often become interrupted in it.

        Raises:
            RunnerError: if a task was interrupted too often without progress.
        """
        now = self._clock()
        pauses = {task: pause.seconds for task, pause in report.stalled.items()} | self._locks.waits(report)
        for task, reason in report.interrupted.items():
            attempts = self._attempts.get(task, (0, now))[0] + 1
            self._attempts[task] = attempts, now
            if attempts > _ATTEMPTS:
                raise RunnerError(f"tasks were interrupted {attempts} times without progress: {reason}")
            pauses[task] = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempts)
        self._until.update((task, now + pause) for task, pause in pauses.items())

    def record_attempt(self, tasks: Iterable[TaskId], opened: Iterable[TaskId]) -> None:
        """Note that tasks were retried, and which of them could open their stores."""
        self._locks.opened(opened)
        for task in tasks:
            self._until.pop(task, None)

    def record_progress(self, task: TaskId) -> None:
        """Forget the interruptions of a task that has made progress."""
        self._attempts.pop(task, None)

    def reset_backoff(self, idle: Collection[TaskId]) -> None:
        """Forget old interruptions of tasks that have nothing to do, which is not a lack of progress."""
        before = self._clock() - _FORGIVEN_S
        for task, (_, at) in list(self._attempts.items()):
            if at < before and task in idle:
                del self._attempts[task]

    def keep(self, tasks: Iterable[TaskId]) -> None:
        """Forget the interruptions of all tasks but these; another member counts those of the others."""
        kept = set(tasks)
        self._attempts = {task: known for task, known in self._attempts.items() if task in kept}

    def drop(self, tasks: Iterable[TaskId]) -> None:
        """End the wait of some tasks."""
        for task in tasks:
            self._until.pop(task, None)
