"""The sink of Redis, against a server."""

import contextlib
import datetime
import importlib.util
import itertools
import json
import logging
import pickle
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import cloudpickle
import pytest

from streamrt import Application
from streamrt.connectors import BatchingSink, RedisSink, SinkBackpressureError
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkError
from streamrt.secret import collect_secrets
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.redis_server import PASSWORD, RedisServer, redis_server
from tests.connectors.sinks import batch_of

_numbers = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def server(running: RedisServer) -> RedisServer:
    running.client.flushall()
    return running


def numbered(key: Any, value: Any) -> str:
    """Each write has another key, in order."""
    return f"{next(_numbers):09d}"


def sink_of(server: RedisServer, **settings: Any) -> RedisSink:
    return RedisSink("127.0.0.1", server.port, 0, **{"password": PASSWORD, **settings})


class Impatient(RedisSink):
    _retries = Retries(first_wait_s=0.001, retry_after_s=3)


class TestRedisSink(BatchingSinkConformance):
    many = 2_000
    values: ClassVar[Any] = ({"n": 1}, {"n": 2, "text": "größer 🚆"}, {"n": 3, "list": [1, None, "\n"]}, {}, None, "x")

    @pytest.fixture(autouse=True)
    def destination(self, server: RedisServer) -> None:
        self.server = server

    def make(self) -> BatchingSink:
        return sink_of(self.server, key_serializer=numbered)

    def written(self) -> list[Written]:
        client = self.server.client
        keys = sorted(client.scan_iter(count=1_000))
        return [Written(json.loads(value)) for value in (client.mget(keys) if keys else [])]


def test_keys_of_records_are_used_as_they_are(server: RedisServer) -> None:
    sink = sink_of(server)
    keys = [b"\xff\x00", "schlüssel", b"", 7, 1.5, "two\r\nSET injected 1"]
    sink.write(batch_of(*range(6), keys=keys))
    found = {key: server.client.get(key) for key in server.client.scan_iter()}
    assert found == {
        b"\xff\x00": b"0",
        "schlüssel".encode(): b"1",
        b"": b"2",
        b"7": b"3",
        b"1.5": b"4",
        b"two\r\nSET injected 1": b"5",
    }


def test_the_last_value_of_a_key_stays(server: RedisServer) -> None:
    sink = sink_of(server, value_serializer=lambda value: b"\xff" + str(value).encode())
    for _ in range(2):
        sink.write(batch_of(*range(2_500), keys=[f"k{n % 3}" for n in range(2_500)]))
    assert server.client.mget("k0", "k1", "k2") == [b"\xff2499", b"\xff2497", b"\xff2498"]
    assert server.client.dbsize() == 3


def test_a_user_who_may_run_set_alone(server: RedisServer) -> None:
    server.client.acl_setuser(
        "narrow", enabled=True, passwords=["+sesame"], keys=["*"], commands=["+set", "+ping", "+select", "-mset"]
    )
    sink = sink_of(server, username="narrow", password="sesame")
    sink.write(batch_of({"n": 1}, {"n": 2}, keys=["a", "a"]))
    assert json.loads(server.client.get("a")) == {"n": 2}
    server.client.acl_deluser("narrow")


def test_values_expire(server: RedisServer) -> None:
    for ttl in (90, 90.0, datetime.timedelta(seconds=90)):
        sink_of(server, ttl=ttl).write(batch_of("a"))
        assert 60_000 < server.client.pttl("key-0") <= 90_000
    sink_of(server).write(batch_of("a"))
    assert server.client.pttl("key-0") == -1


def test_none_may_delete(server: RedisServer) -> None:
    sink_of(server).write(batch_of(None, None))
    assert server.client.get("key-0") == b"null"
    sink_of(server, delete_on_none=True).write(batch_of(None, 5))
    assert (server.client.get("key-0"), server.client.get("key-1")) == (None, b"5")


