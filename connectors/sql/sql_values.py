"""Which values a column of a SQL database keeps as they are.

Databases cast values to the type of their column, and some casts lose a part without a word: the time of a text in a DATE,
the zone of a time, the zeros before a number. `fit_of` returns the rule for one column: a value goes on unchanged, in a form
that the column keeps, or is refused.
"""

import datetime
import decimal
import functools
import math
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamrt.connectors.sql.sql_rows import json_text

__all__ = ["Dialect", "Fit", "fit_of", "holds_bytes"]


@dataclass(frozen=True)
class Dialect:
    """Differences between databases.

    Attributes:
        own_types: the types of the columns that the sink creates, in lower case. A text in such a column of numbers must
            look like the number that it becomes: the sink has chosen the type, so "007" is not 7. In columns of other
            types it is a literal, as the database reads it.
        has_booleans: whether true and 1 are different values.
        cuts_times: whether columns of times may round microseconds, as the documentation says.
        takes_durations: whether a TIME holds durations.
        nested_as_json: whether dicts and lists are JSON in columns of types that are not listed here.
    """

    own_types: frozenset[str] = frozenset()
    has_booleans: bool = True
    cuts_times: bool = False
    takes_durations: bool = False
    nested_as_json: bool = False


class Fit(NamedTuple):
    """The rule of one column.

    Attributes:
        whole: types whose values go on unchanged; the look is cheaper than a call.
        convert: returns a value of another type as the column keeps it. It raises ValueError with a reason that does not
            quote the value.
    """

    whole: frozenset[type]
    convert: Callable[[Any], Any]


_Rule = tuple[frozenset[type], Callable[[Any], Any]]
_NONE = type(None)

_BYTES = re.compile(r"bytea|(?:tiny|medium|long)?blob|(?:var)?binary(?:\(\d+\))?")
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("array", r"(?P<element>.+)\[\d*\]"),
        ("integer", r"(?:u?(?:tiny|small|medium|big|huge)?int(?:eger)?|year)(?:\(\d+\))?(?: unsigned)?(?: zerofill)?"),
        ("boolean", r"bool(?:ean)?"),
        ("decimal", r"(?:decimal|numeric)(?:\((?P<digits>\d+)(?:, *(?P<scale>-?\d+))?\))?(?: unsigned)?(?: zerofill)?"),
        ("single", r"real|float4|float(?:\(\d+(?:,\d+)?\))?(?: unsigned)?"),
        ("double", r"double(?: precision)?(?:\(\d+,\d+\))?(?: unsigned)?|float8"),
        ("text", r"(?:tiny|medium|long)?text|(?:.*\.)?citext|bpchar"),
        ("text", r"(?:var)?char(?:acter)?(?: varying)?(?:\((?P<length>\d+)\))?"),
        ("bytes", _BYTES.pattern),
        ("date", r"date"),
        ("time", r"time(?:\((?P<places>\d)\))?(?: without time zone)?"),
        ("zoned_time", r"time(?:\((?P<places>\d)\))? with time zone|timetz"),
        ("timestamp", r"(?:timestamp|datetime)(?:\((?P<places>\d)\))?(?: without time zone)?|timestamp_ns"),
        ("timestamp", r"timestamp_(?P<unit>s|ms)"),
        ("zoned_timestamp", r"timestamp(?:\((?P<places>\d)\))? with time zone|timestamptz"),
        ("uuid", r"uuid"),
        ("json", r"jsonb?"),
        ("interval", r"interval(?: .*)?"),
    )
)

_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_OWN_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_OWN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NO_NUMBER = re.compile(r"\s*[+-]?(?:nan|inf|infinity)\s*", re.IGNORECASE)
_DAY = re.compile(r"\s*[0-9]{4,}[-/][0-9]{1,2}[-/][0-9]{1,2}(?: BC)?\s*")
_CLOCK = r"(?P<clock>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.(?P<fraction>[0-9]+))?)?)"
_TIME = re.compile(rf"\s*{_CLOCK}\s*")
_ZONED_TIME = re.compile(rf"\s*{_CLOCK}\s*(?:[zZ]|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?\s*")
_DURATION = re.compile(rf"\s*-?(?:[0-9]+ )?[0-9]*{_CLOCK}\s*")
_STAMP = re.compile(
    rf"\s*(?P<day>[0-9]{{4,}}[-/][0-9]{{1,2}}[-/][0-9]{{1,2}})"
    rf"(?:[ T]{_CLOCK}\s*(?P<zone>[zZ]|UTC|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?(?P<era> BC)?\s*"
)
_ENDLESS = frozenset({"infinity", "-infinity"})
_TRUTHS = frozenset(["true", "t", "yes", "y", "on", "1", "false", "f", "no", "n", "off", "0"])

_MISFIT = "it is not of the column's type"


def fit_of(kind: str, dialect: Dialect) -> Fit:
    """Return the rule for a column.

    Args:
        kind: the type of the column, as the database names it.
        dialect: the database.

    Example:
        >>> fit = fit_of("DATE", Dialect())
        >>> fit.convert(datetime.datetime(2026, 1, 2))
        datetime.datetime(2026, 1, 2, 0, 0)
        >>> fit.convert("2026-01-02 10:00")
        Traceback (most recent call last):
        ...
        ValueError: it has a time of day, and the column would drop it
    """
    return _fit_of(kind.lower(), dialect)


def holds_bytes(kind: str) -> bool:
    """Return whether a column of a type holds bytes."""
    return _BYTES.fullmatch(kind.lower()) is not None


@functools.lru_cache(1_000)
def _fit_of(kind: str, dialect: Dialect) -> Fit:
    for family, pattern in _KINDS:
        found = pattern.fullmatch(kind)
        if found is not None:
            whole, convert = _FAMILIES[family](found.groupdict(), dialect, kind in dialect.own_types)
            return Fit(whole | {_NONE}, convert)

    def pass_on(value: Any) -> Any:
        # Enumerations, networks, geometries, structs: the database decides.
        return json_text(value) if dialect.nested_as_json and isinstance(value, dict | list | tuple) else value

    return Fit(frozenset({_NONE, str}), pass_on)


def _make_misfit(value: Any) -> ValueError:
    if isinstance(value, bytes | bytearray | memoryview):
        return ValueError(f"{_MISFIT}: it is bytes, so decode it with apply() before sink()")
    known = (bool, int, float, str, decimal.Decimal, uuid.UUID, dict, list, tuple)
    times = (datetime.date, datetime.time, datetime.timedelta)
    if isinstance(value, known + times):
        return ValueError(f"{_MISFIT}: it is of type {type(value).__name__}")
    return ValueError(f"no column holds the type {type(value).__name__}: convert it with apply() before sink()")


# -- Numbers -----------------------------------------------------------------------------------------------------------


def _integer_rule(_: Any, dialect: Dialect, own: bool) -> _Rule:
    def convert(value: Any) -> Any:
        if isinstance(value, bool) and dialect.has_booleans:
            raise _make_misfit(value)
        if isinstance(value, float):
            if math.isfinite(value) and not value.is_integer():
                raise _make_digits_error(0)
            return value
        return _check_number(value, own, 0)

    return _plain_types(dialect, int), convert


def _decimal_rule(match: Any, dialect: Dialect, own: bool) -> _Rule:
    scale = int(match["scale"] or 0) if match["digits"] else None

    def convert(value: Any) -> Any:
        if isinstance(value, bool) and dialect.has_booleans:
            raise _make_misfit(value)
        return _check_number(value, own, scale)

    # A float is not exact anyway, so a column with a scale rounds it.
    return _plain_types(dialect, int, float), convert


