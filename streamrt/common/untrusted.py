"""Values in bytes that others may have written: topics, headers, committed metadata, objects in stores, requests.

Whoever may write there must not be able to end an application. So each such value is read by one of these functions, which
raise `ValueError` and nothing else, whatever the bytes are. A caller turns that into its own error, with the place.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, overload

__all__ = [
    "HIGHEST",
    "LOWEST",
    "checked_numbers",
    "json_object",
    "json_value",
    "malformed_as",
    "read_field",
    "read_field_or_none",
    "text",
    "whole_number",
]

HIGHEST, LOWEST = 2**63 - 1, -(2**63)
"""The highest and the lowest number of 64 bits with a sign: offsets, times, and whatever RocksDB, Kafka or Arrow take."""
_DIGITS = len(str(HIGHEST))

T = TypeVar("T")


def whole_number(data: bytes | str, least: int = 0, most: int = HIGHEST) -> int:
    """Return the number that decimal digits of ASCII stand for.

    Python refuses more than 4,300 digits by a ValueError, which `str.isdigit` does not foretell, and takes digits of all
    scripts, spaces, underscores and signs.

    Args:
        data: the digits; one "-" may be before them.
        least: the lowest number that is allowed.
        most: the highest one.

    Raises:
        ValueError: if it is not such a number.

    Example:
        >>> whole_number(b"17"), whole_number("-3", least=-5)
        (17, -3)
    """
    digits = data.removeprefix(b"-") if isinstance(data, bytes) else data.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS:
        raise ValueError(f"is not a number of at most {_DIGITS} digits")
    number = int(data)
    if not least <= number <= most:
        raise ValueError(f"must be between {least} and {most}, and is {number}")
    return number


def text(data: bytes) -> str:
    r"""Return the text that bytes of UTF-8 stand for; bytes that are none are replaced.

    Example:
        >>> text(b"caf\xc3\xa9"), text(b"\xff")
        ('café', '�')
    """
    return data.decode(errors="replace")


def json_value(data: bytes | str) -> Any:
    """Return the value that JSON stands for.

    Raises:
        ValueError: if it is not JSON, is nested too deeply, or has a number of too many digits.
    """
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def json_object(data: bytes | str) -> dict[str, Any]:
    """Return the object that JSON stands for.

    Raises:
        ValueError: if it is not an object.

    Example:
        >>> json_object('{"v": 1}')
        {'v': 1}
    """
    found = json_value(data)
    if not isinstance(found, dict):
        raise ValueError(f"is not an object, but {type(found).__name__}")
    return found


@overload
def read_field(document: Any, name: Any, kind: type[int], least: int = ..., most: int = ...) -> int: ...
@overload
def read_field(document: Any, name: Any, kind: type[T]) -> T: ...
def read_field(document: Any, name: Any, kind: type[Any], least: int = 0, most: int = HIGHEST) -> Any:
    """Return a field of an object, or an element of a list, that has a type; a bool is not an int.

    Args:
        document: the object or list.
        name: the field, or the index.
        kind: its type.
        least: the lowest number, of an int.
        most: the highest one.

    Raises:
        ValueError: if there is no such field, or it has another type or range.

    Example:
        >>> read_field({"v": 1}, "v", int)
        1
    """
    try:
        value = document[name]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"has no {name!r}") from None
    if type(value) is not kind:
        raise ValueError(f"{name!r} must be {kind.__name__}, and is {type(value).__name__}")
    if kind is int and not least <= value <= most:
        raise ValueError(f"{name!r} must be between {least} and {most}")
    return value


@overload
def read_field_or_none(document: Any, name: Any, kind: type[int], least: int = ..., most: int = ...) -> int | None: ...
@overload
def read_field_or_none(document: Any, name: Any, kind: type[T]) -> T | None: ...
def read_field_or_none(document: Any, name: Any, kind: type[Any], least: int = 0, most: int = HIGHEST) -> Any:
    """Return a field that has a type, or None if it is null or missing; see `read_field`."""
    if isinstance(document, dict) and document.get(name) is None:
        return None
    return read_field(document, name, kind, least, most)


@contextlib.contextmanager
def malformed_as(error: Callable[[str], Exception]) -> Iterator[None]:
    """Turn what readers raise for malformed bytes into the error of the caller.

    Args:
        error: makes it, of what is wrong.

    Example:
        >>> with malformed_as(KeyError):
        ...     whole_number("x")
        Traceback (most recent call last):
        ...
        KeyError: 'is not a number of at most 19 digits'
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as wrong:
        # Without the cause, which may quote what was read.
        raise error(str(wrong) or type(wrong).__name__) from None


def checked_numbers(document: Mapping[str, Any], most_key: int, least: int = 0) -> dict[int, int]:
    """Return an object of numbers by numbers, such as offsets by partition.

    Raises:
        ValueError: if a key or value is not a number, or is out of range.
    """
    return {whole_number(name, most=most_key): read_field(document, name, int, least) for name in document}


def _refuse_constant(name: str) -> float:
    raise ValueError(f"has {name}, which is not JSON")
