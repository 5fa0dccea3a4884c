"""`LocalFileSource`: the records of files of this machine."""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from typing_extensions import Unpack

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.file_sources.file_names import is_hidden, partition_count
from streamrt.connectors.file_sources.file_reading import FileEntry
from streamrt.connectors.file_sources.file_source import FileOptions, FileSource
from streamrt.connectors.files.compressions import CompressionName
from streamrt.connectors.files.formats import Format, FormatName

__all__ = ["LocalFileSource"]

logger = logging.getLogger("streamrt.connectors")

_TICK_NS = 100_000_000
"""Longer than between two ticks of the clock of a file system of this machine."""


class LocalFileSource(FileSource):
    """Produces the records of a file, or of all files in a directory, of the machine on which the application was started.

    See `FileSource` for the order, the state and the form of records.

    Args:
        filepath: the file, the directory or a pattern such as `logs/**/*.jsonl`. A relative path is relative to the directory
            in which the application was started.
        key_setter: function from a record to its key; bytes are produced as they are, other keys are serialized.
        value_setter: function from a record to its value.
        timestamp_setter: function from a record to its timestamp: milliseconds since the Unix epoch, a datetime, or None for
            the time of producing.
        file_format: "json" (one document on each line), "csv", "text" (lines), "parquet", "avro", or a `Format`.
        compression: "gzip", "bz2", "xz", "zstd" or "none"; by default, the extension of each file decides.
        has_partition_folders: whether each file lies in a folder whose name is a partition number.
        replay_speed: factor of the time between two records of a folder: 0 for no waits, 1 for the original time.
        name: name of the source, unique in the application; by default the last part of `filepath`.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        options: `monitor_continuously`, `unfinished` and `on_error`: see `FileSource`.

    Raises:
        ConfigurationError: if an argument cannot be used.

    Example:
        ```python
        orders = LocalFileSource("data/orders", file_format="parquet", has_partition_folders=True, replay_speed=0)
        sdf = app.dataframe(source=orders)
        ```
    """

    def __init__(
        self,
        filepath: str | Path,
        key_setter: Callable[[Any], Any] | None = None,
        value_setter: Callable[[Any], Any] | None = None,
        timestamp_setter: Callable[[Any], Any] | None = None,
        file_format: Format | FormatName = "json",
        compression: CompressionName | None = None,
        has_partition_folders: bool = False,
        replay_speed: float = 1.0,
        name: str | None = None,
        shutdown_timeout: float = 30,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        **options: Unpack[FileOptions],
    ) -> None:
        super().__init__(
            filepath,
            key_setter,
            value_setter,
            timestamp_setter,
            file_format,
            compression,
            has_partition_folders,
            replay_speed,
            name,
            shutdown_timeout,
            on_client_connect_success,
            on_client_connect_failure,
            **options,
        )
        # The process of the source may have another working directory.
        self._filepath = str(Path(self._filepath).absolute())
        self._literal = Path(filepath).absolute()

    def list_entries(self, path: str) -> Iterator[FileEntry]:
        """Yield the files below a path, with their sizes, versions and inodes, ordered by path.

        A file that a symbolic link names is left out if its own name is also found.

        Args:
            path: the path.
        """
        place = Path(path)
        if not place.is_dir():
            yield _make_entry(path, place.stat())
            return
        found = list(self._walk_directory(place, (), linked=False))
        own = {entry.identity for entry, linked in found if not linked}
        for entry, linked in found:
            if not linked:
                yield entry
            elif entry.identity not in own:
                own.add(entry.identity)
                yield entry

    def _walk_directory(
        self, place: Path, above: tuple[tuple[int, int], ...], *, linked: bool
    ) -> Iterator[tuple[FileEntry, bool]]:
        """Yield the files in a directory, each with whether a symbolic link leads to it."""
        status = place.stat()
        key = status.st_dev, status.st_ino
        if key in above:
            logger.warning(
                "the source %s leaves out %s: it is a symbolic link to a directory above it", self.name, place
            )
            return
        for child in sorted(place.iterdir()):
            if is_hidden(child.name):
                continue
            # Whatever is here may be renamed or removed just now.
            with contextlib.suppress(FileNotFoundError):
                through = linked or child.is_symlink()
                if child.is_dir():
                    yield from self._walk_directory(child, (*above, key), linked=through)
                elif child.is_file():
                    yield _make_entry(str(child), child.stat()), through

    def read_file(self, filepath: Any) -> BinaryIO:
        """Open a file.

        Args:
            filepath: a path of `get_file_list`.
        """
        return Path(filepath).open("rb")

    def file_partition_counter(self) -> int:
        """Return the number of partitions that the folders need: the largest number, plus 1."""
        place = Path(self._filepath)
        return partition_count(self.name, (found.name for found in place.iterdir() if found.is_dir()))

    def check(self) -> None:
        """Raise an error if the path does not exist.

        Raises:
            SourceError: if there is no such file or directory.
        """
        if self._pattern is not None and self._literal.exists():
            # A name with brackets.
            self._filepath, self._pattern = str(self._literal), None
        if not Path(self._filepath).exists():
            raise self.missing()

    def may_pass(self, error: BaseException) -> bool:
        """Return False: errors of local files do not pass.

        Args:
            error: the error.
        """
        return False


def _make_entry(path: str, status: os.stat_result) -> FileEntry:
    # The time of the inode as well: a copy may have set the other one back.
    version = f"{status.st_mtime_ns:x}-{status.st_ctime_ns:x}-{status.st_ino:x}"
    now = time.time_ns()
    if abs(now - max(status.st_mtime_ns, status.st_ctime_ns)) < _TICK_NS:
        # Another change may get the same times: the next look compares the content.
        version = f"{version}-{now:x}"
    return FileEntry(path, status.st_size, version, f"{status.st_dev:x}-{status.st_ino:x}")
