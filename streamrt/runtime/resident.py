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
from dataclasses import dataclass, replace

from streamrt.errors import OffsetOutOfRangeError, RunnerError, StreamRTError
from streamrt.kafka import GroupAssignment, KafkaRequestError
from streamrt.models import TopicPartition
from streamrt.runtime.batch import Batch, BatchContext
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
from streamrt.runtime.report import Report
from streamrt.runtime.tasks import Tasks

__all__ = ["ResidentSettings", "ResidentTask"]

logger = logging.getLogger("streamrt")

_WAIT_S = 0.1
_JOIN_S = 0.02
_SLICE_S = 0.2
_RESTORE_S = 1.0
_STALE_MS = 100
_AT_ONCE = 10_000
_MOST_RECORDS = 100_000
"""Changes of state wait in memory until the commit."""
_TAKEN_S = 30.0
_ATTEMPTS = 8
_FORGIVEN_S = 60.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True)
class ResidentSettings:
    """What a resident task needs beside the specification.

    Attributes:
        slot: its number, from 0 on.
        attempt: how many tasks of this number died before.
        commit_interval: seconds between two commits.
        commit_every: commit after this many records already; 0 leaves it to the interval.
        transaction_interval: exactly once, seconds after which a transaction closes at the latest.
    """

    slot: int
    attempt: int = 0
    commit_interval: float = 5.0
    commit_every: int = 0
    transaction_interval: float = 0.1


