"""FROM of a query in DuckDB's SQL: tables, subqueries, joins and LATERAL VIEW."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.binding.windows import read_window_function
from streamrt.sql.expressions.coercion import describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_operators import unify
from streamrt.sql.queries.duckdb_types import TypedText, quote
from streamrt.sql.queries.scopes import OutputColumn, Relation, Scope
from streamrt.sql.queries.translation import Translation
from streamrt.sql.queries.window_text import expand_table

__all__ = ["FromClause", "Queries", "QueryOutput", "SourceTable", "output_columns"]

_TABLE_PARTS = frozenset(["this", "db", "catalog", "alias", "joins", "laterals"])
_JOINS = {
    ("", ""): "INNER JOIN",
    ("", "INNER"): "INNER JOIN",
    ("", "CROSS"): "CROSS JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("LEFT", "OUTER"): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("RIGHT", "OUTER"): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("FULL", "OUTER"): "FULL JOIN",
    ("", "OUTER"): "FULL JOIN",
    ("LEFT", "SEMI"): "SEMI JOIN",
    ("", "SEMI"): "SEMI JOIN",
    ("LEFT", "ANTI"): "ANTI JOIN",
    ("", "ANTI"): "ANTI JOIN",
}


@dataclass(frozen=True)
class SourceTable:
    """A table or a query of WITH, as DuckDB has it.

    Attributes:
        sql: its name in DuckDB.
        schema: names and types of its columns.
        columns: their names in DuckDB; by default, the same in quotes.
    """

    sql: str
    schema: "pa.Schema | Sequence[tuple[str, pa.DataType]]"
    columns: Sequence[str] | None = None

    def output(self) -> list[OutputColumn]:
        """Return the columns."""
        pairs = [(each.name, each.type) for each in self.schema] if isinstance(self.schema, pa.Schema) else self.schema
        names = self.columns or [quote(name) for name, _ in pairs]
        return [OutputColumn(name, dtype, sql) for (name, dtype), sql in zip(pairs, names, strict=True)]


@dataclass(frozen=True)
class QueryOutput:
    """A query in DuckDB's SQL.

    Attributes:
        sql: the query.
        columns: its columns.
    """

    sql: str
    columns: Sequence[OutputColumn]


class Queries(Protocol):
    """Translates queries; `QueryText` says what each method does."""

    def translate(self, node: exp.Expr, parent: Scope | None, known: Mapping[str, SourceTable]) -> QueryOutput:
        """Return a query and its columns."""

    def next_relation(self) -> str:
        """Return a name for a relation."""

    def find_table(self, node: exp.Table, known: Mapping[str, SourceTable]) -> SourceTable:
        """Return a table."""


class SelectText(Translation, Protocol):
    """Translates the expressions of a SELECT."""

    def plain_condition(self, node: exp.Expr, what: str) -> str:
        """Return a condition of single rows."""


class FromClause:
    """Translates FROM, and adds its relations to a scope.

    Args:
        queries: translates subqueries.
        text: translates conditions.
        scope: gets the relations.
        known: queries of WITH.
    """

    def __init__(self, queries: Queries, text: SelectText, scope: Scope, known: Mapping[str, SourceTable]) -> None:
        self._queries = queries
        self._text = text
        self._scope = scope
        self._known = known

    def translate(self, node: exp.Select) -> str:
        """Return FROM with its joins, or nothing if there is none."""
        source = node.args.get("from_")
        if source is None:
            return ""
        made = f" FROM {self._relation(source.this)}"
        for each in node.args.get("joins") or []:
            made += self._join(each)
        for each in node.args.get("laterals") or []:
            made += self._lateral(each)
        return made

    def _relation(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Table):
            made = self._table(node)
        elif isinstance(node, exp.Subquery):
            inner = self._queries.translate(node.this, self._scope.parent, self._known)
            made = self._add(inner, node)
        elif isinstance(node, exp.Values):
            made = self._add(self._queries.translate(node, self._scope.parent, self._known), node)
        elif isinstance(node, exp.Lateral):
            raise make_refusal(
                "LATERAL with a query is not there in a query: use a join, or LATERAL VIEW explode(...)", node
            )
        else:
            raise make_refusal("FROM takes tables, queries in parentheses and VALUES", node)
        for name in ("pivots", "sample"):
            if node.args.get(name):
                raise make_refusal(f"{name.upper().rstrip('S')} is not there in a query", node)
        for each in node.args.get("joins") or []:
            made += self._join(each)
        for each in node.args.get("laterals") or []:
            made += self._lateral(each)
        return made

    def _table(self, node: exp.Table) -> str:
        if isinstance(node.this, exp.Func):
            return self._window_function(node)
        if not isinstance(node.this, exp.Identifier):
            raise make_refusal("FROM has no frames in a query: tables are those of the catalogue", node)
        for name, part in node.args.items():
            if part and name not in _TABLE_PARTS:
                raise make_refusal(f"{name.rstrip('_').upper()} of a table is not there in a query", node)
        table = self._queries.find_table(node, self._known)
        columns = table.output()
        alias = node.args.get("alias")
        if alias is not None and alias.columns:
            columns = output_columns(columns, alias)
        names = (node.alias.lower(),) if node.alias else _names_of(node)
        name = self._queries.next_relation()
        self._add_relation(Relation(names, name, columns), node)
        return f"{table.sql} AS {name}"

    def _window_function(self, node: exp.Table) -> str:
        function = read_window_function(node.this)
        inner = Scope(self._scope.parent)
        source = FromClause(self._queries, self._text, inner, self._known)._relation(function.source)
        parts = [each for each in function.time.parts if isinstance(each, exp.Identifier)]
        time, fields = inner.resolve(parts, function.time)
        if fields:
            raise make_refusal(
                f"{function.name.upper()} takes a column as the time, and no field of one", function.time
            )
        (relation,) = inner.relations
        made, columns = expand_table(self._queries.next_relation(), function, time, relation, source)
        return self._add(QueryOutput(made, columns), node, relation.names)

    def _add(self, inner: QueryOutput, node: exp.Expr, names: tuple[str, ...] = ()) -> str:
        alias = node.args.get("alias")
        columns = list(inner.columns) if alias is None else output_columns(inner.columns, alias)
        name = self._queries.next_relation()
        # The names of columns in DuckDB stay those of the query.
        self._add_relation(Relation((node.alias.lower(),) if node.alias else names, name, columns), node)
        return f"({inner.sql}) AS {name}"

    def _add_relation(self, relation: Relation, node: exp.Expr) -> None:
        taken = {name for each in self._scope.relations for name in each.names}
        if len(relation.names) == 1 and relation.names[0] in taken:
            raise make_analysis_error(
                f"{relation.names[0]!r} is the name of two relations of FROM: give one another alias", node
            )
        self._scope.relations.append(relation)

    def _join(self, node: exp.Join) -> str:
        side, kind = str(node.side).upper(), str(node.kind).upper()
        word = _JOINS.get((side, kind))
        if word is None or node.args.get("method") not in (None, "", "NATURAL"):
            raise make_refusal(f"{f'{side} {kind}'.strip()} JOIN is not there in a query", node)
        before = len(self._scope.relations)
        if isinstance(node.this, exp.Lateral):
            return self._lateral(node.this)
        made = self._relation(node.this)
        added = self._scope.relations[before:]
        using = [each.name for each in node.args.get("using") or []]
        if node.args.get("method") == "NATURAL":
            using = self._shared_names(before, added)
        condition = ""
        if using:
            condition = f" ON {self._join_using(using, before, word, node)}"
        elif node.args.get("on") is not None:
            if word == "CROSS JOIN":
                word = "INNER JOIN"
            condition = f" ON {self._text.plain_condition(node.args['on'], 'ON')}"
        elif word == "INNER JOIN":
            word = "CROSS JOIN"
        elif word != "CROSS JOIN":
            raise make_analysis_error(f"{word} needs ON or USING", node)
        if word in ("SEMI JOIN", "ANTI JOIN"):
            del self._scope.relations[before:]
        return f" {word} {made}{condition}"

    def _shared_names(self, before: int, added: list[Relation]) -> list[str]:
        left = {column.name.lower() for each in self._scope.relations[:before] for column in each.columns}
        return [column.name for each in added for column in each.columns if column.name.lower() in left]

    def _join_using(self, names: Sequence[str], before: int, word: str, node: exp.Join) -> str:
        relations = self._scope.relations
        conditions = []
        for name in names:
            merged = self._scope.merged.get(name.lower())
            lefts = [merged[1]] if merged is not None else _find_all(relations[:before], name)
            rights = _find_all(relations[before:], name)
            if len(lefts) != 1 or len(rights) != 1:
                raise make_analysis_error(f"the column {name!r} of USING must be in both sides once", node)
            sides = [lefts[0], rights[0]]
            (left, right), dtype = unify(sides, node, f"the columns {name!r} of USING")
            conditions.append(f"({left.sql} = {right.sql})")
            if word in ("SEMI JOIN", "ANTI JOIN"):
                continue
            if word == "FULL JOIN":
                value = TypedText(f"coalesce({left.sql}, {right.sql})", dtype)
            else:
                value = sides[1] if word == "RIGHT JOIN" else sides[0]
            self._scope.merged[name.lower()] = (name, value)
            for each in relations:
                each.hidden.add(name.lower())
        return " AND ".join(conditions)

    def _lateral(self, node: exp.Lateral) -> str:
        call = node.this
        if not isinstance(call, exp.Explode):
            raise make_refusal("LATERAL VIEW takes explode() in a query", node)
        value = self._text.scalar(call.this)
        if not pa.types.is_list(value.dtype):
            raise make_analysis_error(
                f"explode() takes an ARRAY in a query, and this is a {describe_type(value.dtype)}", node
            )
        alias = node.args.get("alias")
        columns = [each.name for each in alias.columns] if alias is not None else []
        if len(columns) > 1:
            raise make_analysis_error("explode() of an ARRAY has one column", node)
        name = self._queries.next_relation()
        column = columns[0] if columns else "col"
        relation = Relation(
            (node.alias.lower(),) if node.alias else (),
            name,
            [OutputColumn(column, value.dtype.value_type, quote(column))],
        )
        made = f"(SELECT unnest({value.sql}) AS {quote(column)}) AS {name}"
        self._add_relation(relation, node)
        return f" LEFT JOIN LATERAL {made} ON TRUE" if node.args.get("outer") else f" CROSS JOIN LATERAL {made}"


def output_columns(columns: Sequence[OutputColumn], alias: exp.Expr) -> list[OutputColumn]:
    """Return columns with the names that an alias gives them, as in `AS t(a, b)`.

    Raises:
        SQLAnalysisError: if it has another number of names.
    """
    names = [each.name for each in alias.args.get("columns") or []]
    if not names:
        return list(columns)
    if len(names) != len(columns):
        raise make_analysis_error(f"the alias has {len(names)} columns, and the query {len(columns)}", alias)
    return [OutputColumn(name, each.dtype, each.sql) for name, each in zip(names, columns, strict=True)]


def _find_all(relations: Sequence[Relation], name: str) -> list[TypedText]:
    return [column for each in relations for column in each.find(name)]


def _names_of(node: exp.Table) -> tuple[str, ...]:
    parts = [part.name.lower() for part in node.parts]
    return tuple(".".join(parts[number:]) for number in range(len(parts)))
