"""FROM: relations, and how they are joined.

Inner joins, whether they are written with ON or as a list with conditions in WHERE, are put into an order in which each has
an equality of columns, as far as there are any. Conditions on one relation come before joins.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from streamrt.sql.binding.intervals import find_interval
from streamrt.sql.binding.join_plans import AsOfJoin, IntervalJoin, Join, JoinHow
from streamrt.sql.binding.keys import align, with_null
from streamrt.sql.binding.ranking import filter_plan
from streamrt.sql.binding.row_plans import Field, Filter, Plan, Project, Scan, walk_plan
from streamrt.sql.binding.scopes import (
    BlockScope,
    Bound,
    NamedColumn,
    bound_name,
    columns_in,
    reference,
    references_of,
)
from streamrt.sql.binding.session import Session
from streamrt.sql.binding.sources import bind_source, relabel
from streamrt.sql.binding.stages import CTEs, Stage, conjuncts, require_condition, with_columns
from streamrt.sql.binding.values import make_row
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.logic import Coalesce
from streamrt.sql.expressions.nodes import ColumnReference

__all__ = ["FromClause", "bind_from", "factor"]

_GRACE_MS = 86_400_000

BindQuery = Callable[[exp.Expr, Session, CTEs], Bound]


@dataclass(eq=False)
class _Pair:
    """An equality between relations that are joined already and a new one."""

    node: exp.Expr
    left: TypedExpression
    right: TypedExpression


def factor(node: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions that AND combines, and those that all alternatives of an OR have in common."""
    found = conjuncts(node)
    for condition in list(found):
        if isinstance(condition, exp.Or):
            alternatives = [
                {each.sql(): each for each in conjuncts(branch)} for branch in condition.flatten(unnest=True)
            ]
            common = [
                each for text, each in alternatives[0].items() if all(text in other for other in alternatives[1:])
            ]
            found += [each for each in common if isinstance(each, exp.EQ)]
    return found


def bind_from(
    select: exp.Select, session: Session, ctes: CTEs, bind_query: BindQuery, outer: BlockScope | None
) -> tuple[Stage, list[exp.Expr]]:
    """Return the rows of FROM, and the conditions of WHERE that are left.

    Args:
        select: the query.
        session: what it is bound with.
        ctes: the queries of WITH.
        bind_query: binds queries in it.
        outer: the names around it, if it is a subquery.
    """
    source = select.args.get("from_")
    if source is None:
        where = select.args.get("where")
        stage = Stage(session, make_row(session), BlockScope([], outer), ctes)
        return stage, [] if where is None else conjuncts(where.this)
    clause = FromClause(session, ctes, bind_query, outer)
    return clause.bind(source.this, select.args.get("joins") or [], select.args.get("where"))


