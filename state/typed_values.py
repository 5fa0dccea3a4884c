"""Values of Python types that JSON lacks, as JSON objects with one key: the tag of the type.

| type | object |
|------|--------|
| `datetime.date` | `{"$date":"2024-05-01"}` |
| `datetime.datetime` | `{"$datetime":"2024-05-01T12:00:00+02:00"}`, or `{"$datetime":[text, IANA name or null, fold]}` |
| `datetime.time` | `{"$time":"12:00:00"}`, or a list in the same way |
| `datetime.timedelta` | `{"$timedelta":[days, seconds, microseconds]}` |
| `decimal.Decimal` | `{"$decimal":"1.50"}` |
| `bytes` | `{"$bytes":"AP8="}`, in base64 |

A dict of the user with one key that begins with `$` gets another `$` before it, so none is mistaken for a tag. The format
outlives the program. A time keeps its zone if that has an IANA name, and its UTC offset otherwise. Objects of subclasses have
no such form, because they may hold more than their base class.
"""

import datetime
from base64 import b64decode, b64encode
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson

from streamrt.errors import SerializationError

__all__ = ["TYPED", "read_tagged", "tag_all", "write_tagged"]


def _write_time(value: datetime.datetime | datetime.time) -> str | list[Any]:
    zone = value.tzinfo
    name = zone.key if isinstance(zone, ZoneInfo) else None
    if name is None and not value.fold:
        return value.isoformat()
    # With a fold, times are written without a zone that has a name only.
    wall = value if name is None else value.replace(tzinfo=None)
    return [wall.isoformat(), name, value.fold]


def _read_time(kind: Any, written: Any) -> Any:
    if type(written) is str:
        return kind.fromisoformat(written)
    text, name, fold = written
    value = kind.fromisoformat(text)
    return value.replace(tzinfo=value.tzinfo if name is None else _find_zone(name), fold=fold)


@cache
def _find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except ZoneInfoNotFoundError:
        raise SerializationError(
            f"a stored time is in the time zone {name!r}, which this machine does not know; install the package tzdata"
        ) from None


def _write_timedelta(value: datetime.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _write_bytes(value: bytes) -> str:
    return b64encode(value).decode()


_WRITE: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    datetime.date: ("$date", datetime.date.isoformat),
    datetime.datetime: ("$datetime", _write_time),
    datetime.time: ("$time", _write_time),
    datetime.timedelta: ("$timedelta", _write_timedelta),
    Decimal: ("$decimal", str),
    bytes: ("$bytes", _write_bytes),
}

_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "$date": datetime.date.fromisoformat,
    "$datetime": lambda written: _read_time(datetime.datetime, written),
    "$time": lambda written: _read_time(datetime.time, written),
    "$timedelta": lambda written: datetime.timedelta(*written),
    "$decimal": Decimal,
    "$bytes": b64decode,
}

TYPED: Final = frozenset(_WRITE)
"""The types that are stored as tagged objects."""


def write_tagged(value: Any) -> orjson.Fragment:
    """Return the object for a value of one of the types `TYPED` as JSON, with a space that orjson writes nowhere.

    Example:
        >>> orjson.dumps([Decimal("1.50")], write_tagged)
        b'[{ "$decimal":"1.50"}]'
    """
    tag, write = _WRITE[type(value)]
    written = write(value)
    # No such text has a character that JSON escapes.
    text = f'"{written}"' if type(written) is str else orjson.dumps(written).decode()
    return orjson.Fragment(f'{{ "{tag}":{text}}}')


def tag_all(value: Any) -> Any:
    """Return nested data with objects for values of the types `TYPED`, and dicts of the user that look like them escaped.

    Example:
        >>> tag_all([b"a", {"$bytes": 1}])
        [{'$bytes': 'YQ=='}, {'$$bytes': 1}]
    """
    if type(value) in TYPED:
        tag, write = _WRITE[type(value)]
        return {tag: write(value)}
    if isinstance(value, dict):
        tagged = {key: tag_all(item) for key, item in value.items()}
        if len(tagged) == 1:
            ((key, item),) = tagged.items()
            if key[:1] == "$":
                return {f"${key}": item}
        return tagged
    if isinstance(value, list | tuple):
        return [tag_all(item) for item in value]
    return value


def read_tagged(value: dict[str, Any]) -> Any:
    """Return what an object of decoded JSON stands for: a value, a dict that was escaped, or itself.

    Raises:
        ValueError: if the tag or its content is unknown.
        SerializationError: if this machine does not know the time zone.
    """
    if len(value) != 1:
        return value
    ((key, item),) = value.items()
    if key[:1] != "$":
        return value
    if key[1:2] == "$":
        return {key[1:]: item}
    read = _READ.get(key)
    if read is None:
        raise ValueError(f"unknown type {key!r}")
    try:
        return read(item)
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"not a value of {key!r}: {error}") from error
