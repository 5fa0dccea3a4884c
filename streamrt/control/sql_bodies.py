"""Statements of SQL and their arguments as JSON, for the server and for its client.

Values that JSON has none for are objects with one name: `{"$decimal": "1.10"}`, `{"$date": "2026-01-31"}`,
`{"$timestamp": "2026-01-31T10:00:00"}`, and `{"$base64": "..."}` for bytes.
"""

import base64
import binascii
import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from streamrt.common.texts import one_line
from streamrt.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["LONGEST_TEXT", "SQLBody", "parse_body", "show_argument"]

LONGEST_TEXT = 100_000
"""Characters of a statement; its parser takes as much time as there is text. Values belong into arguments."""

_QUERY = frozenset({"sql", "args", "limit", "timeout", "after", "max_scan_bytes", "id"})
_EXECUTE = frozenset({"sql", "args", "timeout"})
_READERS: Mapping[str, Callable[[str], Any]] = {
    "$decimal": Decimal,
    "$date": dt.date.fromisoformat,
    "$timestamp": lambda text: dt.datetime.fromisoformat(
        text.removesuffix("Z") + ("+00:00" if text[-1:] == "Z" else "")
    ),
    "$base64": lambda text: base64.b64decode(text, validate=True),
}


@dataclass(frozen=True)
class SQLBody:
    """The body of `POST /query` and `POST /execute`.

    Attributes:
        sql: the statement.
        args: values of its parameters.
        limit: most rows; None for all.
        timeout: seconds of work; None for as many as the server allows.
        after: a completion token.
        max_scan_bytes: bytes of records; None for as many as the server allows.
        id: the name of the query; None for one of the server.
    """

    sql: str
    args: Mapping[str, Any] | None = None
    limit: int | None = None
    timeout: float | None = None
    after: str | None = None
    max_scan_bytes: int | None = None
    id: str | None = None


def parse_body(body: bytes, *, is_query: bool) -> SQLBody:
    """Return what a body says.

    Args:
        body: JSON.
        is_query: whether it is one of `/query`.

    Raises:
        ArgumentValueError: if it is something else. Types are checked as well.

    Example:
        >>> parse_body(b'{"sql": "SELECT :a AS a", "args": {"a": {"$decimal": "1.10"}}}', is_query=True).args
        {'a': Decimal('1.10')}
    """
    try:
        found = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise ArgumentValueError('the body must be a JSON object such as {"sql": "SELECT 1 AS one"}') from None
    if not isinstance(found, dict) or not isinstance(found.get("sql"), str):
        raise ArgumentValueError('the body must be a JSON object with the statement: {"sql": "SELECT 1 AS one"}')
    known = _QUERY if is_query else _EXECUTE
    unknown = sorted(set(found) - known)
    if unknown:
        raise ArgumentValueError(f"the body has {one_line(unknown[0])!r}; it takes {', '.join(sorted(known))}")
    sql, args, after, name = found["sql"], found.get("args"), found.get("after"), found.get("id")
    if len(sql) > LONGEST_TEXT:
        raise ArgumentValueError(f"a statement has at most {LONGEST_TEXT:,} characters: put values into args")
    _require_text("sql", sql)
    if args is not None and not isinstance(args, dict):
        raise ArgumentTypeError("args must be an object with the values of parameters by name")
    for word, value in (("after", after), ("id", name)):
        if value is not None and not isinstance(value, str):
            raise ArgumentTypeError(f"{word} must be a text")
    if name is not None and not (0 < len(name) <= 64 and name.isascii() and name.replace("-", "").isalnum()):
        raise ArgumentValueError("id must have 1 to 64 letters, digits and hyphens of ASCII")
    arguments = None if args is None else {_require_text("args", each): _read_argument(args[each]) for each in args}
    limits = {word: _read_number(word, found.get(word)) for word in ("limit", "max_scan_bytes")}
    timeout = found.get("timeout")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0):
        raise ArgumentValueError("timeout must be a number of seconds above 0")
    return SQLBody(sql, arguments, limits["limit"], timeout, after, limits["max_scan_bytes"], name)


def show_argument(value: Any) -> Any:
    """Return the value of a parameter for JSON.

    Args:
        value: None, a bool, a number, a text, bytes, a date, a datetime, or a list of them.

    Raises:
        ArgumentTypeError: if it is something else.

    Example:
        >>> show_argument([1, b"ab"])
        [1, {'$base64': 'YWI='}]
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [show_argument(each) for each in value]
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, dt.datetime):
        return {"$timestamp": value.isoformat()}
    if isinstance(value, dt.date):
        return {"$date": value.isoformat()}
    if isinstance(value, bytes | bytearray):
        return {"$base64": base64.b64encode(value).decode()}
    raise ArgumentTypeError(
        "args must be None, bools, numbers, texts, bytes, dates, datetimes and lists of them, got "
        f"{type(value).__name__}"
    )


def _read_argument(value: Any, *, is_nested: bool = False) -> Any:
    if isinstance(value, str):
        return _require_text("args", value)
    if isinstance(value, list) and not is_nested:
        return [_read_argument(each, is_nested=True) for each in value]
    if not isinstance(value, dict | list):
        return value
    word, text = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", None)
    if word not in _READERS or not isinstance(text, str):
        raise ArgumentValueError(
            f"args takes null, booleans, numbers, texts, lists of them, and objects with one of {', '.join(_READERS)}"
        )
    try:
        return _READERS[word](text)
    except (ValueError, ArithmeticError, binascii.Error):
        raise ArgumentValueError(f"args: a {word} has a text that is none") from None


def _read_number(word: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentValueError(f"{word} must be a whole number, 0 or above")
    return value


def _require_text(word: str, text: str) -> str:
    """Raise if a text has halves of characters, which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentValueError(f"{word} has an unpaired surrogate, which is not a character") from None
    return text
