"""One process at a time changes what a consumer group has: a reset, a restore, a repartition, or a forgotten store.

That a group has no members says nothing about the next moment. So such a process takes a lease first, in a group next to that
of the application, and then looks at what there is. An instance joins its group first, and then looks if somebody has the
lease. So of any two of them, one sees the other. Kafka also refuses the offsets of a process that is not a member while the
group has members.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from streamrt.common.backoff import Backoff
from streamrt.common.claims import claim
from streamrt.errors import InvalidOperationError
from streamrt.kafka import ConnectionConfig, KafkaRequestError, TopicAdmin
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.kafka.membership.lease import GroupLease
from streamrt.topics.internal import name_part

__all__ = ["GroupClaim", "claimed_group", "maintenance_group", "refuse_claimed"]

logger = logging.getLogger("streamrt")

SeenT = TypeVar("SeenT")

_ACQUIRE_S = 15.0
"""Seconds to wait for the lease. Brokers wait 3 s for further members of a new group, and 10 s for one that was killed."""
_LOOK_S = 0.1
_ANSWER_S = 3.0
"""Longest wait of a start for one answer: all brokers are asked, and one may be away."""
_RELEASE_S = 5.0
"""Seconds for which an instance waits for a process that finds that the group has members, and gives the lease back."""


def maintenance_group(group: str) -> str:
    """Return the name of the group in which the lease is.

    Args:
        group: the consumer group of the application.

    Example:
        >>> maintenance_group("shop")
        'shop--maintenance'
    """
    return f"{name_part(group)}--maintenance"


@dataclass(frozen=True)
class GroupClaim:
    """The right to change what a group has.

    Attributes:
        lease: the lease; None without a topic in which it could be, and then there is nothing to change.
        group: the consumer group.
    """

    lease: GroupLease | None
    group: str

    def confirm(self) -> None:
        """Raise if another process may have taken the lease meanwhile, because brokers did not hear of this one.

        Raises:
            KafkaRequestError: if so.
        """
        if self.lease is not None and not self.lease.confirm():
            raise KafkaRequestError(
                f"the brokers did not hear of this process for too long, so another one may change consumer group "
                f"{self.group!r} now: run it again",
                retriable=True,
            )

    def close(self) -> None:
        """Give the lease back."""
        if self.lease is not None:
            self.lease.close()


@contextlib.contextmanager
def claimed_group(
    admin: TopicAdmin,
    connection: ConnectionConfig,
    group: str,
    topics: Collection[str],
    read: Callable[[], SeenT],
    timeout: float,
) -> Iterator[tuple[SeenT, GroupClaim]]:
    """Keep other processes from changing what a group has, and instances from starting, inside this context.

    Args:
        admin: client for topics and groups.
        connection: connection to the brokers.
        group: the consumer group.
        topics: topics of the group, of which one must exist; no record is read.
        read: looks at what there is, before the claim and with it.
        timeout: seconds to wait for each response of the cluster.

    Raises:
        InvalidOperationError: if another process has the claim.
        KafkaRequestError: if the brokers refuse or do not answer.
    """
    # An instance that runs would be disturbed by a claim, and most refusals show before.
    read()
    existing = [name for name, each in admin.topic_ids(sorted(topics), timeout=timeout).items() if each is not None]
    made = claim(partial(_take_claim, admin, connection, group, existing[:1], timeout), lambda _: read())
    with contextlib.closing(made.holder):
        yield made.seen, made.holder


def _take_claim(
    admin: TopicAdmin, connection: ConnectionConfig, group: str, topics: Collection[str], timeout: float
) -> GroupClaim:
    name = maintenance_group(group)
    for topic in topics:
        lease = GroupLease(connection, name, topic, on_end=lambda lost: None, logger=logger)
        lease.start()
        try:
            # Two processes that know different topics of the group both get theirs.
            if lease.acquire(_ACQUIRE_S) and len(_list_lease_holders(admin, name, timeout)) == 1:
                return GroupClaim(lease, group)
        except BaseException:
            lease.close()
            raise
        lease.close()
        raise InvalidOperationError(
            f"another process resets, restores or repartitions consumer group {group!r}, or forgets a store of it: wait "
            "until it has ended; a killed one counts for 10 s"
        )
    return GroupClaim(None, group)


def _list_lease_holders(admin: TopicAdmin, name: str, timeout: float) -> list[ListedMember]:
    """Return the members that have a lease; during a rebalance, brokers tell of none."""
    backoff = Backoff(_LOOK_S, time.monotonic() + timeout)
    while True:
        found = [
            each
            for each in admin.group_members(name, timeout=timeout, is_classic=True)
            if any(partition.partition == 0 for partition in each.partitions)
        ]
        if found or not backoff.pause():
            return found


class GroupMembers(Protocol):
    """Requests to Kafka. Implemented by `TopicAdmin`."""

    def group_members(self, group: str, timeout: float = 30, *, is_classic: bool = False) -> Collection[object]:
        """Return the members of a group."""


def refuse_claimed(admin: GroupMembers, group: str) -> None:
    """Raise if a process changes what a group has. One that gives up, since the group has members, is waited for.

    Args:
        admin: asks for the members of a group. If it cannot, because brokers are away or rights are missing, nothing is
            refused: Kafka does not accept the offsets of such a process while the group has members.
        group: the consumer group.

    Raises:
        InvalidOperationError: if there is one.
    """
    backoff = Backoff(_LOOK_S, time.monotonic() + _RELEASE_S)
    while True:
        try:
            members = admin.group_members(maintenance_group(group), timeout=_ANSWER_S, is_classic=True)
        except KafkaRequestError as error:
            logger.debug("it is not known if a process changes consumer group %r: %s", group, error)
            return
        if not members:
            return
        if not backoff.pause():
            raise InvalidOperationError(
                f"a process resets, restores or repartitions consumer group {group!r}, or forgets a store of it: start the "
                "application when it has ended; a killed one counts for 10 s"
            )
