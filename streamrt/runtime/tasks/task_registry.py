"""The tasks of one process, and what they share: composed operators, sinks, stores and clients."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streamrt.common.logs import log_context
from streamrt.connectors.retries import retry_counts
from streamrt.errors import StateError
from streamrt.records import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.placement import StateSettings
from streamrt.runtime.report import FailedRecord, Report
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.chain.failed_records import RejectedRecords
from streamrt.runtime.tasks.chain.operator_chain import OperatorChain
from streamrt.runtime.tasks.chain.task_sinks import TaskSinks
from streamrt.runtime.tasks.commit import AtLeastOnceCommit, CommitProtocol, ExactlyOnceCommit
from streamrt.runtime.tasks.stores.followed_stores import FollowedStores
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.runtime.tasks.task_clients import TaskClients
from streamrt.runtime.tasks.watchdog import Watchdog
from streamrt.topology import Measured, MetricId, Tally, TaskId, add_tallies
from streamrt.topology.tallies import CACHE_HITS, CACHE_MISSES, SINK_RETRIES, SINK_RETRY_SECONDS

if TYPE_CHECKING:
    from streamrt.runtime.tasks.spans import TaskSpans

__all__ = ["TaskRegistry"]

_FIRST_SIZES_S = 1.0
_SIZES_S = 30.0
"""How often the sizes of a task's stores are measured: RocksDB looks at its files for that."""


class _Measured(NamedTuple):
    """When the sizes of a task's stores are to be measured next, and how long after the last time."""

    due: float
    pause_s: float


