"""The contract of stores: a named, partitioned, ordered map from bytes to bytes that knows how far it is.

Kafka holds the truth. A store partition is a cache of its changelog with one promise: the data in it is exactly the data of
its stamp, or opening or reading it raises `StoreCorruptedError`. How fresh it is after a crash is up to the implementation.
"""

import abc
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from streamrt.errors import argument_error
from streamrt.state.identity import Stamp
from streamrt.state.options import RocksDBOptions

__all__ = ["DEFAULT_STORE", "Store", "StorePartition"]

DEFAULT_STORE: Final = "default"
"""Name of the store that operators use unless they are told another one."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}", re.ASCII)


class StorePartition(abc.ABC):
    """A store for one task: bytes to bytes, ordered by key. One process uses it at a time, from one thread.

    Keys are not empty.
    """

    # What a transaction has read and leaves to the next one; only `Transaction` touches it.
    read_cache: Any = None

    @property
    @abc.abstractmethod
    def stamp(self) -> Stamp | None:
        """The stamp of the last write; None if there was none."""

    @abc.abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None.

        Raises:
            StoreCorruptedError: if the data turns out to be damaged.
        """

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of several keys, in their order."""
        return [self.get(key) for key in keys]

    @abc.abstractmethod
    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in the order of keys, from `start` on and before `end`.

        The partition must not be written to meanwhile.

        Args:
            start: first key, inclusive; `b""` for the first of all.
            end: last key, exclusive; None for no bound.
            reverse: whether to begin at the end.
        """

    @abc.abstractmethod
    def write(self, changes: Iterable[tuple[bytes, bytes | None]], stamp: Stamp) -> None:
        """Write changes together with a stamp, all or nothing.

        Args:
            changes: keys and their new values; None deletes. Of several changes of a key the last one counts.
            stamp: where the store stands then.

        Raises:
            StateError: if the data cannot be written; the partition refuses further use.
        """

    def flush(self, *, wait: bool = True) -> None:  # noqa: B027 - stores may have nothing to do
        """Make what was written survive the process, where a store gathers writes first.

        Args:
            wait: whether to wait until it does; otherwise it will soon.

        Raises:
            StateError: if it cannot be written; the partition refuses further use.
        """

    @abc.abstractmethod
    def approximate_size(self) -> int:
        """Return about how many bytes the data takes."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let the data go, so that others can open it. Closing twice is allowed."""


class Store(abc.ABC):
    """A named store of one source topic, which knows where its partitions lie.

    Args:
        name: name of the store: letters, digits, `.`, `_` and `-`, at most 120 of them.
        topic: name of the source topic.
        base_dir: directory that holds all stores of the application.
        options: settings of RocksDB; stores of other kinds need not care.

    Raises:
        ConfigurationError: if the name is not allowed.
    """

    persistent: ClassVar[bool]
    """Whether the data survives the process."""

    def __init__(self, name: str, topic: str, base_dir: Path, options: RocksDBOptions | None = None) -> None:
        self.name = checked_name(name)
        self.topic = topic
        self.base_dir = Path(base_dir)
        self.options = RocksDBOptions() if options is None else options

    @abc.abstractmethod
    def open(self, partition: int) -> StorePartition:
        """Open the data of a partition, or begin with none.

        Raises:
            StoreCorruptedError: if the data is damaged.
            StoreLockedError: if another process uses it.
            StoreVersionError: if a newer version of StreamRT wrote it.
        """

    @abc.abstractmethod
    def destroy(self, partition: int) -> None:
        """Delete the data of a partition that is closed. Without data, nothing happens."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, topic={self.topic!r})"


def checked_name(name: str) -> str:
    """Return the name of a store if it is allowed.

    Raises:
        ConfigurationError: if it is not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise argument_error(
            f"{name!r} cannot be the name of a store: use letters, digits, '.', '_' and '-', at most 120 of them",
            of_type=isinstance(name, str),
        )
    return name
