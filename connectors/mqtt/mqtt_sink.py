"""`MQTTSink`: values as messages of an MQTT broker."""

import json
import uuid
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from streamrt.connectors.argument_checks import (
    checked_choice,
    checked_function,
    checked_seconds,
    checked_text,
    checked_type,
)
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.libraries import require_library
from streamrt.connectors.mqtt.mqtt_connection import (
    MQTTConnection,
    ProtocolVersion,
    RefusedError,
    checked_settings,
    is_busy,
    unusable_in_topic,
)
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import ArgumentValueError, SinkError, argument_error
from streamrt.forks import in_this_process

if TYPE_CHECKING:
    from paho.mqtt.properties import Properties

__all__ = ["MQTTSink"]

_OWNER = "MQTTSink"
_CHUNK = 500
# Of the standard; brokers often allow less.
_LARGEST_PAYLOAD = 268_435_455
# Topic name invalid, packet too large, payload format invalid. Others, such as missing rights, concern more messages.
_ABOUT_VALUE = (0x90, 0x95, 0x99)


class MQTTSink(BatchingSink):
    """Publishes values to an MQTT broker, in order. Needs the extra `mqtt`.

    The topic of a message is `topic_root`, a slash, and the key; without a key it is `topic_root`. With `qos` 1 or 2 a
    message has arrived when the broker acknowledges it, so values arrive at least once: after a lost connection or a
    crash, some are published again. With `qos=0` there is no acknowledgement, and messages may be lost.

    Args:
        client_id: begin of the client ids; each process that writes adds a random part, because a broker allows one
            connection for each client id.
        server: host of the broker.
        port: port of the broker, such as 8883, or 1883 without TLS.
        topic_root: first part of the topics.
        username: name of the user.
        password: the password, or a function that returns it in the process that connects.
        version: version of the protocol: "3.1", "3.1.1" or "5".
        tls_enabled: whether to use TLS.
        key_serializer: turns a key into a part of the topic. It must not contain `+`, `#` or control characters.
        value_serializer: turns a value into the payload, str or bytes.
        qos: quality of service: 0, 1 or 2.
        mqtt_flush_timeout_seconds: seconds to wait for each acknowledgement.
        retain: whether the broker keeps the last message of each topic, or a function of the value that returns it.
        properties: properties of messages, or a function of the value that returns them; for version "5" only.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        tls_ca_file: file of certificates to trust, instead of those of the system.
        tls_certificate_file: file with a certificate of the client.
        tls_key_file: file with the key of this certificate.
        keepalive: seconds without messages after which the client and the broker look for each other.
        timeout: seconds for connecting.
        retries: how messages are repeated when the connection is lost.

    Raises:
        ConfigurationError: if an argument cannot be used, or paho-mqtt is not installed.

    Example:
        ```python
        sdf.sink(
            MQTTSink("alerts", "mqtt.example.com", 8883, "home/alerts", "shop", lambda: os.environ["MQTT_PASSWORD"])
        )
        ```
    """

    def __init__(
        self,
        client_id: str,
        server: str,
        port: int,
        topic_root: str,
        username: str | None = None,
        password: CredentialInput | None = None,
        version: ProtocolVersion = "3.1.1",
        tls_enabled: bool = True,
        key_serializer: Callable[[Any], str] = bytes.decode,
        value_serializer: Callable[[Any], str | bytes] = json.dumps,
        qos: Literal[0, 1, 2] = 1,
        mqtt_flush_timeout_seconds: float = 10,
        retain: bool | Callable[[Any], bool] = False,
        properties: "Properties | Callable[[Any], Properties] | None" = None,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        tls_ca_file: str | None = None,
        tls_certificate_file: str | None = None,
        tls_key_file: str | None = None,
        keepalive: int = 60,
        timeout: float = 10.0,
        retries: Retries | None = None,
    ) -> None:
        require_library(_OWNER, "paho.mqtt", "mqtt")
        super().__init__(on_client_connect_success, on_client_connect_failure)
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
        self._client_id = checked_text(_OWNER, "client_id", client_id)
        problem = unusable_in_topic(topic_root) if isinstance(topic_root, str) else "it is not a str"
        if problem is not None:
            of_type = isinstance(topic_root, str)
            raise argument_error(f"{_OWNER}(topic_root=...) cannot be used: {problem}", of_type=of_type)
        self._topic_root = topic_root.rstrip("/") or topic_root
        self._key_serializer = checked_function(_OWNER, "key_serializer", key_serializer)
        self._value_serializer = checked_function(_OWNER, "value_serializer", value_serializer)
        self._qos = checked_choice(_OWNER, "qos", qos, (0, 1, 2))
        self._flush_timeout = checked_seconds(_OWNER, "mqtt_flush_timeout_seconds", mqtt_flush_timeout_seconds)
        self._retain = (
            checked_function(_OWNER, "retain", retain)
            if callable(retain)
            else checked_type(_OWNER, "retain", retain, bool, "a bool or a function")
        )
        if properties is not None and version != "5":
            raise ArgumentValueError(f'{_OWNER}(properties=...) needs version="5": earlier versions have none')
        self._properties = properties
        self._retries = retries or Retries()
        self._connections: list[MQTTConnection] = []

    def setup(self) -> None:
        """Connect to the broker.

        Raises:
            SinkError: if the broker cannot be reached or refuses the connection.
        """
        self._connections = []
        # For a sink that is not closed; connections have threads.
        weakref.finalize(self, in_this_process(_close_connections), self._connections)
        try:
            self._connect_client()
        except PassingError as error:
            raise SinkError(f"{_OWNER} cannot connect: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        _close_connections(self._connections)

    def write(self, batch: SinkBatch) -> None:
        """Publish the values of one partition, and wait for the acknowledgements.

        Args:
            batch: the values.

        Raises:
            SinkError: if a value cannot be a message, or the broker refuses it.
            SinkBackpressureError: if the broker cannot be reached.
        """
        for chunk in batch.iter_chunks(_CHUNK):
            messages = [self._make_message(item, batch) for item in chunk]
            self._retries.write(
                lambda waiting=messages: self._publish_messages(waiting, batch),  # type: ignore[misc]
                passing=(PassingError,),
                what=f"{_OWNER}: publishing to {self._settings.address}",
            )

    def _connect_client(self) -> MQTTConnection:
        if self._connections and self._connections[0].lost is None:
            return self._connections[0]
        _close_connections(self._connections)
        try:
            connection = MQTTConnection(self._settings, f"{self._client_id}-{uuid.uuid4().hex[:8]}")
        except RefusedError as error:
            raise SinkError(f"{_OWNER} cannot connect: {error}") from error
        self._connections.append(connection)
        highest = getattr(connection.limits, "MaximumQoS", 2)
        if highest < self._qos:
            raise SinkError(f"{_OWNER} cannot write to {self._settings.address}: it allows qos {highest} at most")
        if self._retain is True and getattr(connection.limits, "RetainAvailable", 1) == 0:
            raise SinkError(f"{_OWNER} cannot write to {self._settings.address}: it does not retain messages")
        return connection

    def _publish_messages(self, waiting: "list[_Message]", batch: SinkBatch) -> None:
        """Publish messages, and remove from the list those that are acknowledged."""
        connection = self._connect_client()
        largest = getattr(connection.limits, "MaximumPacketSize", None)
        for offset, topic, payload, _, _ in waiting:
            if largest is not None and len(payload) + len(topic.encode()) > largest:
                raise self._make_problem(offset, batch, f"the broker takes {largest} bytes at most")
        while waiting:
            self._publish_window(connection, waiting, batch)

    def _publish_window(self, connection: MQTTConnection, waiting: "list[_Message]", batch: SinkBatch) -> None:
        numbers: list[int] = []
        lost: PassingError | None = None
        for _, topic, payload, retain, properties in waiting[: connection.window]:
            try:
                numbers.append(connection.publish(topic, payload, self._qos, retain, properties))
            except PassingError as error:
                lost = error
                break
        reasons = connection.wait_published(numbers, self._flush_timeout)
        for done, reason in enumerate(reasons):
            if reason.is_failure:
                offset = waiting[done][0]
                del waiting[:done]
                # The acknowledgements of later messages belong to this connection.
                connection.close()
                if is_busy(reason):
                    raise PassingError(f"{self._settings.address} is busy: {reason}")
                of_value = reason.value in _ABOUT_VALUE
                raise self._make_problem(offset, batch, f"the broker answers: {reason}", of_value=of_value)
        complete = len(reasons) == min(len(waiting), connection.window)
        del waiting[: len(reasons)]
        if not complete:
            raise lost or PassingError(connection.lost or "the connection was lost")

    def _make_message(self, item: SinkItem, batch: SinkBatch) -> "_Message":
        topic = self._topic_root
        try:
            if item.key is not None:
                topic = f"{self._topic_root}/{self._key_serializer(item.key)}"
        except Exception as error:
            raise self._make_problem(
                item.offset, batch, f"key_serializer failed with {type(error).__name__}"
            ) from error
        problem = unusable_in_topic(topic)
        if problem is not None:
            raise self._make_problem(item.offset, batch, f"its key cannot be part of a topic, because {problem}")
        try:
            payload = self._value_serializer(item.value)
            retain = bool(self._retain(item.value)) if callable(self._retain) else self._retain
            properties = self._properties(item.value) if callable(self._properties) else self._properties
            data = payload.encode() if isinstance(payload, str) else payload
        except Exception as error:
            raise self._make_problem(
                item.offset, batch, f"value_serializer, retain or properties failed with {type(error).__name__}"
            ) from error
        if not isinstance(data, bytes | bytearray):
            raise self._make_problem(
                item.offset, batch, f"value_serializer returned a {type(data).__name__}, not str or bytes"
            )
        if len(data) > _LARGEST_PAYLOAD:
            raise self._make_problem(item.offset, batch, f"it has more than {_LARGEST_PAYLOAD} bytes")
        return item.offset, topic, bytes(data), retain, properties

    def _make_problem(self, offset: int, batch: SinkBatch, reason: str, *, of_value: bool = True) -> SinkError:
        return SinkError(
            f"{_OWNER} cannot publish {batch.topic}[{batch.partition}] offset {offset} to {self._settings.address}: {reason}",
            (batch.topic, batch.partition, offset) if of_value else None,
        )


_Message = tuple[int, str, bytes, bool, Any]


def _close_connections(connections: list[MQTTConnection]) -> None:
    while connections:
        connections.pop().close()
