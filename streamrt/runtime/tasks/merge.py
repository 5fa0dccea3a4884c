"""Merges the records of several inputs of one task in timestamp order.

The next record is always the oldest among the next records of all inputs. For equal timestamps, the order of the topics
in `Topology.merge_order` decides. Each input keeps its offset order: a record that is out of order in its input delays
only the records after it.

Delivery ignores time, so the delivered records of one input may end before those of another one. Then the merge *reads
ahead*: it reads the next records of the first input directly from Kafka, up to the end of its log, which is requested
once. They are processed like the others. If they are delivered later, they are below the position of the input and are
dropped. Without reading ahead, the order would be wrong, or delivered records would wait in memory for the next batch.
An input whose log is read to its end does not delay the others.

Behind exchanges, the end of a log says nothing about records that are on their way to it. There the caller gives the ends
up to which inputs are read: see `streamrt.event_time.exchange_cuts`.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from operator import attrgetter

from streamrt.records import TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.task_clients import TaskClients

ChunkSlice = tuple[Chunk, int, int]
"""Consecutive records of one input: a chunk, the index of the first record, and the index after the last one."""


class Merge:
    """The merged records of one turn of a task with several inputs.

    Args:
        delivered: the delivered records, in any order, for each input that has some.
        start: offset of the first record to process, for each input, in the order for records with equal timestamps.
        times: returns the timestamps of a chunk.
        clients: reads records ahead from Kafka.
        until: for each input, the offset at which it ends; records up to it are read ahead, whether others wait for
            them or not. None for the delivered records, without such an end.
        ends: for some inputs, the offset up to which records are read ahead, in place of the end of the log.
        early: inputs whose records may come before their time. If older records are behind them, they come with these.
    """

    def __init__(
        self,
        delivered: Mapping[TopicPartition, Iterable[Chunk]],
        start: Mapping[TopicPartition, int],
        times: Callable[[Chunk], list[int]],
        clients: TaskClients,
        until: Mapping[TopicPartition, int] | None = None,
        ends: Mapping[TopicPartition, int] | None = None,
        early: Collection[TopicPartition] = (),
    ) -> None:
        limits, ends = until or {}, ends or {}
        self._feeds = [
            _Feed(
                partition,
                delivered.get(partition, ()),
                at,
                times,
                clients,
                limits.get(partition),
                ends.get(partition),
                is_early=partition in early,
            )
            for partition, at in start.items()
        ]

    def runs(self) -> Iterator[ChunkSlice]:
        """Yield runs until they cover all delivered records. The caller must process a run before it requests the next.

        Raises:
            KafkaRequestError: if records that are needed for the order cannot be read.
        """
        feeds = self._feeds
        while any(feed.has_unprocessed for feed in feeds):
            heads = [feed for feed in feeds if feed.ready()]
            if not heads:
                # Records that were there before are deleted.
                break
            # For equal timestamps, min() takes the first.
            first = min(heads, key=_time)
            before = heads.index(first)
            bound = min(
                min((feed.time - 1 for feed in heads[:before]), default=_NEVER),
                min((feed.time for feed in heads[before + 1 :]), default=_NEVER),
            )
            yield first.next_slice(bound)

    def has_unprocessed(self, done: Mapping[TopicPartition, int]) -> bool:
        """Return whether delivered records remain, given the offsets of the next records to process."""
        return any(done.get(feed.partition, feed.start) < feed.delivered_end for feed in self._feeds)

    def close(self) -> None:
        """Stop reading ahead."""
        for feed in self._feeds:
            feed.close()


_NEVER = 1 << 63
_LOOK_AHEAD = 10_000
"""How many records a merge looks ahead, at least, if the input has them."""
_time = attrgetter("time")


class _Feed:
    """One input: the delivered records, then those that are read ahead.

    Records of an early input are due with the oldest record behind them: see `_due_early`.

    Attributes:
        partition: the input partition.
        start: offset of its first record.
        time: timestamp of the next record, once `ready` has found one.
        delivered_end: offset after the last delivered record.
    """

    def __init__(
        self,
        partition: TopicPartition,
        delivered: Iterable[Chunk],
        start: int,
        times: Callable[[Chunk], list[int]],
        clients: TaskClients,
        until: int | None,
        end: int | None,
        *,
        is_early: bool,
    ) -> None:
        self.partition = partition
        self.start = self._position = start
        self.time = 0
        chunks = _order_chunks(delivered)
        if until is not None:
            chunks = [part for chunk in chunks if (part := chunk.before_offset(until)).offsets]
        self._until, self._end = until, end
        self.delivered_end = max((chunk.offsets[-1] + 1 for chunk in chunks), default=0) if until is None else until
        self._clients = clients
        self._chunks = self._read_chunks(chunks)
        timed = ((chunk, times(chunk)) for chunk in self._chunks)
        self._timed = _due_early(timed) if is_early else timed
        self._chunk: Chunk | None = None
        self._times: list[int] = []
        self._index = 0

    @property
    def has_unprocessed(self) -> bool:
        return self._position < self.delivered_end

    def ready(self) -> bool:
        """Find the next record; return whether there is one."""
        while self._chunk is None or self._index >= len(self._times):
            loaded = next(self._timed, None)
            if loaded is None:
                self._chunk = None
                return False
            self._chunk, self._times = loaded
            self._index = bisect_left(self._chunk.offsets, self._position)
        self.time = self._times[self._index]
        return True

    def next_slice(self, bound: int) -> ChunkSlice:
        """Take the next record, and the following ones up to a timestamp."""
        chunk, times, start = self._chunk, self._times, self._index
        if chunk is None:
            raise RuntimeError(f"{self.partition} has no next record")
        stop, count = start + 1, len(times)
        while stop < count and times[stop] <= bound:
            stop += 1
        self._index = stop
        self._position = chunk.offsets[stop - 1] + 1
        return chunk, start, stop

    def close(self) -> None:
        self._chunks.close()

    def _read_chunks(self, delivered: Iterable[Chunk]) -> Generator[Chunk, None, None]:
        at = self._position
        for chunk in delivered:
            yield chunk
            at = max(at, chunk.offsets[-1] + 1)
        limit = self._until if self._until is not None else self._end
        if limit is not None and at >= limit:
            return
        end = self._clients.log_end(self.partition)
        end = end if limit is None else min(end, limit)
        if at < end:
            yield from self._clients.read(self.partition, at, end)


def _due_early(loaded: Iterator[tuple[Chunk, list[int]]]) -> Iterator[tuple[Chunk, list[int]]]:
    """Yield chunks with the times at which their records are due: with the oldest record behind them.

    A repartition topic has the records of several input partitions, one after the other if there was a backlog.

    Args:
        loaded: the chunks of an input with their timestamps. The merge looks at most `_LOOK_AHEAD` records ahead, and the
            rest of a chunk.
    """
    ahead: deque[tuple[Chunk, list[int]]] = deque()
    for following in loaded:
        ahead.append(following)
        while sum(len(times) for _, times in ahead) > _LOOK_AHEAD:
            yield _take_due(ahead)
    while ahead:
        yield _take_due(ahead)


def _take_due(ahead: deque[tuple[Chunk, list[int]]]) -> tuple[Chunk, list[int]]:
    """Take the first chunk, with the times at which its records are due."""
    chunk, times = ahead.popleft()
    oldest = min((min(later, default=_NEVER) for _, later in ahead), default=_NEVER)
    due = list(accumulate(reversed(times), min, initial=oldest))
    return chunk, due[:0:-1]


def _order_chunks(delivered: Iterable[Chunk]) -> list[Chunk]:
    """Return the chunks of one input with strictly rising offsets, which is nearly always their order already."""
    chunks = sorted(delivered, key=lambda chunk: chunk.offsets[0])
    rising = all(chunk.offsets == sorted(chunk.offsets) for chunk in chunks)
    if rising and all(former.offsets[-1] < later.offsets[0] for former, later in pairwise(chunks)):
        return chunks
    whole = chunks[0].join(chunks[1:])
    # Drop duplicate offsets.
    partitions = {offset: index for index, offset in enumerate(whole.offsets)}
    return [whole.select(partitions[offset] for offset in sorted(partitions))]
