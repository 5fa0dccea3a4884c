"""INTERVAL, and its arithmetic with dates and timestamps.

An interval is of days and parts of days, a `timedelta`, or of years and months, a number of months: both do not mix, because
a month has no fixed number of days.
"""

import calendar
import datetime
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from sqlglot import exp

from streamrt.sql.expressions.arithmetic import round_decimal
from streamrt.sql.expressions.calls import FunctionCall
from streamrt.sql.expressions.casts import cast_silently, cast_to
from streamrt.sql.expressions.coercion import (
    DATE,
    DAYS,
    INT,
    INTERVAL,
    MONTHS,
    TIMESTAMP,
    TIMESTAMP_LTZ,
    is_integral,
    is_interval,
    is_moment,
    is_numeric,
)
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.nodes import Constant, fold_constants
from streamrt.sql.expressions.typed import TypedExpression

__all__ = [
    "UNITS",
    "UNITS_OF_MONTHS",
    "add_months",
    "bind_interval",
    "bind_interval_arithmetic",
    "is_constant_interval",
    "name_unit",
    "shift_date",
    "shift_timestamp",
]

UNITS: Final = {
    "MICROSECOND": datetime.timedelta(microseconds=1),
    "MILLISECOND": datetime.timedelta(milliseconds=1),
    "SECOND": datetime.timedelta(seconds=1),
    "MINUTE": datetime.timedelta(minutes=1),
    "HOUR": datetime.timedelta(hours=1),
    "DAY": datetime.timedelta(days=1),
    "WEEK": datetime.timedelta(weeks=1),
}
"""The length of units that have a fixed one."""
UNITS_OF_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
"""How many months units have that have no fixed length."""
_PART: Final = re.compile(r"\s*([+-]?)\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z]+)\s*")
_YEAR_MONTH: Final = re.compile(r"\s*([+-]?)([0-9]+)-([0-9]{1,2})\s*")
_SPANS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")


def bind_interval(node: exp.Interval) -> Constant:
    """Return an interval.

    Raises:
        SQLAnalysisError: if its text is none.
        SQLNotSupportedError: if it depends on a column, or has both months and days.
    """
    value, negative = _amount_of(node)
    if not isinstance(value, exp.Literal):
        raise make_refusal(
            "an INTERVAL is a constant here: write a * INTERVAL 1 DAY for one that depends on a column", node
        )
    text = str(value.this)
    try:
        interval = _read_interval(text, node.args.get("unit"))
    except (ValueError, OverflowError):
        interval = None
    if interval is None:
        raise make_analysis_error(
            "this is not an INTERVAL: write INTERVAL '3' DAY, or INTERVAL '1 day 2 hours'; months and days do not mix",
            node,
        )
    if not negative:
        return interval
    return Constant(-interval.value, interval.type)


def is_constant_interval(node: exp.Interval) -> bool:
    """Return whether an interval has its number in the text."""
    return isinstance(_amount_of(node)[0], exp.Literal)


def _amount_of(node: exp.Interval) -> tuple[exp.Expr, bool]:
    """Return the amount without minus signs and parentheses, and whether it is negative."""
    value, negative = node.this, False
    while isinstance(value, exp.Neg | exp.Paren):
        negative ^= isinstance(value, exp.Neg)
        value = value.this
    return value, negative


def _read_interval(text: str, unit: exp.Expr | None) -> Constant | None:
    if isinstance(unit, exp.IntervalSpan):
        return _read_span(text, name_unit(unit.this), name_unit(unit.expression))
    if unit is not None:
        return _sum_parts([(Fraction(text.strip()), name_unit(unit))])
    rest, parts = text, []
    while rest:
        found = _PART.match(rest)
        if found is None:
            return None
        sign, number, word = found.groups()
        parts.append((Fraction(sign + number), _singular(word)))
        rest = rest[found.end() :]
    return _sum_parts(parts) if parts else None


def name_unit(unit: exp.Expr) -> str:
    """Return the name of a unit, in capital letters and without the S of the plural."""
    return _singular(str(unit.name))