class ResidentTask:
    """Runs the tasks of the partitions that the group gives to one slot, until the driver says stop.

    Args:
        tasks: the tasks of this process.
        feed: reads records.
        join: makes the member of the group.
        link: the driver.
        settings: when to commit.
        clock: gives seconds; only differences count.
    """

    def __init__(
        self,
        tasks: Tasks,
        feed: Feed,
        join: Join,
        link: Link,
        settings: ResidentSettings,
        clock: Callable[[], float] = time.monotonic,
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
        self._watermarks: Mapping[str, Mapping[str, int]] = {}
        # The assignment.
        self._answered = False
        self._awaiting = False
        self._positions: dict[TopicPartition, int] = {}
        self._stateful: frozenset[TopicPartition] = frozenset()
        self._workers: dict[TopicPartition, str] = {}
        # Tasks without a session; when they may be opened, if not at once; how often they were interrupted without progress,
        # and when last.
        self._closed: list[TopicPartition] = []
        self._waiting: dict[TopicPartition, float] = {}
        self._attempts: dict[TopicPartition, tuple[int, float]] = {}
        # Tasks that read again what watermarks may have been made of.
        self._behind: set[TopicPartition] = set()
        # The work.
        self._sessions: dict[TopicPartition, Session] = {}
        self._batch: Batch | None = None
        self._due = 0.0
        self._settled_at = float("-inf")
        self._left: list[Chunk] = []
        self._halted = False
        self._passed_at = 0.0
        self._outbox = Outbox(link, tasks, clock)

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
            self._pass_markers()
        elif self._is_due(self._batch):
            self._settle()

    # -- The driver --------------------------------------------------------------------------------------------------

    def _hear(self, timeout_s: float) -> None:
        for message in self._link.receive(timeout_s):
            self._obey(message)

    def _obey(self, message: ToTask) -> None:
        if isinstance(message, Taken):
            offsets = self._outbox.taken(message.number)
            if offsets:
                self._membership.commit(offsets)
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
        self._outbox.see(self._batch, self._sessions, self._is_quiet, at_once=at_once)

    def _is_quiet(self) -> bool:
        """Tell whether all partitions are read to their ends, and all of it is processed."""
        busy = not self._answered or self._left or self._closed
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
            self._give_back()
            group.given_back()
        current = group.current()
        if current is not None and current.generation != group.assignment.generation:
            self._ask(current)
        if current is None or not self._positions:
            self._tell()
            self._hear(_WAIT_S if self._answered else _JOIN_S)
        return current is not None and bool(self._positions)

    def _ask(self, current: GroupAssignment) -> None:
        """Ask the driver where to begin; what was done before is committed or lost."""
        self._drop()
        self._membership.assignment = current
        self._link.send(Wanted(current.generation, current.partitions))

    def _begin(self, begin: Begin) -> None:
        """Begin to work on partitions, at the offsets that the driver has found."""
        # From now on a restart goes on here, also if "latest" records arrive before the first commit. No state goes with it.
        if begin.fresh and not self._membership.commit_fresh(begin.fresh):
            self._membership.assignment = NO_ASSIGNMENT
            return
        self._answered = True
        self._positions = dict(begin.positions)
        self._stateful = begin.stateful
        self._closed = sorted({self._tasks.place(place) for place in begin.positions})
        self._behind.update(self._closed)
        # Those of tasks that have been with another member are its affair.
        self._attempts = {task: known for task, known in self._attempts.items() if task in self._behind}
        self._feed.assign(self._positions)
        self._feed.pause(self._positions)

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
        self._settle()
        self._await_taken()
        if self._membership.behind:
            self._membership.commit({})

    def _await_taken(self) -> None:
        """Wait until the driver has taken all reports, so that their offsets are committed."""
        self._awaiting = True
        deadline = self._clock() + _TAKEN_S
        while self._outbox.waiting and not self._membership.lost:
            if self._stop is not None and self._stop.discard:
                return
            if self._clock() >= deadline:
                logger.warning(
                    "the driver did not take a report in time; the records since the last commit will repeat"
                )
                return
            self._hear(_WAIT_S)

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
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        if self._transactional:
            # They are another process's now.
            for task in {self._tasks.place(place) for place in self._positions}:
                self._tasks.clients.release(task)
        if self._positions:
            self._feed.assign({})
        self._positions.clear()
        self._stateful = frozenset()
        self._answered = self._awaiting = False
        self._left.clear()
        self._workers.clear()
        self._closed.clear()
        self._waiting.clear()
        self._behind.clear()
        self._membership.forget()
        self._outbox.forget()

    # -- Records -------------------------------------------------------------------------------------------------------

    def _ready(self) -> list[TopicPartition]:
        """Return the tasks that can be opened now."""
        if not self._closed or self._membership.away:
            return []
        now = self._clock()
        return [task for task in self._closed if self._waiting.get(task, now) <= now]

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
        for task in opening:
            self._waiting.pop(task, None)
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
        chunks, self._left = self._left, []
        if not chunks:
            chunks = self._poll()
        if not chunks:
            return
        batch = self._open_batch()
        if abs(self._tasks.clients.now() - batch.context.now) >= _STALE_MS:
            # Operators that look at the wall clock shall not take records for as old as the batch.
            batch.context = self._context()
        self._left = batch.take_all(chunks)
        self._examine(batch)

    def _poll(self) -> list[Chunk]:
        now = self._clock()
        wait = _WAIT_S
        if self._batch is not None:
            wait = min(wait, self._due - now)
        if self._ready():
            wait = 0.0
        seen = 0 if self._batch is None else self._batch.report.records
        records = max(1, min(_AT_ONCE, self._most - seen))
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
        for task in own:
            # A sink may have been flushed for the one before, and have refused the records of this one.
            if task in self._sessions:
                batch.tick(task)
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
        batch = self._batch
        return BatchContext(
            {place: at if batch is None else batch.position(place) for place, at in self._positions.items()},
            _SLICE_S,
            self._outputs,
            dict(self._workers),
            self._stateful,
            self._tasks.clients.now(),
            self._watermarks,
            frozenset(self._behind),
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

    def _close(self, tasks: Iterable[TopicPartition], position: Callable[[TopicPartition], int]) -> None:
        """Have tasks opened again that have lost their sessions, and read on at their positions then."""
        for task in sorted(tasks):
            inputs = self._tasks.inputs(task)
            self._left = [chunk for chunk in self._left if TopicPartition(chunk.topic, chunk.partition) not in inputs]
            self._feed.pause(inputs)
            for place in inputs:
                self._feed.seek(place, position(place))
            if task not in self._closed:
                self._closed.append(task)
            self._behind.add(task)

    def _catch_up(self) -> None:
        """Find the tasks that have come to the ends of their inputs, and thus read again what any attempt has read before."""
        if self._behind and not self._left:
            ends = self._feed.ends().keys()
            self._behind = {
                task for task in self._behind if task not in self._sessions or not ends >= set(self._tasks.inputs(task))
            }

    def _meet(self, report: Report) -> None:
        """Let tasks wait that met a trouble which may pass."""
        if not report.stalled and not report.interrupted:
            return
        self._link.send(Seen(Report(stalled=dict(report.stalled), interrupted=dict(report.interrupted))))
        now = self._clock()
        for task, pause in report.stalled.items():
            self._waiting[task] = now + pause
        for task, reason in report.interrupted.items():
            attempts = self._attempts.get(task, (0, now))[0] + 1
            self._attempts[task] = attempts, now
            if attempts > _ATTEMPTS:
                raise RunnerError(f"the tasks were interrupted {attempts} times without progress: {reason}")
            self._workers.pop(task, None)
            self._waiting[task] = now + min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempts)
        report.stalled.clear()
        report.interrupted.clear()

    # -- Commits -------------------------------------------------------------------------------------------------------

    def _is_due(self, batch: Batch) -> bool:
        report = batch.report
        if report.failure is not None or report.records >= self._most or self._clock() >= self._due:
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
            self._attempts.pop(self._tasks.place(place), None)
        if batch.aborted:
            self._rewind(batch)
        # Others could not go on after their commits, without having done anything wrong.
        tasks = {self._tasks.place(place) for place in self._positions}
        self._close(tasks - self._sessions.keys() - set(self._closed), self._positions.__getitem__)
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
        self._forgive(ends.keys(), now - _FORGIVEN_S)
        passed = {
            place: end
            for place, end in ends.items()
            if end > self._positions[place] and self._tasks.place(place) in self._sessions
        }
        if (passed or self._membership.behind) and self._membership.commit(passed):
            self._positions.update(passed)
            for place, end in passed.items():
                self._sessions[self._tasks.place(place)].start[place] = end

    def _forgive(self, ended: Collection[TopicPartition], before: float) -> None:
        """Forget the interruptions of tasks that have had nothing to do for a while: theirs is no want of progress."""
        for task, (_, at) in list(self._attempts.items()):
            if at < before and task in self._sessions and all(place in ended for place in self._tasks.inputs(task)):
                del self._attempts[task]

    def _send(self, report: Report, offsets: Mapping[TopicPartition, int]) -> None:
        self._outbox.report(report, {} if self._transactional else offsets)
        if self._transactional and offsets:
            self._link.send(Committed(offsets))
