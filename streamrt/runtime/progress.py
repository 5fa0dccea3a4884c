"""What an application has done so far, for whoever watches it."""

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from streamrt.models import TopicPartition
from streamrt.runtime.report import Report

_WINDOW_S = 5.0


@dataclass(frozen=True)
class ProgressSnapshot:
    """The state of an application at one moment.

    Attributes:
        records: records read since `run()` began.
        produced: records sent to topics.
        batches: micro-batches processed; in resident tasks, commits made.
        rate: records read per second, over the last seconds.
        positions: offset of the next record to process, per assigned partition.
        waiting_for: what a start waits for, in a few words, such as "Java and Spark to start"; empty when it is over.
    """

    records: int
    produced: int
    batches: int
    rate: float
    positions: dict[TopicPartition, int]
    waiting_for: str = ""


@dataclass
class Progress:
    """Counts what reports tell; safe to read from any thread."""

    records: int = 0
    produced: int = 0
    batches: int = 0
    waiting_for: str = ""
    _positions: dict[TopicPartition, int] = field(default_factory=dict)
    _begun: float = 0.0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def assigned(self, positions: dict[TopicPartition, int]) -> None:
        """Note a new assignment and where it begins."""
        with self._lock:
            self._positions = dict(positions)
            self._begun = self._begun or time.monotonic()

    def processed_to(self, positions: dict[TopicPartition, int]) -> None:
        """Note how far partitions have come."""
        with self._lock:
            self._positions.update(positions)

    def report(self, report: Report, *, finished: bool = True) -> None:
        """Add the work that a report tells of.

        Args:
            report: the report.
            finished: whether a batch has ended with it.
        """
        now = time.monotonic()
        with self._lock:
            self.records += report.records
            self.produced += report.produced
            self.batches += finished
            self._positions.update({place: done.end for place, done in report.ranges.items()})
            self._recent.append((now, report.records))
            self._forget(now)

    def snapshot(self) -> ProgressSnapshot:
        """Return the state as it is now."""
        now = time.monotonic()
        with self._lock:
            self._forget(now)
            # What was told of and then given up is taken back, maybe after the telling has been forgotten.
            recent = max(0, sum(records for _, records in self._recent))
            seconds = min(_WINDOW_S, max(now - self._begun, 0.1))
            return ProgressSnapshot(
                self.records, self.produced, self.batches, recent / seconds, dict(self._positions), self.waiting_for
            )

    def _forget(self, now: float) -> None:
        while self._recent and now - self._recent[0][0] > _WINDOW_S:
            self._recent.popleft()
