"""`HTTPPollingSource`: records of a URL that is read again and again."""

import hashlib
import importlib.util
import json
import logging
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import cloudpickle
import pytest

from streamrt.connectors import HTTPPollingSource
from streamrt.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError, SourceError
from streamrt.testing.connectors import MemorySourceStore, StatefulSourceConformance
from tests.connectors.http_server import Answer, HTTPServer, Request
from tests.connectors.sources import DyingProducer, Run, crashed
from tests.servers import free_port
from tests.support import wait_until


class API:
    """Numbers from 1 in pages after a cursor, with an ETag."""

    def __init__(self, count: int, page: int = 3) -> None:
        self.count = count
        self.page = page
        self.busy = 0
        self.http = HTTPServer(self._answer)

    def _answer(self, request: Request) -> Answer:
        if self.busy:
            self.busy -= 1
            return Answer(503, headers={"Retry-After": "0"})
        query = parse_qs(urlsplit(request.path).query)
        after = int(query.get("after", ["0"])[0])
        items = [{"id": number} for number in range(after + 1, min(after + self.page, self.count) + 1)]
        body = json.dumps({"items": items}).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:8]}"'
        if request.headers.get("if-none-match") == tag:
            return Answer(304)
        return Answer(200, body, {"ETag": tag, "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"})

    def __enter__(self) -> "API":
        self.http.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.http.stop()


@pytest.fixture
def api() -> Iterator[API]:
    with API(7) as running:
        yield running


def source(api: API, **options: Any) -> HTTPPollingSource:
    arguments: dict[str, Any] = {
        "url": f"{api.http.url}/items?shop=1",
        "name": "items",
        "interval": 0.05,
        "records": lambda answer: answer["items"],
        "key_setter": lambda item: str(item["id"]),
        "params": lambda cursor: {"after": cursor or 0},
        "cursor": lambda answer: answer["items"][-1]["id"] if answer["items"] else None,
    }
    return HTTPPollingSource(**{**arguments, **options})


def ids(run: Run) -> list[int]:
    return [value["id"] for value in run.values]


class TestHTTPPollingSource(StatefulSourceConformance):
    @pytest.fixture(autouse=True)
    def target(self, api: API) -> None:
        self.api = api

    def make(self) -> HTTPPollingSource:
        return source(self.api)


class TestHTTPPollingSourceWithoutCursor(StatefulSourceConformance):
    @pytest.fixture(autouse=True)
    def target(self, api: API) -> None:
        self.api = api

    def make(self) -> HTTPPollingSource:
        return HTTPPollingSource(self.api.http.url, "items", interval=60)


def test_a_cursor_asks_for_what_is_new(api: API) -> None:
    with Run(
        source(api, timestamp_setter=lambda item: 1_000 + item["id"], headers={"X-A": "1"}, auth_token="t")
    ) as run:
        run.wait_for(7)
        api.count = 8
        run.wait_for(8)
    assert ids(run) == [1, 2, 3, 4, 5, 6, 7, 8]
    first = run.producer.records[0]
    assert (first.key, first.timestamp) == (b"1", 1_001)
    paths = list(dict.fromkeys(request.path for request in api.http.requests))
    assert paths[:4] == [f"/items?shop=1&after={after}" for after in (0, 3, 6, 7)]
    assert api.http.requests[0].headers["x-a"] == "1"
    assert api.http.requests[0].headers["authorization"] == "Bearer t"


def test_the_cursor_survives_a_restart(api: API) -> None:
    store = MemorySourceStore()
    with Run(source(api), store) as run:
        run.wait_for(7)
    api.count = 9
    with Run(source(api), store) as run:
        run.wait_for(2)
    assert ids(run) == [8, 9]


def test_what_was_not_flushed_comes_again(api: API) -> None:
    store = MemorySourceStore()
    with Run(source(api), store, DyingProducer()) as run:
        assert "the process dies" in str(run.failure())
    with Run(source(api), crashed(store)) as run:
        run.wait_for(7)
    assert ids(run) == [1, 2, 3, 4, 5, 6, 7]


def test_pages_follow_at_once(api: API) -> None:
    with Run(source(api, interval=3600, more=lambda answer: len(answer["items"]) == 3)) as run:
        run.wait_for(7)
    assert len(api.http.requests) == 3


def test_an_answer_that_has_not_changed_is_not_produced_again(api: API) -> None:
    store = MemorySourceStore()
    plain: dict[str, Any] = {"params": {"limit": 9, "tag": ["a", "b"]}, "cursor": None}
    with Run(source(api, **plain), store) as run:
        run.wait_for(3)
        wait_until(lambda: len(api.http.requests) >= 3)
    assert ids(run) == [1, 2, 3]
    assert api.http.requests[0].path == "/items?shop=1&limit=9&tag=a&tag=b"
    assert "if-none-match" not in api.http.requests[0].headers
    assert api.http.requests[1].headers["if-modified-since"] == "Mon, 01 Jan 2024 00:00:00 GMT"
    # Also after a restart, but not for another URL.
    asked = len(api.http.requests)
    with Run(source(api, **plain), store) as run:
        wait_until(lambda: len(api.http.requests) > asked + 1)
    assert ids(run) == []
    with Run(source(api, **{**plain, "params": {"limit": 8}}), store) as run:
        run.wait_for(3)


