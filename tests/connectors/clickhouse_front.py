"""A small front of ClickHouse's engine, from the package `chdb`, that speaks its HTTP interface.

`python clickhouse_front.py PORT DIRECTORY USER PASSWORD` runs it. What was inserted survives a kill.
"""

import base64
import re
import sys
import tempfile
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_OWN = {"query", "database", "default_format", "session_id", "query_id", "user", "password"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    session: Any = None
    login: tuple[str, str] = ("", "")
    lock = threading.Lock()

    def do_GET(self) -> None:
        self._do(b"")

    def do_POST(self) -> None:
        self._do(self._body())

    def _do(self, body: bytes) -> None:
        url = urllib.parse.urlsplit(self.path)
        given = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        if url.path == "/ping":
            self._answer(200, b"Ok.\n")
        elif not self._is_known():
            text = f"Code: 516. DB::Exception: {self.login[0]}: Authentication failed. (AUTHENTICATION_FAILED)\n"
            self._answer(403, text.encode(), 516)
        else:
            try:
                with self.lock:
                    self._answer(200, self._run(given, body))
            except RuntimeError as error:
                code = re.search(r"Code: (\d+)", str(error))
                self._answer(500, f"{error}\n".encode(), int(code[1]) if code else 1)

    def _run(self, given: dict[str, str], body: bytes) -> bytes:
        settings = {name: value for name, value in given.items() if name not in _OWN}
        # The statement of an insert is the first line of its body.
        head, _, block = body.partition(b"\n")
        insert = re.fullmatch(r"(INSERT INTO .*?)\s+FORMAT (\w+)\s*", head.decode(errors="replace"))
        if insert is None:
            statement = given.get("query") or body.decode()
            asked = re.search(r"(?s)(.*)\bFORMAT (\w+)\s*$", statement)
            statement, kind = (asked[1], asked[2]) if asked else (statement, given.get("default_format", "TSV"))
            result: bytes = self.session.query(statement, kind).bytes()
            return result
        with tempfile.NamedTemporaryFile() as file:
            file.write(block)
            file.flush()
            listed = ", ".join(f"{name} = '{_escaped(value)}'" for name, value in settings.items())
            chosen = f"SETTINGS {listed} " if listed else ""
            self.session.query(f"{insert[1]} FROM INFILE '{file.name}' {chosen}FORMAT {insert[2]}")
        return b""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _is_known(self) -> bool:
        login = base64.b64encode(":".join(self.login).encode()).decode()
        return self.headers.get("Authorization") == f"Basic {login}"

    def _answer(self, status: int, content: bytes, code: int | None = None) -> None:
        self.send_response(status)
        if code is not None:
            self.send_header("X-ClickHouse-Exception-Code", str(code))
        self.send_header("X-ClickHouse-Summary", "{}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        pass


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _main(port: int, directory: Path, user: str, password: str) -> None:
    from chdb.session import Session

    _Handler.login = (user, password)
    session: Any = Session
    _Handler.session = session(str(directory / "data"))
    ThreadingHTTPServer(("127.0.0.1", port), _Handler).serve_forever()


if __name__ == "__main__":
    _main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