class FromClause:
    """Binds one FROM."""

    def __init__(self, session: Session, ctes: CTEs, bind_query: BindQuery, outer: BlockScope | None) -> None:
        self._session = session
        self._ctes = ctes
        self._bind_query = bind_query
        self._scope = BlockScope([], outer)
        self._nodes: Sequence[exp.Expr] = ()
        self._members: set[int] = set()
        self._pending: list[int] = []
        self._plan: Plan | None = None
        # Conditions of inner joins, and those of WHERE.
        self._on: list[exp.Expr] = []
        self._where: list[exp.Expr] = []
        self._nullable: set[int] = set()

    def bind(self, first: exp.Expr, joins: Sequence[exp.Join], where: exp.Where | None) -> tuple[Stage, list[exp.Expr]]:
        """Return the rows, and the conditions of WHERE that are left."""
        items = [first, *(join.this for join in joins if not _is_lateral(join.this))]
        kinds = [join for join in joins if not _is_lateral(join.this)]
        self._scope.relations = [bind_source(item, self._session, self._ctes, self._bind_query) for item in items]
        self._nodes = items
        if self._scope.relations[0].version is not None:
            raise make_refusal(
                "AS OF a time stands behind JOIN, and names the time of each row of the stream before it: JOIN "
                f"{self._scope.relations[0].title} FOR SYSTEM_TIME AS OF orders.at",
                first,
            )
        self._refuse_repeated_names()
        if len(items) > 1 or self._scope.outer is not None:
            for relation in self._scope.relations:
                relabel(relation, self._session)
        self._nullable = _find_nullable(kinds)
        hidden = self._find_hidden(kinds)
        rest: list[exp.Expr] = []
        for condition in factor(where.this if where is not None else None):
            (self._where if self._is_plain(condition) else rest).append(condition)
        self._pending = [0]
        for number, join in enumerate(kinds, 1):
            self._add(number, join)
        self._flush()
        plan = self._plan
        assert plan is not None  # noqa: S101 - there is a first item
        for condition in (*self._on, *self._where):
            plan = self._filter(plan, condition)
        for number in hidden:
            relation = self._scope.relations[number]
            relation.columns = ()
            relation.names = ()
        return Stage(self._session, plan, self._scope, self._ctes), rest

    def _refuse_repeated_names(self) -> None:
        seen: set[tuple[str, ...]] = set()
        for relation, node in zip(self._scope.relations, self._nodes, strict=True):
            name = relation.names[0]
            if name in seen and name != ("",):
                raise make_analysis_error(
                    f"{relation.title} is in FROM twice: give both a name, such as {relation.title} AS a", node
                )
            seen.add(name)

    def _is_plain(self, condition: exp.Expr) -> bool:
        """Return whether a condition is about relations of this FROM only, without subqueries."""
        if condition.find(exp.Query) is not None:
            return False
        return all(self._scope.has(column) for column in columns_in(condition)) or not any(
            self._scope.is_outer(column) or _is_unknown(self._scope, column) for column in columns_in(condition)
        )

    def _find_hidden(self, joins: Sequence[exp.Join]) -> list[int]:
        return [number for number, join in enumerate(joins, 1) if join.kind.upper() in ("SEMI", "ANTI")]

    def _mark_nullable(self, numbers: Iterable[int]) -> None:
        """Note that rows of relations may be missing from here on."""
        for number in numbers:
            relation = self._scope.relations[number]
            relation.columns = tuple(_as_nullable(column) for column in relation.columns)
            names = {column.field.name for column in relation.columns}
            for name, value in self._scope.merged.items():
                if isinstance(value, ColumnReference) and value.name in names:
                    self._scope.merged[name] = _null(value)

    # -- Items ---------------------------------------------------------------------------------------------------------

    def _add(self, number: int, join: exp.Join) -> None:
        side, kind, method = join.side.upper(), join.kind.upper(), join.method.upper()
        if kind not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"):
            raise make_refusal(f"{kind} JOIN is not one of INNER, LEFT, RIGHT, FULL, SEMI, ANTI and CROSS", join)
        condition = self._read_condition(number, join, method)
        if method == "ASOF":
            self._flush()
            self._join_as_of(number, join, condition, "left" if side == "LEFT" else "inner")
        elif self._scope.relations[number].version is not None:
            self._flush()
            if side not in ("", "LEFT") or kind in ("SEMI", "ANTI"):
                raise make_refusal("a join with FOR SYSTEM_TIME AS OF is JOIN or LEFT JOIN", join)
            self._join_version(number, join, condition, "left" if side == "LEFT" else "inner")
        elif side in ("LEFT", "RIGHT", "FULL") or kind in ("SEMI", "ANTI"):
            self._flush()
            words = {"LEFT": "left", "RIGHT": "right", "FULL": "outer", "SEMI": "semi", "ANTI": "anti"}
            self._join_outer(number, join, condition, words[kind if kind in ("SEMI", "ANTI") else side])
        else:
            self._pending.append(number)
            self._on += condition

    def _read_condition(self, number: int, join: exp.Join, method: str) -> list[exp.Expr]:
        """Return the conditions of ON, or those that USING and NATURAL stand for."""
        using = [(each.name, each) for each in join.args.get("using") or []]
        if method == "NATURAL":
            before = {column.name.lower() for relation in self._scope.relations[:number] for column in relation.columns}
            using = [
                (column.name, join) for column in self._scope.relations[number].columns if column.name.lower() in before
            ]
            if not using:
                raise make_analysis_error("NATURAL JOIN finds no column that both sides have", join)
        elif method not in ("", "ASOF"):
            raise make_refusal(f"{method} JOIN is not there: write JOIN ... ON", join)
        found = []
        for name, node in using:
            found.append(self._merge_columns(number, name, node, join.side.upper(), join.kind.upper()))
        on = join.args.get("on")
        found += factor(on)
        if on is not None and on.find(exp.Query) is not None:
            raise make_refusal(
                "a subquery in ON is refused: join with it in FROM, or put it into WHERE", on.find(exp.Query)
            )
        return found

    def _merge_columns(self, number: int, name: str, node: exp.Expr, side: str, kind: str) -> exp.Expr:
        scope = self._scope
        right = scope.relations[number].find(name)
        merged = scope.merged.get(name.lower())
        lefts = [column for relation in scope.relations[:number] for column in relation.find(name)]
        if not right or (merged is None and not lefts):
            where = scope.relations[number].title if not right else "the left side"
            raise make_analysis_error(f"{where} has no column {name} for USING", node)
        if merged is None and len(lefts) > 1:
            raise make_analysis_error(f"{name} in USING is ambiguous: several tables of the left side have it", node)
        left = merged if merged is not None else reference(lefts[0].field)
        other = reference(right[0].field)
        equality = exp.EQ(this=bound_name(left, node), expression=bound_name(other, node))
        if kind in ("SEMI", "ANTI"):
            return equality
        if side == "FULL":
            scope.merged[name.lower()] = Coalesce((_null(left), _null(other)), left.dtype)
        else:
            scope.merged[name.lower()] = other if side == "RIGHT" else left
        return equality

    # -- Inner joins ---------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Join the relations that wait, by equalities first: each other join meets in one partition."""
        parts = self._join_by_equalities()
        if not parts:
            return
        self._plan, self._members = parts.pop(0)
        while parts:
            linked = (place for place, (_, numbers) in enumerate(parts) if self._find_pairs(numbers))
            self._join_inner(*parts.pop(next(linked, 0)))

    def _join_by_equalities(self) -> list[tuple[Plan, set[int]]]:
        """Join the relations that wait as far as equalities go; return what is left, with the numbers of its relations."""
        parts: list[tuple[Plan, set[int]]] = []
        while self._pending or self._plan is not None:
            if self._plan is None:
                first = self._pending.pop(0)
                self._plan, self._members = self._filtered(first), {first}
            chosen = next((number for number in self._pending if self._find_pairs({number})), None)
            if chosen is None:
                parts.append((self._plan, self._members))
                self._plan = None
            else:
                self._pending.remove(chosen)
                self._join_inner(self._filtered(chosen), {chosen})
        return parts

    def _filtered(self, number: int, conditions: list[exp.Expr] | None = None) -> Plan:
        """Return a relation with the conditions that are about it only, which are used up."""
        plan = self._scope.relations[number].plan
        pools = [self._on] + ([self._where] if number not in self._nullable else [])
        for pool in pools if conditions is None else [conditions]:
            for condition in list(pool):
                if self._scope.owners(condition) == {number}:
                    pool.remove(condition)
                    plan = self._filter(plan, condition)
        return plan

    def _bind_condition(self, condition: exp.Expr) -> TypedExpression:
        return self._session.bind(condition, self._scope)

    def _filter(self, plan: Plan, condition: exp.Expr) -> Plan:
        bound = require_condition(self._bind_condition(condition), condition, "this clause")
        return filter_plan(plan, condition, bound, self._bind_condition)

    def _usable(self) -> list[exp.Expr]:
        return [*self._on, *(each for each in self._where if not self._scope.owners(each) & self._nullable)]

    def _find_pairs(self, numbers: set[int], conditions: Sequence[exp.Expr] | None = None) -> list[_Pair]:
        """Return the equalities between the relations that are joined already and other ones."""
        pairs = []
        for condition in self._usable() if conditions is None else conditions:
            if not isinstance(condition, exp.EQ | exp.NullSafeEQ):
                continue
            sides = [(condition.left, condition.right), (condition.right, condition.left)]
            for own, other in sides:
                own_owners, other_owners = self._scope.owners(own), self._scope.owners(other)
                if own_owners and own_owners <= self._members and other_owners and other_owners <= numbers:
                    left, right = align(self._bind_condition(own), self._bind_condition(other), condition)
                    if isinstance(condition, exp.NullSafeEQ) and (left.nullable or right.nullable):
                        left, right = with_null(left), with_null(right)
                    pairs.append(_Pair(condition, left, right))
                    break
        return pairs

    def _join_inner(self, right: Plan, numbers: set[int]) -> None:
        pairs = self._find_pairs(numbers)
        left = self._plan
        assert left is not None  # noqa: S101
        self._refuse_lookup(left, right, pairs[0].node if pairs else self._nodes[min(numbers)])
        for pair in pairs:
            for pool in (self._on, self._where):
                if pair.node in pool:
                    pool.remove(pair.node)
        left, left_on = with_columns(left, [pair.left for pair in pairs], self._session)
        right, right_on = with_columns(right, [pair.right for pair in pairs], self._session)
        interval = None
        if left.appends and right.appends:
            interval = find_interval(self._usable(), self._scope, self._members, numbers, left, right)
        self._members = self._members | numbers
        if interval is not None:
            # Times of records are in milliseconds: the conditions themselves decide, behind the join.
            self._plan = IntervalJoin(
                left,
                right,
                tuple(left_on),
                tuple(right_on),
                interval.left_time,
                interval.right_time,
                interval.before_ms + 1,
                interval.after_ms + 1,
                self._choose_grace(interval.before_ms + 1, interval.after_ms + 1),
            )
        else:
            # Without an equality, most pairs fulfil no condition: none is made of them.
            condition = None if pairs else self._bind_all(self._take_conditions())
            self._plan = Join(left, right, "inner", tuple(left_on), tuple(right_on), condition)
        for each in self._take_conditions():
            self._plan = self._filter(self._plan, each)

    def _take_conditions(self) -> list[exp.Expr]:
        """Return the conditions on the relations that are joined, which are used up."""
        taken = []
        for pool in (self._on, self._where):
            for condition in list(pool):
                owners = self._scope.owners(condition)
                if owners <= self._members and (pool is self._on or not owners & self._nullable):
                    pool.remove(condition)
                    taken.append(condition)
        return taken

    def _bind_all(self, conditions: Sequence[exp.Expr]) -> TypedExpression | None:
        """Return one condition for several, or None for none."""
        if not conditions:
            return None
        return self._bind_condition(exp.and_(*(each.copy() for each in conditions), wrap=True))

    def _choose_grace(self, *least_ms: int) -> int:
        """Return how long rows of a join of streams wait for late partners."""
        given = self._session.emit.grace_ms
        return max(_GRACE_MS if given is None else given, *least_ms)

    def _refuse_lookup(self, left: Plan, right: Plan, node: exp.Expr) -> None:
        """Refuse a join of a stream with a table: the answer of a batch would revise former rows."""
        for stream, table in ((left, right), (right, left)):
            scan = _find_scan(table)
            is_plain = scan is not None and sum(1 for _ in _relational(table)) == 0
            if stream.appends and not table.appends and is_plain and scan is not None:
                source = _find_scan(stream)
                name = "the stream" if source is None else source.name
                moment = None if source is None or source.time is None else f"{name.rpartition('.')[2]}.{source.time}"
                raise make_refusal(
                    f"a join of the stream {name} with the table {scan.name} would have to revise former rows when a row "
                    f"of {scan.name} changes: write JOIN {scan.name} FOR SYSTEM_TIME AS OF "
                    f"{moment or 'a column with the time of the rows, which the stream has to have'}, "
                    f"or give {name} a primary key",
                    node,
                )

    # -- Other joins ---------------------------------------------------------------------------------------------------

    def _join_outer(self, number: int, join: exp.Join, conditions: list[exp.Expr], how: str) -> None:
        left = self._plan
        assert left is not None  # noqa: S101
        pairs = self._find_pairs({number}, conditions)
        remaining = [each for each in conditions if not any(pair.node is each for pair in pairs)]
        right = (
            self._filtered(number, remaining) if how in ("left", "semi", "anti") else self._scope.relations[number].plan
        )
        for condition in list(self._where):
            # Of a relation that may be missing, rows are left out behind the join only.
            if number not in self._nullable and self._scope.owners(condition) == {number}:
                self._where.remove(condition)
                right = self._filter(right, condition)
        if how == "right":
            for condition in list(remaining):
                owners = self._scope.owners(condition)
                if owners and owners <= self._members:
                    remaining.remove(condition)
                    left = self._filter(left, condition)
        self._refuse_lookup(left, right, join)
        left, left_on = with_columns(left, [pair.left for pair in pairs], self._session)
        right, right_on = with_columns(right, [pair.right for pair in pairs], self._session)
        matches = self._bind_all(remaining)
        kind: JoinHow = how  # type: ignore[assignment]
        self._plan = Join(left, right, kind, tuple(left_on), tuple(right_on), matches)
        if how in ("right", "outer"):
            self._mark_nullable(self._members)
        if how in ("left", "outer"):
            self._mark_nullable([number])
        if how not in ("semi", "anti"):
            self._members.add(number)

    def _join_version(self, number: int, join: exp.Join, conditions: list[exp.Expr], how: str) -> None:
        relation = self._scope.relations[number]
        left = self._plan
        version = relation.version
        assert left is not None  # noqa: S101
        assert version is not None  # noqa: S101
        if not left.appends:
            raise make_refusal(
                "FOR SYSTEM_TIME AS OF joins rows of a stream, and the left side is a table whose rows change: leave it out, "
                "to join present rows",
                version,
            )
        moment = self._bind_condition(version.expression)
        self._add_as_of(number, join, conditions, how, moment, version)

    def _join_as_of(self, number: int, join: exp.Join, conditions: list[exp.Expr], how: str) -> None:
        """Join as `ASOF JOIN b ON a.k = b.k AND a.at >= b.at` does."""
        found = [each for each in conditions if isinstance(each, exp.GTE | exp.LTE)]
        if len(found) != 1:
            raise make_refusal(
                "ASOF JOIN needs one condition a.at >= b.at on times, and equalities of the other columns", join
            )
        order = found[0]
        late, early = (order.left, order.right) if isinstance(order, exp.GTE) else (order.right, order.left)
        right = self._scope.relations[number].plan
        time = next((each.time for each in walk_plan(right) if isinstance(each, Scan)), None)
        early_name = next((column.name for column in columns_in(early)), None)
        if (
            self._scope.owners(early) != {number}
            or time is None
            or early_name is None
            or early_name.lower() != time.lower()
        ):
            raise make_refusal(
                "ASOF JOIN finds rows by the time column of their table: write a.at >= b.at with this column", order
            )
        rest = [each for each in conditions if each is not order]
        self._add_as_of(number, join, rest, how, self._bind_condition(late), order)

    def _add_as_of(
        self,
        number: int,
        join: exp.Join,
        conditions: list[exp.Expr],
        how: str,
        moment: TypedExpression,
        node: exp.Expr,
    ) -> None:
        relation, left = self._scope.relations[number], self._plan
        assert left is not None  # noqa: S101
        right = relation.plan
        pairs = self._find_pairs({number}, conditions)
        if len(pairs) != len(conditions) or not pairs:
            raise make_refusal(
                "a join as of a time has equalities of columns only: put other conditions into WHERE", join
            )
        if any(_relational(right)) or right.appends:
            raise make_refusal(
                f"{relation.title} is not a table with a primary key, of which former rows are kept: as of a time, rows of "
                "tables are joined",
                node,
            )
        keys = {part.name for each in pairs for part in references_of(each.right)}
        if frozenset(keys) not in right.keys:
            raise make_refusal(f"a join as of a time names the whole primary key of {relation.title}", join)
        left, names = with_columns(left, [*(pair.left for pair in pairs), moment], self._session)
        right, right_on = with_columns(right, [pair.right for pair in pairs], self._session)
        kind = "left" if how == "left" else "inner"
        self._plan = AsOfJoin(left, right, kind, tuple(names[:-1]), tuple(right_on), names[-1])  # type: ignore[arg-type]
        if how == "left":
            self._mark_nullable([number])
        self._members.add(number)


