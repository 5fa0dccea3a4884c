"""`to_duckdb`: a query in our dialect as one of DuckDB that gives the rows that Spark gives in ANSI mode.

The text is made of what the tables of functions and operators have, and of nothing that the query brings along: names are
resolved first, literals are written again, and what is not in a table is refused, with its place. So a query can reach
neither files nor settings, whatever it says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import SQLNotSupportedError, TableNotFoundError
from streamrt.sql.expressions.coercion import common_type_of_all, describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_casts import convert_implicitly
from streamrt.sql.queries.duckdb_operators import unify
from streamrt.sql.queries.duckdb_types import TypedText, quote, without_negative_zero
from streamrt.sql.queries.from_clause import FromClause, QueryOutput, SourceTable, output_columns
from streamrt.sql.queries.scopes import OutputColumn, Scope
from streamrt.sql.queries.select_lists import (
    direction,
    limit_text,
    require_ordinal,
)
from streamrt.sql.queries.select_text import SelectText
from streamrt.sql.queries.window_text import ClosedWindows, GroupWindows
from streamrt.sql.reading import position_of

__all__ = ["QueryOutput", "SourceTable", "TableFinder", "ViewFinder", "to_duckdb", "translate_query"]

ViewFinder = Callable[[str, Sequence[str]], tuple[exp.Expr, Sequence[str]] | None]
"""Returns the query of a view by its name, and the names of its columns; None if there is none.

Its second argument is the names of the views whose queries the name is in, from the outermost one on, in lower case.
"""

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
            raise make_analysis_error(f"two columns of the result are named {name!r}: give one an alias", tree)
    for column in made.columns:
        if column.dtype == pa.duration("us") or column.dtype == pa.month_day_nano_interval():
            raise make_refusal(
                f"the column {column.name!r} is an INTERVAL, which results do not have: compute with it", tree
            )
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
            raise make_refusal("a query was expected: SELECT, VALUES or WITH", node)
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
            raise make_analysis_error(f"the view {name!r} reads itself", node)
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
            raise make_refusal("WITH RECURSIVE is not there in a query", with_)
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
        scope = SelectText(self, Scope(parent), known)
        rows = [each.expressions if isinstance(each, exp.Tuple) else [each] for each in node.expressions]
        if len({len(row) for row in rows}) != 1:
            raise make_analysis_error("the rows of VALUES have different numbers of columns", node)
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
            raise make_refusal("set operations of a query are UNION, INTERSECT and EXCEPT by position", node)
        sides = [self.translate(each, parent, known) for each in (node.this, node.expression)]
        if len(sides[0].columns) != len(sides[1].columns):
            raise make_analysis_error(
                f"the sides of this operation have {len(sides[0].columns)} and {len(sides[1].columns)} columns", node
            )
        columns = []
        for left, right in zip(sides[0].columns, sides[1].columns, strict=True):
            dtype = common_type_of_all([left.dtype, right.dtype])
            if dtype is None:
                types = f"{describe_type(left.dtype)} and {describe_type(right.dtype)}"
                raise make_analysis_error(
                    f"the column {left.name!r} is {types} in the sides of this operation: cast it", node
                )
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
            ordered.append(f"{place} {direction(each)}")
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
        raise make_analysis_error("ORDER BY of a set operation takes names or numbers of its columns", node)

    def _translate_select(
        self, node: exp.Select, parent: Scope | None, known: Mapping[str, SourceTable], with_: str
    ) -> QueryOutput:
        _refuse_unknown_parts(node, _SELECT_PARTS)
        if node.args.get("kind") or node.args.get("hint"):
            raise make_refusal("a query has no hints, and no SELECT AS STRUCT", node)
        scope = Scope(parent)
        text = SelectText(self, scope, known)
        source = FromClause(self, text, scope, known).translate(node)
        where = node.args.get("where")
        filtered = f" WHERE {text.plain_condition(where.this, 'WHERE')}" if where else ""
        grouped, rows = GroupWindows(self, text, scope, self._closed).translate(node, f"{source}{filtered}")
        made = text.translate_body(grouped)
        return QueryOutput(f"{with_}SELECT {made.head}{rows}{made.tail}{limit_text(node)}", made.columns)


def _refuse_unknown_parts(node: exp.Expr, known: frozenset[str]) -> None:
    for name, part in node.args.items():
        if part and name not in known:
            shown = part if isinstance(part, exp.Expr) else node
            word = name.rstrip("_").upper().replace("_", " ")
            raise SQLNotSupportedError(f"{word} is not there in a query; see docs/sql-queries.md", *position_of(shown))
