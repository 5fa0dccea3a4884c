"""Common parts of file sources of object stores that are read with the client of the vendor."""

import abc
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import Any, BinaryIO, ClassVar

from streamrt.connectors.file_sources.file_names import is_hidden, partition_count
from streamrt.connectors.file_sources.file_reading import FileEntry
from streamrt.connectors.file_sources.file_source import FileSource
from streamrt.connectors.object_store import StoreAccess
from streamrt.errors import SourceError

__all__ = ["BlobSource"]


class BlobSource(FileSource):
    """Base class of file sources of object stores: a flat list of names, of which each is a file."""

    _access: StoreAccess
    _missing_container: ClassVar[type[SourceError]]
    _client: Any = None

    @abc.abstractmethod
    def connected(self) -> Any:
        """Return a client of the bucket."""

    @abc.abstractmethod
    def translated(self) -> AbstractContextManager[None]:
        """Return a context in which errors of the library become those of files, if they do not pass."""

    @abc.abstractmethod
    def entry_of(self, path: str) -> FileEntry | None:
        """Return a file with its size and version, or None if there is none. May raise FileNotFoundError instead.

        Args:
            path: the path in the bucket.
        """

    @abc.abstractmethod
    def list_blobs(self, prefix: str) -> Iterator[FileEntry]:
        """Yield the files whose names begin with a prefix, in their order, with sizes and versions.

        Args:
            prefix: the prefix.
        """

    @abc.abstractmethod
    def folders(self, client: Any, prefix: str) -> Iterable[str]:
        """Return the names that begin with a prefix up to the next slash, which they may have at their end.

        Args:
            client: result of `connected`.
            prefix: the prefix.
        """

    @abc.abstractmethod
    def open_blob(self, path: str) -> BinaryIO:
        """Open a file.

        Args:
            path: the path in the bucket.
        """

    def list_entries(self, path: str) -> Iterator[FileEntry]:
        """Yield the files below a path, with their sizes and versions, ordered by path.

        Args:
            path: the path in the bucket.
        """
        with self.translated():
            entry = self._find_single(path)
            if entry is not None:
                yield entry
                return
            prefix = f"{path}/" if path else ""
            for entry in self.list_blobs(prefix):
                # Some tools keep a directory as an empty blob.
                if entry.size and not any(map(is_hidden, str(entry.path)[len(prefix) :].split("/"))):
                    yield entry

    def read_file(self, filepath: Any) -> BinaryIO:
        """Open a file.

        Args:
            filepath: a path of `get_file_list`.
        """
        with self.translated():
            return self.open_blob(str(filepath))

    def file_partition_counter(self) -> int:
        """Return the number of partitions that the folders need: the largest number, plus 1."""
        path = self._filepath.strip("/")
        with self.translated():
            names = self.folders(self.connected(), f"{path}/" if path else "")
            return partition_count(self.name, (PurePosixPath(name).name for name in names))

    def check(self) -> None:
        """Connect, and raise an error if the bucket or the path does not exist.

        Raises:
            SourceError: if there is no such bucket, file or directory.
        """
        # The paths of the list have no slash at their beginning.
        self._filepath = self._filepath.strip("/")
        self._client = self.connected()
        with self.translated():
            if self._find_single(self._filepath) is not None:
                return
            prefix = f"{self._filepath}/" if self._filepath else ""
            try:
                with self.translated():
                    found = next(self.list_blobs(prefix), None)
            except FileNotFoundError:
                raise self._missing_container(
                    f"there is no {self._access.kind} {self._access.container} for the source {self.name}"
                ) from None
            if found is None and prefix:
                raise self.missing()

    def masked(self, text: str) -> str:
        """Return an error text without secrets.

        Args:
            text: the text.
        """
        return self._access.masked(super().masked(text))

    def _find_single(self, path: str) -> FileEntry | None:
        if not path:
            return None
        try:
            with self.translated():
                entry = self.entry_of(path)
        except FileNotFoundError:
            return None
        # An empty blob of this name can be a directory.
        return entry if entry is not None and entry.size else None
