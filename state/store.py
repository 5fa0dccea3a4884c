"""The contract of stores: a named, partitioned, ordered map from bytes to bytes with a stamp of its progress.

Kafka is the source of truth. A store partition is a cache of its changelog with one promise: its data matches its stamp
exactly, or opening or reading it raises `StoreCorruptedError`. The implementation decides how fresh it is after a
crash.
"""

import abc
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from streamrt.errors import argument_error
from streamrt.state.identity import Stamp
from streamrt.state.options import RocksDBOptions

__all__ = ["DEFAULT_STORE", "MAX_STORE_NAME", "Store", "StorePartition"]

DEFAULT_STORE: Final = "default"
"""Name of the store that operators use by default."""

MAX_STORE_NAME: Final = 120
"""Number of characters of the longest name."""
_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_STORE_NAME}}}", re.ASCII)


class StorePartition(abc.ABC):
    """The store of one task: bytes to bytes, ordered by key. One process uses it at a time, from one thread.

    Keys are not empty.
    """

    # Data that one transaction has read and passes to the next; only `Transaction` uses it.
    read_cache: Any = None

    @property
    @abc.abstractmethod
    def stamp(self) -> Stamp | None:
        """The stamp of the last write; None before the first write."""

    @abc.abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None.

        Raises:
            StoreCorruptedError: if the data is damaged.
        """

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of several keys, in their order."""
        return [self.get(key) for key in keys]

    @abc.abstractmethod
    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in key order, from `start` (inclusive) to `end` (exclusive).

        Do not write to the partition during the scan.

        Args:
            start: first key, inclusive; `b""` for the first key of the store.
            end: last key, exclusive; None for no bound.
            reverse: whether to scan from the end to the start.
        """

    @abc.abstractmethod
    def write(self, changes: Iterable[tuple[bytes, bytes | None]], stamp: Stamp) -> None:
        """Write changes together with a stamp, all or nothing.

        Args:
            changes: keys and their new values; None deletes. If a key occurs several times, the last change counts.
            stamp: the progress of the store after this write.

        Raises:
            StateError: if the data cannot be written; the partition refuses further use.
        """

    def flush(self, *, wait: bool = True) -> None:  # noqa: B027 - stores may have nothing to do
        """Make buffered writes durable, so that they survive the process.

        Args:
            wait: whether to wait until the writes are durable; otherwise they are written soon.

        Raises:
            StateError: if the data cannot be written; the partition refuses further use.
        """

    @abc.abstractmethod
    def approximate_size(self) -> int:
        """Return the approximate size of the data in bytes."""

    def approximate_entries(self) -> int | None:
        """Return the approximate number of keys, those of indexes included; None if it is unknown.

        It is called now and then, for metrics, and must not look at all keys.
        """
        return None

    def checkpoint(self, folder: Path) -> bool:
        """Write a copy of the data, with its stamp, that `Store.adopt` can read. Later writes do not change the copy.

        Args:
            folder: a folder that does not exist, on the file system of the store.

        Returns:
            False if the store has no such copies.

        Raises:
            StateError: if the copy cannot be written; the partition remains usable.
        """
        return False

    @abc.abstractmethod
    def close(self) -> None:
        """Release the data, so that other processes can open it. Closing twice is allowed."""


class Store(abc.ABC):
    """A named store of one source topic; it locates and opens its partitions.

    Args:
        name: name of the store: letters, digits, `.`, `_` and `-`, at most 120 of them.
        topic: name of the source topic.
        base_dir: directory that holds all stores of the application.
        options: settings of RocksDB; other kinds of stores may ignore them.

    Raises:
        ConfigurationError: if the name is invalid.
    """

    persistent: ClassVar[bool]
    """Whether the data survives the process."""

    adopts: ClassVar[bool] = False
    """Whether partitions have checkpoints, and `adopt` reads them."""

    def __init__(self, name: str, topic: str, base_dir: Path, options: RocksDBOptions | None = None) -> None:
        self.name = checked_name(name)
        self.topic = topic
        self.base_dir = Path(base_dir)
        self.options = RocksDBOptions() if options is None else options

    @abc.abstractmethod
    def open(self, partition: int) -> StorePartition:
        """Open the data of a partition, or create an empty partition.

        Raises:
            StoreCorruptedError: if the data is damaged.
            StoreLockedError: if another process uses it.
            StoreVersionError: if a newer version of StreamRT wrote it.
        """

    @abc.abstractmethod
    def destroy(self, partition: int) -> None:
        """Delete the data of a closed partition. Do nothing if there is no data."""

    def adopt(self, partition: int, folder: Path) -> None:
        """Make a checkpoint the data of a closed partition without data.

        Args:
            partition: number of the partition.
            folder: the folder of the checkpoint; its files are moved.

        Raises:
            StateError: if the partition has data, or is in use.
        """
        raise NotImplementedError(f"{type(self).__name__} has no checkpoints")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, topic={self.topic!r})"


def checked_name(name: str) -> str:
    """Return the name of a store if it is valid.

    Raises:
        ConfigurationError: if the name is invalid.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise argument_error(
            f"{name!r} is not a valid store name: use at most {MAX_STORE_NAME} letters, digits, '.', '_' and '-'",
            of_type=isinstance(name, str),
        )
    return name
