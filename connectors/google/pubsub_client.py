"""Connections to Google Cloud Pub/Sub, or to an emulator of it."""

import os
from typing import Any

from streamrt.connectors.argument_checks import check_known, checked_text, checked_type
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.google.google_cloud import GoogleCredentials, translated
from streamrt.connectors.libraries import require_library

__all__ = ["PubSubClient"]

_OPTIONS = ("client_info", "client_options", "credentials")
_CHANNEL = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Else the wait for the next attempt to connect grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


class PubSubClient:
    """A client of publishers or subscribers that is made with its first request.

    Args:
        connector: name of the class of the connector.
        kind: name of the client in `google.pubsub_v1`.
        project_id: ID of the project.
        service_account_json: see `GoogleCredentials`.
        emulator_host: host and port of an emulator; by default `PUBSUB_EMULATOR_HOST` from the environment.
        options: more arguments of the client.

    Raises:
        ConfigurationError: if an argument cannot be used, or the library is not installed.
    """

    def __init__(
        self,
        connector: str,
        kind: str,
        project_id: str,
        service_account_json: CredentialInput | None,
        emulator_host: str | None,
        options: dict[str, Any],
    ) -> None:
        require_library(connector, "google.pubsub_v1", "pubsub")
        self.project = checked_text(connector, "project_id", project_id)
        hint = "; give enable_message_ordering itself" if "publisher_options" in options else ""
        check_known(connector, options, _OPTIONS, "the client", hint)
        if emulator_host is None:
            emulator_host = os.environ.get("PUBSUB_EMULATOR_HOST") or None
        else:
            wanted = "a host and a port, such as localhost:8085"
            checked_type(connector, "emulator_host", emulator_host, str, wanted, lambda host: ":" in host)
        self._kind = kind
        self._credentials = GoogleCredentials(connector, service_account_json)
        self._emulator_host = emulator_host
        self._options = options
        self._client: Any = None

    @property
    def where(self) -> str:
        """Where the service is, for sentences."""
        place = "" if self._emulator_host is None else f" at {self._emulator_host}"
        return f"of the project {self.project}{place}"

    def call(self, method: str, *, timeout_s: float, **request: Any) -> Any:
        """Send one request; it may be called in several threads.

        Args:
            method: the method of the client.
            timeout_s: seconds to wait for the answer.
            **request: the fields of the request.

        Raises:
            RequestError: if it failed.
        """
        with translated():
            if self._client is None:
                self._client = self._connect_client()
            # Connectors repeat requests themselves.
            return getattr(self._client, method)(request=request, timeout=timeout_s, retry=None)

    def close(self) -> None:
        """Close the connection; requests that are under way fail. The next request opens another one."""
        client, self._client = self._client, None
        if client is not None:
            client.transport.close()

    def _connect_client(self) -> Any:
        from google import pubsub_v1

        client = getattr(pubsub_v1, self._kind)
        if self._emulator_host is not None:
            import grpc

            channel = grpc.insecure_channel(self._emulator_host, options=_CHANNEL)
            return client(transport=client.get_transport_class("grpc")(channel=channel))
        options = dict(self._options)
        if "credentials" not in options:
            options["credentials"] = self._credentials.make()
        return client(**options)
