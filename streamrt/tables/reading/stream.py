"""`TableStream`: follows the rows of a table as they are written."""

import collections
import contextlib
import logging
import math
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa
from typing_extensions import Self

from streamrt.arguments import checked_int
from streamrt.errors import (
    ArgumentValueError,
    InvalidOperationError,
    OffsetOutOfRangeError,
    SerializationError,
    TopicNotFoundError,
)
from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.completion_token import Offsets
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.tables.access.links import RecordFeed, TableLinks
from streamrt.tables.access.positions import Positions, Start, TopicPositions, is_by_number
from streamrt.tables.access.topic_watch import TopicWatch
from streamrt.tables.reading.old_rows import OldRows
from streamrt.tables.rows.decoding import RowReader, slice_of
from streamrt.tables.rows.rows import ChangeType, RecordBatch, ScanRecord, ScanRecords

__all__ = ["REFRESH_S", "TableStream"]

logger = logging.getLogger("streamrt.tables")

REFRESH_S = 30.0
"""Seconds between two looks for partitions that were added to the topic."""
_SLICE_S = 0.1
"""Longest wait for records that `close` cannot end."""
_FETCHED = 5_000
"""Records that are fetched at once, if they are there: brokers are asked for the id of the topic once for all of them."""


@dataclass
class _Part:
    """Consecutive records of one partition, and how many of them were returned.

    Attributes:
        partition: number of the partition.
        records: the records.
        end: offset after them.
        changes: what each of them does to the table, if their values do not say it.
        done: how many were returned.
    """

    partition: int
    records: InputBatch
    end: int
    changes: list[ChangeType] | None = None
    done: int = 0

    def is_within_update(self, index: int) -> bool:
        """Whether a record is the second one of an update, which has the offset of the first one."""
        offsets = self.records.offsets
        return 0 < index < len(offsets) and offsets[index] == offsets[index - 1]