class TaskRegistry:
    """Holds the tasks that a process works on, and makes new ones.

    Args:
        spec: the application.
        clients: the Kafka clients of the tasks.
        catalog: the stores of this process; pass it to share them with other code.
        pool: commits transactions of several tasks in parallel; None for one after the other.
        clock: returns seconds, for time slices; only differences count.
        watchdog: limits the processing time of each record; None for no limit.

    Attributes:
        tasks: the tasks by id, in the order in which they were added.
        sinks: the sinks of this process.
        lines: the items that operators have shown.
        merged: the streams with several topics.
        rejected: the records whose values sinks reject.
        spans: makes spans; None if nothing is traced.
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
        self.spec = spec
        self.clients = clients
        self.pool = pool
        self.clock = clock
        self.tasks: dict[TaskId, StreamTask] = {}
        self.sinks = TaskSinks(spec.topology, spec.group, spec.topic_ids)
        self.lines: list[tuple[int, Any]] = []
        self.rejected = RejectedRecords()
        self.merged = frozenset(name for name, sources in spec.topology.streams.items() if len(sources) > 1)
        self.spans = None if spec.tracing is None else _open_spans(spec)
        self._resuming = frozenset(filter(spec.topology.resumes, spec.topology.streams))
        self._watchdog = watchdog
        self._catalog = catalog or StoreCatalog(spec.state or StateSettings(group="", base_dir=Path()))
        self._chains: dict[str, OperatorChain] = {}
        self._tallies: dict[Tally, float] = {}
        self._measured: dict[TaskId, _Measured] = {}

    def log_fields(self, task_id: TaskId) -> dict[str, Any]:
        """Return what log lines say about a task."""
        return {"group": self.spec.group, "stream": task_id.stream, "partition": task_id.partition}

    def at_work(self, task_id: TaskId, number: int) -> log_context:
        """Return a context in which log lines name a task and the number of the cycle that it works in."""
        return log_context({**self.log_fields(task_id), "batch": number})

    def chain(self, stream: str) -> OperatorChain:
        """Return the operators of a stream; they are composed on first use.

        Raises:
            SinkError: if a sink of the stream cannot be started.
        """
        chain = self._chains.get(stream)
        if chain is None:
            arguments = (self.sinks, self.lines, self.clock, self._watchdog, self.rejected)
            if self.spans is None:
                chain = OperatorChain(self.spec, stream, *arguments)
            else:
                # Imported only if traces are on: OpenTelemetry is optional, and its import takes time.
                from streamrt.runtime.tasks.chain.traced_chain import TracedChain

                chain = TracedChain(self.spec, stream, self.spans, *arguments)
            self._chains[stream] = chain
        return chain

    def close(self) -> None:
        """Close operators and sinks, and export the spans that are left."""
        for chain in self._chains.values():
            chain.close()
        self.sinks.close()
        if self.spans is not None:
            self.spans.close()

    def reset(self) -> None:
        """Forget what operators have counted and collected, and the retries of other applications in this process."""
        retry_counts.take()
        for chain in self._chains.values():
            chain.collector.reset()

    def drain_shown(self) -> list[tuple[int, Any]]:
        """Return the items that operators have shown since the last call."""
        shown, self.lines[:] = list(self.lines), []
        for chain in self._chains.values():
            shown += chain.collector.drain_rows()
        return shown

    def drain_metrics(self) -> dict[MetricId, Measured]:
        """Return what users' metrics have measured since the last call."""
        return {name: new for chain in self._chains.values() for name, new in chain.collector.drain_metrics().items()}

    def note_reads(self, task: StreamTask) -> None:
        """Count the reads of state since the last call, before transactions are renewed."""
        for name, (hits, misses) in task.stores.take_reads().items():
            for kind, count in ((CACHE_HITS, hits), (CACHE_MISSES, misses)):
                if count:
                    add_tallies(self._tallies, {Tally(kind, task.id.stream, name): count})

    def note_stores(self, task: StreamTask, report: Report) -> None:
        """Count reads of state, and note the sizes of a task's open stores if the last ones are old."""
        self.note_reads(task)
        measured, now = self._measured.get(task.id), time.monotonic()
        if measured is not None and now < measured.due:
            return
        # Soon at first, because that is when stores grow most.
        pause = _FIRST_SIZES_S if measured is None else min(2 * measured.pause_s, _SIZES_S)
        self._measured[task.id] = _Measured(now + pause, pause)
        report.sizes.update({(task.id, store): size for store, size in task.stores.sizes().items()})

    def drain_tallies(self) -> dict[Tally, float]:
        """Return what operators and the runtime have counted since the last call."""
        found, self._tallies = self._tallies, {}
        if self._catalog.snapshots is not None:
            add_tallies(found, self._catalog.snapshots.take_tallies())
        for stream, chain in self._chains.items():
            add_tallies(found, chain.collector.tallies.drain(stream))
        retries, waited_s = retry_counts.take()
        if retries:
            add_tallies(found, {Tally(SINK_RETRIES): retries, Tally(SINK_RETRY_SECONDS): waited_s})
        return found

    def drain_failed(self) -> list[FailedRecord]:
        """Return the failed records that were noted since the last call."""
        return [each for stream, chain in self._chains.items() for each in chain.failed.take_noted(stream)]

    def task_of(self, partition: TopicPartition) -> TaskId:
        """Return the task of an input partition."""
        return self.spec.topology.task(partition)

    def inputs(self, task_id: TaskId) -> tuple[TopicPartition, ...]:
        """Return the input partitions of a task."""
        return self.spec.topology.inputs(task_id)

    def early(self, task_id: TaskId) -> frozenset[TopicPartition]:
        """Return the inputs of a task that a merge may take before their time."""
        return frozenset(each for each in self.inputs(task_id) if each.topic in self.spec.topology.early_exchanges)

    def merge_order(self, task_id: TaskId) -> tuple[TopicPartition, ...]:
        """Return the input partitions of a task in the order for records with equal timestamps."""
        topics = self.spec.topology.merge_order(task_id.stream)
        return tuple(TopicPartition(topic, task_id.partition) for topic in topics)

    def add(self, task_id: TaskId, start: Mapping[TopicPartition, int]) -> StreamTask:
        """Make a task and add it. It has to be opened before it can work.

        Args:
            task_id: the task.
            start: committed offset of each input partition.
        """
        commit: CommitProtocol
        if self.spec.transactional:
            commit = ExactlyOnceCommit(task_id, self.clients, self.spec.commit_metadata, self.spec.positions)
        else:
            commit = AtLeastOnceCommit(self.clients, self.spec.positions)
        stream = task_id.stream
        task = StreamTask(task_id, start, commit, self.spec.topology.sends(stream), resumes=stream in self._resuming)
        self.tasks[task_id] = task
        return task

    def add_for(
        self, context: BatchContext, task_id: TaskId, reached: Mapping[TopicPartition, int] | None = None
    ) -> StreamTask:
        """Make a task for a micro-batch and add it.

        Args:
            context: committed offsets and other data of the batch.
            task_id: the task.
            reached: newer offsets of inputs that have advanced since.
        """
        reached = reached or {}
        start = {each: reached[each] if each in reached else context.position(each) for each in self.inputs(task_id)}
        task = self.add(task_id, start)
        task.last_committer = context.last_committer.get(task_id) == self.clients.worker
        task.durable.sent.update(context.sent.get(task_id, {}))
        task.stateful = context.stateful
        return task

    def open(self, task: StreamTask, context: BatchContext, *, deadline: float | None = None) -> None:
        """Open a task and restore its stores; see `StreamTask.open`.

        Args:
            task: the task.
            context: claims and number of the attempt.
            deadline: value of `time.monotonic()` at which a restore is interrupted.
        """
        task.open(self.stores(task.id, context), deadline=deadline)

    def stores(self, task_id: TaskId, context: BatchContext) -> TaskStores:
        """Return the stores of an attempt at a task; they are not open.

        Args:
            task_id: the task.
            context: claims and number of the attempt.
        """
        return TaskStores(
            self._catalog,
            self.spec.topology.task_stores(task_id.stream),
            task_id,
            self.clients,
            transactional=self.spec.transactional,
            claims=context.claims,
            attempt=context.attempt,
        )

    def followed_stores(self, task_id: TaskId) -> FollowedStores:
        """Return copies of the stores of a task that another instance has; they are not open."""
        stores = self.spec.topology.task_stores(task_id.stream)
        return FollowedStores(self._catalog, stores.values(), task_id, self.clients)

    def remove(self, task: StreamTask) -> StateError | None:
        """Close a task and forget it; see `StreamTask.close`."""
        self.tasks.pop(task.id, None)
        self.sinks.forget(task.inputs)
        return task.close()

    def abort(self, task: StreamTask) -> StateError | None:
        """Drop the uncommitted work of a task; see `StreamTask.abort`."""
        self.sinks.forget(task.inputs)
        return task.abort()

    def note_committer(self, task: StreamTask, report: Report) -> None:
        """Note that this process made the last commit of a task, or holds its transactional id: all others are fenced."""
        task.last_committer = True
        report.workers[task.id] = self.clients.worker


def _open_spans(spec: TaskSpec) -> "TaskSpans | None":
    from streamrt.runtime.tasks.spans import open_spans

    return open_spans(spec)