def test_a_database_is_chosen(server: RedisServer) -> None:
    import redis

    RedisSink("127.0.0.1", server.port, 3, password=lambda: PASSWORD).write(batch_of("a"))
    assert redis.Redis(port=server.port, db=3, password=PASSWORD).get("key-0") == b'"a"'
    with pytest.raises(SinkError, match=r"RedisSink cannot use database 9 of Redis at 127.0.0.1:\d+: .*out of range"):
        RedisSink("127.0.0.1", server.port, 9, password=PASSWORD).start()


@pytest.mark.parametrize("host", ["127.0.0.1", "no.such.host.invalid"])
def test_a_wrong_host(host: str) -> None:
    sink = RedisSink(host, 1, 0, password=PASSWORD)
    with pytest.raises(SinkError, match=rf"^RedisSink cannot reach database 0 of Redis at {host}:1: .*connecting to"):
        sink.start()


@pytest.mark.parametrize("password", ["wrong-secret", None, lambda: "wrong-secret"])
def test_a_wrong_password(server: RedisServer, password: Any) -> None:
    with pytest.raises(SinkError, match=r"Redis at 127.0.0.1:\d+: it refuses the credentials$") as caught:
        sink_of(server, password=password).start()
    assert "wrong-secret" not in repr(caught.value)


@pytest.mark.slow
def test_a_server_that_dies(server: RedisServer) -> None:
    sink = Impatient("127.0.0.1", server.port, 0, password=PASSWORD)
    sink.start()
    sink.write(batch_of("a", "b"))
    server.kill()
    try:
        with pytest.raises(
            SinkBackpressureError, match=r"write of orders\[0\] to database 0 .* failed, also when it was repeated"
        ) as caught:
            sink.write(batch_of("c", "d"))
        assert caught.value.retry_after == 3
    finally:
        server.start()
    sink.write(batch_of("c", "d", "e"))
    assert server.client.mget("key-0", "key-1", "key-2") == [b'"c"', b'"d"', b'"e"']


@pytest.mark.slow
def test_a_server_that_hangs(server: RedisServer) -> None:
    sink = Impatient("127.0.0.1", server.port, 0, password=PASSWORD, socket_timeout=0.05)
    sink.start()
    server.freeze()
    try:
        with pytest.raises(SinkBackpressureError, match="Timeout"):
            sink.write(batch_of("a"))
    finally:
        server.thaw()
    sink.write(batch_of("b"))
    assert server.client.get("key-0") == b'"b"'


