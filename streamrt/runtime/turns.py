"""The turns of tasks in a resident process: tasks with polled records or unfinished work take turns."""

from collections.abc import Callable, Iterable

from streamrt.models import TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.work_cycle import WorkCycle

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

    def __init__(self, task_of: Callable[[TopicPartition], TopicPartition]) -> None:
        self._task_of = task_of
        self._queue: dict[TopicPartition, list[Chunk]] = {}
        # Records processed in the last slice, and, by partition, in turns that were stopped by the end of a slice.
        self._pace = 0
        self._stopped: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __contains__(self, task: TopicPartition) -> bool:
        return task in self._queue

    @property
    def records(self) -> int:
        """The number of records that are held."""
        return sum(len(chunk.offsets) for chunks in self._queue.values() for chunk in chunks)

    @property
    def room(self) -> int:
        """Maximum number of records of the next poll; at least a few, for partitions without held records."""
        return max(_FEW, _MOST_HELD - self.records)

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Add records after those of their partitions that are already held."""
        for chunk in chunks:
            task = self._task_of(TopicPartition(chunk.topic, chunk.partition))
            self._queue.setdefault(task, []).append(chunk)

    def want(self, task: TopicPartition) -> None:
        """Queue a task for a turn, even without records."""
        self._queue.setdefault(task, [])

    def take(self, batch: WorkCycle) -> None:
        """Run turns of tasks in a batch until the time slice is over or all work is done."""
        batch.begin_slice()
        pace = 0
        for task in list(self._queue):
            chunks = self._queue.pop(task)
            rest, going_on = batch.take_turn(task, chunks)
            held, left = _counts(chunks), _counts(rest)
            for place, count in held.items():
                done = count - left.get(place, 0)
                pace += done
                self._stopped.pop(place, None)
                if place in left:
                    self._stopped[place] = done
            if rest or batch.unfinished(task):
                self._queue[task] = rest
            if not going_on:
                break
        # A slice without records, which only closed windows, gives no pace.
        self._pace = pace or self._pace

    def drop(self, task: TopicPartition) -> None:
        """Remove a task and its records from the queue."""
        self._queue.pop(task, None)

    def crowded(self) -> set[TopicPartition]:
        """Return the input partitions with more records than one turn can process, estimated from earlier turns."""
        counts = _counts(chunk for chunks in self._queue.values() for chunk in chunks)
        return {place for place, count in counts.items() if count > self._stopped.get(place, self._pace)}


def _counts(chunks: Iterable[Chunk]) -> dict[TopicPartition, int]:
    """Return the number of records by input partition."""
    counts: dict[TopicPartition, int] = {}
    for chunk in chunks:
        place = TopicPartition(chunk.topic, chunk.partition)
        counts[place] = counts.get(place, 0) + len(chunk.offsets)
    return counts
