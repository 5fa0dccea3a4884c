"""Operators that wait for rows up to a time, and leave out what comes later: windows, OVERs and joins of streams.

When such an operator counts a row as late depends on how partitions were interleaved. But time never moves further than
the partition of a row itself has come. So a row is in time for sure if its own partition has no earlier record that is
later than the operator waits. In the same way, what is over for sure follows from the partition that is furthest behind,
if the operator sees all of its records: those that a filter leaves out move no time.
"""

from collections.abc import Iterator
from typing import NamedTuple

from streamrt.sql.binding import plan as plans
from streamrt.sql.binding.intervals import time_column
from streamrt.sql.binding.row_plans import walk_plan
from streamrt.sql.expressions.logic import IsNull
from streamrt.sql.expressions.nodes import ColumnReference

__all__ = ["CLOCK", "TIME", "Wait", "find_waits"]

TIME, CLOCK = "record_time", "highest_time"
"""Columns: the time of a record in milliseconds since 1970, and the highest one of those before it in its partition."""


class Wait(NamedTuple):
    """How long an operator waits for the rows of a table.

    Attributes:
        table: name of the table.
        is_late: a condition on `TIME` and `CLOCK` in DuckDB's SQL: whether a record may have come too late.
        sees_all: whether all records of the table that have a time come to the operator.
        holds_ms: how far the clock must pass a record before its row is passed on; None if it does not wait for that.
    """

    table: str
    is_late: str
    sees_all: bool
    holds_ms: int | None = None


def find_waits(plan: plans.Plan) -> list[Wait]:
    """Return how long the operators of a plan wait for the rows of its tables."""
    return [
        Wait(scan.name, condition, all(map(_passes_all, node.inputs())), _holds_ms(node))
        for node in walk_plan(plan)
        for condition in _late_conditions(node)
        for scan in walk_plan(node)
        if isinstance(scan, plans.Scan) and scan.time is not None
    ]


def _passes_all(plan: plans.Plan) -> bool:
    """Return whether a plan has a row for each record with a time."""
    match plan:
        case plans.Scan():
            return True
        case plans.Filter(rows, IsNull(ColumnReference(name), negated=True)):
            return name == time_column(rows) and _passes_all(rows)
        case plans.Project(rows):
            return _passes_all(rows)
    return False


def _holds_ms(plan: plans.Plan) -> int | None:
    return plan.grace_ms if isinstance(plan, plans.OverStream) else None


def _late_conditions(plan: plans.Plan) -> Iterator[str]:
    match plan:
        case plans.WindowAggregate():
            # The first of the windows of a record closes first.
            since = f"({TIME} - {plan.size_ms + plan.offset_ms})"
            into = f"(({since} % {plan.step_ms} + {plan.step_ms}) % {plan.step_ms})"
            yield f"{TIME} + {plan.step_ms} - {into} + {plan.grace_ms} <= {CLOCK}"
        case plans.SessionAggregate():
            yield f"{TIME} + {plan.gap_ms + plan.grace_ms} < {CLOCK}"
        case plans.IntervalJoin() | plans.OverStream():
            yield f"{TIME} + {plan.grace_ms} < {CLOCK}"
