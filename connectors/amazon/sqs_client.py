"""A queue of Amazon SQS: its settings, and what sinks and sources ask it."""

from collections.abc import Mapping
from typing import Any

from streamrt.connectors.amazon.aws import AWSClient, AWSService
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import RequestError
from streamrt.connectors.libraries import require_library
from streamrt.errors import argument_error

__all__ = ["BATCH_ENTRIES", "SQSQueue"]

BATCH_ENTRIES = 10
"""Maximum number of messages in one request."""

_MISSING = ("QueueDoesNotExist", "NonExistentQueue")


class SQSQueue:
    """A queue.

    Args:
        connector: name of the class of the connector.
        queue: name or URL of the queue.
        access_key_id: see `AWSService`.
        secret_access_key: see `AWSService`.
        session_token: see `AWSService`.
        region: see `AWSService`.
        endpoint_url: see `AWSService`.
        options: see `AWSService`.

    Raises:
        ConfigurationError: if an argument cannot be used, or boto3 is not installed.
    """

    def __init__(
        self,
        connector: str,
        queue: str,
        *,
        access_key_id: CredentialInput | None,
        secret_access_key: CredentialInput | None,
        session_token: CredentialInput | None,
        region: str | None,
        endpoint_url: str | None,
        options: Mapping[str, Any],
    ) -> None:
        require_library(connector, "boto3", "aws")
        if not isinstance(queue, str) or not queue:
            raise argument_error(
                f"{connector}(queue={queue!r}) must be the name or the URL of a queue", of_type=isinstance(queue, str)
            )
        service = AWSService(
            connector,
            "sqs",
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=session_token,
            region=region,
            endpoint_url=endpoint_url,
            options=options,
        )
        # A URL ends with the name.
        self.name = queue.rstrip("/").rpartition("/")[2]
        self.place = f"the SQS queue {self.name} at {service.where}"
        self._url = queue if "://" in queue else None
        self._client = AWSClient(service)

    @property
    def is_fifo(self) -> bool:
        """Whether it keeps the order of each message group, and recognizes repeats for 5 minutes."""
        return self.name.endswith(".fifo")

    def describe(self) -> Mapping[str, str]:
        """Find the queue, and return its attributes.

        Raises:
            RequestError: if it does not exist, or cannot be reached.
        """
        attributes: Mapping[str, str] = self.call("get_queue_attributes", AttributeNames=["All"])["Attributes"]
        return attributes

    def call(self, operation: str, **arguments: Any) -> Any:
        """Send a request about the queue; it may be called in several threads.

        Args:
            operation: the method of the client.
            **arguments: its arguments, without the queue.

        Raises:
            RequestError: if it failed.
        """
        try:
            if self._url is None:
                self._url = self._client.call("get_queue_url", QueueName=self.name)["QueueUrl"]
            return self._client.call(operation, QueueUrl=self._url, **arguments)
        except RequestError as error:
            if any(code in error.code for code in _MISSING):
                raise RequestError("there is no such queue", code=error.code) from None
            raise
