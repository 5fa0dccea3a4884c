"""`to_spark`: a checked query as the text that Spark gets.

The text is generated from the tree, in which names of tables are replaced by those of temporary views. All that stands in
the tree must be on the lists of what queries have, also where the check of names and types does not look: Spark has
functions that call Java, read files, or show settings. Comments are left out, because Spark takes some of them for hints.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator

from streamrt.schema.quiet import quiet_sqlglot
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_text import ViewFinder
from streamrt.sql.queries.scalar_text import is_listed

__all__ = ["to_spark"]

_STRUCTURE: frozenset[type[exp.Expr]] = frozenset(
    [
        *(exp.Select, exp.Union, exp.Intersect, exp.Except, exp.Values, exp.Subquery, exp.With, exp.CTE),
        *(exp.From, exp.Join, exp.Lateral, exp.Table, exp.TableAlias, exp.Identifier, exp.Star, exp.Dot),
        *(exp.Where, exp.Group, exp.Rollup, exp.Cube, exp.GroupingSets, exp.Having, exp.Qualify, exp.Distinct),
        *(exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Window, exp.WindowSpec, exp.Filter, exp.WithinGroup),
        *(exp.IgnoreNulls, exp.RespectNulls, exp.Explode, exp.Tuple, exp.PropertyEQ, exp.Var, exp.Lambda),
        *(exp.DataType, exp.DataTypeParam),
    ]
)
"""What queries are made of, apart from expressions."""
_NAMED_LIKE_FUNCTIONS = frozenset(
    ["user", "current_user", "session_user", "current_catalog", "current_database", "current_schema"]
)
"""Names that Spark takes for calls of functions, unless there is such a column."""
_WINDOWS = frozenset(["window", "session_window", "tumble", "hop", "cumulate", "session"])
_PLAIN_WORDS = re.compile(r"[\w .+-]*")
"""Words and numbers that may be written without quotes."""


class _SparkText(Spark):
    """Spark's dialect as Spark 4 reads it."""

    class Generator(SparkGenerator):
        """Writes QUALIFY, and WITH in subqueries, as they are, and all names in quotes."""

        EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[Any] = set()
        TRANSFORMS: ClassVar[Any] = {
            kind: transform for kind, transform in SparkGenerator.TRANSFORMS.items() if kind is not exp.Select
        }

        def lateral_sql(self, expression: exp.Lateral) -> str:
            """Return LATERAL VIEW, whose alias sqlglot writes without quotes."""
            if not expression.args.get("view"):
                return super().lateral_sql(expression)
            alias = expression.args["alias"]
            columns = self.expressions(alias, key="columns", flat=True)
            words = self.seg(f"LATERAL VIEW{' OUTER' if expression.args.get('outer') else ''}")
            parts = [words, self.sql(expression, "this"), self.sql(alias, "this"), f"AS {columns}" if columns else ""]
            return " ".join(part for part in parts if part)


def to_spark(
    tree: exp.Expr,
    find_name: Callable[[exp.Table], str],
    find_view: ViewFinder | None = None,
    columns: Collection[str] = (),
) -> str:
    """Return a query in Spark's SQL.

    Args:
        tree: the query, whose names and types are checked.
        find_name: returns the name of the temporary view of a table in FROM.
        find_view: finds the queries of views, which are put in their places.
        columns: names of the columns of all tables.

    Raises:
        SQLNotSupportedError: if something in it is not on the lists of what queries have.
        SQLAnalysisError: if two tables of one FROM have the same last name, and no aliases.

    Example:
        >>> from streamrt.sql.reading import parse_query
        >>> to_spark(parse_query("SELECT shop.orders.id /*+ hint */ FROM shop.orders"), lambda table: "q_s1")
        'SELECT `orders`.`id` FROM `q_s1` AS `orders`'
    """
    made = tree.copy()
    _require_listed(made, {each.lower() for each in columns})
    _Names(find_name, find_view, columns).replace(made)
    with quiet_sqlglot():
        return made.sql(dialect=_SparkText, identify=True, comments=False)


