"""Operators of Spark's ANSI mode in DuckDB's SQL: arithmetic, comparisons, dates and intervals."""

import re
from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import SQLNotSupportedError
from streamrt.sql.expressions.coercion import TIMESTAMP, bound_decimal, is_timestamp
from streamrt.sql.queries.duckdb_casts import convert_implicitly, raise_unless, with_name
from streamrt.sql.queries.duckdb_types import (
    INTERVAL_DAYS,
    INTERVAL_MONTHS,
    TypedText,
    as_decimal,
    describe_type,
    duckdb_type,
    find_common_type,
    is_interval,
    is_number,
    is_text,
)
from streamrt.sql.queries.scopes import fail
from streamrt.sql.reading import position_of

__all__ = ["compare", "compute", "divide_exactly", "find_interval", "unify"]

_SHORT = 400
"""Characters up to which an expression may stand several times in a text."""
_ZERO = "division by zero: use try_divide(), or CASE WHEN"
_UNITS_OF_DAYS = {"MICROSECOND": 1, "MILLISECOND": 10**3, "SECOND": 10**6, "MINUTE": 60 * 10**6}
_UNITS_OF_DAYS |= {"HOUR": 3_600 * 10**6, "DAY": 86_400 * 10**6, "WEEK": 7 * 86_400 * 10**6}
_UNITS_OF_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_AMOUNT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)")
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
    common = find_common_type(value.dtype for value in values)
    if common is None:
        types = ", ".join(dict.fromkeys(describe_type(value.dtype) for value in values))
        raise fail(f"{what} have types that do not fit each other: {types}; cast them", node)
    return [convert_implicitly(value, common) for value in values], common


def compare(node: exp.Binary, left: TypedText, right: TypedText) -> TypedText:
    """Return a comparison."""
    if not (is_interval(left.dtype) and left.dtype == right.dtype):
        (left, right), dtype = unify([left, right], node, "the sides of this comparison")
        if pa.types.is_map(dtype):
            raise fail("maps cannot be compared", node)
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
    dtype = pa.float64() if isinstance(node, exp.Div) else find_common_type([left.dtype, right.dtype])
    return _compute_plain(node, convert_implicitly(left, dtype), convert_implicitly(right, dtype), dtype)


_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}


