"""The rows of a subquery, and how they depend on the rows of the query around it.

Equalities of a column of both are keys of a join. Where anything else binds them, the rows of the subquery are joined with
the distinct values that it reads of the rows around it: it then depends on these by equalities only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from streamrt.errors import SQLError
from streamrt.schema.types import has_floats
from streamrt.sql.binding.join_plans import Join
from streamrt.sql.binding.joins import bind_from
from streamrt.sql.binding.keys import align, as_key, distinct_rows, with_null
from streamrt.sql.binding.row_plans import Plan, Project
from streamrt.sql.binding.scopes import (
    BlockScope,
    Bound,
    Relation,
    bound_name,
    columns_in,
    parts_of,
    reference,
    references_of,
)
from streamrt.sql.binding.session import Session
from streamrt.sql.binding.sources import bind_source
from streamrt.sql.binding.stages import CTEs, Stage, with_columns
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.failures import make_refusal
from streamrt.sql.expressions.nodes import ColumnReference

__all__ = ["Inner", "add_keys", "bind_inner", "join_left", "join_outer_values", "refuse_outer_names"]

BindQuery = Callable[[exp.Expr, Session, CTEs], Bound]
AddCondition = Callable[[Stage, exp.Expr, BindQuery, BlockScope, str], None]
_SOURCES = ("from_", "joins", "with_")


@dataclass(eq=False)
class Inner:
    """A subquery without its list of SELECT.

    Attributes:
        stage: its rows.
        outer_keys: expressions of the query around it.
        inner_keys: expressions of the subquery that are equal to them.
        further: other conditions on both, in which each name stands for an expression.
        nulls_equal: whether keys that are NULL are equal.
    """

    stage: Stage
    outer_keys: list[TypedExpression] = field(default_factory=list)
    inner_keys: list[TypedExpression] = field(default_factory=list)
    further: list[exp.Expr] = field(default_factory=list)
    nulls_equal: bool = False

    def keys(self) -> tuple[list[TypedExpression], list[TypedExpression]]:
        """Return the keys of both sides, of which those that are NULL are equal only if they are to be."""
        return _with_nulls(self.outer_keys, self.inner_keys) if self.nulls_equal else (self.outer_keys, self.inner_keys)

    def bind_further(self) -> TypedExpression | None:
        """Return the other conditions as one, or None without any."""
        if not self.further:
            return None
        return self.stage.session.bind(exp.and_(*(each.copy() for each in self.further), wrap=True), BlockScope([]))


def bind_inner(
    stage: Stage,
    query: exp.Select,
    bind_query: BindQuery,
    scope: BlockScope,
    add_condition: AddCondition,
    items: Sequence[exp.Expr] = (),
) -> Inner:
    """Return the rows of a subquery, whose WHERE and list of SELECT may name columns around it.

    Args:
        stage: the query around it.
        query: the subquery.
        bind_query: binds queries in it.
        scope: the names around it.
        add_condition: adds a condition of WHERE, which may have subqueries, to the rows.
        items: its list of SELECT, as far as it matters.
    """
    inner, rest = bind_from(query, stage.session, stage.ctes, bind_query, scope)
    names = inner.scope
    assert isinstance(names, BlockScope)  # noqa: S101
    found = Inner(inner)
    own: list[exp.Expr] = []
    both: list[exp.Expr] = []
    deep: list[exp.Expr] = []
    for condition in rest:
        if condition.find(exp.Query) is None:
            (both if any(map(names.is_outer, columns_in(condition))) else own).append(condition)
        else:
            (deep if any(_columns_around(condition, names, inner, bind_query)) else own).append(condition)
    for condition in own:
        add_condition(inner, condition, bind_query, names, "WHERE")
    for condition in both:
        pair = _bind_pair(stage, inner, condition, scope)
        if pair is None:
            found.further.append(_bind_names(stage, inner, condition, scope))
        else:
            found.outer_keys.append(pair[0])
            found.inner_keys.append(pair[1])
    columns = [column for node in (*deep, *items) for column in _columns_around(node, names, inner, bind_query)]
    if columns:
        carried = join_outer_values(stage, found, [_bind_outer(stage, column, scope) for column in columns])
        names.carried = {
            ".".join(parts_of(column)).lower(): value for column, value in zip(columns, carried, strict=True)
        }
        for condition in deep:
            add_condition(inner, condition, bind_query, names, "WHERE")
    return found


def add_keys(inner: Inner, pairs: Sequence[tuple[TypedExpression, TypedExpression]]) -> Inner:
    """Return a subquery that is also bound by equalities of values around it and its own; NULL is equal to nothing.

    Args:
        inner: the subquery.
        pairs: the values.
    """
    lefts, rights = inner.keys()
    lefts, rights = [*lefts, *(left for left, _ in pairs)], [*rights, *(right for _, right in pairs)]
    return Inner(inner.stage, lefts, rights, inner.further)


def join_outer_values(stage: Stage, inner: Inner, more: Sequence[TypedExpression] = ()) -> list[ColumnReference]:
    """Join the rows of a subquery with the distinct values that it depends on, so that equalities of these are left.

    Args:
        stage: the query around it, which stays as it is.
        inner: the subquery, which is changed.
        more: further expressions on the rows around it that it needs.

    Returns:
        The columns of these.
    """
    session, own = stage.session, inner.stage
    own_names = {each.name for each in own.plan.fields}
    names = [column for node in inner.further for column in node.find_all(exp.Column)]
    read = [name for name in names if any(each.name not in own_names for each in references_of(name.meta["bound"]))]
    values: list[TypedExpression] = []
    for value in (*inner.outer_keys, *(name.meta["bound"] for name in read), *more):
        if value not in values:
            values.append(value)
    columns = tuple((session.new_name(), as_key(value, None)) for value in values)
    domain = distinct_rows(Project(stage.plan, columns))
    made = [reference(domain.field(name)) for name, _ in columns]
    for name in read:
        name.meta["bound"] = made[values.index(name.meta["bound"])]
    left_on = tuple(made[values.index(key)].name for key in inner.outer_keys)
    right, right_on = with_columns(own.plan, inner.inner_keys, session)
    own.plan = Join(domain, right, "inner", left_on, tuple(right_on), inner.bind_further())
    inner.outer_keys, inner.inner_keys, inner.further, inner.nulls_equal = values, [*made], [], True
    return [made[values.index(value)] for value in more]


def join_left(stage: Stage, inner: Inner, right: Plan, keys: Sequence[TypedExpression]) -> None:
    """Join the rows of a query with what a subquery has for each of its keys.

    Args:
        stage: the query, which gets the columns.
        inner: the subquery, without other conditions.
        right: a row for each of its keys.
        keys: the columns of these keys.
    """
    session = stage.session
    lefts, rights = replace(inner, inner_keys=[*keys]).keys()
    left, left_on = with_columns(stage.plan, lefts, session)
    right, right_on = with_columns(right, rights, session)
    stage.plan = Join(left, right, "left", tuple(left_on), tuple(right_on))


def _with_nulls(
    lefts: Sequence[TypedExpression], rights: Sequence[TypedExpression]
) -> tuple[list[TypedExpression], list[TypedExpression]]:
    """Return keys of both sides of which those that are NULL are equal."""
    may_be_null = [left.nullable or right.nullable for left, right in zip(lefts, rights, strict=True)]
    sides = [as_key(left, None) for left in lefts], rights
    one, other = (
        [with_null(key) if nullable else key for key, nullable in zip(side, may_be_null, strict=True)] for side in sides
    )
    return one, other


def _bind_outer(stage: Stage, node: exp.Expr, scope: BlockScope) -> TypedExpression:
    """Return an expression on the rows around a subquery, which are groups once they are grouped."""
    return stage.session.bind(node, scope) if stage.rewrite is None else stage.bind(stage.rewrite(node))


def _bind_pair(
    stage: Stage, inner: Stage, condition: exp.Expr, scope: BlockScope
) -> tuple[TypedExpression, TypedExpression] | None:
    """Return the sides of an equality of a value around a subquery and one in it, or None."""
    names = inner.scope
    assert isinstance(names, BlockScope)  # noqa: S101
    if not isinstance(condition, exp.EQ | exp.NullSafeEQ):
        return None
    for outer, own in ((condition.left, condition.right), (condition.right, condition.left)):
        outers = [names.is_outer(column) for column in columns_in(outer)]
        owns = [names.has(column) for column in columns_in(own)]
        if not (outers and all(outers) and owns and all(owns)):
            continue
        left, right = align(_bind_outer(stage, outer, scope), inner.bind(own), condition)
        if isinstance(condition, exp.EQ):
            return left, right
        return None if has_floats(left.dtype) else (with_null(left), with_null(right))
    return None


def _bind_names(stage: Stage, inner: Stage, condition: exp.Expr, scope: BlockScope) -> exp.Expr:
    """Return a condition in which each name stands for an expression on the rows around a subquery, or on its own."""
    names = inner.scope
    assert isinstance(names, BlockScope)  # noqa: S101
    condition = exp.Paren(this=condition.copy())
    for column in list(columns_in(condition)):
        if names.has(column):
            column.replace(bound_name(names.resolve_column(column), column))
    if stage.rewrite is not None:
        condition = stage.rewrite(condition)
    for column in list(columns_in(condition)):
        if "bound" not in column.meta:
            column.replace(bound_name(_bind_outer(stage, column, scope), column))
    return condition


def refuse_outer_names(stage: Stage, query: exp.Expr, bind_query: BindQuery, scope: BlockScope, what: str) -> None:
    """Refuse a query that names columns around it where it must not.

    Args:
        stage: the query around it.
        query: the query.
        bind_query: binds queries in it.
        scope: the names around it.
        what: why it must not, and what to write.
    """
    column = next(_columns_around(query, BlockScope([], scope), stage, bind_query), None)
    if column is not None:
        raise make_refusal(f"{'.'.join(parts_of(column))} is of the query around this one: {what}", column)


def _columns_around(node: exp.Expr, names: BlockScope, stage: Stage, bind_query: BindQuery) -> Iterator[exp.Column]:
    """Yield the names in an expression, also in its subqueries, that stand for something of the query around `names`."""
    return _find_around(node, [names], stage, bind_query)


def _find_around(node: exp.Expr, scopes: list[BlockScope], stage: Stage, bind_query: BindQuery) -> Iterator[exp.Column]:
    for column in columns_in(node):
        if not any(scope.has(column) for scope in scopes) and scopes[0].is_outer(column):
            yield column
    around = node.find_ancestor(exp.Select)
    for query in node.find_all(exp.Select):
        if query.find_ancestor(exp.Select) is around:
            inner = BlockScope(_read_relations(query, stage, bind_query), scopes[-1])
            parts = [part for name, value in query.args.items() if name not in _SOURCES for part in _listed(value)]
            for part in parts:
                yield from _find_around(part, [*scopes, inner], stage, bind_query)


def _listed(value: Any) -> list[exp.Expr]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, exp.Expr)]


def _read_relations(query: exp.Select, stage: Stage, bind_query: BindQuery) -> list[Relation]:
    """Return the relations of the FROM of a query within a subquery; none if it has an error, which binding will tell."""
    source = query.args.get("from_")
    if source is None:
        return []
    items = [source.this, *(join.this for join in query.args.get("joins") or [])]
    try:
        return [bind_source(item, stage.session, stage.ctes, bind_query) for item in items]
    except SQLError:
        return []
