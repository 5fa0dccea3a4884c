"""Rows that the text of a query has itself: those of VALUES, and the one of a SELECT without FROM."""

from typing import Any

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.binding.row_plans import Field, Plan, Scan, Values, walk_plan
from streamrt.sql.binding.scopes import BlockScope, Bound, NamedColumn
from streamrt.sql.binding.session import Session
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.casts import cast_to
from streamrt.sql.expressions.coercion import common_type_of_all, describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal

__all__ = ["bind_values", "make_row", "require_input"]


def bind_values(node: exp.Values, session: Session) -> Bound:
    """Return the rows of VALUES. Their columns are col1, col2 and so on.

    Args:
        node: the VALUES.
        session: what it is bound with.

    Raises:
        SQLAnalysisError: if rows have different numbers of columns, or values without a common type, or a value cannot be
            computed.
    """
    rows = [each.expressions if isinstance(each, exp.Tuple) else [each] for each in node.expressions]
    for row, each in zip(rows, node.expressions, strict=True):
        if len(row) != len(rows[0]):
            raise make_analysis_error(
                f"this row of VALUES has {len(row)} columns, and the first one {len(rows[0])}", each
            )
    columns = [_bind_column(cells, number, session) for number, cells in enumerate(zip(*rows, strict=True), 1)]
    values = tuple(zip(*(made for _, made in columns), strict=True))
    plan = Values(tuple(field for field, _ in columns), values)
    return Bound(plan, tuple(NamedColumn(f"col{number}", field) for number, field in enumerate(plan.fields, 1)))


def make_row(session: Session) -> Plan:
    """Return one row, whose only column says nothing: the rows of a SELECT without FROM."""
    return Values((Field(session.new_name(), pa.bool_(), nullable=False),), ((True,),))


def require_input(plan: Plan, tree: exp.Expr) -> None:
    """Refuse a query all of whose rows are in its text.

    Args:
        plan: the query.
        tree: its text.

    Raises:
        SQLNotSupportedError: if it reads no table and no frame.
    """
    if not any(isinstance(each, Scan) for each in walk_plan(plan)):
        raise make_refusal(
            "a query that is kept up to date needs FROM with a table or a frame: without one it has no input, and so no task "
            "that would have its rows; write them to a table by app.execute('INSERT INTO ...')",
            tree,
        )


def _bind_column(cells: tuple[exp.Expr, ...], number: int, session: Session) -> tuple[Field, list[Any]]:
    bound = [session.bind(cell, BlockScope([])) for cell in cells]
    dtypes = [each.dtype for each in bound]
    dtype = common_type_of_all(dtypes)
    if dtype is None:
        listed = ", ".join(sorted(set(map(describe_type, dtypes))))
        raise make_analysis_error(f"column {number} of VALUES has {listed}: cast its values to one type", cells[0])
    values = [_compute(cast_to(each, dtype), cell) for each, cell in zip(bound, cells, strict=True)]
    return Field(session.new_name(), dtype, nullable=any(value is None for value in values)), values


def _compute(expression: TypedExpression, node: exp.Expr) -> Any:
    try:
        return expression.compile()({}, None, 0, None)
    except Exception as error:
        raise make_analysis_error(f"{expression} cannot be computed: {error}", node) from error
