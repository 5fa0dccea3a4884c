"""Bags of rows of a key: each row with how often it is there.

A bag is a list in the head of a record key. It is

- empty, without rows;
- `[count, row, count, row, ...]` as long as it is small, with rows as exact JSON;
- `[None, set, number]` otherwise: the number of a set of counted values, whose values are the rows, and how many different
  rows it has.

So a key with few rows costs one read, and one with many of them does not write them all for each change. A bag that has
become large stays so until it is empty.
"""

from collections.abc import Iterator
from typing import Any, Final

from streamrt.state.transactions.counted_values import CountedValues

__all__ = ["Bag", "add_row", "count_row", "read_rows", "take_row"]

Bag = list[Any]
"""A bag of rows, as a part of a head."""

_ROWS: Final = 4
"""Number of different rows above which a bag is large."""

_SIZE: Final = 1_000
"""Size of a row above which a bag is large: the head is written whenever the bag of the other side changes."""


def add_row(bag: Bag, row: str, prefix: bytes, sets: CountedValues) -> None:
    """Add a row to a bag.

    Args:
        bag: the bag, which is changed in place.
        row: the row as exact JSON.
        prefix: the prefix of the record key.
        sets: the counted values of the transaction.
    """
    if bag and bag[0] is None:
        if sets.add(prefix, bag[1], row.encode(), 1) == 1:
            bag[2] += 1
        return
    for place in range(1, len(bag), 2):
        if bag[place] == row:
            bag[place - 1] += 1
            return
    bag += (1, row)
    if len(bag) > 2 * _ROWS or len(row) > _SIZE:
        number = sets.create(prefix)
        for place in range(1, len(bag), 2):
            sets.add(prefix, number, bag[place].encode(), bag[place - 1])
        bag[:] = [None, number, len(bag) // 2]


def take_row(bag: Bag, row: str, prefix: bytes, sets: CountedValues) -> bool:
    """Take a row out of a bag once; return whether it was there.

    Args:
        bag: the bag, which is changed in place.
        row: the row as exact JSON.
        prefix: the prefix of the record key.
        sets: the counted values of the transaction.
    """
    if bag and bag[0] is None:
        left = sets.take(prefix, bag[1], row.encode())
        if left == 0:
            bag[2] -= 1
            if not bag[2]:
                sets.delete(prefix, bag[1])
                bag.clear()
        return left is not None
    for place in range(1, len(bag), 2):
        if bag[place] == row:
            bag[place - 1] -= 1
            if not bag[place - 1]:
                del bag[place - 1 : place + 1]
            return True
    return False


def count_row(bag: Bag, row: str, prefix: bytes, sets: CountedValues) -> int:
    """Return how often a row is in a bag; the arguments are those of `take_row`."""
    if bag and bag[0] is None:
        return sets.count(prefix, bag[1], row.encode())
    return next((bag[place - 1] for place in range(1, len(bag), 2) if bag[place] == row), 0)


def read_rows(bag: Bag, prefix: bytes, sets: CountedValues, after: str | None = None) -> Iterator[tuple[str, int]]:
    """Yield the different rows of a bag, as exact JSON, and how often each is there. It must not be changed meanwhile.

    Args:
        bag: the bag.
        prefix: the prefix of the record key.
        sets: the counted values of the transaction.
        after: the row behind which to begin; None for all. It must be in the bag.
    """
    if bag and bag[0] is None:
        start = None if after is None else after.encode()
        for data, count, _ in sets.items(prefix, bag[1], after=start):
            yield data.decode(), count
        return
    begun = after is None
    for place in range(1, len(bag), 2):
        if begun:
            yield bag[place], bag[place - 1]
        begun = begun or bag[place] == after
