"""One word for TLS in connectors of databases: `tls`. The names of their libraries are also taken, but not both."""

import socket
import ssl
from collections.abc import Collection, Mapping
from typing import Any

from streamrt.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["LIBPQ_NAMES", "TLS", "check_tls", "libpq_settings", "speaks_redis_without_tls", "tls_context"]

TLS = bool | str | None
"""True for TLS with a certificate that the system trusts, the path of a file of trusted certificates, or False for none; None
leaves it to the library."""

LIBPQ_NAMES = frozenset({"sslmode", "sslrootcert"})
"""Settings that `tls` replaces."""

_PROBE_S = 3.0


def check_tls(owner: str, tls: TLS, settings: Mapping[str, Any], names: Collection[str]) -> None:
    """Check the argument `tls`, and that no setting of the library means the same.

    Args:
        owner: the connector.
        tls: the argument.
        settings: the settings of the library.
        names: which of them are about TLS.

    Raises:
        ConfigurationError: if it cannot be used, or both are there.
    """
    if not isinstance(tls, bool | str | None) or tls == "":
        raise ArgumentTypeError(f"{owner}(tls=...) must be True, False or the path of a file, got {tls!r}")
    both = sorted(settings.keys() & set(names))
    if tls is not None and both:
        raise ArgumentValueError(f"{owner} got tls and {both[0]}, which say the same: give one of them")


def tls_context(tls: bool | str) -> ssl.SSLContext:
    """Return the context for `tls=True` or the path of a file.

    Raises:
        OSError: if the file cannot be read.
    """
    return ssl.create_default_context(cafile=tls if isinstance(tls, str) else None)


def libpq_settings(tls: TLS) -> dict[str, str]:
    """Return the settings of libpq for `tls`.

    Example:
        >>> libpq_settings(True)
        {'sslmode': 'verify-full', 'sslrootcert': 'system'}
    """
    if tls is None:
        return {}
    if tls is False:
        return {"sslmode": "disable"}
    return {"sslmode": "verify-full", "sslrootcert": tls if isinstance(tls, str) else "system"}


def speaks_redis_without_tls(host: str, port: int) -> bool:
    """Return whether a server answers to Redis's protocol without TLS: it would wait for the rest of a handshake.

    Args:
        host: the host.
        port: the port.
    """
    try:
        with socket.create_connection((host, port), _PROBE_S) as connection:
            connection.sendall(b"PING\r\n")
            # +PONG, or an error such as -NOAUTH. TLS answers with an alert, or closes.
            return connection.recv(1) in (b"+", b"-")
    except OSError:
        return False
