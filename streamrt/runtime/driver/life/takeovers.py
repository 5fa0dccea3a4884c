"""Which partitions a member of the group takes over when an instance goes.

The assignor `range` gives each topic to the members in the order of their ids, so the next assignment is known before
it is made. An instance that keeps copies of what it would take over has them when it is assigned.
"""

from collections.abc import Collection, Iterable, Mapping

from streamrt.records import TopicPartition

__all__ = ["predict_takeovers", "share_out"]


def share_out(members: Collection[str], topics: Mapping[str, int]) -> dict[str, set[TopicPartition]]:
    """Return what the assignor `range` gives to each member.

    Args:
        members: the ids of the members.
        topics: number of partitions by topic. All members read all of them.

    Example:
        >>> share_out(["b", "a"], {"orders": 3})["b"]
        {TopicPartition(topic='orders', partition=2)}
    """
    shares: dict[str, set[TopicPartition]] = {member: set() for member in members}
    for topic, count in topics.items():
        least, more = divmod(count, max(1, len(shares)))
        at = 0
        for number, member in enumerate(sorted(shares)):
            end = at + least + (number < more)
            shares[member].update(TopicPartition(topic, partition) for partition in range(at, end))
            at = end
    return shares


def predict_takeovers(
    members: Mapping[str, str], topics: Mapping[str, int], instance: str
) -> dict[str, frozenset[TopicPartition]]:
    """Return what each member of an instance would take over if any one other instance went.

    Args:
        members: the instance of each member, by the member's id.
        topics: number of partitions by topic.
        instance: the instance. What its members have now is not taken over.

    Example:
        >>> members = {"000-a": "a", "000-b": "b"}
        >>> predict_takeovers(members, {"orders": 2}, "a")
        {'000-a': frozenset({TopicPartition(topic='orders', partition=1)})}
    """
    own = [member for member, other in members.items() if other == instance]
    held = _united(own, share_out(members, topics))
    found: dict[str, set[TopicPartition]] = {member: set() for member in own}
    for gone in {*members.values()} - {instance}:
        left = share_out([member for member, other in members.items() if other != gone], topics)
        for member in own:
            found[member] |= left[member] - held
    return {member: frozenset(partitions) for member, partitions in found.items()}


def _united(members: Iterable[str], shares: Mapping[str, set[TopicPartition]]) -> set[TopicPartition]:
    return {partition for member in members for partition in shares[member]}
