"""From a plan to operators of dataframes and tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from streamrt.dataframe import StreamingDataFrame
from streamrt.dataframe.aggregating import key_columns
from streamrt.dataframe.branch import Branch, branch_of
from streamrt.dataframe.clocks import stream_clock
from streamrt.dataframe.foreign_keys import exchange_topic
from streamrt.dataframe.over import add_time_over
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.dataframe.table_over import add_over
from streamrt.operators import Apply, Compute, Where
from streamrt.operators.columns import Project as KeepColumns
from streamrt.operators.group_by import ColumnKey, ColumnsKey, NullGroup, Repartition
from streamrt.operators.ranking import Ranking
from streamrt.relations import (
    Condense,
    ExactDeserializer,
    ExactSerializer,
    ExpandChanges,
    ForeignKey,
    GroupAggregate,
    GroupKey,
    MapRows,
    Regroup,
    SendByKey,
    TopRows,
)
from streamrt.relations.partial_aggregate import WholeKey
from streamrt.sql.binding.group_plans import Aggregate, Distinct, SessionAggregate, Top, WindowAggregate
from streamrt.sql.binding.join_plans import AsOfJoin, IntervalJoin, Join, SetOperation, Union
from streamrt.sql.binding.over_plans import OverStream, OverTable
from streamrt.sql.binding.row_plans import Expand, Filter, Plan, Project, Scan, Values, digest_plan, walk_plan
from streamrt.sql.expressions.logic import Condition
from streamrt.sql.expressions.nodes import ColumnReference, Constant
from streamrt.sql.lowering.rows import (
    ConstantRows,
    ExpandRow,
    MergeColumns,
    NewRow,
    PairCondition,
    SessionRow,
    WindowRow,
)
from streamrt.sql.lowering.state_names import name_state
from streamrt.state.encoding import dumps_exact
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.windows import Count, Max, Min
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.parts import ALL

__all__ = ["Frames", "Lowered", "Lowering"]

Table = StreamingTable[StreamingDataFrame]
_ROWS = "_rows"


class Frames(Protocol):
    """Makes frames of what a plan scans."""

    def read(self, scan: Scan) -> StreamingDataFrame | Table:
        """Return the rows of a table or of a frame; only the columns of `scan.fields` are needed."""


@dataclass(frozen=True, eq=False)
class Lowered:
    """A relation as a position in the topology.

    Attributes:
        branch: the position.
        is_table: whether values are changes of rows.
    """

    branch: Branch
    is_table: bool

    def map(self, does: Any, expression: Any) -> Lowered:
        """Return the relation behind a filter or a function of rows."""
        return Lowered(self.branch.add(MapRows(does, expression)), is_table=True)


class Lowering:
    """Adds the operators of one plan to a topology.

    Args:
        view: name of the view, which is part of the names of its state.
        plan: the plan.
        frames: makes frames of what it scans.
        done: relations that are in the topology, by the identity of their plan.
        owners: names of the views that plans are of.
    """

    def __init__(
        self,
        view: str,
        plan: Plan,
        frames: Frames,
        done: dict[int, tuple[Plan, Lowered]],
        owners: Mapping[int, tuple[Plan, str]],
    ) -> None:
        self._view = view
        self._plan = plan
        self._frames = frames
        self._done = done
        self._owners = owners
        self._count = 0
        # The row of no columns that all constant rows of the plan are made of.
        self._row: Lowered | None = None

    def lower_plan(self) -> Lowered:
        """Return the position of the rows of the plan."""
        rows = self._lower(self._plan)
        rows.branch.builder.note_query(self._view, digest_plan(self._plan))
        return rows

    def _lower(self, plan: Plan) -> Lowered:
        """Return the position of a relation. One that is used twice is computed once."""
        known = self._done.get(id(plan))
        if known is None:
            owner = self._owners.get(id(plan))
            if owner is not None and plan is not self._plan:
                rows = Lowering(owner[1], plan, self._frames, self._done, self._owners).lower_plan()
            else:
                rows = self._make(plan)
            known = self._done[id(plan)] = plan, rows
        return known[1]

    def _make(self, plan: Plan) -> Lowered:
        kinds: dict[type[Plan], Callable[[Any], Lowered]] = {
            Scan: self._scan,
            Values: self._values,
            Filter: self._filter,
            Project: self._project,
            Expand: self._expand,
            Aggregate: self._aggregate,
            Distinct: self._distinct,
            Union: self._union,
            Top: self._top,
            Join: self._join,
            SetOperation: self._set_operation,
            WindowAggregate: self._windows,
            SessionAggregate: self._sessions,
            AsOfJoin: self._join_as_of,
            IntervalJoin: self._join_interval,
            OverStream: self._over_stream,
            OverTable: self._over_table,
        }
        return kinds[type(plan)](plan)

    def _name(self) -> str:
        """Return the name of the next operator with state."""
        self._count += 1
        return name_state(self._view, str(self._count))

    # -- Row by row ----------------------------------------------------------------------------------------------------

    def _scan(self, plan: Scan) -> Lowered:
        frame = self._frames.read(plan)
        if isinstance(frame, StreamingTable):
            return Lowered(frame._branch, is_table=True)
        return Lowered(branch_of(frame), is_table=False)

    def _values(self, plan: Values) -> Lowered:
        """Make the rows of one that is always there: that of a group of no rows of any table."""
        if self._row is None:
            scan = next(each for each in walk_plan(self._plan) if isinstance(each, Scan))
            self._row = self._group(self._filter(Filter(scan, Constant(value=False, type=pa.bool_()))), (), {})
        names = [field.name for field in plan.fields]
        rows = ConstantRows(tuple(dict(zip(names, row, strict=True)) for row in plan.rows))
        return Lowered(self._row.branch.add(ExpandChanges(rows)).of_bags(), is_table=True)

    def _filter(self, plan: Filter) -> Lowered:
        rows, condition = self._lower(plan.input), Condition(plan.condition)
        if rows.is_table:
            return rows.map("filter", condition)
        return Lowered(rows.branch.add(Where(condition)), is_table=False)

    def _project(self, plan: Project) -> Lowered:
        rows = self._lower(plan.input)
        row = NewRow(plan.columns)
        if rows.is_table:
            return rows.map("apply", row)
        return Lowered(rows.branch.add(Compute(row)), is_table=False)

    def _expand(self, plan: Expand) -> Lowered:
        rows = self._lower(plan.input)
        function = ExpandRow(plan.rows_of, plan.title)
        if rows.is_table:
            return Lowered(rows.branch.add(ExpandChanges(function)).of_bags(), is_table=True)
        return Lowered(rows.branch.add(Apply(function, expand=True)), is_table=False)

    # -- Groups --------------------------------------------------------------------------------------------------------

    def _regroup(self, rows: Lowered, columns: tuple[str, ...], name: str) -> Branch:
        """Bring the rows of a group together."""
        key: Callable[[Any], Any] = WholeKey()
        if columns:
            key = GroupKey(ColumnsKey(columns) if len(columns) > 1 else NullGroup(ColumnKey(columns[0])))
        topic = rows.branch.exact_topic(
            name, key_deserializer=ExactDeserializer(), key_serializer=ExactSerializer(), short=True
        )
        kind = Regroup if rows.is_table else Repartition
        return rows.branch.exchange(kind(topic, key, name), name)

    def _aggregate(self, plan: Aggregate) -> Lowered:
        calls = {call.name: call.aggregate.make(call.arguments) for call in plan.calls}
        return self._group(self._lower(plan.input), _exact_group(plan, plan.group), calls)

    def _group(self, rows: Lowered, columns: tuple[str, ...], calls: dict[str, Any]) -> Lowered:
        name = self._name()
        branch = self._regroup(rows, columns, name)
        aggregation = Aggregation.named(**(calls or {_ROWS: Count()}))
        store = branch.store(name, TimedTransaction)
        whole = None if columns else dumps_exact(ALL)
        operator = GroupAggregate(aggregation, store, columns, rows.is_table, whole)
        operator.plan()
        branch = branch.add(operator).of_tables()
        branch = branch.add(Condense() if calls else MapRows("apply", KeepColumns(columns)))
        return Lowered(branch, is_table=True)

    def _windows(self, plan: WindowAggregate) -> Lowered:
        name, frame, calls = self._windowed(plan)
        grace, plain, offset = plan.grace_ms, _plain(name), plan.offset_ms
        if plan.step_ms == plan.size_ms:
            windows = frame.tumbling_window(plan.size_ms, grace, name=plain, offset_ms=offset)
        else:
            windows = frame.hopping_window(plan.size_ms, plan.step_ms, grace, name=plain, offset_ms=offset)
        closed = windows.agg(**calls).final(closing_strategy="watermark")
        make = WindowRow(plan.group, plan.start, plan.end, tuple(call.name for call in plan.calls), _has_zone(plan))
        return Lowered(branch_of(closed.apply(make, metadata=True)), is_table=False)

    def _sessions(self, plan: SessionAggregate) -> Lowered:
        name, frame, calls = self._windowed(plan)
        # Two rows that are the gap apart are in one session, as in Spark.
        windows = frame.session_window(plan.gap_ms, plan.grace_ms, name=_plain(name))
        closed = windows.agg(**calls, **{plan.start: Min(plan.time), plan.end: Max(plan.time)}).final(
            closing_strategy="watermark"
        )
        make = SessionRow(plan.group, plan.start, plan.end, tuple(call.name for call in plan.calls), plan.gap_ms)
        return Lowered(branch_of(closed.apply(make, metadata=True)), is_table=False)

    def _windowed(self, plan: WindowAggregate | SessionAggregate) -> tuple[str, StreamingDataFrame, dict[str, Any]]:
        rows, name = self._lower(plan.input), self._name()
        frame = StreamingDataFrame(self._regroup(rows, plan.group, name))
        calls = {call.name: call.aggregate.make(call.arguments) for call in plan.calls}
        return name, frame, calls or {_ROWS: Count()}

    def _over_stream(self, plan: OverStream) -> Lowered:
        rows, name = self._lower(plan.input), self._name()
        branch = self._regroup(rows, plan.group, name)
        columns, closing = tuple(each.column() for each in plan.calls), stream_clock(branch, None)
        return Lowered(add_time_over(branch, columns, plan.grace_ms, closing, name, plan.time), is_table=False)

    def _over_table(self, plan: OverTable) -> Lowered:
        rows, name = self._as_table(self._lower(plan.input)), self._name()
        branch = self._regroup(Lowered(rows._branch, is_table=True), plan.group, name)
        columns = tuple(each.column() for each in plan.calls)
        return Lowered(add_over(branch, plan.by, plan.descending, columns, name), is_table=True)

    def _distinct(self, plan: Distinct) -> Lowered:
        rows = self._lower(plan.input)
        return self._group(rows, _exact_group(plan, tuple(field.name for field in plan.fields)), {})

    def _top(self, plan: Top) -> Lowered:
        rows, name = self._lower(plan.input), self._name()
        branch = self._regroup(rows, plan.group, name)
        ranking = Ranking(plan.count, plan.by, plan.descending, plan.method, plan.rank)
        store = branch.store(name, TimedTransaction)
        operator = TopRows(store, ranking, len(plan.group), rows.is_table)
        return Lowered(branch.add(operator).of_tables().rekeyed(name).add(Condense()), is_table=True)

    # -- Several relations ---------------------------------------------------------------------------------------------

    def _union(self, plan: Union) -> Lowered:
        parts = [self._lower(part) for part in plan.parts]
        if not any(part.is_table for part in parts):
            frame = to_frame(parts[0])
            for part in parts[1:]:
                frame = frame.concat(to_frame(part))  # type: ignore[union-attr]
            return Lowered(branch_of(frame), is_table=False)
        first, *others = (self._as_table(part) for part in parts)
        return Lowered(first.union_all(*others, name=self._name())._branch, is_table=True)

    def _set_operation(self, plan: SetOperation) -> Lowered:
        left, right = (self._as_table(self._lower(side)) for side in (plan.left, plan.right))
        combine = left.intersect if plan.kind == "intersect" else left.subtract
        return Lowered(combine(right, all=plan.counts, name=self._name())._branch, is_table=True)

    def _join(self, plan: Join) -> Lowered:
        left, right = (self._as_table(self._lower(side)) for side in (plan.left, plan.right))
        names = [tuple(field.name for field in side.fields) for side in (plan.left, plan.right)]
        joined = left.join(
            right,
            how=plan.how,
            on=(_parts(plan.left_on), _parts(plan.right_on)),
            on_merge=MergeColumns(names[0], names[1]),
            condition=None if plan.condition is None else PairCondition(plan.condition),
            name=self._name(),
        )
        return Lowered(joined._branch, is_table=True)

    def _join_interval(self, plan: IntervalJoin) -> Lowered:
        name = self._name()
        left, right = (
            StreamingDataFrame(self._regroup(self._lower(side), columns, f"{name}.{title}"))
            for side, columns, title in ((plan.left, plan.left_on, "left"), (plan.right, plan.right_on, "right"))
        )
        names = [tuple(field.name for field in side.fields) for side in (plan.left, plan.right)]
        joined = left.join_interval(
            right,
            on_merge=MergeColumns(names[0], names[1]),
            grace_ms=plan.grace_ms,
            name=name,
            backward_ms=plan.before_ms,
            forward_ms=plan.after_ms,
        )
        return Lowered(branch_of(joined), is_table=False)

    def _join_as_of(self, plan: AsOfJoin) -> Lowered:
        left, name = self._lower(plan.left).branch, self._name()
        table = self._versions(plan.right)
        partners = dict(zip(plan.right_on, plan.left_on, strict=True))
        # In the order of the primary key.
        columns = tuple(partners[_renamed(plan.right, column)] for column in key_columns(table._branch))
        key: Callable[[Any], Any] = ColumnsKey(columns) if len(columns) > 1 else ColumnKey(columns[0])
        topic = exchange_topic(left, name, table.topics[0])
        left = left.exchange(SendByKey(topic, name, table.topics[0].name, ForeignKey(key)), name)
        names = [tuple(field.name for field in side.fields) for side in (plan.left, plan.right)]
        merge = MergeColumns(names[0], names[1])
        return Lowered(branch_of(StreamingDataFrame(left).join_asof(table, plan.how, merge, name=name)), is_table=False)

    def _versions(self, plan: Plan) -> Table:
        """Return a table of which former rows are kept."""
        if isinstance(plan, Filter):
            return self._versions(plan.input)._map(MapRows("filter", plan.condition))
        if isinstance(plan, Project):
            return self._versions(plan.input)._map(MapRows("apply", NewRow(plan.columns)))
        assert isinstance(plan, Scan)  # noqa: S101 - binding refuses others
        frame = self._frames.read(plan)
        assert isinstance(frame, StreamingTable)  # noqa: S101
        return frame

    def _as_table(self, rows: Lowered) -> Any:
        frame = to_frame(rows)
        if isinstance(frame, StreamingTable):
            return frame
        return frame.to_rows()


def to_frame(rows: Lowered) -> StreamingDataFrame | Table:
    """Return a position as a frame."""
    stream = StreamingDataFrame(rows.branch)
    return StreamingTable(stream, rows.branch) if rows.is_table else stream


def _renamed(plan: Plan, column: str) -> str:
    """Return the name that a column of a table has in a plan that computes each row from one row."""
    if isinstance(plan, Filter):
        return _renamed(plan.input, column)
    if isinstance(plan, Project):
        own = _renamed(plan.input, column)
        return next(
            name
            for name, expression in plan.columns
            if isinstance(expression, ColumnReference) and expression.name == own
        )
    return column


def _exact_group(plan: Plan, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of a group: a single list stands twice, because a list of NULL as the key is the group of NULL."""
    return columns * 2 if len(columns) == 1 and pa.types.is_list(plan.field(columns[0]).dtype) else columns


def _has_zone(plan: WindowAggregate) -> bool:
    """Return whether times of windows have a time zone."""
    return plan.input.field(plan.time).dtype.tz is not None


def _parts(columns: tuple[str, ...]) -> list[Any]:
    """Return what rows of one side have equal, in which a column may stand several times."""
    return [column if columns.index(column) == number else ColumnKey(column) for number, column in enumerate(columns)]


def _plain(name: str) -> str:
    """Return a name that windows may have."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)
