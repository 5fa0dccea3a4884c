"""`S3FileSource`: the records of files in Amazon S3, or a service that speaks its protocol."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.file_sources.file_source import FileOptions, FileSource
from streamrt.connectors.files.compressions import CompressionName
from streamrt.connectors.files.formats import Format, FormatName
from streamrt.connectors.libraries import require_library
from streamrt.connectors.object_store import StoreAccess
from streamrt.errors import SourceError

__all__ = ["MissingS3Bucket", "S3FileSource"]

_CONNECT_S = 10
_READ_S = 30


class MissingS3Bucket(SourceError):  # noqa: N818 - the name is that of Quix Streams
    """The bucket does not exist."""


class S3FileSource(FileSource):
    """Produces the records of files in a bucket of Amazon S3, or of a service that speaks its protocol.

    See `FileSource` for the order, the state and the form of records. Needs the extra `s3`.

    Args:
        filepath: the file, the folder or a pattern such as `logs/**/*.jsonl`, in the bucket.
        bucket: name of the bucket.
        region_name: the region; by default that of the environment (`AWS_REGION`).
        aws_access_key_id: id of the access key; by default that of the environment (`AWS_ACCESS_KEY_ID`). Without it, the
            credentials of the machine are used, such as those of its role.
        aws_secret_access_key: the secret key, or a function that returns it in the process that reads; by default that of
            the environment (`AWS_SECRET_ACCESS_KEY`).
        endpoint_url: URL of another service; by default that of the environment (`AWS_ENDPOINT_URL_S3`).
        key_setter: function from a record to its key; bytes are produced as they are, other keys are serialized.
        value_setter: function from a record to its value.
        timestamp_setter: function from a record to its timestamp: milliseconds since the Unix epoch, a datetime, or None for
            the time of producing.
        has_partition_folders: whether each file lies in a folder whose name is a partition number.
        file_format: "json" (one document on each line), "csv", "text" (lines), "parquet", "avro", or a `Format`.
        compression: "gzip", "bz2", "xz", "zstd" or "none"; by default, the extension of each file decides.
        replay_speed: factor of the time between two records of a folder: 0 for no waits, 1 for the original time.
        name: name of the source, unique in the application; by default the last part of `filepath`.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        options: `monitor_continuously`, `unfinished` and `on_error`: see `FileSource`.

    Raises:
        ConfigurationError: if an argument cannot be used, or s3fs is not installed.

    Example:
        ```python
        orders = S3FileSource("topics/orders", bucket="archive", region_name="eu-central-1", replay_speed=0)
        sdf = app.dataframe(source=orders)
        ```
    """

    def __init__(
        self,
        filepath: str | Path,
        bucket: str,
        region_name: str | None = None,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: CredentialInput | None = None,
        endpoint_url: str | None = None,
        key_setter: Callable[[Any], Any] | None = None,
        value_setter: Callable[[Any], Any] | None = None,
        timestamp_setter: Callable[[Any], Any] | None = None,
        has_partition_folders: bool = False,
        file_format: Format | FormatName = "json",
        compression: CompressionName | None = None,
        replay_speed: float = 1.0,
        name: str | None = None,
        shutdown_timeout: float = 30,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        **options: Unpack[FileOptions],
    ) -> None:
        require_library("S3FileSource", "s3fs", "s3")
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
        self._access = StoreAccess("S3FileSource", "bucket", bucket)
        self._region = self._access.text("region_name", region_name, os.environ.get("AWS_REGION"))
        self._key_id = self._access.text("aws_access_key_id", aws_access_key_id, os.environ.get("AWS_ACCESS_KEY_ID"))
        self._access.hold("aws_secret_access_key", aws_secret_access_key, os.environ.get("AWS_SECRET_ACCESS_KEY"))
        self._endpoint = self._access.url("endpoint_url", endpoint_url, os.environ.get("AWS_ENDPOINT_URL_S3"))

    def connect_filesystem(self) -> tuple[Any, str]:
        """Return the file system of fsspec and the path in it."""
        import s3fs

        filesystem = s3fs.S3FileSystem(
            key=self._key_id,
            secret=self._access.secret("aws_secret_access_key"),
            endpoint_url=self._endpoint,
            client_kwargs={"region_name": self._region} if self._region else {},
            config_kwargs={
                "connect_timeout": _CONNECT_S,
                "read_timeout": _READ_S,
                "retries": {"max_attempts": 2},
            },
            # Listings in a cache would hide new files.
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        return filesystem, self._access.path(self._filepath)

    def missing(self) -> SourceError:
        """Return the error for a path that does not exist: the bucket, or the path in it."""
        if self._access.is_there(self._fs):
            return super().missing()
        return MissingS3Bucket(f"there is no bucket {self._access.container} for the source {self.name}")

    def masked(self, text: str) -> str:
        """Return an error text without secrets.

        Args:
            text: the text.
        """
        return self._access.masked(super().masked(text))
