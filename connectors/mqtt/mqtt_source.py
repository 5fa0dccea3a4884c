"""`MQTTSource`: messages of an MQTT broker."""

import json
import logging
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from streamrt.connectors.argument_checks import checked_choice, checked_count, checked_function, checked_text
from streamrt.connectors.background import Interrupts
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.libraries import require_library
from streamrt.connectors.mqtt.mqtt_connection import (
    MQTTConnection,
    ProtocolVersion,
    RefusedError,
    checked_filter,
    checked_settings,
)
from streamrt.connectors.sources.base import Source
from streamrt.connectors.sources.reading import FlushPace, Waits, call_while_running
from streamrt.errors import ArgumentValueError, SourceError

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage

__all__ = ["MQTTSource"]

logger = logging.getLogger("streamrt.connectors")

_OWNER = "MQTTSource"
_FLUSH_EVERY = 1_000
_FLUSH_INTERVAL_S = 1.0
_POLL_S = 0.2
# Two clients with one client id push each other out again and again; the waits between their attempts grow.
_STABLE_S = 10.0


def default_key(message: "MQTTMessage") -> str:
    """Return the topic of a message."""
    topic: str = message.topic
    return topic


def default_value(message: "MQTTMessage") -> Any:
    """Return the payload of a message, which is deserialized already."""
    return message.payload


def default_timestamp(message: "MQTTMessage") -> int:
    """Return the current time in milliseconds."""
    return time.time_ns() // 1_000_000


def default_deserializer(payload: bytes) -> Any:
    """Read a payload as JSON. An empty payload is None: brokers send it when a retained message is deleted."""
    return json.loads(payload) if payload else None


