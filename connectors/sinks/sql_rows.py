"""Rows of sinks for SQL databases, on their way from batches to statements."""

import datetime
import decimal
import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import SinkError

__all__ = ["Place", "Row", "TableRows", "ascii_lower", "json_text", "key_text", "loss_check"]

Row = dict[str, Any]

_ASCII_LOWER = {ord(upper): ord(upper) + 32 for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_INTEGER = re.compile(r"u?(tiny|small|medium|big|huge)?int(eger)?\b|year\b", re.IGNORECASE)
_DECIMAL = re.compile(r"(?:decimal|numeric)\(\d+,\s*(\d+)\)", re.IGNORECASE)


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


def rejection(message: str, place: Place | str) -> SinkError:
    """Return the error for a row that a database rejects.

    Args:
        message: what happened.
        place: the origin of the row; text if the database does not say which row it is.
    """
    return SinkError(message, place.record if isinstance(place, Place) else None)


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

    def by_key(self, *, first: bool) -> "TableRows":
        """Return one row for each primary key, in the order in which the keys come.

        Args:
            first: whether the first row of a key counts. Otherwise, each later row replaces the columns that it has.
        """
        kept = self.empty()
        indexes: dict[tuple[str, ...], int] = {}
        for row, place in zip(self.rows, self.places, strict=True):
            index = indexes.setdefault(self.key_of(row), len(kept.rows))
            if index == len(kept.rows):
                kept.append(row, place)
            elif not first:
                kept.rows[index] = {**kept.rows[index], **row}
                kept.places[index] = place
        return kept

    def by_columns(self, columns: Sequence[str]) -> "Iterator[tuple[TableRows, list[str]]]":
        """Divide the rows by the columns that they have: an update must not touch the others.

        Args:
            columns: all columns.

        Yields:
            Rows, and the columns that they have.
        """
        parts: dict[frozenset[str], TableRows] = {}
        for row, place in zip(self.rows, self.places, strict=True):
            own = frozenset(row)
            if own not in parts:
                parts[own] = self.empty()
            parts[own].append(row, place)
        for own, part in parts.items():
            yield part, [column for column in columns if column in own]

    def key_of(self, row: Row) -> tuple[str, ...]:
        """Return a text for each column of a row's primary key, the same for values that are equal in a column."""
        return tuple(_canonical(row[column]) for column in self.primary_key)


def key_text(key: bytes) -> str:
    """Return a key as text; bytes that are none, and zero, which some databases refuse, are escaped."""
    return key.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def ascii_lower(name: str) -> str:
    """Return a name in lower case, as databases do that know the letters of ASCII alone."""
    return name.translate(_ASCII_LOWER)


def json_text(value: Any) -> str:
    """Return a dict or list as JSON.

    Raises:
        ValueError: if it has no form in JSON.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_json_default)
    except (TypeError, ValueError, RecursionError):
        # Texts of json quote values.
        raise ValueError("it has no form in JSON: convert it with apply() before sink()") from None


def loss_check(kind: str) -> Callable[[Any], str | None] | None:
    """Return a function that says why a column would keep only a part of a value, which some databases do silently.

    Args:
        kind: the type of the column.

    Returns:
        A function that returns the reason, or None for a value that stays whole; None if the type loses nothing.
    """
    if _INTEGER.match(kind):
        return lambda value: _digits_lost(value, 0)
    scale = _DECIMAL.match(kind)
    if scale is not None:
        return lambda value: _digits_lost(value, int(scale[1]))
    return _time_lost if kind.lower() == "date" else None


def _digits_lost(value: Any, scale: int) -> str | None:
    if isinstance(value, float):
        # A number with a fraction is not exact anyway, so columns with a scale round it.
        lost = scale == 0 and value == value and not value.is_integer()
    else:
        lost = isinstance(value, decimal.Decimal | str) and _fraction_digits(value) > scale
    return f"it has more than {scale} digits after the point, and the column would drop them" if lost else None


def _fraction_digits(value: decimal.Decimal | str) -> int:
    try:
        number = decimal.Decimal(value)
    except decimal.InvalidOperation:
        return 0
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or not any(digits):
        return 0
    text = "".join(map(str, digits))
    return max(0, -exponent - (len(text) - len(text.rstrip("0"))))


def _time_lost(value: Any) -> str | None:
    if isinstance(value, datetime.datetime) and value.timetz().replace(tzinfo=None) != datetime.time():
        return "it has a time of day, and the column would drop it"
    return None


def _json_default(value: Any) -> Any:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    raise TypeError


def _canonical(value: Any) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
