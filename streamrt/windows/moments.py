"""Aggregators with exact sums of products, and with counts of bits: what statistics of SQL are computed from."""

import math
from fractions import Fraction
from typing import Any, Final, Literal

from streamrt.windows.aggregator import BuiltIn
from streamrt.windows.fold import Fold, Packing
from streamrt.windows.sums import add_binary

__all__ = ["Bits", "Moments"]

_BITS: Final = 64
Sums = tuple[int, int, list[Fraction]]


class Moments(BuiltIn):
    """Exact sums of products of powers of floats: `[count, count of those that are not finite, sums]`.

    Values, or pairs of them, count if none is None. Sums do not depend on the order of values, which can be taken back.

    Args:
        column: name of the column.
        by: name of the second column; None if there is one.
        powers: of each sum, the powers of the two columns.

    Example:
        >>> moments = Moments("x", powers=((1, 0), (2, 0)))
        >>> state = moments.initialize()
        >>> for x in (1.0, 3.0, None):
        ...     state = moments.agg(state, {"x": x}, 0)
        >>> moments.result(state)
        (2, 0, [Fraction(4, 1), Fraction(10, 1)])
    """

    def __init__(
        self, column: str | None = None, by: str | None = None, *, powers: tuple[tuple[int, int], ...]
    ) -> None:
        super().__init__(column)
        self.by = by
        self.powers = powers

    @property
    def state_suffix(self) -> str:  # noqa: D102
        return f"{super().state_suffix} by {self.by} {self.powers}"

    def _make_fold(self) -> Fold:
        powers, is_pair = self.powers, self.by is not None

        def add(state: Any, value: Any, sign: int) -> Any:
            pair = value if is_pair else (value, 0.0)
            if None in pair:
                return state
            count, odd, sums = state
            if not all(map(math.isfinite, pair)):
                return [count + sign, odd + sign, sums]
            (x, i), (y, j) = (_split(float(each)) for each in pair)
            added = [
                list(add_binary(each[0], each[1], sign * x**first * y**second, i * first + j * second))
                for each, (first, second) in zip(sums, powers, strict=True)
            ]
            return [count + sign, odd, added]

        def result(state: Any, packing: Packing) -> Sums:
            return state[0], state[1], [Fraction(digits) * Fraction(2) ** power for digits, power in state[2]]

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            sums = [list(add_binary(*one, *other)) for one, other in zip(a[2], b[2], strict=True)]
            return [a[0] + b[0], a[1] + b[1], sums]

        return Fold(
            lambda packing: [0, 0, [[0, 0] for _ in powers]],
            lambda state, value, timestamp, packing: add(state, value, 1),
            result,
            merge,
            retract=lambda state, value, timestamp, packing: add(state, value, -1),
        )


def _split(number: float) -> tuple[int, int]:
    """Return a finite float as an integer and a power of two."""
    numerator, denominator = number.as_integer_ratio()
    return numerator, 1 - denominator.bit_length()


class Bits(BuiltIn):
    """The bits that all, some, or an odd number of integers have, of those that are not None; None without values.

    Args:
        column: name of the column.
        of: which bits.

    Example:
        >>> bits = Bits("flags", of="or")
        >>> bits.result(bits.agg(bits.agg(bits.initialize(), {"flags": 1}, 0), {"flags": 4}, 0))
        5
    """

    def __init__(self, column: str | None = None, *, of: Literal["and", "or", "xor"]) -> None:
        super().__init__(column)
        self.of = of

    def _make_fold(self) -> Fold:
        kind = self.of

        def add(state: Any, value: Any, sign: int) -> Any:
            if value is None:
                return state
            return [state[0] + sign, *(count + sign * (value >> bit & 1) for bit, count in enumerate(state[1:]))]

        def result(state: Any, packing: Packing) -> int | None:
            total, *counts = state
            if not total:
                return None
            least = total if kind == "and" else 1
            bits = (count % 2 if kind == "xor" else count >= least for count in counts)
            number = sum(1 << bit for bit, is_set in enumerate(bits) if is_set)
            return number - (1 << _BITS) if number >> (_BITS - 1) else number

        return Fold(
            lambda packing: [0] * (_BITS + 1),
            lambda state, value, timestamp, packing: add(state, value, 1),
            result,
            lambda a, b, packing: [one + other for one, other in zip(a, b, strict=True)],
            retract=lambda state, value, timestamp, packing: add(state, value, -1),
        )
