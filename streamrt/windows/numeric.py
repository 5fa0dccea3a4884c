"""Aggregators that count and add."""

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from operator import add
from typing import Any, Final

from streamrt.windows.aggregator import BuiltIn
from streamrt.windows.decimals import EXACT, QUOTIENTS
from streamrt.windows.fold import Fold, Packing, make_cell, return_state, skipping_none, start_at_zero, unpack_state

__all__ = ["Count", "Mean", "Sum"]


_NUMBERS: Final = (int, float)


class Count(BuiltIn):
    """Counts the values that are not None.

    Example:
        >>> from streamrt.windows import Count
        >>> Count("price")
        Count('price')
        >>> cheap = Count(where=lambda row: row["price"] < 100)
        >>> cheap.agg(cheap.agg(cheap.initialize(), {"price": 5}, 0), {"price": 500}, 1)
        1
    """

    def _make_fold(self) -> Fold:
        def step(state: int, value: Any, timestamp: int, packing: Packing) -> int:
            return state if value is None else state + 1

        def whole(values: Sequence[Any], packing: Packing) -> int:
            return len(values) - values.count(None) if None in values else len(values)

        return Fold(start_at_zero, step, return_state, _add_value, whole)


class Sum(BuiltIn):
    """Adds up the values that are not None, starting with the int 0: ints and Decimals stay exact.

    Example:
        >>> total = Sum()
        >>> total.agg(total.agg(total.initialize(), 2**60, 0), 1, 0) - 2**60
        1
    """

    def _make_fold(self) -> Fold:
        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return state if value is None else _add_value(state, value, packing)

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            return _add_value(a, packing.unpack(b), packing)

        return Fold(start_at_zero, step, unpack_state, merge, skipping_none(_sum_values))


class Mean(BuiltIn):
    """The sum of the values that are not None, divided by their number: a float, or None without values.

    That of Decimals is a Decimal: the exact sum, and a quotient of at most 38 digits.

    Example:
        >>> from decimal import Decimal
        >>> mean = Mean()
        >>> mean.result(mean.agg(mean.agg(mean.initialize(), Decimal("0.1"), 0), Decimal("0.2"), 0))
        Decimal('0.15')
    """

    def _make_fold(self) -> Fold:
        def initial(packing: Packing) -> Any:
            return [0.0, 0]

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            if value is None:
                return state
            total, count = state
            if not count and type(value) is Decimal:
                total = 0
            return [_add_value(total, value, packing), count + 1]

        def result(state: Any, packing: Packing) -> Any:
            total, count = state
            if not count:
                return None
            total = packing.unpack(total)
            return QUOTIENTS.divide(total, count) if type(total) is Decimal else total / count

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            if not (a[1] and b[1]):
                return a if a[1] else b
            return [_add_value(a[0], packing.unpack(b[0]), packing), a[1] + b[1]]

        def whole(values: Sequence[Any], packing: Packing) -> Any:
            start: Any = 0 if values and type(values[0]) is Decimal else 0.0
            return [_add_values(values, start, packing), len(values)]

        return Fold(initial, step, result, merge, skipping_none(whole))


def _add_value(state: Any, value: Any, packing: Packing) -> Any:
    if type(state) is str:
        state = packing.unpack(state)
    total = state + value
    if type(total) in _NUMBERS:
        return total
    return packing.pack(EXACT.add(state, value) if type(total) is Decimal else total)


def _sum_values(values: Sequence[Any], packing: Packing) -> Any:
    return _add_values(values, 0, packing)


def _add_values(values: Sequence[Any], start: Any, packing: Packing) -> Any:
    # Not sum(): since Python 3.12, it rounds floats differently from single additions.
    total = reduce(add, values, start)
    return make_cell(reduce(EXACT.add, values, start) if type(total) is Decimal else total, packing)
