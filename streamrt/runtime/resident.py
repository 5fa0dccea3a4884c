"""The resident task: reads its partitions by itself, and stays.

What it does, again and again::

    hear the driver -> follow the group -> take records -> process them -> tell what was seen -> settle, if it is time

Records are processed in the same batches as everywhere, which are settled when a commit is due; `streamrt.runtime.commit`
knows the order. Stores stay open from one batch to the next. At least once, offsets are committed when the driver has taken
the report. All of it happens in one thread; `streamrt.runtime.membership` knows the member of the group, which has another.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from streamrt.errors import OffsetOutOfRangeError, StreamRTError
from streamrt.kafka import GroupAssignment, KafkaRequestError
from streamrt.models import TopicPartition
from streamrt.runtime.batch import Batch
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.commit import Session
from streamrt.runtime.feed import Feed, Join
from streamrt.runtime.link import (
    Begin,
    Committed,
    Ended,
    Failed,
    Joined,
    Link,
    Seen,
    Stop,
    Taken,
    Time,
    ToTask,
    Wanted,
    Welcome,
)
from streamrt.runtime.membership import NO_ASSIGNMENT, Membership
from streamrt.runtime.outbox import Outbox
from streamrt.runtime.parking import Parked, keeps_its_changelogs
from streamrt.runtime.report import Report
from streamrt.runtime.resident_settings import ResidentSettings
from streamrt.runtime.sent import SentTimes
from streamrt.runtime.tasks import Tasks
from streamrt.runtime.troubles import close_session
from streamrt.runtime.turns import Turns
from streamrt.runtime.upkeep import Upkeep
from streamrt.runtime.waiting import WaitingTasks

__all__ = ["ResidentSettings", "ResidentTask"]

logger = logging.getLogger("streamrt")

_WAIT_S = 0.1
_JOIN_S = 0.02
_SLICE_S = 0.2
_RESTORE_S = 1.0
_STALE_MS = 100
_MOST_RECORDS = 100_000
"""Changes of state wait in memory until the commit."""


class ResidentTask:
    """Runs the tasks of the partitions that the group gives to one slot, until the driver says stop.

    Args:
        tasks: the tasks of this process.
        feed: reads records.
        join: makes the member of the group.
        link: the driver.
        settings: when to commit.
        clock: gives seconds; only differences count.
        upkeep: does what is due between two slices of work.
    """

    def __init__(
        self,
        tasks: Tasks,
        feed: Feed,
        join: Join,
        link: Link,
        settings: ResidentSettings,
        clock: Callable[[], float] = time.monotonic,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._tasks = tasks
        self._feed = feed
        self._membership = Membership(join, link, tasks.spec)
        self._link = link
        self._settings = settings
        self._clock = clock
        spec = tasks.spec
        self._transactional = spec.transactional
        self._interval = (
            min(settings.commit_interval, settings.transaction_interval)
            if spec.transactional
            else settings.commit_interval
        )
        self._most = min(_MOST_RECORDS, settings.commit_every or _MOST_RECORDS)
        # What the driver has said.
        self._welcome = False
        self._outputs: int | None = None
        self._stop: Stop | None = None
        self._watermarks: Mapping[TopicPartition, Mapping[str, int]] = {}
        # The assignment.
        self._answered = False
        self._awaiting = False
        self._parked: Parked | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._stateful: frozenset[TopicPartition] = frozenset()
        self._workers: dict[TopicPartition, str] = {}
        self._sent = SentTimes(spec.topology)
        # Tasks without a session, and those of them that may not be opened at once.
        self._closed: list[TopicPartition] = []
        self._waiting = WaitingTasks(None if spec.state is None else spec.state.options, clock)
        # Tasks that read again what watermarks may have been made of.
        self._behind: set[TopicPartition] = set()
        # The work.
        self._sessions: dict[TopicPartition, Session] = {}
        self._batch: Batch | None = None
        self._due = 0.0
        self._settled_at = float("-inf")
        self._turns = Turns(tasks.place)
        self._crowded: set[TopicPartition] = set()
        self._halted = False
        self._passed_at = 0.0
        self._outbox = Outbox(link, tasks, clock)
        self._upkeep = Upkeep(clock) if upkeep is None else upkeep

    def run(self) -> None:
        """Work until the driver says stop.

        Raises:
            LinkClosed: if the driver is gone; what was not committed is dropped.
        """
        try:
            self._link.send(Joined(self._settings.slot, self._settings.attempt))
            while not self._welcome and self._stop is None:
                self._hear(_WAIT_S)
            if self._stop is None:
                self._membership.start()
                # It takes the time that the group needs, too.
                self._tasks.warm_up()
            while self._stop is None:
                self.step()
            self._give_back()
        except StreamRTError as error:
            # At once: what follows may fail for the same reason.
            self._link.send(Failed(error))
        finally:
            try:
                self._drop()
            finally:
                self._membership.close()
                self._feed.close()
        self._link.send(Ended())

    @property
    def busy(self) -> bool:
        """Whether there are records, or work left over, that are not committed yet."""
        return bool(self._turns) or self._batch is not None

    def step(self) -> None:
        """Do once what is done again and again; wait a moment if there is nothing to do."""
        self._hear(0.0)
        if self._stop is not None or not self._follow():
            return
        if self._halted or self._outbox.full:
            self._hear(_WAIT_S)
            return
        self._open()
        self._work()
        self._catch_up()
        self._tell()
        if self._batch is None:
            if not self._turns:
                self._pass_markers()
        elif self._is_due(self._batch):
            self._settle()
        self._upkeep.step(self._sessions.values())

    # -- The driver --------------------------------------------------------------------------------------------------

    def _hear(self, timeout_s: float) -> None:
        for message in self._link.receive(timeout_s):
            self._obey(message)

    def _obey(self, message: ToTask) -> None:
        if isinstance(message, Taken):
            offsets, sent = self._outbox.taken(message.number)
            if offsets:
                self._membership.commit(offsets, sent)
        elif isinstance(message, Time):
            self._watermarks = message.watermarks
            self._tick(message.due)
        elif isinstance(message, Begin):
            # A question that was asked twice is answered twice.
            if message.generation == self._membership.assignment.generation and not self._answered:
                self._begin(message)
        elif isinstance(message, Welcome):
            self._welcome = True
            self._outputs = message.outputs
        else:
            self._stop = message

    def _tell(self, *, at_once: bool = False) -> None:
        self._outbox.see(self._batch, self._sessions, self._ends, self._is_quiet, at_once=at_once)

    def _ends(self) -> dict[TopicPartition, int]:
        """Return the ends of the partitions that are read to them, with all of it processed."""
        if self._membership.away or self._parked is not None:
            # Nobody knows what came since.
            return {}
        return {place: end for place, end in self._feed.ends().items() if self._tasks.place(place) not in self._turns}

    def _is_quiet(self) -> bool:
        """Tell whether all partitions are read to their ends, and all of it is processed."""
        busy = not self._answered or self._turns or self._closed
        return not busy and self._positions.keys() <= self._feed.ends().keys()

    # -- The group -----------------------------------------------------------------------------------------------------

    def _follow(self) -> bool:
        """Follow the group: give back what it wants, and ask where to begin with what is new.

        Returns:
            Whether there are partitions to work on.
        """
        group = self._membership
        if group.lost:
            group.assignment = NO_ASSIGNMENT
            self._abandon()
            self._drop()
            # If the driver has given this task up meanwhile, it is heard of now.
            self._hear(_WAIT_S)
            group.accept_loss()
        if group.wanted_back:
            self._park()
            group.given_back()
        current = group.current()
        if current is not None and current.generation != group.assignment.generation:
            self._move(current)
        elif self._parked is not None and self._parked.over(self._clock()):
            self._drop()
        if current is None or not self._positions:
            self._tell()
            self._hear(_WAIT_S if self._answered else _JOIN_S)
        return current is not None and bool(self._positions)

    def _park(self) -> None:
        """Commit what can be committed, and keep open what may come back with the next assignment."""
        self._commit_all()
        group = self._membership
        committed = not (group.lost or group.behind or self._outbox.waiting or self._halted)
        # What is parked already was not in the assignment that goes now: it may have been another member's.
        former, self._parked = self._parked, None
        if former is None and committed:
            self._let_go(self._assigned_tasks() - self._sessions.keys())
            self._parked = Parked(group.assignment.generation, self._clock())
            # An answer to a question about it comes too late.
            group.assignment, self._answered = NO_ASSIGNMENT, False
        self._tell(at_once=True)
        if self._parked is None:
            self._drop()

    def _move(self, current: GroupAssignment) -> None:
        """Go on with parked tasks that have come back, let go of all others, and ask where to begin with what is new."""
        parked = self._parked
        if parked is None or self._membership.lost or not parked.goes_on(current):
            self._drop()
        else:
            back = {
                task
                for task, session in self._sessions.items()
                if current.partitions.issuperset(self._tasks.inputs(task)) and keeps_its_changelogs(session)
            }
            self._let_go(self._assigned_tasks() - back)
            self._parked, self._awaiting = None, False
            self._outbox.forget()
        self._ask(current)

    def _ask(self, current: GroupAssignment) -> None:
        """Ask the driver where to begin with partitions that the task does not work on."""
        self._membership.assignment, self._answered = current, False
        self._link.send(Wanted(current.generation, current.partitions, frozenset(self._positions)))

    def _begin(self, begin: Begin) -> None:
        """Begin to work on partitions, at the offsets that the driver has found."""
        # From now on a restart goes on here, also if "latest" records arrive before the first commit.
        if begin.fresh and not self._membership.commit_fresh(begin.fresh, begin.metadata):
            self._ask(self._membership.assignment)
            return
        self._answered = True
        self._positions.update(begin.positions)
        self._stateful |= begin.stateful
        self._membership.claims = {**self._membership.claims, **begin.claims}
        self._sent.begin(begin.sent, self._assigned_tasks())
        new = sorted({self._tasks.place(place) for place in begin.positions})
        self._closed += new
        self._behind.update(new)
        self._waiting.keep(self._assigned_tasks())
        self._feed.add(begin.positions)
        if self._batch is not None:
            self._batch.context = self._context()

    def _give_back(self) -> None:
        """Commit what can be committed, and let go of all partitions."""
        if self._stop is not None and self._stop.discard:
            self._abandon()
        else:
            self._commit_all()
            self._tell(at_once=True)
        self._drop()

    def _commit_all(self) -> None:
        """Commit what is processed, and what could not be committed before."""
        group = self._membership
        self._settle()
        self._awaiting = True
        # When the driver has taken a report, its offsets are committed.
        self._outbox.await_taken(self._hear, lambda: group.lost or (self._stop is not None and self._stop.discard))
        if group.behind:
            group.commit({})

    def _abandon(self) -> None:
        """Drop the batch under way; the driver hears of transactions that were committed in it, since nobody repeats them."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        batch.close()
        if self._transactional and batch.report.workers:
            self._count(batch.report)
            self._outbox.report(batch.report, {})

    def _drop(self) -> None:
        """Let go of all partitions, and of what is not committed."""
        if self._batch is not None:
            self._batch.close()
            self._batch = None
        self._let_go(self._assigned_tasks() | self._sessions.keys())
        self._parked = None
        self._answered = self._awaiting = False
        self._membership.forget()
        self._outbox.forget()

    def _let_go(self, tasks: Collection[TopicPartition]) -> None:
        """Close tasks of which nothing is under way; they are another process's now."""
        going = {place for task in tasks for place in self._tasks.inputs(task)}
        for task in tasks:
            if (session := self._sessions.pop(task, None)) is not None:
                close_session(session, None)
            if self._transactional:
                self._tasks.clients.release(task)
            self._workers.pop(task, None)
            self._turns.drop(task)
        self._waiting.drop(tasks)
        self._crowded -= going
        self._feed.remove(going)
        self._positions = {place: at for place, at in self._positions.items() if place not in going}
        numbers = {place.partition for place in self._positions}
        self._stateful = frozenset(each for each in self._stateful if each.partition in numbers)
        self._membership.claims = {place: at for place, at in self._membership.claims.items() if place not in going}
        self._closed = [task for task in self._closed if task not in tasks]
        self._behind.difference_update(tasks)

    def _assigned_tasks(self) -> set[TopicPartition]:
        return {self._tasks.place(place) for place in self._positions}

    # -- Records -------------------------------------------------------------------------------------------------------

    def _ready(self) -> list[TopicPartition]:
        """Return the tasks that can be opened now."""
        if not self._closed or self._membership.away:
            return []
        return self._waiting.over(self._closed)

    def _open(self) -> None:
        """Restore the stores of tasks, for a moment, and begin to read for those that are ready."""
        opening = self._ready()
        if not opening:
            return
        # Where others work, they go on in between.
        seconds = _SLICE_S if self._sessions else _RESTORE_S
        context = replace(self._context(), seconds=seconds)
        report = self._tasks.restore(opening, context, self._sessions)
        self._workers.update(report.workers)
        self._waiting.tried(opening, report.restored)
        for task in opening:
            session = self._sessions.get(task)
            if session is None:
                continue
            self._closed.remove(task)
            for place, start in session.start.items():
                if start != context.positions[place]:
                    # Another attempt has come further.
                    self._positions[place] = start
                    self._feed.seek(place, start)
            self._feed.resume(session.inputs)
            if session.unfinished:
                self._turns.want(task)
        if self._batch is not None:
            # Tasks that were given up in it begin with what holds now.
            self._batch.context = self._context()
        if report.restores:
            self._link.send(Seen(Report(restores=report.restores)))
        self._meet(report)
        if report.failure is not None:
            self._halted = True
            self._send(report, {})

    def _work(self) -> None:
        """Process the next records; wait for them if there are none."""
        self._turns.add(self._poll())
        if not self._turns:
            return
        self._upkeep.worked()
        batch = self._open_batch()
        if abs(self._tasks.clients.now() - batch.context.now) >= _STALE_MS:
            # Operators that look at the wall clock shall not take records for as old as the batch.
            batch.context = self._context()
        self._turns.take(batch)
        self._examine(batch)
        # Records that could not be processed in this slice would keep those of other partitions from being polled.
        crowded = self._turns.crowded()
        self._feed.pause(crowded - self._crowded)
        self._feed.resume(self._crowded - crowded)
        self._crowded = crowded

    def _poll(self) -> list[Chunk]:
        now = self._clock()
        wait = _WAIT_S
        if self._batch is not None:
            wait = min(wait, self._due - now)
        if self._turns or self._ready():
            wait = 0.0
        records = self._turns.room
        try:
            polled = self._feed.poll(0.0, records)
            if not polled and wait > 0:
                if not self._transactional:
                    # Exactly once, nobody sees them before the commit.
                    self._tasks.clients.hurry()
                polled = self._feed.poll(wait, records)
        except (OffsetOutOfRangeError, KafkaRequestError) as error:
            if isinstance(error, KafkaRequestError) and not error.retriable:
                raise
            # The driver waits until brokers answer.
            logger.warning("%s; looking for where to go on", error)
            self._commit_all()
            self._drop()
            self._ask(self._membership.assignment)
            return []
        return [Chunk(place.topic, place.partition, *batch) for place, batch in polled]

    def _tick(self, due: Iterable[TopicPartition]) -> None:
        """Let time pass for those of the tasks that are ours."""
        own = [task for task in sorted(due) if task in self._sessions]
        # While partitions are given back, nobody would commit what comes of it.
        if not own or self._halted or self._awaiting or self._stop is not None:
            return
        batch = self._open_batch()
        batch.context = self._context()
        batch.begin_slice()
        for task in own:
            # A sink may have been flushed for the one before, and have refused the records of this one.
            if task in self._sessions:
                if not batch.tick(task):
                    self._turns.want(task)
                self._examine(batch)
        self._tell(at_once=True)

    def _open_batch(self) -> Batch:
        if self._batch is None:
            self._batch = self._tasks.begin(self._context(), self._sessions)
            now = self._clock()
            self._due = now + self._interval
            if self._transactional:
                # Records that came during the last commit have waited already.
                self._due = max(self._settled_at + self._interval, now + self._interval / 2)
        return self._batch

    def _context(self) -> BatchContext:
        done = {} if self._batch is None else self._batch.report.ranges
        return BatchContext(
            {place: done[place].end if place in done else at for place, at in self._positions.items()},
            _SLICE_S,
            self._outputs,
            dict(self._workers),
            self._stateful,
            self._tasks.clients.now(),
            self._watermarks,
            frozenset(self._behind),
            sent=self._sent.by_task,
            claims=self._membership.claims,
            records=self._most,
        )

    def _examine(self, batch: Batch) -> None:
        """Look after tasks whose sessions were given up, and whether the batch must end."""
        if batch.aborted:
            self._rewind(batch)
        self._meet(batch.report)

    def _rewind(self, batch: Batch) -> None:
        """Read the records of sessions that were given up again, once their tasks are open again."""
        aborted, batch.aborted = batch.aborted, set()
        self._close(aborted, batch.position)

    def _close(self, tasks: Collection[TopicPartition], position: Callable[[TopicPartition], int]) -> None:
        """Have tasks opened again that have lost their sessions, and read on at their positions then."""
        for task in sorted(tasks):
            inputs = self._tasks.inputs(task)
            self._turns.drop(task)
            self._crowded.difference_update(inputs)
            self._feed.pause(inputs)
            for place in inputs:
                self._feed.seek(place, position(place))
            if task not in self._closed:
                self._closed.append(task)
            self._behind.add(task)
        self._outbox.restart(tasks)

    def _catch_up(self) -> None:
        """Find the tasks that have come to the ends of their inputs, and thus read again what any attempt has read before."""
        if self._behind:
            ends = self._feed.ends().keys()
            self._behind = {
                task
                for task in self._behind
                if task not in self._sessions or task in self._turns or not ends >= set(self._tasks.inputs(task))
            }

    def _meet(self, report: Report) -> None:
        """Let tasks wait that met a trouble which may pass."""
        if not report.stalled and not report.interrupted and not report.locked:
            return
        told = Report(stalled=dict(report.stalled), interrupted=dict(report.interrupted), locked=dict(report.locked))
        self._link.send(Seen(told))
        self._waiting.meet(report)
        for task in (*report.interrupted, *report.locked):
            self._workers.pop(task, None)
        report.stalled.clear()
        report.interrupted.clear()
        report.locked.clear()

    # -- Commits -------------------------------------------------------------------------------------------------------

    def _is_due(self, batch: Batch) -> bool:
        report = batch.report
        if report.failure is not None or report.records >= self._most or self._clock() >= self._due or batch.paused:
            return True
        return self._outputs is not None and report.outputs >= self._outputs

    def _settle(self) -> None:
        """Commit the work of the batch, and tell the driver."""
        if self._batch is None or self._membership.lost:
            return
        batch, self._batch = self._batch, None
        self._settled_at = self._clock()
        try:
            report = self._tasks.end(batch)
        finally:
            batch.close()
        moved = {place: done.end for place, done in report.ranges.items() if done.end != self._positions.get(place)}
        self._positions.update(moved)
        self._workers.update(report.workers)
        for place in moved:
            self._waiting.got_on(self._tasks.place(place))
        if batch.aborted:
            self._rewind(batch)
        # Others could not go on after their commits, without having done anything wrong.
        self._close(self._assigned_tasks() - self._sessions.keys() - set(self._closed), self._positions.__getitem__)
        self._meet(report)
        self._count(report)
        self._send(report, moved)

    def _count(self, report: Report) -> None:
        """Process no more records after a failure, or when there are enough outputs."""
        if self._outputs is not None:
            self._outputs -= report.outputs
        if report.failure is not None or (self._outputs is not None and self._outputs <= 0):
            self._halted = True

    def _pass_markers(self) -> None:
        """Move the group past markers of transactions at the ends of partitions: they are no records, but count as lag."""
        now = self._clock()
        if self._outbox.waiting or now - self._passed_at < self._settings.commit_interval:
            return
        self._passed_at = now
        ends = self._feed.ends()
        self._waiting.forgive(
            lambda task: task in self._sessions and all(place in ends for place in self._tasks.inputs(task))
        )
        passed = {
            place: end
            for place, end in ends.items()
            if end > self._positions[place] and self._tasks.place(place) in self._sessions
        }
        if self._transactional:
            passed = self._unmoved(passed)
        if (passed or self._membership.behind) and self._membership.commit(passed, self._sent.of(passed)):
            self._positions.update(passed)
            for place, end in passed.items():
                self._sessions[self._tasks.place(place)].start[place] = end

    def _unmoved(self, passed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return those offsets that nobody else has moved: no transactional id keeps this commit from setting them back."""
        try:
            found = self._tasks.clients.noted(passed, stable=True) if passed else {}
        except KafkaRequestError:
            return {}
        return {place: passed[place] for place, at in found.items() if at.offset == self._positions[place]}

    def _send(self, report: Report, offsets: Mapping[TopicPartition, int]) -> None:
        self._sent.note(report)
        self._outbox.report(report, {} if self._transactional else offsets, self._sent.of(offsets))
        if self._transactional and offsets:
            self._link.send(Committed(offsets))
