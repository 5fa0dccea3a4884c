"""Changes that a writer is given: which rows they write, and which they delete."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.schema import Schema
from streamrt.tables.rows.arrow_rows import is_frame_of
from streamrt.tables.rows.rows import ChangeType

__all__ = ["CHANGE_COLUMN", "SIGN_COLUMN", "Change", "FrameChanges", "parse_change", "parse_frame"]

CHANGE_COLUMN = "_change_type"
"""Column with the short forms of changes, such as `+A`."""
SIGN_COLUMN = "insert_delete"
"""Column of `Table.on_changes`: 1 for a row that is added, -1 for one that is taken back."""

_OF_LOG_TABLES = (ChangeType.APPEND, ChangeType.INSERT)
_WRITTEN = {
    False: tuple(each.short for each in _OF_LOG_TABLES),
    True: (ChangeType.INSERT.short, ChangeType.UPDATE_AFTER.short),
}
"""By whether the table has a primary key, the changes whose row is written."""
_SHORT = tuple(each.short for each in ChangeType)


class Change(NamedTuple):
    """A change of a table.

    Attributes:
        row: the row that is written; if one is deleted, the row or its key.
        deletes: whether it deletes the row.
        is_whole: whether the row must have all columns.
    """

    row: Any
    deletes: bool = False
    is_whole: bool = False


@dataclass(frozen=True)
class FrameChanges:
    """The changes of a frame.

    Attributes:
        rows: the frame, without the columns that say what changes are.
        written: numbers of the rows that are written, from 0 on.
        deleted: numbers of the rows that are deleted. A row in neither is how a row was before an update.
    """

    rows: Any
    written: Sequence[int]
    deleted: Sequence[int]

    def select(self, numbers: Sequence[int]) -> Any:
        """Return some rows of the frame, in order."""
        if len(numbers) == len(self.written) + len(self.deleted) == len(self.rows):
            return self.rows
        if isinstance(self.rows, pa.Table):
            return self.rows.take(pa.array(numbers, pa.int64()))
        return self.rows.iloc[list(numbers)] if is_frame_of("pandas", self.rows) else self.rows[list(numbers)]


def parse_change(number: int, change: object, table: str, *, is_keyed: bool) -> Change:
    """Return what a change does.

    Args:
        number: number of the change, from 0 on.
        change: such as `{"insert": row}`.
        table: name of the table, for errors.
        is_keyed: whether it has a primary key.

    Raises:
        ArgumentTypeError: if it is not a mapping with one key.
        ArgumentValueError: if the key is not a change.
        InvalidOperationError: if it is an update or a delete of a log table.

    Example:
        >>> parse_change(0, {"delete": 7}, "shop.customers", is_keyed=True)
        Change(row=7, deletes=True, is_whole=False)
    """
    if not isinstance(change, Mapping) or len(change) != 1:
        raise ArgumentTypeError(f'change {number} must be a mapping with one key, such as {{"insert": row}}')
    [(what, row)] = change.items()
    if what in ("delete", "update", "upsert") and not is_keyed:
        raise InvalidOperationError(
            f"change {number} is {what!r}, and {table!r} is a log table, which has inserts alone"
        )
    if what not in ("insert", "delete", "update", "upsert"):
        words = "an insert, update, upsert or delete" if is_keyed else "an insert"
        raise ArgumentValueError(f"change {number} must be {words}, got {what!r}")
    return Change(row, what == "delete", what == "update")


def parse_frame(frame: Any, schema: Schema, table: str, *, is_keyed: bool) -> FrameChanges:
    """Return what the rows of a frame do.

    Args:
        frame: a table or record batch of Arrow, or a data frame of pandas or polars, with the column `_change_type`.
        schema: columns of the table.
        table: name of the table, for errors.
        is_keyed: whether it has a primary key.

    Raises:
        ArgumentValueError: if the column does not exist, or a value is not a change.
        InvalidOperationError: if the table does not know a change, or the column is one of the table.
    """
    advice = f"{'upsert_rows' if is_keyed else 'append_rows'}() takes frames of rows"
    if CHANGE_COLUMN in schema.names:
        raise InvalidOperationError(
            f"table {table!r} has a column {CHANGE_COLUMN!r}, so write() cannot tell it from changes: {advice}"
        )
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    names = frame.column_names if isinstance(frame, pa.Table) else list(frame.columns)
    if names.count(CHANGE_COLUMN) != 1:
        raise ArgumentValueError(
            f"write() takes frames with one column {CHANGE_COLUMN!r}, such as scan(changes=True) returns: {advice}"
        )
    values = frame[CHANGE_COLUMN]
    written: list[int] = []
    deleted: list[int] = []
    for number, change in enumerate(values.to_pylist() if isinstance(frame, pa.Table) else values.to_list()):
        if change in _WRITTEN[is_keyed]:
            written.append(number)
        elif change not in _SHORT:
            raise ArgumentValueError(f"row {number}: column {CHANGE_COLUMN!r} must be one of {', '.join(_SHORT)}")
        elif not is_keyed:
            raise InvalidOperationError(
                f"row {number} is {change!r}, and {table!r} is a log table, which has inserts alone: "
                f"{', '.join(_WRITTEN[False])}"
            )
        elif change == ChangeType.APPEND.short:
            raise InvalidOperationError(
                f"row {number} is {change!r}, a row of a log table, and {table!r} has a primary key: without the column "
                f"{CHANGE_COLUMN!r}, {advice}"
            )
        elif change == ChangeType.DELETE.short:
            deleted.append(number)
    gone = [name for name in (CHANGE_COLUMN, SIGN_COLUMN) if name in names and name not in schema.names]
    if isinstance(frame, pa.Table):
        rows = frame.drop_columns(gone)
    else:
        rows = frame.drop(columns=gone) if is_frame_of("pandas", frame) else frame.drop(gone)
    return FrameChanges(rows, written, deleted)
