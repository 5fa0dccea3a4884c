"""Reads files record by record, for file sources: in another thread than the one that produces."""

import contextlib
import logging
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, Protocol

from streamrt.connectors.files.formats import FileFormatError, Format, PositionBeyondEndError
from streamrt.connectors.files.streams import StorageError, tagged
from streamrt.errors import SourceError

__all__ = [
    "Chunk",
    "FileEntry",
    "FileReader",
    "Files",
    "Position",
    "default_key",
    "default_timestamp",
    "default_value",
    "is_hidden",
    "partition_count",
]

logger = logging.getLogger("streamrt.connectors")

_CHUNK_RECORDS = 500
_CHUNK_BYTES = 1024 * 1024
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_GIVE_UP_S = 600.0
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


class Position(NamedTuple):
    """How far a file was read.

    Attributes:
        position: a position of its format.
        size: if it was read to its end, its size, or -1 if that was unknown; else None.
    """

    position: int = 0
    size: int | None = None


class FileEntry(NamedTuple):
    """A file to read.

    Attributes:
        path: the path for `read_file`.
        size: its size in bytes, or None if it is not known. A file whose size has changed is read on.
    """

    path: str | Path
    size: int | None = None


class Chunk(NamedTuple):
    """Records of a file, each with the position after it.

    Attributes:
        name: path of the file below the path of the source.
        partition: partition of the records without keys, or None.
        records: the records and positions.
        end: at the end of the file, how far it was read; else None.
    """

    name: str
    partition: int | None
    records: list[tuple[Any, int]]
    end: Position | None = None


class Files(Protocol):
    """What the reader needs of a source. Its methods are called in the thread of the reader."""

    name: str

    def entries(self) -> Iterator[FileEntry]:
        """Yield the files, in the order in which they are read."""

    def read_file(self, filepath: Any) -> BinaryIO:
        """Open a file."""

    def name_of(self, path: str) -> str:
        """Return the name under which the position in a file is kept."""

    def position_of(self, name: str) -> Position:
        """Return how far a file was read."""

    def may_pass(self, error: BaseException) -> bool:
        """Return whether an error of the file system may pass."""

    def refused(self, error: BaseException, what: str | None = None) -> SourceError:
        """Return the error for a file that cannot be read."""

    def sleep(self, seconds: float) -> bool:
        """Wait, but no longer than until the source is stopped."""


