"""What operators share about the functions that users give them."""

from collections.abc import Callable
from typing import Any

from streamrt.errors import InvalidOperationError


def require_callable(operator: str, function: Any) -> None:
    """Refuse what cannot be called, when the dataframe is built.

    Raises:
        InvalidOperationError: if `function` is not callable.
    """
    if not callable(function):
        raise InvalidOperationError(f"{operator} needs a function, got {type(function).__name__}")


def function_name(function: Callable[..., Any]) -> str:
    """Return the name by which a person knows a function.

    Example:
        >>> function_name(len), function_name(lambda value: value)
        ('len', '<lambda>')
    """
    name = getattr(function, "__qualname__", None)
    if name is None:
        plain = "__str__" not in vars(type(function))
        name = type(function).__qualname__ if plain else str(function)
    return str(name).rsplit("<locals>.", 1)[-1]
