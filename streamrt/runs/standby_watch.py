"""Watches the consumer group for standbys: what the own slots would take over, and which instances have died."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from streamrt.errors import ConfigurationError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.records import TopicPartition
from streamrt.runs.peers import Peers, parse_member
from streamrt.runtime.driver.life.takeovers import predict_takeovers

__all__ = ["plan_standbys", "watch_standbys"]

logger = logging.getLogger("streamrt")

_LIST_S = 5.0
_LOOK_S = 0.5


def watch_standbys(
    list_members: Callable[[], Sequence[ListedMember]],
    topics: Mapping[str, int],
    instance: str,
    follow: Callable[[Mapping[int, frozenset[TopicPartition]]], None],
    remove: Callable[[Sequence[str]], None],
    wait: Callable[[float], bool],
) -> None:
    """Tell the slots what they would take over, and remove the members of dead instances, until the run ends.

    Args:
        list_members: requests the members of the group.
        topics: number of partitions of each topic that the application reads.
        instance: id of this instance.
        follow: called with the partitions that each slot would take over.
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
                logger.debug("standbys stay as they are: the members of the group could not be listed: %s", error)
                continue
            peers.see(members)
            follow(plan_standbys(members, topics, instance))
        for dead, ids in peers.find_dead().items():
            logger.warning("instance %s refuses connections: removing its members from the group to take over", dead)
            remove(sorted(ids))


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