def _find_scan(plan: Plan) -> Scan | None:
    return next((each for each in walk_plan(plan) if isinstance(each, Scan)), None)


def _relational(plan: Plan) -> list[Plan]:
    """Return the operators of a plan that do more than compute each row from one row."""
    return [each for each in walk_plan(plan) if not isinstance(each, Scan | Filter | Project)]


def _find_nullable(joins: Sequence[exp.Join]) -> set[int]:
    nullable: set[int] = set()
    for number, join in enumerate(joins, 1):
        side = join.side.upper()
        if join.kind.upper() in ("SEMI", "ANTI"):
            continue
        if side in ("LEFT", "FULL"):
            nullable.add(number)
        if side in ("RIGHT", "FULL"):
            nullable |= set(range(number))
    return nullable


def _as_nullable(column: NamedColumn) -> NamedColumn:
    return NamedColumn(column.name, Field(column.field.name, column.field.dtype, nullable=True), column.in_star)


def _null(value: TypedExpression) -> TypedExpression:
    return replace(value, may_be_null=True) if isinstance(value, ColumnReference) else value


def _is_lateral(node: exp.Expr) -> bool:
    return isinstance(node, exp.Lateral | exp.Unnest)


def _is_unknown(scope: BlockScope, column: exp.Column) -> bool:
    return not scope.has(column) and not scope.is_outer(column)
