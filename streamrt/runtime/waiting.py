"""Which tasks of a slot wait for their next trial, until when, and when enough is enough."""

from collections.abc import Callable, Iterable
from typing import Final

from streamrt.errors import RunnerError
from streamrt.models import TopicPartition
from streamrt.runtime.locks import StoreLocks
from streamrt.runtime.report import Report
from streamrt.state import RocksDBOptions

__all__ = ["WaitingTasks"]

_ATTEMPTS: Final = 8
_FORGIVEN_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class WaitingTasks:
    """The tasks that met trouble which may pass: a sink that wants a pause, a locked store, a fenced transaction.

    Args:
        options: how often and how long tasks wait for locked stores.
        clock: gives seconds; only differences count.
    """

    def __init__(self, options: RocksDBOptions | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._locks = StoreLocks(options)
        self._until: dict[TopicPartition, float] = {}
        # How often tasks were interrupted without progress, and when last.
        self._attempts: dict[TopicPartition, tuple[int, float]] = {}

    def over(self, tasks: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of some tasks that need not wait any longer."""
        now = self._clock()
        return [task for task in tasks if self._until.get(task, now) <= now]

    def meet(self, report: Report) -> None:
        """Let the tasks wait that a report tells trouble of.

        Args:
            report: the report. Tasks that found their stores locked too often become interrupted in it.

        Raises:
            RunnerError: if a task was interrupted too often without progress.
        """
        now = self._clock()
        pauses = {**report.stalled, **self._locks.waits(report)}
        for task, reason in report.interrupted.items():
            attempts = self._attempts.get(task, (0, now))[0] + 1
            self._attempts[task] = attempts, now
            if attempts > _ATTEMPTS:
                raise RunnerError(f"the tasks were interrupted {attempts} times without progress: {reason}")
            pauses[task] = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempts)
        self._until.update((task, now + pause) for task, pause in pauses.items())

    def tried(self, tasks: Iterable[TopicPartition], opened: Iterable[TopicPartition]) -> None:
        """Note that tasks had their trial, and which of them could open their stores."""
        self._locks.opened(opened)
        for task in tasks:
            self._until.pop(task, None)

    def got_on(self, task: TopicPartition) -> None:
        """Forget the interruptions of a task that has made progress."""
        self._attempts.pop(task, None)

    def forgive(self, has_nothing_to_do: Callable[[TopicPartition], bool]) -> None:
        """Forget the interruptions of tasks that have had nothing to do for a while: theirs is no want of progress."""
        before = self._clock() - _FORGIVEN_S
        for task, (_, at) in list(self._attempts.items()):
            if at < before and has_nothing_to_do(task):
                del self._attempts[task]

    def keep(self, tasks: Iterable[TopicPartition]) -> None:
        """Forget the interruptions of all but some tasks: those that were with another member are its affair."""
        kept = set(tasks)
        self._attempts = {task: known for task, known in self._attempts.items() if task in kept}

    def drop(self, tasks: Iterable[TopicPartition]) -> None:
        """Let some tasks wait no longer."""
        for task in tasks:
            self._until.pop(task, None)
