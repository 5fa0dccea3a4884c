"""An OpenSearch server, and a front that makes a double of Elasticsearch of it, asks for passwords, and refuses at will."""

import base64
import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.connectors.java_server import java_server
from tests.servers import free_port, workspace


@contextlib.contextmanager
def opensearch() -> Iterator[int]:
    """Run a server until the block ends; return its port."""
    with workspace("opensearch") as directory, java_server("opensearch", directory, "-Xmx512m") as jvm:
        # The runner adds 1.
        port = free_port()
        runner = jvm.org.codelibs.opensearch.runner.OpenSearchRunner()
        runner.setMaxHttpPort(65_535)
        settings = runner.newConfigs().basePath(str(directory / "data")).numOfNode(1).baseHttpPort(port - 1)
        # Without the modules that answer other questions.
        settings = settings.clusterName("tests").moduleTypes("org.opensearch.transport.Netty4Plugin").disableESLogger()
        runner.build(settings)
        yield port


class SearchFront(ThreadingHTTPServer):
    """Passes requests on to OpenSearch, and answers some itself.

    Attributes:
        login: the user and password to ask for, or None.
        key: the API key to ask for, or None.
        answers: statuses and bodies for the next bulk requests; None passes one on.
        product: whether to say that this is Elasticsearch.
    """

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.reset()

    def reset(self) -> None:
        """Pass everything on."""
        self.login: tuple[str, str] | None = None
        self.key: str | None = None
        self.answers: list[tuple[int, bytes] | None] = []
        self.product = True

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SearchFront

    def do_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, kind, answer = self._answered(body)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if self.server.product:
            self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_request  # noqa: N815 - names of the standard library

    def _answered(self, body: bytes) -> tuple[int, str, bytes]:
        front, given = self.server, self.headers.get("Authorization")
        wanted = f"ApiKey {front.key}" if front.key else None
        if front.login is not None:
            wanted = "Basic " + base64.b64encode(":".join(front.login).encode()).decode()
        if wanted is not None and given != wanted:
            return 401, "application/json", b'{"error": {"type": "security_exception", "reason": "no"}, "status": 401}'
        if "_bulk" in self.path and front.answers:
            answer = front.answers.pop(0)
            if answer is not None:
                return answer[0], "application/json", answer[1]
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", front.target, timeout=60)) as connection:
            # Elasticsearch has media types of its own.
            headers = {"Content-Type": "application/x-ndjson" if "_bulk" in self.path else "application/json"}
            connection.request(self.command, self.path, body or None, headers if body else {})
            passed = connection.getresponse()
            return passed.status, passed.headers.get("Content-Type") or "application/json", passed.read()

    def log_message(self, *arguments: Any) -> None:
        pass


@contextlib.contextmanager
def search_front(target: int) -> Iterator[SearchFront]:
    """Run a front until the block ends."""
    with SearchFront(target) as front:
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield front
        finally:
            front.shutdown()
            thread.join()
