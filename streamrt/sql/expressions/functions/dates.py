"""Functions of dates and times."""

import calendar
import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from streamrt.sql.expressions.calls import Call, ScalarFunction, define_special, define_strict
from streamrt.sql.expressions.casts import bind_cast, cast_to
from streamrt.sql.expressions.coercion import (
    BIGINT,
    DATE,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_LTZ,
    is_integral,
    is_numeric,
    is_timestamp,
)
from streamrt.sql.expressions.conversions import micros_of, timestamp_of_micros
from streamrt.sql.expressions.datetime_patterns import DAYS, MONTHS, check_pattern, parse_text, write_text
from streamrt.sql.expressions.intervals import UNITS, add_months, shift_date, shift_timestamp
from streamrt.sql.expressions.nodes import Constant
from streamrt.sql.expressions.typed import TypedExpression

__all__ = ["FUNCTIONS", "bind_extract", "bind_with_unit"]

_SECOND: Final = pa.decimal128(8, 6)
_EPOCH: Final = datetime.date(1970, 1, 1)


# Parts.


def _year(day: datetime.date) -> int:
    return day.year


def _quarter(day: datetime.date) -> int:
    return (day.month + 2) // 3


def _month(day: datetime.date) -> int:
    return day.month


def _day(day: datetime.date) -> int:
    return day.day


def _day_of_week(day: datetime.date) -> int:
    return day.isoweekday() % 7 + 1


def _day_of_year(day: datetime.date) -> int:
    return day.timetuple().tm_yday


def _week(day: datetime.date) -> int:
    return day.isocalendar().week


def _iso_year(day: datetime.date) -> int:
    return day.isocalendar().year


def _day_name(day: datetime.date) -> str:
    return DAYS[day.weekday()][:3]


def _month_name(day: datetime.date) -> str:
    return MONTHS[day.month - 1][:3]


def _hour(moment: datetime.datetime) -> int:
    return moment.hour


def _minute(moment: datetime.datetime) -> int:
    return moment.minute


def _second(moment: datetime.datetime) -> int:
    return moment.second


def _second_with_fraction(moment: datetime.datetime) -> Decimal:
    return Decimal(moment.second * 1_000_000 + moment.microsecond).scaleb(-6)


_DATE_PARTS: Final[dict[str, Callable[[datetime.date], int]]] = {
    **dict.fromkeys(("year", "y", "years", "yr", "yrs"), _year),
    **dict.fromkeys(("yearofweek",), _iso_year),
    **dict.fromkeys(("quarter", "qtr"), _quarter),
    **dict.fromkeys(("month", "mon", "mons", "months"), _month),
    **dict.fromkeys(("week", "w", "weeks"), _week),
    **dict.fromkeys(("day", "d", "days"), _day),
    **dict.fromkeys(("dayofweek", "dow"), _day_of_week),
    **dict.fromkeys(("dayofweek_iso", "dow_iso"), datetime.date.isoweekday),
    **dict.fromkeys(("doy",), _day_of_year),
}
_TIME_PARTS: Final[dict[str, Callable[[datetime.datetime], int]]] = {
    **dict.fromkeys(("hour", "h", "hours", "hr", "hrs"), _hour),
    **dict.fromkeys(("minute", "m", "min", "mins", "minutes"), _minute),
}


def bind_extract(call: Call, field: str) -> TypedExpression:
    """Return the node of `EXTRACT(field FROM value)`, whose value is the only argument of the call.

    Raises:
        SQLAnalysisError: if there is no such field.
    """
    name = field.lower()
    if name in _DATE_PARTS:
        return call.make(_DATE_PARTS[name], [call.cast(0, DATE)], INT)
    if name in _TIME_PARTS:
        return call.make(_TIME_PARTS[name], [_moment(call, 0)], INT)
    if name in ("second", "s", "sec", "seconds", "secs"):
        return call.make(_second_with_fraction, [_moment(call, 0)], _SECOND)
    known = "YEAR, QUARTER, MONTH, WEEK, DAY, DAYOFWEEK, DOY, HOUR, MINUTE, SECOND"
    raise call.error(f"EXTRACT knows no field {field}; fields are {known}")


def _bind_date_part(call: Call) -> TypedExpression:
    field = call.constant(0, STRING, "the field")
    return bind_extract(
        Call(call.name, call.node, call.arguments[1:], call.nodes[1:], (f"'{field}'", str(call.arguments[1]))), field
    )


def _moment(call: Call, number: int) -> TypedExpression:
    """Return an argument as a timestamp, with the time zone that it has."""
    argument = call.arguments[number]
    return argument if is_timestamp(argument.dtype) else call.cast(number, TIMESTAMP)


