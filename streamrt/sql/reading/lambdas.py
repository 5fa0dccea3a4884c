"""Lambdas such as `x -> x + 1`, after parsing: what in them is a parameter."""

from sqlglot import exp

from streamrt.sql.expressions.failures import make_analysis_error, make_refusal

__all__ = ["mark_parameters"]


def mark_parameters(tree: exp.Expr) -> None:
    """Let each name that means a parameter of a lambda be a bare `exp.Identifier`, so that no `exp.Column` means one.

    sqlglot does so for names in the same case; as everywhere in SQL, others mean the same.

    Args:
        tree: a statement, which is changed.

    Raises:
        SQLAnalysisError: if two parameters of a lambda have one name.
        SQLNotSupportedError: if there is a subquery in a lambda.
    """
    for node in tree.find_all(exp.Lambda):
        names: set[str] = set()
        for parameter in node.expressions:
            if parameter.name.lower() in names:
                raise make_analysis_error(f"two parameters of a lambda have the name {parameter.name}", parameter)
            names.add(parameter.name.lower())
        query = node.this.find(exp.Query)
        if query is not None:
            raise make_refusal("a subquery cannot stand in a lambda: join its rows in FROM", query)
        for column in list(node.this.find_all(exp.Column)):
            if column.parts[0].name.lower() in names:
                column.replace(column.to_dot() if column.table else column.this)
