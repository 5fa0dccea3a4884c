"""The tasks of one process: runs batches, restores and ticks, and returns their reports."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from streamrt.models import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.clients import TaskClients
from streamrt.runtime.commit import ExactlyOnceSession, Session
from streamrt.runtime.operator_chain import OperatorChain
from streamrt.runtime.placement import StateSettings
from streamrt.runtime.report import Report, RestoredPart
from streamrt.runtime.sinks import TaskSinks
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.stores import RestoreInterrupted, StoreCatalog, TaskStores
from streamrt.runtime.troubles import HANDLED_ERRORS, close_session, note_trouble
from streamrt.runtime.watchdog import Watchdog
from streamrt.runtime.work_cycle import WorkCycle
from streamrt.state.rocksdb import load_rocksdb

PRINTED = -1
"""Node id of lines that no operator showed."""

_DRAIN_S = 0.3


class TaskExecutor:
    """The tasks that one process runs, one after the other. They are kept between micro-batches.

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
        self.clock = clock
        self._watchdog = watchdog
        self._spec = spec
        self._clients = clients
        self._pool = pool
        self._tasks: dict[str, OperatorChain] = {}
        self._merged = frozenset(name for name, sources in spec.topology.streams.items() if len(sources) > 1)
        self._resuming = frozenset(filter(spec.topology.resumes, spec.topology.streams))
        self._lines: list[tuple[int, Any]] = []
        self._sinks = TaskSinks(spec.topology)
        self._catalog = catalog or StoreCatalog(spec.state or StateSettings(group="", base_dir=Path()))

    def run(self, chunks: Iterable[Chunk], context: BatchContext) -> Report:
        """Process chunks of records and commit the work.

        If a failure or a limit ends the processing early, the remaining chunks are read and dropped for a short time,
        because Spark waits until they are read. After that they are left unread, which costs Spark a new worker
        process.

        Args:
            chunks: records, in order within each partition.
            context: start offsets and limits.
        """
        return self._batch(context, lambda batch: self._feed(chunks, batch))

    def tick(self, places: Iterable[TopicPartition], context: BatchContext) -> Report:
        """Tick tasks without records, and commit the results.

        Args:
            places: the tasks.
            context: current time and watermarks.
        """

        def feed(batch: WorkCycle) -> None:
            for place in places:
                batch.tick(place)

        return self._batch(context, feed)

    def _batch(self, context: BatchContext, feed: Callable[[WorkCycle], None]) -> Report:
        begun = time.monotonic()
        self.take_shown()
        batch = self.begin(context)
        try:
            feed(batch)
            report = self.end(batch)
        finally:
            batch.close()
        report.seconds = time.monotonic() - begun
        return report

    def begin(self, context: BatchContext, carried: MutableMapping[TopicPartition, Session] | None = None) -> WorkCycle:
        """Begin a batch.

        Args:
            context: start offsets and limits.
            carried: the open sessions of a resident task.
        """
        for task in self._tasks.values():
            task.collector.reset()
        return WorkCycle(self, context, carried)

    def end(self, batch: WorkCycle) -> Report:
        """Commit the work of a batch, and return the report about it."""
        batch.settle()
        batch.report.shown += self.take_shown()
        return batch.report

    def take_shown(self) -> list[tuple[int, Any]]:
        """Return the items that operators have shown since the last call."""
        shown, self._lines[:] = list(self._lines), []
        for task in self._tasks.values():
            shown += task.collector.take_rows()
        return shown

    def restore(
        self,
        places: Iterable[TopicPartition],
        context: BatchContext,
        carried: MutableMapping[TopicPartition, Session] | None = None,
    ) -> Report:
        """Restore the stores of tasks to the ends of their changelogs for a limited time, without processing records.

        The first task always makes progress. When the time is over, no further task is started, because taking a
        transactional id or opening a store takes time even if there is little to restore.

        Args:
            places: the tasks.
            context: committed offsets and time limit.
            carried: receives the sessions of tasks that are opened in time; if None, they are closed.
        """
        report = Report()
        deadline = time.monotonic() + context.time_limit_s
        for number, place in enumerate(places):
            if number and time.monotonic() >= deadline:
                report.complete = False
                break
            session = self.session(place, context)
            met: Exception | None = None
            finished = False
            try:
                session.open(known=context.stateful, deadline=deadline)
                finished = True
            except RestoreInterrupted:
                if self._spec.transactional:
                    # This process already holds the transactional id.
                    report.workers[place] = self._clients.worker
            except HANDLED_ERRORS as trouble:
                met = trouble
            finally:
                if finished and carried is not None:
                    carried[place] = session
                else:
                    close_session(session, report)
            progress = session.stores.progress
            if met is not None:
                note_trouble(report, session, met)
            for store, part in progress.items():
                report.restores[place, store] = RestoredPart(part.done, part.total, part.records, finished)
            if not finished:
                report.complete = False
                if place in report.locked:
                    continue
                break
            report.restored.add(place)
            if self._spec.transactional:
                report.workers[place] = self._clients.worker
        return report

    def warm_up(self) -> None:
        """Do the first work of a micro-batch in advance: compose the operators, load RocksDB, connect to Kafka.

        Errors are ignored here: they occur again, and are reported, on first use. Sinks are not started in advance.
        """
        with contextlib.suppress(Exception):
            if not self._spec.transactional:
                # An idempotent producer needs half a second to start.
                self._clients.writer()
            for stream in () if self._spec.topology.sinks else self._spec.topology.streams:
                self.task(stream)
            if any(map(self._spec.topology.task_stores, self._spec.topology.streams)):
                load_rocksdb()

    def show_line(self, line: str) -> None:
        """Add a line to the items that operators show, such as one that a user's function printed."""
        self._lines.append((PRINTED, line))

    # -- For batches -----------------------------------------------------------------------------------------------

    @property
    def spec(self) -> TaskSpec:
        """The application."""
        return self._spec

    @property
    def clients(self) -> TaskClients:
        """The Kafka clients."""
        return self._clients

    @property
    def pool(self) -> Executor | None:
        """The pool that commits transactions of several tasks in parallel; None for one after the other."""
        return self._pool

    @property
    def sinks(self) -> TaskSinks:
        """The sinks of this process."""
        return self._sinks

    @property
    def merged(self) -> frozenset[str]:
        """The streams with several topics."""
        return self._merged

    def place(self, input_place: TopicPartition) -> TopicPartition:
        """Return the task of an input partition."""
        return self._spec.topology.task(input_place)

    def inputs(self, place: TopicPartition) -> tuple[TopicPartition, ...]:
        """Return the input partitions of a task."""
        return self._spec.topology.inputs(place)

    def merge_order(self, place: TopicPartition) -> tuple[TopicPartition, ...]:
        """Return the input partitions of a task in the order for records with equal timestamps."""
        return tuple(TopicPartition(topic, place.partition) for topic in self._spec.topology.merge_order(place.topic))

    def session(
        self, place: TopicPartition, context: BatchContext, reached: Mapping[TopicPartition, int] | None = None
    ) -> Session:
        """Return a new session for a task.

        Args:
            place: the task.
            context: committed offsets and other data of the batch.
            reached: newer offsets of inputs that have advanced since.
        """
        reached = reached or {}
        expected = {each: reached[each] if each in reached else context.position(each) for each in self.inputs(place)}
        stores = TaskStores(
            self._catalog,
            self._spec.topology.task_stores(place.topic),
            place,
            self._clients,
            transactional=self._spec.transactional,
            claims=context.claims,
            attempt=context.attempt,
        )
        if not self._spec.transactional:
            session = Session(place, self._clients, stores, expected)
        else:
            session = ExactlyOnceSession(
                place,
                self._clients,
                stores,
                expected,
                reuse=context.last_committer.get(place) == self._clients.worker,
                metadata=self._spec.commit_metadata,
                exchanges=self._spec.topology.sends(place.topic),
            )
        # Event times sent before remain valid.
        session.sent.update(context.sent.get(place, {}))
        # Earlier sessions, possibly of another process, may have left unfinished work.
        session.unfinished = place.topic in self._resuming
        return session

    def task(self, stream: str) -> OperatorChain:
        """Return the task of a stream; its operators are composed on first use."""
        task = self._tasks.get(stream)
        if task is None:
            task = OperatorChain(self._spec, stream, self._sinks, self._lines, self.clock, self._watchdog)
            self._tasks[stream] = task
        return task

    def _feed(self, chunks: Iterable[Chunk], batch: WorkCycle) -> None:
        stopped_at: float | None = None
        for chunk in chunks:
            if stopped_at is None:
                if not batch.take(chunk):
                    stopped_at = time.monotonic()
                continue
            if batch.left(chunk):
                batch.report.complete = False
                if time.monotonic() - stopped_at > _DRAIN_S:
                    break
