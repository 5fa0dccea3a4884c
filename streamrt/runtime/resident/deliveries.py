"""Says how far the tasks in front of exchanges are, for merges behind these: up to where their outputs are durable."""

import time
from collections.abc import Callable, Mapping

from streamrt.records import TopicPartition
from streamrt.runtime.link_messages import Delivered, Link
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.runtime.tasks.work_cycle import WorkCycle

__all__ = ["Deliveries"]

_HURRY_S = 0.02
_GLANCE_S = 0.001


class Deliveries:
    """Sends `Delivered` as soon as outputs are durable.

    Args:
        link: the link to the driver.
        tasks: the tasks of this process.
        clock: returns seconds; only differences count.

    Attributes:
        pending: whether outputs are in flight, so that there will be news without further records.
    """

    def __init__(self, link: Link, tasks: TaskExecutor, clock: Callable[[], float]) -> None:
        self._link = link
        self._tasks = tasks
        self._clock = clock
        self.pending = False
        self._pending_since = 0.0
        topology = tasks.spec.topology
        self._topics = frozenset[str]().union(*map(topology.topics_before, topology.awaited_exchanges))
        # What the driver knows.
        self._sent: dict[TopicPartition, int] = {}

    def send(self, cycle: WorkCycle | None, ends: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Send what is new.

        Args:
            cycle: the current cycle.
            ends: returns the end offsets of the partitions that are read to their ends, with all records processed.
        """
        if not self._topics:
            return
        new = self._new_positions(cycle, ends)
        if new and not self._tasks.spec.transactional and not self._are_delivered():
            self.pending = True
            return
        self.pending = False
        if new:
            self._sent |= new
            self._link.send(Delivered(new))

    def forget(self) -> None:
        """Forget everything about released partitions."""
        self._sent.clear()
        self.pending = False

    def _new_positions(
        self, cycle: WorkCycle | None, ends: Callable[[], Mapping[TopicPartition, int]]
    ) -> dict[TopicPartition, int]:
        new: dict[TopicPartition, int] = {}
        read: Mapping[TopicPartition, int] | None = None
        for task in self._tasks.assigned.values():
            inputs = [partition for partition in task.inputs if partition.topic in self._topics]
            if not inputs or not task.is_open or task.unfinished or (cycle is not None and cycle.unfinished(task.id)):
                continue
            read = ends() if read is None else read
            for partition in inputs:
                committed = task.start[partition]
                at = committed if cycle is None else cycle.position(partition)
                if self._tasks.spec.transactional and at != committed:
                    # Nobody sees the outputs before the commit.
                    at = committed
                # Behind the last record there may be transaction markers.
                elif partition in read:
                    at = max(at, read[partition])
                if at > self._sent.get(partition, -1):
                    new[partition] = at
        return new

    def _are_delivered(self) -> bool:
        """Return whether no output is in flight; lingering ones are sent now."""
        clients, now = self._tasks.clients, self._clock()
        if not clients.delivered:
            clients.send_pending()
        if not self.pending:
            self._pending_since = now
        elif now - self._pending_since >= _HURRY_S:
            # Under constant load, something is always in flight: wait for it from time to time.
            while not clients.delivered and self._clock() < now + _HURRY_S:
                time.sleep(_GLANCE_S)
            self._pending_since = self._clock()
        return clients.delivered
