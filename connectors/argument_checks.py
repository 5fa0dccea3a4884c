"""Checks of arguments that several connectors share. Each returns the argument, or raises one sentence."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from types import UnionType
from typing import Any, TypeVar

from streamrt.arguments import checked, refuse_async
from streamrt.errors import ArgumentTypeError, argument_error

__all__ = [
    "check_flags",
    "check_known",
    "check_texts",
    "checked_choice",
    "checked_count",
    "checked_flag",
    "checked_function",
    "checked_seconds",
    "checked_strings",
    "checked_text",
    "checked_type",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any] | None)


def checked_type(
    owner: str,
    name: str,
    value: T,
    types: type[Any] | UnionType,
    wanted: str,
    valid: Callable[[Any], object] | None = None,
    *,
    optional: bool = False,
    hidden: bool = False,
) -> T:
    """Return an argument that has one of several types and, if `valid` is given, fulfils a condition.

    Args:
        owner: the connector.
        name: the parameter.
        value: the argument.
        types: the allowed types; a bool is an int only if they contain bool.
        wanted: what the argument must be, for the error.
        valid: returns something true for an allowed value of these types.
        optional: whether None is allowed.
        hidden: whether the error shows only the type, since the argument may contain a secret.

    Raises:
        ConfigurationError: if it has another type, or is not valid.

    Example:
        >>> checked_type("RateSource", "rate", 2.5, int | float, "more than 0", lambda rate: rate > 0)
        2.5
    """
    show = _type_shown if hidden else _shown
    return checked(f"{owner}({name}=...)", value, types, wanted, valid, optional=optional, show=show)


def checked_text(owner: str, name: str, value: str) -> str:
    """Return a text that is not empty, and has no zero characters.

    Args:
        owner: the connector.
        name: the parameter.
        value: the argument.

    Raises:
        ConfigurationError: if it is something else.

    Example:
        >>> checked_text("MQTTSink", "server", "localhost")
        'localhost'
    """
    wanted = "a str without zero characters" if value and isinstance(value, str) else "a non-empty str"
    return checked_type(owner, name, value, str, wanted, lambda text: text and "\0" not in text)


def check_texts(owner: str, **given: str) -> None:
    """Check several strings; see `checked_text`."""
    for name, text in given.items():
        checked_text(owner, name, text)


def checked_strings(owner: str, name: str, value: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of a dict of strings, which may contain secrets.

    Args:
        owner: the connector.
        name: the parameter.
        value: the argument.

    Raises:
        ConfigurationError: if it is something else.

    Example:
        >>> checked_strings("DeltaSink", "configuration", {"delta.appendOnly": "true"})
        {'delta.appendOnly': 'true'}
    """
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise ArgumentTypeError(f"{owner}({name}=...) must be a dict of strings")
    return dict(value)


def checked_count(owner: str, name: str, value: int, least: int = 1, most: int | None = None) -> int:
    """Return an int within its bounds.

    Args:
        owner: the connector.
        name: the parameter.
        value: the argument.
        least: the least allowed value.
        most: the greatest allowed value, if any.

    Raises:
        ConfigurationError: if it is out of bounds or no int.

    Example:
        >>> checked_count("MQTTSink", "port", 1883, 1, 65_535)
        1883
    """
    wanted = f"an int, {least} or more" if most is None else f"an int, from {least} to {most}"
    return checked_type(
        owner, name, value, int, wanted, lambda count: count >= least and (most is None or count <= most)
    )


def checked_seconds(owner: str, name: str, value: float, *, least: float | None = None) -> float:
    """Return a finite number of seconds.

    Args:
        owner: the connector.
        name: the parameter.
        value: the argument.
        least: the least allowed value; by default, every number above 0 is allowed.

    Raises:
        ConfigurationError: if it is too small, infinite, or no number.

    Example:
        >>> checked_seconds("WebhookSink", "timeout", 2.5)
        2.5
    """
    wanted = f"a number of seconds, {'more than 0' if least is None else f'{least:g} or more'}"

    def is_valid(seconds: float) -> bool:
        # NaN is neither.
        return seconds < math.inf and (seconds > 0 if least is None else seconds >= least)

    return checked_type(owner, name, value, int | float, wanted, is_valid)


def checked_flag(owner: str, name: str, value: bool) -> bool:
    """Return a bool.

    Args:
        owner: the connector.
        name: the parameter.
        value: the argument.

    Raises:
        ConfigurationError: if it is not a bool.

    Example:
        >>> checked_flag("MQTTSink", "tls_enabled", True)
        True
    """
    return checked_type(owner, name, value, bool, "True or False")


def check_flags(owner: str, **given: bool) -> None:
    """Check several bools; see `checked_flag`."""
    for name, flag in given.items():
        checked_flag(owner, name, flag)


def check_known(owner: str, given: Iterable[str], known: Collection[str], of: str, hint: str = "") -> None:
    """Check that a connector passes on every argument it got for a function.

    Args:
        owner: the connector.
        given: the names of the arguments.
        known: the names that it passes on.
        of: the function.
        hint: what follows in the error.

    Raises:
        ConfigurationError: if a name is another one.

    Example:
        >>> check_known("BigQuerySink", {"default_query_job_config": None}, ("default_query_job_config",), "bigquery.Client")
    """
    unknown = sorted(set(given).difference(known))
    if unknown:
        raise ArgumentTypeError(
            f"{owner} got unknown arguments: {', '.join(unknown)}; of those of {of} it takes {', '.join(known)}{hint}"
        )


def checked_choice(owner: str, name: str, value: T, choices: tuple[T, ...]) -> T:
    """Return one of several values.

    Args:
        owner: the connector.
        name: the parameter.
        value: the argument.
        choices: the allowed values, all of one type.

    Raises:
        ConfigurationError: if it is another value.

    Example:
        >>> checked_choice("MQTTSink", "qos", 1, (0, 1, 2))
        1
    """
    of_type = type(value) is type(choices[0])
    if not of_type or value not in choices:
        allowed = ", ".join(str(choice) for choice in choices)
        raise argument_error(f"{owner}({name}=...) must be one of {allowed}, got {_shown(value)}", of_type=of_type)
    return value


def checked_function(owner: str, name: str, value: F, *, optional: bool = False) -> F:
    """Return a function.

    Args:
        owner: the connector.
        name: the parameter.
        value: the argument.
        optional: whether None is allowed.

    Raises:
        ConfigurationError: if it cannot be called, or is asynchronous.

    Example:
        >>> checked_function("MQTTSink", "value_serializer", str)
        <class 'str'>
    """
    if not callable(value) and not (optional and value is None):
        wanted = "a function or None" if optional else "a function"
        raise ArgumentTypeError(f"{owner}({name}=...) must be {wanted}, got {_type_shown(value)}")
    refuse_async(f"{owner}({name}=...)", value)
    return value


def _shown(value: object) -> str:
    """Show numbers and short strings; other values by their type, since they may hold anything."""
    if value is None or (isinstance(value, str | int | float) and len(repr(value)) <= 60):
        return repr(value)
    return _type_shown(value) + (f" of {len(value)} characters" if isinstance(value, str) else "")


def _type_shown(value: object) -> str:
    return f"a {type(value).__name__}"
