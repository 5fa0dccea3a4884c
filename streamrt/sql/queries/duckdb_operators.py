"""Operators of Spark's ANSI mode in DuckDB's SQL: arithmetic, comparisons, dates and intervals."""

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import SQLNotSupportedError
from streamrt.sql.expressions.coercion import (
    DATE,
    DAYS,
    INTERVAL,
    MONTHS,
    STRING,
    TIMESTAMP,
    all_comparable,
    bound_decimal,
    common_type_of_all,
    decimal_of,
    decimal_result,
    describe_type,
    is_integral,
    is_interval,
    is_moment,
    is_numeric,
    is_timestamp,
)
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.intervals import UNITS, UNITS_OF_MONTHS, name_unit
from streamrt.sql.expressions.nodes import Constant
from streamrt.sql.queries.duckdb_casts import convert_implicitly, raise_unless, with_name
from streamrt.sql.queries.duckdb_types import TypedText, duckdb_type
from streamrt.sql.reading import position_of

__all__ = ["compare", "compute", "count_units", "divide_exactly", "unify", "write_interval"]

_SHORT = 400
"""Characters up to which an expression may stand several times in a text."""
_ZERO = "division by zero: use try_divide(), or CASE WHEN"
_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_COMPARISONS |= {exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM"}


def unify(values: list[TypedText], node: exp.Expr, what: str) -> tuple[list[TypedText], pa.DataType]:
    """Return values as the type to which Spark brings them, and this type.

    Args:
        values: the values.
        node: where they are.
        what: what they are, for the error.

    Raises:
        SQLAnalysisError: if there is no such type.
    """
    common = common_type_of_all(value.dtype for value in values)
    if common is None:
        types = ", ".join(dict.fromkeys(describe_type(value.dtype) for value in values))
        raise make_analysis_error(f"{what} have types that do not fit each other: {types}; cast them", node)
    return [convert_implicitly(value, common) for value in values], common


def compare(node: exp.Binary, left: TypedText, right: TypedText) -> TypedText:
    """Return a comparison."""
    (left, right), dtype = unify([left, right], node, "the sides of this comparison")
    if not all_comparable([dtype]):
        raise make_analysis_error("maps cannot be compared", node)
    return TypedText(f"({left.sql} {_COMPARISONS[type(node)]} {right.sql})", pa.bool_())


def compute(node: exp.Binary, left: TypedText, right: TypedText) -> TypedText:
    """Return the result of `+`, `-`, `*`, `/`, `%` or `div`."""
    on_times = _compute_times(node, left, right)
    if on_times is not None:
        return on_times
    left, right = _as_numbers(node, left, right)
    if isinstance(node, exp.IntDiv):
        return _divide_integers(node, left, right)
    if pa.types.is_floating(left.dtype) or pa.types.is_floating(right.dtype):
        both_float = left.dtype == right.dtype == pa.float32() and not isinstance(node, exp.Div)
        dtype = pa.float32() if both_float else pa.float64()
        return _compute_plain(node, convert_implicitly(left, dtype), convert_implicitly(right, dtype), dtype)
    if pa.types.is_decimal(left.dtype) or pa.types.is_decimal(right.dtype):
        return _compute_decimals(node, left, right)
    dtype = pa.float64() if isinstance(node, exp.Div) else common_type_of_all([left.dtype, right.dtype])
    return _compute_plain(node, convert_implicitly(left, dtype), convert_implicitly(right, dtype), dtype)


_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}


def _as_numbers(node: exp.Binary, left: TypedText, right: TypedText) -> tuple[TypedText, TypedText]:
    sides = [left, right]
    for number, side in enumerate(sides):
        other = sides[1 - number].dtype
        if side.dtype == STRING and is_numeric(other):
            wider = common_type_of_all([side.dtype, other])
            sides[number] = convert_implicitly(side, wider)
        elif side.dtype == pa.null():
            sides[number] = convert_implicitly(side, other if is_numeric(other) else pa.int32())
        elif not is_numeric(side.dtype):
            raise make_analysis_error(
                f"{_name_operator(node)} takes numbers, and this is a {describe_type(side.dtype)}: cast it",
                node.left if number == 0 else node.right,
            )
    return sides[0], sides[1]


def _name_operator(node: exp.Binary) -> str:
    return "div" if isinstance(node, exp.IntDiv) else _SIGNS[type(node)]


