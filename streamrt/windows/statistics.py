"""Aggregators of the spread of numbers: variance and standard deviation.

The state is the number of values, their exact sum and the exact sum of their squares. So the result is rounded only once,
whatever the order of the values is, and however close they are to each other.
"""

import math
from fractions import Fraction
from typing import Any, Literal, get_args

from streamrt.arguments import checked_choice
from streamrt.windows.aggregator import BuiltIn
from streamrt.windows.fold import Fold, Packing
from streamrt.windows.inputs import Missing, Where
from streamrt.windows.sums import EMPTY_SUM, add_number, add_square, fraction_of, merge_sums, special_of

__all__ = ["StandardDeviation", "Variance"]

Population = Literal["sample", "population"]


class Variance(BuiltIn):
    """The variance of the values that are not None, as a float.

    That of a sample, SQL's `var_samp`, is None for less than two values; that of a population, `var_pop`, for less than one.
    It is NaN if a value is NaN or infinite.

    Args:
        column: name of the column to use; None for the whole value.
        missing: what becomes of a value without the column: "raise" or "ignore".
        of: "sample" or "population": whether the squares are divided by the number of values less one, or by their number.
        where: condition of the values that count.

    Example:
        >>> variance = Variance(of="population")
        >>> state = variance.initialize()
        >>> for value in (1, 2, 3, 4):
        ...     state = variance.agg(state, value, 0)
        >>> variance.result(state)
        1.25
    """

    def __init__(
        self,
        column: str | None = None,
        missing: Missing = "raise",
        *,
        of: Population = "sample",
        where: Where | None = None,
    ) -> None:
        super().__init__(column, missing, where=where)
        self.of = checked_choice(f"{type(self).__name__}(of=...)", of, get_args(Population))

    def _make_fold(self) -> Fold:
        less = 1 if self.of == "sample" else 0
        finish = self._finish

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return state if value is None else _add_value(state, value, 1, packing)

        def retract(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return state if value is None else _add_value(state, value, -1, packing)

        def result(state: Any, packing: Packing) -> Any:
            count, total, squares = state
            if count <= less:
                return None
            if special_of(squares) is not None:
                return math.nan
            summed = fraction_of(total, packing)
            return finish((fraction_of(squares, packing) - summed * summed / count) / (count - less))

        return Fold(_start, step, result, _merge, retract=retract)

    def _finish(self, variance: Fraction) -> float:
        return _round(variance)


class StandardDeviation(Variance):
    """The square root of the `Variance`, as a float: SQL's `stddev_samp` and, with `of="population"`, `stddev_pop`.

    Example:
        >>> deviation = StandardDeviation("price", of="population")
        >>> state = deviation.initialize()
        >>> for value in (1, 3):
        ...     state = deviation.agg(state, {"price": value}, 0)
        >>> deviation.result(state)
        1.0
    """

    def _finish(self, variance: Fraction) -> float:
        root = _round(variance)
        return math.sqrt(root)


def _start(packing: Packing) -> Any:
    return [0, list(EMPTY_SUM), list(EMPTY_SUM)]


def _add_value(state: Any, value: Any, sign: int, packing: Packing) -> Any:
    count, total, squares = state
    return [count + sign, add_number(total, value, sign, packing), add_square(squares, value, sign, packing)]


def _merge(a: Any, b: Any, packing: Packing) -> Any:
    return [a[0] + b[0], merge_sums(a[1], b[1], packing), merge_sums(a[2], b[2], packing)]


def _round(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf
