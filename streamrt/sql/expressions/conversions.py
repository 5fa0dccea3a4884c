"""Values of one type as values of another: what CAST does, by Spark's rules in ANSI mode.

Each function takes a value that is not NULL, and raises ValueError or OverflowError with the rule that it breaks. Errors
never quote values: they end up in logs.
"""

import datetime
import math
import re
from collections.abc import Callable
from decimal import ROUND_DOWN, Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from streamrt.sql.expressions.arithmetic import WIDE, raise_overflow, round_decimal, round_to_float
from streamrt.sql.expressions.coercion import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    MONTHS,
    NULL,
    STRING,
    TIMESTAMP_LTZ,
    describe_type,
    is_binary,
    is_integral,
    is_interval,
    is_moment,
    is_numeric,
    is_timestamp,
)

__all__ = [
    "Conversion",
    "can_cast",
    "converter_of",
    "micros_of",
    "parse_date",
    "parse_timestamp",
    "text_of_float",
    "text_of_timestamp",
    "timestamp_of_micros",
]

Conversion = Callable[[Any], Any]

_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
_UTC: Final = datetime.timezone.utc
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_EPOCH_UTC: Final = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
# What Spark takes off both ends of a text before it reads it.
_BLANKS: Final = "".join(map(chr, range(0x21))) + "\x7f"
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SPECIAL: Final = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}
_BOOLEANS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_DATE_TEXT: Final = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIME_TEXT: Final = re.compile(
    r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]"
    r"(?:([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?)?[ ]*(.*))?)?)?",
    re.DOTALL,
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?(?::?([0-9]{2}))?")


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether CAST knows a way from one type to another."""
    if source in (target, NULL):
        return True
    if types.is_nested(source) or types.is_nested(target):
        return target == STRING or _can_cast_nested(source, target)
    if is_interval(source) or is_interval(target):
        return is_interval(source) and is_interval(target) and MONTHS not in (source, target)
    if target == STRING or source == STRING:
        return not types.is_time(source) or target == STRING
    if is_numeric(source) or source == BOOLEAN:
        return is_numeric(target) or target in (BOOLEAN, TIMESTAMP_LTZ)
    if is_moment(source):
        if is_numeric(target):
            return bool(source == TIMESTAMP_LTZ)
        return is_moment(target)
    return is_binary(source) and is_binary(target)


def _can_cast_nested(source: pa.DataType, target: pa.DataType) -> bool:
    for same in (types.is_list, types.is_map, types.is_struct):
        if same(source) and same(target) and source.num_fields == target.num_fields:
            if types.is_map(source):
                return can_cast(source.key_type, target.key_type) and can_cast(source.item_type, target.item_type)
            return all(can_cast(source.field(n).type, target.field(n).type) for n in range(source.num_fields))
    return False


def converter_of(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    """Return the function that CAST calls; None if values stay as they are.

    Args:
        source: type of values.
        target: type that they get; `can_cast` knows a way to it.
    """
    if (
        source in (target, NULL)
        or is_interval(source)
        or (is_integral(source) and is_integral(target) and _is_wider(source, target))
    ):
        return None
    if target == STRING:
        return _text_writer(source)
    if types.is_nested(source):
        return _nested_converter(source, target)
    if is_integral(target):
        return _integer_converter(source, target)
    if types.is_decimal128(target):
        return _decimal_converter(source, target)
    if target in (FLOAT, DOUBLE):
        return _float_converter(source, target)
    if target == BOOLEAN:
        return _read_boolean if source == STRING else bool
    if is_binary(target):
        return str.encode if source == STRING else None
    if target == DATE:
        return parse_date if source == STRING else datetime.datetime.date
    return _timestamp_converter(source, target)


def _is_wider(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(source.bit_width <= target.bit_width)


def _refuse(word: str, of: str = "the text") -> ValueError:
    return ValueError(f"CAST: {of} is not {word}; TRY_CAST gives NULL for it")


# Numbers.


def _integer_converter(source: pa.DataType, target: pa.DataType) -> Conversion:
    word, highest = describe_type(target), (1 << (target.bit_width - 1)) - 1
    operation = f"CAST of {describe_type(source)}; TRY_CAST gives NULL for it"

    def check(number: int) -> int:
        return number if ~highest <= number <= highest else raise_overflow(operation, word)

    def parse(text: str) -> int:
        stripped = text.strip(_BLANKS)
        # Python has a limit of its own for digits.
        if not _INTEGER.fullmatch(stripped):
            raise _refuse(f"an integer, as {word} needs")
        digits = stripped.lstrip("+-").lstrip("0")
        return check(int(stripped)) if len(digits) < 20 else raise_overflow(operation, word)

    def truncate(number: float) -> int:
        return check(int(number)) if math.isfinite(number) else raise_overflow(operation, word)

    if source == STRING:
        return parse
    if source == BOOLEAN:
        return int
    if source in (FLOAT, DOUBLE):
        return truncate
    if types.is_decimal128(source):
        return lambda number: check(int(number.to_integral_value(ROUND_DOWN, WIDE)))
    if is_timestamp(source):
        return lambda moment: check(micros_of(moment) // 1_000_000)
    return check


def _float_converter(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    if source == FLOAT:
        return None
    read: Conversion = float
    if source == STRING:
        read = _parse_float
    elif is_timestamp(source):
        read = _seconds_of
    if target == DOUBLE:
        return read
    if is_integral(source):
        # In one step: two would round twice.
        return lambda number: float(np.int64(number).astype(np.float32))
    return lambda value: round_to_float(read(value))


def _seconds_of(moment: datetime.datetime) -> float:
    return micros_of(moment) / 1e6


def _parse_float(text: str) -> float:
    stripped = text.strip(_BLANKS)
    if _FLOAT.fullmatch(stripped):
        return float(stripped.rstrip("dDfF"))
    special = _SPECIAL.get(stripped.lower())
    if special is None:
        raise _refuse("a number")
    return special


def _decimal_converter(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    precision, scale = target.precision, target.scale
    if types.is_decimal128(source) and source.scale == scale and source.precision <= precision:
        return None
    operation = f"CAST of {describe_type(source)}; TRY_CAST gives NULL for it"

    def fit(number: Decimal) -> Decimal:
        return round_decimal(number, precision, scale, operation)

    def parse(text: str) -> Decimal:
        stripped = text.strip(_BLANKS)
        if not _DECIMAL.fullmatch(stripped):
            raise _refuse("a number")
        try:
            number = Decimal(stripped)
        except InvalidOperation:
            raise _refuse("a number") from None
        if number and number.adjusted() < -scale - 1:
            number = Decimal(0)
        return fit(number)

    def read_float(number: float) -> Decimal | None:
        # Spark has NULL for what is not finite, also in ANSI mode.
        return fit(Decimal(repr(number))) if math.isfinite(number) else None

    if source == STRING:
        return parse
    if source in (FLOAT, DOUBLE):
        return read_float
    if is_timestamp(source):
        return lambda moment: fit(Decimal(micros_of(moment)).scaleb(-6))
    if is_integral(source) and not scale and precision >= _DIGITS[source.bit_width]:
        return Decimal
    return lambda number: fit(Decimal(number))


def _read_boolean(text: str) -> bool:
    found = _BOOLEANS.get(text.strip(_BLANKS).lower())
    if found is None:
        raise _refuse("a BOOLEAN")
    return found


# Dates and times.


def micros_of(moment: datetime.datetime) -> int:
    """Return the microseconds since 1970 in UTC."""
    return (moment - (_EPOCH if moment.tzinfo is None else _EPOCH_UTC)) // _MICROSECOND


def timestamp_of_micros(micros: int, utc: bool = False) -> datetime.datetime:
    """Return the time that is so many microseconds after 1970.

    Raises:
        OverflowError: if it is not in the years 1 to 9999.
    """
    try:
        return (_EPOCH_UTC if utc else _EPOCH) + datetime.timedelta(microseconds=micros)
    except OverflowError:
        raise OverflowError("a timestamp is in the years 1 to 9999") from None


def parse_date(text: str) -> datetime.date:
    """Return the date that a text begins with, as CAST reads it: `2026`, `2026-3`, `2026-03-09`, or this with a time.

    Raises:
        ValueError: if it is none.
    """
    found = _DATE_TEXT.fullmatch(text.strip(_BLANKS))
    if found is None:
        raise _refuse("a date")
    try:
        return datetime.date(*(1 if group is None else int(group) for group in found.groups()))
    except ValueError:
        raise _refuse("a date") from None


def parse_timestamp(text: str, utc: bool) -> datetime.datetime:
    """Return the time in a text, as CAST reads it.

    Args:
        text: a date, and a time of day or none, and a time zone or none.
        utc: whether a TIMESTAMP_LTZ is read; otherwise the zone of the text does not count.

    Raises:
        ValueError: if it is none.
    """
    found = _TIME_TEXT.fullmatch(text.strip(_BLANKS))
    if found is None:
        raise _refuse("a timestamp")
    *numbers, fraction, zone = found.groups()
    if zone and numbers[3] is None:
        raise _refuse("a timestamp")
    year, month, day, hour, minute, second = (
        default if group is None else int(group) for group, default in zip(numbers, (1, 1, 1, 0, 0, 0), strict=True)
    )
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, int(((fraction or "") + "000000")[:6]))
        offset = _read_zone(zone, moment) if zone else datetime.timedelta()
        return (moment - offset).replace(tzinfo=_UTC) if utc else moment
    except (ValueError, OverflowError):
        raise _refuse("a timestamp") from None


def _read_zone(zone: str, moment: datetime.datetime) -> datetime.timedelta:
    import zoneinfo

    if zone in ("Z", "UTC", "GMT", "UT"):
        return datetime.timedelta()
    found = _OFFSET.fullmatch(zone)
    if found is not None:
        sign, hours, minutes, seconds = found.groups()
        offset = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        if offset > datetime.timedelta(hours=18) or int(minutes or 0) > 59:
            raise ValueError("an offset has at most 18 hours")
        return -offset if sign == "-" else offset
    try:
        known = zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("the zone is not known") from None
    return moment.replace(tzinfo=known).utcoffset() or datetime.timedelta()


def _timestamp_converter(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    utc = bool(target == TIMESTAMP_LTZ)
    if source == STRING:
        return lambda text: parse_timestamp(text, utc)
    if source == DATE:
        zone = _UTC if utc else None
        return lambda day: datetime.datetime(day.year, day.month, day.day, tzinfo=zone)
    if is_timestamp(source):
        return lambda moment: moment.replace(tzinfo=_UTC if utc else None)
    if source in (FLOAT, DOUBLE):
        return _timestamp_of_float
    if types.is_decimal128(source):
        return lambda number: timestamp_of_micros(
            int(WIDE.scaleb(number, 6).to_integral_value(ROUND_DOWN, WIDE)), utc=True
        )
    return lambda number: timestamp_of_micros(int(number) * 1_000_000, utc=True)


def _timestamp_of_float(number: float) -> datetime.datetime:
    if not math.isfinite(number):
        raise OverflowError("CAST: a number that is not finite is not a timestamp; TRY_CAST gives NULL for it")
    return timestamp_of_micros(int(number * 1e6), utc=True)


# Texts.


def _text_writer(source: pa.DataType) -> Conversion:
    if source == BOOLEAN:
        return lambda value: "true" if value else "false"
    if is_integral(source):
        return int.__repr__
    if source == DOUBLE:
        return text_of_float
    if source == FLOAT:
        return lambda number: text_of_float(number, single=True)
    if types.is_decimal128(source):
        return lambda number: format(number, "f")
    if is_timestamp(source):
        return text_of_timestamp
    if is_binary(source):
        return lambda data: data.decode("utf-8", "replace")
    if types.is_nested(source):
        return _nested_writer(source)
    return lambda value: str(value.isoformat())


def text_of_float(number: float, single: bool = False) -> str:
    """Return a float as Java writes it.

    Args:
        number: the float.
        single: whether it has 32 bits.

    Example:
        >>> text_of_float(1e7), text_of_float(0.001), text_of_float(-1.5e-7)
        ('1.0E7', '0.001', '-1.5E-7')
    """
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    shortest = Decimal(str(np.float32(number)) if single else repr(number))
    if not shortest:
        return "-0.0" if math.copysign(1, number) < 0 else "0.0"
    sign, digits, exponent = shortest.as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + int(exponent) - 1
    if -3 <= power < 7:
        whole, behind = (text.ljust(power + 1, "0")[: power + 1], text[power + 1 :]) if power >= 0 else ("0", "")
        if power < 0:
            behind = "0" * (-power - 1) + text
        written = f"{whole}.{behind or '0'}"
    else:
        written = f"{text[0]}.{text[1:] or '0'}E{power}"
    return "-" + written if sign else written


def text_of_timestamp(moment: datetime.datetime) -> str:
    """Return a time as `2026-03-09 08:05:00.25`: without zeros at the end of the fraction."""
    text = moment.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if moment.microsecond else text


# Lists, maps and structs.


def _nested_converter(source: pa.DataType, target: pa.DataType) -> Conversion:
    if types.is_list(source):
        item = _keep_null(converter_of(source.value_type, target.value_type))
        return lambda values: [item(value) for value in values]
    if types.is_map(source):
        key, item = (
            _keep_null(converter_of(*pair))
            for pair in ((source.key_type, target.key_type), (source.item_type, target.item_type))
        )
        return lambda values: {key(name): item(value) for name, value in values.items()}
    fields = [
        (one.name, other.name, _keep_null(converter_of(one.type, other.type)))
        for one, other in zip(source, target, strict=True)
    ]
    return lambda values: {new: convert(values.get(old)) for old, new, convert in fields}


def _nested_writer(source: pa.DataType) -> Conversion:
    if types.is_list(source):
        item = _write_or_null(source.value_type)
        return lambda values: f"[{', '.join(map(item, values))}]"
    if types.is_map(source):
        key, item = _write_or_null(source.key_type), _write_or_null(source.item_type)
        return lambda values: "{" + ", ".join(f"{key(name)} -> {item(value)}" for name, value in values.items()) + "}"
    fields = [(field.name, _write_or_null(field.type)) for field in source]
    return lambda values: "{" + ", ".join(write(values.get(name)) for name, write in fields) + "}"


def _write_or_null(dtype: pa.DataType) -> Conversion:
    write = converter_of(dtype, STRING)
    return lambda value: "null" if value is None else value if write is None else write(value)


def _keep_null(convert: Conversion | None) -> Conversion:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)
