"""Watches the consumer group: what the own slots would take over, and which instances have died."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from streamrt.errors import ConfigurationError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.records import TopicPartition
from streamrt.runs.peers import Peers, find_remaining, parse_member
from streamrt.runtime.driver.life.takeovers import predict_takeovers

__all__ = ["must_watch", "plan_standbys", "watch_instances"]

logger = logging.getLogger("streamrt")

_LIST_S = 5.0
_LOOK_S = 0.5


def must_watch(*, standbys: bool, stateful: bool, announced: str) -> bool:
    """Return whether an instance watches the others.

    With state and without copies of it, it does not: a dead instance that is started again within its session finds its
    state on its disk, and any other one would have to restore it.

    Args:
        standbys: whether instances keep copies of each other's state.
        stateful: whether the application has state.
        announced: what this instance says about its control server; empty if it has none.

    Example:
        >>> must_watch(standbys=False, stateful=False, announced="@:7070")
        True
        >>> must_watch(standbys=False, stateful=True, announced="@:7070")
        False
    """
    return standbys or (bool(announced) and not stateful)


def watch_instances(
    list_members: Callable[[], Sequence[ListedMember]],
    topics: Mapping[str, int],
    instance: str,
    follow: Callable[[Mapping[int, frozenset[TopicPartition]]], None] | None,
    remove: Callable[[Sequence[str]], None],
    wait: Callable[[float], bool],
) -> None:
    """Report to the slots what they would take over, and remove the members of dead instances, until the run ends.

    Args:
        list_members: requests the members of the group.
        topics: number of partitions of each topic that the application reads.
        instance: id of this instance.
        follow: called with the partitions that each slot would take over; None without standbys.
        remove: removes static members from the group.
        wait: waits for a number of seconds; returns whether to end.
    """
    peers = Peers(instance)
    list_at = time.monotonic() + _LIST_S
    while not wait(_LOOK_S):
        if time.monotonic() >= list_at:
            list_at = time.monotonic() + _LIST_S
            try:
                members = list_members()
            except (ConfigurationError, KafkaRequestError) as error:
                logger.debug(
                    "what is known of other instances stays: the members of the group could not be listed: %s", error
                )
                continue
            peers.see(members)
            if follow is not None:
                follow(plan_standbys(members, topics, instance))
        for dead, members_of_dead in peers.find_dead().items():
            try:
                # The list may be five seconds old.
                remaining = find_remaining(members_of_dead, list_members())
            except (ConfigurationError, KafkaRequestError) as error:
                logger.debug("instance %s is left to its session timeout: %s", dead, error)
                continue
            if remaining:
                logger.warning(
                    "instance %s refuses connections: removing its members from the group to take over", dead
                )
                remove(remaining)


def plan_standbys(
    members: Iterable[ListedMember], topics: Mapping[str, int], instance: str
) -> dict[int, frozenset[TopicPartition]]:
    """Return the partitions that each slot of an instance would take over.

    Args:
        members: the members of the group. One that is not a slot of an instance counts as an instance.
        topics: number of partitions by topic.
        instance: id of the instance.
    """
    parsed = [(member.member_id, parse_member(member)) for member in members]
    instances = {name if own is None else own.id: name if own is None else own.instance for name, own in parsed}
    slots = {own.id: own.slot for _, own in parsed if own is not None}
    return {slots[each]: found for each, found in predict_takeovers(instances, topics, instance).items()}
