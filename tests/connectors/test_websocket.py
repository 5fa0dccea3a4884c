"""`WebSocketSource`: messages of a WebSocket."""

import gc
import importlib.util
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from websockets.sync.server import Server, ServerConnection, serve

from streamrt.connectors import WebSocketSource
from streamrt.connectors.background import Interrupts
from streamrt.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError, SourceError
from streamrt.testing.connectors import SourceConformance
from tests.connectors.certificates import certify
from tests.connectors.http_server import Answer, HTTPServer
from tests.connectors.sources import Run
from tests.servers import free_port
from tests.support import wait_until

PATIENCE_S = 300.0
"""Seconds for a handshake: threads of a busy machine may wait for long."""


class SocketServer:
    """A WebSocket server in a thread: it sends what is added, to the connections of that moment."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.port = free_port()
        self.received: list[str | bytes] = []
        self.headers: list[dict[str, str]] = []
        self.connections: list[ServerConnection] = []
        self.greeting: list[str | bytes] = []
        self.status: int | None = None
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"ws{'' if self.tls is None else 's'}://127.0.0.1:{self.port}/feed"

    def start(self) -> "SocketServer":
        self._server = serve(
            self._handle,
            "127.0.0.1",
            self.port,
            process_request=self._answer,
            open_timeout=PATIENCE_S,
            close_timeout=0.2,
            max_size=None,
            ssl=self.tls,
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server = None
        self.close()

    def close(self, code: int = 1001) -> None:
        """Close the open connections."""
        while self.connections:
            self.connections.pop().close(code)

    def send(self, *messages: str | bytes) -> None:
        wait_until(lambda: self.connections, what="a connection")
        for connection in self.connections:
            for message in messages:
                connection.send(message)

    def _answer(self, connection: ServerConnection, request: Any) -> Any:
        self.headers.append({name.lower(): value for name, value in request.headers.raw_items()})
        return None if self.status is None else connection.respond(self.status, "no")

    def _handle(self, connection: ServerConnection) -> None:
        for message in self.greeting:
            connection.send(message)
        self.connections.append(connection)
        for message in connection:
            self.received.append(message)

    def __enter__(self) -> "SocketServer":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()


@pytest.fixture
def server() -> Iterator[SocketServer]:
    with SocketServer() as running:
        running.greeting = [json.dumps(number) for number in range(3)]
        yield running


def source(server: SocketServer, **options: Any) -> WebSocketSource:
    return WebSocketSource(**{"url": server.url, "name": "feed", "timeout": PATIENCE_S, **options})


class TestWebSocketSource(SourceConformance):
    @pytest.fixture(autouse=True)
    def target(self, server: SocketServer) -> None:
        self.server = server

    def make(self) -> WebSocketSource:
        return source(self.server)


def test_messages_become_records(server: SocketServer) -> None:
    made = source(
        server,
        key_setter=lambda message: f"k{message}",
        value_setter=lambda message: {"n": int(message)},
        timestamp_setter=lambda message: 1_000 + int(message),
        headers={"X-Shop": "1"},
        auth_token="sesame",
    )
    with Run(made) as run:
        assert run.wait_for(3) == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert (run.producer.records[0].key, run.producer.records[0].timestamp) == (b"k0", 1_000)
        server.send(b"3")
        assert run.wait_for(4)[-1] == {"n": 3}
    (headers,) = server.headers
    assert headers["x-shop"] == "1"
    assert headers["authorization"] == "Bearer sesame"


@pytest.mark.parametrize(
    ("subscribe", "received"),
    [
        ("hello", ["hello"]),
        (b"\xff", [b"\xff"]),
        ({"channel": "größer"}, ['{"channel": "gr\\u00f6\\u00dfer"}']),
        (["a", {"b": 1}], ["a", '{"b": 1}']),
        (lambda: {"token": "fresh"}, ['{"token": "fresh"}']),
    ],
)
def test_it_subscribes_after_each_connection(server: SocketServer, subscribe: Any, received: list[Any]) -> None:
    with Run(source(server, subscribe=subscribe)) as run:
        wait_until(lambda: server.received == received)
        run.wait_for(3)
        server.close()
        wait_until(lambda: server.received == received * 2)


def test_a_subscription_that_fails_ends_the_source(server: SocketServer) -> None:
    with Run(source(server, subscribe=lambda: 7)) as run:
        assert "WebSocketSource(subscribe=...) failed with ArgumentTypeError" in str(run.failure())


def test_a_server_that_restarts_is_found_again(server: SocketServer) -> None:
    with Run(source(server)) as run:
        run.wait_for(3)
        server.stop()
        server.greeting = ["3"]
        server.start()
        assert run.wait_for(4) == [0, 1, 2, 3]


def test_busy_servers_are_asked_again(server: SocketServer) -> None:
    with Run(source(server)) as run:
        run.wait_for(3)
        server.status = 503
        server.close()
        wait_until(lambda: len(server.headers) == 2)
        server.status = None
        assert run.wait_for(6) == [0, 1, 2] * 2


def test_a_message_that_is_not_json_ends_the_source(server: SocketServer) -> None:
    with Run(source(server)) as run:
        run.wait_for(3)
        server.send("sesame {")
        error = str(run.failure())
    assert (
        "message 4 since the start cannot be produced by the source feed: JSONDecodeError; pass value_setter" in error
    )
    assert "sesame" not in error


def test_a_message_that_is_too_large_ends_the_source(server: SocketServer) -> None:
    with Run(source(server, max_size=100)) as run:
        run.wait_for(3)
        server.send("1" * 101)
        assert "sent a message of more than 100 bytes; increase max_size" in str(run.failure())


@pytest.mark.parametrize("code", [1003, 1008])
def test_codes_that_say_no_end_the_source(server: SocketServer, code: int) -> None:
    with Run(source(server)) as run:
        run.wait_for(3)
        server.close(code)
        assert f"closes the connection with code {code}" in str(run.failure())


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "refuses the credentials with 401"), (404, "answers 404"), (500, "answers 500")],
)
def test_refusals_are_told(server: SocketServer, status: int, message: str) -> None:
    server.status = status
    with Run(source(server, url=f"{server.url}/sesame?sesame", auth_token="sesame")) as run:
        error = run.failure()
    assert isinstance(error, SourceError)
    assert f"the source feed cannot connect: ws://127.0.0.1:{server.port} {message}" in str(error)
    assert "sesame" not in str(error)


def test_redirects_are_not_followed(server: SocketServer) -> None:
    answer = Answer(302, headers={"Location": server.url})
    with HTTPServer(lambda request: answer) as other, Run(source(server, url=f"ws://127.0.0.1:{other.port}")) as run:
        assert "redirects are not followed" in str(run.failure())
    assert server.headers == []


def test_certificates_are_verified(tmp_path: Path) -> None:
    certify(tmp_path)
    certificate = str(tmp_path / "certificate.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    with SocketServer(context) as server:
        server.greeting = ["1"]
        for verify in (certificate, False):
            with Run(source(server, verify=verify)) as run:
                assert run.wait_for(1) == [1]
        with Run(source(server)) as run:
            assert "does not answer: SSLCertVerificationError" in str(run.failure())


def test_session_tickets_do_not_hang_a_connection(tmp_path: Path) -> None:
    certify(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    context.num_tickets = 200
    with SocketServer(context) as server:
        server.greeting = ["1"]
        for _ in range(5):
            with ExitStack() as stack:
                runs = [stack.enter_context(Run(source(server, verify=False))) for _ in range(8)]
                assert [run.wait_for(1) for run in runs] == [[1]] * 8


def test_a_server_that_speaks_http_only() -> None:
    with HTTPServer() as other, Run(WebSocketSource(f"ws://127.0.0.1:{other.port}", "feed")) as run:
        assert "answers 200" in str(run.failure())


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1"])
def test_a_server_that_is_not_there(host: str) -> None:
    with Run(WebSocketSource(f"ws://{host}:{free_port()}/sesame", "feed")) as run:
        error = str(run.failure())
    assert f"the source feed cannot connect: ws://{host}" in error
    assert "sesame" not in error


def test_it_stops_while_the_server_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with Run(WebSocketSource(f"ws://127.0.0.1:{silent.getsockname()[1]}", "feed")) as run:
            accepted, _ = silent.accept()
            assert accepted.recv(10)
            begun = time.monotonic()
        assert time.monotonic() - begun < 8
        accepted.close()
        assert run.values == []


def test_a_server_without_a_sign_of_life_is_left(server: SocketServer) -> None:
    with Run(source(server, heartbeat=0.1)) as run:
        run.wait_for(3)
        # A server that answers pings stays connected.
        wait_until(lambda: len(server.connections) == 1)
        silent = server.connections.pop()
        silent.protocol.receive_data = lambda data: None
        assert run.wait_for(6) == [0, 1, 2] * 2
        silent.socket.close()


def test_asyncio_reports_nothing_of_a_connection_that_was_closed(
    server: SocketServer, caplog: pytest.LogCaptureFixture
) -> None:
    source(server)._open_connection(Interrupts()).close()
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_secrets_are_nowhere(server: SocketServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = source(
        server, url=f"{server.url}?sesame", headers={"X-Key": "sesame"}, auth_token="sesame", subscribe={"a": "sesame"}
    )
    assert "sesame" not in repr(vars(made))
    assert b"sesame" not in cloudpickle.dumps(made)
    with Run(made) as run:
        run.wait_for(3)
        wait_until(lambda: server.received == ['{"a": "sesame"}'])
        server.close()
        run.wait_for(6)
    # The server of the test also runs in this process.
    own = [record.getMessage() for record in caplog.records if not record.name.startswith("websockets.server")]
    assert "sesame" not in "".join(own)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"WebSocketSource needs the package websockets: .*\[websocket\]"):
        WebSocketSource("ws://localhost", "feed")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"url": "http://localhost"}, ArgumentValueError),
        ({"url": None}, ArgumentTypeError),
        ({"key_setter": 7}, ArgumentTypeError),
        ({"value_setter": 7}, ArgumentTypeError),
        ({"timestamp_setter": 7}, ArgumentTypeError),
        ({"subscribe": 7}, ArgumentTypeError),
        ({"subscribe": ["a", 7]}, ArgumentTypeError),
        ({"headers": {"a": "\n"}}, ArgumentValueError),
        ({"auth_token": 7}, ArgumentTypeError),
        ({"timeout": 0}, ArgumentValueError),
        ({"heartbeat": 0}, ArgumentValueError),
        ({"max_size": 0}, ArgumentValueError),
        ({"flush_interval": -1}, ArgumentValueError),
        ({"verify": 7}, ArgumentTypeError),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="WebSocketSource"):
        WebSocketSource(**{"url": "ws://localhost", "name": "feed", **arguments})
