"""Patterns of dates and times, such as `yyyy-MM-dd HH:mm`: those of Spark, for writing and for reading.

https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html
"""

import datetime
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

__all__ = ["DAYS", "MONTHS", "check_pattern", "parse_text", "write_text"]

MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
DAYS: Final = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

_LETTERS: Final = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|([^A-Za-z'])")
_Moment = Any
_Writer = Callable[[_Moment], str]


def _number(read: Callable[[_Moment], int]) -> Callable[[int], _Writer]:
    return lambda width: lambda moment: str(read(moment)).zfill(width)


def _year(width: int) -> _Writer:
    if width == 2:
        return lambda moment: f"{moment.year % 100:02d}"
    return lambda moment: str(moment.year).zfill(width)


def _month(width: int) -> _Writer:
    if width <= 2:
        return lambda moment: str(moment.month).zfill(width)
    return (lambda moment: MONTHS[moment.month - 1][:3]) if width == 3 else (lambda moment: MONTHS[moment.month - 1])


def _weekday(width: int) -> _Writer:
    if width <= 3:
        return lambda moment: DAYS[moment.weekday()][:3]
    return lambda moment: DAYS[moment.weekday()]


def _quarter(width: int) -> _Writer:
    if width <= 2:
        return lambda moment: str((moment.month + 2) // 3).zfill(width)
    return lambda moment: f"Q{(moment.month + 2) // 3}"


def _fraction(width: int) -> _Writer:
    return lambda moment: f"{moment.microsecond:06d}000"[:width]


def _offset(text: str, colon: bool) -> Callable[[int], _Writer]:
    def make(width: int) -> _Writer:
        written = text or ("+00", "+0000", "+00:00", "+0000", "+00:00")[width - 1 if colon else min(width, 2)]
        return lambda moment: written

    return make


_WRITERS: Final[dict[str, tuple[Callable[[int], _Writer], int]]] = {
    "y": (_year, 6),
    "M": (_month, 4),
    "L": (_month, 4),
    "d": (_number(lambda moment: moment.day), 2),
    "D": (_number(lambda moment: moment.timetuple().tm_yday), 3),
    "E": (_weekday, 4),
    "a": (lambda width: lambda moment: "AM" if moment.hour < 12 else "PM", 1),
    "H": (_number(lambda moment: moment.hour), 2),
    "k": (_number(lambda moment: moment.hour or 24), 2),
    "h": (_number(lambda moment: moment.hour % 12 or 12), 2),
    "K": (_number(lambda moment: moment.hour % 12), 2),
    "m": (_number(lambda moment: moment.minute), 2),
    "s": (_number(lambda moment: moment.second), 2),
    "S": (_fraction, 9),
    "q": (_quarter, 3),
    "Q": (_quarter, 3),
    "X": (_offset("Z", colon=True), 5),
    "x": (_offset("", colon=True), 5),
    "Z": (_offset("", colon=False), 3),
}
"""What writes a field, by its letter, and how often the letter may stand."""


def check_pattern(pattern: str, *, reading: bool) -> None:
    """Check a pattern.

    Args:
        pattern: the pattern.
        reading: whether strings are read with it, for which fewer letters are known.

    Raises:
        ValueError: if it has a letter that is not known.
    """
    if reading:
        _compile_reader(pattern)
    else:
        _compile_writer(pattern)


def _read_parts(pattern: str) -> list[tuple[str, int, str]]:
    """Return letters with their number, and literal strings with 0."""
    parts, place = [], 0
    while place < len(pattern):
        found = _LETTERS.match(pattern, place)
        if found is None:
            raise ValueError("a pattern of dates has a quote without an end")
        place = found.end()
        letter, quoted, other = found.groups()
        if letter:
            parts.append((letter, len(found[0]), ""))
        elif quoted is not None:
            parts.append(("", 0, quoted.replace("''", "'") or "'"))
        elif other in "[]{}#":
            raise ValueError(f"{other} has no meaning in a pattern of dates here; write it in single quotes")
        else:
            parts.append(("", 0, other))
    return parts


@lru_cache(maxsize=500)
def _compile_writer(pattern: str) -> tuple[_Writer, ...]:
    writers: list[_Writer] = []
    for letter, width, literal in _read_parts(pattern):
        if not letter:
            writers.append(lambda moment, literal=literal: literal)  # type: ignore[misc]  # literal is bound here
            continue
        make, most = _WRITERS.get(letter, (None, 0))
        if make is None or width > most:
            known = ", ".join(_WRITERS)
            raise ValueError(f"{letter * width} has no meaning in a pattern of dates; letters are {known}")
        writers.append(make(width))
    return tuple(writers)


def write_text(pattern: str, moment: datetime.datetime) -> str:
    """Return a time as text.

    Example:
        >>> write_text("EEE, dd MMM yyyy h:mm a", datetime.datetime(2026, 3, 9, 15, 4))
        'Mon, 09 Mar 2026 3:04 PM'
    """
    return "".join(write(moment) for write in _compile_writer(pattern))


@lru_cache(maxsize=500)
def _compile_reader(pattern: str) -> re.Pattern[str]:
    parts, seen = [], set()
    for letter, width, literal in _read_parts(pattern):
        if not letter:
            parts.append(re.escape(literal))
            continue
        if letter in seen:
            raise ValueError(f"a pattern that reads dates has {letter} twice")
        seen.add(letter)
        parts.append(_reading_part(letter, width))
    if "h" in seen and "a" not in seen:
        raise ValueError("a pattern that reads dates has h, an hour of 12, without a, its half of the day; use H")
    return re.compile("".join(parts), re.ASCII)


def _reading_part(letter: str, width: int) -> str:
    if letter == "y" and width in (1, 2, 4):
        return {1: r"(?P<y>[0-9]{1,4})", 2: r"(?P<yy>[0-9]{2})", 4: r"(?P<y>[0-9]{4})"}[width]
    if letter in "ML" and width in (3, 4):
        names = [name[:3] if width == 3 else name for name in MONTHS]
        return f"(?P<name>{'|'.join(names)})"
    if letter == "E" and width <= 4:
        return f"(?:{'|'.join(name[:3] if width <= 3 else name for name in DAYS)})"
    if letter == "S" and width <= 9:
        return f"(?P<S>[0-9]{{1,{width}}})"
    if letter == "a" and width == 1:
        return "(?P<a>AM|PM)"
    if letter in "XxZ":
        return r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})"
    if letter in "MLdHhms" and width <= 2:
        return f"(?P<{letter}>[0-9]{{{'1,2' if width == 1 else '2'}}})"
    raise ValueError(
        f"{letter * width} cannot be read from texts; write a pattern of yyyy, MM, MMM, dd, HH, mm, ss, SSS, a"
    )


def parse_text(pattern: str, text: str) -> datetime.datetime:
    """Return the time in a text, in UTC if it has an offset. Parts that the pattern lacks are those of 1970-01-01.

    Raises:
        ValueError: if the text does not fit the pattern.

    Example:
        >>> parse_text("dd/MM/yyyy HH:mm", "09/03/2026 15:04")
        datetime.datetime(2026, 3, 9, 15, 4)
    """
    found = _compile_reader(pattern).fullmatch(text)
    if found is None:
        raise ValueError("the text does not fit the pattern of dates")
    fields = {name: value for name, value in found.groupdict().items() if value is not None}
    year = int(fields.get("y", 1970)) if "yy" not in fields else 2000 + int(fields["yy"])
    month = _month_of(fields)
    hour = int(fields.get("H", 0))
    if "h" in fields:
        hour = int(fields["h"]) % 12 + (12 if fields["a"] == "PM" else 0)
    micros = int((fields.get("S", "") + "000000")[:6])
    try:
        moment = datetime.datetime(
            year, month, int(fields.get("d", 1)), hour, int(fields.get("m", 0)), int(fields.get("s", 0)), micros
        )
    except ValueError:
        raise ValueError("the text has a date or a time that there is not") from None
    return moment - _zone_of(fields.get("zone", "Z"))


def _month_of(fields: dict[str, str]) -> int:
    if "name" in fields:
        return 1 + next(number for number, name in enumerate(MONTHS) if name.startswith(fields["name"]))
    return int(fields.get("M", fields.get("L", 1)))


def _zone_of(text: str) -> datetime.timedelta:
    if text == "Z":
        return datetime.timedelta()
    digits = text[1:].replace(":", "")
    offset = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -offset if text[0] == "-" else offset
