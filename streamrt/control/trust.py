"""Which addresses a client follows to: those get its token, and a member of the consumer group chooses them."""

import fnmatch
import ipaddress
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from streamrt.common.addresses import is_loopback
from streamrt.common.texts import one_line
from streamrt.errors import ArgumentTypeError, StateNotOwnedError

__all__ = ["FollowPolicy"]


class FollowPolicy:
    """Decides whether a client may follow to the address of another instance.

    Args:
        url: the control address that the client was given.
        hosts: other hosts that it may follow to: names, with `*` for any characters, or networks such as `10.0.0.0/8`.

    Raises:
        ArgumentTypeError: if the hosts are not strings.
    """

    def __init__(self, url: str, hosts: Iterable[str] = ()) -> None:
        listed = None if isinstance(hosts, str) else list(hosts)
        if listed is None or not all(isinstance(host, str) and host for host in listed):
            raise ArgumentTypeError("Client(follow_hosts=...) must be a list of names of hosts, or of networks")
        self._own = urlsplit(url)
        self._networks = [network for host in listed if (network := _read_network(host)) is not None]
        self._names = [host.lower() for host in listed if _read_network(host) is None]

    def require(self, owner: str) -> None:
        """Raise unless the client may follow to an address.

        Raises:
            StateNotOwnedError: if it may not.
        """
        reason = self._refusal_reason(owner)
        if reason is not None:
            refused = StateNotOwnedError(
                f"another instance owns the key, at {one_line(owner)!r}, which gets no request of this client: {reason}; a "
                "member of the consumer group chooses this address, and would get the token"
            )
            refused.owner = owner
            raise refused

    def _refusal_reason(self, owner: str) -> str | None:
        """Return why the client does not follow to an address; None if it does."""
        try:
            parts = urlsplit(owner)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if host is None or parts.scheme not in ("http", "https") or parts.username is not None:
            return "it is not the address of a control server"
        if self._own.scheme == "https" and parts.scheme != "https":
            return "it has no TLS, and the address of this client has"
        if self._is_own(parts) or self._is_listed(host):
            return None
        return f"allow it, if it is one of yours, by follow_hosts=[{host!r}] or --follow-host {host}"

    def _is_own(self, parts: SplitResult) -> bool:
        own, host = self._own.hostname or "", parts.hostname or ""
        return host == own or (is_loopback(host) and is_loopback(own))

    def _is_listed(self, host: str) -> bool:
        if any(fnmatch.fnmatchcase(host, pattern) for pattern in self._names):
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def _read_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
