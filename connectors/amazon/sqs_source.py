"""`SQSSource`: the messages of an Amazon SQS queue."""

from collections.abc import Iterator, Sequence
from typing import Any

from streamrt.connectors.amazon.sqs_client import BATCH_ENTRIES, SQSQueue
from streamrt.connectors.argument_checks import checked_count, checked_text
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.retries import Retries
from streamrt.connectors.sources.acknowledging import AcknowledgingSource, Delivery

__all__ = ["SQSSource"]

_MAX_WAIT_S = 20
_MAX_VISIBILITY_S = 12 * 60 * 60


class SQSSource(AcknowledgingSource):
    """Produces the messages of an Amazon SQS queue, and deletes them from it.

    Values are the bodies of messages in UTF-8, keys the message groups of a FIFO queue, timestamps the times at which
    messages were sent. Headers are the attributes of the message, and `sqs.message_id`. A message is deleted after its
    record is in Kafka: a crash repeats the records since the last commit, and loses none. While Kafka is slow, the source
    extends the time during which other readers do not see its messages. Needs the extra `aws`.

    Args:
        queue: name or URL of the queue.
        aws_access_key_id: the access key ID, or a function that returns it; by default `AWS_ACCESS_KEY_ID` from the
            environment, else what boto3 finds, such as a role.
        aws_secret_access_key: the secret access key, or a function that returns it; by default `AWS_SECRET_ACCESS_KEY`.
        region_name: the region; by default `AWS_REGION`, then `AWS_DEFAULT_REGION`.
        aws_endpoint_url: URL of the service; by default `AWS_ENDPOINT_URL_SQS`, then that of AWS.
        shutdown_timeout: seconds that the source has to end when the application stops.
        commit_every: number of messages after which the source commits: it flushes and deletes them.
        commit_interval: seconds after which it commits. It also commits when the queue has no more messages.
        wait_time_seconds: seconds that a request waits for messages, 1 to 20.
        visibility_timeout: seconds after which a message that was received and not deleted is delivered again, for example
            after a crash.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        aws_session_token: the token of temporary credentials, or a function that returns it; by default
            `AWS_SESSION_TOKEN`, if the keys also come from the environment.
        name: name of the source, unique in the application; by default `sqs_<queue name>`.
        kwargs: more arguments of `boto3.client`: `api_version`, `aws_account_id`, `config`, `use_ssl` and `verify`.

    Raises:
        ConfigurationError: if an argument cannot be used, or boto3 is not installed.

    Example:
        ```python
        sdf = app.dataframe(source=SQSSource("orders", region_name="eu-west-1"))
        ```
    """

    def __init__(
        self,
        queue: str,
        aws_access_key_id: CredentialInput | None = None,
        aws_secret_access_key: CredentialInput | None = None,
        region_name: str | None = None,
        aws_endpoint_url: str | None = None,
        shutdown_timeout: float = 10,
        commit_every: int = 1000,
        commit_interval: float = 5.0,
        wait_time_seconds: int = 20,
        visibility_timeout: int = 60,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        aws_session_token: CredentialInput | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._queue = SQSQueue(
            "SQSSource",
            queue,
            access_key_id=aws_access_key_id,
            secret_access_key=aws_secret_access_key,
            session_token=aws_session_token,
            region=region_name,
            endpoint_url=aws_endpoint_url,
            options=kwargs,
        )
        if name is not None:
            checked_text("SQSSource", "name", name)
        self._visibility_s = checked_count(
            "SQSSource", "visibility_timeout", visibility_timeout, most=_MAX_VISIBILITY_S
        )
        super().__init__(
            f"sqs_{self._queue.name}" if name is None else name,
            self._queue.place,
            lease_s=visibility_timeout,
            wait_s=checked_count("SQSSource", "wait_time_seconds", wait_time_seconds, most=_MAX_WAIT_S),
            commit_every=commit_every,
            commit_interval=commit_interval,
            shutdown_timeout=shutdown_timeout,
            on_client_connect_success=on_client_connect_success,
            on_client_connect_failure=on_client_connect_failure,
        )

    def __repr__(self) -> str:
        return f"SQSSource({self._queue.name!r})"

    def check(self) -> None:
        """Look whether the queue exists; see `AcknowledgingSource`."""
        Retries().call(self._queue.describe, passing=(PassingError,), what=f"the look at {self._queue.place}")

    def receive(self, limit: int, wait_s: float) -> Sequence[Delivery]:
        """Receive messages; see `AcknowledgingSource`."""
        answer = self._queue.call(
            "receive_message",
            MaxNumberOfMessages=min(limit, BATCH_ENTRIES),
            WaitTimeSeconds=int(wait_s),
            VisibilityTimeout=self._visibility_s,
            # The newer name of this argument is unknown to older versions of boto3.
            AttributeNames=["SentTimestamp", "MessageGroupId"],
            MessageAttributeNames=["All"],
        )
        return [_make_delivery(message) for message in answer.get("Messages", ())]

    def acknowledge(self, handles: Sequence[str]) -> None:
        """Delete messages; see `AcknowledgingSource`."""
        failed = 0
        for entries in _split_requests(handles):
            answer = self._queue.call("delete_message_batch", Entries=entries)
            # The sender is at fault if a handle is too old.
            failed += sum(not result["SenderFault"] for result in answer.get("Failed", ()))
        if failed:
            raise PassingError(f"{failed} messages could not be deleted for now")

    def extend(self, handles: Sequence[str], lease_s: int) -> None:
        """Hide messages from other readers; see `AcknowledgingSource`."""
        for entries in _split_requests(handles):
            for entry in entries:
                entry["VisibilityTimeout"] = lease_s
            self._queue.call("change_message_visibility_batch", Entries=entries)


def _split_requests(handles: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(handles), BATCH_ENTRIES):
        yield [
            {"Id": str(number), "ReceiptHandle": handle}
            for number, handle in enumerate(handles[start : start + BATCH_ENTRIES])
        ]


def _make_delivery(message: dict[str, Any]) -> Delivery:
    headers = [("sqs.message_id", message["MessageId"].encode())]
    for name, attribute in sorted(message.get("MessageAttributes", {}).items()):
        text = attribute.get("StringValue")
        headers.append((name, attribute.get("BinaryValue", b"") if text is None else text.encode()))
    known = message.get("Attributes", {})
    return Delivery(
        message["MessageId"],
        message["ReceiptHandle"],
        message["Body"].encode(),
        known.get("MessageGroupId"),
        headers,
        int(known["SentTimestamp"]),
    )