class TableStream:
    """The rows of a table from a position on, without an end; `Table.subscribe` returns it.

    As an iterator it returns one row after the other, and waits for those to come; `poll`, `poll_arrow` and `poll_batches`
    return several. All share one position, which is that of the last row that was returned, so that a loop may be broken
    anywhere. It commits nothing and joins no group: keep `str(stream.position)`, and begin there again.

    Methods may be called in any thread, one at a time; `close` ends a wait in another thread.

    A record that is not a row raises when its turn comes, after the rows before it were returned; `seek` moves past it.

    With full changes, an update is two rows, "-U" and "+U", with one offset. Polls return both or none, so they may return
    one row more than they were asked for. Between the two, the position of an iterator is that of the update.

    Example:
        ```python
        with table.subscribe(["id", "amount"], start=saved or "earliest") as stream:
            for record in stream:
                print(record.row)
                saved = str(stream.position)
        ```
    """

    def __init__(
        self,
        links: TableLinks,
        positions: TopicPositions,
        start: Positions,
        reader: RowReader,
        *,
        max_records: int,
        follows_new: bool,
        refresh_s: float = REFRESH_S,
        options: Mapping[str, Any] | None = None,
        old_rows: OldRows | None = None,
    ) -> None:
        self._links = links
        self._options = options
        self._positions = positions
        self._topic = start.topic
        self._watch = TopicWatch(positions, start.topic_id)
        self._reader = reader
        self._max_records = checked_int("max_records", max_records, 1, "a number of rows")
        self._follows_new = follows_new
        self._refresh_s = refresh_s
        self._refreshed_at = time.monotonic()
        self._at = dict(start.at)
        # First offsets of partitions that were added to the topic since.
        self._added_at: dict[int, int] = {}
        # What was fetched, and may be of a topic that was created again, and what is of this topic.
        self._fetched: list[_Part] = []
        self._pending: collections.deque[_Part] = collections.deque()
        self._paused: set[int] = set()
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._old_rows = old_rows
        if old_rows is not None:
            old_rows.move_to(self._at)
        self._feed = self._new_feed(self._at)
        self._feed_is_intact = True

    # -- Rows ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ScanRecord]:
        return self

    def __next__(self) -> ScanRecord:
        """Return the next row; wait for it until the stream is closed.

        Raises:
            StopIteration: when the stream is closed.
            SerializationError: if the next record is not a row.
            OffsetOutOfRangeError: if records were deleted before they were read.
        """
        with self._lock, self._restore_on_error():
            while not self._closing.is_set():
                found = self._take_rows(1, splits_updates=True) if self._has_pending(math.inf) else []
                if found:
                    return found[0]
        raise StopIteration

    def poll(self, timeout: float | None = 1.0, max_records: int | None = None) -> ScanRecords:
        """Return the rows that are there, `max_records` at most; none if none came in time.

        Args:
            timeout: seconds to wait for the first row; None waits until the stream is closed.
            max_records: most rows; by default that of the subscription.

        Raises:
            SerializationError: if the next record is not a row.
            OffsetOutOfRangeError: if records were deleted before they were read.
            StaleTokenError: if the topic was deleted and created again.
            InvalidOperationError: if the stream is closed.
        """
        with self._lock, self._restore_on_error():
            deadline, most = self._begin_read(timeout, max_records)
            found: list[ScanRecord] = []
            while not found and self._has_pending(deadline):
                found = self._take_rows(most)
            by_partition: dict[int, list[ScanRecord]] = {}
            for record in found:
                by_partition.setdefault(record.partition, []).append(record)
            return ScanRecords(self._topic, by_partition)

    def poll_batches(self, timeout: float | None = 1.0, max_records: int | None = None) -> list[RecordBatch]:
        """Return the rows that are there as batches of Arrow, of one partition each, partitions in ascending order.

        Args:
            timeout: seconds to wait for the first row; None waits until the stream is closed.
            max_records: most rows; by default that of the subscription.

        Raises:
            SerializationError: if the next record is not a row.
            OffsetOutOfRangeError: if records were deleted before they were read.
            StaleTokenError: if the topic was deleted and created again.
            InvalidOperationError: if the stream is closed.
        """
        with self._lock, self._restore_on_error():
            deadline, most = self._begin_read(timeout, max_records)
            found: list[RecordBatch] = []
            while not found and self._has_pending(deadline):
                found = self._take_batches(most)
            return sorted(found, key=lambda each: (each.partition, each.first_offset))

    def poll_arrow(self, timeout: float | None = 1.0, max_records: int | None = None) -> pa.Table:
        """Return the rows that are there as one table; an empty one if none came in time.

        Args:
            timeout: seconds to wait for the first row; None waits until the stream is closed.
            max_records: most rows; by default that of the subscription.

        Raises:
            SerializationError: if the next record is not a row.
            OffsetOutOfRangeError: if records were deleted before they were read.
            StaleTokenError: if the topic was deleted and created again.
            InvalidOperationError: if the stream is closed.
        """
        with self._lock, self._restore_on_error():
            found = self.poll_batches(timeout, max_records)
            return pa.Table.from_batches([each.batch for each in found], self._reader.arrow)

    # -- Position ------------------------------------------------------------------------------------------------

    @property
    def position(self) -> Offsets:
        """The position after the last row that was returned; a subscription that starts there returns the next one."""
        return Positions(self._topic, self._watch.topic_id, self._at.copy()).offsets()

    @property
    def partitions(self) -> list[int]:
        """Numbers of the partitions, those that are paused included."""
        return sorted(self._at)

    @property
    def schema(self) -> Schema:
        """The columns of rows."""
        return self._reader.schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of batches, with those that `metadata` adds."""
        return self._reader.arrow

    @property
    def skipped(self) -> int:
        """How many records were skipped because they were not rows."""
        return self._reader.skipped

    def seek(self, start: Start) -> None:
        """Continue elsewhere.

        If the topic was deleted and created again, the stream reads the new one from then on. In that case,
        offsets by partition are refused.

        Args:
            start: where, as in `Table.subscribe`; offsets by partition move only these partitions.

        Raises:
            OffsetOutOfRangeError: if an offset is not in the topic.
            StaleTokenError: if the topic was created again since the token was made, or start is offsets by partition.
            TopicNotFoundError: if the topic does not exist.
            InvalidOperationError: if the stream is closed.
        """
        with self._lock:
            self._require_open()
            moved = self._known_partitions([*start] if is_by_number(start) else None)
            topic_id = self._watch.topic_id
            is_same = topic_id is None or not self._positions.is_another(topic_id)
            if not is_same:
                if is_by_number(start):
                    raise self._positions.stale()
                # The new topic may have other partitions.
                moved = self._positions.chosen(None if self._follows_new else moved)
            found = self._positions.starts(start, self._positions.read_bounds(moved))
            if not is_same:
                self._begin_again(found)
            elif self._watch.topic_id in (None, found.topic_id):
                self._move_positions(dict(found.at))
            else:
                raise self._positions.stale()

    def pause(self, partitions: Collection[int] | None = None) -> None:
        """Return no rows of partitions until `resume`.

        Args:
            partitions: their numbers; None means all.

        Raises:
            ArgumentValueError: if one is not read here.
            InvalidOperationError: if the stream is closed.
        """
        with self._lock:
            self._require_open()
            chosen = self._known_partitions(partitions)
            # What was fetched and not returned is fetched again.
            self._move_positions({number: self._at[number] for number in chosen})
            with self._changing_feed():
                self._feed.pause(self._name_partitions(chosen))
                self._paused.update(chosen)

    def resume(self, partitions: Collection[int] | None = None) -> None:
        """Return rows of partitions again, from where they were paused.

        Args:
            partitions: their numbers; None means all.

        Raises:
            ArgumentValueError: if one is not read here.
            InvalidOperationError: if the stream is closed.
        """
        with self._lock:
            self._require_open()
            chosen = self._known_partitions(partitions)
            with self._changing_feed():
                self._feed.resume(self._name_partitions(chosen))
                self._paused.difference_update(chosen)

    # -- Life ----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the stream is closed."""
        return self._closing.is_set()

    def close(self) -> None:
        """Close the connections. A thread that waits for rows gets none, and a loop ends. `position` stays readable."""
        self._closing.set()
        with self._lock:
            self._fetched.clear()
            self._pending.clear()
            self._feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TableStream of {self._topic!r} at {self._at}{', closed' if self.closed else ''}>"

    # -- Records -------------------------------------------------------------------------------------------------

    def _begin_read(self, timeout: float | None, max_records: int | None) -> tuple[float, int]:
        """Return until when a poll waits, and how many rows it returns at most."""
        self._require_open()
        if timeout is not None and not timeout >= 0:
            raise ArgumentValueError(f"timeout must be 0 or more seconds, got {timeout}")
        most = self._max_records
        if max_records is not None:
            most = checked_int("max_records", max_records, 1, "a number of rows")
        return math.inf if timeout is None else time.monotonic() + timeout, most

    @contextlib.contextmanager
    def _restore_on_error(self) -> Iterator[None]:
        """Return to the position of before if an interrupt, such as Ctrl+C, keeps rows from being returned."""
        before = self._at.copy()
        try:
            yield
        except Exception:
            # No row was taken.
            raise
        except BaseException:
            self._feed_is_intact = False
            # Of partitions that were added meanwhile, all was read here.
            self._at = {number: before.get(number, self._added_at.get(number, at)) for number, at in self._at.items()}
            raise

    def _has_pending(self, deadline: float) -> bool:
        """Return whether there is a record to return, and wait for it."""
        self._mend_feed()
        while not self._pending and not self._closing.is_set():
            left = deadline - time.monotonic()
            slice_s = min(max(left, 0.0), _SLICE_S)
            self._refresh_partitions()
            self._mend_feed()
            if not self._fetched:
                self._fetch_records(slice_s)
            if self._fetched:
                if self._watch.confirm():
                    self._accept_fetched()
                else:
                    self._closing.wait(slice_s)
            if left <= 0:
                break
        return bool(self._pending)

    def _accept_fetched(self) -> None:
        """Let what was fetched be returned."""
        for part in self._fetched:
            if self._old_rows is not None:
                part.records, part.changes = self._old_rows.make_changes(part.partition, part.records)
            self._pending.append(part)
        self._fetched.clear()
        self._drop_done()

    def _fetch_records(self, timeout_s: float) -> None:
        self._watch.require_same()
        if self._old_rows is not None:
            self._old_rows.settle(self._at)
        try:
            found = self._feed.poll(timeout_s, max(self._max_records, _FETCHED))
            self._fetched.extend(
                _Part(partition.partition, records, records.offsets[-1] + 1) for partition, records in found
            )
        except (OffsetOutOfRangeError, KafkaRequestError):
            self._watch.check_topic()
            raise
        if not found:
            # Only markers of transactions, or records that are gone, are before such an end.
            for partition, end in self._feed.ends().items():
                self._at[partition.partition] = max(end, self._at[partition.partition])

    def _take_rows(self, most: int, *, splits_updates: bool = False) -> list[ScanRecord]:
        """Return the next rows; fewer, or none, if skipped records are among them."""
        found: list[ScanRecord] = []
        while self._pending:
            part = self._pending[0]
            if len(found) >= most and (splits_updates or not part.is_within_update(part.done)):
                break
            change = None if part.changes is None else part.changes[part.done]
            try:
                record = self._reader.record(part.partition, part.records, part.done, change)
            except Exception:
                if found:
                    # The next call raises it.
                    break
                raise
            self._advance_pending(1)
            if record is not None:
                found.append(record)
        return found

    def _take_batches(self, most: int) -> list[RecordBatch]:
        """Return the next rows as batches; fewer, or none, if skipped records are among them."""
        found: list[RecordBatch] = []
        left = most
        while self._pending and left > 0:
            part = self._pending[0]
            end = part.done + left
            end += part.is_within_update(end)
            records = slice_of(part.records, part.done, end)
            changes = None if part.changes is None else part.changes[part.done : end]
            try:
                rows, count = self._decode_records(part.partition, records, changes)
            except Exception:
                if found:
                    # The next call raises it.
                    break
                raise
            self._advance_pending(count)
            if rows.num_rows:
                found.append(RecordBatch(rows, part.partition, records.offsets[0], records.offsets[count - 1]))
                left -= rows.num_rows
        return found

    def _decode_records(
        self, partition: int, records: InputBatch, changes: list[ChangeType] | None
    ) -> tuple[pa.RecordBatch, int]:
        """Return the rows before the first record that is none, and how many records are done with."""
        try:
            return self._reader.batch(partition, records, changes), len(records.offsets)
        except SerializationError:
            good = self._reader.leading_good(records)
            if not good:
                raise
            changes = None if changes is None else changes[:good]
            return self._reader.batch(partition, slice_of(records, 0, good), changes), good

    def _advance_pending(self, count: int) -> None:
        """Move past the next records that are pending."""
        part = self._pending[0]
        part.done += count
        # Between the rows of an update, the position is that of the update.
        offset = part.records.offsets[part.done - 1]
        self._at[part.partition] = offset if part.is_within_update(part.done) else offset + 1
        self._drop_done()

    def _drop_done(self) -> None:
        """Move past parts of which everything was returned."""
        while self._pending and self._pending[0].done == len(self._pending[0].records.offsets):
            part = self._pending.popleft()
            self._at[part.partition] = part.end

    # -- Partitions ----------------------------------------------------------------------------------------------

    def _new_feed(self, at: Mapping[int, int]) -> RecordFeed:
        feed = self._links.feed(self._options)
        try:
            feed.add(self._to_offsets(at))
            feed.resume(self._name_partitions([number for number in at if number not in self._paused]))
        except BaseException:
            feed.close()
            raise
        return feed

    def _begin_again(self, start: Positions) -> None:
        """Read another topic of the same name; its client must not know the former one."""
        if self._old_rows is not None:
            self._old_rows.clear()
        self._begin_at(start.at)
        self._watch = TopicWatch(self._positions, start.topic_id)
        self._added_at.clear()
        self._paused.intersection_update(self._at)

    def _begin_at(self, at: Mapping[int, int]) -> None:
        """Read partitions, and no other ones, by a new feed."""
        self._move_old_rows(at)
        former, self._feed = self._feed, self._new_feed(at)
        self._at = dict(at)
        self._fetched.clear()
        self._pending.clear()
        self._feed_is_intact = True
        former.close()

    def _mend_feed(self) -> None:
        """Replace a feed that may not be at the positions."""
        if not self._feed_is_intact and not self._closing.is_set():
            self._begin_at(self._at)

    @contextlib.contextmanager
    def _changing_feed(self) -> Iterator[None]:
        """Change the feed, and afterwards what is known of it, both or neither: after an error, a new one replaces it."""
        try:
            yield
        except BaseException:
            self._feed_is_intact = False
            raise

    def _add_partitions(self, at: dict[int, int]) -> None:
        with self._changing_feed():
            self._move_old_rows(at)
            self._feed.add(self._to_offsets(at))
            self._feed.resume(self._name_partitions(at))
            self._added_at.update(at)
            self._at.update(at)

    def _move_positions(self, at: dict[int, int]) -> None:
        with self._changing_feed():
            self._fetched = [part for part in self._fetched if part.partition not in at]
            self._pending = collections.deque(part for part in self._pending if part.partition not in at)
            self._move_old_rows(at)
            for number, offset in at.items():
                self._feed.seek(TopicPartition(self._topic, number), offset)
            self._at.update(at)

    def _move_old_rows(self, at: Mapping[int, int]) -> None:
        if self._old_rows is not None:
            self._old_rows.move_to(at)

    def _to_offsets(self, at: Mapping[int, int]) -> dict[TopicPartition, int]:
        return {TopicPartition(self._topic, number): offset for number, offset in at.items()}

    def _name_partitions(self, numbers: Collection[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in numbers]

    def _known_partitions(self, partitions: Collection[int] | None) -> list[int]:
        chosen = sorted(self._at) if partitions is None else list(partitions)
        for number in chosen:
            if number not in self._at:
                raise ArgumentValueError(
                    f"partition {number!r} of topic {self._topic!r} is not read here: the stream has partitions "
                    f"{', '.join(map(str, self.partitions))}"
                )
        return chosen

    def _require_open(self) -> None:
        if self._closing.is_set():
            raise InvalidOperationError(f"the stream of topic {self._topic!r} is closed: subscribe again")

    def _refresh_partitions(self) -> None:
        """Look, once in a while, for partitions that were added."""
        if time.monotonic() - self._refreshed_at < self._refresh_s:
            return
        try:
            self._watch.check_topic(patient=True)
            if self._follows_new:
                self._read_new_partitions()
        finally:
            # Afterwards: brokers that do not answer are not asked again at once.
            self._refreshed_at = time.monotonic()

    def _read_new_partitions(self) -> None:
        with contextlib.suppress(KafkaRequestError, TopicNotFoundError):
            new = [number for number in range(self._positions.count()) if number not in self._at]
            if new:
                # All their records are newer than the subscription.
                bounds = self._positions.read_bounds(new)
                if bounds.topic_id != self._watch.topic_id:
                    # The next look raises it.
                    return
                at = dict(bounds.low)
                self._add_partitions(at)
                logger.info("topic %s has new partitions, which are read from their beginning: %s", self._topic, new)
