"""`bind_place`: functions of OVER other than aggregates, such as `row_number()` and `lag(x)`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.expressions.casts import cast_to
from streamrt.sql.expressions.coercion import common_type, describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.nodes import Constant
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.windows.over_functions import (
    CumulativeDistribution,
    DenseRank,
    FirstValue,
    Lag,
    LastValue,
    Lead,
    NthValue,
    NTile,
    OverFunction,
    PercentRank,
    Rank,
    RowNumber,
)

__all__ = ["PlaceCall", "bind_place", "make_rank"]

Bind = Callable[[exp.Expr], TypedExpression]
"""Returns the expression that a node is."""


@dataclass(frozen=True)
class PlaceCall:
    """A function of OVER, ready to be computed over columns.

    Attributes:
        arguments: columns of their values are given to `make`, in this order.
        dtype: type of the result.
        nullable: whether the result may be NULL.
        framed: whether it is about the rows of a frame.
        text: the call, in words of SQL.
    """

    arguments: tuple[TypedExpression, ...]
    dtype: pa.DataType
    nullable: bool
    framed: bool
    text: str
    _make: Callable[..., OverFunction] = field(compare=False, repr=False)

    def make(self, columns: Sequence[str]) -> OverFunction:
        """Return the function of columns that have the values of the arguments.

        Args:
            columns: their names, one for each argument.
        """
        return self._make(*columns)

    def __str__(self) -> str:
        return self.text


def make_rank(method: str) -> PlaceCall:
    """Return the call of `row_number`, `rank` or `dense_rank`."""
    return next(call for call in _PLACES.values() if call.text == f"{method}()")


def bind_place(node: exp.Expr, bind: Bind) -> PlaceCall | None:
    """Return a function of OVER; None if it is another one.

    Args:
        node: the call, in IGNORE NULLS or not.
        bind: binds its arguments.

    Raises:
        SQLError: if an argument does not fit.
    """
    skips = isinstance(node, exp.IgnoreNulls)
    call = node.this if isinstance(node, exp.IgnoreNulls | exp.RespectNulls) else node
    if isinstance(call, exp.Lag | exp.Lead):
        return _bind_neighbour(call, bind, skips=skips)
    if isinstance(call, exp.FirstValue | exp.First | exp.LastValue | exp.Last | exp.NthValue):
        return _bind_value(call, bind, skips=skips)
    if skips:
        return None
    if isinstance(call, exp.Ntile):
        count = _read_number(call.this, bind, call, "ntile(4) takes a number of parts", 1)
        return PlaceCall((), pa.int32(), False, False, f"ntile({count})", lambda: NTile(count))
    return _PLACES.get(type(call))


def _bind_neighbour(call: exp.Lag | exp.Lead, bind: Bind, *, skips: bool) -> PlaceCall:
    name, kind = ("lag", Lag) if isinstance(call, exp.Lag) else ("lead", Lead)
    if skips:
        raise make_refusal(f"{name}() IGNORE NULLS is refused: filter rows by IS NOT NULL before", call)
    value, offset, node = bind(call.this), call.args.get("offset"), call.args.get("default")
    distance = 1
    if offset is not None:
        distance = _read_number(offset, bind, call, f"{name}(x, 2) takes a number of rows", 0)
    dtype, default = value.dtype, None
    if node is not None:
        other = bind(node)
        if not isinstance(other, Constant):
            raise make_refusal(f"the last argument of {name}() is a constant: write coalesce({name}(...), ...)", node)
        shared = common_type(dtype, other.dtype)
        if shared is None:
            raise make_analysis_error(
                f"{name}() of {describe_type(dtype)} cannot be {describe_type(other.dtype)} in other rows: cast it",
                node,
            )
        value, dtype = (value if shared == dtype else cast_to(value, shared)), shared
        cast = other if other.dtype == shared else cast_to(other, shared)
        default = cast.compile()({}, None, 0, None)
    text = f"{name}({value}, {distance}{'' if default is None else f', {default!r}'})"
    nullable = default is None or value.nullable
    return PlaceCall((value,), dtype, nullable, False, text, lambda column: kind(column, distance, default))


def _bind_value(call: exp.Expr, bind: Bind, *, skips: bool) -> PlaceCall:
    value = bind(call.this)
    words = " IGNORE NULLS" if skips else ""
    if isinstance(call, exp.NthValue):
        n = _read_number(call.args["offset"], bind, call, "nth_value(x, 2) takes the number of a row", 1)

        def make_nth(column: str) -> OverFunction:
            return NthValue(column, n, ignore_nulls=skips)

        return PlaceCall((value,), value.dtype, True, True, f"nth_value({value}, {n}){words}", make_nth)
    name, kind = (
        ("first_value", FirstValue) if isinstance(call, exp.FirstValue | exp.First) else ("last_value", LastValue)
    )
    return PlaceCall(
        (value,),
        value.dtype,
        True,
        True,
        f"{name}({value}){words}",
        lambda column: kind(column, ignore_nulls=skips),
    )


def _read_number(node: exp.Expr, bind: Bind, call: exp.Expr, needed: str, least: int) -> int:
    value = bind(node)
    if not isinstance(value, Constant) or type(value.value) is not int or value.value < least:
        raise make_analysis_error(f"{needed}, at least {least}", call)
    return value.value


def _make_place(name: str, dtype: pa.DataType, make: Callable[[], OverFunction]) -> PlaceCall:
    return PlaceCall((), dtype, False, False, f"{name}()", make)


_PLACES: Final[dict[type, PlaceCall]] = {
    exp.RowNumber: _make_place("row_number", pa.int32(), RowNumber),
    exp.Rank: _make_place("rank", pa.int32(), Rank),
    exp.DenseRank: _make_place("dense_rank", pa.int32(), DenseRank),
    exp.PercentRank: _make_place("percent_rank", pa.float64(), PercentRank),
    exp.CumeDist: _make_place("cume_dist", pa.float64(), CumulativeDistribution),
}
