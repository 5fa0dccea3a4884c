"""OVER on streams in the order of their time: results that are rows of a stream again, once no earlier row can come."""

from dataclasses import replace

from streamrt.sql.binding.intervals import time_column
from streamrt.sql.binding.over_plans import OverStream, OverTable
from streamrt.sql.binding.row_plans import Filter, Plan, Project
from streamrt.sql.expressions.logic import IsNull
from streamrt.sql.expressions.nodes import ColumnReference
from streamrt.windows.running import is_up_to_row

__all__ = ["as_stream"]


def as_stream(over: OverTable, grace_ms: int) -> OverTable | OverStream:
    """Return an OVER as one of a stream, if it is in the order of its time, and no later row changes a result.

    Args:
        over: the OVER.
        grace_ms: how late rows may be.
    """
    time = time_column(over.input) if over.input.appends else None
    if time is None or not _is_order_of(over, time) or not all(is_up_to_row(call.column()) for call in over.calls):
        return over
    inner = over.input
    if isinstance(inner, OverStream) and (inner.group, inner.time) == (over.group, time):
        # One operator for both, unless one is of results of the other.
        made = {call.call.name for call in inner.calls}
        if made.isdisjoint(over.arguments) and made.isdisjoint(over.group):
            return replace(inner, calls=(*inner.calls, *over.calls))
    return OverStream(inner, over.group, over.by, over.descending, over.calls, grace_ms)


def _is_order_of(over: OverTable, time: str) -> bool:
    """Return whether rows are in the order of a time, and all of them have one."""
    *others, last = over.by or ("",)
    # NULLS FIRST adds a column to the order.
    made = dict(over.input.columns) if isinstance(over.input, Project) else {}
    tests = [made.get(name) for name in others]
    return (
        last == time
        and not over.descending[-1]
        and all(isinstance(each, IsNull) and each.operand == made.get(time) for each in tests)
        and _has_value(over.input, time)
    )


def _has_value(plan: Plan, name: str) -> bool:
    """Return whether a column is never NULL, by its definition or a filter."""
    if not plan.field(name).nullable:
        return True
    match plan:
        case Filter(rows, IsNull(ColumnReference(column), negated=True)):
            return column == name or _has_value(rows, name)
        case Filter(rows) | OverStream(rows):
            return _has_value(rows, name)
        case Project(rows, columns):
            expression = dict(columns)[name]
            return isinstance(expression, ColumnReference) and _has_value(rows, expression.name)
    return False
