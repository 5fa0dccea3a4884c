"""AND, OR, NOT, IS, CASE and COALESCE: nodes that know three truth values."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from streamrt.operators.expression import Expression
from streamrt.sql.expressions.coercion import BOOLEAN
from streamrt.sql.expressions.nodes import (
    NONE,
    Node,
    Split,
    StrictNode,
    code_of,
    condition_of,
    hold,
    split_null,
)
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.topology import InlinedCode

__all__ = ["And", "Case", "Coalesce", "Condition", "IsNull", "IsTruth", "Not", "Or", "join_all"]

_TRUE: Final = ast.Constant(True)
_FALSE: Final = ast.Constant(False)


@dataclass(frozen=True)
class _Junction(Node):
    """Conditions that decide together: one that has the deciding value decides."""

    operands: tuple[TypedExpression, ...]

    @property
    def dtype(self) -> pa.DataType:
        return BOOLEAN

    @property
    def nullable(self) -> bool:
        return any(operand.nullable for operand in self.operands)

    def parts(self) -> tuple[Expression, ...]:
        return self.operands

    def _decide(self, code: InlinedCode, deciding: ast.expr) -> ast.expr:
        if not self.nullable:
            operator = ast.Or() if deciding is _TRUE else ast.And()
            return ast.BoolOp(operator, [code_of(operand, code) for operand in self.operands])
        tests: list[ast.expr] = []
        unknown: list[ast.expr] = []
        for operand in self.operands:
            first, again = hold(code, code_of(operand, code))
            tests.append(ast.Compare(first, [ast.Is()], [deciding]))
            if operand.nullable:
                unknown.append(ast.Compare(again, [ast.Is()], [NONE]))
        other = _FALSE if deciding is _TRUE else _TRUE
        rest: ast.expr = ast.IfExp(ast.BoolOp(ast.Or(), unknown), NONE, other)
        if len(unknown) == 1:
            rest = ast.IfExp(unknown[0], NONE, other)
        return ast.IfExp(ast.BoolOp(ast.Or(), tests), deciding, rest)


@dataclass(frozen=True)
class And(_Junction):
    """`a AND b AND c`: FALSE if one is FALSE, else NULL if one is NULL."""

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return self._decide(code, _FALSE)

    def condition(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return ast.BoolOp(ast.And(), [condition_of(operand, code) for operand in self.operands])

    def __str__(self) -> str:
        return f"({' AND '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Or(_Junction):
    """`a OR b OR c`: TRUE if one is TRUE, else NULL if one is NULL."""

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return self._decide(code, _TRUE)

    def condition(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return ast.BoolOp(ast.Or(), [condition_of(operand, code) for operand in self.operands])

    def __str__(self) -> str:
        return f"({' OR '.join(map(str, self.operands))})"


def join_all(kind: type[And] | type[Or], operands: Sequence[TypedExpression]) -> TypedExpression:
    """Return operands joined by AND or OR, however long the chain is: those of a chain within it become its own."""
    flat: list[TypedExpression] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, kind) else [operand]
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


@dataclass(frozen=True)
class Not(StrictNode):
    """`NOT a`."""

    operand: TypedExpression

    @property
    def dtype(self) -> pa.DataType:  # noqa: D102
        return BOOLEAN

    @property
    def nullable(self) -> bool:  # noqa: D102
        return self.operand.nullable

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return (self.operand,)

    def split(self, code: InlinedCode) -> Split:  # noqa: D102
        return split_null(code, (self.operand,), lambda operands: ast.UnaryOp(ast.Not(), operands[0]))

    def __str__(self) -> str:
        return f"(NOT {self.operand})"


@dataclass(frozen=True)
class _Test(Node):
    """A test of a value: TRUE or FALSE, never NULL."""

    operand: TypedExpression

    @property
    def dtype(self) -> pa.DataType:
        return BOOLEAN

    @property
    def nullable(self) -> bool:
        return False

    def parts(self) -> tuple[Expression, ...]:
        return (self.operand,)


@dataclass(frozen=True)
class IsNull(_Test):
    """`a IS NULL`, or `a IS NOT NULL`."""

    negated: bool = False

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        tree = code_of(self.operand, code)
        if isinstance(tree, ast.Constant):
            # Python warns of `5 is None`.
            return ast.Constant((tree.value is None) is not self.negated)
        operator = ast.IsNot() if self.negated else ast.Is()
        if not any(isinstance(node, ast.Name) for node in ast.walk(tree)):
            tree, _ = hold(code, tree)
        return ast.Compare(tree, [operator], [NONE])

    def __str__(self) -> str:
        return f"({self.operand} IS {'NOT ' if self.negated else ''}NULL)"


@dataclass(frozen=True)
class IsTruth(_Test):
    """`a IS TRUE`, `a IS FALSE`, and their negations: never NULL."""

    truth: bool
    negated: bool = False

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        operator = ast.IsNot() if self.negated else ast.Is()
        return ast.Compare(code_of(self.operand, code), [operator], [ast.Constant(self.truth)])

    def condition(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        if self.truth and not self.negated:
            return condition_of(self.operand, code)
        return self.code(code)

    def __str__(self) -> str:
        return f"({self.operand} IS {'NOT ' if self.negated else ''}{'TRUE' if self.truth else 'FALSE'})"


@dataclass(frozen=True)
class Condition(_Test):
    """What a filter asks of a condition: its value is true in Python if and only if the condition is TRUE."""

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return condition_of(self.operand, code)

    def __str__(self) -> str:
        return str(self.operand)


@dataclass(frozen=True)
class Case(Node):
    """`CASE WHEN condition THEN value ... ELSE value END`, all values of one type."""

    branches: tuple[tuple[TypedExpression, TypedExpression], ...]
    otherwise: TypedExpression
    type: pa.DataType

    @property
    def nullable(self) -> bool:  # noqa: D102
        return self.otherwise.nullable or any(value.nullable for _, value in self.branches)

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return (*(part for branch in self.branches for part in branch), self.otherwise)

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        tests = [(condition_of(test, code), code_of(value, code)) for test, value in self.branches]
        tree = code_of(self.otherwise, code)
        for test, value in reversed(tests):
            tree = ast.IfExp(test, value, tree)
        return tree

    def __str__(self) -> str:
        branches = " ".join(f"WHEN {test} THEN {value}" for test, value in self.branches)
        return f"CASE {branches} ELSE {self.otherwise} END"


@dataclass(frozen=True)
class Coalesce(Node):
    """The first of several values that is not NULL."""

    operands: tuple[TypedExpression, ...]
    type: pa.DataType

    @property
    def nullable(self) -> bool:  # noqa: D102
        return all(operand.nullable for operand in self.operands)

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return self.operands

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        *others, last = self.operands
        tree = code_of(last, code)
        for operand in reversed(others):
            if not operand.nullable:
                tree = code_of(operand, code)
                continue
            first, again = hold(code, code_of(operand, code))
            tree = ast.IfExp(ast.Compare(first, [ast.IsNot()], [NONE]), again, tree)
        return tree

    def __str__(self) -> str:
        return f"coalesce({', '.join(map(str, self.operands))})"
