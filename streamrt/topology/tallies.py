"""Counters of the runtime and its operators for metrics, as reports carry them to the driver.

A tally is an attribute of the object that counts. It is read once for each report, which has its increase.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

__all__ = [
    "CACHE_HITS",
    "CACHE_MISSES",
    "CHANGELOG_RESTORES",
    "LATE_RECORDS",
    "LOOKUP_HITS",
    "LOOKUP_MISSES",
    "OPERATOR_RECORDS",
    "OPERATOR_SECONDS",
    "SINK_RETRIES",
    "SINK_RETRY_SECONDS",
    "SNAPSHOT_BYTES",
    "SNAPSHOT_FAILURES",
    "SNAPSHOT_RESTORES",
    "SNAPSHOT_UPLOADS",
    "TABLE_DELETES",
    "TABLE_DELETIONS",
    "TABLE_INSERTIONS",
    "TABLE_UNCHANGED",
    "TABLE_UPDATES",
    "TABLE_UPSERTS",
    "TIMERS",
    "Tallies",
    "Tally",
    "add_tallies",
    "of_kind",
]

CACHE_HITS: Final = "cache hits"
"""Reads of state that the object cache answered, by store."""
CACHE_MISSES: Final = "cache misses"
"""Reads of state that the store had to answer, by store."""
CHANGELOG_RESTORES: Final = "changelog restores"
"""Complete restores of a store partition from the changelog, where snapshots are taken, by store."""
LATE_RECORDS: Final = "late records"
"""Records that came too late for all of their windows, by store."""
LOOKUP_HITS: Final = "lookup hits"
"""Lookups that the cache of a lookup answered, by operator."""
LOOKUP_MISSES: Final = "lookup misses"
"""Lookups that the database had to answer, by operator."""
OPERATOR_RECORDS: Final = "operator records"
"""Sampled records that reached an operator, by operator."""
OPERATOR_SECONDS: Final = "operator seconds"
"""Time that an operator took for them, without the operators below, by operator."""
SINK_RETRIES: Final = "sink retries"
"""Requests of sinks that were repeated."""
SINK_RETRY_SECONDS: Final = "sink retry seconds"
"""Time that sinks waited before they repeated requests."""
SNAPSHOT_BYTES: Final = "snapshot bytes"
"""Bytes sent for snapshots, by store."""
SNAPSHOT_FAILURES: Final = "snapshot failures"
"""Snapshots that could not be taken, uploaded or looked for, by store."""
SNAPSHOT_RESTORES: Final = "snapshot restores"
"""Restores of a store partition that began with a snapshot, by store."""
SNAPSHOT_UPLOADS: Final = "snapshot uploads"
"""Snapshots that were uploaded, by store."""
TABLE_DELETES: Final = "table deletes"
"""Rows that were deleted in a table outside of the application, by operator."""
TABLE_DELETIONS: Final = "table deletions"
"""Changes that have deleted a row of a table in the application, by operator."""
TABLE_INSERTIONS: Final = "table insertions"
"""Changes that have inserted one, by operator."""
TABLE_UNCHANGED: Final = "table unchanged"
"""Records and changes that have left a row as it was, by operator."""
TABLE_UPDATES: Final = "table updates"
"""Changes that have updated a row, by operator."""
TABLE_UPSERTS: Final = "table upserts"
"""Rows that were upserted into a table outside of the application, by operator."""
TIMERS: Final = "timers"
"""Timers that fired, by store."""


class Tally(NamedTuple):
    """The subject of a count.

    Attributes:
        kind: one of the names above.
        stream: the stream; empty for what belongs to the whole process.
        name: the store or operator, if the kind has one.
    """

    kind: str
    stream: str = ""
    name: str = ""


class Tallies:
    """Reads what objects count, and returns the increases.

    Example:
        >>> counts, tallies = {"fired": 0}, Tallies()
        >>> tallies.watch("timers", "process_Orders", lambda: counts["fired"])
        >>> counts["fired"] = 3
        >>> tallies.drain("orders")
        {Tally(kind='timers', stream='orders', name='process_Orders'): 3}
        >>> tallies.drain("orders")
        {}
    """

    def __init__(self) -> None:
        self._watched: list[tuple[str, str, Callable[[], float]]] = []
        self._known: list[float] = []

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        """Read a count at each report.

        Args:
            kind: what is counted.
            name: the store or operator.
            total: returns the count so far. A lower one than before has begun again at zero.
        """
        self._watched.append((kind, name, total))
        self._known.append(0)

    def drain(self, stream: str) -> dict[Tally, float]:
        """Return the increases since the last call, as those of a stream; several counts with one name are added."""
        new: dict[Tally, float] = {}
        for number, (kind, name, total) in enumerate(self._watched):
            now, before = total(), self._known[number]
            self._known[number] = now
            if now != before:
                add_tallies(new, {Tally(kind, stream, name): now - before if now > before else now})
        return {tally: increase for tally, increase in new.items() if increase}


def add_tallies(into: dict[Tally, float], new: Mapping[Tally, float]) -> None:
    """Add increases to counts.

    Example:
        >>> counts = {Tally("timers"): 2.0}
        >>> add_tallies(counts, {Tally("timers"): 1.0})
        >>> counts[Tally("timers")]
        3.0
    """
    for tally, increase in new.items():
        into[tally] = into.get(tally, 0) + increase


def of_kind(tallies: Mapping[Tally, float], kind: str) -> Iterable[tuple[Tally, float]]:
    """Return the counts of a kind, sorted.

    Example:
        >>> of_kind({Tally("timers", "b"): 1.0, Tally("timers", "a"): 2.0, Tally("late records"): 3.0}, "timers")
        [(Tally(kind='timers', stream='a', name=''), 2.0), (Tally(kind='timers', stream='b', name=''), 1.0)]
    """
    return sorted((tally, count) for tally, count in tallies.items() if tally.kind == kind)
