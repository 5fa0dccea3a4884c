"""Output to tables. `to_table` is a method of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from streamrt.dataframe.branch import Branch, Frame
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.operators.to_table import TableSinkOperator, ToTable
from streamrt.relations import UpsertRows

if TYPE_CHECKING:
    from streamrt.tables import Table

__all__ = ["KeyOfRow", "find_table", "make_key_function", "to_table"]

F = TypeVar("F", bound=Frame)
KeyOfRow = str | Sequence[str] | Callable[[Any], Any]


def to_table(self: F, table: Table | str, key: KeyOfRow | None = None) -> F:  # noqa: D417 - a method
    """Write each value, as a row, to a table: append it, or upsert it if the table has a primary key.

    A value of None deletes the row whose primary key is the record's key; tables without a primary key refuse it.

    Values are checked against the table's schema. One that does not fit is handled as a record that cannot be produced is:
    by `on_producer_error`, and by the policy of `on_error` for "produce". The row has the timestamp and the headers of the
    record, and its delivery the guarantee of the application, as with `to_topic`.

    An external table is written by its sink, whose errors are those of `sink()`; its delivery is at least once.

    Args:
        table: the table, or its name in the catalogue of the application.
        key: what the key is. A table with key columns takes it from the row, so nothing but their names can be given. For
            other tables, a function from the value to a text, bytes or None; by default the record's key.

    Returns:
        This frame; no assignment is needed.

    Raises:
        InvalidOperationError: if rows cannot be written to the table, because its system is only read.
        SchemaError: if the table has no schema.
        TableNotFoundError: if there is no table of this name.

    Example:
        ```python
        orders = app.dataframe("shop.orders")
        orders[orders["total"] > 1_000].to_table("shop.large_orders")
        ```
    """
    found = find_table(self._branch, table)
    info, home = found.info, found.home
    chosen = make_key_function(found, key)
    if info.kind == "external":
        from streamrt.tables.endpoints.endpoints import endpoint_sink, row_check

        sink = endpoint_sink(info, home)
        self._branch.add(TableSinkOperator(sink, row_check(info, home), info.name, chosen))
        return self
    topic = self._branch.topic_manager.register(found.topic)
    writes = UpsertRows if info.kind == "primary-key" else ToTable
    return self._in_place(writes(topic, chosen, None, info.name))


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
