"""The tasks with unfinished work in micro-batch mode, which are ticked until it is finished."""

from collections.abc import Iterable

from streamrt.runtime.report import Report
from streamrt.topology import TaskId, Topology

__all__ = ["Unfinished"]


class Unfinished:
    """Tracks unfinished work from reports; see `OperatorContext.begin_portion`.

    Args:
        topology: the operators, resolved.

    Example:
        >>> from streamrt.topology import TopologyBuilder
        >>> unfinished = Unfinished(TopologyBuilder().build())
        >>> unfinished.tasks
        frozenset()
    """

    def __init__(self, topology: Topology) -> None:
        self._resuming = frozenset(filter(topology.resumes, topology.streams))
        self._known: dict[TaskId, bool] = {}
        self._sent: dict[tuple[TaskId, str], int] = {}

    @property
    def tasks(self) -> frozenset[TaskId]:
        """The tasks to tick."""
        return frozenset(task for task, unfinished in self._known.items() if unfinished)

    def assign(self, tasks: Iterable[TaskId]) -> None:
        """Set the tasks of a query. New ones count as unfinished, because an earlier process may have left work."""
        self._known = {task: self._known.get(task, True) for task in tasks if task.stream in self._resuming}

    def report(self, report: Report) -> dict[tuple[TaskId, str], int]:
        """Note the data of a report.

        Returns:
            The highest event times sent into exchanges, by task and topic; see `Report.sent`. They are held back while
            a task has unfinished work, which may still send earlier ones.
        """
        known = {task: left for task, left in report.unfinished.items() if task in self._known}
        # An interrupted task may or may not have made progress in another process.
        self._known.update({**known, **{task: True for task in report.interrupted if task in self._known}})
        for name, time in report.sent.items():
            self._sent[name] = max(time, self._sent.get(name, time))
        told = {name: time for name, time in self._sent.items() if not self._known.get(name[0], False)}
        self._sent = {name: time for name, time in self._sent.items() if name not in told}
        return told

    def forget(self) -> None:
        """Treat all tasks as unfinished: other processes may have worked on them, or a process has died."""
        self._known.clear()
        self._sent.clear()
