"""Counters over the reports of tasks, for metrics. They count from the start of the process, through all runs."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from streamrt.common.replica_sizes import ReplicaSize
from streamrt.runtime.driver.observation.function_metrics import FunctionMetrics
from streamrt.runtime.driver.observation.recent import Recent
from streamrt.runtime.report import Report, RestoredPart, StoreSize
from streamrt.topology import Measured, MetricId, Tally, TaskId, add_tallies

__all__ = ["BATCH_BOUNDS_S", "COMMIT_BOUNDS_S", "JvmMemory", "Meters", "MetersSnapshot"]

BATCH_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets for durations of micro-batches, in seconds."""
COMMIT_BOUNDS_S = (0.001, 0.0025, 0.005, *BATCH_BOUNDS_S)
"""Upper bounds of the buckets for durations of commits, in seconds."""
_SILENT_S = 600.0
"""A process that has reported nothing for so long may have ended."""


class JvmMemory(NamedTuple):
    """The memory of Spark's JVM.

    Attributes:
        heap_used: bytes of the heap that objects take, those included that the next collection removes.
        heap_max: bytes that the heap may have.
        resident: resident memory of the process in bytes; None if it is unknown.
    """

    heap_used: int
    heap_max: int
    resident: int | None


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
        watermarks: watermarks, in milliseconds, by task and store.
        rebalances: assignments that members of this instance got from the group.
        read_bytes: size of the keys and values that were read.
        produced_bytes: size of the keys and values that were sent to topics.
        commit_buckets: number of commits up to each of `COMMIT_BOUNDS_S`, and longer ones.
        commit_seconds: total duration of these commits.
        worker_memory: resident memory of the processes that run tasks, in bytes, by name.
        jvm: memory of Spark's JVM; None if it is unknown.
        functions: what the metrics of users' functions have measured.
        tallies: what operators and the runtime have counted in tasks.
        sizes: sizes of stores, by task and store, as they were last measured.
        block_caches: bytes in the block caches of the processes that run tasks, by name.
        sink_pause_seconds: seconds of pauses that sinks asked for, by stream.
        restored_stores: store partitions that were restored, by stream and store.
        standbys: what the copies of other instances' stores lack, in changelog offsets, by task.
        replicas: sizes of copies of tables, by the process that has them and table.
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
    watermarks: dict[tuple[TaskId, str], int]
    rebalances: int
    read_bytes: int
    produced_bytes: int
    commit_buckets: tuple[int, ...]
    commit_seconds: float
    worker_memory: dict[str, int]
    jvm: JvmMemory | None
    functions: Mapping[MetricId, Measured] = field(default_factory=dict)
    tallies: Mapping[Tally, float] = field(default_factory=dict)
    sizes: Mapping[tuple[TaskId, str], StoreSize] = field(default_factory=dict)
    block_caches: Mapping[str, int] = field(default_factory=dict)
    sink_pause_seconds: Mapping[str, float] = field(default_factory=dict)
    restored_stores: Mapping[tuple[str, str], int] = field(default_factory=dict)
    standbys: Mapping[TaskId, int] = field(default_factory=dict)
    replicas: Mapping[tuple[str, str], ReplicaSize] = field(default_factory=dict)


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
    _watermarks: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    _rebalances: int = 0
    _read_bytes: int = 0
    _produced_bytes: int = 0
    _commit_buckets: list[int] = field(default_factory=lambda: [0] * (len(COMMIT_BOUNDS_S) + 1))
    _commit_seconds: float = 0.0
    _memory: dict[str, tuple[float, int]] = field(default_factory=dict)
    _jvm: JvmMemory | None = None
    _functions: FunctionMetrics = field(default_factory=FunctionMetrics)
    _tallies: dict[Tally, float] = field(default_factory=dict)
    _sizes: dict[tuple[TaskId, str], StoreSize] = field(default_factory=dict)
    _block_caches: dict[str, int] = field(default_factory=dict)
    _pause_seconds: dict[str, float] = field(default_factory=dict)
    _restored_stores: Counter[tuple[str, str]] = field(default_factory=Counter)
    _standbys: dict[str, dict[TaskId, int]] = field(default_factory=dict)
    _replicas: dict[str, dict[str, ReplicaSize]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def started(self) -> None:
        """Count the begin of a run, which has no work under way."""
        with self._lock:
            self._starts += 1
            self._restoring.clear()
            self._event_times.clear()
            self._watermarks = {}
            self._functions.keep(())
            self._memory.clear()
            self._block_caches.clear()
            self._sizes.clear()
            self._standbys.clear()
            self._replicas.clear()
            self._jvm = None

    def rebalanced(self) -> None:
        """Count an assignment that a member of this instance got."""
        with self._lock:
            self._rebalances += 1

    def watermarked(self, watermarks: Mapping[TaskId, Mapping[str, int]]) -> None:
        """Note the watermarks of this instance.

        Args:
            watermarks: milliseconds by task and store; they are not changed any more.
        """
        with self._lock:
            self._watermarks = watermarks

    def jvm_memory(self, memory: JvmMemory | None) -> None:
        """Note the memory of Spark's JVM; None if it is unknown."""
        with self._lock:
            self._jvm = memory

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
            self._sizes = {name: size for name, size in self._sizes.items() if name[0] in own}
            self._functions.keep(own)
            # All copies begin again with the assignment.
            self._standbys.clear()

    def report(self, report: Report, *, finished: bool) -> None:
        """Add a report.

        Args:
            report: the report.
            finished: whether it finishes a batch.
        """
        self.recent.report(report, finished=finished)
        with self._lock:
            self._records += self._counter_growth("records", report.records)
            self._produced += self._counter_growth("produced", report.produced)
            self._skipped += self._counter_growth("skipped", report.skipped)
            self._dead_letters += self._counter_growth("dead letters", report.dead_letters)
            if finished:
                self._batches += 1
                if report.seconds > 0:
                    self._buckets[bisect_left(BATCH_BOUNDS_S, report.seconds)] += 1
                    self._batch_seconds += report.seconds
            if report.commit_seconds > 0:
                self._commit_buckets[bisect_left(COMMIT_BOUNDS_S, report.commit_seconds)] += 1
                self._commit_seconds += report.commit_seconds
            self._read_bytes += self._counter_growth("read bytes", report.read_bytes)
            self._produced_bytes += self._counter_growth("produced bytes", report.produced_bytes)
            now = monotonic()
            self._memory.update({name: (now, size) for name, size in report.memory.items()})
            self._block_caches.update(report.block_cache)
            self._replicas.update(report.replicas)
            self._functions.add(report.metrics)
            add_tallies(self._tallies, report.tallies)
            self._sizes.update(report.sizes)
            self._standbys.update(report.standbys)
            for task, pause in report.stalled.items():
                self._pause_seconds[task.stream] = self._pause_seconds.get(task.stream, 0.0) + pause.seconds
            self._sink_pauses.update(task.stream for task in report.stalled)
            self._interruptions.update(task.stream for task in report.interrupted)
            self._lock_waits.update(task.stream for task in report.locked)
            self._record_restores(report.restores)
            for name, time in report.times.items():
                if time.reached is not None:
                    self._event_times[name] = time.reached

    def restored(self, restores: Mapping[tuple[TaskId, str], RestoredPart]) -> None:
        """Add the progress of restores outside of batches.

        Args:
            restores: the progress, by task and store.
        """
        with self._lock:
            self._record_restores(restores)

    def snapshot(self) -> MetersSnapshot:
        """Return the counters."""
        heard_since = monotonic() - _SILENT_S
        with self._lock:
            self._memory = {name: known for name, known in self._memory.items() if known[0] >= heard_since}
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
                {(task, store): at for task, stores in self._watermarks.items() for store, at in stores.items()},
                self._rebalances,
                self._read_bytes,
                self._produced_bytes,
                tuple(self._commit_buckets),
                self._commit_seconds,
                {name: size for name, (_, size) in self._memory.items()},
                self._jvm,
                self._functions.values(),
                dict(self._tallies),
                dict(self._sizes),
                {name: used for name, used in self._block_caches.items() if name in self._memory},
                dict(self._pause_seconds),
                dict(self._restored_stores),
                {task: left for copies in self._standbys.values() for task, left in copies.items()},
                {
                    (name, table): size
                    for name, tables in self._replicas.items()
                    if name in self._memory
                    for table, size in tables.items()
                },
            )

    def _counter_growth(self, what: str, number: int) -> int:
        """Return by how much a counter grows. A report of aborted work takes records back, and counters never fall."""
        left = self._taken_back.get(what, 0) + number
        self._taken_back[what] = min(0, left)
        return max(0, left)

    def _record_restores(self, restores: Mapping[tuple[TaskId, str], RestoredPart]) -> None:
        for name, part in restores.items():
            if part.finished:
                self._restores[name[0].stream] += 1
                self._restored_stores[name[0].stream, name[1]] += 1
                self._restoring.pop(name, None)
            else:
                self._restoring[name] = part
