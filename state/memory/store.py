"""In-memory stores: for tests, and for state that may be restored at each start."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

from sortedcontainers import SortedDict

from streamrt.errors import StateError, StoreLockedError
from streamrt.state.identity import Stamp
from streamrt.state.options import RocksDBOptions
from streamrt.state.store import Store, StorePartition

__all__ = ["MemoryStore", "MemoryStorePartition"]


class _Data:
    """Data of a partition that outlives its closing."""

    def __init__(self) -> None:
        # Some supported versions of SortedDict have no type parameters at run time.
        self.entries = SortedDict()
        self.stamp: Stamp | None = None
        self.size = 0
        self.open = False


class MemoryStorePartition(StorePartition):
    """A store partition in memory; see `MemoryStore`."""

    def __init__(self, data: _Data, name: str) -> None:
        self._data = data
        self._name = name
        self._closed = False

    @property
    def stamp(self) -> Stamp | None:  # noqa: D102
        return self._data.stamp

    def get(self, key: bytes) -> bytes | None:  # noqa: D102
        self._check_open()
        value: bytes | None = self._data.entries.get(key)
        return value

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:  # noqa: D102
        self._check_open()
        entries = self._data.entries
        for key in entries.irange(start, end, (True, False), reverse=reverse):
            yield key, entries[key]

    def write(self, changes: Iterable[tuple[bytes, bytes | None]], stamp: Stamp) -> None:  # noqa: D102
        self._check_open()
        data = self._data
        # Read all changes before the first is applied: an iterable that raises must change nothing.
        last = dict(changes)
        if b"" in last:
            raise StateError(f"{self._name} received an empty key, which is reserved for stores")
        entries = data.entries
        for key, value in last.items():
            old = entries.get(key)
            if old is not None:
                data.size -= len(key) + len(old)
            if value is not None:
                entries[key] = value
                data.size += len(key) + len(value)
            elif old is not None:
                del entries[key]
        data.stamp = stamp

    def approximate_size(self) -> int:  # noqa: D102
        return self._data.size

    def approximate_entries(self) -> int | None:  # noqa: D102
        return len(self._data.entries)

    def close(self) -> None:  # noqa: D102
        if not self._closed:
            self._closed = True
            self._data.open = False

    def _check_open(self) -> None:
        if self._closed:
            raise StateError(f"{self._name} is closed")


class MemoryStore(Store):
    """A store in memory. Its data lives as long as this object.

    With a changelog, the state is restored at each start of a process; without one, it starts empty.

    Args:
        name: name of the store.
        topic: name of the source topic.
        base_dir: as for other stores; nothing is written there.
        options: only `dumps`, `loads` and `max_evictions_per_flush` apply; the others concern files.

    Example:
        >>> store = MemoryStore("totals", "orders", Path("unused"))
        >>> store.open(0).get(b"key") is None
        True
    """

    persistent: ClassVar[bool] = False

    def __init__(self, name: str, topic: str, base_dir: Path, options: RocksDBOptions | None = None) -> None:
        super().__init__(name, topic, base_dir, options)
        self._partitions: dict[int, _Data] = {}

    def open(self, partition: int) -> MemoryStorePartition:  # noqa: D102
        data = self._partitions.setdefault(partition, _Data())
        name = f"store {self.name!r} of {self.topic}[{partition}]"
        if data.open:
            raise StoreLockedError(f"{name} is already open: close it first")
        data.open = True
        return MemoryStorePartition(data, name)

    def destroy(self, partition: int) -> None:  # noqa: D102
        data = self._partitions.get(partition)
        if data is not None and data.open:
            raise StoreLockedError(
                f"store {self.name!r} of {self.topic}[{partition}] is open: close it before it is destroyed"
            )
        self._partitions.pop(partition, None)
