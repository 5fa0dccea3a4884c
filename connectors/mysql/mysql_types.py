"""Values of MySQL and MariaDB to JSON values, for `MySQLCdcSource`: from queries and from the binary log alike."""

import base64
import codecs
import datetime
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal

import orjson

__all__ = ["SUPPORTED", "Decimals", "choose_codec", "from_state", "kind_of_field", "to_json", "to_state"]

Decimals = Literal["string", "float"]
"""How `DECIMAL` is written: as a string, which is exact, or as a float."""

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TIMES = ("date", "datetime", "timestamp", "time", "year")
_SHAPES = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geometrycollection", "geomcollection"),
)
SUPPORTED = frozenset(
    (*_INTEGERS, *_TEXTS, *_BYTES, *_TIMES, *_SHAPES, "decimal", "float", "double", "bit", "enum", "set", "json")
)
"""Types that the client of the binary log can read."""

ORDERED = frozenset((*_INTEGERS, *_TIMES, "char", "varchar", "binary", "varbinary", "decimal"))
"""Types of keys that are sorted in the same way as they are compared with a value."""


# The server writes the longer units with the most significant byte first; Python would take the order of the machine.
_CODECS = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}


def choose_codec(column: Any) -> None:
    """Make the client of the binary log read the strings of a column as the server has written them.

    Args:
        column: the column, as the client describes it; it is changed once.

    Raises:
        ValueError: if they cannot be read.
    """
    name = column.character_set_name
    if name in (None, "binary") or getattr(column, "is_decodable", False):
        return
    from pymysql.charset import charset_by_name

    charset = charset_by_name(name)
    codec = _CODECS.get(name, charset.encoding if charset else name)
    try:
        codecs.lookup(codec)
    except LookupError:
        raise ValueError(f"its character set {name} cannot be read from the log: convert it to utf8mb4") from None
    members = [*(column.enum_values or ())[1:], *(column.set_values or ())]
    if members and codecs.lookup(codec).name != "utf-8":
        # The client takes them for UTF-8, and drops those that are none.
        if not all(members):
            raise ValueError(f"a member in the character set {name} cannot be read from the log: convert it to utf8mb4")
        if column.enum_values:
            column.enum_values = ["", *(member.encode().decode(codec) for member in column.enum_values[1:])]
        if column.set_values:
            column.set_values = [member.encode().decode(codec) for member in column.set_values]
    column.character_set_name, column.is_decodable = codec, True


def kind_of_field(column: Any) -> str:
    """Return the kind of a column of the binary log.

    Args:
        column: the column, as the client describes it.
    """
    from pymysqlreplication.constants import FIELD_TYPE as types  # noqa: N811

    kinds = {
        types.FLOAT: "float",
        types.BIT: "bit",
        types.TIMESTAMP: "timestamp",
        types.TIMESTAMP2: "timestamp",
        types.YEAR: "year",
        types.SET: "set",
        types.JSON: "json",
    }
    if column.type == types.STRING and column.character_set_name == "binary":
        return "binary"
    return kinds.get(column.type, "")


def to_json(kind: str, value: Any, decimals: Decimals, *, width: int = 0, members: Sequence[str] = ()) -> Any:
    """Return a value as JSON.

    Args:
        kind: type of the column, if its values need it.
        value: the value, as a client returns it.
        decimals: how decimals are written.
        width: length of a `BINARY`.
        members: members of a `SET`, in their order.

    Raises:
        ValueError: if it has no such form.

    Example:
        >>> to_json("decimal", Decimal("1.50"), "string"), to_json("", b"a", "string")
        ('1.50', 'YQ==')
    """
    if value is None:
        return None
    if kind in _SPECIAL:
        return _SPECIAL[kind](value, width, members)
    if isinstance(value, Decimal):
        return float(value) if decimals == "float" else format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.timedelta):
        return _format_duration(value)
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    # Dates such as 0000-00-00 are not dates; the binary log's client has nothing for them either.
    return None if kind in ("date", "datetime") else value


def to_state(value: Any) -> Any:
    """Return a value of a key as JSON, from which `from_state` makes an argument of a query.

    Args:
        value: the value.
    """
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime.timedelta):
        return _format_duration(value)
    return str(value) if isinstance(value, datetime.date) else value


def from_state(value: Any) -> Any:
    """Return the argument of a query that `to_state` has written.

    Args:
        value: its result.

    Example:
        >>> from_state(to_state(b"a"))
        b'a'
    """
    if isinstance(value, dict):
        return base64.b64decode(value["bytes"]) if "bytes" in value else Decimal(value["decimal"])
    return value


def _format_duration(value: datetime.timedelta) -> str:
    sign = "-" if value < datetime.timedelta() else ""
    value = abs(value)
    minutes, seconds = divmod(value.days * 86_400 + value.seconds, 60)
    fraction = f".{value.microseconds:06}" if value.microseconds else ""
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}:{seconds:02}{fraction}"


def _shorten_float(value: Any, width: int, members: Sequence[str]) -> Any:
    """Return the shortest number that has the same four bytes."""
    packed = struct.pack("f", value)
    for digits in range(6, 10):
        shorter = float(f"{value:.{digits}g}")
        if struct.pack("f", shorter) == packed:
            return shorter
    return float(value)


def _read_bits(value: Any, width: int, members: Sequence[str]) -> int:
    return int(value, 2) if isinstance(value, str) else int.from_bytes(value, "big")


def _format_timestamp(value: Any, width: int, members: Sequence[str]) -> str | None:
    # Zero stands for no time.
    if not isinstance(value, datetime.datetime) or value == datetime.datetime(1970, 1, 1):
        return None
    return value.isoformat() + "+00:00"


def _read_year(value: Any, width: int, members: Sequence[str]) -> int:
    # The binary log's client also adds 1900 to zero.
    return 0 if value == 1900 else int(value)


def _read_set(value: Any, width: int, members: Sequence[str]) -> list[str]:
    chosen = set(value.split(",")) if isinstance(value, str) else set(value)
    return [member for member in members if member in chosen]


def _read_json(value: Any, width: int, members: Sequence[str]) -> Any:
    return orjson.loads(value) if isinstance(value, str) else _decode_json(value)


def _decode_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {_decode_json(name): _decode_json(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_decode_json(member) for member in value]
    if isinstance(value, Decimal):
        return float(value)
    return value.decode() if isinstance(value, bytes) else value


def _encode_binary(value: Any, width: int, members: Sequence[str]) -> str:
    # The binary log has no zeros at the end.
    return base64.b64encode(value.ljust(width, b"\0")).decode()


_SPECIAL = {
    "binary": _encode_binary,
    "bit": _read_bits,
    "float": _shorten_float,
    "json": _read_json,
    "set": _read_set,
    "timestamp": _format_timestamp,
    "year": _read_year,
}
