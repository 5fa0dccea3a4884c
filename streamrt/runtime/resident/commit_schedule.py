"""The settings of a resident loop, and when it commits: after an interval, a number of records, or the last wanted output.

Transactions without an interval of the user end as soon as all records are processed. Each partition has one, which costs
slots and brokers some milliseconds, whatever it has. So commits take a part of the time at most, if they are slow or no
record waits: `_SHARE`. With many partitions, they would otherwise take all of it, and outputs would fall behind for ever.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter

from streamrt.common.throttle import Throttle
from streamrt.config import DEFAULT_TRANSACTION_TIMEOUT_S, LONGEST_TRANSACTION_S
from streamrt.runtime.report import Report

__all__ = ["CommitSchedule", "ResidentSettings"]

logger = logging.getLogger("streamrt")

_MOST_RECORDS = 100_000
"""Maximum number of records between two commits, because state changes stay in memory until the commit."""
_SHORTEST_S = 0.02
"""Seconds from one commit to the next, at least."""
_SHARE = 6
"""A commit may follow the former one after this many times what commits take."""
_SLOW_S = 1.0
"""Commits that take longer wait for brokers: the next ones are not expected to take as long."""
_SLOW_IN_A_ROW = 10
"""So many commits that take longer than their interval are not an accident."""
_WARN_S = 600.0


@dataclass(frozen=True)
class ResidentSettings:
    """The settings of a resident task in addition to the specification.

    Attributes:
        slot: its number, starting at 0.
        attempt: number of tasks with this number that died before.
        commit_interval: seconds between two commits.
        commit_every: maximum number of records between two commits; 0 for no limit.
        transaction_interval: with exactly-once, seconds until a transaction ends; None to end it as soon as this is
            cheap, and after 0.1 s, or six times what commits take if that is more than 0.05 s.
        transaction_timeout: seconds after which brokers abort a transaction.
    """

    slot: int
    attempt: int = 0
    commit_interval: float = 5.0
    commit_every: int = 0
    transaction_interval: float | None = None
    transaction_timeout: float = DEFAULT_TRANSACTION_TIMEOUT_S


class CommitSchedule:
    """Decides when the work of a cycle is committed, and whether another cycle may follow.

    Args:
        settings: the commit intervals.
        clock: returns seconds; only differences count.
        transactional: whether commits are exactly-once.

    Attributes:
        most: number of records after which a commit is due.
        outputs: number of outputs that are still wanted; None for no limit.
        caught_up: whether no record waits to be processed.
    """

    def __init__(self, settings: ResidentSettings, clock: Callable[[], float], *, transactional: bool) -> None:
        self.most = min(_MOST_RECORDS, settings.commit_every or _MOST_RECORDS)
        self.outputs: int | None = None
        self.caught_up = False
        self._clock = clock
        self._transactional = transactional
        self._hurries = transactional and settings.transaction_interval is None
        longest = LONGEST_TRANSACTION_S if settings.transaction_interval is None else settings.transaction_interval
        self._interval = min(settings.commit_interval, longest) if transactional else settings.commit_interval
        asked = {"commit_interval": settings.commit_interval}
        if transactional and settings.transaction_interval is not None:
            asked["transaction_interval"] = settings.transaction_interval
        self._asked = min(asked.items(), key=itemgetter(1))
        self._slow_in_a_row = 0
        self._warned = Throttle(_WARN_S, clock)
        self._longest_pause = min(settings.commit_interval, settings.transaction_timeout / 2)
        self._due = 0.0
        self._settled_at = float("-inf")
        self._took = 0.0

    @property
    def _pause(self) -> float:
        """Seconds from one commit to the next in which commits take their share."""
        return min(_SHARE * self._took, self._longest_pause)

    @property
    def left_s(self) -> float:
        """Seconds until the next commit is due; may be negative."""
        due = self._due
        if self._hurries and self.caught_up:
            due = min(due, self._settled_at + max(_SHORTEST_S, self._pause))
        return due - self._clock()

    def begin(self) -> None:
        """A cycle begins."""
        now = self._clock()
        self._due = now + self._interval
        if self._transactional:
            # Records that arrived during the last commit have already waited.
            self._due = max(self._settled_at + self._interval, now + self._interval / 2)
        # Quick commits, of few partitions, keep to the interval.
        if self._hurries and self._took > self._interval / 2:
            self._due = max(self._due, self._settled_at + self._pause)

    def record_commit(self, begun: float) -> None:
        """The work of the cycle is committed.

        Args:
            begun: what the clock said when the commit began.
        """
        self._settled_at = begun
        took = self._clock() - begun
        # One slow commit says little about the next.
        self._took += (min(took, _SLOW_S) - self._took) / 4
        self._warn_of_slow_commits(took)

    def _warn_of_slow_commits(self, took: float) -> None:
        """Say that an interval of the user leaves commits most of the time."""
        name, interval = self._asked
        # With 0, commits follow each other as fast as they can, as asked.
        self._slow_in_a_row = self._slow_in_a_row + 1 if took > interval > 0 else 0
        if self._slow_in_a_row >= _SLOW_IN_A_ROW and self._warned.admit():
            logger.warning(
                "commits take %.2g s, longer than %s=%g s, which leaves little time for records: lengthen it, or let more "
                "slots share the partitions",
                took,
                name,
                interval,
            )

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
