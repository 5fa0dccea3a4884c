"""Holds back input partitions whose tasks lack other inputs."""

import logging

from streamrt.records import TopicPartition
from streamrt.topology import TaskId, Topology

__all__ = ["WholeTasks"]

logger = logging.getLogger("streamrt")


class WholeTasks:
    """Holds back input partitions of tasks that lack other inputs.

    The group's assignor gives the partitions of one number of all topics to the same member, as long as all members subscribe
    to the same topics. While some do not, such as an older version in a rolling upgrade, tasks may lack inputs.

    Args:
        topology: the operators, resolved.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._told: frozenset[TopicPartition] = frozenset()

    def of(self, assigned: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions whose tasks have all of their inputs; log a warning about the others once."""
        if not self._topology.merged:
            return assigned
        tasks = {self._topology.task(partition) for partition in assigned}
        whole = frozenset(
            partition
            for task in tasks
            for partition in self._inputs_of_task(task)
            if assigned.issuperset(self._inputs_of_task(task))
        )
        lacking = assigned - whole
        if lacking and lacking != self._told:
            needed = {
                partition for each in lacking for partition in self._inputs_of_task(self._topology.task(each))
            } - assigned
            logger.warning(
                "not processing %s: %s must be assigned to the same member of the consumer group and is not, because another "
                "member reads other topics, such as an older version of the application, or because partitions were added to "
                "one of the topics and not to all; waiting until all are assigned to one member",
                ", ".join(map(str, sorted(lacking))),
                ", ".join(map(str, sorted(needed))),
            )
        self._told = lacking
        return whole

    def _inputs_of_task(self, task: TaskId) -> tuple[TopicPartition, ...]:
        return self._topology.inputs(task)
