"""Finds out that another instance has died before its session in the group is over.

An instance with a control server announces the server's address, see `url_of_member`. If a connection is refused, the
machine is there and the process is not. An instance that does not answer at all may only be cut off from here, so it is
left to the group's coordinator. So is one whose address is also that of another one, such as a load balancer's: what
refuses connections there may be any of them.
"""

import logging
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from streamrt.common.addresses import HostPort, parse_address
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.runtime.driver.observation.owners import url_of_member

__all__ = ["Peers", "StaticMember", "connection_is_refused", "find_remaining", "parse_member"]

logger = logging.getLogger("streamrt")

_REFUSED_S = 1.0
"""Seconds for which connections must be refused: a server that is started again is away for a moment."""
_CONNECT_S = 0.5
_SILENT_S = 5.0
"""Seconds until the next attempt after one without an answer."""
_STATIC = re.compile(r"(?P<id>(?P<slot>\d{3})-(?P<instance>.+))-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
"""How coordinators name static members: by id, and a UUID. For the id see `member_of_slot`."""


class StaticMember(NamedTuple):
    """What the id of a slot's member says.

    Attributes:
        id: the static id.
        slot: number of the slot.
        instance: id of the instance.
    """

    id: str
    slot: int
    instance: str


def parse_member(member: ListedMember) -> StaticMember | None:
    """Return the slot and the instance of a member; None if it is not a slot of an instance.

    Example:
        >>> uuid = "5f0c1a52-8d1f-4a9c-9a53-6a8a5d6f3c11"
        >>> parse_member(ListedMember(f"001-shop-0-{uuid}", "rdkafka", "10.0.0.7", ()))
        StaticMember(id='001-shop-0', slot=1, instance='shop-0')
    """
    parts = _STATIC.fullmatch(member.member_id)
    return None if parts is None else StaticMember(parts["id"], int(parts["slot"]), parts["instance"])


@dataclass
class _Peer:
    """An instance, for as long as its members stay the same.

    Attributes:
        members: the static ids of its members, by their ids of the coordinator.
        address: that of its control server.
        answered: whether it has answered, so that it can be reached from here.
        refused_at: since when it refuses connections; None if it does not.
        silent_until: when to try again after no answer.
    """

    members: Mapping[str, str]
    address: HostPort
    answered: bool = False
    refused_at: float | None = None
    silent_until: float = 0.0


class Peers:
    """The other instances of an application, as far as they have announced an address.

    Args:
        instance: id of this instance.
        is_refused: returns whether an address refuses a connection; None without an answer.
        clock: returns seconds; only differences count.
    """

    def __init__(
        self,
        instance: str,
        is_refused: "Callable[[HostPort], bool | None] | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instance = instance
        self._is_refused = is_refused or connection_is_refused
        self._clock = clock
        self._peers: dict[str, _Peer] = {}

    def see(self, members: Iterable[ListedMember]) -> None:
        """Note the members of the group. An instance that has joined again also has to answer again."""
        former, self._peers = self._peers, {}
        listed: dict[str, dict[str, str]] = {}
        urls: dict[str, str | None] = {}
        for member in members:
            parts = parse_member(member)
            if parts is not None:
                listed.setdefault(parts.instance, {})[member.member_id] = parts.id
                urls.setdefault(parts.instance, url_of_member(member))
        shared = Counter(urls.values())
        for instance, ids in listed.items():
            url = urls[instance]
            if instance == self._instance or url is None or shared[url] > 1:
                continue
            peer = former.get(instance)
            if peer is None or peer.members != ids:
                peer = _Peer(ids, parse_address(url.removeprefix("http://")))
            self._peers[instance] = peer

    def find_dead(self) -> dict[str, Mapping[str, str]]:
        """Try to connect to all instances; return the members of those that have died since the last call."""
        dead: dict[str, Mapping[str, str]] = {}
        for instance, peer in self._peers.items():
            if self._clock() < peer.silent_until:
                continue
            refused = self._is_refused(peer.address)
            now = self._clock()
            if refused is None:
                peer.refused_at, peer.silent_until = None, now + _SILENT_S
            elif not refused:
                if not peer.answered:
                    logger.info(
                        "instance %s answers at %s; if it dies, others take over at once", instance, peer.address
                    )
                peer.answered, peer.refused_at = True, None
            elif peer.answered:
                peer.refused_at = now if peer.refused_at is None else peer.refused_at
                if now - peer.refused_at >= _REFUSED_S:
                    # Once: if its members come back all the same, the server has died and not the instance.
                    peer.answered = False
                    dead[instance] = peer.members
        return dead


def find_remaining(dead: Mapping[str, str], members: Iterable[ListedMember]) -> list[str]:
    """Return the static ids of members that are in the group as they were; none if their instance was started again.

    Then it has the same static ids, and other ones of the coordinator.

    Args:
        dead: the static ids of the members of an instance, by their ids of the coordinator.
        members: the members of the group now.
    """
    remaining: list[str] = []
    for member in members:
        if member.member_id in dead:
            remaining.append(dead[member.member_id])
        elif (parts := parse_member(member)) is not None and parts.id in dead.values():
            return []
    return sorted(remaining)


def connection_is_refused(address: HostPort) -> bool | None:
    """Return whether an address refuses a connection; None if it does not answer.

    Args:
        address: the address.
    """
    try:
        socket.create_connection(address, timeout=_CONNECT_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return None
    return False
