"""Brings the records of several inputs of one task into the order of their timestamps.

Next is always the record of the input whose own next record is the oldest; of equal timestamps, that of the topic which comes
first in `Topology.merge_order`. The order inside an input stays that of its offsets: a record that is out of order there
holds up those behind it, and nothing else.

Whoever delivers records does not know about time, so one input may end in the middle of another one. Then the merge *reads
ahead*: it takes the next records of the first input from Kafka itself, as far as its log reaches, which is asked once. They
are processed like the others, so what is delivered again later is below the position of the input, and is dropped. Without
that, either the order would be wrong or delivered records would have to wait in memory for the next batch. An input whose log
is read to its end holds nobody up.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import pairwise
from operator import attrgetter

from streamrt.models import TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.clients import TaskClients

Run = tuple[Chunk, int, int]
"""Consecutive records of one input: a chunk, the index of the first one, and the index after the last one."""


class Merge:
    """The records of one session of a task with several inputs.

    Args:
        delivered: the records that were delivered, in any order, for each input that has some.
        start: offset of the first record to process, for each input, in the order in which records of equal timestamp come.
        times: returns the timestamps of a chunk.
        clients: reads ahead.
    """

    def __init__(
        self,
        delivered: Mapping[TopicPartition, Iterable[Chunk]],
        start: Mapping[TopicPartition, int],
        times: Callable[[Chunk], list[int]],
        clients: TaskClients,
    ) -> None:
        self._feeds = [_Feed(place, delivered.get(place, ()), at, times, clients) for place, at in start.items()]

    def runs(self) -> Iterator[Run]:
        """Yield runs until all delivered records are in one; each is to be processed before the next one is asked for.

        Raises:
            KafkaRequestError: if records that are needed for the order cannot be read.
        """
        feeds = self._feeds
        while any(feed.left for feed in feeds):
            heads = [feed for feed in feeds if feed.ready()]
            # Of equal timestamps, min() takes the first.
            first = min(heads, key=_time)
            before = heads.index(first)
            bound = min(
                min((feed.time - 1 for feed in heads[:before]), default=_NEVER),
                min((feed.time for feed in heads[before + 1 :]), default=_NEVER),
            )
            yield first.take(bound)

    def left(self, done: Mapping[TopicPartition, int]) -> bool:
        """Tell whether delivered records remain if these are the offsets of the next records to process."""
        return any(done.get(feed.place, feed.start) < feed.delivered_end for feed in self._feeds)

    def close(self) -> None:
        """Stop reading ahead."""
        for feed in self._feeds:
            feed.close()


_NEVER = 1 << 63
_time = attrgetter("time")


class _Feed:
    """One input: the delivered records, and then those that are read ahead.

    Attributes:
        place: the input partition.
        start: offset of its first record.
        time: timestamp of the next record, once `ready` has found one.
        delivered_end: offset after the last record that was delivered.
    """

    def __init__(
        self,
        place: TopicPartition,
        delivered: Iterable[Chunk],
        start: int,
        times: Callable[[Chunk], list[int]],
        clients: TaskClients,
    ) -> None:
        self.place = place
        self.start = self._position = start
        self.time = 0
        chunks = _ordered(delivered)
        self.delivered_end = max((chunk.offsets[-1] + 1 for chunk in chunks), default=0)
        self._times_of = times
        self._clients = clients
        self._chunks = self._read(chunks)
        self._chunk: Chunk | None = None
        self._times: list[int] = []
        self._index = 0

    @property
    def left(self) -> bool:
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

    def take(self, bound: int) -> Run:
        """Take the next record, and those behind it up to a timestamp."""
        chunk, times, start = self._chunk, self._times, self._index
        if chunk is None:
            raise RuntimeError(f"{self.place} has no next record")
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
        end = self._clients.log_end(self.place)
        if self._position < end:
            yield from self._clients.read(self.place, self._position, end)


def _ordered(delivered: Iterable[Chunk]) -> list[Chunk]:
    """Return chunks of one input so that offsets rise in each and from one to the next, as they do but for a surprise."""
    chunks = sorted(delivered, key=lambda chunk: chunk.offsets[0])
    rising = all(chunk.offsets == sorted(chunk.offsets) for chunk in chunks)
    if rising and all(former.offsets[-1] < later.offsets[0] for former, later in pairwise(chunks)):
        return chunks
    whole = chunks[0].join(chunks[1:])
    # Each offset once.
    places = {offset: index for index, offset in enumerate(whole.offsets)}
    return [whole.select(places[offset] for offset in sorted(places))]
