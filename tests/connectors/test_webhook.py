"""`WebhookSink`: values as JSON in HTTP requests."""

import email.utils
import importlib.util
import json
import logging
import pickle
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pytest

from streamrt.connectors import WebhookSink
from streamrt.connectors.http.http_settings import retry_after
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    SinkBackpressureError,
    SinkError,
)
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.certificates import certify
from tests.connectors.http_server import Answer, HTTPServer, Request
from tests.connectors.sinks import QUICK, add, fill
from tests.servers import free_port


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer() as running:
        yield running


class TestWebhookSink(BatchingSinkConformance):
    many: ClassVar[int] = 2_000

    @pytest.fixture(autouse=True)
    def target(self, server: HTTPServer) -> None:
        self.server = server

    def make(self) -> WebhookSink:
        return WebhookSink(f"{self.server.url}/hook")

    def written(self) -> list[Written]:
        found = []
        for request in self.server.requests:
            topic, partition, *_ = request.headers["idempotency-key"].split(":")
            found += [Written(value, topic=topic, partition=int(partition)) for value in json.loads(request.body)]
        return found


class TestWebhookSinkOneByOne(TestWebhookSink):
    many: ClassVar[int] = 200

    def make(self) -> WebhookSink:
        return WebhookSink(f"{self.server.url}/hook", batch_size=1)


def started(*args: Any, **options: Any) -> WebhookSink:
    sink = WebhookSink(*args, **{"retries": QUICK, **options})
    sink.start()
    return sink


def answers(server: HTTPServer, *given: Answer) -> None:
    """Answer so to the first requests, and with 200 to later ones."""
    waiting = list(given)
    server.answer = lambda request: waiting.pop(0) if waiting else Answer()


def values(server: HTTPServer) -> list[Any]:
    return [value for request in server.requests for value in json.loads(request.body)]


def test_a_request_has_values_headers_and_an_idempotency_key(server: HTTPServer) -> None:
    sink = started(f"{server.url}/a?b=c", headers={"X-Shop": "1"}, auth_token="sesame", batch_size=2)
    fill(sink, 3).flush()
    first, second = server.requests
    assert (first.method, first.path, json.loads(first.body)) == ("POST", "/a?b=c", [{"n": 0}, {"n": 1}])
    assert first.headers["content-type"] == "application/json"
    assert first.headers["x-shop"] == "1"
    assert first.headers["authorization"] == "Bearer sesame"
    assert first.headers["idempotency-key"] == "orders:3:0.0:1.0:2"
    assert second.headers["idempotency-key"] == "orders:3:2.0:2.0:1"


def test_values_of_one_offset_have_different_keys_which_stay_the_same(server: HTTPServer) -> None:
    for _ in range(2):
        sink = started(server.url, batch_size=1)
        fill(sink)
        fill(sink)
        sink.flush()
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert keys == ["orders:3:0.0:0.0:1", "orders:3:0.1:0.1:1"] * 2


def test_the_header_of_the_key_can_be_renamed_or_left_out(server: HTTPServer) -> None:
    fill(started(server.url, idempotency_key="X-Request-Id")).flush()
    fill(started(server.url, idempotency_key=None)).flush()
    assert server.requests[0].headers["x-request-id"] == "orders:3:0.0:0.0:1"
    assert "idempotency-key" not in server.requests[1].headers


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = [("traceparent", PARENT.encode()), ("tracestate", b"shop=1"), ("other", b"x")]


def test_the_trace_context_of_a_record_goes_on_in_the_request(server: HTTPServer) -> None:
    sink = started(server.url)
    add(sink, 1, headers=TRACED)
    # Values without a context are none of its business.
    add(sink, 2, start=1).flush()
    (request,) = server.requests
    assert (request.headers["traceparent"], request.headers["tracestate"]) == (PARENT, "shop=1")
    assert "other" not in request.headers


