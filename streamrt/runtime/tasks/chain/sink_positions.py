"""The positions that a transactional sink stores for the tasks of this process."""

import logging
from collections.abc import Collection, Mapping

from streamrt.connectors import PositionChange, SinkBatch, SinkCommit, SinkPosition, TransactionalSink
from streamrt.connectors.sinks.merged_batches import join_batches
from streamrt.records import TopicPartition
from streamrt.topology import Node, Topology

__all__ = ["SinkPositions", "causes_of_time"]

logger = logging.getLogger("streamrt")


def causes_of_time(topology: Topology) -> dict[int, Node]:
    """Return the operators by which time, and not only a record, causes values of a transactional sink.

    Such values have no offset, and the next attempt may find a record's value due at another moment: a position does not
    tell whether it was written.

    Args:
        topology: the operators.

    Returns:
        One such operator by the `id` of the sink, for the sinks that have one.
    """
    found = {}
    for node in topology.nodes:
        sink = getattr(node.operator, "sink", None)
        if isinstance(sink, TransactionalSink):
            cause = _find_cause(topology, node)
            if cause is not None:
                found[id(sink)] = cause
    return found


def _find_cause(topology: Topology, node: Node) -> Node | None:
    waiting = list(node.parents)
    while waiting:
        above = topology.nodes[waiting.pop()]
        if above.operator.timed():
            return above
        waiting += above.parents
    return None


class SinkPositions:
    """Reads the positions of one sink when a task begins, and moves them with each commit that has values.

    Args:
        sink: the sink, started.
        group: the consumer group.
        topic_ids: Kafka's ids of input topics, as far as they are known.
        repeatable: whether each value of a record comes with it again. Otherwise no value is dropped.

    Attributes:
        sink: the sink.
        below: for each input partition whose records are delivered again, the offset below which the sink has their values.
    """

    def __init__(
        self, sink: TransactionalSink, group: str, topic_ids: Mapping[str, str | None], *, repeatable: bool = True
    ) -> None:
        self.below: dict[tuple[str, int], int] = {}
        self.sink = sink
        self._group = group
        self._topic_ids = topic_ids
        self._repeatable = repeatable
        self._positions: dict[TopicPartition, SinkPosition | None] = {}
        self._logged: dict[TopicPartition, int] = {}

    def known(self, inputs: Collection[TopicPartition]) -> bool:
        """Return whether the positions of a task's inputs were read since the task began."""
        return all(partition in self._positions for partition in inputs)

    def read(self, start: Mapping[TopicPartition, int]) -> None:
        """Read the positions of a task's inputs. The task must have fenced earlier owners, as far as its guarantee does.

        Args:
            start: offset of the next record of each input.

        Raises:
            Exception: the error of the sink.
        """
        stored = self.sink.positions(self._group, tuple(start))
        for partition, offset in start.items():
            position = self._positions[partition] = stored.get(partition)
            self.below.pop(partition, None)
            if not self._repeatable:
                continue
            if position is not None and position.offset > offset and self._is_current(partition, position):
                self.below[partition] = position.offset
                self._log_position(partition, position.offset, offset)

    def forget(self, inputs: Collection[TopicPartition]) -> None:
        """Forget the positions of a task that ends or begins again."""
        for partition in inputs:
            self._positions.pop(partition, None)
            self.below.pop(partition, None)

    def write(self, batches: list[SinkBatch], end: Mapping[TopicPartition, int]) -> None:
        """Write the values of one task, and move its positions. Nothing is written if there are no values.

        Args:
            batches: the values.
            end: offset of the next record of each input.

        Raises:
            Exception: the error of the sink; the positions must be read again.
        """
        if batches:
            changes: dict[tuple[str, int], PositionChange] = {
                partition: self._make_change(partition, offset) for partition, offset in end.items()
            }
            self.sink.write_transaction(join_batches(batches), SinkCommit(self._group, changes))
            self._positions.update({partition: changes[partition].after for partition in end})
        for partition, offset in end.items():
            if offset >= self.below.get(partition, 0):
                self.below.pop(partition, None)

    def _make_change(self, partition: TopicPartition, offset: int) -> PositionChange:
        before = self._positions[partition]
        topic_id = self._topic_ids.get(partition.topic)
        if before is None:
            return PositionChange(None, SinkPosition(offset, 1, topic_id))
        reached = max(offset, before.offset) if self._is_current(partition, before) else offset
        return PositionChange(before, SinkPosition(reached, before.version + 1, topic_id))

    def _is_current(self, partition: TopicPartition, position: SinkPosition) -> bool:
        """Return whether a position is of the topic as it is now, and not of one of the same name before it."""
        topic_id = self._topic_ids.get(partition.topic)
        return topic_id is None or position.topic_id is None or topic_id == position.topic_id

    def _log_position(self, partition: TopicPartition, position: int, start: int) -> None:
        if self._logged.get(partition) != position:
            self._logged[partition] = position
            logger.warning(
                "the sink %s has the values of %s up to offset %d, and the group continues at %d: the values in between "
                "are not written again",
                self.sink.name,
                partition,
                position,
                start,
            )
