"""`ServerSentEventsSource`: events of an HTTP stream (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

import json
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from streamrt.connectors.argument_checks import checked_flag, checked_function, checked_seconds, checked_type
from streamrt.connectors.background import Interrupts
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError, named
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
from streamrt.connectors.sources.reading import FlushPace, Waits, call_while_running, read_while_running
from streamrt.connectors.sources.stateful import StatefulSource
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SourceError
from streamrt.secret import Secret

if TYPE_CHECKING:
    import httpx
    import httpx_sse

__all__ = ["ServerSentEventsSource"]

_OWNER = "ServerSentEventsSource"
_FLUSH_EVERY = 1_000
_SHORTEST_WAIT_S = 0.1
_LONGEST_WAIT_S = 3600.0


class ServerSentEventsSource(StatefulSource):
    """Produces the events of an HTTP stream (server-sent events). Needs the extra `http`.

    The source remembers the id of the last event. After a lost connection or a restart it connects again and asks for the
    events after that one, with the header `Last-Event-ID`. So events are produced at least once if the server gives them
    ids and keeps them; otherwise, events are lost while there is no connection. The source waits between connections as
    the server asks, and longer after each failed attempt.

    Records have the headers `event` and `id`. Events without data are not events, as the standard says. If the server
    answers 204, the source ends.

    Args:
        url: the URL.
        name: name of the source, unique in the application. The state belongs to this name.
        key_setter: returns the key of an event, which has the attributes `event`, `data`, `id` and `retry`; without it,
            records have no key.
        value_setter: returns the value of an event; by default its data, read as JSON.
        timestamp_setter: returns the timestamp of an event in milliseconds; without it, the time of producing is used.
        events: names of the events to produce; None for all. Events without a name are named "message".
        headers: more headers of the request.
        auth_token: a token for the header `Authorization: Bearer`, or a function that returns it; it is called for each
            connection.
        last_event_id: id of the event after which the very first connection begins.
        timeout: seconds for connecting.
        idle_timeout: seconds without anything from the server after which the source connects again; None for no limit.
        flush_interval: seconds after which records are flushed, and the id of the last one is stored.
        verify: whether certificates are verified, or the path of a file of certificates to trust.
        shutdown_timeout: seconds that the source has to end when the application stops.
        resume: whether the source asks for the events after the last one. Without it, each connection begins as the server
            likes, and events may be lost or delivered again.
        on_client_connect_success: called without arguments after the first connection is open.
        on_client_connect_failure: called with the exception when the first connection fails.

    Raises:
        ConfigurationError: if an argument cannot be used, or a library is not installed.

    Example:
        ```python
        changes = ServerSentEventsSource(
            "https://stream.wikimedia.org/v2/stream/recentchange",
            name="changes",
            key_setter=lambda event: json.loads(event.data)["wiki"],
        )
        sdf = app.dataframe(source=changes)
        ```
    """

    def __init__(
        self,
        url: str,
        name: str,
        key_setter: "Callable[[httpx_sse.ServerSentEvent], Any] | None" = None,
        value_setter: "Callable[[httpx_sse.ServerSentEvent], Any] | None" = None,
        timestamp_setter: "Callable[[httpx_sse.ServerSentEvent], int] | None" = None,
        events: Collection[str] | None = None,
        headers: Mapping[str, str] | None = None,
        auth_token: CredentialInput | None = None,
        *,
        last_event_id: str | None = None,
        timeout: float = 10.0,
        idle_timeout: float | None = 120.0,
        flush_interval: float = 1.0,
        verify: bool | str = True,
        shutdown_timeout: float = 10,
        resume: bool = True,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        require_library(_OWNER, "httpx", "http")
        require_library(_OWNER, "httpx_sse", "http")
        super().__init__(name, shutdown_timeout, on_client_connect_success, on_client_connect_failure)
        self._url = Secret(checked_url(url, f"{_OWNER}(url=...)"))
        self._settings = HTTPSettings(_OWNER, headers, auth_token, checked_seconds(_OWNER, "timeout", timeout), verify)
        self._key_setter = checked_function(_OWNER, "key_setter", key_setter, optional=True)
        self._value_setter = checked_function(_OWNER, "value_setter", value_setter, optional=True)
        self._timestamp_setter = checked_function(_OWNER, "timestamp_setter", timestamp_setter, optional=True)
        if events is not None and (isinstance(events, str) or not all(isinstance(event, str) for event in events)):
            raise ArgumentTypeError(f"{_OWNER}(events=...) must be a list of names of events")
        self._events = None if events is None else frozenset(events)
        self._first_event_id = checked_type(_OWNER, "last_event_id", last_event_id, str, "a str", optional=True)
        self._idle_timeout = None if idle_timeout is None else checked_seconds(_OWNER, "idle_timeout", idle_timeout)
        self._flush_interval = checked_seconds(_OWNER, "flush_interval", flush_interval, least=0)
        self._resumes = checked_flag(_OWNER, "resume", resume)
        if last_event_id is not None and not resume:
            raise ArgumentValueError(f"{_OWNER}(resume=False) asks for no event, so last_event_id has no effect")
        self._last_event_id = ""
        self._response: httpx.Response | None = None
        self._transport: httpx.HTTPTransport | None = None
        self._waits: Waits | None = None
        self._finished = False

    def setup(self) -> None:
        """Open the first connection.

        Raises:
            SourceError: if it cannot be opened.
        """
        if self._resumes:
            self._last_event_id = self.state.get("last_event_id", self._first_event_id or "")
        try:
            self._response = call_while_running(self, self._open_stream)
        except _NoMoreEventsError:
            self._finished = True
        except PassingError as error:
            raise SourceError(f"the source {self.name} cannot connect: {error}") from error

    def run(self) -> None:
        """Produce events until the source is stopped or the server has no more.

        Raises:
            SourceError: if the server refuses a connection, or an event cannot be produced.
        """
        if self._finished:
            return
        # The standard leaves the first wait to the client; servers change it.
        self._waits = Waits(first_s=2.0)
        pace = FlushPace(_FLUSH_EVERY, self._flush_interval)
        try:
            read_while_running(self, self._read_events, self._produce_event, self.flush, pace, self._waits)
        except _NoMoreEventsError:
            return

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records are delivered, then store the id of the last event.

        Args:
            timeout: seconds, for each of the two; None means 30, -1 means no limit.

        Raises:
            ProducerError: if a record was not delivered, or the changelog was not written, in time.
        """
        if self._last_event_id:
            self.state.set("last_event_id", self._last_event_id)
        super().flush(timeout)

    def cleanup(self, failed: bool) -> None:
        """Close the connection.

        Args:
            failed: whether the source failed.
        """
        if self._response is not None:
            self._response.close()
        if self._transport is not None:
            self._transport.close()
        super().cleanup(failed)

    def _open_stream(self, interrupts: Interrupts) -> "httpx.Response":
        import httpx

        url = self._url.reveal()
        if self._transport is None:
            self._transport = self._settings.transport(url)
        headers: dict[str, Any] = {
            **self._settings.headers(),
            "Accept": "text/event-stream",
            "Cache-Control": "no-store",
        }
        # A compressed stream may be held back until a block is full.
        headers["Accept-Encoding"] = "identity"
        if self._last_event_id:
            headers["Last-Event-ID"] = self._last_event_id.encode()
        timeout = httpx.Timeout(self._settings.timeout, read=self._idle_timeout)
        response = request(self._transport, "GET", url, headers=headers, timeout=timeout, stream=True)
        try:
            self._check_response(response, url)
        except BaseException:
            response.close()
            raise
        return response

    def _check_response(self, response: "httpx.Response", url: str) -> None:
        if response.status_code == 204:
            raise _NoMoreEventsError(f"{origin(url)} answers 204: there are no more events")
        if may_pass(response):
            raise PassingError(refusal(response, url), retry_after(response.headers))
        if response.status_code != 200:
            raise SourceError(f"the source {self.name} cannot connect: {refusal(response, url)}")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            raise SourceError(
                f"the source {self.name} cannot read {origin(url)}: the answer is not a stream of events (text/event-stream)"
            )

    def _read_events(self, interrupts: Interrupts) -> "Iterator[httpx_sse.ServerSentEvent]":
        import httpx
        import httpx_sse

        response, self._response = self._response or self._open_stream(interrupts), None
        stream = response.extensions.get("network_stream")
        if stream is not None:
            interrupts.add(lambda: stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR))
        try:
            yield from httpx_sse.EventSource(response).iter_sse()
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise PassingError(f"{origin(self._url.reveal())} is lost: {named(error)}") from error
        finally:
            response.close()

    def _produce_event(self, event: "httpx_sse.ServerSentEvent") -> None:
        if event.retry is not None and self._waits is not None:
            self._waits.first_s = min(max(event.retry / 1000, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
        if event.data and (self._events is None or event.event in self._events):
            self._produce_data(event)
        if self._resumes:
            self._last_event_id = event.id or self._last_event_id

    def _produce_data(self, event: "httpx_sse.ServerSentEvent") -> None:
        try:
            key = None if self._key_setter is None else self._key_setter(event)
            value = json.loads(event.data) if self._value_setter is None else self._value_setter(event)
            timestamp = None if self._timestamp_setter is None else self._timestamp_setter(event)
            headers = [("event", event.event), *([("id", event.id)] if event.id else [])]
            message = self.serialize(key, value, headers, timestamp)
        except Exception as error:
            position = f"after id {self._last_event_id!r}" if self._last_event_id else "without an id before it"
            advice = "; pass value_setter if data is not JSON" if self._value_setter is None else ""
            raise SourceError(
                f"an event {position} cannot be produced by the source {self.name}: {type(error).__name__}{advice}"
            ) from error
        self.produce(message.value, message.key, message.headers, timestamp=timestamp)


class _NoMoreEventsError(SourceError):
    """The server asks clients not to connect again."""
