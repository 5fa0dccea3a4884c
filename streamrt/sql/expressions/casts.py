"""CAST and TRY_CAST, and the casts that operators and functions do by themselves."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import types
from sqlglot import exp

from streamrt.operators.expression import Expression
from streamrt.sql.expressions.coercion import (
    DATE,
    DOUBLE,
    FLOAT,
    NULL,
    TIMESTAMP,
    common_type_of_all,
    describe_type,
    is_integral,
    may_cast_silently,
)
from streamrt.sql.expressions.conversions import can_cast, converter_of
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.nodes import (
    Constant,
    Split,
    StrictNode,
    call_function,
    fold_constants,
    is_null_literal,
    load,
    split_null,
)
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.topology import InlinedCode

__all__ = ["Cast", "bind_cast", "cast_silently", "cast_to", "unify"]


@dataclass(frozen=True)
class Cast(StrictNode):
    """`CAST(a AS type)`, or with `safe` `TRY_CAST(a AS type)`, which is NULL where CAST fails."""

    operand: TypedExpression
    type: pa.DataType
    safe: bool = False

    @property
    def nullable(self) -> bool:  # noqa: D102
        return self.operand.nullable or self._may_fail_silently()

    def _may_fail_silently(self) -> bool:
        return self.safe or (self.operand.dtype in (FLOAT, DOUBLE) and bool(types.is_decimal128(self.type)))

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return (self.operand,)

    @property
    def is_total(self) -> bool:  # type: ignore[override]  # it depends on the cast  # noqa: D102
        return not self._may_fail_silently()

    def split(self, code: InlinedCode) -> Split:  # noqa: D102
        convert = converter_of(self.operand.dtype, self.type)
        if convert is None:
            return split_null(code, (self.operand,), lambda operands: operands[0])
        function: Any = try_to(convert) if self.safe else convert
        if function is float and not self.safe:
            return split_null(code, (self.operand,), lambda operands: ast.Call(load("float"), operands, []))
        return split_null(code, (self.operand,), lambda operands: call_function(code, function, *operands))

    def __str__(self) -> str:
        return f"{'TRY_CAST' if self.safe else 'CAST'}({self.operand} AS {describe_type(self.type)})"


def try_to(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that gives None where another one fails."""

    def run(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, ArithmeticError):
            return None

    return run


def bind_cast(
    operand: TypedExpression, target: pa.DataType, node: exp.Expr | None, *, safe: bool = False
) -> TypedExpression:
    """Return the node of a cast.

    Args:
        operand: its operand, bound.
        target: the type.
        node: its place.
        safe: whether it is TRY_CAST.

    Raises:
        SQLAnalysisError: if values of the operand's type have no form in the other type.
    """
    if not can_cast(operand.dtype, target):
        hint = ""
        if operand.dtype == TIMESTAMP:
            hint = "; unix_millis(a) and unix_seconds(a) give numbers"
        elif is_integral(operand.dtype) and target in (DATE, TIMESTAMP):
            hint = "; date_from_unix_date(a), timestamp_seconds(a) and timestamp_millis(a) read numbers"
        raise make_analysis_error(
            f"{describe_type(operand.dtype)} cannot be cast to {describe_type(target)}{hint}", node
        )
    return fold_constants(Cast(operand, target, safe)) if operand.dtype != target else operand


def cast_to(operand: TypedExpression, target: pa.DataType) -> TypedExpression:
    """Return an operand as a value of a type to which it can be cast: the operand itself, if it has it."""
    if operand.dtype == target:
        return operand
    if is_null_literal(operand):
        return Constant(None, target)
    return fold_constants(Cast(operand, target))


def cast_silently(operand: TypedExpression, target: pa.DataType, node: exp.Expr | None, what: str) -> TypedExpression:
    """Return an operand as a value of the type that is expected of it.

    Args:
        operand: the operand.
        target: the type.
        node: its place, for the error.
        what: what expects it, for the error.

    Raises:
        SQLAnalysisError: if values of the operand's type are not cast to it without CAST.
    """
    if not may_cast_silently(operand.dtype, target):
        raise make_analysis_error(
            f"{what} expects {describe_type(target)}, and {operand} is {describe_type(operand.dtype)}; "
            f"cast it: CAST({operand} AS {describe_type(target)})",
            node,
        )
    return cast_to(operand, target)


def unify(
    operands: Sequence[TypedExpression], nodes: Sequence[exp.Expr | None], what: str
) -> tuple[list[TypedExpression], pa.DataType]:
    """Return operands as values of the type that they have in common, and this type.

    Args:
        operands: the operands.
        nodes: their places, for the error.
        what: what needs them to have one type, for the error.

    Raises:
        SQLAnalysisError: if they have no type in common.
    """
    dtype = common_type_of_all([operand.dtype for operand in operands])
    if dtype is None:
        first = next(operand.dtype for operand in operands if operand.dtype != NULL)
        other = next(
            number
            for number, operand in enumerate(operands)
            if common_type_of_all([first, operand.dtype]) is None or number == len(operands) - 1
        )
        raise make_analysis_error(
            f"{what} has values of types that do not go together: {describe_type(first)} and "
            f"{describe_type(operands[other].dtype)}; cast one of them",
            nodes[other],
        )
    return [cast_to(operand, dtype) for operand in operands], dtype
