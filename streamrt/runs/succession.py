"""Hands the static members of a process to its successor, which `streamrt dev` starts at once with the same ids."""

import threading
from collections.abc import Iterable

from streamrt.kafka.cluster.groups import ListedMember
from streamrt.runs.peers import parse_member

__all__ = ["expect_successor", "has_successor", "surplus_ids"]

_expected = threading.Event()
_UUID = "-????????-????-????-????-????????????"


def expect_successor() -> None:
    """Leave the static members of this process in their groups at its end.

    The successor has the same ids, and gets their partitions at once, without a rebalance. If it never comes, the partitions
    have no owner until the session times out.
    """
    _expected.set()


def has_successor() -> bool:
    """Return whether a process with the same ids follows this one."""
    return _expected.is_set()


def surplus_ids(members: Iterable[ListedMember], instance: str, slots: int) -> list[str]:
    """Return the static ids that a former run has left, and that slots do not take over: of micro-batch mode, or more slots.

    Args:
        members: the members of the group.
        instance: id of this instance.
        slots: number of its slots.

    Example:
        >>> uuid = "5f0c1a52-8d1f-4a9c-9a53-6a8a5d6f3c11"
        >>> names = ["shop-0", "000-shop-0", "001-shop-0", "001-shop-1"]
        >>> members = [ListedMember(f"{name}-{uuid}", "rdkafka", "10.0.0.7", ()) for name in names]
        >>> surplus_ids(members, "shop-0", slots=1)
        ['shop-0', '001-shop-0']
    """
    found = []
    for member in members:
        if member.member_id[: -len(_UUID)] == instance:
            found.append(instance)
        elif (own := parse_member(member)) is not None and own.instance == instance and own.slot >= slots:
            found.append(own.id)
    return found
