"""Facts about the task at work, for operators."""

from collections.abc import Callable
from dataclasses import dataclass

from streamrt.topology.metrics import Metrics
from streamrt.topology.task_id import TaskId

__all__ = ["TaskAccess"]


@dataclass(frozen=True)
class TaskAccess:
    """The facts that an operator with a store can learn of its tasks, and the metrics it may keep.

    Attributes:
        task: returns the task at work.
        partitions: returns the number of partitions of the topic of its store.
        metrics: the metrics of the operator in this process.
    """

    task: Callable[[], TaskId]
    partitions: Callable[[], int]
    metrics: Metrics

    @classmethod
    def of_test(cls, operator: str) -> "TaskAccess":
        """Return the access to the only task of a test without tasks; what metrics measure is dropped."""
        return cls(lambda: TaskId("test", 0), lambda: 1, Metrics(operator, lambda: 0))