def _as_numbers(node: exp.Binary, left: TypedText, right: TypedText) -> tuple[TypedText, TypedText]:
    sides = [left, right]
    for number, side in enumerate(sides):
        other = sides[1 - number].dtype
        if is_text(side.dtype) and is_number(other):
            wider = find_common_type([side.dtype, other])
            sides[number] = convert_implicitly(side, wider)
        elif side.dtype == pa.null():
            sides[number] = convert_implicitly(side, other if is_number(other) else pa.int32())
        elif not is_number(side.dtype):
            raise fail(
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
    a, b = _literal_decimal(left), _literal_decimal(right)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    if isinstance(node, exp.Add | exp.Sub):
        scale = max(a.scale, b.scale)
        dtype = bound_decimal(whole + scale + 1, scale)
        _require_digits(node, dtype, scale)
        sides = [f"CAST({side.sql} AS {duckdb_type(dtype)})" for side in (left, right)]
        return TypedText(f"CAST(({sides[0]} {_SIGNS[type(node)]} {sides[1]}) AS {duckdb_type(dtype)})", dtype)
    if isinstance(node, exp.Mul):
        dtype = bound_decimal(a.precision + b.precision + 1, a.scale + b.scale)
        _require_digits(node, dtype, a.scale + b.scale)
        sides = [f"CAST({side.sql} AS {duckdb_type(own)})" for side, own in ((left, a), (right, b))]
        return TypedText(f"CAST(({sides[0]} * {sides[1]}) AS {duckdb_type(dtype)})", dtype)
    if isinstance(node, exp.Mod):
        scale = max(a.scale, b.scale)
        common = bound_decimal(whole + scale, scale)
        dtype = bound_decimal(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)
        _require_digits(node, common, scale)
        sides = [f"CAST({side.sql} AS {duckdb_type(common)})" for side in (left, right)]
        divisor = TypedText(sides[1], common, right.literal)
        dividend = TypedText(sides[0], common)
        made = _guard_zero(dividend, divisor, lambda one, other: f"CAST(({one} % {other}) AS {duckdb_type(dtype)})")
        return TypedText(made, dtype)
    scale = max(6, a.scale + b.precision + 1)
    dtype = bound_decimal(a.precision - a.scale + b.scale + scale, scale)
    return divide_exactly(TypedText(left.sql, left.dtype), TypedText(right.sql, right.dtype), a, b, dtype)


def _literal_decimal(side: TypedText) -> pa.DataType:
    """Return the decimal type of an operand; of a literal that is an integer, that of its digits."""
    if isinstance(side.literal, int) and pa.types.is_integer(side.dtype):
        return pa.decimal128(max(1, len(str(abs(side.literal)))), 0)
    return as_decimal(side.dtype)


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
    dates = (pa.date32(),)
    if not any(each in dates or is_timestamp(each) or is_interval(each) for each in (a, b)):
        return None
    if isinstance(node, exp.Add) and is_interval(a) and not is_interval(b):
        left, right, a, b = right, left, b, a
    if isinstance(node, exp.Add | exp.Sub):
        sign = _SIGNS[type(node)]
        if is_timestamp(a) and is_interval(b):
            return TypedText(f"({left.sql} {sign} {right.sql})", a)
        if a in dates and is_interval(b):
            moved = f"({left.sql} {sign} {right.sql})"
            # Only whole days and months leave a date a date.
            keeps = b == INTERVAL_MONTHS or right.literal == "days"
            return TypedText(f"CAST({moved} AS DATE)", a) if keeps else TypedText(moved, TIMESTAMP)
        if a in dates and pa.types.is_integer(b):
            return TypedText(f"CAST(({left.sql} {sign} CAST({right.sql} AS INTEGER)) AS DATE)", a)
        if is_timestamp(a) and is_timestamp(b) and isinstance(node, exp.Sub):
            return TypedText(f"({left.sql} - {right.sql})", INTERVAL_DAYS)
        if is_interval(a) and a == b:
            return TypedText(f"({left.sql} {sign} {right.sql})", a)
    raise fail(
        f"{_name_operator(node)} does not take {describe_type(left.dtype)} and {describe_type(right.dtype)}; for days "
        "between dates there is datediff(end, start)",
        node,
    )


def find_interval(node: exp.Interval, amount: TypedText | None) -> TypedText:
    """Return an interval.

    Args:
        node: the interval.
        amount: the number of its units, if it is not a literal.

    Raises:
        SQLAnalysisError: if a unit is not known, or units of months and of days are mixed.
    """
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        raise SQLNotSupportedError(
            "a query has no intervals such as DAY TO SECOND: add those of one unit, as in INTERVAL 1 DAY + INTERVAL 2 HOURS",
            *position_of(node),
        )
    if amount is not None and unit is not None:
        word = _name_unit(unit.name, node)
        count = f"CAST({amount.sql} AS BIGINT)"
        if word in _UNITS_OF_MONTHS:
            return TypedText(f"to_months(CAST({count} * {_UNITS_OF_MONTHS[word]} AS INTEGER))", INTERVAL_MONTHS)
        whole = "days" if word in ("DAY", "WEEK") else None
        return TypedText(f"to_microseconds({count} * {_UNITS_OF_DAYS[word]})", INTERVAL_DAYS, whole)
    text = f"{node.name} {unit.name}" if unit is not None else node.name
    parts = _AMOUNT.findall(text)
    if not parts or _AMOUNT.sub("", text).strip():
        raise fail(f"{text!r} is not an interval; write, for example, INTERVAL 5 MINUTES", node)
    months = micros = 0
    words = []
    for number, each in parts:
        word = _name_unit(each, node)
        words.append(word)
        if word in _UNITS_OF_MONTHS:
            months += int(number) * _UNITS_OF_MONTHS[word]
        else:
            whole_part, _, fraction = number.lstrip("+-").partition(".")
            units = int(whole_part) * 10**6 + int((fraction + "000000")[:6])
            micros += (-1 if number.startswith("-") else 1) * units * _UNITS_OF_DAYS[word] // 10**6
    if months and micros:
        raise fail("an interval has units of months or of days and times, not both: add two of them", node)
    if all(word in _UNITS_OF_MONTHS for word in words):
        return TypedText(f"to_months({months})", INTERVAL_MONTHS)
    return TypedText(
        f"to_microseconds({micros})", INTERVAL_DAYS, "days" if all(word in ("DAY", "WEEK") for word in words) else None
    )


def _name_unit(text: str, node: exp.Expr) -> str:
    word = text.upper().rstrip("S")
    if word in _UNITS_OF_DAYS or word in _UNITS_OF_MONTHS:
        return word
    raise fail(f"{text!r} is not a unit of intervals", node)
