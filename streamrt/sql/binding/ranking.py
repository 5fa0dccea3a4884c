"""Numbers of rows in an order: `row_number() OVER (PARTITION BY a ORDER BY b) <= n`, and ORDER BY with LIMIT.

An OVER with a number becomes a `Top` whose count is open, 0. A condition on the number, which may be in a query around it,
closes it; what is open in the end numbers all rows.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.binding.group_plans import Call, Top
from streamrt.sql.binding.keys import as_key
from streamrt.sql.binding.over_plans import FramedCall, OverTable
from streamrt.sql.binding.over_streams import as_stream
from streamrt.sql.binding.row_plans import Filter, Plan, Project, replace_inputs
from streamrt.sql.binding.scopes import BlockScope, bound_name, reference
from streamrt.sql.binding.stages import Stage, with_columns
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.logic import IsNull
from streamrt.sql.expressions.nodes import ColumnReference, Constant
from streamrt.sql.expressions.places import make_rank
from streamrt.windows.frames import ALL_ROWS

__all__ = ["add_rank", "add_top", "bind_order", "close_ranks", "filter_plan", "rank_method", "read_number"]

_OPEN = 0
_METHODS: dict[type[exp.Expr], Literal["row_number", "rank", "dense_rank"]] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
}

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.LT: exp.GT}


def rank_method(node: exp.Expr) -> Literal["row_number", "rank", "dense_rank"] | None:
    """Return how the function of an OVER numbers rows, or None if it does not."""
    return _METHODS.get(type(node))


def add_rank(stage: Stage, window: exp.Window) -> ColumnReference:
    """Add the number of each row, and return its column.

    Args:
        stage: the query so far.
        window: the OVER.
    """
    method = rank_method(window.this)
    order = window.args.get("order")
    assert method is not None  # noqa: S101
    if order is None:
        raise make_analysis_error(f"{method}() needs OVER (... ORDER BY ...)", window)
    if window.args.get("spec") is not None:
        raise make_analysis_error(f"{method}() has no frame: leave out ROWS and RANGE", window)
    group = [as_key(stage.bind(each), each) for each in window.args.get("partition_by") or []]
    return _add_top(stage, group, order.expressions, _OPEN, method)


def add_top(stage: Stage, order: Sequence[exp.Expr], count: int, skipped: int) -> None:
    """Keep the first rows of all, or those behind the first ones: ORDER BY ... LIMIT n OFFSET m.

    Args:
        stage: the query so far.
        order: the expressions of ORDER BY.
        count: the number of rows.
        skipped: the number of rows before them.
    """
    rank = _add_top(stage, [], order, skipped + count, "row_number")
    if skipped:
        later = exp.GT(this=bound_name(rank, order[0]), expression=exp.Literal.number(skipped))
        stage.filter(stage.session.bind(later, BlockScope([])))


def _add_top(
    stage: Stage,
    group: Sequence[TypedExpression],
    order: Sequence[exp.Expr],
    count: int,
    method: Literal["row_number", "rank", "dense_rank"],
) -> ColumnReference:
    by, descending = bind_order(stage, order)
    plan, names = with_columns(stage.plan, [*group, *by], stage.session)
    rank = stage.session.new_name()
    top = Top(plan, tuple(names[: len(group)]), tuple(names[len(group) :]), descending, count, method, rank)
    stage.plan = top
    return reference(top.field(rank))


def bind_order(stage: Stage, order: Sequence[exp.Expr]) -> tuple[list[TypedExpression], tuple[bool, ...]]:
    """Return what orders rows, and of each expression, whether the highest values come first; NULL comes last.

    Args:
        stage: the query so far.
        order: the expressions of ORDER BY.
    """
    by: list[TypedExpression] = []
    descending: list[bool] = []
    for each in order:
        node = each.this if isinstance(each, exp.Ordered) else each
        expression = stage.bind(node)
        if isinstance(expression, Constant):
            continue
        dtype = expression.dtype
        if pa.types.is_nested(dtype):
            raise make_refusal("rows are ordered by single values: take fields of a struct, one by one", node)
        down = bool(each.args.get("desc"))
        if expression.nullable and _nulls_first(each, down=down):
            # Without this, NULL comes last.
            by.append(IsNull(expression))
            descending.append(True)
        by.append(expression)
        descending.append(down)
    if not by:
        raise make_analysis_error("ORDER BY of constants does not order rows", order[0] if order else None)
    return by, tuple(descending)


def _nulls_first(ordered: exp.Expr, *, down: bool) -> bool:
    first = ordered.args.get("nulls_first")
    return bool(not down if first is None else first)


def filter_plan(plan: Plan, node: exp.Expr, condition: TypedExpression, column_of: object = None) -> Plan:
    """Return the rows of a plan for which a condition is TRUE; one on an open number closes it.

    Args:
        plan: the plan.
        node: the condition as a node.
        condition: the condition.
        column_of: binds a name.
    """
    bound = _read_bound(node, column_of)
    if bound is not None:
        column, count, is_exact = bound
        closed = _close(plan, column, count)
        if closed is not None:
            return closed if is_exact else Filter(closed, condition)
    return Filter(plan, condition)


def _read_bound(node: exp.Expr, column_of: object) -> tuple[str, int, bool] | None:
    """Return column, highest number, and whether the condition says no more; None if it bounds no column."""
    node = node.unnest()
    if not isinstance(node, exp.LTE | exp.LT | exp.EQ | exp.GTE | exp.GT) or not callable(column_of):
        return None
    left, right = node.left.unnest(), node.right.unnest()
    kind: type[exp.Expr] = type(node)
    if not isinstance(left, exp.Column) or left.meta.get("bound").__class__ is Constant:
        left, right = right, left
        kind = _MIRRORED.get(kind, kind)
    number = read_number(right)
    if number is None or not isinstance(left, exp.Column) or kind in (exp.GTE, exp.GT):
        return None
    column = column_of(left)
    if not isinstance(column, ColumnReference):
        return None
    if kind is exp.LT:
        number -= 1
    return (column.name, number, kind is not exp.EQ) if number >= 1 else None


def read_number(node: exp.Expr) -> int | None:
    """Return the whole number that a node or a parameter is, or None."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return int(node.name)
    constant = node.meta.get("bound")
    if isinstance(constant, Constant) and type(constant.value) is int:
        return constant.value
    return None