@pytest.mark.parametrize(
    ("headers", "carried"),
    [
        ([("traceparent", PARENT.encode())], True),
        ([("traceparent", PARENT)], True),
        ([("traceparent", PARENT.encode()), ("tracestate", b"a=1\r\nHost: evil")], True),
        ([("traceparent", PARENT.encode()), ("tracestate", b"a=" + b"1" * 600)], True),
        ([("traceparent", PARENT.encode() + b"\r\nHost: evil")], False),
        ([("traceparent", b"nonsense")], False),
        ([("traceparent", None)], False),
        ([("tracestate", b"shop=1")], False),
        (None, False),
    ],
)
def test_only_a_context_that_is_one_becomes_a_header(server: HTTPServer, headers: Any, *, carried: bool) -> None:
    add(started(server.url), 1, headers=headers).flush()
    (request,) = server.requests
    assert request.headers.get("traceparent") == (PARENT if carried else None)
    assert "tracestate" not in request.headers
    assert request.headers["host"] == server.url.removeprefix("http://")


def test_values_of_several_traces_carry_none_in_one_request(server: HTTPServer) -> None:
    other = [("traceparent", PARENT.replace("b7ad", "ffff").encode())]
    for batch_size in (2, 1):
        sink = started(server.url, batch_size=batch_size)
        add(sink, 1, headers=TRACED)
        add(sink, 2, start=1, headers=other).flush()
    carried = [request.headers.get("traceparent") for request in server.requests]
    assert carried == [None, PARENT, other[0][1].decode()]


def test_a_trace_context_of_the_sink_is_kept(server: HTTPServer) -> None:
    add(started(server.url, headers={"TraceParent": "mine"}), 1, headers=TRACED).flush()
    (request,) = server.requests
    assert request.headers["traceparent"] == "mine"


def test_a_payload_of_ones_own(server: HTTPServer) -> None:
    fill(started(server.url, payload=lambda items: {"text": [item.key.decode() for item in items]}), 2).flush()
    assert json.loads(server.requests[0].body) == {"text": ["k", "k"]}


def test_a_url_for_each_item(server: HTTPServer) -> None:
    sink = started(
        lambda item: f"{server.url}/{'even' if item.offset % 2 == 0 else 'odd'}", auth_token="t", hosts=["127.0.0.1"]
    )
    fill(sink, 5).flush()
    found = {request.path: json.loads(request.body) for request in server.requests}
    assert found == {"/even": [{"n": 0}, {"n": 2}, {"n": 4}], "/odd": [{"n": 1}, {"n": 3}]}
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 2


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://elsewhere.invalid/x", "the host is not among its hosts"),
        ("ftp://127.0.0.1/x", "must be a URL that begins with http:// or https://"),
        ("file:///etc/passwd", "must be a URL that begins with"),
        ("http://user:sesame@127.0.0.1/", "must not contain a user name"),
        ("http://127.0.0.1/x y\r\nX-Evil: 1", "must be a URL"),
        (None, "must be a str"),
    ],
)
def test_urls_from_data_are_checked(server: HTTPServer, url: Any, message: str) -> None:
    sink = fill(started(lambda item: url, headers={"a": "b"}, hosts=["127.0.0.1"]))
    with pytest.raises(SinkError, match=message) as caught:
        sink.flush()
    assert "orders[3] offset 0" in str(caught.value)
    assert "sesame" not in str(caught.value)
    assert server.requests == []


def test_a_url_function_that_fails_names_the_record() -> None:
    sink = fill(started(lambda item: item.value["secret"]))
    with pytest.raises(SinkError, match=r"failed for orders\[3\] offset 0 with KeyError") as caught:
        sink.flush()
    assert caught.value.record == ("orders", 3, 0)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_becomes_backpressure(server: HTTPServer, status: int) -> None:
    answers(server, Answer(status, headers={"Retry-After": "42"}))
    sink = fill(started(server.url))
    with pytest.raises(SinkBackpressureError) as caught:
        sink.flush()
    assert caught.value.retry_after == 42
    assert len(server.requests) == 1
    sink.on_paused()
    fill(sink).flush()
    assert len(server.requests) == 2


def test_retry_after_may_be_a_date() -> None:
    at = email.utils.formatdate(time.time() + 60, usegmt=True)
    assert 55 < (retry_after({"retry-after": at}) or 0) <= 60
    assert retry_after({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}) == 0
    assert retry_after({"retry-after": "999999999"}) == 3600


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_failures_that_may_pass_are_repeated(server: HTTPServer, status: int) -> None:
    answers(server, Answer(status))
    fill(started(server.url)).flush()
    assert [json.loads(request.body) for request in server.requests] == [[{"n": 0}]] * 2


