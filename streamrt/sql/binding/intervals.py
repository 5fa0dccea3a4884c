"""Joins of streams whose times are near each other: `r.at BETWEEN l.at - INTERVAL '1' HOUR AND l.at`."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from streamrt.errors import SQLError
from streamrt.sql.binding.over_plans import OverStream
from streamrt.sql.binding.row_plans import Expand, Filter, Plan, Project, Scan
from streamrt.sql.binding.scopes import BlockScope
from streamrt.sql.binding.windows import read_duration
from streamrt.sql.expressions.nodes import ColumnReference

__all__ = ["Interval", "find_interval", "time_column"]


@dataclass(frozen=True)
class Interval:
    """How far times may be from each other.

    Attributes:
        left_time: the column of the left side.
        right_time: the column of the right side.
        before_ms: how much earlier the right row may be, in milliseconds.
        after_ms: how much later it may be.
    """

    left_time: str
    right_time: str
    before_ms: int
    after_ms: int


def find_interval(
    conditions: Sequence[exp.Expr],
    scope: BlockScope,
    members: set[int],
    numbers: set[int],
    left: Plan,
    right: Plan,
) -> Interval | None:
    """Return the interval that conditions describe, or None if they bound the times on one side only.

    Args:
        conditions: conditions of the join.
        scope: what their names mean.
        members: the relations of the left side.
        numbers: those of the right side.
        left: the left side.
        right: the right side.
    """
    bounds: dict[tuple[str, str], dict[str, int]] = {}
    for condition in conditions:
        for less, more in _comparisons(condition):
            _note(bounds, less, more, scope, (members, numbers))
    for (left_time, right_time), found in bounds.items():
        if {"low", "high"} <= found.keys() and _is_time(left, left_time) and _is_time(right, right_time):
            low, high = found["low"], found["high"]
            # right - left is from low to high.
            if low <= 0 <= high:
                return Interval(left_time, right_time, -low, high)
    return None


def _comparisons(node: exp.Expr) -> list[tuple[exp.Expr, exp.Expr]]:
    """Return pairs of which the first is less than the second, or equal to it."""
    if isinstance(node, exp.Between):
        return [(node.args["low"], node.this), (node.this, node.args["high"])]
    if isinstance(node, exp.LTE):
        return [(node.left, node.right)]
    if isinstance(node, exp.GTE):
        return [(node.right, node.left)]
    return []


def _note(
    bounds: dict[tuple[str, str], dict[str, int]],
    low: exp.Expr,
    high: exp.Expr,
    scope: BlockScope,
    sides: tuple[set[int], set[int]],
) -> None:
    one, other = _shifted(low, scope), _shifted(high, scope)
    if one is None or other is None:
        return
    (one_owner, one_name, one_shift), (other_owner, other_name, other_shift) = one, other
    lefts, rights = sides
    # one + one_shift <= other + other_shift
    if one_owner in lefts and other_owner in rights:
        bounds.setdefault((one_name, other_name), {})["low"] = one_shift - other_shift
    elif one_owner in rights and other_owner in lefts:
        bounds.setdefault((other_name, one_name), {})["high"] = other_shift - one_shift


def _shifted(node: exp.Expr, scope: BlockScope) -> tuple[int, str, int] | None:
    """Return relation, column and shift in milliseconds of a column, or of one plus or minus an interval."""
    shift = 0
    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.right, exp.Interval):
        try:
            shift = read_duration(node.right)
        except SQLError:
            return None
        shift = -shift if isinstance(node, exp.Sub) else shift
        node = node.left.unnest()
    if not isinstance(node, exp.Column):
        return None
    bound = scope.resolve_column(node)
    owners = scope.owners(node)
    if not isinstance(bound, ColumnReference) or len(owners) != 1:
        return None
    return next(iter(owners)), bound.name, shift


def _is_time(plan: Plan, name: str) -> bool:
    """Return whether a column is the time of the records: the time column of a table, passed on as it is."""
    return name == time_column(plan)


def time_column(plan: Plan) -> str | None:
    """Return the column of a plan that is the time of its records; None if there is none, or it is not known."""
    if isinstance(plan, Scan):
        return plan.time if any(field.name == plan.time for field in plan.fields) else None
    if isinstance(plan, Filter | Expand | OverStream):
        return time_column(plan.input)
    if isinstance(plan, Project):
        time = time_column(plan.input)
        for name, expression in plan.columns:
            if time is not None and isinstance(expression, ColumnReference) and expression.name == time:
                return name
    return None
