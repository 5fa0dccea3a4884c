"""Which task of a resident process works next: those with polled records, or with work left over, take turns."""

from collections.abc import Callable, Iterable

from streamrt.models import TopicPartition
from streamrt.runtime.batch import Batch
from streamrt.runtime.chunk import Chunk

__all__ = ["Turns"]

_MOST_HELD = 10_000
_FEW = 100


class Turns:
    """Holds polled records until they are processed.

    Tasks stand in a queue, in which they keep their places from slice to slice; the one that is stopped by the end of a slice
    goes to the end of the queue. So a task that gets a record waits for one slice of each of the others at most.

    Partitions whose records are more than what their next turn can process are *crowded*: they must not be polled until that
    is done. Otherwise records would gather here, and in the client those of other partitions would be behind them.

    Args:
        task_of: returns the task of an input partition.
    """

    def __init__(self, task_of: Callable[[TopicPartition], TopicPartition]) -> None:
        self._task_of = task_of
        self._queue: dict[TopicPartition, list[Chunk]] = {}
        # How many records were processed in the last slice, and in turns that the end of a slice has stopped.
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
        """How many records the next poll may bring: few if many are held, for partitions that have none."""
        return max(_FEW, _MOST_HELD - self.records)

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Hold records behind those of their partitions that are held already."""
        for chunk in chunks:
            task = self._task_of(TopicPartition(chunk.topic, chunk.partition))
            self._queue.setdefault(task, []).append(chunk)

    def want(self, task: TopicPartition) -> None:
        """Give a task a turn although it may have no record."""
        self._queue.setdefault(task, [])

    def take(self, batch: Batch) -> None:
        """Give tasks turns in a batch until a time slice is over, or all is done."""
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
        # One without records, in which windows were closed, shows nothing.
        self._pace = pace or self._pace

    def drop(self, task: TopicPartition) -> None:
        """Forget the records of a task, and that it wanted a turn."""
        self._queue.pop(task, None)

    def clear(self) -> None:
        """Forget everything."""
        self._queue.clear()
        self._stopped.clear()

    def crowded(self) -> set[TopicPartition]:
        """Return the input partitions with more records than one turn can process, as far as turns have shown that."""
        counts = _counts(chunk for chunks in self._queue.values() for chunk in chunks)
        return {place for place, count in counts.items() if count > self._stopped.get(place, self._pace)}


def _counts(chunks: Iterable[Chunk]) -> dict[TopicPartition, int]:
    """Return the number of records by input partition."""
    counts: dict[TopicPartition, int] = {}
    for chunk in chunks:
        place = TopicPartition(chunk.topic, chunk.partition)
        counts[place] = counts.get(place, 0) + len(chunk.offsets)
    return counts
