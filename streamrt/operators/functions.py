"""What operators share about the functions that users give them."""

from collections.abc import Callable
from typing import Any

from streamrt.errors import InvalidOperationError
from streamrt.models import Headers
from streamrt.topology import StateAccess


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


def with_state(function: Callable[..., Any], metadata: bool, state_of: StateAccess) -> Callable[..., Any]:
    """Turn a function whose last argument is a `State` into one of value, key, timestamp and headers.

    Args:
        function: takes the value, with `metadata` also key, timestamp and headers, and then the state.
        metadata: whether the function takes metadata.
        state_of: gives the state of a record's key.

    Example:
        >>> call = with_state(lambda value, state: (value, state), False, lambda key, timestamp: f"state of {key}")
        >>> call(1, "a", 0, None)
        (1, 'state of a')
    """

    def call_with_metadata(value: Any, key: Any, timestamp: int, headers: Headers | None) -> Any:
        return function(value, key, timestamp, headers, state_of(key, timestamp))

    def call(value: Any, key: Any, timestamp: int, headers: Headers | None) -> Any:
        return function(value, state_of(key, timestamp))

    return call_with_metadata if metadata else call
