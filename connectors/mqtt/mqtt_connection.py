"""Connections to MQTT brokers. Each connection is a new client: what the library keeps of an old one is of no use.

A source acknowledges messages by numbers that are valid within one connection only. A sink repeats what was not
acknowledged, in order, on the next connection.
"""

import re
import ssl
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from streamrt.connectors.argument_checks import (
    checked_choice,
    checked_count,
    checked_flag,
    checked_seconds,
    checked_text,
)
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import PassingError, named
from streamrt.errors import ArgumentValueError, StreamRTError, argument_error

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.properties import Properties

__all__ = ["MQTTConnection", "MQTTSettings", "ProtocolVersion", "RefusedError", "checked_settings", "unusable_in_topic"]

ProtocolVersion = Literal["3.1", "3.1.1", "5"]
# Reason codes of MQTT 5, to which the library maps those of older versions.
_BUSY_CODES = frozenset({0x80, 0x83, 0x88, 0x89, 0x97, 0x9F})
_TAKEN_OVER = 0x8E
_MOST_IN_FLIGHT = 500
_MOST_WAITING = 10_000
# The standard lets brokers close the connection for control characters.
_UNUSABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class RefusedError(StreamRTError):
    """The broker refuses something, and will do so again."""


@dataclass(frozen=True)
class MQTTSettings:
    """How to reach a broker; see the sink and the source."""

    server: str
    port: int
    username: str | None
    password: Credential | None
    version: ProtocolVersion
    tls_enabled: bool
    tls_ca_file: str | None
    tls_certificate_file: str | None
    tls_key_file: str | None
    keepalive: int
    timeout_s: float

    @property
    def address(self) -> str:
        """The broker, for messages."""
        return f"{self.server}:{self.port}"


def checked_settings(
    owner: str,
    *,
    server: str,
    port: int,
    username: str | None,
    password: CredentialInput | None,
    version: ProtocolVersion,
    tls_enabled: bool,
    tls_ca_file: str | None,
    tls_certificate_file: str | None,
    tls_key_file: str | None,
    keepalive: int,
    timeout: float,
) -> MQTTSettings:
    """Return the settings of a connector.

    Raises:
        ConfigurationError: if one cannot be used.
    """
    if username is not None:
        checked_text(owner, "username", username)
    elif password is not None:
        raise ArgumentValueError(f"{owner} got a password without a username")
    checked_flag(owner, "tls_enabled", tls_enabled)
    files = {"tls_ca_file": tls_ca_file, "tls_certificate_file": tls_certificate_file, "tls_key_file": tls_key_file}
    for name, file in files.items():
        if file is not None:
            checked_text(owner, name, file)
            if not tls_enabled:
                raise ArgumentValueError(f"{owner}({name}=...) needs tls_enabled=True")
    if tls_key_file is not None and tls_certificate_file is None:
        raise ArgumentValueError(f"{owner}(tls_key_file=...) needs tls_certificate_file")
    return MQTTSettings(
        checked_text(owner, "server", server),
        checked_count(owner, "port", port, 1, 65_535),
        username,
        Credential.optional(password, f"{owner}(password=...)"),
        checked_choice(owner, "version", version, ("3.1", "3.1.1", "5")),
        tls_enabled,
        tls_ca_file,
        tls_certificate_file,
        tls_key_file,
        checked_count(owner, "keepalive", keepalive, 1, 65_535),
        checked_seconds(owner, "timeout", timeout),
    )


def unusable_in_topic(topic: str, *, wildcards: bool = False) -> str | None:
    """Return why a text cannot be an MQTT topic, or None if it can.

    Args:
        topic: the text.
        wildcards: whether it may contain `+` and `#`.

    Example:
        >>> unusable_in_topic("sensors/kitchen"), unusable_in_topic("sensors/#")
        (None, 'it contains a wildcard')
    """
    if not topic:
        return "it is empty"
    if _UNUSABLE.search(topic):
        return "it contains a control character"
    if not wildcards and ("+" in topic or "#" in topic):
        return "it contains a wildcard"
    return "it is longer than 65,535 bytes" if len(topic.encode()) > 65_535 else None