@pytest.mark.parametrize(("body", "values"), [(b"[1, 2]", [1, 2]), (b'{"a": 1}', [{"a": 1}]), (b"7", [7])])
def test_the_records_of_an_answer_by_default(body: bytes, values: list[Any]) -> None:
    with (
        HTTPServer(lambda request: Answer(200, body)) as server,
        Run(HTTPPollingSource(server.url, "items")) as run,
    ):
        assert run.wait_for(len(values)) == values


def test_a_payload_that_is_not_json() -> None:
    made: dict[str, Any] = {"payload_deserializer": lambda body: body.decode().splitlines()}
    with (
        HTTPServer(lambda request: Answer(200, "größer\nb".encode())) as server,
        Run(HTTPPollingSource(server.url, "items", **made)) as run,
    ):
        assert run.wait_for(2) == ["größer", "b"]


def test_busy_servers_are_asked_again(api: API) -> None:
    with Run(source(api)) as run:
        run.wait_for(7)
        api.busy = 3
        api.count = 8
        run.wait_for(8)
    assert ids(run) == list(range(1, 9))


def test_a_server_that_restarts_is_found_again(api: API) -> None:
    with Run(source(api)) as run:
        run.wait_for(7)
        api.http.stop()
        api.count = 9
        api.http.start()
        run.wait_for(9)
    assert ids(run) == list(range(1, 10))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(401), "cannot read: http://127.0.0.1:{port} refuses the credentials with 401"),
        (Answer(404), "answers 404"),
        (Answer(302, headers={"Location": "http://elsewhere.invalid"}), "redirects are not followed"),
        (Answer(500), "answers 500"),
        (Answer(200, b"sesame"), "cannot be read by the source items: JSONDecodeError; see payload_deserializer"),
    ],
)
def test_refusals_are_told(answer: Answer, message: str) -> None:
    with HTTPServer(lambda request: answer) as server:
        with Run(HTTPPollingSource(f"{server.url}/sesame?sesame", "items", auth_token="sesame")) as run:
            error = run.failure()
        assert isinstance(error, SourceError)
        assert message.format(port=server.port) in str(error)
        assert "sesame" not in str(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_setter": lambda item: item["sesame"]}, "record 1 of the answer of http://127.0.0.1:{port} cannot be"),
        ({"records": lambda answer: answer["sesame"]}, "the answer of http://127.0.0.1:{port} cannot be read"),
        ({"cursor": lambda answer: answer["sesame"]}, "the answer of http://127.0.0.1:{port} cannot be read"),
        ({"cursor": lambda answer: object()}, "TypeError; see payload_deserializer"),
        ({"params": lambda cursor: {"a": cursor["sesame"]}}, "HTTPPollingSource(params=...) failed with TypeError"),
    ],
)
def test_functions_that_fail_end_the_source(api: API, options: dict[str, Any], message: str) -> None:
    with Run(source(api, **options)) as run:
        error = str(run.failure())
    assert message.format(port=api.http.port) in error
    assert "sesame" not in error


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1"])
def test_a_server_that_is_not_there(host: str) -> None:
    with Run(HTTPPollingSource(f"http://{host}:{free_port()}/sesame", "items")) as run:
        error = str(run.failure())
    assert f"the source items cannot read: http://{host}" in error
    assert "sesame" not in error


def test_it_stops_while_the_server_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Run(HTTPPollingSource(url, "items", timeout=1.5)) as run:
            accepted, _ = silent.accept()
            assert accepted.recv(10)
        accepted.close()
        assert run.values == []


def test_secrets_are_nowhere(api: API, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = HTTPPollingSource(
        f"{api.http.url}/sesame",
        "items",
        params={"key": "sesame"},
        headers={"X-Key": "sesame"},
        auth_token="sesame",
        interval=0.05,
    )
    assert "sesame" not in repr(vars(made))
    assert b"sesame" not in cloudpickle.dumps(made)
    store = MemorySourceStore()
    with Run(made, store) as run:
        run.wait_for(1)
        api.http.stop()
        wait_until(lambda: "asks again" in caplog.text)
    assert "sesame" not in caplog.text
    assert "sesame" not in json.dumps(store.state().get("poll"))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="HTTPPollingSource needs the package httpx"):
        HTTPPollingSource("http://localhost", "items")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"url": "ws://localhost"}, ArgumentValueError),
        ({"url": None}, ArgumentTypeError),
        ({"interval": 0}, ArgumentValueError),
        ({"interval": "1"}, ArgumentTypeError),
        ({"records": "items"}, ArgumentTypeError),
        ({"key_setter": 7}, ArgumentTypeError),
        ({"timestamp_setter": 7}, ArgumentTypeError),
        ({"params": "a=b"}, ArgumentTypeError),
        ({"cursor": 7}, ArgumentTypeError),
        ({"more": 7}, ArgumentTypeError),
        ({"payload_deserializer": None}, ArgumentTypeError),
        ({"headers": {"a": "\n"}}, ArgumentValueError),
        ({"auth_token": 7}, ArgumentTypeError),
        ({"timeout": 0}, ArgumentValueError),
        ({"verify": 7}, ArgumentTypeError),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="HTTPPollingSource"):
        HTTPPollingSource(**{"url": "http://localhost", "name": "items", **arguments})
