"""Reads of state between the driver process and the processes that run tasks, as bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from streamrt.records import TopicPartition
from streamrt.state.reading import StoredRows, StoreRead
from streamrt.topology import TaskId

__all__ = ["TaskRead", "TaskRows"]


@dataclass(frozen=True)
class TaskRead:
    """A read of one store of a task.

    Attributes:
        task: the task.
        store: name of the store in the task.
        read: the range of keys.
    """

    task: TaskId
    store: str
    read: StoreRead


@dataclass(frozen=True)
class TaskRows:
    """The answer to a `TaskRead`, or the reason why there is none.

    Attributes:
        found: the rows; None without an answer.
        position: the input offsets that the state contains; None if the store was never written.
        member: id of the member of the group that owned the partition; None if there is no group, or it is unknown.
        trouble: why there is no answer; the same read may succeed later.
        lasting: whether the same read will fail again.
    """

    found: StoredRows | None
    position: Mapping[TopicPartition, int] | None = None
    member: bytes | None = None
    trouble: str = ""
    lasting: bool = False

    @classmethod
    def refused(cls, trouble: str, *, lasting: bool = False) -> "TaskRows":
        """Return the answer for a read that is not possible."""
        return cls(None, trouble=trouble, lasting=lasting)

    def of_member(self, member: bytes | None, start: Mapping[TopicPartition, int]) -> "TaskRows":
        """Return the answer with the member that owned the partition.

        Args:
            member: id of the member.
            start: the committed offsets of the inputs, for a store that was never written.
        """
        position = dict(start) if self.position is None else self.position
        return replace(self, position=position, member=member)
