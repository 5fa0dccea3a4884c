"""Queries: SELECT, set operations and WITH, from their text to a plan."""

from collections.abc import Sequence

from sqlglot import exp

from streamrt.sql.binding.expanding import bind_laterals, bind_projected_explode
from streamrt.sql.binding.grouping import bind_groups, find_aggregates, has_aggregates
from streamrt.sql.binding.grouping_sets import Sets, read_sets
from streamrt.sql.binding.join_plans import SetOperation, Union
from streamrt.sql.binding.joins import bind_from
from streamrt.sql.binding.keys import distinct_rows
from streamrt.sql.binding.overs import add_over
from streamrt.sql.binding.ranking import add_rank, add_top, filter_plan, rank_method, read_number
from streamrt.sql.binding.refusals import refuse_clauses
from streamrt.sql.binding.row_plans import Plan, Project
from streamrt.sql.binding.scopes import BlockScope, Bound, NamedColumn, Relation, bound_name, reference
from streamrt.sql.binding.session import Session
from streamrt.sql.binding.sources import CommonTable
from streamrt.sql.binding.stages import CTEs, Stage, conjuncts, keep_columns
from streamrt.sql.binding.subqueries import add_condition, replace_subqueries
from streamrt.sql.binding.values import bind_values
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.casts import cast_to
from streamrt.sql.expressions.coercion import common_type, describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal

__all__ = ["bind_query"]


def bind_query(node: exp.Expr, session: Session, ctes: CTEs) -> Bound:
    """Return a query as a plan, and its columns.

    Args:
        node: the query.
        session: what it is bound with.
        ctes: the queries of WITH around it.
    """
    ctes = _read_with(node, ctes)
    if isinstance(node, exp.Subquery):
        inner = bind_query(node.this, session, ctes)
        return _limit(inner, node, session, ctes)
    if isinstance(node, exp.SetOperation):
        return _limit(_bind_set_operation(node, session, ctes), node, session, ctes)
    if isinstance(node, exp.Select):
        return _Block(node, session, ctes).bind()
    if isinstance(node, exp.Values):
        return bind_values(node, session)
    raise make_refusal("a query was expected: SELECT, or queries combined by UNION, INTERSECT or EXCEPT", node)


def _read_with(node: exp.Expr, ctes: CTEs) -> CTEs:
    clause = node.args.get("with_")
    if clause is None:
        return ctes
    if clause.args.get("recursive"):
        raise make_refusal(
            "WITH RECURSIVE is refused: a result that depends on itself has no end that could be kept", clause
        )
    ctes = dict(ctes)
    for each in clause.expressions:
        alias = each.args["alias"]
        ctes[alias.name.lower()] = CommonTable(each.this, alias.columns, dict(ctes))
    return ctes


# -- Set operations ----------------------------------------------------------------------------------------------------


def _bind_set_operation(node: exp.SetOperation, session: Session, ctes: CTEs) -> Bound:
    if node.args.get("by_name"):
        raise make_refusal("BY NAME is refused: list the columns of both queries in the same order", node)
    # A long chain of UNION is deep to the left.
    chain: list[exp.SetOperation] = []
    first: exp.Expr = node
    while isinstance(first, exp.SetOperation) and (first is node or not first.args.get("with_")):
        chain.append(first)
        first = first.this
    bounds = [bind_query(first, session, ctes)]
    waiting: exp.SetOperation | None = None
    for operation in reversed(chain):
        if waiting is not None and not _continues(waiting, operation):
            bounds = [_combine(waiting, bounds, session)]
        waiting = operation
        bounds.append(bind_query(operation.expression, session, ctes))
    assert waiting is not None  # noqa: S101 - the node itself is one
    return _combine(waiting, bounds, session)


def _continues(former: exp.SetOperation, operation: exp.SetOperation) -> bool:
    """Return whether two operations, one after the other, are one of several queries."""
    both = isinstance(former, exp.Union) and isinstance(operation, exp.Union)
    return both and bool(former.args.get("distinct")) is bool(operation.args.get("distinct"))


