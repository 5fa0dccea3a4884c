"""`MQTTSink`, against mosquitto."""

import importlib.util
import json
import logging
import pickle
import socket
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

import cloudpickle
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from streamrt.connectors import BatchingSink, MQTTSink
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    SinkBackpressureError,
    SinkError,
)
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.mosquitto import PASSWORD, USER, WRONG, Mosquitto, Peer, mosquitto
from tests.connectors.sinks import QUICK, fill
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


def sink(broker: Mosquitto, root: str, **options: Any) -> MQTTSink:
    arguments = {
        "client_id": "sink",
        "server": "127.0.0.1",
        "port": broker.port,
        "topic_root": root,
        "username": USER,
        "password": PASSWORD,
        "tls_enabled": False,
        "retries": QUICK,
    }
    return MQTTSink(**{**arguments, **options})


def started(broker: Mosquitto, root: str, **options: Any) -> MQTTSink:
    made = sink(broker, root, **options)
    made.start()
    return made


def wait_for(peer: Peer, count: int) -> list[Any]:
    wait_until(lambda: len(peer.got) >= count, what=f"{count} messages, of which {len(peer.got)} came")
    return [json.loads(message.payload) for message in peer.got]


class TestMQTTSink(BatchingSinkConformance):
    many: ClassVar[int] = 2_000
    keys: ClassVar[Any] = (b"key", None, b"", "schlüssel".encode(), b"a/b")
    version: ClassVar[Any] = "5"
    qos: ClassVar[Any] = 1

    @pytest.fixture(autouse=True)
    def target(self, broker: Mosquitto, root: str, peer: Peer) -> None:
        self.broker, self.root, self.peer = broker, root, peer

    def make(self) -> BatchingSink:
        return sink(self.broker, self.root, version=self.version, qos=self.qos)

    def written(self) -> list[Written]:
        # What the broker has acknowledged is on its way to the other client, before what follows.
        mark = uuid.uuid4().hex
        self.peer.publish(f"{self.root}/mark", mark, qos=2)
        wait_until(lambda: any(message.payload == mark.encode() for message in self.peer.got), what="the mark")
        return [
            Written(json.loads(message.payload)) for message in self.peer.got if not message.topic.endswith("/mark")
        ]


class TestMQTTSinkOfVersion311(TestMQTTSink):
    many: ClassVar[int] = 500
    version: ClassVar[Any] = "3.1.1"


class TestMQTTSinkWithQoS2(TestMQTTSink):
    many: ClassVar[int] = 500
    qos: ClassVar[Any] = 2


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_topics_and_payloads(broker: Mosquitto, root: str, peer: Peer, version: Any, qos: Any) -> None:
    made = started(broker, root, version=version, qos=qos)
    fill(made, key="größe/1".encode())
    fill(made, key=None)
    made.flush()
    assert wait_for(peer, 2) == [{"n": 0}, {"n": 0}]
    assert [message.topic for message in peer.got] == [f"{root}/größe/1", root]


def test_serializers_retain_and_properties(broker: Mosquitto, root: str, peer: Peer) -> None:
    def properties(value: Any) -> Properties:
        made = Properties(PacketTypes.PUBLISH)
        made.UserProperty = [("n", str(value["n"]))]
        return made

    made = started(
        broker,
        f"{root}/",
        version="5",
        key_serializer=lambda key: key.decode().upper(),
        value_serializer=lambda value: str(value["n"]).encode(),
        retain=lambda value: value["n"] == 1,
        properties=properties,
    )
    fill(made, 2).flush()
    wait_for(peer, 2)
    assert [(message.topic, message.payload) for message in peer.got] == [(f"{root}/K", b"0"), (f"{root}/K", b"1")]
    assert peer.got[1].properties.UserProperty == [("n", "1")]
    late = Peer(broker, f"{root}/#")
    wait_for(late, 1)
    assert [message.payload for message in late.got] == [b"1"]
    late.publish(f"{root}/K", b"", retain=True)
    late.close()


# The library forgets to close a socket whose handshake failed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tls(broker: Mosquitto, root: str, peer: Peer) -> None:
    made = started(broker, root, port=broker.tls_port, tls_enabled=True, tls_ca_file=broker.certificate)
    fill(made).flush()
    assert wait_for(peer, 1) == [{"n": 0}]
    with pytest.raises(SinkError, match=r"MQTTSink cannot connect: 127.0.0.1:\d+ does not answer: SSL"):
        started(broker, root, port=broker.tls_port, tls_enabled=True)
    with pytest.raises(SinkError, match="cannot connect"):
        started(broker, root, port=broker.port, tls_enabled=True, tls_ca_file=broker.certificate)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_password(broker: Mosquitto, root: str, version: Any) -> None:
    with pytest.raises(SinkError, match=rf"127.0.0.1:{broker.port} refuses the connection: Not authorized") as caught:
        started(broker, root, version=version, password="wrong-sesame")
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1"])
def test_a_broker_that_is_not_there(broker: Mosquitto, root: str, host: str) -> None:
    port = free_port()
    with pytest.raises(SinkError, match=f"MQTTSink cannot connect: {host}:{port} does not answer"):
        started(broker, root, server=host, port=port)


