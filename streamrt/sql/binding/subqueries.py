"""Subqueries in expressions, taken apart into joins.

| subquery | becomes |
|---|---|
| `EXISTS`, `IN`, `NOT EXISTS`, `NOT IN` as a condition of WHERE or HAVING | a semi or anti join |
| the same within OR, CASE or the list of SELECT, and NOT IN with NULL | a left join with the distinct keys |
| a value | a left join with a row for each group of the keys |

Where the row of an aggregate is missing, counts are 0. What keys are if more than equalities bind a subquery to the query
around it, is in `correlation`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.binding.correlation import (
    Inner,
    add_keys,
    bind_inner,
    join_left,
    join_outer_values,
    refuse_outer_names,
)
from streamrt.sql.binding.group_plans import Aggregate, Distinct
from streamrt.sql.binding.grouping import bind_groups, has_aggregates
from streamrt.sql.binding.join_plans import Join, JoinHow
from streamrt.sql.binding.keys import align, distinct_rows
from streamrt.sql.binding.row_plans import Plan, Project
from streamrt.sql.binding.scopes import BlockScope, Bound, bound_name, reference
from streamrt.sql.binding.session import Session
from streamrt.sql.binding.stages import CTEs, Stage, keep_columns, with_columns
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.calls import FunctionCall
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.logic import Coalesce, IsNull
from streamrt.sql.expressions.nodes import ColumnReference, Constant

__all__ = ["add_condition", "replace_subqueries"]

BindQuery = Callable[[exp.Expr, Session, CTEs], Bound]


def add_condition(stage: Stage, condition: exp.Expr, bind_query: BindQuery, scope: BlockScope, clause: str) -> None:
    """Keep the rows of a query for which a condition is TRUE, which may have subqueries.

    Args:
        stage: the query so far.
        condition: the condition, without AND.
        bind_query: binds queries in it.
        scope: what names around subqueries mean.
        clause: the clause, for errors.
    """
    inner, negated = condition, False
    while isinstance(inner, exp.Not | exp.Paren):
        negated ^= isinstance(inner, exp.Not)
        inner = inner.this
    if isinstance(inner, exp.Exists):
        _join_exists(stage, inner, bind_query, scope, negated=negated)
    elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
        _join_in(stage, inner, bind_query, scope, negated=negated)
    else:
        node = replace_subqueries(stage, condition, bind_query, scope, is_condition=True)
        stage.filter(stage.bind_condition(node, clause))


def replace_subqueries(
    stage: Stage, node: exp.Expr, bind_query: BindQuery, scope: BlockScope, *, is_condition: bool = False
) -> exp.Expr:
    """Join the subqueries of an expression to the rows of a query, and return the expression with their columns.

    Args:
        stage: the query so far.
        node: the expression, which stays as it is.
        bind_query: binds queries in it.
        scope: what names around subqueries mean.
        is_condition: whether FALSE and NULL are the same at its top.
    """
    found = _find_subqueries(node)
    if not found:
        return node
    node = node.copy()
    for each in _find_subqueries(node):
        if isinstance(each, exp.Exists | exp.In):
            value = _join_mark(stage, each, bind_query, scope, is_condition=is_condition)
        else:
            value = _join_value(stage, each, bind_query, scope)
        name = bound_name(value, each)
        if each is node:
            return name
        each.replace(name)
    return node


def _find_subqueries(node: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, exp.All | exp.Any) and each.find(exp.Query) is not None:
            raise make_refusal(
                "ALL and ANY of a query are refused: write NOT EXISTS or EXISTS (SELECT ... WHERE ...), or compare with "
                "max(...) or min(...) of it",
                each.find(exp.Query),
            )
        if (
            isinstance(each, exp.Exists)
            or (isinstance(each, exp.In) and each.args.get("query") is not None)
            or isinstance(each, exp.Subquery | exp.Select | exp.SetOperation)
        ):
            found.append(each)
        else:
            waiting += list(each.iter_expressions())
    return found


def _unwrap(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Subquery | exp.Paren) and not node.args.get("with_"):
        node = node.this
    return node


# -- EXISTS and IN -----------------------------------------------------------------------------------------------------


def _is_plain(query: exp.Select) -> bool:
    """Return whether the rows of a SELECT are those of FROM and WHERE; their order does not matter."""
    clauses = ("with_", "group", "having", "qualify", "limit", "offset", "windows")
    return not any(query.args.get(each) for each in clauses)


def _bind_apart(stage: Stage, query: exp.Expr, bind_query: BindQuery, scope: BlockScope) -> Bound:
    """Return a query that does not depend on the rows around it."""
    refuse_outer_names(
        stage,
        query,
        bind_query,
        scope,
        "a subquery with GROUP BY, HAVING, LIMIT or WITH, and one of several queries, does not depend on it: join with the "
        "grouped rows in FROM",
    )
    return bind_query(query, stage.session, stage.ctes)


def _join_exists(stage: Stage, node: exp.Exists, bind_query: BindQuery, scope: BlockScope, *, negated: bool) -> None:
    _semi_join(stage, _bind_exists(stage, node, bind_query, scope), "anti" if negated else "semi")


def _bind_exists(stage: Stage, node: exp.Exists, bind_query: BindQuery, scope: BlockScope) -> Inner:
    """Return the rows of the query of EXISTS."""
    query = _unwrap(node.this)
    if not isinstance(query, exp.Select) or not _is_plain(query):
        bound = _bind_apart(stage, node.this, bind_query, scope)
        plan = keep_columns(bound.plan, [bound.plan.fields[0].name])
        return Inner(Stage(stage.session, plan, BlockScope([]), stage.ctes))
    if any(has_aggregates(each, stage.session.functions) for each in query.expressions):
        raise make_refusal("EXISTS of an aggregate without GROUP BY is always TRUE: leave it out", node)
    return bind_inner(stage, query, bind_query, scope, add_condition)


def _semi_join(stage: Stage, inner: Inner, how: JoinHow) -> None:
    lefts, rights = inner.keys()
    left, left_on = with_columns(stage.plan, lefts, stage.session)
    right, right_on = with_columns(inner.stage.plan, rights, stage.session)
    kept = [field.name for field in stage.plan.fields]
    stage.plan = keep_columns(Join(left, right, how, tuple(left_on), tuple(right_on), inner.bind_further()), kept)


def _join_in(stage: Stage, node: exp.In, bind_query: BindQuery, scope: BlockScope, *, negated: bool) -> None:
    """Join with a query whose column has, or has not, the value."""
    inner, pairs = _bind_in(stage, node, bind_query, scope)
    if negated and any(each.nullable for pair in pairs for each in pair):
        found = _find_value(stage, inner, pairs, node)
        stage.filter(stage.session.bind(exp.Not(this=bound_name(found, node)), BlockScope([])))
    else:
        _semi_join(stage, add_keys(inner, pairs), "anti" if negated else "semi")


def _bind_in(
    stage: Stage, node: exp.In, bind_query: BindQuery, scope: BlockScope
) -> tuple[Inner, list[tuple[TypedExpression, TypedExpression]]]:
    """Return the rows of the query of IN, and which of their columns are compared with what."""
    listed = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    values = [stage.bind(replace_subqueries(stage, each, bind_query, scope)) for each in listed]
    query = _unwrap(node.args["query"])
    session = stage.session
    nodes = [each.unalias() for each in query.expressions] if isinstance(query, exp.Select) else []
    columns: list[TypedExpression]
    if (
        isinstance(query, exp.Select)
        and _is_plain(query)
        and not any(each.is_star or has_aggregates(each, session.functions) for each in nodes)
    ):
        inner = bind_inner(stage, query, bind_query, scope, add_condition, nodes)
        own, names = inner.stage, inner.stage.scope
        assert isinstance(names, BlockScope)  # noqa: S101
        columns = [own.bind(replace_subqueries(own, each, bind_query, names)) for each in nodes]
    else:
        bound = _bind_apart(stage, node.args["query"], bind_query, scope)
        plan = Project(bound.plan, tuple((session.new_name(), reference(each.field)) for each in bound.columns))
        inner = Inner(Stage(session, plan, BlockScope([]), stage.ctes))
        columns = [reference(each) for each in plan.fields]
    if len(columns) != len(values):
        raise make_analysis_error(f"IN compares {len(values)} values with a query of {len(columns)} columns", node)
    return inner, [align(value, column, node) for value, column in zip(values, columns, strict=True)]


def _join_mark(
    stage: Stage, node: exp.Expr, bind_query: BindQuery, scope: BlockScope, *, is_condition: bool
) -> TypedExpression:
    """Return whether a subquery has rows, or a value, for a row around it."""
    if isinstance(node, exp.Exists):
        return _find_keys(stage, _bind_exists(stage, node, bind_query, scope))
    assert isinstance(node, exp.In)  # noqa: S101
    inner, pairs = _bind_in(stage, node, bind_query, scope)
    may_be_null = any(each.nullable for pair in pairs for each in pair)
    if may_be_null and not (is_condition and _is_positive(node)):
        return _find_value(stage, inner, pairs, node)
    return _find_keys(stage, add_keys(inner, pairs))


def _find_keys(stage: Stage, inner: Inner) -> TypedExpression:
    """Join with the distinct keys of a subquery; return whether there is one for a row."""
    session = stage.session
    if inner.further:
        join_outer_values(stage, inner)
    mark = session.new_name()
    columns = [(session.new_name(), key) for key in inner.inner_keys]
    keys = Distinct(Project(inner.stage.plan, (*columns, (mark, Constant(value=True, type=pa.bool_())))))
    join_left(stage, inner, keys, [reference(keys.field(name)) for name, _ in columns])
    return IsNull(reference(stage.plan.field(mark)), negated=True)


def _find_value(
    stage: Stage, inner: Inner, pairs: Sequence[tuple[TypedExpression, TypedExpression]], node: exp.In
) -> TypedExpression:
    """Return whether a subquery has a value: NULL if it has not, and a NULL of either side leaves that open."""
    if len(pairs) != 1:
        raise make_refusal(
            "IN of several columns that may be NULL is a condition of WHERE, without NOT: otherwise write NOT EXISTS "
            "(SELECT ... WHERE a.column = b.column)",
            node,
        )
    value, column = pairs[0]
    session = stage.session
    if inner.further:
        join_outer_values(stage, inner)
    present = _find_keys(stage, add_keys(inner, pairs))
    counts = [_count(exp.Star()), _count(bound_name(column, node))]
    rows, known = _join_groups(stage, inner, counts)
    is_open = exp.or_(bound_name(IsNull(value), node), exp.LT(this=known, expression=rows))
    return session.bind(
        exp.or_(
            bound_name(present, node),
            exp.and_(exp.GT(this=rows.copy(), expression=exp.Literal.number(0)), is_open, exp.Null()),
        ),
        BlockScope([]),
    )


def _is_positive(node: exp.Expr) -> bool:
    """Return whether only AND and OR are around a node."""
    parent = node.parent
    while parent is not None and not isinstance(parent, exp.Where | exp.Having | exp.Query):
        if not isinstance(parent, exp.And | exp.Or | exp.Paren):
            return False
        parent = parent.parent
    return True


# -- Values ------------------------------------------------------------------------------------------------------------


def _join_value(stage: Stage, node: exp.Expr, bind_query: BindQuery, scope: BlockScope) -> TypedExpression:
    """Join with the one row of a subquery, and return its value."""
    query = _unwrap(node)
    session = stage.session
    if not isinstance(query, exp.Select) or not _is_plain(query) or len(query.expressions) != 1:
        bound = _bind_apart(stage, query, bind_query, scope)
        if len(bound.columns) != 1:
            raise make_analysis_error(
                f"a subquery that is a value has one column, and this one {len(bound.columns)}", node
            )
        own = Stage(session, bound.plan, BlockScope([]), stage.ctes)
        return _join_row(stage, Inner(own), reference(bound.columns[0].field), node)
    selected = query.expressions[0].unalias()
    inner = bind_inner(stage, query, bind_query, scope, add_condition, [selected])
    own, names = inner.stage, inner.stage.scope
    assert isinstance(names, BlockScope)  # noqa: S101
    if selected.is_star:
        raise make_analysis_error("a subquery that is a value names its column: * may be several", node)
    selected = replace_subqueries(own, selected, bind_query, names)
    if not has_aggregates(selected, session.functions):
        return _join_row(stage, inner, own.bind(selected), node, is_distinct=bool(query.args.get("distinct")))
    if inner.further:
        join_outer_values(stage, inner)
    return session.bind(_join_groups(stage, inner, [selected])[0], BlockScope([]))


def _join_row(
    stage: Stage, inner: Inner, value: TypedExpression, node: exp.Expr, *, is_distinct: bool = False
) -> TypedExpression:
    """Join with the rows of a subquery, of which there must be one at most for each row around it."""
    session = stage.session
    if inner.further:
        join_outer_values(stage, inner)
    columns = tuple((session.new_name(), each) for each in (value, *inner.inner_keys))
    plan: Plan = Project(inner.stage.plan, columns)
    if is_distinct:
        plan = distinct_rows(plan)
    first, *keys = (reference(field) for field in plan.fields)
    if any(key <= {each.name for each in keys} for key in plan.keys):
        join_left(stage, inner, plan, keys)
        return reference(stage.plan.field(first.name))
    own = replace(inner, stage=Stage(session, plan, BlockScope([]), stage.ctes), inner_keys=[*keys])
    rows, highest = _join_groups(stage, own, [_count(exp.Star()), exp.Max(this=bound_name(first, node))])
    arguments = tuple(session.bind(each, BlockScope([])) for each in (rows, highest))
    return FunctionCall("the_only_value", _take_only, arguments, first.dtype, may_be_null=True, strict=False)


def _take_only(rows: int, value: Any) -> Any:
    if rows > 1:
        raise ValueError(
            f"a subquery that is a value has {rows} rows: take an aggregate of it, such as max(...), or add conditions"
        )
    return value


def _count(of: exp.Expr) -> exp.Expr:
    return exp.Count(this=of, big_int=True)


def _join_groups(stage: Stage, inner: Inner, nodes: list[exp.Expr]) -> list[exp.Expr]:
    """Join with a row for each group of the keys of a subquery; return the expressions on its rows as ones on the result."""
    own = replace(inner.stage)
    keys: list[exp.Expr] = [bound_name(key, nodes[0]) for key in inner.inner_keys]
    grouped = bind_groups(own, keys, nodes)
    rewritten = [grouped.rewrite(node) for node in nodes]
    plan = own.plan
    assert isinstance(plan, Aggregate)  # noqa: S101
    # Equal expressions are one key; nothing is known of their order.
    join_left(stage, inner, plan, [grouped.rewrite(key).meta["bound"] for key in keys])
    joined = stage.plan
    calls = {call.name: call for call in plan.calls}

    def value_of(column: ColumnReference) -> TypedExpression:
        field = joined.field(column.name)
        call = calls.get(column.name)
        if call is not None and not call.aggregate.nullable:
            none = (
                FunctionCall("array", list, (), field.dtype)
                if pa.types.is_list(field.dtype)
                else Constant(0, field.dtype)
            )
            return Coalesce((reference(field), none), field.dtype)
        return reference(field)

    for column in (each for node in rewritten for each in node.find_all(exp.Column)):
        bound = column.meta.get("bound")
        if isinstance(bound, ColumnReference):
            column.meta["bound"] = value_of(bound)
    return rewritten