class _Names:
    """Replaces names of tables by those of temporary views."""

    def __init__(
        self, find_name: Callable[[exp.Table], str], find_view: ViewFinder | None, columns: Collection[str]
    ) -> None:
        self._find_name = find_name
        self._find_view = find_view
        self._columns = columns
        self._views: list[str] = []

    def replace(self, tree: exp.Expr) -> None:
        """Replace the names in a query, in place."""
        for column in list(tree.find_all(exp.Column)):
            _shorten(column)
        self._replace_below(tree, frozenset())

    def _replace_below(self, node: exp.Expr, known: frozenset[str]) -> None:
        """Replace tables.

        Args:
            node: where to look for them.
            known: names of WITH, in lower case.
        """
        with_ = node.args.get("with_")
        for each in with_.expressions if with_ is not None else []:
            self._replace_below(each.this, known)
            known |= {each.alias.lower()}
        if isinstance(node, exp.Select):
            _require_different_names(node)
        if isinstance(node, exp.Table):
            self._replace_table(node, known)
        for each in list(node.iter_expressions()):
            if each is not with_:
                self._replace_below(each, known)

    def _replace_table(self, node: exp.Table, known: frozenset[str]) -> None:
        if not node.args.get("db") and node.name.lower() in known:
            return
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name, quoted=True))
        name = ".".join(part.name for part in node.parts)
        view = None if self._find_view is None else self._find_view(name, self._views)
        if view is None:
            node.set("this", exp.to_identifier(self._find_name(node), quoted=True))
            for part in ("db", "catalog"):
                node.set(part, None)
            node.set("alias", alias)
            return
        tree, names = view
        inner = tree.copy()
        _require_listed(inner, {each.lower() for each in self._columns})
        self._views.append(name.lower())
        self.replace(inner)
        self._views.pop()
        if not alias.args.get("columns"):
            alias.set("columns", [exp.to_identifier(each, quoted=True) for each in names])
        made = exp.Subquery(this=inner, alias=alias)
        for part in ("joins", "laterals"):
            made.set(part, node.args.get(part))
        node.replace(made)


def _shorten(column: exp.Column) -> None:
    """Take the name of the database off `database.table.column`, if that is a table without an alias."""
    database, table = column.args.get("db"), column.args.get("table")
    if database is None or table is None:
        return
    select = column.parent_select
    while select is not None:
        relations = _relations_of(select)
        if any(_is_named(each, database.name, table.name) for each in relations):
            column.set("db", None)
            return
        if any(each.alias_or_name.lower() == database.name.lower() for each in relations):
            # It is relation.column.field.
            return
        select = select.parent_select


def _is_named(relation: exp.Expr, database: str, table: str) -> bool:
    if not isinstance(relation, exp.Table) or relation.alias:
        return False
    return (relation.db.lower(), relation.name.lower()) == (database.lower(), table.lower())


def _relations_of(select: exp.Expr) -> list[exp.Expr]:
    source = select.args.get("from_")
    first = [] if source is None else [source.this]
    return [*first, *(each.this for each in select.args.get("joins") or [])]


def _require_different_names(select: exp.Select) -> None:
    taken: set[str] = set()
    for each in _relations_of(select):
        name = each.name.lower() if isinstance(each, exp.Table) and not each.alias else ""
        if name and name in taken:
            raise make_analysis_error(f"{name!r} is the name of two tables of FROM: give them aliases", each)
        taken.add(name)


def _require_listed(tree: exp.Expr, columns: Collection[str]) -> None:
    aliases = {each.alias.lower() for each in tree.find_all(exp.Alias, exp.CTE, exp.Subquery)}
    for node in tree.walk():
        if isinstance(node, exp.Anonymous) and node.name.lower() in _WINDOWS:
            raise make_refusal(f'{node.name.lower()}() is for engine="duckdb": use date_trunc(), or that engine', node)
        if not (type(node) in _STRUCTURE or is_listed(node)):
            raise make_refusal(
                f"{_describe(node)} is not on the list of what queries have; see docs/sql-queries.md", node
            )
        if not _is_quoted(node) and not all(_PLAIN_WORDS.fullmatch(each) for each in _find_words(node)):
            raise make_refusal(f"{_describe(node)} has a word that cannot stand here", node)
        name = node.name.lower() if isinstance(node, exp.Column) else ""
        if name in _NAMED_LIKE_FUNCTIONS and name not in columns and name not in aliases:
            raise make_analysis_error(f"there is no column {name!r}", node)


def _is_quoted(node: exp.Expr) -> bool:
    return isinstance(node, exp.Identifier) or (isinstance(node, exp.Literal) and node.is_string)


def _find_words(node: exp.Expr) -> list[str]:
    """Return the strings of a node, which are written as they are."""
    values = [each for value in node.args.values() for each in (value if isinstance(value, list) else [value])]
    return [each for each in values if isinstance(each, str)]


def _describe(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name.lower()}()"
    return f"the function {node.sql_name().lower()}()" if isinstance(node, exp.Func) else type(node).__name__
