"""Functions of users: Python functions with a name in SQL."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.sql.expressions.calls import Call, FunctionCall
from streamrt.sql.expressions.functions.refused import reason_of
from streamrt.sql.expressions.functions.registry import find_function
from streamrt.sql.expressions.typed import TypedExpression

__all__ = ["FunctionRegistry", "UserFunction"]

Kind = Literal["scalar", "aggregate", "table"]
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class UserFunction:
    """A Python function that SQL calls.

    Attributes:
        name: its name in SQL, the same in any case.
        kind: "scalar" takes values and returns one; "aggregate" returns an `Aggregator` for the names of its columns;
            "table" takes values and returns rows.
        function: the function.
        returns: type of its result; of a table-valued one, a STRUCT with its columns.
        arguments: types of its arguments, to which values are cast; None for values of any types and number.
    """

    name: str
    kind: Kind
    function: Callable[..., Any]
    returns: pa.DataType
    arguments: tuple[pa.DataType, ...] | None = None

    def cast_arguments(self, call: Call) -> tuple[TypedExpression, ...]:
        """Return the arguments of a call as values of the types that the function expects.

        Raises:
            SQLAnalysisError: if their number or types do not fit.
        """
        if self.arguments is None:
            return call.arguments
        if len(call.arguments) != len(self.arguments):
            raise call.error(
                f"{self.name}() takes {len(self.arguments)} arguments, and {len(call.arguments)} are given"
            )
        return tuple(call.cast(number, dtype) for number, dtype in enumerate(self.arguments))

    def bind(self, call: Call) -> TypedExpression:
        """Return the node of a call of a scalar function. It takes None for NULL, and may return None."""
        return FunctionCall(
            self.name, self.function, self.cast_arguments(call), self.returns, True, strict=False, is_own=False
        )


class FunctionRegistry:
    """The functions of users, by name.

    Example:
        >>> functions = FunctionRegistry()
        >>> functions.register("shout", str.upper, pa.string(), [pa.string()])
        >>> functions.find("SHOUT").name
        'shout'
    """

    def __init__(self) -> None:
        self._functions: dict[str, UserFunction] = {}

    def register(
        self,
        name: str,
        function: Callable[..., Any],
        returns: pa.DataType,
        arguments: Sequence[pa.DataType] | None = None,
        *,
        kind: Kind = "scalar",
    ) -> None:
        """Add a function.

        Args:
            name: its name: letters, digits and `_`.
            function: the function.
            returns: type of its result.
            arguments: types of its arguments; None for any.
            kind: what it does.

        Raises:
            ArgumentTypeError: if the function is not callable.
            ArgumentValueError: if the name is taken, or is none.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ArgumentValueError(f"the name of a function has letters, digits and _; got {name!r}")
        if not callable(function):
            raise ArgumentTypeError(f"function {name} is a callable; got {type(function).__name__}")
        if find_function(name) is not None or reason_of(name) is not None:
            raise ArgumentValueError(f"{name} is the name of a function of SQL: choose another one")
        if name.lower() in self._functions:
            raise ArgumentValueError(f"a function {name} is registered already")
        made = UserFunction(name, kind, function, returns, None if arguments is None else tuple(arguments))
        self._functions[name.lower()] = made

    def find(self, name: str) -> UserFunction | None:
        """Return a function by its name, in any case; None if there is none."""
        return self._functions.get(name.lower())

    def names(self) -> tuple[str, ...]:
        """Return the names of all functions."""
        return tuple(function.name for function in self._functions.values())
