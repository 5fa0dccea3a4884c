"""How requests become calls of routes: parameters, threads, errors as JSON, and a log line for each change."""

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from streamrt.common.texts import one_line
from streamrt.control.guard import client_of, path_for_logs, problem_response
from streamrt.control.problems import Problem, problem_of
from streamrt.errors import ArgumentValueError, ControlUnavailableError

__all__ = ["Answer", "Call", "Calls", "bad_request", "http_problem", "run_in_thread"]

logger = logging.getLogger("streamrt")

R = TypeVar("R")

_LONGEST_WAIT_S = 3600.0
_CALLS_AT_ONCE = 32
_AGAIN_S = 1
_LOOK_S = 0.5
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Call:
    """A request for a route.

    Attributes:
        path: the parts of the path that are parameters.
        query: the parameters after the question mark.
        accept: the header Accept.
        known: whether the caller has the token, or needs none.
        target: path and parameters, as they were sent.
        left: set when a client that waits has disconnected.
    """

    path: Mapping[str, Any]
    query: Mapping[str, str]
    accept: str = ""
    known: bool = True
    target: str = ""
    left: threading.Event = field(default_factory=threading.Event, compare=False)

    @property
    def wait_s(self) -> float | None:
        """Seconds to wait for the result; None to return at once.

        Raises:
            Problem: if they are not a number.
        """
        return None if "wait" not in self.query else self.seconds("wait", 0.0)

    def seconds(self, name: str, default: float) -> float:
        """Return a parameter that is a number of seconds.

        Args:
            name: its name.
            default: the value if it is not given.

        Raises:
            Problem: if it is not a number, is negative, or is more than an hour.
        """
        text = self.query.get(name, str(default))
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= _LONGEST_WAIT_S:
            raise bad_request(f"{name} must be a number of seconds up to {_LONGEST_WAIT_S:g}, got {one_line(text)!r}")
        return seconds

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a parameter that is true or false.

        Args:
            name: its name.
            default: the value if it is not given.

        Raises:
            Problem: if it is neither.
        """
        text = self.query.get(name, str(default)).lower()
        if text not in ("true", "false", "1", "0"):
            raise bad_request(f"{name} must be true or false, got {one_line(text)!r}")
        return text in ("true", "1")


@dataclass(frozen=True)
class Answer:
    """The answer of a route.

    Attributes:
        body: data for JSON, or text or bytes.
        status: the status of HTTP.
        content_type: the type of a text.
        headers: further headers.
    """

    body: Any
    status: int = 200
    content_type: str = _TEXT
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        """Return it for starlette."""
        if isinstance(self.body, str | bytes):
            return Response(self.body, self.status, dict(self.headers), self.content_type)
        return JSONResponse(self.body, self.status, dict(self.headers))


Handler = Callable[[Call], Answer]


class Calls:
    """Makes routes of functions from a `Call` to an `Answer`. A function runs in a thread, so it may wait.

    Args:
        waits: counts the requests with the parameter `wait`, so that many of them leave room for others; None counts them
            here.
    """

    def __init__(self, waits: "Calls | None" = None) -> None:
        self._waits = waits
        self._under_way = 0

    def get(self, path: str, handler: Handler, *parameters: str) -> Route:
        """Return a route that changes nothing.

        Args:
            path: the path.
            handler: the function.
            parameters: the parameters that it takes after the question mark; others are refused.
        """
        return Route(path, partial(self._answer_request, handler, parameters, False), methods=["GET"])

    def post(self, path: str, handler: Handler, *parameters: str) -> Route:
        """Return a route that changes something; who calls it, and with which result, is logged.

        Args:
            path: the path.
            handler: the function.
            parameters: the parameters that it takes after the question mark; others are refused.
        """
        return Route(path, partial(self._answer_request, handler, parameters, True), methods=["POST"])

    async def _answer_request(
        self, handler: Handler, parameters: Collection[str], audited: bool, request: Request
    ) -> Response:
        try:
            answer = await self._call_handler(handler, parameters, request)
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                path = path_for_logs(request.url.path)
                logger.error("control: %s %r failed: %s", request.method, path, type(error).__name__)
                logger.debug("control: the error was", exc_info=error)
            if audited:
                _audit_request(request, f"{problem.status}: {problem.message}")
            return problem_response(problem)
        if audited:
            _audit_request(request, f"{answer.status}, {'done' if answer.status == 200 else 'accepted'}")
        return answer.response()

    async def _call_handler(self, handler: Handler, parameters: Collection[str], request: Request) -> Answer:
        query = request.query_params
        for name in query:
            if name not in parameters:
                known = f"it takes {', '.join(parameters)}" if parameters else "it takes none"
                raise bad_request(f"{request.url.path} has no parameter {one_line(name)!r}: {known}")
        sent = (request.scope.get("raw_path") or quote(request.url.path).encode()).decode("latin-1")
        target = sent + (f"?{request.url.query}" if request.url.query else "")
        accept = request.headers.get("accept", "")
        call = Call(request.path_params, dict(query), accept, request.state.known, target)
        if self._waits is None or not call.wait_s:
            return await self._count_work(lambda: handler(call))
        watcher = asyncio.create_task(_watch_client(request, call.left))
        try:
            return await self._waits._count_work(lambda: handler(call))
        finally:
            watcher.cancel()
            # The server may be closed while it waits.
            call.left.set()

    async def _count_work(self, work: Callable[[], Answer]) -> Answer:
        if self._under_way >= _CALLS_AT_ONCE:
            raise Problem.from_error(
                ControlUnavailableError("too many requests are waiting"),
                503,
                "ask again after the seconds of the header Retry-After",
                retriable=True,
                retry_after_s=_AGAIN_S,
            )
        self._under_way += 1
        try:
            return await run_in_thread(work)
        finally:
            self._under_way -= 1


async def _watch_client(request: Request, left: threading.Event) -> None:
    """Set an event when the client of a request has disconnected."""
    while not await request.is_disconnected():
        await asyncio.sleep(_LOOK_S)
    left.set()


async def run_in_thread(work: Callable[[], R]) -> R:
    """Call a function in a daemon thread: one that waits must not delay the end of the process, as pools would."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[R] = loop.create_future()

    def finish(result: R | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(error)

    def run() -> None:
        result: R | None = None
        failed: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - passed to the one that waits
            failed = error
        # The server may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, result, failed)

    threading.Thread(target=run, name="streamrt-control-call", daemon=True).start()
    awaited: Awaitable[R] = answer
    return await awaited


async def http_problem(request: Request, error: HTTPException) -> Response:
    """Return the answer for what starlette refuses: an unknown path, or a method that does not fit."""
    if error.status_code == 405:
        problem = Problem(405, "MethodNotAllowed", f"{request.method} is not possible here", "see docs/control.md")
    elif error.status_code == 404:
        problem = Problem(404, "NotFound", "there is nothing at this path", "see docs/control.md")
    else:
        problem = Problem.from_error(ArgumentValueError(error.detail), error.status_code, "correct the request")
    response = problem_response(problem)
    response.headers.update(error.headers or {})
    return response


def _audit_request(request: Request, result: str) -> None:
    query = f"?{request.url.query}" if request.url.query else ""
    path = request.url.path + query
    logger.info("control: %s %s %r: %s", client_of(request.scope)[1], request.method, path, one_line(result))


def bad_request(message: str) -> Problem:
    """Return the problem of a wrong request."""
    return Problem.from_error(ArgumentValueError(message), 400, "correct the request")
