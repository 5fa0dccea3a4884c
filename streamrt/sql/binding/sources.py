"""What stands in FROM: tables, views, frames, queries, and functions of windows."""

from collections.abc import Callable, Sequence

from sqlglot import exp

from streamrt.sql.binding.row_plans import Field, Project
from streamrt.sql.binding.scopes import BlockScope, Bound, NamedColumn, Relation, reference
from streamrt.sql.binding.session import Session
from streamrt.sql.binding.stages import CTEs, Stage
from streamrt.sql.binding.values import bind_values
from streamrt.sql.binding.windows import add_window_columns, read_window_call, read_window_function
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal

__all__ = ["CommonTable", "bind_source", "relabel"]

BindQuery = Callable[[exp.Expr, Session, CTEs], Bound]


class CommonTable:
    """A query of WITH. Each use of it is the same relation.

    Args:
        query: the query.
        columns: the names that WITH gives to its columns.
        ctes: the queries of WITH before it.
    """

    def __init__(self, query: exp.Expr, columns: Sequence[exp.Identifier], ctes: CTEs) -> None:
        self._query = query
        self._columns = columns
        self._ctes = ctes
        self._bound: Bound | None = None

    def bind(self, session: Session, bind_query: BindQuery) -> Bound:
        """Return the relation."""
        if self._bound is None:
            self._bound = rename_columns(bind_query(self._query, session, self._ctes), self._columns)
        return self._bound


def bind_source(node: exp.Expr, session: Session, ctes: CTEs, bind_query: BindQuery) -> Relation:
    """Return the relation that an item of FROM stands for.

    Args:
        node: the item.
        session: what it is bound with.
        ctes: the queries of WITH.
        bind_query: binds a query in it.
    """
    for name, words in (("sample", "TABLESAMPLE"), ("pivots", "PIVOT"), ("hints", "a hint")):
        if node.args.get(name):
            raise make_refusal(f"{words} has no place in a query that is kept up to date: leave it out", node)
    alias = node.args.get("alias")
    if isinstance(node, exp.Subquery):
        bound = bind_query(node, session, ctes)
        return _make_relation(bound, alias, (), "a query in FROM", node)
    if isinstance(node, exp.Table):
        return _bind_table(node, session, ctes, bind_query)
    if isinstance(node, exp.Values):
        return _make_relation(bind_values(node, session), alias, (), "VALUES", node)
    raise make_refusal(
        "FROM takes tables, views, queries in parentheses, VALUES, {frame}, TUMBLE, HOP and LATERAL VIEW explode", node
    )


def _bind_table(node: exp.Table, session: Session, ctes: CTEs, bind_query: BindQuery) -> Relation:
    alias = node.args.get("alias")
    version = node.args.get("version")
    what = node.this
    if isinstance(what, exp.Placeholder):
        name = what.name if isinstance(what.this, str) else what.this.name
        bound = session.sources.find_frame(name, node)
        return _make_relation(bound, alias, ((name.lower(),),), f"{{{name}}}", node, version)
    if isinstance(what, exp.Anonymous | exp.Func):
        return _bind_function(node, session, ctes, bind_query)
    parts = [part.name for part in node.parts]
    name = ".".join(parts)
    common = ctes.get(name.lower())
    bound = (
        common.bind(session, bind_query)
        if isinstance(common, CommonTable)
        else session.sources.find_relation(name, node)
    )
    lowered = tuple(part.lower() for part in parts)
    names = tuple(lowered[start:] for start in range(len(lowered)))[::-1]
    return _make_relation(bound, alias, names, name, node, version)


def _bind_function(node: exp.Table, session: Session, ctes: CTEs, bind_query: BindQuery) -> Relation:
    function = read_window_function(node.this)
    relation = bind_source(function.source, session, ctes, bind_query)
    stage = Stage(session, relation.plan, BlockScope([relation]), ctes)
    window = read_window_call(function.name, stage.bind(function.time), function.durations, function.call)
    fields = add_window_columns(stage, window)
    columns = (
        *relation.columns,
        *(
            NamedColumn(title, field)
            for title, field in zip(("window_start", "window_end", "window_time"), fields, strict=True)
        ),
    )
    title = f"{function.name.upper()}(...)"
    return _make_relation(Bound(stage.plan, columns), node.args.get("alias"), relation.names, title, node)


def _make_relation(
    bound: Bound,
    alias: exp.TableAlias | None,
    names: tuple[tuple[str, ...], ...],
    title: str,
    node: exp.Expr,
    version: exp.Expr | None = None,
) -> Relation:
    if alias is not None and alias.columns:
        bound = rename_columns(bound, alias.columns)
    if alias is not None and alias.name:
        names, title = ((alias.name.lower(),),), alias.name
    # A query without a name has columns that only their own names find.
    return Relation(names or (("",),), bound.columns, bound.plan, title, version)


def rename_columns(bound: Bound, names: Sequence[exp.Identifier]) -> Bound:
    """Return a relation with other names of its columns.

    Args:
        bound: the relation.
        names: the names; none for those that it has.
    """
    if not names:
        return bound
    if len(names) != len(bound.columns):
        raise make_analysis_error(f"there are {len(names)} names, and {len(bound.columns)} columns", names[0])
    columns = tuple(NamedColumn(name.name, column.field) for name, column in zip(names, bound.columns, strict=True))
    return Bound(bound.plan, columns)


def relabel(relation: Relation, session: Session) -> None:
    """Give the columns of a relation names in rows that no other relation of the query has."""
    label = session.new_label(relation.names[0][-1] or "q")
    fields = {column.field.name: f"{label}.{column.field.name}" for column in relation.columns}
    plan = Project(relation.plan, tuple((name, reference(relation.plan.field(own))) for own, name in fields.items()))
    relation.plan = plan
    relation.columns = tuple(
        NamedColumn(
            column.name,
            Field(fields[column.field.name], column.field.dtype, column.field.nullable),
            column.in_star,
        )
        for column in relation.columns
    )
