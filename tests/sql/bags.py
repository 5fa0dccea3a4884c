"""Rows as bags: equal rows are counted, their order is none, and floats are equal to a billionth."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, NamedTuple

__all__ = ["Difference", "compare_bags"]

TOLERANCE = 1e-9
"""Relative difference of two floats that count as equal: sums depend on the order of what is added."""
Row = tuple[Any, ...]


class Difference(NamedTuple):
    """Rows that only one side has, as often as it has more of them."""

    missing: list[Row]
    surplus: list[Row]

    def describe(self, most: int = 3) -> str:
        """Return a line for each of the first rows."""
        lines = [f"missing {row!r}" for row in self.missing[:most]] + [
            f"surplus {row!r}" for row in self.surplus[:most]
        ]
        return f"{len(self.missing)} missing, {len(self.surplus)} surplus: " + "; ".join(lines)


def compare_bags(expected: Iterable[Sequence[Any]], actual: Iterable[Sequence[Any]]) -> Difference | None:
    """Return how two bags of rows differ, or None.

    Decimals are compared exactly; a decimal and a float as floats.

    Example:
        >>> compare_bags([(1, 0.1 + 0.2), (2, None)], [(2, None), (1, 0.3)])
        >>> compare_bags([(1,)], [(1,), (1,)])
        Difference(missing=[], surplus=[(1,)])
    """
    left = Counter(_freeze(row) for row in expected)
    right = Counter(_freeze(row) for row in actual)
    missing, surplus = [*(left - right).elements()], [*(right - left).elements()]
    if missing and surplus:
        missing, surplus = _pair(missing, surplus)
    return Difference(missing, surplus) if missing or surplus else None


def _pair(missing: list[Row], surplus: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return what is left of both when rows that are close to each other are taken away."""
    by_exact: dict[Row, list[Row]] = {}
    for row in surplus:
        by_exact.setdefault(_exact_part(row), []).append(row)
    left = []
    for row in missing:
        candidates = by_exact.get(_exact_part(row), [])
        for index, candidate in enumerate(candidates):
            if all(map(_is_close, row, candidate)):
                del candidates[index]
                break
        else:
            left.append(row)
    return left, [row for rows in by_exact.values() for row in rows]


def _exact_part(row: Row) -> Row:
    return tuple("number" if isinstance(value, float | Decimal) else value for value in row)


def _is_close(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        if not isinstance(one, float | Decimal) or not isinstance(other, float | Decimal):
            return False
        least = max((_quantum(value) for value in (one, other) if isinstance(value, Decimal)), default=0.0)
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=least)
    return bool(one == other)


def _quantum(value: Decimal) -> float:
    """Return what half a unit in the last place of a decimal may hide from a float."""
    exponent = value.as_tuple().exponent
    return 0.51 * 10.0**exponent if isinstance(exponent, int) else 0.0


def _freeze(row: Iterable[Any]) -> Row:
    return tuple(map(_freeze_value, row))


def _freeze_value(value: Any) -> Any:
    if isinstance(value, bool):
        # As a dictionary key, it would be equal to a number.
        return ("bool", value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    if isinstance(value, Mapping):
        return ("struct", *((name, _freeze_value(item)) for name, item in sorted(value.items())))
    if isinstance(value, list | tuple):
        return ("list", *map(_freeze_value, value))
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value
