"""The driver's requests to Kafka for event time: ends of repartition topics, and commits of other instances."""

import logging
import time
from collections.abc import Collection, Mapping

from streamrt.event_time.barriers import Barrier
from streamrt.event_time.event_time import EventTime, Peer
from streamrt.kafka import KafkaRequestError, TopicAdmin
from streamrt.records import TopicPartition
from streamrt.runtime.metadata import CommittedMetadata, sent_before
from streamrt.topology import TaskId, Topology

logger = logging.getLogger("streamrt")

_ENDS_EVERY_S = 0.25
_PEERS_EVERY_S = 1.0
_TIMEOUT_S = 2.0


class TimeRequests:
    """Requests data for `EventTime`, at limited rates. While no broker answers, watermarks behind exchanges wait.

    Args:
        admin: sends requests to Kafka.
        group: the consumer group.
        topology: the operators, resolved.
    """

    def __init__(self, admin: TopicAdmin, group: str, topology: Topology) -> None:
        self._admin = admin
        self._group = group
        self._topology = topology
        self._ends_at = self._peers_at = 0.0

    def barrier(self, event_time: EventTime) -> Barrier | None:
        """Return the next request for the ends of repartition topics, if it is due."""
        return event_time.barrier() if time.monotonic() >= self._ends_at else None

    def ends(self, barrier: Barrier) -> Mapping[TopicPartition, int] | None:
        """Return the high watermarks of the partitions of a barrier; None if no broker returns them now."""
        self._ends_at = time.monotonic() + _ENDS_EVERY_S
        try:
            found = self._admin.offset_bounds(barrier.partitions, timeout=_TIMEOUT_S)
        except KafkaRequestError as error:
            logger.debug("the ends of repartition topics are unknown: %s", error)
            return None
        return {partition: high for partition, (_, high) in found.items()}

    def foreign(self, event_time: EventTime) -> set[TaskId]:
        """Return the tasks of other instances whose commits must be requested now."""
        return event_time.foreign_tasks() if event_time.passes and time.monotonic() >= self._peers_at else set()

    def peers(self, tasks: Collection[TaskId]) -> Mapping[TaskId, Peer]:
        """Return the known state of other instances' tasks; nothing if no broker returns it now."""
        self._peers_at = time.monotonic() + _PEERS_EVERY_S
        partitions = [partition for task in tasks for partition in self._topology.inputs(task)]
        try:
            committed = self._admin.committed_now(self._group, partitions, timeout=_TIMEOUT_S)
            ends = self._admin.offset_bounds(partitions, timeout=_TIMEOUT_S, isolation_level="read_committed")
        except KafkaRequestError as error:
            logger.debug("the commits of other instances are unknown: %s", error)
            return {}
        notes = {partition: CommittedMetadata.decode(committed[partition].metadata) for partition in partitions}
        sent = sent_before(notes, self._topology)
        found = {}
        for task in tasks:
            inputs = self._topology.inputs(task)
            offsets = {partition: at for partition in inputs if (at := committed[partition].offset) is not None}
            told = [
                (topic, note)
                for topic in self._topology.sends(task.stream)
                for note in (notes[partition].sent_into(topic) for partition in inputs)
                if note is not None and note.pending
            ]
            deadlines: dict[str, int] = {}
            for topic, each in told:
                if each.deadline is not None:
                    deadlines[topic] = min(each.deadline, deadlines.get(topic, each.deadline))
            # Without a commit there may be records with which its owner begins.
            at_end = all(offsets.get(partition, ends[partition][0]) >= ends[partition][1] for partition in inputs)
            pending = frozenset(topic for topic, _ in told)
            found[task] = Peer(at_end, sent.get(task, {}), pending, offsets, deadlines)
        return found
