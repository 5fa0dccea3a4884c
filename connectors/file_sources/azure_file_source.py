"""`AzureFileSource`: the records of files in Azure Blob Storage."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from typing_extensions import Unpack

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.file_sources.blob_files import BlobSource
from streamrt.connectors.file_sources.file_reading import FileEntry
from streamrt.connectors.file_sources.file_source import FileOptions
from streamrt.connectors.files.compressions import CompressionName
from streamrt.connectors.files.formats import Format, FormatName
from streamrt.connectors.files.streams import range_stream
from streamrt.connectors.libraries import require_library
from streamrt.connectors.object_store import StoreAccess
from streamrt.errors import SourceError

__all__ = ["AzureFileSource", "MissingAzureContainer"]

_CONNECT_S = 10
_READ_S = 30
# The source itself tries for longer.
_RETRIES = {"retry_total": 2, "initial_backoff": 1, "increment_base": 2, "random_jitter_range": 0}


class MissingAzureContainer(SourceError):  # noqa: N818 - the name is that of Quix Streams
    """The container does not exist."""


class AzureFileSource(BlobSource):
    """Produces the records of files in a container of Azure Blob Storage.

    See `FileSource` for the order, the state and the form of records. Needs the extra `azure`.

    Args:
        connection_string: connection string of the storage account, or a function that returns it in the process that reads.
        container: name of the container.
        filepath: the file, the folder or a pattern such as `logs/**/*.jsonl`, in the container.
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
        ConfigurationError: if an argument cannot be used, or azure-storage-blob is not installed.

    Example:
        ```python
        orders = AzureFileSource(
            connection_string=lambda: os.environ["AZURE_STORAGE_CONNECTION_STRING"],
            container="archive",
            filepath="topics/orders",
            replay_speed=0,
        )
        sdf = app.dataframe(source=orders)
        ```
    """

    _missing_container: ClassVar[type[SourceError]] = MissingAzureContainer

    def __init__(
        self,
        connection_string: CredentialInput,
        container: str,
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
        require_library("AzureFileSource", "azure.storage.blob", "azure")
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
        self._access = StoreAccess("AzureFileSource", "container", container)
        self._access.hold("connection_string", connection_string, required=True)

    def connected(self) -> Any:
        """Return a client of the container.

        Raises:
            SourceError: if the connection string is none.
        """
        from azure.storage.blob import ContainerClient

        text = self._access.secret("connection_string")
        try:
            return ContainerClient.from_connection_string(
                text, self._access.container, connection_timeout=_CONNECT_S, read_timeout=_READ_S, **_RETRIES
            )
        except (KeyError, ValueError):
            # The error of the library would quote parts of the text.
            raise SourceError(
                f"connection_string of the source {self.name} is not a connection string of a storage account"
            ) from None

    def entry_of(self, path: str) -> FileEntry | None:  # noqa: D102
        properties = self._client.get_blob_client(path).get_blob_properties()
        return FileEntry(path, properties.size, _strip_tag(properties.etag))

    def list_blobs(self, prefix: str) -> Iterator[FileEntry]:  # noqa: D102
        for blob in self._client.list_blobs(name_starts_with=prefix):
            yield FileEntry(blob.name, blob.size, _strip_tag(blob.etag))

    def folders(self, client: Any, prefix: str) -> Iterable[str]:  # noqa: D102
        return (found.name for found in client.walk_blobs(name_starts_with=prefix))

    def open_blob(self, path: str) -> BinaryIO:  # noqa: D102
        from azure.core import MatchConditions

        blob = self._client.get_blob_client(path)
        properties = blob.get_blob_properties()
        # A blob that was replaced meanwhile is opened again, so that a record is not put together of both.
        unchanged = {"etag": properties.etag, "match_condition": MatchConditions.IfNotModified}

        def fetch(start: int, count: int) -> bytes:
            with self.translated():
                data: bytes = blob.download_blob(start, count, **unchanged).readall()
                return data

        return range_stream(fetch, properties.size)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turn errors that do not pass into those of files."""
        from azure.core.exceptions import HttpResponseError

        try:
            yield
        except HttpResponseError as error:
            # The further lines have the whole answer.
            reason = (str(error.message).splitlines() or [""])[0]
            if error.status_code in (401, 403):
                raise PermissionError(reason) from None
            if error.status_code == 404:
                raise FileNotFoundError(reason) from None
            raise


def _strip_tag(etag: str | None) -> str | None:
    # Listings have it without quotes.
    return etag and etag.strip('"')
