"""What a resident task tells the driver: reports about what is committed, and what is under way."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamrt.errors import StateError
from streamrt.models import TopicPartition
from streamrt.runtime.batch import Batch
from streamrt.runtime.commit import Session
from streamrt.runtime.link import Link, Quiet, Seen, Worked
from streamrt.runtime.report import Report, StoreTime
from streamrt.runtime.tasks import Tasks

__all__ = ["Outbox"]

_TELL_S = 0.1
_UNTAKEN = 4


@dataclass(frozen=True)
class _Untaken:
    """Offsets of a report: they can be committed once the driver has taken it.

    Attributes:
        number: number of the report.
        offsets: next offset of each input partition; none where the transaction has them.
    """

    number: int
    offsets: Mapping[TopicPartition, int]


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
        self._watched = any(map(tasks.spec.topology.watermarks, tasks.spec.topology.streams))
        self._number = 0
        self._untaken: list[_Untaken] = []
        self._records = 0
        self._times: dict[tuple[TopicPartition, str], StoreTime] = {}
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

    def report(self, report: Report, offsets: Mapping[TopicPartition, int]) -> None:
        """Send the report of a batch that has ended.

        Args:
            report: the report; its count of records becomes the number of those not told before.
            offsets: what is to be committed once the report is taken.
        """
        report.records -= self._records
        self._records = 0
        self._times.update(report.times)
        self._number += 1
        self._untaken.append(_Untaken(self._number, offsets))
        self._link.send(Worked(self._number, report))

    def taken(self, number: int) -> dict[TopicPartition, int]:
        """Note that the driver has taken the reports up to a number; return what is to be committed now."""
        taken = [each for each in self._untaken if each.number <= number]
        self._untaken = [each for each in self._untaken if each.number > number]
        return {place: offset for each in taken for place, offset in each.offsets.items()}

    def see(
        self,
        batch: Batch | None,
        sessions: Mapping[TopicPartition, Session],
        is_quiet: Callable[[], bool],
        *,
        at_once: bool = False,
    ) -> None:
        """Tell what is under way, if there is anything new; not too often.

        Args:
            batch: the batch under way.
            sessions: the open sessions.
            is_quiet: tells whether all partitions are read to their ends, and all of it is processed.
            at_once: whether to tell it now in any case.
        """
        now = self._clock()
        if not at_once and now - self._told_at < _TELL_S:
            return
        self._told_at = now
        seen = Report(shown=self._tasks.take_shown())
        if batch is not None:
            seen.records = batch.report.records - self._records
            self._records += seen.records
        if self._watched:
            seen.times = self._new_times(sessions)
        if seen.shown or seen.records or seen.times:
            self._link.send(Seen(seen))
        quiet = is_quiet()
        if quiet is not self._quiet:
            self._quiet = quiet
            self._link.send(Quiet(quiet))

    def forget(self) -> None:
        """Forget everything about partitions that are given back. The driver takes the next question for the end of quiet."""
        self._untaken.clear()
        self._times.clear()
        self._records = 0
        self._quiet = False

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
