"""The common part of sinks that write to tables of SQL databases.

One transaction holds the rows of a commit, and the positions of the group in the table `streamrt_positions`. Tables and
columns are created before it, since some databases cannot do so inside a transaction.
"""

import abc
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.failures import first_line
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch
from streamrt.connectors.sinks.transactional import SinkCommit, SinkPosition, TransactionalSink
from streamrt.connectors.sql.sql_names import is_internal
from streamrt.connectors.sql.sql_rows import STATEMENT, TableRows, UnplacedRejectionError, target_of
from streamrt.connectors.sql.sql_statement import Parameters, Statement
from streamrt.connectors.sql.sql_tables import (
    KEY_COLUMN,
    TIMESTAMP_COLUMN,
    PrimaryKeyColumns,
    SQLTables,
    TableName,
)
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SinkError, SinkFencedError
from streamrt.forks import close_with

__all__ = ["KEY_COLUMN", "TIMESTAMP_COLUMN", "PrimaryKeyColumns", "SQLSink", "TableName"]

_RETRIES = Retries()
_POSITION_COLUMNS = ("next_offset", "version", "topic_id", "replay")


class _UndoError(Exception):
    """Ends a transaction that was an attempt."""


class SQLSink(SQLTables, TransactionalSink):
    """Base class of sinks for SQL databases: columns of values, tables, primary keys, positions.

    Subclasses define the connection, the types and the dialect.

    Args:
        table_name: see the subclasses; None with a statement.
        statement: a statement that is run for each item, instead of rows in a table.
        parameters: returns the parameters of the statement for an item; None means that they are the fields of its value.
        schema_auto_update: whether missing tables and columns are created.
        primary_key_columns: see the subclasses.
        upsert_on_primary_key: whether a row replaces the columns of the one with its primary key.
        on_conflict_do_nothing: whether a row is dropped if its primary key exists.
        include_metadata: whether the columns `__key` and `timestamp` are added.
        position_table: name of the table of positions; None to write values at least once, without it.
        name: name of the sink.
        retries: how requests are repeated.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
    """

    def __init__(
        self,
        table_name: TableName | None,
        *,
        statement: str | None,
        parameters: Parameters | None,
        schema_auto_update: bool,
        primary_key_columns: PrimaryKeyColumns,
        upsert_on_primary_key: bool,
        on_conflict_do_nothing: bool,
        include_metadata: bool,
        position_table: str | None,
        name: str | None,
        retries: Retries | None,
        on_client_connect_success: ClientConnectSuccessCallback | None,
        on_client_connect_failure: ClientConnectFailureCallback | None,
    ) -> None:
        super().__init__(name, on_client_connect_success, on_client_connect_failure)
        sink = type(self).__name__
        self._of_user: Statement | None = None
        if statement is not None:
            table_options = {
                "table_name": table_name,
                "primary_key_columns": primary_key_columns,
                "upsert_on_primary_key": upsert_on_primary_key,
                "on_conflict_do_nothing": on_conflict_do_nothing,
            }
            for option, value in table_options.items():
                if value:
                    raise ArgumentValueError(
                        f"{sink} got statement=... and {option}=...: the statement says which rows of which tables change"
                    )
            self._of_user = Statement(statement, parameters, sink, position_table)
            table_name = STATEMENT
            if name is None and position_table is not None:
                raise ArgumentValueError(
                    f"{sink}(statement=...) needs name=..., the name under which the sink stores its positions"
                )
        elif parameters is not None:
            raise ArgumentValueError(f"{sink}(parameters=...) needs statement=...")
        elif isinstance(table_name, str):
            self._check_identifier("table_name", table_name)
            if is_internal(table_name, position_table):
                raise ArgumentValueError(
                    f"{sink}(table_name={table_name!r}) is a table of positions: choose another name"
                )
        elif not callable(table_name):
            raise ArgumentTypeError(
                f"{sink}(table_name=...) must be a string or a function of the item, got {type(table_name).__name__}; or "
                "give statement=..."
            )
        elif name is None and position_table is not None:
            raise ArgumentValueError(
                f"{sink}(table_name=<function>) needs name=..., the name under which the sink stores its positions"
            )
        if isinstance(primary_key_columns, str):
            primary_key_columns = (primary_key_columns,)
        if not callable(primary_key_columns):
            primary_key_columns = tuple(primary_key_columns)
            for column in primary_key_columns:
                self._check_identifier("primary_key_columns", column)
        if upsert_on_primary_key and on_conflict_do_nothing:
            raise ArgumentValueError(
                f"{sink} got upsert_on_primary_key=True and on_conflict_do_nothing=True: a row can replace the one with "
                "its primary key, or be dropped, not both"
            )
        if (upsert_on_primary_key or on_conflict_do_nothing) and not primary_key_columns:
            option = "upsert_on_primary_key" if upsert_on_primary_key else "on_conflict_do_nothing"
            raise ArgumentValueError(f"{sink}({option}=True) needs primary_key_columns")
        if position_table is not None:
            self._check_identifier("position_table", position_table)
            if not position_table.replace("_", "").isalnum():
                raise ArgumentValueError(f"{sink}(position_table=...) may contain letters, digits and underscores")
        self._table_name = table_name
        self._schema_auto_update = schema_auto_update
        self._primary_key_columns = primary_key_columns
        self._upsert = upsert_on_primary_key
        self._ignore = on_conflict_do_nothing
        self._include_metadata = include_metadata
        self._position_table = position_table
        self._retries = retries or _RETRIES
        self._connection: Any = None
        self._close_connection: Callable[[], object] | None = None
        self._names: set[str] = set()
        # The columns of each table with their types, as last seen.
        self._columns: dict[str, dict[str, str]] = {}

    # -- The contract --------------------------------------------------------------------------------------------------

    @property
    def destination(self) -> str:  # noqa: D102
        if self._of_user is not None:
            return "statement"
        return self._table_name if isinstance(self._table_name, str) else "?"

    @property
    def keeps_positions(self) -> bool:  # noqa: D102
        return self._position_table is not None

    def setup(self) -> None:
        """Connect, create the table of positions, and check the statement.

        Raises:
            SinkError: if the connection fails, the table cannot be created, or the database refuses the statement.
        """
        self._reconnect()
        if self._position_table is not None:
            self._prepare_positions(self._position_table)
        statement = self._of_user
        if statement is not None:
            self._request_retried(lambda: self._describe_parameters(statement), "the check of the statement")
        elif isinstance(self._table_name, str) and not self._schema_auto_update and not self._find(self._table_name):
            raise SinkError(
                f"table {self._table_name!r} does not exist, and schema_auto_update=False: create it, or let the sink do so"
            )

    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:  # noqa: D102
        table = self._position_table
        if table is None:
            return {}
        query = self._adapt_statement(
            f"SELECT {', '.join(_POSITION_COLUMNS)} FROM {self._qualify_name(table)} WHERE consumer_group = ? AND sink = ?"  # noqa: S608
            " AND topic = ? AND kafka_partition = ?"
        )

        def read() -> dict[tuple[str, int], SinkPosition]:
            found = {}
            with self._open_transaction() as cursor:
                for topic, partition in partitions:
                    cursor.execute(query, (group, self.name, topic, partition))
                    row = cursor.fetchone()
                    if row is not None:
                        found[topic, partition] = SinkPosition(int(row[0]), int(row[1]), row[2], row[3] or "")
            return found

        found: Mapping[tuple[str, int], SinkPosition] = self._request_retried(
            read, f"reading positions from table {table!r}"
        )
        return found

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:  # noqa: D102
        tables = self._rows_by_table(batches) if self._of_user is None else [self._of_user.rows(batches)]

        def write() -> None:
            columns = {rows.table: self._columns_for(rows) for rows in tables}
            with self._open_transaction() as cursor:
                # Before the rows: the transaction that moves a position holds its lock until it ends.
                self._move_positions(cursor, commit)
                for rows in tables:
                    self._write_rows(rows, columns[rows.table])
                self._check_deferred(cursor)

        what = f"writing to {', '.join(target_of(rows.table) for rows in tables) or 'no table'}"
        try:
            self._request_retried(write, what)
        except UnplacedRejectionError as error:
            raise self._request_retried(lambda: self._find_culprit(tables), what) or error from None

    def _columns_for(self, rows: TableRows) -> list[str]:
        """Return the columns to write, of a table that has them; or the parameters of the statement."""
        if self._of_user is None:
            return self._prepare_table(rows)
        rows.kinds = self._describe_parameters(self._of_user)
        return list(rows.kinds)

    def _write_rows(self, rows: TableRows, columns: Sequence[str]) -> None:
        if self._of_user is None:
            self._insert_rows(rows, columns)
        elif rows.rows:
            self._execute_statement(self._of_user, rows)

    def _describe_parameters(self, statement: Statement) -> dict[str, str]:
        """Return the parameters of a statement with their types, as last seen."""
        kinds = self._columns.get(STATEMENT)
        if kinds is None:
            try:
                kinds = self._columns[STATEMENT] = self._describe_statement(statement)
            except Exception as error:
                if self._may_pass(error) or isinstance(error, SinkError):
                    raise
                # There are no values in it that its text could quote.
                reason = first_line(Exception(error.args[-1] if error.args else type(error).__name__))
                raise SinkError(f"the statement of the sink {self.name} cannot be used: {reason}") from None
        return kinds

    @abc.abstractmethod
    def _describe_statement(self, statement: Statement) -> dict[str, str]:
        """Let the database check a statement; return its parameters with their types, empty if it does not know them."""

    @abc.abstractmethod
    def _execute_statement(self, statement: Statement, rows: TableRows) -> None:
        """Run a statement for each row of its parameters, in the open transaction.

        Raises:
            SinkError: if the database rejects a row.
        """

    def _check_deferred(self, cursor: Any) -> None:
        """Check constraints that the database would check at the end of the transaction."""

    def _find_culprit(self, tables: Sequence[TableRows]) -> SinkError | None:
        """Return the error about the first row that the database rejects, found by halves; None if it takes all now."""
        places = [place for rows in tables for place in rows.places]
        accepted, rejected = 0, len(places)
        error = self._attempt_write(tables, rejected)
        while error is not None and rejected - accepted > 1:
            middle = (accepted + rejected) // 2
            earlier = self._attempt_write(tables, middle)
            if earlier is None:
                accepted = middle
            else:
                rejected, error = middle, earlier
        return None if error is None else error.at(places[rejected - 1])

    def _attempt_write(self, tables: Sequence[TableRows], count: int) -> UnplacedRejectionError | None:
        """Write the first rows, and undo it; return the error."""
        try:
            with self._open_transaction() as cursor:
                for rows in tables:
                    part = rows.head(count)
                    count -= len(part.rows)
                    if part.rows:
                        self._write_rows(part, [column for column in part.columns() if column in part.kinds])
                self._check_deferred(cursor)
                raise _UndoError
        except _UndoError:
            return None
        except UnplacedRejectionError as error:
            return error

    # -- Requests ------------------------------------------------------------------------------------------------------

    def _request_retried(self, request: Callable[[], Any], what: str) -> Any:
        return self._retries.write(
            request,
            passing=self._may_pass,
            what=f"the sink {self.name}: {what}",
            before_retry=self._reconnect,
            words=self._error_reason,
        )

    def _reconnect(self) -> None:
        self._disconnect()
        self._connection = self._connect()
        # For a sink that is not closed; each commit is durable without that.
        self._close_connection = close_with(self, self._connection)

    def close(self) -> None:
        """Close the connection; `start` opens another one."""
        self._disconnect()

    def _disconnect(self) -> None:
        close, self._connection, self._close_connection = self._close_connection, None, None
        self._columns.clear()
        if close is not None:
            close()

    @contextlib.contextmanager
    def _open_transaction(self) -> Iterator[Any]:
        """Run a transaction. After an error, the connection is made again: nothing is known of it."""
        if self._connection is None:
            self._reconnect()
        connection = self._connection
        try:
            cursor = connection.cursor()
            yield cursor
            cursor.close()
            connection.commit()
        except BaseException:
            self._connection = None
            self._columns.clear()
            with contextlib.suppress(Exception):
                connection.rollback()
            with contextlib.suppress(Exception):
                connection.close()
            raise

    def _run_query(self, statement: str, *parameters: Any) -> list[Any]:
        """Run a query with question marks for its parameters, and return its rows."""
        with self._open_transaction() as cursor:
            cursor.execute(self._adapt_statement(statement), parameters)
            return list(cursor.fetchall())

    def _define_table(self, statement: str) -> None:
        """Run a statement that defines a table."""
        with self._open_transaction() as cursor:
            cursor.execute(statement)

    def _adapt_statement(self, text: str) -> str:
        """Return a statement with the placeholders of the driver instead of question marks. It has no names from data."""
        return text.replace("?", self._placeholder)

    # -- Positions -----------------------------------------------------------------------------------------------------

    def _prepare_positions(self, table: str) -> None:
        key = self._position_type
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self._qualify_name(table)} (consumer_group {key} NOT NULL, sink {key} NOT NULL,"
            f" topic {key} NOT NULL, kafka_partition INTEGER NOT NULL, next_offset BIGINT NOT NULL, version BIGINT NOT NULL,"
            f" topic_id {self._position_text}, replay {self._position_text},"
            f" PRIMARY KEY (consumer_group, sink, topic, kafka_partition)){self._table_options}"
        )
        try:
            if not self._find(table):
                self._define_table(statement)
        except Exception as error:
            # Another process may have created it at the same moment.
            with contextlib.suppress(Exception):
                if self._find(table):
                    return
            raise SinkError(
                f"table {table!r}, which holds the positions of the group, cannot be created ({self._error_reason(error)}): "
                "create it by hand, or write at least once with position_table=None"
            ) from error

    def _move_positions(self, cursor: Any, commit: SinkCommit) -> None:
        if self._position_table is None:
            return
        table = self._qualify_name(self._position_table)
        key = "consumer_group = ? AND sink = ? AND topic = ? AND kafka_partition = ?"
        update = self._adapt_statement(
            f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in _POSITION_COLUMNS)} WHERE {key} AND version = ?"  # noqa: S608
        )
        exists = self._adapt_statement(f"SELECT version FROM {table} WHERE {key}")  # noqa: S608
        insert = self._adapt_statement(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?)")  # noqa: S608
        # In one order, so that two processes cannot wait for each other.
        for (topic, partition), (before, after) in sorted(commit.positions.items()):
            row = (commit.group, self.name, topic, partition)
            if before is not None:
                cursor.execute(update, (*after, *row, before.version))
                moved = cursor.rowcount == 1
            else:
                cursor.execute(exists, row)
                moved = cursor.fetchone() is None
                if moved:
                    # If another process inserts it meanwhile, the primary key refuses this one, and the task begins again.
                    self._insert_position(cursor, insert, (*row, *after))
            if not moved:
                raise self._make_fenced_error(topic, partition)

    def _insert_position(self, cursor: Any, statement: str, row: Sequence[Any]) -> None:
        try:
            cursor.execute(statement, tuple(row))
        except Exception as error:
            if self._may_pass(error):
                raise
            raise SinkFencedError(
                f"the sink {self.name} has a position already ({self._error_reason(error)}): another process has written "
                "to it"
            ) from error
