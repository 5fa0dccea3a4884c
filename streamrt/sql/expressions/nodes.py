"""What the nodes of expressions have in common, and how their Python treats NULL.

The code of a node has two forms. `code` gives the value, with None for NULL. `condition` gives something that is true if
and only if the value is TRUE, which needs fewer checks. An operand that may be NULL is bound to a temporary name, checked
once and used by this name; one that is never NULL is used where it stands.
"""

import abc
import ast
import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final

import pyarrow as pa

from streamrt.operators.expression import Column, Expression
from streamrt.schema.types import quoted
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.topology import InlinedCode

__all__ = [
    "NONE",
    "ColumnReference",
    "Constant",
    "Hold",
    "Node",
    "Split",
    "StrictNode",
    "call_function",
    "code_of",
    "condition_of",
    "fold_constants",
    "hold",
    "is_null_literal",
    "load",
    "name_constant",
    "split_null",
]

NONE: Final = ast.Constant(None)
# Python's tokenizer reads 200 brackets within each other, and a level of SQL takes up to three.
_LEVELS_IN_LINE: Final = 40

Hold = tuple[ast.expr, ast.expr]
"""How an operand is read for the first time, and how again."""


Split = tuple[list[ast.expr], ast.expr]
"""Trees that are evaluated first, and must not be NULL, and a tree that uses them."""


class Node(TypedExpression):
    """A node with the type of its value.

    Attributes:
        depth: the number of levels below it, itself among them.
        free_names: the names in its code that are parameters of lambdas around it.
    """

    type: pa.DataType
    may_be_null: bool
    depth: int
    free_names: frozenset[str]

    def __post_init__(self) -> None:
        parts = [part for part in self.parts() if isinstance(part, Node)]
        object.__setattr__(self, "depth", 1 + max((part.depth for part in parts), default=0))
        object.__setattr__(self, "free_names", frozenset[str]().union(*(part.free_names for part in parts)))

    @property
    def dtype(self) -> pa.DataType:  # noqa: D102
        return self.type

    @property
    def nullable(self) -> bool:  # noqa: D102
        return self.may_be_null

    def condition(self, code: InlinedCode) -> ast.expr:
        """Return a syntax tree whose value is true if and only if this node's value is TRUE."""
        return self.code(code)


class StrictNode(Node):
    """A node that is NULL if an operand is.

    `is_total` says that it is NULL in no other case.
    """

    is_total: ClassVar[bool] = True

    @abc.abstractmethod
    def split(self, code: InlinedCode) -> Split:
        """Return the trees that are evaluated first, none of which may be NULL, and the tree of the result."""

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        checked, body = self.split(code)
        if not checked:
            return body
        checks: list[ast.expr] = [ast.Compare(tree, [ast.Is()], [NONE]) for tree in checked]
        return ast.IfExp(checks[0] if len(checks) == 1 else ast.BoolOp(ast.Or(), checks), NONE, body)

    def condition(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        checked, body = self.split(code)
        if not checked:
            return body
        return ast.BoolOp(ast.And(), [*(ast.Compare(tree, [ast.IsNot()], [NONE]) for tree in checked), body])


@dataclass(frozen=True)
class Constant(Node):
    """A value that is known when the text is read; None is NULL."""

    value: Any
    type: pa.DataType

    @property
    def nullable(self) -> bool:  # noqa: D102
        return self.value is None

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return name_constant(code, self.value)

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and TRUE are equal in Python, and 0.0 is -0.0.
        return isinstance(other, Constant) and (self.type, repr(self.value)) == (other.type, repr(other.value))

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))

    def __str__(self) -> str:
        return _write_literal(self.value, self.type)


@dataclass(frozen=True)
class ColumnReference(Node):
    """A column of the row."""

    name: str
    type: pa.DataType
    may_be_null: bool = True

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return ast.Subscript(load("value"), load(code.name_object(self.name)), ast.Load())

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        # So that a row without the column has an error that names it.
        return (Column(self.name),)

    def __str__(self) -> str:
        return quoted(self.name)