def _combine(node: exp.SetOperation, bounds: Sequence[Bound], session: Session) -> Bound:
    word, first = type(node).__name__.upper(), bounds[0]
    for bound in bounds[1:]:
        if len(first.columns) != len(bound.columns):
            raise make_analysis_error(
                f"{word} combines {len(first.columns)} columns with {len(bound.columns)}: both queries need as many",
                node,
            )
    names = [session.new_name() for _ in first.columns]
    dtypes = [column.field.dtype for column in first.columns]
    for bound in bounds[1:]:
        for number, (one, other) in enumerate(zip(first.columns, bound.columns, strict=True)):
            dtype = common_type(dtypes[number], other.field.dtype)
            if dtype is None:
                raise make_analysis_error(
                    f"{word} combines {one.name}, {describe_type(dtypes[number])}, with {other.name}, "
                    f"{describe_type(other.field.dtype)}: cast one of them",
                    node,
                )
            dtypes[number] = dtype
    plans = [
        Project(
            bound.plan,
            tuple(
                (name, cast_to(reference(column.field), dtype))
                for name, column, dtype in zip(names, bound.columns, dtypes, strict=True)
            ),
        )
        for bound in bounds
    ]
    plan: Plan
    if isinstance(node, exp.Union):
        plan = Union(tuple(plans))
        if node.args.get("distinct"):
            plan = distinct_rows(plan)
    else:
        kind = "intersect" if isinstance(node, exp.Intersect) else "except"
        plan = SetOperation(plans[0], plans[1], kind, counts=not node.args.get("distinct"))  # type: ignore[arg-type]
    columns = tuple(
        NamedColumn(column.name, plan.field(name)) for column, name in zip(first.columns, names, strict=True)
    )
    return Bound(plan, columns)


def _limit(bound: Bound, node: exp.Expr, session: Session, ctes: CTEs) -> Bound:
    """Return the first rows of a set operation, or of a query in parentheses."""
    order, limit = node.args.get("order"), node.args.get("limit")
    if order is None and limit is None and node.args.get("offset") is None:
        return bound
    limits = _read_limit(node)
    scope = BlockScope([Relation((("",),), bound.columns, bound.plan, "the query")])
    stage = Stage(session, bound.plan, scope, ctes)
    columns = [bound_name(reference(column.field), node) for column in bound.columns]
    add_top(stage, _ordinals(order.expressions if order is not None else [], columns), *limits)
    return Bound(keep_columns(stage.plan, [field.name for field in bound.plan.fields]), bound.columns)