def _double_rule(_: Any, dialect: Dialect, own: bool) -> _Rule:
    return _floating_rule(dialect, own, _is_kept)


def _single_rule(_: Any, dialect: Dialect, own: bool) -> _Rule:
    # Databases show six digits of it at least; a float is rounded.
    return _floating_rule(dialect, own, lambda value: len("".join(map(str, value.as_tuple().digits)).strip("0")) <= 6)


def _is_kept(value: decimal.Decimal) -> bool:
    # As it is shown: 0.1 has no exact form in binary digits, and is 0.1 again when it is read.
    return decimal.Decimal(repr(float(value))) == value or decimal.Decimal(float(value)) == value


def _floating_rule(dialect: Dialect, own: bool, is_kept: Callable[[decimal.Decimal], bool]) -> _Rule:
    def convert(value: Any) -> Any:
        if isinstance(value, float) or (isinstance(value, bool) and not dialect.has_booleans):
            return value
        if isinstance(value, bool):
            raise _make_misfit(value)
        number = decimal.Decimal(_check_number(value, own, None))
        try:
            kept = not number.is_finite() or is_kept(number)
        except OverflowError:
            kept = False
        if not kept:
            raise ValueError("it has more digits than the column keeps")
        return value

    return _plain_types(dialect, float), convert


def _plain_types(dialect: Dialect, *types: type) -> frozenset[type]:
    return frozenset(types) if dialect.has_booleans else frozenset((*types, bool))


