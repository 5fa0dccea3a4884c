"""Checks of arguments: each returns the argument, or raises one sentence that names it."""

import functools
import inspect
from collections.abc import Callable
from types import UnionType
from typing import Any, TypeVar, get_args

from streamrt.errors import ArgumentTypeError, argument_error

__all__ = ["checked", "checked_choice", "checked_int", "is_async", "is_async_generator", "refuse_async", "type_name"]

T = TypeVar("T")


def type_name(value: object) -> str:
    """Return the type of a value, for errors that must not show the value."""
    return type(value).__name__


def checked(
    what: str,
    value: T,
    types: type[Any] | UnionType,
    wanted: str,
    valid: Callable[[Any], object] | None = None,
    *,
    optional: bool = False,
    show: Callable[[object], str] = repr,
) -> T:
    """Return an argument that has one of several types and, if `valid` is given, fulfils a condition.

    Args:
        what: the argument, for the error, such as `run(timeout=...)`.
        value: the argument.
        types: the allowed types; a bool is an int only if they contain bool.
        wanted: what the argument must be, for the error.
        valid: returns something true for an allowed value of these types.
        optional: whether None is allowed.
        show: returns what the error says about a wrong argument.

    Raises:
        ArgumentTypeError: if it has another type.
        ArgumentValueError: if it is not valid.

    Example:
        >>> checked("wait(timeout=...)", 2.5, int | float, "0 or more seconds", lambda seconds: seconds >= 0)
        2.5
        >>> checked("wait(timeout=...)", "soon", int | float, "0 or more seconds")
        Traceback (most recent call last):
        streamrt.errors.ArgumentTypeError: wait(timeout=...) must be 0 or more seconds, got 'soon'
    """
    if optional and value is None:
        return value
    of_type = isinstance(value, types) and (not isinstance(value, bool) or bool in (get_args(types) or (types,)))
    if not of_type or (valid is not None and not valid(value)):
        raise argument_error(f"{what} must be {wanted}, got {show(value)}", of_type=of_type)
    return value


def checked_int(what: str, value: int, least: int, wanted: str = "an int") -> int:
    """Return an int that is not too low; see `checked`.

    Args:
        what: the argument.
        value: the argument.
        least: the least allowed value.
        wanted: what arguments of other types must be.
    """
    checked(what, value, int, wanted, show=type_name)
    return checked(what, value, int, f"{least} or more", lambda number: number >= least)


def checked_choice(what: str, value: T, choices: tuple[T, ...], wanted: str | None = None) -> T:
    """Return one of several values, all of one type; see `checked`.

    Args:
        what: the argument.
        value: the argument.
        choices: the allowed values.
        wanted: what the argument must be; by default, the values with "or" before the last one.

    Example:
        >>> checked_choice("stop(at=...)", "now", ("start", "end"))
        Traceback (most recent call last):
        streamrt.errors.ArgumentValueError: stop(at=...) must be 'start' or 'end', got 'now'
    """
    *others, last = map(repr, choices)
    shown = f"{', '.join(others)} or {last}" if wanted is None else wanted
    return checked(what, value, type(choices[0]), shown, lambda choice: choice in choices)


def is_async(function: object) -> bool:
    """Return whether a call of a function, or of an object, returns a coroutine or an asynchronous generator.

    Example:
        >>> async def fetch(value): ...
        >>> is_async(fetch), is_async(functools.partial(fetch, 1)), is_async(len)
        (True, True, False)
    """
    return _calls(function, inspect.iscoroutinefunction) or is_async_generator(function)


def is_async_generator(function: object) -> bool:
    """Return whether a call of a function, or of an object, returns an asynchronous generator.

    Example:
        >>> async def fetch_all(value): yield value
        >>> is_async_generator(functools.partial(fetch_all, 1)), is_async_generator(len)
        (True, False)
    """
    return _calls(function, inspect.isasyncgenfunction)


def _calls(function: object, is_kind: Callable[[object], bool]) -> bool:
    """Return whether a function of a kind runs when an object is called."""
    while isinstance(function, functools.partial):
        function = function.func
    return is_kind(function) or is_kind(getattr(type(function), "__call__", None))  # noqa: B004 - it may be asynchronous


def refuse_async(what: str, function: object, cure: str = "define it without 'async'") -> None:
    """Refuse a function that is defined by `async def` where its result is not awaited: its body would never run.

    Args:
        what: the argument, for the error, such as `filter()`.
        function: the argument, of any type.
        cure: what to do instead.

    Raises:
        ArgumentTypeError: if it is asynchronous.
    """
    if is_async(function):
        name = getattr(function, "__name__", type_name(function))
        raise ArgumentTypeError(
            f"{what} needs a function that does not wait, and {name} is defined by 'async def', so its body would never run: "
            f"{cure}"
        )
