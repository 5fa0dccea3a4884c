"""Connections, values and INSERT statements of the DuckDB sink."""

import contextlib
import datetime
import decimal
import functools
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamrt.connectors.sinks.sql_rows import Place, Row, TableRows, json_text, loss_check, rejection
from streamrt.errors import SinkError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["Connection", "RowWriter", "type_of"]

_LARGEST_BIGINT, _LARGEST_HUGEINT = 1 << 63, 1 << 127
# More parameters in one statement make each one slower.
_CHUNK_PARAMETERS = 1_000
_CHUNK_ROWS, _LEAST_ROWS = 10_000, 50
_NOT_NULL = re.compile(r"NOT NULL constraint failed: [^\n]*\.([^\n]+)$", re.MULTILINE)
_TOO_LARGE = re.compile(r"is out of range for|too large for|Could not cast value .* to DECIMAL")
_CONSTRAINTS = (
    ("NOT NULL", "null is not allowed"),
    ("uplicate key", "its key exists"),
    ("CHECK", "a CHECK constraint forbids it"),
    ("foreign key", "a foreign key refers to no row"),
)

ROWS = "streamrt_rows"
# Values that need no look: no column keeps a part of the former.
_WHOLE = frozenset({int, bool, type(None)})
_PLAIN = frozenset({float, datetime.datetime})


class Connection:
    """A connection that begins a transaction with its first cursor."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection") -> None:
        self._connection = connection
        self._begun = False

    def cursor(self) -> "Cursor":
        """Return a cursor in the open transaction."""
        if not self._begun:
            self._connection.execute("BEGIN")
            self._begun = True
        # A cursor of DuckDB would be another connection.
        return Cursor(self._connection)

    def commit(self) -> None:
        """End the transaction.

        Raises:
            duckdb.TransactionException: if another connection of this process was faster.
        """
        import duckdb

        if self._begun:
            try:
                self._connection.execute("COMMIT")
            except (duckdb.TransactionException, duckdb.ConstraintException) as error:
                # Its text quotes keys.
                raise type(error)("another transaction of this process was faster") from None
            self._begun = False

    def rollback(self) -> None:
        """Undo the transaction."""
        if self._begun:
            self._begun = False
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


class Cursor:
    """A cursor (PEP 249) that knows how many rows an update has found, which older versions of DuckDB do not."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection") -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""
        self._connection.execute(statement, list(parameters))

    def execute_with(self, rows: "pa.Table", statement: str) -> None:
        """Run a statement that reads rows from a view."""
        self._connection.register(ROWS, rows)
        try:
            self._connection.execute(statement)
        finally:
            with contextlib.suppress(Exception):
                self._connection.unregister(ROWS)

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        return self._connection.fetchone()

    def fetchall(self) -> list[Any]:
        """Return the other rows."""
        rows: list[Any] = self._connection.fetchall()
        return rows

    @property
    def rowcount(self) -> int:
        """Number of rows that an update has found; to be read once."""
        return int(self._connection.fetchall()[0][0])

    def close(self) -> None:
        """Do nothing: the connection goes on."""


def type_of(value: Any, json_type: str) -> str | None:
    """Return the type of a column for a value; None for a value that no column can hold.

    Args:
        value: the value.
        json_type: the type for dicts and lists.
    """
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        if -_LARGEST_BIGINT <= value < _LARGEST_BIGINT:
            return "BIGINT"
        # UBIGINT would refuse a negative number that comes later.
        return "HUGEINT" if -_LARGEST_HUGEINT < value < _LARGEST_HUGEINT else None
    types: tuple[tuple[Any, str], ...] = (
        (float, "DOUBLE"),
        (str, "VARCHAR"),
        ((bytes, bytearray, memoryview), "BLOB"),
        # A datetime is a date, too.
        (datetime.datetime, "TIMESTAMP WITH TIME ZONE"),
        (datetime.date, "DATE"),
        (datetime.time, "TIME"),
        (datetime.timedelta, "INTERVAL"),
        (decimal.Decimal, "DECIMAL(38, 18)"),
        (uuid.UUID, "UUID"),
        ((dict, list, tuple), json_type),
    )
    return next((kind for classes, kind in types if isinstance(value, classes)), None)


