"""`KinesisSink`: results as records of an Amazon Kinesis data stream."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from streamrt.connectors.amazon.aws import AWSClient, AWSService, is_about_access
from streamrt.connectors.argument_checks import checked_text
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError, RequestError
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.common import bounded
from streamrt.connectors.sinks.serializing import ItemSerializer, Serializers, decode_key
from streamrt.errors import SinkError

__all__ = ["KinesisSink", "KinesisStreamNotFoundError"]

_REQUEST_RECORDS = 500
# The service takes more, but a shard takes 1 MiB a second.
_REQUEST_BYTES = 2 << 20
_KEY_CHARACTERS = 256
# A full request of small records takes half a second of the limit of one shard, and other writers share it.
_RETRIES = Retries(attempts=7)


class KinesisStreamNotFoundError(SinkError):
    """The stream of a `KinesisSink` does not exist."""


class _Entry(NamedTuple):
    item: SinkItem
    key: str
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data) + len(self.key.encode())


class KinesisSink(BatchingSink):
    """Writes values to an Amazon Kinesis data stream, each as one record.

    The partition key is the key of the record; records without one get the name of their topic and partition. Values are
    written at least once: Kinesis cannot recognize repeats. The order of each key is kept; if the service accepts only a
    part of a request, the later records of a refused record's key are written again after it. Needs the extra `aws`.

    Args:
        stream_name: name of the stream, which must exist.
        aws_access_key_id: the access key ID, or a function that returns it; by default `AWS_ACCESS_KEY_ID` from the
            environment, else what boto3 finds where the sink writes, such as a role.
        aws_secret_access_key: the secret access key, or a function that returns it; by default `AWS_SECRET_ACCESS_KEY`.
        region_name: the region; by default `AWS_REGION`, then `AWS_DEFAULT_REGION`.
        aws_endpoint_url: URL of the service; by default `AWS_ENDPOINT_URL_KINESIS`, then that of AWS.
        value_serializer: returns a value as text or bytes.
        key_serializer: returns a key as text; by default, bytes are read as UTF-8.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        aws_session_token: the token of temporary credentials, or a function that returns it; by default
            `AWS_SESSION_TOKEN`, if the keys also come from the environment.
        kwargs: more arguments of `boto3.client`: `api_version`, `aws_account_id`, `config`, `use_ssl` and `verify`.

    Raises:
        ConfigurationError: if an argument cannot be used, or boto3 is not installed.

    Example:
        ```python
        sdf.sink(KinesisSink("orders", region_name="eu-west-1"))
        ```
    """

    def __init__(
        self,
        stream_name: str,
        aws_access_key_id: CredentialInput | None = None,
        aws_secret_access_key: CredentialInput | None = None,
        region_name: str | None = None,
        aws_endpoint_url: str | None = None,
        value_serializer: ItemSerializer = json.dumps,
        key_serializer: ItemSerializer = decode_key,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        aws_session_token: CredentialInput | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        require_library("KinesisSink", "boto3", "aws")
        checked_text("KinesisSink", "stream_name", stream_name)
        self._stream = stream_name
        self._serializers = Serializers("KinesisSink", key_serializer, value_serializer)
        service = AWSService(
            "KinesisSink",
            "kinesis",
            access_key_id=aws_access_key_id,
            secret_access_key=aws_secret_access_key,
            session_token=aws_session_token,
            region=region_name,
            endpoint_url=aws_endpoint_url,
            options=kwargs,
        )
        self._target = f"the Kinesis stream {stream_name} at {service.where}"
        self._client = AWSClient(service)
        self._record_bytes = 1 << 20

    def __repr__(self) -> str:
        return f"KinesisSink({self._stream!r})"

    def setup(self) -> None:
        """Check that the stream exists and that the credentials are accepted.

        Raises:
            KinesisStreamNotFoundError: if the stream does not exist.
            SinkError: if it cannot be reached.
        """
        try:
            answer = Retries().call(
                lambda: self._client.call("describe_stream_summary", StreamName=self._stream),
                passing=(PassingError,),
                what=f"the look at {self._target}",
            )
        except RequestError as error:
            raise self._make_failure(error) from None
        # A setting of streams, in newer versions of boto3.
        limit_kib = answer["StreamDescriptionSummary"].get("MaxRecordSizeInKiB")
        self._record_bytes = (limit_kib or 1024) << 10

    def write(self, batch: SinkBatch) -> None:
        """Write one batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the service is busy or does not answer.
            SinkError: if a record cannot be written.
        """
        made = (self._make_entry(item, batch) for item in batch)
        for entries in bounded(made, lambda entry: entry.size, count=_REQUEST_RECORDS, total=_REQUEST_BYTES):
            self._put_entries(entries, batch)

    def _make_entry(self, item: SinkItem, batch: SinkBatch) -> _Entry:
        key = self._serializers.key(item, batch) or f"{batch.topic}/{batch.partition}"
        entry = _Entry(item, key, self._serializers.value(item, batch))
        if len(entry.key) > _KEY_CHARACTERS:
            reason = (
                f"the key has {len(entry.key)} characters, and a partition key of Kinesis at most {_KEY_CHARACTERS}"
            )
            raise self._serializers.refused(item, batch, reason)
        if entry.size > self._record_bytes:
            reason = f"it has {entry.size} bytes, and {self._target} takes {self._record_bytes} at most"
            raise self._serializers.refused(item, batch, reason)
        return entry

    def _put_entries(self, entries: list[_Entry], batch: SinkBatch) -> None:
        remaining = entries

        def request() -> None:
            nonlocal remaining
            records = [{"Data": entry.data, "PartitionKey": entry.key} for entry in remaining]
            answer = self._client.call("put_records", StreamName=self._stream, Records=records)
            results = answer["Records"]
            failed = [
                (entry, result["ErrorCode"])
                for entry, result in zip(remaining, results, strict=True)
                if result.get("ErrorCode")
            ]
            for entry, code in failed:
                if code not in ("ProvisionedThroughputExceededException", "InternalFailure"):
                    of_value = not is_about_access(code)
                    reason = f"{self._target} answers {code}"
                    raise self._serializers.refused(entry.item, batch, reason, of_value=of_value)
            if failed:
                remaining = _to_repeat(remaining, results)
                raise PassingError(f"{len(failed)} records were refused for now ({failed[0][1]})")

        first, last = entries[0].item.offset, entries[-1].item.offset
        records_of = f"{batch.topic}[{batch.partition}] offsets {first} to {last}"
        try:
            _RETRIES.write(request, passing=(PassingError,), what=f"writing {records_of} to {self._target}")
        except RequestError as error:
            raise self._make_failure(error, f"write {records_of}") from None

    def _make_failure(self, error: RequestError, doing: str = "") -> SinkError:
        if error.code == "ResourceNotFoundException":
            return KinesisStreamNotFoundError(f"KinesisSink cannot use {self._target}: the stream does not exist")
        return SinkError(f"KinesisSink cannot {f'{doing} to' if doing else 'use'} {self._target}: {error}")


def _to_repeat(entries: Sequence[_Entry], results: Sequence[dict[str, Any]]) -> list[_Entry]:
    """Return the refused entries and the later ones of their keys, so that the last record of a key stays the last."""
    keys: set[str] = set()
    repeated = []
    for entry, result in zip(entries, results, strict=True):
        if result.get("ErrorCode"):
            keys.add(entry.key)
        if entry.key in keys:
            repeated.append(entry)
    return repeated
