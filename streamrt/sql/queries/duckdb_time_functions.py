"""Functions of Spark on dates and times in DuckDB's SQL."""

import re

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.expressions.coercion import STRING, TIMESTAMP, TIMESTAMP_LTZ, describe_type, is_numeric
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_casts import cast_text, convert_implicitly, raise_unless, with_name
from streamrt.sql.queries.duckdb_text_functions import quote_text
from streamrt.sql.queries.duckdb_types import TypedText
from streamrt.sql.queries.translation import (
    Translation,
    as_date,
    as_integer,
    as_text,
    as_timestamp,
    literal_text,
    named,
    translates,
)

__all__: list[str] = []

_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfYear: "dayofyear",
    exp.WeekOfYear: "week",
    exp.Quarter: "quarter",
}
_TIME_PARTS: dict[type[exp.Expr], str] = {exp.Hour: "hour", exp.Minute: "minute", exp.Second: "second"}
_EXTRACTED = {"YEAR": "year", "MONTH": "month", "DAY": "day", "HOUR": "hour", "MINUTE": "minute", "QUARTER": "quarter"}
_EXTRACTED |= {"WEEK": "week", "DOY": "dayofyear", "YEARS": "year", "MONTHS": "month", "DAYS": "day"}
_TRUNCATED = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
_FORMAT = re.compile(r"%([A-Za-z])(strict)?|([^%A-Za-z]+|T)")
_DIGITS = {"Y": "[0-9]{4}", "m": "[0-9]{2}", "d": "[0-9]{2}", "H": "[0-9]{2}", "M": "[0-9]{2}", "S": "[0-9]{2}"}


def _unwrapped(node: exp.Expr) -> exp.Expr:
    """Return what sqlglot has wrapped into a conversion that depends on the type."""
    while isinstance(node, exp.TsOrDsToDate | exp.TimeStrToTime | exp.TsOrDsToTimestamp) and not node.args.get(
        "format"
    ):
        node = node.this
    return node


def _date(c: Translation, node: exp.Expr) -> TypedText:
    inner = _unwrapped(node)
    return as_date(c.scalar(inner), inner)


def _time(c: Translation, node: exp.Expr) -> TypedText:
    inner = _unwrapped(node)
    return as_timestamp(c.scalar(inner), inner)


def _part_of_date(c: Translation, node: exp.Func) -> TypedText:
    return TypedText(f"CAST({_PARTS[type(node)]}({_date(c, node.this).sql}) AS INTEGER)", pa.int32())


def _part_of_time(c: Translation, node: exp.Func) -> TypedText:
    return TypedText(f"CAST({_TIME_PARTS[type(node)]}({_time(c, node.this).sql}) AS INTEGER)", pa.int32())


translates(*_PARTS)(_part_of_date)
translates(*_TIME_PARTS)(_part_of_time)


@translates(exp.DayOfWeek)
def _dayofweek(c: Translation, node: exp.DayOfWeek) -> TypedText:
    return TypedText(f"CAST(dayofweek({_date(c, node.this).sql}) + 1 AS INTEGER)", pa.int32())


