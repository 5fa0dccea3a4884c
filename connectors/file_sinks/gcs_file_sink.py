"""`GCSFileSink`: files in Google Cloud Storage."""

from collections.abc import Callable
from functools import partial
from typing import Any

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError, RequestError
from streamrt.connectors.file_sinks.file_sink import FileSink
from streamrt.connectors.file_sinks.file_stores import ChangedError, FileStore
from streamrt.connectors.file_sinks.rolling import Folders, Rolling
from streamrt.connectors.files import BatchFormat, BatchFormatName
from streamrt.connectors.google.google_cloud import GoogleCredentials, translated
from streamrt.connectors.libraries import require_library
from streamrt.connectors.object_store import StoreAccess
from streamrt.connectors.retries import Retries
from streamrt.errors import SinkError

__all__ = ["GCSBucketAccessDeniedError", "GCSBucketNotFoundError", "GCSFileSink"]

# The task waits for these; the sink itself tries for longer.
_LIMITS: dict[str, Any] = {"timeout": (5, 30), "retry": None}
_NO_OBJECT = 0
_CHANGED = {"PreconditionFailed", "Conflict"}
_DENIED = {"Forbidden", "Unauthorized", "Unauthenticated"}


class GCSBucketNotFoundError(SinkError):
    """The bucket does not exist."""


class GCSBucketAccessDeniedError(SinkError):
    """The credentials do not give access to the bucket."""


class GCSFileSink(FileSink):
    """Writes a file for each commit and input partition into a bucket of Google Cloud Storage, each value once.

    See `FileSink` for the names of files. The account needs the role `roles/storage.objectUser`. Needs the extra `gcs`.

    Args:
        bucket: name of the bucket.
        project: the project.
        service_account_json: the key of a service account as JSON text, or a function that returns it in the process that
            writes; by default the credentials of the machine (`GOOGLE_APPLICATION_CREDENTIALS`, or those of its account).
        endpoint_url: URL of another service, which is used without credentials unless a key is given. It must know
            `ifGenerationMatch`; `setup` tries it.
        directory: directory in the bucket.
        format: "json" (JSON lines), "parquet", "csv", or a `BatchFormat`.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        exactly_once: whether positions are stored. Otherwise each value is written at least once.
        name: name of the sink, unique in the application; by default the URL of the directory.
        folders: `DateFolders`, `FieldFolders`, or a function of an item that returns the folder of its file.
        rolling: when a file is closed; by default, each commit closes its files.
        retries: how requests are repeated.

    Raises:
        ConfigurationError: if an argument cannot be used, or google-cloud-storage is not installed.

    Example:
        ```python
        sdf.sink(GCSFileSink("archive", directory="orders", format="parquet"))
        ```
    """

    def __init__(
        self,
        bucket: str,
        project: str | None = None,
        service_account_json: CredentialInput | None = None,
        endpoint_url: str | None = None,
        directory: str = "",
        format: BatchFormatName | BatchFormat = "json",  # noqa: A002 - as in the other file sinks
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        exactly_once: bool = True,
        name: str | None = None,
        folders: Folders | None = None,
        rolling: Rolling | None = None,
        retries: Retries | None = None,
    ) -> None:
        require_library("GCSFileSink", "google.cloud.storage", "gcs")
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
        self._access = StoreAccess("GCSFileSink", "bucket", bucket)
        self._project = self._access.text("project", project)
        self._credentials = GoogleCredentials("GCSFileSink", service_account_json)
        self._endpoint = self._access.url("endpoint_url", endpoint_url)

    @property
    def destination(self) -> str:  # noqa: D102
        return f"gs://{self._access.container}/{self._prefix}".rstrip("/")

    def _connect(self) -> FileStore:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        bucket = self._access.container
        # None stands for those of the machine.
        credentials = self._credentials.make()
        if credentials is None and self._endpoint is not None:
            credentials = AnonymousCredentials()
        options = {"api_endpoint": self._endpoint} if self._endpoint else None
        make = partial(storage.Client, project=self._project, credentials=credentials, client_options=options)
        store = _GCSStore(_call_store(bucket, make), bucket, self._prefix)
        store.check_bucket()
        if self._exactly_once:
            store.check_conditions(f"bucket {bucket!r}")
        return store


class _GCSStore(FileStore):
    """A directory of a bucket. Tokens are the generations of objects."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix

    def put(self, name: str, content: bytes) -> None:
        self._upload_blob(name, content)

    def read(self, name: str) -> tuple[bytes, Any] | None:
        def get() -> tuple[bytes, Any]:
            # Content and generation come in one answer.
            blob = self._blob_client(name)
            return blob.download_as_bytes(**_LIMITS), blob.generation

        found: tuple[bytes, Any] | None = _call_store(self._bucket, get, missing=None)
        if found is not None and found[1] is None:
            raise SinkError(
                f"the service of bucket {self._bucket!r} does not name the generation of objects; exactly_once=False does "
                "without"
            )
        return found

    def replace(self, name: str, content: bytes, token: Any) -> Any:
        return self._upload_blob(name, content, if_generation_match=_NO_OBJECT if token is None else token)

    def remove(self, name: str) -> None:
        _call_store(self._bucket, partial(self._blob_client(name).delete, **_LIMITS), missing=None)

    def check_bucket(self) -> None:
        """Look whether the bucket can be used, by what users of objects may do: to ask for the bucket takes another role.

        Raises:
            SinkError: if it does not exist, or refuses access.
        """
        first = self._client.list_blobs(self._bucket, prefix=f"{self._prefix}/".lstrip("/"), max_results=1, **_LIMITS)
        _call_store(self._bucket, partial(next, iter(first), None))

    def _upload_blob(self, name: str, content: bytes, **condition: Any) -> Any:
        blob = self._blob_client(name)
        # Several requests carry a large content; the last one also looks at the condition.
        upload = partial(blob.upload_from_string, content, "application/octet-stream", **condition, **_LIMITS)
        _call_store(self._bucket, upload)
        return blob.generation

    def _blob_client(self, name: str) -> Any:
        return self._client.bucket(self._bucket).blob(f"{self._prefix}/{name}".lstrip("/"))


def _call_store(bucket: str, call: Callable[[], Any], **missing: Any) -> Any:
    try:
        with translated():
            return call()
    except PassingError as error:
        raise PassingError(f"bucket {bucket!r}: {error}") from None
    except RequestError as error:
        if error.code == "NotFound" and missing:
            return missing["missing"]
        if error.code == "NotFound":
            raise GCSBucketNotFoundError(f"the bucket {bucket!r} does not exist") from None
        if error.code in _CHANGED:
            raise ChangedError from None
        denied = error.code in _DENIED
        raise (GCSBucketAccessDeniedError if denied else SinkError)(f"bucket {bucket!r}: {error}") from None
    except Exception as error:
        # Versions of the library have it at different places.
        if type(error).__name__ != "DataCorruption":
            raise
        raise PassingError(f"bucket {bucket!r}: content arrived with another checksum") from None
