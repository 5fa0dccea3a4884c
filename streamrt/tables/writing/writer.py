"""`TableWriter`: rows of any process into a table.

The life of a writer::

    OPEN --- close() ----------------------> CLOSED
     |                                          ^
     '-- a transaction fails, --> FAILED -------'  close()
         or the topic is another one

A FAILED writer has dropped the rows since its last checkpoint, and refuses all but `close`. A writer without an id has no
transactions: `flush` raises an error for lost rows, and the writer goes on. It fails if the topic was deleted, whether it was
created again or not, because its rows are gone in both cases.
"""

import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from typing_extensions import Self

from streamrt.config import require_amounts
from streamrt.errors import (
    ArgumentTypeError,
    DeliveryTimeoutError,
    InvalidOperationError,
    ProducerError,
    StaleTokenError,
    StreamRTError,
    TopicNotFoundError,
    TransactionError,
)
from streamrt.forks import ForkGuard
from streamrt.kafka.completion_token import Offsets
from streamrt.schema import Schema
from streamrt.tables.access.links import RecordSender
from streamrt.tables.access.topic_watch import TopicWatch
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.rows.arrow_rows import is_frame, is_frame_of
from streamrt.tables.rows.change_encoder import ChangeEncoder
from streamrt.tables.rows.row_encoder import EncodedRow, EncodedRows
from streamrt.tables.rows.row_lists import list_rows
from streamrt.tables.writing.delivery import BatchResult, Deliveries, WriteResult
from streamrt.tables.writing.row_sender import SERVE_S, RowSender
from streamrt.tables.writing.writer_transactions import WriterTransactions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TableWriter"]

logger = logging.getLogger("streamrt.tables")


class _Life(enum.Enum):
    OPEN = "open"
    FAILED = "failed"
    CLOSED = "closed"


