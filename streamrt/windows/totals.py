"""`Total`: the sum of SQL, which is None without values; and what changes results of aggregators."""

from collections.abc import Callable, Sequence
from typing import Any

from streamrt.errors import ArgumentTypeError
from streamrt.windows.aggregator import Aggregator, BuiltIn
from streamrt.windows.aggregators import Sum, fold_of, is_built_in
from streamrt.windows.fold import Fold, Packing

__all__ = ["MappedResult", "Total", "map_result"]


class Total(BuiltIn):
    """Adds up the values that are not None; None without values, where `Sum` is 0.

    Example:
        >>> total = Total("price")
        >>> total.result(total.initialize())
        >>> total.result(total.agg(total.initialize(), {"price": 3}, 0))
        3
    """

    def _make_fold(self) -> Fold:
        added = fold_of(Sum())[0]
        merge_sums: Any = added.merge
        sum_all: Any = added.whole

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            if value is None:
                return state
            return added.step(0 if state is None else state, value, timestamp, packing)

        def result(state: Any, packing: Packing) -> Any:
            return None if state is None else added.result(state, packing)

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            if a is None or b is None:
                return b if a is None else a
            return merge_sums(a, b, packing)

        def whole(values: Sequence[Any], packing: Packing) -> Any:
            return None if all(value is None for value in values) else sum_all(values, packing)

        return Fold(lambda packing: None, step, result, merge, whole)


class MappedResult(BuiltIn):
    """The result of another aggregator, changed by a function. It keeps the state of the other one.

    Args:
        aggregator: a built-in aggregator.
        function: function of its result, which may be None.

    Raises:
        ArgumentTypeError: if the aggregator is not a built-in one.

    Example:
        >>> rounded = MappedResult(Total("price"), lambda total: None if total is None else round(total))
        >>> rounded.result(rounded.agg(rounded.initialize(), {"price": 3.2}, 0))
        3
    """

    def __init__(self, aggregator: Aggregator, function: Callable[[Any], Any]) -> None:
        if not is_built_in(aggregator):
            raise ArgumentTypeError(f"MappedResult takes a built-in aggregator; got {type(aggregator).__name__}")
        super().__init__(aggregator.column, aggregator.missing)
        self.where = aggregator.where
        self.aggregator = aggregator
        self.function = function
        self.by = getattr(aggregator, "by", None)

    @property
    def state_suffix(self) -> str:  # noqa: D102
        return self.aggregator.state_suffix

    def __repr__(self) -> str:
        return repr(self.aggregator)

    def _make_fold(self) -> Fold:
        return map_result(fold_of(self.aggregator)[0], self.function)


def map_result(fold: Fold, function: Callable[[Any], Any]) -> Fold:
    """Return a fold whose results a function changes."""
    finish = fold.result
    return fold._replace(result=lambda state, packing: function(finish(state, packing)))
