"""`WebSocketSource`: messages of a WebSocket."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from streamrt.connectors.argument_checks import checked_count, checked_function, checked_seconds
from streamrt.connectors.background import Interrupts
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError, named
from streamrt.connectors.http.http_settings import PASSING_STATUSES, HTTPSettings, checked_url, origin, tls_context
from streamrt.connectors.libraries import require_library
from streamrt.connectors.sources.base import Source
from streamrt.connectors.sources.reading import FlushPace, Waits, call_while_running, read_while_running
from streamrt.errors import ArgumentTypeError, SourceError
from streamrt.secret import Secret

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

__all__ = ["WebSocketSource"]

_OWNER = "WebSocketSource"
_FLUSH_EVERY = 1_000
# Codes of RFC 6455 after which the same connection would end the same way.
_FINAL_CODES = frozenset({1002, 1003, 1007, 1008, 1009, 1010})

Message = str | bytes
T = TypeVar("T")


class _Connection:
    """A WebSocket whose event loop runs only while a method is called, in the thread of the caller.

    The client for threads that the library has as well reads in one thread and writes in another. OpenSSL does not allow
    that: a write during a read of a session ticket may wait forever.

    Args:
        stream: the socket, connected and not blocking.
        opening: makes a WebSocket of it.

    Raises:
        Exception: the error of `opening`.
    """

    def __init__(self, stream: socket.socket, opening: "Coroutine[Any, Any, ClientConnection]") -> None:
        self._stream = stream
        self._loop = asyncio.new_event_loop()
        self._received: list[Message] = []
        self._changed = asyncio.Event()
        try:
            self._websocket = self._run_coroutine(opening)
        except BaseException:
            self._loop.close()
            stream.close()
            raise
        self._reading = self._loop.create_task(self._read_all())

    def send(self, message: Message) -> None:
        """Send a message."""
        self._run_coroutine(self._websocket.send(message))

    def receive_messages(self, silence_s: float) -> list[Message]:
        """Return messages as they come; none if the server is silent so long, and does not answer a ping as long."""
        self._run_coroutine(self._wait(silence_s))
        received, self._received = self._received, []
        return received

    def interrupt_waits(self) -> None:
        """End what waits for the server; other threads may call this."""
        self._stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the WebSocket."""
        try:
            self._run_coroutine(self._websocket.close())
            self._run_coroutine(asyncio.wait([self._reading]))
            # Its error is known or does not matter any more; asyncio would report it.
            self._reading.exception()
        finally:
            self._loop.close()

    def _run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)

    async def _read_all(self) -> None:
        try:
            while True:
                message = await self._websocket.recv()
                self._received.append(message)
                self._changed.set()
        finally:
            self._changed.set()

    async def _wait(self, silence_s: float) -> None:
        while not self._received:
            if self._reading.done():
                self._reading.result()
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), silence_s)
            except asyncio.TimeoutError:
                pong = await self._websocket.ping()
                answered, _ = await asyncio.wait([pong], timeout=silence_s)
                if not answered:
                    return


