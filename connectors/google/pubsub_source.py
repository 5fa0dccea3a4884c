"""`PubSubSource`: the messages of a Google Cloud Pub/Sub subscription."""

import logging
from collections.abc import Sequence
from typing import Any

from streamrt.connectors.argument_checks import checked_flag, checked_text
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError, RequestError
from streamrt.connectors.google.pubsub_client import PubSubClient
from streamrt.connectors.retries import Retries
from streamrt.connectors.sources.acknowledging import AcknowledgingSource, Delivery
from streamrt.errors import SourceError

__all__ = ["PubSubSource", "PubSubSubscriptionNotFound"]

logger = logging.getLogger("streamrt.connectors")

_TIMEOUT_S = 10.0
_WAIT_S = 20.0
_PULL_MESSAGES = 1_000
# Handles are long, and a request has 512 KiB at most.
_REQUEST_HANDLES = 1_000
_LEASE_S = 60
# That of a subscription without a setting.
_DEFAULT_LEASE_S = 10


class PubSubSubscriptionNotFound(SourceError):  # noqa: N818 - the name is part of the public API
    """The subscription of a `PubSubSource` does not exist."""


class PubSubSource(AcknowledgingSource):
    """Produces the messages of a Google Cloud Pub/Sub subscription, and acknowledges them.

    Values are the data of messages, keys their ordering keys (none if a message has none), timestamps the times at which
    they were published. Headers are the attributes of the message, and `pubsub.message_id`. A message is acknowledged
    after its record is in Kafka: a crash repeats the records since the last commit, and loses none. While Kafka is slow,
    the source extends the deadline of acknowledgement. Needs the extra `pubsub`.

    Args:
        project_id: ID of the project.
        topic_id: ID of the topic.
        subscription_id: ID of the subscription.
        service_account_json: the key of a service account in JSON, or a function that returns it; by default, the
            credentials that the machine has.
        commit_every: maximum number of messages between commits, at which the source flushes and acknowledges.
        commit_interval: maximum number of seconds between commits. It also commits when no message waits.
        create_subscription: whether to create the subscription if it does not exist.
        enable_message_ordering: whether a subscription that is created delivers the messages of an ordering key in order.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        emulator_host: host and port of an emulator; by default `PUBSUB_EMULATOR_HOST` from the environment.
        name: name of the source, unique in the application; by default `pubsub_<subscription>_<topic>`.
        kwargs: more arguments of the client: `client_info`, `client_options` and `credentials`.

    Raises:
        ConfigurationError: if an argument cannot be used, or the library is not installed.

    Example:
        ```python
        sdf = app.dataframe(source=PubSubSource("my-project", "orders", "orders-to-kafka"))
        ```
    """

    def __init__(
        self,
        project_id: str,
        topic_id: str,
        subscription_id: str,
        service_account_json: CredentialInput | None = None,
        commit_every: int = 100,
        commit_interval: float = 5.0,
        create_subscription: bool = False,
        enable_message_ordering: bool = False,
        shutdown_timeout: float = 10.0,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        emulator_host: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._client = PubSubClient(
            "PubSubSource", "SubscriberClient", project_id, service_account_json, emulator_host, kwargs
        )
        self._topic_id = checked_text("PubSubSource", "topic_id", topic_id)
        self._subscription_id = checked_text("PubSubSource", "subscription_id", subscription_id)
        self._topic = f"projects/{project_id}/topics/{topic_id}"
        self._subscription = f"projects/{project_id}/subscriptions/{subscription_id}"
        self._create = checked_flag("PubSubSource", "create_subscription", create_subscription)
        self._ordered = checked_flag("PubSubSource", "enable_message_ordering", enable_message_ordering)
        if name is not None:
            checked_text("PubSubSource", "name", name)
        super().__init__(
            f"pubsub_{subscription_id}_{topic_id}" if name is None else name,
            f"the Pub/Sub subscription {subscription_id} {self._client.where}",
            lease_s=_LEASE_S,
            wait_s=_WAIT_S,
            commit_every=commit_every,
            commit_interval=commit_interval,
            shutdown_timeout=shutdown_timeout,
            on_client_connect_success=on_client_connect_success,
            on_client_connect_failure=on_client_connect_failure,
        )

    def __repr__(self) -> str:
        return f"PubSubSource({self._client.project!r}, {self._topic_id!r}, {self._subscription_id!r})"

    def check(self) -> None:
        """Find or create the subscription; see `AcknowledgingSource`."""
        found = Retries().call(self._found_or_created, passing=(PassingError,), what=f"the look at {self._place}")
        if found.topic != self._topic:
            raise RequestError(f"it belongs to {found.topic}, not to {self._topic}")
        self._lease_s = found.ack_deadline_seconds or _DEFAULT_LEASE_S

    def receive(self, limit: int, wait_s: float) -> Sequence[Delivery]:
        """Receive messages; see `AcknowledgingSource`."""
        if not wait_s:
            # An ordered subscription delivers no more messages of a key before those that came are acknowledged.
            return ()
        try:
            answer = self._client.call(
                "pull", timeout_s=wait_s, subscription=self._subscription, max_messages=min(limit, _PULL_MESSAGES)
            )
        except RequestError as error:
            if error.code == "DeadlineExceeded":
                return ()
            raise
        return [_make_delivery(received) for received in answer.received_messages]

    def acknowledge(self, handles: Sequence[str]) -> None:
        """Acknowledge messages; see `AcknowledgingSource`."""
        for some in _split_handles(handles):
            try:
                self._client.call("acknowledge", timeout_s=_TIMEOUT_S, subscription=self._subscription, ack_ids=some)
            except RequestError as error:
                # The deadline of some is over, and the subscription delivers exactly once.
                if error.code not in ("InvalidArgument", "FailedPrecondition"):
                    raise
                logger.info("%s refuses acknowledgements (%s): messages come again", self._place, error.code)

    def extend(self, handles: Sequence[str], lease_s: int) -> None:
        """Extend the deadlines of acknowledgement; see `AcknowledgingSource`."""
        for some in _split_handles(handles):
            self._client.call(
                "modify_ack_deadline",
                timeout_s=_TIMEOUT_S,
                subscription=self._subscription,
                ack_ids=some,
                ack_deadline_seconds=lease_s,
            )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _found_or_created(self) -> Any:
        try:
            return self._client.call("get_subscription", timeout_s=_TIMEOUT_S, subscription=self._subscription)
        except RequestError as error:
            if error.code != "NotFound" or not self._create:
                raise
        logger.info("the source %s creates %s", self.name, self._place)
        try:
            return self._client.call(
                "create_subscription",
                timeout_s=_TIMEOUT_S,
                name=self._subscription,
                topic=self._topic,
                ack_deadline_seconds=_LEASE_S,
                enable_message_ordering=self._ordered,
            )
        except RequestError as error:
            if error.code == "NotFound":
                raise RequestError(f"there is no topic {self._topic_id}") from None
            if error.code == "AlreadyExists":
                # Another instance was faster.
                raise PassingError("it was created at the same time") from None
            raise

    def _make_problem(self, error: RequestError) -> SourceError:
        if error.code == "NotFound":
            return PubSubSubscriptionNotFound(
                f"the source {self.name} cannot read {self._place}: there is no such subscription; create it, or give "
                "create_subscription=True"
            )
        return super()._make_problem(error)


def _split_handles(handles: Sequence[str]) -> list[Sequence[str]]:
    return [handles[start : start + _REQUEST_HANDLES] for start in range(0, len(handles), _REQUEST_HANDLES)]


def _make_delivery(received: Any) -> Delivery:
    message = received.message
    headers = [("pubsub.message_id", message.message_id.encode())]
    headers += [(name, value.encode()) for name, value in sorted(message.attributes.items())]
    return Delivery(
        message.message_id,
        received.ack_id,
        message.data,
        message.ordering_key or None,
        headers,
        int(message.publish_time.timestamp() * 1000),
    )
