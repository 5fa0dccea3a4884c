"""How long tasks wait for stores that another process uses.

Nobody waits for a lock: opening is tried once, and a task whose store is locked waits for its next trial, while others work.
`RocksDBOptions.open_max_retries` and `open_retry_backoff` say how often and how long. After the last trial the task counts as
interrupted, as by any trouble that may pass.
"""

from collections.abc import Iterable
from dataclasses import replace

from streamrt.models import TopicPartition
from streamrt.runtime.report import Report
from streamrt.state import RocksDBOptions

__all__ = ["StoreLocks", "tried_once"]


def tried_once(options: RocksDBOptions | None) -> RocksDBOptions:
    """Return the options of stores whose opening does not wait."""
    return replace(options or RocksDBOptions(), open_max_retries=0)


class StoreLocks:
    """Counts the trials to open the stores of tasks.

    Args:
        options: how often to try again, and when.

    Example:
        >>> locks = StoreLocks(RocksDBOptions(open_max_retries=1, open_retry_backoff=3.0))
        >>> task = TopicPartition("orders", 0)
        >>> locks.waits(Report(locked={task: "in use"}))
        {TopicPartition(topic='orders', partition=0): 3.0}
        >>> last = Report(locked={task: "in use"})
        >>> locks.waits(last), last.interrupted
        ({}, {TopicPartition(topic='orders', partition=0): 'in use'})
    """

    def __init__(self, options: RocksDBOptions | None) -> None:
        options = options or RocksDBOptions()
        self._most = options.open_max_retries
        self._backoff_s = options.open_retry_backoff
        self._tried: dict[TopicPartition, int] = {}

    @property
    def waiting(self) -> bool:
        """Whether any task waits for another trial."""
        return bool(self._tried)

    def waits(self, report: Report) -> dict[TopicPartition, float]:
        """Return for how many seconds tasks wait that found their stores locked.

        Args:
            report: the report about the trials. Those that were the last ones become interruptions in it.
        """
        pauses: dict[TopicPartition, float] = {}
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

    def opened(self, tasks: Iterable[TopicPartition]) -> None:
        """Forget the trials of tasks whose stores are open, or which are no longer ours."""
        for task in tasks:
            self._tried.pop(task, None)
