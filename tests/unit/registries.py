"""A double of a schema registry: answers as it is told, and keeps what it was asked."""

import functools
import http.server
import json
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import certifi
from typing_extensions import Self

from streamrt.serializers.registry import SchemaRegistryClientConfig

Answer = tuple[int, Any]


class RegistryDouble:
    """Listens on a port of its own while it is entered.

    Args:
        answers: gets method, path without query, and body; returns status and document. Bytes are sent as they are.

    Attributes:
        requests: method and path of each request.
        authorizations: what each request said about who it is.
    """

    def __init__(self, answers: Callable[[str, str, Any], Answer]) -> None:
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        double = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                path = self.path.partition("?")[0]
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                double.requests.append(f"{self.command} {path}")
                double.authorizations.append(self.headers.get("Authorization"))
                status, document = answers(self.command, path, body)
                data = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = handle_any  # noqa: N815 - names that http.server looks for

            def log_message(self, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def config(self, **settings: Any) -> SchemaRegistryClientConfig:
        """Return settings with short pauses."""
        return SchemaRegistryClientConfig(
            **{"url": self.url, "retries_wait_ms": 1, "retries_max_wait_ms": 1, **settings}
        )

    def __enter__(self) -> Self:
        # The default looks twice a second whether it shall end.
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class KeepingRegistry(RegistryDouble):
    """A registry that keeps what is registered: a schema for each subject, and each schema by its number."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, int] = {}
        super().__init__(self._answer)

    def keep(self, subject: str, schema: Any, kind: str) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas.append({"schema": text, "schemaType": kind})
        self.subjects[subject] = len(self.schemas)

    def _answer(self, method: str, path: str, body: Any) -> Answer:
        parts = path.strip("/").split("/")
        if parts[0] == "schemas":
            return 200, self.schemas[int(parts[2]) - 1]
        subject = parts[1]
        if method == "POST":
            self.keep(subject, body["schema"], body.get("schemaType", "AVRO"))
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": "no subject"}
        number = self.subjects[subject]
        return 200, {"id": number, "version": 1, "subject": subject, **self.schemas[number - 1]}


@functools.cache
def _one_certificate() -> "tempfile._TemporaryFileWrapper[str]":
    # Reading all that certifi trusts takes a tenth of a second for each client.
    file = tempfile.NamedTemporaryFile("w", suffix=".pem")  # noqa: SIM115 - kept until the process ends
    bundle = Path(certifi.where()).read_text(encoding="ascii", errors="replace")
    end = "-----END CERTIFICATE-----\n"
    file.write(bundle[bundle.index("-----BEGIN") : bundle.index(end)] + end)
    file.flush()
    return file


def always(status: int, document: Any) -> Callable[[str, str, Any], Answer]:
    return lambda method, path, body: (status, document)
