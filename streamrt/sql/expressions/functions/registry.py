"""The scalar functions by name."""

from functools import cache

from streamrt.sql.expressions.calls import ScalarFunction
from streamrt.sql.expressions.functions import (
    collections,
    conditional,
    conversion,
    dates,
    higher_order,
    numbers,
    patterns,
    texts,
)

__all__ = ["GROUPS", "find_function", "known_names"]

GROUPS: dict[str, tuple[ScalarFunction, ...]] = {
    "numbers": numbers.FUNCTIONS,
    "strings and bytes": texts.FUNCTIONS,
    "patterns": patterns.FUNCTIONS,
    "dates and times": dates.FUNCTIONS,
    "lists, maps and structs": collections.FUNCTIONS,
    "functions with lambdas": higher_order.FUNCTIONS,
    "conditions": conditional.FUNCTIONS,
    "conversion": conversion.FUNCTIONS,
}
"""All scalar functions, in the order of documentation."""


@cache
def _by_name() -> dict[str, ScalarFunction]:
    found: dict[str, ScalarFunction] = {}
    for functions in GROUPS.values():
        for function in functions:
            for name in (function.name, *function.aliases):
                if name in found:
                    raise AssertionError(f"{name} is there twice")
                found[name] = function
    return found


def find_function(name: str) -> ScalarFunction | None:
    """Return a scalar function by one of its names, in any case; None if there is none."""
    return _by_name().get(name.lower())


def known_names() -> tuple[str, ...]:
    """Return the names of all scalar functions."""
    return tuple(_by_name())
