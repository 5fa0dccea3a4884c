"""One micro-batch in one process: a session for each task, their commits, and the report about them."""

import bisect
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamrt.errors import ProducerError, SinkError
from streamrt.models import OffsetRange, Tick, TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.commit import Session, SessionStatus, flush_writer, take_back
from streamrt.runtime.merge import Merge, Run
from streamrt.runtime.report import Failure, Report
from streamrt.runtime.task import Limits, Task, TaskFailed
from streamrt.runtime.troubles import PASSING, TROUBLES, note_failure, note_trouble, trace_of

if TYPE_CHECKING:
    from streamrt.runtime.tasks import Tasks

_NEVER = 1 << 63
_SMALLER = "keep less in one state key, or raise message.max.bytes of the producer and max.message.bytes of the topic"


@dataclass(frozen=True)
class BatchContext:
    """What the driver tells each task of a micro-batch.

    Attributes:
        positions: offsets below which records have been processed already, by input partition.
        seconds: how long after its first record the task stops between two records.
        outputs: how many outputs may still come; None for no limit.
        workers: the process that made the last commit, by task.
        stateful: partitions whose committed offsets tell that they have state; those of several topics that have some in
            common are named as in `Topology.scopes`.
        now: wall clock, in milliseconds since the Unix epoch.
        watermarks: stream-wide watermarks by stream and store, where they are wanted and known.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    seconds: float = float("inf")
    outputs: int | None = None
    workers: Mapping[TopicPartition, str] = field(default_factory=dict)
    stateful: frozenset[TopicPartition] = frozenset()
    now: int = 0
    watermarks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Batch:
    """One micro-batch in one process: its sessions, and its report.

    At least once, sessions wait with their commits until one flush of the common writer has made the outputs of all of
    them durable. Exactly once, each session commits by itself.
    """

    def __init__(self, tasks: "Tasks", context: BatchContext) -> None:
        self.report = Report()
        self._tasks = tasks
        self._context = context
        self._limits: Limits | None = None
        self._session: Session | None = None
        self._prepared: list[Session] = []
        self._counts: dict[TopicPartition, list[int]] = {}
        # What is delivered for tasks with several inputs: all of it is needed before the first record can be chosen.
        self._gathered: dict[TopicPartition, dict[TopicPartition, list[Chunk]]] = {}
        self._cut = False

    def left(self, chunk: Chunk) -> bool:
        """Tell whether a chunk has records that are not processed yet."""
        place = TopicPartition(chunk.topic, chunk.partition)
        return chunk.offsets[-1] >= self._context.positions.get(place, 0)

    def take(self, chunk: Chunk) -> bool:
        """Process a chunk, or put it by until all are there; return whether more may follow."""
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

    def _take(self, chunk: Chunk, place: TopicPartition) -> bool:
        session = self._session
        if session is None or session.place != place:
            if session is not None and not self._finish():
                return False
            session = self._open(place)
            if session is None:
                self.report.complete = False
                return False
        start = session.start[place]
        rest = chunk if chunk.offsets[0] >= start else chunk.from_offset(start)
        return not rest.offsets or self._process([(rest, 0, len(rest.offsets))], session)

    def _take_merged(self, task: TopicPartition, delivered: Mapping[TopicPartition, list[Chunk]]) -> bool:
        """Process what was delivered for a task with several inputs; return whether another task may follow."""
        session = self._open(task)
        if session is None:
            self.report.complete = False
            return False
        merge = Merge(delivered, session.start, self._tasks.task(task.topic).times, self._tasks.clients)
        try:
            return self._process(merge.runs(), session, merge) and self._finish()
        finally:
            merge.close()

    def tick(self, place: TopicPartition) -> None:
        """Let time pass for a partition, without records."""
        if self._open(place) is not None:
            self._finish()

    def settle(self) -> None:
        """Process what was put by, and commit what is processed."""
        if self._session is not None and not self._finish():
            self._cut = True
        gathered, self._gathered = self._gathered, {}
        for task, delivered in sorted(gathered.items()):
            if self._cut:
                self.report.complete = False
                break
            self._cut = not self._take_merged(task, delivered)
        if self._session is not None:
            self._finish()
        self._settle_prepared()

    def _settle_prepared(self) -> None:
        if not self._prepared:
            return
        tasks = self._tasks
        refusal = flush_writer(tasks.clients.writer(), tasks.spec.callbacks, self._changelogs())
        prepared, self._prepared = self._prepared, []
        try:
            for session in prepared:
                if refusal is None:
                    self._commit(session)
                    continue
                kind, message, cause = refusal
                places = ", ".join(str(other.place) for other in prepared)
                failure = Failure(kind, session.place, None, f"{message} (while processing {places})", cause)
                session.abort()
                self._withdraw(session, failure)
        finally:
            for session in prepared:
                session.close()

    def close(self) -> None:
        """Close all sessions; what is not committed is dropped."""
        for session in (*self._prepared, *([self._session] if self._session is not None else [])):
            session.close()
        self._prepared.clear()
        self._session = None

    # -- Sessions --------------------------------------------------------------------------------------------------

    def _open(self, place: TopicPartition) -> Session | None:
        """Open the session of a partition; return None, with the reason in the report, if that is impossible now."""
        try:
            task = self._tasks.task(place.topic)
        except SinkError as error:
            note_failure(self.report, Failure("sink", place, None, str(error), error, trace_of(error)))
            return None
        ranges = self.report.ranges
        former = {each: ranges[each] for each in self._tasks.inputs(place) if each in ranges}
        if former:
            # The partition comes a second time in one batch: what it left must be in the stores.
            self._settle_prepared()
            if self.report.failure is not None or place in self.report.interrupted:
                return None
            # That is official now: what may be taken back later begins here.
            self._counts.pop(place, None)
        session = self._tasks.session(place, self._context, {each: done.end for each, done in former.items()})
        self._session = session
        try:
            session.open(known=self._context.stateful)
        except TROUBLES as trouble:
            session.close()
            self._session = None
            note_trouble(self.report, session, trouble)
            return None
        task.begin(session)
        for each, start in session.start.items():
            begin = former[each].start if each in former else self._context.positions.get(each, 0)
            ranges[each] = OffsetRange(*each, begin, start)
        return session if not task.collector.ticks or self._tick(session) else None

    def _tick(self, session: Session) -> bool:
        """Tell the operators what time it is; return whether records may follow."""
        task, report, place = self._tasks.task(session.place.topic), self.report, session.place
        before = task.collector.outputs
        try:
            first, offset = next(iter(session.start.items()))
            task.tick(Tick(self._context.now, self._context.watermarks.get(place.topic, {})), first, offset)
        except TaskFailed as failed:
            self._give_up(session, failed.failure)
            return False
        except TROUBLES as trouble:
            self._meet(session, trouble)
            return False
        outputs = task.collector.outputs - before
        self._counts.setdefault(place, [0, 0])[1] += outputs
        report.outputs += outputs
        return True

    def _process(self, runs: Iterable[Run], session: Session, merge: Merge | None = None) -> bool:
        """Process records of a session and note the progress; return whether more may follow."""
        task, report = self._tasks.task(session.place.topic), self.report
        if self._limits is None:
            # Whatever came before, waiting for data, restoring, passing over records, is not this task's work.
            self._limits = Limits(time.monotonic() + self._context.seconds, self._context.outputs)
        limits, before = self._limits, task.collector.outputs
        if limits.outputs is not None:
            limits = Limits(limits.deadline, before + limits.outputs - report.outputs)
        whole = self._tasks.spec.transactional or bool(task.stores)
        # The first offset and the next one, by input.
        done: dict[TopicPartition, tuple[int, int]] = {}
        records, finished = 0, True
        try:
            for chunk, start, stop in runs:
                place = TopicPartition(chunk.topic, chunk.partition)
                if task.processed is not None:
                    task.processed = report.processed.setdefault(place, [])
                try:
                    end, finished = task.run(chunk, limits, start, stop)
                except TaskFailed as failed:
                    if whole:
                        # Half of what the record did is in the transaction or in the state: nothing of it may count.
                        raise
                    note_failure(report, failed.failure)
                    end, finished = failed.failure.offset or chunk.offsets[start], False
                done[place] = done.get(place, (chunk.offsets[start], end))[0], end
                records += bisect.bisect_left(chunk.offsets, end) - start
                if not finished or self._over(task, limits):
                    break
        except TaskFailed as failed:
            self._give_up(session, failed.failure)
            return False
        except TROUBLES as trouble:
            self._meet(session, trouble)
            return False
        for place, (begin, end) in done.items():
            former = report.ranges[place]
            # Exactly once, a range begins where the group is, be there records or not: the next commit is compared with its
            # end.
            if former.start != former.end or self._tasks.spec.transactional:
                begin = former.start
            report.ranges[place] = OffsetRange(*place, begin, end)
        if merge is not None:
            finished = not merge.left({place: end for place, (_, end) in done.items()})
        report.complete = report.complete and finished
        outputs = task.collector.outputs - before
        counts = self._counts.setdefault(session.place, [0, 0])
        counts[0] += records
        counts[1] += outputs
        report.records += records
        report.outputs += outputs
        return finished and not self._over(task, limits)

    @staticmethod
    def _over(task: Task, limits: Limits) -> bool:
        enough = limits.outputs is not None and task.collector.outputs >= limits.outputs
        return enough or time.monotonic() >= limits.deadline

    def _finish(self) -> bool:
        """Bring the current session to its commit; return whether another one may follow."""
        session = self._session
        if session is None:
            return True
        try:
            return self._end(session)
        except BaseException:
            session.close()
            raise
        finally:
            self._session = None

    def _end(self, session: Session) -> bool:
        end = {place: self.report.ranges[place].end for place in session.inputs}
        session.times = session.stores.times()
        if all(end[place] <= at for place, at in session.start.items()) and not session.stores.dirty:
            if self._tasks.spec.transactional:
                # There was nothing left to do, but the transactional id is this process's now: all others are fenced.
                self.report.workers[session.place] = self._tasks.clients.worker
            self._note_times(session)
            session.close()
            return True
        sinks = self._tasks.sinks
        try:
            session.prepare(end, lambda: sinks.flush(session.place))
        except TROUBLES as trouble:
            self._meet(session, trouble)
            return False
        except SinkError as error:
            self._give_up(session, Failure("sink", session.place, None, str(error), error.__cause__, trace_of(error)))  # type: ignore[arg-type]
            return False
        except ProducerError as refusal:
            # No callback is asked: state that its changelog lacks a change of would be wrong after the next restore.
            failure = Failure(
                "producer", session.place, None, f"state could not be produced: {refusal}; {_SMALLER}", refusal
            )
            self._give_up(session, failure)
            return False
        self.report.sunk += sinks.take()
        if not self._tasks.spec.transactional:
            self._gather(session)
            self._prepared.append(session)
            return True
        going_on = self._commit(session)
        if session.status is SessionStatus.COMMITTED:
            self._gather(session)
        return going_on

    def _commit(self, session: Session) -> bool:
        try:
            session.commit()
        except TROUBLES as trouble:
            self._meet(session, trouble, repair=False)
            return False
        self.report.workers[session.place] = self._tasks.clients.worker
        self._note_times(session)
        session.close()
        return True

    def _note_times(self, session: Session) -> None:
        self.report.times.update({(session.place, store): time for store, time in session.times.items()})

    def _changelogs(self) -> set[str]:
        state = self._tasks.spec.state
        sources = () if state is None else state.sources.values()
        return {log.topic for source in sources for log in source.stores.values() if log is not None}

    def _gather(self, session: Session) -> None:
        """Add what the operators put out during a session to the report."""
        collector = self._tasks.task(session.place.topic).collector
        self.report.produced += collector.produced
        self.report.collected += collector.collected
        collector.produced, collector.collected = 0, []

    # -- Ends that are no commits ------------------------------------------------------------------------------------

    def _meet(self, session: Session, trouble: Exception, *, repair: bool = True) -> None:
        """Abort a session for one of `TROUBLES`."""
        cause = trouble.__cause__
        if isinstance(trouble, PASSING) and isinstance(cause, ProducerError) and cause.refused:
            # Another attempt would end the same way. No callback is asked: the transaction is lost with the record.
            message = f"{cause} (while processing {session.place})"
            self._give_up(session, Failure("producer", session.place, None, message, cause))
            return
        self._abort(session)
        note_trouble(self.report, session, trouble, repair=repair)

    def _give_up(self, session: Session, failure: Failure) -> None:
        self._abort(session)
        note_failure(self.report, failure)

    def _abort(self, session: Session) -> None:
        session.abort()
        session.close()
        self._withdraw(session, None)
        if self._session is session:
            self._session = None

    def _withdraw(self, session: Session, failure: Failure | None) -> None:
        """Take everything back that the report says about a session."""
        self._tasks.sinks.pause()
        collector = self._tasks.task(session.place.topic).collector
        collector.produced, collector.collected = 0, []
        report = self.report
        records, outputs = self._counts.pop(session.place, (0, 0))
        report.records -= records
        report.outputs -= outputs
        report.collected = [
            output
            for output in report.collected
            if output.offset < session.start.get(TopicPartition(output.topic, output.partition), _NEVER)
        ]
        own = session.inputs
        report.sunk = [(node, batch) for node, batch in report.sunk if (batch.topic, batch.partition) not in own]
        take_back(report, session, failure)
