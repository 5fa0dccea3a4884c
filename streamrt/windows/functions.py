"""Window functions: functions of all elements of a window, or of its aggregate."""

import abc
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from streamrt.windows.pane_contexts import WindowContext

__all__ = ["ProcessWindowFunction", "WindowFunction", "checked_results", "function_name"]


class ProcessWindowFunction(abc.ABC):
    """A function of a window, for `.process(...)` of windows. Derive from it, or pass a function of the same arguments.

    The object is pickled with the operators and serves all keys and windows: what must survive goes into
    `ctx.window_state` or `ctx.global_state`.

    Attributes:
        outputs: the side outputs that `ctx.output` may use, besides "late"; `frame.side_output(tag)` reads them.

    Example:
        ```python
        class Spread(ProcessWindowFunction):
            def process(self, key, ctx, elements):
                yield {"from": ctx.window.start, "spread": max(elements) - min(elements)}
        ```
    """

    outputs: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def process(self, key: Any, ctx: WindowContext, elements: list[Any]) -> Iterable[Any] | None:
        """Process a window that is emitted.

        Args:
            key: the key of its records.
            ctx: the window, clocks, state and side outputs.
            elements: the values of its records in the order of their arrival; after an aggregation, only its result.

        Returns:
            The results, each of which goes on with the key and the start of the window; None for none.
        """

    def clear(self, ctx: WindowContext) -> None:  # noqa: B027 - there need not be anything
        """Release what belongs to a window that is over. Its `window_state` is then deleted anyway."""


WindowFunction = ProcessWindowFunction | Callable[[Any, WindowContext, list[Any]], "Iterable[Any] | None"]
"""An object of a class derived from `ProcessWindowFunction`, or a function of key, context and elements."""


def function_name(function: WindowFunction) -> str:
    """Return the name of a window function, for errors and drawings."""
    named = type(function) if isinstance(function, ProcessWindowFunction) else function
    name: str = getattr(named, "__qualname__", type(named).__qualname__)
    return name.rsplit("<locals>.", 1)[-1]


def checked_results(results: Any, function: str) -> list[Any]:
    """Return the results of a window function; refuse a dict and a text, which would be taken apart.

    Raises:
        TypeError: if they are not an iterable of results.
    """
    if results is None:
        return []
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise TypeError(
            f"{function} must return an iterable of results or None, but returned {type(results).__name__}: yield each "
            "result, or return a list"
        )
    return [*results]
