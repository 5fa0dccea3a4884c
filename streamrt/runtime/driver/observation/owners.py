"""Which member of the consumer group owns a partition, and where its instance can be asked.

Instances tell each other their control addresses by the client ids of their members: `<anything>@host:port`. A server on
all interfaces announces no host, and is reached at the one from which its member has connected. A server on the loopback
interface adds `/` and the name of the machine, and counts only there.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from streamrt.common.addresses import HostPort, is_loopback, is_wildcard, parse_address
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.records import TopicPartition

__all__ = ["GroupOwners", "announcement", "url_of_member"]

_LEAST_PAUSE_S = 0.02
"""Between two requests: one answers all queries that wait for it."""

Members = Callable[[], Sequence[ListedMember] | None]


def announcement(bound: HostPort) -> str:
    """Return what a client id says about a control server.

    Args:
        bound: the address at which it listens.

    Example:
        >>> announcement(HostPort("shop-0.shop", 7070)), announcement(HostPort("0.0.0.0", 7070))
        ('@shop-0.shop:7070', '@:7070')
    """
    if is_wildcard(bound.host):
        return f"@:{bound.port}"
    return f"@{bound}/{socket.gethostname()}" if is_loopback(bound.host) else f"@{bound}"


def url_of_member(member: ListedMember) -> str | None:
    """Return the URL of the control server of a member's instance; None if this machine cannot reach one.

    Args:
        member: a member of the group.

    Example:
        >>> url_of_member(ListedMember("000-streamrt@:7070-5c", "000-streamrt@:7070", "10.0.0.7", ()))
        'http://10.0.0.7:7070'
    """
    _, found, text = member.client_id.rpartition("@")
    address, _, machine = text.partition("/")
    if not found or (machine and machine != socket.gethostname()):
        return None
    if address.startswith(":"):
        host = f"[{member.host}]" if ":" in member.host else member.host
        address = host + address
    try:
        bound = parse_address(address)
    except ValueError:
        return None
    # Without the name of the machine, a loopback address would be one of this machine, no matter which member announced it.
    if not bound.port or (is_loopback(bound.host) and not machine and member.host != bound.host):
        return None
    return f"http://{bound}"


class GroupOwners:
    """Asks the group's coordinator for the owners of partitions; safe to use from any thread.

    Args:
        members: requests the members of the group; None or no member with partitions while the group has no assignment.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self._changed = threading.Condition()
        # Requests are numbered by their start: an answer counts for those who waited before it began.
        self._begun = self._done = 0
        self._running = False
        self._begun_at = float("-inf")
        self._found: Sequence[ListedMember] = ()
        self._error: KafkaRequestError | None = None

    def confirm(self, member: bytes, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether a member owns partitions now, at a moment after this call began.

        Args:
            member: id of the member.
            partitions: the partitions.

        Raises:
            KafkaRequestError: if the group's coordinator does not answer.
        """
        wanted = set(partitions)
        return any(
            each.member_id.encode() == member and wanted.issubset(each.partitions) for each in self._request_members()
        )

    def url(self, partitions: Iterable[TopicPartition]) -> str | None:
        """Return the URL of the control server of the instance that owns partitions; None if it is unknown.

        Raises:
            KafkaRequestError: if the group's coordinator does not answer.
        """
        wanted = set(partitions)
        owners = [each for each in self._request_members() if wanted.issubset(each.partitions)]
        return url_of_member(owners[0]) if owners else None

    def _request_members(self) -> Sequence[ListedMember]:
        """Return the members at a moment after this call began."""
        with self._changed:
            # A request that is under way may have been answered by the broker already.
            wanted = self._begun + 1
            while self._done < wanted:
                if not self._running:
                    self._running = True
                    break
                self._changed.wait()
            else:
                return self._await_members()
        try:
            pause = self._begun_at + _LEAST_PAUSE_S - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            with self._changed:
                self._begun += 1
                self._begun_at = time.monotonic()
            error, found = None, None
            try:
                found = self._members()
            except KafkaRequestError as refused:
                error = refused
            with self._changed:
                self._found, self._error = found or (), error
                self._done = self._begun
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()
        with self._changed:
            return self._await_members()

    def _await_members(self) -> Sequence[ListedMember]:
        if self._error is not None:
            raise self._error
        return self._found
