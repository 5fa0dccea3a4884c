"""Windows that are not complete yet: what they have in common, and errors for those that are used as dataframes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

from streamrt.errors import UnfinishedWindowError

__all__ = ["NOT_EMITTED", "AddWindow", "refuse_use_as_frame"]

NOT_EMITTED: Final = "say when it is emitted, by .final() or .current(), and continue with the returned frame"

T = TypeVar("T")
# A dataframe.
F = TypeVar("F")

AddWindow = Callable[..., F]
"""Function of the name of a store, the operator of a window and its clock, if it may have one; adds it to a dataframe, and
returns the new frame."""


def refuse_use_as_frame(
    advice: str, never: Mapping[str, str] | None = None, kind: str = "a window"
) -> Callable[[type[T]], type[T]]:
    """Return a class decorator: the use of an object as a dataframe raises an error with advice.

    Args:
        advice: the methods to call first.
        never: advice for methods that such an object never has, by name.
        kind: what the object is, for the errors of these methods.
    """

    def missing_attribute(self: Any, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        if never and name in never:
            raise UnfinishedWindowError(f"{kind} has no {name}: {never[name]}")
        raise UnfinishedWindowError(f"a window has no {name} yet: {advice}")

    def missing_column(self: Any, *item: Any) -> NoReturn:
        raise UnfinishedWindowError(f"a window has no columns yet: {advice}")

    def decorate(cls: type[T]) -> type[T]:
        # Set here and not in the classes, or type checkers would accept any attribute.
        for name, method in (
            ("__getattr__", missing_attribute),
            ("__getitem__", missing_column),
            ("__setitem__", missing_column),
        ):
            setattr(cls, name, method)
        return cls

    return decorate
