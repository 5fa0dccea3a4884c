"""`SQSSink`: results as messages of an Amazon SQS queue."""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from streamrt.connectors.amazon.aws import is_about_access
from streamrt.connectors.amazon.sqs_client import BATCH_ENTRIES, SQSQueue
from streamrt.connectors.argument_checks import checked_flag, checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError, RequestError
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.serializing import ItemSerializer, Serializers, decode_key, numbered
from streamrt.errors import SinkError

__all__ = ["SQSSink"]

# What every queue takes in one request; one message may have as much as the queue allows.
_REQUEST_BYTES = 256 << 10
_ID_CHARACTERS = 128
_ID = re.compile(r"[!-~]{1,128}")
_REFUSED_CHARACTER = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_RETRIES = Retries()


class _Entry(NamedTuple):
    item: SinkItem
    request: dict[str, Any]
    size: int

    @property
    def group(self) -> str | None:
        group: str | None = self.request.get("MessageGroupId")
        return group


class SQSSink(BatchingSink):
    """Writes values to an Amazon SQS queue, each as one message.

    In a FIFO queue, the key of the record is the message group, whose order is kept. Topic, partition, offset and number
    within the offset are the deduplication ID: the queue holds each value once, if a repeat comes within 5 minutes.
    Other queues get values at least once, in any order. Needs the extra `aws`.

    Args:
        queue: name or URL of the queue, which must exist; the name of a FIFO queue ends with `.fifo`.
        aws_access_key_id: the access key ID, or a function that returns it; by default `AWS_ACCESS_KEY_ID` from the
            environment, else what boto3 finds where the sink writes, such as a role.
        aws_secret_access_key: the secret access key, or a function that returns it; by default `AWS_SECRET_ACCESS_KEY`.
        region_name: the region; by default `AWS_REGION`, then `AWS_DEFAULT_REGION`.
        aws_endpoint_url: URL of the service; by default `AWS_ENDPOINT_URL_SQS`, then that of AWS.
        value_serializer: returns a value as text, or as bytes that are UTF-8.
        key_serializer: returns a key as text; by default, bytes are read as UTF-8.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        aws_session_token: the token of temporary credentials, or a function that returns it; by default
            `AWS_SESSION_TOKEN`, if the keys also come from the environment.
        metadata: whether messages get the attributes `key`, `timestamp`, `topic`, `partition` and `offset`.
        deduplication_prefix: start of the deduplication IDs. Give different ones to sinks that write values of the same
            records to the same FIFO queue.
        kwargs: more arguments of `boto3.client`: `api_version`, `aws_account_id`, `config`, `use_ssl` and `verify`.

    Raises:
        ConfigurationError: if an argument cannot be used, or boto3 is not installed.

    Example:
        ```python
        sdf.sink(SQSSink("orders.fifo", region_name="eu-west-1"))
        ```
    """

    def __init__(
        self,
        queue: str,
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
        metadata: bool = False,
        deduplication_prefix: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        self._queue = SQSQueue(
            "SQSSink",
            queue,
            access_key_id=aws_access_key_id,
            secret_access_key=aws_secret_access_key,
            session_token=aws_session_token,
            region=region_name,
            endpoint_url=aws_endpoint_url,
            options=kwargs,
        )
        self._prefix = checked_type("SQSSink", "deduplication_prefix", deduplication_prefix, str, "a str")
        self._serializers = Serializers("SQSSink", key_serializer, value_serializer)
        self._metadata = checked_flag("SQSSink", "metadata", metadata)
        self._message_bytes = 256 << 10

    def __repr__(self) -> str:
        return f"SQSSink({self._queue.name!r})"

    def setup(self) -> None:
        """Check that the queue exists and that the credentials are accepted.

        Raises:
            SinkError: if it cannot be reached.
        """
        try:
            attributes = Retries().call(
                self._queue.describe, passing=(PassingError,), what=f"the look at {self._queue.place}"
            )
        except RequestError as error:
            raise SinkError(f"SQSSink cannot use {self._queue.place}: {error}") from None
        self._message_bytes = int(attributes.get("MaximumMessageSize", 256 << 10))

    def write(self, batch: SinkBatch) -> None:
        """Write one batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the service is busy or does not answer.
            SinkError: if a record cannot be written.
        """
        for entries in self._split_requests(batch):
            self._send_entries(entries, batch)

    def _split_requests(self, batch: SinkBatch) -> Iterator[list[_Entry]]:
        entries: list[_Entry] = []
        size = 0
        for item, number in numbered(batch):
            entry = self._make_entry(item, number, batch)
            # A queue may accept a part of a request. If a group had two messages in it, it could then accept only the
            # second one, and their order would be lost.
            repeated = entry.group is not None and any(entry.group == other.group for other in entries)
            if repeated or len(entries) == BATCH_ENTRIES or (entries and size + entry.size > _REQUEST_BYTES):
                yield entries
                entries, size = [], 0
            entry.request["Id"] = str(len(entries))
            entries.append(entry)
            size += entry.size
        yield entries

    def _make_entry(self, item: SinkItem, number: int, batch: SinkBatch) -> _Entry:
        key = self._serializers.key(item, batch)
        body = self._make_body(item, batch)
        request: dict[str, Any] = {"MessageBody": body}
        size = len(body.encode())
        if self._metadata:
            request["MessageAttributes"] = attributes = _make_attributes(item, key, batch)
            size += sum(
                len(name.encode()) + len(attribute["DataType"]) + len(attribute["StringValue"].encode())
                for name, attribute in attributes.items()
            )
        if size > self._message_bytes:
            reason = f"it has {size} bytes, and {self._queue.place} takes {self._message_bytes} at most"
            raise self._serializers.refused(item, batch, reason)
        if self._queue.is_fifo:
            place = f"{batch.topic}/{batch.partition}"
            request["MessageGroupId"] = _as_id(key or place)
            request["MessageDeduplicationId"] = _as_id(f"{self._prefix}{place}/{item.offset}/{number}")
        return _Entry(item, request, size)

    def _make_body(self, item: SinkItem, batch: SinkBatch) -> str:
        try:
            body = self._serializers.value(item, batch).decode()
        except UnicodeDecodeError:
            raise self._serializers.refused(item, batch, "value_serializer returned bytes that are not UTF-8") from None
        if not body:
            raise self._serializers.refused(item, batch, "value_serializer returned nothing, and no message is empty")
        refused = _REFUSED_CHARACTER.search(body)
        if refused is not None:
            reason = f"it contains the character U+{ord(refused[0]):04X}, which SQS does not take"
            raise self._serializers.refused(item, batch, reason)
        return body

    def _send_entries(self, entries: list[_Entry], batch: SinkBatch) -> None:
        remaining = {entry.request["Id"]: entry for entry in entries}

        def request() -> None:
            answer = self._queue.call("send_message_batch", Entries=[entry.request for entry in remaining.values()])
            failed = {result["Id"]: result for result in answer.get("Failed", ())}
            for name in list(remaining):
                if name not in failed:
                    del remaining[name]
            for name, result in failed.items():
                if result["SenderFault"]:
                    reason = f"{self._queue.place} answers {result['Code']}"
                    of_value = not is_about_access(result["Code"])
                    raise self._serializers.refused(remaining[name].item, batch, reason, of_value=of_value)
            if failed:
                raise PassingError(f"{len(failed)} messages were refused for now")

        first, last = entries[0].item.offset, entries[-1].item.offset
        records = f"{batch.topic}[{batch.partition}] offsets {first} to {last}"
        try:
            _RETRIES.write(request, passing=(PassingError,), what=f"writing {records} to {self._queue.place}")
        except RequestError as error:
            raise SinkError(f"SQSSink cannot write {records} to {self._queue.place}: {error}") from None


def _make_attributes(item: SinkItem, key: str | None, batch: SinkBatch) -> dict[str, dict[str, str]]:
    attributes = {
        "timestamp": ("Number", str(item.timestamp)),
        "topic": ("String", batch.topic),
        "partition": ("Number", str(batch.partition)),
        "offset": ("Number", str(item.offset)),
    }
    if key:
        # Attributes must not be empty.
        attributes["key"] = ("String", key)
    return {name: {"DataType": kind, "StringValue": text} for name, (kind, text) in attributes.items()}


def _as_id(text: str) -> str:
    """Return a string in a form that is valid as an ID; different strings stay different."""
    # A digest is 64 characters long, so no text that is valid as it is can be mistaken for one of another.
    return text if _ID.fullmatch(text) else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
