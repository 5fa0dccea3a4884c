"""What names in a query stand for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from streamrt.common.suggestions import suggest_name
from streamrt.errors import SQLAnalysisError
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.queries.duckdb_types import TypedText

__all__ = ["OutputColumn", "Relation", "Scope"]


@dataclass(frozen=True)
class OutputColumn:
    """A column of a relation.

    Attributes:
        name: its name in the text.
        dtype: its type.
        sql: its name in DuckDB, without the name of the relation.
    """

    name: str
    dtype: pa.DataType
    sql: str


@dataclass
class Relation:
    """A relation of FROM.

    Attributes:
        names: what the text may call it, in lower case: its alias, or the name of the table with and without database.
        sql: its name in DuckDB.
        columns: its columns.
        hidden: names of columns, in lower case, that names without a relation do not mean, because of USING.
    """

    names: tuple[str, ...]
    sql: str
    columns: Sequence[OutputColumn]
    hidden: set[str] = field(default_factory=set)

    def find(self, name: str) -> list[TypedText]:
        """Return the columns of a name."""
        wanted = name.lower()
        return [TypedText(f"{self.sql}.{each.sql}", each.dtype) for each in self.columns if each.name.lower() == wanted]


@dataclass
class Scope:
    """The relations that the names in a query may mean, and those of the queries around it.

    Attributes:
        parent: the query around it, for correlated subqueries.
        relations: what FROM has.
        merged: columns of USING, by name in lower case.
        aliases: expressions of the select list by alias in lower case.
        is_correlated: whether a name in it, or in a query in it, was looked for in the queries around it.
    """

    parent: "Scope | None" = None
    relations: list[Relation] = field(default_factory=list)
    merged: dict[str, tuple[str, TypedText]] = field(default_factory=dict)
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    is_correlated: bool = False

    def resolve(self, parts: Sequence[exp.Identifier], node: exp.Expr) -> tuple[TypedText, list[str]]:
        """Return the column for a name with dots in it, and the names of fields behind it.

        Args:
            parts: the parts of the name.
            node: where it is.

        Raises:
            SQLAnalysisError: if there is no such column, or several.
        """
        names = [part.name for part in parts]
        scope: Scope | None = self
        while scope is not None:
            found = scope._find(names, node)
            if found is not None:
                return found
            scope.is_correlated = True
            scope = scope.parent
        raise self._make_missing_error(names, node)

    def _find(self, names: list[str], node: exp.Expr) -> tuple[TypedText, list[str]] | None:
        for size in range(min(len(names) - 1, 3), 0, -1):
            prefix = ".".join(names[:size]).lower()
            relations = [each for each in self.relations if prefix in each.names]
            if len(relations) > 1:
                raise make_analysis_error(
                    f"{prefix!r} is the name of two relations of this query: give them aliases", node
                )
            if relations:
                columns = relations[0].find(names[size])
                if columns:
                    return self._require_one(columns, names[size], node), names[size + 1 :]
        merged = self.merged.get(names[0].lower())
        if merged is not None:
            return merged[1], names[1:]
        columns = [
            column for each in self.relations if names[0].lower() not in each.hidden for column in each.find(names[0])
        ]
        return (self._require_one(columns, names[0], node), names[1:]) if columns else None

    def _require_one(self, columns: list[TypedText], name: str, node: exp.Expr) -> TypedText:
        if len(columns) > 1:
            raise make_analysis_error(
                f"the column {name!r} is in several relations: write the name of one before it, with a dot", node
            )
        return columns[0]

    def _make_missing_error(self, names: list[str], node: exp.Expr) -> SQLAnalysisError:
        known = [column.name for each in self.relations for column in each.columns]
        listed = ", ".join(known[:20]) if known else "none"
        advice = suggest_name(names[-1], known) or f"; the columns are {listed}"
        return make_analysis_error(f"there is no column {'.'.join(names)!r}{advice}", node)
