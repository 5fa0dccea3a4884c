"""A collector of OTLP over HTTP, for tests."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support import wait_until


@dataclass(frozen=True)
class ReceivedSpan:
    """A span that has arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    attributes: dict[str, Any]
    links: tuple[str, ...]
    events: tuple[str, ...]
    status: str
    service: str


class Collector:
    """The spans that have arrived, and how the collector answers."""

    def __init__(self) -> None:
        self.status = 200
        self.requests = 0
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self._spans: list[ReceivedSpan] = []
        self._lock = threading.Lock()

    def receive(self, data: bytes, headers: dict[str, str]) -> int:
        """Take a request; return the status of the answer."""
        with self._lock:
            self.requests += 1
            self.headers.append(headers)
            if self.status == 200:
                self._spans += _spans(data)
            return self.status

    def spans(self, prefix: str = "") -> list[ReceivedSpan]:
        """The spans that have arrived, in the order of their ends, whose names begin with a prefix."""
        with self._lock:
            return [span for span in self._spans if span.name.startswith(prefix)]

    def wait_for(self, prefix: str, count: int) -> list[ReceivedSpan]:
        """Return spans when that many have arrived."""
        wait_until(lambda: len(self.spans(prefix)) >= count, timeout_s=30.0, what=f"{count} spans {prefix}")
        return self.spans(prefix)


@contextmanager
def collector(setenv: Callable[[str, str], None]) -> Iterator[Collector]:
    """Run a collector, and set the variables with which applications find it."""
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            status = made.receive(data, dict(self.headers)) if self.path == "/v1/traces" else 404
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{made.port}")
    setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _spans(data: bytes) -> list[ReceivedSpan]:
    found = []
    for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
        service = _values(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                found.append(
                    ReceivedSpan(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.kind,
                        _values(span.attributes),
                        tuple(link.span_id.hex() for link in span.links),
                        tuple(event.name for event in span.events),
                        span.status.message,
                        service,
                    )
                )
    return found


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)
