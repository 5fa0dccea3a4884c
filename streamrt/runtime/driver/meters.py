"""Counters over the reports of tasks, for metrics. They count from the start of the process, through all runs."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamrt.runtime.driver.recent import Recent
from streamrt.runtime.report import Report, RestoredPart
from streamrt.topology import TaskId

__all__ = ["BATCH_BOUNDS_S", "Meters", "MetersSnapshot"]

BATCH_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets for durations of micro-batches, in seconds."""


@dataclass(frozen=True)
class MetersSnapshot:
    """The counters at one moment.

    Attributes:
        starts: runs that began.
        records: records read.
        produced: records sent to topics.
        skipped: records that failed and were skipped.
        dead_letters: records that failed and were written to the topic for dead letters.
        batches: micro-batches processed; in resident mode, commits made.
        batch_buckets: number of micro-batches up to each of `BATCH_BOUNDS_S`, and longer ones.
        batch_seconds: total duration of the tasks of these micro-batches.
        restarts: restarts after Spark gave work up, by what it was: "query" or "tasks".
        sink_pauses: pauses that sinks asked for, by stream.
        interruptions: tasks that began again at their committed offsets, by stream.
        lock_waits: waits for stores that another process had locked, by stream.
        restores: stores that were restored, by stream.
        restoring: how far restores are, by task and store, while a store is restored.
        event_times: highest event time seen, in milliseconds, by task and store.
    """

    starts: int
    records: int
    produced: int
    skipped: int
    dead_letters: int
    batches: int
    batch_buckets: tuple[int, ...]
    batch_seconds: float
    restarts: dict[str, int]
    sink_pauses: dict[str, int]
    interruptions: dict[str, int]
    lock_waits: dict[str, int]
    restores: dict[str, int]
    restoring: dict[tuple[TaskId, str], RestoredPart]
    event_times: dict[tuple[TaskId, str], int]


@dataclass
class Meters:
    """Counts what reports say; safe to use from any thread.

    Attributes:
        recent: what the reports of the last minutes said.

    Example:
        >>> meters = Meters()
        >>> meters.report(Report(records=5, seconds=0.2), finished=True)
        >>> meters.snapshot().records, meters.snapshot().batches
        (5, 1)
    """

    recent: Recent = field(default_factory=Recent)
    _starts: int = 0
    _records: int = 0
    _produced: int = 0
    _skipped: int = 0
    _dead_letters: int = 0
    _taken_back: dict[str, int] = field(default_factory=dict)
    _batches: int = 0
    _buckets: list[int] = field(default_factory=lambda: [0] * (len(BATCH_BOUNDS_S) + 1))
    _batch_seconds: float = 0.0
    _restarts: Counter[str] = field(default_factory=Counter)
    _sink_pauses: Counter[str] = field(default_factory=Counter)
    _interruptions: Counter[str] = field(default_factory=Counter)
    _lock_waits: Counter[str] = field(default_factory=Counter)
    _restores: Counter[str] = field(default_factory=Counter)
    _restoring: dict[tuple[TaskId, str], RestoredPart] = field(default_factory=dict)
    _event_times: dict[tuple[TaskId, str], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def started(self) -> None:
        """Count the begin of a run, which has no work under way."""
        with self._lock:
            self._starts += 1
            self._restoring.clear()
            self._event_times.clear()

    def restarted(self, what: str) -> None:
        """Count a restart.

        Args:
            what: the work that Spark gave up, such as "query".
        """
        with self._lock:
            self._restarts[what] += 1

    def assigned(self, tasks: Iterable[TaskId]) -> None:
        """Forget the tasks that this instance has no longer.

        Args:
            tasks: those that it has.
        """
        own = frozenset(tasks)
        with self._lock:
            self._restoring = {name: part for name, part in self._restoring.items() if name[0] in own}
            self._event_times = {name: time for name, time in self._event_times.items() if name[0] in own}

    def report(self, report: Report, *, finished: bool) -> None:
        """Add a report.

        Args:
            report: the report.
            finished: whether it finishes a batch.
        """
        self.recent.report(report, finished=finished)
        with self._lock:
            self._records += self._forwards("records", report.records)
            self._produced += self._forwards("produced", report.produced)
            self._skipped += self._forwards("skipped", report.skipped)
            self._dead_letters += self._forwards("dead letters", report.dead_letters)
            if finished:
                self._batches += 1
                if report.seconds > 0:
                    self._buckets[bisect_left(BATCH_BOUNDS_S, report.seconds)] += 1
                    self._batch_seconds += report.seconds
            self._sink_pauses.update(task.stream for task in report.stalled)
            self._interruptions.update(task.stream for task in report.interrupted)
            self._lock_waits.update(task.stream for task in report.locked)
            self._restored(report.restores)
            for name, time in report.times.items():
                if time.reached is not None:
                    self._event_times[name] = time.reached

    def restored(self, restores: Mapping[tuple[TaskId, str], RestoredPart]) -> None:
        """Add the progress of restores outside of batches.

        Args:
            restores: the progress, by task and store.
        """
        with self._lock:
            self._restored(restores)

    def snapshot(self) -> MetersSnapshot:
        """Return the counters."""
        with self._lock:
            return MetersSnapshot(
                self._starts,
                self._records,
                self._produced,
                self._skipped,
                self._dead_letters,
                self._batches,
                tuple(self._buckets),
                self._batch_seconds,
                dict(self._restarts),
                dict(self._sink_pauses),
                dict(self._interruptions),
                dict(self._lock_waits),
                dict(self._restores),
                dict(self._restoring),
                dict(self._event_times),
            )

    def _forwards(self, what: str, number: int) -> int:
        """Return by how much a counter grows. A report of aborted work takes records back, and counters never fall."""
        left = self._taken_back.get(what, 0) + number
        self._taken_back[what] = min(0, left)
        return max(0, left)

    def _restored(self, restores: Mapping[tuple[TaskId, str], RestoredPart]) -> None:
        for name, part in restores.items():
            if part.finished:
                self._restores[name[0].stream] += 1
                self._restoring.pop(name, None)
            else:
                self._restoring[name] = part