@named("weekday", 1, 1)
def _weekday(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    return TypedText(f"CAST(isodow({as_date(values[0], node).sql}) - 1 AS INTEGER)", pa.int32())


@translates(exp.Extract)
def _extract(c: Translation, node: exp.Extract) -> TypedText:
    return _extract_part(c, node.name.upper(), node.expression, node)


@named("date_part", 2, 2)
def _date_part(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    word = literal_text(values[0], node, "the part of date_part()")
    return _extract_part(c, word.upper(), node.expressions[1], node)


def _extract_part(c: Translation, word: str, value: exp.Expr, node: exp.Expr) -> TypedText:
    if word in ("DOW", "DAYOFWEEK"):
        return TypedText(f"CAST(dayofweek({_date(c, value).sql}) + 1 AS INTEGER)", pa.int32())
    if word == "SECOND":
        # With its fraction, before 1970 as well.
        made = f"CAST(CAST(microsecond({_time(c, value).sql}) AS DECIMAL(8, 0)) * 0.000001 AS DECIMAL(8, 6))"
        return TypedText(made, pa.decimal128(8, 6))
    if word not in _EXTRACTED:
        raise make_refusal(
            f"EXTRACT takes {', '.join(sorted(_EXTRACTED))}, DOW and SECOND in a query, not {word}", node
        )
    taken = _time(c, value) if word in ("HOUR", "MINUTE") else _date(c, value)
    return TypedText(f"CAST({_EXTRACTED[word]}({taken.sql}) AS INTEGER)", pa.int32())


@translates(exp.TsOrDsAdd)
def _date_add(c: Translation, node: exp.TsOrDsAdd) -> TypedText:
    days = as_integer(c.scalar(node.expression), node.expression)
    return TypedText(f"CAST(({_date(c, node.this).sql} + {days.sql}) AS DATE)", pa.date32())


@translates(exp.DateDiff)
def _datediff(c: Translation, node: exp.DateDiff) -> TypedText:
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        raise make_refusal("datediff() counts days in a query: datediff(end, start)", node)
    end, start = _date(c, node.this), _date(c, node.expression)
    return TypedText(f"CAST(date_diff('day', {start.sql}, {end.sql}) AS INTEGER)", pa.int32())


@translates(exp.TimestampTrunc)
def _date_trunc(c: Translation, node: exp.TimestampTrunc) -> TypedText:
    unit = node.args["unit"].name.upper()
    if unit not in _TRUNCATED:
        raise make_refusal(f"date_trunc() takes {', '.join(_TRUNCATED)} in a query, not {unit}", node)
    value = _time(c, node.this)
    return TypedText(f"CAST(date_trunc('{unit.lower()}', {value.sql}) AS TIMESTAMP)", value.dtype)


@translates(exp.DateTrunc)
def _trunc(c: Translation, node: exp.DateTrunc) -> TypedText:
    unit = {"YY": "YEAR", "YYYY": "YEAR", "MM": "MONTH", "MON": "MONTH"}.get(node.args["unit"].name.upper())
    unit = unit or node.args["unit"].name.upper()
    if unit not in ("YEAR", "QUARTER", "MONTH", "WEEK"):
        raise make_refusal(f"trunc() takes YEAR, QUARTER, MONTH and WEEK in a query, not {unit}", node)
    return TypedText(f"CAST(date_trunc('{unit.lower()}', {_date(c, node.this).sql}) AS DATE)", pa.date32())


@translates(exp.AddMonths)
def _add_months(c: Translation, node: exp.AddMonths) -> TypedText:
    months = as_integer(c.scalar(node.expression), node.expression)
    return TypedText(f"CAST(({_date(c, node.this).sql} + to_months({months.sql})) AS DATE)", pa.date32())


@translates(exp.LastDay)
def _last_day(c: Translation, node: exp.LastDay) -> TypedText:
    return TypedText(f"last_day({_date(c, node.this).sql})", pa.date32())


@named("make_date", 3, 3)
def _make_date(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    parts = [as_integer(each, node) for each in values]
    return TypedText(f"make_date({', '.join(f'{each.sql}::BIGINT' for each in parts)})", pa.date32())


@translates(exp.TsOrDsToDate)
def _to_date(c: Translation, node: exp.TsOrDsToDate) -> TypedText:
    pattern = node.args.get("format")
    if pattern is None:
        return _date(c, node.this)
    value = c.scalar(node.this)
    if value.dtype != STRING:
        return as_date(value, node.this)
    return TypedText(f"CAST({_parse_time(value, pattern, node)} AS DATE)", pa.date32())


@translates(exp.StrToTime)
def _to_timestamp(c: Translation, node: exp.StrToTime) -> TypedText:
    value = c.scalar(node.this)
    if value.dtype != STRING:
        return as_timestamp(value, node.this)
    return TypedText(_parse_time(value, node.args["format"], node), TIMESTAMP)


def _parse_time(value: TypedText, pattern: exp.Expr, node: exp.Expr) -> str:
    directives = _read_format(pattern, node)
    if len(directives) > 1 and any(kind not in _DIGITS for kind, _ in directives if kind):
        raise make_refusal("this pattern of dates is not there in a query: use yyyy, MM, dd, HH, mm and ss", node)
    shape = "".join(_DIGITS[kind] if kind else re.sub(r"(\W)", r"\\\1", text) for kind, text in directives)
    format_text = "".join(f"%{kind}" if kind else text for kind, text in directives)
    message = "a text does not have the pattern of a date or a time"

    def make(name: str) -> str:
        parsed = f"strptime({name}, {quote_text(format_text)})"
        return raise_unless(f"regexp_full_match({name}, {quote_text(shape)})", parsed, message)

    return with_name(value.sql, make)


def _read_format(pattern: exp.Expr, node: exp.Expr) -> list[tuple[str, str]]:
    """Return the directives of a format, and what stands between them."""
    if not isinstance(pattern, exp.Literal):
        raise make_refusal("a pattern of dates must be a text in quotes in a query", node)
    text, at = pattern.name, 0
    found = []
    while at < len(text):
        match = _FORMAT.match(text, at)
        if match is None or (match[1] is not None and match[1] not in "YmdHMSaAb"):
            raise make_refusal(
                "this pattern of dates is not there in a query: use yyyy, MM, dd, HH, mm and ss, and signs between them",
                node,
            )
        found.append((match[1] or "", match[3] or ""))
        at = match.end()
    return found


@translates(exp.TimeToStr)
def _date_format(c: Translation, node: exp.TimeToStr) -> TypedText:
    directives = _read_format(node.args["format"], node)
    text = "".join(f"%{kind}" if kind else part for kind, part in directives)
    return TypedText(f"strftime({_time(c, node.this).sql}, {quote_text(text)})", pa.string())


@translates(exp.TimeStrToTime)
def _time_of_text(c: Translation, node: exp.TimeStrToTime) -> TypedText:
    return _time(c, node)


for _kind, _divisor in ((exp.UnixMillis, 1_000), (exp.UnixSeconds, 1_000_000), (exp.UnixMicros, 1)):

    def _to_unix(c: Translation, node: exp.Func, divisor: int = _divisor) -> TypedText:
        value = _time(c, node.this)
        return TypedText(f"CAST(floor(epoch_us({value.sql}) / {divisor}) AS BIGINT)", pa.int64())

    translates(_kind)(_to_unix)

for _name, _factor in (("timestamp_millis", 1_000), ("timestamp_seconds", 1_000_000), ("timestamp_micros", 1)):

    def _from_unix(
        c: Translation, node: exp.Anonymous, values: list[TypedText], factor: int = _factor, name: str = _name
    ) -> TypedText:
        value = values[0]
        if not pa.types.is_integer(value.dtype):
            if name != "timestamp_seconds" or not is_numeric(value.dtype):
                raise make_analysis_error(
                    f"{name}() takes an integer, and this is a {describe_type(value.dtype)}", node
                )
            micros = f"CAST(trunc(CAST({value.sql} AS DOUBLE) * {factor}) AS BIGINT)"
        else:
            micros = f"CAST({convert_implicitly(value, pa.int64()).sql} * {factor} AS BIGINT)"
        return TypedText(f"make_timestamp({micros})", TIMESTAMP_LTZ)

    named(_name, 1, 1)(_from_unix)


@translates(exp.DateFromUnixDate)
def _date_from_unix_date(c: Translation, node: exp.DateFromUnixDate) -> TypedText:
    days = as_integer(c.scalar(node.this), node.this)
    return TypedText(f"CAST((DATE '1970-01-01' + {days.sql}) AS DATE)", pa.date32())


@translates(exp.UnixDate)
def _unix_date(c: Translation, node: exp.UnixDate) -> TypedText:
    return TypedText(f"CAST(date_diff('day', DATE '1970-01-01', {_date(c, node.this).sql}) AS INTEGER)", pa.int32())


@named("try_to_timestamp", 1, 1)
def _try_to_timestamp(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    return cast_text(as_text(values[0], node), TIMESTAMP, safe=True)
