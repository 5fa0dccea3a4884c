"""`ServerSentEventsSource`: events of an HTTP stream."""

import importlib.util
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

from streamrt.connectors import ServerSentEventsSource
from streamrt.connectors.sources.reading import Waits
from streamrt.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError, SourceError
from streamrt.testing.connectors import MemorySourceStore, StatefulSourceConformance
from tests.connectors.http_server import Answer, HTTPServer
from tests.connectors.sources import DyingProducer, Run, crashed
from tests.servers import free_port
from tests.support import wait_until


class EventServer:
    """A server that sends events, and those after `Last-Event-ID` on each further connection."""

    def __init__(self, count: int = 0) -> None:
        self.events: list[str] = []
        self.changed = threading.Condition()
        self.connections = 0
        self.first = "retry: 100\n\n"
        self.http = HTTPServer(serve=self._serve)
        self.add(*(str(number) for number in range(count)))

    def add(self, *data: str) -> None:
        """Send events with these data; the ids count from 1."""
        with self.changed:
            self.events += data
            self.changed.notify_all()

    def raw(self, handler: Any, text: str) -> None:
        handler.wfile.write(text.encode())
        handler.wfile.flush()

    def drop(self) -> None:
        """Close the open connections."""
        with self.changed:
            self.connections += 1
            self.changed.notify_all()

    def _serve(self, handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.end_headers()
        self.raw(handler, self.first)
        sent = int(handler.headers.get("Last-Event-ID") or 0)
        with self.changed:
            self.connections += 1
            mine = self.connections
        while True:
            with self.changed:
                if len(self.events) <= sent and self.connections == mine and self.http.up.is_set():
                    self.changed.wait(0.1)
                if self.connections != mine or not self.http.up.is_set():
                    return
                waiting = self.events[sent:]
            for data in waiting:
                sent += 1
                self.raw(handler, f"id: {sent}\nevent: count\ndata: {data}\n\n")
            if not waiting:
                self.raw(handler, ": still there\n\n")

    def __enter__(self) -> "EventServer":
        self.http.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.drop()
        self.http.stop()


@pytest.fixture
def server() -> Iterator[EventServer]:
    with EventServer(5) as running:
        yield running


def source(server: EventServer, **options: Any) -> ServerSentEventsSource:
    return ServerSentEventsSource(**{"url": f"{server.http.url}/stream", "name": "events", **options})


class TestServerSentEventsSource(StatefulSourceConformance):
    @pytest.fixture(autouse=True)
    def target(self, server: EventServer) -> None:
        self.server = server

    def make(self) -> ServerSentEventsSource:
        return source(self.server)


def test_events_become_records(server: EventServer) -> None:
    made = source(
        server,
        key_setter=lambda event: f"k{event.data}",
        value_setter=lambda event: {"n": int(event.data)},
        timestamp_setter=lambda event: 1_000 + int(event.data),
        headers={"X-Shop": "1"},
        auth_token="sesame",
    )
    with Run(made) as run:
        assert run.wait_for(5) == [{"n": number} for number in range(5)]
    first = run.producer.records[0]
    assert (first.key, first.timestamp, first.headers) == (b"k0", 1_000, [("event", "count"), ("id", "1")])
    (request,) = server.http.requests
    assert (request.method, request.path) == ("GET", "/stream")
    assert request.headers["accept"] == "text/event-stream"
    assert request.headers["x-shop"] == "1"
    assert request.headers["authorization"] == "Bearer sesame"
    assert "last-event-id" not in request.headers


def test_the_position_survives_a_restart(server: EventServer) -> None:
    store = MemorySourceStore()
    with Run(source(server), store) as run:
        run.wait_for(5)
    server.add("5", "6")
    with Run(source(server), store) as run:
        assert run.wait_for(2) == [5, 6]
    assert server.http.requests[-1].headers["last-event-id"] == "5"


def test_what_was_not_flushed_comes_again(server: EventServer) -> None:
    store = MemorySourceStore()
    run = Run(source(server, flush_interval=0), store, DyingProducer())
    with run:
        assert "the process dies" in str(run.failure())
    with Run(source(server), crashed(store)) as run:
        assert run.wait_for(5) == [0, 1, 2, 3, 4]


def test_a_lost_connection_is_opened_again_without_loss(server: EventServer) -> None:
    with Run(source(server)) as run:
        run.wait_for(5)
        server.drop()
        server.add("5")
        assert run.wait_for(6) == [0, 1, 2, 3, 4, 5]
    assert [request.headers.get("last-event-id") for request in server.http.requests] == [None, "5"]


def test_a_server_that_restarts_is_found_again() -> None:
    with EventServer(3) as server, Run(source(server)) as run:
        run.wait_for(3)
        server.http.stop()
        server.drop()
        server.add("3")
        server.http.start()
        assert run.wait_for(4) == [0, 1, 2, 3]


def test_busy_servers_are_asked_again(server: EventServer) -> None:
    serve = server.http.serve
    asked = []

    def busy(handler: Any) -> None:
        asked.append(1)
        if len(asked) in (2, 3):
            handler.send_response(503)
            handler.send_header("Retry-After", "0")
            handler.end_headers()
        else:
            assert serve is not None
            serve(handler)

    server.http.serve = busy
    with Run(source(server)) as run:
        run.wait_for(5)
        server.drop()
        server.add("5")
        run.wait_for(6)
    assert len(asked) == 4


def test_the_server_chooses_the_wait() -> None:
    made = source(EventServer())
    made._waits = Waits(first_s=2.0)

    class Event:
        data, event, id = "", "message", ""

        def __init__(self, retry: int) -> None:
            self.retry = retry

    for retry, wait in ((5_000, 5), (0, 0.1), (10**12, 3600)):
        made._produce_event(Event(retry))
        assert made._waits.first_s == wait


def test_events_can_be_chosen_and_empty_ones_are_none(server: EventServer) -> None:
    server.first = "event: other\ndata: 7\n\nevent: count\n\nid: 0\n\n"
    with Run(source(server, events=["count"])) as run:
        assert run.wait_for(5) == [0, 1, 2, 3, 4]


def test_data_of_several_lines(server: EventServer) -> None:
    server.first = "data: größer\ndata: 🚆\n\n"
    with Run(source(server, value_setter=lambda event: event.data)) as run:
        assert run.wait_for(1)[0] == "größer\n🚆"
    assert run.producer.records[0].headers == [("event", "message")]


def test_the_first_id_can_be_given(server: EventServer) -> None:
    with Run(source(server, last_event_id="3")) as run:
        assert run.wait_for(2) == [3, 4]


def test_an_event_that_is_not_json_ends_the_source_without_a_loss(server: EventServer) -> None:
    store = MemorySourceStore()
    server.add("sesame {")
    with Run(source(server), store) as run:
        error = str(run.failure())
    assert "after id '5' cannot be produced by the source events: JSONDecodeError; pass value_setter" in error
    assert "sesame" not in error
    with Run(source(server, value_setter=lambda event: event.data), store) as run:
        assert run.wait_for(1)[-1] == "sesame {"


def test_a_server_without_more_events_ends_the_source() -> None:
    with HTTPServer(lambda request: Answer(204)) as server:
        run = Run(ServerSentEventsSource(server.url, "events"))
        with run:
            run.to_end()
    assert run.values == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(401), "refuses the credentials with 401"),
        (Answer(404), "answers 404"),
        (Answer(307, headers={"Location": "http://elsewhere.invalid"}), "redirects are not followed"),
        (Answer(200, headers={"Content-Type": "text/html"}), "not a stream of events"),
        (Answer(500), "answers 500"),
    ],
)
def test_refusals_are_told(answer: Answer, message: str) -> None:
    with (
        HTTPServer(lambda request: answer) as refusing,
        Run(ServerSentEventsSource(f"{refusing.url}/sesame", "events", auth_token="sesame")) as run,
    ):
        error = run.failure()
    assert isinstance(error, SourceError)
    assert message in str(error)
    assert "the source events" in str(error)
    assert "sesame" not in str(error)


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1"])
def test_a_server_that_is_not_there(host: str) -> None:
    with Run(ServerSentEventsSource(f"http://{host}:{free_port()}/sesame", "events")) as run:
        error = str(run.failure())
    assert f"the source events cannot connect: http://{host}" in error
    assert "sesame" not in error


