"""`POST /query` and `POST /execute`: SQL over HTTP.

Rows leave as they come: a query goes on only when its client has taken what was made, and ends when the client leaves. An
error before the first 256 KiB has a status of its own. After that, the connection ends without the last chunk, so that no
client takes the rows for all of them, and `GET /queries/{id}` has the error.
"""

import asyncio
import base64
import hashlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from streamrt.common.texts import one_line
from streamrt.control.calls import bad_request, run_in_thread
from streamrt.control.controlled import Controlled
from streamrt.control.guard import client_of, problem_response
from streamrt.control.problems import Problem, problem_of
from streamrt.control.rights import TokenRights
from streamrt.control.sql_bodies import SQLBody, parse_body
from streamrt.control.sql_runs import QueryRun, QueryRuns
from streamrt.errors import ArgumentValueError, ControlRefusedError, QueryTimeoutError
from streamrt.tables.catalogue.query_engine import MAX_SCAN_BYTES

if TYPE_CHECKING:
    from streamrt.tables.reading.query_result import QueryResult

__all__ = ["SQLRoutes"]

logger = logging.getLogger("streamrt")

_LONGEST_BODY = 1024 * 1024
_BODY_S = 10.0
"""Seconds for a body."""
_TAKE_S = 600.0
"""Seconds in which an answer must be taken, beyond those that its query may work: it holds memory, and a place."""


