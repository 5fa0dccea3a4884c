"""The common base of all transactions: life cycle, stream time, and the cache that passes to the next transaction.

```
STARTED --prepare()--> PREPARED --flush()--> COMPLETE
   |                      |
   +------discard()-------+----------------> FAILED
```

A transaction holds the reads and writes of one task between two commits. It passes its cached reads to the next
transaction over the same open partition, in `StorePartition.read_cache`. They are taken out at the start, and only
`flush()` puts them back, so the leftovers of a failed transaction are never used. All transactions of a process share
one budget for this cache; see `budget.py`.
"""

import abc
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, ClassVar, Final

from streamrt.errors import StateError
from streamrt.state.base.backlog import Backlog
from streamrt.state.base.budget import cache_budget
from streamrt.state.base.status import TransactionStatus
from streamrt.state.identity import Stamp
from streamrt.state.journal import Journal
from streamrt.state.options import RocksDBOptions
from streamrt.state.store import StorePartition

__all__ = ["BEFORE_ALL", "Change", "Transaction"]

Change = tuple[bytes, "bytes | None"]
"""A key and its new value; None deletes."""

BEFORE_ALL: Final = -(1 << 63)
"""Stream time before the first record."""

_DEFAULT_CACHE_SIZE: Final = RocksDBOptions().object_cache_size


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