def _reason_of(error: Exception) -> str:
    """Return why a row was rejected. The text of the error quotes values."""
    import duckdb

    text = str(error)
    if isinstance(error, duckdb.ConstraintException):
        return next((reason for part, reason in _CONSTRAINTS if part in text), "a constraint forbids it")
    if isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException | duckdb.InvalidInputException):
        return "it is out of range" if _TOO_LARGE.search(text) else "it is not of the column's type"
    if isinstance(error, duckdb.BinderException | duckdb.CatalogException):
        # It is about the statement, which has no values.
        return text.splitlines()[0]
    return type(error).__name__


class RowWriter:
    """Writes rows of one table.

    Args:
        connection: the connection.
        table: the name of the table, quoted.
        columns: the names of the columns to write, quoted, by name.
        conflict: what follows the values: what happens to rows whose key exists.
        before: repeat what the transaction has done for the same table.
        passes: recognizes errors that may pass.
    """

    def __init__(
        self,
        connection: Connection,
        table: str,
        columns: dict[str, str],
        conflict: str,
        before: list[Callable[[], None]],
        passes: Callable[[BaseException], bool],
    ) -> None:
        self._connection = connection
        self._columns = columns
        self._table = table
        self._conflict = conflict
        self._done = before
        self._passes = passes

    def write(self, rows: TableRows) -> None:
        """Write rows.

        Raises:
            SinkError: if the database rejects a row.
        """
        import duckdb

        converted = list(self._converted(rows))
        for start, chunk in self._chunks(converted, rows.kinds):
            try:
                self._insert(chunk)
            except duckdb.Error as error:
                if self._passes(error):
                    raise
                raise self._rejection(rows, start, chunk, error) from None
            self._done.append(functools.partial(self._insert, chunk))

    def _chunks(
        self, rows: Sequence[Row], kinds: Mapping[str, str]
    ) -> "Iterator[tuple[int, Sequence[Row] | pa.Table]]":
        """Yield chunks of rows with the number of their first one."""
        step = max(1, _CHUNK_PARAMETERS // len(self._columns)) if self._columns else 1
        for start in range(0, len(rows), _CHUNK_ROWS):
            part = rows[start : start + _CHUNK_ROWS]
            # Arrow is several times as fast as parameters, and knows fewer types.
            table = self._arrow_table(part, kinds) if len(part) >= _LEAST_ROWS else None
            if table is not None:
                yield start, table
                continue
            for number in range(0, len(part), step):
                yield start + number, part[number : number + step]

    def _arrow_table(self, rows: Sequence[Row], kinds: Mapping[str, str]) -> "pa.Table | None":
        """Return rows as a table; None if they lack columns or have values that are not quite of the columns' types."""
        import pyarrow as pa

        arrow_types = {
            "BIGINT": pa.int64(),
            "BLOB": pa.binary(),
            "BOOLEAN": pa.bool_(),
            "DOUBLE": pa.float64(),
            "JSON": pa.string(),
            "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", tz="UTC"),
            "VARCHAR": pa.string(),
        }
        if not self._columns or not all(kinds[column] in arrow_types for column in self._columns):
            return None
        try:
            arrays = {
                column: pa.array([row[column] for row in rows], arrow_types[kinds[column]]) for column in self._columns
            }
        except (KeyError, pa.ArrowException, TypeError, OverflowError):
            return None
        return pa.table(arrays)

    def _insert(self, chunk: "Sequence[Row] | pa.Table") -> None:
        cursor = self._connection.cursor()
        if isinstance(chunk, Sequence):
            cursor.execute(*self._statement(chunk))
        else:
            names = ", ".join(self._columns.values())
            cursor.execute_with(
                chunk,
                f"INSERT INTO {self._table} ({names}) SELECT {names} FROM {ROWS}{self._conflict}",  # noqa: S608
            )

    def _converted(self, rows: TableRows) -> Iterator[Row]:
        checks = {column: loss_check(rows.kinds[column]) for column in self._columns}
        for row, place in zip(rows.rows, rows.places, strict=True):
            converted = {}
            for column, check in checks.items():
                if column not in row:
                    continue
                value = row[column]
                if type(value) in _WHOLE or (check is None and type(value) in _PLAIN):
                    converted[column] = value
                    continue
                reason = check(value) if check is not None else None
                try:
                    if reason is not None:
                        raise ValueError(reason)
                    converted[column] = _converted(value, rows.kinds[column])
                except ValueError as error:
                    raise _refusal(rows.table, column, place, str(error)) from None
            yield converted

    def _statement(self, chunk: Sequence[Row]) -> tuple[str, list[Any]]:
        """Return a statement that inserts some rows, and its parameters."""
        if not self._columns:
            return f"INSERT INTO {self._table} DEFAULT VALUES", []
        tuples, parameters = [], []
        for row in chunk:
            tuples.append(f"({', '.join('?' if column in row else 'DEFAULT' for column in self._columns)})")
            parameters += [row[column] for column in self._columns if column in row]
        into = f"{self._table} ({', '.join(self._columns.values())})"
        return f"INSERT INTO {into} VALUES {', '.join(tuples)}{self._conflict}", parameters  # noqa: S608

    def _rejection(self, rows: TableRows, start: int, chunk: "Sequence[Row] | pa.Table", error: Exception) -> SinkError:
        """Return the error about the first row of a chunk that the database rejects.

        The first error ends the transaction, so its statements are repeated in another one, which is undone.
        """
        listed = chunk if isinstance(chunk, Sequence) else chunk.to_pylist()
        found = self._find_rejected(listed) if len(listed) > 1 else (0, error)
        if found is None:
            return _refusal(rows.table, None, f"a row from {rows.places[start]} on", _reason_of(error))
        index, error = found
        column = self._column_of(rows, listed[index], error)
        return _refusal(rows.table, column, rows.places[start + index], _reason_of(error))

    def _find_rejected(self, chunk: Sequence[Row]) -> tuple[int, Exception] | None:
        import duckdb

        self._connection.rollback()
        try:
            for repeat in self._done:
                repeat()
        except duckdb.Error:
            return None
        for index, row in enumerate(chunk):
            try:
                self._insert([row])
            except duckdb.Error as found:
                return index, found
        return None

    def _column_of(self, rows: TableRows, row: Row, error: Exception) -> str | None:
        """Return the column whose value an error is about; None if it is about none alone."""
        import duckdb

        if isinstance(error, duckdb.ConstraintException):
            named = _NOT_NULL.search(str(error))
            return named[1] if named is not None and named[1] in rows.kinds else None
        for column, value in row.items():
            self._connection.rollback()
            try:
                self._connection.cursor().execute(f"SELECT CAST(? AS {rows.kinds[column]})", [value])
            except duckdb.Error:
                return column
        return None


