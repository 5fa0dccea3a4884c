"""`PubSubSink`: results as messages of a Google Cloud Pub/Sub topic."""

import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from streamrt.connectors.argument_checks import checked_flag, checked_seconds, checked_text
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError, RequestError
from streamrt.connectors.google.pubsub_client import PubSubClient
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.common import bounded
from streamrt.connectors.sinks.serializing import ItemSerializer, Serializers, decode_key, numbered
from streamrt.errors import SinkError

__all__ = ["PubSubSink", "PubSubTopicNotFoundError"]

# Limits of the service; some room is left for what surrounds messages in a request.
_REQUEST_MESSAGES = 1_000
_REQUEST_BYTES = 9_000_000
_MESSAGE_BYTES = 9_900_000
_ATTRIBUTES = 100
_ATTRIBUTE_NAME_BYTES = 256
_ATTRIBUTE_BYTES = 1_024
_KEYS_AT_ONCE = 8
_RETRIES = Retries()


class PubSubTopicNotFoundError(SinkError):
    """The topic of a `PubSubSink` does not exist."""


class _Entry(NamedTuple):
    item: SinkItem
    message: dict[str, Any]
    size: int

    @property
    def ordering_key(self) -> str:
        key: str = self.message.get("ordering_key", "")
        return key


