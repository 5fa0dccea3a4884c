"""Calls of functions: the node, and what functions are described by."""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import types
from sqlglot import exp

from streamrt.operators.expression import Expression
from streamrt.schema.types import SCALARS
from streamrt.sql.expressions.casts import cast_silently
from streamrt.sql.expressions.coercion import describe_type
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.lambdas import Lambda, UnboundLambda
from streamrt.sql.expressions.nodes import (
    Constant,
    Split,
    StrictNode,
    call_function,
    code_of,
    fold_constants,
    is_null_literal,
    name_constant,
    split_null,
)
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.topology import InlinedCode

__all__ = [
    "Call",
    "FunctionCall",
    "Parameter",
    "ScalarFunction",
    "check_arguments",
    "define_special",
    "define_strict",
    "describe_function",
]


@dataclass(frozen=True)
class FunctionCall(StrictNode):
    """A function of values.

    Attributes:
        name: its name in SQL.
        function: takes the options, and the arguments.
        arguments: its arguments.
        type: type of the result.
        may_be_null: whether the result may be NULL though no argument is.
        options: constants that the function takes first.
        strict: whether the result is NULL if an argument is; otherwise the function takes None.
        is_own: whether the function is one of ours, and not of a user.
        shown: the arguments as the text has them, if they tell more than those of the function.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[TypedExpression, ...]
    type: pa.DataType
    may_be_null: bool = False
    options: tuple[Any, ...] = ()
    strict: bool = True
    is_own: bool = True
    shown: tuple[str, ...] | None = None

    @property
    def nullable(self) -> bool:  # noqa: D102
        return self.may_be_null or (self.strict and any(argument.nullable for argument in self.arguments))

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return self.arguments

    def is_plain(self) -> bool:  # noqa: D102
        return self.is_own and super().is_plain()

    @property
    def is_total(self) -> bool:  # type: ignore[override]  # it depends on the function  # noqa: D102
        return self.strict and not self.may_be_null

    def split(self, code: InlinedCode) -> Split:  # noqa: D102
        options = [name_constant(code, option) for option in self.options]

        def build(operands: list[ast.expr]) -> ast.expr:
            return call_function(code, self.function, *options, *operands)

        if self.strict:
            return split_null(code, self.arguments, build)
        return [], build([code_of(argument, code) for argument in self.arguments])

    def __str__(self) -> str:
        shown = self.shown or tuple(map(str, self.arguments))
        if self.name.isidentifier():
            return f"{self.name}({', '.join(shown)})"
        return f"{shown[0]}[{shown[1]}]" if self.name == "[]" else f"({f' {self.name} '.join(shown)})"


@dataclass(frozen=True)
class Call:
    """A call in a text, with its arguments bound.

    Attributes:
        name: name of the function, as it is known.
        node: the call.
        arguments: its arguments.
        nodes: their places.
        shown: the arguments as the text has them, if there are more than those that are bound.
        lambdas: those of its arguments that are lambdas, which are the last ones.
    """

    name: str
    node: exp.Expr
    arguments: tuple[TypedExpression, ...]
    nodes: tuple[exp.Expr, ...]
    shown: tuple[str, ...] | None = None
    lambdas: tuple[UnboundLambda, ...] = ()

    def require_list(self, number: int = 0) -> TypedExpression:
        """Return an argument that must be an ARRAY.

        Raises:
            SQLAnalysisError: if it has another type.
        """
        argument = self.arguments[number]
        if not types.is_list(argument.dtype):
            raise self.misfit(number, "an ARRAY")
        return argument

    def require_map(self, number: int = 0) -> TypedExpression:
        """Return an argument that must be a MAP.

        Raises:
            SQLAnalysisError: if it has another type.
        """
        argument = self.arguments[number]
        if not types.is_map(argument.dtype):
            raise self.misfit(number, "a MAP")
        return argument

    def cast(self, number: int, target: pa.DataType) -> TypedExpression:
        """Return an argument as a value of the type that is expected.

        Raises:
            SQLAnalysisError: if its type does not fit.
        """
        return cast_silently(self.arguments[number], target, self.nodes[number], f"{self.name}()")

    def constant(self, number: int, target: pa.DataType, what: str) -> Any:
        """Return the value of an argument that must be a constant.

        Raises:
            SQLAnalysisError: if it is none, or NULL.
        """
        argument = self.cast(number, target)
        if not isinstance(argument, Constant) or argument.value is None:
            raise self.error(f"{self.name}() needs a constant for {what}, and not NULL", number)
        return argument.value

    def error(self, text: str, number: int | None = None) -> Exception:
        """Return an error at an argument, or at the call."""
        return make_analysis_error(text, self.node if number is None else self.nodes[number])

    def misfit(self, number: int, expected: str) -> Exception:
        """Return the error that an argument has another type than is expected."""
        dtype = describe_type(self.arguments[number].dtype)
        return self.error(f"{self.name}() expects {expected}, and {self.arguments[number]} is {dtype}", number)

    def make(
        self,
        function: Callable[..., Any],
        arguments: Sequence[TypedExpression],
        dtype: pa.DataType,
        *,
        may_be_null: bool = False,
        options: tuple[Any, ...] = (),
        strict: bool = True,
    ) -> TypedExpression:
        """Return the node that calls a function of ours; a constant, if all arguments are."""
        lambdas = [argument for argument in arguments if isinstance(argument, Lambda)]
        shown = self.shown or tuple(map(str, (*self.arguments, *lambdas)))
        call = FunctionCall(self.name, function, tuple(arguments), dtype, may_be_null, options, strict, shown=shown)
        if strict and any(map(is_null_literal, arguments)):
            return Constant(None, dtype)
        return fold_constants(call)


@dataclass(frozen=True)
class Parameter:
    """What a function expects.

    Attributes:
        name: name of the parameter.
        kind: word of its type, or of several types: NUMBER, ANY, ARRAY, MAP; LAMBDA for a lambda.
        optional: whether it may be left out.
        repeated: whether more arguments of the kind may follow.
    """

    name: str
    kind: str
    optional: bool = False
    repeated: bool = False


@dataclass(frozen=True)
class ScalarFunction:
    """A scalar function of SQL.

    Attributes:
        name: its name.
        parameters: what it expects.
        result: words for the type of its result.
        summary: what it gives, as half a sentence.
        bind: returns the node of a call, whose number of arguments is right.
        aliases: its other names.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: str
    summary: str
    bind: Callable[[Call], TypedExpression]
    aliases: tuple[str, ...] = ()

    def takes_lambda(self, number: int) -> bool:
        """Return whether an argument is a lambda."""
        return self.parameters[min(number, len(self.parameters) - 1)].kind == "LAMBDA"

    def accepts(self, count: int) -> bool:
        """Return whether it takes so many arguments."""
        least = sum(not parameter.optional for parameter in self.parameters)
        most = len(self.parameters)
        return least <= count and (count <= most or any(parameter.repeated for parameter in self.parameters))


