"""One assignment of partitions as one Structured Streaming query.

    Kafka source (assigned partitions) -> foreachBatch -> mapInArrow(RunTasks) -> collect reports

A micro-batch begins and ends in `foreachBatch`: it passes each task its context, collects the reports and calls the
runner, which commits. Spark's own checkpoint is disposable: each query has a new one.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from streamrt.event_time.event_time import EventTime, StepClock
from streamrt.records import Positions, TopicPartition
from streamrt.runs.driver_reads import BatchReads
from streamrt.runs.start_positions import Start
from streamrt.runs.time_requests import TimeRequests
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.driver.life.exits import in_background
from streamrt.runtime.driver.life.unfinished import Unfinished
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.runtime.report import Pause, Report
from streamrt.slots.reports import merge_reports
from streamrt.slots.worker_process import SpecReference
from streamrt.spark.row_routing import route, waves
from streamrt.spark.sessions.job import run_on_numbers
from streamrt.spark.sessions.spark_session import SparkEnvironment
from streamrt.spark.workers.arrow import INPUT_COLUMNS, REPORT_SCHEMA, RunTasks
from streamrt.spark.workers.executor import TickTasks
from streamrt.spark.workers.state_reads import ReadStores, in_order
from streamrt.topology import TaskId, Topology

_FULL = 0.9
_MUCH_FASTER = 8
_LARGEST_STEP = 16
_MUCH_LESS = 2
_PLANNING_S = 0.3
_READ_SHARE = 30
"""While there are records to process, reads of state take one of so many seconds at most."""


@dataclass(frozen=True)
class QuerySettings:
    """Settings of a query.

    Attributes:
        kafka_options: options of Spark's Kafka source.
        max_records: records of one micro-batch, over all partitions.
        slice_s: seconds after which all tasks have stopped between two records, to commit work and to notice a stop.
        count: whether outputs are limited; a batch then runs in one task, which makes the limit exact.
        largest: bound for `max_records` when batches are fast.
    """

    kafka_options: Mapping[str, str]
    max_records: int
    slice_s: float
    count: bool
    largest: int

    def resized(self, report: Report, seconds: float, partitions: int) -> int | None:
        """Return a better number of records for a micro-batch, or None if the current one is good.

        Tasks that did not finish a batch run again with the same batch, unless much less would have fitted. The minimum
        is one record of each partition, which may take more than a slice.

        Args:
            report: the last micro-batch.
            seconds: duration of that micro-batch.
            partitions: number of partitions that are read.

        Example:
            >>> settings = QuerySettings({}, max_records=10_000, slice_s=4.0, count=False, largest=200_000)
            >>> settings.resized(Report(records=500, complete=False), 4.0, 2)
            500
            >>> settings.resized(Report(records=8_000, complete=False), 4.0, 2) is None
            True
            >>> settings.resized(Report(records=10_000), 0.1, 2)
            160000
            >>> settings.resized(Report(records=10_000), 1.0, 2) is None
            True
        """
        if not report.complete:
            least = max(partitions, report.records)
            return least if least * _MUCH_LESS < self.max_records else None
        full = report.records >= _FULL * self.max_records
        if full and self.max_records < self.largest and seconds * _MUCH_FASTER <= self.slice_s:
            fitting = self.max_records * self.slice_s / (2 * max(seconds, 0.01))
            return int(min(self.largest, self.max_records * _LARGEST_STEP, fitting))
        return None


class QuietTimes:
    """Reports tasks at the ends of their inputs to `EventTime`: those that are quiet, and for how long.

    Args:
        event_time: receives the reports.
        topology: knows the inputs of tasks.
    """

    def __init__(self, event_time: EventTime, topology: Topology) -> None:
        self._event_time = event_time
        self._topology = topology
        self._clock = StepClock()
        self._ends: dict[TopicPartition, int] = {}

    def all_read(self) -> None:
        """Note that all available records have been read and processed."""
        self._event_time.at_end(None)
        self._event_time.elapse(self._clock.step(time.monotonic()))
        self._ends.clear()

    def planned(self, progress: Mapping[str, Any] | None) -> None:
        """Note the partitions that end with the last micro-batch, although others may have many more records.

        A partition with the same end as at the planning of the previous micro-batch has been quiet since that planning.

        Args:
            progress: Spark's progress report of the last finished micro-batch.
        """
        if progress is None:
            return
        read, latest = (source_offsets(progress, name) for name in ("endOffset", "latestOffset"))
        ended = {partition: at for partition, at in read.items() if at >= latest.get(partition, at + 1)}
        tasks = {self._topology.task(partition) for partition in read}
        at_end = {task for task in tasks if ended.keys() >= set(self._topology.inputs(task))}
        unmoved = {
            task for task in at_end if all(self._ends.get(each) == ended[each] for each in self._topology.inputs(task))
        }
        self._event_time.at_end(at_end)
        self._event_time.elapse(self._clock.gap(time.monotonic()), unmoved)
        self._ends = ended


class MicroBatchQuery:
    """Runs tasks for the records of some partitions until it is stopped.

    If tasks can finish only a small part of a micro-batch within their time slice, the micro-batch is cut: the query
    ends, and `resize` is the number of records that would have fitted. To read the rest in a new query is cheaper than
    to read all of it again for each slice. Otherwise tasks run again, slice after slice, until the batch is done. Each
    partition thus gets its turn, however many of them share a slice.

    Args:
        environment: the Spark environment.
        reference: reference to the task specification.
        settings: settings of the query.
        start: the start positions.
        topology: the operators, resolved.
        workers: the process that made the last commit, by task; updated here.
        event_time: knows the tasks that must process the passing of time; updated here.
        requests: requests data for event time from Kafka.
        unfinished: knows the tasks with unfinished work; updated here.
        on_report: called with the merged report after each run of tasks.
        outputs_left: returns the number of outputs that may still come, or None for no limit.
        reads: reads of state that wait for the end of a micro-batch.
        require_inputs: raises unless the inputs are still the topics that were read: tasks commit by themselves.
        reading: surrounds a micro-batch, whose records must be there until it has ended.
        is_behind: returns whether the query must end, given up to where the last micro-batch has read its partitions, and the
            ends that they had; None if this does not matter.
    """

    def __init__(
        self,
        environment: SparkEnvironment,
        reference: SpecReference,
        settings: QuerySettings,
        start: Start,
        topology: Topology,
        workers: dict[TaskId, str],
        event_time: EventTime,
        requests: TimeRequests,
        unfinished: Unfinished,
        on_report: Callable[[Report], None],
        outputs_left: Callable[[], int | None],
        reads: BatchReads,
        require_inputs: Callable[[], None],
        reading: Callable[[], AbstractContextManager[None]],
        is_behind: Callable[[Mapping[TopicPartition, int], Mapping[TopicPartition, int]], bool] | None = None,
    ) -> None:
        self._environment = environment
        self._reference = reference
        self._settings = settings
        self._start = start
        self._positions = Positions(start.positions)
        self._topology = topology
        self._workers = workers
        self._event_time = event_time
        self._requests = requests
        self._quiet = QuietTimes(event_time, topology)
        self._unfinished = unfinished
        self._turn = 0
        self._on_report = on_report
        self._outputs_left = outputs_left
        self._reads = reads
        self._require_inputs = require_inputs
        self._reading = reading
        self._is_behind = is_behind
        self.behind = False
        self._stopping = threading.Event()
        self._busy = threading.Lock()
        self._query: StreamingQuery | None = None
        self._last_batch = -1
        self._batch = 0
        # Whether there may have been more records than in the last micro-batch, and event time needs to know.
        self._full = False
        # Before this time, reads of state wait while there are records to process.
        self._next_read = 0.0
        self.error: Exception | None = None
        self.resize: int | None = None
        self.interrupted: str | None = None
        self.stalled: dict[TaskId, Pause] = {}
        # Tasks whose stores are locked by another process, and tasks that could open theirs.
        self.locked: dict[TaskId, str] = {}
        self.opened: set[TaskId] = set()

    def start(self) -> None:
        """Start reading."""
        reader = self._environment.session.readStream.format("kafka").options(**self._settings.kafka_options)
        topics: dict[str, list[int]] = {}
        offsets: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self._positions.items()):
            topics.setdefault(topic, []).append(partition)
            offsets.setdefault(topic, {})[str(partition)] = offset
        stream = (
            reader.option("assign", json.dumps(topics))
            .option("startingOffsets", json.dumps(offsets))
            .option("maxOffsetsPerTrigger", str(self._settings.max_records))
            .load()
            .selectExpr(*INPUT_COLUMNS)
        )
        checkpoint = self._environment.runtime_dir / f"checkpoint-{uuid.uuid4().hex}"
        self._query = (
            stream.writeStream.foreachBatch(self._run_batch).option("checkpointLocation", str(checkpoint)).start()
        )

    def failure(self) -> Exception | None:
        """Return the error with which the query ended, or None while it runs."""
        if self.error is not None:
            return self.error
        if self._query is None or self._query.isActive:
            return None
        return self._query.exception() or RuntimeError("the query ended without an error")

    def finished_offsets(self) -> dict[TopicPartition, int]:
        """Return the ends of the last finished micro-batch's offset ranges.

        They can be higher than the last record, because transaction markers also take offsets.
        """
        progress = None if self._query is None else self._query.lastProgress
        if progress is None or progress["batchId"] > self._last_batch or self._stopping.is_set():
            return {}
        return source_offsets(progress, "endOffset")

    def stop(self, timeout_s: float, *, last: bool = False) -> bool:
        """Stop, at the boundary of a slice if there is time.

        Args:
            timeout_s: seconds to wait for the boundary.
            last: whether Spark ends after this query. A query that is being planned does not react for seconds, and then
                is left to the end of Spark: it runs no more tasks.

        Returns:
            Whether the boundary was reached within `timeout_s` seconds.
        """
        self._stopping.set()
        clean = self._busy.acquire(timeout=timeout_s)
        if clean:
            # Spark waits for a micro-batch that is just beginning; it takes this lock and then does nothing.
            self._busy.release()
        if self._query is not None:
            stopping = in_background("streamrt-query-stop", self._query.stop)
            if wait([stopping], _PLANNING_S if last else None).done:
                stopping.result()
        return clean

    @property
    def works(self) -> bool:
        """Whether the query has begun to work: it has finished a micro-batch, or waits for data."""
        return self._last_batch >= 0 or self.caught_up()

    @property
    def reached(self) -> dict[TopicPartition, int]:
        """The offset of each input partition below which everything is processed, also after transaction markers."""
        read = self.finished_offsets()
        return {partition: max(at, read.get(partition, at)) for partition, at in dict(self._positions).items()}

    @property
    def processed(self) -> BatchContext:
        """The processed part of the input, after the end of the query."""
        return self._make_context(self._settings.slice_s)

    def between_batches(self, action: Callable[[], None]) -> bool:
        """Call a function while no tasks run; return False, without the call, if tasks are running."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            action()
        finally:
            self._busy.release()
        return True

    def moved(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note that the group's offsets were moved past transaction markers; call it between batches."""
        self._positions.advance(offsets)

    def caught_up(self) -> bool:
        """Return whether the query has started and waits for new records."""
        return self._query is not None and self._query.status["message"].startswith("Waiting for data")

    def tick(self) -> None:
        """Let time pass for the tasks that wait for it, unless tasks are running."""
        if self._event_time.wanted or self._unfinished.tasks:
            self.between_batches(self._pass_time)

    def read_state(self) -> None:
        """Answer the reads of state that wait, unless tasks are running."""
        if self._reads.pending and (time.monotonic() >= self._next_read or self.caught_up()):
            self.between_batches(self._read_batch)

    def _read_batch(self) -> None:
        if self._stopping.is_set():
            return
        begun = time.monotonic()
        self._reads.serve(self._positions, self._run_reads)
        now = time.monotonic()
        self._next_read = now + _READ_SHARE * (now - begun)

    def _run_reads(self, reads: Sequence[TaskRead]) -> list[TaskRows]:
        return run_reads(self._environment, self._reference, reads, self._make_context(self._settings.slice_s))

    def _pass_time(self) -> None:
        """Apply Spark's read progress to event time, and tick the tasks that are due."""
        if self._stopping.is_set():
            # Spark takes the last batch for processed, although tasks may have put their records back.
            return
        if self.caught_up() and not self._unfinished.tasks:
            self._quiet.all_read()
        if self._event_time.passes:
            self._event_time.processed(self.finished_offsets())
        self._tick_tasks()

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        with self._busy, self._reading():
            if self._stopping.is_set():
                return
            if self._has_fallen_behind():
                self.behind = True
                self._stopping.set()
                return
            if self._full and self._query is not None:
                self._quiet.planned(self._query.lastProgress)
            self._batch = batch_id
            records = self._run_whole(batch, batch_id)
            if self._stopping.is_set():
                return
            self._full = self._event_time.wanted and records >= _FULL * self._settings.max_records
            if not self._full:
                self._quiet.all_read()
            self._tick_tasks()

    def _has_fallen_behind(self) -> bool:
        """Return whether the last micro-batch has left records that merges in this one must wait for."""
        progress = None if self._is_behind is None or self._query is None else self._query.lastProgress
        if progress is None or self._is_behind is None:
            return False
        return self._is_behind(source_offsets(progress, "endOffset"), source_offsets(progress, "latestOffset"))

    def _run_whole(self, batch: DataFrame, batch_id: int) -> int:
        """Run tasks, slice after slice, until a batch is done or the query must stop; return the number of records."""
        records = 0
        while not self._stopping.is_set():
            begun = time.monotonic()
            report = self._finish_work(lambda: self._run_tasks(batch))
            if report is None:
                break
            records += report.records
            if report.complete:
                if self._last_batch < 0:
                    self._environment.first_batch_done(batch.sparkSession)
                self._last_batch = batch_id
            # If work is left unfinished, the records were not what took the time.
            if not self._stopping.is_set() and not any(report.unfinished.values()):
                self.resize = self._settings.resized(report, time.monotonic() - begun, len(self._positions))
                if self.resize is not None:
                    self._stopping.set()
            while self._unfinished.tasks and not self._stopping.is_set():
                self._tick_tasks()
            if self._reads.pending and time.monotonic() >= self._next_read:
                self._read_batch()
            if report.complete:
                break
        return records

    def _tick_tasks(self) -> None:
        """Tick the tasks that have work, for one slice."""
        due: set[TaskId] = set()
        if self._event_time.wanted:
            foreign = self._requests.foreign(self._event_time)
            if foreign:
                self._event_time.peers(self._requests.peers(foreign))
            barrier = self._requests.barrier(self._event_time)
            ends = None if barrier is None else self._requests.ends(barrier)
            if barrier is not None and ends is not None:
                self._event_time.add_barrier(barrier, ends)
            due = self._event_time.due(_now_ms())
        tasks = sorted(due | self._unfinished.tasks)
        if tasks and not self._stopping.is_set():
            # Several tasks may share a Spark task and its slice, of which the first gets most: rotate them.
            first = self._turn % len(tasks)
            self._turn += 1
            self._finish_work(lambda: self._run_ticks(tasks[first:] + tasks[:first]))

    def _finish_work(self, run: Callable[[], Report]) -> Report | None:
        """Run tasks and process their report; return it, or None after an error."""
        try:
            self._require_inputs()
            report = run()
            self._note_report(report)
            self._on_report(report)
        except Exception as error:  # noqa: BLE001 - passed to the thread that waits for it
            self.error = error
            self._stopping.set()
            return None
        if report.failure is not None or self._outputs_left() == 0:
            self._stopping.set()
        elif report.stalled or report.interrupted or report.locked:
            # The rest of the batch waits for a new query, which begins at each partition's position.
            self.stalled = dict(report.stalled)
            self.locked = dict(report.locked)
            self.interrupted = "; ".join(sorted(set(report.interrupted.values()))) or None
            self._stopping.set()
        return report

    def _note_report(self, report: Report) -> None:
        self._event_time.report(report.times, self._unfinished.report(report))
        self._event_time.end.report(report.ended)
        reached = {partition: done.end for partition, done in report.ranges.items()}
        self._event_time.processed(reached)
        self._positions.advance(reached)
        self.opened.update(map(self._topology.task, report.ranges))
        for task in (*report.interrupted, *report.locked):
            self._workers.pop(task, None)
        self._workers.update(report.workers)

    def _run_tasks(self, batch: DataFrame) -> Report:
        if self._settings.count:
            batch = batch.coalesce(1)
        else:
            batch = route(batch, self._topology, self._positions, self._environment.slots)
        seconds = self._settings.slice_s
        if not self._settings.count:
            seconds /= waves(self._topology, self._positions, self._environment.slots)
        rows = batch.mapInArrow(RunTasks(self._reference, self._make_context(seconds)), REPORT_SCHEMA).collect()
        return merge_reports(bytes(row[0]) for row in rows)

    def _run_ticks(self, tasks: list[TaskId]) -> Report:
        work = TickTasks(self._reference, tasks, self._make_context(self._settings.slice_s))
        slots = min(len(tasks), self._environment.slots)
        return merge_reports(run_on_numbers(self._environment.session.sparkContext, work, len(tasks), slots))

    def _make_context(self, seconds: float) -> BatchContext:
        return BatchContext(
            dict(self._positions),
            seconds,
            self._outputs_left(),
            dict(self._workers),
            self._start.stateful,
            _now_ms(),
            self._event_time.watermarks(),
            sent=self._event_time.sent(),
            claims=self._start.claims,
            number=self._batch,
            others=self._event_time.others(),
            final=self._event_time.end.due,
        )


def run_reads(
    environment: SparkEnvironment, reference: SpecReference, reads: Sequence[TaskRead], context: BatchContext
) -> list[TaskRows]:
    """Read stores in one Spark job, while no tasks run.

    Args:
        environment: the Spark environment.
        reference: reference to the task specification.
        reads: the reads.
        context: committed offsets and claims.
    """
    work = ReadStores(reference, reads, context)
    slots = min(work.tasks, environment.slots)
    return in_order(len(reads), run_on_numbers(environment.session.sparkContext, work, work.tasks, slots))


def source_offsets(progress: Mapping[str, Any], name: str) -> dict[TopicPartition, int]:
    """Return one kind of offsets from a progress report of Spark.

    Args:
        progress: the report.
        name: such as "endOffset": the end of the last micro-batch, after all transaction markers in it.
    """
    found: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        offsets = source[name]
        parsed = json.loads(offsets) if isinstance(offsets, str) else offsets
        for topic, partitions in (parsed or {}).items():
            for partition, offset in partitions.items():
                found[TopicPartition(topic, int(partition))] = int(offset)
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
