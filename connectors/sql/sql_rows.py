"""Rows of sinks for SQL databases, on their way from batches to statements."""

import datetime
import decimal
import itertools
import json
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import SinkError

__all__ = [
    "STATEMENT",
    "Place",
    "Row",
    "TableRows",
    "UnplacedRejectionError",
    "ascii_lower",
    "json_text",
    "key_text",
    "rejection",
    "target_of",
    "unusable",
]

STATEMENT = ""
"""Stands for the table if rows are parameters of a statement."""

Row = dict[str, Any]

_ASCII_LOWER = {ord(upper): ord(upper) + 32 for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


class Place:
    """The origin of a row, for error messages."""

    __slots__ = ("offset", "partition", "topic")

    def __init__(self, batch: SinkBatch, item: SinkItem) -> None:
        self.topic, self.partition, self.offset = batch.topic, batch.partition, item.offset

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] at offset {self.offset}"

    @property
    def record(self) -> tuple[str, int, int]:
        """Topic, partition and offset, for `SinkError`."""
        return self.topic, self.partition, self.offset


class UnplacedRejectionError(SinkError):
    """The database rejects one of several rows, and does not say which one: the sink looks for it.

    Args:
        table: the table.
        column: the column, if it is known.
        reason: why, without values.
    """

    def __init__(self, table: str, column: str | None, reason: str) -> None:
        super().__init__(f"{target_of(table, column)} rejects one of the rows: {reason}")
        self.table, self.column, self.reason = table, column, reason

    def at(self, place: Place) -> SinkError:
        """Return the error once the row is known."""
        return rejection(self.table, self.column, place, self.reason)


def rejection(table: str, column: str | None, place: Place, reason: str) -> SinkError:
    """Return the error for a row that a database rejects.

    Args:
        table: the table.
        column: the column, if it is known.
        place: the origin of the row.
        reason: why, without values.
    """
    return SinkError(f"{target_of(table, column)} rejects the value of {place}: {reason}", place.record)


def target_of(table: str, column: str | None = None) -> str:
    """Return the name of a table or column for an error, or that of a statement or its parameter."""
    if table == STATEMENT:
        return f"parameter {column!r} of the statement" if column else "the statement"
    return f"column {column!r} of table {table!r}" if column else f"table {table!r}"


def unusable(table: str, reason: str) -> SinkError:
    """Return the error for what concerns all rows, such as missing rights."""
    return SinkError(f"{target_of(table)} cannot be {'run' if table == STATEMENT else 'written'}: {reason}")


class TableRows:
    """The rows of one table in one transaction.

    Attributes:
        table: name of the table.
        primary_key: names of the columns of its primary key, as far as the user named them.
        kinds: the columns of the table with their types, once the table has all that the rows need.
        rows: the rows.
        places: the origin of each row.
    """

    def __init__(self, table: str, primary_key: tuple[str, ...]) -> None:
        self.table = table
        self.primary_key = primary_key
        self.kinds: dict[str, str] = {}
        self.rows: list[Row] = []
        self.places: list[Place] = []

    def columns(self) -> list[str]:
        """Return the names of all columns, in the order in which they come."""
        # Most rows have the same columns.
        shapes = dict.fromkeys(map(tuple, self.rows))
        return list(dict.fromkeys(itertools.chain.from_iterable(shapes)))

    def empty(self) -> "TableRows":
        """Return the same without rows."""
        rows = TableRows(self.table, self.primary_key)
        rows.kinds = self.kinds
        return rows

    def append(self, row: Row, place: Place) -> None:
        """Add a row."""
        self.rows.append(row)
        self.places.append(place)

    def head(self, count: int) -> "TableRows":
        """Return the first rows."""
        rows = self.empty()
        rows.rows, rows.places = self.rows[:count], self.places[:count]
        return rows

    def statements(
        self, columns: Sequence[str], key_of: Callable[[Row], Hashable]
    ) -> "Iterator[tuple[TableRows, list[str]]]":
        """Divide the rows by the columns that they have, since an update must not touch the others.

        Rows whose keys may be equal stay in their order: between two of them that have other columns, a new round begins.

        Args:
            columns: all columns.
            key_of: returns the same for rows whose keys may be equal.

        Yields:
            Rows for one statement, and the columns that they have.
        """
        parts: dict[tuple[int, frozenset[str]], TableRows] = {}
        last: dict[Hashable, tuple[int, frozenset[str]]] = {}
        for row, place in zip(self.rows, self.places, strict=True):
            own, key = frozenset(row), key_of(row)
            turn, before = last.get(key, (0, own))
            part = last[key] = (turn if own == before else turn + 1, own)
            if part not in parts:
                parts[part] = self.empty()
            parts[part].append(row, place)
        for (_, own), rows in sorted(parts.items(), key=lambda item: item[0][0]):
            yield rows, [column for column in columns if column in own]

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """Return the primary key of a row."""
        return tuple(row[column] for column in self.primary_key)

    def by_key(self) -> "TableRows":
        """Return the rows in the order of their keys; those of one key stay in theirs."""
        rows = self.empty()
        for row, place in sorted(zip(self.rows, self.places, strict=True), key=lambda pair: self.key_of(pair[0])):
            rows.append(row, place)
        return rows

    def convert_columns(self, columns: Iterable[str], fit_of: "Callable[[str], Any]") -> Iterator[Row]:
        """Yield the rows with the values that the columns keep as they are.

        Args:
            columns: the columns to convert; others are left out.
            fit_of: returns the rule for the type of a column; see `sql_values`.

        Raises:
            SinkError: if a column would keep only a part of a value.
        """
        fits = [(column, *fit_of(self.kinds[column])) for column in columns]
        for row, place in zip(self.rows, self.places, strict=True):
            converted = {}
            for column, whole, convert in fits:
                if column not in row:
                    continue
                value = row[column]
                if type(value) not in whole:
                    try:
                        value = convert(value)
                    except ValueError as error:
                        raise rejection(self.table, column, place, str(error)) from None
                converted[column] = value
            yield converted


def key_text(key: bytes) -> str:
    """Return a key as text; bytes that are none, and zero, which some databases refuse, are escaped."""
    return key.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def ascii_lower(name: str) -> str:
    """Return a name in lower case, as databases do that know only the letters of ASCII."""
    return name.translate(_ASCII_LOWER)


def json_text(value: Any) -> str:
    """Return a dict or list as JSON.

    Raises:
        ValueError: if it has no form in JSON.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_json_default)
        text.encode()
        return text
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode") from None
    except (TypeError, ValueError, RecursionError):
        # Messages of json quote values.
        raise ValueError("it has no form in JSON: convert it with apply() before sink()") from None


def _json_default(value: Any) -> Any:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    raise TypeError
