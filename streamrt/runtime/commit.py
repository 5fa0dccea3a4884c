"""The order in which work becomes official. Nothing else decides about it.

A *session* is the work of one task between two commits: on its input partition, or on those of several topics::

    opened --> processing --> committed --> closed, or followed by a session over the same open stores
       |           |
       +-----------+--> aborted

**At-least-once**, the steps of a session:

1. open the stores and restore them to the end of their changelogs;
2. process the records; outputs are handed to the writer as they arise, changes of state stay in memory;
3. flush the sinks;
4. produce changelog records, and one position record for each changelog;
5. flush the writer: every output and every change is durable, or the range does not advance;
6. write changes and stamp to the stores, in one batch each;
7. report; the driver commits the offsets of reported ranges to the consumer group.

A crash before 7 repeats records, and loses none; state may count them twice.

A session that follows another one, in resident tasks, begins at 2.

**Exactly-once**, one Kafka transaction for each session:

1. take the transactional id of the task, which aborts and fences every earlier holder;
2. compare the committed offset of each input with the expected one: equal, go on; ahead, drop the records below it;
   behind, fail. Either of 1 and 2 alone lets duplicates through;
3. open the stores and restore them, see above;
4. process; outputs go into the transaction;
5. flush the sinks;
6. produce changelog and position records into the transaction;
7. commit the transaction with the offsets of all inputs. If the outcome is not known, the session is aborted: the next
   attempt learns the truth in 1 and 2;
8. only now write changes and stamp to the stores. A store must never contain what a transaction may yet lose;
9. report.

A session that follows another one begins at 4. It needs no 1 to 3: whoever works on the partition meanwhile has taken the
transactional id, and then 7 fails.
"""

import copy
import enum
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from streamrt.errors import ProducerError, StateError
from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.clients import RecordWriter, TaskClients, TransactionWriter, no_writer
from streamrt.runtime.faults import reached
from streamrt.runtime.report import Failure, Report, StoreTime
from streamrt.runtime.spec import ErrorCallbacks
from streamrt.runtime.stores import TaskStores

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("streamrt")


class SessionStatus(enum.Enum):
    """Where a session is, with what may come next."""

    NEW = "new"
    OPEN = "open"
    PREPARED = "prepared"
    PUBLISHED = "published"
    COMMITTED = "committed"
    ABORTED = "aborted"

    @property
    def successors(self) -> "frozenset[SessionStatus]":
        """The states that may follow."""
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
    """The work of one task between two commits: at least once. `ExactlyOnceSession` is the other guarantee.

    Outputs of all sessions share one writer, which `flush_writer` flushes before any of them commits.

    Args:
        place: the task: its input partition, or what stands for those of several topics.
        clients: Kafka.
        stores: the task's stores.
        expected: offset at which the group is, as the driver knows it, for each input partition.

    Attributes:
        inputs: the input partitions.
        start: offset of the first record to process, once the session is open, for each of them.
        end: offset after the last record that was processed.
        writer: where outputs go.
        times: where event time was in the stores when the session ended.
    """

    def __init__(
        self, place: TopicPartition, clients: TaskClients, stores: TaskStores, expected: Mapping[TopicPartition, int]
    ) -> None:
        self.place = place
        self.inputs = tuple(expected)
        self.start = self.end = dict(expected)
        self.status = SessionStatus.NEW
        self.writer: RecordWriter = clients.writer() if not self.transactional else no_writer
        self.clients = clients
        self.stores = stores
        self.times: Mapping[str, StoreTime] = {}

    transactional = False

    def open(self, *, known: Collection[TopicPartition], deadline: float | None = None) -> None:
        """Get ready to process records.

        Args:
            known: topics, and partition, of which the group's last commit tells that they have state.
            deadline: value of `time.monotonic()` at which a restore is interrupted.

        Raises:
            RestoreInterrupted: at the deadline.
            StateError: if state cannot be used.
        """
        self.stores.open(self.start, known=known, deadline=deadline)
        reached("restored")
        self._move(SessionStatus.OPEN)

    def prepare(self, end: Mapping[TopicPartition, int], flush_sinks: Callable[[], None]) -> None:
        """Hand everything that belongs to the commit to the sinks and the writer.

        Args:
            end: offset after the last processed record, for each input partition.
            flush_sinks: makes durable what the sinks took.

        Raises:
            SinkBackpressureError: if a sink wants the records later.
        """
        reached("processed")
        flush_sinks()
        reached("sinks-flushed")
        self.end = dict(end)
        self.stores.prepare(self.writer, self.end)
        reached("changelog-produced")
        self._move(SessionStatus.PREPARED)

    def publish(self) -> None:
        """Make the work official for Kafka; `prepare` came before. It may run in any thread, and uses the writer alone."""
        self._move(SessionStatus.PUBLISHED)

    def store(self) -> None:
        """Write the stores; `publish` came before."""
        self.stores.flush(self.end)
        reached("stored")
        self._move(SessionStatus.COMMITTED)

    def successor(self) -> "Self | None":
        """Return the open session that follows this one, which is committed, over the same stores.

        Returns:
            None if a new one must be opened, because the stores or the writer cannot go on.
        """
        if self.status is not SessionStatus.COMMITTED or not self.stores.renew():
            return None
        following = copy.copy(self)
        following.start = dict(self.end)
        following.end = dict(self.end)
        following.status = SessionStatus.OPEN
        following.times = {}
        return following

    def go_on(self) -> None:
        """Take the writer that there is now: that of before may have failed in the meantime."""
        self.writer = self.clients.writer()

    def abort(self) -> None:
        """Drop everything that is not committed."""
        if self.status is not SessionStatus.COMMITTED:
            self._move(SessionStatus.ABORTED)
        self.end = self.start

    def close(self) -> None:
        """Close the stores; what is not committed is dropped."""
        if self.status not in (SessionStatus.COMMITTED, SessionStatus.ABORTED):
            self.abort()
        try:
            self.stores.close()
        except StateError as error:
            # What is official is written, and the rest is dropped; the next session sees what the stores can be trusted with.
            logger.warning("a store of %s could not be closed: %s", self.place, error)

    def _move(self, status: SessionStatus) -> None:
        if status not in self.status.successors:
            raise RuntimeError(f"the session of {self.place} cannot go from {self.status.value} to {status.value}")
        self.status = status


