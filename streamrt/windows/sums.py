"""Exact sums of numbers, from which numbers can be taken away again.

Floats are added as integers times a power of two, so no addition rounds, no order matters, and what was added can be taken
away without a trace. Only the result is rounded, once. A sum is a list of cells: the exact sum of ints and Decimals; the sum
of floats as integer and power of two; the number of floats; and how many of the values are NaN, inf and -inf.
"""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from streamrt.windows.decimals import EXACT, QUOTIENTS
from streamrt.windows.fold import Packing

__all__ = [
    "EMPTY_SUM",
    "add_binary",
    "add_number",
    "add_square",
    "divide_sum",
    "finish_sum",
    "fraction_of",
    "merge_sums",
    "special_of",
]

EMPTY_SUM: Final = (0, 0, 0, 0, 0, 0, 0)


def add_number(state: Any, value: Any, sign: int, packing: Packing) -> list[Any]:
    """Add a number, or take one away with the sign -1.

    Raises:
        TypeError: if the value is not a number.
    """
    return _add(state, value, sign, packing, square=False)


def add_square(state: Any, value: Any, sign: int, packing: Packing) -> list[Any]:
    """Add the square of a number, or take it away with the sign -1."""
    return _add(state, value, sign, packing, square=True)


def _add(state: Any, value: Any, sign: int, packing: Packing, *, square: bool) -> list[Any]:
    total, digits, power, floats, nan, infinite, negative = state
    if isinstance(value, int):
        number: Any = value * value if square else value
        total = _add_exact(total, sign * number, packing)
    elif isinstance(value, float | Decimal):
        if isinstance(value, float):
            floats += sign
        if not math.isfinite(value):
            if math.isnan(value):
                nan += sign
            elif value > 0 or square:
                infinite += sign
            else:
                negative += sign
        elif isinstance(value, Decimal):
            number = EXACT.multiply(value, value) if square else value
            total = _add_exact(total, number if sign > 0 else number.copy_negate(), packing)
        else:
            numerator, denominator = value.as_integer_ratio()
            exponent = 1 - denominator.bit_length()
            if square:
                numerator, exponent = numerator * numerator, 2 * exponent
            digits, power = add_binary(digits, power, sign * numerator, exponent)
    else:
        raise TypeError(f"a value of type {type(value).__name__} is not a number")
    return [total, digits, power, floats, nan, infinite, negative]


def merge_sums(a: Any, b: Any, packing: Packing) -> list[Any]:
    """Return the sum of two sums."""
    total = _add_exact(a[0], packing.unpack(b[0]), packing)
    return [
        total,
        *add_binary(a[1], a[2], b[1], b[2]),
        *(one + other for one, other in zip(a[3:], b[3:], strict=True)),
    ]


def finish_sum(state: Any, packing: Packing) -> Any:
    """Return a sum: an int or a Decimal, and a float if one of the values is one.

    Raises:
        TypeError: if some of the values are floats and others Decimals.
    """
    total = packing.unpack(state[0])
    special = special_of(state)
    if special is not None:
        return special if state[3] else Decimal(special)
    if not state[3]:
        return total
    if type(total) is Decimal and total:
        raise TypeError("unsupported operand type(s) for +: 'float' and 'decimal.Decimal'")
    return _round(fraction_of(state, packing))


def divide_sum(state: Any, count: int, packing: Packing) -> Any:
    """Return a sum divided by the number of its values: a float, or a Decimal of at most 38 digits for Decimals."""
    total = finish_sum(state, packing)
    if type(total) is Decimal:
        return QUOTIENTS.divide(total, count)
    if type(total) is float and not math.isfinite(total):
        return total
    return _round(fraction_of(state, packing) / count)


def special_of(state: Any) -> float | None:
    """Return the sum if one of its values is NaN or infinite."""
    *_, nan, infinite, negative = state
    if nan or (infinite and negative):
        return math.nan
    return math.inf if infinite else -math.inf if negative else None


def fraction_of(state: Any, packing: Packing) -> Fraction:
    """Return the exact sum of the finite values."""
    total, digits, power = packing.unpack(state[0]), state[1], state[2]
    return Fraction(total) + (digits << power if power > 0 else Fraction(digits, 1 << -power))


def _round(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _add_exact(total: Any, number: Any, packing: Packing) -> Any:
    total = packing.unpack(total)
    if type(total) is Decimal or type(number) is Decimal:
        return packing.pack(EXACT.add(total, number))
    return total + number


def add_binary(digits: int, power: int, more: int, exponent: int) -> tuple[int, int]:
    """Return the sum of two integers times powers of two, as the shortest integer."""
    if not more:
        return digits, power
    if exponent < power:
        digits, power = digits << (power - exponent), exponent
    else:
        more <<= exponent - power
    digits += more
    if not digits:
        return 0, 0
    zeros = (digits & -digits).bit_length() - 1
    return digits >> zeros, power + zeros
