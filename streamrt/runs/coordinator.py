"""The driver's side of resident tasks: answers their requests, handles their reports, and sends them event time."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from streamrt.errors import StateUnavailableError
from streamrt.event_time.cut_requests import CutRequests
from streamrt.event_time.event_time import EventTime, StepClock
from streamrt.event_time.merge_cuts import MergeCuts
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.membership.group_state import GroupFencedError
from streamrt.records import TopicPartition
from streamrt.runs.driver_reads import SlotReads, not_owned
from streamrt.runs.formation import HANDOVER_S, Formation
from streamrt.runs.processed_purge import ProcessedPurge
from streamrt.runs.report_handler import ReportHandler
from streamrt.runs.restore_display import RestoreDisplay
from streamrt.runs.start_positions import Start, StartOffsets
from streamrt.runs.time_requests import TimeRequests
from streamrt.runs.whole_tasks import WholeTasks
from streamrt.runtime.driver.life.lifecycle import RunRequest
from streamrt.runtime.link_messages import (
    Ack,
    AssignmentRequest,
    BatchDone,
    Committed,
    CutRequest,
    Delivered,
    Ended,
    Failed,
    Follow,
    FromTask,
    IdleChanged,
    JoinAgain,
    Joined,
    Opened,
    ProgressUpdate,
    Settle,
    Settled,
    StartPositions,
    StateRows,
    Stop,
    Time,
    TopicsDoubted,
    Welcome,
)
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.runtime.report import Report
from streamrt.runtime.sent import sent_times
from streamrt.slots.worker_link import TaskLink
from streamrt.topology import TaskId, Topology

__all__ = ["ResidentCoordinator"]

logger = logging.getLogger("streamrt")

_RETRY_S = 0.1
_LOOK_S = 0.05
_REMIND_S = 1.0
_GONE_S = 30.0
_CUT_S = 0.02
_NEVER = float("-inf")
_NO_TIME = Time({}, frozenset())


@dataclass(eq=False)
class WorkerHandle:
    """State of one slot's task.

    Attributes:
        link: the connection; None while there is none.
        whole: holds back partitions that the task cannot process.
        attempt: number of the last attempt that has joined.
        drained: set when the last attempt that has joined sends nothing more.
        assigned: its input partitions; None until the task has reported them.
        question: its last request for start positions; None before the first.
        asked_at: time of that request.
        holds: input partitions whose stores it may have open.
        positions: its start positions.
        quiet: whether all its input is currently read to the ends.
        opened: whether the stores of all its tasks are open since its last request.
        moved: whether it has finished any work.
        lost_at: time at which the connection was lost before the task had ended.
        times: the last event times sent to it, and the operators of its tasks that it was asked to finish.
        reminded: time of the last message to it that tasks are due.
        rewinds: how often it has aborted work, as it has reported.
        told: number of the last request that was sent to it.
        settled: number of the last request that it has fulfilled.
        follows: the tasks of other instances whose stores it was told to follow, since its last request.
    """

    link: TaskLink | None
    whole: WholeTasks
    attempt: int = 0
    drained: threading.Event | None = None
    assigned: frozenset[TopicPartition] | None = None
    question: AssignmentRequest | None = None
    generation: int = 0
    asked_at: float = _NEVER
    holds: frozenset[TopicPartition] = frozenset()
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    quiet: bool = False
    opened: bool = False
    moved: bool = False
    ended: bool = False
    lost_at: float | None = None
    times: Time = _NO_TIME
    reminded: dict[TaskId, float] = field(default_factory=dict)
    rewinds: int = 0
    told: int = 0
    settled: int = 0
    follows: frozenset[TaskId] = frozenset()

    def join(self, link: TaskLink, attempt: int, drained: threading.Event) -> None:
        """Begin the next attempt; the assignment of the previous one counts until this one reports its own."""
        if self.link is not None:
            self.link.close()
        self.link, self.attempt, self.drained = link, attempt, drained
        self.ended, self.lost_at = False, None
        self.question, self.generation, self.holds = None, 0, frozenset()
        self.quiet = self.opened = False
        self.times, self.reminded, self.rewinds = _NO_TIME, {}, 0
        self.told = self.settled = 0
        self.follows = frozenset()


class ResidentCoordinator:
    """Serves the tasks of one job, each connection in a separate thread.

    Args:
        formation: knows the number of tasks, and how long they wait for each other.
        topology: the operators, resolved.
        results: handles the reports of tasks.
        offsets: finds start positions.
        wait_for_broker: returns when a broker answers; raises if none does for too long.
        purge: receives committed offsets.
        event_time: decides about event time; it outlives the jobs.
        requests: requests data for event time from Kafka.
        cuts: makes the cuts that merges behind exchanges wait for.
        fail: called with an error that must end the application.
        transactional: whether tasks commit their own work.
        restarted: called with the slot of a task that was started again, before it joins the group.
    """

    def __init__(
        self,
        formation: Formation,
        topology: Topology,
        results: ReportHandler,
        offsets: StartOffsets,
        wait_for_broker: Callable[[], None],
        purge: ProcessedPurge,
        event_time: EventTime,
        requests: TimeRequests,
        cuts: MergeCuts,
        fail: Callable[[BaseException], None],
        *,
        transactional: bool,
        restarted: Callable[[int], None] = lambda slot: None,
    ) -> None:
        self.count = formation.count
        self._restarted = restarted
        self._topology = topology
        self._results = results
        self._offsets = offsets
        self._wait_for_broker = wait_for_broker
        self._purge = purge
        self._time = event_time
        self._requests = requests
        self._clock = StepClock()
        self._fail = fail
        self._transactional = transactional
        self._slots: dict[int, WorkerHandle] = {}
        self._formation = formation
        self._stateful = any(map(topology.task_stores, topology.streams))
        self._run_request = RunRequest()
        self._stop: Stop | None = None
        self._stopping = threading.Event()
        self._restores = RestoreDisplay()
        self._restoring: set[tuple[TaskId, str]] = set()
        # Never held during a request, a write or a call of user code.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._purging = threading.Lock()
        self._reads = SlotReads()
        self._cuts = cuts
        self._cut_requests = CutRequests(cuts)
        self._cut_news = threading.Event()
        self._cutting: threading.Thread | None = None
        if cuts.streams:
            self._cutting = threading.Thread(target=self._make_cuts, name="streamrt-cuts", daemon=True)
            self._cutting.start()

    # -- For the thread that runs the application ------------------------------------------------------------------

    @property
    def joined(self) -> int:
        """Number of tasks that have begun."""
        return len(self._slots)

    def empty(self, timeout_s: float = 0.0) -> bool:
        """Return whether no task is connected; wait until that is so.

        Args:
            timeout_s: seconds to wait.
        """
        with self._changed:
            return self._changed.wait_for(lambda: all(slot.link is None for slot in self._slots.values()), timeout_s)

    @property
    def working(self) -> bool:
        """Whether a task has start positions."""
        with self._lock:
            return any(slot.positions for slot in self._slots.values())

    @property
    def idle(self) -> bool:
        """Whether the tasks are connected and none of them has a partition."""
        with self._lock:
            return self._all_tasks(lambda slot: not slot.assigned)

    @property
    def quiet(self) -> bool:
        """Whether the tasks are connected and have read and processed all assigned partitions to their ends."""
        with self._lock:
            return self._all_tasks(lambda slot: slot.quiet)

    @property
    def opened(self) -> bool:
        """Whether the tasks are connected, and the stores of all assigned partitions are restored and open."""
        with self._lock:
            return self._all_tasks(lambda slot: slot.opened)

    def gone(self) -> bool:
        """Return whether a task has been gone for so long that it will not be restarted."""
        now = time.monotonic()
        with self._lock:
            return any(slot.lost_at is not None and now - slot.lost_at >= _GONE_S for slot in self._slots.values())

    def moved(self) -> bool:
        """Return, after the job has failed, whether the task that failed first had finished any work in it."""
        with self._lock:
            lost = [(slot.lost_at, slot.moved) for slot in self._slots.values() if slot.lost_at is not None]
            # When a job fails, the other tasks are also killed: the first lost task is the cause.
            return self._is_complete() and bool(lost) and min(lost)[1]

    @property
    def restoring(self) -> bool:
        """Whether stores are being restored."""
        with self._lock:
            return bool(self._restoring)

    def apply_run_request(self, run_request: RunRequest) -> bool:
        """Send a request of the application's callers to all tasks, and to those that begin later.

        Args:
            run_request: the request.

        Returns:
            Whether all tasks have fulfilled it. One that is gone has dropped what it had not committed.
        """
        with self._lock:
            self._run_request = run_request
            for slot in self._slots.values():
                self._tell_wish(slot)
            return all(slot.link is None or slot.settled >= run_request.number for slot in self._slots.values())

    def _tell_wish(self, slot: WorkerHandle) -> None:
        if slot.link is not None and slot.told < self._run_request.number:
            slot.told = self._run_request.number
            slot.link.send(Settle(self._run_request.number, self._run_request.paused))

    def read(self, read: TaskRead) -> "Future[TaskRows]":
        """Have the task that owns a partition read its state; for any thread.

        Raises:
            StateNotOwnedError: if another instance owns the partition.
            StateUnavailableError: if it moves at the moment.
        """
        wanted = frozenset(self._topology.inputs(read.task))
        with self._lock:
            owners = [slot for slot in self._slots.values() if not wanted.isdisjoint(slot.assigned or ())]
            settled = self._all_tasks(lambda slot: slot.question is not None)
            link = owners[0].link if len(owners) == 1 and wanted <= owners[0].holds else None
        if link is not None:
            return self._reads.ask(link, read)
        if settled and not owners:
            raise not_owned(read.task)
        raise StateUnavailableError(f"the partitions of {read.task} are moving, or their task is starting")

    def stop(self, discard: bool) -> None:
        """Send all tasks, and those that begin later, the request to end.

        Args:
            discard: drop what was processed since the last commit.
        """
        with self._lock:
            self._stop = Stop(discard)
            self._stopping.set()
            self._cut_news.set()
            self._changed.notify_all()
            for slot in self._slots.values():
                if slot.link is not None:
                    slot.link.send(self._stop)

    def doubt(self, reasons: Mapping[str, str]) -> None:
        """Have all tasks compare the ids of topics before they commit again.

        Args:
            reasons: by topic, why it may be another one of the same name.
        """
        with self._lock:
            for slot in self._slots.values():
                if slot.link is not None:
                    slot.link.send(TopicsDoubted(reasons))

    def follow(self, takeovers: Mapping[int, frozenset[TopicPartition]]) -> None:
        """Have the slots follow the stores of the tasks that they would take over, once the own stores are open.

        Args:
            takeovers: input partitions of these tasks, by slot.
        """
        with self._lock:
            if not self._all_tasks(lambda slot: slot.opened):
                return
            # The slots share the files: what one follows, no other does.
            followed = self._tasks_of(self._assigned_partitions())
            for number, slot in self._slots.items():
                partitions = takeovers.get(number, frozenset())
                tasks = frozenset(
                    task
                    for task in self._tasks_of(partitions) - followed
                    if self._topology.task_stores(task.stream) and partitions.issuperset(self._topology.inputs(task))
                )
                followed |= tasks
                if slot.link is not None and tasks != slot.follows:
                    slot.follows = tasks
                    slot.link.send(Follow(slot.generation, tasks))

    def tick(self) -> None:
        """Advance event time; call it often."""
        event_time, now = self._time, time.monotonic()
        if not event_time.wanted:
            return
        with self._lock:
            if not self._all_tasks(lambda slot: slot.assigned is not None):
                # The partitions of a task that has not begun hold watermarks back, and are not known yet.
                return
            event_time.elapse(self._clock.step(now))
            watermarks, due = event_time.watermarks(), event_time.due(time.time_ns() // 1_000_000)
            others, ahead = event_time.others(), event_time.ahead()
            for slot in self._slots.values():
                self._tell_time(slot, Time(watermarks, frozenset(due), event_time.end.due, others, ahead), now)
            self._results.watermarked(watermarks)
            barrier = self._requests.barrier(event_time)
            foreign = self._requests.foreign(event_time)
        ends = None if barrier is None else self._requests.ends(barrier)
        peers = self._requests.peers(foreign) if foreign else {}
        with self._lock:
            if barrier is not None and ends is not None:
                event_time.add_barrier(barrier, ends)
            # Do not overwrite newer knowledge of tasks that were assigned in the meantime.
            event_time.peers({task: peer for task, peer in peers.items() if task in event_time.foreign_tasks()})

    def close(self) -> None:
        """Release the terminal, and end the thread that makes cuts."""
        self._stopping.set()
        self._cut_news.set()
        with self._lock:
            self._restores.close()
            self._time.assign(())
        if self._cutting is not None:
            # Otherwise it could still complete a cut that the tasks of the next job wait for. Its requests are short.
            self._cutting.join()

    # -- For the threads of the connections ------------------------------------------------------------------------

    def serve(self, link: TaskLink) -> None:
        """Serve a task until it disconnects."""
        slot: WorkerHandle | None = None
        drained = threading.Event()
        try:
            for message in link.messages():
                if isinstance(message, Joined):
                    if message.attempt > 0:
                        self._restarted(message.slot)
                    slot = self._admit_task(message, link, drained)
                if slot is None:
                    return
                if slot.link is link:
                    self._handle_message(slot, link, message)
                elif not self._transactional:
                    # Another attempt has replaced this one, and repeats all uncommitted work.
                    return
                elif isinstance(message, BatchDone):
                    # The other attempt begins after this work, and waits until it is handled.
                    self._results.handle(message.report)
        except BaseException as error:  # noqa: BLE001 - it ends the application, in the thread that called run()
            self._fail(error)
        finally:
            drained.set()
            self._reads.lost(link)
            with self._lock:
                if slot is not None and slot.link is link:
                    slot.link, slot.quiet = None, False
                    slot.lost_at = None if slot.ended else time.monotonic()
                    # Its last request may have come late, after that of the process which owns the tasks now.
                    self._time.note_owner(slot, ())
                    self._time.ready(self._ready_tasks())
                    self._changed.notify_all()

    def _admit_task(self, joined: Joined, link: TaskLink, drained: threading.Event) -> WorkerHandle | None:
        """Let a task begin, unless a later attempt has already begun."""
        with self._lock:
            slot = self._slots.get(joined.slot)
            if slot is None:
                slot = self._slots[joined.slot] = WorkerHandle(None, WholeTasks(self._topology))
            if joined.attempt < slot.attempt:
                logger.warning("ignoring stale attempt %d of the task of slot %d", joined.attempt, joined.slot)
                return None
            before = slot.drained
            slot.join(link, joined.attempt, drained)
            self._changed.notify_all()
            self._wait_until(lambda: self._formation.gathered(len(self._slots)))
        if self._transactional and before is not None:
            while not before.wait(_RETRY_S) and not self._stopping.is_set():
                pass
        with self._lock:
            stop = self._stop
        if joined.attempt:
            logger.warning("the task of slot %d runs again (attempt %d)", joined.slot, joined.attempt)
        link.send(Welcome(self._results.outputs_left()))
        if stop is not None:
            link.send(stop)
        with self._lock:
            # Before the start positions, so that no record of a paused topic is read.
            slot.told = 0
            self._tell_wish(slot)
        return slot

    def _handle_message(self, slot: WorkerHandle, link: TaskLink, message: FromTask) -> None:
        if isinstance(message, BatchDone):
            self._note_report(slot, message.report)
            self._results.handle(message.report)
            link.send(Ack(message.number))
        elif isinstance(message, ProgressUpdate):
            self._note_report(slot, message.report)
            self._note_progress(slot, message)
            self._results.see(message.report, finished=False)
        elif isinstance(message, Delivered):
            self._cuts.note(message.positions)
            self._cut_news.set()
        elif isinstance(message, CutRequest):
            self._cut_requests.add(link, message)
            self._cut_news.set()
        elif isinstance(message, AssignmentRequest):
            self._begin_request(slot, link, message)
        elif isinstance(message, IdleChanged):
            with self._lock:
                slot.quiet = message.quiet
        elif isinstance(message, Opened):
            slot.opened = True
        elif isinstance(message, Committed):
            self._results.committed(message.offsets)
            if self._purging.acquire(blocking=False):
                # A thread that finds the lock taken does not wait: later offsets include these.
                try:
                    self._purge.offer(message.offsets)
                finally:
                    self._purging.release()
        elif isinstance(message, StateRows):
            self._reads.answered(message)
        elif isinstance(message, Settled):
            slot.settled = message.number
        elif isinstance(message, Failed):
            self._fail(message.error)
        elif isinstance(message, Ended):
            slot.ended = True

    def _note_report(self, slot: WorkerHandle, report: Report) -> None:
        """Apply a report to event time, restores, waits and progress."""
        for task, pause in report.stalled.items():
            logger.warning("%s", pause.of(task))
        for task, reason in report.interrupted.items():
            logger.warning("the task of %s was interrupted (%s); restarting from the committed offsets", task, reason)
        for task, reason in report.locked.items():
            logger.warning("%s; retrying, without %s until then", reason, task)
        with self._lock:
            slot.moved = slot.moved or any(done.end > done.start for done in report.ranges.values())
            self._time.record_report(report, self._owned_tasks(slot))
            for task, _ in report.times:
                slot.reminded.pop(task, None)
            if report.restores:
                self._restores.update(sorted(report.restores.items()))
                self._restoring |= {name for name, part in report.restores.items() if not part.finished}
                self._note_restored({name for name, part in report.restores.items() if part.finished})

    def _note_progress(self, slot: WorkerHandle, seen: ProgressUpdate) -> None:
        """Store how far a task has come, and which of its partitions are read to their ends."""
        with self._lock:
            own = self._owned_tasks(slot)
            if seen.rewound:
                self._time.restart(seen.rewound & own)
                slot.rewinds = seen.rewinds
                slot.times = slot.times.of(self._tasks_of(slot.positions) - seen.rewound)
            if seen.ended is not None:
                self._time.at_end(seen.ended, own & self._tasks_of(slot.positions))
            self._time.record_positions(seen.positions, own)

    def _begin_request(self, slot: WorkerHandle, link: TaskLink, wanted: AssignmentRequest) -> None:
        """Handle a task's request for start positions in its assigned partitions."""
        with self._lock:
            if slot.link is not link:
                return
            if slot.generation != wanted.generation:
                slot.generation = wanted.generation
                self._results.rebalanced()
            slot.assigned, slot.quiet, slot.opened = wanted.assigned, False, False
            slot.question, slot.asked_at, slot.holds = wanted, time.monotonic(), wanted.kept
            slot.follows = frozenset()
            own = self._tasks_of(self._assigned_partitions())
            self._time.note_owner(slot, self._tasks_of(wanted.assigned))
            self._time.assign(own)
            self._cuts.assign(self._assigned_partitions())
            self._time.restart(self._tasks_of(wanted.assigned - wanted.kept))
            # Other instances of the application continue these restores.
            self._note_restored({name for name in self._restoring if name[0] not in own})
            self._changed.notify_all()
            waits = not self._may_begin(slot, wanted)
        if waits:
            # The task may send another request in the meantime, which this thread must receive.
            threading.Thread(
                target=self._answer_later, args=(slot, wanted), name="streamrt-answer", daemon=True
            ).start()
        else:
            self._answer_request(slot, wanted)

    def _answer_later(self, slot: WorkerHandle, wanted: AssignmentRequest) -> None:
        try:
            with self._lock:
                self._wait_until(lambda: slot.question is not wanted or self._may_begin(slot, wanted), self._form_again)
            self._answer_request(slot, wanted)
        except BaseException as error:  # noqa: BLE001 - it ends the application, in the thread that called run()
            self._fail(error)

    def _answer_request(self, slot: WorkerHandle, wanted: AssignmentRequest) -> None:
        """Find the start positions of a task and send them, unless it has sent another request in the meantime."""
        with self._lock:
            if slot.question is not wanted:
                return
            link, partitions = slot.link, slot.whole.of(wanted.assigned) - wanted.kept
        start = self._find_start(partitions)
        with self._lock:
            if start is None or link is None or slot.question is not wanted:
                return
            kept = {partition: at for partition, at in slot.positions.items() if partition in wanted.kept}
            slot.positions = {**kept, **start.positions}
            slot.holds = frozenset(slot.positions)
            self._time.ready(self._ready_tasks())
            self._time.begin(start.positions)
            self._time.report({}, sent_times(start.sent))
            positions = {partition: at for each in self._slots.values() for partition, at in each.positions.items()}
        self._results.assigned(positions, start.positions)
        if kept:
            logger.info("continuing with %s", ", ".join(map(str, sorted(kept))))
        if start.positions:
            begun = ", ".join(f"{partition} from offset {at}" for partition, at in sorted(start.positions.items()))
            logger.info("processing %s", begun)
        found = (start.positions, start.initial_offsets, start.stateful, start.metadata, start.claims, start.sent)
        link.send(StartPositions(wanted.generation, *found, kept=wanted.kept))
        with self._lock:
            # The task has dropped what it was told of time before, possibly in front of this message.
            slot.times = slot.times.of(self._tasks_of(kept))

    def _find_start(self, partitions: frozenset[TopicPartition]) -> Start | None:
        """Return start positions, or None once the application stops."""
        if not partitions:
            return Start({}, {}, frozenset())
        while not self._stopping.is_set():
            try:
                return self._offsets.find(partitions)
            except (GroupFencedError, KafkaRequestError) as away:
                if isinstance(away, KafkaRequestError) and not away.retriable:
                    raise
                logger.warning("%s; retrying", away)
                self._wait_for_broker()
                self._stopping.wait(_RETRY_S)
        return None

    # -- Cuts for merges behind exchanges ----------------------------------------------------------------------------

    def _make_cuts(self) -> None:
        """Make the requested cuts until the application stops, in a thread of its own."""
        while not self._stopping.is_set():
            self._cut_news.wait(_CUT_S if self._cut_requests.open else None)
            self._cut_news.clear()
            with self._lock:
                # The partitions of a task that has not begun are not known yet.
                known = self._all_tasks(lambda slot: slot.assigned is not None)
                working = not self._restoring
            try:
                if known and self._cut_requests.carry_on(working=working):
                    self._cut_news.set()
            except BaseException as error:  # noqa: BLE001 - it ends the application, in the thread that called run()
                self._fail(error)
                return

    # -- With the lock -----------------------------------------------------------------------------------------------

    def _wait_until(self, condition: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until a condition holds or the application stops; the lock is released while waiting."""
        while not condition() and not self._stopping.is_set():
            meanwhile()
            # The end of patience wakes no thread.
            self._changed.wait(_LOOK_S)

    def _form_again(self) -> None:
        """Have the tasks join again, if the group has formed without some of them."""
        if self._formation.join_again():
            for slot in self._slots.values():
                if slot.link is not None:
                    slot.link.send(JoinAgain())

    def _may_begin(self, slot: WorkerHandle, wanted: AssignmentRequest) -> bool:
        """Return whether a task may begin: the others know their partitions and have released those of this task."""
        others = [each for each in self._slots.values() if each is not slot and each.link is not None]
        if not self._formation.formed(all_know=all(each.assigned is not None for each in others)):
            return False
        held = self._stateful and any(not wanted.assigned.isdisjoint(each.holds) for each in others)
        return not held or time.monotonic() >= slot.asked_at + HANDOVER_S

    def _all_tasks(self, condition: Callable[[WorkerHandle], bool]) -> bool:
        """Return whether the tasks are connected, know their partitions, and fulfil a condition."""
        return self._is_complete() and all(
            slot.link is not None and slot.assigned is not None and condition(slot) for slot in self._slots.values()
        )

    def _is_complete(self) -> bool:
        """Return whether all tasks have begun, or the others are ignored."""
        return self._formation.is_complete(len(self._slots))

    def _note_restored(self, names: set[tuple[TaskId, str]]) -> None:
        """Release the terminal when no restore is running here."""
        if names:
            self._restoring -= names
            if not self._restoring:
                self._restores.close()
                self._restores = RestoreDisplay()

    def _assigned_partitions(self) -> frozenset[TopicPartition]:
        return frozenset(partition for slot in self._slots.values() for partition in slot.assigned or ())

    def _tasks_of(self, partitions: Iterable[TopicPartition]) -> set[TaskId]:
        return {self._topology.task(partition) for partition in partitions}

    def _owned_tasks(self, slot: WorkerHandle) -> set[TaskId]:
        return self._time.owned_by(slot, self._tasks_of(slot.assigned or ()))

    def _ready_tasks(self) -> set[TaskId]:
        """Return the tasks that can be ticked."""
        return self._tasks_of(
            partition for slot in self._slots.values() if slot.link is not None for partition in slot.positions
        )

    def _tell_time(
        self,
        slot: WorkerHandle,
        known: Time,
        now: float,
    ) -> None:
        """Send a slot what concerns its tasks of the time of the whole application, if it is new."""
        own = self._tasks_of(slot.positions)
        # A task that was due and has not answered may have dropped its work: remind it.
        new = {task for task in own.intersection(known.due) if now - slot.reminded.get(task, _NEVER) >= _REMIND_S}
        times = known.of(own)
        if times.final != slot.times.final:
            new |= own.intersection(times.final)
        if slot.link is None or not (new or times != slot.times):
            return
        slot.times = times
        slot.reminded.update(dict.fromkeys(new, now))
        slot.link.send(replace(times, due=frozenset(new), rewinds=slot.rewinds))
