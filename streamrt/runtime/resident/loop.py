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

from streamrt.common.throttle import Throttle
from streamrt.errors import OffsetOutOfRangeError, StreamRTError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.membership.group_state import GroupAssignment
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.link_messages import (
    Ack,
    AssignmentRequest,
    Committed,
    CutDone,
    CutRequest,
    Ended,
    Failed,
    Follow,
    JoinAgain,
    Joined,
    Link,
    ProgressUpdate,
    Settle,
    Settled,
    StartPositions,
    StateRead,
    Stop,
    Time,
    TopicsDoubted,
    ToTask,
    Welcome,
)
from streamrt.runtime.report import Report
from streamrt.runtime.resident.commit_schedule import CommitSchedule, ResidentSettings
from streamrt.runtime.resident.deliveries import Deliveries
from streamrt.runtime.resident.markers import EndMarkers
from streamrt.runtime.resident.membership import NO_ASSIGNMENT, Membership
from streamrt.runtime.resident.outbox import Outbox
from streamrt.runtime.resident.parking import Parked, keeps_its_changelogs
from streamrt.runtime.resident.pausing import GatedFeed, Pausing
from streamrt.runtime.resident.resident_feed import Feed, Join
from streamrt.runtime.resident.standbys import Standbys
from streamrt.runtime.resident.state_reads import ResidentReads
from streamrt.runtime.resident.turns import Turns
from streamrt.runtime.resident.upkeep import Upkeep
from streamrt.runtime.resident.waiting import WaitingTasks
from streamrt.runtime.sent import Sent
from streamrt.runtime.tasks.stores.task_stores import ask_ends
from streamrt.runtime.tasks.stream_task import StreamTask, TaskStatus
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.runtime.tasks.work_cycle import WorkCycle
from streamrt.runtime.topic_identity import InputIdentity
from streamrt.topology import TaskId

__all__ = ["ResidentLoop", "ResidentSettings"]

logger = logging.getLogger("streamrt")

