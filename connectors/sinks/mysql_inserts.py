"""INSERT statements of the MySQL sink."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from streamrt.connectors.sinks.mysql_values import code_of, column_of, literal, reason_of
from streamrt.connectors.sinks.sql_rows import Place, TableRows, loss_check, rejection
from streamrt.errors import SinkError

__all__ = ["RowWriter"]

_DUPLICATE = 1062
_PRIMARY = re.compile(r"for key '(?:.*\.)?PRIMARY'$", re.DOTALL)
_ROW = re.compile(r" at row (\d+)$")
# Notes about values that were cut.
_LOSSES = frozenset({1264, 1265, 1292, 1366, 1406})
_CHUNK_BYTES, _CHUNK_ROWS = 1 << 20, 10_000
# What a packet holds besides the statement, generously.
_MARGIN = 1_024


class RowWriter:
    """Writes rows of one table, in statements that are small enough for the server.

    Args:
        cursor: a cursor in an open transaction.
        table: the name of the table, quoted.
        columns: the names of the columns to write, quoted, by name.
        conflict: what follows the values: what happens to rows whose key exists.
        singly: whether rows are inserted one by one, since the table has unique indexes besides its primary key. Then
            `conflict` is for rows whose primary key exists alone: the server would apply it to rows that are equal in
            another index, too.
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
        tuples = self._tuples(rows)
        for start, end in self._chunks(rows, tuples):
            if self._singly:
                self._insert_singly(rows, tuples[start], start)
                continue
            try:
                self._insert(tuples[start:end])
            except Exception as error:
                if self._passes(error) or not code_of(error):
                    raise
                number, found = self._find_rejected(tuples[start:end], error)
                place = rows.places[start + number] if number is not None else f"a row from {rows.places[start]} on"
                raise self._rejection(rows, place, found) from None
            self._check_losses(rows, start)

    def _tuples(self, rows: TableRows) -> list[bytes]:
        checks = {column: loss_check(rows.kinds[column]) for column in self._columns}
        return [self._tuple(rows, row, place, checks) for row, place in zip(rows.rows, rows.places, strict=True)]

    def _tuple(
        self, rows: TableRows, row: dict[str, Any], place: Place, checks: dict[str, Callable[[Any], str | None] | None]
    ) -> bytes:
        parts = []
        for column, check in checks.items():
            if column not in row:
                parts.append(b"DEFAULT")
                continue
            value = row[column]
            reason = check(value) if check is not None and type(value) is not int else None
            try:
                if reason is not None:
                    raise ValueError(reason)
                parts.append(literal(value))
            except ValueError as error:
                raise SinkError(
                    f"column {column!r} of table {rows.table!r} rejects the value of {place}: {error}", place.record
                ) from None
        return b"(" + b", ".join(parts) + b")"

    def _chunks(self, rows: TableRows, tuples: Sequence[bytes]) -> Iterator[tuple[int, int]]:
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

    def _insert(self, tuples: Sequence[bytes], conflict: bool = True) -> None:
        self._cursor.execute(self._head + b", ".join(tuples) + (self._conflict if conflict else b""))

    def _insert_singly(self, rows: TableRows, values: bytes, number: int) -> None:
        try:
            try:
                self._insert([values], conflict=False)
            except Exception as error:
                if code_of(error) != _DUPLICATE or not _PRIMARY.search(str(error.args[-1])):
                    raise
                self._insert([values])
        except Exception as error:
            if self._passes(error) or not code_of(error):
                raise
            raise self._rejection(rows, rows.places[number], error) from None
        self._check_losses(rows, number)

    def _find_rejected(self, tuples: Sequence[bytes], error: Exception) -> tuple[int | None, Exception]:
        """Return the number of the row that the database rejects, and the error about it."""
        if len(tuples) == 1:
            return 0, error
        self._cursor.execute("SAVEPOINT streamrt_chunk")
        try:
            for number, values in enumerate(tuples):
                try:
                    self._insert([values])
                except Exception as found:
                    if self._passes(found):
                        raise
                    return number, found
        finally:
            self._cursor.execute("ROLLBACK TO SAVEPOINT streamrt_chunk")
        return None, error

    def _rejection(self, rows: TableRows, place: Place | str, error: Exception) -> SinkError:
        column = column_of(str(error.args[-1]), rows.kinds)
        where = f"column {column!r} of table {rows.table!r}" if column else f"table {rows.table!r}"
        return rejection(f"{where} rejects the value of {place}: {reason_of(code_of(error))}", place)

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
            raise SinkError(
                f"column {column!r} of table {rows.table!r} rejects the value of {place}: {reason_of(code)}",
                place.record,
            )
