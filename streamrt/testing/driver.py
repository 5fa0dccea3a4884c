"""`TopologyTestDriver`: an application in this process, without Kafka, Spark or Java.

The driver feeds records to the same tasks that run in production and keeps their output. Only the edges differ:
`pipe` supplies the records, and they are written to memory.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from streamrt.app import Application, definition_of
from streamrt.errors import (
    ApplicationStateError,
    ArgumentValueError,
    InvalidOperationError,
    RunnerError,
    SinkBackpressureError,
)
from streamrt.kafka.partitioner import partition_for
from streamrt.operators.durations import milliseconds
from streamrt.records import Headers, TimestampType, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.driver.display import Display
from streamrt.runtime.driver.event_time import EventTime
from streamrt.runtime.driver.function_metrics import FunctionMetrics
from streamrt.runtime.driver.lifecycle import ApplicationStatus
from streamrt.runtime.driver.schema_changes import schema_change
from streamrt.runtime.driver.state_queries import QueryTarget, StateQueries
from streamrt.runtime.driver.stored_state import StoredState
from streamrt.runtime.placement import StateSettings
from streamrt.runtime.report import Output, Report
from streamrt.runtime.tasks.sinks import DriverSinks
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.runtime.tasks.watchdog import Watchdog
from streamrt.serializers import MessageField
from streamrt.tables.table import Table
from streamrt.tables.topics import TableTopic
from streamrt.testing.cluster import MemoryCluster
from streamrt.testing.driver_life import Arrival, DriverLife
from streamrt.testing.driver_state import DriverState
from streamrt.testing.feeding import feeding_of
from streamrt.testing.memory import MemoryClients, WrittenRecord
from streamrt.testing.tables import Arrived, DriverTables
from streamrt.testing.views import ReadableStores
from streamrt.topics import Topic
from streamrt.topology import Measured

_SLICE_S = 1.0
"""Time limit of one work unit: a record that closes very many windows closes them in portions, as in production."""


@dataclass(frozen=True)
class TestRecord:
    """A record in a topic of the test driver, deserialized with the topic's deserializers.

    Attributes:
        key: the key.
        value: the value.
        timestamp: milliseconds since the Unix epoch.
        headers: the headers, or None if there are none.
        raw_key: the key's bytes.
        raw_value: the value's bytes, or None for a tombstone.
        partition: the partition that a partitioner has chosen; -1 if the key determines it.
    """

    __test__ = False  # pytest must not collect the class as a test

    key: Any
    value: Any
    timestamp: int
    headers: Headers | None
    raw_key: bytes | None
    raw_value: bytes | None
    partition: int = -1


class TopologyTestDriver(DriverState, DriverLife):
    """Runs the dataframes of an application record by record, synchronously.

    Values are serialized and deserialized as in production, and errors go to the application's callbacks. Applications
    that would fail at their start fail here, too: the driver runs the same checks on a cluster in memory, which creates
    missing topics. Functions run in this process, so they may append to lists of a test.

    State uses the same transactions, commits and changelogs as in production; RocksDB stores keep their data in memory
    here. Records are fed as in the application's `processing_mode`: in micro-batch mode each piped record is one
    micro-batch; in resident mode a resident task processes it, and its stores stay open between records. In both modes
    all is committed when `pipe` returns. Topics have their declared number of partitions, or 1 if none is declared.

    Args:
        app: the application; its broker is never contacted.
        start: start of the driver's wall clock, in milliseconds since the Unix epoch. Records that are piped
            without a timestamp get the wall clock. Only `advance` moves it.

    Raises:
        UnpicklableOperatorError: if an operator cannot be pickled for the processes that run tasks.
        InvalidOperationError: if the application has no dataframe.
        TopicConfigurationError: if topics that share state have different numbers of partitions.
        TopicCreationError: if Kafka would refuse to create a topic as it is declared.
        ConfigurationError: if the processing guarantee is not possible.

    Example:
        ```python
        def test_late_flights():
            app = Application(broker_address="unused:9092")
            flights, late = app.topic("flights"), app.topic("late")
            sdf = app.dataframe(flights)
            sdf[sdf["dep_delay"] > 60].to_topic(late)
            driver = TopologyTestDriver(app)
            driver.pipe(flights, {"dep_delay": 90}, key="UA")
            driver.pipe(flights, {"dep_delay": 5}, key="UA")
            assert [record.value for record in driver.read(late)] == [{"dep_delay": 90}]
        ```
    """

    def __init__(self, app: Application, *, start: int = 0) -> None:
        definition = definition_of(app)
        self._declared = definition.topology
        if not self._declared.sources:
            raise InvalidOperationError("there is nothing to test: the application has no dataframe")
        self._app = app
        self._now = start
        # StreamRT writes nothing there, but users' stores may need a directory.
        directory = tempfile.mkdtemp(prefix="streamrt-test-")
        self._remove_files = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self._cluster = cluster = MemoryCluster()
        self._live()
        spec = definition.rehearse_start(
            definition.task_spec(count_outputs=True, collect=True), cluster, Path(directory)
        )
        topology = spec.topology
        state = spec.state or StateSettings(app.config.consumer_group, Path(directory), definition.rocksdb_options)
        self._state = state = replace(state, in_memory=True)
        spec = replace(spec, state=state)
        self._partitions = {name: cluster.topics[name].num_partitions or 1 for name in topology.sources}
        self._topology = topology
        self._clients = MemoryClients(lambda: self._now)
        self._catalog = ReadableStores(state)
        self._watchdog = None if spec.processing_timeout is None else Watchdog(spec.processing_timeout)
        self._tasks = tasks = TaskExecutor(spec, self._clients, self._catalog, watchdog=self._watchdog)
        self._sinks = DriverSinks(topology)
        self._sinks.start()
        self._pause = threading.Event()
        self._event_time = EventTime(topology, self._partitions)
        partitions = [
            TopicPartition(name, number) for name in topology.sources for number in range(self._partitions[name])
        ]
        self._event_time.assign({topology.task(partition) for partition in partitions})
        self._event_time.processed(dict.fromkeys(partitions, 0))
        self._feeding = feeding_of(app.config.processing_mode, tasks, self._clients, partitions, self._handle)
        stored = StoredState(topology, self._declared, self._partitions, state.options, self._clients.now)
        self._queries = StateQueries()
        self._served = self._queries.serving(QueryTarget(stored, topology.inputs, self._read_state, None))
        self._served.__enter__()
        self._display = Display(spec.topology)
        self._functions = FunctionMetrics()
        self._offsets: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._read: dict[str, int] = {}
        self._repartitioned: dict[str, int] = {}
        self._outputs: list[Output] = []
        self._on_message_processed = definition.on_message_processed
        counts = {name: number for name, number in self._partitions.items() if name not in topology.exchanges}
        self._tables = DriverTables(
            lambda: app.catalog, counts, self._clients.written, self._process_appended, lambda: self._now
        )
        self._tables.follow(topic for topic in definition.topics.topics.values() if isinstance(topic, TableTopic))
        self._run()

    @property
    def now(self) -> int:
        """The driver's wall clock, in milliseconds since the Unix epoch."""
        return self._now

    def advance(self, by: timedelta | int) -> None:
        """Advance the wall clock and run what is due.

        Args:
            by: a timedelta or milliseconds; not negative.
        """
        step = milliseconds("advance(by=...)", by)
        self._now += step
        if self.status is ApplicationStatus.STOPPED:
            return
        self._require_started("process what is due")
        self._event_time.elapse(step)
        with self._working():
            self._tick()

    def end(self) -> None:
        """End the inputs, as `Application.run(until="end")` does: windows close and timers fire.

        Stage by stage: what comes out above a `group_by` is processed below it before time ends there. Further records may
        follow, like those of a later run.

        Raises:
            ApplicationStateError: if the application is stopped, or topics are paused.
            ProcessingError: if an operator failed and no callback skipped the error; likewise `ProducerError`.

        Example:
            ```python
            driver.pipe(orders, {"total": 10}, key="ann", timestamp=1_000)
            driver.end()
            assert [record.value["value"] for record in driver.read(totals)] == [10]
            ```
        """
        self._require_started("end its inputs")
        if self.paused_topics:
            raise ApplicationStateError(
                f"{', '.join(sorted(self.paused_topics))} paused, so the inputs cannot end: resume() first"
            )
        end = self._event_time.end
        with self._working():
            self._drain()
            for level in range(end.levels):
                end.reach(level)
                while not end.over:
                    self._feeding.get_ready(self._context())
                    self._feeding.tick(sorted(end.due), self._context())
                    self._process_all(self._repartition())

    def pipe(
        self,
        topic: Topic | str,
        value: Any = None,
        *,
        key: Any = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int = 0,
    ) -> None:
        """Send one record through the application.

        Args:
            topic: an input topic.
            value: the value, serialized by the topic's value serializer; None sends a tombstone.
            key: the key, serialized by the topic's key serializer.
            timestamp: milliseconds since the Unix epoch; the wall clock by default.
            headers: the headers.
            partition: partition of the record.

        Raises:
            ProcessingError: if an operator failed and no callback skipped the record; likewise `ConsumerError` and
                `ProducerError`.
        """
        known = self._topic(topic)
        to_value = known.value_serializer.bind(known.name, MessageField.VALUE)
        to_key = known.key_serializer.bind(known.name, MessageField.KEY)
        self.pipe_bytes(
            known,
            None if value is None else to_value(value, headers),
            key=None if key is None else to_key(key, headers),
            timestamp=timestamp,
            headers=headers,
            partition=partition,
        )

    def pipe_bytes(
        self,
        topic: Topic | str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int = 0,
    ) -> None:
        """Send one record of raw bytes through the application, to test the handling of invalid input.

        Args:
            topic: an input topic.
            value: the value's bytes; None is a tombstone.
            key: the key's bytes.
            timestamp: milliseconds since the Unix epoch; the wall clock by default.
            headers: the headers.
            partition: partition of the record.

        Raises:
            ProcessingError: if an operator failed and no callback skipped the record; likewise `ConsumerError`,
                `ProducerError`, `SinkError` and `StateError`.
            SinkBackpressureError: if a sink pauses the partition; the record is then not accepted.
        """
        input_partition = self._input(topic, partition)
        when = self._now if timestamp is None else timestamp
        self._take_in(input_partition, WrittenRecord(value, key, when, headers))

    def pipe_all(
        self,
        topic: Topic | str,
        values: Iterable[Any],
        *,
        key: Any = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int = 0,
    ) -> None:
        """Send several records through the application at once: in one micro-batch, or as the result of one poll.

        Asynchronous calls are in flight for several of them at the same time. `pipe` waits for the calls of each record.

        Args:
            topic: an input topic.
            values: the values, in the order of their offsets.
            key: the key of all, serialized by the topic's key serializer.
            timestamp: milliseconds since the Unix epoch; the wall clock by default.
            headers: the headers of all.
            partition: partition of the records.

        Raises:
            ProcessingError: as for `pipe`.

        Example:
            ```python
            driver.pipe_all(orders, [{"id": 1}, {"id": 2}, {"id": 3}], key="ann")
            ```
        """
        known = self._topic(topic)
        to_value = known.value_serializer.bind(known.name, MessageField.VALUE)
        raw_key = None if key is None else known.key_serializer.bind(known.name, MessageField.KEY)(key, headers)
        when = self._now if timestamp is None else timestamp
        data = (None if value is None else to_value(value, headers) for value in values)
        records = [WrittenRecord(each, raw_key, when, headers) for each in data]
        self._take_in(self._input(known, partition), *records)

    def read(self, topic: Topic | str) -> list[TestRecord]:
        """Return the records produced to a topic since the last call.

        Args:
            topic: an output topic.
        """
        known = self._topic(topic)
        written = self._clients.written(known.name)
        start = self._read.get(known.name, 0)
        self._read[known.name] = len(written)
        return [_test_record(known, record) for record in written[start:]]

    @property
    def catalog(self) -> DriverTables:
        """The tables of the application's catalogue, in memory: `driver.catalog.table(name)` is `driver.table(name)`."""
        return self._tables

    def table(self, table: Table | str) -> Table:
        """Return a table in memory, with the methods that tables have everywhere.

        It has the rows that were piped to its topic, and those that the application has appended. Rows that are appended
        through it are processed when their writer is flushed, or commits; an error of the application is raised there.

        Args:
            table: name of the table in the catalogue of the application, or a handle of it.

        Raises:
            TableNotFoundError: if the catalogue has no table of this name.

        Example:
            ```python
            driver.table("shop.orders").append([{"id": 1, "total": 2_000}])
            assert driver.table("shop.large_orders").scan().rows() == [{"id": 1, "total": 2_000}]
            ```
        """
        return self._tables.of(table)

    def metrics(self, operator: str) -> dict[str, float | Measured]:
        """Return what the metrics of a process function have measured, by name.

        Args:
            operator: name of its store, such as `process_Orders`.

        Returns:
            Counters and, of the highest partition, gauges; for distributions, with `count`, `total`, `least` and `greatest`.

        Example:
            ```python
            assert driver.metrics("process_Orders")["rejected"] == 2
            ```
        """
        return self._functions.of(operator)

    def outputs(self) -> list[tuple[Any, Any, int, Any]]:
        """Return value, key, timestamp and headers of the results of all branches since the last call."""
        outputs, self._outputs = self._outputs, []
        return [(output.value, output.key, output.timestamp, output.headers) for output in outputs]

    def close(self) -> None:
        """Stop, print the rest of unfinished tables, close the sinks, export the rest of spans, delete temporary files."""
        self.stop()
        self._closed = True
        self._feeding.close()
        self._display.close()
        if self._watchdog is not None:
            self._watchdog.close()
        self._tasks.close()
        self._sinks.close()
        self._remove_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _input(self, topic: Topic | str, partition: int) -> TopicPartition:
        """Return a partition of an input topic."""
        name = topic if isinstance(topic, str) else topic.name
        if name not in self._topology.sources:
            known = ", ".join(self._topology.sources)
            raise ArgumentValueError(f"no dataframe reads topic {name!r}; the application reads {known}")
        return TopicPartition(name, partition)

    def _process_all(self, records: Iterable[tuple[TopicPartition, WrittenRecord]]) -> None:
        waiting = deque(records)
        while waiting:
            self._process(*waiting.popleft())
            waiting.extend(self._repartition())

    def _tick(self) -> None:
        """Let time pass for the tasks that wait for it; their output may do the same for tasks after a group_by."""
        if not self._event_time.wanted:
            return
        self._feeding.get_ready(self._context())
        for _ in self._topology.sources:
            barrier = self._event_time.barrier()
            if barrier is not None:
                # All records sent through repartition topics are processed.
                ends = {partition: self._offsets.get(partition, 0) for partition in barrier.partitions}
                self._event_time.add_barrier(barrier, ends)
            tasks = sorted(self._event_time.due(self._now))
            if tasks:
                self._feeding.tick(tasks, self._context())
                self._process_all(self._repartition())
            elif barrier is None:
                break

    def _context(self) -> BatchContext:
        return BatchContext(
            defaultdict(int, self._positions),
            _SLICE_S,
            now=self._now,
            watermarks=self._event_time.watermarks(),
            others=self._event_time.others(),
            final=self._event_time.end.due,
        )

    def _take_in(self, partition: TopicPartition, *records: WrittenRecord) -> None:
        """Process records that were piped, or keep them if their topic is paused."""
        self._require_started("process records")
        offset = self._tables.end_of(partition, self._offsets.get(partition, 0))
        arrival = Arrival(partition, offset, records, kept=partition.topic in self._waiting)
        if records:
            self._arrivals.append(arrival)
        if arrival.kept:
            self._offsets[partition] = offset + len(records)
            self._tables.arrived(partition, records)
        try:
            with self._working():
                self._drain()
        finally:
            # After an error before its turn it is not accepted: the next record gets its offset.
            self._arrivals = [each for each in self._arrivals if each is not arrival or each.kept]

    def _process_appended(self, arrived: Iterable[Arrived]) -> None:
        self._require_started("process records")
        for partition, offset, record in arrived:
            self._offsets[partition] = max(offset + 1, self._offsets.get(partition, 0))
            self._arrivals.append(Arrival(partition, offset, (record,), kept=True))
        with self._working():
            self._drain()

    def _drain(self) -> None:
        while (index := self._next_arrival()) is not None:
            arrival = self._arrivals.pop(index)
            try:
                self._process_at(arrival.offset, arrival.partition, *arrival.records)
            except SinkBackpressureError:
                self._arrivals.insert(index, arrival)
                raise
            if not arrival.kept:
                self._tables.arrived(arrival.partition, arrival.records)
            self._process_all(self._repartition())
        self._tick()

    def _process(self, partition: TopicPartition, record: WrittenRecord) -> None:
        self._process_at(self._offsets.get(partition, 0), partition, record)

    def _process_at(self, offset: int, partition: TopicPartition, *records: WrittenRecord) -> None:
        end = offset + len(records)
        chunk = Chunk(
            topic=partition.topic,
            partition=partition.partition,
            offsets=list(range(offset, end)),
            keys=[record.key for record in records],
            values=[record.value for record in records],
            timestamps=[record.timestamp for record in records],
            timestamp_types=[TimestampType.TIMESTAMP_CREATE_TIME] * len(records),
            headers=[record.headers for record in records] if any(record.headers for record in records) else None,
        )
        former = self._offsets.get(partition, 0)
        self._offsets[partition] = max(end, former)
        try:
            self._feeding.process(chunk, self._context())
        except SinkBackpressureError:
            # The record was not accepted: the next record gets its offset.
            self._offsets[partition] = former
            raise

    def _repartition(self) -> list[tuple[TopicPartition, WrittenRecord]]:
        """Return the records that group_by and broadcast have forwarded since the last call."""
        found: list[tuple[TopicPartition, WrittenRecord]] = []
        for name in self._topology.exchanges:
            written = self._clients.written(name)
            fresh = written[self._repartitioned.get(name, 0) :]
            self._repartitioned[name] = len(written)
            for record in fresh:
                number = record.partition
                if number < 0:
                    number = 0 if record.key is None else partition_for(record.key, self._partitions[name])
                found.append((TopicPartition(name, number), record))
        return found

    def _handle(self, report: Report) -> None:
        self._sinks.write(report.sunk, self._pause)
        positions = {partition: done.end for partition, done in report.ranges.items()}
        self._event_time.report(report.times, report.sent)
        self._event_time.end.report(report.ended)
        self._event_time.processed(positions)
        self._positions.update(positions)
        self._functions.add(report.metrics)
        for trouble in (*report.interrupted.values(), *report.locked.values()):
            raise RunnerError(trouble)
        self._outputs += report.collected
        self._tables.publish()
        self._display.show(report.shown)
        if self._on_message_processed is not None:
            for partition, offsets in report.processed.items():
                for offset in offsets:
                    self._on_message_processed(partition.topic, partition.partition, offset)
        if report.failure is not None:
            error = report.failure.error()
            topics = definition_of(self._app).topics.topics.values()
            change = schema_change(error, topics, lambda name: self._app.catalog.load(name))
            raise (change or error) from report.failure.cause


def _test_record(topic: Topic, written: WrittenRecord) -> TestRecord:
    load_value = topic.value_deserializer.bind(topic.name, MessageField.VALUE)
    load_key = topic.key_deserializer.bind(topic.name, MessageField.KEY)
    return TestRecord(
        key=None if written.key is None else load_key(written.key, written.headers),
        value=None if written.value is None else load_value(written.value, written.headers),
        timestamp=written.timestamp,
        headers=written.headers,
        raw_key=written.key,
        raw_value=written.value,
        partition=written.partition,
    )
