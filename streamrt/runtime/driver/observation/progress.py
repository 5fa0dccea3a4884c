"""The progress of an application, for monitoring."""

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamrt.records import Positions, TopicPartition
from streamrt.runtime.driver.observation.meters import Meters
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
        waiting_for: short description of what the start waits for, such as "Java and Spark to start"; empty after the
            start.
        skipped: records that failed and were skipped.
        dead_letters: records that failed and were written to the topic for dead letters.
        rates: offsets processed per second, over the last seconds, by topic.
    """

    records: int
    produced: int
    batches: int
    rate: float
    positions: dict[TopicPartition, int]
    waiting_for: str = ""
    skipped: int = 0
    dead_letters: int = 0
    rates: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it: positions by topic and number of the partition.

        Example:
            >>> snapshot = ProgressSnapshot(3, 2, 1, 0.5, {TopicPartition("orders", 0): 3})
            >>> snapshot.as_dict()["positions"], ProgressSnapshot.of_dict(snapshot.as_dict()) == snapshot
            ({'orders': {'0': 3}}, True)
        """
        positions: dict[str, dict[str, int]] = {}
        for partition, position in sorted(self.positions.items()):
            positions.setdefault(partition.topic, {})[str(partition.partition)] = position
        return {**asdict(self), "positions": positions}

    @classmethod
    def of_dict(cls, found: Mapping[str, Any]) -> "ProgressSnapshot":
        """Return it from what `as_dict` returned."""
        positions = {
            TopicPartition(topic, int(number)): position
            for topic, numbers in found["positions"].items()
            for number, position in numbers.items()
        }
        return cls(**{**found, "positions": positions})


@dataclass
class Progress:
    """Accumulates the reports of one run; safe to read from any thread.

    Attributes:
        records: records read.
        produced: records sent to topics.
        batches: micro-batches processed; in resident tasks, commits made.
        waiting_for: what the start waits for.
        meters: accumulates the reports of all runs.
    """

    records: int = 0
    produced: int = 0
    skipped: int = 0
    dead_letters: int = 0
    batches: int = 0
    waiting_for: str = ""
    meters: Meters = field(default_factory=Meters)
    _positions: Positions = field(default_factory=Positions)
    _begun: float = 0.0
    _recent: deque[tuple[float, int, Counter[str]]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next_run(self) -> "Progress":
        """Return the progress of a run that begins after this one."""
        self.meters.started()
        return Progress(meters=self.meters)

    def assigned(self, positions: dict[TopicPartition, int]) -> None:
        """Note a new assignment with its start offsets."""
        with self._lock:
            self._positions = Positions(positions)
            self._begun = self._begun or time.monotonic()

    def processed_to(self, positions: dict[TopicPartition, int]) -> None:
        """Note the positions of partitions."""
        with self._lock:
            self._positions.advance(positions)

    def report(self, report: Report, *, finished: bool = True) -> None:
        """Add the work of a report.

        Args:
            report: the report.
            finished: whether it finishes a batch.
        """
        now = time.monotonic()
        self.meters.report(report, finished=finished)
        with self._lock:
            self.records += report.records
            self.produced += report.produced
            self.skipped += report.skipped
            self.dead_letters += report.dead_letters
            self.batches += finished
            moved: Counter[str] = Counter()
            for partition, done in report.ranges.items():
                before = self._positions.get(partition, done.start)
                for raised in self._positions.advance({partition: done.end}).values():
                    moved[partition.topic] += raised - before
            self._recent.append((now, report.records, moved))
            self._forget_old(now)

    def snapshot(self) -> ProgressSnapshot:
        """Return the current state."""
        now = time.monotonic()
        with self._lock:
            self._forget_old(now)
            # Aborted work is subtracted, possibly after its own report has left the window.
            recent = max(0, sum(records for _, records, _ in self._recent))
            topics = Counter({partition.topic: 0 for partition in self._positions})
            for _, _, moved in self._recent:
                topics.update(moved)
            seconds = min(_WINDOW_S, max(now - self._begun, 0.1))
            return ProgressSnapshot(
                self.records,
                self.produced,
                self.batches,
                recent / seconds,
                dict(self._positions),
                self.waiting_for,
                self.skipped,
                self.dead_letters,
                {topic: offsets / seconds for topic, offsets in topics.items()},
            )

    def _forget_old(self, now: float) -> None:
        while self._recent and now - self._recent[0][0] > _WINDOW_S:
            self._recent.popleft()
