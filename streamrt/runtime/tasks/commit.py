"""The commit order, for both guarantees. `StreamTask` takes these steps; this module has what differs between them.

**At-least-once**: the steps from commit to commit are

1. open the stores and restore them to the end of their changelogs;
2. process the records; outputs go to the writer at once, state changes stay in memory;
3. flush the sinks;
4. flush the writer: every output is durable, or the range does not advance. State may have forgotten a result that it
   has emitted, such as a closed window, so no change may outlive an output;
5. produce changelog records, and one position record for each changelog, and flush the writer again. If another writer
   has written to a changelog meanwhile, rewrite its keys, or give up if the partition was reassigned
   (`streamrt.runtime.tasks.stores.foreign`);
6. write changes and stamp to each store in one batch;
7. report; the driver commits the offsets of reported ranges to the consumer group.

After step 5, a task produces the positions of inputs whose records reach no store of it (`streamrt.runtime.layout_record`).

A crash before step 7 repeats records and loses none; state may count them twice.

A task of a resident loop begins its next commit interval at step 2.

**Exactly-once**: each commit is one Kafka transaction of one task:

1. take the transactional ids of all inputs and of the owners that claim them, which aborts and fences every earlier
   holder: see `streamrt.runtime.tasks.fencing`;
2. compare the committed offset of each input with the expected one. If equal, continue; if ahead, drop the records
   below it; if behind, fail. Step 1 or step 2 on its own would let duplicates through;
3. open the stores and restore them, as above;
4. process the records; outputs go into the transaction;
5. flush the sinks;
6. produce changelog and position records into the transaction, and the positions of inputs without a store;
7. commit the transaction with the offsets of all inputs. If the outcome is unknown, the work is aborted: the next
   attempt finds it out in steps 1 and 2;
8. only now write changes and stamp to the stores. A store must never contain changes that a transaction may still lose;
9. report.

A task of a resident loop begins its next commit interval at step 4. It can skip steps 1 to 3: another process that
works on the partition meanwhile has taken the transactional id, and then step 7 fails.
"""

import logging
import math
from collections.abc import Collection, Mapping
from typing import Protocol

from streamrt.errors import ChangelogError, ProducerError, StateError, TransactionError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.topic_ids import repeated
from streamrt.records import TopicPartition
from streamrt.runtime.layout_record import InputPositions
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.sent import Sent
from streamrt.runtime.spec import ErrorCallbacks
from streamrt.runtime.tasks import faults
from streamrt.runtime.tasks.fencing import take_inputs
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.runtime.tasks.task_clients import RecordWriter, TaskClients, TransactionalRecordWriter, no_writer
from streamrt.runtime.topic_identity import refuse_recreated
from streamrt.topology import TaskId

logger = logging.getLogger("streamrt")


class CommitProtocol(Protocol):
    """The differences between the two guarantees in the life of a task, see `StreamTask`."""

    @property
    def writer(self) -> RecordWriter:
        """The target of outputs and changelog records."""

    def begin(self, expected: Mapping[TopicPartition, int], *, reuse: bool) -> dict[TopicPartition, int]:
        """Take the inputs of the task before its stores are opened; return the offset to start at for each.

        Args:
            expected: the committed offsets, as known to the caller.
            reuse: whether this process made the last commit of the task.

        Raises:
            StateError: if a committed offset of the group was moved back.
            StaleTokenError: if an input was deleted and created again.
            TransactionError: if Kafka rejects the transaction, or the partition was reassigned meanwhile.
        """

    def confirm_refusal(self, refusal: ChangelogError, start: Mapping[TopicPartition, int]) -> None:
        """Check whether stores that do not match the start offsets are an error of the state.

        Raises:
            ChangelogError: the refusal, if it is one.
            TransactionError: if another process has committed meanwhile, so that the offsets are out of date.
        """

    def prepare(self, end: Mapping[TopicPartition, int]) -> None:
        """Hand what belongs to the commit to the writer, after the changelog records.

        Args:
            end: next offset of each input partition.
        """

    def publish(self, stores: TaskStores, end: Mapping[TopicPartition, int], sent: Mapping[str, Sent]) -> None:
        """Publish the prepared work in Kafka.

        Args:
            stores: the stores of the task.
            end: next offset of each input partition.
            sent: event times sent into exchanges up to these offsets.

        Raises:
            TransactionError: if the partition was reassigned to another process, or the transaction was aborted or
                fenced, or its outcome is unknown.
            KafkaRequestError: if the changelogs cannot be checked or repaired.
        """

    @property
    def usable(self) -> bool:
        """Whether the next commit can follow without `begin`."""

    def resume(self) -> None:
        """Prepare for the first work after a commit."""

    def abort(self) -> None:
        """Drop the outputs since the last commit, as far as this is possible."""

    def release(self) -> None:
        """Release a writer that cannot be used any more. The stores are closed."""


