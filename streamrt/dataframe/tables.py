"""Tables that frames are written to: how they are found, and what their keys are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from streamrt.dataframe.branch import Branch
from streamrt.dataframe.grouping import column_list
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.tables.descriptions.maintenance import Aggregate, Maintenance
from streamrt.tables.descriptions.topics import TableTopic

if TYPE_CHECKING:
    from streamrt.tables import Table

__all__ = ["KeyOfRow", "choose_output_topic", "find_table", "make_key_function", "require_requests_topic"]

KeyOfRow = str | Sequence[str] | Callable[[Any], Any]


def find_table(branch: Branch, table: Table | str) -> Table:
    """Return a table to write to, by its name in the catalogue of the application, or by itself.

    Args:
        branch: a position in the application's topology.
        table: the table, or its name.

    Raises:
        ArgumentTypeError: if it is neither.
        InvalidOperationError: if there is no catalogue, or the table is a materialized view of another consumer group.
        TableNotFoundError: if the catalogue has no such table.
    """
    # Most applications have no tables, and do not wait for pyarrow.
    from streamrt.tables import Table
    from streamrt.tables.descriptions.info import require_writable

    if isinstance(table, Table):
        found = table
    elif not isinstance(table, str):
        raise ArgumentTypeError(f"to_table() needs a Table or the name of one, got {type(table).__name__}")
    elif branch.tables is None:
        raise InvalidOperationError(
            f"this dataframe knows no catalogue, in which table {table!r} could be: pass a Table"
        )
    else:
        found = branch.tables(table)
    require_writable(found.info, branch.topic_manager.consumer_group)
    return found


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


def require_requests_topic(method: str, table: Table, columns: tuple[str, ...] | None = None) -> TableTopic:
    """Return the topic with the requests of a maintained table.

    Args:
        method: the call, for errors.
        table: the table.
        columns: names of the columns that rows give, which are written; None for all.

    Raises:
        InvalidOperationError: if the table is a direct one.
    """
    if table.info.maintenance is None:
        raise InvalidOperationError(
            f"{method}() needs a maintained table, and rows of {table.name} are written directly: create it with "
            "maintained=True, or with merge=, deletes=, ttl= or changelog="
        )
    from streamrt.tables.descriptions.requests import make_requests_topic

    return make_requests_topic(table.info, table.home, columns)


def choose_output_topic(table: Table, columns: Sequence[str] | None = None, *, of_changes: bool = False) -> TableTopic:
    """Return the topic to which an application writes rows of a table: its own, or that of its requests.

    Args:
        table: a table with a topic of Kafka.
        columns: names of the columns that rows give; None for all.
        of_changes: whether rows are those of a table that changes.

    Raises:
        InvalidOperationError: if the table cannot take them.
        ArgumentValueError: if it takes no columns.
        SchemaError: if requests with these columns could not count.
    """
    rules = table.info.maintenance
    if rules is None:
        if columns is not None:
            raise ArgumentValueError(
                f"to_table(columns=...) needs sequence_by, or a maintained table: rows of {table.name} are written whole; "
                "create it with maintained=True"
            )
        return table.topic
    if of_changes and isinstance(rules.merge, Aggregate):
        raise InvalidOperationError(
            f"to_table() of a table cannot write to {table.name}, which adds up what it gets: each change of a row would "
            "count again; write a stream of what is to be added"
        )
    if of_changes and rules.deletes == "refuse":
        raise InvalidOperationError(
            f"to_table() of a table deletes rows, and {table.name} refuses deletes: to_stream() and a filter of what is not "
            "None give a stream of its rows, whose to_table() deletes none"
        )
    return require_requests_topic(
        "to_table", table, None if columns is None else _choose_columns(table, columns, rules)
    )


def _choose_columns(table: Table, columns: Sequence[str], rules: Maintenance) -> tuple[str, ...]:
    from streamrt.tables.rows.request_encoder import choose_columns

    given = column_list("to_table(columns=...)", [columns] if isinstance(columns, str) else columns)
    names = tuple(dict.fromkeys((*table.info.key, *given)))
    return choose_columns("to_table(columns=...)", table.name, table.schema, rules, names).names
