"""`MQTTSource`, against mosquitto."""

import gc
import importlib.util
import json
import logging
import socket
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

import cloudpickle
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from streamrt.connectors import MQTTSource, Source
from streamrt.connectors.mqtt.mqtt_connection import MQTTConnection
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    SourceError,
)
from streamrt.testing.connectors import SourceConformance
from tests.connectors.mosquitto import PASSWORD, USER, WRONG, Mosquitto, Peer, mosquitto
from tests.connectors.sources import DyingProducer, Run
from tests.servers import free_port
from tests.support import wait_until

VERSIONS = ("3.1", "3.1.1", "5")


@pytest.fixture(scope="module")
def broker() -> Iterator[Mosquitto]:
    with mosquitto() as running:
        yield running


@pytest.fixture
def root() -> str:
    """A topic that no other test uses."""
    return f"shop/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def peer(broker: Mosquitto, root: str) -> Iterator[Peer]:
    client = Peer(broker, f"{root}/#")
    yield client
    client.close()


def source(broker: Mosquitto, root: str, **options: Any) -> MQTTSource:
    arguments = {
        "topic": f"{root}/#",
        "client_id": root.replace("/", "-"),
        "server": "127.0.0.1",
        "port": broker.port,
        "username": USER,
        "password": PASSWORD,
        "tls_enabled": False,
    }
    return MQTTSource(**{**arguments, **options})


def numbers(start: int, end: int) -> list[str]:
    return [json.dumps(number) for number in range(start, end)]


class TestMQTTSource(SourceConformance):
    version: ClassVar[Any] = "5"

    @pytest.fixture(autouse=True)
    def target(self, broker: Mosquitto, root: str, peer: Peer) -> Iterator[None]:
        self.broker, self.root = broker, root
        peer.publish(f"{root}/a", "1", retain=True)
        yield
        peer.publish(f"{root}/a", "", retain=True)

    def make(self) -> Source:
        return source(self.broker, self.root, version=self.version)


class TestMQTTSourceOfVersion311(TestMQTTSource):
    version: ClassVar[Any] = "3.1.1"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1])
def test_messages_become_records(broker: Mosquitto, root: str, peer: Peer, version: Any, qos: Any) -> None:
    with Run(source(broker, root, version=version, qos=qos)) as run:
        assert run.connected.wait(60)
        peer.publish(f"{root}/a/größe", *numbers(0, 50), "", qos=qos)
        assert run.wait_for(51) == [*range(50), None]
    first = run.producer.records[0]
    assert first.key == f"{root}/a/größe".encode()
    assert (first.timestamp or 0) > 1_600_000_000_000


def test_setters_and_deserializer(broker: Mosquitto, root: str, peer: Peer) -> None:
    made = source(
        broker,
        root,
        key_setter=lambda message: message.topic.rpartition("/")[2],
        value_setter=lambda message: {"text": message.payload, "qos": message.qos},
        timestamp_setter=lambda message: 1_000 + len(message.payload),
        payload_deserializer=bytes.decode,
    )
    with Run(made) as run:
        assert run.connected.wait(60)
        peer.publish(f"{root}/x", "no json {")
        assert run.wait_for(1) == [{"text": "no json {", "qos": 1}]
    assert (run.producer.records[0].key, run.producer.records[0].timestamp) == (b"x", 1_009)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_comes_while_it_is_away_is_not_lost(broker: Mosquitto, root: str, peer: Peer, version: Any) -> None:
    with Run(source(broker, root, version=version)) as run:
        assert run.connected.wait(60)
        peer.publish(f"{root}/a", *numbers(0, 5))
        run.wait_for(5)
    peer.publish(f"{root}/a", *numbers(5, 40))
    with Run(source(broker, root, version=version)) as run:
        # What was produced is acknowledged, and not delivered again.
        assert run.wait_for(35) == list(range(5, 40))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_not_flushed_comes_again(broker: Mosquitto, root: str, peer: Peer, version: Any) -> None:
    with Run(source(broker, root, version=version), producer=DyingProducer()) as run:
        assert run.connected.wait(60)
        peer.publish(f"{root}/a", *numbers(0, 30))
        assert "the process dies" in str(run.failure())
    with Run(source(broker, root, version=version)) as run:
        assert run.wait_for(30) == list(range(30))