def _compute_plain(node: exp.Binary, left: TypedText, right: TypedText, dtype: pa.DataType) -> TypedText:
    if not isinstance(node, exp.Div | exp.Mod):
        return TypedText(f"({left.sql} {_SIGNS[type(node)]} {right.sql})", dtype)
    sign = "/" if isinstance(node, exp.Div) else "%"
    return TypedText(_guard_zero(left, right, lambda a, b: f"({a} {sign} {b})"), dtype)


def _guard_zero(dividend: TypedText, divisor: TypedText, make: Callable[[str, str], str]) -> str:
    """Return a division that raises if the divisor is zero, and the dividend is not NULL."""
    if divisor.literal:
        return make(dividend.sql, divisor.sql)

    def make_guarded(a: str, b: str) -> str:
        return raise_unless(f"({b} <> 0 OR {a} IS NULL)", make(a, b), _ZERO)

    if len(dividend.sql) + len(divisor.sql) < _SHORT:
        return make_guarded(dividend.sql, divisor.sql)
    pair = f"{{'x': {dividend.sql}, 'y': {divisor.sql}}}"
    return with_name(pair, lambda name: make_guarded(f"{name}.x", f"{name}.y"))


def _divide_integers(node: exp.Binary, left: TypedText, right: TypedText) -> TypedText:
    if not (pa.types.is_integer(left.dtype) and pa.types.is_integer(right.dtype)):
        raise SQLNotSupportedError("div takes integers in a query: cast both sides to BIGINT", *position_of(node))
    dividend, divisor = convert_implicitly(left, pa.int64()), convert_implicitly(right, pa.int64())
    kept = TypedText(divisor.sql, pa.int64(), right.literal)
    return TypedText(_guard_zero(dividend, kept, lambda a, b: f"({a} // {b})"), pa.int64())


