"""`TableFollower`: a thread that keeps the current rows of partitions up to date.

```
opening --> following --> closed
               |
               +--> failed (the topic is gone or another one, the store or the disk fails)
```

Brokers that do not answer fail nothing: the rows stay as they are, and reading continues when they answer. If they have not
for so long that compaction may have removed deletes, the rows are read again.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Mapping

from streamrt.common.replica_sizes import ReplicaSize, watch_replica
from streamrt.errors import (
    InvalidOperationError,
    LookupTimeoutError,
    OffsetOutOfRangeError,
    StreamRTError,
    TopicNotFoundError,
)
from streamrt.forks import ForkGuard
from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.completion_token import Offsets
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.state.store import Store
from streamrt.tables.access.links import TableLinks
from streamrt.tables.access.positions import Positions, TopicPositions
from streamrt.tables.access.topic_watch import TopicWatch
from streamrt.tables.replicas.partition_rows import PartitionRows
from streamrt.tables.replicas.replica_snapshots import ReplicaSnapshots, RowsChoice

__all__ = ["TableFollower"]

logger = logging.getLogger("streamrt.tables")

_RECORDS = 5_000
_POLL_S = 0.1
"""Longest wait for records: `close` and partitions that are added wait for its end."""
_PAUSE_S = 1.0
_LOOK_S = 30.0
_OFFER_S = 1.0
_FETCHING = {"fetch.wait.max.ms": 100, "queued.min.messages": 100_000, "max.partition.fetch.bytes": 8 * 1024 * 1024}


class TableFollower:
    """Keeps the current rows of partitions in stores. It may be used in any thread.

    Args:
        links: reach the topic.
        positions: of the topic.
        store: holds the rows; nothing else uses it.
        partitions: numbers of the partitions; None means all, those that are added later included.
        longest_absence_ms: milliseconds without brokers after which rows are read again.
        lazy: whether partitions are followed only when they are asked for.
        snapshots: what partitions begin with if there is much to read; None for nothing.

    Raises:
        TopicNotFoundError: if the topic does not exist.
        StoreLockedError: if something else uses the store.
        StateError: if the store cannot be used.
    """

    def __init__(
        self,
        links: TableLinks,
        positions: TopicPositions,
        store: Store,
        partitions: Collection[int] | None,
        longest_absence_ms: int,
        *,
        lazy: bool = False,
        snapshots: ReplicaSnapshots | None = None,
    ) -> None:
        self._links = links
        self._positions = positions
        self._store = store
        # Looks must be so frequent that they tell an absence from a pause between two of them.
        self._longest_absence_ms = max(longest_absence_ms, 4_000)
        self._look_s = min(_LOOK_S, self._longest_absence_ms / 4_000)
        self._follows_new = partitions is None and not lazy
        self._fork_guard = ForkGuard()
        self._changed = threading.Condition()
        self._rows: dict[int, PartitionRows] = {}
        # Offsets that must be reached before a partition answers, and offsets that prove that it is complete.
        self._filled_at: dict[int, int] = {}
        self._aims: dict[int, tuple[int, int]] = {}
        self._wanted: set[int] = set()
        self._snapshots = snapshots
        # Partitions that are not read yet, because they may begin with a snapshot.
        self._beginning: dict[int, RowsChoice] = {}
        self._offered_at = float("-inf")
        self._error: BaseException | None = None
        self._closing = threading.Event()
        self._skipped = 0
        self._trouble: KafkaRequestError | None = None
        self._looked_at = time.monotonic()
        self._heard_ms = _now_ms()
        self._fetched: list[tuple[int, InputBatch]] = []
        chosen = positions.chosen(partitions)
        self.count = positions.count()
        self._watch = TopicWatch(positions, positions.topic_id())
        self._feed = links.feed(_FETCHING)
        try:
            if not lazy:
                self._add_partitions(chosen)
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=self._run, name="streamrt-replica", daemon=True)
        self._thread.start()
        watch_replica(self)

    # -- What is there -------------------------------------------------------------------------------------------

    @property
    def topic_id(self) -> str | None:
        """Kafka's id of the topic that is followed."""
        return self._watch.topic_id

    @property
    def table(self) -> str:
        """Name of the table."""
        return self._positions.table

    def measure(self) -> ReplicaSize:
        """Return about how many rows there are, and how many offsets they lacked at the last look at the topic."""
        with self._changed:
            counts = [rows.approximate_count() for rows in self._rows.values()]
            lag = sum(max(0, offset - self._rows[number].position) for number, (offset, _) in self._aims.items())
        return ReplicaSize(None if None in counts else sum(count or 0 for count in counts), lag)

    @property
    def error(self) -> BaseException | None:
        """The error that has ended it, or None."""
        return self._error

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closing.is_set()

    @property
    def is_usable(self) -> bool:
        """Whether it follows, in this process."""
        return self._error is None and not self.closed and self._fork_guard.is_own

    @property
    def skipped(self) -> int:
        """How many records had no key, and so were not rows."""
        return self._skipped

    @property
    def partitions(self) -> list[int]:
        """Numbers of the partitions that are followed."""
        with self._changed:
            return sorted(self._rows)

    @property
    def position(self) -> Offsets:
        """The offsets up to which the rows contain the topic."""
        with self._changed:
            at = {number: rows.position for number, rows in self._rows.items()}
        return Positions(self._positions.topic, self.topic_id, at).offsets()

    def rows(self, partition: int) -> PartitionRows | None:
        """Return the rows of a partition, or None if it is not followed."""
        return self._rows.get(partition)

    def require_open(self) -> None:
        """Raise unless it follows.

        Raises:
            InvalidOperationError: if it is closed, or of a parent process.
            StreamRTError: the error that has ended it.
        """
        name = f"the replica of table {self._positions.table!r}"
        self._fork_guard.require_own(name)
        if self._error is not None:
            if isinstance(self._error, StreamRTError):
                # It would keep the frames of every caller.
                raise self._error.with_traceback(None)
            raise InvalidOperationError(
                f"{name} has ended: {type(self._error).__name__}: {self._error}"
            ) from self._error
        if self._closing.is_set():
            raise InvalidOperationError(f"{name} is closed: make another one")

    def fail(self, error: StreamRTError) -> None:
        """End it with an error, which is raised."""
        with self._changed:
            self._error = self._error or error
        self.close()
        raise error

    # -- Waiting -------------------------------------------------------------------------------------------------

    def want(self, partitions: Collection[int]) -> None:
        """Follow more partitions."""
        with self._changed:
            self._wanted.update(number for number in partitions if number not in self._rows)

    def wait_until(self, targets: Mapping[int, int], deadline: float, what: str) -> None:
        """Wait until partitions have been read to offsets, and to the end that they had when they were opened.

        Args:
            targets: offset by number of partition.
            deadline: value of `time.monotonic()` at which it ends.
            what: what is waited for, for the error.

        Raises:
            LookupTimeoutError: if they have not in time.
            StreamRTError: if following has ended.
        """
        with self._changed:
            while True:
                self.require_open()
                missing = [number for number, offset in targets.items() if not self._has_reached(number, offset)]
                if not missing:
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            number = min(missing)
            offset = max(targets[number], self._filled_at.get(number, 0))
            rows = self._rows.get(number)
        raise self._make_timeout_error(number, None if rows is None else rows.position, offset, what)

    def _has_reached(self, number: int, offset: int) -> bool:
        rows = self._rows.get(number)
        return rows is not None and rows.position >= max(offset, self._filled_at[number])

    def _make_timeout_error(self, number: int, at: int | None, offset: int | None, what: str) -> LookupTimeoutError:
        place = f"{self._positions.topic}[{number}]"
        reason = "it goes on in the background, so try again later, or give it more time by timeout="
        if self._trouble is not None:
            reason = f"brokers do not answer: {self._trouble}"
        elif at is not None:
            with contextlib.suppress(KafkaRequestError, TopicNotFoundError):
                bounds = self._positions.read_bounds([number])
                if bounds.readable[number] <= at < bounds.high[number]:
                    reason = (
                        f"a transaction of a producer is open at offset {at}, and hides what comes after it; it ends at the "
                        "latest after its transaction.timeout.ms"
                    )
        progress = "is not open yet" if at is None else f"is at offset {at}, and must reach {offset}"
        return LookupTimeoutError(
            f"{what} of table {self._positions.table!r} has no answer in time: the copy of {place} {progress}; {reason}"
        )

    # -- Life ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the thread, and close the stores.

        Raises:
            StateError: if they cannot be written.
        """
        self._closing.set()
        if not self._fork_guard.is_own:
            # Neither the thread nor the owner of its locks is here.
            return
        with self._changed:
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._step()
        except BaseException as error:  # noqa: BLE001 - it is raised where rows are looked up
            logger.warning("The replica of table %s ends: %s: %s", self._positions.table, type(error).__name__, error)
            with self._changed:
                self._error = self._error or error
        finally:
            self._release()
            with self._changed:
                self._changed.notify_all()

    def _release(self) -> None:
        """Close the feed and the stores."""
        self._feed.close()
        for rows in self._rows.values():
            try:
                rows.close()
            except StreamRTError as error:
                logger.warning("A store of the replica of table %s was not closed: %s", self._positions.table, error)

    # -- Reading -------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        try:
            with self._changed:
                wanted = self._wanted - self._rows.keys()
            if wanted:
                self._add_partitions(sorted(wanted))
            self._begin_with_snapshots()
            self._look_at_topic()
            if not self._fetched:
                self._fetch_records()
            self._apply_fetched()
            self._offer_snapshots()
            self._trouble = None
        except KafkaRequestError as error:
            if not error.retriable:
                raise
            if self._trouble is None:
                logger.warning(
                    "The replica of table %s is not up to date, because brokers do not answer: %s",
                    self._positions.table,
                    error,
                )
            self._trouble = error
            self._closing.wait(_PAUSE_S)

    def _fetch_records(self) -> None:
        if not self._rows:
            self._closing.wait(_POLL_S / 10)
            return
        self._watch.require_same()
        try:
            polled = self._feed.poll(_POLL_S, _RECORDS)
        except OffsetOutOfRangeError:
            self._watch.check_topic()
            self._restart_partitions()
            return
        except KafkaRequestError:
            self._watch.check_topic()
            raise
        self._fetched = [(partition.partition, records) for partition, records in polled]
        if not polled:
            # Only markers of transactions, or records that are gone, are before such an end.
            self._advance_to_ends()

    def _apply_fetched(self) -> None:
        """Take over what was fetched, once it is known to be of the same topic."""
        if not self._fetched:
            return
        asked_ms = _now_ms()
        if not self._watch.confirm():
            self._closing.wait(_POLL_S)
            return
        fetched, self._fetched = self._fetched, []
        if self._was_absent(asked_ms):
            self._restart_partitions(f"brokers were not reached for {self._longest_absence_ms / 1_000:g} s")
            return
        self._heard_ms = asked_ms
        for number, records in fetched:
            self._count_skipped(self._rows[number].apply(records), number)
        with self._changed:
            self._note_aims()
            self._changed.notify_all()

    def _advance_to_ends(self) -> None:
        with self._changed:
            for partition, end in self._feed.ends().items():
                rows = self._rows[partition.partition]
                if end > rows.position:
                    rows.position = end
                    self._changed.notify_all()
            self._note_aims()

    def _note_aims(self) -> None:
        for number, (offset, asked_ms) in list(self._aims.items()):
            rows = self._rows[number]
            if rows.position >= offset:
                rows.complete_at = asked_ms
                del self._aims[number]

    def _was_absent(self, now_ms: int) -> bool:
        return now_ms - self._heard_ms > self._longest_absence_ms

    def _count_skipped(self, count: int, number: int) -> None:
        if count and not self._skipped:
            logger.warning(
                "%s[%d] of table %s has records without a key, which are not rows; more of them are counted as `skipped`",
                self._positions.topic,
                number,
                self._positions.table,
            )
        self._skipped += count

    # -- Partitions ----------------------------------------------------------------------------------------------

    def _look_at_topic(self) -> None:
        """Once in a while, look whether the topic is still the same, how far its ends are, and for new partitions."""
        if time.monotonic() - self._looked_at < self._look_s:
            return
        self._looked_at = time.monotonic()
        asked_ms = _now_ms()
        self._watch.check_topic(patient=True)
        try:
            bounds = self._positions.read_bounds(list(self._rows))
            self.count = self._positions.count()
        except TopicNotFoundError:
            # A look that is patient has said that this may pass.
            return
        if bounds.topic_id != self._watch.topic_id:
            return
        if self._was_absent(asked_ms):
            self._restart_partitions(f"brokers were not reached for {self._longest_absence_ms / 1_000:g} s")
        self._heard_ms = asked_ms
        for number, rows in self._rows.items():
            self._aims.setdefault(number, (bounds.readable[number], asked_ms))
            rows.keep_stamp(self._longest_absence_ms // 4)
        with self._changed:
            self._note_aims()
        if self._follows_new:
            new = [number for number in range(self.count) if number not in self._rows]
            if new:
                logger.info("topic %s has new partitions, which are followed: %s", self._positions.topic, new)
                self._add_partitions(new)

    def _add_partitions(self, numbers: Collection[int]) -> None:
        now_ms = _now_ms()
        bounds = self._positions.read_bounds(numbers)
        if bounds.topic_id != self._watch.topic_id:
            self._watch.check_topic()
            raise self._positions.stale()
        opened: dict[int, PartitionRows] = {}
        try:
            for number in numbers:
                opened[number] = PartitionRows(self._store, bounds.topic_id, number)
                opened[number].begin(bounds.low[number], bounds.high[number], now_ms, self._longest_absence_ms)
            beginning = {
                number: RowsChoice(rows, bounds.low[number], bounds.high[number], now_ms, self._longest_absence_ms)
                for number, rows in opened.items()
                if self._snapshots is not None and self._snapshots.is_worthwhile(rows, bounds.high[number])
            }
            self._read_from({number: rows.position for number, rows in opened.items() if number not in beginning})
        except BaseException:
            for rows in opened.values():
                with contextlib.suppress(StreamRTError):
                    rows.close()
            raise
        with self._changed:
            self._filled_at.update({number: bounds.readable[number] for number in numbers})
            self._aims.update({number: (bounds.readable[number], now_ms) for number in numbers})
            self._rows.update(opened)
            self._beginning.update(beginning)
            self._note_aims()
            self._changed.notify_all()

    def _begin_with_snapshots(self) -> None:
        """Begin partitions with snapshots; lookups wait until they have been read to the end after it."""
        while self._beginning and self._snapshots is not None and not self._closing.is_set():
            number, choice = self._beginning.popitem()
            self._snapshots.begin(choice, self._closing)
            self._read_from({number: choice.rows.position})
            with self._changed:
                self._note_aims()
                self._changed.notify_all()

    def _offer_snapshots(self) -> None:
        """Let snapshots be taken of partitions that have been read to the end that they had at first."""
        if self._snapshots is None or time.monotonic() - self._offered_at < _OFFER_S:
            return
        self._offered_at = time.monotonic()
        for number, rows in self._rows.items():
            if rows.position >= self._filled_at[number]:
                self._snapshots.offer(rows)

    def _read_from(self, at: Mapping[int, int]) -> None:
        places = {TopicPartition(self._positions.topic, number): offset for number, offset in at.items()}
        self._feed.add(places)
        self._feed.resume(places)

    def _restart_partitions(self, reason: str | None = None) -> None:
        """Read partitions again whose offsets are not in the topic, or, with a reason, all of them."""
        now_ms = _now_ms()
        bounds = self._positions.read_bounds(list(self._rows))
        if bounds.topic_id != self._watch.topic_id:
            self._watch.check_topic()
            return
        with self._changed:
            self._fetched.clear()
            self._beginning.clear()
            for number, rows in self._rows.items():
                low, high = bounds.low[number], bounds.high[number]
                if reason is None and low <= rows.position <= high:
                    continue
                logger.warning(
                    "The replica of %s[%d] is read again: %s",
                    self._positions.topic,
                    number,
                    reason or f"it was at offset {rows.position}, and the topic has {low} to {high}",
                )
                rows.clear(low, now_ms)
                self._filled_at[number] = bounds.readable[number]
                self._aims[number] = (bounds.readable[number], now_ms)
            # By a new client: the former one may still have records of the positions before.
            former, self._feed = self._feed, self._links.feed(_FETCHING)
            former.close()
            self._read_from({number: rows.position for number, rows in self._rows.items()})
            self._heard_ms = now_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
