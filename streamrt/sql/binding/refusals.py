"""Clauses that are refused, with what to write instead."""

from typing import Final

from sqlglot import exp

from streamrt.sql.expressions.failures import make_refusal

__all__ = ["refuse_clauses"]

_CLAUSES: Final = {
    "hint": "hints do not change a topology: leave them out",
    "distribute": "DISTRIBUTE BY has no meaning here: GROUP BY brings rows together",
    "sort": "SORT BY has no meaning while rows keep coming: leave it out",
    "cluster": "CLUSTER BY has no meaning while rows keep coming: leave it out",
    "into": "SELECT INTO is refused: write INSERT INTO ... SELECT, or CREATE MATERIALIZED VIEW",
    "locks": "FOR UPDATE locks no rows: leave it out",
    "sample": "TABLESAMPLE gives other rows each time: filter by a column, such as pmod(id, 100) < 5",
    "match": "MATCH_RECOGNIZE is refused: write a process function in Python, app.sql(...).group_by(...).process(...)",
    "pivots": "PIVOT and UNPIVOT are refused: write aggregates with FILTER (WHERE ...)",
    "connect": "CONNECT BY is refused: a result that depends on itself has no end that could be kept",
    "prewhere": "PREWHERE is refused: write WHERE",
    "settings": "SETTINGS is refused: leave it out",
    "format": "FORMAT is refused: leave it out",
    "top": "TOP is refused: write ORDER BY ... LIMIT",
    "kind": "SELECT AS STRUCT is refused: write named_struct(...)",
    "options": "OPTION is refused: leave it out",
}


def refuse_clauses(select: exp.Select) -> None:
    """Refuse what a SELECT may have, and a query that is kept up to date may not.

    Args:
        select: the query.

    Raises:
        SQLNotSupportedError: if it has such a clause.
    """
    for name, advice in _CLAUSES.items():
        found = select.args.get(name)
        if found:
            node = found[0] if isinstance(found, list) else found
            raise make_refusal(advice, node if isinstance(node, exp.Expr) else select)
    group = select.args.get("group")
    if group is not None and group.args.get("totals"):
        raise make_refusal("WITH TOTALS is refused: write WITH ROLLUP, or GROUPING SETS", group)
