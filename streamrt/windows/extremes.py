"""Aggregators that keep the lowest or the highest value."""

from collections.abc import Callable, Sequence
from operator import gt, lt, ne
from typing import Any, get_args

from streamrt.arguments import checked_choice
from streamrt.windows.aggregator import BuiltIn
from streamrt.windows.fold import (
    Fold,
    Packing,
    make_cell,
    skipping_none,
    start_empty,
    unpack_state,
)
from streamrt.windows.inputs import Missing, NaN, Where

__all__ = ["Max", "Min", "compare_with_nan"]


class _Extreme(BuiltIn):
    """Keeps one of two values; at ties, the earlier one."""

    # The comparisons of `operator` are C functions, so a class attribute does not become a method.
    _better: Any
    _best: Any

    def __init__(
        self,
        column: str | None = None,
        missing: Missing = "raise",
        *,
        nan: NaN = "ignore",
        where: Where | None = None,
    ) -> None:
        super().__init__(column, missing, where=where)
        self.nan = checked_choice(f"{type(self).__name__}(nan=...)", nan, get_args(NaN))

    def _make_fold(self) -> Fold:
        return self._fold_with_nan() if self.nan == "highest" else self._fold_without_nan()

    def _fold_with_nan(self) -> Fold:
        better = compare_with_nan(self._better)

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            if value is None:
                return state
            if state is None or better(value, packing.unpack(state)):
                return make_cell(value, packing)
            return state

        return Fold(start_empty, step, unpack_state, lambda a, b, packing: step(a, packing.unpack(b), 0, packing))

    def _fold_without_nan(self) -> Fold:
        better, best = self._better, self._best

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            # NaN is not a value: no number is below or above it.
            if value is None or value != value:
                return state
            if state is None or better(value, packing.unpack(state) if type(state) is str else state):
                return make_cell(value, packing)
            return state

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            return step(a, packing.unpack(b), 0, packing)

        def whole(values: Sequence[Any], packing: Packing) -> Any:
            if any(map(ne, values, values)):
                values = [value for value in values if value == value]
            return make_cell(best(values, default=None), packing)

        return Fold(start_empty, step, unpack_state, merge, skipping_none(whole))


class Min(_Extreme):
    """The lowest of the values that are neither None nor NaN, unchanged; the earlier one at ties, None without values.

    With `nan="highest"`, NaN is a value above all other numbers, as in Spark and PostgreSQL.
    """

    _better = lt
    _best = min


class Max(_Extreme):
    """The highest of the values that are neither None nor NaN, unchanged; the earlier one at ties, None without values.

    With `nan="highest"`, NaN is a value above all other numbers, as in Spark and PostgreSQL.
    """

    _better = gt
    _best = max


def compare_with_nan(better: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return a comparison, `lt` or `gt`, for which NaN is above all other numbers."""
    above = better is gt

    def compare(a: Any, b: Any) -> bool:
        if a != a or b != b:
            return bool((a != a and b == b) if above else (b != b and a == a))
        return better(a, b)

    return compare
