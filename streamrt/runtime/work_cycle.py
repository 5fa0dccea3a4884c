"""The work of one process between two reports: a session for each task, the commits, and the report.

In micro-batch mode, sessions begin and end with the batch. Resident tasks *carry* sessions from batch to batch: the
next session uses the stores and the writer that the committed one leaves open.
"""

import bisect
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamrt.connectors import SinkBatch
from streamrt.errors import ProducerError, SinkError
from streamrt.kafka.writer import WriterFailedError
from streamrt.models import OffsetRange, Tick, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.commit import Session, SessionStatus, flush_writer, take_back
from streamrt.runtime.merge import ChunkSlice, Merge
from streamrt.runtime.operator_chain import Limits, OperatorChain, TaskFailed
from streamrt.runtime.report import Failure, Output, Report, StoreTime
from streamrt.runtime.troubles import (
    HANDLED_ERRORS,
    RETRIABLE_ERRORS,
    close_session,
    note_failure,
    note_trouble,
    trace_of,
)

if TYPE_CHECKING:
    from streamrt.runtime.task_executor import TaskExecutor

_NO_LIMIT = 1 << 62
_SMALLER = "keep less in one state key, or raise message.max.bytes of the producer and max.message.bytes of the topic"


@dataclass
class _Work:
    """The work of a session that can still be withdrawn from the report."""

    records: int = 0
    outputs: int = 0
    produced: int = 0
    collected: list[Output] = field(default_factory=list)
    sunk: list[tuple[int, SinkBatch]] = field(default_factory=list)
    last_context: BatchContext | None = None
    """The context of the last tick."""