class WebSocketSource(Source):
    """Produces the messages of a WebSocket. Needs the extra `websocket`.

    When the connection is lost, the source connects again, waits longer after each failed attempt, and sends `subscribe`
    again. A WebSocket has no positions: messages that are sent while there is no connection are lost, and a crash loses
    those of the last `flush_interval` seconds.

    Args:
        url: the URL, `ws://` or `wss://`.
        name: name of the source, unique in the application.
        key_setter: returns the key of a message, a str or bytes; without it, records have no key.
        value_setter: returns the value of a message; by default the message, read as JSON.
        timestamp_setter: returns the timestamp of a message in milliseconds; without it, the time of producing is used.
        subscribe: what to send after each connection: a str, bytes, a dict that is sent as JSON, a list of these, or a
            function that returns one of these.
        headers: more headers of the request.
        auth_token: a token for the header `Authorization: Bearer`, or a function that returns it; it is called for each
            connection.
        timeout: seconds for connecting.
        heartbeat: seconds of silence after which the source asks the server for a sign of life; without an answer within
            the same time, it connects again.
        max_size: maximum size of a message in bytes; a larger one ends the source.
        flush_interval: seconds after which records are flushed.
        verify: whether certificates are verified, or the path of a file of certificates to trust.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after the first connection is open.
        on_client_connect_failure: called with the exception when the first connection fails.

    Raises:
        ConfigurationError: if an argument cannot be used, or websockets is not installed.

    Example:
        ```python
        trades = WebSocketSource(
            "wss://ws.example.com/v2",
            name="trades",
            subscribe={"method": "subscribe", "channel": "trade", "symbol": ["BTC/USD"]},
            key_setter=lambda message: json.loads(message)["channel"],
        )
        sdf = app.dataframe(source=trades)
        ```
    """

    def __init__(
        self,
        url: str,
        name: str,
        key_setter: Callable[[Message], Any] | None = None,
        value_setter: Callable[[Message], Any] | None = None,
        timestamp_setter: Callable[[Message], int] | None = None,
        subscribe: Any = None,
        headers: Mapping[str, str] | None = None,
        auth_token: CredentialInput | None = None,
        *,
        timeout: float = 10.0,
        heartbeat: float = 20.0,
        max_size: int = 1 << 20,
        flush_interval: float = 1.0,
        verify: bool | str = True,
        shutdown_timeout: float = 10,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        require_library(_OWNER, "websockets", "websocket")
        super().__init__(name, shutdown_timeout, on_client_connect_success, on_client_connect_failure)
        self._url = Secret(checked_url(url, f"{_OWNER}(url=...)", ("ws", "wss")))
        self._settings = HTTPSettings(_OWNER, headers, auth_token, checked_seconds(_OWNER, "timeout", timeout), verify)
        self._key_setter = checked_function(_OWNER, "key_setter", key_setter, optional=True)
        self._value_setter = checked_function(_OWNER, "value_setter", value_setter, optional=True)
        self._timestamp_setter = checked_function(_OWNER, "timestamp_setter", timestamp_setter, optional=True)
        # Subscriptions may hold API keys.
        self._subscribe = (
            subscribe if callable(subscribe) else [_hide_message(message) for message in _check_messages(subscribe)]
        )
        self._heartbeat = checked_seconds(_OWNER, "heartbeat", heartbeat)
        self._max_size = checked_count(_OWNER, "max_size", max_size)
        self._flush_interval = checked_seconds(_OWNER, "flush_interval", flush_interval, least=0)
        self._produced = 0
        self._first: _Connection | None = None

    def setup(self) -> None:
        """Open the first connection.

        Raises:
            SourceError: if it cannot be opened.
        """
        try:
            self._first = call_while_running(self, self._open_connection)
        except PassingError as error:
            raise SourceError(f"the source {self.name} cannot connect: {error}") from error

    def run(self) -> None:
        """Produce messages until the source is stopped.

        Raises:
            SourceError: if the server refuses a connection, or a message cannot be produced.
        """
        pace = FlushPace(_FLUSH_EVERY, self._flush_interval)
        read_while_running(self, self._read_messages, self._produce_message, self.flush, pace, Waits())

    def cleanup(self, failed: bool) -> None:
        """Close the connection.

        Args:
            failed: whether the source failed.
        """
        if self._first is not None:
            self._first.close()
        super().cleanup(failed)

    def _open_connection(self, interrupts: Interrupts) -> _Connection:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidHandshake, InvalidStatus

        url = self._url.reveal()
        parts = urlsplit(url)
        secure = parts.scheme == "wss"
        headers = self._settings.headers()
        agent = headers.pop("User-Agent")
        headers.pop("Accept-Encoding")
        try:
            # With a given socket, the library follows no redirects, which would carry headers to other hosts.
            stream = socket.create_connection(
                (parts.hostname, parts.port or (443 if secure else 80)), self._settings.timeout
            )
            interrupts.add(lambda: stream.shutdown(socket.SHUT_RDWR))
            stream.setblocking(False)

            async def open_websocket() -> "ClientConnection":
                return await connect(
                    url,
                    sock=stream,
                    ssl=tls_context(self._settings.verify) if secure else None,
                    proxy=None,
                    additional_headers=headers,
                    user_agent_header=agent,
                    open_timeout=self._settings.timeout,
                    # The source asks for signs of life; this says that it lives.
                    ping_timeout=None,
                    close_timeout=1,
                    max_size=self._max_size,
                    logger=_silent_logger(),
                )

            return _Connection(stream, open_websocket())
        except Exception as error:
            status = error.__cause__ if isinstance(error.__cause__, InvalidStatus) else error
            if isinstance(status, InvalidStatus):
                raise self._make_refusal(status.response.status_code, url) from error
            if isinstance(error, OSError | EOFError | InvalidHandshake):
                raise PassingError(f"{origin(url)} does not answer: {named(error)}") from error
            raise

    def _make_refusal(self, status: int, url: str) -> Exception:
        if status in PASSING_STATUSES:
            return PassingError(f"{origin(url)} answers {status}")
        if status in (401, 403):
            reason = f"refuses the credentials with {status}"
        elif 300 <= status < 400:
            reason = f"redirects with {status}; redirects are not followed: give the final URL"
        else:
            reason = f"answers {status}"
        return SourceError(f"the source {self.name} cannot connect: {origin(url)} {reason}")

    def _read_messages(self, interrupts: Interrupts) -> Iterator[Message]:
        from websockets.exceptions import ConnectionClosed

        opened, self._first = self._first or self._open_connection(interrupts), None
        with closing(opened) as connection:
            interrupts.add(connection.interrupt_waits)
            try:
                for message in self._subscription_messages():
                    connection.send(message)
                while received := connection.receive_messages(self._heartbeat):
                    yield from received
            except ConnectionClosed as error:
                raise self._make_closed_error(error) from error
            raise PassingError(f"{origin(self._url.reveal())} gave no sign of life for {self._heartbeat:g} s")

    def _make_closed_error(self, error: Any) -> Exception:
        where = origin(self._url.reveal())
        if error.sent is not None and error.sent.code == 1009:
            return SourceError(
                f"the source {self.name} ends: {where} sent a message of more than {self._max_size} bytes; increase max_size"
            )
        for frame, verb in ((error.rcvd, "closes"), (error.sent, "is left")):
            if frame is not None and frame.code in _FINAL_CODES:
                return SourceError(f"the source {self.name} ends: {where} {verb} the connection with code {frame.code}")
        code = "" if error.rcvd is None else f" with code {error.rcvd.code}"
        return PassingError(f"{where} closed the connection{code}")

    def _subscription_messages(self) -> list[Message]:
        if not callable(self._subscribe):
            return [bytes.fromhex(text.reveal()) if binary else text.reveal() for binary, text in self._subscribe]
        try:
            return _check_messages(self._subscribe())
        except Exception as error:
            raise SourceError(
                f"the source {self.name} ends: {_OWNER}(subscribe=...) failed with {type(error).__name__}"
            ) from error

    def _produce_message(self, message: Message) -> None:
        self._produced += 1
        try:
            key = None if self._key_setter is None else self._key_setter(message)
            value = json.loads(message) if self._value_setter is None else self._value_setter(message)
            timestamp = None if self._timestamp_setter is None else self._timestamp_setter(message)
            made = self.serialize(key, value, None, timestamp)
        except Exception as error:
            advice = "; pass value_setter if messages are not JSON" if self._value_setter is None else ""
            raise SourceError(
                f"message {self._produced} since the start cannot be produced by the source {self.name}: "
                f"{type(error).__name__}{advice}"
            ) from error
        self.produce(made.value, made.key, made.headers, timestamp=timestamp)


def _check_messages(subscribe: Any) -> list[Message]:
    given = subscribe if isinstance(subscribe, list) else [] if subscribe is None else [subscribe]
    made: list[Message] = []
    for message in given:
        if isinstance(message, str | bytes):
            made.append(message)
        elif isinstance(message, dict):
            made.append(json.dumps(message))
        else:
            raise ArgumentTypeError(
                f"{_OWNER}(subscribe=...) must be a str, bytes, a dict, a list of these or a function, "
                f"got a {type(message).__name__}"
            )
    return made


def _hide_message(message: Message) -> tuple[bool, Secret]:
    return (True, Secret(message.hex())) if isinstance(message, bytes) else (False, Secret(message))


def _silent_logger() -> logging.Logger:
    """Return a logger that writes nothing: at level DEBUG the library logs headers."""
    logger = logging.Logger("streamrt.websocket", logging.CRITICAL + 1)  # noqa: LOG001 - outside of the hierarchy
    logger.addHandler(logging.NullHandler())
    return logger