def checked_filter(owner: str, topic: str) -> str:
    """Return a topic to subscribe to.

    Raises:
        ConfigurationError: if it cannot be used.
    """
    problem = unusable_in_topic(topic, wildcards=True) if isinstance(topic, str) else "it is not a str"
    if problem is not None:
        raise argument_error(f"{owner}(topic=...) cannot be used: {problem}", of_type=isinstance(topic, str))
    return topic


class MQTTConnection:
    """One connection to a broker.

    Args:
        settings: how to reach it.
        client_id: the client id.
        session_expiry: seconds for which the broker keeps the session after the connection; None for no session.
        receives: whether messages are received; they must be acknowledged with `ack`.

    Raises:
        PassingError: if the broker cannot be reached.
        RefusedError: if it refuses the connection.
    """

    def __init__(
        self, settings: MQTTSettings, client_id: str, session_expiry: int | None = None, receives: bool = False
    ) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

        self._settings = settings
        self._changed = threading.Condition()
        self._connected = False
        self._lost: str | None = None
        self._refused: str | None = None
        self._closed = False
        self._gone = threading.Event()
        self._published: dict[int, Any] = {}
        self._granted: Any = None
        self._messages: deque[MQTTMessage] = deque()
        # Of version 5: what the broker allows, and how many messages may wait for their acknowledgements.
        self.limits: Any = None
        self.window = _MOST_IN_FLIGHT
        versions = {
            "3.1": MQTTProtocolVersion.MQTTv31,
            "3.1.1": MQTTProtocolVersion.MQTTv311,
            "5": MQTTProtocolVersion.MQTTv5,
        }
        self._v5 = settings.version == "5"
        client = self._client = Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if self._v5 else session_expiry is None,
            protocol=versions[settings.version],
            reconnect_on_failure=False,
            manual_ack=receives,
        )
        client.max_inflight_messages = _MOST_IN_FLIGHT
        client.connect_timeout = settings.timeout_s
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_publish, client.on_subscribe, client.on_message = (
            self._on_publish,
            self._on_subscribe,
            self._on_message,
        )
        if settings.username is not None:
            client.username_pw_set(settings.username, None if settings.password is None else settings.password.reveal())
        self._open_client(session_expiry)

    @property
    def lost(self) -> str | None:
        """Why the connection is lost, or None while it is open."""
        return self._lost

    @property
    def refused(self) -> str | None:
        """Why another connection would be of no use, or None."""
        return self._refused

    def publish(self, topic: str, payload: bytes | str, qos: int, retain: bool, properties: "Properties | None") -> int:
        """Send a message; return its number, to wait for.

        Raises:
            PassingError: if the connection is lost.
        """
        if self._lost is not None:
            raise PassingError(self._lost)
        number: int = self._client.publish(topic, payload, qos, retain, properties).mid
        return number

    def wait_published(self, numbers: list[int], timeout_s: float) -> list[Any]:
        """Wait until messages are acknowledged, or sent with QoS 0.

        Args:
            numbers: their numbers.
            timeout_s: seconds to wait for the next acknowledgement.

        Returns:
            The reason codes of those that are acknowledged, in order, up to the first one that is not.
        """
        found: list[Any] = []
        with self._changed:
            for number in numbers:
                deadline = time.monotonic() + timeout_s
                while number not in self._published and self._lost is None:
                    if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                        self._lost = f"{self._settings.address} sent no acknowledgement within {timeout_s:g} s"
                if number not in self._published:
                    break
                found.append(self._published.pop(number))
        return found

    def subscribe(self, topic: str, qos: int) -> None:
        """Subscribe to a topic.

        Raises:
            PassingError: if the broker does not answer.
            RefusedError: if it refuses.
        """
        from paho.mqtt.subscribeoptions import SubscribeOptions

        # Retained messages come with a new subscription only, not again after each lost connection.
        how: dict[str, Any] = {"options": SubscribeOptions(qos=qos, retainHandling=1)} if self._v5 else {"qos": qos}
        self._client.subscribe(topic, **how)
        with self._changed:
            self._changed.wait_for(
                lambda: self._granted is not None or self._lost is not None, self._settings.timeout_s
            )
        if self._granted is None:
            raise PassingError(self._lost or f"{self._settings.address} does not answer to the subscription")
        if any(code.is_failure for code in self._granted):
            raise RefusedError(f"{self._settings.address} refuses the subscription to {topic!r}: {self._granted[0]}")

    def take(self, timeout_s: float) -> "list[MQTTMessage]":
        """Return the messages that have arrived, in order; wait for the first one at most `timeout_s` seconds."""
        with self._changed:
            if not self._messages and self._lost is None:
                self._changed.wait(timeout_s)
            messages = list(self._messages)
            self._messages.clear()
            self._changed.notify_all()
        return messages

    def ack(self, message: "MQTTMessage") -> None:
        """Acknowledge a message of this connection."""
        self._client.ack(message.mid, message.qos)

    def close(self) -> None:
        """Say goodbye and close; acknowledgements are sent before."""
        with self._changed:
            self._closed = True
            self._lost = self._lost or "the connection was closed"
            self._changed.notify_all()
        self._client.disconnect()
        # The thread ends when it has sent everything; a broker that hangs must not hold it.
        threading.Thread(target=self._client.loop_stop, daemon=True).start()
        if self._connected:
            self._gone.wait(1)

    def _open_client(self, session_expiry: int | None) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        settings = self._settings
        options: dict[str, Any] = {}
        if self._v5:
            properties = Properties(PacketTypes.CONNECT)
            properties.ReceiveMaximum = 1_000
            if session_expiry is not None:
                properties.SessionExpiryInterval = session_expiry
            options = {"clean_start": session_expiry is None, "properties": properties}
        try:
            if settings.tls_enabled:
                self._client.tls_set_context(_tls_context(settings))
            self._client.connect(settings.server, settings.port, settings.keepalive, **options)
        except (OSError, ValueError) as error:
            raise PassingError(f"{settings.address} does not answer: {named(error)}") from error
        self._client.loop_start()
        with self._changed:
            self._changed.wait_for(lambda: self._connected or self._lost is not None, settings.timeout_s)
            if self._connected and self._lost is None:
                return
            problem = self._lost or f"{settings.address} does not answer within {settings.timeout_s:g} s"
        self.close()
        raise RefusedError(self._refused) if self._refused is not None else PassingError(problem)

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._changed:
            if reason.is_failure:
                self._lost = f"{self._settings.address} refuses the connection: {reason}"
                if reason.value not in _BUSY_CODES:
                    self._refused = self._lost
            else:
                self.limits = properties
                # The library does not respect this limit.
                self.window = min(getattr(properties, "ReceiveMaximum", _MOST_IN_FLIGHT), _MOST_IN_FLIGHT)
                self._connected = True
            self._changed.notify_all()

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._changed:
            # Old versions of the protocol do not say why; this is the most frequent reason.
            hint = "; another client may use the same client_id" if self._connected and reason.value == 0x80 else ""
            self._lost = self._lost or f"{self._settings.address} closed the connection: {reason}{hint}"
            self._gone.set()
            if reason.value == _TAKEN_OVER:
                self._refused = (
                    f"{self._settings.address} closed the connection: another client uses the same client_id"
                )
            self._changed.notify_all()

    def _on_publish(self, client: Any, data: Any, number: int, reason: Any, properties: Any) -> None:
        with self._changed:
            self._published[number] = reason
            self._changed.notify_all()

    def _on_subscribe(self, client: Any, data: Any, number: int, reasons: Any, properties: Any) -> None:
        with self._changed:
            self._granted = reasons
            self._changed.notify_all()

    def _on_message(self, client: Any, data: Any, message: "MQTTMessage") -> None:
        with self._changed:
            # Messages of QoS 0 are not limited by acknowledgements.
            while len(self._messages) >= _MOST_WAITING and not self._closed:
                self._changed.wait()
            self._messages.append(message)
            self._changed.notify_all()


def is_busy(reason: Any) -> bool:
    """Return whether a refusal of a message may pass."""
    return reason.value in _BUSY_CODES


def _tls_context(settings: MQTTSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.tls_ca_file)
    if settings.tls_certificate_file is not None:
        context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)
    return context
