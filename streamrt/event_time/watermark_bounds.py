"""Watermark bounds between partitions: how far others let event time move, and which partitions are too far ahead of them."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, TypeVar

__all__ = ["NO_OTHER", "ahead_of_slowest", "lowest_of_others"]

NO_OTHER: Final = (1 << 63) - 1
"""The watermark of no partition at all, above all times."""

_UNKNOWN: Final = -(1 << 63)

K = TypeVar("K", bound=Hashable)


def lowest_of_others(times: Mapping[K, int | None], keys: Iterable[K]) -> dict[K, int]:
    """Return for each key the lowest time of all other ones; a key for which it is unknown is missing.

    Args:
        times: the times of the keys that count; None for an unknown one.
        keys: the keys to look at.

    Example:
        >>> lowest_of_others({"a": 5, "b": 3, "c": 9}, ["a", "b", "d"])
        {'a': 3, 'b': 5, 'd': 3}
        >>> lowest_of_others({"a": 5, "b": None}, ["a", "b"])
        {'b': 5}
    """
    known = {key: _UNKNOWN if time is None else time for key, time in times.items()}
    slowest = min(known, key=known.__getitem__, default=None)
    lowest = NO_OTHER if slowest is None else known[slowest]
    second = min((time for key, time in known.items() if key != slowest), default=NO_OTHER)
    found = {key: second if key == slowest else lowest for key in keys}
    return {key: time for key, time in found.items() if time != _UNKNOWN}


def ahead_of_slowest(times: Mapping[K, int | None], alignment: int) -> set[K]:
    """Return the keys whose times are further than allowed ahead of the lowest one, which is thus never among them.

    Args:
        times: the times of the keys that count; None for an unknown one, which holds no other one back.
        alignment: how far ahead is allowed.

    Example:
        >>> sorted(ahead_of_slowest({"a": 5, "b": 3, "c": 9, "d": None}, 5))
        ['c']
    """
    known = {key: time for key, time in times.items() if time is not None}
    bound = min(known.values(), default=0) + alignment
    return {key for key, time in known.items() if time > bound}
