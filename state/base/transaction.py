"""What all transactions have in common: their life, stream time, and what they leave to the next one.

```
STARTED --prepare()--> PREPARED --flush()--> COMPLETE
   |                      |
   +------discard()-------+----------------> FAILED
```

A transaction has the reads and writes of one task between two commits. What it knows of the store goes on to the next one
over the same open partition, by `StorePartition.read_cache`: taken out at the start and put back by `flush()` alone, so that
nobody ever sees what a transaction that failed has left. All transactions of a process share one budget for it; see
`budget.py`.
"""

import abc
from collections.abc import Iterable
from typing import Any, Final

from streamrt.errors import StateError
from streamrt.state.budget import cache_budget
from streamrt.state.identity import Stamp
from streamrt.state.options import RocksDBOptions
from streamrt.state.status import TransactionStatus
from streamrt.state.store import StorePartition

__all__ = ["BEFORE_ALL", "Change", "Transaction"]

Change = tuple[bytes, "bytes | None"]
"""A key and its new value; None deletes."""

BEFORE_ALL: Final = -(1 << 63)
"""Stream time before the first record."""

_DEFAULT_CACHE_SIZE: Final = RocksDBOptions().object_cache_size


class Transaction(abc.ABC):
    """Buffers the writes of a task until its commit, and reads through them.

    One transaction at a time uses a store partition. Each store has one class of transactions, `StoreSpec.transaction`,
    which decides what operators can do with it: `StoreTransaction` gives `State`, `TimedTransaction` heads, timelines and
    deadlines.

    Args:
        partition: the open store partition.
        options: `dumps`, `loads`, `max_evictions_per_flush` and `object_cache_size` may count here.
        changelog: whether there is a changelog.

    Attributes:
        clock: stream time in milliseconds, as `stream_time`, but a number below all timestamps before the first record.
            Operators may read it for each record; `advance` moves it.
        cache_size: how many bytes all transactions of the process together may keep in memory, as far as this one knows.
    """

    __slots__ = (
        "__weakref__",
        "_budget",
        "_cache",
        "_changelog",
        "_limit",
        "_partition",
        "_size",
        "_status",
        "cache_size",
        "clock",
    )

    def __init__(
        self, partition: StorePartition, options: RocksDBOptions | None = None, changelog: bool = True
    ) -> None:
        self._partition = partition
        self._changelog = changelog
        self._status = TransactionStatus.STARTED
        stamp = partition.stamp
        self.clock = BEFORE_ALL if stamp is None or stamp.stream_time is None else stamp.stream_time
        cache, partition.read_cache = partition.read_cache, None
        # Somebody else, such as a restore, has written to the partition if its stamp is another one.
        usable = cache is not None and cache[0] == stamp and cache[-1] is type(self)
        self._cache: Any = cache[1:-1] if usable else None
        # About how many bytes it keeps in memory, and how many it may without asking.
        self._size = self._limit = 0
        self.cache_size = _DEFAULT_CACHE_SIZE if options is None else options.object_cache_size
        self._budget = cache_budget()
        self._budget.enter(self)

    @property
    def status(self) -> TransactionStatus:
        """Where the transaction stands."""
        return self._status

    @property
    def stream_time(self) -> int | None:
        """The highest timestamp, in milliseconds, that any record brought to this store partition; None before the first."""
        return None if self.clock == BEFORE_ALL else self.clock

    @property
    def observed_time(self) -> int | None:
        """The highest event time, in milliseconds, of the records that watermarks are made of; None if there are none."""
        return None

    @property
    @abc.abstractmethod
    def dirty(self) -> bool:
        """Whether something was written that a commit would store."""

    def advance(self, timestamp: int) -> None:
        """Move stream time to a timestamp in milliseconds, unless it is there already; it never goes back."""
        if timestamp > self.clock:
            self.clock = timestamp

    def prepare(self) -> list[Change]:
        """Decide what to write.

        Returns:
            Keys and values for the changelog, one for each key that was written; None stands for a deletion.

        Raises:
            StateError: if the transaction was prepared already, or has ended.
        """
        self._enter(TransactionStatus.PREPARED)
        try:
            return self._decide()
        except BaseException:
            self._fail()
            raise

    def flush(self, stamp: Stamp) -> None:
        """Write what `prepare()` has decided.

        Args:
            stamp: where the store stands then.

        Raises:
            StateError: if it cannot be written; the transaction has failed.
        """
        self._enter(TransactionStatus.COMPLETE)
        try:
            self._partition.write(self._decided(), stamp)
        except BaseException:
            self._fail()
            raise
        kept = self._keep()
        if kept is not None:
            self._partition.read_cache = (stamp, *kept, type(self))
        self._end()

    def discard(self) -> None:
        """Drop all writes. A transaction that has failed already is left as it is."""
        if self._status is not TransactionStatus.FAILED:
            self._enter(TransactionStatus.FAILED)
            self._fail()

    @property
    def held(self) -> int:
        """About how many bytes of memory this transaction keeps, or may keep without asking its budget."""
        return max(self._size, self._limit)

    def give_back(self, size: int) -> None:
        """Drop about so many bytes of what was read and not changed; for other transactions, through the budget."""
        # What is prepared is about to be written, and given back then.
        if self._status is TransactionStatus.STARTED:
            if self._limit > self._size:
                size -= self._limit - self._size
            if size > 0:
                self._forget(size)
            self._limit = self._size

    def _fit(self) -> None:
        """Ask the budget for more memory, or drop what was not changed."""
        granted = self._limit = self._budget.grow(self, self._size)
        if self._size > granted:
            # To half of it, so that it is not done for each object that is read.
            self._forget(self._size - granted // 2)
            # What was changed stays, whatever its size; it is not looked through again for each object either.
            self._limit = max(granted, self._size + granted // 2)

    def _forget(self, size: int) -> None:  # noqa: B027 - there need not be anything
        """Drop about so many bytes of what was read and not changed, the oldest first, and count them off `_size`."""

    @abc.abstractmethod
    def _decide(self) -> list[Change]:
        """Return the changes for the changelog; nothing may be written from now on."""

    @abc.abstractmethod
    def _decided(self) -> Iterable[Change]:
        """Return the changes for the store: those for the changelog, and those that are local to the store."""

    @abc.abstractmethod
    def _keep(self) -> tuple[Any, ...] | None:
        """Return what the next transaction over the same open partition finds in `_cache`, or None."""

    @abc.abstractmethod
    def _release(self) -> None:
        """Let all data go, since the transaction has ended. It must refuse to be used."""

    def _enter(self, status: TransactionStatus) -> None:
        if status not in self._status.next:
            raise StateError(f"a transaction that is {self._status.value} cannot become {status.value}")
        self._status = status

    def _fail(self) -> None:
        self._status = TransactionStatus.FAILED
        self._end()

    def _end(self) -> None:
        self._budget.leave(self)
        self._size = self._limit = 0
        self._release()