_WAIT_S = 0.1
# confluent-kafka wakes its thread every 0.2 s, however long it is to wait.
_IDLE_WAIT_S = 0.2
_IDLE_AFTER_S = 1.0
_REST_S = 2.0
_JOIN_S = 0.02
_SLICE_S = 0.2
_RESTORE_S = 1.0
_STALE_MS = 100
_WARN_S = 30.0
_SHORTEST_PATIENCE_S = 0.0005
_LONGEST_PATIENCE_S = 0.02
_PATIENCE_GROWTH = 1.25


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
        identity: says whether the inputs are still the same topics, which the feed doubts after errors; by default, one that
            only errors of commits concern.
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
        identity: InputIdentity | None = None,
    ) -> None:
        self._tasks = tasks
        self._feed = GatedFeed(feed)
        self._identity = identity or InputIdentity(
            lambda topics: tasks.clients.topic_ids(topics), tasks.spec.topic_ids, clock=clock
        )
        self._warned = Throttle(_WARN_S, clock)
        self._membership = Membership(join, link, tasks.spec, self._identity)
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
        # How often work was aborted, and which number this had for a task whose event times the driver may still count.
        self._rewinds = 0
        self._rewound: dict[TaskId, int] = {}
        # The assignment.
        self._answered = False
        self._awaiting = False
        self._parked: Parked | None = None
        # Tasks that must wait before they are opened again.
        self._waiting = WaitingTasks(None if spec.state is None else spec.state.options, clock)
        # The work.
        self._cycle: WorkCycle | None = None
        self._turns = Turns(tasks.task_of, tasks.spec.topology.awaited_exchanges)
        self._pausing = Pausing(self._feed, self._turns, tasks)
        self._markers = EndMarkers(self._feed, self._membership, tasks, self._sent_for, clock)
        self._halted = False
        self._passed_at = self._worked_at = 0.0
        # Until then, only records and news end the rest of an idle task.
        self._rests_until = float("-inf")
        self._patience_s = _SHORTEST_PATIENCE_S
        self._outbox = Outbox(link, tasks, clock)
        self._deliveries = Deliveries(link, tasks, clock)
        self._reads = ResidentReads(link, clock)
        self._standbys = Standbys(tasks.followed_stores, clock)
        self._upkeep = Upkeep(clock) if upkeep is None else upkeep

    def run(self) -> None:
        """Work until the driver sends `Stop`.

        Raises:
            LinkClosed: if the driver is gone; uncommitted work is dropped.
        """
        try:
            self._link.send(Joined(self._settings.slot, self._settings.attempt))
            while not self._welcome and self._stop is None:
                self._receive_messages(_WAIT_S)
            if self._stop is None:
                self._membership.start()
                # Meanwhile, the group forms.
                self._tasks.warm_up()
            while self._stop is None:
                self.step()
            self._release_at_end()
        except StreamRTError as error:
            # Send this first: the cleanup below may fail for the same reason.
            self._link.send(Failed(error))
        finally:
            try:
                self._standbys.close()
                self._release_all()
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
        self._receive_messages(0.0)
        self._apply_run_request()
        if self._stop is not None or self._rests():
            return
        follows = self._follow_assignment()
        self._follow_others()
        self._reads.answer(self._owned_assignment(), lambda read: self._tasks.assigned.get(read.read.task))
        if not follows:
            return
        if self._halted or self._outbox.full or not self._may_commit():
            self._receive_messages(_WAIT_S)
            return
        self._restore_tasks()
        self._process_records()
        self._end_replays()
        self._send_progress()
        if self._cycle is None:
            if not self._turns and not self._turns.awaits_cut:
                self._pass_markers()
        elif self._schedule.is_due(self._cycle.report, paused=self._cycle.paused):
            self._commit_cycle()
        self._deliveries.send(self._cycle, self._reached_ends)
        self._upkeep.step(task for task in self._tasks.assigned.values() if task.is_open)

    # -- The driver --------------------------------------------------------------------------------------------------

    def _receive_messages(self, timeout_s: float) -> None:
        for message in self._link.receive(timeout_s):
            self._rests_until = float("-inf")
            self._handle_message(message)

    def _handle_message(self, message: ToTask) -> None:
        if isinstance(message, Ack):
            offsets, sent = self._outbox.acknowledged(message.number)
            if offsets:
                self._membership.commit(offsets, sent)
        elif isinstance(message, CutDone):
            self._turns.complete_cut(message.stream, message.number, message.ends)
            self._patience_s = _SHORTEST_PATIENCE_S
        elif isinstance(message, Time):
            self._time = self._without_rewound(message)
            self._pausing.align(message.ahead)
            self._tick_tasks(self._time.due)
        elif isinstance(message, StartPositions):
            # A repeated request has two answers. Tasks that were to continue may have been dropped before the first one.
            generation, kept = self._membership.assignment.generation, frozenset(self._input_partitions())
            if not self._answered and (message.generation, message.kept) == (generation, kept):
                self._begin_partitions(message)
        elif isinstance(message, StateRead):
            self._reads.add(message)
        elif isinstance(message, Settle):
            self._pausing.run_request = message
        elif isinstance(message, Follow):
            if self._answered and message.generation == self._membership.assignment.generation:
                self._standbys.follow(message.tasks)
        elif isinstance(message, TopicsDoubted):
            for topic, reason in message.reasons.items():
                self._identity.doubt(reason, [topic])
        elif isinstance(message, JoinAgain):
            if not self._answered:
                self._membership.join_again()
        elif isinstance(message, Welcome):
            self._welcome = True
            self._schedule.outputs = message.outputs
        else:
            self._stop = message

    def _apply_run_request(self) -> None:
        """Pause tasks and commit everything, if the driver asks for it."""
        run_request = self._pausing.run_request
        if run_request is None or self._membership.lost:
            return
        self._pausing.apply()
        awaiting = self._awaiting
        self._commit_all()
        self._awaiting = awaiting
        if self._cycle is None and not self._membership.has_pending_commit and self._pausing.run_request is run_request:
            self._pausing.run_request = None
            self._link.send(Settled(run_request.number))

    def _send_progress(self, *, at_once: bool = False) -> None:
        self._outbox.see(self._cycle, self._reached_ends, self._is_quiet, self._is_open, at_once=at_once)

    def _reached_ends(self) -> dict[TopicPartition, int]:
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
        waits = bool(self._turns) or self._turns.awaits_cut
        return self._is_open() and not waits and self._feed.ends().keys() >= self._input_partitions()

    def _is_open(self) -> bool:
        """Return whether the start positions of all tasks are known, and their stores are open."""
        return self._answered and all(task.is_open for task in self._tasks.assigned.values())

    # -- The group -----------------------------------------------------------------------------------------------------

    def _follow_others(self) -> None:
        """Follow the changelogs of tasks that other instances have, for a moment."""
        if self._standbys.step():
            news = {self._tasks.clients.worker: dict(self._standbys.left)}
            self._link.send(ProgressUpdate(Report(standbys=news)))

    def _follow_assignment(self) -> bool:
        """Follow the group: release revoked partitions, and request start offsets for new ones.

        Returns:
            Whether there are partitions to work on.
        """
        group = self._membership
        if group.lost:
            self._standbys.close()
            group.assignment = NO_ASSIGNMENT
            self._abandon_cycle()
            self._release_all()
            # If the driver has given up this task meanwhile, its message is handled now.
            self._receive_messages(_WAIT_S)
            group.accept_loss()
        if group.revocation_pending:
            # The next assignment may be of the tasks that it follows, here or in another slot.
            self._standbys.close()
            self._park_tasks()
            group.acknowledge_revocation()
        current = group.current()
        if current is not None and current.generation != group.assignment.generation:
            self._apply_assignment(current)
        elif self._parked is not None and self._parked.is_expired(self._clock()):
            self._release_all()
        if current is None or not self._tasks.assigned:
            self._send_progress()
            self._receive_messages(_WAIT_S if self._answered else _JOIN_S)
        return current is not None and bool(self._tasks.assigned)

    def _owned_assignment(self) -> GroupAssignment | None:
        """Return the assignment that the task works on; None if it may be over."""
        group = self._membership
        if group.lost or group.revocation_pending or not self._answered or self._halted:
            return None
        current = group.current()
        return current if current == group.assignment else None

    def _park_tasks(self) -> None:
        """Commit the processed work, and park the tasks that may come back with the next assignment."""
        self._commit_all()
        group = self._membership
        uncommitted = self._cycle is not None or group.has_pending_commit or self._outbox.waiting
        committed = not (group.lost or uncommitted or self._halted)
        # Tasks that are parked already were not in the assignment that is revoked now: another member may have owned
        # them.
        former, self._parked = self._parked, None
        if former is None and committed:
            self._release_tasks(task for task in self._tasks.assigned.values() if not task.is_open)
            for task in self._open_tasks():
                task.suspend()
            self._parked = Parked(group.assignment.generation, self._clock())
            # Ignore a late answer for this assignment.
            group.assignment, self._answered = NO_ASSIGNMENT, False
        self._send_progress(at_once=True)
        if self._parked is None:
            self._release_all()

    def _apply_assignment(self, current: GroupAssignment) -> None:
        """Continue parked tasks that have come back, close all others, and request start offsets for new partitions."""
        self._standbys.close()
        parked = self._parked
        own = self._input_partitions()
        if parked is None and own and current.holds(self._membership.assignment.generation, own):
            # Partitions were added, and none was revoked.
            self._request_start_positions(current)
            return
        kept = current.kept(parked.generation) if parked is not None and not self._membership.lost else frozenset()
        if not kept:
            self._release_all()
        else:
            tasks = list(self._tasks.assigned.values())
            staying = [each for each in tasks if each.status is TaskStatus.SUSPENDED and kept.issuperset(each.inputs)]
            ask_ends(self._tasks.clients, [task.stores for task in staying])
            staying = [task for task in staying if keeps_its_changelogs(task)]
            for task in staying:
                task.resume()
            self._release_tasks(task for task in tasks if task not in staying)
            self._parked, self._awaiting = None, False
            self._outbox.forget()
            self._deliveries.forget()
        self._request_start_positions(current)

    def _request_start_positions(self, current: GroupAssignment) -> None:
        """Request start offsets for the partitions that the task does not work on yet."""
        self._membership.assignment, self._answered = current, False
        self._link.send(AssignmentRequest(current.generation, current.partitions, frozenset(self._input_partitions())))

    def _begin_partitions(self, begin: StartPositions) -> None:
        """Start partitions at the offsets from the driver."""
        # A restart then begins at the same offsets, also if "latest" records arrive before the first commit.
        if begin.initial_offsets and not self._membership.commit_initial_offsets(begin.initial_offsets, begin.metadata):
            self._request_start_positions(self._membership.assignment)
            return
        self._answered = True
        self._membership.claims = {**self._membership.claims, **begin.claims}
        begun = {self._tasks.task_of(partition) for partition in begin.positions}
        # What the driver said before counts records that are read again. It says it once more.
        self._time = self._time.of(self._tasks.assigned.keys() - begun)
        for task_id in sorted(begun):
            task = self._tasks.assign(task_id, {each: begin.positions[each] for each in self._tasks.inputs(task_id)})
            task.stateful = frozenset(each for each in begin.stateful if each.partition == task_id.partition)
            task.durable.sent.update(begin.sent.get(task_id, {}))
            task.replaying = True
        self._waiting.keep(self._tasks.assigned)
        self._feed.add(begin.positions)
        self._pausing.apply()
        if self._cycle is not None:
            self._cycle.context = self._batch_context()

    def _release_at_end(self) -> None:
        """Commit the processed work unless it is to be discarded, and release all partitions."""
        if self._stop is not None and self._stop.discard:
            self._abandon_cycle()
        else:
            self._commit_all()
            self._send_progress(at_once=True)
        self._release_all()

    def _commit_all(self) -> None:
        """Commit the processed work, and offsets whose commit failed before."""
        group = self._membership
        self._commit_cycle()
        self._awaiting = True
        # The answer of the driver to a report triggers the commit of its offsets.
        self._outbox.await_acks(
            self._receive_messages, lambda: group.lost or (self._stop is not None and self._stop.discard)
        )
        if group.has_pending_commit:
            group.commit({})

    def _abandon_cycle(self) -> None:
        """Drop the current cycle. Transactions committed in it are reported, because they are not repeated."""
        cycle, self._cycle = self._cycle, None
        if cycle is None:
            return
        cycle.close()
        if self._transactional and cycle.report.workers:
            self._halted = not self._schedule.count(cycle.report) or self._halted
            self._outbox.report(cycle.report, {})

    def _release_all(self) -> None:
        """Release all partitions, and drop uncommitted work."""
        if self._cycle is not None:
            self._cycle.close()
            self._cycle = None
        self._release_tasks(self._tasks.assigned.values())
        self._parked = None
        self._answered = self._awaiting = False
        self._membership.forget()
        self._outbox.forget()
        self._deliveries.forget()

    def _release_tasks(self, tasks: Iterable[StreamTask]) -> None:
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

    @property
    def _all_open(self) -> bool:
        return all(task.is_open for task in self._tasks.assigned.values())

    def _input_partitions(self) -> set[TopicPartition]:
        """Return the input partitions of the assigned tasks."""
        return {partition for task in self._tasks.assigned.values() for partition in task.inputs}

    # -- Records -------------------------------------------------------------------------------------------------------

    def _openable_tasks(self) -> list[TaskId]:
        """Return the tasks that can be opened now."""
        closed = [task.id for task in self._tasks.assigned.values() if not task.is_open]
        return self._waiting.ready_tasks(closed) if closed and not self._membership.away else []

    def _restore_tasks(self) -> None:
        """Restore the stores of tasks for one time slice, and start reading for those that are ready."""
        opening = self._openable_tasks()
        if not opening:
            return
        # Shorter if other tasks work in between.
        seconds = _SLICE_S if self._open_tasks() else _RESTORE_S
        tasks = [self._tasks.assigned[task_id] for task_id in opening]
        before = {partition: at for task in tasks for partition, at in task.start.items()}
        report = self._tasks.restore(opening, replace(self._batch_context(), time_limit_s=seconds))
        self._waiting.record_attempt(opening, report.restored)
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
            self._cycle.context = self._batch_context()
        if report.restores:
            self._link.send(ProgressUpdate(Report(restores=report.restores)))
        self._handle_retriable_errors(report)
        if report.failure is not None:
            self._halted = True
            self._send_report(report, {})

    def _process_records(self) -> None:
        """Poll and process the next records."""
        self._turns.add(self._poll_records())
        for stream, number in self._turns.request_cuts().items():
            self._link.send(CutRequest(number, stream))
        if self._turns:
            self._run_turns()
        # Unprocessed records of crowded partitions would keep those of other partitions from being polled.
        crowded, relieved = self._turns.crowding()
        self._feed.pause(crowded)
        self._feed.resume(relieved)

    def _run_turns(self) -> None:
        self._upkeep.worked()
        cycle = self._begin_cycle()
        if abs(self._tasks.clients.now() - cycle.context.now) >= _STALE_MS:
            # Keep the wall clock of the context current for operators that use it.
            cycle.context = self._batch_context()
        self._turns.run(cycle)
        self._handle_outcomes(cycle)

    def _rests(self) -> bool:
        """Wait for records, as an idle task does most of the time; return whether there is nothing to do but to wait."""
        group = self._membership
        if self._clock() >= self._rests_until:
            return False
        if group.lost or group.revocation_pending or group.current() != group.assignment:
            self._rests_until = float("-inf")
            return False
        ends = self._feed.ends()
        try:
            polled = self._feed.poll(_IDLE_WAIT_S, self._turns.room)
        except (OffsetOutOfRangeError, KafkaRequestError):
            # The next poll raises it again, and it is handled there.
            self._rests_until = float("-inf")
            return False
        if polled or self._feed.ends() != ends:
            self._rests_until = float("-inf")
            self._turns.add(_chunks_of(polled))
        return not polled

    def _poll_records(self) -> list[Chunk]:
        wait = _WAIT_S
        if self._cycle is not None or self._outbox.waiting:
            self._worked_at = self._clock()
        elif not self._outbox.watched and self._clock() - self._worked_at >= _IDLE_AFTER_S:
            # Records end the wait; messages of the driver do not.
            wait = _IDLE_WAIT_S
        if self._turns.awaits_cut or self._deliveries.pending:
            # The answer, or the delivery, comes soon.
            self._patience_s = min(_LONGEST_PATIENCE_S, _PATIENCE_GROWTH * self._patience_s)
            wait = min(wait, self._patience_s)
        else:
            self._patience_s = _SHORTEST_PATIENCE_S
        if self._turns or self._openable_tasks():
            wait = 0.0
        wait = self._reads.longest_wait(wait)
        records = self._turns.room
        try:
            polled = self._feed.poll(0.0, records)
            self._schedule.caught_up = not polled and not self._turns
            if self._cycle is not None:
                wait = min(wait, self._schedule.left_s)
            if not polled and wait > 0:
                if not self._transactional:
                    # With exactly-once, lingering records are invisible before the commit anyway.
                    self._tasks.clients.send_pending()
                polled = self._feed.poll(wait, records)
                self._schedule.caught_up = not polled and not self._turns
        except (OffsetOutOfRangeError, KafkaRequestError) as error:
            if isinstance(error, KafkaRequestError) and not error.retriable:
                raise
            # The driver answers once brokers are reachable.
            logger.warning("%s; requesting new start offsets", error)
            self._commit_all()
            self._release_all()
            self._request_start_positions(self._membership.assignment)
            return []
        if wait == _IDLE_WAIT_S and not (polled or self._standbys.following) and self._all_open:
            self._rests_until = self._clock() + _REST_S
        return _chunks_of(polled)

    def _tick_tasks(self, due: Collection[TaskId]) -> None:
        """Tick those of the due tasks that this process owns."""
        assigned = sorted(self._tasks.assigned.items())
        own = [task for each, task in assigned if each in due and each not in self._pausing and task.is_open]
        # While partitions are released, the results would not be committed.
        if not own or self._halted or self._awaiting or self._stop is not None:
            return
        cycle = self._begin_cycle()
        cycle.context = self._batch_context()
        cycle.begin_slice()
        for task in own:
            # A sink may have been flushed for the previous task, and have rejected the records of this one.
            if task.is_open:
                if not cycle.tick(task.id):
                    self._turns.want(task.id)
                self._handle_outcomes(cycle)
        self._send_progress(at_once=True)

    def _begin_cycle(self) -> WorkCycle:
        if self._cycle is None:
            self._cycle = self._tasks.begin(self._batch_context())
            self._schedule.begin()
        return self._cycle

    def _batch_context(self) -> BatchContext:
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

    def _handle_outcomes(self, cycle: WorkCycle) -> None:
        """Handle tasks whose work was aborted, and errors in the report."""
        self._rewind_aborted(cycle)
        self._handle_retriable_errors(cycle.report)

    def _rewind_aborted(self, cycle: WorkCycle) -> None:
        """Rewind the tasks that must be opened again, so that their uncommitted records are read again."""
        rewound = set[TaskId]()
        for task in sorted(cycle.drain_aborted(), key=lambda each: each.id):
            self._turns.drop(task)
            self._feed.pause(task.inputs)
            for partition, start in task.start.items():
                self._feed.seek(partition, start)
            task.replaying = True
            # The driver forgets both as well.
            task.reported.times.clear()
            task.reported.positions.forget(task.inputs)
            rewound.add(task.id)
        if rewound:
            self._rewinds += 1
            self._rewound.update(dict.fromkeys(rewound, self._rewinds))
            self._time = self._time.of(self._tasks.assigned.keys() - rewound)
            self._link.send(ProgressUpdate(Report(), rewound=frozenset(rewound), rewinds=self._rewinds))

    def _without_rewound(self, known: Time) -> Time:
        """Return what the driver says, without the tasks for which it counts work that was aborted."""
        heard = self._rewinds if known.rewinds is None else known.rewinds
        stale = {task for task, rewind in self._rewound.items() if rewind > heard}
        self._rewound = {task: rewind for task, rewind in self._rewound.items() if task in stale}
        if not stale:
            return known
        return replace(known.of(self._tasks.assigned.keys() - stale), due=known.due - stale, rewinds=known.rewinds)

    def _end_replays(self) -> None:
        """Note which tasks have re-read all records of earlier attempts: those at the ends of their inputs."""
        behind = [task for task in self._open_tasks() if task.replaying]
        ends = self._feed.ends().keys() if behind else ()
        for task in behind:
            task.replaying = task.id in self._turns or not set(task.inputs).issubset(ends)

    def _handle_retriable_errors(self, report: Report) -> None:
        """Make tasks with retriable errors wait, and report them."""
        if not report.stalled and not report.interrupted and not report.locked:
            return
        told = Report(stalled=dict(report.stalled), interrupted=dict(report.interrupted), locked=dict(report.locked))
        self._link.send(ProgressUpdate(told))
        self._waiting.record_errors(report)
        for task_id in (*report.interrupted, *report.locked):
            self._tasks.assigned[task_id].last_committer = False
        report.stalled.clear()
        report.interrupted.clear()
        report.locked.clear()

    # -- Commits -------------------------------------------------------------------------------------------------------

    def _may_commit(self) -> bool:
        """Return whether offsets can be committed; if not, it is open whether the inputs are still the same topics.

        Raises:
            StaleTokenError: if one is another topic.
            KafkaRequestError: if this stays open for too long.
        """
        try:
            self._identity.require()
        except KafkaRequestError as error:
            if not error.retriable:
                raise
            logger.log(logging.WARNING if self._warned.admit() else logging.DEBUG, "%s; retrying", error)
            return False
        return True

    def _commit_cycle(self) -> None:
        """Commit the work of the cycle, and report it to the driver."""
        if self._cycle is None or self._membership.lost or not self._may_commit():
            return
        cycle, self._cycle = self._cycle, None
        begun = self._clock()
        try:
            report = self._tasks.end(cycle)
        finally:
            cycle.close()
        self._schedule.record_commit(begun)
        moved = {partition: done.end for partition, done in report.ranges.items() if done.end > done.start}
        for partition in moved:
            self._waiting.record_progress(self._tasks.task_of(partition))
        self._rewind_aborted(cycle)
        self._handle_retriable_errors(report)
        self._halted = not self._schedule.count(report) or self._halted
        self._send_report(report, moved)

    def _pass_markers(self) -> None:
        """Move the group past transaction markers at the ends of partitions: they are not records, but count as lag."""
        now = self._clock()
        if self._outbox.waiting or now - self._passed_at < self._settings.commit_interval:
            return
        self._passed_at = now
        ends = self._feed.ends()
        tasks = self._open_tasks()
        self._waiting.reset_backoff({task.id for task in tasks if ends.keys() >= set(task.inputs)})
        self._markers.pass_by(tasks)

    def _send_report(self, report: Report, offsets: Mapping[TopicPartition, int]) -> None:
        self._outbox.report(report, {} if self._transactional else offsets, self._sent_for(offsets))
        if self._transactional and offsets:
            self._link.send(Committed(offsets))

    def _sent_for(self, offsets: Iterable[TopicPartition]) -> dict[TopicPartition, dict[str, Sent]]:
        """Return the event times sent into exchanges, for commits of input partitions."""
        assigned, task_of = self._tasks.assigned, self._tasks.task_of
        found = {partition: assigned[task_of(partition)].sent_for_commit() for partition in offsets}
        return {partition: sent for partition, sent in found.items() if sent}


def _chunks_of(polled: Iterable[tuple[TopicPartition, InputBatch]]) -> list[Chunk]:
    return [Chunk(partition.topic, partition.partition, *batch) for partition, batch in polled]
