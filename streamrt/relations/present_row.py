"""`PresentRow`: what is kept of a key whose changes overwrite its row (slowly changing dimension of type 1).

A head is `[sequence, row, deleted, versions]`, as cells:

- the sequence of the newest upsert, and the row; None if there is no row;
- the sequence of the newest delete that is known; None if there is none;
- the sequence at which each column was set, by name; None unless changes may leave columns out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamrt.relations.row_rules import RowRules, precedes
from streamrt.state.transactions.timed import TimedTransaction

__all__ = ["Applied", "KeyChange", "PresentRow", "RowKeeper"]


class KeyChange(NamedTuple):
    """A change of a key.

    Attributes:
        sequence: its place in the order of changes.
        columns: the columns that it sets; None for a delete.
        now: stream time when it arrives, in milliseconds.
    """

    sequence: Any
    columns: dict[str, Any] | None
    now: int


class Applied(NamedTuple):
    """What a change of a key has done.

    Attributes:
        head: what is kept of the key from now on.
        forget_at: event time in milliseconds at which the head is looked at again; None for never.
        before: the row before the change; None for no row.
        after: the present row.
        writes: rows of the table before and after the change, one pair for each that may have changed.
    """

    head: list[Any]
    forget_at: int | None
    before: Any
    after: Any
    writes: list[tuple[Any, Any]]


RowKeeper = Callable[[list[Any] | None, KeyChange, TimedTransaction], Applied | None]
"""Function of a head, a change and the transaction; returns None for a change that comes too late to count."""


@dataclass(frozen=True)
class PresentRow:
    """Keeps the row of a key: of each column, the value with the greatest sequence.

    Among changes with equal sequences, the later one in its partition counts. The result does not depend on the order of
    the others, as long as a deletion is remembered.

    Attributes:
        rules: what changes give.
        retention_ms: how long a deletion is remembered.
    """

    rules: RowRules
    retention_ms: int

    def make_keeper(self) -> RowKeeper:
        """Return the function that applies changes."""
        return self._keep_columns() if self.rules.ignored else self._keep_rows()

    def forget(self, head: list[Any], now: int, transaction: TimedTransaction) -> tuple[list[Any] | None, int | None]:
        """Return what is kept of a head after its deadline, which is that of a deletion: nothing."""
        return None, None

    def _keep_rows(self) -> RowKeeper:
        retention = self.retention_ms

        def apply(head: list[Any] | None, change: KeyChange, transaction: TimedTransaction) -> Applied | None:
            sequence, columns, now = change
            latest, row, deleted, _ = head or (None, None, None, None)
            newest = deleted if latest is None else latest
            if newest is not None and precedes(sequence, transaction.unpack(newest)):
                return None
            before, cell = transaction.unpack(row), transaction.pack(sequence)
            if columns is None:
                return Applied([None, None, cell, None], now + retention, before, None, [(before, None)])
            kept = [cell, transaction.pack(columns), None, None]
            return Applied(kept, None, before, columns, [(before, columns)])

        return apply

    def _keep_columns(self) -> RowKeeper:
        retention, check_row, initial = (
            self.retention_ms,
            self.rules.make_completeness_check(),
            self.rules.make_initial_row(),
        )

        def apply(head: list[Any] | None, change: KeyChange, transaction: TimedTransaction) -> Applied | None:
            sequence, columns, now = change
            pack, unpack = transaction.pack, transaction.unpack
            latest, row, deleted, versions = head or (None, None, None, {})
            if deleted is not None and precedes(sequence, unpack(deleted)):
                return None
            before, cell = unpack(row), pack(sequence)
            after, set_at = {**initial, **(before or {})}, dict(versions or {})
            if columns is None:
                deleted = cell
                for name, at in (versions or {}).items():
                    if not precedes(sequence, unpack(at)):
                        after[name] = initial[name]
                        del set_at[name]
                if latest is None or not precedes(sequence, unpack(latest)):
                    return Applied([None, None, deleted, {}], now + retention, before, None, [(before, None)])
            else:
                for name, value in columns.items():
                    at = set_at.get(name)
                    if at is None or not precedes(sequence, unpack(at)):
                        after[name] = value
                        set_at[name] = cell
                if latest is None or precedes(unpack(latest), sequence):
                    latest = cell
            check_row(after)
            return Applied([latest, pack(after), deleted, set_at], None, before, after, [(before, after)])

        return apply
