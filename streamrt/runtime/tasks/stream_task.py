"""A task: one stream over one partition, the unit of processing, of state and of commit."""

import enum
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamrt.connectors import SinkBatch
from streamrt.errors import ChangelogError, StateError, StoreCorruptedError
from streamrt.records import Positions, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import Output, StoreTime
from streamrt.runtime.sent import Sent, pending_exchange_times
from streamrt.runtime.tasks import faults
from streamrt.runtime.tasks.commit import CommitProtocol
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.runtime.tasks.task_clients import RecordWriter
from streamrt.topology import TaskId

if TYPE_CHECKING:
    from streamrt.runtime.tasks.spans import CommitSpan

__all__ = ["StreamTask", "TaskStatus", "Work"]

logger = logging.getLogger("streamrt")


class TaskStatus(enum.Enum):
    """The life cycle of a task, with the allowed transitions."""

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    PREPARED = "prepared"
    PUBLISHED = "published"
    COMMITTED = "committed"
    SUSPENDED = "suspended"
    WAITING = "waiting"
    CLOSED = "closed"

    @property
    def successors(self) -> "frozenset[TaskStatus]":
        """The statuses that may follow."""
        return _SUCCESSORS[self]

    @property
    def is_open(self) -> bool:
        """Whether the stores of the task are open."""
        return self not in (TaskStatus.CREATED, TaskStatus.RESTORING, TaskStatus.WAITING, TaskStatus.CLOSED)


_SUCCESSORS: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    TaskStatus.CREATED: frozenset({TaskStatus.RESTORING, TaskStatus.CLOSED}),
    TaskStatus.RESTORING: frozenset({TaskStatus.RUNNING, TaskStatus.WAITING}),
    TaskStatus.RUNNING: frozenset({TaskStatus.PREPARED, TaskStatus.SUSPENDED, TaskStatus.WAITING}),
    TaskStatus.PREPARED: frozenset({TaskStatus.PUBLISHED, TaskStatus.WAITING}),
    TaskStatus.PUBLISHED: frozenset({TaskStatus.COMMITTED, TaskStatus.WAITING}),
    TaskStatus.COMMITTED: frozenset({TaskStatus.RUNNING, TaskStatus.WAITING}),
    TaskStatus.SUSPENDED: frozenset({TaskStatus.RUNNING, TaskStatus.WAITING}),
    TaskStatus.WAITING: frozenset({TaskStatus.RESTORING, TaskStatus.CLOSED}),
    TaskStatus.CLOSED: frozenset(),
}


@dataclass
class Work:
    """The work of a task since its last commit, which can still be withdrawn from the report.

    Attributes:
        records: number of processed records.
        outputs: number of outputs of the last operators.
        read_bytes: size of the keys and values of the processed records.
        produced: number of records sent to topics.
        produced_bytes: size of their keys and values.
        skipped: number of records that failed and were skipped.
        dead_letters: number of records that failed and were written to the topic for dead letters.
        collected: the collected outputs.
        sunk: the batches for sinks of the driver.
        context: the context of the last tick.
        span: the span of this work; None if it is not traced.
        ended: the ids of the operators that have finished their work at the end of a bounded run.
    """

    records: int = 0
    outputs: int = 0
    read_bytes: int = 0
    produced: int = 0
    produced_bytes: int = 0
    skipped: int = 0
    dead_letters: int = 0
    collected: list[Output] = field(default_factory=list)
    sunk: list[tuple[int, SinkBatch]] = field(default_factory=list)
    context: BatchContext | None = None
    span: "CommitSpan | None" = None
    ended: frozenset[int] = frozenset()

    def counts(self) -> dict[str, int]:
        """Return the numbers, by name."""
        names = ("records", "outputs", "produced", "skipped", "dead_letters")
        return {name: getattr(self, name) for name in names}


@dataclass
class TaskProgress:
    """How far a task has come.

    Attributes:
        times: event time of each store.
        sent: the highest event time sent into each exchange.
        positions: next offset of each input partition.
    """

    times: dict[str, StoreTime] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    positions: Positions = field(default_factory=Positions)


