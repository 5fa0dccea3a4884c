"""What becomes of results of aggregators: they get the type of SQL's aggregate, or are out of its range."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, Final

from streamrt.sql.expressions.arithmetic import WIDE, raise_overflow, round_decimal, round_to_float

__all__ = [
    "AsFloat",
    "AsMean",
    "FitBigint",
    "FitDecimal",
    "JoinTexts",
    "MostFrequent",
    "NearestRank",
    "Percentile",
    "Statistic",
    "SumOfList",
]


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
    """A percentile of numbers in their order, between the two that are next to it; None if there are none.

    Attributes:
        fraction: from 0 to 1.
        descending: whether the highest number is the first one.
    """

    fraction: float
    descending: bool = False

    def __call__(self, values: list[Any]) -> float | None:
        """Return the percentile."""
        if not values:
            return None
        values = values[::-1] if self.descending else values
        place = self.fraction * (len(values) - 1)
        low, high = math.floor(place), math.ceil(place)
        first, second = float(values[low]), float(values[high])
        if low == high or first == second:
            return first
        return (high - place) * first + (place - low) * second


@dataclass(frozen=True)
class NearestRank:
    """The first value that has at least a fraction of all values up to it; None if there are none.

    Attributes:
        fraction: from 0 to 1.
        descending: whether the highest value is the first one.
    """

    fraction: float
    descending: bool = False

    def __call__(self, values: list[Any]) -> Any:
        """Return the value."""
        if not values:
            return None
        place = max(math.ceil(self.fraction * len(values)) - 1, 0)
        return values[-1 - place if self.descending else place]


@dataclass(frozen=True)
class MostFrequent:
    """The most frequent of values in their order; of several, the first one; None if there are none.

    Attributes:
        descending: whether the last one of several is taken.
    """

    descending: bool = False

    def __call__(self, values: list[Any]) -> Any:
        """Return the value."""
        best, most, count = None, 0, 0
        ordered = values[::-1] if self.descending else values
        former = None
        for value in ordered:
            # NaN is not equal to itself.
            is_same = value == former or (value != value and former != former)
            count, former = (count + 1 if is_same else 1), value
            if count > most:
                best, most = value, count
        return best


@dataclass(frozen=True)
class Statistic:
    """A statistic of exact sums; NaN if a value is not finite, and None if it is not defined.

    Attributes:
        name: its name in SQL.
    """

    name: str

    def __call__(self, moments: tuple[int, int, list[Fraction]]) -> float | None:
        """Return the statistic of count, count of values that are not finite, and sums."""
        count, odd, sums = moments
        function, least = _STATISTICS[self.name]
        if count < least:
            return None
        return math.nan if odd else _as_float(function(count, sums))


def _as_float(number: Fraction | float | None) -> float | None:
    try:
        return None if number is None else float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf  # type: ignore[operator]  # it is not None


def _covariance(less: int) -> Callable[[int, list[Fraction]], Fraction]:
    return lambda count, sums: (sums[4] - sums[0] * sums[1] / count) / (count - less)


def _square(column: int) -> Callable[[int, list[Fraction]], Fraction]:
    """Return the sum of the squares of the distances from the mean."""
    return lambda count, sums: sums[2 + column] - sums[column] * sums[column] / count


def _correlate(count: int, sums: list[Fraction]) -> float | None:
    spread = _square(0)(count, sums) * _square(1)(count, sums)
    together = _covariance(0)(count, sums) * count
    return None if not spread else math.copysign(math.sqrt(together * together / spread), together)


def _slope(count: int, sums: list[Fraction]) -> Fraction | None:
    spread = _square(1)(count, sums)
    return _covariance(0)(count, sums) * count / spread if spread else None


def _intercept(count: int, sums: list[Fraction]) -> Fraction | None:
    slope = _slope(count, sums)
    return None if slope is None else (sums[0] - slope * sums[1]) / count


def _fit(count: int, sums: list[Fraction]) -> Fraction | None:
    of_y, of_x = _square(0)(count, sums), _square(1)(count, sums)
    if not of_x:
        return None
    together = _covariance(0)(count, sums) * count
    return together * together / of_x / of_y if of_y else Fraction(1)


def _skewness(count: int, sums: list[Fraction]) -> float | None:
    mean, square, cube = (each / count for each in sums[:3])
    second = square - mean * mean
    third = cube - 3 * mean * square + 2 * mean**3
    return None if not second else math.copysign(math.sqrt(third * third / second**3), third)


def _kurtosis(count: int, sums: list[Fraction]) -> Fraction | None:
    mean, square, cube, fourth = (each / count for each in sums)
    second = square - mean * mean
    if not second:
        return None
    return (fourth - 4 * mean * cube + 6 * mean * mean * square - 3 * mean**4) / (second * second) - 3


# Of pairs, sums are those of y, x, y squared, x squared, and x times y; of single values, those of the first four powers.
_STATISTICS: Final[dict[str, tuple[Callable[[int, list[Fraction]], Any], int]]] = {
    "corr": (_correlate, 2),
    "covar_pop": (_covariance(0), 1),
    "covar_samp": (_covariance(1), 2),
    "regr_avgx": (lambda count, sums: sums[1] / count, 1),
    "regr_avgy": (lambda count, sums: sums[0] / count, 1),
    "regr_sxx": (_square(1), 1),
    "regr_syy": (_square(0), 1),
    "regr_sxy": (lambda count, sums: _covariance(0)(count, sums) * count, 1),
    "regr_slope": (_slope, 2),
    "regr_intercept": (_intercept, 2),
    "regr_r2": (_fit, 2),
    "skewness": (_skewness, 1),
    "kurtosis": (_kurtosis, 1),
}
