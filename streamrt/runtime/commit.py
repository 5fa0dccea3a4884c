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
5. flush the writer: every output and every change is durable, or the range does not advance. Where others have written to a
   changelog meanwhile, write their keys again, or give up if they have taken the partition over (`streamrt.runtime.foreign`);
6. write changes and stamp to the stores, in one batch each;
7. report; the driver commits the offsets of reported ranges to the consumer group.

A crash before 7 repeats records, and loses none; state may count them twice.

A session that follows another one, in resident tasks, begins at 2.

**Exactly-once**, one Kafka transaction for each session:

1. take the transactional ids of all inputs, and of whoever claims them, which aborts and fences every earlier holder:
   see `streamrt.runtime.fencing`;
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

from streamrt.errors import ChangelogError, ProducerError, StateError, StoreCorruptedError, TransactionError
from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.clients import RecordWriter, TaskClients, TransactionWriter, no_writer
from streamrt.runtime.faults import reached
from streamrt.runtime.fencing import take_inputs
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.report import Failure, Report, StoreTime
from streamrt.runtime.sent import what_was_sent
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
        sent: the highest event time that was sent into exchanges, by topic, since the stores were opened.
        unfinished: whether operators have, or may have, work left over that a tick must go on with before the next record.
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
        self.sent: dict[str, int] = {}
        self.unfinished = False

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
        """Make the work official for Kafka; `prepare` came before, and the writer is flushed.

        Raises:
            TransactionError: if another process has taken the partition over.
            KafkaRequestError: if the changelogs cannot be looked at, or set right.
        """
        self.stores.defend(self.writer)
        self._move(SessionStatus.PUBLISHED)

    def store(self) -> None:
        """Write the stores; `publish` came before."""
        self.stores.flush(self.end)
        reached("stored")
        self._move(SessionStatus.COMMITTED)

    def successor(self) -> "Self | None":
        """Return the open session that follows this one, which is committed, over the same stores.

        Returns:
            None if a new one must be opened, because the writer cannot go on.
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
        """Take the writer that there is now: that of before may have failed in the meantime."""
        self.writer = self.clients.writer()

    def abort(self) -> None:
        """Drop everything that is not committed."""
        if self.status is not SessionStatus.COMMITTED:
            self._move(SessionStatus.ABORTED)
        self.end = self.start

    def close(self) -> StateError | None:
        """Close the stores; what is not committed is dropped.

        Returns:
            Why the application cannot go on: a store cannot be written, because the disk is full for example. What is
            official is in the changelog, but each session to come would read it from there again.
        """
        if self.status not in (SessionStatus.COMMITTED, SessionStatus.ABORTED):
            self.abort()
        try:
            self.stores.close()
        except StoreCorruptedError as error:
            # The next session restores it.
            logger.warning("a store of %s could not be closed: %s", self.place, error)
        except StateError as error:
            return error
        return None

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
        metadata: composes what is stored with the committed offset of each input.
        exchanges: the exchanges that the task sends into, as `Topology.sends` tells.
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
        metadata: CommitMetadata,
        exchanges: Mapping[str, frozenset[str]],
    ) -> None:
        super().__init__(place, clients, stores, expected)
        self._reuse = reuse
        self._metadata = metadata
        self._exchanges = exchanges
        self._transaction: TransactionWriter | None = None

    def open(self, *, known: Collection[TopicPartition], deadline: float | None = None) -> None:
        """Fence earlier holders, compare the committed offsets, and get ready.

        Raises:
            StateError: if an offset of the group was moved back.
            TransactionError: if Kafka does not let us begin, or another process has taken over meanwhile.
            RestoreInterrupted: at the deadline.
        """
        reached("opened")
        self.writer = self._transaction = take_inputs(
            self.clients, self.place, self.inputs, self._metadata, reuse=self._reuse
        )
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
        try:
            super().open(known=known, deadline=deadline)
        except ChangelogError as refusal:
            if all(self.clients.committed(place) == at for place, at in self.start.items()):
                raise
            # The store and the offsets were read at different times, and somebody has committed in between.
            raise TransactionError(f"another process works on {self.place}", fenced=True) from refusal

    def publish(self) -> None:
        """Commit the transaction. It may run in any thread, and uses the writer alone.

        Raises:
            TransactionError: if the transaction was aborted or fenced, or its outcome is not known.
        """
        if self._transaction is None:
            raise RuntimeError(f"the session of {self.place} is not open")
        sent = what_was_sent(self.sent, self.times, self._exchanges)
        self._transaction.commit(self.end, self._metadata.encode_all(self.end, sent=dict.fromkeys(self.end, sent)))
        reached("committed")
        self._move(SessionStatus.PUBLISHED)

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

    def close(self) -> StateError | None:
        """Close the stores, and let go of a writer that cannot be used again."""
        error = super().close()
        if self._transaction is not None and not self._transaction.usable:
            self.clients.release(self.place)
        return error


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

    Raises:
        WriterFailedError: if the writer cannot go on. Nobody may choose to do without what is lost with it: that may be
            anything, also changes of state.
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