class SQLRoutes:
    """The handlers of SQL.

    Args:
        app: the application.
    """

    def __init__(self, app: Controlled) -> None:
        self._app = app
        self._config = app.definition.config
        self._runs = QueryRuns()

    def table(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/query", self._post_query, methods=["POST"]),
            Route("/execute", self._post_execute, methods=["POST"]),
            Route("/queries/{id}", self._get_query, methods=["GET"]),
            Route("/queries/{id}", self._delete_query, methods=["DELETE"]),
        ]

    async def _post_query(self, request: Request) -> Response:
        audit = _Audit(request)
        try:
            self._require_role(request, "read")
            rights = _rights_of(request)
            is_explained = _read_flag(request, "explain")
            media_type = _choose_format(request)
            body = await _read_body(request, is_query=True)
            audit.text = body.sql
            if is_explained:
                return JSONResponse(await self._work(lambda: _explain(self._ask(body, rights))))
            most_rows = self._config.control_sql_rows if body.limit is None else body.limit
            limit = most_rows + 1 if body.limit is None else body.limit
            self._check_limits(body)
            caller = _caller_of(request)
            run = self._runs.open(caller, body.id, lambda: self._ask(body, rights, limit), media_type, most_rows)
        except Exception as error:  # noqa: BLE001 - each error is an answer
            return audit.refuse(error)
        return await self._start(request, run, media_type, audit, self._timeout_of(body) + _TAKE_S)

    async def _start(
        self, request: Request, run: QueryRun, media_type: str, audit: "_Audit", longest_s: float
    ) -> Response:
        """Return the answer of a query: an error, all of it, or its beginning."""
        watcher = asyncio.create_task(_cancel_without_client(request, run))
        answer: Response | None = None
        try:
            first, is_whole = await run_in_thread(run.begin)
            headers = {"Content-Type": _full_type(media_type), "Query-Id": run.name}
            if not is_whole:
                answer = _Rows(self._runs, run, first, headers, longest_s, audit)
                return answer
            return Response(first, headers=headers)
        except Exception as error:  # noqa: BLE001 - each error is an answer
            problem = problem_of(error)
            response = problem_response(problem)
            response.headers["Query-Id"] = run.name
            return response
        finally:
            # Also if the server closes meanwhile. What is streamed has a watcher of its own.
            watcher.cancel()
            if answer is None:
                self._runs.end(run, lambda: audit.log_run(run))

    async def _post_execute(self, request: Request) -> Response:
        audit = _Audit(request)
        try:
            self._require_role(request, "write")
            rights = _rights_of(request)
            body = await _read_body(request, is_query=False)
            audit.text = body.sql
            self._check_limits(body)

            def execute() -> dict[str, Any]:
                done = self._app.queries.execute(body.sql, body.args, self._timeout_of(body), rights)
                audit.log(f"200, {done.statement}", [done.name], done.rows)
                token = None if done.token is None else str(done.token)
                return {
                    "statement": done.statement,
                    "name": done.name,
                    "changed": done.changed,
                    "rows": done.rows,
                    "token": token,
                }

            return JSONResponse(await self._work(execute))
        except Exception as error:  # noqa: BLE001 - each error is an answer
            return audit.refuse(error)

    async def _get_query(self, request: Request) -> Response:
        try:
            self._require_role(request, "read")
            return JSONResponse(self._find(request).as_dict())
        except Exception as error:  # noqa: BLE001 - each error is an answer
            return problem_response(problem_of(error))

    async def _delete_query(self, request: Request) -> Response:
        audit = _Audit(request)
        try:
            self._require_role(request, "read")
            run = self._find(request)
            # The engine takes a lock to be interrupted.
            await run_in_thread(run.cancel)
        except Exception as error:  # noqa: BLE001 - each error is an answer
            return audit.refuse(error)
        audit.log("202", run.tables, run.rows)
        return JSONResponse(run.as_dict(), 202)

    def _require_role(self, request: Request, role: str) -> None:
        granted, rights = self._config.control_sql, _rights_of(request)
        what = "queries" if role == "read" else "statements that write"
        if granted is None or (role == "write" and granted == "read"):
            raise Problem.from_error(
                ControlRefusedError(f"{what} over HTTP are switched off"),
                403,
                f'set control_sql="{role}" in Application(...), or STREAMRT_CONTROL_SQL={role}',
            )
        if role == "write" and rights is not None and not rights.writes:
            raise Problem.from_error(
                ControlRefusedError("this token is for queries only"), 403, "use a token that may write tables"
            )

    def _check_limits(self, body: SQLBody) -> None:
        config = self._config
        for word, given, most, setting in (
            ("limit", body.limit, config.control_sql_rows, "control_sql_rows"),
            ("timeout", body.timeout, config.control_sql_timeout, "control_sql_timeout"),
            ("max_scan_bytes", body.max_scan_bytes, MAX_SCAN_BYTES, "no setting changes that"),
        ):
            if given is not None and given > most:
                raise bad_request(f"{word} may be {most:g} at most over HTTP ({setting}), got {given:g}")

    def _timeout_of(self, body: SQLBody) -> float:
        return self._config.control_sql_timeout if body.timeout is None else body.timeout

    def _ask(self, body: SQLBody, rights: TokenRights | None, limit: int | None = None) -> "QueryResult":
        scanned = MAX_SCAN_BYTES if body.max_scan_bytes is None else body.max_scan_bytes
        return self._app.queries.query(
            body.sql,
            body.args,
            limit=limit,
            timeout=self._timeout_of(body),
            after=body.after,
            max_scan_bytes=scanned,
            rights=rights,
        )

    async def _work(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Call a function in a thread, in one of the places for statements; it keeps the place when the server closes."""
        self._runs.take_slot()

        def run() -> dict[str, Any]:
            try:
                return work()
            finally:
                self._runs.release_slot()

        return await run_in_thread(run)

    def _find(self, request: Request) -> QueryRun:
        run = self._runs.find(_caller_of(request), request.path_params["id"])
        if run is None:
            raise Problem.from_error(
                ArgumentValueError("there is no query with this id"),
                404,
                "use the header Query-Id of an answer; the last 100 ended queries are known",
            )
        return run


class _Rows(Response):
    """The answer of a query of which more rows are to come."""

    def __init__(
        self,
        runs: QueryRuns,
        run: QueryRun,
        first: bytes,
        headers: dict[str, str],
        longest_s: float,
        audit: "_Audit",
    ) -> None:
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._runs = runs
        self._run = run
        self._first = first
        self._longest_s = longest_s
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        run = self._run
        request = Request(scope, receive)
        watcher = asyncio.create_task(_cancel_without_client(request, run))
        try:
            await asyncio.wait_for(self._send_parts(send), self._longest_s)
        except Exception as error:  # noqa: BLE001 - the query has its error, and the answer ends without its last chunk
            if isinstance(error, asyncio.TimeoutError):
                run.fail(QueryTimeoutError(f"the answer was not taken within {self._longest_s:g} s"))
            scope["state"]["connection"].end()
            await watcher
        finally:
            watcher.cancel()
            self._runs.end(run, lambda: self._audit.log_run(run))

    async def _send_parts(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        part: bytes | None = self._first
        while part is not None:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            part = await run_in_thread(self._run.step)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Audit:
    """Writes who sent which statement, by its digest, and what it came to: never its text, nor values."""

    def __init__(self, request: Request) -> None:
        caller = _caller_of(request)
        self._client = client_of(request.scope)[1] + (f" ({caller})" if caller else "")
        self._call = f"{request.method} {request.url.path.split('/')[1]!r}"
        self._began = time.monotonic()
        self.text: str | None = None

    def log(self, result: str, tables: list[str], rows: int) -> None:
        """Write the line."""
        digest = "" if self.text is None else f", sha256 {hashlib.sha256(self.text.encode()).hexdigest()[:16]}"
        ms = int(1000 * (time.monotonic() - self._began))
        names = one_line(" ".join(tables) or "none")
        logger.info(
            "control: %s %s: %s%s, tables %s, %d rows, %d ms", self._client, self._call, result, digest, names, rows, ms
        )

    def log_run(self, run: QueryRun) -> None:
        """Write the line of a query that has ended."""
        error = run.error
        result = "200" if error is None else f"{error.status} {error.error}"
        self.log(f"{result}, query {run.name}", run.tables, run.rows)

    def refuse(self, error: Exception) -> Response:
        """Write the line of a statement that failed before it gave anything, and return the answer."""
        problem = problem_of(error)
        if problem.status == 500:
            logger.error("control: %s failed: %s", self._call, type(error).__name__)
            logger.debug("control: the error was", exc_info=error)
        self.log(f"{problem.status} {problem.error}", [], 0)
        response = problem_response(problem)
        if problem.status in (408, 413):
            # The rest of the body is not read.
            response.headers["Connection"] = "close"
        return response


def _rights_of(request: Request) -> TokenRights | None:
    """Return the rights of a caller; None for one who may use all tables."""
    rights: TokenRights | None = request.state.rights
    return rights


def _caller_of(request: Request) -> str:
    """Return the name of a caller with rights of its own; empty for those with the token of the application."""
    rights = _rights_of(request)
    return "" if rights is None else rights.name


async def _cancel_without_client(request: Request, run: QueryRun) -> None:
    """End a query when its client has disconnected. The whole request was read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    await run_in_thread(run.cancel)


async def _read_body(request: Request, *, is_query: bool) -> SQLBody:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # Forms of web pages can send other types to other origins.
        raise Problem.from_error(
            ArgumentValueError("the body is not JSON"), 415, "send it with the header Content-Type: application/json"
        )
    for name in request.query_params:
        if name != "explain" or not is_query:
            raise bad_request(f"{request.url.path} has no parameter {one_line(name)!r}: the body has all of them")
    try:
        body = await asyncio.wait_for(_read_bytes(request), _BODY_S)
    except asyncio.TimeoutError:
        raise Problem.from_error(
            ArgumentValueError(f"the body was not there after {_BODY_S:g} s"), 408, "send all of it at once"
        ) from None
    # Large numbers and deep objects take a moment.
    return await run_in_thread(lambda: parse_body(body, is_query=is_query))


async def _read_bytes(request: Request) -> bytes:
    made = bytearray()
    async for part in request.stream():
        made += part
        if len(made) > _LONGEST_BODY:
            raise Problem.from_error(
                ArgumentValueError(f"the body has more than {_LONGEST_BODY:,} bytes"),
                413,
                "write many rows by a writer of the table, and read many keys by a join",
            )
    return bytes(made)


def _choose_format(request: Request) -> str:
    # Its module loads Arrow.
    from streamrt.control.sql_formats import FORMATS, choose_format

    found = choose_format(request.headers.get("accept", ""))
    if found is None:
        raise Problem.from_error(
            ArgumentValueError("the header Accept has no format of rows"), 406, f"ask for one of {', '.join(FORMATS)}"
        )
    return found


def _read_flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise bad_request(f"{name} must be true or false, got {one_line(text)!r}")
    return text in ("true", "1")


def _explain(result: "QueryResult") -> dict[str, Any]:
    """Return the columns and the tables of a query, and how it runs; nothing is read."""
    return {
        "columns": [{"name": field.name, "type": str(field.type)} for field in result.schema],
        "schema": base64.b64encode(result.schema.serialize().to_pybytes()).decode(),
        "tables": result.tables,
        "plan": result.explain(),
    }


def _full_type(media_type: str) -> str:
    return f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type
