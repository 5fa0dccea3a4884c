"""The resident loop: a long-running Spark task that reads the partitions of its tasks itself.

Its loop::

    handle driver messages -> follow the group -> poll records -> process them -> report progress -> commit, if due

Records are processed in work cycles, as in micro-batches, and a cycle ends when a commit is due; for the order see
`streamrt.runtime.tasks.commit`. Tasks stay open from one cycle to the next. With at-least-once, offsets are
committed after the driver has answered the report. All of this happens in one thread; the group member has another
one, see `streamrt.runtime.resident.membership`.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from streamrt.errors import OffsetOutOfRangeError, StreamRTError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.group_state import GroupAssignment
from streamrt.records import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.link import (
    Ack,
    AssignmentRequest,
    Committed,
    Ended,
    Failed,
    Joined,
    Link,
    ProgressUpdate,
    Settle,
    Settled,
    StartPositions,
    StateRead,
    Stop,
    Time,
    ToTask,
    Welcome,
)
from streamrt.runtime.report import Report
from streamrt.runtime.resident.commit_schedule import CommitSchedule
from streamrt.runtime.resident.feed import Feed, Join
from streamrt.runtime.resident.markers import EndMarkers
from streamrt.runtime.resident.membership import NO_ASSIGNMENT, Membership
from streamrt.runtime.resident.outbox import Outbox
from streamrt.runtime.resident.parking import Parked, keeps_its_changelogs
from streamrt.runtime.resident.pausing import GatedFeed, Pausing
from streamrt.runtime.resident.reads import StateReads
from streamrt.runtime.resident.settings import ResidentSettings
from streamrt.runtime.resident.turns import Turns
from streamrt.runtime.resident.upkeep import Upkeep
from streamrt.runtime.resident.waiting import WaitingTasks
from streamrt.runtime.sent import Sent
from streamrt.runtime.tasks.stream_task import StreamTask, TaskStatus
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.runtime.tasks.work_cycle import WorkCycle
from streamrt.topology import TaskId

__all__ = ["ResidentLoop", "ResidentSettings"]

logger = logging.getLogger("streamrt")

_WAIT_S = 0.1
_JOIN_S = 0.02
_SLICE_S = 0.2
_RESTORE_S = 1.0
_STALE_MS = 100


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
        self._feed = GatedFeed(feed)
        self._membership = Membership(join, link, tasks.spec)
        self._link = link
        self._settings = settings
        self._clock = clock
        spec = tasks.spec
        self._transactional = spec.transactional
        self._schedule = CommitSchedule(settings, clock, transactional=spec.transactional)
        # From messages of the driver.
        self._welcome = False
        self._stop: Stop | None = None
        self._time = Time({}, frozenset())
        # The assignment.
        self._answered = False
        self._awaiting = False
        self._parked: Parked | None = None
        # Tasks that must wait before they are opened again.
        self._waiting = WaitingTasks(None if spec.state is None else spec.state.options, clock)
        # The work.
        self._cycle: WorkCycle | None = None
        self._turns = Turns(tasks.task_of)
        self._pausing = Pausing(self._feed, self._turns, tasks)
        self._markers = EndMarkers(self._feed, self._membership, tasks, self._sent_for)
        self._halted = False
        self._passed_at = 0.0
        self._outbox = Outbox(link, tasks, clock)
        self._reads = StateReads(link, clock)
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
        return bool(self._turns) or self._cycle is not None

    def step(self) -> None:
        """Run the loop once; wait a moment if there is nothing to do."""
        self._hear(0.0)
        self._fulfil()
        if self._stop is not None:
            return
        follows = self._follow()
        self._reads.answer(self._owned(), lambda read: self._tasks.assigned.get(read.read.task))
        if not follows:
            return
        if self._halted or self._outbox.full:
            self._hear(_WAIT_S)
            return
        self._open()
        self._work()
        self._catch_up()
        self._tell()
        if self._cycle is None:
            if not self._turns:
                self._pass_markers()
        elif self._schedule.is_due(self._cycle.report, paused=self._cycle.paused):
            self._settle()
        self._upkeep.step(task for task in self._tasks.assigned.values() if task.is_open)

    # -- The driver --------------------------------------------------------------------------------------------------

    def _hear(self, timeout_s: float) -> None:
        for message in self._link.receive(timeout_s):
            self._obey(message)

    def _obey(self, message: ToTask) -> None:
        if isinstance(message, Ack):
            offsets, sent = self._outbox.acknowledged(message.number)
            if offsets:
                self._membership.commit(offsets, sent)
        elif isinstance(message, Time):
            self._time = message
            self._pausing.align(message.ahead)
            self._tick(message.due)
        elif isinstance(message, StartPositions):
            # A repeated request has two answers. Tasks that were to continue may have been dropped before the first one.
            generation, kept = self._membership.assignment.generation, frozenset(self._partitions())
            if not self._answered and (message.generation, message.kept) == (generation, kept):
                self._begin(message)
        elif isinstance(message, StateRead):
            self._reads.add(message)
        elif isinstance(message, Settle):
            self._pausing.wish = message
        elif isinstance(message, Welcome):
            self._welcome = True
            self._schedule.outputs = message.outputs
        else:
            self._stop = message

    def _fulfil(self) -> None:
        """Pause tasks and commit everything, if the driver asks for it."""
        wish = self._pausing.wish
        if wish is None or self._membership.lost:
            return
        self._pausing.apply()
        awaiting = self._awaiting
        self._commit_all()
        self._awaiting = awaiting
        if self._cycle is None and not self._membership.has_pending_commit and self._pausing.wish is wish:
            self._pausing.wish = None
            self._link.send(Settled(wish.number))

    def _tell(self, *, at_once: bool = False) -> None:
        self._outbox.see(self._cycle, self._ends, self._is_quiet, self._is_open, at_once=at_once)

    def _ends(self) -> dict[TopicPartition, int]:
        """Return the end offsets of the partitions that are read to their ends, with all records processed."""
        if self._membership.away or self._parked is not None:
            # Newer records may exist.
            return {}
        return {
            partition: end
            for partition, end in self._feed.ends().items()
            if self._tasks.task_of(partition) not in self._turns
        }

    def _is_quiet(self) -> bool:
        """Return whether all partitions are read to their ends, with all records processed."""
        return self._is_open() and not self._turns and self._feed.ends().keys() >= self._partitions()

    def _is_open(self) -> bool:
        """Return whether the start positions of all tasks are known, and their stores are open."""
        return self._answered and all(task.is_open for task in self._tasks.assigned.values())

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
        if current is None or not self._tasks.assigned:
            self._tell()
            self._hear(_WAIT_S if self._answered else _JOIN_S)
        return current is not None and bool(self._tasks.assigned)

    def _owned(self) -> GroupAssignment | None:
        """Return the assignment that the task works on; None if it may be over."""
        group = self._membership
        if group.lost or group.wanted_back or not self._answered or self._halted:
            return None
        current = group.current()
        return current if current == group.assignment else None

    def _park(self) -> None:
        """Commit the processed work, and park the tasks that may come back with the next assignment."""
        self._commit_all()
        group = self._membership
        committed = not (group.lost or group.has_pending_commit or self._outbox.waiting or self._halted)
        # Tasks that are parked already were not in the assignment that is revoked now: another member may have owned
        # them.
        former, self._parked = self._parked, None
        if former is None and committed:
            self._release(task for task in self._tasks.assigned.values() if not task.is_open)
            for task in self._open_tasks():
                task.suspend()
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
            for task in list(self._tasks.assigned.values()):
                suspended = task.status is TaskStatus.SUSPENDED
                if suspended and current.partitions.issuperset(task.inputs) and keeps_its_changelogs(task):
                    task.resume()
                else:
                    self._release([task])
            self._parked, self._awaiting = None, False
            self._outbox.forget()
        self._ask(current)

    def _ask(self, current: GroupAssignment) -> None:
        """Request start offsets for the partitions that the task does not work on yet."""
        self._membership.assignment, self._answered = current, False
        self._link.send(AssignmentRequest(current.generation, current.partitions, frozenset(self._partitions())))

    def _begin(self, begin: StartPositions) -> None:
        """Start partitions at the offsets from the driver."""
        # A restart then begins at the same offsets, also if "latest" records arrive before the first commit.
        if begin.initial_offsets and not self._membership.commit_initial_offsets(begin.initial_offsets, begin.metadata):
            self._ask(self._membership.assignment)
            return
        self._answered = True
        self._membership.claims = {**self._membership.claims, **begin.claims}
        for task_id in sorted({self._tasks.task_of(partition) for partition in begin.positions}):
            task = self._tasks.assign(task_id, {each: begin.positions[each] for each in self._tasks.inputs(task_id)})
            task.stateful = frozenset(each for each in begin.stateful if each.partition == task_id.partition)
            task.durable.sent.update(begin.sent.get(task_id, {}))
            task.replaying = True
        self._waiting.keep(self._tasks.assigned)
        self._feed.add(begin.positions)
        self._pausing.apply()
        if self._cycle is not None:
            self._cycle.context = self._context()

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
        self._outbox.await_acks(self._hear, lambda: group.lost or (self._stop is not None and self._stop.discard))
        if group.has_pending_commit:
            group.commit({})

    def _abandon(self) -> None:
        """Drop the current cycle. Transactions committed in it are reported, because they are not repeated."""
        cycle, self._cycle = self._cycle, None
        if cycle is None:
            return
        cycle.close()
        if self._transactional and cycle.report.workers:
            self._halted = not self._schedule.count(cycle.report) or self._halted
            self._outbox.report(cycle.report, {})

    def _drop(self) -> None:
        """Release all partitions, and drop uncommitted work."""
        if self._cycle is not None:
            self._cycle.close()
            self._cycle = None
        self._release(self._tasks.assigned.values())
        self._parked = None
        self._answered = self._awaiting = False
        self._membership.forget()
        self._outbox.forget()

    def _release(self, tasks: Iterable[StreamTask]) -> None:
        """Close tasks without uncommitted work; another process may own them now."""
        released = list(tasks)
        partitions = {partition for task in released for partition in task.inputs}
        for task in released:
            self._tasks.release(task)
            self._turns.drop(task)
        self._waiting.drop(task.id for task in released)
        self._feed.remove(partitions)
        claims = self._membership.claims
        self._membership.claims = {partition: at for partition, at in claims.items() if partition not in partitions}

    def _open_tasks(self) -> list[StreamTask]:
        return [task for task in self._tasks.assigned.values() if task.is_open]

    def _partitions(self) -> set[TopicPartition]:
        """Return the input partitions of the assigned tasks."""
        return {partition for task in self._tasks.assigned.values() for partition in task.inputs}

    # -- Records -------------------------------------------------------------------------------------------------------

    def _ready(self) -> list[TaskId]:
        """Return the tasks that can be opened now."""
        closed = [task.id for task in self._tasks.assigned.values() if not task.is_open]
        return self._waiting.over(closed) if closed and not self._membership.away else []

    def _open(self) -> None:
        """Restore the stores of tasks for one time slice, and start reading for those that are ready."""
        opening = self._ready()
        if not opening:
            return
        # Shorter if other tasks work in between.
        seconds = _SLICE_S if self._open_tasks() else _RESTORE_S
        tasks = [self._tasks.assigned[task_id] for task_id in opening]
        before = {partition: at for task in tasks for partition, at in task.start.items()}
        report = self._tasks.restore(opening, replace(self._context(), time_limit_s=seconds))
        self._waiting.tried(opening, report.restored)
        for task in tasks:
            if not task.is_open:
                continue
            for partition, start in task.start.items():
                if start != before[partition]:
                    # Another attempt has already committed later offsets.
                    self._feed.seek(partition, start)
            self._feed.resume(task.inputs)
            if task.unfinished:
                self._turns.want(task.id)
        if self._cycle is not None:
            # Tasks whose work was aborted in this cycle start with the current context.
            self._cycle.context = self._context()
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
        cycle = self._begin_cycle()
        if abs(self._tasks.clients.now() - cycle.context.now) >= _STALE_MS:
            # Keep the wall clock of the context current for operators that use it.
            cycle.context = self._context()
        self._turns.run(cycle)
        self._examine(cycle)
        # Unprocessed records of crowded partitions would keep those of other partitions from being polled.
        crowded, relieved = self._turns.crowding()
        self._feed.pause(crowded)
        self._feed.resume(relieved)

    def _poll(self) -> list[Chunk]:
        wait = _WAIT_S
        if self._cycle is not None:
            wait = min(wait, self._schedule.left_s)
        if self._turns or self._ready():
            wait = 0.0
        wait = self._reads.longest_wait(wait)
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
        return [Chunk(partition.topic, partition.partition, *batch) for partition, batch in polled]

    def _tick(self, due: Collection[TaskId]) -> None:
        """Tick those of the due tasks that this process owns."""
        assigned = sorted(self._tasks.assigned.items())
        own = [task for each, task in assigned if each in due and each not in self._pausing and task.is_open]
        # While partitions are released, the results would not be committed.
        if not own or self._halted or self._awaiting or self._stop is not None:
            return
        cycle = self._begin_cycle()
        cycle.context = self._context()
        cycle.begin_slice()
        for task in own:
            # A sink may have been flushed for the previous task, and have rejected the records of this one.
            if task.is_open:
                if not cycle.tick(task.id):
                    self._turns.want(task.id)
                self._examine(cycle)
        self._tell(at_once=True)

    def _begin_cycle(self) -> WorkCycle:
        if self._cycle is None:
            self._cycle = self._tasks.begin(self._context())
            self._schedule.begin()
        return self._cycle

    def _context(self) -> BatchContext:
        return BatchContext(
            time_limit_s=_SLICE_S,
            output_limit=self._schedule.outputs,
            now=self._tasks.clients.now(),
            watermarks=self._time.watermarks,
            others=self._time.others,
            claims=self._membership.claims,
            record_limit=self._schedule.most,
            final=self._time.final,
        )

    def _examine(self, cycle: WorkCycle) -> None:
        """Handle tasks whose work was aborted, and errors in the report."""
        self._rewind(cycle)
        self._meet(cycle.report)

    def _rewind(self, cycle: WorkCycle) -> None:
        """Rewind the tasks that must be opened again, so that their uncommitted records are read again."""
        for task in sorted(cycle.drain_aborted(), key=lambda each: each.id):
            self._turns.drop(task)
            self._feed.pause(task.inputs)
            for partition, start in task.start.items():
                self._feed.seek(partition, start)
            task.replaying = True
            task.reported.times.clear()

    def _catch_up(self) -> None:
        """Note which tasks have re-read all records of earlier attempts: those at the ends of their inputs."""
        behind = [task for task in self._open_tasks() if task.replaying]
        ends = self._feed.ends().keys() if behind else ()
        for task in behind:
            task.replaying = task.id in self._turns or not set(task.inputs).issubset(ends)

    def _meet(self, report: Report) -> None:
        """Make tasks with retriable errors wait, and report them."""
        if not report.stalled and not report.interrupted and not report.locked:
            return
        told = Report(stalled=dict(report.stalled), interrupted=dict(report.interrupted), locked=dict(report.locked))
        self._link.send(ProgressUpdate(told))
        self._waiting.meet(report)
        for task_id in (*report.interrupted, *report.locked):
            self._tasks.assigned[task_id].last_committer = False
        report.stalled.clear()
        report.interrupted.clear()
        report.locked.clear()

    # -- Commits -------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Commit the work of the cycle, and report it to the driver."""
        if self._cycle is None or self._membership.lost:
            return
        cycle, self._cycle = self._cycle, None
        self._schedule.settle()
        try:
            report = self._tasks.end(cycle)
        finally:
            cycle.close()
        moved = {partition: done.end for partition, done in report.ranges.items() if done.end > done.start}
        for partition in moved:
            self._waiting.got_on(self._tasks.task_of(partition))
        self._rewind(cycle)
        self._meet(report)
        self._halted = not self._schedule.count(report) or self._halted
        self._send(report, moved)

    def _pass_markers(self) -> None:
        """Move the group past transaction markers at the ends of partitions: they are not records, but count as lag."""
        now = self._clock()
        if self._outbox.waiting or now - self._passed_at < self._settings.commit_interval:
            return
        self._passed_at = now
        ends = self._feed.ends()
        tasks = self._open_tasks()
        self._waiting.forgive({task.id for task in tasks if ends.keys() >= set(task.inputs)})
        self._markers.pass_by(tasks)

    def _send(self, report: Report, offsets: Mapping[TopicPartition, int]) -> None:
        self._outbox.report(report, {} if self._transactional else offsets, self._sent_for(offsets))
        if self._transactional and offsets:
            self._link.send(Committed(offsets))

    def _sent_for(self, offsets: Iterable[TopicPartition]) -> dict[TopicPartition, dict[str, Sent]]:
        """Return the event times sent into exchanges, for commits of input partitions."""
        assigned, task_of = self._tasks.assigned, self._tasks.task_of
        found = {partition: assigned[task_of(partition)].sent_for_commit() for partition in offsets}
        return {partition: sent for partition, sent in found.items() if sent}