def _close(plan: Plan, column: str, count: int) -> Plan | None:
    """Return a plan whose open number of a column is closed; None if it has none there."""
    if isinstance(plan, Top) and plan.rank == column and plan.count == _OPEN:
        return replace(plan, count=count)
    if isinstance(plan, Project):
        expression = next((each for name, each in plan.columns if name == column), None)
        if isinstance(expression, ColumnReference):
            closed = _close(plan.input, expression.name, count)
            return None if closed is None else replace(plan, input=closed)
    if isinstance(plan, Filter):
        closed = _close(plan.input, column, count)
        return None if closed is None else replace(plan, input=closed)
    return None


def close_ranks(plan: Plan, grace_ms: int) -> Plan:
    """Return a plan in which numbers that no condition bounds are those of all rows.

    Args:
        plan: the plan.
        grace_ms: how late rows of streams may be.
    """
    done: dict[int, tuple[Plan, Plan]] = {}

    def close(part: Plan) -> Plan:
        # Views share parts, which stay shared.
        if id(part) not in done:
            done[id(part)] = part, _number_all(replace_inputs(part, close), grace_ms)
        return done[id(part)][1]

    return close(plan)


def _number_all(plan: Plan, grace_ms: int) -> Plan:
    if isinstance(plan, OverTable):
        # Its input may be a stream now.
        return as_stream(plan, grace_ms)
    if not isinstance(plan, Top) or plan.count != _OPEN:
        return plan
    rank = make_rank(plan.method)
    call = FramedCall(Call(plan.rank, rank, (), str(rank)), ALL_ROWS, numbers=plan.method == "row_number")
    return as_stream(OverTable(plan.input, plan.group, plan.by, plan.descending, (call,)), grace_ms)
