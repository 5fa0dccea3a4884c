"""Aggregates without windows, and streams as tables. `agg` and `as_table` are methods of `StreamingDataFrame`."""

from __future__ import annotations

from typing import Any, TypeVar

from streamrt.dataframe.branch import Branch, Frame
from streamrt.dataframe.grouped_table import add_aggregate, columns_of
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.operators.functions import require_name
from streamrt.operators.group_by import Repartition
from streamrt.relations import Materialize
from streamrt.tables.descriptions.topics import TableTopic

__all__ = ["agg", "as_table"]

F = TypeVar("F", bound=Frame)


def agg(self: F, name: str | None = None, /, **aggregations: Any) -> StreamingTable[F]:  # noqa: D417 - a method
    """Aggregate all values of a key, without windows: a table with one row for each key.

    Call it after `group_by`, whose columns are the first columns of the rows. Without it, the records' keys are the keys of
    the table, and rows have the aggregations only. Each record that changes the aggregates of its key is a change below. The
    state keeps a row for each key, for ever. Records without a key are skipped.

    Args:
        name: part of the name of the store; required for a second `agg` of the same frame.
        **aggregations: the aggregators by column, such as `total=Sum("amount")`.

    Returns:
        The table.

    Raises:
        InvalidOperationError: if there is no aggregation, something else is given, or it collects all values; if this frame
            has another `agg` with the same store; or if the records of a key are in several partitions.

    Example:
        ```python
        totals = orders.group_by("customer").agg(total=Sum("amount"), orders=Count())
        totals[totals["total"] > 100].to_table("shop.good_customers")
        ```
    """
    columns = key_columns(self._branch)
    return StreamingTable(self, add_aggregate(self._branch, name, aggregations, columns, retracts=False), columns)


def as_table(self: F, name: str | None = None) -> StreamingTable[F]:  # noqa: D417 - a method
    """Take the last value of each key as its present row: a table.

    "Last" is the order in which records arrive in their partition; a value of None deletes the row. Use `group_by` before it
    if the rows are to have other keys than the records. The state keeps a row for each key until it is deleted.

    Args:
        name: part of the name of the store; required for a second `as_table` of the same frame.

    Returns:
        The table.

    Raises:
        InvalidOperationError: if this frame has another `as_table` with the same store, or the records of a key are in
            several partitions.

    Example:
        ```python
        places = app.dataframe(app.topic("positions")).group_by("vehicle").as_table()
        places.join(drivers, how="left").to_table("fleet.present")
        ```
    """
    require_name("as_table", name)
    branch = self._branch
    store = branch.own_store("table" if name is None else f"table_{name}", "as_table()", "as_table(name='...')")
    operator = Materialize(branch.store(store), name or branch.stream_id)
    return StreamingTable(self, branch.add(operator).of_tables(), key_columns(branch))


def key_columns(branch: Branch) -> tuple[str, ...]:
    """Return the names of the columns that the keys of records were made of: by the last `group_by`, or by their table."""
    if branch.key_columns is not None:
        return branch.key_columns
    if len(branch.topics) != 1:
        return ()
    (topic,) = branch.topics
    if isinstance(topic, TableTopic):
        return () if topic.row_key is None else topic.row_key.columns
    exchange = branch.builder.build().exchanges.get(topic.name)
    if exchange is None or not isinstance(exchange.operator, Repartition):
        return ()
    return columns_of(exchange.operator.key, exchange.operator.group)
