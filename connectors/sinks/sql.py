"""The common part of sinks that write to tables of SQL databases.

One transaction holds the rows of a commit, and the positions of the group in the table `streamrt_positions`. Tables and
columns are created before it, since some databases cannot do so inside a transaction.
"""

import abc
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.sql_rows import Place, Row, TableRows, key_text
from streamrt.connectors.sinks.transactional import SinkCommit, SinkPosition, TransactionalSink
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SinkError, SinkFencedError, argument_error

__all__ = ["KEY_COLUMN", "TIMESTAMP_COLUMN", "PrimaryKeyColumns", "SQLSink", "TableName"]

logger = logging.getLogger("streamrt.connectors")

TableName = str | Callable[[SinkItem], str]
"""Name of a table, or a function that returns the one for an item."""

PrimaryKeyColumns = str | Sequence[str] | Callable[[SinkItem], Sequence[str]]
"""Names of the columns of a primary key, or a function that returns those for an item."""

KEY_COLUMN = "__key"
TIMESTAMP_COLUMN = "timestamp"

_RETRIES = Retries()
_MOST_NAMES = 10_000
_POSITION_COLUMNS = ("next_offset", "version", "topic_id", "replay")


class SQLSink(TransactionalSink):
    """Base class of sinks for SQL databases: columns of values, tables, primary keys, positions.

    Subclasses define the connection, the types and the dialect.

    Args:
        table_name: see the subclasses.
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

    _longest_identifier = 63
    _placeholder = "%s"
    # Types of the table of positions: of its key, and of the other texts.
    _position_type = "TEXT"
    _position_text = "TEXT"
    # What follows the columns of a new table.
    _table_options = ""

    def __init__(
        self,
        table_name: TableName,
        *,
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
        if isinstance(table_name, str):
            self._check_identifier("table_name", table_name)
        elif not callable(table_name):
            raise ArgumentTypeError(
                f"{sink}(table_name=...) must be a string or a function of the item, got {type(table_name).__name__}"
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
        self._names: set[str] = set()
        # The columns of each table with their types, as last seen.
        self._columns: dict[str, dict[str, str]] = {}

    # -- The dialect ---------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _connect(self) -> Any:
        """Return a new connection (PEP 249), in which statements begin a transaction."""

    @abc.abstractmethod
    def _passes(self, error: BaseException) -> bool:
        """Return whether an error may pass."""

    @abc.abstractmethod
    def _reason(self, error: BaseException) -> str:
        """Return the reason of an error, without values of rows."""

    @abc.abstractmethod
    def _type_of(self, value: Any) -> str | None:
        """Return the type of a column for a value; None for a value that no column can hold."""

    @abc.abstractmethod
    def _find_columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types; empty if there is no table."""

    @abc.abstractmethod
    def _find_primary_key(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table's primary key."""

    @abc.abstractmethod
    def _insert(self, rows: TableRows, columns: Sequence[str]) -> None:
        """Insert rows into a table in the open transaction; lacking columns are null.

        Raises:
            SinkError: if the database rejects a row.
        """

    def _quoted(self, name: str) -> str:
        """Return a checked name as an identifier."""
        doubled = name.replace('"', '""')
        return f'"{doubled}"'

    def _qualified(self, table: str) -> str:
        """Return the name of a table in statements."""
        return self._quoted(table)

    def _folded(self, name: str) -> str:
        """Return a text that is the same for all spellings of the name of a column."""
        return name

    # -- The contract --------------------------------------------------------------------------------------------------

    @property
    def destination(self) -> str:  # noqa: D102
        return self._table_name if isinstance(self._table_name, str) else "?"

    @property
    def keeps_positions(self) -> bool:  # noqa: D102
        return self._position_table is not None

    def setup(self) -> None:
        """Connect, and create the table of positions.

        Raises:
            SinkError: if there is no connection, or the table cannot be created.
        """
        self._reconnect()
        if self._position_table is not None:
            self._prepare_positions(self._position_table)
        if isinstance(self._table_name, str) and not self._schema_auto_update and not self._find(self._table_name):
            raise SinkError(
                f"table {self._table_name!r} does not exist, and schema_auto_update=False: create it, or let the sink do so"
            )

    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:  # noqa: D102
        table = self._position_table
        if table is None:
            return {}
        query = self._statement(
            f"SELECT {', '.join(_POSITION_COLUMNS)} FROM {self._qualified(table)} WHERE consumer_group = ? AND sink = ?"  # noqa: S608
            " AND topic = ? AND kafka_partition = ?"
        )

        def read() -> dict[tuple[str, int], SinkPosition]:
            found = {}
            with self._transaction() as cursor:
                for topic, partition in partitions:
                    cursor.execute(query, (group, self.name, topic, partition))
                    row = cursor.fetchone()
                    if row is not None:
                        found[topic, partition] = SinkPosition(int(row[0]), int(row[1]), row[2], row[3] or "")
            return found

        found: Mapping[tuple[str, int], SinkPosition] = self._requested(read, f"reading positions from table {table!r}")
        return found

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:  # noqa: D102
        tables = self._rows_by_table(batches)

        def write() -> None:
            columns = {rows.table: self._prepared(rows) for rows in tables}
            with self._transaction() as cursor:
                # Before the rows: whoever moves a position holds its lock until the end.
                self._move_positions(cursor, commit)
                for rows in tables:
                    single = self._upsert or self._ignore
                    self._insert(rows.by_key(first=self._ignore) if single else rows, columns[rows.table])

        self._requested(write, f"writing to {', '.join(repr(rows.table) for rows in tables) or 'no table'}")

    def __del__(self) -> None:
        # For a sink that was not closed; each commit is durable without that.
        connection, self._connection = getattr(self, "_connection", None), None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    # -- Requests ------------------------------------------------------------------------------------------------------

    def _requested(self, request: Callable[[], Any], what: str) -> Any:
        return self._retries.write(
            request,
            passing=self._passes,
            what=f"the sink {self.name}: {what}",
            before_retry=self._reconnect,
            words=self._reason,
        )

    def _reconnect(self) -> None:
        self._disconnect()
        self._connection = self._connect()

    def close(self) -> None:
        """Close the connection; `start` opens another one."""
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._columns.clear()
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
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

    def _query(self, statement: str, *parameters: Any) -> list[Any]:
        """Run a query with question marks for its parameters, and return its rows."""
        with self._transaction() as cursor:
            cursor.execute(self._statement(statement), parameters)
            return list(cursor.fetchall())

    def _define(self, statement: str) -> None:
        """Run a statement that defines a table."""
        with self._transaction() as cursor:
            cursor.execute(statement)

    def _statement(self, text: str) -> str:
        """Return a statement with the placeholders of the driver instead of question marks. It has no names from data."""
        return text.replace("?", self._placeholder)

    # -- Positions -----------------------------------------------------------------------------------------------------

    def _prepare_positions(self, table: str) -> None:
        key = self._position_type
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self._qualified(table)} (consumer_group {key} NOT NULL, sink {key} NOT NULL,"
            f" topic {key} NOT NULL, kafka_partition INTEGER NOT NULL, next_offset BIGINT NOT NULL, version BIGINT NOT NULL,"
            f" topic_id {self._position_text}, replay {self._position_text},"
            f" PRIMARY KEY (consumer_group, sink, topic, kafka_partition)){self._table_options}"
        )
        try:
            if not self._find(table):
                self._define(statement)
        except Exception as error:
            # Another process may have created it at the same moment.
            with contextlib.suppress(Exception):
                if self._find(table):
                    return
            raise SinkError(
                f"table {table!r}, which holds the positions of the group, cannot be created ({self._reason(error)}): create "
                "it by hand, or write at least once with position_table=None"
            ) from error

    def _move_positions(self, cursor: Any, commit: SinkCommit) -> None:
        if self._position_table is None:
            return
        table = self._qualified(self._position_table)
        key = "consumer_group = ? AND sink = ? AND topic = ? AND kafka_partition = ?"
        update = self._statement(
            f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in _POSITION_COLUMNS)} WHERE {key} AND version = ?"  # noqa: S608
        )
        exists = self._statement(f"SELECT version FROM {table} WHERE {key}")  # noqa: S608
        insert = self._statement(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?)")  # noqa: S608
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
                raise SinkFencedError(
                    f"the sink {self.name} has another position of {topic}[{partition}] than expected: another process "
                    "has written to it"
                )

    def _insert_position(self, cursor: Any, statement: str, row: Sequence[Any]) -> None:
        try:
            cursor.execute(statement, tuple(row))
        except Exception as error:
            if self._passes(error):
                raise
            raise SinkFencedError(
                f"the sink {self.name} has a position already ({self._reason(error)}): another process has written to it"
            ) from error

    # -- Rows and tables -----------------------------------------------------------------------------------------------

    def _rows_by_table(self, batches: Sequence[SinkBatch]) -> list[TableRows]:
        tables: dict[str, TableRows] = {}
        for batch in batches:
            for item in batch:
                place = Place(batch, item)
                table = self._table_of(item, place)
                rows = tables.get(table)
                if rows is None:
                    rows = tables[table] = TableRows(table, self._primary_key_of(item, place))
                rows.rows.append(self._row(item, place))
                rows.places.append(place)
        return list(tables.values())

    def _table_of(self, item: SinkItem, place: Place) -> str:
        if isinstance(self._table_name, str):
            return self._table_name
        table = self._table_name(item)
        if not isinstance(table, str) or self._fault(table) is not None:
            raise SinkError(
                f"table_name returned no usable name of a table for {place}: {self._fault(table)}", place.record
            )
        return table

    def _primary_key_of(self, item: SinkItem, place: Place) -> tuple[str, ...]:
        if not callable(self._primary_key_columns):
            return tuple(self._primary_key_columns)
        found = self._primary_key_columns(item)
        columns = (found,) if isinstance(found, str) else tuple(found)
        for column in columns:
            if self._fault(column) is not None:
                raise SinkError(
                    f"primary_key_columns returned no usable name for {place}: {self._fault(column)}", place.record
                )
        return columns

    def _row(self, item: SinkItem, place: Place) -> Row:
        if not isinstance(item.value, Mapping):
            raise SinkError(
                f"the value of {place} is of type {type(item.value).__name__}: rows are made of dicts, so convert it with "
                "apply() before sink()",
                place.record,
            )
        row: Row = dict(item.value)
        if not self._names.issuperset(row):
            for column in row:
                if not isinstance(column, str) or self._fault(column) is not None:
                    raise SinkError(
                        f"a field of {place} has no usable name of a column: {self._fault(column)}", place.record
                    )
            # Names from data have no end, so old ones are checked again.
            self._names = set(row) if len(self._names) > _MOST_NAMES else self._names.union(row)
        if self._include_metadata:
            own = [column for column in (KEY_COLUMN, TIMESTAMP_COLUMN) if column in row]
            if own:
                raise SinkError(
                    f"the value of {place} has a field {own[0]!r}, the column of the record's "
                    f"{'key' if own[0] == KEY_COLUMN else 'timestamp'}: rename the field, or set include_metadata=False",
                    place.record,
                )
            if item.key is not None:
                row[KEY_COLUMN] = key_text(item.key) if isinstance(item.key, bytes) else item.key
            try:
                row[TIMESTAMP_COLUMN] = self._timestamp(item.timestamp)
            except OverflowError:
                raise SinkError(
                    f"the timestamp of {place} is beyond the years 1 to 9999: is it in milliseconds?", place.record
                ) from None
        return row

    @abc.abstractmethod
    def _timestamp(self, milliseconds: int) -> Any:
        """Return the event time of a record, as its column holds it."""

    def _prepared(self, rows: TableRows) -> list[str]:
        """Create the table of rows and columns that it lacks; return the columns to write."""
        existing = self._find(rows.table)
        self._respell(rows, existing)
        added = self._missing(rows, existing)
        for column in rows.primary_key:
            for row, place in zip(rows.rows, rows.places, strict=True):
                if row.get(column) is None:
                    raise SinkError(
                        f"column {column!r} of the primary key of table {rows.table!r} is null in {place}", place.record
                    )
        if added and not self._schema_auto_update:
            column = next(iter(added))
            lacking = "table" if not existing else f"column {column!r} of table"
            place = next(
                place for row, place in zip(rows.rows, rows.places, strict=True) if row.get(column) is not None
            )
            raise SinkError(
                f"{lacking} {rows.table!r} does not exist, and schema_auto_update=False ({place}): create it, or "
                "drop the field before sink()",
                place.record if existing else None,
            )
        if not existing and not added:
            raise SinkError(
                f"table {rows.table!r} cannot be created without a column: {rows.places[0]} has no value in it"
            )
        if not existing:
            self._create(rows.table, added, rows.primary_key)
            # Another process may have created it with other columns at the same moment.
            existing = self._find(rows.table)
            self._respell(rows, existing)
            added = self._missing(rows, existing)
        elif rows.primary_key and (self._upsert or self._ignore):
            self._check_primary_key(rows)
        if added:
            self._add_columns(rows.table, added)
        rows.kinds = dict(self._find(rows.table))
        return [column for column in rows.columns() if column in rows.kinds]

    def _missing(self, rows: TableRows, existing: Mapping[str, str]) -> dict[str, str]:
        """Return the columns with values that a table lacks, with their types."""
        missing: dict[str, str] = {}
        for row, place in zip(rows.rows, rows.places, strict=True):
            if existing.keys() >= row.keys():
                continue
            for column, value in row.items():
                if column in existing or column in missing or value is None:
                    continue
                kind = self._type_of(value)
                if kind is None:
                    raise SinkError(
                        f"column {column!r} of table {rows.table!r} cannot hold a value of type {type(value).__name__}, "
                        f"that of {place}: convert it with apply() before sink()",
                        place.record,
                    )
                missing[column] = kind
        return missing

    def _respell(self, rows: TableRows, existing: Mapping[str, str]) -> None:
        """Give fields the names of their columns, which differ if the database ignores case."""
        spellings = {self._folded(column): column for column in existing}
        for number, (row, place) in enumerate(zip(rows.rows, rows.places, strict=True)):
            if row.keys() <= existing.keys():
                continue
            respelled: Row = {}
            for name, value in row.items():
                column = spellings.setdefault(self._folded(name), name)
                if column in respelled:
                    raise SinkError(
                        f"two fields of {place} belong to column {column!r} of table {rows.table!r}, since the database "
                        "ignores case in names: rename one before sink()",
                        place.record,
                    )
                respelled[column] = value
            rows.rows[number] = respelled
        rows.primary_key = tuple(spellings.get(self._folded(column), column) for column in rows.primary_key)

    def _check_primary_key(self, rows: TableRows) -> None:
        found = self._find_primary_key(rows.table)
        if set(found) != set(rows.primary_key):
            has = f"the primary key ({', '.join(found)})" if found else "no primary key"
            raise SinkError(
                f"table {rows.table!r} has {has}, and the sink needs ({', '.join(rows.primary_key)}) to recognize equal "
                "rows: change the table, or primary_key_columns"
            )

    def _create(self, table: str, columns: Mapping[str, str], primary_key: Sequence[str]) -> None:
        parts = [
            f"{self._quoted(column)} {self._key_type(kind) if column in primary_key else kind}"
            for column, kind in columns.items()
        ]
        if primary_key:
            parts.append(f"PRIMARY KEY ({', '.join(map(self._quoted, primary_key))})")
        statement = f"CREATE TABLE IF NOT EXISTS {self._qualified(table)} ({', '.join(parts)}){self._table_options}"
        self._change_schema(table, statement, {})

    def _add_columns(self, table: str, columns: Mapping[str, str]) -> None:
        for column, kind in columns.items():
            statement = f"ALTER TABLE {self._qualified(table)} ADD COLUMN {self._quoted(column)} {kind}"
            self._change_schema(table, statement, {column: kind})

    def _change_schema(self, table: str, statement: str, columns: Mapping[str, str]) -> None:
        try:
            self._define(statement)
        except Exception as error:
            if self._passes(error):
                raise
            # Another process may have done the same at the same moment.
            found = self._find(table)
            if not found or not columns.keys() <= found.keys():
                raise SinkError(f"table {table!r} cannot be changed: {self._reason(error)}") from error
        self._columns.pop(table, None)

    def _key_type(self, kind: str) -> str:
        """Return the type of a column of a primary key."""
        return kind

    def _find(self, table: str) -> dict[str, str]:
        found = self._columns.get(table)
        if not found:
            found = self._columns[table] = self._find_columns(table)
        return found

    # -- Names ---------------------------------------------------------------------------------------------------------

    def _fault(self, name: Any) -> str | None:
        """Return why a name cannot be that of a table or column."""
        if not isinstance(name, str) or not name:
            return f"a name must be a non-empty string, not {'an empty one' if name == '' else type(name).__name__}"
        if "\0" in name:
            return "a name must not contain a zero character"
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            return "a name must be valid Unicode"
        if size > self._longest_identifier:
            return f"a name must have {self._longest_identifier} bytes at most, not {size}"
        return None

    def _check_identifier(self, parameter: str, name: Any) -> None:
        fault = self._fault(name)
        if fault is not None:
            raise argument_error(f"{type(self).__name__}({parameter}=...): {fault}", of_type=isinstance(name, str))