class FileReader:
    """Reads the files of a source that are not read yet.

    Args:
        files: the source.
        file_format: the format of the files.
        partitioned: whether each file lies in a folder whose name is a partition number.
    """

    def __init__(self, files: Files, file_format: Format, partitioned: bool) -> None:
        self._files = files
        self._format = file_format
        self._partitioned = partitioned

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records that are not produced yet. Files that cannot be reached now are tried again."""
        seen: set[str] = set()
        patience = _Patience(self._files)
        while True:
            try:
                for entry in self._files.entries():
                    name = self._files.name_of(str(entry.path))
                    if name not in seen:
                        seen.add(name)
                        yield from self._chunks_of(entry, name)
                    patience.renew()
            except SourceError:
                raise
            except Exception as error:  # noqa: BLE001 - errors of any library
                patience.spend(error)
            else:
                if not seen:
                    logger.warning("the source %s has found no files", self._files.name)
                return

    def _chunks_of(self, entry: FileEntry, name: str) -> Iterator[Chunk]:
        position, size = self._files.position_of(name)
        if size is not None and entry.size in (None, size):
            return
        partition = partition_of(self._files.name, name, str(entry.path)) if self._partitioned else None
        records: list[tuple[Any, int]] = []
        patience = _Patience(self._files)
        begun = position
        while True:
            try:
                with self._opened(entry.path) as stream:
                    for record, position in self._format.read_from(stream, position):  # noqa: B020 - where it goes on
                        records.append((record, position))
                        if len(records) >= _CHUNK_RECORDS or position - begun >= _CHUNK_BYTES:
                            yield Chunk(name, partition, records)
                            records, begun = [], position
                            patience.renew()
                yield Chunk(name, partition, records, Position(position, -1 if entry.size is None else entry.size))
                return
            except PositionBeyondEndError:
                logger.warning(
                    "%s is shorter than at the last start of the source %s: it is read from its beginning",
                    name,
                    self._files.name,
                )
                position = begun = 0
            except StorageError as failure:
                error = failure.__cause__ or failure
                if isinstance(error, FileNotFoundError):
                    logger.warning("%s was deleted before the source %s had read it", name, self._files.name)
                    yield Chunk(name, partition, records)
                    return
                patience.spend(error, name)
            except Exception as error:
                yield Chunk(name, partition, records)
                reason = (
                    str(error)
                    if isinstance(error, FileFormatError)
                    else f"its format failed with {type(error).__name__}"
                )
                raise SourceError(f"the source {self._files.name} cannot read {name}: {reason}") from error

    @contextlib.contextmanager
    def _opened(self, path: str | Path) -> Iterator[BinaryIO]:
        try:
            stream = self._files.read_file(path)
        except Exception as error:
            raise StorageError from error
        try:
            yield tagged(stream)
        finally:
            with contextlib.suppress(Exception):
                stream.close()


class _Patience:
    """Waits between attempts to reach a file system, each longer than the one before it.

    Args:
        files: the source.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.renew()

    def renew(self) -> None:
        """Note that the file system answers."""
        self._wait_s = _FIRST_WAIT_S
        self._deadline: float | None = None

    def spend(self, error: BaseException, what: str | None = None) -> None:
        """Wait before the next attempt.

        Args:
            error: why one is needed.
            what: what is read; None for the list of files.

        Raises:
            SourceError: if the error will not pass, or has not for long.
        """
        now = time.monotonic()
        self._deadline = now + _GIVE_UP_S if self._deadline is None else self._deadline
        if not self._files.may_pass(error) or now > self._deadline:
            # No cause: libraries put credentials into errors and their frames.
            raise self._files.refused(error, what) from None
        logger.warning("%s; it is tried again in %.1f s", self._files.refused(error, what), self._wait_s)
        self._files.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)


def partition_of(source: str, name: str, path: str) -> int:
    """Return the partition of a file: the name of the folder in which it lies.

    Args:
        source: name of the source.
        name: path of the file below that of the source.
        path: path of the file.

    Raises:
        SourceError: if the folder has no number as its name.
    """
    folder = PurePosixPath(path).parent.name
    if not _NUMBER.fullmatch(folder):
        raise SourceError(
            f"the source {source} cannot read {name}: with has_partition_folders=True, each file lies in a folder whose "
            "name is a partition number"
        )
    return int(folder)


def partition_count(source: str, folders: Iterable[str]) -> int:
    """Return the number of partitions for folders: the largest number, plus 1.

    Args:
        source: name of the source.
        folders: names of the folders.

    Raises:
        SourceError: if no folder has a number as its name.
    """
    numbers = [int(folder) for folder in folders if _NUMBER.fullmatch(folder)]
    if not numbers:
        raise SourceError(
            f"the source {source} has has_partition_folders=True, but there is no folder whose name is a partition number"
        )
    return max(numbers) + 1


def is_hidden(path: str) -> bool:
    """Return whether a file or a directory is to be left out.

    Args:
        path: its path.
    """
    return PurePosixPath(path).name.startswith((".", "_"))


def default_key(record: Any) -> Any:
    """Return the key of a record that a file sink wrote.

    Args:
        record: the record.
    """
    return record.get("_key") if isinstance(record, dict) else None


def default_timestamp(record: Any) -> Any:
    """Return the timestamp of a record that a file sink wrote.

    Args:
        record: the record.
    """
    return record.get("_timestamp") if isinstance(record, dict) else None


def default_value(record: Any) -> Any:
    """Return the value of a record that a file sink wrote, or of any other one.

    Args:
        record: the record.
    """
    if not isinstance(record, dict):
        return record
    if "_value" in record:
        return record["_value"]
    return {name: field for name, field in record.items() if name not in ("_key", "_timestamp")}
