"""A double of the REST interface of BigQuery: what the client needs to create tables, add columns and insert rows."""

import base64
import json
import threading
from collections.abc import Callable
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers import free_port

_PREFIX = "/bigquery/v2/projects/"

Fault = Callable[[str, str], tuple[int, Any] | None]
"""Gets the method and the last part of the path; returns a status and a body instead of the answer, or None."""


def problem(status: int, reason: str, message: str = "hidden details") -> tuple[int, Any]:
    """Return an error in the form of the service."""
    errors = [{"reason": reason, "message": message, "domain": "global"}]
    return status, {"error": {"code": status, "message": message, "errors": errors}}


class BigQueryDouble:
    """Keeps datasets, tables and rows in memory; they outlive its connections."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.datasets: dict[str, dict[str, Any]] = {}
        self.tables: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.requests: list[tuple[str, str]] = []
        self.fault: Fault | None = None
        # Whether the part that inserts knows columns that were added.
        self.settled = True
        self._inserted: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Accept connections."""
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if double._server is None:
                    # Connections that were open break as well.
                    self.close_connection = True
                    return
                match = self.headers.get("If-Match")
                status, found = double.answer(self.command, self.path.partition("?")[0], body, match)
                data = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = answer  # noqa: N815 - names of the base class

            def log_message(self, *args: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: Any) -> None:
                """Say nothing of clients that went away."""

        self._server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        server, self._server = self._server, None
        assert server is not None
        server.shutdown()
        server.server_close()

    def answer(self, method: str, path: str, body: bytes, match: str | None) -> tuple[int, Any]:
        """Return the status and the body of an answer."""
        assert path.startswith(_PREFIX), path
        parts = path[len(_PREFIX) :].split("/")[1:]
        self.requests.append((method, parts[-1]))
        if self.fault is not None:
            found = self.fault(method, parts[-1])
            if found is not None:
                return found
        with self._lock:
            asked = json.loads(body) if body else {}
            if parts == ["datasets"]:
                return self._create(self.datasets, asked["datasetReference"]["datasetId"], asked)
            if len(parts) == 2:
                return self._get(self.datasets, parts[1])
            if parts[2:] == ["tables"]:
                if parts[1] not in self.datasets:
                    return problem(404, "notFound")
                return self._create(self.tables, f"{parts[1]}.{asked['tableReference']['tableId']}", asked)
            table = f"{parts[1]}.{parts[3]}"
            if parts[4:] == ["insertAll"]:
                return self._insert(table, asked)
            if method == "PATCH":
                return self._patch(table, asked, match)
            return self._get(self.tables, table)

    @staticmethod
    def _create(kept: dict[str, Any], name: str, asked: Any) -> tuple[int, Any]:
        if name in kept:
            return problem(409, "duplicate")
        kept[name] = {**asked, "etag": "1"}
        return 200, kept[name]

    @staticmethod
    def _get(kept: dict[str, Any], name: str) -> tuple[int, Any]:
        return (200, kept[name]) if name in kept else problem(404, "notFound")

    def _patch(self, table: str, asked: Any, match: str | None) -> tuple[int, Any]:
        if table not in self.tables:
            return problem(404, "notFound")
        known = self.tables[table]
        if match is not None and match != known["etag"]:
            return problem(412, "conditionNotMet")
        names = [field["name"] for field in asked["schema"]["fields"]]
        if any(not name.replace("_", "a").isalnum() for name in names):
            return problem(400, "invalid")
        assert [field["name"] for field in known["schema"]["fields"]] == names[: len(known["schema"]["fields"])]
        self.tables[table] = {**known, **asked, "etag": str(int(known["etag"]) + 1)}
        return 200, self.tables[table]

    def _insert(self, table: str, asked: Any) -> tuple[int, Any]:
        if table not in self.tables:
            return problem(404, "notFound")
        fields = {field["name"].lower(): field for field in self.tables[table]["schema"]["fields"]}
        errors = []
        for index, row in enumerate(asked["rows"]):
            for name, value in row["json"].items():
                field = fields.get(name.lower())
                if field is None or not self.settled:
                    errors.append((index, name, f"no such field: {name}."))
                elif not _fits(value, field["type"]):
                    errors.append((index, name, f"Cannot convert value to {field['type']}: {value}"))
        if errors:
            wrong = {index for index, _, _ in errors}
            found = [
                {"index": index, "errors": [{"reason": "invalid", "location": name, "message": text}]}
                for index, name, text in errors
            ]
            found += [
                {"index": index, "errors": [{"reason": "stopped", "location": "", "message": ""}]}
                for index in range(len(asked["rows"]))
                if index not in wrong
            ]
            return 200, {"insertErrors": sorted(found, key=lambda item: -int(str(item["index"])))}
        for row in asked["rows"]:
            if (table, row["insertId"]) not in self._inserted:
                self._inserted.add((table, row["insertId"]))
                self.rows.setdefault(table, []).append(row["json"])
        return 200, {}


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "BOOLEAN"
    try:
        if kind == "NUMERIC":
            return abs(Decimal(str(value))) < 10**29
        if kind == "JSON":
            json.loads(value)
        if kind == "BYTES":
            base64.b64decode(value, validate=True)
    except (ValueError, TypeError, ArithmeticError):
        return False
    return isinstance(value, str)
