"""Queries and statements of a client, which the application computes."""

import base64
import contextlib
import io
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import pyarrow as pa

from streamrt.arguments import checked, type_name
from streamrt.control.connection import LONGEST_WAIT_S, LOOK_S, AnswerCutError, ControlConnection
from streamrt.control.problems import error_of
from streamrt.control.sql_bodies import show_argument
from streamrt.control.sql_formats import ARROW
from streamrt.errors import ControlUnavailableError, InvalidOperationError, QueryError, StreamRTError
from streamrt.kafka.completion_token import Offsets
from streamrt.tables.catalogue.query_engine import MAX_SCAN_BYTES
from streamrt.tables.catalogue.statements import Execution
from streamrt.tables.reading.query_result import QueryResult

__all__ = ["ask", "execute"]

_READ_BYTES = 1024 * 1024
_REASON_S = 5.0
"""Seconds in which the server learns why it has cut an answer."""


def ask(
    connection: ControlConnection,
    sql: str,
    args: Mapping[str, Any] | None,
    *,
    limit: int | None,
    timeout: float | None,
    after: Offsets | str | None,
    max_scan_bytes: int,
) -> QueryResult:
    """Return the rows of a query; `Client.query` says what the arguments are."""
    body = {
        **_make_body("query", sql, args, timeout),
        "limit": limit,
        "after": None if after is None else str(after),
        "max_scan_bytes": None if max_scan_bytes == MAX_SCAN_BYTES else max_scan_bytes,
    }
    return QueryResult(_RemoteQuery(connection, body, _wait_of(timeout)))


def execute(
    connection: ControlConnection, sql: str, args: Mapping[str, Any] | None, timeout: float | None
) -> Execution:
    """Do what a statement says; see `Client.execute`."""
    body = _make_body("execute", sql, args, timeout)
    # The timeout is about reading; writing comes after it.
    found = connection.read("POST", "/execute", wait_s=2 * _wait_of(timeout), body=body)
    token = None if found["token"] is None else Offsets.parse(found["token"])
    return Execution(found["statement"], found["name"], found["changed"], rows=found["rows"], token=token)


class _RemoteQuery:
    """A query that the application has checked."""

    def __init__(self, connection: ControlConnection, body: dict[str, Any], wait_s: float) -> None:
        self._connection = connection
        self._body = body
        self._wait_s = wait_s
        self._last: str | None = None
        found = connection.read("POST", "/query", {"explain": "true"}, wait_s, body)
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["schema"])))
        self.tables: list[str] = found["tables"]
        self._plan: str = found["plan"]

    @property
    def offsets(self) -> Offsets:
        """The offsets up to which the last run has read."""
        found = None if self._last is None else self._connection.read("GET", f"/queries/{self._last}")["offsets"]
        if found is None:
            raise InvalidOperationError("the application fixes the offsets of a query when it runs: ask for rows first")
        return Offsets.parse(found)

    def run(self, started: Callable[[Callable[[], None]], None]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows; `started` gets what cancels the run."""
        name, cancelled, ended = uuid.uuid4().hex, threading.Event(), threading.Event()

        def cancel() -> None:
            cancelled.set()
            # The request of the query may be on its way.
            while self._connection.send("DELETE", f"/queries/{name}", {}, 0.0).status_code == 404:
                if ended.wait(LOOK_S):
                    return

        started(cancel)
        self._last = name
        try:
            with self._connection.stream("/query", {**self._body, "id": name}, ARROW, self._wait_s) as parts:
                for batch in pa.ipc.open_stream(io.BufferedReader(_Parts(parts), _READ_BYTES)):
                    if cancelled.is_set():
                        break
                    yield batch
        except AnswerCutError:
            if not cancelled.is_set():
                raise self._find_reason(name) from None
        except KeyboardInterrupt:
            # A proxy between may keep its connection to the application.
            with contextlib.suppress(StreamRTError):
                self._connection.send("DELETE", f"/queries/{name}", {}, 0.0)
            raise
        finally:
            ended.set()
        if cancelled.is_set():
            raise QueryError("the query was cancelled")

    def explain(self) -> str:
        """Return how it runs."""
        return self._plan

    def _find_reason(self, name: str) -> Exception:
        """Return why the application has cut an answer."""
        until = time.monotonic() + _REASON_S
        while True:
            found = self._connection.read("GET", f"/queries/{name}")
            if found["error"] is not None:
                return error_of(500, found["error"])
            if found["status"] != "running" or time.monotonic() >= until:
                return ControlUnavailableError("the connection broke before the last row: run the query again")
            time.sleep(LOOK_S)


class _Parts(io.RawIOBase):
    """A file of the parts of an answer."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        super().__init__()
        self._parts = parts
        self._part = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._part:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._part = part
        count = min(len(buffer), len(self._part))
        buffer[:count], self._part = self._part[:count], self._part[count:]
        return count


def _make_body(method: str, sql: str, args: Mapping[str, Any] | None, timeout: float | None) -> dict[str, Any]:
    checked(f"{method}(args=...)", args, Mapping, "a mapping", optional=True, show=type_name)
    shown = None if args is None else {name: show_argument(value) for name, value in args.items()}
    return {"sql": sql, "args": shown, "timeout": timeout}


def _wait_of(timeout: float | None) -> float:
    return LONGEST_WAIT_S if timeout is None else min(float(timeout), LONGEST_WAIT_S)
