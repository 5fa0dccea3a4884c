"""The committed offsets of tasks that have nothing to do: behind transaction markers, and where they were set."""

from collections.abc import Callable, Iterable, Mapping

from streamrt.common.throttle import Throttle
from streamrt.kafka import KafkaRequestError
from streamrt.records import TopicPartition
from streamrt.runtime.resident.membership import Membership
from streamrt.runtime.resident.resident_feed import Feed
from streamrt.runtime.sent import Sent
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.runtime.tasks.task_executor import TaskExecutor

__all__ = ["EndMarkers"]

_COMPARE_S = 10.0


class EndMarkers:
    """Moves the group past transaction markers at the ends of partitions: they are not records, but count as lag.

    With at-least-once, offsets that have fallen are committed again: a request that timed out may still have been carried
    out after later ones.

    Args:
        feed: knows the ends.
        membership: commits.
        tasks: the tasks of this process.
        sent_for: returns the event times sent into exchanges, for commits of input partitions.
        clock: returns seconds; only differences count.
    """

    def __init__(
        self,
        feed: Feed,
        membership: Membership,
        tasks: TaskExecutor,
        sent_for: Callable[[Iterable[TopicPartition]], dict[TopicPartition, dict[str, Sent]]],
        clock: Callable[[], float],
    ) -> None:
        self._feed = feed
        self._membership = membership
        self._tasks = tasks
        self._sent_for = sent_for
        self._compared = Throttle(_COMPARE_S, clock)

    def pass_by(self, tasks: Iterable[StreamTask]) -> None:
        """Commit the ends of the inputs of tasks that have nothing to do."""
        ends = self._feed.ends()
        starts = {partition: start for task in tasks for partition, start in task.start.items()}
        passed = {
            partition: ends[partition] for partition, start in starts.items() if ends.get(partition, start) > start
        }
        if self._tasks.spec.transactional:
            passed = self._keep_unmoved_offsets(passed, starts)
        elif not self._membership.away and self._compared.admit():
            passed = {**self._find_fallen(starts), **passed}
        if (passed or self._membership.has_pending_commit) and self._membership.commit(passed, self._sent_for(passed)):
            for partition, end in passed.items():
                task = self._tasks.assigned[self._tasks.task_of(partition)]
                if self._tasks.spec.transactional:
                    task.pass_markers(partition, end)
                else:
                    task.start[partition] = end

    def _keep_unmoved_offsets(
        self, passed: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the offsets that no other process has moved. This commit is not fenced, and could set them back."""
        found = self._read_committed(passed, stable=True)
        return {partition: passed[partition] for partition, at in found.items() if at == starts[partition]}

    def _find_fallen(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets of tasks whose group has a lower one."""
        found = self._read_committed(starts, stable=False)
        return {
            partition: starts[partition] for partition, at in found.items() if at is not None and at < starts[partition]
        }

    def _read_committed(
        self, partitions: Iterable[TopicPartition], *, stable: bool
    ) -> dict[TopicPartition, int | None]:
        wanted = list(partitions)
        try:
            found = self._tasks.clients.noted(wanted, stable=stable) if wanted else {}
        except KafkaRequestError:
            return {}
        return {partition: at.offset for partition, at in found.items()}
