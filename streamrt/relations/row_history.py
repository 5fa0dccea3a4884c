"""`RowHistory`: what is kept of a key whose changes make versions of its row (slowly changing dimension of type 2).

A head is `[floor, base, changes]`, as cells:

- the sequence up to which changes were merged into the base; None if none were;
- the version that is in force after them, as `[start, row]`; None if there is no row;
- the changes after it in the order of their sequences, each as `[sequence, arrived, kind, columns]`.

Changes are kept as long as an older one may still arrive: it then splits a version of the history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from streamrt.relations.present_row import Applied, KeyChange, RowKeeper
from streamrt.relations.row_rules import END_AT, START_AT, RowRules, precedes
from streamrt.state.transactions.timed import TimedTransaction

__all__ = ["MOST_CHANGES", "RowHistory"]

MOST_CHANGES: Final = 1000
"""Number of changes of a key that are kept to be split by older ones."""

_DELETE, _UPSERT, _RENEWAL = 0, 1, 2
"""Kinds of changes; a renewal is an upsert that follows a delete with the same sequence."""

_Version = tuple[Any, dict[str, Any]]
"""Sequence from which a version is in force, and its row."""

_Fold = Callable[[_Version | None, list[list[Any]], TimedTransaction], tuple[list[dict[str, Any]], _Version | None]]


@dataclass(frozen=True)
class RowHistory:
    """Keeps the versions of the row of a key: a new one begins with each change of a tracked column.

    Among changes with equal sequences, the later one in its partition counts. The result does not depend on the order of the
    others, as long as the changes are kept.

    Attributes:
        rules: what changes give.
        tracked: names of the columns whose changes make versions.
        retention_ms: how much later than a newer one of its key a change may arrive.
    """

    rules: RowRules
    tracked: tuple[str, ...]
    retention_ms: int

    def make_keeper(self) -> RowKeeper:
        """Return the function that applies changes."""
        check_row, fold = self.rules.make_completeness_check(), self._make_fold()

        def apply(head: list[Any] | None, change: KeyChange, transaction: TimedTransaction) -> Applied | None:
            sequence, unpack = change.sequence, transaction.unpack
            floor, base, changes = head or (None, None, [])
            if floor is not None and not precedes(unpack(floor), sequence):
                return None
            place = _find_place(changes, sequence, unpack)
            same = place < len(changes) and not precedes(sequence, unpack(changes[place][0]))
            entry = _make_entry(change, changes[place] if same else None, transaction)
            renewed = [entry, *changes[place + same :]]
            # Versions that ended before the change are not affected.
            begin = 0 if self.rules.ignored else self._find_version(changes, place, unpack)
            former_version = None if begin else _read_version(base, unpack)
            _, current = fold(former_version, changes[begin:place], transaction)
            old, former = _list_versions(fold(current, changes[place:], transaction))
            new, present = _list_versions(fold(current, renewed, transaction))
            for row in new.values():
                check_row(row)
            writes = [
                (old.get(start), new.get(start))
                for start in dict.fromkeys((*old, *new))
                if old.get(start) != new.get(start)
            ]
            kept, look_at = self._prune(fold, [floor, base, [*changes[:place], *renewed]], change.now, transaction)
            return Applied(kept, look_at, former, present, writes)

        return apply

    def forget(self, head: list[Any], now: int, transaction: TimedTransaction) -> tuple[list[Any] | None, int | None]:
        """Return what is kept of a head after its deadline, and the next deadline."""
        kept, look_at = self._prune(self._make_fold(), head, now, transaction)
        return (None if kept[1] is None and not kept[2] else kept), look_at

    def _find_version(self, changes: list[list[Any]], place: int, unpack: Callable[[Any], Any]) -> int:
        """Return the place of the change that begins the version before a place, if changes give all columns."""
        begin = max(place - 1, 0)
        later: Any = unpack(changes[begin][3]) if place else None
        while begin and changes[begin][2] == _UPSERT:
            earlier = unpack(changes[begin - 1][3])
            if earlier is None or not _is_same_version(earlier, later, self.tracked):
                break
            begin, later = begin - 1, earlier
        return begin

    def _prune(
        self, fold: _Fold, head: list[Any], now: int, transaction: TimedTransaction
    ) -> tuple[list[Any], int | None]:
        """Merge changes that no older one can split any more into the base."""
        floor, base, changes = head
        oldest, count = now - self.retention_ms, 0
        while count < len(changes) and (changes[count][1] <= oldest or len(changes) - count > MOST_CHANGES):
            count += 1
        if count:
            _, current = fold(_read_version(base, transaction.unpack), changes[:count], transaction)
            base = None if current is None else [transaction.pack(current[0]), transaction.pack(current[1])]
            floor, changes = changes[count - 1][0], changes[count:]
        return [floor, base, changes], changes[0][1] + self.retention_ms if changes else None

    def _make_fold(self) -> _Fold:
        """Return the function that returns the ended versions after changes, and the current one."""
        initial, tracked = self.rules.make_initial_row(), self.tracked

        def fold(
            current: _Version | None, changes: list[list[Any]], transaction: TimedTransaction
        ) -> tuple[list[dict[str, Any]], _Version | None]:
            unpack, ended = transaction.unpack, []
            for sequence_cell, _, kind, columns in changes:
                sequence = unpack(sequence_cell)
                former = None if current is None else current[1]
                row = None
                if kind != _DELETE:
                    row = {**(initial if former is None or kind == _RENEWAL else former), **unpack(columns)}
                    if former is not None and kind == _UPSERT and _is_same_version(former, row, tracked):
                        current = (current[0], row)  # type: ignore[index]
                        continue
                if current is not None:
                    ended.append({**current[1], START_AT: current[0], END_AT: sequence})
                current = None if row is None else (sequence, row)
            return ended, current

        return fold


def _is_same_version(one: dict[str, Any], other: dict[str, Any], tracked: tuple[str, ...]) -> bool:
    return all(one.get(name) == other.get(name) for name in tracked)


def _find_place(changes: list[list[Any]], sequence: Any, unpack: Callable[[Any], Any]) -> int:
    """Return the place of the first change that does not come before a sequence."""
    low, high = 0, len(changes)
    if changes and precedes(unpack(changes[-1][0]), sequence):
        return high
    while low < high:
        middle = (low + high) // 2
        if precedes(unpack(changes[middle][0]), sequence):
            low = middle + 1
        else:
            high = middle
    return low


def _make_entry(change: KeyChange, replaced: list[Any] | None, transaction: TimedTransaction) -> list[Any]:
    """Return what is kept of a change; one with the same sequence, which came before it, is replaced."""
    sequence, columns, now = change
    kind = _DELETE if columns is None else _UPSERT
    if replaced is not None and columns is not None:
        kind = _UPSERT if replaced[2] == _UPSERT else _RENEWAL
        columns = {**(transaction.unpack(replaced[3]) or {}), **columns}
    return [transaction.pack(sequence), now, kind, transaction.pack(columns)]


def _read_version(base: list[Any] | None, unpack: Callable[[Any], Any]) -> _Version | None:
    return None if base is None else (unpack(base[0]), unpack(base[1]))


def _list_versions(
    folded: tuple[list[dict[str, Any]], _Version | None],
) -> tuple[dict[Any, dict[str, Any]], dict[str, Any] | None]:
    """Return the versions by their start, and the one that is in force."""
    ended, current = folded
    present = None if current is None else {**current[1], START_AT: current[0], END_AT: None}
    versions = ended if present is None else [*ended, present]
    return {row[START_AT]: row for row in versions}, present
