"""Pauses of topics, as callers request, and of tasks that run ahead: records that were read wait, and no more are read."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.runtime.link_messages import Settle
from streamrt.runtime.resident.resident_feed import Feed
from streamrt.runtime.resident.turns import Turns
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.topology import TaskId

__all__ = ["GatedFeed", "Pausing"]


class GatedFeed:
    """A feed with a gate: partitions behind it return no records, and are at no end, whether they are resumed or not.

    Args:
        feed: the feed.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._gated: frozenset[TopicPartition] = frozenset()
        # Partitions behind the gate that will return records once they are before it.
        self._resumed: set[TopicPartition] = set()
        self._reading: set[TopicPartition] = set()

    def gate(self, partitions: Iterable[TopicPartition]) -> None:
        """Put partitions behind the gate, and all others before it."""
        gated = frozenset(partitions)
        opened = self._resumed - gated
        closed = self._reading & (gated - self._gated)
        self._gated = gated
        self._resumed = (self._resumed - opened) | closed
        self._feed.pause(closed)
        self._feed.resume(opened)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `Feed.add`."""
        self._feed.add(positions)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """See `Feed.remove`."""
        removed = set(partitions)
        self._reading -= removed
        self._resumed -= removed
        self._feed.remove(removed)

    def poll(self, timeout_s: float, records: int) -> Sequence[tuple[TopicPartition, InputBatch]]:
        """See `Feed.poll`."""
        return self._feed.poll(timeout_s, records)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """See `Feed.seek`."""
        self._feed.seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See `Feed.pause`."""
        paused = set(partitions)
        self._reading -= paused
        self._resumed -= paused
        self._feed.pause(paused)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See `Feed.resume`."""
        resumed = set(partitions)
        self._reading |= resumed
        self._resumed |= resumed & self._gated
        self._feed.resume(resumed - self._gated)

    def ends(self) -> Mapping[TopicPartition, int]:
        """See `Feed.ends`. Newer records may exist in partitions behind the gate."""
        return {partition: end for partition, end in self._feed.ends().items() if partition not in self._gated}

    def close(self) -> None:
        """See `Feed.close`."""
        self._feed.close()


class Pausing:
    """The tasks of a slot that read paused topics. A task that merges topics waits if one of them is paused.

    Args:
        feed: reads records.
        turns: the turns of the tasks.
        tasks: the tasks of this process.
    """

    def __init__(self, feed: GatedFeed, turns: Turns, tasks: TaskExecutor) -> None:
        self._feed = feed
        self._turns = turns
        self._tasks = tasks
        self._topics: Collection[str] = ()
        self._paused: set[TaskId] = set()
        self._ahead: frozenset[TaskId] = frozenset()
        self._held: set[TaskId] = set()
        self.run_request: Settle | None = None

    def __contains__(self, task_id: TaskId) -> bool:
        return task_id in self._paused

    def align(self, ahead: frozenset[TaskId]) -> None:
        """Have tasks wait until others have come as far; event time still passes for them.

        Args:
            ahead: these tasks; all others that have waited for this reason go on.
        """
        if ahead != self._ahead:
            self._ahead = ahead
            self.apply()

    def apply(self) -> None:
        """Have the tasks wait that must; call it after a request and after tasks were assigned."""
        if self.run_request is not None:
            self._topics = self.run_request.paused
        if not self._topics and not self._ahead and not self._held:
            return
        assigned = self._tasks.assigned.values()
        paused = [task for task in assigned if any(each.topic in self._topics for each in task.inputs)]
        self._paused = {task.id for task in paused}
        held = [*paused, *(task for task in assigned if task.id in self._ahead - self._paused)]
        self._held = {task.id for task in held}
        self._turns.hold(self._held)
        self._feed.gate(partition for task in held for partition in task.inputs)