def _check_number(value: Any, own: bool, scale: int | None) -> Any:
    """Return a number, or a text with one; raise ValueError if the column would keep less."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            if _NO_NUMBER.fullmatch(value) and scale is None:
                return value
            raise ValueError(_MISFIT)
        if own and not (_OWN_INTEGER if scale == 0 else _OWN_NUMBER).fullmatch(value):
            raise ValueError("it is text, and the column would store another number than it shows: convert it before")
    elif not isinstance(value, decimal.Decimal):
        raise _make_misfit(value)
    if scale is not None and _fraction_digits(value) > scale:
        raise _make_digits_error(scale)
    return value


def _make_digits_error(scale: int) -> ValueError:
    return ValueError(f"it has more than {scale} digits after the point, and the column would drop them")


def _fraction_digits(value: decimal.Decimal | str) -> int:
    _, digits, exponent = decimal.Decimal(value).as_tuple()
    if not isinstance(exponent, int) or not any(digits):
        return 0
    text = "".join(map(str, digits))
    return max(0, -exponent - (len(text) - len(text.rstrip("0"))))


def _boolean_rule(_: Any, dialect: Dialect, own: bool) -> _Rule:
    def convert(value: Any) -> Any:
        if isinstance(value, int | float) and value in (0, 1):
            return bool(value)
        if isinstance(value, str) and (value.lower() in ("true", "false") if own else value.strip().lower() in _TRUTHS):
            return value
        raise ValueError(f"{_MISFIT}: it is neither true nor false")

    return frozenset({bool}), convert


# -- Text and bytes ----------------------------------------------------------------------------------------------------


def _text_rule(match: Any, dialect: Dialect, own: bool) -> _Rule:
    longest = int(match["length"]) if match.get("length") else None

    def convert(value: Any) -> Any:
        text = _text_of(value)
        if longest is not None and len(text) > longest:
            # Databases cut spaces at the end silently.
            what = "it is too long" if text[longest:].strip(" ") else "it would be cut"
            raise ValueError(f"{what}: it has {len(text)} characters, and the column holds {longest}")
        return text

    return frozenset({str} if longest is None else ()), convert


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | bytes | bytearray | memoryview | datetime.timedelta):
        raise _make_misfit(value)
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, int | decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    raise _make_misfit(value)


def _bytes_rule(_: Any, dialect: Dialect, own: bool) -> _Rule:
    def convert(value: Any) -> Any:
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:
                raise ValueError("it is not valid Unicode") from None
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise ValueError(f"{_MISFIT}: it is of type {type(value).__name__}, and the column holds bytes")

    return frozenset({bytes}), convert


# -- Times -------------------------------------------------------------------------------------------------------------


def _date_rule(_: Any, dialect: Dialect, own: bool) -> _Rule:
    def convert(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            moment = _to_utc(value)
            if moment.time() != datetime.time():
                raise ValueError("it has a time of day, and the column would drop it")
            return moment
        if isinstance(value, str):
            return _day_text(value)
        raise _make_misfit(value)

    return frozenset({datetime.date}), convert


def _day_text(value: str) -> str:
    if _DAY.fullmatch(value) or value.strip().lower() in _ENDLESS:
        return value
    stamp = _STAMP.fullmatch(value)
    if stamp is None:
        raise ValueError(f"{_MISFIT}: write a date as YYYY-MM-DD")
    if stamp["zone"] is not None or stamp["clock"].strip("0:."):
        raise ValueError("it has a time of day, and the column would drop it")
    return value


def _time_rule(match: Any, dialect: Dialect, own: bool) -> _Rule:
    places = _second_places(match, dialect)

    def convert(value: Any) -> Any:
        if isinstance(value, datetime.timedelta) and dialect.takes_durations:
            return value
        if isinstance(value, datetime.time):
            if value.tzinfo is not None:
                raise ValueError("a time of day has no time zone in the database: remove it before sink()")
            _check_places(f"{value.microsecond:06}", places)
            return value
        if isinstance(value, str):
            _check_clock(value, _TIME, places, dialect.takes_durations)
            return value
        raise _make_misfit(value)

    return frozenset(), convert


def _zoned_time(match: Any, dialect: Dialect, own: bool) -> _Rule:
    places = _second_places(match, dialect)

    def convert(value: Any) -> Any:
        if isinstance(value, datetime.time):
            _check_places(f"{value.microsecond:06}", places)
            return value
        if isinstance(value, str):
            _check_clock(value, _ZONED_TIME, places, False)
            return value
        raise _make_misfit(value)

    return frozenset(), convert


def _timestamp_rule(match: Any, dialect: Dialect, own: bool) -> _Rule:
    places = {"s": 0, "ms": 3}[match["unit"]] if match.get("unit") else _second_places(match, dialect)

    def convert(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            _check_places(f"{value.microsecond:06}", places)
            return _to_utc(value)
        if isinstance(value, str):
            return _utc_text(value, places)
        if isinstance(value, datetime.date):
            return value
        raise _make_misfit(value)

    return frozenset(), convert


def _zoned_timestamp(match: Any, dialect: Dialect, own: bool) -> _Rule:
    places = _second_places(match, dialect)

    def convert(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            _check_places(f"{value.microsecond:06}", places)
        elif isinstance(value, str):
            _check_places(_match_stamp(value, places)[1], places)
        elif not isinstance(value, datetime.date):
            raise _make_misfit(value)
        return value

    return frozenset({datetime.datetime} if places == 6 else ()), convert


def _second_places(match: Any, dialect: Dialect) -> int:
    """Return how many digits behind the second a column keeps."""
    if dialect.cuts_times or not match.get("places"):
        return 6
    return int(match["places"])


def _check_places(fraction: str, places: int) -> None:
    if fraction[places:].strip("0"):
        raise ValueError(f"it has more than {places} digits behind the second, and the column would drop them")


def _check_clock(value: str, pattern: re.Pattern[str], places: int, longer: bool) -> None:
    found = pattern.fullmatch(value)
    if found is not None:
        _check_places(found["fraction"] or "", places)
    elif _ZONED_TIME.fullmatch(value):
        raise ValueError("a time of day has no time zone in the database: remove it before sink()")
    elif not longer or not _DURATION.fullmatch(value):
        raise ValueError(f"{_MISFIT}: write a time of day as HH:MM:SS")


def _match_stamp(value: str, places: int) -> tuple[re.Match[str] | None, str]:
    if value.strip().lower() in _ENDLESS:
        return None, ""
    found = _STAMP.fullmatch(value)
    if found is None:
        raise ValueError(f"{_MISFIT}: write a time as YYYY-MM-DD HH:MM:SS")
    return found, found["fraction"] or ""


def _utc_text(value: str, places: int) -> str:
    """Return a text without its zone, in UTC: databases would only drop the zone."""
    found, fraction = _match_stamp(value, places)
    _check_places(fraction, places)
    zone = None if found is None else found["zone"]
    if found is None or zone is None:
        return value
    clock = found["clock"].partition(".")[0]
    clock = clock if clock.count(":") == 2 else f"{clock}:00"
    offset = re.sub("[^0-9]", "", zone).ljust(4, "0")
    sign = -1 if zone[0] == "-" else 1
    try:
        if found["era"]:
            raise ValueError
        moment = datetime.datetime.strptime(f"{found['day'].replace('/', '-')} {clock}", "%Y-%m-%d %H:%M:%S")
        moment -= sign * datetime.timedelta(hours=int(offset[:2]), minutes=int(offset[2:]))
    except (ValueError, OverflowError):
        raise ValueError(f"{_MISFIT}: its zone cannot be converted to UTC") from None
    return moment.isoformat(" ") + (f".{fraction}" if fraction else "")


def _to_utc(value: datetime.datetime) -> datetime.datetime:
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    except OverflowError:
        raise ValueError("it is out of range: in UTC, it is beyond the years 1 to 9999") from None


# -- Others ------------------------------------------------------------------------------------------------------------


def _interval_rule(_: Any, dialect: Dialect, own: bool) -> _Rule:
    def convert(value: Any) -> Any:
        if isinstance(value, str):
            return value
        raise _make_misfit(value)

    return frozenset({datetime.timedelta}), convert


def _uuid_rule(_: Any, dialect: Dialect, own: bool) -> _Rule:
    def convert(value: Any) -> Any:
        if isinstance(value, str):
            return value
        raise _make_misfit(value)

    return frozenset({uuid.UUID}), convert


def _json_rule(_: Any, dialect: Dialect, own: bool) -> _Rule:
    def convert(value: Any) -> Any:
        if isinstance(value, str):
            # The database reads a text as JSON, so a text that is a number there would come back as a number.
            if value.lstrip()[:1] not in ("{", "[", '"'):
                raise ValueError(f"{_MISFIT}: text in it must be a JSON object, array or string")
            return value
        if isinstance(value, bytes | bytearray | memoryview | datetime.timedelta):
            raise _make_misfit(value)
        return json_text(value)

    return frozenset(), convert


def _array_rule(match: Any, dialect: Dialect, own: bool) -> _Rule:
    element = _fit_of(match["element"], dialect)

    def convert(value: Any) -> Any:
        if isinstance(value, str):
            return value
        if not isinstance(value, list | tuple):
            raise _make_misfit(value)
        return [
            convert(each)
            if isinstance(each, list | tuple)
            else each
            if type(each) in element.whole
            else element.convert(each)
            for each in value
        ]

    return frozenset(), convert


_FAMILIES: dict[str, Callable[[Any, Dialect, bool], _Rule]] = {
    "array": _array_rule,
    "boolean": _boolean_rule,
    "bytes": _bytes_rule,
    "date": _date_rule,
    "decimal": _decimal_rule,
    "double": _double_rule,
    "integer": _integer_rule,
    "interval": _interval_rule,
    "json": _json_rule,
    "single": _single_rule,
    "text": _text_rule,
    "time": _time_rule,
    "timestamp": _timestamp_rule,
    "uuid": _uuid_rule,
    "zoned_time": _zoned_time,
    "zoned_timestamp": _zoned_timestamp,
}
