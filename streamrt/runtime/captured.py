"""Finds the variable or attribute of a function that cannot be sent to another process."""

import dis
import functools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import cloudpickle

from streamrt.operators.functions import function_name


class Captured(NamedTuple):
    """A value that cannot be pickled.

    Attributes:
        holder: the function that uses it, or the object of a method.
        name: the name of the variable or attribute.
        value: the value.
    """

    holder: Any
    name: str
    value: Any

    def __str__(self) -> str:
        kind = "variable" if isinstance(self.holder, FunctionType) else "attribute"
        owner = self.holder if isinstance(self.holder, FunctionType) else type(self.holder)
        return f"{function_name(owner)} uses the {kind} {self.name!r}, which is of type {type(self.value).__name__}"


def captured(item: Any) -> Captured | None:
    """Return the variable of a function that keeps an operator or a function from being pickled, if there is one.

    The search includes the functions that it calls, as far as they are pickled with it.

    Args:
        item: the operator or function that cannot be pickled.

    Example:
        >>> import threading
        >>> lock = threading.Lock()
        >>> str(captured(lambda value: lock.locked()))
        "<lambda> uses the variable 'lock', which is of type lock"
    """
    return _search_item(item, set())


def picklable(item: Any) -> bool:
    """Return whether an object can be sent to another process."""
    try:
        cloudpickle.dumps(item)
    except Exception:  # noqa: BLE001 - any failure means the same here
        return False
    return True


def _search_item(item: Any, seen: set[int]) -> Captured | None:
    seen.add(id(item))
    for part in _iterate_parts(item):
        if id(part.value) in seen or picklable(part.value):
            continue
        deeper = _search_item(part.value, seen)
        if deeper is not None:
            return deeper
        if part.name:
            return part
    return None


def _iterate_parts(item: Any) -> Iterator[Captured]:
    """Yield the variables of a function, or the unnamed parts of an object that holds functions."""
    if isinstance(item, FunctionType):
        for name, value in _outer_variables(item).items():
            yield Captured(item, name, value)
    elif isinstance(item, MethodType):
        owner = item.__self__
        for name, value in getattr(owner, "__dict__", {}).items() if not isinstance(owner, type) else ():
            yield Captured(owner, name, value)
    elif isinstance(item, functools.partial):
        for value in (item.func, *item.args, *item.keywords.values()):
            yield Captured(item, "", value)
    elif isinstance(item, tuple | list):
        for value in item:
            yield Captured(item, "", value)
    elif is_dataclass(item) and not isinstance(item, type):
        for field in fields(item):
            yield Captured(item, "", getattr(item, field.name))


def _outer_variables(function: FunctionType) -> dict[str, Any]:
    """Return the outer variables that a function uses, including those of its inner functions."""
    found = {
        name: function.__globals__[name] for name in _global_names(function.__code__) if name in function.__globals__
    }
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        # A cell is empty before its variable is assigned.
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _global_names(code: CodeType) -> set[str]:
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return names.union(*(_global_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
