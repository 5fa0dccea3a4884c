"""Text forms of PostgreSQL's types to JSON values, for `PostgresCdcSource`.

The server writes values as text, with the settings of `postgres_session`: ISO dates, UTC, hexadecimal bytes. Types that
are not listed here stay text.
"""

import base64
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import orjson

__all__ = ["Converter", "Decimals", "TypeInfo", "converter", "parse_array"]

Converter = Callable[[str], Any]
Decimals = Literal["string", "float"]
"""How `numeric` is written: as a string, which is exact, or as a float."""

_FRACTION = re.compile(r"\.(\d+)")
_OFFSET = re.compile(r"[+-]\d\d(:\d\d){0,2}$")
_BOUNDS = re.compile(r"(?:\[[+-]?\d+:[+-]?\d+\])+=")


class TypeInfo(NamedTuple):
    """Description of a type in the catalog.

    Attributes:
        name: its name.
        element: the type of the elements, if it is an array.
        delimiter: what stands between elements of an array.
        base: the underlying type, if it is a domain.
    """

    name: str
    element: "TypeInfo | None" = None
    delimiter: str = ","
    base: "TypeInfo | None" = None


def converter(info: TypeInfo, decimals: Decimals) -> Converter:
    """Return the function from the text form of a type to a JSON value.

    Args:
        info: the type.
        decimals: how `numeric` is written.

    Example:
        >>> converter(TypeInfo("_int4", TypeInfo("int4")), "string")("{1,NULL,{2}}")
        [1, None, [2]]
    """
    if info.base is not None:
        return converter(info.base, decimals)
    if info.element is not None:
        element, delimiter = converter(info.element, decimals), info.delimiter
        return lambda text: parse_array(text, element, delimiter)
    if info.name == "numeric":
        return _read_decimal if decimals == "float" else str
    return _CONVERTERS.get(info.name, str)


def parse_array(text: str, element: Converter, delimiter: str = ",") -> list[Any]:
    """Return the elements of an array's text form; arrays of several dimensions are lists of lists.

    Args:
        text: such as `{a,"b c",NULL}`.
        element: function of the text of an element.
        delimiter: what stands between elements.

    Raises:
        ValueError: if it is not the text form of an array.

    Example:
        >>> parse_array('{a,"b, c",NULL}', str)
        ['a', 'b, c', None]
    """
    begun = _BOUNDS.match(text)
    position = begun.end() if begun else 0
    stack: list[list[Any]] = []
    whole: list[Any] | None = None
    end = len(text)
    while position < end:
        mark = text[position]
        if mark == "{":
            inner: list[Any] = []
            if stack:
                stack[-1].append(inner)
            stack.append(inner)
            position += 1
        elif not stack:
            raise ValueError("an array's text form has no brace")
        elif mark == "}":
            whole = stack.pop()
            position += 1
        elif mark == delimiter:
            position += 1
        elif mark == '"':
            item, position = _read_quoted(text, position + 1)
            stack[-1].append(element(item))
        else:
            item, position = _read_plain(text, position, delimiter)
            stack[-1].append(None if item == "NULL" else element(item))
    if stack or whole is None:
        raise ValueError("an array's text form does not end")
    return whole


def _read_quoted(text: str, position: int) -> tuple[str, int]:
    parts: list[str] = []
    while position < len(text):
        mark = text[position]
        if mark == '"':
            return "".join(parts), position + 1
        if mark == "\\":
            position += 1
        parts.append(text[position : position + 1])
        position += 1
    raise ValueError("an array's text form does not end")


def _read_plain(text: str, position: int, delimiter: str) -> tuple[str, int]:
    begun = position
    while position < len(text) and text[position] not in (delimiter, "}"):
        position += 1
    return text[begun:position], position


def _read_bool(text: str) -> bool:
    return text == "t"


def _read_float(text: str) -> float | str:
    # JSON has no infinity and no NaN.
    return text if text in ("NaN", "Infinity", "-Infinity") else float(text)


def _read_decimal(text: str) -> float | str:
    return _read_float(text)


def _read_bytes(text: str) -> str:
    if not text.startswith("\\x"):
        raise ValueError("bytes are not hexadecimal")
    return base64.b64encode(bytes.fromhex(text[2:])).decode()


def _read_json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        # The type json accepts what other readers do not, such as half of a surrogate pair.
        return text


def _read_time(text: str) -> str:
    """Return a time as `datetime` of Python 3.10 reads it: six digits of a fraction, minutes in the offset."""
    text = _FRACTION.sub(lambda found: "." + found[1].ljust(6, "0"), text)
    offset = _OFFSET.search(text)
    return text + ":00" if offset is not None and offset[1] is None else text


def _read_timestamp(text: str) -> str:
    if text.endswith(("infinity", " BC")):
        return text
    date, _, time = text.partition(" ")
    return f"{date}T{_read_time(time)}"


_CONVERTERS: dict[str, Converter] = {
    "bool": _read_bool,
    "bytea": _read_bytes,
    "float4": _read_float,
    "float8": _read_float,
    "int2": int,
    "int4": int,
    "int8": int,
    "json": _read_json,
    "jsonb": _read_json,
    "oid": int,
    "time": _read_time,
    "timestamp": _read_timestamp,
    "timestamptz": _read_timestamp,
    "timetz": _read_time,
}
