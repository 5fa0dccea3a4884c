"""The messages between a resident task and the driver.

A task begins with `Joined`; the driver answers `Welcome`. The task requests the start offsets of assigned partitions
(`AssignmentRequest`, answered by `StartPositions`), and reports its work (`BatchDone`, answered by `Ack`;
`ProgressUpdate`, `Delivered`, `Committed`, `IdleChanged` and `Opened` have no answer). If the group has formed without
some of the tasks, the driver has all of them join it again (`JoinAgain`). Records of a merge behind exchanges
wait for a cut (`CutRequest`, answered by `CutDone`). The driver sends watermarks (`Time`), wishes of the
application's callers (`Settle`, answered by `Settled`), reads of state (`StateRead`, answered by `StateRows`), tasks of
other instances to follow (`Follow`), topics that may be other ones of the same names (`TopicsDoubted`), and the end
(`Stop`, answered by `Ended`). `Failed` ends the application.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from streamrt.records import TopicPartition
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.runtime.report import Report
from streamrt.topology import TaskId

__all__ = [
    "Ack",
    "AssignmentRequest",
    "BatchDone",
    "Committed",
    "CutDone",
    "CutRequest",
    "Delivered",
    "Ended",
    "Failed",
    "Follow",
    "FromTask",
    "IdleChanged",
    "JoinAgain",
    "Joined",
    "Link",
    "LinkClosed",
    "Opened",
    "ProgressUpdate",
    "Settle",
    "Settled",
    "StartPositions",
    "StateRead",
    "StateRows",
    "Stop",
    "Time",
    "ToTask",
    "TopicsDoubted",
    "Welcome",
]


class LinkClosed(Exception):  # noqa: N818 - control flow inside the runtime
    """The other side has closed the link."""


# -- From a task ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """A task has started.

    Attributes:
        slot: its number, starting at 0.
        attempt: number of tasks with this number that died before, in this Spark job.
    """

    slot: int
    attempt: int = 0


@dataclass(frozen=True)
class AssignmentRequest:
    """A task requests its start offsets.

    Attributes:
        generation: number of the assignment, as counted by the task.
        assigned: the input partitions of the task; empty if the group has more members than partitions. It is answered
            nevertheless.
        kept: the partitions with which the task continues, because no other member can have owned them in between. The
            answer does not include them.
    """

    generation: int
    assigned: frozenset[TopicPartition]
    kept: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True)
class BatchDone:
    """Work that is committed, or, with at-least-once, whose offsets can be committed after the driver's answer.

    Attributes:
        number: number of the report among those that need an answer.
        report: the work.
    """

    number: int
    report: Report


@dataclass(frozen=True)
class ProgressUpdate:
    """Progress of uncommitted work.

    Attributes:
        report: lines to show, records read since the last message, restores, event times, and the tasks that wait for a
            sink or a retry.
        ended: the tasks that are at the ends of their inputs, with all records processed; None if unchanged.
        positions: next offsets to process in repartition topics that watermarks pass.
        rewound: the tasks whose work was aborted since the last message; what was reported of it does not hold.
        rewinds: number of such aborts so far.
    """

    report: Report
    ended: frozenset[TaskId] | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    rewound: frozenset[TaskId] = frozenset()
    rewinds: int = 0


@dataclass(frozen=True)
class Delivered:
    """The outputs of all records of some input partitions below these offsets are durable.

    Sent at once, for the partitions of tasks in front of exchanges that a merge waits for.
    """

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class CutRequest:
    """Records of a merge behind exchanges wait for a cut that begins after this message.

    Attributes:
        number: number of the request.
        stream: the stream that merges them.
    """

    number: int
    stream: str


@dataclass(frozen=True)
class Committed:
    """Offsets that are now committed to the group."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class IdleChanged:
    """Whether the task has read all partitions to their ends and processed all records. Sent when it changes."""

    quiet: bool


@dataclass(frozen=True)
class Opened:
    """The stores of all tasks of the last `AssignmentRequest` are restored and open. Sent once for each request."""


@dataclass(frozen=True)
class Failed:
    """The task cannot continue, and a retry would also fail."""

    error: Exception


@dataclass(frozen=True)
class Settled:
    """Everything that was processed is committed, and the paused topics are not read.

    Attributes:
        number: number of the `Settle` that this answers.
    """

    number: int


@dataclass(frozen=True)
class StateRows:
    """The answer to a read of state.

    Attributes:
        number: number of the `StateRead` that this answers.
        rows: what was found.
    """

    number: int
    rows: TaskRows


@dataclass(frozen=True)
class Ended:
    """The task has released all partitions and ends."""