def _bind_time_part(function: Callable[[datetime.datetime], int]) -> Callable[[Call], TypedExpression]:
    return lambda call: call.make(function, [_moment(call, 0)], INT)


# Moving dates.


def _bind_shift_days(sign: int) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        if call.arguments[1].dtype not in (STRING, NULL) and not is_integral(call.arguments[1].dtype):
            raise call.misfit(1, "a number of days")
        return call.make(shift_date, [call.cast(0, DATE), call.cast(1, INT)], DATE, options=(sign,))

    return bind


def _add_months(day: datetime.date, months: int) -> Any:
    return add_months(1, day, months)


def _date_difference(end: datetime.date, start: datetime.date) -> int:
    return (end - start).days


def _last_day(day: datetime.date) -> datetime.date:
    return day.replace(day=calendar.monthrange(day.year, day.month)[1])


def _next_day(day: datetime.date, name: str) -> datetime.date:
    wanted = _WEEKDAYS.get(name.strip().upper())
    if wanted is None:
        raise ValueError("next_day() needs the name of a day of the week, such as 'MON'")
    return shift_date(1, day, (wanted - day.weekday() - 1) % 7 + 1)


_WEEKDAYS: Final = {name.upper()[:length]: number for number, name in enumerate(DAYS) for length in (2, 3, len(name))}


def _months_between(end: datetime.datetime, start: datetime.datetime, rounds: bool = True) -> float:
    months = float((end.year - start.year) * 12 + end.month - start.month)
    if end.day == start.day or (_is_last_day(end) and _is_last_day(start)):
        return months
    day = 86_400
    seconds = (end.day - start.day) * day + _seconds_of_day(end) - _seconds_of_day(start)
    difference = months + seconds / (31.0 * day)
    return _round_half_up(difference) if rounds else difference


def _round_half_up(number: float) -> float:
    # Java's Math.round is floor(x + 0.5).
    return math.floor(number * 1e8 + 0.5) / 1e8


def _is_last_day(moment: datetime.datetime) -> bool:
    return moment.day == calendar.monthrange(moment.year, moment.month)[1]


def _seconds_of_day(moment: datetime.datetime) -> int:
    return moment.hour * 3600 + moment.minute * 60 + moment.second


def bind_with_unit(call: Call, unit: str) -> TypedExpression:
    """Return the node of `timestampadd(unit, n, a)` or `timestampdiff(unit, a, b)`.

    Raises:
        SQLAnalysisError: if there is no such unit.
    """
    name = unit.upper()
    if name not in UNITS and name not in _MONTHS_OF:
        known = ", ".join((*UNITS, *_MONTHS_OF))
        raise call.error(f"{call.name}() knows no unit {unit}; units are {known}")
    if call.name in ("timestampdiff", "date_diff", "datediff"):
        start, end = _same_moments(call)
        months = _MONTHS_OF.get(name)
        if months is not None:
            return call.make(_count_months, [start, end], BIGINT, options=(months,))
        return call.make(_count_units, [start, end], BIGINT, options=(UNITS[name],))
    moment = _moment(call, 1)
    options: tuple[Any, ...] = (_MONTHS_OF.get(name) or UNITS[name],)
    function = _add_many_months if name in _MONTHS_OF else _add_units
    return call.make(function, [call.cast(0, BIGINT), moment], moment.dtype, options=options)


_MONTHS_OF: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _same_moments(call: Call) -> tuple[TypedExpression, TypedExpression]:
    start, end = _moment(call, 0), _moment(call, 1)
    if start.dtype != end.dtype:
        start, end = cast_to(start, TIMESTAMP_LTZ), cast_to(end, TIMESTAMP_LTZ)
    return start, end


def _count_units(unit: datetime.timedelta, start: datetime.datetime, end: datetime.datetime) -> int:
    difference = end - start
    return difference // unit if difference >= datetime.timedelta() else -(-difference // unit)


def _count_months(unit: int, start: datetime.datetime, end: datetime.datetime) -> int:
    # As Java counts: whole days first, and months of them.
    first, last = start.date(), end.date()
    if last > first and end.time() < start.time():
        last -= datetime.timedelta(days=1)
    elif last < first and end.time() > start.time():
        last += datetime.timedelta(days=1)
    difference = ((last.year - first.year) * 12 + last.month - first.month) * 32 + last.day - first.day
    months = abs(difference) // 32 // unit
    return months if difference >= 0 else -months


