"""`GroupedTable`: the rows of a table by group, which `StreamingTable.group_by` makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

from streamrt.dataframe.branch import Branch
from streamrt.dataframe.grouping import Nulls, add_null_group, make_grouping
from streamrt.dataframe.ranking import make_ranking
from streamrt.dataframe.table_over import Distance, TableOver, make_table_over
from streamrt.errors import ArgumentTypeError
from streamrt.operators.functions import require_name
from streamrt.operators.group_by import ColumnKey, ColumnsKey, NullGroup
from streamrt.operators.ranking import Ranking, RankMethod
from streamrt.relations import ExactDeserializer, ExactSerializer, GroupAggregate, GroupKey, Regroup, TopRows
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.windows.aggregation import Aggregation

__all__ = ["GroupedTable", "add_aggregate", "add_top", "columns_of", "regroup"]

T = TypeVar("T")
# A table.


class GroupedTable(Generic[T]):
    """The rows of a table by group. Next, say what to compute, by `agg()`."""

    def __init__(
        self, branch: Branch, columns: tuple[str, ...], make_table: Callable[[Branch, tuple[str, ...]], T]
    ) -> None:
        self._branch = branch
        self._columns = columns
        self._make_table = make_table

    def agg(self, name: str | None = None, /, **aggregations: Any) -> T:
        """Aggregate the present rows of each group: a table with one row for each group.

        A row that changes is taken out of the aggregates and added again; one that gets another group leaves the former one.
        A group without rows has no row in the result. Sums and means are exact; those of floats are rounded once. The
        values of `Min`, `Max`, `MinBy`, `MaxBy`, `AnyValue`, `CountDistinct` and `CollectSet` are kept in the state, with how
        often they occur; so are those of `Collect` and other collectors, which get them in their own order, all for each
        change of the group.

        Args:
            name: part of the name of the store; required for a second `agg` of the same groups.
            **aggregations: the aggregators by column, such as `total=Sum("amount")`.

        Returns:
            The table. The first columns of its rows are those of the group.

        Raises:
            InvalidOperationError: if there is no aggregation, something else is given, or an aggregator depends on the order
                of rows or has no `retract`; or if there is another `agg` with the same store.

        Example:
            ```python
            customers = app.table("shop.customers")
            customers.group_by("country").agg(customers=Count(), oldest=Min("born")).to_table("shop.countries")
            ```
        """
        return self._make_table(
            add_aggregate(self._branch, name, aggregations, self._columns, retracts=True), self._columns
        )

    def top(
        self,
        n: int,
        by: str | list[str],
        *,
        descending: bool | list[bool] = True,
        method: RankMethod = "row_number",
        rank: str = "rank",
        name: str | None = None,
    ) -> T:
        """Keep the first n of the present rows of each group in the order of columns: a table with a row for each rank.

        As `StreamingDataFrame.top`, for rows that change: a row that is deleted, or gets another place, makes room for the
        next one. So the state holds all rows of a group, in their order; a change reads those that have a rank. The order of
        rows with equal values depends on the rows only.

        Args:
            n: number of rows of each group, or highest rank.
            by: the column by which rows are ordered, or a list of columns, the first one first.
            descending: whether the highest values come first; for several columns, one for all or a list.
            method: how rows with equal values are ranked; see `StreamingDataFrame.top`.
            rank: name of the column of the rank.
            name: part of the name of the store; required for a second `top` of the same groups.

        Returns:
            The table.

        Raises:
            InvalidOperationError: if an argument cannot be used, or there is another `top` with the same store.

        Example:
            ```python
            app.table("shop.customers").group_by("country").top(3, by="revenue").to_table("shop.best_customers")
            ```
        """
        ranking = make_ranking(n, by, descending, method, rank)
        branch = add_top(self._branch, ranking, name, len(self._columns), retracts=True)
        return self._make_table(branch, (*self._columns, *ranking.rank_columns))

    def over(
        self,
        order_by: str | list[str] | None = None,
        *,
        descending: bool | list[bool] = False,
        rows: int | tuple[int | None, int | None] | None = None,
        range: int | float | timedelta | tuple[Distance, Distance] | None = None,  # noqa: A002
        name: str | None = None,
    ) -> TableOver[T]:
        """Add functions of the rows around it in its group to each row: SQL's OVER (PARTITION BY ... ORDER BY ...).

        As `StreamingDataFrame.over`, for rows that change: each change of a row also changes the results of other rows of
        its group. The state holds all rows of a group, in their order, for ever. A change reads those on which results may
        depend: with `rows`, so many around the row; otherwise all of its group.

        The order of rows with equal values depends on the rows only, where SQL leaves it open.

        Args:
            order_by: the column by which rows are ordered, or a list of columns, the first one first. None comes last.
                Without it, results are about all rows of the group.
            descending: whether the highest values come first; for several columns, one for all or a list.
            rows: the frame: the last so many rows, with the row itself; or a pair of the first and the last row, such as
                `(-1, 1)` for the row before and the one behind. None in it stands for all.
            range: the frame: rows whose value is at most so much before that of the row, as a number or a timedelta; or a
                pair such as `(timedelta(hours=-1), None)`. 0 in it stands for rows with equal values. By default,
                `(None, 0)`.
            name: part of the name of the store; required for a second `over` of the same groups.

        Returns:
            What is computed: next, say it, by `agg`.

        Raises:
            InvalidOperationError: if an argument cannot be used.

        Example:
            ```python
            closed = app.table("market.closed")
            closed.group_by("seller").over("expires", rows=10).agg(average=Mean("price"), before=Lag("price"))
            ```
        """
        return make_table_over(
            self._branch, lambda branch: self._make_table(branch, ()), order_by, descending, rows, range, name
        )


def regroup(
    branch: Branch, key: str | Sequence[str] | Callable[[Any], Any], name: str | None, nulls: Nulls
) -> tuple[Branch, tuple[str, ...]]:
    """Bring the changes of a group together, and return the position below, and the columns of the group.

    Args:
        branch: position of the changes of a table.
        key: column, columns, or function of a row.
        name: name of the grouping; None for that of the columns.
        nulls: what becomes of rows whose group is null.
    """
    make_key, name = make_grouping("group_by", key, name)
    make_key = GroupKey(add_null_group("group_by", make_key, nulls))
    topic = branch.exact_topic(
        name, key_deserializer=ExactDeserializer(), key_serializer=ExactSerializer(), short=branch.bag
    )
    return branch.exchange(Regroup(topic, make_key, name), name), columns_of(make_key, name)


def columns_of(key: Callable[[Any], Any], group: str) -> tuple[str, ...]:
    """Return the columns of the key of a group; that of a function has the name of the grouping."""
    if isinstance(key, GroupKey):
        key = key.key
    if isinstance(key, NullGroup):
        key = key.key
    if isinstance(key, ColumnsKey):
        return key.columns
    return (key.column if isinstance(key, ColumnKey) else group,)


def add_aggregate(
    branch: Branch, name: str | None, aggregations: Mapping[str, Any], columns: tuple[str, ...], *, retracts: bool
) -> Branch:
    """Add an aggregate of all values of a key, and return the position of its changes.

    Args:
        branch: position of the values, or with `retracts` of the changes.
        name: part of the name of the store.
        aggregations: the aggregators by column.
        columns: the columns of the key.
        retracts: whether rows may be taken back.
    """
    aggregation = Aggregation.named(**aggregations)
    if aggregation.collectors and not retracts:
        collects = ", ".join(collected for collected, _ in aggregation.collectors)
        raise ArgumentTypeError(
            f"agg({collects}=...) would keep every value of a key for ever: collect them in a window, or use an aggregator"
        )
    require_name("agg", name)
    store = branch.own_store("agg" if name is None else f"agg_{name}", "agg()", "agg('...', total=...)")
    operator = GroupAggregate(aggregation, branch.store(store, TimedTransaction), columns, retracts)
    operator.plan()
    return branch.add(operator).of_tables()


def add_top(branch: Branch, ranking: Ranking, name: str | None, columns: int, *, retracts: bool) -> Branch:
    """Add the first rows of each key, and return the position of their changes.

    Args:
        branch: position of the values, or with `retracts` of the changes.
        ranking: which rows are the first ones.
        name: part of the name of the store.
        columns: number of columns of the key.
        retracts: whether rows may be taken back.

    Raises:
        InvalidOperationError: if the frame has another `top` with the same store.
    """
    require_name("top", name)
    own = "top" if name is None else f"top_{name}"
    store = branch.own_store(own, "top()", "top(..., name='...')")
    operator = TopRows(branch.store(store, TimedTransaction), ranking, columns, retracts)
    return branch.add(operator).of_tables().rekeyed(own)