def test_a_broker_that_hangs(broker: Mosquitto, root: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(SinkError, match="does not answer within"):
            started(broker, root, port=port, timeout=0.1)


@pytest.mark.slow
def test_nothing_is_lost_when_the_broker_is_killed() -> None:
    with mosquitto() as broker:
        peer = Peer(broker)
        made = started(broker, "shop/a")
        fill(made, 20).flush()
        wait_for(peer, 20)
        broker.kill()
        fill(made, 20, start=20)
        with pytest.raises(SinkBackpressureError, match="publishing to 127") as caught:
            made.flush()
        assert caught.value.retry_after == 3
        made.on_paused()
        broker.start()
        peer.wait_subscribed(2)
        fill(made, 20, start=20).flush()
        assert [value["n"] for value in wait_for(peer, 40)] == list(range(40))
        peer.close()


@pytest.mark.slow
def test_a_broker_that_stops_to_answer(root: str) -> None:
    with mosquitto() as broker:
        made = started(broker, root, mqtt_flush_timeout_seconds=0.1, timeout=0.2)
        broker.freeze()
        try:
            fill(made)
            with pytest.raises(SinkBackpressureError):
                made.flush()
        finally:
            broker.thaw()
        made.on_paused()
        wait_until(lambda: _flushed(fill(made)))


def _flushed(made: MQTTSink) -> bool:
    try:
        made.flush()
    except SinkBackpressureError:
        made.on_paused()
        return False
    return True


def test_a_message_that_the_broker_refuses_is_named(broker: Mosquitto) -> None:
    made = started(broker, "elsewhere", version="5")
    fill(made, 2)
    with pytest.raises(
        SinkError, match=r"orders\[3\] offset 0 to 127.0.0.1:\d+: the broker answers: Not authorized"
    ) as caught:
        made.flush()
    # The broker also refuses the next ones.
    assert caught.value.record is None
    made.on_paused()


@pytest.mark.parametrize("key", [b"a+b", b"#", b"a\x00b", b"two\r\nlines", b"\xff", "text", b"x" * 70_000])
def test_keys_that_cannot_be_in_a_topic_are_refused(broker: Mosquitto, root: str, peer: Peer, key: Any) -> None:
    made = fill(started(broker, root), key=key)
    with pytest.raises(SinkError, match=r"MQTTSink cannot publish orders\[3\] offset 0"):
        made.flush()
    assert peer.got == []


@pytest.mark.parametrize("value", [b"sesame", {"sesame"}])
def test_values_that_cannot_be_serialized_are_named_and_not_shown(
    broker: Mosquitto, root: str, peer: Peer, value: Any
) -> None:
    made = fill(started(broker, root), 2)
    fill(made, start=7, value=value)
    with pytest.raises(SinkError, match=r"orders\[3\] offset 7 .* failed with TypeError") as caught:
        made.flush()
    assert caught.value.record == ("orders", 3, 7)
    assert "sesame" not in str(caught.value)
    assert peer.got == []
    with pytest.raises(SinkError, match="returned a int, not str or bytes"):
        fill(started(broker, root, value_serializer=lambda value: 7)).flush()


def test_secrets_are_nowhere(broker: Mosquitto, root: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = sink(broker, root, version="5")
    assert PASSWORD not in repr(vars(made))
    assert PASSWORD.encode() not in cloudpickle.dumps(made)
    again: MQTTSink = pickle.loads(cloudpickle.dumps(made))
    again.start()
    fill(again).flush()
    assert PASSWORD not in caplog.text
    fill(started(broker, root, password=lambda: PASSWORD)).flush()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"MQTTSink needs the package paho.mqtt: .*\[mqtt\]"):
        MQTTSink("a", "b", 1, "c")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        *WRONG,
        ({"topic_root": ""}, ArgumentValueError),
        ({"topic_root": "a/#"}, ArgumentValueError),
        ({"topic_root": 7}, ArgumentTypeError),
        ({"key_serializer": None}, ArgumentTypeError),
        ({"value_serializer": None}, ArgumentTypeError),
        ({"mqtt_flush_timeout_seconds": 0}, ArgumentValueError),
        ({"retain": "yes"}, ArgumentTypeError),
        ({"properties": lambda value: None}, ArgumentValueError),
    ],
)
def test_wrong_arguments_of_the_sink_are_refused(
    broker: Mosquitto, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match="MQTTSink"):
        sink(broker, "shop", **arguments)
