"""The settings of a resident loop, and when it commits: after an interval, a number of records, or the last wanted output."""

from collections.abc import Callable
from dataclasses import dataclass

from streamrt.runtime.report import Report

__all__ = ["CommitSchedule", "ResidentSettings"]

_MOST_RECORDS = 100_000
"""Maximum number of records between two commits, because state changes stay in memory until the commit."""


@dataclass(frozen=True)
class ResidentSettings:
    """The settings of a resident task in addition to the specification.

    Attributes:
        slot: its number, starting at 0.
        attempt: number of tasks with this number that died before.
        commit_interval: seconds between two commits.
        commit_every: maximum number of records between two commits; 0 for no limit.
        transaction_interval: with exactly-once, maximum duration of a transaction in seconds.
    """

    slot: int
    attempt: int = 0
    commit_interval: float = 5.0
    commit_every: int = 0
    transaction_interval: float = 0.1


class CommitSchedule:
    """Decides when the work of a cycle is committed, and whether another cycle may follow.

    Args:
        settings: the commit intervals.
        clock: returns seconds; only differences count.
        transactional: whether commits are exactly-once.

    Attributes:
        most: number of records after which a commit is due.
        outputs: number of outputs that are still wanted; None for no limit.
    """

    def __init__(self, settings: ResidentSettings, clock: Callable[[], float], *, transactional: bool) -> None:
        self.most = min(_MOST_RECORDS, settings.commit_every or _MOST_RECORDS)
        self.outputs: int | None = None
        self._clock = clock
        self._transactional = transactional
        self._interval = (
            min(settings.commit_interval, settings.transaction_interval) if transactional else settings.commit_interval
        )
        self._due = 0.0
        self._settled_at = float("-inf")

    @property
    def left_s(self) -> float:
        """Seconds until the next commit is due; may be negative."""
        return self._due - self._clock()

    def begin(self) -> None:
        """A cycle begins."""
        now = self._clock()
        self._due = now + self._interval
        if self._transactional:
            # Records that arrived during the last commit have already waited.
            self._due = max(self._settled_at + self._interval, now + self._interval / 2)

    def record_commit(self) -> None:
        """The work of the cycle is committed now."""
        self._settled_at = self._clock()

    def is_due(self, report: Report, *, paused: bool) -> bool:
        """Return whether the work is to be committed now.

        Args:
            report: the work of the cycle so far.
            paused: whether operators wait for the commit.
        """
        if report.failure is not None or report.records >= self.most or self.left_s <= 0 or paused:
            return True
        return self.outputs is not None and report.outputs >= self.outputs

    def count(self, report: Report) -> bool:
        """Count committed work; return whether processing goes on: there is no failure, and not all outputs are there."""
        if self.outputs is not None:
            self.outputs -= report.outputs
        return report.failure is None and (self.outputs is None or self.outputs > 0)