def _add_units(unit: datetime.timedelta, count: int, moment: Any) -> Any:
    try:
        return shift_timestamp(1, moment, unit * count)
    except OverflowError:
        raise OverflowError("a timestamp is in the years 1 to 9999") from None


def _add_many_months(unit: int, count: int, moment: Any) -> Any:
    return add_months(1, moment, unit * count)


# Rounding down.


def _truncate_date(day: datetime.date, unit: str) -> datetime.date | None:
    cut = _DATE_UNITS.get(unit.upper())
    return None if cut is None else cut(day)


def _first_of_week(day: datetime.date) -> datetime.date:
    return shift_date(-1, day, day.weekday())


_DATE_UNITS: Final[dict[str, Callable[[datetime.date], datetime.date]]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), lambda day: day.replace(month=1, day=1)),
    "QUARTER": lambda day: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
    **dict.fromkeys(("MONTH", "MM", "MON"), lambda day: day.replace(day=1)),
    "WEEK": _first_of_week,
}
_TIME_UNITS: Final = {
    "DAY": {"hour": 0, "minute": 0, "second": 0, "microsecond": 0},
    "DD": {"hour": 0, "minute": 0, "second": 0, "microsecond": 0},
    "HOUR": {"minute": 0, "second": 0, "microsecond": 0},
    "MINUTE": {"second": 0, "microsecond": 0},
    "SECOND": {"microsecond": 0},
    "MICROSECOND": {},
}


def _bind_truncate_timestamp(call: Call) -> TypedExpression:
    moment = _moment(call, 1)
    return call.make(_truncate_timestamp, [call.cast(0, STRING), moment], moment.dtype, may_be_null=True)


def _truncate_timestamp(unit: str, moment: datetime.datetime) -> datetime.datetime | None:
    name = unit.upper()
    if name == "MILLISECOND":
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    fields = _TIME_UNITS.get(name)
    if fields is not None:
        return moment.replace(**fields)  # type: ignore[arg-type]  # no field is a time zone
    cut = _DATE_UNITS.get(name)
    if cut is None:
        return None
    day = cut(moment.date())
    return datetime.datetime(day.year, day.month, day.day, tzinfo=moment.tzinfo)


# Texts and numbers.


def _checked_pattern(call: Call, number: int, *, reading: bool) -> TypedExpression:
    pattern = call.cast(number, STRING)
    if isinstance(pattern, Constant) and pattern.value is not None:
        try:
            check_pattern(pattern.value, reading=reading)
        except ValueError as error:
            raise call.error(f"{call.name}(): {error}", number) from None
    return pattern


def _bind_date_format(call: Call) -> TypedExpression:
    return call.make(_write, [_moment(call, 0), _checked_pattern(call, 1, reading=False)], STRING)


def _write(moment: datetime.datetime, pattern: str) -> str:
    return write_text(pattern, moment)


def _bind_to_date(safe: bool) -> Callable[[Call], TypedExpression]:
    return _bind_reading(DATE, safe)


def _bind_reading(target: pa.DataType, safe: bool) -> Callable[[Call], TypedExpression]:
    """Bind what reads a text by a pattern, or casts what it gets without one."""

    def bind(call: Call) -> TypedExpression:
        argument = call.arguments[0]
        if len(call.arguments) == 1 or argument.dtype in (DATE, TIMESTAMP, TIMESTAMP_LTZ):
            if is_numeric(argument.dtype):
                raise call.misfit(0, "a text, a date or a timestamp")
            return bind_cast(argument, target, call.node, safe=safe)
        pattern = _checked_pattern(call, 1, reading=True)
        kind = "date" if target == DATE else "ltz" if target == TIMESTAMP_LTZ else "ntz"
        options = (kind, call.name, safe)
        return call.make(_read, [call.cast(0, STRING), pattern], target, may_be_null=safe, options=options)

    return bind


def _read(kind: str, name: str, safe: bool, text: str, pattern: str) -> Any:
    try:
        moment = parse_text(pattern, text)
    except (ValueError, OverflowError) as error:
        if safe:
            return None
        raise ValueError(f"{name}(): {error}; try_to_timestamp gives NULL for it") from None
    if kind == "date":
        return moment.date()
    return moment.replace(tzinfo=datetime.timezone.utc) if kind == "ltz" else moment


def _bind_since_epoch(unit: int) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        return call.make(_count_since_epoch, [_moment(call, 0)], BIGINT, options=(unit,))

    return bind


def _count_since_epoch(unit: int, moment: datetime.datetime) -> int:
    return micros_of(moment) // unit


