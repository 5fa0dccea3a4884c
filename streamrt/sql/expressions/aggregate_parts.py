"""Parts that aggregates of SQL share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamrt.sql.expressions.calls import Call
from streamrt.sql.expressions.casts import cast_to
from streamrt.sql.expressions.coercion import DOUBLE, NULL, STRING, is_numeric
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.windows import Aggregator

__all__ = ["Aggregate", "Make", "Parts", "require_number"]

Make = Callable[..., Aggregator]
"""Returns the aggregator of columns."""


@dataclass(frozen=True)
class Parts:
    """How a call is computed.

    Attributes:
        arguments: what is aggregated.
        dtype: type of the result.
        make: returns the aggregator of columns with their values.
        nullable: whether the result may be NULL.
        options: what else decides about the result.
    """

    arguments: tuple[TypedExpression, ...]
    dtype: pa.DataType
    make: Make
    nullable: bool = True
    options: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of SQL.

    Attributes:
        usage: how it is called.
        result: words for the type of its result.
        summary: what it gives.
        bind: returns its parts.
        counts: lowest and highest number of arguments.
    """

    usage: str
    result: str
    summary: str
    bind: Callable[[Call, bool], Parts]
    counts: tuple[int, int] = (1, 1)


def require_number(call: Call) -> TypedExpression:
    """Return the first argument of a call, which must be a number; strings are cast."""
    argument = call.arguments[0]
    if argument.dtype in (STRING, NULL):
        return cast_to(argument, DOUBLE)
    if not is_numeric(argument.dtype):
        raise call.misfit(0, "a number")
    return argument