class WorkCycle:
    """The work of one process between two reports: its sessions and its report.

    With at-least-once, sessions share a writer and commit after one flush of it, which makes all their outputs durable.
    With exactly-once, each session commits by itself; carried sessions commit in parallel.

    Args:
        tasks: the tasks of this process.
        context: start offsets, current time and watermarks. It may be replaced during the batch.
        carried: the open sessions of a resident task, by task; the batch keeps this mapping up to date. None in a
            micro-batch, where each session ends before the next one begins.

    Attributes:
        report: the work done so far.
        aborted: the tasks whose sessions were aborted; their records must be processed again.
        paused: whether operators of a task stopped before all due work was done. Their results are committed before
            they continue, which bounds memory.
    """

    def __init__(
        self,
        tasks: "TaskExecutor",
        context: BatchContext,
        carried: MutableMapping[TopicPartition, Session] | None = None,
    ) -> None:
        self.report = Report()
        self.context = context
        self.aborted: set[TopicPartition] = set()
        self.paused = False
        self._tasks = tasks
        self._carried = carried
        self._limits: Limits | None = None
        # The active session, and all sessions that are neither prepared nor ended.
        self._session: Session | None = None
        self._sessions: dict[TopicPartition, Session] = {}
        self._prepared: list[Session] = []
        self._work: dict[TopicPartition, _Work] = {}
        # Chunks for tasks with several inputs: the first record can be chosen only after all chunks are here.
        self._gathered: dict[TopicPartition, dict[TopicPartition, list[Chunk]]] = {}
        self._cut = False

    def left(self, chunk: Chunk) -> bool:
        """Return whether a chunk has unprocessed records."""
        return chunk.offsets[-1] >= self.position(TopicPartition(chunk.topic, chunk.partition))

    def position(self, place: TopicPartition) -> int:
        """Return the offset of the next record to process."""
        done = self.report.ranges.get(place)
        return self.context.position(place) if done is None else done.end

    def take(self, chunk: Chunk) -> bool:
        """Process a chunk, or keep it until all chunks are here; return whether more may follow."""
        if not self.left(chunk):
            return True
        place = TopicPartition(chunk.topic, chunk.partition)
        task = self._tasks.place(place)
        if task.topic in self._tasks.merged:
            self._gathered.setdefault(task, {}).setdefault(place, []).append(chunk)
            return True
        going_on = self._take(chunk, place)
        self._cut = not going_on
        return going_on

    def begin_slice(self) -> None:
        """Begin a time slice, shared by all tasks. Its time starts with the next work."""
        self._limits = None

    def take_turn(self, task: TopicPartition, chunks: Sequence[Chunk]) -> tuple[list[Chunk], bool]:
        """Process records or unfinished work of one task for the rest of the time slice; its session stays open.

        Args:
            task: the task.
            chunks: its records, in order within each partition; empty to continue unfinished work.

        Returns:
            The unprocessed records, and whether another task may follow. No task may follow if the time slice is over,
            the output limit is reached, or a session was aborted.
        """
        waiting = [chunk for chunk in chunks if self.left(chunk)]
        going_on = True
        if not chunks:
            going_on = self._enter(task) is not None
        elif not waiting:
            return [], True
        elif task.topic in self._tasks.merged:
            delivered: dict[TopicPartition, list[Chunk]] = {}
            for chunk in waiting:
                delivered.setdefault(TopicPartition(chunk.topic, chunk.partition), []).append(chunk)
            going_on = self._take_merged(task, delivered)
        else:
            going_on = all(self._take(chunk, task) for chunk in waiting)
        rest = [
            chunk.from_offset(self.position(TopicPartition(chunk.topic, chunk.partition)))
            for chunk in waiting
            if self.left(chunk)
        ]
        return rest, going_on

    def unfinished(self, task: TopicPartition) -> bool:
        """Return whether a task has unfinished work, which needs no further record."""
        session = self._sessions.get(task)
        return session is not None and session.unfinished

    def _take(self, chunk: Chunk, place: TopicPartition) -> bool:
        session = self._enter(place)
        if session is None:
            self.report.complete = False
            return False
        start = self.position(place)
        rest = chunk if chunk.offsets[0] >= start else chunk.from_offset(start)
        return not rest.offsets or self._process([(rest, 0, len(rest.offsets))], session)

    def _take_merged(self, task: TopicPartition, delivered: Mapping[TopicPartition, list[Chunk]]) -> bool:
        """Process the delivered records of a task with several inputs; return whether another task may follow."""
        session = self._enter(task)
        if session is None:
            self.report.complete = False
            return False
        start = {place: self.position(place) for place in self._tasks.merge_order(task)}
        merge = Merge(delivered, start, self._tasks.task(task.topic).times, self._tasks.clients)
        try:
            return self._process(merge.runs(), session, merge)
        finally:
            merge.close()

    def _take_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for task, delivered in sorted(gathered.items()):
            if self._cut:
                self.report.complete = False
                break
            self._cut = not self._take_merged(task, delivered)

    def tick(self, place: TopicPartition) -> bool:
        """Tick a task that has no records, so that its operators see the current time.

        Returns:
            False if due work remains, because the time slice is over or for a reason in the report.
        """
        if self._limits is not None and self._tasks.clock() >= self._limits.deadline:
            self.report.unfinished[place] = True
            return False
        return self._enter(place) is not None

    def settle(self) -> None:
        """Process the kept chunks, and commit all processed work."""
        self._take_gathered()
        for session in list(self._sessions.values()):
            if session.place in self._sessions:
                self._finish(session)
        self._settle_prepared()

    def _settle_prepared(self) -> None:
        prepared, self._prepared = self._prepared, []
        try:
            if self._tasks.spec.transactional:
                for session, publish in zip(prepared, self._publishing(prepared), strict=True):
                    self._commit(session, publish)
                return
            try:
                refusal = self._flush(prepared)
            except WriterFailedError as failed:
                for session in prepared:
                    self._meet(session, failed)
                return
            for session in prepared:
                if refusal is None:
                    self._commit(session, session.publish)
                    continue
                kind, message, cause = refusal
                places = ", ".join(str(other.place) for other in prepared)
                failure = Failure(kind, session.place, None, f"{message} (while processing {places})", cause)
                session.abort()
                self._withdraw(session, failure)
        finally:
            for session in prepared:
                if session.status is not SessionStatus.COMMITTED:
                    self._close(session)

    def _publishing(self, prepared: list[Session]) -> list[Callable[[], None]]:
        """Return one function per session that commits its transaction, or waits for its started commit."""
        pool = self._tasks.pool
        if pool is None or len(prepared) == 1:
            return [session.publish for session in prepared]
        # Each commit waits some milliseconds for the brokers, so they run in parallel.
        futures = [pool.submit(session.publish) for session in prepared]
        wait(futures)
        return [future.result for future in futures]

    def _flush(self, prepared: list[Session]) -> tuple[str, str, Exception] | None:
        """Make the outputs of sessions durable; return kind, message and cause of the failure if a record was lost."""
        # They share one writer, unless it was replaced after some of them had begun.
        writers = {id(session.writer): session.writer for session in prepared}.values()
        callbacks, changelogs = self._tasks.spec.callbacks, self._changelogs()
        refusals = [flush_writer(writer, callbacks, changelogs) for writer in writers]
        return next((each for each in refusals if each is not None), None)

    def close(self) -> None:
        """Close all open sessions. Uncommitted work is dropped, also from sinks and from the report.

        Raises:
            SinkError: if a sink fails to drop its records.
        """
        sessions = (*self._prepared, *self._sessions.values())
        for session in sessions:
            self._close(session)
        self._prepared.clear()
        self._sessions.clear()
        self._session = None
        for session in sessions:
            self._withdraw(session, None)

    # -- Sessions --------------------------------------------------------------------------------------------------

    def _enter(self, place: TopicPartition) -> Session | None:
        """Make the session of a task the active one, and return it.

        Returns:
            None if records cannot be processed now; the report has the reason.
        """
        session = self._session
        if session is not None:
            if session.place == place:
                return session if self._is_timely(session) else None
            if self._carried is not None and not self._tasks.sinks.exclusive:
                self._leave(session)
            elif not self._finish(session):
                return None
        known = self._sessions.get(place)
        if known is None:
            return self._open(place)
        self._tasks.task(place.topic).begin(known)
        self._session = known
        return known if self._is_timely(known) else None

    def _leave(self, session: Session) -> None:
        """Assign the outputs of the task to its session; the task may work on another partition next."""
        collector, work = self._tasks.task(session.place.topic).collector, self._work[session.place]
        work.produced += collector.produced
        work.collected += collector.collected
        collector.produced, collector.collected = 0, []
        self._session = None

    def _open(self, place: TopicPartition) -> Session | None:
        try:
            task = self._tasks.task(place.topic)
        except SinkError as error:
            note_failure(self.report, Failure("sink", place, None, str(error), error, trace_of(error)))
            return None
        ranges = self.report.ranges
        former = {each: ranges[each] for each in self._tasks.inputs(place) if each in ranges}
        if former:
            # The partition appears twice in one batch: its earlier work must be in the stores first.
            self._settle_prepared()
            if self.report.failure is not None or place in self.report.interrupted or place in self.report.locked:
                return None
        session = None if self._carried is None else self._carried.get(place)
        if session is None:
            session = self._tasks.session(place, self.context, {each: done.end for each, done in former.items()})
            try:
                session.open(known=self.context.stateful)
            except HANDLED_ERRORS as trouble:
                close_session(session, self.report)
                self.aborted.add(place)
                note_trouble(self.report, session, trouble)
                return None
            except BaseException:
                session.close()
                raise
            if self._carried is not None:
                self._carried[place] = session
        else:
            session.go_on()
        self._session = self._sessions[place] = session
        self._work[place] = _Work()
        task.begin(session)
        for each, start in session.start.items():
            begin = former[each].start if each in former else self.context.position(each)
            ranges[each] = OffsetRange(*each, begin, start)
        return session if self._is_timely(session) else None

    def _is_timely(self, session: Session) -> bool:
        """Tick a session that has not seen this context; return whether records may follow."""
        known = self._work[session.place].last_context is self.context and not session.unfinished
        return known or not self._tasks.task(session.place.topic).collector.ticks or self._tick(session)

    def _tick(self, session: Session) -> bool:
        """Tick the operators, after they have finished earlier due work; return whether records may follow."""
        task, report, place = self._tasks.task(session.place.topic), self.report, session.place
        collector = task.collector
        before = collector.outputs
        collector.deadline, collector.unfinished = self._slice().deadline, False
        try:
            first = session.inputs[0]
            if session.unfinished:
                # Without watermarks, so that event time stays where this work became due.
                task.tick(Tick(self.context.now, {}), first, self.position(first))
            if not collector.unfinished and self._work[place].last_context is not self.context:
                self._work[place].last_context = self.context
                watermarks = self.context.watermarks.get(place, {})
                if place in self.context.behind:
                    watermarks = _as_far_as(session.stores.times(), watermarks)
                task.tick(Tick(self.context.now, watermarks), first, self.position(first))
        except TaskFailed as failed:
            self._give_up(session, failed.failure)
            return False
        except HANDLED_ERRORS as trouble:
            self._meet(session, trouble)
            return False
        outputs = collector.outputs - before
        self._work[place].outputs += outputs
        report.outputs += outputs
        self._note_unfinished(session, collector.unfinished)
        return not session.unfinished

    def _note_unfinished(self, session: Session, unfinished: bool) -> None:
        session.unfinished = unfinished
        self.paused = self.paused or unfinished

    def _slice(self) -> Limits:
        """Return the limits of the time slice. It begins with the first work."""
        if self._limits is None:
            # Time spent before, on waiting for data, restoring or skipping records, does not count.
            self._limits = Limits(self._tasks.clock() + self.context.time_limit_s, self.context.output_limit)
        return self._limits

    def _process(self, runs: Iterable[ChunkSlice], session: Session, merge: Merge | None = None) -> bool:
        """Process records of a session and note the progress; return whether more may follow."""
        task, report = self._tasks.task(session.place.topic), self.report
        limits, before = self._slice(), task.collector.outputs
        room = _NO_LIMIT if self.context.record_limit is None else self.context.record_limit - report.records
        if room <= 0:
            return False
        if limits.outputs is not None:
            limits = Limits(limits.deadline, before + limits.outputs - report.outputs)
        whole = self._tasks.spec.transactional or bool(task.stores)
        # The first offset and the next offset, by input partition.
        done: dict[TopicPartition, tuple[int, int]] = {}
        records, finished = 0, True
        task.collector.unfinished = False
        try:
            for chunk, start, stop in runs:
                place = TopicPartition(chunk.topic, chunk.partition)
                last = min(stop, start + room - records)
                if task.processed is not None:
                    task.processed = report.processed.setdefault(place, [])
                try:
                    end, finished = task.run(chunk, limits, start, last)
                except TaskFailed as failed:
                    if whole:
                        # The transaction or the state has partial effects of the record: none of it may be committed.
                        raise
                    note_failure(report, failed.failure)
                    end, finished = failed.failure.offset or chunk.offsets[start], False
                done[place] = done.get(place, (chunk.offsets[start], end))[0], end
                records += bisect.bisect_left(chunk.offsets, end) - start
                finished = finished and last == stop
                if not finished or records >= room or self._over(task, limits):
                    break
        except TaskFailed as failed:
            self._give_up(session, failed.failure)
            return False
        except HANDLED_ERRORS as trouble:
            self._meet(session, trouble)
            return False
        for place, (begin, end) in done.items():
            former = report.ranges[place]
            # With exactly-once, a range begins at the committed offset, even without records: the next commit is
            # compared with its end.
            if former.start != former.end or self._tasks.spec.transactional:
                begin = former.start
            report.ranges[place] = OffsetRange(*place, begin, end)
        if merge is not None:
            finished = not merge.left({place: end for place, (_, end) in done.items()})
        self._note_unfinished(session, task.collector.unfinished)
        report.complete = report.complete and finished
        outputs = task.collector.outputs - before
        work = self._work[session.place]
        work.records += records
        work.outputs += outputs
        report.records += records
        report.outputs += outputs
        return finished and records < room and not self._over(task, limits)

    def _over(self, task: OperatorChain, limits: Limits) -> bool:
        enough = limits.outputs is not None and task.collector.outputs >= limits.outputs
        return enough or task.collector.unfinished or self._tasks.clock() >= limits.deadline

    def _finish(self, session: Session) -> bool:
        """Prepare or commit a session; return whether another one may follow."""
        if session is self._session:
            self._leave(session)
        try:
            return self._end(session)
        except BaseException:
            self._close(session)
            raise
        finally:
            self._sessions.pop(session.place, None)

    def _close(self, session: Session) -> None:
        """Close a session, and stop carrying it."""
        close_session(session, self.report)
        if self._carried is not None:
            self._carried.pop(session.place, None)

    def _end(self, session: Session) -> bool:
        end = {place: self.report.ranges[place].end for place in session.inputs}
        try:
            session.times = session.stores.times()
        except HANDLED_ERRORS as trouble:
            self._meet(session, trouble)
            return False
        idle = all(end[place] <= at for place, at in session.start.items()) and not session.stores.dirty
        if idle and not self._work[session.place].produced:
            if self._tasks.spec.transactional:
                # Nothing to commit, but this process now holds the transactional id: all others are fenced.
                self.report.workers[session.place] = self._tasks.clients.worker
            self._note_times(session)
            self._gather(session)
            if self._carried is None:
                close_session(session, self.report)
            return True
        sinks = self._tasks.sinks
        try:
            session.prepare(end, lambda: sinks.flush(session.inputs))
        except HANDLED_ERRORS as trouble:
            self._meet(session, trouble)
            return False
        except SinkError as error:
            self._give_up(session, Failure("sink", session.place, None, str(error), error.__cause__, trace_of(error)))  # type: ignore[arg-type]
            return False
        except ProducerError as refusal:
            # The callback cannot skip this record: state whose changelog lacks a change would be wrong after a restore.
            failure = Failure(
                "producer", session.place, None, f"a state change could not be produced: {refusal}; {_SMALLER}", refusal
            )
            self._give_up(session, failure)
            return False
        self._work[session.place].sunk = sinks.take(session.inputs)
        if self._carried is None and self._tasks.spec.transactional:
            return self._commit(session, session.publish)
        self._prepared.append(session)
        return True

    def _commit(self, session: Session, publish: Callable[[], None]) -> bool:
        try:
            publish()
            session.store()
        except HANDLED_ERRORS as trouble:
            self._meet(session, trouble, repair=False)
            return False
        self.report.workers[session.place] = self._tasks.clients.worker
        self._note_times(session)
        self._gather(session)
        following = None if self._carried is None else session.successor()
        if self._carried is None or following is None:
            self._close(session)
        else:
            self._carried[session.place] = following
        return True

    def _note_times(self, session: Session) -> None:
        self.report.times.update({(session.place, store): time for store, time in session.times.items()})
        self.report.unfinished[session.place] = session.unfinished
        if not session.unfinished or self._carried is None:
            # Unfinished work may send earlier event times. Without carried sessions, the driver waits until it is
            # finished.
            self.report.sent.update({(session.place, topic): time for topic, time in session.sent.items()})

    def _changelogs(self) -> set[str]:
        state = self._tasks.spec.state
        sources = () if state is None else state.sources.values()
        return {log.topic for source in sources for log in source.stores.values() if log is not None}

    def _gather(self, session: Session) -> None:
        """Add the outputs of a session, which are now committed, to the report."""
        work = self._work.pop(session.place)
        self.report.produced += work.produced
        self.report.collected += work.collected
        self.report.sunk += work.sunk

    # -- Sessions that end without a commit --------------------------------------------------------------------------

    def _meet(self, session: Session, trouble: Exception, *, repair: bool = True) -> None:
        """Abort a session because of one of `HANDLED_ERRORS`."""
        cause = trouble.__cause__
        if isinstance(trouble, RETRIABLE_ERRORS) and isinstance(cause, ProducerError) and cause.refused:
            # A retry would fail, too. The callback cannot skip the record: the transaction is lost with it.
            message = f"{cause} (while processing {session.place})"
            self._give_up(session, Failure("producer", session.place, None, message, cause))
            return
        self._abort(session)
        note_trouble(self.report, session, trouble, repair=repair)

    def _give_up(self, session: Session, failure: Failure) -> None:
        self._abort(session)
        note_failure(self.report, failure)

    def _abort(self, session: Session) -> None:
        if session is self._session:
            self._leave(session)
        self._sessions.pop(session.place, None)
        session.abort()
        self._close(session)
        self._withdraw(session, None)

    def _withdraw(self, session: Session, failure: Failure | None) -> None:
        """Remove the work of a session from the report."""
        self.aborted.add(session.place)
        self._tasks.sinks.pause(session.inputs)
        report = self.report
        work = self._work.pop(session.place)
        report.records -= work.records
        report.outputs -= work.outputs
        take_back(report, session, failure)


def _as_far_as(times: Mapping[str, StoreTime], watermarks: Mapping[str, int]) -> dict[str, int]:
    """Return the watermarks, each capped at the event time that its store has seen."""
    seen = {name: time.reached for name, time in times.items() if time.reached is not None}
    return {name: min(watermark, seen[name]) for name, watermark in watermarks.items() if name in seen}
