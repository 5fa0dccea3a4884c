"""Feeds records to the tasks of the test driver, in the same way as the application's processing mode."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from streamrt.config import ProcessingMode
from streamrt.errors import SinkBackpressureError
from streamrt.records import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.link_messages import Stop, Time
from streamrt.runtime.report import Report
from streamrt.runtime.resident.loop import ResidentLoop, ResidentSettings
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.testing.driver.resident import MemoryClock, MemoryFeed, MemoryLink, MemoryMember
from streamrt.testing.memory import MemoryClients
from streamrt.topology import TaskId

__all__ = ["Feeding", "MicroBatches", "ResidentFeeding", "Take", "feeding_of"]

Take = Callable[[Report], None]
"""Handler of a report; it raises the errors that would stop an application."""

_LONG_S = 10_000.0
_MOST_STEPS = 10_000


class Feeding(Protocol):
    """Lets tasks process records and the passing of time. All is committed when a method returns."""

    def get_ready(self, make_context: Callable[[], BatchContext]) -> None:
        """Open the tasks that stay open between calls, also after an error; they report their event times.

        Args:
            make_context: returns positions of the group and current time.
        """

    def process(self, chunk: Chunk, context: BatchContext) -> None:
        """Process records of one partition.

        Args:
            chunk: the records.
            context: positions of the group and current time.

        Raises:
            SinkBackpressureError: if a sink pauses the partition.
        """

    def tick(self, due: Iterable[TaskId], context: BatchContext) -> None:
        """Let time pass for tasks, without records.

        Args:
            due: the tasks.
            context: current time.
        """

    def close(self) -> None:
        """Close the stores."""


def feeding_of(
    mode: ProcessingMode, tasks: TaskExecutor, clients: MemoryClients, partitions: Iterable[TopicPartition], take: Take
) -> Feeding:
    """Return the feeding of a processing mode.

    Args:
        mode: the processing mode.
        tasks: the tasks.
        clients: the clients of the tasks.
        partitions: the input partitions.
        take: handles the reports.
    """
    return ResidentFeeding(tasks, clients, partitions, take) if mode == "resident" else MicroBatches(tasks, take)


class MicroBatches:
    """Makes one micro-batch of each call.

    Args:
        tasks: the tasks.
        take: handles the reports.
    """

    def __init__(self, tasks: TaskExecutor, take: Take) -> None:
        self._tasks = tasks
        self._handle = take

    def get_ready(self, make_context: Callable[[], BatchContext]) -> None:
        """Do nothing: tasks open at the start of a micro-batch."""

    def process(self, chunk: Chunk, context: BatchContext) -> None:
        """Process records of one partition."""
        partition, end = TopicPartition(chunk.topic, chunk.partition), chunk.offsets[-1] + 1
        while True:
            report = self._tasks.run([chunk], context)
            _refuse_stalled(report)
            self._finish_batch(report, context)
            done = report.ranges.get(partition)
            if not report.stalled and (done is None or done.end >= end):
                break
            # The end of a time slice may divide several records.
            context = replace(context, positions=_advance_positions(context.positions, report))

    def tick(self, due: Iterable[TaskId], context: BatchContext) -> None:
        """Let time pass for tasks, without records."""
        self._finish_batch(self._tasks.tick(due, context), context)

    def _finish_batch(self, report: Report, context: BatchContext) -> None:
        """Handle a report, and let tasks finish what they had to leave unfinished."""
        self._handle(report)
        while left := [task for task, unfinished in report.unfinished.items() if unfinished]:
            context = replace(context, positions=_advance_positions(context.positions, report))
            report = self._tasks.tick(left, context)
            self._handle(report)

    def close(self) -> None:
        """Do nothing: no store is open between two micro-batches."""


def _advance_positions(positions: Mapping[TopicPartition, int], report: Report) -> Mapping[TopicPartition, int]:
    """Return positions after the work of a report; as before, partitions without a record are at 0."""
    return defaultdict(int, {**positions, **{each: part.end for each, part in report.ranges.items()}})


class ResidentFeeding:
    """Runs a resident loop, whose tasks stay open between calls.

    After an error the task ends, as in an application; the next call starts another one.

    Args:
        tasks: the tasks.
        clients: the clients of the tasks.
        partitions: the input partitions.
        take: handles the reports.
    """

    def __init__(
        self, tasks: TaskExecutor, clients: MemoryClients, partitions: Iterable[TopicPartition], take: Take
    ) -> None:
        self._tasks = tasks
        self._clients = clients
        self._places = set(partitions)
        self._handle = take
        self._processing = False
        self._context = BatchContext()
        self._feed = MemoryFeed()
        self._clock = MemoryClock()
        self._link = MemoryLink(self._task_positions, self._handle_report)
        self._running: ResidentLoop | None = None

    def get_ready(self, make_context: Callable[[], BatchContext]) -> None:
        """Open all tasks; they report their event times."""
        self._open_tasks(make_context())

    def _open_tasks(self, context: BatchContext) -> None:
        self._context = context
        with self._running_task() as task:
            # Long enough for all waits, such as that of a task whose sink asked for a pause.
            self._clock.seconds += _LONG_S
            _step_until(task, lambda: self._feed.reading)
            # The task reports at most once in a moment.
            self._clock.seconds += _LONG_S
            task.step()

    def process(self, chunk: Chunk, context: BatchContext) -> None:
        """Process records of one partition."""
        partition, end = TopicPartition(chunk.topic, chunk.partition), chunk.offsets[-1] + 1
        inputs = self._tasks.inputs(self._tasks.task_of(partition))
        if not self._places.issuperset(inputs):
            # Tests need not declare the partitions that they use: the task sees a new assignment.
            self.close()
            self._places.update(inputs)
        self._processing = True
        try:
            self._context = context
            # What open tasks know of event time came with their last commit.
            if self._running is None or not self._feed.reading:
                self._open_tasks(context)
            self._feed.hold(chunk)
            self._work_until_done(
                Time(context.watermarks, frozenset(), context.final, context.others), {partition: end}
            )
        finally:
            self._processing = False
            self._feed.forget()

    def tick(self, due: Iterable[TaskId], context: BatchContext) -> None:
        """Let time pass for tasks, without records."""
        self._open_tasks(context)
        self._work_until_done(Time(context.watermarks, frozenset(due), context.final, context.others), {})

    def close(self) -> None:
        """End the task."""
        self._end_task(Stop())

    def _work_until_done(self, time: Time, ends: Mapping[TopicPartition, int]) -> None:
        """Pass the time to the task, and let it work until all is committed and acknowledged."""
        committed = self._clients.offsets

        def done() -> bool:
            told = not self._link.answered and not task.busy
            return told and all(committed.get(partition, 0) >= end for partition, end in ends.items())

        with self._running_task() as task:
            self._link.say(time)
            _step_until(task, done)

    @contextlib.contextmanager
    def _running_task(self) -> Iterator[ResidentLoop]:
        """Yield the task, or a new one; an error ends it."""
        task = self._running = self._running or ResidentLoop(
            self._tasks,
            self._feed,
            lambda on_revoke, on_lost: MemoryMember(self._places, self._clients),
            self._link,
            ResidentSettings(slot=0, commit_interval=0.0),
            self._clock,
        )
        try:
            yield task
        except BaseException:
            self._link.forget()
            self._end_task(Stop(discard=True))
            raise

    def _end_task(self, stop: Stop) -> None:
        task, self._running = self._running, None
        if task is None:
            return
        self._link.say(stop)
        task.run()

    def _task_positions(self) -> dict[TopicPartition, int]:
        return {partition: self._context.positions.get(partition, 0) for partition in self._places}

    def _handle_report(self, report: Report) -> None:
        if self._processing:
            _refuse_stalled(report)
        self._handle(report)


def _step_until(task: ResidentLoop, done: Callable[[], bool]) -> None:
    for _ in range(_MOST_STEPS):
        if done():
            return
        task.step()
    raise RuntimeError("the resident task makes no progress")


def _refuse_stalled(report: Report) -> None:
    """Raise the pause that a sink asks for. Rejected records are delivered again without a pause."""
    for pause in report.stalled.values():
        if not pause.rejected:
            error = SinkBackpressureError(pause.seconds, pause.reason)
            error.sink = pause.sink
            raise error
