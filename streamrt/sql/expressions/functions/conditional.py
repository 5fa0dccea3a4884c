"""Functions that choose among their arguments; COALESCE, NULLIF and IF have syntax of their own in `scalars`."""

from collections.abc import Callable
from typing import Any, Final

from streamrt.sql.expressions.calls import Call, FunctionCall, ScalarFunction, define_special
from streamrt.sql.expressions.casts import unify
from streamrt.sql.expressions.coercion import BOOLEAN, DOUBLE, FLOAT, INT, all_comparable, is_numeric
from streamrt.sql.expressions.comparing import order_key
from streamrt.sql.expressions.logic import Case, Coalesce, IsNull
from streamrt.sql.expressions.nodes import Constant, fold_constants
from streamrt.sql.expressions.operators import bind_comparison, bind_distinctness
from streamrt.sql.expressions.typed import TypedExpression

__all__ = ["FUNCTIONS"]


def _bind_extreme(choose: Callable[..., Any], choose_simple: Callable[..., Any]) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        if len(call.arguments) < 2:
            raise call.error(f"{call.name}() chooses among two values at least")
        values, dtype = unify(call.arguments, call.nodes, f"{call.name}()")
        if not all_comparable([dtype]):
            raise call.error(f"{call.name}() cannot compare MAPs")
        has_no_null = not any(value.nullable for value in values)
        if has_no_null and is_numeric(dtype) and dtype not in (FLOAT, DOUBLE):
            return call.make(choose_simple, values, dtype)
        may_be_null = all(value.nullable for value in values)
        return fold_constants(FunctionCall(call.name, choose, tuple(values), dtype, may_be_null, strict=False))

    return bind


def _choose_greatest(*values: Any) -> Any:
    return max((value for value in values if value is not None), key=order_key, default=None)


def _choose_least(*values: Any) -> Any:
    return min((value for value in values if value is not None), key=order_key, default=None)


def _bind_null_test(negated: bool) -> Callable[[Call], TypedExpression]:
    return lambda call: fold_constants(IsNull(call.arguments[0], negated))


def _bind_is_nan(call: Call) -> TypedExpression:
    return fold_constants(FunctionCall(call.name, _is_nan, (call.cast(0, DOUBLE),), BOOLEAN, strict=False))


def _is_nan(number: float | None) -> bool:
    return number is not None and number != number


def _nanvl(a: float | None, b: float | None) -> float | None:
    return b if a is not None and a != a else a


def _bind_nanvl(call: Call) -> TypedExpression:
    arguments = (call.cast(0, DOUBLE), call.cast(1, DOUBLE))
    may_be_null = any(argument.nullable for argument in arguments)
    return fold_constants(FunctionCall(call.name, _nanvl, arguments, DOUBLE, may_be_null, strict=False))


def _bind_zero_if_null(call: Call) -> TypedExpression:
    zero = Constant(0, INT)
    operands, dtype = unify([call.arguments[0], zero], [call.nodes[0], call.node], "zeroifnull()")
    return fold_constants(Coalesce(tuple(operands), dtype))


def _bind_null_if_zero(call: Call) -> TypedExpression:
    operand = call.arguments[0]
    is_zero = bind_comparison("=", operand, Constant(0, INT), call.node)
    return fold_constants(Case(((is_zero, Constant(None, operand.dtype)),), operand, operand.dtype))


def _bind_equal_null(call: Call) -> TypedExpression:
    return bind_distinctness(call.arguments[0], call.arguments[1], call.node, negated=False)


FUNCTIONS: Final[tuple[ScalarFunction, ...]] = (
    define_special(
        "greatest",
        "values... ANY",
        "common type",
        _bind_extreme(_choose_greatest, max),
        "highest value that is not NULL; NaN is highest",
    ),
    define_special(
        "least", "values... ANY", "common type", _bind_extreme(_choose_least, min), "lowest value that is not NULL"
    ),
    define_special("isnull", "value ANY", "BOOLEAN", _bind_null_test(False), "value IS NULL"),
    define_special("isnotnull", "value ANY", "BOOLEAN", _bind_null_test(True), "value IS NOT NULL"),
    define_special("isnan", "number DOUBLE", "BOOLEAN", _bind_is_nan, "whether a number is NaN; FALSE for NULL"),
    define_special("nanvl", "a DOUBLE, b DOUBLE", "DOUBLE", _bind_nanvl, "a, or b if a is NaN"),
    define_special("zeroifnull", "number NUMBER", "as the number", _bind_zero_if_null, "number, or 0 if it is NULL"),
    define_special("nullifzero", "number NUMBER", "as the number", _bind_null_if_zero, "number, or NULL if it is 0"),
    define_special("equal_null", "a ANY, b ANY", "BOOLEAN", _bind_equal_null, "a <=> b"),
)
