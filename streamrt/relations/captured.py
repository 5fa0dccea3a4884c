"""What a change of a row at its origin says: which row, in which order, and what happened to it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple, Protocol

from streamrt.errors import SchemaMismatchError
from streamrt.operators.columns import column_of
from streamrt.operators.expression import Expression
from streamrt.relations.map_rows import callable_of

__all__ = [
    "Captured",
    "ChangeEvents",
    "ChangeKey",
    "ChangeReader",
    "ChangeRows",
    "Condition",
    "IsEventOf",
    "check_sequence",
]

Condition = Callable[[Any], Any] | Expression
"""Function of a value, or an expression on its columns."""

_SORTABLE: Final = (int, float, str, bytes, Decimal, datetime.date, datetime.time, datetime.timedelta)
_OPS: Final = ("r", "c", "u", "d", "t")
_LSN_DIGITS, _COUNT_DIGITS = 16, 10


class Captured(NamedTuple):
    """A change of a row.

    Attributes:
        kind: "upsert", "delete", or "truncate", which deletes all rows.
        sequence: its place in the order of changes.
        row: columns of the row, with those of the key; nothing for a truncate.
    """

    kind: Literal["upsert", "delete", "truncate"]
    sequence: Any
    row: Mapping[str, Any]


class ChangeReader(Protocol):
    """Tells changes from values. Implementations are picklable."""

    @property
    def may_truncate(self) -> bool:
        """Whether a value may be a truncate."""

    def make_reader(self) -> Callable[[Any], Captured]:
        """Return the function that reads a value; it raises `SchemaMismatchError` if the value is not a change."""

    def make_truncate_test(self) -> Callable[[Any], bool]:
        """Return the function that returns whether a value is a truncate."""

    def row_of(self, value: Any) -> Any:
        """Return the columns of a value that is not a truncate."""

    def split(self, value: Any, key: tuple[str, ...]) -> Sequence[Any]:
        """Return the changes of single keys that a value, which is not a truncate, is made of."""


@dataclass(frozen=True)
class ChangeRows:
    """Values are rows, and columns of them say what happened.

    Attributes:
        sequence: names of columns, or a function or expression.
        deletes: condition of a delete; None if there are none.
        truncates: condition of a truncate.

    Example:
        >>> read = ChangeRows(("n",), lambda row: row["op"] == "D").make_reader()
        >>> read({"id": 1, "n": 4, "op": "D"})
        Captured(kind='delete', sequence=4, row={'id': 1, 'n': 4, 'op': 'D'})
    """

    sequence: tuple[str, ...] | Condition
    deletes: Condition | None = None
    truncates: Condition | None = None

    @property
    def may_truncate(self) -> bool:
        """Whether a value may be a truncate."""
        return self.truncates is not None

    def make_reader(self) -> Callable[[Any], Captured]:
        """Return the function that reads a value."""
        sequence_of, is_truncate, is_delete = self._sequence_function(), *map(_test, (self.truncates, self.deletes))

        def read(value: Any) -> Captured:
            if not isinstance(value, Mapping):
                raise SchemaMismatchError(f"a change must be a row with a sequence, not {type(value).__name__}")
            sequence = check_sequence(sequence_of(value))
            if is_truncate(value):
                return Captured("truncate", sequence, {})
            return Captured("delete" if is_delete(value) else "upsert", sequence, value)

        return read

    def make_truncate_test(self) -> Callable[[Any], bool]:
        """Return the function that returns whether a value is a truncate."""
        return _test(self.truncates)

    def row_of(self, value: Any) -> Any:
        """Return the columns of a value."""
        return value

    def split(self, value: Any, key: tuple[str, ...]) -> Sequence[Any]:
        """Return the value."""
        return (value,)

    def _sequence_function(self) -> Callable[[Any], Any]:
        given = self.sequence
        if not isinstance(given, tuple):
            return callable_of(given)
        if len(given) == 1:
            (name,) = given
            return lambda value: column_of(value, name)
        return lambda value: [column_of(value, name) for name in given]


@dataclass(frozen=True)
class ChangeEvents:
    """Values are events of `PostgresCdcSource` or `MySQLCdcSource`.

    The sequence is a text that sorts as the position in the log of the database: of the transaction, and of the change
    within. Rows of a snapshot come before all changes after it.

    Example:
        >>> source = {"connector": "postgresql", "table": "t", "lsn": "0/1943B80", "seq": 2}
        >>> ChangeEvents().make_reader()({"op": "c", "before": None, "after": {"id": 1}, "source": source})
        Captured(kind='upsert', sequence='0000000001943B80-0000000002', row={'id': 1})
    """

    may_truncate: bool = True

    def make_reader(self) -> Callable[[Any], Captured]:
        """Return the function that reads a value."""
        return _read_event

    def make_truncate_test(self) -> Callable[[Any], bool]:
        """Return the function that returns whether a value is a truncate."""
        return _is_truncate_event

    def row_of(self, value: Any) -> Any:
        """Return the row after a change, or before a delete."""
        return _check_event(value)["before" if value["op"] == "d" else "after"]

    def split(self, value: Any, key: tuple[str, ...]) -> Sequence[Any]:
        """Return a delete and an upsert for an update that is known to change the key, and otherwise the value."""
        before, after = _check_event(value).get("before"), value.get("after")
        if not (
            isinstance(before, Mapping) and isinstance(after, Mapping) and before.keys() >= set(key) <= after.keys()
        ):
            return (value,)
        if all(before[name] == after[name] for name in key):
            return (value,)
        return ({**value, "op": "d", "after": None}, {**value, "before": None})


@dataclass(frozen=True)
class ChangeKey:
    """Returns the key of a change, as `group_by` makes it: the value of a column, or a list of those of several."""

    columns: tuple[str, ...]
    reader: ChangeReader

    def __call__(self, value: Any) -> Any:
        """Return the key."""
        row = self.reader.row_of(value)
        if len(self.columns) == 1:
            return column_of(row, self.columns[0])
        return [column_of(row, column) for column in self.columns]


@dataclass(frozen=True)
class IsEventOf:
    """Returns whether a value is a change event, and of a table: not the tombstone that may follow a delete.

    Attributes:
        table: name of the table at the origin, with its schema or not; None for any.

    Example:
        >>> test = IsEventOf("public.customers")
        >>> test({"source": {"schema": "public", "table": "customers"}}), test(None)
        (True, False)
    """

    table: str | None

    def __call__(self, value: Any) -> bool:
        """Return whether the value is passed on; values of another form are, and fail below."""
        if value is None:
            return False
        source = value.get("source") if isinstance(value, Mapping) else None
        if self.table is None or not isinstance(source, Mapping):
            return True
        return self.table in (
            source.get("table"),
            f"{source.get('schema', source.get('database'))}.{source.get('table')}",
        )


def check_sequence(sequence: Any) -> Any:
    """Return a sequence, if it can be ordered.

    Args:
        sequence: a number, text, time, or a list of these.

    Raises:
        SchemaMismatchError: if it is null, or of another type.

    Example:
        >>> check_sequence((1, "a"))
        [1, 'a']
    """
    if isinstance(sequence, list | tuple):
        if not sequence:
            raise SchemaMismatchError("the sequence of a change is an empty list: sequence_by must give it an order")
        return [check_sequence(part) for part in sequence]
    if sequence is None or (isinstance(sequence, float | Decimal) and math.isnan(sequence)):
        raise SchemaMismatchError(
            f"the sequence of a change is {'null' if sequence is None else 'NaN'}: sequence_by must give each change its "
            "place in the order of changes"
        )
    if isinstance(sequence, bool) or not isinstance(sequence, _SORTABLE):
        raise SchemaMismatchError(
            f"the sequence of a change is of type {type(sequence).__name__}: sequence_by must give a number, a text, a time, "
            "or a list of these"
        )
    return sequence


def _test(condition: Condition | None) -> Callable[[Any], bool]:
    if condition is None:
        return lambda value: False
    call = callable_of(condition)
    # As in SQL, a condition that is null is not fulfilled.
    return lambda value: bool(call(value))


def _check_event(value: Any) -> Any:
    if not isinstance(value, Mapping) or value.get("op") not in _OPS or not isinstance(value.get("source"), Mapping):
        raise SchemaMismatchError(
            "the value is not a change event of PostgresCdcSource or MySQLCdcSource, which has op, before, after and source"
        )
    return value


def _is_truncate_event(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("op") == "t"


def _read_event(value: Any) -> Captured:
    op, sequence = _check_event(value)["op"], _event_sequence(value["source"])
    if op == "t":
        return Captured("truncate", sequence, {})
    row = value.get("before" if op == "d" else "after")
    if not isinstance(row, Mapping):
        raise SchemaMismatchError(f"a change event with op {op!r} has no row {'before' if op == 'd' else 'after'} it")
    return Captured("delete" if op == "d" else "upsert", sequence, row)


def _event_sequence(source: Mapping[str, Any]) -> str:
    """Return the position in the log of a database as a text that sorts like it."""
    count = f"{source.get('seq') or 0:0{_COUNT_DIGITS}d}"
    try:
        if source.get("connector") == "postgresql":
            high, _, low = source["lsn"].partition("/")
            return f"{(int(high, 16) << 32) + int(low, 16):0{_LSN_DIGITS}X}-{count}"
        if source.get("connector") == "mysql":
            # Names of log files end in numbers, which get longer after 999,999.
            number = int(source["file"].rpartition(".")[2])
            return f"{number:0{_COUNT_DIGITS}d}-{source['pos']:0{_LSN_DIGITS}d}-{count}"
    except (KeyError, AttributeError, TypeError, ValueError):
        pass
    raise SchemaMismatchError(
        "a change event has no position: its source must have connector 'postgresql' with lsn, or 'mysql' with file and pos"
    )
