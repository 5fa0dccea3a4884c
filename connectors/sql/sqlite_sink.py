"""A sink for SQLite databases."""

import contextlib
import datetime
import decimal
import functools
import re
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.retries import Retries
from streamrt.connectors.sql.sql_rows import Row, TableRows, ascii_lower, json_text, rejection
from streamrt.connectors.sql.sql_sink import PrimaryKeyColumns, SQLSink, TableName
from streamrt.connectors.sql.sql_statement import Parameters, Statement
from streamrt.connectors.sql.sql_values import Fit
from streamrt.errors import SinkError

__all__ = ["SQLiteSink"]

# Primary results of sqlite3_step(): busy, locked, full, cannot open; see https://sqlite.org/rescode.html.
_PASSING = ("database is locked", "database table is locked", "database or disk is full", "disk I/O error")
# Of functions that get a value which they do not take; others concern all rows.
_OF_VALUES = ("JSON", "integer overflow", "too complex")
# Affinities by the declared type (https://sqlite.org/datatype3.html), in the order in which they are looked for.
_AFFINITIES = (("INT", "integer"), ("CHAR|CLOB|TEXT", "text"), ("BLOB|^$", "none"), ("REAL|FLOA|DOUB", "real"))
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_OWN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_LARGEST_INTEGER = 1 << 63


