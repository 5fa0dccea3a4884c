"""The messages of a resident task to the driver: reports about committed work, and progress of uncommitted work."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from streamrt.errors import StateError
from streamrt.models import TopicPartition
from streamrt.runtime.commit import Session
from streamrt.runtime.link import BatchDone, IdleChanged, Link, ProgressUpdate
from streamrt.runtime.report import Report, StoreTime
from streamrt.runtime.sent import Sent
from streamrt.runtime.task_executor import TaskExecutor
from streamrt.runtime.work_cycle import WorkCycle
from streamrt.topology import TaskId

__all__ = ["Outbox"]

logger = logging.getLogger("streamrt")

_TELL_S = 0.1
_TAKEN_S = 30.0
_UNTAKEN = 4


@dataclass(frozen=True)
class _Untaken:
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
    """

    def __init__(self, link: Link, tasks: TaskExecutor, clock: Callable[[], float]) -> None:
        self._link = link
        self._tasks = tasks
        self._clock = clock
        topology = tasks.spec.topology
        self._timed = topology.timed_exchanges.keys()
        self._watched = bool(self._timed) or any(
            topology.watermarks(stream) or topology.wall_clock_stores(stream) for stream in topology.streams
        )
        self._number = 0
        self._untaken: list[_Untaken] = []
        self._records = 0
        # Event times and positions that the driver already knows.
        self._times: dict[tuple[TaskId, str], StoreTime] = {}
        self._sent: dict[tuple[TaskId, str], int] = {}
        self._ended: frozenset[TaskId] | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._told_at = 0.0
        self._quiet = False

    @property
    def waiting(self) -> bool:
        """Whether there are unanswered reports."""
        return bool(self._untaken)

    @property
    def full(self) -> bool:
        """Whether so many reports are unanswered that work must pause."""
        return len(self._untaken) >= _UNTAKEN

    def report(
        self,
        report: Report,
        offsets: Mapping[TopicPartition, int],
        sent: Mapping[TopicPartition, Mapping[str, Sent]] | None = None,
    ) -> None:
        """Send the report of a finished batch.

        Args:
            report: the report; its record count is reduced by the records that were reported before.
            offsets: offsets to commit after the driver's answer.
            sent: event times sent into exchanges up to these offsets, by input partition.
        """
        report.records -= self._records
        self._records = 0
        self._times.update(report.times)
        self._sent.update(report.sent)
        self._number += 1
        self._untaken.append(_Untaken(self._number, offsets, sent or {}))
        self._link.send(BatchDone(self._number, report))

    def taken(self, number: int) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Mapping[str, Sent]]]:
        """Note that the driver has answered all reports up to a number.

        Returns:
            The offsets to commit now, and the event times sent into exchanges up to these offsets.
        """
        taken = [each for each in self._untaken if each.number <= number]
        self._untaken = [each for each in self._untaken if each.number > number]
        offsets = {place: offset for each in taken for place, offset in each.offsets.items()}
        return offsets, {place: sent for each in taken for place, sent in each.sent.items()}

    def await_taken(self, hear: Callable[[float], None], in_vain: Callable[[], bool]) -> None:
        """Wait until the driver has answered all reports, with a time-out.

        Args:
            hear: waits this many seconds for messages of the driver, and handles them.
            in_vain: returns whether the answers are no longer needed.
        """
        deadline = self._clock() + _TAKEN_S
        while self.waiting and not in_vain():
            if self._clock() >= deadline:
                logger.warning(
                    "the driver did not confirm a report in time; records since the last commit will be reprocessed"
                )
                return
            hear(_TELL_S)

    def see(
        self,
        batch: WorkCycle | None,
        sessions: Mapping[TaskId, Session],
        ends: Callable[[], Mapping[TopicPartition, int]],
        is_quiet: Callable[[], bool],
        *,
        at_once: bool = False,
    ) -> None:
        """Send the progress of uncommitted work if there is any, at limited frequency.

        Args:
            batch: the current batch.
            sessions: the open sessions.
            ends: returns the end offsets of the partitions that are read to their ends, with all records processed.
            is_quiet: returns whether all partitions are read to their ends, with all records processed.
            at_once: whether to send it now, regardless of the frequency.
        """
        now = self._clock()
        if not at_once and now - self._told_at < _TELL_S:
            return
        self._told_at = now
        report = Report(shown=self._tasks.take_shown())
        if batch is not None:
            report.records = batch.report.records - self._records
            self._records += report.records
        seen = ProgressUpdate(report)
        if self._watched:
            report.times = self._new_times(sessions)
            report.sent = self._new_sent(sessions)
            seen = self._progress(report, batch, sessions, ends())
        if report.shown or report.records or report.times or report.sent or seen.ended is not None or seen.positions:
            self._link.send(seen)
        quiet = is_quiet()
        if quiet is not self._quiet:
            self._quiet = quiet
            self._link.send(IdleChanged(quiet))

    def forget(self) -> None:
        """Forget everything about released partitions. The next `Wanted` resets the driver's idle flag."""
        self._untaken.clear()
        self._times.clear()
        self._sent.clear()
        self._ended = None
        self._positions.clear()
        self._records = 0
        self._quiet = False

    def restart(self, tasks: Iterable[TaskId]) -> None:
        """Forget the event times reported for tasks that restart at their committed offsets."""
        again = set(tasks)
        self._times = {name: found for name, found in self._times.items() if name[0] not in again}

    def _new_sent(self, sessions: Mapping[TaskId, Session]) -> dict[tuple[TaskId, str], int]:
        """Return the unreported event times that are durable in exchanges; none with exactly-once before the commit."""
        if not self._timed or self._tasks.spec.transactional or not self._tasks.clients.delivered:
            return {}
        sent = {
            (task, topic): time
            for task, session in sessions.items()
            # Unfinished work may still send earlier event times.
            for topic, time in (() if session.unfinished else session.sent.items())
        }
        new = {name: time for name, time in sent.items() if self._sent.get(name) != time}
        self._sent.update(new)
        return new

    def _progress(
        self,
        report: Report,
        batch: WorkCycle | None,
        sessions: Mapping[TaskId, Session],
        ends: Mapping[TopicPartition, int],
    ) -> ProgressUpdate:
        """Return a message with the changes of the tasks at their ends, and of the positions behind exchanges."""
        ended = frozenset(task for task, session in sessions.items() if ends.keys() >= set(session.inputs))
        positions = {
            place: ends[place] if place in ends else session.start[place] if batch is None else batch.position(place)
            for session in sessions.values()
            for place in session.inputs
            if place.topic in self._timed
        }
        new = {place: at for place, at in positions.items() if self._positions.get(place) != at}
        news = None if ended == self._ended else ended
        self._ended = ended
        self._positions.update(new)
        return ProgressUpdate(report, news, new)

    def _new_times(self, sessions: Mapping[TaskId, Session]) -> dict[tuple[TaskId, str], StoreTime]:
        """Return the unreported event times of the open stores."""
        times: dict[tuple[TaskId, str], StoreTime] = {}
        for task, session in sessions.items():
            # A store error is handled when the store is used next.
            with contextlib.suppress(StateError):
                times.update({(task, store): found for store, found in session.stores.times().items()})
        new = {name: found for name, found in times.items() if self._times.get(name) != found}
        self._times.update(new)
        return new
