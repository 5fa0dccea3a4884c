"""The identity of a task."""

from typing import NamedTuple

__all__ = ["TaskId"]


class TaskId(NamedTuple):
    """A task: one stream over one partition number.

    A stream that reads one topic has the name of the topic, and its tasks print like the partitions that they read. A
    stream that reads merged topics has a name of all of them, which is not a topic.

    Attributes:
        stream: id of the stream, see `Topology.streams`.
        partition: number of the partition in each topic of the stream.

    Example:
        >>> print(TaskId("orders", 3))
        orders[3]
    """

    stream: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stream}[{self.partition}]"
