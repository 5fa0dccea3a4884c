"""Tasks of one process: run the right one for each chunk of records, make the outputs durable, report."""

import bisect
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.collector import RecordWriter
from streamrt.runtime.commit import make_durable
from streamrt.runtime.report import Report
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.task import Chunk, Limits, Task, TaskFailed

PRINTED = -1
"""Stands for a node's id where no operator showed the line."""

_DRAIN_S = 0.3


@dataclass(frozen=True)
class BatchContext:
    """What the driver tells each task of a micro-batch.

    Attributes:
        positions: offsets below which records have been processed already, by partition.
        seconds: how long after its first record the task stops between two records.
        outputs: how many outputs may still come; None for no limit.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    seconds: float = float("inf")
    outputs: int | None = None


class Tasks:
    """The tasks that one process runs, one after the other. They are kept between micro-batches.

    Args:
        spec: the application.
        writer: where records go that operators send to topics.
    """

    def __init__(self, spec: TaskSpec, writer: RecordWriter) -> None:
        self._spec = spec
        self._writer = writer
        self._tasks: dict[str, Task] = {}
        self._lines: list[tuple[int, Any]] = []

    def run(self, chunks: Iterable[Chunk], context: BatchContext) -> Report:
        """Process chunks of records and make their outputs durable.

        If a failure or a limit ends the processing early, the other chunks are taken and dropped for a moment, because
        whoever feeds them waits until they are taken; then they are left, which costs Spark a new worker process.

        Args:
            chunks: records, in order within each partition.
            context: where to begin and when to stop.
        """
        begun = time.monotonic()
        limits: Limits | None = None
        for task in self._tasks.values():
            task.collector.reset()
        self._lines.clear()
        report = Report()
        stopped, stopped_at = False, begun
        for chunk in chunks:
            place = TopicPartition(chunk.topic, chunk.partition)
            start = context.positions.get(place, 0)
            rest = chunk if chunk.offsets[0] >= start else chunk.from_offset(start)
            if not rest.offsets:
                continue
            if limits is None:
                # Whatever came before, waiting for data or passing over records, is not this task's work.
                limits = Limits(time.monotonic() + context.seconds, context.outputs)
            if not stopped:
                stopped = self._run_chunk(rest, place, limits, report)
                stopped_at = time.monotonic()
                continue
            report.complete = False
            if time.monotonic() - stopped_at > _DRAIN_S:
                break
        report.shown += self._lines
        for task in self._tasks.values():
            report.produced += task.collector.produced
            report.collected += task.collector.collected
            report.shown += task.collector.rows()
        if report.ranges:
            make_durable(report, self._writer, self._spec.callbacks)
        report.seconds = time.monotonic() - begun
        return report

    def show_line(self, line: str) -> None:
        """Add a line to what operators show, such as one that a user's function printed."""
        self._lines.append((PRINTED, line))

    def _run_chunk(self, chunk: Chunk, place: TopicPartition, limits: Limits, report: Report) -> bool:
        """Process one chunk, note the progress in `report`, and tell whether to stop after it."""
        task = self._task(chunk.topic)
        before = task.collector.outputs
        if limits.outputs is not None:
            limits = Limits(limits.deadline, before + limits.outputs - report.outputs)
        start = report.ranges[place].start if place in report.ranges else chunk.offsets[0]
        if task.processed is not None:
            task.processed = report.processed.setdefault(place, [])
        try:
            end, finished = task.run(chunk, limits)
        except TaskFailed as failed:
            report.failure = failed.failure
            end, finished = failed.failure.offset or chunk.offsets[0], False
        report.complete = report.complete and finished
        report.ranges[place] = OffsetRange(*place, start, end)
        report.records += bisect.bisect_left(chunk.offsets, end)
        report.outputs += task.collector.outputs - before
        enough = limits.outputs is not None and task.collector.outputs >= limits.outputs
        return not finished or enough or time.monotonic() >= limits.deadline

    def _task(self, topic: str) -> Task:
        task = self._tasks.get(topic)
        if task is None:
            source = self._spec.topology.sources[topic]
            task = self._tasks[topic] = Task(self._spec, source, self._writer, self._lines)
        return task