@pytest.mark.parametrize("accepts", [True, False])
def test_it_stops_while_the_server_hangs(accepts: bool) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
        run = Run(ServerSentEventsSource(f"http://127.0.0.1:{silent.getsockname()[1]}", "events"))
        with run:
            if accepts:
                silent.accept()[0].close()
            wait_until(lambda: run.running)
        assert run.values == []


def test_a_silent_server_is_left() -> None:
    def serve(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(b"retry: 100\n\ndata: 1\n\n")
        handler.wfile.flush()
        wait_until(lambda: not silent.up.is_set())

    with HTTPServer(serve=serve) as silent:
        with Run(ServerSentEventsSource(silent.url, "events", idle_timeout=0.1)) as run:
            assert run.wait_for(2) == [1, 1]
        silent.up.clear()


def test_secrets_are_nowhere(server: EventServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = source(server, url=f"{server.http.url}/sesame", headers={"X-Key": "sesame"}, auth_token=lambda: "sesame")
    assert "sesame" not in repr(vars(made))
    plain = source(server, url=f"{server.http.url}/sesame", auth_token="sesame")
    assert b"sesame" not in cloudpickle.dumps(plain)
    with Run(plain) as run:
        run.wait_for(5)
        server.drop()
        server.add("5")
        run.wait_for(6)
    assert "sesame" not in caplog.text


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "httpx_sse" else object())
    with pytest.raises(ConfigurationError, match="ServerSentEventsSource needs the package httpx_sse"):
        ServerSentEventsSource("http://localhost", "events")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"url": "ws://localhost"}, ArgumentValueError),
        ({"url": None}, ArgumentTypeError),
        ({"key_setter": 7}, ArgumentTypeError),
        ({"value_setter": 7}, ArgumentTypeError),
        ({"timestamp_setter": 7}, ArgumentTypeError),
        ({"events": "count"}, ArgumentTypeError),
        ({"events": [7]}, ArgumentTypeError),
        ({"headers": {"a": "\n"}}, ArgumentValueError),
        ({"auth_token": 7}, ArgumentTypeError),
        ({"last_event_id": 7}, ArgumentTypeError),
        ({"timeout": 0}, ArgumentValueError),
        ({"idle_timeout": 0}, ArgumentValueError),
        ({"flush_interval": -1}, ArgumentValueError),
        ({"verify": 7}, ArgumentTypeError),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="ServerSentEventsSource"):
        ServerSentEventsSource(**{"url": "http://localhost", "name": "events", **arguments})
