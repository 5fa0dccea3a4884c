"""`HTTPPollingSource`: records of a URL that is read again and again."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from streamrt.connectors.argument_checks import checked_function, checked_seconds, checked_type
from streamrt.connectors.background import Interrupts
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.http.http_settings import (
    HTTPSettings,
    checked_url,
    may_pass,
    origin,
    refusal,
    request,
    retry_after,
)
from streamrt.connectors.libraries import require_library
from streamrt.connectors.sources.reading import Waits, call_while_running
from streamrt.connectors.sources.stateful import StatefulSource
from streamrt.errors import SourceError, StreamRTError
from streamrt.secret import Secret

if TYPE_CHECKING:
    import httpx

__all__ = ["HTTPPollingSource"]

logger = logging.getLogger("streamrt.connectors")

_OWNER = "HTTPPollingSource"
_STATE = "poll"
_NOTHING_NEW = (204, 304)


class HTTPPollingSource(StatefulSource):
    """Reads a URL at an interval and produces the records of its answers. Needs the extra `http`.

    The source remembers a cursor and what the server says about the last answer (`ETag`, `Last-Modified`). With a
    cursor, each request asks for what is new. Without one, an answer that has not changed is not produced again if the
    server answers 304; otherwise, each poll produces all records of the answer.

    The records of an answer are flushed together with the cursor: after a crash, the records of one answer may come
    again, and none is lost.

    Args:
        url: the URL.
        name: name of the source, unique in the application. The state belongs to this name.
        interval: seconds from the begin of one request to that of the next.
        records: returns the values in an answer; by default the items if it is a list, else the answer itself.
        key_setter: returns the key of a value; without it, records have no key.
        timestamp_setter: returns the timestamp of a value in milliseconds; without it, the time of producing is used.
        params: parameters of the query, or a function that returns them for a cursor, which is None at first.
        cursor: returns the cursor after an answer, which must be a JSON value; None keeps the previous one.
        headers: more headers of each request.
        auth_token: a token for the header `Authorization: Bearer`, or a function that returns it; it is called for each
            request.
        more: returns whether there are more records after an answer, so that the next request follows at once.
        payload_deserializer: turns the body of an answer into what the other functions get; by default it is read as
            JSON.
        timeout: seconds for connecting, and for each read.
        verify: whether certificates are verified, or the path of a file of certificates to trust.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after the first request.
        on_client_connect_failure: called with the exception when the first request fails.

    Raises:
        ConfigurationError: if an argument cannot be used, or httpx is not installed.

    Example:
        ```python
        issues = HTTPPollingSource(
            "https://tracker.example.com/api/issues",
            name="issues",
            interval=30,
            records=lambda answer: answer["issues"],
            key_setter=lambda issue: str(issue["id"]),
            params=lambda cursor: {"after": cursor or 0, "limit": 100},
            cursor=lambda answer: answer["issues"][-1]["id"] if answer["issues"] else None,
            more=lambda answer: len(answer["issues"]) == 100,
        )
        sdf = app.dataframe(source=issues)
        ```
    """

    def __init__(
        self,
        url: str,
        name: str,
        interval: float = 60.0,
        records: Callable[[Any], Iterable[Any]] | None = None,
        key_setter: Callable[[Any], Any] | None = None,
        timestamp_setter: Callable[[Any], int] | None = None,
        params: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] | None = None,
        cursor: Callable[[Any], Any] | None = None,
        headers: Mapping[str, str] | None = None,
        auth_token: CredentialInput | None = None,
        *,
        more: Callable[[Any], bool] | None = None,
        payload_deserializer: Callable[[bytes], Any] = json.loads,
        timeout: float = 10.0,
        verify: bool | str = True,
        shutdown_timeout: float = 10,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        require_library(_OWNER, "httpx", "http")
        super().__init__(name, shutdown_timeout, on_client_connect_success, on_client_connect_failure)
        self._url = Secret(checked_url(url, f"{_OWNER}(url=...)"))
        self._settings = HTTPSettings(_OWNER, headers, auth_token, checked_seconds(_OWNER, "timeout", timeout), verify)
        self._interval = checked_seconds(_OWNER, "interval", interval)
        self._records = checked_function(_OWNER, "records", records, optional=True) or _default_records
        self._key_setter = checked_function(_OWNER, "key_setter", key_setter, optional=True)
        self._timestamp_setter = checked_function(_OWNER, "timestamp_setter", timestamp_setter, optional=True)
        # Parameters may hold API keys.
        if not callable(params):
            checked_type(_OWNER, "params", params, Mapping, "a dict or a function", optional=True, hidden=True)
        self._params = params if callable(params) else Secret(urlencode(params or {}, doseq=True))
        self._cursor = checked_function(_OWNER, "cursor", cursor, optional=True)
        self._more = checked_function(_OWNER, "more", more, optional=True)
        self._deserializer = checked_function(_OWNER, "payload_deserializer", payload_deserializer)
        self._transport: httpx.HTTPTransport | None = None
        self._first: httpx.Response | None = None
        self._asked_url = ""

    def setup(self) -> None:
        """Send the first request.

        Raises:
            SourceError: if it fails.
        """
        try:
            self._first = self._request_page()
        except PassingError as error:
            raise SourceError(f"the source {self.name} cannot read: {error}") from error

    def run(self) -> None:
        """Produce the records of answers until the source is stopped.

        Raises:
            SourceError: if the server refuses a request, or an answer cannot be produced.
        """
        waits = Waits()
        while self.running:
            begun = time.monotonic()
            try:
                response, self._first = self._first or self._request_page(), None
            except PassingError as error:
                wait = waits.next_s() if error.retry_after is None else error.retry_after
                logger.warning("the source %s asks again in %.1f s: %s", self.name, wait, error)
                self.sleep(wait)
                continue
            waits.succeeded()
            if response is not None and not self._produce_answer(response):
                self.sleep(self._interval - (time.monotonic() - begun))

    def cleanup(self, failed: bool) -> None:
        """Close the connections.

        Args:
            failed: whether the source failed.
        """
        if self._transport is not None:
            self._transport.close()
        super().cleanup(failed)

    @property
    def _position(self) -> dict[str, Any]:
        position: dict[str, Any] = self.state.get(_STATE, {})
        return position

    def _request_page(self) -> "httpx.Response | None":
        """Return an answer that is a success, or None if the source was stopped."""
        position = self._position
        url = self._request_url(position.get("cursor"))
        self._asked_url = url
        headers = self._settings.headers()
        # What the server said belongs to one URL; the cursor makes another one.
        if position.get("url") == _fingerprint_url(url):
            if position.get("etag"):
                headers["If-None-Match"] = position["etag"]
            if position.get("last_modified"):
                headers["If-Modified-Since"] = position["last_modified"]
        if self._transport is None:
            self._transport = self._settings.transport(url)
        transport = self._transport

        def ask(interrupts: Interrupts) -> "httpx.Response":
            return request(transport, "GET", url, headers=headers, timeout=self._settings.timeout)

        response = call_while_running(self, ask)
        if response is None or response.status_code in (200, *_NOTHING_NEW):
            return response
        if may_pass(response):
            raise PassingError(refusal(response, url), retry_after(response.headers))
        raise SourceError(f"the source {self.name} cannot read: {refusal(response, url)}")

    def _request_url(self, cursor: Any) -> str:
        url = self._url.reveal()
        if isinstance(self._params, Secret):
            query = self._params.reveal()
        else:
            try:
                query = urlencode(self._params(cursor), doseq=True)
            except Exception as error:
                raise SourceError(
                    f"the source {self.name} cannot read {origin(url)}: {_OWNER}(params=...) failed with "
                    f"{type(error).__name__}"
                ) from error
        if not query:
            return url
        parts = urlsplit(url)
        return parts._replace(query=f"{parts.query}&{query}" if parts.query else query).geturl()

    def _produce_answer(self, response: "httpx.Response") -> bool:
        """Produce the records of an answer; return whether there are more."""
        if response.status_code in _NOTHING_NEW:
            return False
        more = False
        try:
            payload = self._deserializer(response.content)
            for number, value in enumerate(self._records(payload), 1):
                self._produce_value(number, value)
                if not self.running:
                    # The position stays, so that the whole answer is requested again.
                    return False
            position = self._next_position(response, payload)
            more = self._more is not None and bool(self._more(payload))
        except StreamRTError:
            raise
        except Exception as error:
            raise SourceError(
                f"the answer of {origin(self._url.reveal())} cannot be read by the source {self.name}: "
                f"{type(error).__name__}; see payload_deserializer, records, cursor and more"
            ) from error
        self.state.set(_STATE, position)
        self.flush()
        return more

    def _next_position(self, response: "httpx.Response", payload: Any) -> dict[str, Any]:
        cursor = None if self._cursor is None else self._cursor(payload)
        json.dumps(cursor)
        position = {
            "cursor": self._position.get("cursor") if cursor is None else cursor,
            "url": _fingerprint_url(self._asked_url),
            "etag": response.headers.get("etag"),
            "last_modified": response.headers.get("last-modified"),
        }
        return {name: value for name, value in position.items() if value is not None}

    def _produce_value(self, number: int, value: Any) -> None:
        try:
            key = None if self._key_setter is None else self._key_setter(value)
            timestamp = None if self._timestamp_setter is None else self._timestamp_setter(value)
            message = self.serialize(key, value, None, timestamp)
        except Exception as error:
            raise SourceError(
                f"record {number} of the answer of {origin(self._url.reveal())} cannot be produced by the source "
                f"{self.name}: {type(error).__name__}"
            ) from error
        self.produce(message.value, message.key, message.headers, timestamp=timestamp)


def _default_records(payload: Any) -> Iterable[Any]:
    return payload if isinstance(payload, list) else [payload]


def _fingerprint_url(url: str) -> str:
    """Return what identifies a URL in the state, which does not hold its secrets."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]
