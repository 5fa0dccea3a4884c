"""Observes the calls of a method."""

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["spy_on"]

T = TypeVar("T")


def spy_on(item: Any, name: str, note: Callable[..., T]) -> list[T]:
    """Call a function before each call of a method; return the results."""
    notes: list[T] = []
    method = getattr(item, name)

    def spy(*args: Any, **options: Any) -> Any:
        notes.append(note(*args, **options))
        return method(*args, **options)

    setattr(item, name, spy)
    return notes