def _compute_decimals(node: exp.Binary, left: TypedText, right: TypedText) -> TypedText:
    a, b = decimal_of(left.dtype, left.literal), decimal_of(right.dtype, right.literal)
    symbol = _SIGNS[type(node)]
    dtype = decimal_result(symbol, a, b)
    if symbol == "/":
        return divide_exactly(left, right, a, b, dtype)
    if symbol == "*":
        _require_digits(node, dtype, a.scale + b.scale)
        operands = (a, b)
    else:
        scale = max(a.scale, b.scale)
        whole = bound_decimal(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
        operands = (whole, whole) if symbol == "%" else (dtype, dtype)
        _require_digits(node, operands[0], scale)
    sides = [f"CAST({side.sql} AS {duckdb_type(own)})" for side, own in zip((left, right), operands, strict=True)]
    word = duckdb_type(dtype)
    if symbol != "%":
        return TypedText(f"CAST(({sides[0]} {symbol} {sides[1]}) AS {word})", dtype)
    dividend, divisor = TypedText(sides[0], operands[0]), TypedText(sides[1], operands[1], right.literal)
    return TypedText(_guard_zero(dividend, divisor, lambda one, other: f"CAST(({one} % {other}) AS {word})"), dtype)


def _require_digits(node: exp.Expr, dtype: pa.DataType, scale: int) -> None:
    if dtype.scale < scale:
        raise SQLNotSupportedError(
            f"{_name_operator(node) if isinstance(node, exp.Binary) else 'this'} of such decimals has more than 38 "
            "digits, and Spark would round them in a way that DuckDB does not: cast an operand to a smaller DECIMAL",
            *position_of(node),
        )


def divide_exactly(left: TypedText, right: TypedText, a: pa.DataType, b: pa.DataType, dtype: pa.DataType) -> TypedText:
    """Return a quotient of decimals, rounded half up: DuckDB divides them as DOUBLE.

    Args:
        left: the dividend.
        right: the divisor, which raises if it is zero.
        a: decimal type of the dividend.
        b: decimal type of the divisor.
        dtype: type of the quotient.

    Returns:
        The quotient, by integers of 128 bits: those that do not fit raise.
    """
    shift = dtype.scale + b.scale - a.scale
    dividend = _unscaled(left.sql, a)
    divisor = _unscaled(right.sql, b)
    if shift >= 0:
        dividend = f"{dividend} * {10**shift}::HUGEINT"
    else:
        divisor = f"{divisor} * {10**-shift}::HUGEINT"
    unit = f"CAST('{_unit(dtype.scale)}' AS DECIMAL({max(dtype.scale, 1)}, {dtype.scale}))"

    def make(name: str) -> str:
        x, y = f"{name}.x", f"{name}.y"
        quotient, rest = f"({x} // {y})", f"abs({x} % {y})"
        up = f"CASE WHEN {rest} >= abs({y}) - {rest} THEN CASE WHEN ({x} < 0) = ({y} < 0) THEN 1 ELSE -1 END ELSE 0 END"
        made = f"CAST(CAST(({quotient} + {up}) AS DECIMAL(38, 0)) * {unit} AS {duckdb_type(dtype)})"
        return raise_unless(f"({y} <> 0 OR {x} IS NULL)", made, _ZERO)

    return TypedText(with_name(f"{{'x': {dividend}, 'y': {divisor}}}", make), dtype)


def _unit(scale: int) -> str:
    return "1" if not scale else f"0.{'0' * (scale - 1)}1"


def _unscaled(sql: str, dtype: pa.DataType) -> str:
    """Return the digits of a decimal as an integer."""
    if not dtype.scale:
        return f"CAST({sql} AS HUGEINT)"
    made = f"CAST({sql} AS {duckdb_type(dtype)})"
    # Of the text, since a product with a power of ten may have more than 38 digits in between.
    return f"CAST(replace(CAST({made} AS VARCHAR), '.', '') AS HUGEINT)"


def _compute_times(node: exp.Binary, left: TypedText, right: TypedText) -> TypedText | None:
    """Return the result of an operation on dates, times and intervals; None if no side is one."""
    a, b = left.dtype, right.dtype
    if not any(is_moment(each) or is_interval(each) for each in (a, b)):
        return None
    if isinstance(node, exp.Add) and is_interval(a) and not is_interval(b):
        left, right, a, b = right, left, b, a
    if isinstance(node, exp.Add | exp.Sub):
        sign = _SIGNS[type(node)]
        if is_timestamp(a) and is_interval(b):
            return TypedText(f"({left.sql} {sign} {right.sql})", a)
        if a == DATE and is_interval(b):
            moved = f"({left.sql} {sign} {right.sql})"
            # Only whole days and months leave a date a date.
            return TypedText(moved, TIMESTAMP) if b == INTERVAL else TypedText(f"CAST({moved} AS DATE)", a)
        if a == DATE and is_integral(b):
            return TypedText(f"CAST(({left.sql} {sign} CAST({right.sql} AS INTEGER)) AS DATE)", a)
        if is_moment(a) and is_moment(b) and isinstance(node, exp.Sub):
            dtype = DAYS if a == b == DATE else INTERVAL
            return TypedText(f"(CAST({left.sql} AS TIMESTAMP) - CAST({right.sql} AS TIMESTAMP))", dtype)
        common = common_type_of_all([a, b])
        if is_interval(a) and common is not None:
            return TypedText(f"({left.sql} {sign} {right.sql})", common)
    raise make_analysis_error(
        f"{_name_operator(node)} does not take {describe_type(left.dtype)} and {describe_type(right.dtype)}; for days "
        "between dates there is datediff(end, start)",
        node,
    )


def write_interval(interval: Constant) -> TypedText:
    """Return an interval that is a constant."""
    if interval.type == MONTHS:
        return TypedText(f"to_months({interval.value})", MONTHS)
    return TypedText(f"to_microseconds({interval.value // UNITS['MICROSECOND']})", interval.type)


def count_units(node: exp.Interval, amount: TypedText) -> TypedText:
    """Return an interval of as many units as an expression says.

    Args:
        node: the interval.
        amount: the number of its units.

    Raises:
        SQLAnalysisError: if its unit is not known.
    """
    unit = node.args.get("unit")
    word = "" if unit is None else name_unit(unit)
    count = f"CAST({amount.sql} AS BIGINT)"
    if word in UNITS_OF_MONTHS:
        return TypedText(f"to_months(CAST({count} * {UNITS_OF_MONTHS[word]} AS INTEGER))", MONTHS)
    if word not in UNITS:
        raise make_analysis_error(
            f"{word.lower()!r} is not a unit of intervals: write, for example, INTERVAL n HOURS", node
        )
    dtype = DAYS if word in ("DAY", "WEEK") else INTERVAL
    return TypedText(f"to_microseconds({count} * {UNITS[word] // UNITS['MICROSECOND']})", dtype)
