"""Transactions of process functions: `State` with its handles, and timers."""

from typing import Any, ClassVar, Final

from streamrt.errors import StateError
from streamrt.state.access.broadcast import BROADCAST_PREFIX, BROADCAST_RANGE, BroadcastMap, ReadOnlyMap
from streamrt.state.access.handles import MapState
from streamrt.state.access.keyed_state import KeyedState, new_state
from streamrt.state.base import BEFORE_ALL, Change
from streamrt.state.base.status import TransactionStatus
from streamrt.state.identity import Stamp
from streamrt.state.journal import Journal
from streamrt.state.layout import (
    BYTES_KEY,
    DATA_SPACE,
    LATEST_EXPIRY,
    MAP_SPACE,
    NO_KEY,
    SHORT_BYTES_HEADS,
    following,
    split_prefix,
)
from streamrt.state.options import RocksDBOptions
from streamrt.state.store import StorePartition
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.state.transactions.timers import EVENT_TIME, PROCESSING_TIME, Timers

__all__ = ["ProcessTransaction"]

_DATA_START: Final = bytes((DATA_SPACE,))


class ProcessTransaction(StoreTransaction):
    """Keep state and timers of record keys.

    It has two clocks. Stream time, `clock`, is the highest timestamp of its records, by which entries expire. `event_time`
    is the time that timers wait for: stream time, or a watermark of all partitions. The stamp has both: `stream_time` is
    the time of timers, and `observed` is stream time, as in stores of windows.

    Args:
        partition: the open store partition.
        options: as for `StoreTransaction`.
        changelog: whether there is a changelog.

    Attributes:
        event_time: event time in milliseconds, or a number below all timestamps.
        others: the watermark of all other partitions, or a number below all timestamps.
        moves_from: a timestamp above this time moves event time, if the watermark of all partitions is the clock.
        lag_ms: how far the watermark of this partition is behind stream time; None if `marked` has it.
        marked: the watermark of this partition if a generator makes it; None before the first one in this transaction.
        delay_ms: how much later than its time a timer is due; None if ticks do not fire timers of event time.
        event_timers: timers of event time.
        processing_timers: timers of processing time.
        broadcast_bytes: number of bytes that were written to broadcast state since this was set to 0.
    """

    __slots__ = (
        "broadcast_bytes",
        "delay_ms",
        "event_time",
        "event_timers",
        "lag_ms",
        "marked",
        "moves_from",
        "others",
        "processing_timers",
    )

    timed: ClassVar[bool] = True

    def __init__(
        self, partition: StorePartition, options: RocksDBOptions | None = None, changelog: bool = True
    ) -> None:
        super().__init__(partition, options, changelog)
        self.event_time = self.clock
        expiry_clock = self.expiry_clock(partition.stamp)
        self.clock = BEFORE_ALL if expiry_clock is None else expiry_clock
        self.delay_ms: int | None = None
        self.lag_ms: int | None = 0
        self.marked: int | None = None
        self.others = BEFORE_ALL
        self.moves_from = LATEST_EXPIRY
        self.broadcast_bytes = 0
        kept: Any = (None, None) if self._cache is None else self._cache
        self._cache = None
        self.event_timers = Timers(partition, EVENT_TIME, kept[0])
        self.processing_timers = Timers(partition, PROCESSING_TIME, kept[1])

    def follow(self, journal: Journal) -> None:  # noqa: D102
        super().follow(journal)
        self.event_timers.journal = self.processing_timers.journal = journal

    @staticmethod
    def expiry_clock(stamp: Stamp | None) -> int | None:  # noqa: D102
        return None if stamp is None else stamp.observed

    @property
    def dirty(self) -> bool:  # noqa: D102
        return super().dirty or self.event_timers.dirty or self.processing_timers.dirty

    @property
    def stream_time(self) -> int | None:  # noqa: D102
        return None if self.event_time == BEFORE_ALL else self.event_time

    @property
    def observed_time(self) -> int | None:  # noqa: D102
        return None if self.clock == BEFORE_ALL else self.clock

    @property
    def own_watermark(self) -> int | None:  # noqa: D102
        if self.lag_ms is None:
            return self.marked
        return None if self.clock == BEFORE_ALL else max(0, self.clock - self.lag_ms) if self.lag_ms else self.clock

    def hear(self, others: int | None, watermark: int | None, *, still: bool = False) -> None:
        """Move event time to what a tick reports.

        Args:
            others: the watermark of all other partitions; None if there is no news.
            watermark: the watermark of all partitions; None if it is unknown.
            still: whether event time stays where it is before the next record.
        """
        if others is not None:
            self.others = others
            own = None if still else self.own_watermark
            if own is not None:
                self.event_time = max(self.event_time, min(own, others))
        if watermark is not None:
            self.event_time = max(self.event_time, watermark)
        if self.lag_ms is not None:
            self.moves_from = self.event_time + self.lag_ms if self.event_time < self.others else LATEST_EXPIRY

    def move(self, timestamp: int) -> int:
        """Move event time by a record with a timestamp above `moves_from`, and return it.

        Args:
            timestamp: event time of the record, in milliseconds.
        """
        lag, others = self.lag_ms or 0, self.others
        mark = timestamp - lag
        self.event_time = time = mark if mark < others else others
        self.moves_from = time + lag if time < others else LATEST_EXPIRY
        return time

    def note_mark(self, mark: int) -> bool:
        """Note what a generator says of this partition, and return whether it is news.

        Args:
            mark: event time up to which the partition is complete, exclusive, in milliseconds.
        """
        if (self.marked is not None and mark <= self.marked) or mark == BEFORE_ALL:
            return False
        self.marked = mark
        self.event_time = max(self.event_time, min(mark, self.others))
        return True

    @property
    def next_deadline(self) -> int | None:  # noqa: D102
        if self.delay_ms is None:
            return None
        time = self.event_timers.next_time
        return None if time is None else time + self.delay_ms

    @property
    def next_processing_deadline(self) -> int | None:  # noqa: D102
        return self.processing_timers.next_time

    def state_of(self, key: Any, timestamp: int) -> KeyedState:
        """Return the state of a record key, without moving any clock.

        Args:
            key: the record's key.
            timestamp: event time for aggregators.

        Raises:
            SerializationError: if the key has no JSON form.
        """
        if self._status is not TransactionStatus.STARTED:
            raise StateError(f"a transaction that is {self._status.value} cannot provide state")
        if type(key) is bytes and len(key) < 128:
            return new_state(self, SHORT_BYTES_HEADS[len(key)] + key, timestamp)
        return new_state(self, self._make_prefix(key), timestamp)

    def state_at(self, prefix: bytes, timestamp: int) -> KeyedState:
        """Return the state of the record key with a prefix; see `state_of`."""
        if self._status is not TransactionStatus.STARTED:
            raise StateError(f"a transaction that is {self._status.value} cannot provide state")
        return new_state(self, _DATA_START + prefix, timestamp)

    def broadcast(self, name: str, writer: KeyedState | None) -> MapState:
        """Return a map of broadcast state, which belongs to no record key.

        Args:
            name: its name.
            writer: the `broadcast_scope` of the call that may change it; None for a map that is read-only.
        """
        overlay = self.collections.overlay(MAP_SPACE, BROADCAST_PREFIX, name)
        return (
            ReadOnlyMap(self.broadcast_scope(), overlay, None)
            if writer is None
            else BroadcastMap(writer, overlay, None)
        )

    def broadcast_scope(self) -> KeyedState:
        """Return what maps of broadcast state are made from: they end with it."""
        return self.state_at(BROADCAST_PREFIX, 0)

    def broadcast_size(self) -> int:
        """Return the number of stored bytes of broadcast state, without what this transaction has changed."""
        stored = self._partition.scan(BROADCAST_RANGE, following(BROADCAST_RANGE))
        return sum(len(key) + len(data) for key, data in stored)

    def prefix_of(self, key: Any) -> bytes:
        """Return the prefix of a record key, without a space.

        Raises:
            SerializationError: if the key has no JSON form.
        """
        return self._make_prefix(key)[1:]

    def key_of(self, prefix: bytes) -> Any:
        """Return the record key of a prefix: None, bytes, or the decoded JSON."""
        tag, key = split_prefix(prefix)
        return None if tag == NO_KEY else key if tag == BYTES_KEY else self.decode("record key", key)

    @property
    def _used(self) -> int:
        return self._size + self.event_timers.size + self.processing_timers.size

    def _decide_changes(self) -> list[Change]:
        changes = super()._decide_changes()
        for timers in (self.event_timers, self.processing_timers):
            more, local = timers.prepare()
            changes += more
            self._index += local
        return changes

    def _keep_cache(self) -> tuple[Any, ...] | None:
        kept = super()._keep_cache()
        return None if kept is None else (*kept, self.event_timers.keep(), self.processing_timers.keep())

    def _release_data(self) -> None:
        super()._release_data()
        # Without the timers of this transaction, and without iterators over the store.
        self.event_timers = Timers(self._partition, EVENT_TIME)
        self.processing_timers = Timers(self._partition, PROCESSING_TIME)