def test_after_the_last_attempt_comes_backpressure(server: HTTPServer) -> None:
    server.answer = lambda request: Answer(502)
    sink = fill(started(server.url))
    with pytest.raises(SinkBackpressureError, match=f"{server.url} answers 502 Bad Gateway") as caught:
        sink.flush()
    assert caught.value.retry_after == 3
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "answers 400 Bad Request"),
        (401, "refuses the credentials with 401 Unauthorized"),
        (403, "refuses the credentials with 403 Forbidden"),
        (404, "answers 404 Not Found"),
        (413, "answers 413"),
        (501, "answers 501"),
    ],
)
def test_refusals_end_the_sink(server: HTTPServer, status: int, message: str) -> None:
    server.answer = lambda request: Answer(status, body=b"your value sesame is bad")
    sink = fill(started(f"{server.url}/sesame?sesame", auth_token="sesame"), 2)
    with pytest.raises(SinkError, match=message) as caught:
        sink.flush()
    assert "orders[3] offsets 0 to 1" in str(caught.value)
    assert "sesame" not in str(caught.value)
    assert len(server.requests) == 1
    assert caught.value.record is None


@pytest.mark.parametrize(("status", "record"), [(422, ("orders", 3, 7)), (403, None)])
def test_the_value_that_a_server_refuses_is_named(
    server: HTTPServer, status: int, record: tuple[str, int, int] | None
) -> None:
    server.answer = lambda request: Answer(status)
    sink = fill(started(server.url, batch_size=1), start=7)
    with pytest.raises(SinkError) as caught:
        sink.flush()
    assert caught.value.record == record


def test_c6_the_value_of_a_batch_that_a_server_refuses_is_found(server: HTTPServer) -> None:
    server.answer = lambda request: Answer(422 if b"5" in request.body else 200)
    sink = fill(started(server.url), 8)
    with pytest.raises(SinkError, match=r"orders\[3\] offsets 5 to 5: .*422") as caught:
        sink.flush()
    assert caught.value.record == ("orders", 3, 5)
    taken = [request for request in server.requests if b"5" not in request.body]
    # Those before it have arrived, under keys of their own, which are the same when they are delivered again.
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert len(set(keys)) == len(keys) == 1 + 2 + 2 + 2 - 1
    assert [b"".join(request.body.split()) for request in taken] == [b'[{"n":0},{"n":1},{"n":2},{"n":3}]', b'[{"n":4}]']


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(server: HTTPServer, status: int) -> None:
    with HTTPServer() as other:
        server.answer = lambda request: Answer(status, headers={"Location": f"{other.url}/stolen"})
        sink = fill(started(server.url, auth_token="sesame"))
        with pytest.raises(SinkError, match="redirects are not followed"):
            sink.flush()
        assert other.requests == []


def test_a_host_that_does_not_exist() -> None:
    with pytest.raises(SinkError, match=r"WebhookSink cannot connect to http://nowhere\.invalid:81"):
        started("http://nowhere.invalid:81/sesame")


def test_a_server_that_is_not_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(SinkError, match=f"WebhookSink cannot connect to {url}: ConnectionRefusedError"):
        started(f"{url}/sesame")


def test_a_server_without_tls(server: HTTPServer) -> None:
    with pytest.raises(SinkError, match="WebhookSink cannot connect to https://127"):
        started(f"https://127.0.0.1:{server.port}/")


