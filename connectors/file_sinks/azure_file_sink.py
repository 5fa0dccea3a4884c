"""`AzureFileSink`: files in Azure Blob Storage."""

from collections.abc import Callable
from functools import partial
from typing import Any

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.file_sinks.file_sink import FileSink
from streamrt.connectors.file_sinks.file_stores import ChangedError, FileStore
from streamrt.connectors.file_sinks.rolling import Folders, Rolling
from streamrt.connectors.files import BatchFormat, BatchFormatName
from streamrt.connectors.libraries import require_library
from streamrt.connectors.object_store import StoreAccess
from streamrt.connectors.retries import Retries
from streamrt.errors import SinkError

__all__ = ["AzureContainerAccessDeniedError", "AzureContainerNotFoundError", "AzureFileSink"]

# The task waits for these; the sink itself tries for longer.
_LIMITS = {
    "connection_timeout": 5,
    "read_timeout": 30,
    "retry_total": 1,
    "initial_backoff": 1,
    "increment_base": 2,
    "random_jitter_range": 0,
}


class AzureContainerNotFoundError(SinkError):
    """The container does not exist."""


class AzureContainerAccessDeniedError(SinkError):
    """The credentials do not give access to the container."""


class AzureFileSink(FileSink):
    """Writes a file for each commit and input partition into a container of Azure Blob Storage, each value once.

    See `FileSink` for the names of files. Needs the extra `azure`.

    Args:
        azure_connection_string: connection string of the storage account, or a function that returns it in the process that
            writes.
        azure_container: name of the container.
        directory: directory in the container.
        format: "json" (JSON lines), "parquet", "csv", or a `BatchFormat`.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        exactly_once: whether positions are stored. Otherwise each value is written at least once.
        name: name of the sink, unique in the application; by default the container and the directory.
        folders: `DateFolders`, `FieldFolders`, or a function of an item that returns the folder of its file.
        rolling: when a file is closed; by default, each commit closes its files.
        retries: how requests are repeated.

    Raises:
        ConfigurationError: if an argument cannot be used, or azure-storage-blob is not installed.

    Example:
        ```python
        sink = AzureFileSink(lambda: os.environ["AZURE_STORAGE_CONNECTION_STRING"], "archive", directory="orders")
        sdf.sink(sink)
        ```
    """

    def __init__(
        self,
        azure_connection_string: CredentialInput,
        azure_container: str,
        directory: str = "",
        format: BatchFormatName | BatchFormat = "json",  # noqa: A002 - the name is that of Quix Streams
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        exactly_once: bool = True,
        name: str | None = None,
        folders: Folders | None = None,
        rolling: Rolling | None = None,
        retries: Retries | None = None,
    ) -> None:
        require_library("AzureFileSink", "azure.storage.blob", "azure")
        super().__init__(
            directory,
            format,
            exactly_once=exactly_once,
            name=name,
            folders=folders,
            rolling=rolling,
            retries=retries,
            on_client_connect_success=on_client_connect_success,
            on_client_connect_failure=on_client_connect_failure,
        )
        self._prefix = self._prefix_of(directory)
        self._access = StoreAccess("AzureFileSink", "azure_container", azure_container)
        self._access.hold("azure_connection_string", azure_connection_string, required=True)

    @property
    def destination(self) -> str:  # noqa: D102
        return f"azure://{self._access.container}/{self._prefix}".rstrip("/")

    def _connect(self) -> FileStore:
        from azure.storage.blob import ContainerClient

        container = self._access.container
        try:
            client = ContainerClient.from_connection_string(
                self._access.secret("azure_connection_string"), container, **_LIMITS
            )
        except (KeyError, ValueError):
            # The error of the library would quote parts of the text.
            raise SinkError(
                "AzureFileSink(azure_connection_string=...) is not a connection string of a storage account"
            ) from None
        store = _AzureStore(client, container, self._prefix)
        store.check_container()
        if self._exactly_once:
            store.check_conditions(f"container {container!r}")
        return store


class _AzureStore(FileStore):
    """A directory of a container. Tokens are the entity tags of blobs."""

    def __init__(self, client: Any, container: str, prefix: str) -> None:
        self._client = client
        self._container = container
        self._prefix = prefix

    def put(self, name: str, content: bytes) -> None:
        self._call_store(partial(self._blob_client(name).upload_blob, content, overwrite=True))

    def read(self, name: str) -> tuple[bytes, Any] | None:
        def get() -> tuple[bytes, Any]:
            download = self._blob_client(name).download_blob()
            return download.readall(), download.properties.etag

        found: tuple[bytes, Any] | None = self._call_store(get, missing=None)
        return found

    def replace(self, name: str, content: bytes, token: Any) -> Any:
        from azure.core import MatchConditions

        blob = self._blob_client(name)
        if token is None:
            upload = partial(blob.upload_blob, content, overwrite=False)
        else:
            upload = partial(
                blob.upload_blob, content, overwrite=True, etag=token, match_condition=MatchConditions.IfNotModified
            )
        return self._call_store(upload)["etag"]

    def remove(self, name: str) -> None:
        self._call_store(self._blob_client(name).delete_blob, missing=None)

    def check_container(self) -> None:
        """Look whether the container can be used.

        Raises:
            SinkError: if it does not exist, or refuses access.
        """
        self._call_store(self._client.get_container_properties)

    def _blob_client(self, name: str) -> Any:
        return self._client.get_blob_client(f"{self._prefix}/{name}".lstrip("/"))

    def _call_store(self, call: Callable[[], Any], **missing: Any) -> Any:
        from azure.core.exceptions import AzureError, HttpResponseError

        try:
            return call()
        except HttpResponseError as error:
            # The messages have the whole answer.
            code = str(getattr(error, "error_code", None) or error.status_code)
            status = error.status_code or 0
        except AzureError as error:
            raise PassingError(f"container {self._container!r} gives no answer ({type(error).__name__})") from None
        if code == "ContainerNotFound" or (status == 404 and not missing and code != "BlobNotFound"):
            raise AzureContainerNotFoundError(f"the container {self._container!r} does not exist")
        if status == 404 and missing:
            return missing["missing"]
        if status in (404, 409, 412):
            raise ChangedError
        if status in (401, 403):
            raise AzureContainerAccessDeniedError(f"the container {self._container!r} refuses access: {code}")
        reason = f"container {self._container!r} answers {code}"
        raise PassingError(reason) if status >= 500 or status in (408, 429) else SinkError(reason)