def load(name: str) -> ast.expr:
    """Return the tree that reads a name."""
    return ast.Name(name, ast.Load())


def name_constant(code: InlinedCode, value: Any) -> ast.expr:
    """Return the tree of a constant: the constant itself where that is what Python would read."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return ast.Constant(value)
    return load(code.name_object(value))


def call_function(code: InlinedCode, function: Callable[..., Any], *arguments: ast.expr) -> ast.expr:
    """Return the tree that calls a function."""
    return ast.Call(load(code.name_object(function)), list(arguments), [])


def code_of(node: TypedExpression, code: InlinedCode, *, condition: bool = False) -> ast.expr:
    """Return the tree of an operand; a deep one becomes a function of its own, because Python's parser has a limit.

    Args:
        node: the operand.
        code: what names its objects.
        condition: whether only TRUE matters.
    """
    if isinstance(node, Node) and not node.depth % _LEVELS_IN_LINE:
        code.is_plain = code.is_plain and node.is_plain()
        names = sorted(node.free_names)
        evaluate = node.compile(code.context, names)  # type: ignore[arg-type]  # all that expressions use of a context
        return call_function(code, evaluate, *map(load, ("value", "key", "timestamp", "headers", *names)))
    return node.condition(code) if condition and isinstance(node, Node) else node.code(code)


def condition_of(node: TypedExpression, code: InlinedCode) -> ast.expr:
    """Return a tree whose value is true if and only if the operand is TRUE."""
    return code_of(node, code, condition=True)


def hold(code: InlinedCode, tree: ast.expr) -> Hold:
    """Return how a tree is read first and again: names and constants as they are, all else by a temporary name."""
    if isinstance(tree, ast.Name | ast.Constant):
        return tree, tree
    name = code.name_object(None)
    return ast.NamedExpr(ast.Name(name, ast.Store()), tree), load(name)


def split_null(
    code: InlinedCode,
    arguments: Sequence[TypedExpression],
    build: Callable[[list[ast.expr]], ast.expr],
    *,
    repeated: bool = False,
) -> Split:
    """Return what is NULL if an operand is: the operands that may be, and the tree of the others' result.

    Checks of operands that are strict themselves are passed on, so that a tree of them is checked once, at its leaves.

    Args:
        code: what names objects.
        arguments: the operands.
        build: makes the tree of the operands', none of which is NULL.
        repeated: whether `build` may use an operand several times.
    """
    checked: list[ast.expr] = []
    operands: list[ast.expr] = []
    for argument in arguments:
        if isinstance(argument, StrictNode) and argument.is_total and argument.depth % _LEVELS_IN_LINE and not repeated:
            inner, tree = argument.split(code)
            checked += inner
            operands.append(tree)
            continue
        tree = code_of(argument, code)
        if argument.nullable or repeated:
            tree, again = hold(code, tree)
            if tree is not again or argument.nullable:
                # One that is never NULL is evaluated here only.
                checked.append(tree)
            operands.append(again)
        else:
            operands.append(tree)
    return checked, build(operands)


def is_null_literal(node: TypedExpression) -> bool:
    """Return whether a node is the literal NULL, or another constant that is NULL."""
    return isinstance(node, Constant) and node.value is None


def fold_constants(node: TypedExpression) -> TypedExpression:
    """Return the constant that a node of constants is, or the node itself if that fails: then each record fails."""
    parts = node.parts()
    if not parts or not all(isinstance(part, Constant) for part in parts) or not node.is_plain():
        return node
    try:
        value = node.compile()({}, None, 0, None)
    except Exception:  # noqa: BLE001 - it is raised for each record, by the same code
        return node
    return Constant(value, node.dtype)


def _write_literal(value: Any, dtype: pa.DataType) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, datetime.datetime):
        return f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMP_LTZ'} '{value:%Y-%m-%d %H:%M:%S.%f}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, datetime.timedelta):
        return f"INTERVAL '{value}'"
    if dtype == pa.month_day_nano_interval():
        return f"INTERVAL '{value}' MONTH"
    if isinstance(value, Decimal):
        return format(value, "f")
    return repr(value)
