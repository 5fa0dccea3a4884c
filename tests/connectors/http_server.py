"""An HTTP server in a thread, which notes requests and answers as a test asks."""

import contextlib
import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.servers import free_port


@dataclass(frozen=True)
class Request:
    """A request that arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """Answer of the server."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class HTTPServer:
    """A server on the loopback interface.

    Args:
        answer: returns the answer to a request.
        serve: writes the whole answer itself, for streams; it gets the handler.
        tls: certificate of the server, if it uses TLS.
    """

    def __init__(
        self,
        answer: Callable[[Request], Answer] = lambda request: Answer(),
        serve: Callable[[Any], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.port = free_port()
        self.requests: list[Request] = []
        self.answer = answer
        self.serve = serve
        self.tls = tls
        # Set while the server runs; streams look at it.
        self.up = threading.Event()
        self._open: set[socket.socket] = set()
        self._server: http.server.ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http{'' if self.tls is None else 's'}://127.0.0.1:{self.port}"

    def start(self) -> "HTTPServer":
        """Start to accept connections."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                outer._open.add(self.connection)

            def finish(self) -> None:
                outer._open.discard(self.connection)
                super().finish()

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, body)
                if outer.serve is not None:
                    outer.requests.append(request)
                    self.close_connection = True
                    outer.serve(self)
                    return
                answer = outer.answer(request)
                outer.requests.append(request)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status not in (204, 304):
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body if answer.status not in (204, 304) else b"")

            do_GET = do_POST = _handle  # noqa: N815 - names of http.server

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                # Clients go away in the middle of an answer; tests see what matters of that.
                pass

        self._server = Server(("127.0.0.1", self.port), Handler)
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.up.set()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close all connections, and refuse further ones."""
        self.up.clear()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server = None

    def __enter__(self) -> "HTTPServer":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
