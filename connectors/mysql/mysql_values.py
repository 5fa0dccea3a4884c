"""Values as MySQL and MariaDB take them: types of columns, literals of statements, reasons of errors."""

import datetime
import decimal
import math
import re
import uuid
from collections.abc import Collection
from typing import Any

from streamrt.connectors.sql.sql_rows import json_text

__all__ = ["code_of", "column_of", "is_about_rows", "key_type", "literal", "reason_of", "type_of"]

_LARGEST_BIGINT = 1 << 63
# DECIMAL holds 65 digits.
_LARGEST_DECIMAL = 10**65
_TEXT = "LONGTEXT CHARACTER SET utf8mb4"

# What the server says, without the values that its messages quote.
_REASONS = {
    1048: "null is not allowed",
    1062: "its key exists",
    1064: "the statement is not understood",
    1142: "the user lacks the right",
    1143: "the user lacks the right",
    1153: "the row is larger than max_allowed_packet",
    1264: "it is out of range",
    1265: "it would be cut",
    1292: "it is not of the column's type",
    1364: "it is missing, and the column has no default",
    1366: "it is not of the column's type",
    1367: "it is out of range",
    1406: "it is too long",
    1452: "a foreign key refers to no row",
    1665: "binlog_format=STATEMENT does not allow READ COMMITTED",
    3140: "it is not JSON",
    3819: "a CHECK constraint forbids it",
    4025: "a CHECK constraint forbids it, such as that of JSON",
}
# Rights, names, syntax, settings of the server.
_LASTING = frozenset({
    1044, 1045, 1046, 1049, 1054, 1064, 1142, 1143, 1146, 1148, 1227, 1290, 1347, 1356, 1370, 1449, 1665, 1792, 3159,
})  # fmt: skip
_COLUMNS = (
    re.compile(r"for column (?:`[^`]*`\.`[^`]*`\.)?[`'](.+)[`'] at row \d+$", re.DOTALL),
    re.compile(r"^(?:Column|Field) '(.+)' (?:cannot be null|doesn't have a default value)$", re.DOTALL),
)


def type_of(value: Any) -> str | None:
    """Return the type of a column for a value; None for a value that no column can hold."""
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        if -_LARGEST_BIGINT <= value < _LARGEST_BIGINT:
            return "BIGINT"
        return "DECIMAL(65, 0)" if abs(value) < _LARGEST_DECIMAL else None
    types: tuple[tuple[Any, str], ...] = (
        (float, "DOUBLE"),
        (str, _TEXT),
        ((bytes, bytearray, memoryview), "LONGBLOB"),
        # A datetime is also a date.
        (datetime.datetime, "DATETIME(6)"),
        (datetime.date, "DATE"),
        ((datetime.time, datetime.timedelta), "TIME(6)"),
        (decimal.Decimal, "DECIMAL(65, 30)"),
        (uuid.UUID, "CHAR(36) CHARACTER SET ascii"),
        ((dict, list, tuple), "JSON"),
    )
    return next((kind for classes, kind in types if isinstance(value, classes)), None)


def key_type(kind: str, collation: str) -> str:
    """Return the type of a column of a primary key: an index holds a limited number of bytes.

    Args:
        kind: the type of the column outside a key.
        collation: the collation for text, one in which equal strings have the same characters.
    """
    if kind == _TEXT:
        return f"VARCHAR(255) CHARACTER SET utf8mb4 COLLATE {collation}"
    return "VARBINARY(255)" if kind == "LONGBLOB" else kind


def literal(value: Any) -> bytes:
    """Return a value as a part of a statement.

    Raises:
        ValueError: if the database cannot hold the value; the reason does not quote it.
    """
    if value is None:
        return b"NULL"
    if isinstance(value, str):
        return _quoted_text(value)
    if isinstance(value, bool | int):
        return b"%d" % value
    if isinstance(value, float | decimal.Decimal):
        return _encode_number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return b"_binary" + _quote_bytes(bytes(value))
    if isinstance(value, dict | list | tuple):
        return _quoted_text(json_text(value))
    return _quoted_text(_text_of(value))


def _encode_number(value: float | decimal.Decimal) -> bytes:
    if not (value.is_finite() if isinstance(value, decimal.Decimal) else math.isfinite(value)):
        raise ValueError("the database has no NaN and no infinity: replace it before sink()")
    if isinstance(value, decimal.Decimal):
        return f"{value:f}".encode()
    text = repr(float(value))
    # An exponent marks a double; other literals with a point are decimals.
    return (text if "e" in text else f"{text}e0").encode()


def _text_of(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        utc = value if value.tzinfo is None else value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return utc.isoformat(" ")
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        raise ValueError("a time of day has no time zone in the database: remove it before sink()")
    if isinstance(value, datetime.timedelta):
        sign, length = ("-", -value) if value < datetime.timedelta() else ("", value)
        minutes, seconds = divmod(length.days * 86_400 + length.seconds, 60)
        return f"{sign}{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{length.microseconds:06}"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    raise ValueError(f"no column holds the type {type(value).__name__}: convert it with apply() before sink()")


def _quoted_text(text: str) -> bytes:
    try:
        return _quote_bytes(text.encode())
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode") from None


def _quote_bytes(data: bytes) -> bytes:
    # The connection sets utf8mb4, in which no other character contains these bytes, and an sql_mode in which a
    # backslash escapes.
    return b"'" + data.replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\0", b"\\0") + b"'"


def code_of(error: BaseException) -> int:
    """Return the number of an error of the driver; 0 if it has none."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def reason_of(code: int) -> str:
    """Return the reason of an error of the server."""
    known = _REASONS.get(code)
    return f"{known} (MySQL error {code})" if known else f"MySQL error {code}"


def is_about_rows(code: int) -> bool:
    """Return whether an error of the server is about rows; missing rights and tables concern all of them."""
    return code not in _LASTING


def column_of(text: str, columns: Collection[str]) -> str | None:
    """Return the column that an error of the server names; None if it names none."""
    found = next((match[1] for match in (pattern.search(text) for pattern in _COLUMNS) if match), None)
    return found if found in columns else None
