"""Deep copies of values."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

__all__ = ["copier", "deep_copy"]

_IMMUTABLE = frozenset({type(None), bool, int, float, complex, str, bytes})


def deep_copy(value: Any) -> Any:
    """Return a deep copy of a value; fast for the types of JSON.

    Example:
        >>> kept = {"a": [1]}
        >>> deep_copy(kept)["a"].append(2)
        >>> kept
        {'a': [1]}
    """
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if kind is dict:
        if _IMMUTABLE.issuperset(map(type, value.values())):
            return value.copy()
        return {key: deep_copy(item) for key, item in value.items()}
    if kind is list:
        return value.copy() if _IMMUTABLE.issuperset(map(type, value)) else [deep_copy(item) for item in value]
    return copy.deepcopy(value)


def copier(value: Any) -> Callable[[], Any]:
    """Return a function that makes a deep copy of the current `value` with each call.

    Example:
        >>> value = {"a": [1]}
        >>> fresh = copier(value)
        >>> value["a"].append(2)
        >>> fresh()
        {'a': [1]}
    """
    kind = type(value)
    if kind in _IMMUTABLE:
        return lambda: value
    if kind is dict and _IMMUTABLE.issuperset(map(type, value.values())):
        # Keys of a dict are hashable, and those of JSON objects are strings: a flat copy suffices.
        snapshot: dict[Any, Any] = value.copy()
        return snapshot.copy
    try:
        frozen = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - any failure of pickle falls back to deepcopy
        original = copy.deepcopy(value)
        return lambda: copy.deepcopy(original)
    return lambda: pickle.loads(frozen)
