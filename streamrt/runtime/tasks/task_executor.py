"""Executes the tasks of one process: runs batches, restores and ticks, and returns their reports."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from streamrt.common.logs import log_context
from streamrt.common.memory import own_memory
from streamrt.common.replica_sizes import measure_replicas
from streamrt.errors import StateError, TransactionError
from streamrt.kafka import KafkaRequestError
from streamrt.records import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.runtime.report import Report, RestoredPart
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.error_handling import HANDLED_ERRORS, note_close_error, record_task_error
from streamrt.runtime.tasks.fencing import owner_of
from streamrt.runtime.tasks.stores.followed_stores import FollowedStores
from streamrt.runtime.tasks.stores.open_store import RestoreInterrupted
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.runtime.tasks.task_clients import TaskClients
from streamrt.runtime.tasks.task_registry import TaskRegistry
from streamrt.runtime.tasks.watchdog import Watchdog
from streamrt.runtime.tasks.work_cycle import WorkCycle
from streamrt.state.rocksdb import block_cache_usage, load_rocksdb
from streamrt.topology import TaskId

PRINTED = -1
"""Node id of lines that no operator showed."""

_DRAIN_S = 0.3
_READ_S = 1.0
"""How long a read of state may restore: records wait meanwhile."""
_STARTS_AT_ONCE = 8
"""Number of transactional writers that start at once. Each waits for brokers, some 20 ms or more."""


class TaskExecutor:
    """Executes the tasks of one process, one after the other.

    In micro-batch mode, tasks live as long as a batch. In resident mode they are assigned, and stay open from one
    `WorkCycle` to the next until they are released.

    Args:
        spec: the application.
        clients: the Kafka clients of the tasks.
        catalog: the stores of this process; pass it to share them with other code.
        pool: commits transactions of several tasks in parallel; None for one after the other.
        clock: returns seconds, for time slices; only differences count.
        watchdog: limits the processing time of each record; None for no limit.
    """

    def __init__(
        self,
        spec: TaskSpec,
        clients: TaskClients,
        catalog: StoreCatalog | None = None,
        pool: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._registry = TaskRegistry(spec, clients, catalog, pool, clock, watchdog)
        self._cycles = 0

    @property
    def spec(self) -> TaskSpec:
        """The application."""
        return self._registry.spec

    @property
    def clients(self) -> TaskClients:
        """The Kafka clients."""
        return self._registry.clients

    def task_of(self, partition: TopicPartition) -> TaskId:
        """Return the task of an input partition."""
        return self._registry.task_of(partition)

    def inputs(self, task_id: TaskId) -> tuple[TopicPartition, ...]:
        """Return the input partitions of a task."""
        return self._registry.inputs(task_id)

    # -- Micro-batches -------------------------------------------------------------------------------------------------

    def run(self, chunks: Iterable[Chunk], context: BatchContext) -> Report:
        """Process chunks of records and commit the work.

        If a failure or a limit ends the processing early, the remaining chunks are read and dropped for a short time,
        because Spark waits until they are read. After that they are left unread, which costs Spark a new worker
        process.

        Args:
            chunks: records, in order within each partition.
            context: start offsets and limits.
        """
        return self._run_cycle(context, lambda cycle: _feed_chunks(chunks, cycle))

    def tick(self, tasks: Iterable[TaskId], context: BatchContext) -> Report:
        """Tick tasks without records, and commit the results.

        Args:
            tasks: the tasks.
            context: current time and watermarks.
        """

        def feed(cycle: WorkCycle) -> None:
            for task_id in tasks:
                cycle.tick(task_id)

        return self._run_cycle(context, feed)

    def _run_cycle(self, context: BatchContext, feed: Callable[[WorkCycle], None]) -> Report:
        begun = time.monotonic()
        self.drain_shown()
        cycle = self._begin_cycle(context, resident=False)
        try:
            feed(cycle)
            report = self.end(cycle)
        finally:
            cycle.close()
        report.seconds = time.monotonic() - begun
        measure_process(report)
        return report

    # -- Resident tasks ------------------------------------------------------------------------------------------------

    @property
    def assigned(self) -> Mapping[TaskId, StreamTask]:
        """The assigned tasks, in the order of their assignment."""
        return self._registry.tasks

    def assign(self, task_id: TaskId, start: Mapping[TopicPartition, int]) -> StreamTask:
        """Add a task, which stays until `release`; `restore` opens it.

        Args:
            task_id: the task.
            start: committed offset of each input partition.
        """
        return self._registry.add(task_id, start)

    def release(self, task: StreamTask) -> None:
        """Close a task without uncommitted work; another process may own it now."""
        note_close_error(None, task, self._registry.remove(task))
        if self.spec.transactional:
            self.clients.release(task.id)

    def followed_stores(self, task_id: TaskId) -> FollowedStores:
        """Return copies of the stores of a task that another instance has; they are not open."""
        return self._registry.followed_stores(task_id)

    def begin(self, context: BatchContext) -> WorkCycle:
        """Begin to work on the assigned tasks, until `end`."""
        return self._begin_cycle(context, resident=True)

    def _begin_cycle(self, context: BatchContext, *, resident: bool) -> WorkCycle:
        self._registry.reset()
        self._cycles += 1
        number = self._cycles if context.number is None else context.number
        return WorkCycle(self._registry, context, resident=resident, number=number)

    # -- Both ----------------------------------------------------------------------------------------------------------

    def end(self, cycle: WorkCycle) -> Report:
        """Commit the work of a cycle, and return the report about it."""
        cycle.commit()
        cycle.report.shown += self.drain_shown()
        cycle.report.metrics = self._registry.drain_metrics()
        cycle.report.tallies = self._registry.drain_tallies()
        cycle.report.failed += self._registry.drain_failed()
        return cycle.report

    def note_sizes(self, report: Report) -> None:
        """Note the sizes of the stores of assigned tasks, as far as the last ones are old."""
        for task in self.assigned.values():
            if task.is_open:
                self._registry.note_stores(task, report)

    def drain_shown(self) -> list[tuple[int, Any]]:
        """Return the items that operators have shown since the last call."""
        return self._registry.drain_shown()

    def show_line(self, line: str) -> None:
        """Add a line to the items that operators show, such as one that a user's function printed."""
        self._registry.lines.append((PRINTED, line))

    def restore(self, tasks: Iterable[TaskId], context: BatchContext) -> Report:
        """Restore the stores of tasks to the ends of their changelogs for a limited time, without processing records.

        The first task always makes progress. When the time is over, no further task is started, because taking a
        transactional id or opening a store takes time even if there is little to restore.

        Args:
            tasks: the tasks. Assigned ones stay open; the others are closed again.
            context: time limit and claims; for tasks that are not assigned, also committed offsets.
        """
        report = Report()
        deadline = time.monotonic() + context.time_limit_s
        tasks = list(tasks)
        for number, task_id in enumerate(tasks):
            if number and time.monotonic() >= deadline:
                report.complete = False
                break
            if number % _STARTS_AT_ONCE == 0:
                self._prepare_writers(tasks[number : number + _STARTS_AT_ONCE])
            task = self.assigned.get(task_id)
            if task is not None:
                finished = self._restore_task(task, context, deadline, report)
            else:
                finished = self._restore_and_close(self._registry.add_for(context, task_id), context, deadline, report)
            if not finished:
                report.complete = False
                if task_id in report.locked:
                    continue
                break
            report.restored.add(task_id)
        return report

    def _prepare_writers(self, tasks: Iterable[TaskId]) -> None:
        """Take the transactional ids of assigned tasks that are to be opened, where they have no writer that may go on."""
        if self.spec.transactional:
            opening = [self.assigned[task_id] for task_id in tasks if task_id in self.assigned]
            missing = [task for task in opening if not task.last_committer or self.clients.kept(task.id) is None]
            if len(missing) > 1:
                self.clients.prepare_writers({task.id: owner_of(task.inputs) for task in missing})

    def _restore_and_close(self, task: StreamTask, context: BatchContext, deadline: float, report: Report) -> bool:
        try:
            return self._restore_task(task, context, deadline, report)
        finally:
            note_close_error(report, task, self._registry.remove(task))

    def _restore_task(self, task: StreamTask, context: BatchContext, deadline: float, report: Report) -> bool:
        """Restore one task, and note the result; return whether it is open."""
        with log_context(self._registry.log_fields(task.id)):
            interrupted, trouble = self._try_to_open(task, context, deadline, report)
            if trouble is not None:
                record_task_error(report, task, trouble)
        if trouble is None and self.spec.transactional:
            # Also if the restore was interrupted.
            self._registry.note_committer(task, report)
        for store, part in task.stores.progress.items():
            report.restores[task.id, store] = RestoredPart(part.done, part.total, part.records, task.is_open)
        return not interrupted and trouble is None

    def _try_to_open(
        self, task: StreamTask, context: BatchContext, deadline: float, report: Report
    ) -> tuple[bool, Exception | None]:
        """Open a task; return whether the time was over first, and the error, if any."""
        try:
            self._registry.open(task, context, deadline=deadline)
        except RestoreInterrupted:
            return True, None
        except HANDLED_ERRORS as error:
            return False, error
        finally:
            if not task.is_open:
                note_close_error(report, task, task.abort())
        return False, None

    def read(self, task_id: TaskId, reads: Sequence[TaskRead], context: BatchContext) -> list[TaskRows]:
        """Read committed state of a task that is not at work, at the ends of its changelogs.

        The stores are opened and restored as before processing, but nothing is taken over from other processes.

        Args:
            task_id: the task.
            reads: the reads.
            context: committed offsets and claims.
        """
        start = {each: context.position(each) for each in self.inputs(task_id)}
        stores = self._registry.stores(task_id, context)
        with log_context(self._registry.log_fields(task_id)):
            try:
                stores.open(start, stateful=context.stateful, deadline=time.monotonic() + _READ_S)
                return [_read_rows(stores, read) for read in reads]
            except RestoreInterrupted:
                trouble = f"the state of {task_id} is being restored"
            except (StateError, TransactionError, KafkaRequestError) as error:
                trouble = f"the state of {task_id} cannot be read now: {error}"
            finally:
                with contextlib.suppress(StateError):
                    stores.close()
        return [TaskRows.refused(trouble)] * len(reads)

    def close(self) -> None:
        """Close operators and sinks, and export the spans that are left. No task works after that."""
        self._registry.close()

    def warm_up(self) -> None:
        """Do the first work of a micro-batch in advance: compose the operators, load RocksDB, connect to Kafka.

        Errors are ignored here: they occur again, and are reported, on first use. Sinks are not started in advance.
        """
        topology = self.spec.topology
        with contextlib.suppress(Exception):
            if not self.spec.transactional:
                # An idempotent producer needs half a second to start.
                self.clients.writer()
            for stream in () if topology.sinks else topology.streams:
                self._registry.chain(stream)
            if any(map(topology.task_stores, topology.streams)):
                load_rocksdb()


def measure_process(report: Report) -> None:
    """Note the memory of this process, its block cache and its copies of tables, by the name that `own_memory` gives it."""
    report.memory = own_memory()
    if (used := block_cache_usage()) is not None:
        report.block_cache = dict.fromkeys(report.memory, used)
    if replicas := measure_replicas():
        report.replicas = dict.fromkeys(report.memory, replicas)


def _read_rows(stores: TaskStores, read: TaskRead) -> TaskRows:
    try:
        return stores.read(read.store, read.read)
    except StateError as error:
        return TaskRows.refused(f"the state of {read.task} cannot be read: {error}", lasting=True)


def _feed_chunks(chunks: Iterable[Chunk], cycle: WorkCycle) -> None:
    stopped_at: float | None = None
    for chunk in chunks:
        if stopped_at is None:
            if not cycle.process(chunk):
                stopped_at = time.monotonic()
            continue
        if cycle.has_unprocessed(chunk):
            cycle.report.complete = False
            if time.monotonic() - stopped_at > _DRAIN_S:
                break
