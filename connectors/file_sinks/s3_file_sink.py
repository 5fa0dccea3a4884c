"""`S3FileSink`: files in Amazon S3, or a service that speaks its protocol."""

import os
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
from streamrt.errors import ArgumentValueError, SinkError

__all__ = ["S3BucketAccessDeniedError", "S3BucketNotFoundError", "S3FileSink"]

_CHANGED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_MISSING = {"NoSuchKey", "404"}
_BUSY = {"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests"}
_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "401", "403"}


class S3BucketNotFoundError(SinkError):
    """The bucket does not exist."""


class S3BucketAccessDeniedError(SinkError):
    """The credentials do not give access to the bucket."""


class S3FileSink(FileSink):
    """Writes a file for each commit and input partition into a bucket of S3, each value once.

    See `FileSink` for the names of files. The service must know conditional writes (`If-Match` and `If-None-Match` of
    `PutObject`), as Amazon S3 does; `setup` tries them. Needs the extra `s3`.

    Args:
        bucket: name of the bucket.
        aws_access_key_id: id of the access key; by default that of the environment (`AWS_ACCESS_KEY_ID`). Without it, the
            credentials of the machine are used, such as those of its role.
        aws_secret_access_key: the secret key, or a function that returns it in the process that writes; by default that of
            the environment (`AWS_SECRET_ACCESS_KEY`).
        region_name: the region; by default that of the environment (`AWS_REGION`, `AWS_DEFAULT_REGION`).
        endpoint_url: URL of another service; by default that of the environment (`AWS_ENDPOINT_URL_S3`).
        directory: directory in the bucket.
        format: "json" (JSON lines), "parquet", "csv", or a `BatchFormat`.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        exactly_once: whether positions are stored. Without them, no conditional writes are needed, and each value is
            written at least once.
        aws_session_token: the token of temporary credentials, or a function that returns it in the process that writes.
        name: name of the sink, unique in the application; by default the URL of the directory.
        folders: `DateFolders`, `FieldFolders`, or a function of an item that returns the folder of its file.
        rolling: when a file is closed; by default, each commit closes its files.
        retries: how requests are repeated.
        kwargs: more arguments of the client of botocore, such as `verify`.

    Raises:
        ConfigurationError: if an argument cannot be used, or botocore is not installed.

    Example:
        ```python
        sdf.sink(S3FileSink("archive", region_name="eu-central-1", directory="orders", format="parquet"))
        ```
    """

    def __init__(
        self,
        bucket: str,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: CredentialInput | None = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        directory: str = "",
        format: BatchFormatName | BatchFormat = "json",  # noqa: A002 - the name is that of Quix Streams
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        exactly_once: bool = True,
        aws_session_token: CredentialInput | None = None,
        name: str | None = None,
        folders: Folders | None = None,
        rolling: Rolling | None = None,
        retries: Retries | None = None,
        **kwargs: Any,
    ) -> None:
        require_library("S3FileSink", "botocore", "s3")
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
        environment = os.environ
        self._access = StoreAccess("S3FileSink", "bucket", bucket)
        self._prefix = self._prefix_of(directory)
        key_id = self._access.text("aws_access_key_id", aws_access_key_id, environment.get("AWS_ACCESS_KEY_ID"))
        region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        for setting in ("service_name", "config"):
            if setting in kwargs:
                raise ArgumentValueError(f"S3FileSink got {setting}=..., which the sink sets")
        self._settings: dict[str, Any] = {
            **kwargs,
            "aws_access_key_id": key_id,
            "region_name": self._access.text("region_name", region_name, region),
            "endpoint_url": self._access.url("endpoint_url", endpoint_url, environment.get("AWS_ENDPOINT_URL_S3")),
        }
        # Those of the environment belong to its own key.
        ours = {} if aws_access_key_id else environment
        self._access.hold("aws_secret_access_key", aws_secret_access_key or None, ours.get("AWS_SECRET_ACCESS_KEY"))
        self._access.hold("aws_session_token", aws_session_token or None, ours.get("AWS_SESSION_TOKEN"))
        if key_id and not self._access.holds("aws_secret_access_key"):
            raise ArgumentValueError("S3FileSink(aws_access_key_id=...) needs aws_secret_access_key, too")

    @property
    def destination(self) -> str:  # noqa: D102
        return f"s3://{self._access.container}/{self._prefix}".rstrip("/")

    def _connect(self) -> FileStore:
        import botocore.config
        import botocore.session

        settings = dict(self._settings)
        for parameter in ("aws_secret_access_key", "aws_session_token"):
            settings[parameter] = self._access.secret(parameter)
        # The task waits for these; the sink itself tries for longer.
        config = botocore.config.Config(
            connect_timeout=5,
            read_timeout=30,
            retries={"total_max_attempts": 2},
            # Services other than Amazon's need not know the newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        bucket = self._access.container
        store = _S3Store(
            botocore.session.get_session().create_client("s3", config=config, **settings), bucket, self._prefix
        )
        store.check_bucket()
        if self._exactly_once:
            store.check_conditions(f"bucket {bucket!r}")
        return store


class _S3Store(FileStore):
    """A directory of a bucket. Tokens are the entity tags of objects."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix

    def put(self, name: str, content: bytes) -> None:
        self._call_store(partial(self._client.put_object, **self._object_arguments(name), Body=content))

    def read(self, name: str) -> tuple[bytes, Any] | None:
        def get() -> tuple[bytes, Any]:
            answer = self._client.get_object(**self._object_arguments(name))
            return answer["Body"].read(), answer["ETag"]

        try:
            found: tuple[bytes, Any] = self._call_store(get)
        except _MissingError:
            return None
        return found

    def replace(self, name: str, content: bytes, token: Any) -> Any:
        condition = {"IfNoneMatch": "*"} if token is None else {"IfMatch": token}
        try:
            return self._call_store(
                partial(self._client.put_object, **self._object_arguments(name), Body=content, **condition)
            )["ETag"]
        except _MissingError:
            raise ChangedError from None

    def check_bucket(self) -> None:
        """Look whether the bucket can be used.

        Raises:
            SinkError: if it does not exist, or refuses access.
        """
        try:
            self._call_store(partial(self._client.head_bucket, Bucket=self._bucket))
        except _MissingError:
            raise S3BucketNotFoundError(f"the bucket {self._bucket!r} does not exist") from None

    def remove(self, name: str) -> None:
        self._call_store(partial(self._client.delete_object, **self._object_arguments(name)))

    def _object_arguments(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{name}".lstrip("/")}

    def _call_store(self, call: Callable[[], Any]) -> Any:
        import botocore.exceptions

        try:
            return call()
        except botocore.exceptions.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            reason = f"bucket {self._bucket!r} answers {code or status}"
        except (botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError) as error:
            raise PassingError(f"bucket {self._bucket!r} gives no answer ({type(error).__name__})") from None
        except botocore.exceptions.BotoCoreError as error:
            # Missing credentials, or a parameter that an old botocore does not know. The messages may quote settings.
            raise SinkError(f"bucket {self._bucket!r} cannot be used: {type(error).__name__}") from None
        if code in _CHANGED:
            raise ChangedError
        if code in _MISSING:
            raise _MissingError
        if code == "NoSuchBucket":
            raise S3BucketNotFoundError(f"the bucket {self._bucket!r} does not exist")
        if code in _DENIED:
            raise S3BucketAccessDeniedError(f"the bucket {self._bucket!r} refuses access: {code}")
        raise PassingError(reason) if status >= 500 or status == 429 or code in _BUSY else SinkError(reason)


class _MissingError(Exception):
    """There is no such object or bucket."""
