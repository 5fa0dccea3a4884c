"""Subqueries in expressions, taken apart into joins.

| subquery | becomes |
|---|---|
| `EXISTS`, `IN`, `NOT EXISTS`, `NOT IN` as a condition of WHERE or HAVING | a semi or anti join |
| the same within OR, CASE or the list of SELECT | a left join with the distinct keys |
| a scalar aggregate, correlated by equalities or not | a left join with a row for each group of the correlated columns |

Where the row of an aggregate is missing, counts are 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.binding.group_plans import Aggregate, Call, Distinct
from streamrt.sql.binding.grouping import bind_groups, has_aggregates
from streamrt.sql.binding.join_plans import Join, JoinHow
from streamrt.sql.binding.joins import bind_from
from streamrt.sql.binding.keys import align
from streamrt.sql.binding.row_plans import Plan, Project
from streamrt.sql.binding.scopes import BlockScope, Bound, bound_name, columns_in, reference
from streamrt.sql.binding.session import Session
from streamrt.sql.binding.stages import CTEs, Stage, keep_columns, with_columns
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.calls import FunctionCall
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.logic import Coalesce, IsNull, Or
from streamrt.sql.expressions.nodes import ColumnReference, Constant

__all__ = ["add_condition", "replace_subqueries"]

BindQuery = Callable[[exp.Expr, Session, CTEs], Bound]


@dataclass(eq=False)
class _Inner:
    """A subquery without its list of SELECT.

    Attributes:
        stage: its rows.
        outer_keys: expressions of the query around it.
        inner_keys: expressions of the subquery that are equal to them.
        residual: other conditions on both.
        select: the subquery.
    """

    stage: Stage
    outer_keys: list[TypedExpression]
    inner_keys: list[TypedExpression]
    residual: list[exp.Expr]
    select: exp.Select


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
            value = _join_scalar(stage, each, bind_query, scope)
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


def _bind_inner(stage: Stage, query: exp.Expr, bind_query: BindQuery, scope: BlockScope) -> _Inner | None:
    """Return the rows of a subquery whose WHERE may name columns around it; None if it is another query than that."""
    query = _unwrap(query)
    plain = isinstance(query, exp.Select) and not any(
        query.args.get(each)
        for each in ("with_", "group", "having", "qualify", "distinct", "limit", "order", "windows")
    )
    if not plain or not isinstance(query, exp.Select):
        return None
    return _bind_correlated(stage, query, bind_query, scope)


def _bind_correlated(stage: Stage, query: exp.Select, bind_query: BindQuery, scope: BlockScope) -> _Inner:
    inner, rest = bind_from(query, stage.session, stage.ctes, bind_query, scope)
    names = inner.scope
    assert isinstance(names, BlockScope)  # noqa: S101
    outer_keys: list[TypedExpression] = []
    inner_keys: list[TypedExpression] = []
    residual: list[exp.Expr] = []
    for condition in rest:
        is_outer = [names.is_outer(column) for column in columns_in(condition)]
        if not any(is_outer):
            add_condition(inner, condition, bind_query, names, "WHERE")
            continue
        if condition.find(exp.Query) is not None:
            raise make_refusal(
                "a condition with columns of the query around it has no subquery of its own here", condition
            )
        pair = _split(condition, names)
        if pair is None:
            residual.append(condition)
            continue
        outer, own = _bind_outer(stage, pair[0], scope), stage.session.bind(pair[1], names)
        outer, own = align(outer, own, condition)
        outer_keys.append(outer)
        inner_keys.append(own)
    return _Inner(inner, outer_keys, inner_keys, residual, query)


def _bind_outer(stage: Stage, node: exp.Expr, scope: BlockScope) -> TypedExpression:
    """Return an expression on the rows around a subquery, which are groups once they are grouped."""
    return stage.session.bind(node, scope) if stage.rewrite is None else stage.bind(stage.rewrite(node))


def _split(condition: exp.Expr, names: BlockScope) -> tuple[exp.Expr, exp.Expr] | None:
    """Return the sides of an equality of a column around a subquery and one in it, or None."""
    if not isinstance(condition, exp.EQ):
        return None
    for outer, own in ((condition.left, condition.right), (condition.right, condition.left)):
        outers = [names.is_outer(column) for column in columns_in(outer)]
        owns = [names.has(column) for column in columns_in(own)]
        if outers and all(outers) and owns and all(owns):
            return outer, own
    return None


class _BothScopes:
    """Names of a subquery, and of the query around it.

    Args:
        inner: the names of the subquery, which come first.
        outer: the names around it.
    """

    def __init__(self, inner: BlockScope, outer: BlockScope) -> None:
        self._inner = inner
        self._outer = outer

    def resolve_column(self, column: exp.Column) -> TypedExpression:
        """Return what a name stands for."""
        return (self._inner if self._inner.has(column) else self._outer).resolve_column(column)


def _join_exists(stage: Stage, node: exp.Exists, bind_query: BindQuery, scope: BlockScope, *, negated: bool) -> None:
    inner = _bind_inner(stage, node.this, bind_query, scope)
    how: JoinHow = "anti" if negated else "semi"
    if inner is None:
        bound = bind_query(node.this, stage.session, stage.ctes)
        stage.plan = Join(stage.plan, keep_columns(bound.plan, [bound.plan.fields[0].name]), how, (), ())
        return
    if any(has_aggregates(each, stage.session.functions) for each in inner.select.expressions):
        raise make_refusal("EXISTS of an aggregate without GROUP BY is always TRUE: leave it out", node)
    _semi_join(stage, inner, scope, how)


def _semi_join(stage: Stage, inner: _Inner, scope: BlockScope, how: JoinHow) -> None:
    condition = None
    names = inner.stage.scope
    assert isinstance(names, BlockScope)  # noqa: S101
    if inner.residual:
        if stage.rewrite is not None:
            raise make_refusal(
                "after GROUP BY, a subquery is bound to the query around it by equalities only: column = outer.column",
                inner.residual[0],
            )
        condition = stage.session.bind(
            exp.and_(*(each.copy() for each in inner.residual), wrap=True), _BothScopes(names, scope)
        )
    left, left_on = with_columns(stage.plan, inner.outer_keys, stage.session)
    right, right_on = with_columns(inner.stage.plan, inner.inner_keys, stage.session)
    kept = [field.name for field in stage.plan.fields]
    plan: Plan = Join(left, right, how, tuple(left_on), tuple(right_on), condition)
    stage.plan = keep_columns(plan, kept)


def _values_of_in(node: exp.In) -> list[exp.Expr]:
    return list(node.this.expressions) if isinstance(node.this, exp.Tuple) else [node.this]


def _join_in(stage: Stage, node: exp.In, bind_query: BindQuery, scope: BlockScope, *, negated: bool) -> None:
    """Join with a query whose column has, or has not, the value."""
    values = [stage.bind(replace_subqueries(stage, each, bind_query, scope)) for each in _values_of_in(node)]
    inner, columns = _bind_list(stage, node, bind_query, scope, len(values))
    pairs = [align(value, column, node) for value, column in zip(values, columns, strict=True)]
    may_be_null = any(value.nullable for value in values) or any(column.nullable for column in columns)
    if negated and may_be_null:
        _join_not_in(stage, inner, scope, pairs, node)
        return
    inner.outer_keys += [left for left, _ in pairs]
    inner.inner_keys += [right for _, right in pairs]
    _semi_join(stage, inner, scope, "anti" if negated else "semi")


def _bind_list(
    stage: Stage, node: exp.In, bind_query: BindQuery, scope: BlockScope, count: int
) -> tuple[_Inner, list[TypedExpression]]:
    """Return the rows of the query of IN, and its columns."""
    query = node.args["query"]
    inner = _bind_inner(stage, query, bind_query, scope)
    columns: list[TypedExpression]
    if inner is not None and not any(
        has_aggregates(each, stage.session.functions) for each in inner.select.expressions
    ):
        nodes = inner.select.expressions
        if any(each.is_star for each in nodes):
            inner = None
        else:
            columns = [
                inner.stage.bind(replace_subqueries(inner.stage, each.unalias(), bind_query, inner.stage.scope))  # type: ignore[arg-type]
                for each in nodes
            ]
    else:
        inner = None
    if inner is None:
        bound = bind_query(query, stage.session, stage.ctes)
        fields = [(stage.session.new_name(), column.field) for column in bound.columns]
        plan = Project(bound.plan, tuple((name, reference(field)) for name, field in fields))
        own = Stage(stage.session, plan, BlockScope([]), stage.ctes)
        inner = _Inner(own, [], [], [], exp.Select())
        columns = [reference(plan.field(name)) for name, _ in fields]
    if len(columns) != count:
        raise make_analysis_error(f"IN compares {count} values with a query of {len(columns)} columns", node)
    return inner, columns


def _join_not_in(
    stage: Stage,
    inner: _Inner,
    scope: BlockScope,
    pairs: list[tuple[TypedExpression, TypedExpression]],
    node: exp.In,
) -> None:
    """Join for NOT IN where NULL may be on either side: it is TRUE if the query has no rows, and never if it has NULL."""
    if inner.outer_keys or inner.residual or len(pairs) != 1:
        raise make_refusal(
            "NOT IN with columns that may be NULL, and a query that depends on the rows around it, is refused: write "
            "NOT EXISTS (SELECT ... WHERE a.column = b.column)",
            node,
        )
    session = stage.session
    rows, known = session.new_name(), session.new_name()
    value = pairs[0][1]
    total = _count_rows(inner.stage, value, (rows, known))
    kept = [field.name for field in stage.plan.fields]
    own = pairs[0][0]
    inner.outer_keys, inner.inner_keys = [own], [value]
    stage.plan, names = with_columns(stage.plan, [own], session)
    carried = stage.plan
    _semi_join(stage, replace_key(inner, reference(carried.field(names[0]))), scope, "anti")
    plan = Join(stage.plan, total, "left", (), ())
    none = Constant(0, pa.int64())
    count = Coalesce((reference(plan.field(rows)), none), pa.int64())
    present = Coalesce((reference(plan.field(known)), none), pa.int64())
    is_empty = _equal(session, count, none)
    all_known = _equal(session, count, present)
    condition = Or((is_empty, _and(session, all_known, IsNull(reference(plan.field(names[0])), negated=True))))
    stage.plan = plan
    stage.filter(condition)
    stage.plan = keep_columns(stage.plan, kept)


def replace_key(inner: _Inner, key: TypedExpression) -> _Inner:
    """Return a subquery that is compared with another expression."""
    inner.outer_keys = [key]
    return inner


def _count_rows(stage: Stage, value: TypedExpression, names: tuple[str, str]) -> Plan:
    """Return one row: the number of rows, and of those whose value is not NULL."""
    plan, columns = with_columns(stage.plan, [value], stage.session)
    scope = stage.scope
    everything = stage.session.bind_aggregate(exp.Count(this=exp.Star(), big_int=True), scope)
    column = bound_name(reference(plan.field(columns[0])), exp.Null())
    known = stage.session.bind_aggregate(exp.Count(this=column, big_int=True), scope)
    arguments = tuple((stage.session.new_name(), each) for call in (everything, known) for each in call.arguments)
    first = tuple(name for name, _ in arguments[: len(everything.arguments)])
    second = tuple(name for name, _ in arguments[len(everything.arguments) :])
    calls = (
        Call(names[0], everything, first, str(everything)),
        Call(names[1], known, second, str(known)),
    )
    return Aggregate(Project(plan, arguments), (), calls)


def _equal(session: Session, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    node = exp.EQ(this=bound_name(left, exp.Null()), expression=bound_name(right, exp.Null()))
    return session.bind(node, BlockScope([]))


def _and(session: Session, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    node = exp.And(this=bound_name(left, exp.Null()), expression=bound_name(right, exp.Null()))
    return session.bind(node, BlockScope([]))


def _join_mark(
    stage: Stage, node: exp.Expr, bind_query: BindQuery, scope: BlockScope, *, is_condition: bool
) -> TypedExpression:
    """Join with the distinct keys of a subquery; return whether there is one for a row."""
    session = stage.session
    values: list[TypedExpression] = []
    columns: list[TypedExpression] = []
    if isinstance(node, exp.In):
        values = [stage.bind(replace_subqueries(stage, each, bind_query, scope)) for each in _values_of_in(node)]
        inner, columns = _bind_list(stage, node, bind_query, scope, len(values))
        may_be_null = any(each.nullable for each in (*values, *columns))
        if may_be_null and not (is_condition and _is_positive(node)):
            raise make_refusal(
                "IN with a query whose values may be NULL is a condition of WHERE, or one side of OR there: its NULL has no "
                "place in other expressions",
                node,
            )
    else:
        found = _bind_inner(stage, node.this, bind_query, scope)
        if found is None:
            raise make_refusal("EXISTS within another expression has a plain SELECT, without GROUP BY and LIMIT", node)
        inner = found
    if inner.residual:
        raise make_refusal(
            "a subquery within OR, CASE or SELECT is bound to the query around it by equalities only: column = outer.column",
            inner.residual[0],
        )
    pairs = [align(value, column, node) for value, column in zip(values, columns, strict=True)]
    outer_keys = [*inner.outer_keys, *(left for left, _ in pairs)]
    inner_keys = [*inner.inner_keys, *(right for _, right in pairs)]
    mark = session.new_name()
    names = [session.new_name() for _ in inner_keys]
    keys = Project(
        inner.stage.plan,
        (*zip(names, inner_keys, strict=True), (mark, Constant(value=True, type=pa.bool_()))),
    )
    stage.plan, left_on = with_columns(stage.plan, outer_keys, session)
    stage.plan = Join(stage.plan, Distinct(keys), "left", tuple(left_on), tuple(names))
    return IsNull(reference(stage.plan.field(mark)), negated=True)


def _is_positive(node: exp.Expr) -> bool:
    """Return whether only AND and OR are around a node."""
    parent = node.parent
    while parent is not None and not isinstance(parent, exp.Where | exp.Having | exp.Query):
        if not isinstance(parent, exp.And | exp.Or | exp.Paren):
            return False
        parent = parent.parent
    return True


# -- Scalar subqueries -------------------------------------------------------------------------------------------------


def _join_scalar(stage: Stage, node: exp.Expr, bind_query: BindQuery, scope: BlockScope) -> TypedExpression:
    """Join with the one row of a subquery, and return its value."""
    query = _unwrap(node)
    if (
        isinstance(query, exp.Select)
        and len(query.expressions) == 1
        and has_aggregates(query.expressions[0], stage.session.functions)
        and not any(query.args.get(each) for each in ("with_", "group", "having", "qualify", "distinct", "limit"))
    ):
        return _join_aggregate(stage, query, bind_query, scope)
    bound = bind_query(query, stage.session, stage.ctes)
    if len(bound.columns) != 1:
        raise make_analysis_error(f"a subquery that is a value has one column, and this one {len(bound.columns)}", node)
    if frozenset() not in bound.plan.keys:
        raise make_refusal(
            "this subquery may have several rows, and a value is one: take an aggregate of it, such as max(...)", node
        )
    name = stage.session.new_name()
    plan = Project(bound.plan, ((name, reference(bound.columns[0].field)),))
    stage.plan = Join(stage.plan, plan, "left", (), ())
    return reference(stage.plan.field(name))


def _join_aggregate(stage: Stage, query: exp.Select, bind_query: BindQuery, scope: BlockScope) -> TypedExpression:
    inner = _bind_correlated(stage, query, bind_query, scope)
    if inner.residual:
        raise make_refusal(
            "a subquery that is a value is bound to the query around it by equalities only: column = outer.column",
            inner.residual[0],
        )
    session, own = stage.session, inner.stage
    selected = query.expressions[0].unalias()
    selected = replace_subqueries(own, selected, bind_query, own.scope)  # type: ignore[arg-type]
    keys = [bound_name(key, selected) for key in inner.inner_keys]
    grouped = bind_groups(own, list(keys), [selected])
    rewritten = grouped.rewrite(selected)
    plan = own.plan
    assert isinstance(plan, Aggregate)  # noqa: S101
    # Equal expressions are one key; nothing is known of their order.
    outer_on = list(inner.outer_keys)
    right_on = [_key_column(grouped.rewrite(key)) for key in keys]
    stage.plan, left_on = with_columns(stage.plan, outer_on, session)
    stage.plan = Join(stage.plan, plan, "left", tuple(left_on), tuple(right_on))
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

    for column in rewritten.find_all(exp.Column):
        bound = column.meta.get("bound")
        if isinstance(bound, ColumnReference):
            column.meta["bound"] = value_of(bound)
    return session.bind(rewritten, BlockScope([]))


def _key_column(node: exp.Expr) -> str:
    bound = node.meta["bound"]
    assert isinstance(bound, ColumnReference)  # noqa: S101
    return bound.name
