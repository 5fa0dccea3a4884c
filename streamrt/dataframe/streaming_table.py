"""`StreamingTable`: rows by key that change, in an application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, get_args, overload

from typing_extensions import Self

from streamrt.arguments import checked_choice
from streamrt.connectors import BaseSink
from streamrt.dataframe.branch import Branch, Frame
from streamrt.dataframe.foreign_keys import KeyOfOther, find_equal_columns, join_by_foreign_key
from streamrt.dataframe.grouped_table import GroupedTable, regroup
from streamrt.dataframe.grouping import Nulls, column_list
from streamrt.dataframe.row_joins import RowParts, give_key, join_rows
from streamrt.dataframe.row_sets import combine_rows, drop_equal_rows, number_rows, unite_rows
from streamrt.dataframe.series import StreamingSeries
from streamrt.dataframe.tables import choose_output_topic, find_table, make_key_function
from streamrt.dataframe.versions import Versions
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError, argument_error
from streamrt.joins import TableLookup
from streamrt.joins.lookups.table import USE_TABLE
from streamrt.joins.merging import OnMerge, merge_of
from streamrt.operators import Project, SinkOperator
from streamrt.operators.expression import Column
from streamrt.operators.expression import Literal as Constant
from streamrt.operators.functions import require_name, require_parameters
from streamrt.relations import (
    Condense,
    Condition,
    JoinHow,
    MapRows,
    Materialize,
    MergeWithKey,
    RowSets,
    StreamChanges,
    TableHow,
    TableJoin,
    ToStream,
    UpsertChanges,
)
from streamrt.topics import Topic
from streamrt.topology import Operator

if TYPE_CHECKING:
    from streamrt.tables import Table

__all__ = ["StreamingTable", "keep_versions"]

F = TypeVar("F", bound=Frame)


class StreamingTable(Generic[F]):
    """Rows by key, each of which changes with the records that arrive.

    `Application.table()`, `StreamingDataFrame.agg()` and `StreamingDataFrame.as_table()` make one. Operations on it are
    relational: their result, at any time, is that of the same operation on the present rows. A row that changes, or no longer
    fulfils a condition, changes or disappears in the result.

    Rows are usually dicts. Functions get a row, never None, and must give the same result for the same row, because they are
    also called with the former one. `filter`, `apply`, `table[condition]`, `table[["a", "b"]]` and `join` return a new table:
    assign it. `table["x"] = ...` and `to_table` change the table in place.

    Example:
        ```python
        customers = app.table("shop.customers")
        totals = app.dataframe("shop.orders").group_by("customer").agg(total=Sum("amount"))
        good = totals[totals["total"] > 100].join(customers, on_merge="keep-left")
        good.to_table("shop.good_customers")
        ```
    """

    def __init__(
        self, stream: F, branch: Branch, key_columns: tuple[str, ...] = (), versions: Versions | None = None
    ) -> None:
        self._stream = stream
        self._branch = branch
        self._key_columns = key_columns
        # None if rows are results, of joins or aggregates, and not those of records.
        self._versions = versions

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics that this table is computed from within its sub-topology, sorted by name."""
        return self._branch.topics

    # -- Rows --------------------------------------------------------------------------------------------------------

    def filter(self, func: Callable[[Any], Any]) -> Self:
        """Keep the rows for which a function returns a true value.

        Args:
            func: function of a row.

        Returns:
            A new table.

        Raises:
            InvalidOperationError: if `func` is not callable with one argument.

        Example:
            ```python
            adults = customers.filter(lambda row: row["age"] >= 18)
            ```
        """
        require_parameters("filter()", func, metadata=False, stateful=False)
        return self._map(MapRows("filter", func))

    def apply(self, func: Callable[[Any], Any]) -> Self:
        """Replace each row by the result of a function. The key stays; None means that there is no row.

        Args:
            func: function of a row.

        Returns:
            A new table.

        Raises:
            InvalidOperationError: if `func` is not callable with one argument.

        Example:
            ```python
            names = customers.apply(lambda row: {"id": row["id"], "name": row["name"].title()})
            ```
        """
        require_parameters("apply()", func, metadata=False, stateful=False)
        return self._map(MapRows("apply", func))

    @overload
    def __getitem__(self, item: str) -> StreamingSeries: ...

    @overload
    def __getitem__(self, item: list[str] | StreamingSeries) -> Self: ...

    def __getitem__(self, item: str | list[str] | StreamingSeries) -> StreamingSeries | Self:
        if isinstance(item, str):
            return StreamingSeries(Column(item), self)
        if isinstance(item, StreamingSeries):
            self._require_own(item)
            return self._map(MapRows("filter", item.expression))
        if isinstance(item, list) and item and all(isinstance(name, str) for name in item):
            return self._map(MapRows("apply", Project(tuple(item))))
        raise argument_error(
            f"a table is indexed by a column name, a list of column names or a condition on its columns, got {item!r}",
            of_type=item == [],
        )

    def __setitem__(self, column: str, item: Any) -> None:
        if not isinstance(column, str):
            raise ArgumentTypeError(f"a column is named by a string, got {type(column).__name__}")
        if isinstance(item, StreamingSeries):
            self._require_own(item)
        expression = item.expression if isinstance(item, StreamingSeries) else Constant(item)
        changed = self._map(MapRows("assign", expression, column))
        self._branch, self._versions = changed._branch, changed._versions

    # -- Other tables ------------------------------------------------------------------------------------------------

    def join(
        self,
        other: StreamingTable[F],
        how: JoinHow = "inner",
        on_merge: OnMerge = "raise",
        name: str | None = None,
        on: KeyOfOther | tuple[RowParts, RowParts] | None = None,
        *,
        condition: Condition | None = None,
        null_safe: bool = False,
    ) -> Self:
        """Join the rows of another table: those of the same key, the one that each row names, or those with equal columns.

        Without `on`, topics of both sides must have equal numbers of partitions, and the same keys. The store keeps the rows
        of both sides.

        With `on` as a foreign key, tables may have any keys and numbers of partitions. The result has the keys of this table.
        A row whose foreign key is null, or has a null in it, matches nothing. Rows pass two internal topics, so for a moment
        after a row has got another foreign key, the result has the former row. Each change of a row of the other table
        changes the joined rows of all that name it.

        With `on` as a pair, such as `("seller", "id")`, each row is joined with all rows of the other table that have
        equal values in these columns. The rows of the result have no key, and may be equal. They can be filtered, grouped,
        and joined by columns again; `keyed_by()` gives them a key, and `to_table()` that of its table. Both sides pass
        internal topics, `repartition__<consumer group>--<topic>--<name>.left` and `.right`, which have the number of
        partitions of this table, or of the other one if its topic is declared with more; inputs of one partition need none.
        The store keeps the rows of both sides. A change has the time of its cause.

        Args:
            other: the other table, of the same application.
            how: keys of the result: "inner" those that both tables have, "left" and "right" those of one side, "outer" all.
                With a foreign key, "inner" or "left". With a pair, which rows have no need of a partner; and also "semi", the
                rows of this table that have a partner, and "anti", those that have none.
            on_merge: rule that merges two rows. "raise" fails if both have a column that is not of their key, or of the key
                that `on` names; "keep-left" and "keep-right" choose one side. Or a function of left and right row; a missing
                row is None, and a result of None means that there is no row.
            name: name of the store, and of the internal topics; required if the same tables are joined more than once, or if
                `on` has a function.
            on: the foreign key: a column of this table's rows with the key of a row of the other one, a list of columns, or a
                function of a row. Or a pair, of what must be equal in rows of this table and of the other one: columns,
                functions of a row, or lists of them. Values are equal as in Python, and NaN equals itself. Empty lists pair
                each row with each one, in one partition. None joins by key.
            condition: with a pair, a function of the left and the right row, which says whether they are partners. It must
                not change them, and give the same result for the same rows.
            null_safe: with a pair, whether null equals null; otherwise a row with a null in its columns has no partner.

        Returns:
            A new table.

        Raises:
            InvalidOperationError: if an argument cannot be used, or the same topics are joined again without a name.

        Example:
            ```python
            customers = app.table("shop.customers")
            customers.join(app.table("shop.balances"), how="left").to_table("shop.accounts")
            orders = app.table("shop.orders")
            orders.join(customers, on="customer_id", on_merge="keep-left").to_table("shop.orders_with_names")
            orders.join(customers, "anti", on=("city", "city")).group_by("city").agg(orders=Count())
            ```
        """
        self._require_table("join", other)
        require_name("join", name)
        if isinstance(on, tuple):
            checked_choice("join(how=...)", how, get_args(JoinHow))
            joined = join_rows(self._branch, other._branch, on, how, on_merge, name, condition, null_safe=null_safe)
            return type(self)(self._stream, joined)
        if condition is not None or null_safe:
            raise ArgumentValueError(
                f"join({'condition' if condition is not None else 'null_safe'}=...) needs on=(left, right), a pair of "
                "columns: other joins are by key"
            )
        if how == "semi" or how == "anti":
            raise ArgumentValueError(f"join(how={how!r}) needs on=(left, right), a pair of columns")
        checked_choice("join(how=...)", how, get_args(TableHow))
        equal = frozenset[str]() if on is None else find_equal_columns(on, other._key_columns)
        merge = merge_of("join", on_merge, equal)
        if on_merge == "raise" and on is None:
            shared = tuple(column for column in self._key_columns if column in other._key_columns)
            merge = MergeWithKey(merge, shared)
        if on is not None:
            if how not in ("inner", "left"):
                raise ArgumentValueError(
                    f"join(how={how!r}) with on=... would have rows without a key of this table: choose 'inner' or 'left', "
                    "or join the other table with this one"
                )
            return self._with(join_by_foreign_key(self._branch, other._branch, on, how, merge, name))
        branch = self._branch.meeting((other._branch,))
        store = branch.own_store("join" if name is None else f"join_{name}", "join()", "join(..., name='...')")
        return self._with(self._branch.merge((other._branch,), TableJoin(how, merge, branch.store(store))))

    def group_by(
        self, key: str | Sequence[str] | Callable[[Any], Any], name: str | None = None, *, nulls: Nulls = "group"
    ) -> GroupedTable[StreamingTable[F]]:
        """Group the rows, to aggregate them by `agg()`.

        Changes of rows go through an internal topic, `repartition__<consumer group>--<topic>--<name>`, to the partition of
        their group. An input of one partition needs no internal topic.

        Args:
            key: name of the column with the group; a list of names; or a function of a row, which must give the same result
                for the same row.
            name: name of the grouping; by default that of the columns. Required for a function.
            nulls: what becomes of rows whose group is None. "group": they form one, as in SQL; its key is `[None]`. "skip":
                they are in no group. Groups of several columns are there also if some are None.

        Returns:
            The groups, whose `agg()` returns a table.

        Raises:
            InvalidOperationError: if the key is neither a column, columns nor a function, a function has no name, or this
                table already has a `group_by` of the same name.

        Example:
            ```python
            orders = app.table("shop.orders")
            orders.group_by("customer").agg(orders=Count(), total=Sum("amount")).to_table("shop.totals")
            ```
        """
        return GroupedTable(
            *regroup(self._branch, key, name, nulls),
            lambda branch, columns: StreamingTable(self._stream, branch, columns),
        )

    def condense(self) -> Self:
        """Pass on one change of a row where several follow each other: from its former row to the last one.

        Changes wait in memory until the task is committed, is ticked, or gives way to another one; at least one for each poll
        of records, so the delay is short where there is little to do. Under load, what is below has less to do, and sees
        fewer of the rows in between. An application that skips records with errors passes on each change. Views of SQL do
        this behind each aggregate.

        Returns:
            A new table, with the same rows.

        Raises:
            InvalidOperationError: if rows have no key.

        Example:
            ```python
            totals = orders.group_by("customer").agg(total=Sum("amount")).condense()
            totals.group_by("country").agg(highest=Max("total")).to_table("shop.highest")
            ```
        """
        self._branch.require_keys("condense()")
        return self._with(self._branch.add(Condense()))

    def keyed_by(self, columns: str | Sequence[str], name: str | None = None) -> Self:
        """Give rows the values of columns as their key, which each row must have for itself.

        Rows of a join by columns have no key: with one, they can be joined by key, and their changes are in order. Changes
        go through an internal topic, `repartition__<consumer group>--<topic>--<name>`, to the partition of their key. An
        input of one partition needs none. While changes of a key are on their way from several partitions, it may have
        several rows; then the one that was added last counts. The store keeps all rows.

        Args:
            columns: the column, or a list of columns.
            name: part of the name of the topic; by default that of the columns.

        Returns:
            A new table.

        Raises:
            InvalidOperationError: if there is no column, or this table already has a key or groups of this name.

        Example:
            ```python
            joined = orders.join(payments, on=("order_id", "order"))
            joined.keyed_by(["order_id", "payment_id"])
            ```
        """
        chosen = column_list("keyed_by()", (columns,) if isinstance(columns, str) else columns)
        require_name("keyed_by", name)
        return type(self)(self._stream, give_key(self._branch, chosen, name), chosen)

    def numbered(self, column: str = "row_key", name: str | None = None) -> Self:
        """Give each row a key of its own, also if rows are equal: a digest of the row, and its number among equal ones.

        It is for rows that have no key, such as those of a join by columns, where a table needs one. Of equal rows, the one
        with the highest number goes when any of them is taken back. Changes go through an internal topic, as with
        `keyed_by()`.

        Args:
            column: the column that gets the key, a text.
            name: part of the name of the topic; by default that of the column.

        Returns:
            A new table, whose rows are dicts with a further column.

        Raises:
            InvalidOperationError: if this table already has a key or groups of this name.

        Example:
            ```python
            pairs = orders.join(payments, on=("customer", "payer"))
            pairs.numbered("pair").to_table("shop.pairs")
            ```
        """
        (column,) = column_list("numbered()", (column,))
        require_name("numbered", name)
        return type(self)(self._stream, number_rows(self._branch, column, name), (column,))

    def distinct(self, name: str | None = None) -> Self:
        """Keep one of equal rows, as SQL's SELECT DISTINCT. Values are equal as in Python; null equals null, and NaN itself.

        Changes go through an internal topic to the partition of their row. The store has a count and the row for each
        different row.

        Args:
            name: part of the name of the topic; required for a second `distinct` of this table.

        Returns:
            A new table, whose rows have no key.

        Raises:
            InvalidOperationError: if this table already has a `distinct` of this name.

        Example:
            ```python
            orders[["customer", "city"]].distinct().group_by("city").agg(customers=Count())
            ```
        """
        require_name("distinct", name)
        return type(self)(self._stream, drop_equal_rows(self._branch, name))

    def union_all(self, *others: StreamingTable[F], name: str | None = None) -> Self:
        """Return the rows of this table and of others, as SQL's UNION ALL: rows that are equal are there more than once.

        Rows of the others go through internal topics, which have the number of partitions of this table. Nothing is kept.

        Args:
            *others: the other tables, of the same application.
            name: part of the names of the topics; required for a second `union_all` with one of the others.

        Returns:
            A new table, whose rows have no key.

        Raises:
            InvalidOperationError: if there is no other table, or one was united before without another name.

        Example:
            ```python
            people = customers[["name"]].union_all(suppliers[["name"]]).distinct()
            ```
        """
        require_name("union_all", name)
        if not others:
            raise ArgumentValueError("union_all() needs at least one other table")
        branches = [self._require_table("union_all", other) for other in others]
        return type(self)(self._stream, unite_rows(self._branch, branches, name))

    def intersect(self, other: StreamingTable[F], *, all: bool = False, name: str | None = None) -> Self:  # noqa: A002
        """Keep the rows that another table has as well, as SQL's INTERSECT. Rows are equal as in `distinct`.

        Rows of both tables go through internal topics. The store has two counts and the row for each different row.

        Args:
            other: the other table, of the same application.
            all: whether equal rows are kept as often as both tables have them, and not once: INTERSECT ALL.
            name: part of the names of the topics; required for a second `intersect` of the same tables.

        Returns:
            A new table, whose rows have no key.

        Raises:
            InvalidOperationError: if the other is not a table, or both have an `intersect` of this name.

        Example:
            ```python
            both = customers[["name"]].intersect(suppliers[["name"]])
            ```
        """
        require_name("intersect", name)
        branch = self._require_table("intersect", other)
        sets: RowSets = "intersect all" if all else "intersect"
        return type(self)(self._stream, combine_rows(self._branch, branch, sets, name))

    def subtract(self, other: StreamingTable[F], *, all: bool = False, name: str | None = None) -> Self:  # noqa: A002
        """Keep the rows that another table does not have, as SQL's EXCEPT. Rows are equal as in `distinct`.

        Rows of both tables go through internal topics. The store has two counts and the row for each different row.

        Args:
            other: the other table, of the same application.
            all: whether each row of the other table takes away one equal row, and not all of them: EXCEPT ALL.
            name: part of the names of the topics; required for a second `subtract` of the same tables.

        Returns:
            A new table, whose rows have no key.

        Raises:
            InvalidOperationError: if the other is not a table, or both have a `subtract` of this name.

        Example:
            ```python
            quiet = customers[["name"]].subtract(orders[["name"]])
            ```
        """
        require_name("subtract", name)
        branch = self._require_table("subtract", other)
        sets: RowSets = "subtract all" if all else "subtract"
        return type(self)(self._stream, combine_rows(self._branch, branch, sets, name))

    # -- Output ------------------------------------------------------------------------------------------------------

    def to_stream(self, changes: StreamChanges = "new") -> F:
        """Return the changes of rows as a stream.

        Args:
            changes: what a value is. "new": the new row, or None if it is deleted. "both": a dict of `op` ("+I", "+U" or
                "-D"), `before` and `after`. "rows": one record for each row that is taken back or added, with "+I", "-U",
                "+U" or "-D" in the column `_change_type`.

        Returns:
            A new dataframe. Records of rows without a key have none.

        Raises:
            InvalidOperationError: with "new", if rows have no key, as those of a join by columns.

        Example:
            ```python
            totals.to_stream().to_topic(app.topic("totals"))
            ```
        """
        checked_choice("to_stream(changes=...)", changes, ("new", "both", "rows"))
        if changes == "new" and self._branch.bag:
            raise InvalidOperationError(
                "to_stream() would not say which rows are deleted, as the rows of this table have no key: call keyed_by() "
                "before, or to_stream('rows'), which names them"
            )
        return self._stream._with(self._branch.add(ToStream(changes)).of_streams())

    def to_table(self, table: Table | str) -> Self:
        """Keep a table with a primary key equal to this one: write each change, as an upsert or a deletion.

        Rows are checked against the table's schema, and their primary key is taken from their columns. Rows of different keys
        need different primary keys. Delivery has the guarantee of the application. Rows without a key, as those of a join by
        columns, get it from the primary key, as by `keyed_by()`.

        Args:
            table: the table, or its name in the catalogue of the application.

        Returns:
            This table; no assignment is needed.

        Raises:
            InvalidOperationError: if the table has no primary key, or its rules do not take rows that change or are deleted.
            SchemaError: if the table has no schema.
            TableNotFoundError: if there is no table of this name.

        Example:
            ```python
            totals.to_table("shop.totals")
            ```
        """
        found = find_table(self._branch, table)
        if found.info.kind != "primary-key":
            raise InvalidOperationError(
                f"to_table() of a table needs a table with a primary key, and {found.name} is "
                f"{'an external one' if found.info.kind == 'external' else 'a log'}: "
                "to_stream(changes='rows').to_table() appends the changes to a log, and sink() writes to other systems"
            )
        topic = self._branch.topic_manager.register(choose_output_topic(found, of_changes=True))
        if self._branch.bag:
            keyed = self.keyed_by(found.info.key, name=found.name)
            keyed._in_place(UpsertChanges(topic, make_key_function(found, None), None, found.name))
            return self
        return self._in_place(UpsertChanges(topic, make_key_function(found, None), None, found.name))

    def sink(self, sink: BaseSink) -> None:
        """Write each change to a system outside Kafka, as rows with their kind in the column `_change_type`.

        An update is two rows, "-U" with the former one and "+U" with the new one. For systems that upsert by key, use
        `to_stream().sink(...)`, whose values are the new rows, and None for a deletion. A sink ends a branch.

        Args:
            sink: the sink.

        Raises:
            InvalidOperationError: if `sink` is not a `BaseSink`.

        Example:
            ```python
            totals.sink(CSVSink("totals.csv"))
            ```
        """
        if not isinstance(sink, BaseSink):
            raise ArgumentTypeError(
                f"sink() needs an object of a class derived from BaseSink, got {type(sink).__name__}"
            )
        self._branch.add(ToStream("rows")).add(SinkOperator(sink))

    def copy(self) -> Self:
        """Return another table with the same rows, which changes in place of this one do not affect."""
        return self._with(self._branch, self._versions)

    # -- Adding operators --------------------------------------------------------------------------------------------

    def _with(self, branch: Branch, versions: Versions | None = None) -> Self:
        return type(self)(self._stream, branch, self._key_columns, versions)

    def _map(self, step: MapRows) -> Self:
        versions = self._versions
        return self._with(self._branch.add(step), None if versions is None else versions.mapped(step))

    def _rows_at_times(self) -> F:
        """Return the stream in which each record is a row from its timestamp on."""
        if self._versions is None:
            return self.to_stream()
        # Nothing needs the present rows then; using this table otherwise brings them back.
        builder, above = self._branch.builder, self._versions.branch.node
        path = builder.path(above, self._branch.node) or ()
        builder.remove(node for node in path if isinstance(node.operator, Materialize | MapRows))
        return self._stream._with(self._versions.add_rows())

    def _in_place(self, operator: Operator) -> Self:
        self._branch = self._branch.add(operator)
        return self

    def _require_table(self, method: str, other: Any) -> Branch:
        """Return the position of another table of the application."""
        if not isinstance(other, StreamingTable):
            raise ArgumentTypeError(_say_what_is_no_table(method, other))
        branch: Branch = other._branch
        if branch.builder is not self._branch.builder:
            raise ArgumentValueError(f"{method}() got a table of another application")
        return branch

    def _require_own(self, series: StreamingSeries) -> None:
        if series.frame is not self:
            raise ArgumentValueError(
                "a table is filtered and changed by its own columns only: take the series from the current table, after the "
                "last assignment to its variable"
            )

    def __bool__(self) -> NoReturn:
        raise InvalidOperationError(
            "a table has no truth value while it is being built: combine conditions by & | ~ instead of 'and', 'or', 'not'"
        )

    def __iter__(self) -> NoReturn:
        raise InvalidOperationError("a table cannot be iterated over: its rows arrive when the application runs")

    def __repr__(self) -> str:
        names = ", ".join(topic.name for topic in self.topics)
        return f"{type(self).__name__}({names}, at {self._branch.node.label})"


def _say_what_is_no_table(method: str, other: object) -> str:
    if isinstance(other, TableLookup):
        return f"{method}() got a lookup: {USE_TABLE}"
    return f"{method}() needs another table, got {type(other).__name__}: as_table() makes one of a stream"


def keep_versions(table: StreamingTable[F], keep_ms: int | None) -> StreamingTable[F]:
    """Return another table with the same rows, of which joins as of a time keep former ones; for other packages.

    Args:
        table: the table.
        keep_ms: how long, in milliseconds; None if each join says it.
    """
    kept = table.copy()
    if kept._versions is not None:
        kept._versions = replace(kept._versions, keep_ms=keep_ms)
    return kept
