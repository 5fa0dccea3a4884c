"""Copies of stored values: one for each record that a stored value is merged with."""

import copy
from typing import Any

_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})


def deep_copy(value: Any) -> Any:
    """Return a deep copy of a value; fast for the types of JSON.

    Example:
        >>> kept = {"a": [1]}
        >>> deep_copy(kept)["a"].append(2)
        >>> kept
        {'a': [1]}
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        if _ATOMS.issuperset(map(type, value.values())):
            return value.copy()
        return {key: deep_copy(item) for key, item in value.items()}
    if kind is list:
        return value.copy() if _ATOMS.issuperset(map(type, value)) else [deep_copy(item) for item in value]
    return copy.deepcopy(value)
