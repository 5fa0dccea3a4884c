"""What a resident task tells the driver: reports about what is committed, and what is under way."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from streamrt.errors import StateError
from streamrt.models import TopicPartition
from streamrt.runtime.batch import Batch
from streamrt.runtime.commit import Session
from streamrt.runtime.link import Link, Quiet, Seen, Worked
from streamrt.runtime.report import Report, StoreTime
from streamrt.runtime.sent import Sent
from streamrt.runtime.tasks import Tasks

__all__ = ["Outbox"]

logger = logging.getLogger("streamrt")

_TELL_S = 0.1
_TAKEN_S = 30.0
_UNTAKEN = 4


@dataclass(frozen=True)
class _Untaken:
    """Offsets of a report: they can be committed once the driver has taken it.

    Attributes:
        number: number of the report.
        offsets: next offset of each input partition; none where the transaction has them.
        sent: what was sent into exchanges until then, by input partition.
    """

    number: int
    offsets: Mapping[TopicPartition, int]
    sent: Mapping[TopicPartition, Mapping[str, Sent]]


class Outbox:
    """Sends reports, and remembers which of them the driver has not taken yet, and what it knows of the work under way.

    Args:
        link: the driver.
        tasks: the tasks of this process.
        clock: gives seconds; only differences count.
    """

    def __init__(self, link: Link, tasks: Tasks, clock: Callable[[], float]) -> None:
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
        # What the driver knows of event time.
        self._times: dict[tuple[TopicPartition, str], StoreTime] = {}
        self._sent: dict[tuple[TopicPartition, str], int] = {}
        self._ended: frozenset[TopicPartition] | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._told_at = 0.0
        self._quiet = False

    @property
    def waiting(self) -> bool:
        """Whether there are reports that the driver has not taken."""
        return bool(self._untaken)

    @property
    def full(self) -> bool:
        """Whether there are so many of them that work must pause."""
        return len(self._untaken) >= _UNTAKEN

    def report(
        self,
        report: Report,
        offsets: Mapping[TopicPartition, int],
        sent: Mapping[TopicPartition, Mapping[str, Sent]] | None = None,
    ) -> None:
        """Send the report of a batch that has ended.

        Args:
            report: the report; its count of records becomes the number of those not told before.
            offsets: what is to be committed once the report is taken.
            sent: what was sent into exchanges until then, by input partition.
        """
        report.records -= self._records
        self._records = 0
        self._times.update(report.times)
        self._sent.update(report.sent)
        self._number += 1
        self._untaken.append(_Untaken(self._number, offsets, sent or {}))
        self._link.send(Worked(self._number, report))

    def taken(self, number: int) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Mapping[str, Sent]]]:
        """Note that the driver has taken the reports up to a number.

        Returns:
            What is to be committed now: offsets, and what was sent into exchanges until then.
        """
        taken = [each for each in self._untaken if each.number <= number]
        self._untaken = [each for each in self._untaken if each.number > number]
        offsets = {place: offset for each in taken for place, offset in each.offsets.items()}
        return offsets, {place: sent for each in taken for place, sent in each.sent.items()}

    def await_taken(self, hear: Callable[[float], None], in_vain: Callable[[], bool]) -> None:
        """Wait until the driver has taken all reports, or for some time.

        Args:
            hear: waits so many seconds for the driver, and does what it says.
            in_vain: tells whether nobody needs the answers any more.
        """
        deadline = self._clock() + _TAKEN_S
        while self.waiting and not in_vain():
            if self._clock() >= deadline:
                logger.warning(
                    "the driver did not take a report in time; the records since the last commit will repeat"
                )
                return
            hear(_TELL_S)

    def see(
        self,
        batch: Batch | None,
        sessions: Mapping[TopicPartition, Session],
        ends: Callable[[], Mapping[TopicPartition, int]],
        is_quiet: Callable[[], bool],
        *,
        at_once: bool = False,
    ) -> None:
        """Tell what is under way, if there is anything new; not too often.

        Args:
            batch: the batch under way.
            sessions: the open sessions.
            ends: returns where the partitions end that are read to their ends, and of which all is processed.
            is_quiet: tells whether all partitions are read to their ends, and all of it is processed.
            at_once: whether to tell it now in any case.
        """
        now = self._clock()
        if not at_once and now - self._told_at < _TELL_S:
            return
        self._told_at = now
        report = Report(shown=self._tasks.take_shown())
        if batch is not None:
            report.records = batch.report.records - self._records
            self._records += report.records
        seen = Seen(report)
        if self._watched:
            report.times = self._new_times(sessions)
            report.sent = self._new_sent(sessions)
            seen = self._progress(report, batch, sessions, ends())
        if report.shown or report.records or report.times or report.sent or seen.ended is not None or seen.positions:
            self._link.send(seen)
        quiet = is_quiet()
        if quiet is not self._quiet:
            self._quiet = quiet
            self._link.send(Quiet(quiet))

    def forget(self) -> None:
        """Forget everything about partitions that are given back. The driver takes the next question for the end of quiet."""
        self._untaken.clear()
        self._times.clear()
        self._sent.clear()
        self._ended = None
        self._positions.clear()
        self._records = 0
        self._quiet = False

    def restart(self, tasks: Iterable[TopicPartition]) -> None:
        """Forget what was told of tasks that begin again where they are committed."""
        again = set(tasks)
        self._times = {name: found for name, found in self._times.items() if name[0] not in again}

    def _new_sent(self, sessions: Mapping[TopicPartition, Session]) -> dict[tuple[TopicPartition, str], int]:
        """Return what is durable in exchanges, as far as that was not told; exactly once only commits make it so."""
        if not self._timed or self._tasks.spec.transactional or not self._tasks.clients.delivered:
            return {}
        sent = {
            (place, topic): time
            for place, session in sessions.items()
            # What is left over may be earlier than what was sent.
            for topic, time in (() if session.unfinished else session.sent.items())
        }
        new = {name: time for name, time in sent.items() if self._sent.get(name) != time}
        self._sent.update(new)
        return new

    def _progress(
        self,
        report: Report,
        batch: Batch | None,
        sessions: Mapping[TopicPartition, Session],
        ends: Mapping[TopicPartition, int],
    ) -> Seen:
        """Return a message that tells what is read to its end, and how far it is behind exchanges, where that is news."""
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
        return Seen(report, news, new)

    def _new_times(self, sessions: Mapping[TopicPartition, Session]) -> dict[tuple[TopicPartition, str], StoreTime]:
        """Return where event time is in the open stores, as far as that was not told."""
        times: dict[tuple[TopicPartition, str], StoreTime] = {}
        for place, session in sessions.items():
            # Trouble with a store is met when it is used next.
            with contextlib.suppress(StateError):
                times.update({(place, store): found for store, found in session.stores.times().items()})
        new = {name: found for name, found in times.items() if self._times.get(name) != found}
        self._times.update(new)
        return new
