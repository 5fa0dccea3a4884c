"""`to_duckdb`: a query in our dialect as one of DuckDB that gives the rows that Spark gives in ANSI mode.

The text is made of what the tables of functions and operators have, and of nothing that the query brings along: names are
resolved first, literals are written again, and what is not in a table is refused, with its place. So a query can reach
neither files nor settings, whatever it says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import SQLNotSupportedError, TableNotFoundError
from streamrt.sql.expressions.coercion import common_type_of_all, describe_type
from streamrt.sql.queries.duckdb_aggregates import AGGREGATES, WINDOW_FUNCTIONS, aggregate, window_function
from streamrt.sql.queries.duckdb_casts import convert_implicitly
from streamrt.sql.queries.duckdb_operators import unify
from streamrt.sql.queries.duckdb_types import TypedText, without_negative_zero
from streamrt.sql.queries.from_clause import FromClause, QueryOutput, SourceTable, output_columns
from streamrt.sql.queries.scalar_text import ScalarText
from streamrt.sql.queries.scopes import OutputColumn, Relation, Scope, fail, quote
from streamrt.sql.queries.translation import refuse
from streamrt.sql.queries.window_text import ClosedWindows, GroupWindows
from streamrt.sql.reading import position_of

__all__ = ["QueryOutput", "SourceTable", "TableFinder", "ViewFinder", "to_duckdb", "translate_query"]

ViewFinder = Callable[[str, Sequence[str]], tuple[exp.Expr, Sequence[str]] | None]
"""Returns the query of a view by its name, and the names of its columns; None if there is none.

