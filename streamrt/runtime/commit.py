"""The commit order. This module alone defines it.

A *session* is the work of one task between two commits, on one input partition or on those of merged topics::

    opened --> processing --> committed --> closed, or followed by a session over the same open stores
       |           |
       +-----------+--> aborted

**At-least-once**: the steps of a session are

1. open the stores and restore them to the end of their changelogs;
2. process the records; outputs go to the writer at once, state changes stay in memory;
3. flush the sinks;
4. produce changelog records, and one position record for each changelog;
5. flush the writer: every output and every change is durable, or the range does not advance. If another writer has
   written to a changelog meanwhile, rewrite its keys, or give up if the partition was reassigned
   (`streamrt.runtime.foreign`);
6. write changes and stamp to each store in one batch;
7. report; the driver commits the offsets of reported ranges to the consumer group.

A crash before step 7 repeats records and loses none; state may count them twice.

In resident tasks, a session that follows another one begins at step 2.

**Exactly-once**: each session is one Kafka transaction:

1. take the transactional ids of all inputs and of the owners that claim them, which aborts and fences every earlier
   holder: see `streamrt.runtime.fencing`;
2. compare the committed offset of each input with the expected one. If equal, continue; if ahead, drop the records
   below it; if behind, fail. Step 1 or step 2 alone would let duplicates through;
3. open the stores and restore them, as above;
4. process the records; outputs go into the transaction;
5. flush the sinks;
6. produce changelog and position records into the transaction;
7. commit the transaction with the offsets of all inputs. If the outcome is unknown, the session is aborted: the next
   attempt finds it out in steps 1 and 2;
8. only now write changes and stamp to the stores. A store must never contain changes that a transaction may still lose;
9. report.

A session that follows another one begins at step 4. It can skip steps 1 to 3: another process that works on the
partition meanwhile has taken the transactional id, and then step 7 fails.
"""

import copy
import enum
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from streamrt.errors import ChangelogError, ProducerError, StateError, StoreCorruptedError, TransactionError
from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.clients import RecordWriter, TaskClients, TransactionalRecordWriter, no_writer
from streamrt.runtime.faults import reached
from streamrt.runtime.fencing import take_inputs
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.report import Failure, Report, StoreTime
from streamrt.runtime.sent import what_was_sent
from streamrt.runtime.spec import ErrorCallbacks
from streamrt.runtime.stores import TaskStores
from streamrt.topology import TaskId

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("streamrt")


class SessionStatus(enum.Enum):
    """The status of a session, with the allowed transitions."""

    NEW = "new"
    OPEN = "open"
    PREPARED = "prepared"
    PUBLISHED = "published"
    COMMITTED = "committed"
    ABORTED = "aborted"

    @property
    def successors(self) -> "frozenset[SessionStatus]":
        """The statuses that may follow."""
        return _SUCCESSORS[self]


_SUCCESSORS: Mapping[SessionStatus, frozenset[SessionStatus]] = {
    SessionStatus.NEW: frozenset({SessionStatus.OPEN, SessionStatus.ABORTED}),
    SessionStatus.OPEN: frozenset({SessionStatus.PREPARED, SessionStatus.ABORTED}),
    SessionStatus.PREPARED: frozenset({SessionStatus.PUBLISHED, SessionStatus.ABORTED}),
    SessionStatus.PUBLISHED: frozenset({SessionStatus.COMMITTED, SessionStatus.ABORTED}),
    SessionStatus.COMMITTED: frozenset(),
    SessionStatus.ABORTED: frozenset(),
}


