"""The messages of a resident task to the driver: reports about committed work, and progress of uncommitted work."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamrt.errors import StateError
from streamrt.records import Positions, TopicPartition
from streamrt.runtime.link_messages import BatchDone, IdleChanged, Link, Opened, ProgressUpdate
from streamrt.runtime.report import Report, StoreTime
from streamrt.runtime.sent import Sent
from streamrt.runtime.tasks.stream_task import StreamTask, TaskProgress
from streamrt.runtime.tasks.task_executor import TaskExecutor, measure_process
from streamrt.runtime.tasks.work_cycle import WorkCycle
from streamrt.topology import TaskId

__all__ = ["Outbox"]

logger = logging.getLogger("streamrt")

_TELL_S = 0.1
_REPEAT_S = 1.0
"""Interval at which a task repeats its reports."""
_ACK_S = 30.0
_MEASURE_S = 60.0
"""How often a process without work reports its memory."""
_MOST_UNACKNOWLEDGED = 4


@dataclass(frozen=True)
class _Unacknowledged:
    """The offsets of a report, which can be committed after the driver has answered it.

    Attributes:
        number: number of the report.
        offsets: next offset of each input partition; empty if a transaction has committed them.
        sent: event times sent into exchanges up to these offsets, by input partition.
    """

    number: int
    offsets: Mapping[TopicPartition, int]
    sent: Mapping[TopicPartition, Mapping[str, Sent]]


class Outbox:
    """Sends reports, and tracks unanswered ones and the progress that the driver already knows.

    Args:
        link: the link to the driver.
        tasks: the tasks of this process.
        clock: returns seconds; only differences count.

    Attributes:
        watched: whether the driver needs the event times of the tasks, and tells them what time it is.
    """

    def __init__(self, link: Link, tasks: TaskExecutor, clock: Callable[[], float]) -> None:
        self._link = link
        self._tasks = tasks
        self._clock = clock
        topology = tasks.spec.topology
        self._timed = topology.timed_exchanges.keys()
        self.watched = bool(self._timed) or any(
            topology.watermarks(stream) or topology.wall_clock_stores(stream) for stream in topology.streams
        )
        self._number = 0
        self._unacknowledged: list[_Unacknowledged] = []
        self._records = 0
        # The tasks at their ends, as the driver knows them.
        self._ended: frozenset[TaskId] | None = None
        self._told_at = self._repeated_at = 0.0
        self._measured_at = self._clock()
        self._quiet = self._opened = False

    @property
    def waiting(self) -> bool:
        """Whether there are unanswered reports."""
        return bool(self._unacknowledged)

    @property
    def full(self) -> bool:
        """Whether so many reports are unanswered that work must pause."""
        return len(self._unacknowledged) >= _MOST_UNACKNOWLEDGED

    def report(
        self,
        report: Report,
        offsets: Mapping[TopicPartition, int],
        sent: Mapping[TopicPartition, Mapping[str, Sent]] | None = None,
    ) -> None:
        """Send the report of a finished cycle.

        Args:
            report: the report; its record count is reduced by the records that were reported before.
            offsets: offsets to commit after the driver's answer.
            sent: event times sent into exchanges up to these offsets, by input partition.
        """
        report.records -= self._records
        measure_process(report)
        self._records, self._measured_at = 0, self._clock()
        for (task_id, store), found in report.times.items():
            if (task := self._tasks.assigned.get(task_id)) is not None:
                task.reported.times[store] = found
        for (task_id, topic), time in report.sent.items():
            if (task := self._tasks.assigned.get(task_id)) is not None:
                task.reported.sent[topic] = time
        self._number += 1
        self._unacknowledged.append(_Unacknowledged(self._number, offsets, sent or {}))
        self._link.send(BatchDone(self._number, report))

    def acknowledged(self, number: int) -> tuple[Positions, dict[TopicPartition, Mapping[str, Sent]]]:
        """Note that the driver has answered all reports up to a number.

        Returns:
            The offsets to commit now, and the event times sent into exchanges up to these offsets.
        """
        acknowledged = [each for each in self._unacknowledged if each.number <= number]
        self._unacknowledged = [each for each in self._unacknowledged if each.number > number]
        offsets = Positions()
        for each in acknowledged:
            offsets.advance(each.offsets)
        return offsets, {partition: sent for each in acknowledged for partition, sent in each.sent.items()}

    def await_acks(self, hear: Callable[[float], None], in_vain: Callable[[], bool]) -> None:
        """Wait until the driver has answered all reports, with a time-out.

        Args:
            hear: waits this many seconds for messages of the driver, and handles them.
            in_vain: returns whether the answers are no longer needed.
        """
        deadline = self._clock() + _ACK_S
        while self.waiting and not in_vain():
            if self._clock() >= deadline:
                logger.warning(
                    "the driver did not confirm a report in time; records since the last commit will be reprocessed"
                )
                return
            hear(_TELL_S)

    def see(
        self,
        cycle: WorkCycle | None,
        ends: Callable[[], Mapping[TopicPartition, int]],
        is_quiet: Callable[[], bool],
        is_open: Callable[[], bool],
        *,
        at_once: bool = False,
    ) -> None:
        """Send the progress of uncommitted work if there is any, at limited frequency.

        Reports are repeated at intervals: the driver forgets them when partitions move, which may cross this message.

        Args:
            cycle: the current cycle.
            ends: returns the end offsets of the partitions that are read to their ends, with all records processed.
            is_quiet: returns whether all partitions are read to their ends, with all records processed.
            is_open: returns whether the stores of all assigned tasks are open.
            at_once: whether to send it now, regardless of the frequency.
        """
        now = self._clock()
        if not at_once and now - self._told_at < _TELL_S:
            return
        self._told_at = now
        if now - self._repeated_at >= _REPEAT_S:
            self._repeated_at = now
            self._forget_told()
        report = Report(shown=self._tasks.drain_shown())
        if cycle is not None:
            report.records = cycle.report.records - self._records
            self._records += report.records
        if now - self._measured_at >= _MEASURE_S:
            self._measured_at = now
            measure_process(report)
            self._tasks.note_sizes(report)
        seen = ProgressUpdate(report)
        if self.watched:
            tasks = [task for task in self._tasks.assigned.values() if task.is_open]
            settled = self._settled(tasks)
            report.times = self._new_times(settled)
            report.sent = self._new_sent(tasks)
            seen = self._make_progress_update(report, cycle, tasks, settled, ends())
        news = report.shown or report.records or report.times or report.sent or report.memory or report.sizes
        if news or seen.ended is not None or seen.positions:
            self._link.send(seen)
        quiet = is_quiet()
        if quiet is not self._quiet:
            self._quiet = quiet
            self._link.send(IdleChanged(quiet))
        if not self._opened and is_open():
            self._opened = True
            self._link.send(Opened())

    def forget(self) -> None:
        """Forget everything about released partitions. The next `AssignmentRequest` resets the driver's flags."""
        self._unacknowledged.clear()
        self._records = 0
        self._forget_told()

    def _forget_told(self) -> None:
        for task in self._tasks.assigned.values():
            task.reported = TaskProgress()
        self._ended = None
        self._quiet = self._opened = False

    def _settled(self, tasks: Sequence[StreamTask]) -> Sequence[StreamTask]:
        """Return the tasks of which it may be told how far they are.

        What they have sent into exchanges must be there before, because the driver concludes that nothing earlier will come.
        With exactly-once that is known once they have committed.
        """
        if not self._timed:
            return tasks
        transactional, sends = self._tasks.spec.transactional, self._tasks.spec.topology.sends
        delivered = not transactional and self._tasks.clients.delivered
        return [
            task for task in tasks if delivered or not sends(task.id.stream) or (transactional and not task.is_working)
        ]

    def _new_sent(self, tasks: Iterable[StreamTask]) -> dict[tuple[TaskId, str], int]:
        """Return the unreported event times that are durable in exchanges; none with exactly-once before the commit."""
        if not self._timed or self._tasks.spec.transactional or not self._tasks.clients.delivered:
            return {}
        new: dict[tuple[TaskId, str], int] = {}
        for task in tasks:
            # Unfinished work may still send earlier event times.
            for topic, time in () if task.unfinished else task.sent.items():
                if task.reported.sent.get(topic) != time:
                    new[task.id, topic] = task.reported.sent[topic] = time
        return new

    def _make_progress_update(
        self,
        report: Report,
        cycle: WorkCycle | None,
        tasks: Iterable[StreamTask],
        settled: Iterable[StreamTask],
        ends: Mapping[TopicPartition, int],
    ) -> ProgressUpdate:
        """Return a message with the changes of the tasks at their ends, and of the positions behind exchanges."""
        ended = frozenset(task.id for task in tasks if ends.keys() >= set(task.inputs))
        new: dict[TopicPartition, int] = {}
        for task in settled:
            behind = [partition for partition in task.inputs if partition.topic in self._timed]
            reached = {each: task.start[each] if cycle is None else cycle.position(each) for each in behind}
            new |= task.reported.positions.advance({each: ends.get(each, at) for each, at in reached.items()})
        news = None if ended == self._ended else ended
        self._ended = ended
        return ProgressUpdate(report, news, new)

    def _new_times(self, tasks: Iterable[StreamTask]) -> dict[tuple[TaskId, str], StoreTime]:
        """Return the unreported event times of the open stores."""
        new: dict[tuple[TaskId, str], StoreTime] = {}
        for task in tasks:
            # A store error is handled when the store is used next.
            with contextlib.suppress(StateError):
                for store, found in task.stores.times().items():
                    if task.reported.times.get(store) != found:
                        new[task.id, store] = task.reported.times[store] = found
        return new