class MQTTSource(Source):
    """Produces the messages of an MQTT topic. Needs the extra `mqtt`.

    With `qos=1`, messages arrive at least once. The source acknowledges a message after it is delivered to Kafka, and the
    broker keeps a session for the client id: it sends what was not acknowledged, and what came in the meantime, when the
    source connects again. With `qos=0`, messages without a connection are lost. QoS 2 is not supported: there, a client
    takes over a message before it is in Kafka, so a crash would lose it. Messages that were published with QoS 2 arrive
    with QoS 1.

    Args:
        topic: the topic; it may contain the wildcards `+` and `#`, or begin with `$share/<group>/`.
        client_id: the client id. The session belongs to it: keep it, and use it in one instance only.
        server: host of the broker.
        port: port of the broker, such as 8883, or 1883 without TLS.
        username: name of the user.
        password: the password, or a function that returns it in the process of the source.
        version: version of the protocol: "3.1", "3.1.1" or "5".
        tls_enabled: whether to use TLS.
        key_setter: returns the key of a message, by default its topic.
        value_setter: returns the value of a message, by default its payload, which is deserialized.
        timestamp_setter: returns the timestamp of a message in milliseconds, by default now.
        payload_deserializer: replaces the payload of a message before the setters get it; by default it is read as
            JSON, and an empty payload is None. None leaves the bytes.
        qos: quality of service, 0 or 1.
        on_client_connect_success: called without arguments after the first connection is open.
        on_client_connect_failure: called with the exception when the first connection fails.
        name: name of the source, unique in the application; by default `mqtt_` and the client id.
        session_expiry: seconds for which the broker keeps the session while there is no connection; for version "5".
            With earlier versions, a setting of the broker decides.
        tls_ca_file: file of certificates to trust, instead of those of the system.
        tls_certificate_file: file with a certificate of the client.
        tls_key_file: file with the key of this certificate.
        keepalive: seconds without messages after which the client and the broker look for each other.
        timeout: seconds for connecting.
        shutdown_timeout: seconds that the source has to end when the application stops.

    Raises:
        ConfigurationError: if an argument cannot be used, or paho-mqtt is not installed.

    Example:
        ```python
        sensors = MQTTSource(
            "home/+/temperature",
            client_id="heating",
            server="mqtt.example.com",
            port=8883,
            username="heating",
            password=lambda: os.environ["MQTT_PASSWORD"],
            version="5",
        )
        sdf = app.dataframe(source=sensors)
        ```
    """

    def __init__(
        self,
        topic: str,
        client_id: str,
        server: str,
        port: int,
        username: str | None = None,
        password: CredentialInput | None = None,
        version: ProtocolVersion = "3.1.1",
        tls_enabled: bool = True,
        key_setter: "Callable[[MQTTMessage], Any]" = default_key,
        value_setter: "Callable[[MQTTMessage], Any]" = default_value,
        timestamp_setter: "Callable[[MQTTMessage], int]" = default_timestamp,
        payload_deserializer: Callable[[Any], Any] | None = default_deserializer,
        qos: Literal[0, 1] = 1,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        name: str | None = None,
        session_expiry: int = 86_400,
        tls_ca_file: str | None = None,
        tls_certificate_file: str | None = None,
        tls_key_file: str | None = None,
        keepalive: int = 60,
        timeout: float = 10.0,
        shutdown_timeout: float = 10,
    ) -> None:
        require_library(_OWNER, "paho.mqtt", "mqtt")
        self._client_id = checked_text(_OWNER, "client_id", client_id)
        if name is None:
            name = "mqtt_" + re.sub(r"[^a-zA-Z0-9._-]", "-", client_id)
        super().__init__(name, shutdown_timeout, on_client_connect_success, on_client_connect_failure)
        self._settings = checked_settings(
            _OWNER,
            server=server,
            port=port,
            username=username,
            password=password,
            version=version,
            tls_enabled=tls_enabled,
            tls_ca_file=tls_ca_file,
            tls_certificate_file=tls_certificate_file,
            tls_key_file=tls_key_file,
            keepalive=keepalive,
            timeout=timeout,
        )
        self._topic = checked_filter(_OWNER, topic)
        self._key_setter = checked_function(_OWNER, "key_setter", key_setter)
        self._value_setter = checked_function(_OWNER, "value_setter", value_setter)
        self._timestamp_setter = checked_function(_OWNER, "timestamp_setter", timestamp_setter)
        self._deserializer = checked_function(_OWNER, "payload_deserializer", payload_deserializer, optional=True)
        refused: Any = qos
        if type(refused) is int and refused == 2:
            raise ArgumentValueError(
                f"{_OWNER}(qos=2) is not supported: it takes over messages before they are in Kafka, so that a crash would "
                "lose them; use qos=1"
            )
        self._qos = checked_choice(_OWNER, "qos", qos, (0, 1))
        self._session_expiry = checked_count(_OWNER, "session_expiry", session_expiry, 1, 0xFFFFFFFF)
        self._first: MQTTConnection | None = None

    def setup(self) -> None:
        """Open the first connection and subscribe.

        Raises:
            SourceError: if the broker cannot be reached, or refuses the connection or the subscription.
        """
        try:
            self._first = self._connect()
        except PassingError as error:
            raise SourceError(f"the source {self.name} cannot connect: {error}") from error

    def run(self) -> None:
        """Produce messages until the source is stopped.

        Raises:
            SourceError: if the broker refuses a connection, or a message cannot be produced.
        """
        waits = Waits()
        while self.running:
            try:
                connection, self._first = self._first or self._connect(), None
                if connection is None:
                    return
                begun = time.monotonic()
                try:
                    self._produce_all(connection)
                finally:
                    connection.close()
                    if time.monotonic() - begun > _STABLE_S:
                        waits.succeeded()
            except PassingError as error:
                wait = waits.next_s()
                logger.warning("the source %s connects again in %.1f s: %s", self.name, wait, error)
                self.sleep(wait)

    def cleanup(self, failed: bool) -> None:
        """Close the connection.

        Args:
            failed: whether the source failed.
        """
        if self._first is not None:
            self._first.close()
        super().cleanup(failed)

    def _connect(self) -> MQTTConnection | None:
        def connect(interrupts: Interrupts) -> MQTTConnection:
            session = None if self._qos == 0 else self._session_expiry
            connection = MQTTConnection(self._settings, self._client_id, session, receives=True)
            interrupts.add(connection.close)
            try:
                connection.subscribe(self._topic, self._qos)
            except BaseException:
                connection.close()
                raise
            return connection

        try:
            return call_while_running(self, connect)
        except RefusedError as error:
            raise SourceError(f"the source {self.name} cannot connect: {error}") from error

    def _produce_all(self, connection: MQTTConnection) -> None:
        """Produce messages until the connection is lost or the source is stopped."""
        pace = FlushPace(_FLUSH_EVERY, _FLUSH_INTERVAL_S)
        pending: list[MQTTMessage] = []

        def flush() -> None:
            if pending:
                self.flush()
                for message in pending:
                    connection.ack(message)
                pending.clear()
                pace.flushed()

        waiting = True
        while waiting or connection.lost is None:
            messages = connection.take(0 if pending else _POLL_S)
            waiting = bool(messages)
            for message in messages:
                self._produce_message(message)
                pending.append(message)
                pace.add()
                if pace.due:
                    flush()
            if not messages:
                # A broker stops sending when some messages, often 20, are not acknowledged.
                flush()
            if not self.running:
                flush()
                return
        flush()
        if connection.refused is not None:
            raise SourceError(f"the source {self.name} ends: {connection.refused}")
        raise PassingError(connection.lost or "the connection was lost")

    def _produce_message(self, message: "MQTTMessage") -> None:
        try:
            if self._deserializer is not None:
                message.payload = self._deserializer(message.payload)
            key, value = self._key_setter(message), self._value_setter(message)
            timestamp = self._timestamp_setter(message)
            made = self.serialize(key, value, None, timestamp)
        except Exception as error:
            by_default = self._deserializer is default_deserializer
            advice = "; pass payload_deserializer=None if payloads are not JSON" if by_default else ""
            raise SourceError(
                f"a message of {self._settings.address} for {self._topic!r} cannot be produced by the source {self.name}: "
                f"{type(error).__name__}{advice}"
            ) from error
        self.produce(made.value, made.key, made.headers, timestamp=timestamp)
