"""Effects of the current record, which are undone if it is skipped.

Changes of state are noted in a journal, and undone. Outputs are held until the operators are done with the record. A chain
that skips no records has no effects: nothing is noted or held there.

What a record makes due belongs to other records: windows that close, timers that fire, records that have waited for a
lookup. If an operator below fails on such a result, only what it has done with this result is undone. The result is not made
again, and the record itself stays: otherwise every following record would fail on it.
"""

from collections.abc import Callable
from typing import Any

from streamrt.state.journal import Journal

__all__ = ["MOST_HELD", "Effects"]

MOST_HELD = 100_000
"""Outputs of one record; those of a record with more are not held any longer."""


class Effects(Journal):
    """The effects of the current record.

    Attributes:
        held: functions that release an output, each with its argument.
        kept: whether what was done so far stays, although the record is skipped.

    Example:
        >>> effects, outputs = Effects(), []
        >>> effects.begin()
        >>> effects.hold(outputs.append, 1)
        >>> effects.undo()
        >>> effects.hold(outputs.append, 2)
        >>> effects.release()
        >>> outputs
        [2]
    """

    __slots__ = ("_keeps", "_stays", "held", "kept")

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Callable[[Any], None], Any]] = []
        self.kept = False
        # Number of the outputs that are held and stay.
        self._stays = 0
        # Marks from before do not count any more.
        self._keeps = 0

    def begin(self) -> None:
        """Begin a record, a tick, or the result of an asynchronous call; all before it stays.

        Between two records, this is necessary only if there are entries, or outputs that are held, or some are kept.
        """
        Journal.begin(self)
        self.held.clear()
        self.kept = False
        self._keeps += 1
        self._stays = 0

    def keep(self) -> None:
        """Let all that has been done so far stay, whatever becomes of the record."""
        # Without `begin` of this class, which forgets the outputs that are held.
        Journal.begin(self)
        self._keeps += 1
        self._stays = len(self.held)
        self.kept = True

    def release(self) -> None:
        """Pass on the outputs."""
        held = self.held
        try:
            for release, argument in held:
                release(argument)
        finally:
            held.clear()

    def hold(self, release: Callable[[Any], None], argument: Any) -> None:
        """Hold an output back."""
        self.held.append((release, argument))
        if len(self.held) >= MOST_HELD:
            self.release()

    def mark(self) -> Any:
        """Return a place to which `undo` can go back."""
        entries = len(self.entries)
        if entries:
            super().mark()
        return self._keeps, entries, len(self.held)

    def undo(self, mark: Any = None) -> None:
        """Undo what the record has done since a mark, or all of it, but for what stays."""
        keeps, entries, held = (self._keeps, 0, self._stays) if mark is None else mark
        if keeps == self._keeps:
            super().undo(entries)
            del self.held[held:]
        if mark is None and self.kept:
            self.release()