class AtLeastOnceCommit:
    """Outputs are durable after a flush of the writer, which all tasks of a process share.

    Args:
        clients: the Kafka clients of this process.
        positions: writes the positions of inputs; None if nothing needs them.
    """

    usable = True

    def __init__(self, clients: TaskClients, positions: InputPositions | None = None) -> None:
        self._clients = clients
        self._positions = positions
        self.writer: RecordWriter = clients.writer()

    def begin(self, expected: Mapping[TopicPartition, int], *, reuse: bool) -> dict[TopicPartition, int]:
        """Start at the expected offsets: other attempts may process the same records."""
        return dict(expected)

    def confirm_refusal(self, refusal: ChangelogError, start: Mapping[TopicPartition, int]) -> None:
        """Refuse the state: only this process commits the offsets."""
        raise refusal

    def prepare(self, end: Mapping[TopicPartition, int]) -> None:
        """Do nothing: a position that is written before the outputs are durable could lose them."""

    def publish(self, stores: TaskStores, end: Mapping[TopicPartition, int], sent: Mapping[str, Sent]) -> None:
        """Check that no other process has written to the changelogs, or repair them; the writer was flushed before."""
        stores.match_changelogs(self.writer)
        if self._positions is not None:
            # The next flush waits for them: a lost position only repeats records.
            self._positions.produce(self.writer.produce, end, self._clients.now())

    def resume(self) -> None:
        """Use the current writer: the previous one may have failed in the meantime."""
        self.writer = self._clients.writer()

    def abort(self) -> None:
        """Do nothing: outputs that were sent cannot be taken back."""

    def release(self) -> None:
        """Keep the writer, which other tasks also use."""


