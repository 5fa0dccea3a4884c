"""Names of databases, tables and other objects of a catalogue."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from streamrt.arguments import checked, type_name
from streamrt.errors import ArgumentTypeError, ArgumentValueError

__all__ = [
    "IF_EXISTS",
    "IF_MISSING",
    "SUCCESSOR_SUFFIX",
    "check_changes",
    "check_choice",
    "check_name",
    "check_text",
    "check_texts",
    "full_name",
]

SUCCESSOR_SUFFIX = "_next"
"""What the name of a table has behind that of its view while another consumer group has the view."""
IF_EXISTS = ("error", "ignore", "replace")
IF_MISSING = ("error", "ignore")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}", re.ASCII)


def check_name(what: str, name: object) -> str:
    """Return a name of one part.

    Args:
        what: what has the name, for the error.
        name: the name.

    Raises:
        ArgumentTypeError: if it is not a string.
        ArgumentValueError: if it has other characters than letters, digits, `_` and `-`, or more than 100.
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"the name of a {what} must be a text, got {type(name).__name__}")
    if not _NAME.fullmatch(name):
        raise ArgumentValueError(
            f"{name[:120]!r} cannot be the name of a {what}: use 1 to 100 letters, digits, '_' and '-', and no '-' at the "
            "beginning"
        )
    return name


def full_name(name: object, database: str) -> str:
    """Return `<database>.<table>` for such a name, or for a table of a database.

    Args:
        name: name with or without a database.
        database: the database of names without one.

    Example:
        >>> full_name("orders", "shop"), full_name("city.rides", "shop")
        ('shop.orders', 'city.rides')
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"the name of a table must be a text, got {type(name).__name__}")
    given, dot, table = name.partition(".")
    if not dot:
        given, table = database, name
    return f"{check_name('database', given)}.{check_name('table', table)}"


def check_choice(what: str, value: object, choices: Collection[str]) -> None:
    """Refuse a value that is none of some.

    Raises:
        ArgumentValueError: if it is none of them.
    """
    if value not in choices:
        raise ArgumentValueError(f"{what} must be {', '.join(map(repr, choices))}, got {value!r}")


def check_changes(what: str, values: object) -> None:
    """Refuse what is not a mapping of strings to strings, or to None for what is removed; None is accepted.

    Raises:
        ArgumentTypeError: if it is something else.
    """
    if values is None:
        return
    if not isinstance(values, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str | None) for name, value in values.items()
    ):
        raise ArgumentTypeError(f"{what} must have texts as names and values, or None as a value")


def check_text(what: str, value: object) -> None:
    """Refuse what is not a string; None is accepted.

    Raises:
        ArgumentTypeError: if it is something else.
    """
    checked(what, value, str, "a text", optional=True, show=type_name)


def check_texts(what: str, values: Mapping[str, Any] | None) -> dict[str, str]:
    """Return a mapping of strings to strings.

    Raises:
        ArgumentTypeError: if it is something else.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(
        isinstance(name, str) and name and isinstance(value, str) for name, value in values.items()
    ):
        raise ArgumentTypeError(f"{what} must be a mapping of texts to texts")
    return dict(values)
