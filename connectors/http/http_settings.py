"""HTTP for connectors: checked URLs, requests whose URLs and headers are in no log, and what answers mean.

Requests are sent by a transport of httpx, not by its client: the client logs each URL, and paths and queries of webhooks
often hold a secret. No redirect is followed, since another host would get the credentials.
"""

import email.utils
import re
import ssl
import time
import urllib.request
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import PassingError, named
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.records import Headers
from streamrt.secret import Secret

if TYPE_CHECKING:
    import httpx

__all__ = [
    "PASSING_STATUSES",
    "HTTPSettings",
    "checked_url",
    "may_pass",
    "origin",
    "proxy_of",
    "refusal",
    "request",
    "retry_after",
    "tls_context",
    "trace_headers",
]

# Answers that another attempt may change: timeouts, too early, busy, and failures of servers in between.
PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_LONGEST_TRACE_STATE = 512
"""Characters; vendors may cut off more (W3C Trace Context, 3.3.1.5)."""
_LONGEST_RETRY_AFTER_S = 3600.0


def checked_url(url: str, what: str, schemes: tuple[str, ...] = ("http", "https")) -> str:
    """Return a URL that has an allowed scheme, a host, and no user name or password.

    Args:
        url: the URL.
        what: what has the URL, for the message, which does not show it.
        schemes: the allowed schemes.

    Raises:
        ConfigurationError: if it has not.

    Example:
        >>> checked_url("https://example.com/hook", "WebhookSink(url=...)")
        'https://example.com/hook'
    """
    if not isinstance(url, str):
        raise ArgumentTypeError(f"{what} must be a str, got {type(url).__name__}")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or any(ord(character) <= 0x20 or ord(character) == 0x7F for character in url):
        raise ArgumentValueError(f"{what} must be a URL that begins with {' or '.join(f'{s}://' for s in schemes)}")
    if parts.username is not None or parts.password is not None:
        raise ArgumentValueError(
            f"{what} must not contain a user name or a password: pass them in auth_token or headers"
        )
    return url


def origin(url: str) -> str:
    """Return the part of a URL that is not secret.

    Example:
        >>> origin("https://example.com:8443/hooks/sesame?token=1")
        'https://example.com:8443'
    """
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if parts.port is None else f":{parts.port}")


def tls_context(verify: bool | str) -> ssl.SSLContext:
    """Return how to verify servers.

    Args:
        verify: True for the certificates of certifi or the system, False for no verification, or a file of
            certificates to trust.
    """
    if isinstance(verify, str):
        return ssl.create_default_context(cafile=verify)
    if verify:
        import httpx

        context: ssl.SSLContext = httpx.create_ssl_context()
        return context
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a header Retry-After, at most an hour, or None if there is no usable one.

    Example:
        >>> retry_after({"retry-after": "7"}), retry_after({"retry-after": "soon"}), retry_after({})
        (7.0, None, None)
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        seconds = float(text)
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_S)


class HTTPSettings:
    """Settings that the requests of a connector share; they can be pickled.

    Args:
        owner: the connector.
        headers: headers of each request; their values count as secrets.
        auth_token: a token for the header `Authorization: Bearer`.
        timeout: seconds for connecting, and for each read and write.
        verify: see `tls_context`.

    Raises:
        ConfigurationError: if an argument cannot be used.
    """

    def __init__(
        self,
        owner: str,
        headers: Mapping[str, str] | None,
        auth_token: CredentialInput | None,
        timeout: float,
        verify: bool | str,
    ) -> None:
        self.owner = owner
        self.timeout = timeout
        self.verify = checked_type(owner, "verify", verify, bool | str, "a bool or the path of a file")
        self._headers = {name: Secret(value) for name, value in _checked_headers(owner, headers or {}).items()}
        self._token = Credential.optional(auth_token, f"{owner}(auth_token=...)")
        if self._token is not None and any(name.lower() == "authorization" for name in self._headers):
            raise ArgumentValueError(f"{owner} got both auth_token and a header Authorization: pass one of them")

    @property
    def has_credentials(self) -> bool:
        """Whether requests carry something that other hosts must not see."""
        return bool(self._headers) or self._token is not None

    def headers(self) -> dict[str, str]:
        """Return the headers of a request, in plain text.

        Raises:
            ConfigurationError: if a function returns an unusable token.
        """
        made = {"User-Agent": "streamrt", "Accept-Encoding": "gzip, deflate"}
        made.update((name, value.reveal()) for name, value in self._headers.items())
        if self._token is not None:
            token = self._token.reveal()
            if not token.isascii() or not token.isprintable():
                raise ArgumentValueError(f"{self.owner}(auth_token=...) must be printable ASCII text")
            made["Authorization"] = f"Bearer {token}"
        return made

    def transport(self, url: str) -> "httpx.HTTPTransport":
        """Return a transport, which can be used by several threads, and respects the proxies of the environment.

        Args:
            url: a URL of the host that it is for.
        """
        import httpx

        # A plain connection needs no certificates, and reading all of them takes longer than a request.
        verify = tls_context(self.verify) if urlsplit(url).scheme == "https" else False
        return httpx.HTTPTransport(verify=verify, proxy=proxy_of(url), limits=httpx.Limits(max_keepalive_connections=4))


