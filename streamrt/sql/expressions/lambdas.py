"""Lambdas: functions in a text, such as `x -> x + 1`, which functions of lists and maps take.

In Python they are also lambdas. Each parameter has a name of its own there, made of the number of parameters around it.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from streamrt.operators.expression import Expression
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.nodes import Node, code_of, load
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.topology import InlinedCode

__all__ = ["Lambda", "LambdaParameter", "UnboundLambda", "check_parameter_count", "make_unknown_parameter_error"]


@dataclass(frozen=True)
class LambdaParameter(Node):
    """A parameter within the lambda.

    Attributes:
        name: its name in the text.
        level: the number of parameters around it.
        type: type of its values.
        may_be_null: whether they may be NULL.
    """

    name: str
    level: int
    type: pa.DataType
    may_be_null: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "free_names", frozenset([self.code_name]))

    @property
    def code_name(self) -> str:
        """Its name in Python."""
        return f"p{self.level}"

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return load(self.code_name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Lambda(Node):
    """A lambda. Its value in Python is a function; its type is that of the results.

    Attributes:
        parameters: its parameters.
        body: what it computes; columns of the row may be in it.
        is_condition: whether its results need only be true if they are TRUE.
    """

    parameters: tuple[LambdaParameter, ...]
    body: TypedExpression
    is_condition: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        own = {parameter.code_name for parameter in self.parameters}
        object.__setattr__(self, "free_names", self.free_names - own)

    @property
    def dtype(self) -> pa.DataType:  # noqa: D102
        return self.body.dtype

    @property
    def nullable(self) -> bool:  # noqa: D102
        return False

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return (self.body,)

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        names = [ast.arg(parameter.code_name) for parameter in self.parameters]
        body = code_of(self.body, code, condition=self.is_condition)
        return ast.Lambda(ast.arguments([], names, None, [], [], None, []), body)

    def __str__(self) -> str:
        names = ", ".join(parameter.name for parameter in self.parameters)
        return f"{names if len(self.parameters) == 1 else f'({names})'} -> {self.body}"


@dataclass(frozen=True)
class UnboundLambda:
    """A lambda of a call, whose parameters get their types from its other arguments.

    Attributes:
        node: the lambda in the text.
        function: name of the function that takes it.
        level: the number of parameters around it.
        bind_body: binds an expression in which these parameters stand.
    """

    node: exp.Lambda
    function: str
    level: int
    bind_body: Callable[[exp.Expr, Sequence[LambdaParameter]], TypedExpression]

    def bind(self, fields: Sequence[pa.Field], *, least: int | None = None) -> Lambda:
        """Return the lambda.

        Args:
            fields: types of its parameters, and whether these may be NULL.
            least: how many parameters it must have; None for all.

        Raises:
            SQLAnalysisError: if it has another number of them, or its body has an error.
        """
        check_parameter_count(self.node, self.function, len(fields) if least is None else least, len(fields))
        parameters = tuple(
            LambdaParameter(name.name, self.level + number, field.type, field.nullable)
            for number, (name, field) in enumerate(zip(self.node.expressions, fields, strict=False))
        )
        return Lambda(parameters, self.bind_body(self.node.this, parameters))


def check_parameter_count(node: exp.Lambda, function: str, least: int, most: int) -> None:
    """Refuse a lambda that has not the number of parameters that a function gives it.

    Raises:
        SQLAnalysisError: if it has others.
    """
    count = len(node.expressions)
    if not least <= count <= most:
        wanted = str(most) if least == most else f"{least} or {most}"
        noun = "parameter" if wanted == "1" else "parameters"
        raise make_analysis_error(f"the lambda of {function}() has {wanted} {noun}, and not {count}", node)


def make_unknown_parameter_error(node: exp.Identifier) -> Exception:
    """Return the error for a parameter of a lambda in something that is computed of whole rows."""
    return make_analysis_error(
        f"{node.name} is a parameter of a lambda, and aggregates and windows in it read columns only", node
    )