Its second argument is the names of the views whose queries the name is in, from the outermost one on, in lower case.
"""

_T = TypeVar("_T")
TableFinder = Callable[[exp.Table], SourceTable]
"""Returns the table that a name in FROM stands for; raises TableNotFoundError."""

_SELECT_PARTS = frozenset(
    [
        *("with_", "expressions", "distinct", "from_", "joins", "laterals", "where", "group", "having", "qualify"),
        *("windows", "order", "limit", "offset", "kind", "hint"),
    ]
)
_SET_PARTS = frozenset(
    ["with_", "this", "expression", "distinct", "order", "limit", "offset", "by_name", "side", "kind", "on"]
)


def to_duckdb(tree: exp.Expr, tables: Mapping[str, pa.Schema] | None = None) -> str:
    """Return a query as one of DuckDB.

    Args:
        tree: the query, as `streamrt.sql.reading` returns it.
        tables: the columns of its tables by their names in the query, such as "shop.orders"; in DuckDB the tables have the
            same names and columns, and TIMESTAMP_LTZ is TIMESTAMP in UTC.

    Raises:
        TableNotFoundError: if there is no such table.
        SQLAnalysisError: if a column does not exist, or types do not fit.
        SQLNotSupportedError: if DuckDB would give another answer than Spark, or the query has what queries do not have.

    Example:
        >>> from streamrt.sql.reading import parse_query
        >>> to_duckdb(parse_query("SELECT a div 2 AS half FROM t"), {"t": pa.schema([("a", pa.int32())])})
        'SELECT (CAST(r1."a" AS BIGINT) // CAST(2::INTEGER AS BIGINT)) AS "half" FROM "t" AS r1'
    """
    known = {name.lower(): (name, schema) for name, schema in (tables or {}).items()}

    def find_table(node: exp.Table) -> SourceTable:
        name = ".".join(part.name for part in node.parts)
        if name.lower() not in known:
            raise TableNotFoundError(f"there is no table {name!r}")
        real, schema = known[name.lower()]
        return SourceTable(".".join(quote(part) for part in real.split(".")), schema)

    return translate_query(tree, find_table).sql


def translate_query(
    tree: exp.Expr,
    find_table: TableFinder,
    find_view: ViewFinder | None = None,
    reshape: Callable[[QueryOutput], QueryOutput] | None = None,
    closed: ClosedWindows | None = None,
) -> QueryOutput:
    """Return a query in DuckDB's SQL, and its columns.

    Args:
        tree: the query.
        find_table: finds its tables.
        find_view: returns the query of a view by its name; None if there is none. Views stand for tables of their names.
        reshape: changes the columns of the result, before names and types are checked.
        closed: which windows are over, if those that are open have no rows; None for all.

    Raises:
        SQLAnalysisError: if names or types do not fit.
        SQLNotSupportedError: if it is not on the list of what queries have.
    """
    made = QueryText(find_table, find_view, closed).translate(tree, None, {})
    if reshape is not None:
        made = reshape(made)
    names = [column.name.lower() for column in made.columns]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise fail(f"two columns of the result are named {name!r}: give one an alias", tree)
    for column in made.columns:
        if column.dtype == pa.duration("us") or column.dtype == pa.month_day_nano_interval():
            raise refuse(f"the column {column.name!r} is an INTERVAL, which results do not have: compute with it", tree)
    # Inside of a query, NULL fits all types; a result needs one.
    columns = [replace(each, dtype=_without_null(each.dtype)) for each in made.columns]
    return QueryOutput(made.sql, columns)


def _without_null(dtype: pa.DataType) -> pa.DataType:
    """Return a type with STRING for NULL, the type of `array()` and of NULL."""
    if dtype == pa.null():
        return pa.string()
    if pa.types.is_list(dtype):
        return pa.list_(_without_null(dtype.value_type))
    if pa.types.is_map(dtype):
        return pa.map_(_without_null(dtype.key_type), _without_null(dtype.item_type))
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_without_null(field.type)) for field in dtype])
    return dtype


@dataclass(frozen=True)
class _Projection:
    """An expression of a select list, with its name."""

    name: str
    node: exp.Expr
    value: TypedText


class QueryText:
    """Translates queries.

    Args:
        find_table: finds tables that are not those of WITH.
        find_view: finds the queries of views.
        closed: which windows are over; None for all.
    """

    def __init__(
        self, find_table: TableFinder, find_view: ViewFinder | None = None, closed: ClosedWindows | None = None
    ) -> None:
        self._find_table = find_table
        self._find_view = find_view
        self._closed = closed
        self._views: list[str] = []
        self._relations = 0

    def translate(self, node: exp.Expr, parent: Scope | None, known: Mapping[str, SourceTable]) -> QueryOutput:
        """Return a query and its columns.

        Args:
            node: the query.
            parent: the scope of the query around it.
            known: queries of WITH by their names in lower case.
        """
        if isinstance(node, exp.Subquery) and not node.args.get("alias"):
            inner = self.translate(node.this, parent, known)
            return self._end_query(node, inner, "") if node.args.get("order") or node.args.get("limit") else inner
        if isinstance(node, exp.Values):
            return self._translate_values(node, parent, known)
        if not isinstance(node, exp.Select | exp.SetOperation):
            raise refuse("a query was expected: SELECT, VALUES or WITH", node)
        with_, known = self._translate_with(node, parent, known)
        if isinstance(node, exp.SetOperation):
            return self._translate_set(node, parent, known, with_)
        return self._translate_select(node, parent, known, with_)

    def next_relation(self) -> str:
        """Return a name for a relation, which no other has."""
        self._relations += 1
        return f"r{self._relations}"

    def find_table(self, node: exp.Table, known: Mapping[str, SourceTable]) -> SourceTable:
        """Return a table of WITH, or another."""
        if not node.args.get("db"):
            found = known.get(node.name.lower())
            if found is not None:
                return found
        name = ".".join(part.name for part in node.parts)
        view = None if self._find_view is None else self._find_view(name, self._views)
        if view is None:
            return self._find_table(node)
        if name.lower() in self._views:
            raise fail(f"the view {name!r} reads itself", node)
        self._views.append(name.lower())
        tree, names = view
        made = self.translate(tree, None, {})
        self._views.pop()
        shown = names if len(names) == len(made.columns) else [column.name for column in made.columns]
        schema = [(each, column.dtype) for each, column in zip(shown, made.columns, strict=True)]
        return SourceTable(f"({made.sql})", schema, [column.sql for column in made.columns])

    def _translate_with(
        self, node: exp.Expr, parent: Scope | None, known: Mapping[str, SourceTable]
    ) -> tuple[str, Mapping[str, SourceTable]]:
        with_ = node.args.get("with_")
        if with_ is None:
            return "", known
        if with_.args.get("recursive"):
            raise refuse("WITH RECURSIVE is not there in a query", with_)
        parts, known = [], dict(known)
        for each in with_.expressions:
            made = self.translate(each.this, parent, known)
            columns = output_columns(made.columns, each.args["alias"])
            name = f"w{self.next_relation()}"
            listed = ", ".join(column.sql for column in columns)
            parts.append(f"{name}({listed}) AS ({made.sql})")
            schema = [(column.name, column.dtype) for column in columns]
            known[each.alias.lower()] = SourceTable(name, schema, [column.sql for column in columns])
        return f"WITH {', '.join(parts)} ", known

    def _translate_values(
        self, node: exp.Values, parent: Scope | None, known: Mapping[str, SourceTable]
    ) -> QueryOutput:
        scope = _SelectText(self, Scope(parent), known)
        rows = [each.expressions if isinstance(each, exp.Tuple) else [each] for each in node.expressions]
        if len({len(row) for row in rows}) != 1:
            raise fail("the rows of VALUES have different numbers of columns", node)
        columns = []
        for number, cells in enumerate(zip(*rows, strict=True)):
            values, dtype = unify([scope.scalar(cell) for cell in cells], node, f"the values of column {number + 1}")
            columns.append((dtype, [value.sql for value in values]))
        made = ", ".join(f"({', '.join(cells)})" for cells in zip(*(cells for _, cells in columns), strict=True))
        names = [f"col{number + 1}" for number in range(len(columns))]
        listed = ", ".join(quote(name) for name in names)
        outputs = [OutputColumn(name, dtype, quote(name)) for name, (dtype, _) in zip(names, columns, strict=True)]
        return QueryOutput(f"SELECT * FROM (VALUES {made}) AS {self.next_relation()}({listed})", outputs)

    def _translate_set(
        self, node: exp.SetOperation, parent: Scope | None, known: Mapping[str, SourceTable], with_: str
    ) -> QueryOutput:
        _refuse_unknown_parts(node, _SET_PARTS)
        if node.args.get("by_name") or node.args.get("side") or node.args.get("kind") or node.args.get("on"):
            raise refuse("set operations of a query are UNION, INTERSECT and EXCEPT by position", node)
        sides = [self.translate(each, parent, known) for each in (node.this, node.expression)]
        if len(sides[0].columns) != len(sides[1].columns):
            raise fail(
                f"the sides of this operation have {len(sides[0].columns)} and {len(sides[1].columns)} columns", node
            )
        columns = []
        for left, right in zip(sides[0].columns, sides[1].columns, strict=True):
            dtype = common_type_of_all([left.dtype, right.dtype])
            if dtype is None:
                types = f"{describe_type(left.dtype)} and {describe_type(right.dtype)}"
                raise fail(f"the column {left.name!r} is {types} in the sides of this operation: cast it", node)
            columns.append(OutputColumn(left.name, dtype, left.sql))
        word = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}[type(node)]
        word += "" if node.args.get("distinct") else " ALL"
        parts = [self._fit(side, columns, is_distinct=bool(node.args.get("distinct"))) for side in sides]
        made = QueryOutput(f"({parts[0]}) {word} ({parts[1]})", columns)
        return self._end_query(node, made, with_)

    def _fit(self, side: QueryOutput, columns: Sequence[OutputColumn], *, is_distinct: bool) -> str:
        """Return a side of a set operation with the types of all sides."""
        if not is_distinct and all(a.dtype == b.dtype for a, b in zip(side.columns, columns, strict=True)):
            return side.sql
        name = self.next_relation()
        cells = []
        for own, target in zip(side.columns, columns, strict=True):
            value = convert_implicitly(TypedText(f"{name}.{own.sql}", own.dtype), target.dtype)
            made = without_negative_zero(value) if is_distinct else value.sql
            cells.append(f"{made} AS {target.sql}")
        return f"SELECT {', '.join(cells)} FROM ({side.sql}) AS {name}"

    def _end_query(self, node: exp.Expr, made: QueryOutput, with_: str) -> QueryOutput:
        """Add ORDER BY and LIMIT to a set operation, or to a query in parentheses; they know its columns by name."""
        ordered = []
        for each in node.args["order"].expressions if node.args.get("order") else []:
            place = self._find_output(each.this, made.columns)
            ordered.append(f"{place} {_direction(each)}")
        order = f" ORDER BY {', '.join(ordered)}" if ordered else ""
        # In a set operation, numbers of columns are all that DuckDB takes.
        body = (
            made.sql if isinstance(node, exp.SetOperation) else f"SELECT * FROM ({made.sql}) AS {self.next_relation()}"
        )
        return QueryOutput(f"{with_}{body}{order}{limit_text(node)}", made.columns)

    def _find_output(self, node: exp.Expr, columns: Sequence[OutputColumn]) -> int:
        if isinstance(node, exp.Literal) and not node.is_string:
            return require_ordinal(node, len(columns))
        if isinstance(node, exp.Column) and not node.args.get("table"):
            for number, column in enumerate(columns):
                if column.name.lower() == node.name.lower():
                    return number + 1
        raise fail("ORDER BY of a set operation takes names or numbers of its columns", node)

    def _translate_select(
        self, node: exp.Select, parent: Scope | None, known: Mapping[str, SourceTable], with_: str
    ) -> QueryOutput:
        _refuse_unknown_parts(node, _SELECT_PARTS)
        if node.args.get("kind") or node.args.get("hint"):
            raise refuse("a query has no hints, and no SELECT AS STRUCT", node)
        scope = Scope(parent)
        text = _SelectText(self, scope, known)
        source = FromClause(self, text, scope, known).translate(node)
        where = node.args.get("where")
        filtered = f" WHERE {text.plain_condition(where.this, 'WHERE')}" if where else ""
        grouped, rows = GroupWindows(self, text, scope, self._closed).translate(node, f"{source}{filtered}")
        made = text.translate_body(grouped)
        return QueryOutput(f"{with_}SELECT {made.head}{rows}{made.tail}{limit_text(node)}", made.columns)


@dataclass(frozen=True)
class _Body:
    """What stands before FROM, and what stands behind WHERE."""

    head: str
    tail: str
    columns: Sequence[OutputColumn]


class _SelectText(ScalarText):
    """The expressions of one SELECT, with its aggregates, windows and subqueries."""

    def __init__(self, queries: QueryText, scope: Scope, known: Mapping[str, SourceTable]) -> None:
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

    def translate_body(self, node: exp.Select) -> _Body:
        """Return everything but FROM, WHERE and LIMIT."""
        for each in node.args.get("windows") or []:
            self._windows[each.name.lower()] = each
        expanded = [made for each in node.expressions for made in self._expand_star(each)]
        self.scope.aliases = {each.alias.lower(): each.this for each in expanded if isinstance(each, exp.Alias)}
        group = self._group_by(node, expanded)
        projections = [self._project(each) for each in expanded]
        is_distinct = node.args.get("distinct") is not None
        if is_distinct and node.args["distinct"].args.get("on"):
            raise refuse("DISTINCT ON is not there in a query: use ROW_NUMBER() and QUALIFY", node)
        tail = group
        having = self.condition(node.args["having"].this, "HAVING") if node.args.get("having") else None
        if _has_sets(node):
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
            raise fail("aggregates and functions of windows cannot stand here: use HAVING or QUALIFY", node)
        condition: str | None = None
        over = ""
        call = node
        if isinstance(call, exp.Window):
            over = f" OVER ({self._window(call)})"
            call = call.this
        if isinstance(call, exp.Filter):
            condition = self._inside(lambda: self.condition(call.args["expression"].this, "FILTER"))
            call = call.this
        if isinstance(call, exp.Anonymous):
            call = self.find_known(call)
        inner = call.this if isinstance(call, exp.IgnoreNulls | exp.RespectNulls) else call
        if isinstance(inner, WINDOW_FUNCTIONS) or (over and isinstance(inner, exp.First | exp.Last)):
            if not over:
                raise fail("a function of windows needs OVER (...)", node)
            if isinstance(inner, exp.First | exp.Last):
                kind = exp.FirstValue if isinstance(inner, exp.First) else exp.LastValue
                call = kind(this=inner.this.copy())
            return self._inside(lambda: window_function(self, call, over), when=not self._grouped)
        if not isinstance(call, AGGREGATES):
            raise refuse("this function is not an aggregate, and has no FILTER and no OVER, in a query", node)
        if over:
            return self._inside(lambda: aggregate(self, call, condition, over), when=not self._grouped)
        if self._inside_aggregate:
            raise fail("an aggregate cannot stand in another one", node)
        return self._inside(lambda: aggregate(self, call, condition, over))

    def translate_query(self, node: exp.Expr) -> TypedText:
        """Return a subquery that is one value, EXISTS, or IN."""
        if isinstance(node, exp.Exists):
            if node.args.get("expression") is not None:
                raise refuse("exists() of an ARRAY is not there in a query", node)
            made = self._translate_inner(node.this)
            return TypedText(f"EXISTS ({made.sql})", pa.bool_())
        if isinstance(node, exp.In):
            return self._in_query(node)
        made = self._translate_inner(node)
        if len(made.columns) != 1:
            raise fail(f"a query as a value has one column, and this one has {len(made.columns)}", node)
        return TypedText(f"({made.sql})", made.columns[0].dtype)

    def _in_query(self, node: exp.In) -> TypedText:
        made = self._translate_inner(node.args["query"])
        lefts = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if len(made.columns) != len(lefts):
            raise fail(f"the query of this IN has {len(made.columns)} columns, and its left side {len(lefts)}", node)
        name = self._queries.next_relation()
        keys, cells = [], []
        for left, column in zip(lefts, made.columns, strict=True):
            inner = TypedText(f"{name}.{column.sql}", column.dtype)
            values, _ = unify([self.scalar(left), inner], node, "the sides of IN")
            keys.append(values[0].sql)
            cells.append(values[1].sql)
        left_text = keys[0] if len(keys) == 1 else f"({', '.join(keys)})"
        return TypedText(f"({left_text} IN (SELECT {', '.join(cells)} FROM ({made.sql}) AS {name}))", pa.bool_())

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
            raise refuse("* has EXCEPT only in a query", node)
        left_out = {each.name.lower() for each in star.args.get("except_") or []}
        prefix = node.args["table"].name.lower() if isinstance(node, exp.Column) else None
        if isinstance(node, exp.Column) and node.args.get("db"):
            prefix = f"{node.args['db'].name.lower()}.{prefix}"
        found = _star_columns(self.scope, prefix, node)
        unknown = left_out - {name.lower() for name, _ in found}
        if unknown:
            raise fail(f"there is no column {min(unknown)!r} that EXCEPT could leave out", node)
        return [_Expanded.of(name, value, node) for name, value in found if name.lower() not in left_out]

    def _project(self, node: exp.Expr) -> _Projection:
        inner = node.this if isinstance(node, exp.Alias) else node
        if isinstance(inner, exp.Explode):
            return _Projection(_name_output(node) if isinstance(node, exp.Alias) else "col", node, self._explode(inner))
        value = node.value if isinstance(node, _Expanded) else self.scalar(node)
        if self._grouped and isinstance(node, _Expanded):
            value = TypedText(self._grouped.get(value.sql, value.sql), value.dtype)
        return _Projection(_name_output(node), node, value)

    def _explode(self, node: exp.Explode) -> TypedText:
        value = self.scalar(node.this)
        if self._explodes:
            raise fail("a select list has one explode()", node)
        if not pa.types.is_list(value.dtype):
            raise fail(f"explode() takes an ARRAY in a query, and this is a {describe_type(value.dtype)}", node)
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
                sets = [self._keys(_members_of(one), expanded) for one in each.expressions]
                text = f"GROUPING SETS ({', '.join(f'({chr(44).join(one)})' for one in sets)})"
                # The keys before GROUPING SETS, without a comma, only list what is in them.
                made = [*made, text] if each in group.expressions else [text]
            elif each.expressions:
                word = "ROLLUP" if isinstance(each, exp.Rollup) else "CUBE"
                made.append(f"{word} ({', '.join(self._keys(each.expressions, expanded))})")
            else:
                made = [f"{'ROLLUP' if isinstance(each, exp.Rollup) else 'CUBE'} ({', '.join(keys)})"]
        if group.args.get("totals"):
            raise refuse("WITH TOTALS is not there in a query", group)
        return f" GROUP BY {', '.join(made)}"

    def _keys(self, nodes: Sequence[exp.Expr], expanded: list[exp.Expr]) -> list[str]:
        """Return expressions of GROUP BY; -0.0 is 0.0 there, as in Spark."""
        keys = []
        for each in nodes:
            node = each
            if isinstance(node, exp.Literal) and not node.is_string:
                node = expanded[require_ordinal(node, len(expanded)) - 1]
            value = node.value if isinstance(node, _Expanded) else self._key(node)
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
                raise fail(f"there is no WINDOW {name.name!r}", node)
            node = found
        parts = []
        if node.args.get("partition_by"):
            keys = [without_negative_zero(self.scalar(each)) for each in node.args["partition_by"]]
            parts.append(f"PARTITION BY {', '.join(keys)}")
        if node.args.get("order"):
            ordered = [f"{self.scalar(each.this).sql} {_direction(each)}" for each in node.args["order"].expressions]
            parts.append(f"ORDER BY {', '.join(ordered)}")
        if node.args.get("spec"):
            parts.append(self._frame(node.args["spec"]))
        return " ".join(parts)

    def _frame(self, spec: exp.WindowSpec) -> str:
        if spec.args.get("exclude"):
            raise refuse("EXCLUDE of a window is not there in a query", spec)
        kind = str(spec.args.get("kind") or "RANGE").upper()
        if kind not in ("ROWS", "RANGE"):
            raise refuse(f"{kind} of a window is not there in a query: use ROWS or RANGE", spec)
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

    def _order_by(self, node: exp.Select, projections: list[_Projection], *, is_distinct: bool) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        parts = []
        for each in order.expressions:
            parts.append(f"{self._order_key(each.this, projections, is_distinct=is_distinct)} {_direction(each)}")
        return f" ORDER BY {', '.join(parts)}"

    def _order_key(self, node: exp.Expr, projections: list[_Projection], *, is_distinct: bool) -> str:
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
            raise fail("ORDER BY of SELECT DISTINCT takes columns of the select list", node)
        # A bare number would be that of a column.
        return f"({value.sql})"

    def _make_body(self, projections: list[_Projection], tail: str, *, is_distinct: bool) -> _Body:
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
        return _Body(f"{'DISTINCT ' if is_distinct else ''}{', '.join(cells)}", tail, columns)


class _Expanded(exp.Expression):
    """A column that stood in a *: it is known already."""

    value: TypedText

    @classmethod
    def of(cls, name: str, value: TypedText, node: exp.Expr) -> "_Expanded":
        """Return a column.

        Args:
            name: its name.
            value: what it is.
            node: the star.
        """
        made = cls(this=exp.to_identifier(name, quoted=True))
        made.this.meta.update(node.meta)
        made.value = value
        return made


def _star_columns(scope: Scope, prefix: str | None, node: exp.Expr) -> list[tuple[str, TypedText]]:
    if not scope.relations:
        raise fail("* needs a FROM", node)
    if prefix is not None:
        relations = [each for each in scope.relations if prefix in each.names]
        if not relations:
            raise fail(f"there is no relation {prefix!r} in FROM", node)
        return _columns_of(relations[0], set())
    found = list(scope.merged.values())
    for each in scope.relations:
        found += _columns_of(each, each.hidden)
    return found


def _columns_of(relation: Relation, hidden: set[str]) -> list[tuple[str, TypedText]]:
    return [
        (column.name, TypedText(f"{relation.sql}.{column.sql}", column.dtype))
        for column in relation.columns
        if column.name.lower() not in hidden
    ]


def _name_output(node: exp.Expr) -> str:
    if isinstance(node, exp.Alias):
        return str(node.alias)
    if isinstance(node, _Expanded):
        return str(node.this.name)
    if isinstance(node, exp.Column | exp.Dot):
        return str(node.name)
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count(1)"
    return node.sql(dialect="spark", normalize_functions="lower")


def _members_of(node: exp.Expr) -> list[exp.Expr]:
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node.unnest()]


def _has_sets(node: exp.Select) -> bool:
    """Return whether a query has GROUPING SETS, ROLLUP or CUBE."""
    group = node.args.get("group")
    return group is not None and (
        any(group.args.get(name) for name in ("rollup", "cube", "grouping_sets"))
        or any(isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets) for each in group.expressions)
    )


def _direction(node: exp.Expr) -> str:
    is_falling = bool(node.args.get("desc"))
    nulls = node.args.get("nulls_first")
    first = not is_falling if nulls is None else bool(nulls)
    return f"{'DESC' if is_falling else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def require_ordinal(node: exp.Literal, count: int) -> int:
    """Return the number of a column in ORDER BY or GROUP BY."""
    number = int(node.name) if node.name.isdigit() else 0
    if not 1 <= number <= count:
        raise fail(f"{node.name} is not the number of a column: there are {count}", node)
    return number


def limit_text(node: exp.Expr) -> str:
    """Return LIMIT and OFFSET of a query."""
    made = ""
    for name, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
        part = node.args.get(name)
        if part is None:
            continue
        value = part.expression if isinstance(part, exp.Limit | exp.Offset) else None
        if not isinstance(value, exp.Literal) or not value.name.isdigit():
            raise refuse(f"{word} takes a number", part)
        made += f" {word} {int(value.name)}"
    return made


def _refuse_unknown_parts(node: exp.Expr, known: frozenset[str]) -> None:
    for name, part in node.args.items():
        if part and name not in known:
            shown = part if isinstance(part, exp.Expr) else node
            word = name.rstrip("_").upper().replace("_", " ")
            raise SQLNotSupportedError(f"{word} is not there in a query; see docs/sql-queries.md", *position_of(shown))
