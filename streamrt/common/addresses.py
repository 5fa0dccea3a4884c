"""Addresses of servers as text."""

import ipaddress
import re
from typing import NamedTuple

from streamrt.common.untrusted import whole_number

__all__ = ["DEFAULT_CONTROL_URL", "LOOPBACK", "HostPort", "is_loopback", "is_wildcard", "parse_address"]

LOOPBACK = "127.0.0.1"
DEFAULT_CONTROL_URL = f"http://{LOOPBACK}:7070"
"""Where commands and clients look for an application."""
_HIGHEST_PORT = 65_535
_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}", re.ASCII)


class HostPort(NamedTuple):
    """A host and a port.

    Attributes:
        host: name or IP address, without brackets.
        port: number of the port; 0 for a free one.

    Example:
        >>> print(HostPort("::1", 7070))
        [::1]:7070
    """

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> HostPort:
    """Read `port` or `host:port`; a port without a host is one of the loopback interface.

    Args:
        text: the address. An IPv6 address is in brackets.

    Raises:
        ValueError: if it is not an address.

    Example:
        >>> parse_address("7070"), parse_address("[::1]:0")
        (HostPort(host='127.0.0.1', port=7070), HostPort(host='::1', port=0))
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        host = LOOPBACK
    elif host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_address(host):
            host = ""
    elif ":" in host:
        host = ""
    try:
        number = whole_number(port, most=_HIGHEST_PORT)
    except ValueError:
        number = -1
    zone = host.partition("%")[2]
    if number < 0 or not (_NAME.fullmatch(host) or (_is_address(host) and (not zone or _NAME.fullmatch(zone)))):
        raise ValueError(f"must be a port or host:port, such as '7070' or '0.0.0.0:7070', got {text!r}")
    return HostPort(host, number)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host.

    Example:
        >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def is_wildcard(host: str) -> bool:
    """Return whether a server with this address listens on all interfaces.

    Example:
        >>> is_wildcard("0.0.0.0"), is_wildcard("::"), is_wildcard("127.0.0.1")
        (True, True, False)
    """
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
