"""Columns by which rows are joined and grouped: of one type, and one value for all that SQL calls equal."""

import math
from typing import Any

import pyarrow as pa
from sqlglot import exp

from streamrt.schema.types import has_floats
from streamrt.sql.binding.group_plans import Distinct
from streamrt.sql.binding.row_plans import Plan, Project
from streamrt.sql.binding.scopes import reference
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.calls import FunctionCall
from streamrt.sql.expressions.casts import cast_to
from streamrt.sql.expressions.coercion import common_type, describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal

__all__ = ["align", "as_key", "distinct_rows", "with_null"]


def normalize_float(value: float) -> float:
    """Return a float that has the bytes of all that are equal to it: -0.0 is 0.0, and there is one NaN.

    Example:
        >>> normalize_float(-0.0)
        0.0
    """
    return math.nan if value != value else value + 0.0


def as_key(value: TypedExpression, node: exp.Expr | None) -> TypedExpression:
    """Return an expression whose equal values have equal bytes.

    Args:
        value: the expression.
        node: where it stands, for errors.

    Raises:
        SQLNotSupportedError: if values of its type are not compared.
    """
    dtype = value.dtype
    if pa.types.is_map(dtype):
        raise make_refusal(f"maps have no equality: group, join and compare by fields of {value}", node)
    if pa.types.is_nested(dtype):
        if has_floats(dtype):
            raise make_refusal(f"{value} has floats within it, which is not possible in a key: use its fields", node)
        return value
    return FunctionCall("key", normalize_float, (value,), dtype) if pa.types.is_floating(dtype) else value


def with_null(value: TypedExpression) -> TypedExpression:
    """Return an expression that is never NULL, and equal where both values are equal or both are NULL, as `<=>` has it."""
    return FunctionCall("array", _make_list, (value,), pa.list_(value.dtype), strict=False)


def _make_list(value: Any) -> list[Any]:
    return [value]


def distinct_rows(plan: Plan) -> Plan:
    """Return each row of a plan once; floats that are equal have equal bytes."""
    if any(pa.types.is_floating(field.dtype) for field in plan.fields):
        columns = ((field.name, reference(field)) for field in plan.fields)
        plan = Project(
            plan,
            tuple(
                (name, as_key(column, None) if pa.types.is_floating(column.dtype) else column)
                for name, column in columns
            ),
        )
    return Distinct(plan)


def align(left: TypedExpression, right: TypedExpression, node: exp.Expr) -> tuple[TypedExpression, TypedExpression]:
    """Return two expressions whose values have equal bytes if they are equal.

    Args:
        left: one side of an equality.
        right: the other side.
        node: the equality, for errors.

    Raises:
        SQLAnalysisError: if they cannot be compared.
    """
    dtype = common_type(left.dtype, right.dtype)
    if dtype is None and pa.types.is_string(right.dtype) is not pa.types.is_string(left.dtype):
        dtype = left.dtype if pa.types.is_string(right.dtype) else right.dtype
    if dtype is None:
        raise make_analysis_error(
            f"{left} is {describe_type(left.dtype)}, {right} is {describe_type(right.dtype)}, and these are not compared: "
            "cast one of them",
            node,
        )
    sides = [side if side.dtype == dtype else cast_to(side, dtype) for side in (left, right)]
    return as_key(sides[0], node), as_key(sides[1], node)
