"""Queries that the control server runs: each works in threads, one step at a time, and only as fast as it is read."""

import contextlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from streamrt.control.problems import Problem, problem_of
from streamrt.errors import ArgumentValueError, ControlUnavailableError, QueryError, ResultTooLargeError
from streamrt.runtime.driver.life.waits import ended_by

if TYPE_CHECKING:
    from streamrt.tables.reading.query_result import QueryResult

__all__ = ["QUERIES_AT_ONCE", "QueryRun", "QueryRuns"]

QUERIES_AT_ONCE = 2
"""Statements that work at once. Each may take two gigabytes of memory of the application's process, and one processor."""
_KEPT = 100
"""Ended queries of which the server knows how they ended."""
_FIRST_BYTES = 256 * 1024
"""Bytes of an answer that are made before its status is sent: an error in them has a status of its own."""
_CANCEL_EVERY_S = 0.1
_AGAIN_S = 1
_CANCELLED = "the query was cancelled"


class QueryRun:
    """One query.

    Args:
        caller: whose query it is.
        name: its id.
        ask: checks the query, and returns its result.
        media_type: the format of the rows.
        most_rows: rows after which it fails.

    Attributes:
        caller: whose query it is.
        name: its id, among those of the caller.
        rows: rows that were made.
        tables: the tables that it reads, once they are known.
        error: what ended it; None if nothing did, yet.
    """

    def __init__(
        self, caller: str, name: str, ask: "Callable[[], QueryResult]", media_type: str, most_rows: int
    ) -> None:
        self.caller = caller
        self.name = name
        self.rows = 0
        self.tables: list[str] = []
        self.error: Problem | None = None
        self._ask = ask
        self._media_type = media_type
        self._most_rows = most_rows
        self._began = time.monotonic()
        self._ended_s: float | None = None
        self._offsets: str | None = None
        self._result: QueryResult | None = None
        self._cancelled = threading.Event()
        self._is_whole = False
        self._lock = threading.Lock()
        self._parts = self._make_parts()

    @property
    def key(self) -> tuple[str, str]:
        """Its caller and its id, by which it is found."""
        return self.caller, self.name

    @property
    def ms(self) -> int:
        """Milliseconds since it began, or that it has taken."""
        return int(1000 * (self._ended_s if self._ended_s is not None else time.monotonic() - self._began))

    def begin(self) -> tuple[bytes, bool]:
        """Return the first bytes of the answer, and whether they are all. It waits."""
        made = bytearray()
        while len(made) < _FIRST_BYTES:
            part = self.step()
            if part is None:
                return bytes(made), True
            made += part
        return bytes(made), False

    def step(self) -> bytes | None:
        """Return the next bytes of the answer; None at its end. It waits.

        Raises:
            Exception: what ends the query. `error` has it as well.
        """
        with self._lock:
            try:
                if self._cancelled.is_set():
                    raise QueryError(_CANCELLED)
                with ended_by(self._cancelled):
                    part = next(self._parts, None)
                self._is_whole = part is None
                return part
            except Exception as error:  # noqa: BLE001 - passed to the caller, who answers with it
                # An interrupted scan may fail in other ways.
                ended = QueryError(_CANCELLED) if self._cancelled.is_set() else error
                self.error = self.error or problem_of(ended)
                raise ended from None

    def fail(self, error: Exception) -> None:
        """Let it end with an error, when it is closed."""
        self.error = problem_of(error)
        self._cancelled.set()

    def cancel(self) -> None:
        """End it, from any thread. It waits until no step works."""
        self._cancelled.set()
        while True:
            result = self._result
            if result is not None:
                # An engine that was closed meanwhile says so.
                with contextlib.suppress(Exception):
                    result.cancel()
            # The engine may have begun only now: then it gets the next one.
            if self._lock.acquire(timeout=_CANCEL_EVERY_S):
                self._lock.release()
                return

    def close(self) -> None:
        """Forget its rows; a step that works is interrupted. It waits."""
        if not self._is_whole:
            self.cancel()
        with self._lock:
            self._parts.close()
            if not self._is_whole and self.error is None:
                self.error = problem_of(QueryError(_CANCELLED))
            self._ended_s = time.monotonic() - self._began

    def as_dict(self) -> dict[str, Any]:
        """Return what is known of it, for JSON."""
        error = self.error
        if error is not None:
            status = "cancelled" if error.message == _CANCELLED else "failed"
        else:
            status = "running" if self._ended_s is None else "finished"
        return {
            "id": self.name,
            "status": status,
            "rows": self.rows,
            "ms": self.ms,
            "tables": self.tables,
            "offsets": self._offsets,
            "error": None if error is None else error.as_dict(),
        }

    def _make_parts(self) -> Generator[bytes, None, None]:
        from streamrt.control.sql_formats import open_writer

        result = self._result = self._ask()
        self.tables = result.tables
        writer = open_writer(self._media_type, result.schema)
        with contextlib.closing(result.batches()) as batches:
            for batch in batches:
                if self._cancelled.is_set():
                    raise QueryError(_CANCELLED)
                self._offsets = self._offsets or str(result.offsets)
                self.rows += batch.num_rows
                if self.rows > self._most_rows:
                    raise ResultTooLargeError(
                        f"the result has more than {self._most_rows:,} rows, the most over HTTP: give limit, filter or "
                        "aggregate, or allow more by control_sql_rows"
                    )
                part = writer.add(batch)
                if part:
                    yield part
        self._offsets = self._offsets or str(result.offsets)
        yield writer.end()


