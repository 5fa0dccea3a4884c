"""`+`, `-`, `*`, `/`, `div`, `%` and the minus sign on numbers: results outside of their type are errors, as in Spark."""

import ast
import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException, InvalidOperation
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyarrow import types

from streamrt.operators.expression import Expression
from streamrt.sql.expressions.coercion import BIGINT, DOUBLE, FLOAT, describe_type, is_integral
from streamrt.sql.expressions.nodes import (
    Constant,
    Split,
    StrictNode,
    call_function,
    hold,
    load,
    split_null,
)
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.topology import InlinedCode

__all__ = ["WIDE", "Arithmetic", "Negation", "raise_overflow", "round_decimal", "round_to_float", "zero_of"]

WIDE: Final = Context(prec=200, Emin=-(10**6), Emax=10**6, rounding=ROUND_HALF_UP)
"""Exact for all results of two decimals but quotients, whose digits it leaves to `round_decimal`."""

_OPERATORS: Final[dict[str, type[ast.operator]]] = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div}
_METHODS: Final[dict[str, Callable[[Decimal, Decimal], Decimal]]] = {
    "+": WIDE.add,
    "-": WIDE.subtract,
    "*": WIDE.multiply,
    "%": WIDE.remainder,
}
_ADVICE: Final = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}


@dataclass(frozen=True)
class Arithmetic(StrictNode):
    """Two numbers combined. Both are integers, both are floats, or both are decimals."""

    symbol: str
    left: TypedExpression
    right: TypedExpression
    type: pa.DataType

    @property
    def nullable(self) -> bool:  # noqa: D102
        return self.left.nullable or self.right.nullable

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return self.left, self.right

    def split(self, code: InlinedCode) -> Split:  # noqa: D102
        build: Callable[[list[ast.expr]], ast.expr]
        if types.is_decimal128(self.left.dtype):
            build = self._combine_decimals(code)
        elif self.symbol in ("/", "div", "%"):
            build = self._divide(code)
        else:
            build = self._combine(code)
        return split_null(code, (self.left, self.right), build)

    def _combine(self, code: InlinedCode) -> Callable[[list[ast.expr]], ast.expr]:
        operator = _OPERATORS[self.symbol]

        def build(operands: list[ast.expr]) -> ast.expr:
            tree = ast.BinOp(operands[0], operator(), operands[1])
            if self.type == FLOAT:
                return call_function(code, round_to_float, tree)
            return tree if self.type == DOUBLE else check_range(code, tree, self.type, self._describe())

        return build

    def _divide(self, code: InlinedCode) -> Callable[[list[ast.expr]], ast.expr]:
        divisor = self.right.value if isinstance(self.right, Constant) else None

        def build(operands: list[ast.expr]) -> ast.expr:
            first, second = operands
            if self.symbol == "/" and divisor:
                return ast.BinOp(first, ast.Div(), second)
            if self.symbol == "%" and is_integral(self.type) and divisor is not None and divisor > 0:
                # The sign is that of the dividend.
                first, again = hold(code, first)
                below = ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), again), ast.Mod(), second))
                test = ast.Compare(first, [ast.GtE()], [ast.Constant(0)])
                return ast.IfExp(test, ast.BinOp(again, ast.Mod(), second), below)
            tree = call_function(code, self._division(), first, second)
            return check_range(code, tree, BIGINT, self._describe()) if self.symbol == "div" else tree

        return build

    def _division(self) -> Callable[[Any, Any], Any]:
        if self.symbol == "div":
            return _divide_integers
        if self.symbol == "/":
            return _divide_floats
        return _remainder_of_integers if is_integral(self.type) else _remainder_of_floats

    def _combine_decimals(self, code: InlinedCode) -> Callable[[list[ast.expr]], ast.expr]:
        symbol = self.symbol

        def build(operands: list[ast.expr]) -> ast.expr:
            if symbol == "div":
                tree = call_function(code, _divide_decimals_whole, *operands)
                return check_range(code, tree, BIGINT, self._describe())
            if symbol == "/":
                function: Any = _divide_decimals
            elif symbol == "%":
                function = _remainder_of_decimals
            else:
                function = _METHODS[symbol]
            tree = call_function(code, function, *operands)
            if self._is_exact():
                # Decimal has a zero with a minus sign.
                return tree if symbol in ("+", "-") else ast.BoolOp(ast.Or(), [tree, load(code.name_object(zero))])
            return call_function(code, round_decimal, tree, *map(ast.Constant, (precision, scale, self._describe())))

        precision, scale = (self.type.precision, self.type.scale) if symbol != "div" else (0, 0)
        zero = zero_of(scale)
        return build

    def _is_exact(self) -> bool:
        """Return whether every result fits its type as it is."""
        left, right = self.left.dtype, self.right.dtype
        if self.symbol in ("+", "-"):
            scale = max(left.scale, right.scale)
            digits = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
        elif self.symbol == "*":
            scale, digits = left.scale + right.scale, left.precision + right.precision + 1
        else:
            return False
        return bool(scale == self.type.scale and digits <= self.type.precision)

    def _describe(self) -> str:
        advice = _ADVICE.get(self.symbol)
        hint = "" if advice is None else f"; cast an operand to a larger type, or use {advice}"
        return f"{describe_type(self.left.dtype)} {self.symbol} {describe_type(self.right.dtype)}{hint}"

    def __str__(self) -> str:
        return f"({self.left} {self.symbol} {self.right})"


