r"""Bytes that are ordered as values are, and equal for equal values. The format outlives the program.

Each value begins with a tag. `1`, `1.0`, `True` and `Decimal("1.00")` are equal in Python, so they have the same bytes; all
NaN are one value, above all other numbers. Values of types that cannot be compared are ordered by their tags.

| tag | values | bytes |
|-----|--------|-------|
| 0x01 | None | |
| 0x02 | numbers | class; exponent and digits for finite ones other than 0 |
| 0x03 | str | UTF-8 |
| 0x04 | bytes | themselves |
| 0x05 | datetime.date | its ordinal, 4 bytes |
| 0x06, 0x07 | datetime without and with UTC offset | microseconds since 0001-01-01, in UTC, 8 bytes |
| 0x08, 0x09 | time without and with UTC offset | microseconds since midnight, in UTC, 8 bytes |
| 0x0A | timedelta | as the number of its microseconds |
| 0x0B | list, tuple | its items, each ended, and the end |
| 0x0C | dict | keys and values by the bytes of keys, as a list |

Numbers are big-endian, with 2**63 added if they may be negative. The **class** of a number is 0 for -inf, 1 below 0, 2 for
0, 3 above 0, 4 for inf and 5 for NaN. The **exponent** is that of the first decimal digit (8 bytes), and **digits** are those
of the exact decimal form, without zeros at the end, each as its character; below 0, all bytes are subtracted from 0xFF.
Inside lists, 0x00 is written as `00 FF`, an item ends with `00 01`, and the list with `00 00`: so a shorter one is before a
longer one.

The columns of a row, each in its direction, are written one after the other: 0x01 and the value, ended as an item, or 0x02
for None. If the direction is descending, all bytes of the item are subtracted from 0xFF.
"""

import datetime
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final

from streamrt.errors import SerializationError

__all__ = ["order_bytes", "order_columns"]

_BIAS: Final = 1 << 63
_INVERT: Final = bytes(range(255, -1, -1))
_ZERO, _INFINITE, _MINUS_INFINITE, _NAN = b"\x02\x02", b"\x02\x04", b"\x02\x00", b"\x02\x05"
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_FIRST: Final = datetime.datetime(1, 1, 1)


def order_bytes(value: Any) -> bytes:
    r"""Return bytes of a value that are ordered as values are.

    Args:
        value: None, a number, str, bytes, date or time, or a list, tuple or dict of them.

    Raises:
        SerializationError: if it has another type.

    Example:
        >>> sorted([10, Decimal("9.5"), -3, 0.1], key=order_bytes)
        [-3, 0.1, Decimal('9.5'), 10]
        >>> order_bytes(1) == order_bytes(1.0), order_bytes("ab")
        (True, b'\x03ab')
    """
    kind = type(value)
    write = _WRITERS.get(kind)
    if write is None:
        for known, writer in _WRITERS.items():
            # A subclass of date may be a datetime, which comes first.
            if isinstance(value, known):
                return writer(value)
        raise SerializationError(f"a value of type {kind.__name__} cannot be compared with others")
    return write(value)


def order_columns(columns: Iterable[tuple[Any, bool]]) -> bytes:
    """Return bytes that are ordered by several columns, the first one first. None comes last, in both directions.

    Args:
        columns: the value of each column, and whether it is descending.

    Raises:
        SerializationError: if a value has a type that is not ordered.

    Example:
        >>> rows = [(5, 1), (None, 0), (7, 2), (7, 1)]
        >>> sorted(rows, key=lambda row: order_columns([(row[0], True), (row[1], False)]))
        [(7, 1), (7, 2), (5, 1), (None, 0)]
    """
    return b"".join(_write_column(value, descending) for value, descending in columns)


def _write_column(value: Any, descending: bool) -> bytes:
    if value is None:
        return b"\x02"
    item = _end_item(order_bytes(value))
    return b"\x01" + (item.translate(_INVERT) if descending else item)


def _end_item(item: bytes) -> bytes:
    return item.replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def _write_int(value: int) -> bytes:
    if not value:
        return _ZERO
    try:
        digits = int.__repr__(abs(value))
    except ValueError as error:
        raise SerializationError(f"a number cannot be stored: {error}") from error
    return _write_digits(value < 0, len(digits) - 1, digits)


def _write_float(value: float) -> bytes:
    if math.isfinite(value):
        return _write_int(int(value)) if value.is_integer() else _write_decimal(Decimal(value))
    return _NAN if math.isnan(value) else _INFINITE if value > 0 else _MINUS_INFINITE


def _write_decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        return _NAN if value.is_nan() else _INFINITE if value > 0 else _MINUS_INFINITE
    if not value:
        return _ZERO
    # Exact: without a precision, nothing is rounded.
    digits, _, exponent = format(value.copy_abs(), "E").partition("E")
    return _write_digits(value < 0, int(exponent), digits.replace(".", ""))


def _write_digits(negative: bool, exponent: int, digits: str) -> bytes:
    data = (exponent + _BIAS).to_bytes(8, "big") + digits.rstrip("0").encode()
    # The end of the digits must be above further ones below 0.
    return b"\x02\x01" + (data + b"\x00").translate(_INVERT) if negative else b"\x02\x03" + data


def _write_str(value: str) -> bytes:
    return b"\x03" + value.encode("utf-8", "surrogatepass")


def _write_datetime(value: datetime.datetime) -> bytes:
    offset = value.utcoffset()
    time = (value.replace(tzinfo=None) - _FIRST) // _MICROSECOND
    if offset is None:
        return b"\x06" + (time + _BIAS).to_bytes(8, "big")
    return b"\x07" + (time - offset // _MICROSECOND + _BIAS).to_bytes(8, "big")


def _write_time(value: datetime.time) -> bytes:
    offset = value.utcoffset()
    time = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if offset is None:
        return b"\x08" + (time + _BIAS).to_bytes(8, "big")
    return b"\x09" + (time - offset // _MICROSECOND + _BIAS).to_bytes(8, "big")


def _write_items(items: list[bytes]) -> bytes:
    return b"".join(map(_end_item, items)) + b"\x00\x00"


def _write_dict(value: dict[Any, Any]) -> bytes:
    pairs = sorted((order_bytes(key), order_bytes(item)) for key, item in value.items())
    return b"\x0c" + _write_items([part for pair in pairs for part in pair])


_WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    bool: _write_int,
    int: _write_int,
    float: _write_float,
    str: _write_str,
    type(None): lambda value: b"\x01",
    Decimal: _write_decimal,
    bytes: lambda value: b"\x04" + value,
    datetime.datetime: _write_datetime,
    datetime.date: lambda value: b"\x05" + value.toordinal().to_bytes(4, "big"),
    datetime.time: _write_time,
    datetime.timedelta: lambda value: b"\x0a" + _write_int(value // _MICROSECOND)[1:],
    list: lambda value: b"\x0b" + _write_items([order_bytes(item) for item in value]),
    tuple: lambda value: b"\x0b" + _write_items([order_bytes(item) for item in value]),
    dict: _write_dict,
}