class QueryRuns:
    """The statements that work now, and how the last queries ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(QUERIES_AT_ONCE)
        self._runs: OrderedDict[tuple[str, str], QueryRun] = OrderedDict()
        self._working: set[tuple[str, str]] = set()

    def take_slot(self) -> None:
        """Take one of the places for statements; `release_slot` gives it back.

        Raises:
            Problem: if there is none.
        """
        if not self._slots.acquire(blocking=False):
            raise Problem.from_error(
                ControlUnavailableError(f"{QUERIES_AT_ONCE} statements work already, and no more may at once"),
                503,
                "send it again after the seconds of the header Retry-After",
                retriable=True,
                retry_after_s=_AGAIN_S,
            )

    def release_slot(self) -> None:
        """Give a place back."""
        self._slots.release()

    def open(
        self, caller: str, name: str | None, ask: "Callable[[], QueryResult]", media_type: str, most_rows: int
    ) -> QueryRun:
        """Return a query that can begin; it has a place until `end`.

        Args:
            caller: whose query it is.
            name: its id; None for one that is not known yet.
            ask: see `QueryRun`.
            media_type: see `QueryRun`.
            most_rows: see `QueryRun`.

        Raises:
            Problem: if there is no place, or its id is taken.
        """
        made = QueryRun(caller, name or secrets.token_hex(8), ask, media_type, most_rows)
        self.take_slot()
        with self._lock:
            if made.key not in self._runs:
                self._runs[made.key] = made
                self._working.add(made.key)
                return made
        self.release_slot()
        raise Problem.from_error(
            ArgumentValueError(f"there is already a query with the id {made.name!r}"), 409, "give another id, or none"
        )

    def end(self, run: QueryRun, ended: Callable[[], None]) -> None:
        """Close a query, and give its place back when it works no more. It does not wait.

        Args:
            run: the query.
            ended: called when it works no more, in another thread.
        """

        def close() -> None:
            try:
                run.close()
            finally:
                with self._lock:
                    self._working.discard(run.key)
                    over = [key for key in self._runs if key not in self._working]
                    for key in over[: max(0, len(over) - _KEPT)]:
                        del self._runs[key]
                self.release_slot()
                ended()

        threading.Thread(target=close, name="streamrt-control-query", daemon=True).start()

    def find(self, caller: str, name: str) -> QueryRun | None:
        """Return a query of a caller by its id; None if it is not known."""
        with self._lock:
            return self._runs.get((caller, name))
