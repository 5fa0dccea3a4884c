"""Evictors: which elements of a window count when it is emitted."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from streamrt.arguments import checked
from streamrt.operators.functions import require_callable
from streamrt.topics.durations import milliseconds
from streamrt.windows.pane_contexts import EvictorContext
from streamrt.windows.window import Window

__all__ = ["CountEvictor", "DeltaEvictor", "Element", "Evictor", "TimeEvictor"]

Element = tuple[int, Any]
"""Event time in milliseconds, and value of a record."""


class Evictor(abc.ABC):  # noqa: B024 - both methods have a meaning of their own
    """Removes elements of a window when it is emitted, for `.trigger(..., evictor=...)` of windows that keep their elements.

    Both methods get the elements in the order of their arrival, each with its event time, and return those to keep. What is
    not kept is deleted from the window.

    Example:
        ```python
        class OnlyValid(Evictor):
            def evict_before(self, elements, window, ctx):
                return [(time, value) for time, value in elements if value["valid"]]
        ```
    """

    def evict_before(self, elements: list[Element], window: Window, ctx: EvictorContext) -> list[Element]:
        """Return the elements that the window function gets.

        Args:
            elements: all elements of the window.
            window: the window.
            ctx: the clocks.
        """
        return elements

    def evict_after(self, elements: list[Element], window: Window, ctx: EvictorContext) -> list[Element]:
        """Return the elements that stay in the window, after the window function has run.

        Args:
            elements: those that the window function got.
            window: the window.
            ctx: the clocks.
        """
        return elements


@dataclass(frozen=True)
class _OneSidedEvictor(Evictor):
    def evict_before(self, elements: list[Element], window: Window, ctx: EvictorContext) -> list[Element]:
        return elements if self._evicts_after or not elements else self._keep_elements(elements)

    def evict_after(self, elements: list[Element], window: Window, ctx: EvictorContext) -> list[Element]:
        return self._keep_elements(elements) if self._evicts_after and elements else elements

    @property
    def _evicts_after(self) -> bool:
        return bool(getattr(self, "after", False))

    @abc.abstractmethod
    def _keep_elements(self, elements: list[Element]) -> list[Element]:
        """Return what is kept of at least one element."""


@dataclass(frozen=True)
class CountEvictor(_OneSidedEvictor):
    """Keeps the last elements.

    Attributes:
        count: how many, at least 1.
        after: whether the window function gets all elements, and the others are removed after it.
    """

    count: int
    after: bool = False

    def __post_init__(self) -> None:
        wanted = "a number of records, at least 1"
        checked("CountEvictor(count=...)", self.count, int, wanted, lambda count: count >= 1)

    def _keep_elements(self, elements: list[Element]) -> list[Element]:
        return elements[-self.count :]


@dataclass(frozen=True)
class TimeEvictor(_OneSidedEvictor):
    """Keeps the elements that are less than a time older than the newest one.

    Attributes:
        size: the time in milliseconds, or as a timedelta.
        after: whether the window function gets all elements, and the others are removed after it.
    """

    size: int | timedelta
    after: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", milliseconds("TimeEvictor(size=...)", self.size, least=1))

    def _keep_elements(self, elements: list[Element]) -> list[Element]:
        newest = max(time for time, _ in elements)
        return [element for element in elements if element[0] > newest - self.size]  # type: ignore[operator]


@dataclass(frozen=True)
class DeltaEvictor(_OneSidedEvictor):
    """Keeps the elements that differ little from the last one.

    Attributes:
        threshold: elements with this difference or more are removed.
        delta: function of the value of an element and of the last one; returns the difference.
        after: whether the window function gets all elements, and the others are removed after it.
    """

    threshold: float
    delta: Callable[[Any, Any], float]
    after: bool = False

    def __post_init__(self) -> None:
        require_callable("DeltaEvictor(delta=...)", self.delta)

    def _keep_elements(self, elements: list[Element]) -> list[Element]:
        last = elements[-1][1]
        return [element for element in elements if self.delta(element[1], last) < self.threshold]
