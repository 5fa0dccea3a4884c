"""GROUP BY, aggregates and HAVING: from the rows of FROM to a row for each group."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import SQLError
from streamrt.sql.binding.group_plans import Aggregate, Call, SessionAggregate, WindowAggregate
from streamrt.sql.binding.grouping_sets import Sets, bind_grouping, expand_sets
from streamrt.sql.binding.intervals import time_column
from streamrt.sql.binding.keys import as_key
from streamrt.sql.binding.row_plans import Field, Plan, Project
from streamrt.sql.binding.scopes import BlockScope, BoundNames, bound_name, parts_of, reference
from streamrt.sql.binding.stages import Stage
from streamrt.sql.binding.windows import Windowing, add_window_columns, is_window_call, read_window_call
from streamrt.sql.expressions import AggregateCall, FunctionRegistry, TypedExpression, is_aggregate
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.logic import IsNull
from streamrt.sql.expressions.nodes import ColumnReference, Constant

__all__ = ["Grouped", "bind_groups", "find_aggregates", "has_aggregates"]


_WALL_CLOCK = ("current_timestamp", "localtimestamp", "now", "proctime")


def find_aggregates(node: exp.Expr, functions: FunctionRegistry) -> list[exp.Expr]:
    """Return the aggregates in an expression, without those in subqueries and in OVER.

    Args:
        node: the expression.
        functions: functions that the application has registered.
    """
    found: list[exp.Expr] = []
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, exp.Query):
            continue
        if isinstance(each, exp.Window):
            # The arguments of OVER may be aggregates of groups.
            inner = each.this.this if isinstance(each.this, exp.Filter | exp.IgnoreNulls) else each.this
            waiting += [*inner.iter_expressions(), *(each.args.get("partition_by") or [])]
            if each.args.get("order"):
                waiting.append(each.args["order"])
        elif is_aggregate(each, functions):
            found.append(each)
        else:
            waiting += list(each.iter_expressions())
    return found


def has_aggregates(node: exp.Expr, functions: FunctionRegistry) -> bool:
    """Return whether an expression has aggregates."""
    return bool(find_aggregates(node, functions))


@dataclass(eq=False)
class Grouped:
    """The rows of groups, and how expressions on them are bound.

    Attributes:
        stage: the query so far.
        rewrite: replaces keys and aggregates in an expression by the columns that they are.
    """

    stage: Stage
    rewrite: Callable[[exp.Expr], exp.Expr]


def bind_groups(stage: Stage, keys: list[exp.Expr], nodes: list[exp.Expr], sets: Sets | None = None) -> Grouped:
    """Group the rows of a query.

    Args:
        stage: the query so far.
        keys: the expressions of GROUP BY, or none for one group.
        nodes: the expressions that use the groups: those of SELECT, HAVING and ORDER BY.
        sets: the sets of keys of GROUPING SETS and the like.
    """
    return _Grouping(stage).bind(keys, nodes, sets)


class _Grouping:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._session = stage.session
        self._scope = stage.scope
        # What the keys are, as expressions on the rows of FROM, and the columns that hold them.
        self._keys: list[tuple[TypedExpression, Field]] = []
        self._calls: list[Call] = []
        self._aggregates: list[tuple[exp.Expr, str]] = []
        self._structs: dict[str, dict[str, TypedExpression]] = {}
        self._nodes: list[tuple[exp.Expr, dict[str, TypedExpression]]] = []
        self._sets: list[frozenset[int]] = []
        self._set: Field | None = None

    def bind(self, keys: list[exp.Expr], nodes: list[exp.Expr], sets: Sets | None) -> Grouped:
        stage, session = self._stage, self._session
        windows = [each for each in keys if is_window_call(each.unnest())]
        if windows and sets is not None:
            raise make_refusal(
                "GROUPING SETS, ROLLUP and CUBE have no windows: group by window.start in a query", windows[0]
            )
        if len(windows) > 1:
            raise make_refusal("GROUP BY has two windows: one is possible", windows[1])
        window = self._read_window(windows[0].unnest()) if windows else None
        is_final = window is not None and (session.emit.final or window.kind == "session")
        if window is not None and not is_final:
            start, end, _ = add_window_columns(stage, window)
            self._name_window(windows[0].unnest(), reference(start), reference(end))
            self._keys += [(reference(start), start), (reference(end), end)]
        self._bind_keys([each for each in keys if each not in windows])
        arguments = self._bind_calls(nodes)
        # Normalized, so that equal values make one group.
        columns = [(field.name, as_key(expression, keys[0] if keys else None)) for expression, field in self._keys]
        columns += arguments
        group = tuple(field.name for _, field in self._keys)
        if window is not None and is_final:
            plan = self._aggregate_windows(window, windows[0].unnest(), columns, group)
        else:
            rows: Plan = Project(stage.plan, tuple(columns))
            if sets is not None:
                rows, group = self._expand_sets(rows, sets, [name for name, _ in arguments])
            plan = Aggregate(rows, group, tuple(self._calls))
        self._keys = [(expression, plan.field(field.name)) for expression, field in self._keys]
        stage.plan = plan
        stage.scope = BoundNames(self._explain)
        stage.rewrite = self._rewrite
        return Grouped(stage, self._rewrite)

    def _expand_sets(self, rows: Plan, sets: Sets, arguments: list[str]) -> tuple[Plan, tuple[str, ...]]:
        """Return a row for each set of keys, and the columns of the groups."""
        bound = [[self._stage.bind(node) for node in members] for members in sets]
        known = [expression for expression, _ in self._keys]
        self._sets = [frozenset(map(known.index, members)) for members in bound]
        keys = [rows.field(field.name) for _, field in self._keys]
        rows, made, self._set = expand_sets(rows, keys, self._sets, arguments, self._session)
        self._keys = list(zip(known, made, strict=True))
        return rows, (*(field.name for field in made), self._set.name)

    def _bind_grouping(self, node: exp.Expr) -> TypedExpression:
        """Return `grouping(key)` or `grouping_id(...)`."""
        if self._set is None:
            raise make_analysis_error("grouping() needs GROUPING SETS, ROLLUP or CUBE in GROUP BY", node)
        fields = [field for _, field in self._keys]
        named = [self._find_key(each) for each in node.expressions]
        if None in named:
            raise make_analysis_error("grouping() names keys of GROUP BY", node)
        keys = [fields.index(each) for each in named if each is not None] or list(range(len(fields)))
        return bind_grouping(node, self._set, self._sets, keys)

    def _read_window(self, call: exp.Expr) -> Windowing[TypedExpression]:
        arguments = call.expressions
        if not arguments:
            raise make_analysis_error(f"{call.name}() needs the column of the time", call)
        if arguments[0].name.lower() in _WALL_CLOCK and isinstance(arguments[0], exp.Anonymous):
            raise make_refusal(
                "windows of the wall clock have other rows each time records are processed: write sdf.group_by(...)"
                ".tumbling_window(10_000, time='processing') in Python, or take a column with a time",
                call,
            )
        return read_window_call(call.name.lower(), self._stage.bind(arguments[0]), arguments[1:], call)

    def _name_window(self, call: exp.Expr, start: TypedExpression, end: TypedExpression) -> None:
        fields = {"start": start, "end": end}
        self._structs[call.name.lower()] = fields
        self._structs.setdefault("window", fields)
        self._nodes.append((call, fields))

    def _bind_keys(self, keys: list[exp.Expr]) -> None:
        session = self._session
        for node in keys:
            if has_aggregates(node, session.functions):
                raise make_analysis_error("aggregates have no place in GROUP BY", node)
            expression = self._stage.bind(node)
            if any(expression == other for other, _ in self._keys):
                continue
            dtype = expression.dtype
            if dtype == pa.null():
                raise make_analysis_error("GROUP BY NULL makes no groups", node)
            self._keys.append((expression, Field(session.new_name(), dtype, expression.nullable)))

    def _bind_calls(self, nodes: list[exp.Expr]) -> list[tuple[str, TypedExpression]]:
        """Bind all aggregates; return the columns of their arguments."""
        session = self._session
        columns: list[tuple[str, TypedExpression]] = []
        bound: list[tuple[AggregateCall, str]] = []
        for node in (aggregate for each in nodes for aggregate in find_aggregates(each, session.functions)):
            function = node
            while isinstance(function, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
                function = function.this
            inner = next(
                (each for child in function.iter_expressions() for each in find_aggregates(child, session.functions)),
                None,
            )
            if inner is not None:
                raise make_analysis_error(
                    "an aggregate within an aggregate needs a query in FROM for the inner one", inner
                )
            call = session.bind_aggregate(node, self._scope)
            if not self._stage.plan.appends and not call.retractable:
                raise make_refusal(
                    f"{call} cannot take back values, as it must over rows that change: use min_by(...) or max_by(...) with "
                    "a column that orders them",
                    node,
                )
            known = next((name for other, name in bound if other == call), None)
            if known is None:
                known = session.new_name()
                bound.append((call, known))
                names = []
                for argument in call.arguments:
                    same = next((name for name, other in columns if other == argument), None)
                    if same is None:
                        same = session.new_name()
                        columns.append((same, argument))
                    names.append(same)
                self._calls.append(Call(known, call, tuple(names), str(call)))
            self._aggregates.append((node, known))
        return columns

    def _aggregate_windows(
        self,
        window: Windowing[TypedExpression],
        call: exp.Expr,
        columns: list[tuple[str, TypedExpression]],
        group: tuple[str, ...],
    ) -> Plan:
        stage, session = self._stage, self._session
        if not stage.plan.appends:
            what = "session_window" if window.kind == "session" else "emit = 'final'"
            raise make_refusal(
                f"{what} needs rows of a stream, which are only added, and these are of a table, whose rows change"
                + ("" if window.kind == "session" else ": leave emit out"),
                call,
            )
        if not isinstance(window.time, ColumnReference) or window.time.name != time_column(stage.plan):
            raise make_refusal(
                f"windows that give one result, when they are over, follow the times of records, and {window.time} is not "
                "the time column of its table: create it with WITH ('time' = 'at')",
                call,
            )
        # A row without a time is in no window, though its record has one.
        if window.time.nullable:
            stage.filter(IsNull(window.time, negated=True))
        time = session.new_name()
        start, end = session.new_name(), session.new_name()
        rows = Project(stage.plan, ((time, window.time), *columns))
        grace = session.emit.grace_ms or 0
        plan: Plan
        if window.kind == "session":
            plan = SessionAggregate(rows, time, group, tuple(self._calls), start, end, grace, window.size_ms)
        else:
            lengths = window.size_ms, window.step_ms, window.offset_ms
            plan = WindowAggregate(rows, time, group, tuple(self._calls), start, end, grace, *lengths)
        self._name_window(call, reference(plan.field(start)), reference(plan.field(end)))
        return plan

    def _rewrite(self, node: exp.Expr) -> exp.Expr:
        """Replace keys and aggregates in a copy of an expression."""
        return self._replace(node, {id(each): name for each, name in self._aggregates})

    def _replace(self, node: exp.Expr, names: dict[int, str]) -> exp.Expr:
        name = names.get(id(node))
        if name is not None:
            return bound_name(reference(self._stage_field(name)), node)
        if isinstance(node, exp.Query):
            return node.copy()
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return bound_name(self._bind_grouping(node), node)
        if is_window_call(node) and any(call.sql().lower() == node.sql().lower() for call, _ in self._nodes):
            raise make_refusal(f"take {node.name}.start or {node.name}.end, one by one", node)
        if isinstance(node, exp.Column):
            words = [each.lower() for each in parts_of(node)]
            if len(words) == 2 and words[0] in self._structs and words[1] in self._structs[words[0]]:
                return bound_name(self._structs[words[0]][words[1]], node)
        if isinstance(node, exp.Dot) and is_window_call(node.this):
            fields = self._structs.get(node.this.name.lower(), {})
            if node.expression.name.lower() in fields:
                return bound_name(fields[node.expression.name.lower()], node)
        if not isinstance(node, exp.Literal | exp.Null | exp.Boolean | exp.Identifier | exp.DataType | exp.Var):
            key = self._find_key(node)
            if key is not None:
                return bound_name(reference(key), node)
        copied = node.copy()
        for argument, value in node.args.items():
            if isinstance(value, exp.Expr):
                copied.set(argument, self._replace(value, names))
            elif isinstance(value, list):
                copied.set(
                    argument, [self._replace(each, names) if isinstance(each, exp.Expr) else each for each in value]
                )
        return copied

    def _find_key(self, node: exp.Expr) -> Field | None:
        """Return the column of the key that an expression is, or None."""
        if not self._keys or isinstance(node, exp.Alias | exp.Ordered | exp.Order | exp.Window | exp.Paren):
            return None
        try:
            expression = self._session.bind(node, self._scope)
        except SQLError:
            return None
        if isinstance(expression, Constant):
            return None
        return next((field for other, field in self._keys if other == expression), None)

    def _stage_field(self, name: str) -> Field:
        return self._stage.plan.field(name)

    def _explain(self, column: exp.Column) -> Exception:
        name = ".".join(parts_of(column))
        if isinstance(self._scope, BlockScope):
            self._scope.resolve_column(column)  # Raises if there is no such column.
        return make_analysis_error(
            f"{name} is neither in GROUP BY nor in an aggregate: add it to GROUP BY, or write any_value({name})", column
        )
