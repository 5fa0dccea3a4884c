"""Connections, values and INSERT statements of the DuckDB sink."""

import contextlib
import datetime
import decimal
import functools
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamrt.connectors.sql.sql_rows import STATEMENT, Row, UnplacedRejectionError, json_text, unusable
from streamrt.connectors.sql.sql_values import Dialect, Fit, fit_of

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["ANY", "Connection", "RowWriter", "type_of"]

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
ANY = "any"
"""Stands for the type of a parameter of a statement, which has none until it has a value."""
_MOST_DIGITS = 38
_DIALECT = Dialect(
    frozenset({
        "bigint", "blob", "boolean", "date", "decimal(38,18)", "double", "hugeint", "interval", "json", "time",
        "timestamp with time zone", "uuid", "varchar",
    })
)  # fmt: skip


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
        # A datetime is also a date.
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
    """Writes rows to a table.

    Args:
        connection: the connection.
        table: the name of the table, quoted.
        columns: the names of the columns to write, quoted, by name.
        kinds: their types.
        passes: recognizes errors that may pass.
    """

    def __init__(
        self,
        connection: Connection,
        table: str,
        columns: Mapping[str, str],
        kinds: Mapping[str, str],
        passes: Callable[[BaseException], bool],
    ) -> None:
        self._connection = connection
        self._columns = columns
        self._kinds = kinds
        self._table = table
        self._passes = passes

    def write(self, name: str, rows: Sequence[Row]) -> None:
        """Write rows that have the form which their columns keep.

        Args:
            name: the name of the table, for errors.
            rows: the rows.

        Raises:
            UnplacedRejectionError: if the database rejects a row.
        """
        for chunk in self._split_chunks(rows, self._kinds):
            insert = functools.partial(self._insert_chunk, chunk)
            run_checked(insert, name, self._passes, functools.partial(self._column_of, chunk))

    def _split_chunks(self, rows: Sequence[Row], kinds: Mapping[str, str]) -> "Iterator[Sequence[Row] | pa.Table]":
        """Yield chunks of rows."""
        step = max(1, _CHUNK_PARAMETERS // len(self._columns)) if self._columns else 1
        for start in range(0, len(rows), _CHUNK_ROWS):
            part = rows[start : start + _CHUNK_ROWS]
            # Arrow is several times as fast as parameters, and knows fewer types.
            table = self._arrow_table(part, kinds) if len(part) >= _LEAST_ROWS else None
            if table is not None:
                yield table
                continue
            for number in range(0, len(part), step):
                yield part[number : number + step]

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

    def _insert_chunk(self, chunk: "Sequence[Row] | pa.Table") -> None:
        cursor = self._connection.cursor()
        if isinstance(chunk, Sequence):
            cursor.execute(*self._make_statement(chunk))
        else:
            names = ", ".join(self._columns.values())
            cursor.execute_with(
                chunk,
                f"INSERT INTO {self._table} ({names}) SELECT {names} FROM {ROWS}",  # noqa: S608
            )

    def _make_statement(self, chunk: Sequence[Row]) -> tuple[str, list[Any]]:
        """Return a statement that inserts some rows, and its parameters."""
        if not self._columns:
            return f"INSERT INTO {self._table} DEFAULT VALUES", []
        tuples, parameters = [], []
        for row in chunk:
            tuples.append(f"({', '.join('?' if column in row else 'DEFAULT' for column in self._columns)})")
            parameters += [row[column] for column in self._columns if column in row]
        into = f"{self._table} ({', '.join(self._columns.values())})"
        return f"INSERT INTO {into} VALUES {', '.join(tuples)}", parameters  # noqa: S608

    def _column_of(self, chunk: "Sequence[Row] | pa.Table") -> str | None:
        """Return the column that cannot hold the value of the last row, if a single one is to blame."""
        import duckdb

        row = chunk[-1] if isinstance(chunk, Sequence) else chunk.slice(chunk.num_rows - 1).to_pylist()[0]
        for column, value in row.items():
            # The error has ended the transaction.
            self._connection.rollback()
            try:
                self._connection.cursor().execute(f"SELECT CAST(? AS {self._kinds[column]})", [value])
            except duckdb.Error:
                return column
        return None


def run_checked(
    request: Callable[[], None],
    table: str,
    passes: Callable[[BaseException], bool],
    column_of: Callable[[], str | None] = lambda: None,
) -> None:
    """Run a request about rows of a table.

    Raises:
        UnplacedRejectionError: if the database rejects a row.
        SinkError: if it rejects the statement.
    """
    import duckdb

    try:
        request()
    except duckdb.Error as error:
        if passes(error):
            raise
        # The types of parameters of a statement are those of their values.
        of_value = table == STATEMENT and isinstance(error, duckdb.BinderException)
        lasting = duckdb.BinderException | duckdb.CatalogException | duckdb.ParserException
        if isinstance(error, lasting) and not of_value:
            raise unusable(table, _reason_of(error)) from None
        named = _NOT_NULL.search(str(error))
        constraint = isinstance(error, duckdb.ConstraintException)
        column = named[1] if constraint and named is not None else None if constraint else column_of()
        raise UnplacedRejectionError(table, column, _reason_of(error)) from None


def fit(connection: Connection, kind: str) -> Fit:
    """Return the rule for a column, in the form that DuckDB takes."""
    whole, convert = fit_of(kind, _DIALECT)

    def converted(value: Any) -> Any:
        return _make_bindable(connection, convert(value), kind)

    # A text must be valid Unicode.
    return Fit(whole - {str}, converted)


def _make_bindable(connection: Connection, value: Any, kind: str) -> Any:
    """Return a value as DuckDB takes it.

    Raises:
        ValueError: if the column cannot hold the value; the reason does not quote it.
    """
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError("it is not valid Unicode") from None
        return value
    if isinstance(value, dict | list | tuple):
        if not kind.endswith((")", "]")):
            return json_text(value)
        return _check_unchanged(connection, value, kind)
    if isinstance(value, decimal.Decimal) and kind == ANY and not _is_decimal(value):
        raise ValueError("it has more digits than a DECIMAL of the database, which would round it")
    known = (bool, int, float, decimal.Decimal, bytes, datetime.date, datetime.time, datetime.timedelta, uuid.UUID)
    if isinstance(value, known):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise ValueError(f"no column holds the type {type(value).__name__}: convert it with apply() before sink()")


def _is_decimal(value: decimal.Decimal) -> bool:
    """Return whether DuckDB binds a number as a DECIMAL, and not as a float."""
    _, digits, exponent = value.as_tuple()
    return isinstance(exponent, int) and max(len(digits) + max(exponent, 0), -exponent) <= _MOST_DIGITS


def _check_unchanged(connection: Connection, value: Any, kind: str) -> Any:
    """Return a nested value, which DuckDB casts part by part, if it stays as it is."""
    import duckdb

    cursor = connection.cursor()
    try:
        cursor.execute(f"SELECT CAST(? AS {kind})", [value])
        kept = cursor.fetchone()[0]
    except duckdb.Error as error:
        # It has ended the transaction, and the row is refused anyway.
        raise ValueError(_reason_of(error)) from None
    if not _is_same(kept, value):
        raise ValueError("the column would change a part of it")
    return value


def _is_same(kept: Any, value: Any) -> bool:
    if isinstance(value, dict) and isinstance(kept, dict):
        # A struct has all its fields.
        return value.keys() <= kept.keys() and all(_is_same(part, value.get(name)) for name, part in kept.items())
    if isinstance(value, list | tuple) and isinstance(kept, list | tuple):
        return len(kept) == len(value) and all(map(_is_same, kept, value))
    if isinstance(value, str) and not isinstance(kept, str):
        return str(kept) == value
    return bool(kept == value and isinstance(kept, bool) == isinstance(value, bool)) or kept is value
