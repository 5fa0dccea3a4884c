"""Retries for stores that another process has locked.

No thread blocks on a lock: each attempt to open is made once, and a task with a locked store waits for its next attempt
while others work. `RocksDBOptions.open_max_retries` and `open_retry_backoff` set number and delay of the attempts.
After the last attempt the task counts as interrupted, as after any other retriable error.
"""

from collections.abc import Iterable
from dataclasses import replace

from streamrt.runtime.report import Report
from streamrt.state import RocksDBOptions
from streamrt.topology import TaskId

__all__ = ["StoreLocks", "tried_once"]


def tried_once(options: RocksDBOptions | None) -> RocksDBOptions:
    """Return the options with a single attempt to open a store."""
    return replace(options or RocksDBOptions(), open_max_retries=0)


class StoreLocks:
    """Counts the attempts to open the stores of tasks.

    Args:
        options: number and delay of the retries.

    Example:
        >>> locks = StoreLocks(RocksDBOptions(open_max_retries=1, open_retry_backoff=3.0))
        >>> task = TaskId("orders", 0)
        >>> locks.waits(Report(locked={task: "in use"}))
        {TaskId(stream='orders', partition=0): 3.0}
        >>> last = Report(locked={task: "in use"})
        >>> locks.waits(last), last.interrupted
        ({}, {TaskId(stream='orders', partition=0): 'in use'})
    """

    def __init__(self, options: RocksDBOptions | None) -> None:
        options = options or RocksDBOptions()
        self._most = options.open_max_retries
        self._backoff_s = options.open_retry_backoff
        self._tried: dict[TaskId, int] = {}

    @property
    def waiting(self) -> bool:
        """Whether any task waits for another attempt."""
        return bool(self._tried)

    def waits(self, report: Report) -> dict[TaskId, float]:
        """Return the seconds until the next attempt for each task with a locked store.

        Args:
            report: the report about the attempts. Tasks whose last attempt failed become interruptions in it.
        """
        pauses: dict[TaskId, float] = {}
        for task, reason in report.locked.items():
            tried = self._tried.get(task, 0)
            if tried < self._most:
                self._tried[task] = tried + 1
                pauses[task] = self._backoff_s
            else:
                self._tried.pop(task, None)
                report.interrupted[task] = reason
        for task in report.interrupted:
            report.locked.pop(task, None)
        return pauses

    def opened(self, tasks: Iterable[TaskId]) -> None:
        """Forget the attempts of tasks whose stores are open, or which this process no longer owns."""
        for task in tasks:
            self._tried.pop(task, None)
