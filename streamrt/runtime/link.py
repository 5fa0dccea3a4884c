"""What a resident task and the driver tell each other.

A task begins with `Joined` and gets `Welcome`. It asks where to begin in partitions that it was assigned (`Wanted`, answered
by `Begin`), and tells of its work (`Worked`, answered by `Taken`; `Seen`, `Committed` and `Quiet` want no answer). The driver
tells what time it is (`Time`) and when to end (`Stop`, answered by `Ended`). `Failed` ends the application.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streamrt.models import TopicPartition
from streamrt.runtime.report import Report

__all__ = [
    "Begin",
    "Committed",
    "Ended",
    "Failed",
    "FromTask",
    "Joined",
    "Link",
    "LinkClosed",
    "Quiet",
    "Seen",
    "Stop",
    "Taken",
    "Time",
    "ToTask",
    "Wanted",
    "Welcome",
    "Worked",
]


class LinkClosed(Exception):  # noqa: N818 - control flow inside the runtime
    """The other side is gone."""


# -- From a task ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """A task has begun.

    Attributes:
        slot: its number, from 0 on.
        attempt: how many tasks of this number died before, in this Spark job.
    """

    slot: int
    attempt: int = 0


@dataclass(frozen=True)
class Wanted:
    """A task wants to know where to begin.

    Attributes:
        generation: number of the assignment, as the task counts them.
        assigned: the input partitions of the task; none if the group has more members than partitions. The answer comes all
            the same.
        kept: those of them that the task goes on with, since no other member can have had them in between. The answer says
            nothing about them.
    """

    generation: int
    assigned: frozenset[TopicPartition]
    kept: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True)
class Worked:
    """Work that is committed, or, at least once, whose offsets can be committed as soon as the report is taken.

    Attributes:
        number: counts the reports of the task that want an answer.
        report: the work.
    """

    number: int
    report: Report


@dataclass(frozen=True)
class Seen:
    """What is under way.

    Attributes:
        report: lines to show, records read since the last message, restores, where event time is, and the tasks that wait for
            a sink, or until a trouble has passed.
        ended: the tasks that are at the ends of their inputs, with all that was read processed; None if that is as before.
        positions: up to where partitions of repartition topics that watermarks pass are processed.
    """

    report: Report
    ended: frozenset[TopicPartition] | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Committed:
    """Offsets that the group has now."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Quiet:
    """Whether all partitions of the task are read to their ends, and all of it is processed. Told when it changes."""

    quiet: bool


@dataclass(frozen=True)
class Failed:
    """The task cannot go on, and no other attempt could."""

    error: Exception


@dataclass(frozen=True)
class Ended:
    """The task has given everything back and ends."""


FromTask = Joined | Wanted | Worked | Seen | Committed | Quiet | Failed | Ended

# -- To a task -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Welcome:
    """The first answer.

    Attributes:
        outputs: number of outputs after which the task stops processing; None for no limit.
    """

    outputs: int | None = None


@dataclass(frozen=True)
class Begin:
    """Where to begin.

    Attributes:
        generation: that of the question.
        positions: offset of the first record to process, for each partition to begin with.
        fresh: what the task commits before it begins: positions that the group does not know yet, and claims.
        stateful: partitions whose committed offsets tell that they have state; those of several topics that have some in
            common are named as in `Topology.scopes`.
        metadata: the texts that go with what is committed before.
        claims: at least once, the numbers of the claims of partitions with state.
        sent: the highest event time that tasks had sent into exchanges, by task and repartition topic.
    """

    generation: int
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    fresh: Mapping[TopicPartition, int] = field(default_factory=dict)
    stateful: frozenset[TopicPartition] = frozenset()
    metadata: Mapping[TopicPartition, str | None] = field(default_factory=dict)
    claims: Mapping[TopicPartition, int] = field(default_factory=dict)
    sent: Mapping[TopicPartition, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Taken:
    """The driver has done its part of a report: its sinks have written theirs."""

    number: int


@dataclass(frozen=True)
class Time:
    """Time has passed.

    Attributes:
        watermarks: watermarks by task and store.
        due: tasks that have something to do at them.
    """

    watermarks: Mapping[TopicPartition, Mapping[str, int]]
    due: frozenset[TopicPartition]


@dataclass(frozen=True)
class Stop:
    """End at the next boundary.

    Attributes:
        discard: drop what was processed since the last commit.
    """

    discard: bool = False


ToTask = Welcome | Begin | Taken | Time | Stop


class Link(Protocol):
    """A task's end of the connection with the driver."""

    def send(self, message: FromTask) -> None:
        """Send a message.

        Raises:
            LinkClosed: if the driver is gone.
        """

    def receive(self, timeout_s: float = 0.0) -> Sequence[ToTask]:
        """Return the messages that have come, in order; wait for the first one.

        Args:
            timeout_s: seconds to wait if there is none.

        Raises:
            LinkClosed: if the driver is gone, and all that it sent was returned.
        """