_PARAMETER: Final = re.compile(r"(\w+)(\.\.\.)? ([A-Z_]+)")


def parse_parameters(signature: str) -> tuple[Parameter, ...]:
    """Read parameters as documentation has them.

    Args:
        signature: such as `text STRING, start INT[, length INT]`, or `values... ANY`.
    """
    required, _, optional = signature.partition("[")
    parameters = []
    for part, is_optional in ((required, False), (optional, True)):
        for name, dots, kind in _PARAMETER.findall(part):
            parameters.append(Parameter(name, kind, is_optional, bool(dots)))
    return tuple(parameters)


def describe_function(function: ScalarFunction) -> str:
    """Return the call of a function as documentation has it.

    Example:
        >>> describe_function(define_strict("left", "text STRING, length INT", "STRING", len, "its beginning"))
        'left(text STRING, length INT)'
    """
    shown = [
        f"{'[' if each.optional else ''}{each.name}{'...' if each.repeated else ''} {each.kind}"
        for each in function.parameters
    ]
    closing = "]" * sum(each.optional for each in function.parameters)
    return f"{function.name}({', '.join(shown)}{closing})".replace(", [", "[, ")


def define_strict(
    name: str,
    signature: str,
    result: str,
    function: Callable[..., Any],
    summary: str,
    *,
    aliases: tuple[str, ...] = (),
    may_be_null: bool = False,
) -> ScalarFunction:
    """Describe a function that is NULL if an argument is, and whose arguments are cast to the types of its parameters.

    Args:
        name: its name.
        signature: its parameters, as `parse_parameters` reads them, each with one type.
        result: word for the type of the result.
        function: takes the arguments that are given.
        summary: what it gives.
        aliases: other names.
        may_be_null: whether its result may be None.
    """
    parameters = parse_parameters(signature)
    kinds, dtype = [SCALARS[parameter.kind] for parameter in parameters], SCALARS[result]

    def bind(call: Call) -> TypedExpression:
        last = len(kinds) - 1
        arguments = [call.cast(number, kinds[min(number, last)]) for number in range(len(call.arguments))]
        return call.make(function, arguments, dtype, may_be_null=may_be_null)

    return ScalarFunction(name, parameters, result, summary, bind, aliases)


def define_special(
    name: str,
    signature: str,
    result: str,
    bind: Callable[[Call], TypedExpression],
    summary: str,
    *,
    aliases: tuple[str, ...] = (),
) -> ScalarFunction:
    """Describe a function that binds its calls itself, because types of results depend on those of arguments."""
    return ScalarFunction(name, parse_parameters(signature), result, summary, bind, aliases)


def check_arguments(function: ScalarFunction, nodes: Sequence[exp.Expr], node: exp.Expr) -> None:
    """Refuse a call with a wrong number of arguments, or with lambdas in other places than where they belong.

    Raises:
        SQLAnalysisError: if it is one.
    """
    usage = f"{function.name} is called as {describe_function(function)}"
    if not function.accepts(len(nodes)):
        raise make_analysis_error(f"{usage}, and {len(nodes)} arguments are given", node)
    for number, each in enumerate(nodes):
        if function.takes_lambda(number) is not isinstance(each, exp.Lambda):
            rule = "must be a lambda such as x -> x" if function.takes_lambda(number) else "cannot be a lambda"
            raise make_analysis_error(f"{usage}: argument {number + 1} {rule}", each)
