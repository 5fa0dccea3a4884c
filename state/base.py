"""What all transactions have in common: their life, stream time, and what they leave to the next one.

```
STARTED --prepare()--> PREPARED --flush()--> COMPLETE
   |                      |
   +------discard()-------+----------------> FAILED
```

A transaction has the reads and writes of one task between two commits. What it knows of the store goes on to the next one
over the same open partition, by `StorePartition.read_cache`: taken out at the start and put back by `flush()` alone, so that
nobody ever sees what a transaction that failed has left.
"""

import abc
from collections.abc import Iterable
from typing import Any, Final

from streamrt.errors import StateError
from streamrt.state.identity import Stamp
from streamrt.state.options import RocksDBOptions
from streamrt.state.status import TransactionStatus
from streamrt.state.store import StorePartition

__all__ = ["BEFORE_ALL", "Change", "Transaction"]

Change = tuple[bytes, "bytes | None"]
"""A key and its new value; None deletes."""

BEFORE_ALL: Final = -(1 << 63)
"""Stream time before the first record."""


class Transaction(abc.ABC):
    """Buffers the writes of a task until its commit, and reads through them.

    One transaction at a time uses a store partition. Each store has one class of transactions, `StoreSpec.transaction`,
    which decides what operators can do with it: `StoreTransaction` gives `State`, `TimedTransaction` heads, timelines and
    deadlines.

    Args:
        partition: the open store partition.
        options: `dumps`, `loads` and `max_evictions_per_flush` may count here.
        changelog: whether there is a changelog.

    Attributes:
        clock: stream time in milliseconds, as `stream_time`, but a number below all timestamps before the first record.
            Operators may read it for each record; `advance` moves it.
    """

    __slots__ = ("_cache", "_changelog", "_partition", "_status", "clock")

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

    @property
    def status(self) -> TransactionStatus:
        """Where the transaction stands."""
        return self._status

    @property
    def stream_time(self) -> int | None:
        """The highest timestamp, in milliseconds, that any record brought to this store partition; None before the first."""
        return None if self.clock == BEFORE_ALL else self.clock

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
        self._release()

    def discard(self) -> None:
        """Drop all writes. A transaction that has failed already is left as it is."""
        if self._status is not TransactionStatus.FAILED:
            self._enter(TransactionStatus.FAILED)
            self._fail()

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
        self._release()