class ExactlyOnceCommit:
    """Each commit is a Kafka transaction of the task's own writer.

    Args:
        task: the task.
        clients: the Kafka clients of this process.
        metadata: composes the metadata of committed offsets.
        positions: writes the positions of inputs; None if nothing needs them.
    """

    def __init__(
        self, task: TaskId, clients: TaskClients, metadata: CommitMetadata, positions: InputPositions | None = None
    ) -> None:
        self._task = task
        self._positions = positions
        self._clients = clients
        self._metadata = metadata
        self._transaction: TransactionalRecordWriter | None = None

    @property
    def writer(self) -> RecordWriter:
        """The writer of the open transaction."""
        return no_writer if self._transaction is None else self._transaction

    @property
    def usable(self) -> bool:
        """Whether another transaction can follow."""
        return self._transaction is not None and self._transaction.usable

    def begin(self, expected: Mapping[TopicPartition, int], *, reuse: bool) -> dict[TopicPartition, int]:
        """Fence earlier holders of the inputs, and compare the committed offsets."""
        faults.reached("opened")
        self._transaction = take_inputs(self._clients, self._task, tuple(expected), self._metadata, reuse=reuse)
        faults.reached("fenced")
        start = {}
        for partition, offset in expected.items():
            committed = self._clients.committed(partition)
            if committed is None or committed < offset:
                self._refuse_another(partition.topic)
                raise StateError(
                    f"the committed offset of {partition} is {committed}, but it was {offset} before: the offsets of the "
                    "consumer group were set back while the application was running; stop all its instances first"
                )
            # Ahead: another attempt has already committed these records.
            start[partition] = committed
        faults.reached("checked")
        return start

    def _refuse_another(self, topic: str) -> None:
        """Raise if a topic was deleted and created again: Kafka deletes the offsets of a topic with it."""
        before = self._metadata.topic_ids.get(topic)
        if before is None:
            return
        now: dict[str, str | None] = {}

        def differs() -> bool:
            now.update(self._clients.topic_ids([topic]))
            return now.get(topic) != before

        # The offset is gone, so an answer that nothing has changed may be one of a broker that lags.
        if not repeated(differs, math.inf):
            return
        refuse_recreated({topic: before}, now)
        if now.get(topic) is None:
            raise KafkaRequestError(f"topic {topic!r} was deleted, and its committed offsets with it", retriable=True)

    def confirm_refusal(self, refusal: ChangelogError, start: Mapping[TopicPartition, int]) -> None:
        """Refuse the state, unless another process has committed between the reads of the store and of the offsets."""
        if all(self._clients.committed(partition) == at for partition, at in start.items()):
            raise refusal
        raise TransactionError(f"another process works on {self._task}", fenced=True) from refusal

    def prepare(self, end: Mapping[TopicPartition, int]) -> None:
        """Write the positions of inputs into the transaction."""
        if self._positions is not None:
            self._positions.produce(self.writer.produce, end, self._clients.now())

    def publish(self, stores: TaskStores, end: Mapping[TopicPartition, int], sent: Mapping[str, Sent]) -> None:
        """Commit the transaction. It may run in any thread, and uses only the writer."""
        if self._transaction is None:
            raise RuntimeError(f"no transaction of {self._task} is open")
        self._transaction.commit(end, self._metadata.encode_all(end, sent=dict.fromkeys(end, sent)))
        faults.reached("committed")

    def resume(self) -> None:
        """Keep the writer, which only this task uses."""

    def abort(self) -> None:
        """Abort the transaction."""
        if self._transaction is not None:
            self._transaction.abort()

    def release(self) -> None:
        """Release a writer whose last transaction failed."""
        if self._transaction is not None and not self._transaction.usable:
            self._clients.release(self._task)


def flush_writer(
    writer: RecordWriter, callbacks: ErrorCallbacks, changelogs: Collection[str] = (), *, skip: bool = False
) -> "tuple[str, str, Exception] | None":
    """Wait until all outputs are durable.

    Args:
        writer: the writer of the outputs.
        callbacks: `on_producer_error` may skip a failed record.
        changelogs: topics whose records must not be skipped.
        skip: whether to skip what the callback does not.

    Returns:
        None, or kind, message and cause of the failure for a lost record.

    Raises:
        WriterFailedError: if the writer cannot continue. The callback cannot skip this, since any record may be lost,
            also state changes.
    """
    refusal = None
    for error in writer.flush():
        needed = isinstance(error, ProducerError) and error.topic in changelogs
        refusal = refusal or _classify_refusal(
            error, ErrorCallbacks() if needed else callbacks, skip=skip and not needed
        )
    faults.reached("outputs-flushed")
    return refusal


def _classify_refusal(error: Exception, callbacks: ErrorCallbacks, *, skip: bool) -> tuple[str, str, Exception] | None:
    """Return kind, message and cause of the failure for a lost record; None if it is skipped."""
    if skip:
        logger.warning("%s; skipping the record", error)
    if callbacks.producer is None:
        return None if skip else ("producer", str(error), error)
    try:
        # Deliveries fail long after the input record was processed, so there is no record to pass.
        skipped = bool(callbacks.producer(error, None, logger))
    except Exception as raised:  # noqa: BLE001 - any exception of the callback stops the application
        reason = f"{type(raised).__name__}: {raised}"
        return "callback", f"the callback on_producer_error itself failed on {error!r}: {reason}", raised
    return None if skipped or skip else ("producer", str(error), error)
