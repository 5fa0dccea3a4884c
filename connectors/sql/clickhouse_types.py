"""Which values a column of ClickHouse can hold, as far as ClickHouse does not check it.

In JSON, ClickHouse reads 300 for a UInt8 as 44, and null for a column that cannot be null as 0.
"""

import datetime
import decimal
import math
import re
import uuid
from collections.abc import Mapping
from typing import Any

__all__ = ["plain", "problem"]

_INTEGER = re.compile(r"(U?)Int(\d+)")
_WRAPPER = re.compile(r"(Nullable|LowCardinality|Array)\((.*)\)")
# These hold null, among others.
_ANY = ("Variant(", "Dynamic", "JSON", "Object(", "Nothing")


def plain(value: Any) -> Any:
    """Return a value as JSON has it: times in ISO 8601, numbers that JSON lacks as text.

    Args:
        value: the value; dicts and lists may contain others.

    Example:
        >>> plain({"price": decimal.Decimal("1.5"), "ratio": math.inf, "raw": b"abc"})
        {'price': '1.5', 'ratio': 'inf', 'raw': 'abc'}
    """
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="surrogateescape")
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID | decimal.Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def problem(declared: str, value: Any) -> str:
    """Return why a column cannot hold a value, in words without the value; empty if it can, or ClickHouse checks it.

    Args:
        declared: type of the column.
        value: the value, as `plain` returns it.

    Example:
        >>> problem("Array(UInt8)", [1, 300])
        'a number is outside of UInt8'
        >>> problem("Int64", None)
        'Int64 cannot be null'
        >>> problem("LowCardinality(Nullable(String))", None)
        ''
    """
    wrapper = _WRAPPER.fullmatch(declared)
    if wrapper is not None and wrapper[1] == "Array":
        if value is None:
            return f"{declared} cannot be null"
        reasons = (problem(wrapper[2], part) for part in value) if isinstance(value, list) else ()
        return next((reason for reason in reasons if reason), "")
    if wrapper is not None:
        return "" if value is None and wrapper[1] == "Nullable" else problem(wrapper[2], value)
    if value is None:
        return "" if declared.startswith(_ANY) else f"{declared} cannot be null"
    integer = _INTEGER.fullmatch(declared)
    if integer is None or not isinstance(value, int | str):
        return ""
    try:
        number = int(value)
    except ValueError:
        # ClickHouse will refuse it.
        return ""
    bits = int(integer[2])
    low, high = (0, 1 << bits) if integer[1] else (-1 << (bits - 1), 1 << (bits - 1))
    return "" if low <= number < high else f"a number is outside of {declared}"
