"""`GCSFileSource`: the records of files in Google Cloud Storage."""

import contextlib
import json
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

__all__ = ["GCSFileSource", "MissingGCSBucket"]

_CONNECT_S = 10
_READ_S = 30
_RETRY_S = 3.0


class MissingGCSBucket(SourceError):  # noqa: N818 - as those of the other object stores
    """The bucket does not exist."""


class GCSFileSource(BlobSource):
    """Produces the records of files in a bucket of Google Cloud Storage.

    See `FileSource` for the order, the state and the form of records. Needs the extra `gcs`.

    Args:
        filepath: the file, the folder or a pattern such as `logs/**/*.jsonl`, in the bucket.
        bucket: name of the bucket.
        project: the project.
        service_account_json: the key of a service account as JSON text, or a function that returns it in the process that
            reads; by default the credentials of the machine (`GOOGLE_APPLICATION_CREDENTIALS`, or those of its account).
        endpoint_url: URL of another service, which is used without credentials unless a key is given.
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
        ConfigurationError: if an argument cannot be used, or google-cloud-storage is not installed.

    Example:
        ```python
        orders = GCSFileSource("topics/orders", bucket="archive", replay_speed=0)
        sdf = app.dataframe(source=orders)
        ```
    """

    _missing_container: ClassVar[type[SourceError]] = MissingGCSBucket

    def __init__(
        self,
        filepath: str | Path,
        bucket: str,
        project: str | None = None,
        service_account_json: CredentialInput | None = None,
        endpoint_url: str | None = None,
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
        require_library("GCSFileSource", "google.cloud.storage", "gcs")
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
        self._access = StoreAccess("GCSFileSource", "bucket", bucket)
        self._project = self._access.text("project", project)
        self._access.hold("service_account_json", service_account_json)
        self._endpoint = self._access.url("endpoint_url", endpoint_url)

    def connected(self) -> Any:
        """Return a client of the bucket.

        Raises:
            SourceError: if the key of the service account is none.
        """
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        key = self._access.secret("service_account_json")
        # None stands for those of the machine.
        credentials = None
        if key is not None:
            credentials = self._make_credentials(key)
        elif self._endpoint is not None:
            credentials = AnonymousCredentials()
        options = {"api_endpoint": self._endpoint} if self._endpoint else None
        return storage.Client(project=self._project, credentials=credentials, client_options=options)

    def entry_of(self, path: str) -> FileEntry | None:  # noqa: D102
        blob = self._client.bucket(self._access.container).get_blob(path, **_request_limits())
        return None if blob is None else FileEntry(path, blob.size, str(blob.generation))

    def list_blobs(self, prefix: str) -> Iterator[FileEntry]:  # noqa: D102
        for blob in self._client.list_blobs(self._access.container, prefix=prefix, **_request_limits()):
            yield FileEntry(blob.name, blob.size, str(blob.generation))

    def folders(self, client: Any, prefix: str) -> Iterable[str]:  # noqa: D102
        found = client.list_blobs(self._access.container, prefix=prefix, delimiter="/", **_request_limits())
        return (name for page in found.pages for name in page.prefixes)

    def open_blob(self, path: str) -> BinaryIO:  # noqa: D102
        blob = self._client.bucket(self._access.container).get_blob(path, **_request_limits())
        if blob is None:
            raise FileNotFoundError(f"there is no blob {path}")
        # A blob that was replaced meanwhile is opened again, so that a record is not put together of both.
        generation = blob.generation

        def fetch(start: int, count: int) -> bytes:
            with self.translated():
                data: bytes = blob.download_as_bytes(
                    start=start,
                    end=start + count - 1,
                    if_generation_match=generation,
                    raw_download=True,
                    checksum=None,
                    **_request_limits(),
                )
                return data

        return range_stream(fetch, blob.size)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turn errors that do not pass into those of files."""
        from google.api_core.exceptions import Forbidden, NotFound, Unauthorized
        from google.auth.exceptions import DefaultCredentialsError, MalformedError

        try:
            yield
        except NotFound as error:
            raise FileNotFoundError(error.message) from None
        except (Forbidden, Unauthorized) as error:
            raise PermissionError(error.message) from None
        except (DefaultCredentialsError, MalformedError) as error:
            raise PermissionError(str(error)) from None

    def _make_credentials(self, key: str) -> Any:
        from google.oauth2 import service_account

        make: Any = service_account.Credentials.from_service_account_info
        credentials = None
        # The errors of the library would quote the key.
        with contextlib.suppress(Exception):
            credentials = make(json.loads(key))
        if credentials is None:
            raise SourceError(
                f"service_account_json of the source {self.name} is not the key of a service account: pass the JSON text of "
                "its file"
            )
        return credentials


def _request_limits() -> dict[str, Any]:
    """Return how long a request may take. The source itself tries for longer."""
    from google.cloud.storage.retry import DEFAULT_RETRY

    return {"timeout": (_CONNECT_S, _READ_S), "retry": DEFAULT_RETRY.with_timeout(_RETRY_S)}