class Session:
    """The work of one task between two commits, with at-least-once. For exactly-once, see `ExactlyOnceSession`.

    All sessions share one writer, which `flush_writer` flushes before any of them commits.

    Args:
        task: the task.
        clients: the Kafka clients of this process.
        stores: the task's stores.
        expected: committed offset of each input partition, as known by the driver.

    Attributes:
        id: the task.
        inputs: the input partitions.
        start: offset of the first record to process, for each input partition; valid once the session is open.
        end: offset after the last processed record, for each input partition.
        writer: the target of outputs.
        times: event times of the stores at the end of the session.
        sent: the highest event time sent into each exchange since the stores were opened, by topic.
        unfinished: whether operators may have unfinished work that a tick must continue before the next record.
    """

    def __init__(
        self, task: TaskId, clients: TaskClients, stores: TaskStores, expected: Mapping[TopicPartition, int]
    ) -> None:
        self.id = task
        self.inputs = tuple(expected)
        self.start = self.end = dict(expected)
        self.status = SessionStatus.NEW
        self.writer: RecordWriter = clients.writer() if not self.transactional else no_writer
        self.clients = clients
        self.stores = stores
        self.times: Mapping[str, StoreTime] = {}
        self.sent: dict[str, int] = {}
        self.unfinished = False

    transactional = False

    def open(self, *, known: Collection[TopicPartition], deadline: float | None = None) -> None:
        """Open and restore the stores.

        Args:
            known: store scopes with their partition for which the last commit of the group records state.
            deadline: value of `time.monotonic()` at which a restore is interrupted.

        Raises:
            RestoreInterrupted: at the deadline.
            StateError: if state cannot be used.
        """
        self.stores.open(self.start, known=known, deadline=deadline)
        reached("restored")
        self._move(SessionStatus.OPEN)

    def prepare(self, end: Mapping[TopicPartition, int], flush_sinks: Callable[[], None]) -> None:
        """Flush the sinks, and hand the changelog records of the commit to the writer.

        Args:
            end: offset after the last processed record, for each input partition.
            flush_sinks: makes the records in the sinks durable.

        Raises:
            SinkBackpressureError: if a sink asks to retry later.
        """
        reached("processed")
        flush_sinks()
        reached("sinks-flushed")
        self.end = dict(end)
        self.stores.prepare(self.writer, self.end)
        reached("changelog-produced")
        self._move(SessionStatus.PREPARED)

    def publish(self) -> None:
        """Publish the work in Kafka, after `prepare` and a flush of the writer.

        Raises:
            TransactionError: if the partition was reassigned to another process.
            KafkaRequestError: if the changelogs cannot be checked or repaired.
        """
        self.stores.defend(self.writer)
        self._move(SessionStatus.PUBLISHED)

    def store(self) -> None:
        """Write the stores, after `publish`."""
        self.stores.flush(self.end)
        reached("stored")
        self._move(SessionStatus.COMMITTED)

    def successor(self) -> "Self | None":
        """Return the open session that follows this committed one over the same stores.

        Returns:
            None if the writer cannot continue, so that a new session must be opened.
        """
        if self.status is not SessionStatus.COMMITTED:
            return None
        self.stores.renew()
        following = copy.copy(self)
        following.start = dict(self.end)
        following.end = dict(self.end)
        following.status = SessionStatus.OPEN
        following.times = {}
        following.sent = dict(self.sent)
        return following

    def go_on(self) -> None:
        """Use the current writer: the previous one may have failed in the meantime."""
        self.writer = self.clients.writer()

    def abort(self) -> None:
        """Drop all uncommitted work."""
        if self.status is not SessionStatus.COMMITTED:
            self._move(SessionStatus.ABORTED)
        self.end = self.start

    def close(self) -> StateError | None:
        """Close the stores, and drop all uncommitted work.

        Returns:
            The error that must end the application: a store cannot be written, for example because the disk is full.
            Committed state is in the changelog, but each later session would have to restore it from there.
        """
        if self.status not in (SessionStatus.COMMITTED, SessionStatus.ABORTED):
            self.abort()
        try:
            self.stores.close()
        except StoreCorruptedError as error:
            logger.warning("a store of %s could not be closed: %s; the next session restores it", self.id, error)
        except StateError as error:
            return error
        return None

    def _move(self, status: SessionStatus) -> None:
        if status not in self.status.successors:
            raise RuntimeError(f"the session of {self.id} cannot go from {self.status.value} to {status.value}")
        self.status = status


