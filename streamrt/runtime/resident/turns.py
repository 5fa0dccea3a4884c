"""The turns of tasks in a resident process: tasks with polled records or unfinished work take turns."""

from collections.abc import Callable, Collection, Iterable

from streamrt.records import TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.runtime.tasks.work_cycle import WorkCycle
from streamrt.topology import TaskId

__all__ = ["Turns"]

_MOST_HELD = 10_000
_FEW = 100


class Turns:
    """Holds polled records until they are processed.

    Tasks keep their places in a queue from slice to slice. A task that is stopped by the end of a slice goes to the end
    of the queue. A task that receives a record therefore waits for at most one slice of each other task.

    A partition with more records than its next turn can process is *crowded*: it must not be polled until they are
    processed. Otherwise its records would pile up here, and would delay those of other partitions in the client.

    Args:
        task_of: returns the task of an input partition.
    """

    def __init__(self, task_of: Callable[[TopicPartition], TaskId]) -> None:
        self._task_of = task_of
        self._queue: dict[TaskId, list[Chunk]] = {}
        # Of the tasks that get no turn; None for one that wants none.
        self._held: dict[TaskId, list[Chunk] | None] = {}
        # Records processed in the last slice, and, by partition, in turns that were stopped by the end of a slice.
        self._pace = 0
        self._stopped: dict[TopicPartition, int] = {}
        self._crowded: set[TopicPartition] = set()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __contains__(self, task_id: TaskId) -> bool:
        return task_id in self._queue or self._held.get(task_id) is not None

    @property
    def records(self) -> int:
        """The number of records that wait for a turn."""
        return sum(len(chunk.offsets) for chunks in self._queue.values() for chunk in chunks)

    def hold(self, tasks: Collection[TaskId]) -> None:
        """Give turns to all tasks but these, until it is called again.

        Args:
            tasks: the tasks that must wait.
        """
        for task_id in [task_id for task_id in self._held if task_id not in tasks]:
            chunks = self._held.pop(task_id)
            if chunks is not None:
                self._queue[task_id] = chunks
        for task_id in tasks:
            if task_id not in self._held:
                self._held[task_id] = self._queue.pop(task_id, None)

    @property
    def room(self) -> int:
        """Maximum number of records of the next poll; at least a few, for partitions without held records."""
        return max(_FEW, _MOST_HELD - self.records)

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Add records after those of their partitions that are already held."""
        for chunk in chunks:
            self._chunks(self._task_of(TopicPartition(chunk.topic, chunk.partition))).append(chunk)

    def want(self, task_id: TaskId) -> None:
        """Queue a task for a turn, even without records."""
        self._chunks(task_id)

    def run(self, cycle: WorkCycle) -> None:
        """Run turns of tasks in a cycle until the time slice is over or all work is done."""
        cycle.begin_slice()
        pace = 0
        for task_id in list(self._queue):
            chunks = self._queue.pop(task_id)
            rest, going_on = cycle.take_turn(task_id, chunks)
            held, left = _counts(chunks), _counts(rest)
            for partition, count in held.items():
                done = count - left.get(partition, 0)
                pace += done
                self._stopped.pop(partition, None)
                if partition in left:
                    self._stopped[partition] = done
            if rest or cycle.unfinished(task_id):
                self._queue[task_id] = rest
            if not going_on:
                break
        # A slice without records, which only closed windows, gives no pace.
        self._pace = pace or self._pace

    def drop(self, task: StreamTask) -> None:
        """Remove a task and its records from the queue."""
        self._queue.pop(task.id, None)
        if task.id in self._held:
            self._held[task.id] = None
        self._crowded.difference_update(task.inputs)

    def crowding(self) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Estimate from earlier turns which input partitions have more records than one turn can process.

        Returns:
            The partitions that are crowded now and were not before, and those that are not crowded any more.
        """
        counts = _counts(chunk for chunks in self._queue.values() for chunk in chunks)
        before = self._crowded
        self._crowded = {
            partition for partition, count in counts.items() if count > self._stopped.get(partition, self._pace)
        }
        return self._crowded - before, before - self._crowded

    def _chunks(self, task_id: TaskId) -> list[Chunk]:
        """Return the records of a task, which wants a turn from now on."""
        if task_id not in self._held:
            return self._queue.setdefault(task_id, [])
        chunks = self._held[task_id]
        if chunks is None:
            chunks = self._held[task_id] = []
        return chunks


def _counts(chunks: Iterable[Chunk]) -> dict[TopicPartition, int]:
    """Return the number of records by input partition."""
    counts: dict[TopicPartition, int] = {}
    for chunk in chunks:
        partition = TopicPartition(chunk.topic, chunk.partition)
        counts[partition] = counts.get(partition, 0) + len(chunk.offsets)
    return counts
