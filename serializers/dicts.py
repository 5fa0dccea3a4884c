"""Dicts of columns of values."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

__all__ = ["make_dicts"]


def make_dicts(names: tuple[str, ...], columns: Sequence[Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Return rows as dicts.

    Args:
        names: names of the columns.
        columns: the values of each column, all as many.

    Example:
        >>> list(make_dicts(("id", "name"), [[1, 2], ["a", "b"]]))
        [{'id': 1, 'name': 'a'}, {'id': 2, 'name': 'b'}]
    """
    return _maker_of(names)(zip(*columns, strict=True))


@functools.lru_cache(maxsize=256)
def _maker_of(names: tuple[str, ...]) -> Callable[[Iterable[tuple[Any, ...]]], Iterator[dict[str, Any]]]:
    """Return what makes dicts with these names.

    An expression with the names in it makes a dict in half the time of `dict(zip(names, row))`.
    """
    values = [f"v{number}" for number in range(len(names))]
    pairs = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    source = f"lambda rows: ({{{pairs}}} for ({', '.join(values)},) in rows)"
    # Only of names, and as literals: nothing of it is code of a schema.
    made: Callable[[Iterable[tuple[Any, ...]]], Iterator[dict[str, Any]]] = eval(source)  # noqa: S307
    return made
