"""A sink for SQLite databases."""

import contextlib
import datetime
import decimal
import json
import sqlite3
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.sql import PrimaryKeyColumns, SQLSink, TableName
from streamrt.connectors.sinks.sql_rows import TableRows, ascii_lower
from streamrt.errors import SinkError

__all__ = ["SQLiteSink"]

# Primary results of sqlite3_step(): busy, locked, full, cannot open; see https://sqlite.org/rescode.html.
_PASSING = ("database is locked", "database table is locked", "database or disk is full", "disk I/O error")


class SQLiteSink(SQLSink):
    """Writes dicts to tables of a SQLite database, each value once.

    The fields of a value are columns; tables and columns are created when they first occur. Processes of one machine may
    write to the same file. Lists and dicts are stored as JSON texts, times in ISO format, decimals as texts.

    Args:
        path: path of the database file; it is created if it does not exist, its directory is not.
        table_name: name of the table, or a function that returns it for an item.
        schema_auto_update: whether missing tables and columns are created.
        primary_key_columns: columns of the primary key of tables that the sink creates, or a function that returns them
            for an item. Use `__key` for the key of the record.
        upsert_on_primary_key: whether a row replaces the columns of the one with its primary key.
        on_conflict_do_nothing: whether a row is dropped if its primary key exists.
        include_metadata: whether the columns `__key` (the key of the record as text) and `timestamp` (its event time in
            milliseconds) are added.
        timeout: seconds to wait for other writers of the database.
        position_table: name of the table that holds the positions of the group; None to write values at least once,
            without positions.
        name: name of the sink, unique in the application; by default that of the table. Required if `table_name` is a
            function.
        retries: how requests are repeated while the database is locked.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if an argument cannot be used.

    Example:
        ```python
        sink = SQLiteSink("shop.sqlite", "orders", primary_key_columns="order_id", upsert_on_primary_key=True)
        sdf.sink(sink)
        ```
    """

    _longest_identifier = 1_000
    _placeholder = "?"

    def __init__(
        self,
        path: str | Path,
        table_name: TableName,
        schema_auto_update: bool = True,
        primary_key_columns: PrimaryKeyColumns = (),
        upsert_on_primary_key: bool = False,
        on_conflict_do_nothing: bool = False,
        include_metadata: bool = True,
        timeout: float = 5.0,
        *,
        position_table: str | None = "streamrt_positions",
        name: str | None = None,
        retries: Retries | None = None,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        super().__init__(
            table_name,
            schema_auto_update=schema_auto_update,
            primary_key_columns=primary_key_columns,
            upsert_on_primary_key=upsert_on_primary_key,
            on_conflict_do_nothing=on_conflict_do_nothing,
            include_metadata=include_metadata,
            position_table=position_table,
            name=name,
            retries=retries,
            on_client_connect_success=on_client_connect_success,
            on_client_connect_failure=on_client_connect_failure,
        )
        self._path = Path(path)
        self._timeout = timeout

    def setup(self) -> None:
        """Open the database, and create the table of positions.

        Raises:
            SinkError: if the database cannot be opened, stays locked, or the table cannot be created.
        """
        try:
            super().setup()
        except (SinkError, sqlite3.Error) as error:
            self._disconnect()
            # A locked or full database is the reason, whichever step has met it first.
            reason = error.__cause__ if isinstance(error, SinkError) else error
            if reason is None or not self._passes(reason):
                raise
            raise SinkError(
                f"the sink {self.name} cannot prepare the database {self._path}: {self._reason(reason)}; "
                f"{self._cure(str(reason))}"
            ) from reason

    def _cure(self, reason: str) -> str:
        if "locked" in reason:
            return f"end the transaction of the process that writes to it, or raise timeout={self._timeout:g}"
        return "free space on its disk" if "full" in reason else "check its disk"

    def _connect(self) -> Any:
        if not self._path.parent.is_dir():
            raise SinkError(f"the directory of the database {self._path} does not exist: create it")
        try:
            # Resident tasks may commit in another thread than the one that connects.
            connection = sqlite3.connect(self._path, self._timeout, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.DatabaseError as error:
            if self._passes(error):
                raise
            raise SinkError(f"the database {self._path} cannot be opened: {error}") from error
        return _Connection(connection)

    def _passes(self, error: BaseException) -> bool:
        return isinstance(error, sqlite3.OperationalError) and any(text in str(error) for text in _PASSING)

    def _reason(self, error: BaseException) -> str:
        # SQLite names tables and columns, never values.
        return str(error)

    def _type_of(self, value: Any) -> str | None:
        if isinstance(value, bool | int):
            return "INTEGER"
        if isinstance(value, float):
            return "REAL"
        if isinstance(value, bytes | bytearray | memoryview):
            return "BLOB"
        texts = (str, dict, list, tuple, datetime.date, datetime.time, decimal.Decimal, uuid.UUID)
        return "TEXT" if isinstance(value, texts) else None

    def _timestamp(self, milliseconds: int) -> Any:
        return milliseconds

    def _folded(self, name: str) -> str:
        return ascii_lower(name)

    def _find_columns(self, table: str) -> dict[str, str]:
        return {row[0]: row[1] for row in self._query("SELECT name, type FROM pragma_table_info(?)", table)}

    def _find_primary_key(self, table: str) -> tuple[str, ...]:
        found = self._query("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", table)
        return tuple(row[0] for row in found)

    def _insert(self, rows: TableRows, columns: Sequence[str]) -> None:
        cursor = self._connection.cursor()
        for row, place in zip(rows.rows, rows.places, strict=True):
            own = [column for column in columns if column in row]
            try:
                cursor.execute(self._insert_statement(rows, own), [self._converted(row[column]) for column in own])
            except (
                sqlite3.IntegrityError,
                sqlite3.InterfaceError,
                sqlite3.DataError,
                OverflowError,
                TypeError,
            ) as error:
                reason = str(error) if isinstance(error, sqlite3.Error) else "a value does not fit into a column"
                raise SinkError(f"table {rows.table!r} rejects the row of {place}: {reason}", place.record) from None
        cursor.close()

    def _insert_statement(self, rows: TableRows, columns: Sequence[str]) -> str:
        if not columns:
            return f"INSERT INTO {self._qualified(rows.table)} DEFAULT VALUES"
        conflict = ""
        if self._ignore or self._upsert:
            others = (self._quoted(column) for column in columns if column not in rows.primary_key)
            updates = ", ".join(f"{column} = excluded.{column}" for column in others)
            action = f"UPDATE SET {updates}" if self._upsert and updates else "NOTHING"
            conflict = f" ON CONFLICT ({', '.join(map(self._quoted, rows.primary_key))}) DO {action}"
        names, marks = ", ".join(map(self._quoted, columns)), ", ".join("?" * len(columns))
        return f"INSERT INTO {self._qualified(rows.table)} ({names}) VALUES ({marks}){conflict}"  # noqa: S608

    def _converted(self, value: Any) -> Any:
        if isinstance(value, dict | list | tuple):
            return json.dumps(value, ensure_ascii=False, default=str)
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        return str(value) if isinstance(value, decimal.Decimal | uuid.UUID) else value


class _Connection:
    """A connection whose cursors begin a transaction that locks the database for writing.

    Without the lock, a transaction that has read cannot write if another process has written since.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def cursor(self) -> sqlite3.Cursor:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")
        return self._connection.cursor()

    def commit(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def rollback(self) -> None:
        with contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()