class ExactlyOnceSession(Session):
    """The work of one task between two commits, with exactly-once: one Kafka transaction.

    Args:
        task: the task.
        clients: the Kafka clients of this process.
        stores: the task's stores.
        expected: committed offset of each input partition, as known by the driver.
        reuse: whether this process made the task's last commit.
        metadata: composes the metadata of committed offsets.
        exchanges: the exchanges that the task sends into, from `Topology.sends`.
    """

    transactional = True

    def __init__(
        self,
        task: TaskId,
        clients: TaskClients,
        stores: TaskStores,
        expected: Mapping[TopicPartition, int],
        *,
        reuse: bool,
        metadata: CommitMetadata,
        exchanges: Mapping[str, frozenset[str]],
    ) -> None:
        super().__init__(task, clients, stores, expected)
        self._reuse = reuse
        self._metadata = metadata
        self._exchanges = exchanges
        self._transaction: TransactionalRecordWriter | None = None

    def open(self, *, known: Collection[TopicPartition], deadline: float | None = None) -> None:
        """Fence earlier holders, compare the committed offsets, and open the stores.

        Raises:
            StateError: if a committed offset of the group was moved back.
            TransactionError: if Kafka rejects the transaction, or the partition was reassigned meanwhile.
            RestoreInterrupted: at the deadline.
        """
        reached("opened")
        self.writer = self._transaction = take_inputs(
            self.clients, self.id, self.inputs, self._metadata, reuse=self._reuse
        )
        reached("fenced")
        for place, expected in self.start.items():
            committed = self.clients.committed(place)
            if committed is None or committed < expected:
                raise StateError(
                    f"the committed offset of {place} is {committed}, but it was {expected} before: the offsets of the "
                    "consumer group were set back while the application was running; stop all its instances first"
                )
            # Ahead: another attempt has already committed these records.
            self.start[place] = committed
        self.end = dict(self.start)
        reached("checked")
        try:
            super().open(known=known, deadline=deadline)
        except ChangelogError as refusal:
            if all(self.clients.committed(place) == at for place, at in self.start.items()):
                raise
            # Another process has committed between the reads of the store and of the offsets.
            raise TransactionError(f"another process works on {self.id}", fenced=True) from refusal

    def publish(self) -> None:
        """Commit the transaction. It may run in any thread, and uses only the writer.

        Raises:
            TransactionError: if the transaction was aborted or fenced, or its outcome is unknown.
        """
        if self._transaction is None:
            raise RuntimeError(f"the session of {self.id} is not open")
        sent = what_was_sent(self.sent, self.times, self._exchanges)
        self._transaction.commit(self.end, self._metadata.encode_all(self.end, sent=dict.fromkeys(self.end, sent)))
        reached("committed")
        self._move(SessionStatus.PUBLISHED)

    def go_on(self) -> None:
        """Keep the writer, which belongs to this session."""

    def successor(self) -> "Self | None":
        """Return the session of the next transaction; None if the writer is not usable any more."""
        return super().successor() if self._transaction is not None and self._transaction.usable else None

    def abort(self) -> None:
        """Abort the transaction."""
        if self._transaction is not None and self.status is not SessionStatus.COMMITTED:
            self._transaction.abort()
        super().abort()

    def close(self) -> StateError | None:
        """Close the stores, and release a writer that is not usable any more."""
        error = super().close()
        if self._transaction is not None and not self._transaction.usable:
            self.clients.release(self.id)
        return error


def flush_writer(
    writer: RecordWriter, callbacks: ErrorCallbacks, changelogs: Collection[str] = ()
) -> "tuple[str, str, Exception] | None":
    """Wait until all outputs are durable.

    Args:
        writer: the writer of the outputs.
        callbacks: `on_producer_error` may skip a failed record.
        changelogs: topics whose records must not be skipped.

    Returns:
        None, or kind, message and cause of the failure for a lost record.

    Raises:
        WriterFailedError: if the writer cannot continue. The callback cannot skip this, since any record may be lost,
            also state changes.
    """
    refusal = None
    for error in writer.flush():
        needed = isinstance(error, ProducerError) and error.topic in changelogs
        refusal = refusal or _refusal(error, ErrorCallbacks() if needed else callbacks)
    reached("outputs-flushed")
    return refusal


def take_back(report: Report, session: Session, failure: Failure | None) -> None:
    """Withdraw the progress since the start of a session from the report."""
    for place, start in session.start.items():
        done = report.ranges[place]
        report.ranges[place] = OffsetRange(*place, done.start, max(done.start, start))
        # An earlier session of the batch may be committed.
        kept = [offset for offset in report.processed.pop(place, ()) if offset < start]
        if kept:
            report.processed[place] = kept
    report.complete = False
    report.failure = report.failure or failure


def _refusal(error: Exception, callbacks: ErrorCallbacks) -> tuple[str, str, Exception] | None:
    """Return kind, message and cause of the failure for a lost record; None if the callback skips it."""
    if callbacks.producer is None:
        return "producer", str(error), error
    try:
        # Deliveries fail long after the input record was processed, so there is no record to pass.
        skipped = bool(callbacks.producer(error, None, logger))
    except Exception as raised:  # noqa: BLE001 - any exception of the callback stops the application
        reason = f"{type(raised).__name__}: {raised}"
        return "callback", f"the callback on_producer_error itself failed on {error!r}: {reason}", raised
    return None if skipped else ("producer", str(error), error)
