"""Merges the records of several inputs of one task in timestamp order.

The next record is always the oldest among the next records of all inputs. For equal timestamps, the order of the topics
in `Topology.merge_order` decides. Each input keeps its offset order: a record that is out of order in its input delays
only the records after it.

Delivery ignores time, so the delivered records of one input may end before those of another one. Then the merge *reads
ahead*: it reads the next records of the first input directly from Kafka, up to the end of its log, which is requested
once. They are processed like the others. If they are delivered later, they are below the position of the input and are
dropped. Without reading ahead, the order would be wrong, or delivered records would wait in memory for the next batch.
An input whose log is read to its end does not delay the others.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import pairwise
from operator import attrgetter

from streamrt.records import TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.clients import TaskClients

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
    """

    def __init__(
        self,
        delivered: Mapping[TopicPartition, Iterable[Chunk]],
        start: Mapping[TopicPartition, int],
        times: Callable[[Chunk], list[int]],
        clients: TaskClients,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self._feeds = [
            _Feed(
                partition, delivered.get(partition, ()), at, times, clients, None if until is None else until[partition]
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
_time = attrgetter("time")


class _Feed:
    """One input: the delivered records, then those that are read ahead.

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
    ) -> None:
        self.partition = partition
        self.start = self._position = start
        self.time = 0
        chunks = _ordered(delivered)
        if until is not None:
            chunks = [part for chunk in chunks if (part := chunk.before_offset(until)).offsets]
        self._until = until
        self.delivered_end = max((chunk.offsets[-1] + 1 for chunk in chunks), default=0) if until is None else until
        self._times_of = times
        self._clients = clients
        self._chunks = self._read(chunks)
        self._chunk: Chunk | None = None
        self._times: list[int] = []
        self._index = 0

    @property
    def has_unprocessed(self) -> bool:
        return self._position < self.delivered_end

    def ready(self) -> bool:
        """Find the next record; return whether there is one."""
        while self._chunk is None or self._index >= len(self._times):
            chunk = next(self._chunks, None)
            if chunk is None:
                self._chunk = None
                return False
            self._chunk, self._times = chunk, self._times_of(chunk)
            self._index = bisect_left(chunk.offsets, self._position)
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

    def _read(self, delivered: Iterable[Chunk]) -> Generator[Chunk, None, None]:
        yield from delivered
        if self._until is not None and self._position >= self._until:
            return
        end = self._clients.log_end(self.partition)
        if self._until is not None:
            end = min(end, self._until)
        if self._position < end:
            yield from self._clients.read(self.partition, self._position, end)


def _ordered(delivered: Iterable[Chunk]) -> list[Chunk]:
    """Return the chunks of one input with strictly rising offsets, which is nearly always their order already."""
    chunks = sorted(delivered, key=lambda chunk: chunk.offsets[0])
    rising = all(chunk.offsets == sorted(chunk.offsets) for chunk in chunks)
    if rising and all(former.offsets[-1] < later.offsets[0] for former, later in pairwise(chunks)):
        return chunks
    whole = chunks[0].join(chunks[1:])
    # Drop duplicate offsets.
    partitions = {offset: index for index, offset in enumerate(whole.offsets)}
    return [whole.select(partitions[offset] for offset in sorted(partitions))]
