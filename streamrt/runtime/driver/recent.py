"""What happened in the last minutes, for people who look at a running application."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from streamrt.common.texts import one_line
from streamrt.runtime.report import Report
from streamrt.topology import TaskId

__all__ = ["Recent", "Second", "Trouble"]

_SECONDS = 120
_TROUBLES = 50


@dataclass(frozen=True)
class Second:
    """What was reported within one second.

    Attributes:
        at: the second, since the Unix epoch.
        batches: micro-batches that ended; in resident mode, commits.
        records: records read.
        failed: records that failed and were skipped or became dead letters.
        longest_s: the longest duration of the tasks of these micro-batches; 0 if it is unknown, as in resident mode.
    """

    at: int
    batches: int = 0
    records: int = 0
    failed: int = 0
    longest_s: float = 0.0


@dataclass(frozen=True)
class Trouble:
    """A task that could not go on at once.

    Attributes:
        at: when it was reported, in seconds since the Unix epoch.
        task: the task.
        kind: "interrupted", "locked", "sink paused" or "record rejected".
        reason: why, in one line.
    """

    at: float
    task: TaskId
    kind: str
    reason: str


class Recent:
    """Remembers the reports of two minutes, and the last fifty troubles; safe to use from any thread.

    Args:
        clock: returns the seconds since the Unix epoch.

    Example:
        >>> recent = Recent(clock=lambda: 1_000.5)
        >>> recent.report(Report(records=5, seconds=0.2), finished=True)
        >>> recent.seconds()
        (Second(at=1000, batches=1, records=5, failed=0, longest_s=0.2),)
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._seconds: deque[Second] = deque(maxlen=_SECONDS)
        self._troubles: deque[Trouble] = deque(maxlen=_TROUBLES)
        self._lock = threading.Lock()

    def report(self, report: Report, *, finished: bool) -> None:
        """Add a report.

        Args:
            report: the report.
            finished: whether it finishes a batch.
        """
        now = self._clock()
        with self._lock:
            if self._seconds and self._seconds[-1].at - now > _SECONDS:
                # The clock was set back, and what is remembered lies in the future.
                self._seconds.clear()
            # After a small correction of the clock, the last second goes on.
            at = max(int(now), self._seconds[-1].at if self._seconds else 0)
            last = self._seconds.pop() if self._seconds and self._seconds[-1].at == at else Second(at)
            self._seconds.append(
                Second(
                    at,
                    last.batches + finished,
                    last.records + report.records,
                    last.failed + report.skipped + report.dead_letters,
                    max(last.longest_s, report.seconds if finished else 0.0),
                )
            )
            for task, reason in report.interrupted.items():
                self._troubles.append(Trouble(now, task, "interrupted", one_line(reason)))
            for task, reason in report.locked.items():
                self._troubles.append(Trouble(now, task, "locked", one_line(reason)))
            for task, pause in report.stalled.items():
                kind = "record rejected" if pause.rejected else "sink paused"
                reason = one_line(pause.reason) if pause.reason else f"a sink asked for {pause.seconds:g} s"
                self._troubles.append(Trouble(now, task, kind, reason))

    def seconds(self) -> tuple[Second, ...]:
        """Return the seconds of the last two minutes in which something was reported, the oldest first."""
        with self._lock:
            since = self._clock() - _SECONDS
            return tuple(second for second in self._seconds if second.at > since)

    def troubles(self) -> tuple[Trouble, ...]:
        """Return the last troubles, the oldest first."""
        with self._lock:
            return tuple(self._troubles)
