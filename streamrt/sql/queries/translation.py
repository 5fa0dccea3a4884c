"""What translations of single functions know of the translation around them."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import SQLNotSupportedError
from streamrt.sql.expressions.coercion import STRING, describe_type, is_numeric, is_timestamp
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_casts import convert_implicitly
from streamrt.sql.queries.duckdb_types import TypedText

__all__ = [
    "FUNCTIONS",
    "NAMED",
    "PARAMETER",
    "WITH_LAMBDAS",
    "Translation",
    "as_date",
    "as_double",
    "as_integer",
    "as_text",
    "as_timestamp",
    "literal_integer",
    "literal_text",
    "named",
    "takes_lambdas",
    "translates",
]

F = TypeVar("F", bound=Callable[..., TypedText])

PARAMETER = "__p"
"""Prefix of the names of lambda parameters in DuckDB's SQL; a number follows."""


class Translation(Protocol):
    """Translates the parts of an expression."""

    def scalar(self, node: exp.Expr) -> TypedText:
        """Return a part of the expression in DuckDB's SQL."""

    def translate_lambda(
        self, node: exp.Lambda, count: int, make: Callable[[Sequence[str]], Sequence[TypedText]]
    ) -> tuple[Sequence[str], TypedText]:
        """Return the names of the parameters of a lambda in DuckDB's SQL, and its body.

        Args:
            node: the lambda in the text.
            count: the number of parameters that the lambda has in DuckDB.
            make: returns what the parameters in the text stand for, for names in DuckDB.
        """


Handler = Callable[[Translation, Any], TypedText]
NamedHandler = Callable[[Translation, exp.Anonymous, list[TypedText]], TypedText]

LambdaHandler = Callable[[Translation, exp.Anonymous], TypedText]

FUNCTIONS: dict[type[exp.Expr], Handler] = {}
"""Translations of the functions for which sqlglot has a class. What is in no table is refused."""

NAMED: dict[str, tuple[int, int, NamedHandler]] = {}
"""Translations of other functions by their names in lower case, with the least and most arguments."""

WITH_LAMBDAS: dict[str, LambdaHandler] = {}
"""Translations of calls with lambdas, by the names of the functions in lower case."""


def translates(*kinds: type[exp.Expr]) -> Callable[[F], F]:
    """Register the translation of a class of functions."""

    def register(handler: F) -> F:
        for kind in kinds:
            FUNCTIONS[kind] = handler
        return handler

    return register


def named(name: str, least: int, most: int) -> Callable[[NamedHandler], NamedHandler]:
    """Register the translation of a function by its name."""

    def register(handler: NamedHandler) -> NamedHandler:
        NAMED[name] = (least, most, handler)
        return handler

    return register


def takes_lambdas(*names: str) -> Callable[[LambdaHandler], LambdaHandler]:
    """Register the translation of a function that takes lambdas, by its names."""

    def register(handler: LambdaHandler) -> LambdaHandler:
        WITH_LAMBDAS.update(dict.fromkeys(names, handler))
        return handler

    return register


def as_text(value: TypedText, node: exp.Expr) -> TypedText:
    """Return an argument as STRING, to which Spark casts what is not a text."""
    try:
        return convert_implicitly(value, pa.string())
    except SQLNotSupportedError as error:
        raise make_refusal(str(error), node) from None


def as_double(value: TypedText, node: exp.Expr) -> TypedText:
    """Return an argument as DOUBLE."""
    if not (is_numeric(value.dtype) or value.dtype == STRING or value.dtype == pa.null()):
        raise make_analysis_error(f"a number was expected, and this is a {describe_type(value.dtype)}", node)
    return convert_implicitly(value, pa.float64())


def as_integer(value: TypedText, node: exp.Expr) -> TypedText:
    """Return an argument as INT."""
    if not (pa.types.is_integer(value.dtype) or value.dtype == STRING or value.dtype == pa.null()):
        raise make_analysis_error(f"an integer was expected, and this is a {describe_type(value.dtype)}: cast it", node)
    return convert_implicitly(value, pa.int32())


def as_date(value: TypedText, node: exp.Expr) -> TypedText:
    """Return an argument as DATE."""
    if not (value.dtype in (pa.date32(), pa.null()) or is_timestamp(value.dtype) or value.dtype == STRING):
        raise make_analysis_error(
            f"a DATE or a TIMESTAMP was expected, and this is a {describe_type(value.dtype)}", node
        )
    return convert_implicitly(value, pa.date32())


def as_timestamp(value: TypedText, node: exp.Expr) -> TypedText:
    """Return an argument as TIMESTAMP, or TIMESTAMP_LTZ if it is one."""
    if is_timestamp(value.dtype):
        return value
    if not (value.dtype in (pa.date32(), pa.null()) or value.dtype == STRING):
        raise make_analysis_error(f"a TIMESTAMP was expected, and this is a {describe_type(value.dtype)}", node)
    return convert_implicitly(value, pa.timestamp("us"))


def literal_text(value: TypedText, node: exp.Expr, what: str) -> str:
    """Return the text of an argument that must be a literal."""
    if not isinstance(value.literal, str) or value.dtype != STRING:
        raise make_refusal(f"{what} must be a text in quotes in a query, and not another expression", node)
    return value.literal


def literal_integer(value: TypedText, node: exp.Expr, what: str) -> int:
    """Return the number of an argument that must be a literal."""
    if not isinstance(value.literal, int):
        raise make_refusal(f"{what} must be a number such as 2 in a query, and not another expression", node)
    return value.literal