def _bind_unix_timestamp(call: Call) -> TypedExpression:
    if not call.arguments:
        raise call.error("unix_timestamp() without a time gives another answer each time: use a column, or app.query")
    if call.arguments[0].dtype == STRING:
        pattern = _checked_pattern(call, 1, reading=True) if len(call.arguments) > 1 else Constant(_ISO, STRING)
        return call.make(_read_seconds, [call.arguments[0], pattern], BIGINT)
    return call.make(_truncate_seconds, [_moment(call, 0)], BIGINT)


def _truncate_seconds(moment: datetime.datetime) -> int:
    micros = micros_of(moment)
    # Spark cuts off the fraction here, and rounds down in unix_seconds.
    return micros // 1_000_000 if micros >= 0 else -(-micros // 1_000_000)


_ISO: Final = "yyyy-MM-dd HH:mm:ss"


def _read_seconds(text: str, pattern: str) -> int:
    return micros_of(_read("ntz", "unix_timestamp", False, text, pattern)) // 1_000_000


def _bind_from_unixtime(call: Call) -> TypedExpression:
    pattern = _checked_pattern(call, 1, reading=False) if len(call.arguments) > 1 else Constant(_ISO, STRING)
    return call.make(_write_seconds, [call.cast(0, BIGINT), pattern], STRING)


def _write_seconds(seconds: int, pattern: str) -> str:
    return write_text(pattern, timestamp_of_micros(seconds * 1_000_000))


def _bind_timestamp_of(unit: int) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        argument = call.arguments[0]
        if unit == 1_000_000 and (types.is_floating(argument.dtype) or types.is_decimal128(argument.dtype)):
            return bind_cast(argument, TIMESTAMP_LTZ, call.node)
        if not is_integral(argument.dtype) and argument.dtype != NULL:
            raise call.misfit(0, "an integer")
        return call.make(_from_epoch, [call.cast(0, BIGINT)], TIMESTAMP_LTZ, options=(unit,))

    return bind


def _from_epoch(unit: int, number: int) -> datetime.datetime:
    return timestamp_of_micros(number * unit, utc=True)


def _unix_date(day: datetime.date) -> int:
    return (day - _EPOCH).days


def _date_of_days(days: int) -> datetime.date:
    return shift_date(1, _EPOCH, days)


def _make_date(year: int, month: int, day: int) -> datetime.date:
    try:
        return datetime.date(year, month, day)
    except (ValueError, OverflowError):
        raise ValueError("make_date(): there is no such date in the years 1 to 9999") from None


def _bind_make_timestamp(call: Call) -> TypedExpression:
    arguments = [call.cast(number, INT) for number in range(5)]
    return call.make(_make_timestamp, [*arguments, call.cast(5, _SECOND_ARGUMENT)], TIMESTAMP)


_SECOND_ARGUMENT: Final = pa.decimal128(16, 6)


def _make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: Decimal) -> datetime.datetime:
    try:
        if second == 60:
            return datetime.datetime(year, month, day, hour, minute) + datetime.timedelta(minutes=1)
        whole = int(second)
        return datetime.datetime(year, month, day, hour, minute, whole, int((second - whole) * 1_000_000))
    except (ValueError, OverflowError):
        raise ValueError("make_timestamp(): there is no such time in the years 1 to 9999") from None


