"""Tasks of one process: a session for each partition of a micro-batch, and the report about all of them."""

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamrt.errors import (
    StateError,
    StoreCorruptedError,
)
from streamrt.models import TopicPartition
from streamrt.runtime.batch import PASSING, Batch, BatchContext, state_failure
from streamrt.runtime.clients import TaskClients
from streamrt.runtime.commit import (
    AtLeastOnceSession,
    ExactlyOnceSession,
    Session,
)
from streamrt.runtime.report import Report, RestoredPart
from streamrt.runtime.sinks import TaskSinks
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.stores import RestoreInterrupted, StateSettings, StoreCatalog, TaskStores
from streamrt.runtime.task import Chunk, Task
from streamrt.state import load_rocksdb

PRINTED = -1
"""Stands for a node's id where no operator showed the line."""

_DRAIN_S = 0.3


class Tasks:
    """The tasks that one process runs, one after the other. They are kept between micro-batches.

    Args:
        spec: the application.
        clients: the tasks' edges towards Kafka.
        catalog: the stores of this process, where somebody else looks at them, too.
    """

    def __init__(self, spec: TaskSpec, clients: TaskClients, catalog: StoreCatalog | None = None) -> None:
        self._spec = spec
        self._clients = clients
        self._tasks: dict[str, Task] = {}
        self._lines: list[tuple[int, Any]] = []
        self._sinks = TaskSinks(spec.topology)
        self._catalog = catalog or StoreCatalog(spec.state or StateSettings(group="", base_dir=Path()))

    def run(self, chunks: Iterable[Chunk], context: BatchContext) -> Report:
        """Process chunks of records and commit the work.

        If a failure or a limit ends the processing early, the other chunks are taken and dropped for a moment, because
        whoever feeds them waits until they are taken; then they are left, which costs Spark a new worker process.

        Args:
            chunks: records, in order within each partition.
            context: where to begin and when to stop.
        """
        begun = time.monotonic()
        for task in self._tasks.values():
            task.collector.reset()
        self._lines.clear()
        batch = Batch(self, context)
        try:
            self._feed(chunks, batch)
            batch.settle()
        finally:
            batch.close()
        report = batch.report
        report.shown += self._lines
        for task in self._tasks.values():
            report.shown += task.collector.rows()
        report.seconds = time.monotonic() - begun
        return report

    def restore(self, places: Iterable[TopicPartition], context: BatchContext) -> Report:
        """Bring the stores of input partitions to the end of their changelogs, without processing anything.

        Args:
            places: the input partitions.
            context: where the group is, and how long this may take.
        """
        report = Report()
        deadline = time.monotonic() + context.seconds
        for place in places:
            session = self.session(place, context)
            try:
                session.open(known=place in context.stateful, deadline=deadline)
                finished = True
            except RestoreInterrupted:
                finished = False
            except StoreCorruptedError as damage:
                finished = False
                try:
                    session.stores.destroy(damage)
                    report.interrupted[place] = str(damage)
                except StateError as refusal:
                    report.failure = state_failure(place, refusal)
            except PASSING as trouble:
                report.interrupted[place] = str(trouble)
                finished = False
            except StateError as refusal:
                report.failure = state_failure(place, refusal)
                finished = False
            finally:
                progress = session.stores.progress
                session.close()
            for store, part in progress.items():
                report.restores[place, store] = RestoredPart(part.done, part.total, part.records, finished)
            if not finished:
                report.complete = False
                break
            if self._spec.transactional:
                report.workers[place] = self._clients.worker
        return report

    def warm_up(self) -> None:
        """Do ahead what the first micro-batch would do first: compose the operators, load RocksDB, connect to Kafka.

        What fails here fails again when it is needed, and is told then. Sinks are not started before they are needed.
        """
        with contextlib.suppress(Exception):
            if not self._spec.transactional:
                # An idempotent producer takes half a second until it can begin.
                self._clients.writer()
            for topic in () if self._spec.topology.sinks else self._spec.topology.sources:
                self.task(topic)
            if any(self._spec.topology.stores(topic) for topic in self._spec.topology.sources):
                load_rocksdb()

    def show_line(self, line: str) -> None:
        """Add a line to what operators show, such as one that a user's function printed."""
        self._lines.append((PRINTED, line))

    # -- What a batch needs ----------------------------------------------------------------------------------------

    @property
    def spec(self) -> TaskSpec:
        """The application."""
        return self._spec

    @property
    def clients(self) -> TaskClients:
        """The edges towards Kafka."""
        return self._clients

    @property
    def sinks(self) -> TaskSinks:
        """The sinks of this process."""
        return self._sinks

    def session(self, place: TopicPartition, context: BatchContext, expected: int | None = None) -> Session:
        """Return a new session for a partition, which the group has reached at `expected` or as the context says."""
        source = self._spec.topology.sources[place.topic]
        stores = TaskStores(
            self._catalog,
            self._spec.topology.stores(source),
            place,
            self._clients,
            transactional=self._spec.transactional,
        )
        if expected is None:
            expected = context.positions.get(place, 0)
        if not self._spec.transactional:
            return AtLeastOnceSession(place, self._clients, stores, expected)
        return ExactlyOnceSession(
            place,
            self._clients,
            stores,
            expected,
            reuse=context.workers.get(place) == self._clients.worker,
            metadata=self._spec.commit_metadata,
        )

    def task(self, topic: str) -> Task:
        """Return the task of a source topic; its operators are composed when it is first needed."""
        task = self._tasks.get(topic)
        if task is None:
            source = self._spec.topology.sources[topic]
            task = self._tasks[topic] = Task(self._spec, source, self._sinks, self._lines)
        return task

    def _feed(self, chunks: Iterable[Chunk], batch: Batch) -> None:
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
