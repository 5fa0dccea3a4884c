"""Tables that frames are written to: how they are found, and what their keys are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from streamrt.dataframe.branch import Branch
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError

if TYPE_CHECKING:
    from streamrt.tables import Table

__all__ = ["KeyOfRow", "find_table", "make_key_function"]

KeyOfRow = str | Sequence[str] | Callable[[Any], Any]


def find_table(branch: Branch, table: Table | str) -> Table:
    """Return a table, by its name in the catalogue of the application, or by itself.

    Args:
        branch: a position in the application's topology.
        table: the table, or its name.

    Raises:
        ArgumentTypeError: if it is neither.
        InvalidOperationError: if there is no catalogue.
        TableNotFoundError: if the catalogue has no such table.
    """
    # Most applications have no tables, and do not wait for pyarrow.
    from streamrt.tables import Table

    if isinstance(table, Table):
        return table
    if not isinstance(table, str):
        raise ArgumentTypeError(f"to_table() needs a Table or the name of one, got {type(table).__name__}")
    if branch.tables is None:
        raise InvalidOperationError(
            f"this dataframe knows no catalogue, in which table {table!r} could be: pass a Table"
        )
    return branch.tables(table)


def make_key_function(table: Table, key: KeyOfRow | None) -> Callable[[Any], Any] | None:
    """Return the function from the value to the key.

    Raises:
        ArgumentTypeError: if it is neither a function nor names.
        ArgumentValueError: if the table has another key.
    """
    columns, name = table.info.key, table.name
    if callable(key):
        if columns:
            raise ArgumentValueError(
                f"to_table(key=...) got a function, but the key of table {name} is its column {', '.join(columns)}: leave "
                "key out"
            )
        return key
    if key is not None:
        names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, list | tuple) else None
        if names is None:
            raise ArgumentTypeError(
                f"to_table(key=...) must be names of columns or a function, got {type(key).__name__}"
            )
        if names != columns:
            has = f"its column {', '.join(columns)}" if columns else "not taken from columns"
            raise ArgumentValueError(
                f"to_table(key={key!r}) does not fit: the key of table {name} is {has}; leave key out, or create the table "
                f"with key={list(names)!r}"
            )
    from streamrt.tables.descriptions.keys import RowKey

    return RowKey(table.schema, columns) if columns else None
