"""`LocalFileSink`: files of this machine."""

from pathlib import Path

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.file_sinks.file_sink import FileSink
from streamrt.connectors.file_sinks.file_stores import FileStore, LocalStore
from streamrt.connectors.file_sinks.rolling import Folders, Rolling
from streamrt.connectors.files import BatchFormat, BatchFormatName
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch
from streamrt.connectors.sinks.transactional import SinkCommit
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SinkError

__all__ = ["AppendNotSupported", "LocalFileSink"]


class AppendNotSupported(ArgumentValueError):  # noqa: N818 - the name is that of Quix Streams
    """Files of the format cannot be appended to."""


class LocalFileSink(FileSink):
    """Writes a file for each commit and input partition into a directory, each value once.

    See `FileSink` for the names of files. Tasks on several machines need a directory that they share, such as one of NFS:
    positions that a task cannot find do not keep it from writing values again.

    Args:
        append: whether there is one file for each input partition, to which values are appended, at least once. The format
            must allow it, as JSON lines do. Other programs must not write to these files. A path is the `directory`.
        directory: path of the directory; it is created if it does not exist. By default, the working directory.
        format: "json" (JSON lines), "parquet", "csv", or a `BatchFormat`.
        exactly_once: whether each value is written once; by default if `append` is false.
        name: name of the sink, unique in the application; by default `directory`.
        folders: `DateFolders`, `FieldFolders`, or a function of an item that returns the folder of its file.
        rolling: when a file is closed; by default, each commit closes its files.
        retries: how requests are repeated, for example while the disk is full.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if an argument cannot be used.

    Example:
        ```python
        sdf.sink(LocalFileSink(directory="/data/orders", format="parquet"))
        ```
    """

    def __init__(
        self,
        append: bool | str | Path = False,
        directory: str | Path = "",
        format: BatchFormatName | BatchFormat = "json",  # noqa: A002 - the name is that of Quix Streams
        *,
        exactly_once: bool | None = None,
        name: str | None = None,
        folders: Folders | None = None,
        rolling: Rolling | None = None,
        retries: Retries | None = None,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        if isinstance(append, str | Path):
            if directory != "":
                raise ArgumentTypeError(
                    f"LocalFileSink got the paths {append!r} and {directory!r}: pass LocalFileSink(directory=..., format=...)"
                )
            directory, append = append, False
        checked_type("LocalFileSink", "append", append, bool, "a bool")
        super().__init__(
            str(directory) if isinstance(directory, Path) else directory,
            format,
            exactly_once=not append if exactly_once is None else exactly_once,
            name=name,
            folders=folders,
            rolling=rolling,
            retries=retries,
            on_client_connect_success=on_client_connect_success,
            on_client_connect_failure=on_client_connect_failure,
        )
        if append and exactly_once:
            raise ArgumentValueError(
                "LocalFileSink(append=True) writes values at least once: leave append or exactly_once out"
            )
        if append and folders is not None:
            raise ArgumentValueError("LocalFileSink(append=True) has one file for each partition: leave out folders")
        if append and not self._format.supports_append:
            raise AppendNotSupported(
                f"LocalFileSink(append=True) cannot append to files of {type(self._format).__name__}: use JSON lines"
            )
        self._append = append

    @property
    def destination(self) -> str:  # noqa: D102
        return self._directory or "."

    def _connect(self) -> FileStore:
        root = Path(self._directory)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SinkError(f"the directory {self.destination} cannot be created: {error.strerror}") from error
        return LocalStore(root)

    def _write_at_least_once(self, batch: SinkBatch, commit: SinkCommit) -> None:
        if not self._append:
            super()._write_at_least_once(batch, commit)
            return
        store: LocalStore = self._store
        content = self._format.serialize(batch)

        def append() -> None:
            folder = self._folder_name(batch)
            name = store.first(folder, self._format.file_extension)
            store.append(name or self._file_name(f"{folder}/", batch, commit), content)

        self._request_retried(append, "appending to")
