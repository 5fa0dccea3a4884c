"""One micro-batch in one process: a session for each partition, their commits, and the report about them."""

import bisect
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamrt.errors import (
    KafkaBrokerUnavailableError,
    ProducerError,
    SinkBackpressureError,
    SinkError,
    StateError,
    StoreCorruptedError,
    StoreLockedError,
    TransactionError,
)
from streamrt.kafka import KafkaRequestError
from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.commit import Session, SessionStatus, flush_writer, take_back
from streamrt.runtime.report import Failure, Report
from streamrt.runtime.sinks import pause_of
from streamrt.runtime.task import Chunk, Limits, TaskFailed

if TYPE_CHECKING:
    from streamrt.runtime.tasks import Tasks

_SMALLER = "keep less in one state key, or raise message.max.bytes of the producer and max.message.bytes of the topic"
PASSING = (TransactionError, KafkaRequestError, KafkaBrokerUnavailableError, StoreLockedError)
"""Troubles that another attempt, from what is committed, may not meet."""


@dataclass(frozen=True)
class BatchContext:
    """What the driver tells each task of a micro-batch.

    Attributes:
        positions: offsets below which records have been processed already, by partition.
        seconds: how long after its first record the task stops between two records.
        outputs: how many outputs may still come; None for no limit.
        workers: the process that made the last commit, by partition.
        stateful: partitions whose committed offset tells that they have state.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    seconds: float = float("inf")
    outputs: int | None = None
    workers: Mapping[TopicPartition, str] = field(default_factory=dict)
    stateful: frozenset[TopicPartition] = frozenset()


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

    def left(self, chunk: Chunk) -> bool:
        """Tell whether a chunk has records that are not processed yet."""
        place = TopicPartition(chunk.topic, chunk.partition)
        return chunk.offsets[-1] >= self._context.positions.get(place, 0)

    def take(self, chunk: Chunk) -> bool:
        """Process a chunk; return whether more may follow."""
        if not self.left(chunk):
            return True
        place = TopicPartition(chunk.topic, chunk.partition)
        session = self._session
        if session is None or session.place != place:
            if session is not None and not self._finish():
                return False
            session = self._open(place)
            if session is None:
                self.report.complete = False
                return False
        rest = chunk if chunk.offsets[0] >= session.start else chunk.from_offset(session.start)
        if not rest.offsets:
            return True
        if self._limits is None:
            # Whatever came before, waiting for data, restoring, passing over records, is not this task's work.
            self._limits = Limits(time.monotonic() + self._context.seconds, self._context.outputs)
        return self._process(rest, session, self._limits)

    def settle(self) -> None:
        """Commit what is processed."""
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
            self._fail(Failure("sink", place, None, str(error), error, _trace(error)))
            return None
        former = self.report.ranges.get(place)
        if former is not None:
            # The partition comes a second time in one batch: what it left must be in the stores.
            self._settle_prepared()
            if self.report.failure is not None or place in self.report.interrupted:
                return None
            # That is official now: what may be taken back later begins here.
            self._counts.pop(place, None)
        session = self._tasks.session(place, self._context, None if former is None else former.end)
        self._session = session
        try:
            session.open(known=place in self._context.stateful)
        except PASSING as trouble:
            self.report.interrupted[place] = str(trouble)
        except StoreCorruptedError as damage:
            self._destroy_stores(session, damage)
        except StateError as refusal:
            self._fail(state_failure(place, refusal))
        else:
            task.begin(session)
            begin = self._context.positions.get(place, 0) if former is None else former.start
            self.report.ranges[place] = OffsetRange(*place, begin, session.start)
            return session
        session.close()
        self._session = None
        return None

    def _process(self, chunk: Chunk, session: Session, limits: Limits) -> bool:
        """Process one chunk and note the progress; return whether more may follow."""
        task, report, place = self._tasks.task(chunk.topic), self.report, session.place
        before = task.collector.outputs
        if limits.outputs is not None:
            limits = Limits(limits.deadline, before + limits.outputs - report.outputs)
        if task.processed is not None:
            task.processed = report.processed.setdefault(place, [])
        whole = self._tasks.spec.transactional or bool(task.stores)
        try:
            end, finished = task.run(chunk, limits)
        except TaskFailed as failed:
            if whole:
                # Half of what the record did is in the transaction or in the state: nothing of it may count.
                self._give_up(session, failed.failure)
                return False
            self._fail(failed.failure)
            end, finished = failed.failure.offset or chunk.offsets[0], False
        except SinkBackpressureError as pause:
            self._stall(session, pause)
            return False
        except StoreCorruptedError as damage:
            self._repair(session, damage)
            return False
        except PASSING as trouble:
            self._interrupt(session, trouble)
            return False
        except StateError as refusal:
            self._give_up(session, state_failure(place, refusal))
            return False
        report.complete = report.complete and finished
        done = report.ranges[place]
        # Exactly once, a range begins where the group is, be there records or not: the next commit is compared with its end.
        begin = chunk.offsets[0] if done.start == done.end and not self._tasks.spec.transactional else done.start
        report.ranges[place] = OffsetRange(*place, begin, end)
        records, outputs = bisect.bisect_left(chunk.offsets, end), task.collector.outputs - before
        counts = self._counts.setdefault(place, [0, 0])
        counts[0] += records
        counts[1] += outputs
        report.records += records
        report.outputs += outputs
        enough = limits.outputs is not None and task.collector.outputs >= limits.outputs
        return finished and not enough and time.monotonic() < limits.deadline

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
        end = self.report.ranges[session.place].end
        if end <= session.start:
            if self._tasks.spec.transactional:
                # There was nothing left to do, but the transactional id is this process's now: all others are fenced.
                self.report.workers[session.place] = self._tasks.clients.worker
            session.close()
            return True
        sinks = self._tasks.sinks
        try:
            session.prepare(end, lambda: sinks.flush(session.place))
        except SinkBackpressureError as pause:
            self._stall(session, pause)
            return False
        except SinkError as error:
            self._give_up(session, Failure("sink", session.place, None, str(error), error.__cause__, _trace(error)))  # type: ignore[arg-type]
            return False
        except PASSING as trouble:
            self._interrupt(session, trouble)
            return False
        except StoreCorruptedError as damage:
            self._repair(session, damage)
            return False
        except StateError as refusal:
            self._give_up(session, state_failure(session.place, refusal))
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
        except PASSING as trouble:
            self._interrupt(session, trouble)
            return False
        except StateError as refusal:
            self._give_up(session, state_failure(session.place, refusal))
            return False
        self.report.workers[session.place] = self._tasks.clients.worker
        session.close()
        return True

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

    def _interrupt(self, session: Session, trouble: Exception) -> None:
        cause = trouble.__cause__
        if isinstance(cause, ProducerError) and cause.refused:
            # Another attempt would end the same way. No callback is asked: the transaction is lost with the record.
            message = f"{cause} (while processing {session.place})"
            self._give_up(session, Failure("producer", session.place, None, message, cause))
            return
        self._abort(session)
        self.report.interrupted[session.place] = str(trouble)

    def _repair(self, session: Session, damage: StoreCorruptedError) -> None:
        self._abort(session)
        self._destroy_stores(session, damage)

    def _destroy_stores(self, session: Session, damage: StoreCorruptedError) -> None:
        try:
            session.stores.destroy(damage)
        except StateError as refusal:
            self._fail(state_failure(session.place, refusal))
        else:
            self.report.interrupted[session.place] = str(damage)

    def _stall(self, session: Session, pause: SinkBackpressureError) -> None:
        self._abort(session)
        self.report.stalled[session.place] = pause_of(pause)

    def _give_up(self, session: Session, failure: Failure) -> None:
        self._abort(session)
        self._fail(failure)

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
            if (output.topic, output.partition) != session.place or output.offset < session.start
        ]
        report.sunk = [(node, batch) for node, batch in report.sunk if (batch.topic, batch.partition) != session.place]
        take_back(report, session.place, session.start, failure)

    def _fail(self, failure: Failure) -> None:
        self.report.failure = self.report.failure or failure
        self.report.complete = False


def state_failure(place: TopicPartition, error: StateError) -> Failure:
    """Return the failure that state which cannot be used makes."""
    return Failure("state", place, None, str(error), error, _trace(error))


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error))
