"""`RangeReader`: reads the records of a topic between two positions."""

import bisect
import contextlib
import math
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from streamrt.common.collection import collection_paused
from streamrt.errors import OffsetOutOfRangeError
from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.tables.access.links import RecordFeed, TableLinks
from streamrt.tables.access.positions import Positions, TopicPositions
from streamrt.tables.access.topic_watch import TopicWatch
from streamrt.tables.rows.decoding import slice_of

__all__ = ["RECORDS", "RangeReader"]

RECORDS = 5_000
"""Records of a poll: more of them do not fit into the caches of a processor, and are slower."""
_POLL_S = 0.2
_LOOK_S = 1.0
"""Seconds between two looks whether the topic was created again."""
_FETCHING = {
    # An end is reported when the request before it is answered; brokers hold those for so long.
    "fetch.wait.max.ms": 5,
    "queued.min.messages": 100_000,
    "max.partition.fetch.bytes": 8 * 1024 * 1024,
}
_FEW_RECORDS = 1_000
_FETCHING_FEW = {"fetch.wait.max.ms": 5, "max.partition.fetch.bytes": 256 * 1024}
_TURN_RECORDS = 200_000
"""Offsets of the partitions that are read at the same time, if they are read in turns."""


class RangeReader:
    """Reads the committed records between two positions; each run reads them again.

    Args:
        links: reach the topic.
        positions: of the topic.
        start: first offset of each partition.
        end: offset after the last record of each partition.
        timeout: seconds without a record after which it gives up.
        options: consumer options of librdkafka.
        on_poll: called after each poll with the bytes of keys and values that it returned; it may raise.
    """

    def __init__(
        self,
        links: TableLinks,
        positions: TopicPositions,
        start: Positions,
        end: Positions,
        timeout: float,
        options: Mapping[str, Any] | None = None,
        on_poll: Callable[[int], None] | None = None,
    ) -> None:
        self._links = links
        self._positions = positions
        self.start = start
        self.end = end
        self._timeout = timeout
        self._options = options or {}
        self._on_poll = on_poll

    @property
    def bounds(self) -> dict[int, tuple[int, int]]:
        """First offset and end offset by number of partition; equal ones if there is nothing to read."""
        return {number: (offset, max(offset, self.end.at[number])) for number, offset in sorted(self.start.at.items())}

    def read(self, limit: int | None = None) -> Generator[tuple[int, InputBatch], None, None]:
        """Yield the records with the number of their partition, those of several partitions as they arrive.

        Args:
            limit: records after which it may end.

        Raises:
            OffsetOutOfRangeError: if records were deleted since the positions were looked up.
            StaleTokenError: if the topic was created again since.
            KafkaRequestError: if records cannot be read, or no more of them arrive.
        """
        if limit == 0:
            return
        for records in self._run([self._open_ranges()], limit):
            if records is not None:
                yield records

    def read_in_turns(self) -> Generator[tuple[int, InputBatch] | None, None, None]:
        """Yield the records of some partitions, then None, and so on; no partition is in two of these turns.

        What must be kept until a partition is read to its end is then less than the whole topic. Raises what `read` does.
        """
        turns: list[dict[TopicPartition, int]] = []
        size = math.inf
        for partition, end in self._open_ranges().items():
            count = end - self.start.at[partition.partition]
            if size + count > _TURN_RECORDS:
                turns.append({})
                size = 0
            turns[-1][partition] = end
            size += count
        yield from self._run(turns, None)

    def require_same_topic(self) -> None:
        """Refuse a topic that was created again since its positions were looked up."""
        TopicWatch(self._positions, self.start.topic_id).require_same_topic()

    def _open_ranges(self) -> dict[TopicPartition, int]:
        """Return the end of each partition that has offsets to read."""
        return {
            TopicPartition(self.start.topic, number): end for number, (start, end) in self.bounds.items() if start < end
        }

    def _run(
        self, turns: list[dict[TopicPartition, int]], limit: int | None
    ) -> Generator[tuple[int, InputBatch] | None, None, None]:
        """Yield the records of each turn, and None after it."""
        ends = {partition: end for turn in turns for partition, end in turn.items()}
        if not ends:
            return
        # Of the last records it is known that they are of the topic that the bounds are of; of others, once in a while.
        watch = TopicWatch(self._positions, self.start.topic_id)
        looked_at = -math.inf
        position = {each: self.start.at[each.partition] for each in ends}
        left = math.inf if limit is None else limit
        fetching = _FETCHING_FEW if left <= _FEW_RECORDS else _FETCHING
        most = min(RECORDS, limit or RECORDS)
        with contextlib.closing(self._links.feed({**fetching, **self._options})) as feed:
            feed.add(position)
            for ends in turns:
                feed.resume(ends)
                moved_at = time.monotonic()
                while ends:
                    if time.monotonic() - looked_at > _LOOK_S:
                        watch.check_topic(patient=True)
                        looked_at = time.monotonic()
                    try:
                        with collection_paused():
                            polled = feed.poll(_POLL_S, most)
                    except (KafkaRequestError, OffsetOutOfRangeError):
                        watch.check_topic()
                        raise
                    if self._on_poll is not None:
                        self._on_poll(sum(_count_bytes(records) for _, records in polled))
                    inside = [each for each in (_find_within(*batch, ends) for batch in polled) if each[1].offsets]
                    for partition, records in polled:
                        position[partition] = records.offsets[-1] + 1
                    has_moved = _advance_to_ends(feed, position, ends) or bool(polled)
                    done = [each for each, end in ends.items() if position[each] >= end]
                    feed.remove(done)
                    for each in done:
                        del ends[each]
                    left -= sum(len(records.offsets) for _, records in inside)
                    if not ends or left <= 0:
                        watch.require_same_topic()
                    yield from inside
                    # After the rows, for which a caller may take any time.
                    if has_moved:
                        moved_at = time.monotonic()
                    if time.monotonic() - moved_at > self._timeout:
                        raise self._make_stuck_error(position, ends)
                yield None

    def _make_stuck_error(
        self, position: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> KafkaRequestError:
        partition, end = next(iter(ends.items()))
        at = position[partition]
        bounds = self._positions.read_bounds([partition.partition])
        if bounds.readable[partition.partition] <= at < bounds.high[partition.partition]:
            reason = (
                "a transaction of a producer is open there; it ends at the latest after its transaction.timeout.ms, so try "
                "again then"
            )
        else:
            reason = "its broker sends no records; look at the logs of the brokers"
        return KafkaRequestError(
            f"the scan of {partition} came to offset {at} of {end}, and no further for {self._timeout:g} s: {reason}",
            retriable=True,
        )


def _count_bytes(records: InputBatch) -> int:
    return sum(len(each) for part in (records.keys, records.values) for each in part if each is not None)


def _find_within(
    partition: TopicPartition, records: InputBatch, ends: dict[TopicPartition, int]
) -> tuple[int, InputBatch]:
    """Return the number of a partition, and those of its records that are before its end."""
    end = ends.get(partition, 0)
    if records.offsets[-1] >= end:
        records = slice_of(records, 0, bisect.bisect_left(records.offsets, end))
    return partition.partition, records


def _advance_to_ends(feed: RecordFeed, position: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> bool:
    """Move to the ends of partitions that are read to them, and return whether a position moved."""
    moved = False
    for each, end in feed.ends().items():
        if each in ends and end > position[each]:
            position[each] = end
            moved = True
    return moved
