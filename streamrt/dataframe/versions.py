"""Former rows of tables: the records that a join as of a time finds them in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from streamrt.dataframe.branch import Branch
from streamrt.errors import ArgumentValueError
from streamrt.relations import MapRows, MapVersions
from streamrt.topics.durations import milliseconds

__all__ = ["Versions", "choose_grace", "parse_keep"]


@dataclass(frozen=True)
class Versions:
    """Where the former rows of a table come from.

    Each record is a version: its row holds from its timestamp on, until that of the next one. The changes of the table do
    not say that, because a record that is out of order, or repeats the present row, may be none.

    Attributes:
        branch: position of the records.
        keep_ms: how long joins keep versions with a successor, in milliseconds; None if each join says it.
        steps: what the table does to its rows.
    """

    branch: Branch
    keep_ms: int | None = None
    steps: tuple[MapRows, ...] = ()

    def mapped(self, step: MapRows) -> Versions:
        """Return the versions of the table below an operator."""
        return replace(self, steps=(*self.steps, step))

    def add_rows(self) -> Branch:
        """Add what makes rows of the records, and return the position below."""
        return self.branch.add(MapVersions(self.steps)) if self.steps else self.branch


def parse_keep(method: str, keep: int | timedelta | None) -> int | None:
    """Return how long former rows are kept, in milliseconds; None if the table does not say it.

    Args:
        method: name of the method with the argument, for errors.
        keep: milliseconds, a timedelta, or None.

    Raises:
        ArgumentTypeError: if it is neither.
        ArgumentValueError: if it is not positive, or longer than all timestamps together.
    """
    return None if keep is None else milliseconds(f"{method}(keep=...)", keep, least=1)


def choose_grace(method: str, versions: Versions | None, grace_ms: int | timedelta | None, default: timedelta) -> int:
    """Return how long a join keeps former rows, in milliseconds.

    Args:
        method: name of the join, for errors.
        versions: those of its right side, if that is a table.
        grace_ms: what the join says.
        default: what counts otherwise.

    Raises:
        ArgumentTypeError: if `grace_ms` is not a duration.
        ArgumentValueError: if it is negative, or both say it.
    """
    if versions is None or versions.keep_ms is None:
        return milliseconds(f"{method}(grace_ms=...)", default if grace_ms is None else grace_ms)
    if grace_ms is not None:
        raise ArgumentValueError(
            f"{method}(grace_ms=...) of a table with keep=...: the table says how long its former rows are kept, "
            f"{versions.keep_ms} ms; leave one of the two out"
        )
    return versions.keep_ms
