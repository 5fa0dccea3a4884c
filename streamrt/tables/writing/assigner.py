"""Which partition a row goes to, where it has no key."""

import logging
import time
from collections.abc import Callable

__all__ = ["REFRESH_S", "RoundRobin"]

logger = logging.getLogger("streamrt.tables")

REFRESH_S = 30.0
"""Seconds after which a writer looks again how many partitions there are; readers do so as often."""


class RoundRobin:
    """Lets rows go around the partitions of a topic, those that are added later among them. Use it in one thread at a time.

    Args:
        table: name of the table.
        partitions: how many partitions there are.
        look: returns how many there are now, or None if that is not known.
        refresh_s: seconds between two looks.

    Example:
        >>> around = RoundRobin("shop.visits", 2, lambda: 3, refresh_s=0.0)
        >>> [around.take() for _ in range(4)]
        [0, 1, 2, 0]
    """

    def __init__(
        self, table: str, partitions: int, look: Callable[[], int | None], refresh_s: float = REFRESH_S
    ) -> None:
        self._table = table
        self._partitions = partitions
        self._look = look
        self._refresh_s = refresh_s
        self._looked_at = time.monotonic()
        self._next = 0

    def choose_partition(self) -> tuple[int, int]:
        """Return the partition of the next row, and the number of partitions.

        It asks brokers again after a while. If they do not answer, the number is the one that is known.
        """
        if time.monotonic() - self._looked_at >= self._refresh_s:
            self._refresh_count()
        return self._next % self._partitions, self._partitions

    def advance(self, rows: int) -> None:
        """Note that so many rows have gone around."""
        self._next = (self._next + rows) % self._partitions

    def take(self) -> int:
        """Return the partition of one row."""
        partition, _ = self.choose_partition()
        self.advance(1)
        return partition

    def _refresh_count(self) -> None:
        found = self._look()
        self._looked_at = time.monotonic()
        if found and found != self._partitions:
            logger.info("Table %r has %d partitions now, not %d: rows go to all", self._table, found, self._partitions)
            self._next, self._partitions = self._next % found, found