FromTask = (
    Joined
    | AssignmentRequest
    | BatchDone
    | ProgressUpdate
    | Delivered
    | CutRequest
    | Committed
    | IdleChanged
    | Opened
    | Failed
    | Settled
    | StateRows
    | Ended
)

# -- To a task -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Welcome:
    """The answer to `Joined`.

    Attributes:
        outputs: number of outputs after which the task stops processing; None for no limit.
    """

    outputs: int | None = None


@dataclass(frozen=True)
class JoinAgain:
    """The group has assigned partitions before all tasks of the job had joined: join again, unless the work has begun."""


@dataclass(frozen=True)
class StartPositions:
    """The start offsets of partitions.

    Attributes:
        generation: generation of the request.
        positions: offset of the first record to process, for each new partition.
        initial_offsets: offsets that the task commits before it starts: initial offsets, and those that carry claims.
        stateful: partitions whose commit metadata names a store; those of merged topics are named as in
            `Topology.scopes`.
        metadata: the metadata for `initial_offsets`.
        claims: with at-least-once, the numbers of the claims of partitions with state.
        sent: the highest event time that tasks had sent into exchanges, by task and repartition topic.
        kept: the partitions with which the task continues, as in the request.
    """

    generation: int
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    initial_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    stateful: frozenset[TopicPartition] = frozenset()
    metadata: Mapping[TopicPartition, str | None] = field(default_factory=dict)
    claims: Mapping[TopicPartition, int] = field(default_factory=dict)
    sent: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    kept: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True)
class Ack:
    """The driver has handled a report: its sinks have written their records."""

    number: int


@dataclass(frozen=True)
class CutDone:
    """A cut is complete: all records that were on their way to a merge are in its inputs.

    Attributes:
        number: number of the `CutRequest` that this answers.
        stream: the stream that merges them.
        ends: the offsets up to which the merge reads its inputs.
    """

    number: int
    stream: str
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Time:
    """New watermarks, and due tasks.

    Attributes:
        watermarks: watermarks in milliseconds, by task and store.
        due: tasks with due work.
        final: the ids of the operators for which the inputs of a bounded run have ended, by task.
        others: the watermarks of all other partitions, without the own one: see `Tick`.
        ahead: the tasks that must wait for other ones.
        rewinds: `ProgressUpdate.rewinds`, as the driver knew it; None if no rewind is missing.
    """

    watermarks: Mapping[TaskId, Mapping[str, int]]
    due: frozenset[TaskId]
    final: Mapping[TaskId, frozenset[int]] = field(default_factory=dict)
    others: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    ahead: frozenset[TaskId] = frozenset()
    rewinds: int | None = None

    def of(self, tasks: Set[TaskId]) -> "Time":
        """Return what concerns some tasks, without those that are due."""
        marks = {task: self.watermarks[task] for task in tasks if task in self.watermarks}
        final = {task: self.final[task] for task in tasks if task in self.final}
        others = {task: self.others[task] for task in tasks if task in self.others}
        return Time(marks, frozenset(), final, others, self.ahead & tasks)


@dataclass(frozen=True)
class Settle:
    """Commit everything that was processed, and read no record of the paused topics until a later `Settle`.

    Attributes:
        number: number of the run_request.
        paused: names of the paused topics.
    """

    number: int
    paused: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Follow:
    """Keep copies of the stores of these tasks, which other instances have, until the next assignment or message.

    Attributes:
        generation: the generation of the group in which they have them.
        tasks: the tasks.
    """

    generation: int
    tasks: frozenset[TaskId]


@dataclass(frozen=True)
class TopicsDoubted:
    """Commit nothing until the ids of these topics have been compared.

    Attributes:
        reasons: by topic, why it may be another one of the same name.
    """

    reasons: Mapping[str, str]


@dataclass(frozen=True)
class StateRead:
    """Read committed state of a task, between two slices.

    Attributes:
        number: number of the read.
        read: what to read.
    """

    number: int
    read: TaskRead


@dataclass(frozen=True)
class Stop:
    """End at the next boundary.

    Attributes:
        discard: whether to drop the work since the last commit.
    """

    discard: bool = False


ToTask = (
    Welcome | JoinAgain | StartPositions | Ack | CutDone | Time | Settle | StateRead | Follow | TopicsDoubted | Stop
)


class Link(Protocol):
    """A task's end of the connection with the driver."""

    def send(self, message: FromTask) -> None:
        """Send a message.

        Raises:
            LinkClosed: if the driver is gone.
        """

    def receive(self, timeout_s: float = 0.0) -> Sequence[ToTask]:
        """Return the received messages in order; wait for the first one.

        Args:
            timeout_s: seconds to wait for a message.

        Raises:
            LinkClosed: if the driver is gone and all its messages have been returned.
        """
