"""Parked tasks: which tasks may continue after a rebalance.

A rebalance revokes the partitions of all members, and then assigns most of them to the same members again. A resident
task therefore commits all its work and then *parks* its tasks instead of closing them: their stores, producers and
positions stay, while nothing is processed::

    working --> committed, parked --> next assignment: tasks that come back continue, the rest is closed
                     |
                     +--> closed, and opened again if it comes back: the partitions are lost, not all work is committed,
                          another generation lies in between, or the group has not decided in time

A parked task is valid only as long as no other member works on its partitions. While a member waits for its next
assignment, it owns nothing, so others may own its partitions; but ownership is decided by a generation of the group. If
the next assignment of this member belongs to the directly following generation, no other member can have owned the
partitions in between. With the protocol `consumer`, the member counts since when it holds each partition.
`GroupAssignment.kept` decides for both. With exactly-once, another process would also have taken the transactional id,
and the next commit would fail.

With at-least-once, an instance that had lost a partition may have written to its changelog late. A task that is opened
again repairs this. An open task would repair it only with its next commit, possibly much later; so it is also closed.
"""

from dataclasses import dataclass

from streamrt.kafka import KafkaRequestError
from streamrt.runtime.tasks.stream_task import StreamTask

__all__ = ["PARKED_S", "Parked", "keeps_its_changelogs"]

PARKED_S = 10.0
"""A group that takes longer has lost a member, or this member has lost the group: other tasks may need the stores."""


@dataclass(frozen=True)
class Parked:
    """The data about parked tasks.

    Attributes:
        generation: generation of their last assignment, as counted by the member.
        since: the time of parking, in seconds of any clock.

    Example:
        >>> parked = Parked(generation=3, since=100.0)
        >>> parked.is_expired(now=105.0), parked.is_expired(now=110.0)
        (False, True)
    """

    generation: int
    since: float

    def is_expired(self, now: float) -> bool:
        """Return whether the tasks must be closed because the group has not decided in time."""
        return now - self.since >= PARKED_S


def keeps_its_changelogs(task: StreamTask) -> bool:
    """Return whether a parked task may continue: no other writer has changed its changelogs. Errors count as False."""
    try:
        return task.stores.is_alone()
    except KafkaRequestError:
        return False
