"""Checks of arguments that several connectors share. Each returns the argument, or raises one sentence."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from streamrt.errors import argument_error

__all__ = [
    "check_flags",
    "check_texts",
    "checked_choice",
    "checked_count",
    "checked_flag",
    "checked_function",
    "checked_seconds",
    "checked_text",
]

T = TypeVar("T")


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
    if not isinstance(value, str) or not value or "\0" in value:
        wanted = "a str without zero characters" if value and isinstance(value, str) else "a non-empty str"
        raise argument_error(
            f"{owner}({name}=...) must be {wanted}, got {_shown(value)}", of_type=isinstance(value, str)
        )
    return value


def check_texts(owner: str, **given: str) -> None:
    """Check several texts; see `checked_text`."""
    for name, text in given.items():
        checked_text(owner, name, text)


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
    number = isinstance(value, int) and not isinstance(value, bool)
    if not number or value < least or (most is not None and value > most):
        bounds = f"{least} or more" if most is None else f"from {least} to {most}"
        raise argument_error(f"{owner}({name}=...) must be an int, {bounds}, got {_shown(value)}", of_type=number)
    return value


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
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # NaN is neither.
    if not number or not value < math.inf or not (value > 0 if least is None else value >= least):
        bounds = "more than 0" if least is None else f"{least:g} or more"
        raise argument_error(
            f"{owner}({name}=...) must be a number of seconds, {bounds}, got {_shown(value)}", of_type=number
        )
    return value


def checked_flag(owner: str, name: str, value: bool) -> bool:
    """Return a bool.

    Args:
        owner: the connector.
        name: the parameter.
        value: the argument.

    Raises:
        ConfigurationError: if it is no bool.

    Example:
        >>> checked_flag("MQTTSink", "tls_enabled", True)
        True
    """
    if not isinstance(value, bool):
        raise argument_error(f"{owner}({name}=...) must be True or False, got {_shown(value)}", of_type=False)
    return value


def check_flags(owner: str, **given: bool) -> None:
    """Check several bools; see `checked_flag`."""
    for name, flag in given.items():
        checked_flag(owner, name, flag)


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


def checked_function(
    owner: str, name: str, value: Callable[..., Any] | None, *, optional: bool = False
) -> Callable[..., Any] | None:
    """Return a function.

    Args:
        owner: the connector.
        name: the parameter.
        value: the argument.
        optional: whether None is allowed.

    Raises:
        ConfigurationError: if it cannot be called.

    Example:
        >>> checked_function("MQTTSink", "value_serializer", str)
        <class 'str'>
    """
    if not callable(value) and not (optional and value is None):
        wanted = "a function or None" if optional else "a function"
        raise argument_error(f"{owner}({name}=...) must be {wanted}, got a {type(value).__name__}", of_type=False)
    return value


def _shown(value: object) -> str:
    """Show numbers and short texts; other values by their type, since they may hold anything."""
    plain = value is None or (isinstance(value, str | int | float) and len(repr(value)) <= 60)
    return repr(value) if plain else f"a {type(value).__name__}"
