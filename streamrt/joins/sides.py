"""The two sides of a join in one store: where the records of a key are kept, and which ones of the other side match.

One store keeps both sides under different record keys: `<` (left) or `>` (right) is put in front of a key of bytes; another
key becomes a list of this character and the key.
"""

from dataclasses import dataclass
from typing import Any

from streamrt.common.copies import deep_copy
from streamrt.joins.merging import Merge
from streamrt.state.transactions.timed import TimedTransaction

__all__ = ["Side", "Sides", "is_left", "record_key_of"]


@dataclass(frozen=True)
class Side:
    """One side of a join.

    Attributes:
        left: whether it is the left one.
        before: maximum distance of a match before a record of this side, in milliseconds.
        after: maximum distance of a match after it, in milliseconds.
        passes_unmatched: whether a record without a match is passed on by itself.
        merge: function of left and right value; a missing value is None.
    """

    left: bool
    before: int
    after: int
    passes_unmatched: bool
    merge: Merge

    def pair(self, own: Any, other: Any) -> Any:
        """Return the result for a value of this side and one of the other, which may be None."""
        return self.merge(own, other) if self.left else self.merge(other, own)

    def prefixes(self, transaction: TimedTransaction, key: Any) -> tuple[bytes, bytes]:
        """Return the prefixes of a key in the store, that of this side first."""
        prefix = transaction.prefix
        if type(key) is bytes:
            left, right = prefix(b"<" + key), prefix(b">" + key)
        else:
            left, right = prefix(["<", key]), prefix([">", key])
        return (left, right) if self.left else (right, left)

    def pairs(
        self, transaction: TimedTransaction, other: bytes, value: Any, timestamp: int, oldest: int
    ) -> list[tuple[Any, int]]:
        """Return the pairs of a record, each with its time, in the order of the times of the other side's records.

        Args:
            transaction: the running transaction of the store.
            other: the prefix of the key on the other side.
            value: the record's value.
            timestamp: its time.
            oldest: earlier records of the other side no longer match.
        """
        start, end = max(timestamp - self.before, oldest, 0), timestamp + self.after + 1
        pair = self.pair
        return [
            (pair(deep_copy(value), deep_copy(item)), max(time, timestamp))
            for time, item in transaction.timelines.items(other, start, end)
        ]


@dataclass(frozen=True)
class Sides:
    """Which records of the two sides of a join are pairs, and what becomes of them.

    Attributes:
        how: records that are passed on by themselves: "inner" none, "left" and "right" those of one side, "outer" all.
        merge: function of left and right value; a missing value is None.
        backward_ms: maximum distance of a right record before a left one, in milliseconds.
        forward_ms: maximum distance of a right record after a left one, in milliseconds.

    Example:
        >>> from streamrt.joins.merging import merge_of
        >>> Sides("outer", merge_of("join", "raise"), 1_000, 500).describe()
        'outer, -1000 ms to +500 ms'
    """

    how: str
    merge: Merge
    backward_ms: int
    forward_ms: int

    def both(self) -> tuple[Side, Side]:
        """Return the left and the right side."""
        how, backward, forward = self.how, self.backward_ms, self.forward_ms
        return (
            Side(True, backward, forward, how in ("left", "outer"), self.merge),
            Side(False, forward, backward, how in ("right", "outer"), self.merge),
        )

    def describe(self) -> str:
        """Return which records are pairs, in a few words."""
        return f"{self.how}, -{self.backward_ms} ms to +{self.forward_ms} ms"


def record_key_of(key: Any) -> Any:
    """Return the record key of a key in the store.

    Example:
        >>> record_key_of(b"<ann"), record_key_of([">", 5])
        (b'ann', 5)
    """
    return key[1:] if isinstance(key, bytes) else key[1]


def is_left(key: Any) -> bool:
    """Return whether a key in the store is one of the left side."""
    return key[:1] == b"<" if isinstance(key, bytes) else key[0] == "<"
