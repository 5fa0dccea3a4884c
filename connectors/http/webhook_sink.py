"""`WebhookSink`: values as JSON in HTTP requests."""

import contextlib
import json
import socket
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from streamrt.connectors.argument_checks import checked_count, checked_function, checked_seconds, checked_text
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError, named
from streamrt.connectors.http.http_settings import (
    HTTPSettings,
    checked_url,
    may_pass,
    origin,
    proxy_of,
    refusal,
    request,
    retry_after,
    tls_context,
    trace_headers,
)
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.common import send_in_parts
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SinkBackpressureError, SinkError
from streamrt.forks import in_this_process
from streamrt.secret import Secret

if TYPE_CHECKING:
    import httpx

__all__ = ["WebhookSink"]

# A server that answers one of these refuses what it was sent, not who sends it, or where to.
_UNPROCESSABLE = 422
_ABOUT_VALUE = (400, 413, _UNPROCESSABLE)


class _UnprocessableError(SinkError):
    """The server has understood a request, and refuses what is in it."""


class WebhookSink(BatchingSink):
    """Posts values as JSON to a URL, in batches. Needs the extra `http`.

    The body of a request is a JSON list of values from one partition, in order. A request that is answered with 2xx has
    arrived. Values arrive at least once. Each request has a header with an idempotency key made of topic, partition and
    offsets: two requests with the same key carry the same values. With `batch_size=1` each value of a record always
    has the same key, so a receiver that ignores keys that it has seen gets each value once.

    The W3C trace context of the values (`traceparent`, `tracestate` in the headers of records) becomes headers of the
    request if all values that have one have the same.

    If a request is answered with 422, its values are sent again in halves until one value is refused by itself: the
    error names its record, so that `on_error` can skip it. Other refusals of a request with several values, such as 400,
    may be about all of them: they name the offsets, and with `batch_size=1` the record.

    Redirects are not followed. URLs, headers and the token are in no log and in no error: messages name the scheme, the
    host and the port only.

    Args:
        url: the URL, or a function that returns one for each item. Values for different URLs are sent separately.
        headers: more headers of each request.
        auth_token: a token for the header `Authorization: Bearer`, or a function that returns it; it is called for each
            request.
        batch_size: maximum number of values in one request.
        timeout: seconds for connecting, and for each read and write.
        idempotency_key: name of the header with the idempotency key; None for no such header.
        payload: makes the body, which is sent as JSON, from the items of a request; by default the list of their values.
        hosts: the hosts that a `url` function may return. It must be given if requests carry headers or a token.
        verify: whether certificates are verified, or the path of a file of certificates to trust.
        retries: how requests are repeated when the server is busy or cannot be reached.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if an argument cannot be used, or httpx is not installed.

    Example:
        ```python
        sdf.sink(WebhookSink("https://example.com/orders", auth_token=lambda: os.environ["ORDERS_TOKEN"]))

        # One text for each alert.
        alerts = WebhookSink(
            "https://chat.example.com/hooks/T1", batch_size=1, payload=lambda items: {"text": items[0].value["alert"]}
        )
        ```
    """

    def __init__(
        self,
        url: str | Callable[[SinkItem], str],
        headers: Mapping[str, str] | None = None,
        auth_token: CredentialInput | None = None,
        batch_size: int = 100,
        timeout: float = 10.0,
        idempotency_key: str | None = "Idempotency-Key",
        *,
        payload: Callable[[Sequence[SinkItem]], Any] | None = None,
        hosts: Collection[str] | None = None,
        verify: bool | str = True,
        retries: Retries | None = None,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        require_library("WebhookSink", "httpx", "http")
        super().__init__(on_client_connect_success, on_client_connect_failure)
        self._settings = HTTPSettings(
            "WebhookSink", headers, auth_token, checked_seconds("WebhookSink", "timeout", timeout), verify
        )
        self._url = url if callable(url) else Secret(checked_url(url, "WebhookSink(url=...)"))
        self._hosts = _checked_hosts(hosts)
        if callable(url) and self._hosts is None and self._settings.has_credentials:
            raise ArgumentValueError(
                "WebhookSink(url=...) is a function, and requests carry headers or a token: name the hosts that may get "
                "them in hosts=[...]"
            )
        self._batch_size = checked_count("WebhookSink", "batch_size", batch_size)
        if idempotency_key is not None:
            checked_text("WebhookSink", "idempotency_key", idempotency_key)
            if not idempotency_key.isascii() or not idempotency_key.replace("-", "a").replace("_", "a").isalnum():
                raise ArgumentValueError("WebhookSink(idempotency_key=...) must be the name of a header")
        self._idempotency_key = idempotency_key
        self._payload = checked_function("WebhookSink", "payload", payload, optional=True)
        self._retries = retries or Retries()
        self._transports: dict[str, httpx.HTTPTransport] = {}

    def setup(self) -> None:
        """Check that the host accepts connections, if the URL is not a function; nothing is sent.

        Raises:
            SinkError: if it does not.
        """
        self._transports = {}
        # For a sink that is not closed.
        weakref.finalize(self, in_this_process(_close_transports), self._transports)
        if isinstance(self._url, Secret):
            self._check_host(self._url.reveal())

    def write(self, batch: SinkBatch) -> None:
        """Post the values of one partition.

        Args:
            batch: the values.

        Raises:
            SinkError: if the server refuses a request, or a value cannot be sent as JSON.
            SinkBackpressureError: if the server is busy or cannot be reached.
        """
        for url, items in self._by_url(batch).items():
            for start in range(0, len(items), self._batch_size):
                send_in_parts(
                    items[start : start + self._batch_size],
                    partial(self._post_values, url, batch),
                    lambda error: isinstance(error, _UnprocessableError),
                )

    def close(self) -> None:
        """Close the connections."""
        _close_transports(self._transports)
        self._transports.clear()

    def _check_host(self, url: str) -> None:
        if proxy_of(url) is not None:
            # This check would go around the proxy, where there may be no way.
            return
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            with contextlib.ExitStack() as stack:
                connection = stack.enter_context(
                    socket.create_connection((parts.hostname, port), self._settings.timeout)
                )
                if parts.scheme == "https":
                    context = tls_context(self._settings.verify)
                    stack.enter_context(context.wrap_socket(connection, server_hostname=parts.hostname))
        except OSError as error:
            raise SinkError(f"WebhookSink cannot connect to {origin(url)}: {named(error)}") from error

    def _by_url(self, batch: SinkBatch) -> dict[str, list[tuple[SinkItem, int]]]:
        """Return the items with their numbers within their offsets, by URL and in order."""
        found: dict[str, list[tuple[SinkItem, int]]] = {}
        counts: Counter[int] = Counter()
        for item in batch:
            url = self._url.reveal() if isinstance(self._url, Secret) else self._url_of(item, batch)
            found.setdefault(url, []).append((item, counts[item.offset]))
            counts[item.offset] += 1
        return found

    def _url_of(self, item: SinkItem, batch: SinkBatch) -> str:
        assert not isinstance(self._url, Secret)  # noqa: S101 - the caller knows
        where = f"{batch.topic}[{batch.partition}] offset {item.offset}"
        try:
            url = checked_url(self._url(item), f"the result of WebhookSink(url=...) for {where}")
        except (ArgumentTypeError, ArgumentValueError) as error:
            raise SinkError(str(error), batch.record_of(item)) from None
        except Exception as error:
            raise SinkError(
                f"WebhookSink(url=...) failed for {where} with {type(error).__name__}", batch.record_of(item)
            ) from error
        if self._hosts is not None and (urlsplit(url).hostname or "") not in self._hosts:
            raise SinkError(
                f"WebhookSink sends nothing to {origin(url)}, where {where} should go: the host is not among its hosts",
                batch.record_of(item),
            )
        return url

    def _post_values(self, url: str, batch: SinkBatch, numbered: Sequence[tuple[SinkItem, int]]) -> None:
        items = [item for item, _ in numbered]
        content = self._make_body(items, batch)
        key = self._key(numbered, batch)
        traced = trace_headers(item.headers for item in items)

        def post() -> "httpx.Response":
            headers = {**self._settings.headers(), "Content-Type": "application/json"}
            named_already = {name.lower() for name in headers}
            headers.update((name, value) for name, value in traced.items() if name not in named_already)
            if self._idempotency_key is not None:
                headers[self._idempotency_key] = key
            response = request(
                self._find_transport(url), "POST", url, headers=headers, timeout=self._settings.timeout, content=content
            )
            if may_pass(response):
                wait = retry_after(response.headers)
                if wait is not None:
                    # The server knows best when to come back; the partition is paused meanwhile.
                    raise SinkBackpressureError(wait, f"WebhookSink: {refusal(response, url)}")
                raise PassingError(refusal(response, url))
            return response

        where = f"{batch.topic}[{batch.partition}] offsets {items[0].offset} to {items[-1].offset}"
        what = f"WebhookSink: the request to {origin(url)}"
        response = self._retries.write(post, passing=(PassingError,), what=what)
        if not response.is_success:
            # Of a request with several values, the server does not say which one it refuses.
            alone = response.status_code in _ABOUT_VALUE and len({item.offset for item in items}) == 1
            kind = _UnprocessableError if response.status_code == _UNPROCESSABLE else SinkError
            raise kind(
                f"WebhookSink cannot send {where}: {refusal(response, url)}",
                batch.record_of(items[0]) if alone else None,
            )

    def _make_body(self, items: Sequence[SinkItem], batch: SinkBatch) -> bytes:
        try:
            payload = [item.value for item in items] if self._payload is None else self._payload(items)
            return _dump_json(payload)
        except Exception as error:
            if self._payload is None:
                for item in items:
                    _check_json(item, batch)
            where = f"{batch.topic}[{batch.partition}] offsets {items[0].offset} to {items[-1].offset}"
            raise SinkError(
                f"WebhookSink cannot make the JSON of {where}: {type(error).__name__}",
                batch.record_of(items[0]) if len({item.offset for item in items}) == 1 else None,
            ) from error

    def _key(self, numbered: Sequence[tuple[SinkItem, int]], batch: SinkBatch) -> str:
        (first, number), (last, last_number) = numbered[0], numbered[-1]
        # The number of values distinguishes requests to one of several URLs, which skip values in between.
        parts = (
            batch.topic,
            batch.partition,
            f"{first.offset}.{number}",
            f"{last.offset}.{last_number}",
            len(numbered),
        )
        return ":".join(map(str, parts))

    def _find_transport(self, url: str) -> "httpx.HTTPTransport":
        host = origin(url)
        transport = self._transports.get(host)
        if transport is None:
            transport = self._transports[host] = self._settings.transport(url)
        return transport


def _close_transports(transports: "dict[str, httpx.HTTPTransport]") -> None:
    for transport in transports.values():
        transport.close()


def _dump_json(payload: Any) -> bytes:
    return json.dumps(payload, allow_nan=False, separators=(",", ":")).encode()


def _check_json(item: SinkItem, batch: SinkBatch) -> None:
    try:
        _dump_json(item.value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SinkError(
            f"WebhookSink cannot send {batch.topic}[{batch.partition}] offset {item.offset}: its value has no form in "
            f"JSON ({type(error).__name__}); convert it before the sink",
            batch.record_of(item),
        ) from None


def _checked_hosts(hosts: Collection[str] | None) -> frozenset[str] | None:
    if hosts is None:
        return None
    if isinstance(hosts, str) or not all(isinstance(host, str) and host for host in hosts):
        raise ArgumentTypeError("WebhookSink(hosts=...) must be a list of the names of hosts")
    return frozenset(host.lower() for host in hosts)
