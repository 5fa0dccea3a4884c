"""When a task may go on after the group has shared its partitions out anew.

The group takes the partitions of all members before it gives them out again, and gives most of them to the member that had
them. So a resident task commits all that it has done, and then *parks* its tasks instead of closing them: their stores,
producers and positions stay as they are, while nothing is processed::

    working --> committed, parked --> next assignment: what has come back goes on, the rest is closed
                     |
                     +--> closed, and opened again if it comes back: the partitions are lost, not all is committed, another
                          generation lies in between, or the group has not decided in time

What is parked is right only as long as no other member works on the partition. While a member waits for its next assignment,
it owns nothing, so others may; but what they own is decided by a generation of the group. If the next assignment of this
member is of the generation that directly follows, there was none in which another member could own what comes back.
Exactly once, another process would also have taken the transactional id, and the next commit would fail.

At least once, an instance that had lost a partition may have written to its changelog late. A task that is opened again sets
that right. One that stays open would do so with its next commit, which may be far away; so it is closed, too.
"""

from dataclasses import dataclass

from streamrt.kafka import GroupAssignment, KafkaRequestError
from streamrt.runtime.commit import Session

__all__ = ["PARKED_S", "Parked", "keeps_its_changelogs"]

PARKED_S = 10.0
"""A group that takes longer has lost a member, or this one has lost the group: other tasks may need the stores."""


@dataclass(frozen=True)
class Parked:
    """What must be known of parked tasks.

    Attributes:
        generation: of the assignment in which they worked, as the member counts.
        since: when they were parked, in seconds of any clock.

    Example:
        >>> parked = Parked(generation=3, since=100.0)
        >>> parked.goes_on(GroupAssignment(4, frozenset(), unbroken=True))
        True
        >>> parked.goes_on(GroupAssignment(4, frozenset())), parked.goes_on(GroupAssignment(5, frozenset(), unbroken=True))
        (False, False)
    """

    generation: int
    since: float

    def goes_on(self, assignment: GroupAssignment) -> bool:
        """Tell whether tasks go on whose partitions are in an assignment."""
        return assignment.follows(self.generation)

    def over(self, now: float) -> bool:
        """Tell whether they are closed because the group has not decided in time."""
        return now - self.since >= PARKED_S


def keeps_its_changelogs(session: Session) -> bool:
    """Tell whether a parked task may go on: nobody else has written to its changelogs, as far as can be known."""
    try:
        return session.stores.is_alone()
    except KafkaRequestError:
        return False
