"""Timers of record keys in one domain: event time or processing time.

A timer is a time and a record key. Registering and deleting read nothing: both write the key of the timer. Stored
timers are in an index, which is read once from front to back; those that this transaction has registered are in a heap,
too. An entry of either is valid only while the timer is not deleted, so no search is necessary.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final, Literal

from streamrt.errors import StateError
from streamrt.state.base import BEFORE_ALL, Change
from streamrt.state.journal import Journal
from streamrt.state.layout import (
    LATEST_EXPIRY,
    PLAIN,
    split_timer_index_key,
    timer_bound_key,
    timer_index_key,
    timer_key,
)
from streamrt.state.store import StorePartition

__all__ = ["EVENT_TIME", "NEVER", "PROCESSING_TIME", "Domain", "KeptTimers", "Timer", "Timers"]

Domain = Literal[0, 1]
EVENT_TIME: Final = 0
PROCESSING_TIME: Final = 1
NEVER: Final = LATEST_EXPIRY + 1
"""A time later than all timers."""

Timer = tuple[int, bytes]
"""Time in milliseconds, and prefix of the record key without a space."""

KeptTimers = tuple[int, int | None, int]
"""Lower bound of all timers, the stored bound of the index if it is known, and the length of the current round."""

_FIRST_LOOK, _LONGEST_LOOK = 8, 512
_TIMER_BYTES: Final = 300
_LONGEST_ROUND: Final = 10_000
# What this transaction has done to a timer: it was deleted, registered, or registered and then deleted.
_DELETED, _ALIVE, _WITHDRAWN = range(3)


class Timers:
    """The timers of a transaction in one domain.

    Args:
        partition: the open store partition.
        domain: `EVENT_TIME` or `PROCESSING_TIME`.
        kept: what `keep` of the previous transaction over the same open partition returned.

    Attributes:
        due_from: a lower bound of all timers. Operators may read it for each record.
        journal: where changes are noted; None if no record is undone.
    """

    __slots__ = (
        "_ahead",
        "_domain",
        "_exact",
        "_first",
        "_heap",
        "_last",
        "_look",
        "_partition",
        "_round",
        "_scan",
        "_written",
        "due_from",
        "journal",
    )

    def __init__(self, partition: StorePartition, domain: Domain, kept: KeptTimers | None = None) -> None:
        self._partition = partition
        self._domain = domain
        self.due_from, self._first, self._round = (BEFORE_ALL, None, 0) if kept is None else kept
        # Whether there is a timer at `due_from`, or none at all.
        self._exact = kept is not None
        self._written: dict[Timer, int] = {}
        self._heap: list[Timer] = []
        self._ahead: deque[Timer] = deque()
        self._scan: Iterator[tuple[bytes, bytes]] | None = None
        self._look = _FIRST_LOOK
        self._last: Timer | None = None
        self.journal: Journal | None = None

    @property
    def dirty(self) -> bool:
        """Whether there are changes for a commit to store."""
        return bool(self._written)

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return _TIMER_BYTES * len(self._written)

    @property
    def next_time(self) -> int | None:
        """The time of the earliest timer; None if there is none."""
        if not self._exact:
            self._find_earliest()
        return None if self.due_from == NEVER else self.due_from

    def register(self, prefix: bytes, time: int) -> None:
        """Register a timer; one that is registered already stays as it is."""
        timer = time, prefix
        former = self._written.get(timer)
        if former == _ALIVE:
            return
        if self.journal is not None:
            self.journal.entries.append((self._restore_timer, (timer, former)))
        self._written[timer] = _ALIVE
        heappush(self._heap, timer)
        self.due_from = min(self.due_from, time)

    def delete(self, prefix: bytes, time: int) -> None:
        """Delete a timer; a missing one is not an error."""
        timer = time, prefix
        former = self._written.get(timer)
        if self.journal is not None:
            self.journal.entries.append((self._restore_timer, (timer, former)))
        self._written[timer] = _DELETED if former is None or former == _DELETED else _WITHDRAWN
        if time <= self.due_from:
            self._exact = False

    def due(self, bound: int) -> Timer | None:
        """Return the earliest timer that is not later than a time; None ends the round.

        Timers come in the order of their times, and then of the bytes of their prefixes.
        """
        found = self._find_earliest() if bound >= self.due_from else None
        if found is not None and found[0] <= bound:
            return found
        self._round, self._last = 0, None
        return None

    def fire(self, timer: Timer) -> None:
        """Delete the timer that `due` returned, because it fires now.

        Raises:
            StateError: if timers of one key fire without end, because each of them registers one that is also due.
        """
        time, prefix = timer
        last = self._last
        if last is not None and prefix == last[1] and time <= last[0]:
            self._round += 1
            if self._round > _LONGEST_ROUND:
                raise StateError(
                    f"on_timer was called {_LONGEST_ROUND} times for the same record key without a later time than {time}: "
                    "each call has registered a timer that is due at once; register a later one"
                )
        self._last = timer
        self.delete(prefix, time)

    def times(self, prefix: bytes) -> list[int]:
        """Return the times of all timers of a record key, in order."""
        start = timer_key(prefix, self._domain, 0)[:-8]
        stored = self._partition.scan(start, start + b"\xff" * 9)
        known = {int.from_bytes(key[-8:], "big"): _ALIVE for key, _ in stored}
        known.update({time: status for (time, owner), status in self._written.items() if owner == prefix})
        return sorted(time for time, status in known.items() if status == _ALIVE)

    def prepare(self) -> tuple[list[Change], list[Change]]:
        """Return the changes for the changelog, and those of the index."""
        if self._written or self._scan is not None:
            self._find_earliest()
        withdrawn = [timer for timer, status in self._written.items() if status == _WITHDRAWN]
        keys = [timer_key(prefix, self._domain, time) for time, prefix in withdrawn]
        unknown = {
            timer
            for timer, data in zip(withdrawn, self._partition.get_many(keys) if keys else (), strict=True)
            if data is None
        }
        changes: list[Change] = []
        local: list[Change] = []
        for timer, status in self._written.items():
            if timer not in unknown:
                time, prefix = timer
                alive = status == _ALIVE
                changes.append((timer_key(prefix, self._domain, time), PLAIN if alive else None))
                local.append((timer_index_key(self._domain, time, prefix), b"" if alive else None))
        if self._exact and self.due_from != self._first and (local or self._scan is not None):
            self._first = self.due_from
            local.append((timer_bound_key(self._domain), self._first.to_bytes(8, "big")))
        return changes, local

    def keep(self) -> KeptTimers | None:
        """Return what the next transaction needs; None if nothing is known."""
        return (self.due_from, self._first, self._round) if self._exact else None

    def _find_earliest(self) -> Timer | None:
        """Return the earliest timer, and drop the outdated entries before it."""
        written, heap, ahead = self._written, self._heap, self._ahead
        while heap and written.get(heap[0]) != _ALIVE:
            heappop(heap)
        found = heap[0] if heap else None
        while ahead or self._look_ahead():
            first = ahead[0]
            if found is not None and found <= first:
                break
            if written.get(first, _ALIVE) == _ALIVE:
                found = first
                break
            ahead.popleft()
        self.due_from = NEVER if found is None else found[0]
        self._exact = True
        return found

    def _restore_timer(self, timer: Timer, former: int | None) -> None:
        """Undo what a record has done to a timer."""
        time, prefix = timer
        deleted = self._written[timer] != _ALIVE
        if former is not None:
            self._written[timer] = former
        elif deleted and self._partition.get(timer_key(prefix, self._domain, time)) is not None:
            # The look ahead may have passed it, so it is registered again.
            former = self._written[timer] = _ALIVE
        else:
            del self._written[timer]
        if former == _ALIVE:
            heappush(self._heap, timer)
        self.due_from = min(self.due_from, time)
        self._exact = False

    def _look_ahead(self) -> bool:
        """Read the next entries of the index; return False if there are no more."""
        scan: Any = self._scan
        if scan is None:
            bound = self._partition.get(timer_bound_key(self._domain))
            self._first = None if bound is None else int.from_bytes(bound, "big")
            start, end = min(self._first or 0, LATEST_EXPIRY), self._domain + 1
            scan = self._scan = self._partition.scan(timer_index_key(self._domain, start, b""), bytes((0xF3, end)))
        self._ahead.extend(split_timer_index_key(key) for key, _ in islice(scan, self._look))
        self._look = min(self._look * 4, _LONGEST_LOOK)
        return bool(self._ahead)
