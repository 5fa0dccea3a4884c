"""Select lists and what else counts their columns: `*`, names of columns, ORDER BY and LIMIT."""

from dataclasses import dataclass

from sqlglot import exp

from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_types import TypedText
from streamrt.sql.queries.scopes import Relation, Scope

__all__ = [
    "ExpandedColumn",
    "Projection",
    "direction",
    "limit_text",
    "members_of",
    "name_output",
    "require_ordinal",
    "star_columns",
]


@dataclass(frozen=True)
class Projection:
    """An expression of a select list, with its name."""

    name: str
    node: exp.Expr
    value: TypedText


class ExpandedColumn(exp.Expression):
    """A column that stood in a *: it is known already."""

    value: TypedText

    @classmethod
    def of(cls, name: str, value: TypedText, node: exp.Expr) -> "ExpandedColumn":
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


def star_columns(scope: Scope, prefix: str | None, node: exp.Expr) -> list[tuple[str, TypedText]]:
    """Return the names and columns of `*`, or of `t.*`."""
    if not scope.relations:
        raise make_analysis_error("* needs a FROM", node)
    if prefix is not None:
        relations = [each for each in scope.relations if prefix in each.names]
        if not relations:
            raise make_analysis_error(f"there is no relation {prefix!r} in FROM", node)
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


def name_output(node: exp.Expr) -> str:
    """Return the name of a column of the result, as Spark names it."""
    if isinstance(node, exp.Alias):
        return str(node.alias)
    if isinstance(node, ExpandedColumn):
        return str(node.this.name)
    if isinstance(node, exp.Column | exp.Dot):
        return str(node.name)
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count(1)"
    return node.sql(dialect="spark", normalize_functions="lower")


def members_of(node: exp.Expr) -> list[exp.Expr]:
    """Return the keys of a set in GROUPING SETS."""
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node.unnest()]


def direction(node: exp.Expr) -> str:
    """Return the direction of an order, and where NULL comes: as in Spark, first if values rise."""
    is_falling = bool(node.args.get("desc"))
    nulls = node.args.get("nulls_first")
    first = not is_falling if nulls is None else bool(nulls)
    return f"{'DESC' if is_falling else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def require_ordinal(node: exp.Literal, count: int) -> int:
    """Return the number of a column in ORDER BY or GROUP BY."""
    number = int(node.name) if node.name.isdigit() else 0
    if not 1 <= number <= count:
        raise make_analysis_error(f"{node.name} is not the number of a column: there are {count}", node)
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
            raise make_refusal(f"{word} takes a number", part)
        made += f" {word} {int(value.name)}"
    return made
