"""Statements of the MySQL sink that change rows."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from streamrt.connectors.mysql.mysql_values import code_of, column_of, is_about_rows, literal, reason_of
from streamrt.connectors.sql.sql_rows import STATEMENT, Place, TableRows, UnplacedRejectionError, rejection
from streamrt.connectors.sql.sql_statement import Statement
from streamrt.connectors.sql.sql_values import Dialect, Fit, fit_of
from streamrt.errors import SinkError

__all__ = ["RowWriter", "StatementRunner"]

_DUPLICATE = 1062
_PRIMARY = re.compile(r"for key '(?:.*\.)?PRIMARY'$", re.DOTALL)
_ROW = re.compile(r" at row (\d+)$")
# Notes about values that were cut.
_LOSSES = frozenset({1264, 1265, 1292, 1366, 1406})
_CHUNK_BYTES, _CHUNK_ROWS = 1 << 20, 10_000
# What a packet holds besides the statement, generously.
_MARGIN = 1_024
_DIALECT = Dialect(
    frozenset({"bigint", "bigint(20)", "double", "decimal(65,0)", "decimal(65,30)", "date", "datetime(6)", "time(6)"}),
    has_booleans=False,
    cuts_times=True,
    takes_durations=True,
)


class RowWriter:
    """Writes rows of one table, in statements that are small enough for the server.

    Args:
        cursor: a cursor in an open transaction.
        table: the name of the table, quoted.
        columns: the names of the columns to write, quoted, by name.
        conflict: what follows the values: what happens to rows whose key exists.
        singly: whether rows are inserted one by one, since the table has unique indexes besides its primary key. Then
            `conflict` is only for rows whose primary key exists: the server would also apply it to rows that are equal
            in another index.
        largest_packet: the size of the largest packet that the server takes.
        passes: recognizes errors that may pass.
    """

    def __init__(
        self,
        cursor: Any,
        table: str,
        columns: dict[str, str],
        conflict: str,
        *,
        singly: bool,
        largest_packet: int,
        passes: Callable[[BaseException], bool],
    ) -> None:
        self._cursor = cursor
        self._columns = columns
        self._head = f"INSERT INTO {table} ({', '.join(columns.values())}) VALUES ".encode()  # noqa: S608
        self._conflict = conflict.encode()
        self._singly = singly
        self._largest_packet = largest_packet
        self._passes = passes

    def write(self, rows: TableRows) -> None:
        """Write rows.

        Raises:
            SinkError: if the database rejects a row.
        """
        tuples = self._encode_tuples(rows)
        for start, end in self._split_chunks(rows, tuples):
            if self._singly:
                self._insert_singly(rows, tuples[start], start)
                continue
            try:
                self._insert_tuples(tuples[start:end])
            except Exception as error:
                if self._passes(error) or not code_of(error):
                    raise
                raise _make_rejection(rows, rows.places[start] if end - start == 1 else None, error) from None
            self._check_losses(rows, start)

    def _encode_tuples(self, rows: TableRows) -> list[bytes]:
        converted = rows.convert_columns(self._columns, _find_fit)
        return [self._encode_tuple(rows, row, place) for row, place in zip(converted, rows.places, strict=True)]

    def _encode_tuple(self, rows: TableRows, row: dict[str, Any], place: Place) -> bytes:
        parts = []
        for column in self._columns:
            try:
                parts.append(literal(row[column]) if column in row else b"DEFAULT")
            except ValueError as error:
                raise rejection(rows.table, column, place, str(error)) from None
        return b"(" + b", ".join(parts) + b")"

    def _split_chunks(self, rows: TableRows, tuples: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """Yield the bounds of chunks of rows."""
        room = self._largest_packet - len(self._head) - len(self._conflict) - _MARGIN
        start = size = 0
        for number, values in enumerate(tuples):
            if len(values) > room:
                raise SinkError(
                    f"the row of {rows.places[number]} for table {rows.table!r} needs a statement of {len(values):,} bytes, "
                    f"more than the server takes: raise its max_allowed_packet ({self._largest_packet:,})",
                    rows.places[number].record,
                )
            full = size + len(values) > min(room, _CHUNK_BYTES) or number - start == _CHUNK_ROWS
            if number > start and (full or self._singly):
                yield start, number
                start, size = number, 0
            size += len(values) + 2
        yield start, len(tuples)

    def _insert_tuples(self, tuples: Sequence[bytes], conflict: bool = True) -> None:
        self._cursor.execute(self._head + b", ".join(tuples) + (self._conflict if conflict else b""))

    def _insert_singly(self, rows: TableRows, values: bytes, number: int) -> None:
        try:
            try:
                self._insert_tuples([values], conflict=False)
            except Exception as error:
                if code_of(error) != _DUPLICATE or not _PRIMARY.search(str(error.args[-1])):
                    raise
                self._insert_tuples([values])
        except Exception as error:
            if self._passes(error) or not code_of(error):
                raise
            raise _make_rejection(rows, rows.places[number], error) from None
        self._check_losses(rows, number)

    def _check_losses(self, rows: TableRows, start: int) -> None:
        """Refuse values that the database has cut, and says so in a note."""
        if not self._cursor.warning_count:
            return
        self._cursor.execute("SHOW WARNINGS")
        for _, code, text in self._cursor.fetchall():
            column = column_of(text, rows.kinds) if code in _LOSSES else None
            row = _ROW.search(text)
            # Numbers with a fraction are not exact: columns with a scale may round them.
            if column is None or row is None or rows.kinds[column].startswith("decimal"):
                continue
            place = rows.places[min(start + int(row[1]), len(rows.places)) - 1]
            raise rejection(rows.table, column, place, reason_of(code))


class StatementRunner:
    """Runs a statement of a user for each row of its parameters.

    Args:
        cursor: a cursor in an open transaction.
        statement: the statement.
        largest_packet: the size of the largest packet that the server takes.
        passes: recognizes errors that may pass.
    """

    def __init__(
        self, cursor: Any, statement: Statement, largest_packet: int, passes: Callable[[BaseException], bool]
    ) -> None:
        self._cursor = cursor
        self._statement = statement
        self._largest_packet = largest_packet
        self._passes = passes

    def run(self, rows: TableRows) -> None:
        """Run it.

        Raises:
            SinkError: if the database rejects a row.
        """
        for row, place in zip(rows.rows, rows.places, strict=True):
            literals = {name: _encode_literal(name, value, place) for name, value in row.items()}
            # Latin-1 carries all bytes; the parts of the statement are UTF-8 behind it.
            text = self._statement.render(literals.__getitem__, lambda part: part.encode().decode("latin-1"))
            data = text.encode("latin-1")
            if len(data) > self._largest_packet - _MARGIN:
                raise SinkError(
                    f"{place} needs a statement of {len(data):,} bytes, more than the server takes: raise its "
                    f"max_allowed_packet ({self._largest_packet:,})",
                    place.record,
                )
            try:
                self._cursor.execute(data)
            except Exception as error:
                if self._passes(error) or not code_of(error):
                    raise
                raise _make_rejection(rows, place, error) from None


def _encode_literal(name: str, value: Any, place: Place) -> str:
    try:
        return literal(value).decode("latin-1")
    except ValueError as error:
        raise rejection(STATEMENT, name, place, str(error)) from None


def _make_rejection(rows: TableRows, place: Place | None, error: Exception) -> SinkError:
    code = code_of(error)
    column, reason = column_of(str(error.args[-1]), rows.kinds), reason_of(code)
    if not is_about_rows(code):
        # Without the record, because other records would fail as well.
        return SinkError(str(rejection(rows.table, column, place or rows.places[0], reason)))
    if place is None:
        return UnplacedRejectionError(rows.table, column, reason)
    return rejection(rows.table, column, place, reason)


def _find_fit(kind: str) -> Fit:
    return fit_of(kind, _DIALECT)
