"""The rows of a writer on their way to brokers: its producer, its transaction, and the outcomes."""

import time

from streamrt.errors import ProducerError
from streamrt.kafka.completion_token import Offsets
from streamrt.tables.access.links import RecordSender
from streamrt.tables.rows.row_encoder import EncodedRow, EncodedRows
from streamrt.tables.writing.assigner import REFRESH_S, RoundRobin
from streamrt.tables.writing.delivery import BatchResult, Deliveries, WriteResult
from streamrt.tables.writing.portions import portions_of
from streamrt.tables.writing.writer_transactions import WriterTransactions

__all__ = ["SERVE_S", "RowSender"]

SERVE_S = 0.02
"""Seconds for which a thread that waits for an outcome keeps others from writing."""

_LOOK_S = 2.0
"""Seconds for which rows wait for a look at the partitions."""


class RowSender:
    """Sends the rows of a writer, and counts those that are not committed. Use it in one thread at a time.

    Args:
        table: name of the table.
        topic: name of its topic.
        sender: what records are written with.
        around: over how many partitions rows go around; None leaves them to their keys, or to the client.
        deliveries: the outcomes.
        transactions: what commits, for a writer with an id.

    Attributes:
        sender: the sender; after a commit that it does not survive, the next row gets another one.
        uncommitted: how many rows are not committed, or, without transactions, were not found delivered by a flush.
    """

    def __init__(
        self,
        table: str,
        topic: str,
        sender: RecordSender,
        around: int | None,
        deliveries: Deliveries,
        transactions: WriterTransactions | None,
    ) -> None:
        self.sender = sender
        self.uncommitted = 0
        self._topic = topic
        self._assigner = None if around is None else RoundRobin(table, around, self._look_at_topic, REFRESH_S)
        self._deliveries = deliveries
        self._transactions = transactions
        # Whether the sender has committed, and can do no more because the connection was lost meanwhile.
        self._spent = False

    def send_row(self, encoded: EncodedRow) -> WriteResult:
        """Send a row."""
        result = WriteResult(self._deliveries)
        self._begin_transaction()
        partition = None if self._assigner is None else self._assigner.take()
        told = self._deliveries.accept(result)
        try:
            self.sender.produce(
                self._topic,
                encoded.value,
                encoded.key,
                encoded.timestamp,
                encoded.headers,
                partition=partition,
                on_delivery=told,
            )
        except BaseException as error:
            self._deliveries.withdraw(refused=isinstance(error, Exception))
            raise
        self.uncommitted += 1
        return result

    def send_rows(self, rows: EncodedRows) -> BatchResult:
        """Send several rows.

        Raises:
            ProducerError: if the sender refuses one; it says how many were sent.
        """
        result = BatchResult(self._deliveries, len(rows))
        sent = 0
        for portion in portions_of(rows, self._deliveries.reserve(len(rows)), self._assigner):
            self._begin_transaction()
            self._deliveries.follow(portion)
            result.follow(portion)
            interrupted = True
            try:
                self.sender.produce_all(self._topic, portion)
                interrupted = False
            except ProducerError as error:
                interrupted = False
                sent += portion.accepted
                raise ProducerError(
                    f"{error}; {sent} of the {len(rows)} rows of this call were sent", error.topic, error.refused
                ) from error
            except Exception:
                interrupted = False
                raise
            finally:
                portion.finish(doubtful=interrupted)
                self.uncommitted += portion.accepted
            sent += portion.accepted
        return result

    def await_outcomes(self, timeout: float) -> None:
        """Wait until brokers have all rows.

        Raises:
            ProducerError: if rows were lost since the last call. DeliveryTimeoutError says that some are on their way.
        """
        left, deadline = 1, time.monotonic() + timeout
        if self._transactions is None:
            left = self.sender.flush(timeout)
        else:
            # The sender's own flush would wait as long as the transaction may last.
            while self._deliveries.outstanding > 0:
                self.sender.poll(min(SERVE_S, timeout))
                if time.monotonic() >= deadline:
                    break
        self._deliveries.raise_losses()
        outstanding = self._deliveries.outstanding
        if self._transactions is None and not self.sender.usable:
            raise self._deliveries.broken(outstanding)
        if outstanding > 0 and not left:
            raise self._deliveries.unreported(outstanding)
        if outstanding > 0:
            raise self._deliveries.late(outstanding, timeout)

    def commit(self, transactions: WriterTransactions, state: str, token: Offsets) -> None:
        """Commit the rows together with a state.

        Raises:
            TransactionError: if they were not committed, or the outcome is unknown.
        """
        record = transactions.state_record(state, token or self._deliveries.offsets({0: 0}))
        transactions.commit(self.sender, record, state, token)
        self.uncommitted = 0
        self._spent = not self.sender.usable

    def renew(self, transactions: WriterTransactions) -> None:
        """Replace a sender that its last commit has left of no more use."""
        if self._spent:
            self.sender.close()
            self.sender = transactions.renewed()
            self._spent = False

    def _look_at_topic(self) -> int | None:
        return self.sender.partitions(self._topic, _LOOK_S)

    def _begin_transaction(self) -> None:
        if self._transactions is not None:
            self.renew(self._transactions)
            self._transactions.wrote()
