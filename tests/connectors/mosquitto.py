"""An MQTT broker for tests: mosquitto, with passwords, access rules and TLS."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from streamrt.errors import ArgumentTypeError, ArgumentValueError
from tests.connectors.certificates import certify
from tests.servers import Server, free_port, program, workspace
from tests.support import wait_until

USER, PASSWORD = "shop", "open-sesame"


class Mosquitto(Server):
    """A broker that allows one user everything below `shop/`.

    Args:
        directory: its files.
    """

    def __init__(self, directory: Path) -> None:
        self.tls_port = free_port()
        port = free_port()
        configuration = f"""
            user root
            per_listener_settings false
            allow_anonymous false
            password_file {directory}/passwords
            acl_file {directory}/rules
            persistence true
            persistence_location {directory}/
            max_queued_messages 100000
            message_size_limit 200000
            listener {port} 127.0.0.1
            listener {self.tls_port} 127.0.0.1
            cafile {directory}/certificate.pem
            certfile {directory}/certificate.pem
            keyfile {directory}/key.pem
        """
        (directory / "mosquitto.conf").write_text("\n".join(line.strip() for line in configuration.splitlines()))
        (directory / "rules").write_text(f"user {USER}\ntopic readwrite shop/#\n")
        (directory / "passwords").touch(0o600)
        subprocess.run([program("mosquitto_passwd"), "-b", str(directory / "passwords"), USER, PASSWORD], check=True)
        self.certificate = str(directory / "certificate.pem")
        certify(directory)
        super().__init__([program("mosquitto"), "-c", str(directory / "mosquitto.conf")], port, directory)


@contextlib.contextmanager
def mosquitto() -> Iterator[Mosquitto]:
    """A running broker."""
    with workspace("mosquitto") as directory:
        server = Mosquitto(directory)
        server.start()
        try:
            yield server
        finally:
            server.stop()


class Peer:
    """Another client of the broker, which publishes, and notes what it gets.

    Args:
        server: the broker.
        topic: the topic to subscribe to.
    """

    def __init__(self, server: Mosquitto, topic: str = "shop/#") -> None:
        self.got: list[Any] = []
        client = self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        client.username_pw_set(USER, PASSWORD)
        client.reconnect_delay_set(1, 1)
        subscribed: list[Any] = []
        client.on_connect = lambda *_: client.subscribe(topic, qos=2)
        client.on_subscribe = lambda *_: subscribed.append(True)
        client.on_message = lambda client, data, message: self.got.append(message)
        client.connect("127.0.0.1", server.port)
        client.loop_start()
        wait_until(lambda: subscribed, what="the subscription")
        self._subscribed = subscribed

    def publish(self, topic: str, *payloads: str | bytes, qos: int = 1, retain: bool = False) -> None:
        """Publish messages, and wait until the broker has them."""
        for info in [self._client.publish(topic, payload, qos, retain) for payload in payloads]:
            info.wait_for_publish(10)

    def wait_subscribed(self, times: int) -> None:
        """Wait until the client has subscribed so many times."""
        wait_until(lambda: len(self._subscribed) >= times, what="the subscription")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


# Arguments that the sink and the source refuse.
WRONG: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"client_id": ""}, ArgumentValueError),
    ({"server": ""}, ArgumentValueError),
    ({"port": 0}, ArgumentValueError),
    ({"port": 70_000}, ArgumentValueError),
    ({"port": "1883"}, ArgumentTypeError),
    ({"username": None, "password": "p"}, ArgumentValueError),
    ({"username": 7}, ArgumentTypeError),
    ({"password": 7}, ArgumentTypeError),
    ({"version": "4"}, ArgumentValueError),
    ({"version": 5}, ArgumentTypeError),
    ({"tls_enabled": "yes"}, ArgumentTypeError),
    ({"tls_ca_file": "a"}, ArgumentValueError),
    ({"tls_key_file": "a", "tls_enabled": True}, ArgumentValueError),
    ({"keepalive": 0}, ArgumentValueError),
    ({"timeout": 0}, ArgumentValueError),
    ({"qos": 3}, ArgumentValueError),
    ({"qos": True}, ArgumentTypeError),
]
