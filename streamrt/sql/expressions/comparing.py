"""Comparisons: `=`, `<`, `<=>`, IN, and their kin. NaN equals itself and is above all other numbers, as in Spark."""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from streamrt.operators.expression import Expression
from streamrt.sql.expressions.coercion import BOOLEAN, DOUBLE, FLOAT
from streamrt.sql.expressions.nodes import (
    NONE,
    Constant,
    Node,
    Split,
    StrictNode,
    call_function,
    code_of,
    load,
    split_null,
)
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.topology import InlinedCode

__all__ = ["Comparison", "InList", "NullSafeEqual", "order_key"]

_OPERATORS: Final[dict[str, type[ast.cmpop]]] = {
    "=": ast.Eq,
    "!=": ast.NotEq,
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
}
_FLIPPED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Comparison(StrictNode):
    """Two values of one type, or two exact numbers, compared. NULL if one of them is."""

    symbol: str
    left: TypedExpression
    right: TypedExpression

    @property
    def dtype(self) -> pa.DataType:  # noqa: D102
        return BOOLEAN

    @property
    def nullable(self) -> bool:  # noqa: D102
        return self.left.nullable or self.right.nullable

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return self.left, self.right

    def split(self, code: InlinedCode) -> Split:  # noqa: D102
        comparer = _comparer(code, self.symbol, self.left, self.right)
        repeated = _has_nan(self.left) and _has_nan(self.right)
        return split_null(code, (self.left, self.right), comparer, repeated=repeated)

    def __str__(self) -> str:
        return f"({self.left} {self.symbol} {self.right})"


@dataclass(frozen=True)
class NullSafeEqual(Node):
    """`a <=> b`, or with `negated` `a IS DISTINCT FROM b`: NULL is equal to NULL."""

    left: TypedExpression
    right: TypedExpression
    negated: bool = False

    @property
    def dtype(self) -> pa.DataType:  # noqa: D102
        return BOOLEAN

    @property
    def nullable(self) -> bool:  # noqa: D102
        return False

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return self.left, self.right

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        operands = (self.left, self.right)
        if any(map(_has_nan, operands)) or any(types.is_nested(operand.dtype) for operand in operands):
            tree = call_function(code, _equal_null_safe, *(code_of(operand, code) for operand in operands))
            return ast.UnaryOp(ast.Not(), tree) if self.negated else tree
        operator = ast.NotEq() if self.negated else ast.Eq()
        return ast.Compare(code_of(self.left, code), [operator], [code_of(self.right, code)])

    def __str__(self) -> str:
        return f"({self.left} {'IS DISTINCT FROM' if self.negated else '<=>'} {self.right})"


@dataclass(frozen=True)
class InList(StrictNode):
    """`a IN (1, 2, NULL)` with constants of the type of `a`: NULL if `a` is, or if it is not found and NULL is listed."""

    operand: TypedExpression
    values: tuple[Constant, ...]

    @property
    def dtype(self) -> pa.DataType:  # noqa: D102
        return BOOLEAN

    @property
    def nullable(self) -> bool:  # noqa: D102
        return self.operand.nullable or any(constant.value is None for constant in self.values)

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return (self.operand, *self.values)

    @property
    def is_total(self) -> bool:  # type: ignore[override]  # it depends on the list  # noqa: D102
        return all(constant.value is not None for constant in self.values)

    def split(self, code: InlinedCode) -> Split:  # noqa: D102
        listed = [constant.value for constant in self.values if constant.value is not None]
        has_null = len(listed) < len(self.values)
        has_nan = any(isinstance(value, float) and math.isnan(value) for value in listed)
        names = load(code.name_object(frozenset(listed)))

        def find(operands: list[ast.expr]) -> ast.expr:
            (operand,) = operands
            tree: ast.expr = ast.Compare(operand, [ast.In()], [names])
            if has_nan:
                is_nan = ast.Compare(operand, [ast.NotEq()], [operand])
                tree = ast.BoolOp(ast.Or(), [tree, is_nan])
            # Not found, but it may be the NULL of the list.
            return ast.BoolOp(ast.Or(), [tree, NONE]) if has_null else tree

        return split_null(code, (self.operand,), find, repeated=has_nan)

    def __str__(self) -> str:
        return f"({self.operand} IN ({', '.join(map(str, self.values))}))"


def _has_nan(node: TypedExpression) -> bool:
    """Return whether a value may be NaN."""
    if node.dtype not in (FLOAT, DOUBLE):
        return False
    return not isinstance(node, Constant) or node.value is None or math.isnan(node.value)


def _comparer(
    code: InlinedCode, symbol: str, left: TypedExpression, right: TypedExpression
) -> Callable[[list[ast.expr]], ast.expr]:
    if types.is_nested(left.dtype):

        def compare_keys(operands: list[ast.expr]) -> ast.expr:
            first, second = (call_function(code, order_key, operand) for operand in operands)
            return _compare(symbol, first, second)

        return compare_keys
    if _has_nan(left) and _has_nan(right):
        return lambda operands: _compare_floats(symbol, *operands)
    if _has_nan(left):
        return lambda operands: _compare_above(symbol, *operands)
    if _has_nan(right):
        return lambda operands: _compare_above(_FLIPPED[symbol], operands[1], operands[0])
    return lambda operands: _compare(symbol, *operands)


def _compare(symbol: str, left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.Compare(left, [_OPERATORS[symbol]()], [right])


def _compare_above(symbol: str, left: ast.expr, right: ast.expr) -> ast.expr:
    """Compare what may be NaN with what is not: all comparisons of NaN but `!=` are false in Python."""
    if symbol in (">", ">="):
        return ast.UnaryOp(ast.Not(), _compare("<=" if symbol == ">" else "<", left, right))
    return _compare(symbol, left, right)


def _compare_floats(symbol: str, left: ast.expr, right: ast.expr) -> ast.expr:
    """Compare two floats, both of which may be NaN."""
    if symbol in ("<", "<="):
        symbol, left, right = _FLIPPED[symbol], right, left
    left_nan, right_nan = _compare("!=", left, left), _compare("!=", right, right)
    if symbol == ">":
        not_below = ast.UnaryOp(ast.Not(), _compare("<=", left, right))
        return ast.BoolOp(ast.And(), [_compare("=", right, right), not_below])
    if symbol == ">=":
        return ast.BoolOp(ast.Or(), [_compare(">=", left, right), left_nan])
    equal = ast.BoolOp(ast.Or(), [_compare("=", left, right), ast.BoolOp(ast.And(), [left_nan, right_nan])])
    return equal if symbol == "=" else ast.UnaryOp(ast.Not(), equal)


def order_key(value: Any) -> Any:
    """Return what compares as a value does in SQL, where it stands in a list or a struct: NULL is lowest, NaN highest.

    Example:
        >>> sorted([float("nan"), 1.0, None], key=order_key)
        [None, 1.0, nan]
    """
    if value is None:
        return (0,)
    if isinstance(value, list):
        return (1, tuple(map(order_key, value)))
    if isinstance(value, dict):
        return (1, tuple(map(order_key, value.values())))
    return (2,) if value != value else (1, value)


def _equal_null_safe(left: Any, right: Any) -> bool:
    return bool(order_key(left) == order_key(right))