def request(
    transport: "httpx.HTTPTransport",
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    timeout: Any,
    content: bytes | None = None,
    stream: bool = False,
) -> "httpx.Response":
    """Send one request.

    Args:
        transport: the transport.
        method: the method.
        url: the URL.
        headers: the headers.
        timeout: seconds, or a timeout of httpx.
        content: the body.
        stream: whether the caller reads and closes the answer.

    Raises:
        PassingError: if there is no answer.
    """
    import httpx

    made = httpx.Request(
        method, url, headers=headers, content=content, extensions={"timeout": httpx.Timeout(timeout).as_dict()}
    )
    response: httpx.Response | None = None
    try:
        response = transport.handle_request(made)
        response.request = made
        if not stream:
            response.read()
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise PassingError(f"{origin(url)} does not answer: {named(error)}") from error
    finally:
        if response is not None and not stream:
            response.close()
    return response


def refusal(response: "httpx.Response", url: str) -> str:
    """Describe an answer that is not a success, without its text, which may repeat the request.

    Args:
        response: the answer.
        url: the URL.
    """
    status = f"{response.status_code} {response.reason_phrase}".rstrip()
    if response.status_code in (401, 403):
        return f"{origin(url)} refuses the credentials with {status}"
    if response.is_redirect:
        return f"{origin(url)} redirects with {status}; redirects are not followed: give the final URL"
    return f"{origin(url)} answers {status}"


def may_pass(response: "httpx.Response") -> bool:
    """Return whether the same request may succeed later."""
    return response.status_code in PASSING_STATUSES


def trace_headers(records: Iterable[Headers | None]) -> dict[str, str]:
    """Return the W3C trace context of a request, if the records that it is made of have one context, and not several.

    Args:
        records: the headers of the records.

    Example:
        >>> parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        >>> trace_headers([[("traceparent", parent), ("tracestate", b"shop=1")], None])["tracestate"]
        'shop=1'
        >>> trace_headers([[("traceparent", parent)], [("traceparent", parent[:-2] + b"00")]])
        {}
    """
    found = {context for headers in records if (context := _trace_context(headers)) is not None}
    if len(found) != 1:
        return {}
    parent, state = found.pop()
    return {"traceparent": parent, **({"tracestate": state} if state else {})}


def _trace_context(headers: Headers | None) -> tuple[str, str] | None:
    """Return `traceparent` and `tracestate` of a record; None without a context that a header may carry."""
    known = {name: value for name, value in headers or () if name in ("traceparent", "tracestate")}
    parent, state = (_to_text(known.get(name)) for name in ("traceparent", "tracestate"))
    if _TRACE_PARENT.fullmatch(parent) is None:
        return None
    return parent, state if state.isprintable() and len(state) <= _LONGEST_TRACE_STATE else ""


def _to_text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii", "replace") if value.isascii() else ""
    return value if isinstance(value, str) and value.isascii() else ""


def _checked_headers(owner: str, headers: Mapping[str, str]) -> dict[str, str]:
    checked_type(owner, "headers", headers, Mapping, "a dict", hidden=True)
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ArgumentTypeError(f"{owner}(headers=...) must have names and values of type str")
        token = name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()
        if not token or not (value.isascii() and (value.isprintable() or not value)):
            raise ArgumentValueError(f"{owner}(headers=...): the header {name!r} must be printable ASCII text")
    return dict(headers)


def proxy_of(url: str) -> str | None:
    """Return the proxy for a URL that the environment names, if any. Its URL may hold a password."""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
