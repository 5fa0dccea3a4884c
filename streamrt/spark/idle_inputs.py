"""Quiet partitions of a micro-batch query: those that are read to their ends, and for how long."""

import json
import time
from collections.abc import Mapping
from typing import Any

from streamrt.event_time.event_time import EventTime, StepClock
from streamrt.records import TopicPartition
from streamrt.topology import Topology


class QuietTimes:
    """Reports tasks at the ends of their inputs to `EventTime`.

    Args:
        event_time: receives the reports.
        topology: knows the inputs of tasks.
    """

    def __init__(self, event_time: EventTime, topology: Topology) -> None:
        self._event_time = event_time
        self._topology = topology
        self._clock = StepClock()
        self._ends: dict[TopicPartition, int] = {}

    def all_read(self) -> None:
        """Note that all available records have been read and processed."""
        self._event_time.at_end(None)
        self._event_time.elapse(self._clock.step(time.monotonic()))
        self._ends.clear()

    def planned(self, progress: Mapping[str, Any] | None) -> None:
        """Note the partitions that end with the last micro-batch, although others may have many more records.

        A partition with the same end as at the planning of the previous micro-batch has been quiet since that planning.

        Args:
            progress: Spark's progress report of the last finished micro-batch.
        """
        if progress is None:
            return
        read, latest = (source_offsets(progress, name) for name in ("endOffset", "latestOffset"))
        ended = {partition: at for partition, at in read.items() if at >= latest.get(partition, at + 1)}
        tasks = {self._topology.task(partition) for partition in read}
        at_end = {task for task in tasks if ended.keys() >= set(self._topology.inputs(task))}
        unmoved = {
            task for task in at_end if all(self._ends.get(each) == ended[each] for each in self._topology.inputs(task))
        }
        self._event_time.at_end(at_end)
        self._event_time.elapse(self._clock.gap(time.monotonic()), unmoved)
        self._ends = ended


def source_offsets(progress: Mapping[str, Any], name: str) -> dict[TopicPartition, int]:
    """Return one kind of offsets from a progress report of Spark.

    Args:
        progress: the report.
        name: such as "endOffset": the end of the last micro-batch, after all transaction markers in it.
    """
    found: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        offsets = source[name]
        parsed = json.loads(offsets) if isinstance(offsets, str) else offsets
        for topic, partitions in (parsed or {}).items():
            for partition, offset in partitions.items():
                found[TopicPartition(topic, int(partition))] = int(offset)
    return found