def _singular(word: str) -> str:
    return word.upper().removesuffix("S")


def _sum_parts(parts: list[tuple[Fraction, str]]) -> Constant | None:
    if all(unit in UNITS_OF_MONTHS for _, unit in parts):
        months = sum(number * UNITS_OF_MONTHS[unit] for number, unit in parts)
        return Constant(int(months), MONTHS) if months == int(months) else None
    if not all(unit in UNITS for _, unit in parts):
        return None
    microseconds = sum(number * (UNITS[unit] // UNITS["MICROSECOND"]) for number, unit in parts)
    dtype = DAYS if all(unit in ("DAY", "WEEK") for _, unit in parts) else INTERVAL
    return Constant(datetime.timedelta(microseconds=int(microseconds)), dtype)


def _read_span(text: str, first: str, last: str) -> Constant | None:
    if (first, last) == ("YEAR", "MONTH"):
        found = _YEAR_MONTH.fullmatch(text)
        if found is None:
            return None
        months = int(found[2]) * 12 + int(found[3])
        return Constant(-months if found[1] == "-" else months, MONTHS)
    if first not in _SPANS or last not in _SPANS or _SPANS.index(first) >= _SPANS.index(last):
        return None
    units = _SPANS[_SPANS.index(first) : _SPANS.index(last) + 1]
    numbers = re.split(r"[\s:]+", text.strip().lstrip("+-"))
    if len(numbers) != len(units):
        return None
    length = sum(
        (Fraction(number) * (UNITS[unit] // UNITS["MICROSECOND"]) for number, unit in zip(numbers, units, strict=True))
    )
    duration = datetime.timedelta(microseconds=int(length))
    return Constant(-duration if text.strip().startswith("-") else duration, INTERVAL)


def bind_interval_arithmetic(
    symbol: str, left: TypedExpression, right: TypedExpression, node: exp.Expr | None
) -> TypedExpression | None:
    """Return the node of an operation with a date, a timestamp, or an interval; None if neither operand is one.

    Raises:
        SQLAnalysisError: if the types do not go together.
    """
    are_moments = [is_moment(operand.dtype) for operand in (left, right)]
    if any(is_interval(operand.dtype) for operand in (left, right)):
        bound = _bind_with_interval(symbol, left, right)
    elif symbol == "-" and all(are_moments):
        bound = _subtract_moments(left, right)
    elif any(are_moments):
        bound = _add_days(symbol, left, right)
    else:
        return None
    if bound is None:
        raise make_analysis_error(f"{left} {symbol} {right} has no meaning for these types", node)
    return fold_constants(bound)


def _bind_with_interval(symbol: str, left: TypedExpression, right: TypedExpression) -> TypedExpression | None:
    if symbol in ("+", "-") and is_interval(left.dtype) and is_interval(right.dtype):
        if MONTHS in (left.dtype, right.dtype) and left.dtype != right.dtype:
            return None
        dtype = left.dtype if left.dtype == right.dtype else INTERVAL
        return FunctionCall(symbol, _add if symbol == "+" else _subtract, (left, right), dtype)
    if symbol == "+" and is_interval(left.dtype) and is_moment(right.dtype):
        left, right = right, left
    if symbol in ("+", "-") and is_moment(left.dtype) and is_interval(right.dtype):
        return _shift(symbol, left, right)
    if symbol == "*" and is_interval(right.dtype):
        left, right = right, left
    if symbol in ("*", "/") and is_interval(left.dtype) and is_numeric(right.dtype):
        function = _multiply if symbol == "*" else _divide
        return FunctionCall(symbol, function, (left, right), MONTHS if left.dtype == MONTHS else INTERVAL)
    return None


def _shift(symbol: str, moment: TypedExpression, interval: TypedExpression) -> TypedExpression:
    sign = 1 if symbol == "+" else -1
    if interval.dtype == MONTHS:
        return FunctionCall(symbol, add_months, (moment, interval), moment.dtype, options=(sign,))
    if moment.dtype == DATE and interval.dtype == INTERVAL:
        moment = cast_to(moment, TIMESTAMP)
    return FunctionCall(symbol, shift_timestamp, (moment, interval), moment.dtype, options=(sign,))


def _subtract_moments(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    if left.dtype == DATE and right.dtype == DATE:
        return FunctionCall("-", _subtract, (left, right), DAYS)
    target = TIMESTAMP_LTZ if TIMESTAMP_LTZ in (left.dtype, right.dtype) else TIMESTAMP
    return FunctionCall("-", _subtract, (cast_to(left, target), cast_to(right, target)), INTERVAL)


def _add_days(symbol: str, left: TypedExpression, right: TypedExpression) -> TypedExpression | None:
    if symbol == "+" and is_integral(left.dtype):
        left, right = right, left
    if symbol not in ("+", "-") or left.dtype != DATE or not is_integral(right.dtype):
        return None
    days = cast_silently(right, INT, None, symbol)
    return FunctionCall(symbol, shift_date, (left, days), DATE, options=(1 if symbol == "+" else -1,))


def shift_date(sign: int, day: datetime.date, days: int) -> datetime.date:
    """Return a date so many days later, or with the sign -1 earlier.

    Raises:
        OverflowError: if it is not in the years 1 to 9999.
    """
    try:
        return day + datetime.timedelta(days=sign * days)
    except OverflowError:
        raise OverflowError("a date is in the years 1 to 9999") from None


def shift_timestamp(sign: int, moment: Any, interval: datetime.timedelta) -> Any:
    """Return a date or a time moved by an interval.

    Raises:
        OverflowError: if it is not in the years 1 to 9999.
    """
    try:
        return moment + sign * interval
    except OverflowError:
        raise OverflowError("a timestamp is in the years 1 to 9999") from None


def add_months(sign: int, moment: Any, months: int) -> Any:
    """Return a date or a time so many months later: on the last day of its month, if that is shorter.

    Raises:
        OverflowError: if it is not in the years 1 to 9999.
    """
    year, month = divmod(moment.year * 12 + moment.month - 1 + sign * months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError("a date is in the years 1 to 9999")
    return moment.replace(year=year, month=month + 1, day=min(moment.day, calendar.monthrange(year, month + 1)[1]))


def _add(a: Any, b: Any) -> Any:
    return a + b


def _subtract(a: Any, b: Any) -> Any:
    return a - b


def _multiply(interval: Any, number: Any) -> Any:
    if isinstance(interval, int):
        return int(round_decimal(_decimal_of(interval * _exact(number)), 38, 0, "INTERVAL * number"))
    micros = interval // UNITS["MICROSECOND"]
    rounded = round_decimal(_decimal_of(micros * _exact(number)), 38, 0, "INTERVAL * number")
    return _timedelta_of(int(rounded))


def _divide(interval: Any, number: Any) -> Any:
    if not number:
        raise ZeroDivisionError("an INTERVAL divided by zero has no result")
    if isinstance(interval, int):
        return int(round_decimal(_decimal_of(interval / _exact(number)), 38, 0, "INTERVAL / number"))
    micros = interval // UNITS["MICROSECOND"]
    return _timedelta_of(int(round_decimal(_decimal_of(micros / _exact(number)), 38, 0, "INTERVAL / number")))


def _exact(number: Any) -> Fraction:
    try:
        return Fraction(number)
    except (ValueError, OverflowError):
        raise OverflowError("an INTERVAL times a number that is not finite has no result") from None


def _decimal_of(number: Fraction) -> Decimal:
    """Return a number with one digit behind the point that rounds as it does."""
    doubled = number * 2
    return Decimal(int(doubled)) / 2


def _timedelta_of(micros: int) -> datetime.timedelta:
    try:
        return datetime.timedelta(microseconds=micros)
    except OverflowError:
        raise OverflowError("an INTERVAL is too long") from None