def test_certificates_are_verified(tmp_path: Path) -> None:
    certify(tmp_path)
    certificate = str(tmp_path / "certificate.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    with HTTPServer(tls=context) as server:
        for verify in (certificate, False):
            fill(started(server.url, verify=verify)).flush()
        assert values(server) == [{"n": 0}, {"n": 0}]
        with pytest.raises(SinkError, match=r"cannot connect to https://127.*: SSLCertVerificationError"):
            started(server.url)
        # Not checked at the start, because the URL comes later.
        with pytest.raises(SinkBackpressureError, match="does not answer: ConnectError"):
            fill(started(lambda item: server.url)).flush()


def test_a_server_that_hangs_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = fill(started(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05))
        with pytest.raises(SinkBackpressureError, match="does not answer: ReadTimeout"):
            sink.flush()


def test_nothing_is_lost_when_the_server_restarts() -> None:
    server = HTTPServer().start()
    sink = started(server.url, batch_size=10)
    fill(sink, 20).flush()
    server.stop()
    fill(sink, 20, start=20)
    with pytest.raises(SinkBackpressureError):
        sink.flush()
    sink.on_paused()
    server.start()
    fill(sink, 20, start=20).flush()
    server.stop()
    assert [value["n"] for value in values(server)] == list(range(40))


def test_a_restart_between_batches_is_not_noticed() -> None:
    server = HTTPServer().start()
    sink = started(server.url)
    fill(sink).flush()
    server.stop()
    server.start()
    fill(sink, start=1).flush()
    server.stop()
    assert [value["n"] for value in values(server)] == [0, 1]


@pytest.mark.parametrize("value", [b"sesame", {"sesame"}, float("nan"), {"a": float("inf")}])
def test_a_value_without_json_is_named_and_not_shown(server: HTTPServer, value: Any) -> None:
    sink = fill(started(server.url), 2)
    fill(sink, start=7, value=value)
    with pytest.raises(SinkError, match=r"orders\[3\] offset 7: its value has no form in JSON") as caught:
        sink.flush()
    assert "sesame" not in str(caught.value)
    assert server.requests == []


def test_a_payload_that_fails_names_the_records(server: HTTPServer) -> None:
    sink = fill(started(server.url, payload=lambda items: items[0].value["missing"]), 2)
    with pytest.raises(SinkError, match=r"cannot make the JSON of orders\[3\] offsets 0 to 1: KeyError"):
        sink.flush()


def test_secrets_are_nowhere(server: HTTPServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sink = WebhookSink(f"{server.url}/sesame", headers={"X-Key": "sesame"}, auth_token="sesame", retries=QUICK)
    assert "sesame" not in repr(vars(sink))
    data = cloudpickle.dumps(sink)
    assert b"sesame" not in data
    again: WebhookSink = pickle.loads(data)
    again.start()
    answers(server, Answer(500), Answer(404))
    with pytest.raises(SinkError) as caught:
        fill(again).flush()
    assert "sesame" not in str(caught.value)
    assert "sesame" not in caplog.text
    assert server.requests[0].path == "/sesame"
    assert server.requests[0].headers["x-key"] == "sesame"


def test_a_token_function_is_called_for_each_request(server: HTTPServer) -> None:
    tokens = iter(["one", "two"])
    sink = started(server.url, auth_token=lambda: next(tokens), batch_size=1)
    fill(sink, 2).flush()
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer one", "Bearer two"]


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Request) -> Answer:
        return Answer(200 if request.path == "http://shop.invalid/hook" else 500)

    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with HTTPServer(answer) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        fill(started("http://shop.invalid/hook")).flush()
        assert values(proxy) == [{"n": 0}]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"WebhookSink needs the package httpx: run pip install .*\[http\]"):
        WebhookSink("http://localhost")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"url": ""}, ArgumentValueError),
        ({"url": "localhost:80"}, ArgumentValueError),
        ({"url": "ftp://localhost"}, ArgumentValueError),
        ({"url": "http://"}, ArgumentValueError),
        ({"url": "http://a:b@localhost"}, ArgumentValueError),
        ({"url": "http://localhost:99999"}, ArgumentValueError),
        ({"url": "http://[::1"}, ArgumentValueError),
        ({"url": 7}, ArgumentTypeError),
        ({"headers": "a: b"}, ArgumentTypeError),
        ({"headers": {"a": 1}}, ArgumentTypeError),
        ({"headers": {"a b": "c"}}, ArgumentValueError),
        ({"headers": {"a": "b\r\nc: d"}}, ArgumentValueError),
        ({"headers": {"Authorization": "x"}, "auth_token": "y"}, ArgumentValueError),
        ({"auth_token": 7}, ArgumentTypeError),
        ({"url": str, "auth_token": "y"}, ArgumentValueError),
        ({"url": str, "headers": {"a": "b"}}, ArgumentValueError),
        ({"batch_size": 0}, ArgumentValueError),
        ({"batch_size": "1"}, ArgumentTypeError),
        ({"timeout": 0}, ArgumentValueError),
        ({"timeout": "1"}, ArgumentTypeError),
        ({"idempotency_key": ""}, ArgumentValueError),
        ({"idempotency_key": "a b"}, ArgumentValueError),
        ({"payload": 7}, ArgumentTypeError),
        ({"hosts": "localhost"}, ArgumentTypeError),
        ({"verify": None}, ArgumentTypeError),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="WebhookSink"):
        WebhookSink(**{"url": "http://localhost", **arguments})
