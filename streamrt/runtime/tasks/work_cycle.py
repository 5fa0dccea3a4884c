"""The work of one process between two reports: which task works, what it processes, and the report.

In micro-batch mode, tasks live as long as the cycle. Resident tasks stay open from cycle to cycle.
"""

import bisect
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from streamrt.common.throttle import Throttle
from streamrt.errors import SinkError
from streamrt.records import OffsetRange, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.report import Report
from streamrt.runtime.tasks.chain.operator_chain import Limits, OperatorChain, TaskFailed
from streamrt.runtime.tasks.cycle_commits import CycleCommits
from streamrt.runtime.tasks.error_handling import HANDLED_ERRORS, note_failure, record_task_error, sink_failure
from streamrt.runtime.tasks.merge import ChunkSlice, Merge
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.runtime.tasks.task_registry import TaskRegistry
from streamrt.runtime.tasks.ticks import still_tick_of, tick_of
from streamrt.runtime.tasks.work import size_of, work_of
from streamrt.topology import TaskId

__all__ = ["WorkCycle"]

_NO_LIMIT = 1 << 62
_LONG_S = 10.0
"""How far beyond the end of its slice a single record may work before a warning."""

_warnings = Throttle(60.0)

logger = logging.getLogger("streamrt")


class WorkCycle:
    """The work of one process between two reports.

    It reads and processes records; `CycleCommits` commits the work, or aborts it.

    Args:
        registry: the tasks of this process.
        context: start offsets, current time and watermarks. It may be replaced during the cycle.
        resident: whether tasks stay open after the cycle. Otherwise each task is closed before the next one begins.
        number: number of the cycle, for log lines.

    Attributes:
        report: the work done so far.
        paused: whether operators of a task stopped before all due work was done. Their results are committed before
            they continue, which bounds memory.
    """

    def __init__(self, registry: TaskRegistry, context: BatchContext, *, resident: bool, number: int = 0) -> None:
        self.report = Report()
        self.context = context
        self.paused = False
        self._registry = registry
        self._commits = CycleCommits(registry, self.report, resident=resident, number=number)
        self._resident = resident
        self._number = number
        self._limits: Limits | None = None
        self._active: StreamTask | None = None
        # Chunks for tasks with several inputs: the first record can be chosen only after all chunks are here.
        self._gathered: dict[TaskId, dict[TopicPartition, list[Chunk]]] = {}
        self._cut = False

    def has_unprocessed(self, chunk: Chunk) -> bool:
        """Return whether a chunk has unprocessed records."""
        return chunk.offsets[-1] >= self.position(TopicPartition(chunk.topic, chunk.partition))

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to process."""
        done = self.report.ranges.get(partition)
        if done is not None:
            return done.end
        task = self._registry.tasks.get(self._registry.task_of(partition))
        return self.context.position(partition) if task is None else task.start[partition]

    def process(self, chunk: Chunk) -> bool:
        """Process a chunk, or keep it until all chunks are here; return whether more may follow."""
        if not self.has_unprocessed(chunk):
            return True
        partition = TopicPartition(chunk.topic, chunk.partition)
        task_id = self._registry.task_of(partition)
        if task_id.stream in self._registry.merged:
            self._gathered.setdefault(task_id, {}).setdefault(partition, []).append(chunk)
            return True
        with self._registry.at_work(task_id, self._number):
            going_on = self._process_chunk(chunk, task_id)
        self._cut = not going_on
        return going_on

    def begin_slice(self) -> None:
        """Begin a time slice, shared by all tasks. Its time starts with the next work."""
        self._limits = None

    def take_turn(
        self, task_id: TaskId, chunks: Sequence[Chunk], ends: Mapping[TopicPartition, int] | None = None
    ) -> tuple[list[Chunk], bool]:
        """Process records or unfinished work of one task for the rest of the time slice; the task stays open.

        Args:
            task_id: the task.
            chunks: its records, in order within each partition; empty to continue unfinished work.
            ends: up to where a merge reads its inputs ahead; by default to the ends of their logs.

        Returns:
            The unprocessed records, and whether another task may follow. No task may follow if the time slice is over,
            the output limit is reached, or the work of a task was aborted.
        """
        waiting = [chunk for chunk in chunks if self.has_unprocessed(chunk)]
        if chunks and not waiting:
            return [], True
        with self._registry.at_work(task_id, self._number):
            if not chunks:
                going_on = self._enter_task(task_id) is not None
            elif task_id.stream in self._registry.merged:
                delivered: dict[TopicPartition, list[Chunk]] = {}
                for chunk in waiting:
                    delivered.setdefault(TopicPartition(chunk.topic, chunk.partition), []).append(chunk)
                going_on = self._process_merged(task_id, delivered, ends)
            else:
                going_on = all(self._process_chunk(chunk, task_id) for chunk in waiting)
            if self._active is not None:
                going_on = self._drain(self._active, self._begin_slice().deadline - self._registry.clock()) and going_on
        rest = [
            chunk.from_offset(self.position(TopicPartition(chunk.topic, chunk.partition)))
            for chunk in waiting
            if self.has_unprocessed(chunk)
        ]
        return rest, going_on

    def drain_aborted(self) -> set[StreamTask]:
        """Return the tasks that must be opened again since the last call; their uncommitted records repeat."""
        return self._commits.drain_aborted()

    def unfinished(self, task_id: TaskId) -> bool:
        """Return whether a task has unfinished work or work in flight, which needs no further record."""
        task = self._registry.tasks.get(task_id)
        if task is None or not task.is_working:
            return False
        return task.unfinished or (task is self._active and self._chain_of(task).in_flight.count > 0)

    def _process_chunk(self, chunk: Chunk, task_id: TaskId) -> bool:
        task = self._enter_task(task_id)
        if task is None:
            self.report.complete = False
            return False
        start = self.position(TopicPartition(chunk.topic, chunk.partition))
        rest = chunk if chunk.offsets[0] >= start else chunk.from_offset(start)
        return not rest.offsets or self._run_slices([(rest, 0, len(rest.offsets))], task)

    def _process_merged(
        self,
        task_id: TaskId,
        delivered: Mapping[TopicPartition, list[Chunk]],
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> bool:
        """Process the delivered records of a task with several inputs; return whether another task may follow."""
        task = self._enter_task(task_id)
        if task is None:
            self.report.complete = False
            return False
        # Records whose values a sink has already come first, up to the same offsets as before: otherwise, values of a record
        # behind them could come earlier this time, and be dropped with theirs.
        until = self._registry.sinks.replayed({each: self.position(each) for each in task.inputs})
        if until and not self._merge_inputs(task, delivered, until):
            return False
        return self._merge_inputs(task, delivered, None, ends)

    def _merge_inputs(
        self,
        task: StreamTask,
        delivered: Mapping[TopicPartition, list[Chunk]],
        until: Mapping[TopicPartition, int] | None,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> bool:
        start = {partition: self.position(partition) for partition in self._registry.merge_order(task.id)}
        early = self._registry.early(task.id)
        merge = Merge(delivered, start, self._chain_of(task).times, self._registry.clients, until, ends, early)
        try:
            return self._run_slices(merge.runs(), task, merge)
        finally:
            merge.close()

    def _process_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for task_id, delivered in sorted(gathered.items()):
            if self._cut:
                self.report.complete = False
                break
            with self._registry.at_work(task_id, self._number):
                self._cut = not self._process_merged(task_id, delivered)

    def tick(self, task_id: TaskId) -> bool:
        """Tick a task that has no records, so that its operators see the current time.

        Returns:
            False if due work remains, because the time slice is over or for a reason in the report.
        """
        if self._limits is not None and self._registry.clock() >= self._limits.deadline:
            self.report.unfinished[task_id] = True
            return False
        with self._registry.at_work(task_id, self._number):
            return self._enter_task(task_id) is not None

    def commit(self) -> None:
        """Process the kept chunks, and commit all processed work."""
        self._process_gathered()
        for task in list(self._commits.working):
            if task.is_working:
                self._finish_task(task)
        self._commits.commit_all()

    def close(self) -> None:
        """End the cycle. Uncommitted work is dropped, also from sinks and from the report.

        Raises:
            SinkError: if a sink fails to drop its records.
        """
        tasks = self._commits.release_all()
        if self._active is not None:
            self._chain_of(self._active).in_flight.drop()
            self._active = None
        for task in tasks:
            self._commits.withdraw(task, None)

    # -- The active task -------------------------------------------------------------------------------------------

    def _chain_of(self, task: StreamTask) -> OperatorChain:
        return self._registry.chain(task.id.stream)

    def _enter_task(self, task_id: TaskId) -> StreamTask | None:
        """Make a task the active one, and return it.

        Returns:
            None if records cannot be processed now; the report has the reason.
        """
        active = self._active
        if active is not None:
            if active.id == task_id:
                return active if self._deliver_tick(active) else None
            if self._resident and not self._registry.sinks.exclusive:
                if not self._drain(active):
                    return None
                self._leave_task(active)
            elif not self._finish_task(active):
                return None
        task = self._registry.tasks.get(task_id)
        if task is None or not task.is_working:
            return self._begin_task(task_id)
        self._chain_of(task).work_for(task)
        self._active = task
        return task if self._deliver_tick(task) else None

    def _leave_task(self, task: StreamTask) -> None:
        """Assign the outputs of the chain to its task; the chain may work for another task next."""
        chain, work = self._chain_of(task), work_of(task)
        chain.in_flight.drop()
        collector, (skipped, dead_letters) = chain.collector, chain.failed.take()
        work.produced += collector.produced
        work.produced_bytes += collector.produced_bytes
        work.skipped += skipped
        work.dead_letters += dead_letters
        work.collected += collector.collected
        collector.produced, collector.produced_bytes, collector.collected = 0, 0, []
        self._active = None

    def _begin_task(self, task_id: TaskId) -> StreamTask | None:
        """Make a task the active one that has not worked in this cycle yet, or whose work is prepared or committed."""
        try:
            chain = self._registry.chain(task_id.stream)
        except SinkError as error:
            note_failure(self.report, sink_failure(task_id, error))
            return None
        ranges = self.report.ranges
        former = {each: ranges[each] for each in self._registry.inputs(task_id) if each in ranges}
        if former:
            # The partition appears twice in one batch: its earlier work must be in the stores first.
            self._commits.settle_prepared()
            if self.report.failure is not None or task_id in self.report.interrupted or task_id in self.report.locked:
                return None
        task = self._registry.tasks.get(task_id)
        if task is None:
            reached = {each: done.end for each, done in former.items()}
            task = self._registry.add_for(self.context, task_id, reached)
        expected = dict(task.start)
        if not (task.is_open or self._open_stores(task)) or not self._read_positions(task):
            return None
        self._active = task
        self._commits.begin(task)
        chain.work_for(task)
        for each, start in task.start.items():
            begin = former[each].start if each in former else expected[each]
            ranges[each] = OffsetRange(*each, begin, start)
        return task if self._deliver_tick(task) else None

    def _open_stores(self, task: StreamTask) -> bool:
        try:
            self._registry.open(task, self.context)
        except HANDLED_ERRORS as trouble:
            self._commits.discard(task)
            record_task_error(self.report, task, trouble)
            return False
        except BaseException:
            self._commits.release(task)
            raise
        return True

    def _read_positions(self, task: StreamTask) -> bool:
        """Ask transactional sinks how far they have the values of a task; return whether it can work."""
        try:
            self._registry.sinks.begin(task.id.stream, task.start)
        except HANDLED_ERRORS as trouble:
            self._commits.discard(task)
            record_task_error(self.report, task, trouble)
        except SinkError as error:
            self._commits.discard(task)
            note_failure(self.report, sink_failure(task.id, error))
        else:
            return True
        return False

    def _deliver_tick(self, task: StreamTask) -> bool:
        """Tick a task that has not seen this context; return whether records may follow."""
        known = work_of(task).context is self.context and not task.unfinished
        return known or not self._chain_of(task).collector.ticks or self._tick_task(task)

    def _tick_task(self, task: StreamTask) -> bool:
        """Tick the operators, after they have finished earlier due work; return whether records may follow."""
        if not self._drain(task):
            return False
        chain, work = self._chain_of(task), work_of(task)
        collector = chain.collector
        before, final = collector.outputs, self.context.final.get(task.id, frozenset())
        collector.deadline, collector.unfinished = self._begin_slice().deadline, False
        try:
            first = task.inputs[0]
            if task.unfinished:
                chain.tick(still_tick_of(self.context, task), first, self.position(first), final)
            if not collector.unfinished and work.context is not self.context:
                work.context = self.context
                chain.tick(tick_of(self.context, task), first, self.position(first), final)
        except (TaskFailed, *HANDLED_ERRORS) as error:
            self._abort_task(task, error)
            return False
        outputs = collector.outputs - before
        work.outputs += outputs
        self.report.outputs += outputs
        work.ended = frozenset() if collector.unfinished else final
        self._note_unfinished(task, collector.unfinished)
        return not task.unfinished

    def _note_unfinished(self, task: StreamTask, unfinished: bool) -> None:
        task.unfinished = unfinished
        self.paused = self.paused or unfinished

    def _begin_slice(self) -> Limits:
        """Return the limits of the time slice. It begins with the first work."""
        if self._limits is None:
            # Time spent before, on waiting for data, restoring or skipping records, does not count.
            self._limits = Limits(self._registry.clock() + self.context.time_limit_s, self.context.output_limit)
        return self._limits

    def _run_slices(self, runs: Iterable[ChunkSlice], task: StreamTask, merge: Merge | None = None) -> bool:
        """Process records of a task and note the progress; return whether more may follow."""
        chain, report, work = self._chain_of(task), self.report, work_of(task)
        limits, before = self._begin_slice(), chain.collector.outputs
        room = _NO_LIMIT if self.context.record_limit is None else self.context.record_limit - report.records
        if room <= 0:
            return False
        if limits.outputs is not None:
            limits = Limits(limits.deadline, before + limits.outputs - report.outputs)
        whole = self._registry.spec.transactional or bool(chain.stores) or bool(chain.in_flight)
        if chain.in_flight:
            # Values that sinks have already must not be mixed with later ones: those could be taken for some of them.
            chain.in_flight.serial = bool(
                self._registry.sinks.replayed({each: self.position(each) for each in task.inputs})
            )
        # The first offset and the next offset, by input partition.
        done: dict[TopicPartition, tuple[int, int]] = {}
        records, size, finished = 0, 0, True
        chain.collector.unfinished = False
        try:
            for chunk, start, stop in runs:
                partition = TopicPartition(chunk.topic, chunk.partition)
                last = min(stop, start + room - records)
                if chain.processed is not None:
                    chain.processed = report.processed.setdefault(partition, [])
                try:
                    end, finished = chain.run(chunk, limits, start, last)
                except TaskFailed as failed:
                    if whole:
                        # The transaction or the state has partial effects of the record: none of it may be committed.
                        raise
                    note_failure(report, failed.failure)
                    end, finished = failed.failure.offset or chunk.offsets[start], False
                done[partition] = done.get(partition, (chunk.offsets[start], end))[0], end
                count = bisect.bisect_left(chunk.offsets, end) - start
                records += count
                size += size_of(chunk, start, start + count)
                finished = finished and last == stop
                if not finished or records >= room or self._is_over(chain, limits):
                    break
        except (TaskFailed, *HANDLED_ERRORS) as error:
            self._abort_task(task, error)
            return False
        if done:
            self._warn_of_long_work(partition, end, limits)
        for partition, (begin, end) in done.items():
            former = report.ranges[partition]
            # With exactly-once, a range begins at the committed offset, even without records: the next commit is
            # compared with its end.
            if former.start != former.end or self._registry.spec.transactional:
                begin = former.start
            report.ranges[partition] = OffsetRange(*partition, begin, end)
        if merge is not None:
            finished = not merge.has_unprocessed({partition: end for partition, (_, end) in done.items()})
        self._note_unfinished(task, chain.collector.unfinished)
        report.complete = report.complete and finished
        outputs = chain.collector.outputs - before
        work.records += records
        work.read_bytes += size
        work.outputs += outputs
        report.records += records
        report.read_bytes += size
        report.outputs += outputs
        return finished and records < room and not self._is_over(chain, limits)

    def _warn_of_long_work(self, partition: TopicPartition, end: int, limits: Limits) -> None:
        """Log that the last record has worked far beyond the slice: within a record, only what it makes due can stop."""
        overrun_s = self._registry.clock() - limits.deadline
        if overrun_s > _LONG_S and _warnings.admit(partition):
            logger.warning(
                "the record of %s[%d] at offset %d took more than %.0f s: its results cannot be committed in parts%s; make "
                "fewer results of one record, or less of each",
                partition.topic,
                partition.partition,
                end - 1,
                overrun_s,
                ", and brokers abort transactions after transaction.timeout.ms"
                if self._registry.spec.transactional
                else "",
            )

    def _is_over(self, chain: OperatorChain, limits: Limits) -> bool:
        enough = limits.outputs is not None and chain.collector.outputs >= limits.outputs
        return enough or chain.collector.unfinished or self._registry.clock() >= limits.deadline

    def _drain(self, task: StreamTask, patience_s: float | None = None) -> bool:
        """Pass on what operators of the active task have begun: results of asynchronous calls, and held records.

        Args:
            task: the active task.
            patience_s: how long to wait for calls, in seconds; None until each has a result or took too long.

        Returns:
            Whether nothing is in flight, and the task can go on.
        """
        chain = self._chain_of(task)
        if not chain.in_flight.count:
            return True
        collector, work = chain.collector, work_of(task)
        before = collector.outputs
        try:
            drained = chain.drain(patience_s)
        except (TaskFailed, *HANDLED_ERRORS) as error:
            self._abort_task(task, error)
            return False
        outputs = collector.outputs - before
        work.outputs += outputs
        self.report.outputs += outputs
        self._note_unfinished(task, task.unfinished or collector.unfinished)
        return drained

    def _finish_task(self, task: StreamTask) -> bool:
        """Prepare or commit the work of a task; return whether another task may follow."""
        begun = time.monotonic()
        with self._registry.at_work(task.id, self._number):
            if task is self._active:
                if not self._drain(task):
                    return False
                self._leave_task(task)
            return self._commits.finish(task, begun)

    def _abort_task(self, task: StreamTask, error: Exception) -> None:
        """Abort the work of the active task because of a `TaskFailed` or one of `HANDLED_ERRORS`."""
        self._leave_task(task)
        if isinstance(error, TaskFailed):
            self._commits.give_up(task, error.failure)
        else:
            self._commits.handle_retriable_error(task, error)
