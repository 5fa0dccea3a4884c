"""The connection of a client to a control server: requests with the token, and errors of their answers."""

import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from streamrt.common.addresses import DEFAULT_CONTROL_URL
from streamrt.config import require_amounts
from streamrt.control.problems import error_of
from streamrt.control.token import ControlToken, bearer, given_token
from streamrt.errors import ArgumentValueError, ConfigurationError, ControlUnavailableError
from streamrt.extras import install_command

if TYPE_CHECKING:
    import httpx

__all__ = ["LONGEST_WAIT_S", "LOOK_S", "AnswerCutError", "ControlConnection", "checked_wait_s", "decoded"]

ANSWER_S = 10.0
LONGEST_WAIT_S = 3600.0
"""Most seconds that a server waits for one request."""
LOOK_S = 0.2
"""Seconds between two requests of a client that waits itself."""


class AnswerCutError(Exception):
    """An answer has ended before its last byte."""


class ControlConnection:
    """Sends requests to the control server of an application.

    Args:
        url: the control address.
        token: its token; None takes that of the environment variable `STREAMRT_CONTROL_TOKEN`, if it is set.
        timeout: seconds to wait for an answer, beyond the time that a call waits for the application.

    Raises:
        ConfigurationError: if the URL or the token cannot be used, or httpx is not installed.
    """

    def __init__(
        self,
        url: str = DEFAULT_CONTROL_URL,
        token: ControlToken | None = None,
        timeout: float = ANSWER_S,
    ) -> None:
        if importlib.util.find_spec("httpx") is None:
            raise ConfigurationError(f"the control client needs httpx: run {install_command('control')}")
        import httpx

        require_amounts("Client", timeout=timeout)
        self.url = _checked_url(url)
        self._token = given_token(token)
        self._timeout = timeout
        # Proxies and files of logins in the environment are for other servers.
        # A plain connection needs no certificates, and reading all of them takes longer than most requests.
        self._http = httpx.Client(base_url=self.url, trust_env=False, verify=self.url.startswith("https:"))

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
        body: object = None,
    ) -> "httpx.Response":
        """Send a request, and return its answer.

        Args:
            method: "GET" or "POST".
            path: the path of the route.
            query: its parameters.
            wait_s: seconds that the server may wait before it answers.
            body: what is sent as JSON; None for nothing.

        Raises:
            ControlUnavailableError: if the application does not answer.
            StreamRTError: the error that it answers.
        """
        answer = self.send(method, path, query or {}, wait_s, body=body)
        if not answer.is_success:
            raise error_of(answer.status_code, decoded(answer.text))
        return answer

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        wait_s: float,
        address: str | None = None,
        body: object = None,
    ) -> "httpx.Response":
        """Send a request, and return its answer, also one that is an error.

        Args:
            method: "GET", "POST" or "DELETE".
            path: the path of the route.
            query: its parameters.
            wait_s: seconds that the server may wait before it answers.
            address: the control address of another instance; None for that of the connection.
            body: what is sent as JSON; None for nothing.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        import httpx

        limits = httpx.Timeout(self._timeout, read=self._timeout + wait_s)
        headers, content = self._make_headers(), None
        if body is not None:
            headers["Content-Type"], content = "application/json", json.dumps(body)
        try:
            url = (address or self.url) + path
            return self._http.request(method, url, params=dict(query), headers=headers, timeout=limits, content=content)
        except httpx.HTTPError as error:
            raise self._describe_silence(address or self.url, error) from None

    def read(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
        body: object = None,
    ) -> dict[str, Any]:
        """Send a request, and return the document that answers it; see `ask`."""
        return document_of(self.ask(method, path, query, wait_s, body))

    @contextlib.contextmanager
    def stream(self, path: str, body: object, accept: str, wait_s: float) -> "Iterator[Iterator[bytes]]":
        """Post a body as JSON, and yield the parts of its answer as they come.

        Args:
            path: the path of the route.
            body: what is sent.
            accept: the wanted format.
            wait_s: seconds that the server may wait before each part.

        Raises:
            ControlUnavailableError: if the application does not answer.
            AnswerCutError: if the answer ends too early.
            StreamRTError: the error that it answers.
        """
        import httpx

        limits = httpx.Timeout(self._timeout, read=self._timeout + wait_s)
        headers = {**self._make_headers(), "Content-Type": "application/json", "Accept": accept}
        url, begun = self.url + path, False
        try:
            with self._http.stream("POST", url, headers=headers, content=json.dumps(body), timeout=limits) as answer:
                if not answer.is_success:
                    answer.read()
                    raise error_of(answer.status_code, decoded(answer.text))
                begun = True
                yield answer.iter_bytes()
        except httpx.HTTPError as error:
            if begun:
                raise AnswerCutError from None
            raise self._describe_silence(self.url, error) from None

    def _make_headers(self) -> dict[str, str]:
        return {} if self._token is None else {"Authorization": f"Bearer {bearer(self._token)}"}

    def _describe_silence(self, url: str, error: Exception) -> ControlUnavailableError:
        return ControlUnavailableError(
            f"no application answers at {url} ({type(error).__name__}): start it with control set, or correct the address"
        )


def document_of(answer: "httpx.Response") -> dict[str, Any]:
    """Return the JSON object of an answer.

    Raises:
        StreamRTError: if it is something else.
    """
    found = decoded(answer.text)
    if not isinstance(found, dict):
        raise error_of(answer.status_code, None)
    return found


def checked_wait_s(timeout: float | None) -> float:
    """Return the seconds that a request asks a server to wait; an hour for None."""
    if timeout is None:
        return LONGEST_WAIT_S
    require_amounts("timeout", timeout=timeout)
    return min(float(timeout), LONGEST_WAIT_S)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except (ValueError, AttributeError, TypeError):
        usable = False
    if not usable:
        raise ArgumentValueError(f"Client(url=...) must be a URL such as {DEFAULT_CONTROL_URL!r}")
    if parts.username is not None or parts.password is not None:
        raise ArgumentValueError("Client(url=...) must not contain a user name or a password: pass token=...")
    return url.rstrip("/")


def decoded(text: str) -> object:
    """Return what a text of JSON means; None if it is another text."""
    try:
        return json.loads(text)
    except ValueError:
        return None
