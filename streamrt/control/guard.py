"""Who may do what: checks of each request before it reaches a route.

- The header Host must name the address that the server is bound to: a page whose name is made to resolve to this machine (DNS
  rebinding) is refused. A server on all interfaces has no such name; there every request needs the token, which browsers
  do not send by themselves.
- A request that changes something must not come from a page of another origin (CSRF). There are no CORS headers either.
- With a token, all but `/live`, `/ready` and the files of the dashboard need it, as `Authorization: Bearer <token>`.
- A token with rights for single tables opens the routes of SQL only, which look at the rights.
"""

import hmac
import logging
import re
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamrt.common.addresses import HostPort, is_loopback, is_wildcard
from streamrt.common.throttle import Throttle
from streamrt.connectors.credentials import Credential
from streamrt.control.dashboard import PAGE_PATHS
from streamrt.control.problems import MEDIA_TYPE, Problem, problem_of
from streamrt.control.rights import TokenRights
from streamrt.errors import ControlRefusedError

__all__ = ["Guard", "client_of", "path_for_logs", "problem_response"]

logger = logging.getLogger("streamrt")

_OPEN = frozenset({"/live", "/ready"}) | PAGE_PATHS
"""Probes of supervisors have no token; they tell no more than whether the application works. A browser cannot send one with
the address of a page, so the files of the dashboard need none; they hold nothing of the application."""
_SQL_PATHS = re.compile(r"/query|/execute|/queries/[^/]+")
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([A-Za-z0-9._-]{1,253}))(?::[0-9]{1,5})?", re.ASCII)
_READING = frozenset({"GET", "HEAD"})
_REFUSALS_EVERY_S = 10.0


class Guard:
    """Refuses requests that may not reach an application.

    Args:
        app: gets the other requests.
        bound: the address of the server.
        token: the token; None for a server without one.
        rights: other tokens, and what they may do.
    """

    def __init__(
        self, app: ASGIApp, bound: HostPort, token: Credential | None, rights: Sequence[TokenRights] = ()
    ) -> None:
        self._app = app
        self._token = token
        self._rights = rights
        self._names = _names(bound.host)
        self._throttle = Throttle(_REFUSALS_EVERY_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = Headers(scope=scope)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = MutableHeaders(scope=message)
                added["Cache-Control"] = "no-store"
                added["X-Content-Type-Options"] = "nosniff"
            await send(message)

        try:
            self._check_host(headers)
            state = scope.setdefault("state", {})
            state["known"], state["rights"], failed = self._find_caller(headers)
            if not state["known"] and scope["path"] not in _OPEN:
                if failed is not None:
                    raise failed
                _check_rights(state["rights"], scope["path"])
            if scope["method"] not in _READING:
                _check_origin(headers)
        except Exception as error:  # noqa: BLE001 - the function of a token may raise anything
            problem = problem_of(error)
            if self._throttle.admit((client_of(scope)[0], problem.status)):
                logger.warning(
                    "control: %s %s %r: refused with %d: %s",
                    client_of(scope)[1],
                    scope["method"],
                    path_for_logs(scope["path"]),
                    problem.status,
                    problem.message,
                )
            await problem_response(problem)(scope, receive, send_safely)
            return
        await self._app(scope, receive, send_safely)

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        if self._names is None:
            return
        name = _host_of(given[0]) if len(given) == 1 else None
        if name is None or name not in self._names:
            raise Problem.from_error(
                ControlRefusedError("the header Host does not name the control address"),
                403,
                f"use one of these hosts: {', '.join(sorted(self._names))}",
            )

    def _find_caller(self, headers: Headers) -> tuple[bool, TokenRights | None, Exception | None]:
        """Return whether a caller has the token of the application, otherwise its rights, and why that may be unknown."""
        failed: Exception | None = None
        for rights in (None, *self._rights):
            token = self._token if rights is None else rights.token
            try:
                if token is None or _has_token(headers, token):
                    return rights is None, rights, None
            except Exception as error:  # noqa: BLE001 - a function that fails must not lock out other callers, nor probes
                failed = failed or error
        return False, None, failed


def _has_token(headers: Headers, token: Credential) -> bool:
    """Return whether a request has a token."""
    given = headers.getlist("authorization")
    scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    known = token.reveal().encode()
    # Headers are decoded as Latin-1. The comparison takes as long for each wrong token of the same length.
    matches = hmac.compare_digest(text.strip().encode("latin-1", "replace"), known)
    return matches and bool(known) and scheme.lower() == "bearer"


def _check_rights(rights: TokenRights | None, path: str) -> None:
    """Raise unless a caller without the token of the application may reach a path."""
    if rights is None:
        raise Problem.from_error(
            ControlRefusedError("the control address needs a token"),
            401,
            "send the header Authorization: Bearer with the control_token of the application",
        )
    if not _SQL_PATHS.fullmatch(path):
        raise Problem.from_error(
            ControlRefusedError("this token is for POST /query and POST /execute only"),
            403,
            "use the control_token of the application",
        )


def problem_response(problem: Problem) -> JSONResponse:
    """Return the answer for a problem."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(problem.retry_after_s)
    return JSONResponse(problem.as_dict(), problem.status, headers, MEDIA_TYPE)


def path_for_logs(path: str) -> str:
    """Return a path without the key of a record, which may be personal data.

    Example:
        >>> path_for_logs("/state/default/ann@example.org"), path_for_logs("/topics/orders/pause")
        ('/state/default/...', '/topics/orders/pause')
    """
    parts = path.split("/")
    return "/".join([*parts[:3], "..."]) if parts[1:2] == ["state"] and len(parts) > 3 else path


def client_of(scope: Scope) -> tuple[str, str]:
    """Return the address of the other side, without and with its port."""
    client = scope.get("client")
    return ("unknown", "unknown") if client is None else (str(client[0]), str(HostPort(*client[:2])))


def _check_origin(headers: Headers) -> None:
    origins = headers.getlist("origin")
    site = headers.get("sec-fetch-site", "none")
    own = headers.get("host", "").lower()
    foreign = any(urlsplit(origin).netloc.lower() != own or not own for origin in origins)
    if foreign or site not in ("same-origin", "none"):
        raise Problem.from_error(
            ControlRefusedError("the request comes from a web page of another origin"),
            403,
            "send it from a program, or from a page of the control address",
        )


def _names(host: str) -> frozenset[str] | None:
    """Return the names of the server in a header Host; None for any."""
    if is_wildcard(host):
        return None
    if is_loopback(host):
        return frozenset({"localhost", "127.0.0.1", "::1", host.lower()})
    return frozenset({host.lower(), socket.gethostname().lower()})


def _host_of(text: str) -> str | None:
    """Return the host of a header Host; None if it is more than a host and a port, such as one with a user."""
    found = _HOST.fullmatch(text)
    return None if found is None else (found[1] or found[2]).lower()
