"""Operators of numbers, comparisons and strings: which types they take, and what they give."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types
from sqlglot import exp

from streamrt.sql.expressions.arithmetic import Arithmetic, Negation
from streamrt.sql.expressions.casts import cast_to, unify
from streamrt.sql.expressions.coercion import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    NULL,
    STRING,
    all_comparable,
    common_type,
    common_type_of_all,
    decimal_of,
    decimal_result,
    describe_type,
    is_integral,
    is_interval,
    is_numeric,
)
from streamrt.sql.expressions.comparing import Comparison, InList, NullSafeEqual
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.intervals import bind_interval_arithmetic
from streamrt.sql.expressions.logic import Or, join_all
from streamrt.sql.expressions.nodes import Constant, fold_constants, is_null_literal
from streamrt.sql.expressions.typed import TypedExpression

__all__ = [
    "bind_arithmetic",
    "bind_comparison",
    "bind_distinctness",
    "bind_in_list",
    "bind_negation",
    "prepare_numbers",
    "require_boolean",
]


def bind_arithmetic(
    symbol: str, left: TypedExpression, right: TypedExpression, node: exp.Expr | None
) -> TypedExpression:
    """Return the node of `+`, `-`, `*`, `/`, `%` or `div`.

    Raises:
        SQLAnalysisError: if the types do not go together.
    """
    dated = bind_interval_arithmetic(symbol, left, right, node)
    if dated is not None:
        return dated
    left, right, dtype = prepare_numbers(symbol, left, right, node)
    if is_null_literal(left) or is_null_literal(right):
        return Constant(None, dtype)
    return fold_constants(Arithmetic(symbol, left, right, dtype))


def prepare_numbers(
    symbol: str, left: TypedExpression, right: TypedExpression, node: exp.Expr | None
) -> tuple[TypedExpression, TypedExpression, pa.DataType]:
    """Return operands as numbers that can be combined, and the type of the result.

    Raises:
        SQLAnalysisError: if one of them is not a number.
    """
    left, right = _as_number(left, right.dtype), _as_number(right, left.dtype)
    for operand in (left, right):
        if not is_numeric(operand.dtype):
            raise make_analysis_error(
                f"{symbol} combines numbers, and {operand} is {describe_type(operand.dtype)}; cast it, for example to DOUBLE",
                node,
            )
    has_decimal = types.is_decimal128(left.dtype) or types.is_decimal128(right.dtype)
    has_float = any(types.is_floating(operand.dtype) for operand in (left, right))
    if has_decimal and not has_float:
        one, other = (decimal_of(each.dtype, _known_value(each)) for each in (left, right))
        dtype = BIGINT if symbol == "div" else decimal_result(symbol, one, other)
        return cast_to(left, one), cast_to(right, other), dtype
    common = common_type(left.dtype, right.dtype) or DOUBLE
    if symbol == "/":
        common = DOUBLE
    elif symbol == "div":
        if has_float:
            raise make_analysis_error("div divides integers and decimals; write CAST(a / b AS BIGINT)", node)
        common = BIGINT
    return cast_to(left, common), cast_to(right, common), common


def _known_value(operand: TypedExpression) -> Any:
    return operand.value if isinstance(operand, Constant) else None


def _as_number(operand: TypedExpression, other: pa.DataType) -> TypedExpression:
    if operand.dtype == NULL:
        return Constant(None, other if is_numeric(other) else DOUBLE)
    if operand.dtype == STRING:
        return cast_to(operand, BIGINT if is_integral(other) else DOUBLE)
    return operand


def bind_negation(operand: TypedExpression, node: exp.Expr) -> TypedExpression:
    """Return the node of `-a`.

    Raises:
        SQLAnalysisError: if the operand is not a number.
    """
    if operand.dtype in (STRING, NULL):
        operand = cast_to(operand, DOUBLE)
    if is_interval(operand.dtype) and isinstance(operand, Constant):
        return Constant(-operand.value, operand.type)
    if not is_numeric(operand.dtype):
        raise make_analysis_error(
            f"the minus sign needs a number, and {operand} is {describe_type(operand.dtype)}", node
        )
    return fold_constants(Negation(operand))


def bind_comparison(symbol: str, left: TypedExpression, right: TypedExpression, node: exp.Expr) -> TypedExpression:
    """Return the node of `=`, `!=`, `<`, `<=`, `>` or `>=`.

    Raises:
        SQLAnalysisError: if the types have none in common, or no order.
    """
    left, right = _make_comparable((left, right), node, symbol)
    if is_null_literal(left) or is_null_literal(right):
        return Constant(None, BOOLEAN)
    return fold_constants(Comparison(symbol, left, right))


def bind_distinctness(
    left: TypedExpression, right: TypedExpression, node: exp.Expr, *, negated: bool
) -> TypedExpression:
    """Return the node of `<=>`, or of IS DISTINCT FROM.

    Raises:
        SQLAnalysisError: if the types have none in common.
    """
    left, right = _make_comparable((left, right), node, "IS DISTINCT FROM" if negated else "<=>")
    return fold_constants(NullSafeEqual(left, right, negated))


def bind_in_list(
    operand: TypedExpression, values: Sequence[TypedExpression], nodes: Sequence[exp.Expr], node: exp.Expr
) -> TypedExpression:
    """Return the node of `a IN (b, c)`.

    Raises:
        SQLAnalysisError: if the types have none in common.
    """
    all_values, dtype = unify([operand, *values], [node, *nodes], "IN")
    _check_comparable([dtype], node, "IN")
    operand, *listed = all_values
    if is_null_literal(operand):
        return Constant(None, BOOLEAN)
    constants = tuple(value for value in listed if isinstance(value, Constant))
    if len(constants) == len(listed) and not types.is_nested(dtype):
        return fold_constants(InList(operand, constants))
    comparisons = [bind_comparison("=", operand, value, node) for value in listed]
    return join_all(Or, comparisons)


def _make_comparable(
    operands: tuple[TypedExpression, TypedExpression], node: exp.Expr, symbol: str
) -> tuple[TypedExpression, TypedExpression]:
    left, right = operands
    _check_comparable([left.dtype, right.dtype], node, symbol)
    if _is_exact(left.dtype) and _is_exact(right.dtype):
        return left, right
    if common_type_of_all([left.dtype, right.dtype]) is None:
        raise make_analysis_error(
            f"{symbol} compares values of one type, and {left} is {describe_type(left.dtype)}, {right} is "
            f"{describe_type(right.dtype)}; cast one of them",
            node,
        )
    (left, right), _ = unify(operands, (node, node), symbol)
    return left, right


def _check_comparable(dtypes: Sequence[pa.DataType], node: exp.Expr, symbol: str) -> None:
    if not all_comparable(dtypes):
        raise make_analysis_error(
            f"{symbol} cannot compare MAPs: they have no order; compare items, or map_keys(a)", node
        )


def _is_exact(dtype: pa.DataType) -> bool:
    return is_integral(dtype) or bool(types.is_decimal128(dtype))


def require_boolean(operand: TypedExpression, node: exp.Expr, what: str) -> TypedExpression:
    """Return an operand that is a condition.

    Raises:
        SQLAnalysisError: if it is not BOOLEAN.
    """
    if operand.dtype in (NULL, STRING):
        return cast_to(operand, BOOLEAN)
    if operand.dtype != BOOLEAN:
        raise make_analysis_error(
            f"{what} needs BOOLEAN, and {operand} is {describe_type(operand.dtype)}; compare it, as in a != 0", node
        )
    return operand