class Transaction(abc.ABC):
    """Buffer the writes of a task until its commit; reads see buffered writes.

    One transaction at a time uses a store partition. Each store has one class of transactions, `StoreSpec.transaction`,
    which determines its operations: `StoreTransaction` provides `State`, `TimedTransaction` heads, timelines and
    deadlines.

    Args:
        partition: the open store partition.
        options: only `dumps`, `loads`, `max_evictions_per_flush` and `object_cache_size` may apply here.
        changelog: whether there is a changelog.

    Attributes:
        clock: stream time in milliseconds, as `stream_time`, but a number below all timestamps before the first record.
            Operators may read it for each record; `advance` moves it.
        now: returns the wall clock, in milliseconds since the Unix epoch; the task may replace it.
        cache_size: bytes that all transactions of the process together may keep in memory, as configured for this one.
        journal: where changes are noted, set by `follow`; None if no record is undone.
        reads: number of single keys that operators have read since the last `take_reads`, for metrics.
        misses: how many of them the store had to read.
    """

    __slots__ = (
        "__weakref__",
        "_backlogs",
        "_budget",
        "_cache",
        "_changelog",
        "_limit",
        "_partition",
        "_size",
        "_status",
        "cache_size",
        "clock",
        "journal",
        "misses",
        "now",
        "reads",
    )

    timed: ClassVar[bool] = False
    """Whether it has deadlines."""

    def __init__(
        self, partition: StorePartition, options: RocksDBOptions | None = None, changelog: bool = True
    ) -> None:
        self._partition = partition
        self._changelog = changelog
        self.journal: Journal | None = None
        self.now: Callable[[], int] = _wall_clock
        self._status = TransactionStatus.STARTED
        self._backlogs: dict[str, Backlog] = {}
        stamp = partition.stamp
        self.clock = BEFORE_ALL if stamp is None or stamp.stream_time is None else stamp.stream_time
        cache, partition.read_cache = partition.read_cache, None
        # If the stamp differs, another writer, such as a restore, has changed the partition.
        usable = cache is not None and cache[0] == stamp and cache[-1] is type(self)
        self._cache: Any = cache[1:-1] if usable else None
        # Approximate bytes that it keeps in memory, and that it may keep without a request.
        self._size = self._limit = 0
        self.reads = self.misses = 0
        self.cache_size = _DEFAULT_CACHE_SIZE if options is None else options.object_cache_size
        self._budget = cache_budget()
        self._budget.enter(self)

    @property
    def status(self) -> TransactionStatus:
        """The status of the transaction."""
        return self._status

    @property
    def stream_time(self) -> int | None:
        """The highest timestamp, in milliseconds, of any record of this store partition; None before the first one."""
        return None if self.clock == BEFORE_ALL else self.clock

    @property
    def observed_time(self) -> int | None:
        """The highest event time, in milliseconds, of the records that advance watermarks; None if there are none."""
        return None

    @property
    def own_watermark(self) -> int | None:
        """The watermark of this partition by itself, in milliseconds; None if it is unknown."""
        return self.observed_time

    @staticmethod
    def expiry_clock(stamp: Stamp | None) -> int | None:
        """Return the stream time, in milliseconds, by which entries expire, from a stamp; None before the first record."""
        return None if stamp is None else stamp.stream_time

    @property
    def next_deadline(self) -> int | None:
        """The earliest event time at which a tick finds work, in milliseconds; None if there is none."""
        return None

    @property
    def next_processing_deadline(self) -> int | None:
        """The earliest wall clock time at which a tick finds work, in milliseconds; None if there is none."""
        return None

    @property
    @abc.abstractmethod
    def dirty(self) -> bool:
        """Whether there are writes for a commit to store."""

    @property
    def changed(self) -> bool:
        """Whether there are writes for a commit to store, or changes of backlogs."""
        return self.dirty or any(backlog.changed for backlog in self._backlogs.values())

    def backlog(self, name: str) -> Backlog:
        """Return the records that wait behind an exchange in memory.

        Args:
            name: name of the exchange.
        """
        found = self._backlogs.get(name)
        if found is None:
            if self._status is not TransactionStatus.STARTED:
                raise StateError(f"a transaction that is {self._status.value} has no records that wait")
            found = self._backlogs[name] = Backlog(self._partition, name)
        return found

    def advance(self, timestamp: int) -> None:
        """Move stream time forward to a timestamp in milliseconds; it never goes back."""
        if timestamp > self.clock:
            self.clock = timestamp

    def follow(self, journal: Journal) -> None:
        """Note from now on how changes are undone; without a journal, nothing is noted."""
        self.journal = journal

    def prepare(self) -> list[Change]:
        """Determine the changes to write.

        Returns:
            Keys and values for the changelog, one for each written key; None stands for a deletion.

        Raises:
            StateError: if the transaction is already prepared or has ended.
        """
        self._enter_status(TransactionStatus.PREPARED)
        try:
            return [*self._decide_changes(), *self._backlog_changes()] if self._backlogs else self._decide_changes()
        except BaseException:
            self._fail_transaction()
            raise

    def flush(self, stamp: Stamp) -> None:
        """Write the changes that `prepare()` determined.

        Args:
            stamp: the progress of the store after this write.

        Raises:
            StateError: if the data cannot be written; the transaction fails.
        """
        self._enter_status(TransactionStatus.COMPLETE)
        try:
            changes = (
                chain(self._stored_changes(), self._backlog_changes()) if self._backlogs else self._stored_changes()
            )
            self._partition.write(changes, stamp)
        except BaseException:
            self._fail_transaction()
            raise
        kept = self._keep_cache()
        if kept is not None:
            self._partition.read_cache = (stamp, *kept, type(self))
        self._end_transaction()

    def discard(self) -> None:
        """Drop all writes. A transaction that has already failed is left unchanged."""
        if self._status is not TransactionStatus.FAILED:
            self._enter_status(TransactionStatus.FAILED)
            self._fail_transaction()

    @property
    def held(self) -> int:
        """Approximate bytes of memory that this transaction keeps, or may keep without a request to its budget."""
        return max(self._used, self._limit)

    def give_back(self, size: int) -> None:
        """Drop about `size` bytes of unchanged reads; the budget calls this for other transactions."""
        # A prepared transaction is about to be written, and then releases its memory.
        if self._status is TransactionStatus.STARTED:
            if self._limit > self._used:
                size -= self._limit - self._used
            if size > 0:
                self._forget_reads(size)
            self._limit = self._used

    def take_reads(self) -> tuple[int, int]:
        """Return how many reads the cache and the store have answered since the last call; also after the end."""
        hits, misses = max(0, self.reads - self.misses), self.misses
        self.reads = self.misses = 0
        return hits, misses

    @property
    def _used(self) -> int:
        """Approximate bytes that it keeps in memory."""
        return self._size

    def _fit_budget(self) -> None:
        """Request more memory from the budget, or drop unchanged reads."""
        used = self._used
        granted = self._limit = self._budget.grow(self, used)
        if used > granted:
            # Shrink to half, so that this does not happen for each object that is read.
            self._forget_reads(used - granted // 2)
            # Changes stay, whatever their size. The raised limit avoids a search through them for each object.
            self._limit = max(granted, self._used + granted // 2)

    def _forget_reads(self, size: int) -> None:  # noqa: B027 - there need not be anything
        """Drop about `size` bytes of unchanged reads, oldest first, and subtract them from `_size`."""

    @abc.abstractmethod
    def _decide_changes(self) -> list[Change]:
        """Return the changes for the changelog; no further writes are allowed."""

    @abc.abstractmethod
    def _stored_changes(self) -> Iterable[Change]:
        """Return the changes for the store: those of the changelog, and those that are local to the store."""

    @abc.abstractmethod
    def _keep_cache(self) -> tuple[Any, ...] | None:
        """Return the `_cache` of the next transaction over the same open partition, or None."""

    @abc.abstractmethod
    def _release_data(self) -> None:
        """Release all data after the end of the transaction. Further use must raise an error."""

    def _backlog_changes(self) -> Iterator[Change]:
        """Yield the changes of backlogs, which are the same in the changelog and in the store."""
        for backlog in self._backlogs.values():
            yield from backlog.prepare()

    def _enter_status(self, status: TransactionStatus) -> None:
        if status not in self._status.next:
            raise StateError(f"a transaction that is {self._status.value} cannot become {status.value}")
        self._status = status

    def _fail_transaction(self) -> None:
        self._status = TransactionStatus.FAILED
        self._end_transaction()

    def _end_transaction(self) -> None:
        self._budget.leave(self)
        self._size = self._limit = 0
        self._backlogs = {}
        self._release_data()