FUNCTIONS: Final[tuple[ScalarFunction, ...]] = (
    define_strict("year", "date DATE", "INT", _year, "year"),
    define_strict("quarter", "date DATE", "INT", _quarter, "quarter, 1 to 4"),
    define_strict("month", "date DATE", "INT", _month, "month, 1 to 12"),
    define_strict("day", "date DATE", "INT", _day, "day of the month", aliases=("dayofmonth",)),
    define_strict("dayofweek", "date DATE", "INT", _day_of_week, "1 for Sunday to 7"),
    define_strict("weekday", "date DATE", "INT", datetime.date.weekday, "0 for Monday to 6"),
    define_strict("dayofyear", "date DATE", "INT", _day_of_year, "1 to 366"),
    define_strict("weekofyear", "date DATE", "INT", _week, "week of ISO 8601"),
    define_strict("dayname", "date DATE", "STRING", _day_name, "Mon to Sun"),
    define_strict("monthname", "date DATE", "STRING", _month_name, "Jan to Dec"),
    define_special("hour", "time TIMESTAMP", "INT", _bind_time_part(_hour), "0 to 23"),
    define_special("minute", "time TIMESTAMP", "INT", _bind_time_part(_minute), "0 to 59"),
    define_special("second", "time TIMESTAMP", "INT", _bind_time_part(_second), "0 to 59"),
    define_special(
        "date_part",
        "field STRING, time TIMESTAMP",
        "INT",
        _bind_date_part,
        "EXTRACT(field FROM time)",
        aliases=("datepart",),
    ),
    define_special(
        "date_add", "date DATE, days INT", "DATE", _bind_shift_days(1), "so many days later", aliases=("dateadd",)
    ),
    define_special("date_sub", "date DATE, days INT", "DATE", _bind_shift_days(-1), "so many days earlier"),
    define_strict(
        "datediff", "end DATE, start DATE", "INT", _date_difference, "days from start to end", aliases=("date_diff",)
    ),
    define_strict("add_months", "date DATE, months INT", "DATE", _add_months, "so many months later"),
    define_strict(
        "months_between",
        "end TIMESTAMP, start TIMESTAMP[, rounds BOOLEAN]",
        "DOUBLE",
        _months_between,
        "months from start to end, of 31 days",
    ),
    define_strict("last_day", "date DATE", "DATE", _last_day, "last day of its month"),
    define_strict("next_day", "date DATE, name STRING", "DATE", _next_day, "next day of the week with a name"),
    define_strict(
        "trunc", "date DATE, unit STRING", "DATE", _truncate_date, "first day of its year, month, ...", may_be_null=True
    ),
    define_special(
        "date_trunc",
        "unit STRING, time TIMESTAMP",
        "as the time",
        _bind_truncate_timestamp,
        "beginning of its year, month, ..., second",
    ),
    define_special("to_date", "text STRING[, pattern STRING]", "DATE", _bind_to_date(False), "date in a text"),
    define_special("try_to_date", "text STRING[, pattern STRING]", "DATE", _bind_to_date(True), "as to_date, or NULL"),
    define_special(
        "to_timestamp",
        "text STRING[, pattern STRING]",
        "TIMESTAMP",
        _bind_reading(TIMESTAMP, False),
        "time in a text",
        aliases=("to_timestamp_ntz",),
    ),
    define_special(
        "try_to_timestamp",
        "text STRING[, pattern STRING]",
        "TIMESTAMP",
        _bind_reading(TIMESTAMP, True),
        "as to_timestamp, or NULL",
    ),
    define_special(
        "to_timestamp_ltz",
        "text STRING[, pattern STRING]",
        "TIMESTAMP_LTZ",
        _bind_reading(TIMESTAMP_LTZ, False),
        "time in a text, in UTC",
    ),
    define_special("date_format", "time TIMESTAMP, pattern STRING", "STRING", _bind_date_format, "time as a text"),
    define_special("unix_seconds", "time TIMESTAMP", "BIGINT", _bind_since_epoch(1_000_000), "seconds since 1970"),
    define_special("unix_millis", "time TIMESTAMP", "BIGINT", _bind_since_epoch(1_000), "milliseconds since 1970"),
    define_special("unix_micros", "time TIMESTAMP", "BIGINT", _bind_since_epoch(1), "microseconds since 1970"),
    define_special(
        "unix_timestamp",
        "time TIMESTAMP[, pattern STRING]",
        "BIGINT",
        _bind_unix_timestamp,
        "as unix_seconds, also of a text",
        aliases=("to_unix_timestamp",),
    ),
    define_special(
        "from_unixtime",
        "seconds BIGINT[, pattern STRING]",
        "STRING",
        _bind_from_unixtime,
        "seconds since 1970 as a text",
    ),
    define_special(
        "timestamp_seconds",
        "number NUMBER",
        "TIMESTAMP_LTZ",
        _bind_timestamp_of(1_000_000),
        "so many seconds after 1970",
    ),
    define_special(
        "timestamp_millis",
        "number BIGINT",
        "TIMESTAMP_LTZ",
        _bind_timestamp_of(1_000),
        "so many milliseconds after 1970",
    ),
    define_special(
        "timestamp_micros", "number BIGINT", "TIMESTAMP_LTZ", _bind_timestamp_of(1), "so many microseconds after 1970"
    ),
    define_strict("unix_date", "date DATE", "INT", _unix_date, "days since 1970"),
    define_strict("date_from_unix_date", "days INT", "DATE", _date_of_days, "so many days after 1970"),
    define_strict("make_date", "year INT, month INT, day INT", "DATE", _make_date, "date of its parts"),
    define_special(
        "make_timestamp",
        "year INT, month INT, day INT, hour INT, minute INT, second DECIMAL",
        "TIMESTAMP",
        _bind_make_timestamp,
        "time of its parts",
        aliases=("make_timestamp_ntz",),
    ),
)
