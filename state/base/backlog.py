"""Records that wait in a store, first in, first out: those behind an exchange in memory whose operators have stopped.

Behind a topic, they would wait in it. Each has a number; a backlog that becomes empty begins again.
"""

from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Final

from streamrt.errors import StoreCorruptedError
from streamrt.state.layout import PLAIN, backlog_prefix, following
from streamrt.state.store import StorePartition

__all__ = ["Backlog"]

_NUMBER_BYTES: Final = 8


class Backlog:
    """The records of one exchange in a transaction.

    Args:
        partition: the open store partition.
        name: name of the exchange.

    Attributes:
        changed: whether there are changes for a commit to store.
    """

    __slots__ = ("_added", "_ahead", "_numbers", "_partition", "_removed", "_scan", "_start", "changed")

    def __init__(self, partition: StorePartition, name: str) -> None:
        self._partition = partition
        self._start = start = backlog_prefix(name)
        self._scan: Iterator[tuple[bytes, bytes]] = iter(partition.scan(start, following(start)))
        self._ahead = next(self._scan, None)
        self._added: deque[tuple[bytes, bytes]] = deque()
        self._removed: list[bytes] = []
        self._numbers: Iterator[int] | None = None
        self.changed = False

    def __bool__(self) -> bool:
        """Whether a record waits."""
        return self._ahead is not None or bool(self._added)

    def append(self, record: bytes) -> None:
        """Add a record behind all others."""
        if self._numbers is None:
            stored = self._partition.scan(self._start, following(self._start), reverse=True)
            last = next(iter(stored), None)
            self._numbers = count(0 if last is None else int.from_bytes(last[0][-_NUMBER_BYTES:], "big") + 1)
        self._added.append((self._start + next(self._numbers).to_bytes(_NUMBER_BYTES, "big"), PLAIN + record))
        self.changed = True

    def withdraw(self) -> None:
        """Remove the record that was added last."""
        self._added.pop()

    def pop(self) -> bytes:
        """Remove and return the first record.

        Raises:
            StoreCorruptedError: if its bytes are none of a record.
        """
        self.changed = True
        if self._ahead is None:
            return self._added.popleft()[1][1:]
        key, data = self._ahead
        self._ahead = next(self._scan, None)
        self._removed.append(key)
        if data[:1] != PLAIN:
            raise StoreCorruptedError(f"a record that waits in the store is damaged: {data[:80]!r}")
        return data[1:]

    def prepare(self) -> list[tuple[bytes, bytes | None]]:
        """Return the changes for store and changelog."""
        self._scan = iter(())
        return [*((key, None) for key in self._removed), *self._added]
