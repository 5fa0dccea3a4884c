"""`LocalFileSource`: the records of files of this machine."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.files.compressions import CompressionName
from streamrt.connectors.files.formats import Format, FormatName
from streamrt.connectors.sources.file_reading import FileEntry, is_hidden, partition_count
from streamrt.connectors.sources.files import FileSource

__all__ = ["LocalFileSource"]


class LocalFileSource(FileSource):
    """Produces the records of a file, or of all files in a directory, of the machine on which the application was started.

    See `FileSource` for the order, the state and the form of records.

    Args:
        filepath: the file or the directory. A relative path is relative to the directory in which the application was
            started.
        key_setter: function from a record to its key; bytes are produced as they are, other keys are serialized.
        value_setter: function from a record to its value.
        timestamp_setter: function from a record to its timestamp: milliseconds since the Unix epoch, a datetime, or None for
            the time of producing.
        file_format: "json" (one document on each line), "parquet", "csv", or a `Format`.
        compression: "gzip", "bz2" or "xz"; None for uncompressed files.
        has_partition_folders: whether each file lies in a folder whose name is a partition number.
        replay_speed: factor of the time between two records of a folder: 0 for no waits, 1 for the original time.
        name: name of the source, unique in the application; by default the last part of `filepath`.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

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
        )
        # The process of the source may have another working directory.
        self._filepath = str(Path(filepath).absolute())

    def list_entries(self, path: str) -> Iterator[FileEntry]:
        """Yield the files below a path, with their sizes, ordered by path.

        Args:
            path: the path.
        """
        place = Path(path)
        if not place.is_dir():
            yield FileEntry(path, place.stat().st_size)
            return
        for found in sorted(place.iterdir()):
            if is_hidden(found.name):
                continue
            if found.is_dir():
                yield from self.list_entries(str(found))
            elif found.is_file():
                yield FileEntry(str(found), found.stat().st_size)

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
        if not Path(self._filepath).exists():
            raise self.missing()

    def may_pass(self, error: BaseException) -> bool:
        """Return False: errors of local files do not pass.

        Args:
            error: the error.
        """
        return False
