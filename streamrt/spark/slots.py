"""The driver's side of resident tasks: answers what they ask, takes what they report, and tells them what time it is."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from streamrt.kafka import GroupFencedError, KafkaRequestError
from streamrt.models import TopicPartition
from streamrt.runtime import Report
from streamrt.runtime.event_time import EventTime, StepClock
from streamrt.runtime.link import (
    Begin,
    Committed,
    Ended,
    Failed,
    FromTask,
    Joined,
    Quiet,
    Seen,
    Stop,
    Taken,
    Time,
    Wanted,
    Welcome,
    Worked,
)
from streamrt.runtime.sent import sent_times
from streamrt.spark.commits import RepartitionPurge
from streamrt.spark.formation import FORMATION_S, HANDOVER_S, Formation
from streamrt.spark.link import TaskLink
from streamrt.spark.offsets import Start, StartOffsets
from streamrt.spark.restore import RestoreDisplay
from streamrt.spark.results import Results
from streamrt.spark.routing import WholeTasks
from streamrt.spark.time_requests import TimeRequests
from streamrt.topology import Topology

__all__ = ["Slots"]

logger = logging.getLogger("streamrt")

_RETRY_S = 0.1
_REMIND_S = 1.0
_GONE_S = 30.0
_NEVER = float("-inf")


@dataclass(eq=False)
class _Slot:
    """What is known of the task of one slot.

    Attributes:
        link: the connection; None while there is none.
        whole: keeps back what the task cannot work on.
        attempt: number of the last attempt that has joined.
        heard: set when nothing more comes from the last attempt that has joined.
        assigned: its input partitions; None until it has told.
        question: what it asked last; None until it has asked.
        asked_at: when it asked that.
        holds: input partitions whose stores it may have open.
        positions: where it was told to begin.
        quiet: whether all its input is read to the ends now.
        moved: whether it has finished any work.
        lost_at: when the connection was lost, though the task had not ended.
        watermarks: those of its tasks that it was told last.
        reminded: when it was told last that tasks are due.
    """

    link: TaskLink | None
    whole: WholeTasks
    attempt: int = 0
    heard: threading.Event | None = None
    assigned: frozenset[TopicPartition] | None = None
    question: Wanted | None = None
    asked_at: float = _NEVER
    holds: frozenset[TopicPartition] = frozenset()
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    quiet: bool = False
    moved: bool = False
    ended: bool = False
    lost_at: float | None = None
    watermarks: Mapping[TopicPartition, Mapping[str, int]] = field(default_factory=dict)
    reminded: dict[TopicPartition, float] = field(default_factory=dict)

    def join(self, link: TaskLink, attempt: int, heard: threading.Event) -> None:
        """Begin with the next attempt; what the one before was assigned counts until this one tells."""
        if self.link is not None:
            self.link.close()
        self.link, self.attempt, self.heard = link, attempt, heard
        self.ended, self.lost_at = False, None
        self.question, self.holds = None, frozenset()
        self.quiet = False
        self.watermarks, self.reminded = {}, {}


class Slots:
    """Serves the tasks of one job, each connection in a thread of its own.

    Args:
        count: number of tasks.
        topology: the operators, resolved.
        results: takes what tasks report.
        offsets: finds where to begin.
        wait_for_broker: returns when a broker answers; raises if none does for too long.
        purge: hears of committed offsets.
        event_time: decides about event time; it outlives the jobs.
        requests: asks Kafka what event time must know.
        fail: called with what must end the application.
        transactional: whether tasks commit by themselves what they report.
        patience_s: seconds after which a task that has not begun is not waited for, because Spark has no slot for it. By
            then, the group must have given its partitions to those that have begun.
        formation_s: seconds for which the first tasks wait for the others before they join the group, and then before they
            begin with what the group has given to fewer tasks than there are.
    """

    def __init__(
        self,
        count: int,
        topology: Topology,
        results: Results,
        offsets: StartOffsets,
        wait_for_broker: Callable[[], None],
        purge: RepartitionPurge,
        event_time: EventTime,
        requests: TimeRequests,
        fail: Callable[[BaseException], None],
        *,
        transactional: bool,
        patience_s: float,
        formation_s: float = FORMATION_S,
    ) -> None:
        self.count = count
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
        self._patient_until = time.monotonic() + patience_s
        self._slots: dict[int, _Slot] = {}
        self._formation = Formation(count, formation_s)
        self._stateful = any(map(topology.task_stores, topology.streams))
        self._stop: Stop | None = None
        self._stopping = threading.Event()
        self._restores = RestoreDisplay()
        self._restoring: set[tuple[TopicPartition, str]] = set()
        # Never held while anything is asked, written or told to the user.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._purging = threading.Lock()

    # -- For the thread that runs the application ------------------------------------------------------------------

    @property
    def joined(self) -> int:
        """How many tasks have begun."""
        return len(self._slots)

    def empty(self, timeout_s: float = 0.0) -> bool:
        """Tell whether no task is there; wait until that is so.

        Args:
            timeout_s: seconds to wait.
        """
        with self._changed:
            return self._changed.wait_for(lambda: all(slot.link is None for slot in self._slots.values()), timeout_s)

    @property
    def working(self) -> bool:
        """Whether a task was told where to begin."""
        with self._lock:
            return any(slot.positions for slot in self._slots.values())

    @property
    def idle(self) -> bool:
        """Whether the tasks are there, and none of them has a partition."""
        with self._lock:
            return self._all(lambda slot: not slot.assigned)

    @property
    def quiet(self) -> bool:
        """Whether the tasks are there, and everything that is assigned to them is read to its end and processed."""
        with self._lock:
            return self._all(lambda slot: slot.quiet)

    def gone(self) -> bool:
        """Tell whether a task is gone for so long that Spark will not start it again."""
        now = time.monotonic()
        with self._lock:
            return any(slot.lost_at is not None and now - slot.lost_at >= _GONE_S for slot in self._slots.values())

    def moved(self) -> bool:
        """Tell, after the job has failed, whether the task that was to blame had finished any work in it."""
        with self._lock:
            lost = [(slot.lost_at, slot.moved) for slot in self._slots.values() if slot.lost_at is not None]
            # When a job fails, Spark kills the other tasks, too: the first one that was lost is to blame.
            return self._complete() and bool(lost) and min(lost)[1]

    def stop(self, discard: bool) -> None:
        """Tell all tasks to end; those that begin later are told so, too.

        Args:
            discard: drop what was processed since the last commit.
        """
        with self._lock:
            self._stop = Stop(discard)
            self._stopping.set()
            self._changed.notify_all()
            for slot in self._slots.values():
                if slot.link is not None:
                    slot.link.send(self._stop)

    def tick(self) -> None:
        """Let event time go on; call it often."""
        event_time, now = self._time, time.monotonic()
        if not event_time.wanted:
            return
        with self._lock:
            if not self._all(lambda slot: slot.assigned is not None):
                # What a task that has not begun is assigned holds watermarks up, and is not known yet.
                return
            event_time.elapse(self._clock.step(now))
            watermarks, due = event_time.watermarks(), event_time.due(time.time_ns() // 1_000_000)
            for slot in self._slots.values():
                self._tell_time(slot, watermarks, due, now)
            barrier = self._requests.barrier(event_time)
            foreign = self._requests.foreign(event_time)
        ends = None if barrier is None else self._requests.ends(barrier)
        peers = self._requests.peers(foreign) if foreign else {}
        with self._lock:
            if barrier is not None and ends is not None:
                event_time.add_barrier(barrier, ends)
            # What was assigned meanwhile is known better.
            event_time.peers({task: peer for task, peer in peers.items() if task in event_time.foreign_tasks()})

    def close(self) -> None:
        """Give the terminal back."""
        with self._lock:
            self._restores.close()
            self._time.assign(())

    # -- For the threads of the connections ------------------------------------------------------------------------

    def serve(self, link: TaskLink) -> None:
        """Answer a task until it is gone."""
        slot: _Slot | None = None
        heard = threading.Event()
        try:
            for message in link.messages():
                if isinstance(message, Joined):
                    slot = self._join(message, link, heard)
                if slot is None:
                    return
                if slot.link is link:
                    self._hear(slot, link, message)
                elif not self._transactional:
                    # Another attempt has taken its place, and does everything again that is not committed.
                    return
                elif isinstance(message, Worked):
                    # That attempt begins behind this, and waits until it is taken.
                    self._results.take(message.report)
        except BaseException as error:  # noqa: BLE001 - it ends the application, in the thread that called run()
            self._fail(error)
        finally:
            heard.set()
            with self._lock:
                if slot is not None and slot.link is link:
                    slot.link, slot.quiet = None, False
                    slot.lost_at = None if slot.ended else time.monotonic()
                    self._time.ready(self._ready())
                    self._changed.notify_all()

    def _join(self, joined: Joined, link: TaskLink, heard: threading.Event) -> _Slot | None:
        """Let a task begin, unless a later attempt has begun already."""
        with self._lock:
            slot = self._slots.get(joined.slot)
            if slot is None:
                slot = self._slots[joined.slot] = _Slot(None, WholeTasks(self._topology))
            if joined.attempt < slot.attempt:
                logger.warning("attempt %d of the task of slot %d woke up too late", joined.attempt, joined.slot)
                return None
            before = slot.heard
            slot.join(link, joined.attempt, heard)
            self._wait(lambda: self._formation.gathered(len(self._slots)))
        if self._transactional and before is not None:
            while not before.wait(_RETRY_S) and not self._stopping.is_set():
                pass
        with self._lock:
            stop = self._stop
        if joined.attempt:
            logger.warning("Spark has started the task of slot %d again, attempt %d", joined.slot, joined.attempt)
        link.send(Welcome(self._results.outputs_left()))
        if stop is not None:
            link.send(stop)
        return slot

    def _hear(self, slot: _Slot, link: TaskLink, message: FromTask) -> None:
        if isinstance(message, Worked):
            self._note(slot, message.report)
            self._results.take(message.report)
            link.send(Taken(message.number))
        elif isinstance(message, Seen):
            self._note(slot, message.report)
            self._note_progress(slot, message)
            self._results.see(message.report, finished=False)
        elif isinstance(message, Wanted):
            self._begin(slot, link, message)
        elif isinstance(message, Quiet):
            with self._lock:
                slot.quiet = message.quiet
        elif isinstance(message, Committed):
            self._results.committed(message.offsets)
            if self._purging.acquire(blocking=False):
                # Whoever finds it taken does not wait: later offsets cover these.
                try:
                    self._purge.offer(message.offsets)
                finally:
                    self._purging.release()
        elif isinstance(message, Failed):
            self._fail(message.error)
        elif isinstance(message, Ended):
            slot.ended = True

    def _note(self, slot: _Slot, report: Report) -> None:
        """Note what a report tells of event time, restores, waiting, and whether the task gets on."""
        for task, pause in report.stalled.items():
            logger.warning("a sink wants no records of %s for %.1f s", task, pause)
        for task, reason in report.interrupted.items():
            logger.warning("the task of %s was interrupted (%s); going on from the committed offsets", task, reason)
        for task, reason in report.locked.items():
            logger.warning("%s; trying again, without %s until then", reason, task)
        with self._lock:
            slot.moved = slot.moved or any(done.end > done.start for done in report.ranges.values())
            # They begin again where they are committed, and tell anew what they see.
            self._time.restart((*report.stalled, *report.interrupted, *report.locked))
            self._time.report(report.times, report.sent)
            self._time.processed({place: done.end for place, done in report.ranges.items()})
            for task, _ in report.times:
                slot.reminded.pop(task, None)
            if report.restores:
                self._restores.update(sorted(report.restores.items()))
                self._restoring |= {name for name, part in report.restores.items() if not part.finished}
                self._restored({name for name, part in report.restores.items() if part.finished})

    def _note_progress(self, slot: _Slot, seen: Seen) -> None:
        """Note how far a task has come, and which of its partitions are read to their ends."""
        with self._lock:
            if seen.ended is not None:
                self._time.at_end(seen.ended, self._tasks(slot.positions))
            self._time.processed(seen.positions)

    def _begin(self, slot: _Slot, link: TaskLink, wanted: Wanted) -> None:
        """Tell a task where to begin in what it is assigned."""
        with self._lock:
            if slot.link is not link:
                return
            slot.assigned, slot.quiet = wanted.assigned, False
            slot.question, slot.asked_at, slot.holds = wanted, time.monotonic(), wanted.kept
            own = self._tasks(self._assigned())
            self._time.assign(own)
            self._time.restart(self._tasks(wanted.assigned - wanted.kept))
            # Other copies of the application go on with these.
            self._restored({name for name in self._restoring if name[0] not in own})
            self._changed.notify_all()
            waits = not self._may_begin(slot, wanted)
        if waits:
            # The task may ask again meanwhile, and this thread must hear it.
            threading.Thread(
                target=self._answer_later, args=(slot, wanted), name="streamrt-answer", daemon=True
            ).start()
        else:
            self._answer(slot, wanted)

    def _answer_later(self, slot: _Slot, wanted: Wanted) -> None:
        try:
            with self._lock:
                self._wait(lambda: slot.question is not wanted or self._may_begin(slot, wanted))
            self._answer(slot, wanted)
        except BaseException as error:  # noqa: BLE001 - it ends the application, in the thread that called run()
            self._fail(error)

    def _answer(self, slot: _Slot, wanted: Wanted) -> None:
        """Find where a task begins, and tell it, unless it has asked something else meanwhile."""
        with self._lock:
            if slot.question is not wanted:
                return
            link, places = slot.link, slot.whole.of(wanted.assigned) - wanted.kept
        start = self._find(places)
        with self._lock:
            if start is None or link is None or slot.question is not wanted:
                return
            kept = {place: at for place, at in slot.positions.items() if place in wanted.kept}
            slot.positions = {**kept, **start.positions}
            slot.holds = frozenset(slot.positions)
            self._time.ready(self._ready())
            self._time.processed(start.positions)
            self._time.report({}, sent_times(start.sent))
            positions = {place: at for each in self._slots.values() for place, at in each.positions.items()}
        self._results.assigned(positions, start.positions)
        if kept:
            logger.info("going on with %s", ", ".join(map(str, sorted(kept))))
        if start.positions:
            begun = ", ".join(f"{place} from offset {at}" for place, at in sorted(start.positions.items()))
            logger.info("processing %s", begun)
        found = (start.positions, start.fresh, start.stateful, start.metadata, start.claims, start.sent)
        link.send(Begin(wanted.generation, *found))

    def _find(self, places: frozenset[TopicPartition]) -> Start | None:
        """Return where to begin, or None once the application stops."""
        if not places:
            return Start({}, {}, frozenset())
        while not self._stopping.is_set():
            try:
                return self._offsets.find(places)
            except (GroupFencedError, KafkaRequestError) as away:
                if isinstance(away, KafkaRequestError) and not away.retriable:
                    raise
                logger.warning("%s; trying again", away)
                self._wait_for_broker()
                self._stopping.wait(_RETRY_S)
        return None

    # -- With the lock -----------------------------------------------------------------------------------------------

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, or the application stops; others get the lock meanwhile."""
        while not condition() and not self._stopping.is_set():
            # Patience ends without anything that would wake this thread.
            self._changed.wait(_RETRY_S)

    def _may_begin(self, slot: _Slot, wanted: Wanted) -> bool:
        """Tell whether a task may work on what it is assigned: the others know their shares, and have let go of this one."""
        others = [each for each in self._slots.values() if each is not slot and each.link is not None]
        if not self._formation.formed(all_know=all(each.assigned is not None for each in others)):
            return False
        held = self._stateful and any(not wanted.assigned.isdisjoint(each.holds) for each in others)
        return not held or time.monotonic() >= slot.asked_at + HANDOVER_S

    def _all(self, condition: Callable[[_Slot], bool]) -> bool:
        """Tell whether the tasks are there, know what is assigned to them, and fulfil a condition."""
        return self._complete() and all(
            slot.link is not None and slot.assigned is not None and condition(slot) for slot in self._slots.values()
        )

    def _complete(self) -> bool:
        """Tell whether all tasks have begun, or those that have not need not be waited for."""
        begun = len(self._slots)
        return begun == self.count or (begun > 0 and time.monotonic() >= self._patient_until)

    def _restored(self, names: set[tuple[TopicPartition, str]]) -> None:
        """Give the terminal back when nothing is restored here any more."""
        if names:
            self._restoring -= names
            if not self._restoring:
                self._restores.close()
                self._restores = RestoreDisplay()

    def _assigned(self) -> frozenset[TopicPartition]:
        return frozenset(place for slot in self._slots.values() for place in slot.assigned or ())

    def _tasks(self, places: Iterable[TopicPartition]) -> set[TopicPartition]:
        return {self._topology.task(place) for place in places}

    def _ready(self) -> set[TopicPartition]:
        """Return the tasks that can be ticked."""
        return self._tasks(place for slot in self._slots.values() if slot.link is not None for place in slot.positions)

    def _tell_time(
        self,
        slot: _Slot,
        watermarks: Mapping[TopicPartition, Mapping[str, int]],
        due: Iterable[TopicPartition],
        now: float,
    ) -> None:
        own = self._tasks(slot.positions)
        # One that is due, and does not say so any more, may have given up what it did.
        new = {task for task in own.intersection(due) if now - slot.reminded.get(task, _NEVER) >= _REMIND_S}
        marks = {task: watermarks[task] for task in own if task in watermarks}
        if slot.link is None or not (new or marks != slot.watermarks):
            return
        slot.watermarks = marks
        slot.reminded.update(dict.fromkeys(new, now))
        slot.link.send(Time(marks, frozenset(new)))