def _ordinals(order: Sequence[exp.Expr], columns: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the expressions of ORDER BY, with columns in place of their numbers."""
    found = []
    for each in order:
        inner = each.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            number = int(inner.name) if inner.name.isdigit() else 0
            if not 1 <= number <= len(columns):
                raise make_analysis_error(f"ORDER BY {inner.name}: there are {len(columns)} columns", inner)
            each = each.copy()
            each.set("this", columns[number - 1].copy())
        found.append(each)
    return found


def _read_limit(node: exp.Expr) -> tuple[int, int]:
    """Return the numbers of LIMIT and OFFSET; refuse LIMIT without ORDER BY, and the other way round."""
    order, limit, offset = (node.args.get(each) for each in ("order", "limit", "offset"))
    if limit is None and offset is not None:
        raise make_refusal("OFFSET without LIMIT keeps all rows but a few: add LIMIT", offset)
    if limit is None:
        raise make_refusal(
            "ORDER BY of a view has no meaning while rows keep coming: order the result when you query it, by "
            'app.query("SELECT ... ORDER BY ..."), or add LIMIT to keep the first rows',
            order,
        )
    if order is None:
        raise make_refusal("LIMIT without ORDER BY keeps any rows: add ORDER BY", limit)
    if isinstance(limit, exp.Fetch):
        raise make_refusal("FETCH is refused: write LIMIT", limit)
    return _read_bounded(limit, "LIMIT", 1), 0 if offset is None else _read_bounded(offset, "OFFSET", 0)


def _read_bounded(clause: exp.Expr, word: str, least: int) -> int:
    value = read_number(clause.expression)
    if value is None or value < least:
        raise make_analysis_error(f"{word} needs a number of {least} or more", clause)
    return value


# -- SELECT ------------------------------------------------------------------------------------------------------------


class _Block:
    """Binds one SELECT."""

    def __init__(self, select: exp.Select, session: Session, ctes: CTEs) -> None:
        refuse_clauses(select)
        self._select = select
        self._session = session
        self._ctes = ctes
        self._overs: dict[tuple[str, tuple[str, ...]], TypedExpression] = {}
        self._named_windows = {
            each.name.lower(): each for each in select.args.get("windows") or [] if isinstance(each, exp.Window)
        }

    def bind(self) -> Bound:
        """Return the query as a plan."""
        select, session, ctes = self._select, self._session, self._ctes
        stage, rest = bind_from(select, session, ctes, bind_query, None)
        scope = stage.scope
        assert isinstance(scope, BlockScope)  # noqa: S101
        bind_laterals(stage, select)
        for condition in rest:
            self._add_condition(stage, condition, scope, "WHERE")
        items = self._read_items(scope)
        items = bind_projected_explode(stage, items)
        order = self._read_order(items)
        having, qualify = select.args.get("having"), select.args.get("qualify")
        group, sets = self._read_groups(items)
        conditions = [each.this for each in (having, qualify) if each is not None]
        conditions = [_with_aliases(each, items, scope) for each in conditions]
        items = [(name, self._replace_in_aggregates(stage, node, scope)) for name, node in items]
        conditions, order = (
            [self._replace_in_aggregates(stage, node, scope) for node in each] for each in (conditions, order)
        )
        nodes = [*(node for _, node in items), *conditions, *order]
        if group is not None or any(has_aggregates(each, self._session.functions) for each in nodes):
            grouped = bind_groups(stage, group or [], nodes, sets)
            items = [(name, grouped.rewrite(node)) for name, node in items]
            conditions = [grouped.rewrite(node) for node in conditions]
            order = [grouped.rewrite(node) for node in order]
        elif having is not None:
            raise make_analysis_error("HAVING needs GROUP BY or an aggregate: write WHERE", having)
        if having is not None:
            for condition in conjuncts(conditions[0]):
                self._add_condition(stage, condition, scope, "HAVING")
        items = [(name, self._bind_overs(stage, node)) for name, node in items]
        if qualify is not None:
            for condition in conjuncts(self._bind_overs(stage, conditions[-1])):
                self._add_condition(stage, condition, scope, "QUALIFY")
        items = [(name, replace_subqueries(stage, node, bind_query, scope)) for name, node in items]
        return self._project(stage, items, order)

    def _add_condition(self, stage: Stage, condition: exp.Expr, scope: BlockScope, clause: str) -> None:
        if find_aggregates(condition, self._session.functions) and clause == "WHERE":
            raise make_analysis_error("aggregates have no place in WHERE: write HAVING", condition)
        if condition.find(exp.Query) is None:
            bound = stage.bind_condition(condition, clause)
            stage.plan = filter_plan(stage.plan, condition, bound, stage.bind)
        else:
            add_condition(stage, condition, bind_query, scope, clause)

    def _replace_in_aggregates(self, stage: Stage, node: exp.Expr, scope: BlockScope) -> exp.Expr:
        """Join the subqueries in the aggregates of an expression to the rows that are grouped."""
        functions = self._session.functions
        if not any(each.find(exp.Query) for each in find_aggregates(node, functions)):
            return node
        node = node.copy()
        for each in find_aggregates(node, functions):
            replaced = replace_subqueries(stage, each, bind_query, scope)
            if each is node:
                return replaced
            each.replace(replaced)
        return node

    # -- The list of SELECT --------------------------------------------------------------------------------------------

    def _read_items(self, scope: BlockScope) -> list[tuple[str, exp.Expr]]:
        items: list[tuple[str, exp.Expr]] = []
        for node in self._select.expressions:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                star = node if isinstance(node, exp.Star) else node.this
                left_out = {each.name.lower() for each in star.args.get("except_") or star.args.get("except") or []}
                if star.args.get("replace") or star.args.get("rename"):
                    raise make_refusal("* with REPLACE or RENAME is refused: list the columns", node)
                qualifier = tuple(part.name.lower() for part in node.parts[:-1]) if isinstance(node, exp.Column) else ()
                columns = scope.star(qualifier, node)
                unknown = left_out - {column.name.lower() for column in columns}
                if unknown:
                    raise make_analysis_error(f"there is no column {min(unknown)!r} that EXCEPT could leave out", node)
                for column in columns:
                    if column.name.lower() in left_out:
                        continue
                    merged = scope.merged.get(column.name.lower()) if not qualifier else None
                    items.append((column.name, bound_name(merged or reference(column.field), node)))
            elif isinstance(node, exp.Aliases):
                raise make_refusal("several names for one expression stand behind LATERAL VIEW only", node)
            else:
                items.append((node.alias or _name_of(node, len(items)), node.unalias()))
        return items

    def _read_groups(self, items: list[tuple[str, exp.Expr]]) -> tuple[list[exp.Expr] | None, Sets | None]:
        """Return the keys of GROUP BY, and the sets of them if it has any."""
        group = self._select.args.get("group")
        if group is None:
            return None, None
        if group.args.get("all"):
            return [node for _, node in items if not has_aggregates(node, self._session.functions)], None
        sets = read_sets(group, lambda node: self._read_key(node, items))
        if sets is not None:
            return [key for keys in sets for key in keys], sets
        return [key for each in group.expressions for key in self._read_key(each, items)], None

    def _read_key(self, node: exp.Expr, items: list[tuple[str, exp.Expr]]) -> list[exp.Expr]:
        """Return what an item of GROUP BY stands for."""
        inner = node.unnest()
        if isinstance(inner, exp.Literal) and not inner.is_string:
            number = int(inner.name) if inner.name.isdigit() else 0
            if not 1 <= number <= len(items):
                raise make_analysis_error(f"GROUP BY {inner.name}: there are {len(items)} columns in SELECT", inner)
            return [items[number - 1][1]]
        if isinstance(inner, exp.Tuple):
            return list(inner.expressions)
        return [self._alias_or_column(inner, items)]

    def _alias_or_column(self, node: exp.Expr, items: list[tuple[str, exp.Expr]]) -> exp.Expr:
        """Return what a name of GROUP BY stands for: a column, or else an expression of SELECT."""
        if not isinstance(node, exp.Column) or node.table or node.meta.get("bound") is not None:
            return node
        matches = [item for name, item in items if name.lower() == node.name.lower()]
        scope = self._scope_of_from
        if len(matches) == 1 and not (scope is not None and scope.has(node)):
            return matches[0]
        return node

    _scope_of_from: BlockScope | None = None

    def _read_order(self, items: list[tuple[str, exp.Expr]]) -> list[exp.Expr]:
        order = self._select.args.get("order")
        if order is None:
            return []
        found = []
        for each in _ordinals(order.expressions, [node for _, node in items]):
            inner = each.this
            if isinstance(inner, exp.Column) and not inner.table and inner.meta.get("bound") is None:
                matches = [item for name, item in items if name.lower() == inner.name.lower()]
                if len(matches) == 1:
                    each = each.copy()
                    each.set("this", matches[0].copy())
            found.append(each)
        return found

    def _bind_overs(self, stage: Stage, node: exp.Expr) -> exp.Expr:
        """Compute what OVER says in an expression, and return the expression with its columns."""
        windows = [each for each in node.find_all(exp.Window) if each.find_ancestor(exp.Query) in (None, self._select)]
        if not windows:
            return node
        node = node.copy()
        for window in list(node.find_all(exp.Window)):
            full = self._resolve_window(window)
            same = (full.sql(), tuple(str(each.meta.get("bound")) for each in full.find_all(exp.Column)))
            if same not in self._overs:
                is_rank = rank_method(full.this) is not None
                self._overs[same] = add_rank(stage, full) if is_rank else add_over(stage, full)
            column = self._overs[same]
            name = bound_name(column, window)
            if window is node:
                return name
            window.replace(name)
        return node

    def _resolve_window(self, window: exp.Window) -> exp.Window:
        alias = window.args.get("alias")
        if alias is None:
            return window
        named = self._named_windows.get(alias.name.lower())
        if named is None:
            raise make_analysis_error(
                f"there is no window {alias.name}: name it by WINDOW {alias.name} AS (...)", window
            )
        full = window.copy()
        for part in ("partition_by", "order", "spec"):
            if not full.args.get(part) and named.args.get(part):
                value = named.args[part]
                full.set(part, [each.copy() for each in value] if isinstance(value, list) else value.copy())
        return full

    def _project(self, stage: Stage, items: list[tuple[str, exp.Expr]], order: list[exp.Expr]) -> Bound:
        select = self._select
        expressions = [stage.bind(node) for _, node in items]
        names = _unique([name for name, _ in items])
        if order or select.args.get("limit") is not None or select.args.get("offset") is not None:
            limits = _read_limit(select)
            if select.args.get("distinct"):
                return self._top_of_distinct(stage, names, items, expressions, order, limits)
            order = [self._bind_overs(stage, each) for each in order]
            add_top(stage, order, *limits)
        plan: Plan = Project(stage.plan, tuple(zip(names, expressions, strict=True)))
        if select.args.get("distinct"):
            if select.args["distinct"].args.get("on"):
                raise make_refusal(
                    "DISTINCT ON is refused: number the rows by row_number() OVER (PARTITION BY ... ORDER BY ...)",
                    select,
                )
            plan = distinct_rows(plan)
        columns = tuple(NamedColumn(title, plan.field(name)) for (title, _), name in zip(items, names, strict=True))
        return Bound(plan, columns)

    def _top_of_distinct(
        self,
        stage: Stage,
        names: list[str],
        items: list[tuple[str, exp.Expr]],
        expressions: list[TypedExpression],
        order: list[exp.Expr],
        limits: tuple[int, int],
    ) -> Bound:
        plan: Plan = distinct_rows(Project(stage.plan, tuple(zip(names, expressions, strict=True))))
        nodes = []
        for each in order:
            bound = stage.bind(each.this)
            number = next((place for place, other in enumerate(expressions) if other == bound), None)
            if number is None:
                raise make_analysis_error("with DISTINCT, ORDER BY names columns of SELECT", each)
            each = each.copy()
            each.set("this", bound_name(reference(plan.field(names[number])), each))
            nodes.append(each)
        stage.plan = plan
        add_top(stage, nodes, *limits)
        plan = keep_columns(stage.plan, names)
        columns = tuple(NamedColumn(title, plan.field(name)) for (title, _), name in zip(items, names, strict=True))
        return Bound(plan, columns)


def _with_aliases(node: exp.Expr, items: list[tuple[str, exp.Expr]], scope: BlockScope) -> exp.Expr:
    """Return a condition of HAVING or QUALIFY with the expressions that its names of SELECT stand for."""
    node = node.copy()
    for column in [each for each in node.find_all(exp.Column) if not each.table]:
        if column.meta.get("bound") is not None or scope.has(column):
            continue
        matches = [item for name, item in items if name.lower() == column.name.lower()]
        if len(matches) == 1:
            replaced = exp.Paren(this=matches[0].copy())
            if column is node:
                return replaced
            column.replace(replaced)
    return node


def _unique(names: Sequence[str]) -> list[str]:
    """Return names for rows, which differ also where those of the query do not."""
    found: list[str] = []
    for name in names:
        number, own = 1, name
        while own in found:
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found


def _name_of(node: exp.Expr, number: int) -> str:
    """Return the name of a column without AS: that of the column that it is, or one made of its text, as in Spark."""
    inner = node.unnest()
    if isinstance(inner, exp.Column | exp.Dot):
        return inner.name
    text = inner.sql(dialect="spark").lower()
    return text if len(text) <= 100 else f"_c{number}"
