"""Sizes of the copies of tables in this process, for metrics. Without tables, nothing is imported for them."""

import weakref
from typing import NamedTuple, Protocol

__all__ = ["MeasuredReplica", "ReplicaSize", "measure_replicas", "watch_replica"]


class ReplicaSize(NamedTuple):
    """The size of a copy of a table.

    Attributes:
        rows: approximate number of rows; None if it is unknown.
        lag: offsets that it lacked at its last look at the topic.
    """

    rows: int | None
    lag: int


class MeasuredReplica(Protocol):
    """A copy of a table that can be measured."""

    @property
    def table(self) -> str:
        """Name of the table."""

    @property
    def is_usable(self) -> bool:
        """Whether it follows, in this process."""

    def measure(self) -> ReplicaSize:
        """Return its size."""


_replicas: "weakref.WeakSet[MeasuredReplica]" = weakref.WeakSet()


def watch_replica(replica: MeasuredReplica) -> None:
    """Have a copy measured as long as it lives and can be used."""
    _replicas.add(replica)


def measure_replicas() -> dict[str, ReplicaSize]:
    """Return the sizes of the copies in this process, by table; of several copies, that with the most rows.

    Example:
        >>> measure_replicas().get("shop.unknown") is None
        True
    """
    found: dict[str, ReplicaSize] = {}
    for replica in list(_replicas):
        if replica.is_usable:
            size, known = replica.measure(), found.get(replica.table)
            if known is None or (size.rows or 0) > (known.rows or 0):
                found[replica.table] = size
    return found
