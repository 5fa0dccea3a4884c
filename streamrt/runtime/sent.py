"""The event times that tasks have sent into exchanges, as stored with commits for other instances and later owners.

For each exchange that watermarks pass, a commit has the highest event time that is durable there, and when the
first open window will send more. Event times sent before a task moved to this process are known from its last commit.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from streamrt.records import TopicPartition
from streamrt.runtime.report import Report, StoreTime
from streamrt.topology import TaskId, Topology

__all__ = ["Sent", "SentTimes", "pending_exchange_times", "sent_times"]


class Sent(NamedTuple):
    """The event time that a task has sent into an exchange.

    Attributes:
        time: the highest event time, in milliseconds; None if there was no record.
        pending: whether its open windows will send more without a further record.
        deadline: the event time of the first of these windows; None if there is none, or an earlier version does not say it.
    """

    time: int | None
    pending: bool = False
    deadline: int | None = None


def pending_exchange_times(
    sent: Mapping[str, int], times: Mapping[str, StoreTime], exchanges: Mapping[str, frozenset[str]]
) -> dict[str, Sent]:
    """Return the event times that a commit of a task stores.

    Args:
        sent: the highest event time by exchange.
        times: event times of its stores.
        exchanges: the exchanges that the task sends into, each with the stores whose deadlines may send outputs.

    Example:
        >>> pending_exchange_times({"r": 5}, {"w": StoreTime(7, 10)}, {"r": frozenset({"w"}), "q": frozenset()})
        {'r': Sent(time=5, pending=True, deadline=10)}
    """
    found = {}
    for topic, stores in exchanges.items():
        known = (times[store].next_deadline for store in stores if store in times)
        deadline = min((each for each in known if each is not None), default=None)
        if deadline is not None or topic in sent:
            found[topic] = Sent(sent.get(topic), deadline is not None, deadline)
    return found


def sent_times(sent: Mapping[TaskId, Mapping[str, int]]) -> dict[tuple[TaskId, str], int]:
    """Convert times by task and topic to the format of reports."""
    return {(task, topic): time for task, times in sent.items() for topic, time in times.items()}


class SentTimes:
    """The durable event times that the tasks of one process have sent.

    Args:
        topology: the operators, resolved.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._sent: dict[TaskId, dict[str, int]] = {}
        self._times: dict[TaskId, dict[str, StoreTime]] = {}

    def begin(self, sent: Mapping[TaskId, Mapping[str, int]], tasks: Collection[TaskId]) -> None:
        """Add new tasks with the event times from their commits, and forget tasks that this process no longer has.

        Args:
            sent: the highest event time by task and exchange.
            tasks: the current tasks of this process.
        """
        self._sent = {task: times for task, times in self._sent.items() if task in tasks}
        self._times = {task: times for task, times in self._times.items() if task in tasks and task not in sent}
        self._sent |= {task: dict(times) for task, times in sent.items()}

    def note(self, report: Report) -> None:
        """Note the event times of a report, whose work is committed or can be."""
        for (task, topic), time in report.sent.items():
            known = self._sent.setdefault(task, {})
            known[topic] = max(time, known.get(topic, time))
        for (task, store), found in report.times.items():
            self._times.setdefault(task, {})[store] = found

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, dict[str, Sent]]:
        """Return the event times for commits of input partitions."""
        found = {}
        for partition in partitions:
            task = self._topology.task(partition)
            exchanges = self._topology.sends(task.stream)
            if exchanges:
                found[partition] = pending_exchange_times(
                    self._sent.get(task, {}), self._times.get(task, {}), exchanges
                )
        return found