class StreamTask:
    """One stream over one partition: its position, stores, writer and uncommitted work, from assignment to release.

    The life cycle::

        CREATED --> RESTORING --> RUNNING --> PREPARED --> PUBLISHED --> COMMITTED --> RUNNING (resident)
           |            |            |            |            |             |
           |            |            +--> SUSPENDED --> RUNNING              |
           |            |            |        |           (a rebalance)      |
           |            +------------+--------+---> WAITING <---+------------+
           |                                         |  |
           +------------> CLOSED <-------------------+  +--> RESTORING (the next attempt)

    `abort` leads to WAITING from every status with open stores, and drops all uncommitted work. For the steps of a
    commit see `streamrt.runtime.tasks.commit`.

    Args:
        task_id: the task.
        start: committed offset of each input partition.
        commit: what the guarantee requires.
        exchanges: the exchanges that the task sends into, from `Topology.sends`.
        resumes: whether operators may have left work that must be finished before the next record.

    Attributes:
        id: the task.
        inputs: the input partitions.
        status: the current status.
        is_open: whether the stores are open.
        start: offset of the first uncommitted record, for each input partition.
        end: offset after the last record of the prepared commit, for each input partition.
        sent: the highest event time sent into each exchange, by topic.
        times: event times of the stores at the last commit.
        durable: event times that are committed, or durable in exchanges.
        reported: event times and positions that the driver knows.
        unfinished: whether operators may have unfinished work that a tick must continue before the next record.
        work: the work since the last commit; None if the task has not worked since.
        last_committer: whether this process made the last commit of the task, as known to its owner.
        replaying: whether the task may read records again that have already advanced the watermark.
        stateful: store scopes with their partition for which the last commit of the group records state.
    """

    def __init__(
        self,
        task_id: TaskId,
        start: Mapping[TopicPartition, int],
        commit: CommitProtocol,
        exchanges: Mapping[str, frozenset[str]],
        *,
        resumes: bool = False,
    ) -> None:
        self.id = task_id
        self.inputs = tuple(start)
        self.status = TaskStatus.CREATED
        self.is_open = False
        self.start = dict(start)
        self.end = dict(start)
        self._before_markers: dict[TopicPartition, int] = {}
        self.sent: dict[str, int] = {}
        self.times: Mapping[str, StoreTime] = {}
        self.durable = TaskProgress()
        self.reported = TaskProgress()
        self.unfinished = False
        self.work: Work | None = None
        self.last_committer = False
        self.replaying = False
        self.stateful: frozenset[TopicPartition] = frozenset()
        self._commit = commit
        self._exchanges = exchanges
        self._resumes = resumes
        self._stores: TaskStores | None = None

    @property
    def is_working(self) -> bool:
        """Whether there is work since the last commit that is not prepared yet."""
        return self.work is not None and self.status is TaskStatus.RUNNING

    @property
    def stores(self) -> TaskStores:
        """The stores of the current attempt, or of the last one.

        Raises:
            RuntimeError: if the task was never opened.
        """
        if self._stores is None:
            raise RuntimeError(f"task {self.id} has no stores before it is opened")
        return self._stores

    @property
    def writer(self) -> RecordWriter:
        """The target of outputs."""
        return self._commit.writer

    # -- From commit to commit -----------------------------------------------------------------------------------------

    def open(self, stores: TaskStores, *, deadline: float | None = None) -> None:
        """Take the inputs, and open and restore the stores. After an error, call `abort`.

        Args:
            stores: the stores of this attempt.
            deadline: value of `time.monotonic()` at which a restore is interrupted.

        Raises:
            RestoreInterrupted: at the deadline.
            StateError: if state cannot be used, or a committed offset of the group was moved back.
            TransactionError: if Kafka rejects the transaction, or the partition was reassigned meanwhile.
        """
        self._move_to(TaskStatus.RESTORING)
        self._stores = stores
        self.start = self._commit.begin({**self.start, **self._before_markers}, reuse=self.last_committer)
        self._before_markers.clear()
        self.end = dict(self.start)
        # Event times sent by earlier owners remain valid, and so does work that they left unfinished.
        self.sent = dict(self.durable.sent)
        self.unfinished = self._resumes
        try:
            stores.open(self.start, stateful=self.stateful, deadline=deadline)
        except ChangelogError as refusal:
            self._commit.confirm_refusal(refusal, self.start)
        faults.reached("restored")
        self._move_to(TaskStatus.RUNNING)

    def begin_work(self) -> None:
        """Begin to work in a commit interval."""
        self._commit.resume()
        self.work = Work()

    def prepare(self, end: Mapping[TopicPartition, int], flush_sinks: Callable[[], None]) -> None:
        """Flush the sinks. Then, `produce_changes` hands the changelog records of the commit to the writer.

        Args:
            end: offset after the last processed record, for each input partition.
            flush_sinks: makes the records in the sinks durable.

        Raises:
            SinkBackpressureError: if a sink asks to retry later.
        """
        self._require_status(TaskStatus.PREPARED)
        faults.reached("processed")
        flush_sinks()
        faults.reached("sinks-flushed")
        self.end = dict(end)
        self._move_to(TaskStatus.PREPARED)

    def produce_changes(self) -> None:
        """Hand the changelog records of the commit to the writer, after `prepare`.

        At least once, the outputs must be durable before: state that has forgotten a result, such as a closed window,
        never emits it again.

        Raises:
            ProducerError: if a change cannot be produced.
        """
        self.stores.prepare(self.writer, self.end)
        self._commit.prepare(self.end)
        faults.reached("changelog-produced")

    def publish(self) -> None:
        """Publish the work in Kafka, after `prepare`; at least once, after a flush of the writer.

        With exactly-once, it may run in any thread.

        Raises:
            TransactionError: if the partition was reassigned to another process, or the outcome is unknown.
            KafkaRequestError: if the changelogs cannot be checked or repaired.
        """
        self._require_status(TaskStatus.PUBLISHED)
        self._commit.publish(self.stores, self.end, pending_exchange_times(self.sent, self.times, self._exchanges))
        self._move_to(TaskStatus.PUBLISHED)

    def store(self) -> None:
        """Write the stores, after `publish`."""
        self._require_status(TaskStatus.COMMITTED)
        self.stores.flush(self.end)
        faults.reached("stored")
        self.start = dict(self.end)
        self._before_markers.clear()
        self._move_to(TaskStatus.COMMITTED)

    def proceed(self) -> bool:
        """Begin the next commit interval over the same open stores.

        Returns:
            False if the writer cannot continue, so that the task must be opened again.
        """
        if not self._commit.usable:
            return False
        self.stores.renew()
        self._move_to(TaskStatus.RUNNING)
        return True

    def pass_markers(self, partition: TopicPartition, end: int) -> None:
        """Continue behind the transaction markers at the end of an input, which the group has passed.

        A former owner whose transaction began before may still set the group back to the offset in front of them.

        Args:
            partition: the input partition.
            end: the offset behind the markers.
        """
        self._before_markers.setdefault(partition, self.start[partition])
        self.start[partition] = end

    # -- Rebalances and the end ----------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Keep the stores open during a rebalance, with nothing uncommitted, until `resume` or `close`."""
        self._move_to(TaskStatus.SUSPENDED)

    def resume(self) -> None:
        """Continue after a rebalance."""
        self._move_to(TaskStatus.RUNNING)

    def abort(self) -> StateError | None:
        """Drop all uncommitted work and close the stores; another attempt may follow.

        Returns:
            The error that must end the application: a store cannot be written, for example because the disk is full.
            Committed state is in the changelog, but each later attempt would have to restore it from there.
        """
        if self._stores is None or TaskStatus.WAITING not in self.status.successors:
            return None
        if self.status is not TaskStatus.COMMITTED:
            self._commit.abort()
        self._move_to(TaskStatus.WAITING)
        self.end = dict(self.start)
        try:
            self._stores.close()
        except StoreCorruptedError as error:
            logger.warning("a store of %s could not be closed: %s; the next attempt restores it", self.id, error)
        except StateError as error:
            return error
        finally:
            self._commit.release()
        return None

    def close(self) -> StateError | None:
        """Release the task for good. Uncommitted work is dropped.

        Returns:
            As `abort`.
        """
        if self.status is TaskStatus.CLOSED:
            return None
        error = self.abort()
        self._move_to(TaskStatus.CLOSED)
        return error

    # -- Event time ----------------------------------------------------------------------------------------------------

    def note_durable(self, *, sent: bool) -> None:
        """Note the event times of committed work.

        Args:
            sent: whether nothing earlier will be sent into exchanges; False if unfinished work may send it.
        """
        self.durable.times.update(self.times)
        if sent:
            self.durable.sent = dict(self.sent)

    def sent_for_commit(self) -> dict[str, Sent]:
        """Return the event times that the metadata of a committed offset stores."""
        return pending_exchange_times(self.durable.sent, self.durable.times, self._exchanges)

    def _require_status(self, status: TaskStatus) -> None:
        if status not in self.status.successors:
            raise RuntimeError(f"task {self.id} cannot go from {self.status.value} to {status.value}")

    def _move_to(self, status: TaskStatus) -> None:
        self._require_status(status)
        self.status = status
        self.is_open = status.is_open
