"""Aggregations by functions of users, and lists of all values."""

from collections.abc import Callable, Iterable
from typing import Any

from streamrt.operators.functions import require_callable
from streamrt.windows.aggregator import Aggregator, Collector
from streamrt.windows.fold import (
    Fold,
    Packing,
    start_empty,
)
from streamrt.windows.inputs import Where

__all__ = ["Collect", "Reduce"]


class Reduce(Aggregator):
    """Aggregates with functions. Unlike other aggregators, they also receive None.

    Their results are stored, as states of an `Aggregator`; a tuple comes back as a list.

    Args:
        reducer: function from the aggregate so far and a value to the new aggregate.
        initializer: function from the first value of a window to the aggregate.
        merger: function from the aggregates of an earlier and a later session that a record has joined to the merged
            aggregate. Session windows need it.
        where: condition of the values that count, as for an `Aggregator`.

    Raises:
        InvalidOperationError: if one of them is not callable.

    Example:
        >>> longest = Reduce(lambda old, new: max(old, len(new)), len)
        >>> longest.agg(longest.agg(longest.initialize(), "four", 0), "two", 0)
        4
    """

    def __init__(
        self,
        reducer: Callable[[Any, Any], Any],
        initializer: Callable[[Any], Any],
        merger: Callable[[Any, Any], Any] | None = None,
        *,
        where: Where | None = None,
    ) -> None:
        super().__init__(where=where)
        require_callable("Reduce(reducer=...)", reducer)
        require_callable("Reduce(initializer=...)", initializer)
        if merger is not None:
            require_callable("Reduce(merger=...)", merger)
        self.reducer = reducer
        self.initializer = initializer
        self.merger = merger

    @property
    def mergeable(self) -> bool:  # noqa: D102
        return self.merger is not None

    def initialize(self) -> Any:  # noqa: D102
        return None

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:  # noqa: D102
        return self.initializer(new) if old is None else self.reducer(old, new)

    def result(self, value: Any) -> Any:  # noqa: D102
        return value

    def merge(self, a: Any, b: Any) -> Any:  # noqa: D102
        return super().merge(a, b) if self.merger is None else self.merger(a, b)

    def _make_fold(self) -> Fold:
        reducer, initializer = self.reducer, self.initializer

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            # A list marks a window with records, so that an aggregate of None does not start the window again.
            if state is None:
                return [packing.pack(initializer(value))]
            return [packing.pack(reducer(packing.unpack(state[0]), value))]

        def result(state: Any, packing: Packing) -> Any:
            return None if state is None else packing.unpack(state[0])

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            return [packing.pack(self.merge(packing.unpack(a[0]), packing.unpack(b[0])))]

        return Fold(start_empty, step, result, merge if self.mergeable else None)


class Collect(Collector):
    """All values as a list, None included, in the order of event time and, for equal times, of arrival.

    Example:
        >>> Collect().result(["a", "b"])
        ['a', 'b']
    """

    def result(self, items: Iterable[Any]) -> list[Any]:  # noqa: D102
        return list(items)
