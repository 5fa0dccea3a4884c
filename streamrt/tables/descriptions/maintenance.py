"""Rules of maintained tables: what an application that maintains a table makes of the requests to write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Aggregate", "Deletes", "Maintenance", "Merge", "SequenceGroups", "Versioned", "requests_topic"]

Deletes = Literal["allow", "ignore", "refuse"]
"""What a delete does."""


@dataclass(frozen=True)
class Versioned:
    """The row with the highest version counts; of equal versions, the last one. Null is the lowest version.

    Attributes:
        column: the column with the version.

    Example:
        >>> Versioned("updated_at").column
        'updated_at'
    """

    column: str


@dataclass(frozen=True)
class SequenceGroups:
    """Groups of columns, each of which counts if its sequence is equal or higher than that of the row.

    Attributes:
        groups: the columns of each group, by the column with its sequence.
    """

    groups: Mapping[str, Sequence[str]]


@dataclass(frozen=True, init=False)
class Aggregate:
    """Values of a column are combined with that of the row, by a function for each column.

    Columns without a function have the last value that is not null.

    Args:
        **functions: name of a function by column, such as `total="sum"`.
    """

    functions: Mapping[str, str]

    def __init__(self, **functions: str) -> None:
        object.__setattr__(self, "functions", dict(functions))


Merge = Literal["last", "first"] | Versioned | SequenceGroups | Aggregate
"""What an upsert does to the row of its key."""


@dataclass(frozen=True)
class Maintenance:
    """The rules of a maintained table.

    Attributes:
        merge: what an upsert does.
        deletes: what a delete does.
        changelog: whether changes are written to a topic of their own.
        ttl_ms: milliseconds after which a row that was not written is deleted; None for never.
    """

    merge: Merge = "last"
    deletes: Deletes = "allow"
    changelog: bool = False
    ttl_ms: int | None = None


def requests_topic(topic: str) -> str:
    """Return the name of the topic with the requests of a maintained table.

    Args:
        topic: the topic of the table.

    Example:
        >>> requests_topic("shop.customers")
        'shop.customers.requests'
    """
    return f"{topic}.requests"
