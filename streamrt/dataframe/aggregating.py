"""Aggregates without windows, and streams as tables.

`agg`, `agg_all`, `as_table` and `to_rows` are methods of `StreamingDataFrame`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from streamrt.dataframe.branch import Branch, Frame
from streamrt.dataframe.grouped_table import add_aggregate, columns_of
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.dataframe.versions import Versions, parse_keep
from streamrt.operators.functions import require_name
from streamrt.operators.group_by import Repartition
from streamrt.relations import AddRows, Materialize
from streamrt.relations.partial_aggregate import MergeParts, PartialAggregate, WholeKey, make_table_plan
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topics.durations import milliseconds
from streamrt.windows.aggregation import Aggregation

__all__ = ["agg", "agg_all", "as_table", "to_rows"]

_EVERY: Final = timedelta(milliseconds=100)

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


def agg_all(  # noqa: D417 - a method
    self: F, name: str | None = None, /, *, every: int | timedelta = _EVERY, **aggregations: Any
) -> StreamingTable[F]:
    """Aggregate all records of the stream, whatever their keys are: a table with one row.

    Each partition aggregates its own records, and sends what was added to one partition, which merges the parts: so the work
    is shared by all tasks, and few records pass the internal topic. The row is there once the first part has come.

    Args:
        name: part of the names of the stores and of the internal topic; required for a second `agg_all` of the same frame.
        every: how long a partition collects before it sends, in milliseconds or as a timedelta, by the wall clock.
        **aggregations: the aggregators by column, such as `total=Sum("amount")`.

    Returns:
        The table. The key of its row is "all".

    Raises:
        InvalidOperationError: if there is no aggregation, or one cannot be merged from parts: `First` and `Last`, `Collect`,
            `CollectSet`, `CountDistinct`, and classes of yours without `merge`; or if this frame has another `agg_all` of
            this name.

    Example:
        ```python
        orders.agg_all(total=Sum("amount"), orders=Count()).to_stream().to_topic(app.topic("totals"))
        ```
    """
    aggregation = Aggregation.named(**aggregations)
    make_table_plan(aggregation)
    require_name("agg_all", name)
    every_ms = milliseconds("agg_all(every=...)", every)
    group = name or "all"
    # The records of a key need not be together.
    branch = replace(self._branch, keyed=True)
    store = branch.own_store(f"part_{group}", "agg_all()", "agg_all('...', total=...)")
    branch = branch.add(PartialAggregate(aggregation, branch.store(store, TimedTransaction), every_ms))
    topic = branch.exact_topic(group, key_deserializer="str", key_serializer="str")
    branch = branch.exchange(Repartition(topic, WholeKey(), group), group)
    store = branch.own_store("agg_all", "agg_all()", "agg_all('...', total=...)")
    return StreamingTable(self, branch.add(MergeParts(aggregation, branch.store(store, TimedTransaction))).of_tables())


def as_table(  # noqa: D417 - a method
    self: F, name: str | None = None, *, keep: int | timedelta | None = None
) -> StreamingTable[F]:
    """Take the last value of each key as its present row: a table.

    "Last" is the order in which records arrive in their partition; a value of None deletes the row. Use `group_by` before it
    if the rows are to have other keys than the records. The state keeps a row for each key until it is deleted.

    Args:
        name: part of the name of the store; required for a second `as_table` of the same frame.
        keep: how long `join_asof` keeps former rows, in milliseconds or as a timedelta: see `Application.table`.

    Returns:
        The table.

    Raises:
        InvalidOperationError: if this frame has another `as_table` with the same store, the records of a key are in
            several partitions, or `keep` cannot be used.

    Example:
        ```python
        places = app.dataframe(app.topic("positions")).group_by("vehicle").as_table()
        places.join(drivers, how="left").to_table("fleet.present")
        ```
    """
    require_name("as_table", name)
    branch, versions = self._branch, Versions(self._branch, parse_keep("as_table", keep))
    store = branch.own_store("table" if name is None else f"table_{name}", "as_table()", "as_table(name='...')")
    operator = Materialize(branch.store(store), name or branch.stream_id)
    return StreamingTable(self, branch.add(operator).of_tables(), key_columns(branch), versions)


def to_rows(self: F) -> StreamingTable[F]:
    """Take each value as a row of its own, which is added to a table and stays.

    The rows have no key, and may be equal. So such a table is joined by columns, `join(..., on=(left, right))`, with all
    records that ever come, while `as_table` has the last one of each key. Nothing is kept for the table itself. A value of
    None is left out.

    Returns:
        The table.

    Example:
        ```python
        orders = app.dataframe(app.topic("orders")).to_rows()
        orders.join(customers, on=("customer", "id")).group_by("country").agg(orders=Count())
        ```
    """
    return StreamingTable(self, self._branch.add(AddRows()).of_bags())


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