class TableWriter:
    """Writes rows into a table; `Table.writer` returns it.

    It may be used in several threads, but cannot be pickled, nor used in a process that was forked from its own.

    Rows are checked at once, and sent in the background; `flush` waits until brokers have them. With an id, rows are in a
    Kafka transaction, and readers see them when `checkpoint` commits it.

    As a context manager, it is flushed and closed at the end; after an exception it is closed as `close(failed=True)` does.

    Args:
        info: the table.
        topic: topic to which it writes.
        sender: what records are written with.
        encoder: what makes records of rows and changes.
        around: over how many partitions rows go around; None leaves them to their keys, or to the client.
        watch: knows Kafka's id of the topic, and whether that is still the same.
        timeout: seconds to wait for brokers when it is closed.
        transactions: what commits, for a writer with an id.

    Example:
        >>> from streamrt.tables import Catalog, MemoryCatalog
        >>> from streamrt.testing.memory_topics import MemoryLinks
        >>> catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
        >>> orders = catalog.create_table("orders", "id BIGINT, customer STRING")
        >>> with orders.writer() as writer:
        ...     result = writer.append({"id": 1, "customer": "ann"})
        ...     writer.flush().partition_map("default.orders")
        {0: 1}
        >>> result.wait().offset
        0
    """

    def __init__(
        self,
        info: TableInfo,
        topic: str,
        sender: RecordSender,
        encoder: ChangeEncoder,
        *,
        around: int | None,
        watch: TopicWatch,
        timeout: float,
        transactions: WriterTransactions | None = None,
    ) -> None:
        self._name = info.name
        self._encoder = encoder
        self._watch = watch
        self._timeout = timeout
        self._transactions = transactions
        self._lock = threading.RLock()
        self._process = ForkGuard()
        self._life = _Life.OPEN
        self._failure: Exception | None = None
        start = None if transactions is None else transactions.saved.token
        self._deliveries = Deliveries(info.name, topic, watch.topic_id, self._serve_outcomes, timeout, start)
        self._rows = RowSender(info.name, topic, sender, around, self._deliveries, transactions)

    @property
    def schema(self) -> Schema:
        """The columns that rows give."""
        return self._encoder.schema

    @property
    def state(self) -> str | None:
        """The state of the last checkpoint of a writer with this id; None if there is none.

        Raises:
            InvalidOperationError: if the writer has no id.
        """
        return self._require_transactions("state").saved.state

    def append(self, row: Mapping[str, Any] | Sequence[Any]) -> WriteResult:
        """Write a row of a log table.

        Args:
            row: a mapping, or a list or tuple with a value for each column. Mappings may leave out what has a default or
                may be null.

        Returns:
            What becomes of it. It need not be looked at: `flush` raises if a row is lost.

        Raises:
            SchemaMismatchError: if it does not fit the schema; the message names column, type and rule, and no value.
            SerializationError: if the format cannot carry it.
            ProducerError: if it is too large.
            InvalidOperationError: if the writer is closed, or the table has a primary key.
            TransactionError: if the transaction of a writer with an id has failed. WriterFencedError says that another
                writer has taken the id.

        Example:
            ```python
            with catalog.table("shop.orders").writer() as writer:
                writer.append({"order_id": 1, "customer": "ann"})
                position = writer.append([2, "bob"]).wait(timeout=10)
            ```
        """
        return self._write_row(self._encoder.appended, row)

    def append_arrow(self, rows: pa.Table | pa.RecordBatch) -> BatchResult:
        """Write the rows of a table or record batch of Arrow; columns are found by name.

        All rows are checked and encoded before the first is sent, so either all are written or none is. Columns that are
        not there get their default, or null.

        Args:
            rows: the rows.

        Raises:
            SchemaMismatchError: if a row does not fit the schema; the message names its number, from 0 on. Other errors
                are those of `append`.
        """
        if not isinstance(rows, (pa.Table, pa.RecordBatch)):
            raise ArgumentTypeError(f"append_arrow() takes a Table or RecordBatch of Arrow, not {type(rows).__name__}")
        return self._write_all(self._encoder.all_appended, rows)

    def append_pandas(self, rows: "pd.DataFrame") -> BatchResult:
        """Write the rows of a data frame of pandas, as `append_arrow` does. The index is left out, and NaN is null.

        Args:
            rows: the rows.

        Raises:
            SchemaMismatchError: if a row does not fit the schema; the message names its number, from 0 on. Other errors
                are those of `append`.
        """
        if not is_frame_of("pandas", rows):
            raise ArgumentTypeError(f"append_pandas() takes a DataFrame of pandas, not {type(rows).__name__}")
        return self._write_all(self._encoder.all_appended, rows)

    def append_polars(self, rows: Any) -> BatchResult:
        """Write the rows of a data frame of polars, as `append_arrow` does.

        Args:
            rows: the rows.

        Raises:
            SchemaMismatchError: if a row does not fit the schema; the message names its number, from 0 on. Other errors
                are those of `append`.
        """
        if not is_frame_of("polars", rows):
            raise ArgumentTypeError(f"append_polars() takes a DataFrame of polars, not {type(rows).__name__}")
        return self._write_all(self._encoder.all_appended, rows)

    def append_rows(self, rows: Any) -> BatchResult:
        """Write rows, as `append` takes them, or a frame, as `append_arrow`, `append_pandas` and `append_polars` take it.

        All are written or, if one is refused, none.

        Args:
            rows: an iterable of rows, a single mapping, or a frame.

        Raises:
            SchemaMismatchError: if a row does not fit the schema; the message names its number, from 0 on. Other errors
                are those of `append`.
        """
        return self._write_all(self._encoder.all_appended, list_rows(rows))

    def upsert(self, row: Mapping[str, Any] | Sequence[Any]) -> WriteResult:
        """Insert a row into a table with a primary key, or replace the one with its key.

        Args:
            row: a mapping, or a list or tuple with a value for each column of the writer. Columns of it that a mapping leaves
                out get their default, or null: the row that was there is not looked at. What an upsert does in a maintained
                table, its rules say.

        Returns:
            What becomes of it, as of `append`.

        Raises:
            SchemaMismatchError: if it does not fit the schema, such as by a key column that is null.
            InvalidOperationError: if the writer is closed, or the table is a log table. Other errors are those of `append`.

        Example:
            ```python
            with catalog.table("shop.customers").writer() as writer:
                writer.upsert({"id": 1, "name": "Ann"})
                writer.upsert([1, "Anna"])
                writer.delete(1)
            ```
        """
        return self._write_row(self._encoder.upserted, row)

    def upsert_rows(self, rows: Any) -> BatchResult:
        """Insert or replace rows, as `upsert` does; all are written or, if one is refused, none.

        Of several rows with one key, the last one counts.

        Args:
            rows: an iterable of rows, a single mapping, or a frame: a table or record batch of Arrow, or a data frame of
                pandas or polars.

        Raises:
            SchemaMismatchError: if a row does not fit the schema; the message names its number, from 0 on. Other errors
                are those of `upsert`.
        """
        return self._write_all(self._encoder.all_upserted, list_rows(rows))

    def delete(self, key: Any) -> WriteResult:
        """Delete the row with a primary key, if there is one.

        A writer of some columns of a maintained table sets these to null, and the row goes if no other column has a value.

        Args:
            key: the value of the one key column; or a list or tuple with those of all, in the order of the primary key; or a
                mapping with the key columns, in any order. The mapping may be a whole row, whose other columns are ignored.

        Returns:
            What becomes of the record that deletes the row, as of `append`.

        Raises:
            SchemaMismatchError: if it is not a key of the table; the message names column, type and rule, and no value.
            InvalidOperationError: if the writer is closed, or the table is a log table, or refuses deletes. Other errors are
                those of `append`.
        """
        return self._write_row(self._encoder.deleted, key)

    def delete_rows(self, keys: Any) -> BatchResult:
        """Delete the rows with some primary keys; all keys are checked first, and if one is refused, no row is deleted.

        Args:
            keys: an iterable of keys, as `delete` takes them, a single mapping, or a frame with the key columns, or with all.

        Raises:
            SchemaMismatchError: if one is not a key of the table; the message names its number, from 0 on. Other errors are
                those of `delete`.
        """
        return self._write_all(self._encoder.all_deleted, list_rows(keys, "keys"))

    def write(self, changes: Any) -> BatchResult:
        """Write changes, in their order; all or, if one is refused, none.

        Args:
            changes: a mapping for each change, from what is done to the row: `{"insert": row}`; in tables with a primary key
                also `{"upsert": row}`, `{"update": row}` with all columns, or, of a maintained table, those that change, and
                `{"delete": key}`, whose key may be the row.
                Or a frame, as `upsert_rows` takes it, with the column `_change_type`. In log tables, it has "+A" or "+I".
                With a primary key, "+I" and "+U" are rows to upsert, "-D" those to delete, and "-U", a row as it was, is
                left out. So is the column `insert_delete`, which frames of `Table.on_changes` have.

        Raises:
            ArgumentTypeError: if one is not such a mapping.
            ArgumentValueError: if a frame has no such column, or other values in it.
            InvalidOperationError: if the table does not know a change, such as deletes of a log table.
            SchemaMismatchError: if a row or a key does not fit; the message names its number, from 0 on. Other errors are
                those of `append`.

        Example:
            ```python
            writer.write([{"insert": {"order_id": 1}}, {"insert": {"order_id": 2}}]).wait(timeout=10)
            writer.write(table.scan(changes=True).to_arrow())
            ```
        """
        if not is_frame(changes):
            if isinstance(changes, (str, bytes, Mapping)) or not isinstance(changes, Iterable):
                raise ArgumentTypeError(f"write() takes a list of changes, or a frame, not {type(changes).__name__}")
            changes = list(changes)
        return self._write_all(self._encoder.changes, changes)

    def flush(self, timeout: float = 30.0) -> Offsets:
        """Wait until brokers have all rows.

        A writer with an id does not commit them by that: `checkpoint` does.

        Args:
            timeout: seconds to wait.

        Returns:
            A completion token: the offsets after all rows that this writer has written, with the id of the topic.

        Raises:
            ProducerError: if rows were lost since the last call; it counts them, and names numbers and reasons.
                DeliveryTimeoutError says that some are still on their way.
            StaleTokenError: if the topic was deleted and created again while the writer was open: make a new one.
            TopicNotFoundError: if the topic was deleted.
            KafkaRequestError: if brokers do not say in the rest of the time, or a tenth of a second if that is longer,
                whether it is the same; call it again.
            TransactionError: if the transaction of a writer with an id has failed.
        """
        require_amounts("flush", timeout=timeout)
        with self._hold_writer():
            return self._flush_rows(timeout)

    def checkpoint(self, state: str) -> Offsets:
        """Commit the rows since the last checkpoint, together with a state, in one transaction.

        After a crash, a new writer with the same id has the state in `.state`: that of the rows that readers see.

        Args:
            state: any text, such as the position in what the rows come from.

        Returns:
            A completion token: the offsets after all rows of this id, with the id of the topic.

        Raises:
            InvalidOperationError: if the writer has no id, or is closed.
            ArgumentTypeError: if the state is not a string.
            ArgumentValueError: if it is too long.
            ProducerError: if rows were lost; the transaction is then aborted.
            StaleTokenError: if the topic was deleted and created again while the writer was open; the transaction is then
                aborted, and a new writer has no state, because the rows of the former topic are gone.
            TopicNotFoundError: if the topic was deleted; the transaction is then aborted.
            KafkaRequestError: if brokers do not say in time whether it is the same; call it again.
            TransactionError: if the transaction failed, or its outcome is unknown: a new writer with the id has the state
                that holds. WriterFencedError says that another writer has taken the id.
        """
        transactions = self._require_transactions("checkpoint")
        with self._hold_writer():
            # Before anything is sent, so that a state that is refused changes nothing.
            transactions.state_record(state, Offsets({}))
            self._rows.renew(transactions)
            token = self._flush_rows(transactions.timeout_s)
            try:
                self._rows.commit(transactions, state, token)
            except StreamRTError:
                raise
            except BaseException:
                self._fail_writer(transactions.interrupted())
                raise
            return token

    def close(self, failed: bool = False) -> None:
        """Wait until brokers have all rows, and close the connections. It may be called again.

        In a writer with an id, rows since the last checkpoint are dropped, and their transaction is aborted: a new writer
        continues from the state.

        Args:
            failed: drop what is not flushed, instead of waiting for it.

        Raises:
            ProducerError: if rows were lost; the writer is then closed. DeliveryTimeoutError says that brokers did not
                answer in time, so it is unknown which rows are written.
            StaleTokenError: if the topic was deleted and created again while a writer without an id was open.
            TopicNotFoundError: if the topic of such a writer was deleted.
        """
        if not self._process.is_own:
            self._life = _Life.CLOSED
            return
        with self._lock:
            if self._life is _Life.CLOSED:
                return
            waits = not failed and self._life is _Life.OPEN
            usable = True
            try:
                if waits:
                    self._finish_writes()
                    usable = self._transactions is not None or self._rows.sender.usable
            finally:
                self._life = _Life.CLOSED
                self._deliveries.close()
                self._rows.sender.close()
            if waits and self._transactions is None:
                self._deliveries.raise_unwritten(self._timeout)
                if not usable:
                    raise self._deliveries.broken(0)
                if self._rows.uncommitted:
                    # That brokers do not answer means nothing: the rows are delivered.
                    self._watch.check_after_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(failed=exc_type is not None)

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"the writer of table {self._name!r} cannot be pickled or copied, because it has connections: make one where it "
            "is used, by table.writer()"
        )

    def __del__(self) -> None:
        # Nothing here may raise, whatever is left of a program that ends.
        with contextlib.suppress(Exception):
            self._tell_abandoned()

    def _tell_abandoned(self) -> None:
        if self._process.is_own and self._life is _Life.OPEN:
            left = self._rows.uncommitted
            if self._transactions is None:
                self._rows.sender.poll(0.0)
                left = self._deliveries.outstanding
            if left > 0:
                logger.warning(
                    "A writer of table %r was never closed: rows that are not delivered, or not committed, are dropped (%d); "
                    "use it in a with statement, or call close()",
                    self._name,
                    left,
                )

    def __repr__(self) -> str:
        who = f"table {self._name!r}" if self._transactions is None else self._transactions.who
        return f"<TableWriter of {who}, {self._life.value}>"

    def _finish_writes(self) -> None:
        if self._transactions is None:
            # What is lost is told after the end, when it is known of all rows.
            self._rows.sender.flush(self._timeout)
        elif self._rows.uncommitted:
            logger.warning(
                "The %s was closed with rows after its last checkpoint (%d): they are dropped, and a new writer with this "
                "id continues from its state",
                self._transactions.who,
                self._rows.uncommitted,
            )

    @contextlib.contextmanager
    def _hold_writer(self) -> Iterator[None]:
        """Let one thread work with an open writer; note a failure of its transaction."""
        self._require_own_process()
        with self._lock:
            self._require_open()
            try:
                yield
            except TransactionError as error:
                raise self._note_error(error) from error

    def _require_own_process(self) -> None:
        """Refuse forked processes; before the lock, which another thread may have held at the moment of the fork."""
        if not self._process.is_own:
            self._process.require_own(f"the writer of table {self._name!r}")

    def _require_open(self) -> None:
        if self._life is _Life.CLOSED:
            raise InvalidOperationError(f"the writer of table {self._name!r} is closed: make a new one")
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _note_error(self, error: TransactionError) -> TransactionError:
        explained = self._explain_error(error)
        self._fail_writer(explained)
        return explained

    def _explain_error(self, error: TransactionError) -> TransactionError:
        if self._transactions is None or type(error) is not TransactionError:
            return error
        return self._transactions.explained(error)

    def _fail_writer(self, error: Exception) -> None:
        self._failure, self._life = error, _Life.FAILED
        self._deliveries.close()
        self._rows.sender.abort()

    def _write_row(self, encode: Callable[[Any], EncodedRow], given: Any) -> WriteResult:
        # What `_hold_writer` does; its generator would cost as much as a third of the rest.
        self._require_own_process()
        with self._lock:
            self._require_open()
            encoded = encode(given)
            try:
                return self._rows.send_row(encoded)
            except TransactionError as error:
                raise self._note_error(error) from error

    def _write_all(self, encode: Callable[[Any], EncodedRows], given: Any) -> BatchResult:
        with self._hold_writer():
            return self._rows.send_rows(encode(given))

    def _flush_rows(self, timeout: float) -> Offsets:
        deadline = time.monotonic() + timeout
        try:
            self._rows.await_outcomes(timeout)
        except DeliveryTimeoutError:
            raise
        except ProducerError as error:
            if self._transactions is not None:
                self._fail_writer(error)
            raise
        self._require_same_topic(deadline - time.monotonic())
        if self._transactions is None:
            self._rows.uncommitted = 0
        return self._deliveries.token()

    def _require_same_topic(self, timeout: float) -> None:
        """Fail if the topic is another one. After rows are delivered, the answer means the topic that they are in."""
        try:
            self._watch.require_same_topic(timeout)
        except (StaleTokenError, TopicNotFoundError) as error:
            self._fail_writer(error)
            raise

    def _serve_outcomes(self, timeout: float) -> None:
        """Report outcomes to `Deliveries`; called by threads that wait for one."""
        self._process.require_own(f"the writer of table {self._name!r}")
        wait_s = min(SERVE_S, timeout)
        if self._lock.acquire(timeout=wait_s):
            try:
                if self._life is _Life.OPEN:
                    self._rows.sender.poll(wait_s)
            except TransactionError as error:
                # The next call of the writer raises it; this one tells the outcome of a row.
                self._fail_writer(self._explain_error(error))
            finally:
                self._lock.release()

    def _require_transactions(self, what: str) -> WriterTransactions:
        if self._transactions is None:
            raise InvalidOperationError(
                f"a writer without an id has no {what}, and that of table {self._name!r} has none: table.writer(id=...)"
            )
        return self._transactions
