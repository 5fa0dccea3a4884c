"""What becomes of results of aggregators: they get the type of SQL's aggregate, or are out of its range."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

from streamrt.sql.expressions.arithmetic import WIDE, raise_overflow, round_decimal, round_to_float

__all__ = ["AsFloat", "AsMean", "FitBigint", "FitDecimal", "JoinTexts", "Percentile", "SumOfList"]


@dataclass(frozen=True)
class FitBigint:
    """A sum of integers, which BIGINT must hold."""

    name: str

    def __call__(self, total: Any) -> Any:
        """Return the sum, or None."""
        if total is not None and not -(1 << 63) <= total < 1 << 63:
            raise_overflow(f"{self.name}() of integers; cast them to DECIMAL(38, 0)", "BIGINT")
        return total


@dataclass(frozen=True)
class FitDecimal:
    """A sum or a mean of decimals, with the digits of its type."""

    name: str
    precision: int
    scale: int

    def __call__(self, total: Any) -> Any:
        """Return the rounded number, or None."""
        return None if total is None else round_decimal(Decimal(total), self.precision, self.scale, f"{self.name}()")


@dataclass(frozen=True)
class AsFloat:
    """A number as a float, of 64 or 32 bits."""

    single: bool = False

    def __call__(self, number: Any) -> Any:
        """Return the float, or None."""
        if number is None:
            return None
        return round_to_float(float(number)) if self.single else float(number)


@dataclass(frozen=True)
class SumOfList:
    """The sum of a list, None if it is empty."""

    def __call__(self, values: list[Any]) -> Any:
        """Return the sum."""
        if not values:
            return None
        if isinstance(values[0], float):
            # What is not finite has no exact sum.
            return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
        return reduce(WIDE.add, values) if isinstance(values[0], Decimal) else sum(values)


@dataclass(frozen=True)
class AsMean:
    """The mean of a list, None if it is empty."""

    def __call__(self, values: list[Any]) -> Any:
        """Return the mean."""
        if not values:
            return None
        total = SumOfList()(values)
        return WIDE.divide(total, len(values)) if isinstance(total, Decimal) else total / len(values)


@dataclass(frozen=True)
class Chain:
    """One function after the other."""

    first: Any
    second: Any

    def __call__(self, value: Any) -> Any:
        """Return what the second function makes of the result of the first."""
        return self.second(self.first(value))


@dataclass(frozen=True)
class JoinTexts:
    """Texts, or bytes, with a separator between them; None if there are none."""

    separator: Any

    def __call__(self, values: Iterable[Any]) -> Any:
        """Return the joined text."""
        found = list(values)
        return self.separator.join(found) if found else None


@dataclass(frozen=True)
class Percentile:
    """A percentile of numbers in their order, between the two that are next to it; None if there are none."""

    fraction: float

    def __call__(self, values: list[Any]) -> float | None:
        """Return the percentile."""
        if not values:
            return None
        place = self.fraction * (len(values) - 1)
        low, high = math.floor(place), math.ceil(place)
        first, second = float(values[low]), float(values[high])
        if low == high or first == second:
            return first
        return (high - place) * first + (place - low) * second