class SQLiteSink(SQLSink):
    """Writes dicts to tables of a SQLite database, each value once.

    The fields of a value are columns; tables and columns are created when they first occur. Processes of one machine may
    write to the same file. Lists and dicts are stored as JSON, times in ISO format, decimals as text.

    Args:
        path: path of the database file; it is created if it does not exist, its directory is not.
        table_name: name of the table, or a function that returns it for an item. None with `statement`.
        schema_auto_update: whether missing tables and columns are created.
        primary_key_columns: columns of the primary key of tables that the sink creates, or a function that returns them
            for an item. Use `__key` for the key of the record.
        upsert_on_primary_key: whether a row replaces the columns of the one with its primary key.
        on_conflict_do_nothing: whether a row is dropped if its primary key exists.
        include_metadata: whether the columns `__key` (the key of the record as text) and `timestamp` (its event time in
            milliseconds) are added.
        timeout: seconds to wait for other writers of the database.
        statement: a statement that is run for each item, instead of writing a row: INSERT, UPDATE, DELETE, REPLACE or WITH,
            with parameters such as `:sku`. Needs `name`, and goes without options of tables.
        parameters: returns the parameters for an item by name; by default, they are the fields of its value.
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
    # See https://sqlite.org/limits.html#max_column.
    _most_columns = 2_000

    def __init__(
        self,
        path: str | Path,
        table_name: TableName | None = None,
        schema_auto_update: bool = True,
        primary_key_columns: PrimaryKeyColumns = (),
        upsert_on_primary_key: bool = False,
        on_conflict_do_nothing: bool = False,
        include_metadata: bool = True,
        timeout: float = 5.0,
        *,
        statement: str | None = None,
        parameters: Parameters | None = None,
        position_table: str | None = "streamrt_positions",
        name: str | None = None,
        retries: Retries | None = None,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        super().__init__(
            table_name,
            statement=statement,
            parameters=parameters,
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
            if reason is None or not self._may_pass(reason):
                raise
            raise SinkError(
                f"the sink {self.name} cannot prepare the database {self._path}: {self._error_reason(reason)}; "
                f"{self._find_cure(str(reason))}"
            ) from reason

    def _find_cure(self, reason: str) -> str:
        if "locked" in reason:
            return f"end the transaction of the process that writes to it, or raise timeout={self._timeout:g}"
        return "free space on its disk" if "full" in reason else "check its disk"

    def _connect(self) -> Any:
        if not self._path.parent.is_dir():
            raise SinkError(f"the directory of the database {self._path} does not exist: create it")
        connection = None
        try:
            # Resident tasks may commit in another thread than the one that connects.
            connection = sqlite3.connect(
                self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.DatabaseError as error:
            if connection is not None:
                connection.close()
            if self._may_pass(error):
                raise
            raise SinkError(f"the database {self._path} cannot be opened: {error}") from error
        return _Connection(connection)

    def _may_pass(self, error: BaseException) -> bool:
        return isinstance(error, sqlite3.OperationalError) and any(text in str(error) for text in _PASSING)

    def _error_reason(self, error: BaseException) -> str:
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

    def _make_timestamp(self, milliseconds: int) -> Any:
        return milliseconds

    def _fold_name(self, name: str) -> str:
        return ascii_lower(name)

    def _find_columns(self, table: str) -> dict[str, str]:
        return {row[0]: row[1] for row in self._run_query("SELECT name, type FROM pragma_table_info(?)", table)}

    def _find_primary_key(self, table: str) -> tuple[str, ...]:
        found = self._run_query("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", table)
        return tuple(row[0] for row in found)

    def _insert_rows(self, rows: TableRows, columns: Sequence[str]) -> None:
        self._run_rows(rows, columns, lambda row: (self._insert_statement(rows, list(row)), list(row.values())))

    def _run_rows(
        self, rows: TableRows, columns: Sequence[str], statement_for: Callable[[Row], tuple[str, Any]]
    ) -> None:
        cursor = self._connection.cursor()
        # One after the other, so that the database decides which keys are equal.
        for row, place in zip(rows.convert_columns(columns, _find_fit), rows.places, strict=True):
            try:
                cursor.execute(*statement_for(row))
            except (
                sqlite3.IntegrityError,
                sqlite3.InterfaceError,
                sqlite3.DataError,
                sqlite3.ProgrammingError,
            ) as error:
                raise rejection(rows.table, None, place, str(error)) from None
            except sqlite3.OperationalError as error:
                if not any(text in str(error) for text in _OF_VALUES):
                    raise
                raise rejection(rows.table, None, place, str(error)) from None
        cursor.close()

    def _describe_statement(self, statement: Statement) -> dict[str, str]:
        with self._open_transaction() as cursor:
            cursor.execute(f"EXPLAIN {_name_parameters(statement)}", dict.fromkeys(statement.names))
        # Parameters have no types, like columns without one.
        return dict.fromkeys(statement.names, "")

    def _execute_statement(self, statement: Statement, rows: TableRows) -> None:
        self._run_rows(rows, statement.names, lambda row: (_name_parameters(statement), row))

    def _insert_statement(self, rows: TableRows, columns: Sequence[str]) -> str:
        if not columns:
            return f"INSERT INTO {self._qualify_name(rows.table)} DEFAULT VALUES"
        conflict = ""
        if self._ignore or self._upsert:
            others = (self._quote_name(column) for column in columns if column not in rows.primary_key)
            updates = ", ".join(f"{column} = excluded.{column}" for column in others)
            action = f"UPDATE SET {updates}" if self._upsert and updates else "NOTHING"
            conflict = f" ON CONFLICT ({', '.join(map(self._quote_name, rows.primary_key))}) DO {action}"
        names, marks = ", ".join(map(self._quote_name, columns)), ", ".join("?" * len(columns))
        return f"INSERT INTO {self._qualify_name(rows.table)} ({names}) VALUES ({marks}){conflict}"  # noqa: S608

    def _is_about_columns(self, error: BaseException) -> bool:
        return any(
            text in str(error) for text in ("duplicate column name", "too many columns", "too many SQL variables")
        )


def _name_parameters(statement: Statement) -> str:
    return statement.render(lambda name: f":{name}")


@functools.lru_cache(1_000)
def _find_fit(kind: str) -> Fit:
    """Return the rule for a column: SQLite casts what looks like a number, and NaN to null."""
    named = kind.upper()
    affinity = next((name for pattern, name in _AFFINITIES if re.search(pattern, named)), "numeric")

    def convert(value: Any) -> Any:
        return _keep_value(value, affinity, own=named in ("INTEGER", "REAL"))

    return Fit(frozenset({type(None), bytes}), convert)


def _keep_value(value: Any, affinity: str, *, own: bool) -> Any:
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, bool | int | float):
        return _kept_number(value, affinity)
    text = _text_of(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode") from None
    if affinity in ("text", "none") or not _NUMBER.fullmatch(text):
        return text
    # It becomes a number. In a column whose type the sink has chosen, "007" is not 7.
    if own and isinstance(value, str) and not _OWN_NUMBER.fullmatch(text):
        raise ValueError("it is text, and the column would store another number than it shows: convert it before")
    exact = decimal.Decimal(text)
    whole = exact == exact.to_integral_value() and -_LARGEST_INTEGER <= exact < _LARGEST_INTEGER
    try:
        # SQLite takes 15 digits of a text with more.
        same = (whole and affinity != "real") or decimal.Decimal(repr(float(exact))) == exact
    except OverflowError:
        same = False
    if not same:
        raise ValueError("it is text that looks like a number, and has more digits than the column would keep")
    return text


def _kept_number(value: bool | int | float, affinity: str) -> Any:
    if isinstance(value, float):
        if value != value:
            raise ValueError("the database has no NaN: replace it before sink()")
        return repr(float(value)) if affinity == "text" else value
    if affinity == "text":
        if isinstance(value, bool):
            raise ValueError("it is not of the column's type: it is of type bool")
        return str(value)
    if not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        raise ValueError("a value does not fit into a column of 64 bits")
    if affinity == "real" and int(float(value)) != value:
        raise ValueError("it has more digits than the column keeps")
    return value


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    raise ValueError(f"no column holds the type {type(value).__name__}: convert it with apply() before sink()")


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
