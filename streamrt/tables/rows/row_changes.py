"""Changes that a writer is given, and the rows of those that a log table knows."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.schema import Schema
from streamrt.tables.rows.arrow_rows import is_frame_of
from streamrt.tables.rows.rows import ChangeType

__all__ = ["CHANGE_COLUMN", "SIGN_COLUMN", "inserted_frame", "inserted_row"]

CHANGE_COLUMN = "_change_type"
"""Column with the short forms of changes, such as `+A`."""
SIGN_COLUMN = "insert_delete"
"""Column of `Table.on_changes`: 1 for a row that is added, -1 for one that is taken back."""

_ADDED = (ChangeType.APPEND.short, ChangeType.INSERT.short)
_TAKEN = tuple(each.short for each in ChangeType if each.short not in _ADDED)


def inserted_row(number: int, change: object, table: str) -> Any:
    """Return the row of a change.

    Args:
        number: number of the change, from 0 on.
        change: such as `{"insert": row}`.
        table: name of the table, for errors.

    Raises:
        ArgumentTypeError: if it is not a mapping with one key.
        ArgumentValueError: if the key is not a change.
        InvalidOperationError: if it is an update or a delete.
    """
    if not isinstance(change, Mapping) or len(change) != 1:
        raise ArgumentTypeError(f'change {number} must be a mapping with one key, such as {{"insert": row}}')
    [(what, row)] = change.items()
    if what in ("delete", "update", "upsert"):
        raise InvalidOperationError(
            f"change {number} is {what!r}, and {table!r} is a log table, which has inserts alone"
        )
    if what != "insert":
        raise ArgumentValueError(f"change {number} must be an insert, got {what!r}")
    return row


def inserted_frame(frame: Any, schema: Schema, table: str) -> Any:
    """Return a frame without the columns that say what changes are.

    Args:
        frame: a table or record batch of Arrow, or a data frame of pandas or polars, with the column `_change_type`.
        schema: columns of the table.
        table: name of the table, for errors.

    Raises:
        ArgumentValueError: if the column does not exist, or a value is not a change.
        InvalidOperationError: if a change is an update or a delete, or the column is one of the table.
    """
    if CHANGE_COLUMN in schema.names:
        raise InvalidOperationError(
            f"table {table!r} has a column {CHANGE_COLUMN!r}, so write() cannot tell it from changes: append_rows() takes "
            "frames of rows"
        )
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    names = frame.column_names if isinstance(frame, pa.Table) else list(frame.columns)
    if names.count(CHANGE_COLUMN) != 1:
        raise ArgumentValueError(
            f"write() takes frames with one column {CHANGE_COLUMN!r}, such as scan(changes=True) returns: append_rows() "
            "takes frames of rows"
        )
    values = frame[CHANGE_COLUMN]
    for number, change in enumerate(values.to_pylist() if isinstance(frame, pa.Table) else values.to_list()):
        if change in _TAKEN:
            raise InvalidOperationError(
                f"row {number} is {str(change)!r}, and {table!r} is a log table, which has inserts alone: {', '.join(_ADDED)}"
            )
        if change not in _ADDED:
            raise ArgumentValueError(
                f"row {number}: column {CHANGE_COLUMN!r} must be one of {', '.join(each.short for each in ChangeType)}"
            )
    gone = [name for name in (CHANGE_COLUMN, SIGN_COLUMN) if name in names and name not in schema.names]
    if isinstance(frame, pa.Table):
        return frame.drop_columns(gone)
    return frame.drop(columns=gone) if is_frame_of("pandas", frame) else frame.drop(gone)
