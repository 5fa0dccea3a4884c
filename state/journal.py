"""Changes that the current record has made in stores, so that they are undone if it is skipped.

Transactions append to the journal how each change is undone, and for each record the journal begins again. A chain that
skips no records gives its transactions no journal: then nothing is noted, and nothing costs.
"""

import itertools
from collections.abc import Callable
from typing import Any

__all__ = ["Journal", "due", "next_turn"]

# Of all journals, because an object may be in one after the other.
next_turn = itertools.count().__next__


class Journal:
    """The changes since the current record began, in their order.

    Attributes:
        entries: functions that undo a change, each with its arguments.
        turn: number that changes with each record and mark after a change, so that an object is noted once for each.

    Example:
        >>> journal, values = Journal(), [1]
        >>> values.append(2)
        >>> journal.entries.append((values.remove, (2,)))
        >>> mark = journal.mark()
        >>> values.append(3)
        >>> journal.entries.append((values.remove, (3,)))
        >>> journal.undo(mark)
        >>> values
        [1, 2]
        >>> journal.undo()
        >>> values
        [1]
    """

    __slots__ = ("entries", "turn")

    def __init__(self) -> None:
        self.entries: list[tuple[Callable[..., None], Any]] = []
        self.turn = next_turn()

    def begin(self) -> None:
        """Forget all changes: they stay."""
        self.entries.clear()
        self.turn = next_turn()

    def keep(self) -> None:
        """Let all changes so far stay, whatever becomes of the record."""
        self.begin()

    def part(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose changes are undone if it fails, while all that was done before it stays."""

        def run(*arguments: Any) -> Any:
            mark = self.mark()
            try:
                return function(*arguments)
            except BaseException:
                self.undo(mark)
                self.keep()
                raise

        return run

    def mark(self) -> Any:
        """Return a place to which `undo` can go back."""
        self.turn = next_turn()
        return len(self.entries)

    def undo(self, mark: Any = 0) -> None:
        """Undo the changes since a mark, or all, the last one first."""
        entries = self.entries
        while len(entries) > mark:
            undo, arguments = entries.pop()
            undo(*arguments)
        self.turn = next_turn()


def due(journal: Journal | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for what a record makes due: results of windows that close, timers, records that have waited.

    If it fails, what it has done is undone, and what was done before stays, although the record is skipped: otherwise every
    following record would fail on the same result.

    Args:
        journal: the journal of the transaction; None if no record is undone.
        function: the function.

    Example:
        >>> due(None, print) is print
        True
    """
    return function if journal is None else journal.part(function)