@dataclass(frozen=True)
class Negation(StrictNode):
    """`-a`."""

    operand: TypedExpression

    @property
    def dtype(self) -> pa.DataType:  # noqa: D102
        return self.operand.dtype

    @property
    def nullable(self) -> bool:  # noqa: D102
        return self.operand.nullable

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return (self.operand,)

    def split(self, code: InlinedCode) -> Split:  # noqa: D102
        dtype = self.operand.dtype

        def build(operands: list[ast.expr]) -> ast.expr:
            if types.is_decimal128(dtype):
                return call_function(code, WIDE.minus, operands[0])
            tree = ast.UnaryOp(ast.USub(), operands[0])
            return check_range(code, tree, dtype, f"- {describe_type(dtype)}") if is_integral(dtype) else tree

        return split_null(code, (self.operand,), build)

    def __str__(self) -> str:
        return f"(- {self.operand})"


def check_range(code: InlinedCode, tree: ast.expr, dtype: pa.DataType, operation: str) -> ast.expr:
    """Return a tree of an integer that raises `OverflowError` unless its type holds it."""
    highest = (1 << (dtype.bit_width - 1)) - 1
    first, again = hold(code, tree)
    bounds: list[ast.expr] = [first, ast.Constant(highest)]
    test = ast.Compare(ast.Constant(~highest), [ast.LtE(), ast.LtE()], bounds)
    failure = call_function(code, raise_overflow, load(code.name_object(operation)), ast.Constant(describe_type(dtype)))
    return ast.IfExp(test, again, failure)


def raise_overflow(operation: str, word: str) -> NoReturn:
    """Raise that the result of an operation is outside of its type."""
    raise OverflowError(f"the result is out of the range of {word}: {operation}")


def zero_of(scale: int) -> Decimal:
    """Return zero with a number of digits behind the point."""
    return Decimal(0).scaleb(-scale)


def round_to_float(number: float) -> float:
    """Return the nearest float of 32 bits; what is beyond the highest one is infinite."""
    return ctypes.c_float(number).value


def round_decimal(number: Decimal, precision: int, scale: int, operation: str) -> Decimal:
    """Return a decimal with the digits of its type, halves away from zero.

    Raises:
        OverflowError: if the type does not hold it.
    """
    try:
        kept = number.quantize(zero_of(scale), ROUND_HALF_UP, WIDE)
    except InvalidOperation:
        raise_overflow(operation, f"DECIMAL({precision}, {scale})")
    if not kept:
        return kept.copy_abs()
    if kept.adjusted() >= precision - scale:
        raise_overflow(operation, f"DECIMAL({precision}, {scale})")
    return kept


def _raise_zero() -> NoReturn:
    raise ZeroDivisionError("a division by zero has no result; write try_divide(a, b), or a / nullif(b, 0)")


def _divide_floats(a: float, b: float) -> float:
    return a / b if b else _raise_zero()


def _divide_integers(a: int, b: int) -> int:
    if not b:
        _raise_zero()
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder_of_integers(a: int, b: int) -> int:
    if not b:
        _raise_zero()
    return abs(a) % abs(b) if a >= 0 else -(abs(a) % abs(b))


def _remainder_of_floats(a: float, b: float) -> float:
    if not b:
        _raise_zero()
    if math.isinf(a):
        return math.nan
    return math.fmod(a, b)


def _divide_decimals(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        _raise_zero()
    try:
        # Java divides to 38 digits behind the point first.
        return WIDE.divide(a, b).quantize(_QUOTIENT, ROUND_HALF_UP, WIDE)
    except DecimalException:
        return WIDE.divide(a, b)


def _divide_decimals_whole(a: Decimal, b: Decimal) -> int:
    return int(WIDE.divide_int(a, b)) if b else _raise_zero()


def _remainder_of_decimals(a: Decimal, b: Decimal) -> Decimal:
    return WIDE.remainder(a, b) if b else _raise_zero()


_QUOTIENT: Final = Decimal(1).scaleb(-38)
