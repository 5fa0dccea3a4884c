"""The turns of tasks in a resident process: tasks with polled records or unfinished work take turns."""

from collections.abc import Callable, Collection, Iterable, Mapping

from streamrt.records import TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.runtime.tasks.work_cycle import WorkCycle
from streamrt.topology import TaskId

__all__ = ["Turns"]

_MOST_HELD = 10_000
_FEW = 100
_MOST_AWAITING = 2_000
"""A partition with as many records that wait for a cut is crowded."""
_MOST_AWAITING_BYTES = 64 * 1024 * 1024
"""With as many bytes that wait for cuts, in all tasks together, each partition that has some of them is crowded."""


class Turns:
    """Holds polled records until they are processed.

    Tasks keep their places in a queue from slice to slice. A task that is stopped by the end of a slice goes to the end
    of the queue. A task that receives a record therefore waits for at most one slice of each other task.

    Records of a merge behind exchanges wait for a *cut* first (`CutRequest`): `request_cuts` says for which streams cuts are
    to be requested, and `complete_cut` gives their tasks a turn.

    A partition with more records than its next turn can process is *crowded*: it must not be polled until they are
    processed. Otherwise its records would pile up here, and would delay those of other partitions in the client.

    Args:
        task_of: returns the task of an input partition.
        awaiting: the streams whose records wait for cuts.
    """

    def __init__(self, task_of: Callable[[TopicPartition], TaskId], awaiting: Collection[str] = ()) -> None:
        self._task_of = task_of
        self._awaiting = awaiting
        # Records that came after the last request for a cut, and records for which a cut is requested.
        self._fresh: dict[TaskId, list[Chunk]] = {}
        self._requested: dict[TaskId, list[Chunk]] = {}
        self._open_requests: dict[str, int] = {}
        self._requests = 0
        # Up to where merges read, from their last cuts.
        self._ends: dict[TaskId, Mapping[TopicPartition, int]] = {}
        self._queue: dict[TaskId, list[Chunk]] = {}
        # Of the tasks that get no turn; None for one that wants none.
        self._held: dict[TaskId, list[Chunk] | None] = {}
        # Records processed in the last slice, and, by partition, in turns that were stopped by the end of a slice.
        self._pace = 0
        self._stopped: dict[TopicPartition, int] = {}
        self._crowded: set[TopicPartition] = set()
        # Keys and values that wait for a cut.
        self._awaiting_bytes: dict[TaskId, int] = {}

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __contains__(self, task_id: TaskId) -> bool:
        if task_id in self._fresh or task_id in self._requested:
            return True
        return task_id in self._queue or self._held.get(task_id) is not None

    @property
    def awaits_cut(self) -> bool:
        """Whether records wait for a cut."""
        return bool(self._fresh or self._requested)

    @property
    def records(self) -> int:
        """The number of records that wait for a turn or for a cut."""
        waiting = (self._queue, self._fresh, self._requested)
        return sum(len(chunk.offsets) for tasks in waiting for chunks in tasks.values() for chunk in chunks)

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
            task_id = self._task_of(TopicPartition(chunk.topic, chunk.partition))
            if task_id.stream in self._awaiting:
                self._fresh.setdefault(task_id, []).append(chunk)
                self._awaiting_bytes[task_id] = self._awaiting_bytes.get(task_id, 0) + _chunk_bytes(chunk)
            else:
                self._take_chunks(task_id).append(chunk)

    def request_cuts(self) -> dict[str, int]:
        """Return the cuts to request now, by stream, with the numbers of the requests.

        A stream has one open request at a time. What comes meanwhile waits for the next one.
        """
        new: dict[str, int] = {}
        for task_id in [each for each in self._fresh if each.stream not in self._open_requests]:
            if task_id.stream not in new:
                self._requests += 1
                new[task_id.stream] = self._requests
            self._requested.setdefault(task_id, []).extend(self._fresh.pop(task_id))
        self._open_requests |= new
        return new

    def complete_cut(self, stream: str, number: int, ends: Mapping[TopicPartition, int]) -> None:
        """Give turns to the tasks of a stream whose records have waited for a cut.

        Args:
            stream: the stream.
            number: number of the request.
            ends: up to where the merge reads its inputs.
        """
        if self._open_requests.get(stream) != number:
            return
        del self._open_requests[stream]
        for task_id in [each for each in self._requested if each.stream == stream]:
            chunks = self._requested.pop(task_id)
            self._awaiting_bytes[task_id] -= sum(map(_chunk_bytes, chunks))
            self._take_chunks(task_id).extend(chunks)
            self._ends[task_id] = {each: end for each, end in ends.items() if each.partition == task_id.partition}

    def want(self, task_id: TaskId) -> None:
        """Queue a task for a turn, even without records."""
        self._take_chunks(task_id)

    def run(self, cycle: WorkCycle) -> None:
        """Run turns of tasks in a cycle until the time slice is over or all work is done."""
        cycle.begin_slice()
        pace = 0
        for task_id in list(self._queue):
            chunks = self._queue.pop(task_id)
            rest, going_on = cycle.take_turn(task_id, chunks, self._ends.get(task_id))
            held, left = _count_records(chunks), _count_records(rest)
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
        for waiting in (self._queue, self._fresh, self._requested, self._ends, self._awaiting_bytes):
            waiting.pop(task.id, None)
        if task.id in self._held:
            self._held[task.id] = None
        self._crowded.difference_update(task.inputs)

    def crowding(self) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Estimate from earlier turns which input partitions have more records than one turn can process.

        Returns:
            The partitions that are crowded now and were not before, and those that are not crowded any more.
        """
        counts = _count_records(chunk for chunks in self._queue.values() for chunk in chunks)
        before = self._crowded
        self._crowded = {
            partition for partition, count in counts.items() if count > self._stopped.get(partition, self._pace)
        }
        awaiting = (chunk for tasks in (self._fresh, self._requested) for chunks in tasks.values() for chunk in chunks)
        is_full = sum(self._awaiting_bytes.values()) >= _MOST_AWAITING_BYTES
        self._crowded.update(
            each for each, count in _count_records(awaiting).items() if is_full or count >= _MOST_AWAITING
        )
        return self._crowded - before, before - self._crowded

    def _take_chunks(self, task_id: TaskId) -> list[Chunk]:
        """Return the records of a task, which wants a turn from now on."""
        if task_id not in self._held:
            return self._queue.setdefault(task_id, [])
        chunks = self._held[task_id]
        if chunks is None:
            chunks = self._held[task_id] = []
        return chunks


def _chunk_bytes(chunk: Chunk) -> int:
    """Return the number of bytes of the keys and values of a chunk."""
    return sum(len(each) for column in (chunk.keys, chunk.values) for each in column if each is not None)


def _count_records(chunks: Iterable[Chunk]) -> dict[TopicPartition, int]:
    """Return the number of records by input partition."""
    counts: dict[TopicPartition, int] = {}
    for chunk in chunks:
        partition = TopicPartition(chunk.topic, chunk.partition)
        counts[partition] = counts.get(partition, 0) + len(chunk.offsets)
    return counts