@pytest.mark.slow
def test_a_broker_that_restarts_is_found_again() -> None:
    with mosquitto() as broker, Run(source(broker, "shop/a")) as run:
        assert run.connected.wait(60)
        peer = Peer(broker)
        peer.publish("shop/a/b", *numbers(0, 5))
        run.wait_for(5)
        broker.stop()
        broker.start()
        peer.wait_subscribed(2)
        # The broker has stored the session, so these wait for the source if it is not there yet.
        peer.publish("shop/a/b", *numbers(5, 10))
        # Acknowledgements that the broker had not got come too late, so that some messages may be delivered again.
        wait_until(lambda: set(run.values) == set(range(10)), what="all messages")
        peer.close()


def test_a_payload_that_is_not_json_ends_the_source_and_is_not_acknowledged(
    broker: Mosquitto, root: str, peer: Peer
) -> None:
    with Run(source(broker, root)) as run:
        assert run.connected.wait(60)
        peer.publish(f"{root}/a", "1", "sesame {", "3")
        error = str(run.failure())
    assert "JSONDecodeError; pass payload_deserializer=None" in error
    assert "sesame" not in error
    with Run(source(broker, root, payload_deserializer=lambda payload: payload.decode())) as run:
        assert run.wait_for(2)[-2:] == ["sesame {", "3"]


def test_another_client_with_its_id_is_told(broker: Mosquitto, root: str, caplog: pytest.LogCaptureFixture) -> None:
    with Run(source(broker, root)) as run:
        assert run.connected.wait(60)
        with Run(source(broker, root)) as other:
            assert other.connected.wait(60)
            wait_until(lambda: "another client may use the same client_id" in caplog.text)


def test_a_session_that_was_taken_over_ends_the_source(broker: Mosquitto, root: str) -> None:
    with Run(source(broker, root, version="5")) as run:
        assert run.connected.wait(60)
        connection = next(item for item in gc.get_objects() if isinstance(item, MQTTConnection) and item.lost is None)
        connection._on_disconnect(None, None, None, ReasonCode(PacketTypes.DISCONNECT, "Session taken over"), None)
        assert "another client uses the same client_id" in str(run.failure())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_source_with_a_wrong_password(broker: Mosquitto, root: str, version: Any) -> None:
    with Run(source(broker, root, version=version, password="wrong-sesame")) as run:
        error = run.failure()
    assert isinstance(error, SourceError)
    assert f"cannot connect: 127.0.0.1:{broker.port} refuses the connection: Not authorized" in str(error)
    assert "sesame" not in str(error)


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1"])
def test_a_source_without_a_broker(broker: Mosquitto, root: str, host: str) -> None:
    port = free_port()
    with Run(source(broker, root, server=host, port=port)) as run:
        assert f"cannot connect: {host}:{port} does not answer" in str(run.failure())


def test_it_stops_while_the_broker_hangs(broker: Mosquitto, root: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with Run(source(broker, root, port=silent.getsockname()[1])) as run:
            accepted, _ = silent.accept()
            assert accepted.recv(10)
        accepted.close()
        assert run.values == []


@pytest.mark.slow
def test_it_stops_while_a_connected_broker_hangs(root: str) -> None:
    with mosquitto() as broker:
        try:
            with Run(source(broker, root)) as run:
                assert run.connected.wait(60)
                broker.freeze()
        finally:
            broker.thaw()


def test_secrets_of_the_source_are_nowhere(broker: Mosquitto, root: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = source(broker, root)
    assert PASSWORD not in repr(vars(made))
    assert PASSWORD.encode() not in cloudpickle.dumps(made)
    with Run(made) as run:
        assert run.connected.wait(60)
    assert PASSWORD not in caplog.text


def test_the_name_of_the_source_comes_from_the_client_id(broker: Mosquitto) -> None:
    assert source(broker, "shop/a", client_id="living room/1").name == "mqtt_living-room-1"
    assert source(broker, "shop/a", name="sensors").name == "sensors"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"MQTTSource needs the package paho.mqtt: .*\[mqtt\]"):
        MQTTSource("a", "b", "c", 1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        *WRONG,
        ({"topic": ""}, ArgumentValueError),
        ({"topic": 7}, ArgumentTypeError),
        ({"key_setter": None}, ArgumentTypeError),
        ({"value_setter": None}, ArgumentTypeError),
        ({"timestamp_setter": None}, ArgumentTypeError),
        ({"payload_deserializer": 7}, ArgumentTypeError),
        ({"qos": 2}, ArgumentValueError),
        ({"session_expiry": 0}, ArgumentValueError),
    ],
)
def test_wrong_arguments_of_the_source_are_refused(
    broker: Mosquitto, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match="MQTTSource"):
        source(broker, "shop", **arguments)