class ExactlyOnceSession(Session):
    """One Kafka transaction.

    Args:
        place: the task: its input partition, or what stands for those of several topics.
        clients: Kafka.
        stores: the task's stores.
        expected: offset at which the group is, as the driver knows it, for each input partition.
        reuse: whether this process made the task's last commit.
        metadata: stored with the committed offset.
    """

    transactional = True

    def __init__(
        self,
        place: TopicPartition,
        clients: TaskClients,
        stores: TaskStores,
        expected: Mapping[TopicPartition, int],
        *,
        reuse: bool,
        metadata: str | None,
    ) -> None:
        super().__init__(place, clients, stores, expected)
        self._reuse = reuse
        self._metadata = metadata
        self._transaction: TransactionWriter | None = None

    def open(self, *, known: Collection[TopicPartition], deadline: float | None = None) -> None:
        """Fence earlier holders, compare the committed offsets, and get ready.

        Raises:
            StateError: if an offset of the group was moved back.
            TransactionError: if Kafka does not let us begin.
            RestoreInterrupted: at the deadline.
        """
        reached("opened")
        topic = self.inputs[0].topic
        self.writer = self._transaction = self.clients.transactional(self.place, topic=topic, reuse=self._reuse)
        reached("fenced")
        for place, expected in self.start.items():
            committed = self.clients.committed(place)
            if committed is None or committed < expected:
                raise StateError(
                    f"the committed offset of {place} is {committed}, but it was {expected} before: somebody set the "
                    "offsets of the consumer group back while the application runs; stop it first"
                )
            # Ahead: another attempt at the same records has committed them already.
            self.start[place] = committed
        self.end = dict(self.start)
        reached("checked")
        super().open(known=known, deadline=deadline)

    def publish(self) -> None:
        """Commit the transaction.

        Raises:
            TransactionError: if the transaction was aborted or fenced, or its outcome is not known.
        """
        if self._transaction is None:
            raise RuntimeError(f"the session of {self.place} is not open")
        self._transaction.commit(self.end, self._metadata)
        reached("committed")
        super().publish()

    def go_on(self) -> None:
        """Keep the writer, which is this session's own."""

    def successor(self) -> "Self | None":
        """Return the session of the next transaction; None if this one left doubts about its writer."""
        return super().successor() if self._transaction is not None and self._transaction.usable else None

    def abort(self) -> None:
        """Abort the transaction."""
        if self._transaction is not None and self.status is not SessionStatus.COMMITTED:
            self._transaction.abort()
        super().abort()

    def close(self) -> None:
        """Close the stores, and let go of a writer that cannot be used again."""
        super().close()
        if self._transaction is not None and not self._transaction.usable:
            self.clients.release(self.place)


def flush_writer(
    writer: RecordWriter, callbacks: ErrorCallbacks, changelogs: Collection[str] = ()
) -> "tuple[str, str, Exception] | None":
    """Wait until all outputs are durable.

    Args:
        writer: where they went.
        callbacks: `on_producer_error` may choose to do without a record that failed.
        changelogs: topics whose records nobody may choose to do without.

    Returns:
        None, or kind, message and cause of the failure that a lost record is.
    """
    refusal = None
    for error in writer.flush():
        needed = isinstance(error, ProducerError) and error.topic in changelogs
        refusal = refusal or _refusal(error, ErrorCallbacks() if needed else callbacks)
    reached("outputs-flushed")
    return refusal


def take_back(report: Report, session: Session, failure: Failure | None) -> None:
    """Take back the progress that a report claims since a session began."""
    for place, start in session.start.items():
        done = report.ranges[place]
        report.ranges[place] = OffsetRange(*place, done.start, max(done.start, start))
        # An earlier session of the batch may be official.
        kept = [offset for offset in report.processed.pop(place, ()) if offset < start]
        if kept:
            report.processed[place] = kept
    report.complete = False
    report.failure = report.failure or failure


def _refusal(error: Exception, callbacks: ErrorCallbacks) -> tuple[str, str, Exception] | None:
    """Return kind, message and cause of the failure that a lost delivery is; None if the user can do without."""
    if callbacks.producer is None:
        return "producer", str(error), error
    try:
        # Deliveries fail long after the input record was processed: there is no record to tell about.
        skipped = bool(callbacks.producer(error, None, logger))
    except Exception as raised:  # noqa: BLE001 - whatever it is, the application stops
        reason = f"{type(raised).__name__}: {raised}"
        return "callback", f"the callback on_producer_error itself failed on {error!r}: {reason}", raised
    return None if skipped else ("producer", str(error), error)
