"""Transaction markers at the ends of partitions: they are not records, but count as lag."""

from collections.abc import Callable, Iterable, Mapping

from streamrt.kafka import KafkaRequestError
from streamrt.records import TopicPartition
from streamrt.runtime.resident.feed import Feed
from streamrt.runtime.resident.membership import Membership
from streamrt.runtime.sent import Sent
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.runtime.tasks.task_executor import TaskExecutor

__all__ = ["EndMarkers"]


class EndMarkers:
    """Moves the group past transaction markers at the ends of partitions.

    Args:
        feed: knows the ends.
        membership: commits.
        tasks: the tasks of this process.
        sent_for: returns the event times sent into exchanges, for commits of input partitions.
    """

    def __init__(
        self,
        feed: Feed,
        membership: Membership,
        tasks: TaskExecutor,
        sent_for: Callable[[Iterable[TopicPartition]], dict[TopicPartition, dict[str, Sent]]],
    ) -> None:
        self._feed = feed
        self._membership = membership
        self._tasks = tasks
        self._sent_for = sent_for

    def pass_by(self, tasks: Iterable[StreamTask]) -> None:
        """Commit the ends of the inputs of tasks that have nothing to do."""
        ends = self._feed.ends()
        starts = {partition: start for task in tasks for partition, start in task.start.items()}
        passed = {
            partition: ends[partition] for partition, start in starts.items() if ends.get(partition, start) > start
        }
        if self._tasks.spec.transactional:
            passed = self._unmoved(passed, starts)
        if (passed or self._membership.has_pending_commit) and self._membership.commit(passed, self._sent_for(passed)):
            for partition, end in passed.items():
                self._tasks.assigned[self._tasks.task_of(partition)].start[partition] = end

    def _unmoved(
        self, passed: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the offsets that no other process has moved. This commit is not fenced, and could set them back."""
        try:
            found = self._tasks.clients.noted(passed, stable=True) if passed else {}
        except KafkaRequestError:
            return {}
        return {partition: passed[partition] for partition, at in found.items() if at.offset == starts[partition]}
