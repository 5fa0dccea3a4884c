"""The expressions of one SELECT in DuckDB's SQL, with its aggregates, windows and subqueries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import SQLNotSupportedError
from streamrt.sql.binding.grouping_sets import has_sets
from streamrt.sql.expressions.coercion import describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_aggregates import AGGREGATES, WINDOW_FUNCTIONS, aggregate, window_function
from streamrt.sql.queries.duckdb_casts import may_raise
from streamrt.sql.queries.duckdb_operators import unify
from streamrt.sql.queries.duckdb_types import TypedText, quote, without_negative_zero
from streamrt.sql.queries.from_clause import Queries, QueryOutput, SourceTable
from streamrt.sql.queries.scalar_text import ScalarText
from streamrt.sql.queries.scopes import OutputColumn, Scope
from streamrt.sql.queries.select_lists import (
    ExpandedColumn,
    Projection,
    direction,
    members_of,
    name_output,
    require_ordinal,
    star_columns,
)

__all__ = ["Body", "SelectText"]


_T = TypeVar("_T")


@dataclass(frozen=True)
class Body:
    """What stands before FROM, and what stands behind WHERE."""

    head: str
    tail: str
    columns: Sequence[OutputColumn]


class SelectText(ScalarText):
    """The expressions of one SELECT, with its aggregates, windows and subqueries."""

    def __init__(self, queries: Queries, scope: Scope, known: Mapping[str, SourceTable]) -> None:
        super().__init__(scope)
        self._queries = queries
        self._known = known
        self._windows: dict[str, exp.Window] = {}
        self._grouped: dict[str, str] = {}
        self._inside_aggregate = False
        self._is_plain = False
        self._explodes = False

    def plain_condition(self, node: exp.Expr, what: str) -> str:
        """Return a condition of single rows, in which aggregates cannot stand."""
        self._is_plain = True
        try:
            return self.condition(node, what)
        finally:
            self._is_plain = False

    def scalar(self, node: exp.Expr) -> TypedText:
        """Return an expression in DuckDB's SQL; one of GROUP BY is as it stands there."""
        value = super().scalar(node)
        if self._grouped and not self._inside_aggregate:
            return TypedText(self._grouped.get(value.sql, value.sql), value.dtype, value.literal)
        return value

    def translate_body(self, node: exp.Select) -> Body:
        """Return everything but FROM, WHERE and LIMIT."""
        for each in node.args.get("windows") or []:
            self._windows[each.name.lower()] = each
        expanded = [made for each in node.expressions for made in self._expand_star(each)]
        self.scope.aliases = {each.alias.lower(): each.this for each in expanded if isinstance(each, exp.Alias)}
        group = self._group_by(node, expanded)
        projections = [self._project(each) for each in expanded]
        is_distinct = node.args.get("distinct") is not None
        if is_distinct and node.args["distinct"].args.get("on"):
            raise make_refusal("DISTINCT ON is not there in a query: use ROW_NUMBER() and QUALIFY", node)
        tail = group
        having = self.condition(node.args["having"].this, "HAVING") if node.args.get("having") else None
        if has_sets(node.args.get("group")):
            # As in Spark, no rows are in no set of keys, not even in that of none.
            having = "count(*) > 0" if having is None else f"count(*) > 0 AND ({having})"
        if having is not None:
            tail += f" HAVING {having}"
        if node.args.get("qualify"):
            tail += f" QUALIFY {self.condition(node.args['qualify'].this, 'QUALIFY')}"
        tail += self._order_by(node, projections, is_distinct=is_distinct)
        return self._make_body(projections, tail, is_distinct=is_distinct)

    def translate_call(self, node: exp.Expr) -> TypedText:
        """Return a call of an aggregate function or of a function of windows."""
        if self._is_plain:
            raise make_analysis_error(
                "aggregates and functions of windows cannot stand here: use HAVING or QUALIFY", node
            )
        condition: str | None = None
        over = ""
        call = node
        if isinstance(call, exp.Window):
            over = f" OVER ({self._window(call)})"
            call = call.this
        if isinstance(call, exp.Filter):
            condition = self._inside(lambda: self.condition(call.args["expression"].this, "FILTER"))
            call = call.this
        group = call if isinstance(call, exp.WithinGroup) else None
        call = call if group is None else group.this
        if isinstance(call, exp.Anonymous):
            call = self.find_known(call)
        inner = call.this if isinstance(call, exp.IgnoreNulls | exp.RespectNulls) else call
        if isinstance(inner, WINDOW_FUNCTIONS) or (over and isinstance(inner, exp.First | exp.Last)):
            if not over:
                raise make_analysis_error("a function of windows needs OVER (...)", node)
            if isinstance(inner, exp.First | exp.Last):
                kind = exp.FirstValue if isinstance(inner, exp.First) else exp.LastValue
                call = kind(this=inner.this.copy())
            return self._inside(lambda: window_function(self, call, over), when=not self._grouped)
        if not isinstance(call, AGGREGATES):
            raise make_refusal("this function is not an aggregate, and has no FILTER and no OVER, in a query", node)
        if over:
            return self._inside(lambda: aggregate(self, call, condition, over, group), when=not self._grouped)
        if self._inside_aggregate:
            raise make_analysis_error("an aggregate cannot stand in another one", node)
        return self._inside(lambda: aggregate(self, call, condition, over, group))

    def translate_query(self, node: exp.Expr) -> TypedText:
        """Return a subquery that is one value, EXISTS, or IN."""
        if isinstance(node, exp.Exists):
            if node.args.get("expression") is not None:
                raise make_refusal("exists() of an ARRAY is not there in a query", node)
            made = self._translate_inner(node.this)
            return TypedText(f"EXISTS ({made.sql})", pa.bool_())
        if isinstance(node, exp.In):
            return self._in_query(node)
        made = self._translate_inner(node)
        if len(made.columns) != 1:
            raise make_analysis_error(f"a query as a value has one column, and this one has {len(made.columns)}", node)
        return TypedText(f"({made.sql})", made.columns[0].dtype)

    def _in_query(self, node: exp.In) -> TypedText:
        # It has no relations of its own, so only names that mean those of this query pass it.
        border = Scope(self.scope)
        made = self._queries.translate(node.args["query"], border, self._known)
        lefts = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if len(made.columns) != len(lefts):
            raise make_analysis_error(
                f"the query of this IN has {len(made.columns)} columns, and its left side {len(lefts)}", node
            )
        name = self._queries.next_relation()
        keys, cells = [], []
        for left, column in zip(lefts, made.columns, strict=True):
            inner = TypedText(f"{name}.{column.sql}", column.dtype)
            values, _ = unify([self.scalar(left), inner], node, "the sides of IN")
            keys.append(values[0].sql)
            cells.append(values[1].sql)
        rows = f"FROM ({made.sql}) AS {name}"
        if len(keys) > 1 and border.is_correlated:
            return TypedText(_search_rows(keys, cells, rows), pa.bool_())
        left_text = keys[0] if len(keys) == 1 else f"({', '.join(keys)})"
        found = f"({left_text} IN (SELECT {', '.join(cells)} {rows}))"
        if border.is_correlated and may_raise(rows + cells[0]):
            found = _leave_open(found, keys[0], cells[0], rows)
        return TypedText(found, pa.bool_())

    def _translate_inner(self, node: exp.Expr) -> QueryOutput:
        return self._queries.translate(node, self.scope, self._known)

    def _inside(self, make: Callable[[], _T], *, when: bool = True) -> _T:
        """Make something of the arguments of an aggregate, which are not those of GROUP BY."""
        before = self._inside_aggregate
        self._inside_aggregate = before or when
        try:
            return make()
        finally:
            self._inside_aggregate = before

    def _expand_star(self, node: exp.Expr) -> list[exp.Expr]:
        star = node if isinstance(node, exp.Star) else node.this if isinstance(node, exp.Column) else None
        if not isinstance(star, exp.Star):
            return [node]
        if star.args.get("replace") or star.args.get("rename"):
            raise make_refusal("* has EXCEPT only in a query", node)
        left_out = {each.name.lower() for each in star.args.get("except_") or []}
        prefix = node.args["table"].name.lower() if isinstance(node, exp.Column) else None
        if isinstance(node, exp.Column) and node.args.get("db"):
            prefix = f"{node.args['db'].name.lower()}.{prefix}"
        found = star_columns(self.scope, prefix, node)
        unknown = left_out - {name.lower() for name, _ in found}
        if unknown:
            raise make_analysis_error(f"there is no column {min(unknown)!r} that EXCEPT could leave out", node)
        return [ExpandedColumn.of(name, value, node) for name, value in found if name.lower() not in left_out]

    def _project(self, node: exp.Expr) -> Projection:
        inner = node.this if isinstance(node, exp.Alias) else node
        if isinstance(inner, exp.Explode):
            return Projection(name_output(node) if isinstance(node, exp.Alias) else "col", node, self._explode(inner))
        value = node.value if isinstance(node, ExpandedColumn) else self.scalar(node)
        if self._grouped and isinstance(node, ExpandedColumn):
            value = TypedText(self._grouped.get(value.sql, value.sql), value.dtype)
        return Projection(name_output(node), node, value)

    def _explode(self, node: exp.Explode) -> TypedText:
        value = self.scalar(node.this)
        if self._explodes:
            raise make_analysis_error("a select list has one explode()", node)
        if not pa.types.is_list(value.dtype):
            raise make_analysis_error(
                f"explode() takes an ARRAY in a query, and this is a {describe_type(value.dtype)}", node
            )
        self._explodes = True
        return TypedText(f"unnest({value.sql})", value.dtype.value_type)

    def _group_by(self, node: exp.Select, expanded: list[exp.Expr]) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        if group.args.get("all"):
            return " GROUP BY ALL"
        plain = [each for each in group.expressions if not isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets)]
        special = [each for each in group.expressions if isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets)]
        for name in ("rollup", "cube", "grouping_sets"):
            special += group.args.get(name) or []
        keys = self._keys(plain, expanded)
        made = [", ".join(keys)] if keys else []
        for each in special:
            if isinstance(each, exp.GroupingSets):
                sets = [self._keys(members_of(one), expanded) for one in each.expressions]
                text = f"GROUPING SETS ({', '.join(f'({chr(44).join(one)})' for one in sets)})"
                # The keys before GROUPING SETS, without a comma, only list what is in them.
                made = [*made, text] if each in group.expressions else [text]
            elif each.expressions:
                word = "ROLLUP" if isinstance(each, exp.Rollup) else "CUBE"
                made.append(f"{word} ({', '.join(self._keys(each.expressions, expanded))})")
            else:
                made = [f"{'ROLLUP' if isinstance(each, exp.Rollup) else 'CUBE'} ({', '.join(keys)})"]
        if group.args.get("totals"):
            raise make_refusal("WITH TOTALS is not there in a query", group)
        return f" GROUP BY {', '.join(made)}"

    def _keys(self, nodes: Sequence[exp.Expr], expanded: list[exp.Expr]) -> list[str]:
        """Return expressions of GROUP BY; -0.0 is 0.0 there, as in Spark."""
        keys = []
        for each in nodes:
            node = each
            if isinstance(node, exp.Literal) and not node.is_string:
                node = expanded[require_ordinal(node, len(expanded)) - 1]
            value = node.value if isinstance(node, ExpandedColumn) else self._key(node)
            made = without_negative_zero(value)
            self._grouped[value.sql] = made
            keys.append(made)
        return keys

    def _key(self, node: exp.Expr) -> TypedText:
        self._is_plain = True
        try:
            return ScalarText.scalar(self, node)
        finally:
            self._is_plain = False

    def _window(self, node: exp.Window) -> str:
        name = node.args.get("alias")
        if name is not None and node.args.get("over") is not None and not node.args.get("partition_by"):
            found = self._windows.get(name.name.lower())
            if found is None:
                raise make_analysis_error(f"there is no WINDOW {name.name!r}", node)
            node = found
        parts = []
        if node.args.get("partition_by"):
            keys = [without_negative_zero(self.scalar(each)) for each in node.args["partition_by"]]
            parts.append(f"PARTITION BY {', '.join(keys)}")
        if node.args.get("order"):
            ordered = [f"{self.scalar(each.this).sql} {direction(each)}" for each in node.args["order"].expressions]
            parts.append(f"ORDER BY {', '.join(ordered)}")
        if node.args.get("spec"):
            parts.append(self._frame(node.args["spec"]))
        return " ".join(parts)

    def _frame(self, spec: exp.WindowSpec) -> str:
        if spec.args.get("exclude"):
            raise make_refusal("EXCLUDE of a window is not there in a query", spec)
        kind = str(spec.args.get("kind") or "RANGE").upper()
        if kind not in ("ROWS", "RANGE"):
            raise make_refusal(f"{kind} of a window is not there in a query: use ROWS or RANGE", spec)
        start = self._bound(spec.args.get("start"), spec.args.get("start_side"))
        end = self._bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"))
        return f"{kind} BETWEEN {start} AND {end}"

    def _bound(self, bound: exp.Expr | str | None, side: str | None) -> str:
        if isinstance(bound, exp.Expr):
            return f"{self.scalar(bound).sql} {self._side(side)}"
        word = str(bound).upper()
        return word if word == "CURRENT ROW" else f"UNBOUNDED {self._side(side)}"

    def _side(self, side: str | None) -> str:
        return "FOLLOWING" if str(side).upper() == "FOLLOWING" else "PRECEDING"

    def _order_by(self, node: exp.Select, projections: list[Projection], *, is_distinct: bool) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        parts = []
        for each in order.expressions:
            parts.append(f"{self._order_key(each.this, projections, is_distinct=is_distinct)} {direction(each)}")
        return f" ORDER BY {', '.join(parts)}"

    def _order_key(self, node: exp.Expr, projections: list[Projection], *, is_distinct: bool) -> str:
        if isinstance(node, exp.Literal) and not node.is_string:
            return str(require_ordinal(node, len(projections)))
        if isinstance(node, exp.Column) and not node.args.get("table"):
            for number, each in enumerate(projections):
                if each.name.lower() == node.name.lower():
                    return str(number + 1)
        value = self.scalar(node)
        for number, each in enumerate(projections):
            if each.value.sql == value.sql:
                return str(number + 1)
        if is_distinct:
            raise make_analysis_error("ORDER BY of SELECT DISTINCT takes columns of the select list", node)
        # A bare number would be that of a column.
        return f"({value.sql})"

    def _make_body(self, projections: list[Projection], tail: str, *, is_distinct: bool) -> Body:
        columns, cells = [], []
        taken: set[str] = set()
        for number, each in enumerate(projections):
            shown = each.name if each.name.lower() not in taken else f"{each.name}:{number}"
            taken.add(each.name.lower())
            value = each.value
            if value.dtype == pa.null():
                value = TypedText("CAST(NULL AS VARCHAR)", pa.null())
            made = without_negative_zero(value) if is_distinct else value.sql
            cells.append(f"{made} AS {quote(shown)}")
            columns.append(OutputColumn(each.name, value.dtype, quote(shown)))
        if not cells:
            raise SQLNotSupportedError("SELECT needs a column")
        return Body(f"{'DISTINCT ' if is_distinct else ''}{', '.join(cells)}", tail, columns)


def _search_rows(keys: Sequence[str], cells: Sequence[str], rows: str) -> str:
    """Return IN of several columns by EXISTS: DuckDB has none of a query that depends on the one around it."""
    equal = " AND ".join(f"{key} = {cell}" for key, cell in zip(keys, cells, strict=True))
    found, is_open = (f"EXISTS (SELECT 1 {rows} WHERE {each})" for each in (equal, f"({equal}) IS NULL"))
    return _write_membership(found, is_open)


def _leave_open(found: str, key: str, cell: str, rows: str) -> str:
    """Return IN that is NULL only where a NULL leaves it open.

    If its query depends on the one around it and may raise, DuckDB takes the NULLs of all rows for those of each.
    """
    is_open = f"EXISTS (SELECT 1 {rows} WHERE {cell} IS NULL) OR ({key} IS NULL AND EXISTS (SELECT 1 {rows}))"
    return _write_membership(found, is_open)


def _write_membership(found: str, is_open: str) -> str:
    """Return TRUE where a value is found, NULL where that is open, and else FALSE."""
    return f"CASE WHEN {found} THEN TRUE WHEN {is_open} THEN NULL ELSE FALSE END"
