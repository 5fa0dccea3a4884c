"""What commits tell of the event time that tasks have sent into exchanges: other instances read it, and later owners.

A commit says, for each exchange that watermarks pass, the highest event time that is durable there, and whether open windows
will put out more. What was sent before a task came to this process is known from the commit with which it began.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from streamrt.models import TopicPartition
from streamrt.runtime.report import Report, StoreTime
from streamrt.topology import Topology

__all__ = ["Sent", "SentTimes", "sent_times", "what_was_sent"]


class Sent(NamedTuple):
    """What a task has sent into an exchange.

    Attributes:
        time: the highest event time, in milliseconds; None if there was no record.
        pending: whether it will send more without a further record, because windows are open.
    """

    time: int | None
    pending: bool = False


def what_was_sent(
    sent: Mapping[str, int], times: Mapping[str, StoreTime], exchanges: Mapping[str, frozenset[str]]
) -> dict[str, Sent]:
    """Return what a commit tells of a task.

    Args:
        sent: the highest event time by exchange.
        times: where event time is in its stores.
        exchanges: the stores whose deadlines may put something out, by exchange that the task sends into.

    Example:
        >>> what_was_sent({"r": 5}, {"w": StoreTime(7, 10)}, {"r": frozenset({"w"}), "q": frozenset()})
        {'r': Sent(time=5, pending=True)}
    """
    found = {}
    for topic, stores in exchanges.items():
        pending = any(store in times and times[store].next_deadline is not None for store in stores)
        if pending or topic in sent:
            found[topic] = Sent(sent.get(topic), pending)
    return found


def sent_times(sent: Mapping[TopicPartition, Mapping[str, int]]) -> dict[tuple[TopicPartition, str], int]:
    """Return times that are given by task and topic as reports give them."""
    return {(task, topic): time for task, times in sent.items() for topic, time in times.items()}


class SentTimes:
    """What the tasks of one process have sent, as far as it is durable.

    Args:
        topology: the operators, resolved.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._sent: dict[TopicPartition, dict[str, int]] = {}
        self._times: dict[TopicPartition, dict[str, StoreTime]] = {}

    @property
    def by_task(self) -> Mapping[TopicPartition, Mapping[str, int]]:
        """The highest event time that each task has sent, by exchange."""
        return self._sent

    def begin(self, sent: Mapping[TopicPartition, Mapping[str, int]], tasks: Collection[TopicPartition]) -> None:
        """Begin with what commits tell of tasks that are new here, and forget those that are not here any more.

        Args:
            sent: the highest event time by task and exchange.
            tasks: the tasks that are here now.
        """
        self._sent = {task: times for task, times in self._sent.items() if task in tasks}
        self._times = {task: times for task, times in self._times.items() if task in tasks and task not in sent}
        self._sent |= {task: dict(times) for task, times in sent.items()}

    def note(self, report: Report) -> None:
        """Note what is committed, or can be."""
        for (task, topic), time in report.sent.items():
            known = self._sent.setdefault(task, {})
            known[topic] = max(time, known.get(topic, time))
        for (task, store), found in report.times.items():
            self._times.setdefault(task, {})[store] = found

    def of(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, dict[str, Sent]]:
        """Return what commits of input partitions tell."""
        found = {}
        for place in places:
            task = self._topology.task(place)
            exchanges = self._topology.sends(task.topic)
            if exchanges:
                found[place] = what_was_sent(self._sent.get(task, {}), self._times.get(task, {}), exchanges)
        return found