def test_a_full_server_passes(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    sink = Impatient("127.0.0.1", server.port, 0, password=PASSWORD)
    server.client.config_set("maxmemory", 1)
    try:
        with caplog.at_level(logging.DEBUG), pytest.raises(SinkBackpressureError, match="maxmemory") as caught:
            sink.write(batch_of("precious-value"))
    finally:
        server.client.config_set("maxmemory", 0)
    assert "precious-value" not in str(caught.value) + caplog.text + repr(caught.value.__cause__)
    sink.write(batch_of("a"))


def test_a_new_password_is_fetched(server: RedisServer) -> None:
    passwords = [PASSWORD, "outdated", "renewed"]
    sink = Impatient("127.0.0.1", server.port, 0, password=lambda: passwords.pop(0))
    sink.start()
    client = server.client
    client.config_set("requirepass", "renewed")
    try:
        client.client_kill_filter(_type="normal", skipme=True)
        sink.write(batch_of("a"))
    finally:
        client.config_set("requirepass", PASSWORD)
    assert server.client.get("key-0") == b'"a"'
    assert passwords == []


@pytest.mark.parametrize(
    ("settings", "value", "key", "words"),
    [
        ({}, {1, 2}, "k", "serialize the value of orders[0] at offset 40: value_serializer raised TypeError"),
        ({}, "secret-value", None, "store orders[0] at offset 40 in database 0 of Redis at"),
        ({}, "secret-value", None, "it has no key"),
        ({}, "secret-value", {"a": 1}, "its key has the type dict"),
        ({"value_serializer": lambda value: value}, ["secret-value"], "k", "value_serializer returned list"),
        ({"value_serializer": str}, "secret-value \ud800", "k", "half of a surrogate pair"),
        ({"key_serializer": lambda key, value: value["id"]}, {"a": 1}, "k", "key_serializer raised KeyError"),
        ({"key_serializer": lambda key, value: None}, {"a": 1}, "k", "it has no key"),
    ],
)
def test_what_cannot_be_stored(server: RedisServer, settings: Any, value: Any, key: Any, words: str) -> None:
    sink = sink_of(server, **settings)
    with pytest.raises(SinkError) as caught:
        sink.write(batch_of(value, keys=[key]))
    assert words in str(caught.value)
    assert "offset 40" in str(caught.value)
    assert "secret-value" not in str(caught.value)
    assert server.client.dbsize() == 0


def test_what_the_server_refuses(server: RedisServer) -> None:
    client = server.client
    client.acl_setuser("writer", enabled=True, passwords=["+pw"], categories=["+@all"], keys=["allowed*"])
    sink = sink_of(server, username="writer", password="pw", key_serializer=lambda key, value: value)
    with pytest.raises(SinkError, match=r"cannot store orders\[0\] at offset 41 in .*permission") as caught:
        sink.write(batch_of("allowed-1", "other-key", "allowed-2"))
    assert "other-key" not in str(caught.value)
    client.acl_deluser("writer")


def test_secrets_stay_hidden(server: RedisServer) -> None:
    sink = sink_of(server, username="default", ssl_password="of-a-key")
    with collect_secrets() as collected:
        data = cloudpickle.dumps(sink)
    for text in (data, repr(sink).encode(), repr(vars(sink)).encode()):
        assert PASSWORD.encode() not in text
        assert b"of-a-key" not in text
    assert PASSWORD in collected.values()
    again = pickle.loads(data)
    again.start()
    again.write(batch_of("a"))
    assert repr(again) == f"RedisSink('127.0.0.1', {server.port}, 0)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"host": ""}, "host"),
        ({"host": 5}, "host"),
        ({"port": 0}, "port"),
        ({"port": "6379"}, "port"),
        ({"db": -1}, "db"),
        ({"db": True}, "db"),
        ({"value_serializer": None}, "value_serializer"),
        ({"key_serializer": "key"}, "key_serializer"),
        ({"password": 5}, "password"),
        ({"socket_timeout": 0}, "socket_timeout"),
        ({"socket_timeout": None}, "socket_timeout"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": "1h"}, "ttl"),
        ({"ttl": float("nan")}, "ttl"),
        ({"delete_on_none": 1}, "delete_on_none"),
        ({"user": "secret-user"}, "unsupported settings among user"),
        ({"client_name": (name for name in "ab")}, "cannot send its settings client_name"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        RedisSink(**{"host": "localhost", "port": 6379, "db": 0, **arguments})
    assert "secret-user" not in str(caught.value)


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"RedisSink needs the package redis: run pip install .*\[redis\]"):
        RedisSink("localhost", 6379, 0)


def test_at_the_end_of_a_dataframe(server: RedisServer) -> None:
    app = Application(broker_address="unused:9092", consumer_group="shop")
    orders = app.topic("orders", key_serializer="str")
    app.dataframe(orders).sink(sink_of(server))
    with TopologyTestDriver(app) as driver, contextlib.closing(server.client) as client:
        driver.pipe(orders, {"sku": "piano"}, key="ada")
        assert client.get("ada") == b'{"sku": "piano"}'


def test_c13_tls_at_a_port_without_it_is_said_at_once(server: RedisServer) -> None:
    for options in ({"tls": True}, {"ssl": True}):
        sink = sink_of(server, **options)
        start = time.monotonic()
        with pytest.raises(SinkError, match=r"the server has no TLS at this port: use tls=False"):
            sink.setup()
        assert time.monotonic() - start < 20
    sink_of(server, tls=False).setup()
    with pytest.raises(ConfigurationError, match="got tls and ssl, which say the same"):
        sink_of(server, tls=True, ssl=True)
