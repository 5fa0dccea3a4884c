"""How records of the test driver get to its tasks: as they would in the application's processing mode."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from streamrt.config import ProcessingMode
from streamrt.errors import SinkBackpressureError
from streamrt.models import TopicPartition
from streamrt.runtime import BatchContext, Chunk, Report, Tasks
from streamrt.runtime.link import Stop, Time
from streamrt.runtime.resident import ResidentSettings, ResidentTask
from streamrt.testing.memory import MemoryClients
from streamrt.testing.resident import MemoryClock, MemoryFeed, MemoryLink, MemoryMember

__all__ = ["Feeding", "MicroBatches", "ResidentFeeding", "Take", "feeding_of"]

Take = Callable[[Report], None]
"""What the driver does with a report; it raises what the report says that an application ends for."""

_LONG_S = 10_000.0
_MOST_STEPS = 10_000


class Feeding(Protocol):
    """Has tasks process records, and lets time pass for them. All is committed when a method returns."""

    def get_ready(self, context: BatchContext) -> None:
        """Have tasks begin, or begin again, that keep something open; their times are told then.

        Args:
            context: where the group is, and what time it is.
        """

    def process(self, chunk: Chunk, context: BatchContext) -> None:
        """Process records of one partition.

        Args:
            chunk: the records.
            context: where the group is, and what time it is.

        Raises:
            SinkBackpressureError: if a sink wants no records now.
        """

    def tick(self, places: Iterable[TopicPartition], context: BatchContext) -> None:
        """Let time pass for tasks, without records.

        Args:
            places: the tasks.
            context: what time it is.
        """

    def close(self) -> None:
        """Let the stores go."""


def feeding_of(
    mode: ProcessingMode, tasks: Tasks, clients: MemoryClients, places: Iterable[TopicPartition], take: Take
) -> Feeding:
    """Return what feeds tasks in a processing mode.

    Args:
        mode: the processing mode.
        tasks: the tasks.
        clients: their edges towards Kafka.
        places: the input partitions.
        take: takes the reports.
    """
    return ResidentFeeding(tasks, clients, places, take) if mode == "resident" else MicroBatches(tasks, take)


class MicroBatches:
    """Makes a micro-batch of its own of each call.

    Args:
        tasks: the tasks.
        take: takes the reports.
    """

    def __init__(self, tasks: Tasks, take: Take) -> None:
        self._tasks = tasks
        self._take = take

    def get_ready(self, context: BatchContext) -> None:
        """Do nothing: all that a micro-batch needs begins with it."""

    def process(self, chunk: Chunk, context: BatchContext) -> None:
        """Process records of one partition."""
        report = self._tasks.run([chunk], context)
        _refuse_stalled(report)
        self._finish(report, context)

    def tick(self, places: Iterable[TopicPartition], context: BatchContext) -> None:
        """Let time pass for tasks, without records."""
        self._finish(self._tasks.tick(places, context), context)

    def _finish(self, report: Report, context: BatchContext) -> None:
        """Take a report, and have tasks do what they had to leave over."""
        self._take(report)
        positions = dict(context.positions)
        while left := [task for task, unfinished in report.unfinished.items() if unfinished]:
            positions.update({place: done.end for place, done in report.ranges.items()})
            report = self._tasks.tick(left, replace(context, positions=positions))
            self._take(report)

    def close(self) -> None:
        """Do nothing: no store is open between two micro-batches."""


class ResidentFeeding:
    """Has a resident task run, whose sessions stay open from call to call.

    After an error the task ends, as it would with the application; the next call begins with another one.

    Args:
        tasks: the tasks.
        clients: their edges towards Kafka.
        places: the input partitions.
        take: takes the reports.
    """

    def __init__(self, tasks: Tasks, clients: MemoryClients, places: Iterable[TopicPartition], take: Take) -> None:
        self._tasks = tasks
        self._clients = clients
        self._places = set(places)
        self._take = take
        self._processing = False
        self._context = BatchContext()
        self._feed = MemoryFeed()
        self._clock = MemoryClock()
        self._link = MemoryLink(self._positions, self._hear)
        self._running: ResidentTask | None = None

    def get_ready(self, context: BatchContext) -> None:
        """Have all tasks open, and their times told."""
        self._context = context
        with self._task() as task:
            # Long enough for whatever waits for time to pass, such as a task whose sink wanted a pause.
            self._clock.seconds += _LONG_S
            _step(task, lambda: self._feed.reading)
            # Nothing is told twice in a moment.
            self._clock.seconds += _LONG_S
            task.step()

    def process(self, chunk: Chunk, context: BatchContext) -> None:
        """Process records of one partition."""
        place, end = TopicPartition(chunk.topic, chunk.partition), chunk.offsets[-1] + 1
        inputs = self._tasks.inputs(self._tasks.place(place))
        if not self._places.issuperset(inputs):
            # Tests need not declare partitions that they use: to the task it is a new assignment.
            self.close()
            self._places.update(inputs)
        self._processing = True
        try:
            self.get_ready(context)
            self._feed.hold(chunk)
            self._work(Time(context.watermarks, frozenset()), {place: end})
        finally:
            self._processing = False
            self._feed.forget()

    def tick(self, places: Iterable[TopicPartition], context: BatchContext) -> None:
        """Let time pass for tasks, without records."""
        self.get_ready(context)
        self._work(Time(context.watermarks, frozenset(places)), {})

    def close(self) -> None:
        """End the task."""
        self._end(Stop())

    def _work(self, time: Time, ends: Mapping[TopicPartition, int]) -> None:
        """Tell the task what time it is, and let it work until all is committed, and it has heard so."""
        committed = self._clients.offsets

        def done() -> bool:
            told = not self._link.answered and not task.busy
            return told and all(committed.get(place, 0) >= end for place, end in ends.items())

        with self._task() as task:
            self._link.say(time)
            _step(task, done)

    @contextlib.contextmanager
    def _task(self) -> Iterator[ResidentTask]:
        """Give the task, or a new one. It ends if anything goes wrong."""
        task = self._running = self._running or ResidentTask(
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
            self._end(Stop(discard=True))
            raise

    def _end(self, stop: Stop) -> None:
        task, self._running = self._running, None
        if task is None:
            return
        self._link.say(stop)
        task.run()

    def _positions(self) -> dict[TopicPartition, int]:
        return {place: self._context.positions.get(place, 0) for place in self._places}

    def _hear(self, report: Report) -> None:
        if self._processing:
            _refuse_stalled(report)
        self._take(report)


def _step(task: ResidentTask, done: Callable[[], bool]) -> None:
    for _ in range(_MOST_STEPS):
        if done():
            return
        task.step()
    raise RuntimeError("the resident task does not get ahead")


def _refuse_stalled(report: Report) -> None:
    for pause in report.stalled.values():
        raise SinkBackpressureError(pause)