def _refusal(table: str, column: str | None, place: Place | str, reason: str) -> SinkError:
    where = f"column {column!r} of table {table!r}" if column else f"table {table!r}"
    return rejection(f"{where} rejects the value of {place}: {reason}", place)


def _converted(value: Any, kind: str) -> Any:
    """Return a value as DuckDB takes it.

    Raises:
        ValueError: if the column cannot hold the value; the reason does not quote it.
    """
    if value is None or isinstance(value, bool | int | float | decimal.Decimal | datetime.date | datetime.timedelta):
        return value
    if isinstance(value, str):
        if value.isascii() and kind != "BLOB":
            return value
        encoded = _encoded(value)
        # DuckDB would take a backslash in it for the beginning of an escaped byte.
        return encoded if kind == "BLOB" else value
    if isinstance(value, bytes | bytearray | memoryview):
        if kind == "VARCHAR":
            raise ValueError("it is bytes, and the column holds text: decode it with apply() before sink()")
        return bytes(value)
    if isinstance(value, dict | list | tuple):
        # Lists, structs and maps of DuckDB.
        return value if kind.endswith((")", "]")) else json_text(value)
    if isinstance(value, datetime.time):
        if value.tzinfo is not None and kind == "TIME":
            raise ValueError("a time of day has no time zone in the database: remove it before sink()")
        return value
    if isinstance(value, uuid.UUID):
        return value
    raise ValueError(f"no column holds the type {type(value).__name__}: convert it with apply() before sink()")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode") from None
