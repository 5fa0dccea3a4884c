"""The resident task: a long-running task that reads its partitions itself.

Its loop::

    handle driver messages -> follow the group -> poll records -> process them -> report progress -> commit, if due

Records are processed in the same batches as in the other modes, and a batch is settled when a commit is due; for the
order see `streamrt.runtime.commit`. Stores stay open from one batch to the next. With at-least-once, offsets are
committed after the driver has answered the report. All of this happens in one thread; the group member has another
one, see `streamrt.runtime.membership`.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from streamrt.errors import OffsetOutOfRangeError, StreamRTError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.group_state import GroupAssignment
from streamrt.models import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.commit import Session
from streamrt.runtime.feed import Feed, Join
from streamrt.runtime.link import (
    Ack,
    AssignmentRequest,
    Committed,
    Ended,
    Failed,
    Joined,
    Link,
    ProgressUpdate,
    StartPositions,
    Stop,
    Time,
    ToTask,
    Welcome,
)
from streamrt.runtime.membership import NO_ASSIGNMENT, Membership
from streamrt.runtime.outbox import Outbox
from streamrt.runtime.parking import Parked, keeps_its_changelogs
from streamrt.runtime.report import Report
from streamrt.runtime.resident_settings import ResidentSettings
from streamrt.runtime.sent import SentTimes
from streamrt.runtime.task_executor import TaskExecutor
from streamrt.runtime.troubles import close_session
from streamrt.runtime.turns import Turns
from streamrt.runtime.upkeep import Upkeep
from streamrt.runtime.waiting import WaitingTasks
from streamrt.runtime.work_cycle import WorkCycle

__all__ = ["ResidentLoop", "ResidentSettings"]

logger = logging.getLogger("streamrt")

_WAIT_S = 0.1
_JOIN_S = 0.02
_SLICE_S = 0.2
_RESTORE_S = 1.0
_STALE_MS = 100
_MOST_RECORDS = 100_000
"""Maximum number of records between two commits, because state changes stay in memory until the commit."""


class ResidentLoop:
    """Runs the tasks of the partitions that are assigned to one slot, until the driver stops it.

    Args:
        tasks: the tasks of this process.
        feed: reads records.
        join: creates the group member.
        link: the link to the driver.
        settings: slot and commit intervals.
        clock: returns seconds; only differences count.
        upkeep: maintenance between two time slices.
    """

    def __init__(
        self,
        tasks: TaskExecutor,
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
        # From messages of the driver.
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
        # Tasks without a session, and those of them that must wait before they are opened.
        self._closed: list[TopicPartition] = []
        self._waiting = WaitingTasks(None if spec.state is None else spec.state.options, clock)
        # Tasks that may re-read records that already advanced the watermark.
        self._behind: set[TopicPartition] = set()
        # The work.
        self._sessions: dict[TopicPartition, Session] = {}
        self._batch: WorkCycle | None = None
        self._due = 0.0
        self._settled_at = float("-inf")
        self._turns = Turns(tasks.place)
        self._crowded: set[TopicPartition] = set()
        self._halted = False
        self._passed_at = 0.0
        self._outbox = Outbox(link, tasks, clock)
        self._upkeep = Upkeep(clock) if upkeep is None else upkeep

    def run(self) -> None:
        """Work until the driver sends `Stop`.

        Raises:
            LinkClosed: if the driver is gone; uncommitted work is dropped.
        """
        try:
            self._link.send(Joined(self._settings.slot, self._settings.attempt))
            while not self._welcome and self._stop is None:
                self._hear(_WAIT_S)
            if self._stop is None:
                self._membership.start()
                # Meanwhile, the group forms.
                self._tasks.warm_up()
            while self._stop is None:
                self.step()
            self._give_back()
        except StreamRTError as error:
            # Send this first: the cleanup below may fail for the same reason.
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
        """Whether there are polled records, unfinished work or uncommitted work."""
        return bool(self._turns) or self._batch is not None

    def step(self) -> None:
        """Run the loop once; wait a moment if there is nothing to do."""
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
        if isinstance(message, Ack):
            offsets, sent = self._outbox.taken(message.number)
            if offsets:
                self._membership.commit(offsets, sent)
        elif isinstance(message, Time):
            self._watermarks = message.watermarks
            self._tick(message.due)
        elif isinstance(message, StartPositions):
            # A repeated request has two answers; use the first.
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
        """Return the end offsets of the partitions that are read to their ends, with all records processed."""
        if self._membership.away or self._parked is not None:
            # Newer records may exist.
            return {}
        return {place: end for place, end in self._feed.ends().items() if self._tasks.place(place) not in self._turns}

    def _is_quiet(self) -> bool:
        """Return whether all partitions are read to their ends, with all records processed."""
        busy = not self._answered or self._turns or self._closed
        return not busy and self._positions.keys() <= self._feed.ends().keys()

    # -- The group -----------------------------------------------------------------------------------------------------

    def _follow(self) -> bool:
        """Follow the group: release revoked partitions, and request start offsets for new ones.

        Returns:
            Whether there are partitions to work on.
        """
        group = self._membership
        if group.lost:
            group.assignment = NO_ASSIGNMENT
            self._abandon()
            self._drop()
            # If the driver has given up this task meanwhile, its message is handled now.
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
        """Commit the processed work, and park the tasks that may come back with the next assignment."""
        self._commit_all()
        group = self._membership
        committed = not (group.lost or group.has_pending_commit or self._outbox.waiting or self._halted)
        # Tasks that are parked already were not in the assignment that is revoked now: another member may have owned
        # them.
        former, self._parked = self._parked, None
        if former is None and committed:
            self._let_go(self._assigned_tasks() - self._sessions.keys())
            self._parked = Parked(group.assignment.generation, self._clock())
            # Ignore a late answer for this assignment.
            group.assignment, self._answered = NO_ASSIGNMENT, False
        self._tell(at_once=True)
        if self._parked is None:
            self._drop()

    def _move(self, current: GroupAssignment) -> None:
        """Continue parked tasks that have come back, close all others, and request start offsets for new partitions."""
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
        """Request start offsets for the partitions that the task does not work on yet."""
        self._membership.assignment, self._answered = current, False
        self._link.send(AssignmentRequest(current.generation, current.partitions, frozenset(self._positions)))

    def _begin(self, begin: StartPositions) -> None:
        """Start partitions at the offsets from the driver."""
        # A restart then begins at the same offsets, also if "latest" records arrive before the first commit.
        if begin.initial_offsets and not self._membership.commit_initial_offsets(begin.initial_offsets, begin.metadata):
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
        """Commit the processed work unless it is to be discarded, and release all partitions."""
        if self._stop is not None and self._stop.discard:
            self._abandon()
        else:
            self._commit_all()
            self._tell(at_once=True)
        self._drop()

    def _commit_all(self) -> None:
        """Commit the processed work, and offsets whose commit failed before."""
        group = self._membership
        self._settle()
        self._awaiting = True
        # The answer of the driver to a report triggers the commit of its offsets.
        self._outbox.await_taken(self._hear, lambda: group.lost or (self._stop is not None and self._stop.discard))
        if group.has_pending_commit:
            group.commit({})

    def _abandon(self) -> None:
        """Drop the current batch. Transactions committed in it are reported, because they are not repeated."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        batch.close()
        if self._transactional and batch.report.workers:
            self._count(batch.report)
            self._outbox.report(batch.report, {})

    def _drop(self) -> None:
        """Release all partitions, and drop uncommitted work."""
        if self._batch is not None:
            self._batch.close()
            self._batch = None
        self._let_go(self._assigned_tasks() | self._sessions.keys())
        self._parked = None
        self._answered = self._awaiting = False
        self._membership.forget()
        self._outbox.forget()

    def _let_go(self, tasks: Collection[TopicPartition]) -> None:
        """Close tasks without uncommitted work; another process may own them now."""
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
        """Restore the stores of tasks for one time slice, and start reading for those that are ready."""
        opening = self._ready()
        if not opening:
            return
        # Shorter if other tasks work in between.
        seconds = _SLICE_S if self._sessions else _RESTORE_S
        context = replace(self._context(), time_limit_s=seconds)
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
                    # Another attempt has already committed later offsets.
                    self._positions[place] = start
                    self._feed.seek(place, start)
            self._feed.resume(session.inputs)
            if session.unfinished:
                self._turns.want(task)
        if self._batch is not None:
            # Tasks whose sessions were aborted in this batch start with the current context.
            self._batch.context = self._context()
        if report.restores:
            self._link.send(ProgressUpdate(Report(restores=report.restores)))
        self._meet(report)
        if report.failure is not None:
            self._halted = True
            self._send(report, {})

    def _work(self) -> None:
        """Poll and process the next records."""
        self._turns.add(self._poll())
        if not self._turns:
            return
        self._upkeep.worked()
        batch = self._open_batch()
        if abs(self._tasks.clients.now() - batch.context.now) >= _STALE_MS:
            # Keep the wall clock of the context current for operators that use it.
            batch.context = self._context()
        self._turns.take(batch)
        self._examine(batch)
        # Unprocessed records of these partitions would keep those of other partitions from being polled.
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
                    # With exactly-once, lingering records are invisible before the commit anyway.
                    self._tasks.clients.send_pending()
                polled = self._feed.poll(wait, records)
        except (OffsetOutOfRangeError, KafkaRequestError) as error:
            if isinstance(error, KafkaRequestError) and not error.retriable:
                raise
            # The driver answers once brokers are reachable.
            logger.warning("%s; requesting new start offsets", error)
            self._commit_all()
            self._drop()
            self._ask(self._membership.assignment)
            return []
        return [Chunk(place.topic, place.partition, *batch) for place, batch in polled]

    def _tick(self, due: Iterable[TopicPartition]) -> None:
        """Tick those of the due tasks that this process owns."""
        own = [task for task in sorted(due) if task in self._sessions]
        # While partitions are released, the results would not be committed.
        if not own or self._halted or self._awaiting or self._stop is not None:
            return
        batch = self._open_batch()
        batch.context = self._context()
        batch.begin_slice()
        for task in own:
            # A sink may have been flushed for the previous task, and have rejected the records of this one.
            if task in self._sessions:
                if not batch.tick(task):
                    self._turns.want(task)
                self._examine(batch)
        self._tell(at_once=True)

    def _open_batch(self) -> WorkCycle:
        if self._batch is None:
            self._batch = self._tasks.begin(self._context(), self._sessions)
            now = self._clock()
            self._due = now + self._interval
            if self._transactional:
                # Records that arrived during the last commit have already waited.
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
            record_limit=self._most,
        )

    def _examine(self, batch: WorkCycle) -> None:
        """Handle tasks whose sessions were aborted, and errors in the report."""
        if batch.aborted:
            self._rewind(batch)
        self._meet(batch.report)

    def _rewind(self, batch: WorkCycle) -> None:
        """Rewind the tasks whose sessions were aborted, so that their records are read again."""
        aborted, batch.aborted = batch.aborted, set()
        self._close(aborted, batch.position)

    def _close(self, tasks: Collection[TopicPartition], position: Callable[[TopicPartition], int]) -> None:
        """Mark tasks without sessions for reopening, and seek to their positions."""
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
        """Remove tasks at the ends of their inputs from `_behind`: they have re-read the records of earlier attempts."""
        if self._behind:
            ends = self._feed.ends().keys()
            self._behind = {
                task
                for task in self._behind
                if task not in self._sessions or task in self._turns or not ends >= set(self._tasks.inputs(task))
            }

    def _meet(self, report: Report) -> None:
        """Make tasks with retriable errors wait, and report them."""
        if not report.stalled and not report.interrupted and not report.locked:
            return
        told = Report(stalled=dict(report.stalled), interrupted=dict(report.interrupted), locked=dict(report.locked))
        self._link.send(ProgressUpdate(told))
        self._waiting.meet(report)
        for task in (*report.interrupted, *report.locked):
            self._workers.pop(task, None)
        report.stalled.clear()
        report.interrupted.clear()
        report.locked.clear()

    # -- Commits -------------------------------------------------------------------------------------------------------

    def _is_due(self, batch: WorkCycle) -> bool:
        report = batch.report
        if report.failure is not None or report.records >= self._most or self._clock() >= self._due or batch.paused:
            return True
        return self._outputs is not None and report.outputs >= self._outputs

    def _settle(self) -> None:
        """Commit the work of the batch, and report it to the driver."""
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
        # Other tasks may also have lost their sessions, because these could not continue after their commits.
        self._close(self._assigned_tasks() - self._sessions.keys() - set(self._closed), self._positions.__getitem__)
        self._meet(report)
        self._count(report)
        self._send(report, moved)

    def _count(self, report: Report) -> None:
        """Stop processing after a failure or at the output limit."""
        if self._outputs is not None:
            self._outputs -= report.outputs
        if report.failure is not None or (self._outputs is not None and self._outputs <= 0):
            self._halted = True

    def _pass_markers(self) -> None:
        """Move the group past transaction markers at the ends of partitions: they are not records, but count as lag."""
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
        if (passed or self._membership.has_pending_commit) and self._membership.commit(passed, self._sent.of(passed)):
            self._positions.update(passed)
            for place, end in passed.items():
                self._sessions[self._tasks.place(place)].start[place] = end

    def _unmoved(self, passed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets that no other process has moved. This commit is not fenced, and could set them back."""
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