class PubSubSink(BatchingSink):
    """Writes values to a Google Cloud Pub/Sub topic, each as one message.

    Messages have the attributes `__key`, `__timestamp`, `__topic`, `__partition`, `__offset` and `__number` (of the value
    within its offset), and the headers of the record. Values are written at least once: after a crash, those since the
    last commit are published again, with the same topic, partition, offset and number. Needs the extra `pubsub`.

    Args:
        project_id: ID of the project.
        topic_id: ID of the topic, which must exist.
        service_account_json: the key of a service account in JSON, or a function that returns it; by default, the
            credentials that the machine has.
        value_serializer: returns a value as text or bytes.
        key_serializer: returns a key as text; by default, bytes are read as UTF-8.
        flush_timeout: seconds that a request and its repetitions may take; then the partition is paused.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        enable_message_ordering: whether the key is the ordering key of messages. Subscriptions with message ordering then
            deliver the messages of a key in order. Each key takes requests of its own, so many keys take more time.
        emulator_host: host and port of an emulator; by default `PUBSUB_EMULATOR_HOST` from the environment.
        kwargs: more arguments of the client: `client_info`, `client_options` and `credentials`.

    Raises:
        ConfigurationError: if an argument cannot be used, or the library is not installed.

    Example:
        ```python
        sdf.sink(PubSubSink("my-project", "orders"))
        ```
    """

    def __init__(
        self,
        project_id: str,
        topic_id: str,
        service_account_json: CredentialInput | None = None,
        value_serializer: ItemSerializer = json.dumps,
        key_serializer: ItemSerializer = decode_key,
        flush_timeout: float = 5,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        enable_message_ordering: bool = False,
        emulator_host: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        self._client = PubSubClient(
            "PubSubSink", "PublisherClient", project_id, service_account_json, emulator_host, kwargs
        )
        self._topic_id = checked_text("PubSubSink", "topic_id", topic_id)
        checked_seconds("PubSubSink", "flush_timeout", flush_timeout)
        checked_flag("PubSubSink", "enable_message_ordering", enable_message_ordering)
        self._topic = f"projects/{project_id}/topics/{topic_id}"
        self._place = f"the Pub/Sub topic {topic_id} {self._client.where}"
        self._serializers = Serializers("PubSubSink", key_serializer, value_serializer)
        self._timeout_s = flush_timeout
        self._ordered = enable_message_ordering

    def __repr__(self) -> str:
        return f"PubSubSink({self._client.project!r}, {self._topic_id!r})"

    def setup(self) -> None:
        """Check that the topic exists and that the credentials are accepted.

        Raises:
            PubSubTopicNotFoundError: if there is no such topic.
            SinkError: if it cannot be reached.
        """

        def look() -> Any:
            return self._client.call("get_topic", timeout_s=self._timeout_s, topic=self._topic)

        try:
            Retries().call(look, passing=(PassingError,), what=f"the look at {self._place}")
        except RequestError as error:
            raise self._make_failure(error, "use") from None

    def write(self, batch: SinkBatch) -> None:
        """Write one batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the service is busy or does not answer.
            SinkError: if a record cannot be written.
        """
        entries = [self._make_entry(item, number, batch) for item, number in numbered(batch)]
        if not self._ordered:
            self._publish_all(entries, batch)
            return
        # Messages of one request must have the same ordering key.
        by_key: dict[str, list[_Entry]] = {}
        for entry in entries:
            by_key.setdefault(entry.ordering_key, []).append(entry)
        with ThreadPoolExecutor(min(_KEYS_AT_ONCE, len(by_key)), "streamrt-pubsub") as pool:
            try:
                for done in [pool.submit(self._publish_all, group, batch) for group in by_key.values()]:
                    done.result()
            except BaseException:
                # All of them are published again.
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _make_entry(self, item: SinkItem, number: int, batch: SinkBatch) -> _Entry:
        key = self._serializers.key(item, batch)
        attributes = {
            # Attributes are text. The last one of several headers with the same name counts.
            **{name: _to_text(value) for name, value in item.headers or ()},
            "__timestamp": str(item.timestamp),
            "__topic": batch.topic,
            "__partition": str(batch.partition),
            "__offset": str(item.offset),
            "__number": str(number),
        }
        if key is not None:
            attributes["__key"] = key
        message: dict[str, Any] = {"data": self._serializers.value(item, batch), "attributes": attributes}
        if key and self._ordered:
            message["ordering_key"] = key
        size = len(message["data"]) + len((key or "").encode())
        size += sum(len(name.encode()) + len(value.encode()) + 8 for name, value in attributes.items())
        problem = _find_problem(attributes, size)
        if problem is not None:
            raise self._serializers.refused(item, batch, problem)
        return _Entry(item, message, size)

    def _publish_all(self, entries: Iterable[_Entry], batch: SinkBatch) -> None:
        for request in bounded(entries, lambda entry: entry.size, count=_REQUEST_MESSAGES, total=_REQUEST_BYTES):
            self._publish_entries(request, batch)

    def _publish_entries(self, entries: list[_Entry], batch: SinkBatch) -> None:
        deadline = time.monotonic() + self._timeout_s

        def request() -> None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise PassingError(f"it does not answer within {self._timeout_s:g} s")
            messages = [entry.message for entry in entries]
            self._client.call("publish", timeout_s=left_s, topic=self._topic, messages=messages)

        first, last = entries[0].item.offset, entries[-1].item.offset
        records = f"{batch.topic}[{batch.partition}] offsets {first} to {last}"
        try:
            _RETRIES.write(request, passing=(PassingError,), what=f"writing {records} to {self._place}")
        except RequestError as error:
            if error.code != "InvalidArgument":
                raise self._make_failure(error, f"write {records} to") from None
            if len(entries) == 1:
                raise self._serializers.refused(entries[0].item, batch, f"{self._place} answers {error.code}") from None
        else:
            return
        # The service refused all of them, and does not say because of which.
        for entry in entries:
            self._publish_entries([entry], batch)

    def _make_failure(self, error: RequestError, doing: str) -> SinkError:
        if error.code == "NotFound":
            return PubSubTopicNotFoundError(f"PubSubSink cannot {doing} {self._place}: there is no such topic")
        return SinkError(f"PubSubSink cannot {doing} {self._place}: {error}")


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else bytes(value).decode(errors="backslashreplace")


def _find_problem(attributes: dict[str, str], size: int) -> str | None:
    """Return why the service would refuse a message, or None."""
    if size > _MESSAGE_BYTES:
        return f"it has {size} bytes, and a message of Pub/Sub at most 10 MB"
    if len(attributes) > _ATTRIBUTES:
        return f"it has {len(attributes)} attributes, and a message of Pub/Sub at most {_ATTRIBUTES}"
    for name, value in attributes.items():
        what = "key" if name == "__key" else f"header {name[:40]!r}"
        if not name or name.startswith("goog") or len(name.encode()) > _ATTRIBUTE_NAME_BYTES:
            return f"the name of its {what} cannot be that of an attribute of Pub/Sub"
        if len(value.encode()) > _ATTRIBUTE_BYTES:
            return f"its {what} has more than {_ATTRIBUTE_BYTES} bytes, the maximum of an attribute of Pub/Sub"
    return None
