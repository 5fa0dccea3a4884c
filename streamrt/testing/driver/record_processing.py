"""Processes the records of an application under test, in this process and thread."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamrt.application.run_state import RunState
from streamrt.errors import ApplicationStateError, ArgumentValueError, RunnerError, SinkBackpressureError, StreamRTError
from streamrt.event_time.event_time import EventTime
from streamrt.kafka.partitioner import partition_for
from streamrt.kafka.wire import client_headers, exceeds_topic
from streamrt.records import Headers, Positions, TimestampType, TopicPartition
from streamrt.records.timestamps import LATEST_TIMESTAMP_MS
from streamrt.relations import find_request_topics
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.life.paused import unread_topics
from streamrt.runtime.driver.life.schema_changes import schema_change
from streamrt.runtime.driver.observation.display import Display
from streamrt.runtime.driver.observation.function_metrics import FunctionMetrics
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.runtime.placement import StateSettings
from streamrt.runtime.report import Output, Report
from streamrt.runtime.tasks.chain.task_sinks import DriverSinks, TaskSinks
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.runtime.tasks.watchdog import Watchdog
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.testing.cluster import MemoryCluster
from streamrt.testing.driver.chunks import ChunkFailedError, ChunkFeeding, Sent, Times
from streamrt.testing.driver.feeding import Feeding, feeding_of
from streamrt.testing.driver.lookups import bind_lookups
from streamrt.testing.driver.offsets import DriverOffsets
from streamrt.testing.driver.views import ReadableStores
from streamrt.testing.memory import MemoryClients, Origin, WrittenRecord
from streamrt.testing.tables import Arrived, DriverTables
from streamrt.topics import Topic
from streamrt.topology import TaskId, Topology

if TYPE_CHECKING:
    from streamrt.tables.descriptions.home import TableHome

__all__ = ["DriverExecution"]

_SLICE_S = 1.0
"""Time limit of one work unit: a record that closes very many windows closes them in portions, as in production."""


@dataclass(eq=False)
class _Arrival:
    """Records that have come, and are not processed yet.

    Attributes:
        partition: their partition.
        offset: the offset of the first one.
        records: the records.
        kept: whether they stay in their topic if a sink pauses; otherwise they have never been there.
    """

    partition: TopicPartition
    offset: int
    records: tuple[WrittenRecord, ...]
    kept: bool = False


Piped = tuple[TopicPartition, WrittenRecord]
"""A record that was piped, with its partition."""

_Rank = tuple[int, tuple[int, ...]]
"""Place of a record in a chunk: the number of the piped record that it comes from, and how it comes from there.

The second part begins with its length, so that records that have passed fewer exchanges come first.
"""


@dataclass(frozen=True)
class _Memory:
    """What is known before a chunk, to take back its effects.

    Attributes:
        ends: the ends of input partitions.
        positions: the positions in them.
        repartitioned: the number of records that were taken from each exchange.
        event_time: the event time of the application.
    """

    ends: dict[TopicPartition, int]
    positions: dict[TopicPartition, int]
    repartitioned: dict[str, int]
    event_time: EventTime


class DriverExecution:
    """Runs the tasks of an application on edges in memory. All is committed when a method returns.

    Records of paused topics wait, and are processed in the order in which they came.

    Args:
        definition: the application.
        catalog: returns its catalogue.
        state: its state.
        directory: directory for store partitions.
        now: start of the wall clock, in milliseconds since the Unix epoch.

    Attributes:
        now: the wall clock.
        topology: the operators that run.
        offsets: the offsets of the application.
        settings: the settings of its stores.
        stores: its stores.
        clients: what it has written.
        tables: its tables.
        tasks: its tasks.
        functions: the metrics of its process functions.
        watchdog: ends records that take too long, if there is a limit.

    Raises:
        StreamRTError: one of its subclasses, if the application could not start.
    """

    def __init__(
        self,
        definition: ApplicationDefinition,
        catalog: Callable[[], TableHome],
        state: RunState,
        directory: Path,
        now: int,
    ) -> None:
        self._definition = definition
        self._catalog = catalog
        self._state = state
        self.now = now
        self._cluster = cluster = MemoryCluster()
        spec = definition.rehearse_start(definition.task_spec(count_outputs=True, collect=True), cluster, directory)
        settings = spec.state or StateSettings(definition.config.consumer_group, directory, definition.rocksdb_options)
        self.settings = settings = replace(settings, in_memory=True)
        spec = replace(spec, state=settings)
        self.topology = topology = spec.topology
        counts = {name: cluster.topics[name].num_partitions or 1 for name in topology.sources}
        self.offsets = DriverOffsets(cluster, counts)
        self.clients = clients = MemoryClients(lambda: self.now, spec.max_record_bytes, self._topic_settings)
        read = {name: number for name, number in counts.items() if name not in topology.exchanges}
        self.tables = DriverTables(catalog, read, clients.written, self._process_appended, lambda: self.now)
        self.topology = topology = bind_lookups(topology, self.tables.of)
        spec = replace(spec, topology=topology)
        self.stores = ReadableStores(settings)
        self.watchdog = None if spec.processing_timeout is None else Watchdog(spec.processing_timeout)
        self.tasks = TaskExecutor(spec, clients, self.stores, watchdog=self.watchdog)
        self._slice_s = _SLICE_S
        # The last context of the chunk that is processed; None between chunks.
        self._chunk_context: BatchContext | None = None
        self._exclusive = TaskSinks(topology).exclusive
        self._streams = _downstream(topology)
        # Topics of requests, which the application may write as well.
        self._merged = find_request_topics(topology)
        self._sinks = DriverSinks(topology)
        self._sinks.start()
        self._pause = threading.Event()
        partitions = self.offsets.declared_partitions(topology.sources)
        self._event_time = EventTime(topology, counts)
        self._event_time.assign({topology.task(partition) for partition in partitions})
        self._event_time.begin(dict.fromkeys(partitions, 0))
        mode = definition.config.processing_mode
        self._feeding: Feeding = feeding_of(mode, self.tasks, clients, partitions, self._handle_report)
        self._display = Display(topology)
        self.functions = FunctionMetrics()
        self._arrivals: list[_Arrival] = []
        self._repartitioned: dict[str, int] = {}
        self._outputs: list[Output] = []
        self._on_message_processed = definition.on_message_processed
        # Tasks with results before their first record, which have not had a tick since the application started.
        self._to_begin: set[TaskId] = set()
        self._closed = False
        self.tables.follow(topic for topic in definition.topics.topics.values() if isinstance(topic, TableTopic))

    # -- Records and time --------------------------------------------------------------------------------------------

    def input_partition(self, topic: Topic | str, partition: int | None, key: bytes | None) -> TopicPartition:
        """Return the partition of a record in an input topic: the given one, or else that of its key."""
        name = topic if isinstance(topic, str) else topic.name
        if name not in self.topology.sources:
            known = ", ".join(self.topology.sources)
            raise ArgumentValueError(f"no dataframe reads topic {name!r}; the application reads {known}")
        return TopicPartition(name, self._partition_of(name, key) if partition is None else partition)

    def _topic_settings(self, topic: str) -> Mapping[str, Any]:
        """Return the settings of a topic."""
        known = self._cluster.topics.get(topic)
        return {} if known is None else known.extra_config

    def make_record(
        self, topic: str, value: bytes | None, key: bytes | None, timestamp: int | None, headers: Headers | None
    ) -> WrittenRecord:
        """Return a record as an input topic has it. Timestamps are kept, also 0: producers in Java can write it."""
        when = self.now if timestamp is None else timestamp
        if when > LATEST_TIMESTAMP_MS:
            raise ArgumentValueError(f"timestamp={when}: the latest timestamp of a record is {LATEST_TIMESTAMP_MS} ms")
        sent = client_headers(headers, topic)
        error = exceeds_topic(topic, value, key, sent, self._topic_settings(topic))
        if error is not None:
            raise error
        return WrittenRecord(value, key, when, sent)

    def accept_records(self, partition: TopicPartition, *records: WrittenRecord) -> None:
        """Process records that were piped, or keep them if their topic is paused."""
        self._require_started("process records")
        offset = self._end_of(partition)
        arrival = _Arrival(partition, offset, records, kept=partition.topic in self._waiting_topics)
        if records:
            self._arrivals.append(arrival)
        if arrival.kept:
            self.offsets.ends[partition] = offset + len(records)
            self.tables.arrived(partition, records)
        try:
            with self._end_on_error():
                self._drain_records()
        finally:
            # After an error before its turn it is not accepted: the next record gets its offset.
            self._arrivals = [each for each in self._arrivals if each is not arrival or each.kept]

    def accept_chunk(self, records: Sequence[Piped]) -> None:
        """Process records that were piped, with one commit for all of them if none of them fails.

        Args:
            records: the records, each with its partition, in the order in which they came.
        """
        self._require_started("process records")
        for part in self._chunks_of(records):
            if not self._commits_together(part):
                for partition, record in part:
                    self.accept_records(partition, record)

    def begin_tasks(self) -> None:
        """Let operators pass on what they have before the first record, except in tasks of paused topics."""
        with self._end_on_error():
            self._begin_tasks()

    def _begin_tasks(self) -> None:
        waiting = self._waiting_topics if self._to_begin else frozenset()
        topics = self.topology.streams
        starting = sorted(task for task in self._to_begin if waiting.isdisjoint(topics[task.stream]))
        if starting:
            self._to_begin.difference_update(starting)
            self._feeding.tick(starting, self._make_context())
            self._process_all(self._take_repartitioned())

    def drain(self) -> None:
        """Process the records that have come, except those of paused topics, and let time pass."""
        with self._end_on_error():
            self._drain_records()

    def elapse(self, step: int) -> None:
        """Move the wall clock forward by a number of milliseconds, and run what is due, unless the application is stopped."""
        self.now += step
        if self._state.status is ApplicationStatus.STOPPED:
            return
        self._require_started("process what is due")
        self._event_time.elapse(step)
        with self._end_on_error():
            self._tick_tasks()

    def end_inputs(self) -> None:
        """See `TopologyTestDriver.end`."""
        self._require_started("end its inputs")
        paused = self._state.paused_topics
        if paused:
            raise ApplicationStateError(f"{', '.join(sorted(paused))} paused, so the inputs cannot end: resume() first")
        end = self._event_time.end
        with self._end_on_error():
            self._drain_records()
            for level in range(end.levels):
                end.reach(level)
                while not end.over:
                    self._feeding.get_ready(self._make_context)
                    self._feeding.tick(sorted(end.due), self._make_context())
                    self._process_all(self._take_repartitioned())

    def take_outputs(self) -> list[Output]:
        """Return the results of all branches since the last call."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def _chunks_of(self, records: Sequence[Piped]) -> Iterator[Sequence[Piped]]:
        """Divide records so that a sink that cannot separate tasks gets those of one task at a time."""
        if not self._exclusive:
            yield records
        else:
            for _, part in groupby(records, lambda each: self.topology.task(each[0])):
                yield list(part)

    def _commits_together(self, records: Sequence[Piped]) -> bool:
        """Process and commit records together; return False if it is not possible, and nothing was done."""
        relayed = bool(self.topology.exchanges)
        if len(records) < 2 or self._merged or self._arrivals or self._waiting_topics or (relayed and self._exclusive):
            return False
        # Ticks may come between any two records. Otherwise, tasks work independently of each other.
        streams = None if self._event_time.wanted else self._streams
        ordered = streams is not None and (relayed or len({partition for partition, _ in records}) > 1)
        former, before = self._feeding, self._remember()
        former.close()
        # The end of a slice would divide a chunk at a place that depends on the speed of the machine.
        self._slice_s = float("inf")
        self._chunk_context = context = self._make_context()
        self._feeding = feeding = ChunkFeeding(self.tasks, self.clients, context, self._note_progress, whole=ordered)
        try:
            with self.clients.reversible(ordered=ordered):
                if streams is not None and ordered:
                    ranks = self._process_by_stream(records, streams)
                    report = feeding.commit()
                    report.collected.sort(key=lambda output: ranks[output.topic, output.partition, output.offset])
                else:
                    self._process_in_order(records, one_by_one=streams is None)
                    report = feeding.commit()
                    report.collected = feeding.outputs(report)
        except BaseException as error:
            self._restore(before)
            if isinstance(error, ChunkFailedError | StreamRTError):
                return False
            self._state.life.end(error)
            raise
        finally:
            self._feeding, self._slice_s, self._chunk_context = former, _SLICE_S, None
            feeding.close()
        with self._end_on_error():
            self._handle_report(report)
        for partition, record in records:
            self.tables.arrived(partition, (record,))
        return True

    def _process_in_order(self, records: Sequence[Piped], *, one_by_one: bool) -> None:
        """Process records of one partition, or one by one with all that follows from each."""
        if not one_by_one:
            self._process_run(records)
            return
        for each in records:
            self._process_run([each])
            self._process_all(self._take_repartitioned())
            self._tick_tasks()

    def _process_by_stream(self, records: Iterable[Piped], streams: Iterable[str]) -> Mapping[Origin, _Rank]:
        """Process records task by task: each stream after those that send into its inputs.

        What tasks write is sorted afterwards, by the order in which the records would be processed one by one.

        Returns:
            The places of the records in that order.
        """
        topology, ranks = self.topology, dict[Origin, _Rank]()
        waiting: dict[str, list[tuple[_Rank, TopicPartition, WrittenRecord]]] = {name: [] for name in topology.streams}
        for number, (partition, record) in enumerate(records):
            waiting[topology.task(partition).stream].append(((number, ()), partition, record))
        for stream in streams:
            ends: dict[TopicPartition, int] = {}
            tasks: dict[int, list[Piped]] = {}
            for rank, partition, record in sorted(waiting.pop(stream), key=itemgetter(0)):
                end = ends[partition] if partition in ends else self._end_of(partition)
                ends[partition] = end + 1
                ranks[partition.topic, partition.partition, end] = rank
                tasks.setdefault(partition.partition, []).append((partition, record))
            for own in tasks.values():
                for _, run in groupby(own, itemgetter(0)):
                    self._process_run(list(run))
            for number, (name, node) in enumerate(topology.exchanges.items()):
                if topology.stream_of(node) != stream:
                    continue
                start = self._repartitioned.get(name, 0)
                fresh = self.clients.fresh(name, start)
                self._repartitioned[name] = start + len(fresh)
                for index, (origin, record) in enumerate(fresh):
                    root, path = ranks[origin]
                    rank = root, (len(path) + 1, *path[1:], number, index)
                    waiting[topology.stream_of_topic[name]].append((rank, self._target(name, record), record))
        self.clients.put_in_order(ranks.__getitem__)
        return ranks

    def _process_run(self, records: Sequence[Piped]) -> None:
        """Process records of one partition."""
        partition = records[0][0]
        self._process_at(self._end_of(partition), partition, *(record for _, record in records))

    def _end_of(self, partition: TopicPartition) -> int:
        return self.tables.end_of(partition, self.offsets.ends.get(partition, 0))

    def _note_progress(self, times: Times, sent: Sent, positions: Mapping[TopicPartition, int]) -> None:
        self._event_time.report(times, sent)
        self._event_time.processed(positions)
        self.offsets.positions.advance(positions)

    def _remember(self) -> _Memory:
        kept = {id(each): each for each in (self.topology, self._event_time.end)}
        event_time = copy.deepcopy(self._event_time, kept) if self._event_time.wanted else self._event_time
        return _Memory(dict(self.offsets.ends), dict(self.offsets.positions), dict(self._repartitioned), event_time)

    def _restore(self, memory: _Memory) -> None:
        self.offsets.ends, self.offsets.positions = memory.ends, Positions(memory.positions)
        self._repartitioned, self._event_time = memory.repartitioned, memory.event_time

    def _process_all(self, records: Iterable[tuple[TopicPartition, WrittenRecord]]) -> None:
        waiting = deque(records)
        while waiting:
            self._process_record(*waiting.popleft())
            waiting.extend(self._take_repartitioned())

    def _tick_tasks(self) -> None:
        """Let time pass for the tasks that wait for it; their output may do the same for tasks after a group_by."""
        if not self._event_time.wanted:
            return
        self._feeding.get_ready(self._make_context)
        for _ in self.topology.sources:
            barrier = self._event_time.barrier()
            if barrier is not None:
                # All records sent through repartition topics are processed.
                ends = {partition: self.offsets.ends.get(partition, 0) for partition in barrier.partitions}
                self._event_time.add_barrier(barrier, ends)
            tasks = sorted(self._event_time.due(self.now))
            if tasks:
                self._feeding.tick(tasks, self._make_context(new=True))
                self._process_all(self._take_repartitioned())
            elif barrier is None:
                break

    def _make_context(self, *, new: bool = False) -> BatchContext:
        """Return the current context: within a chunk the last one if time has not moved, unless there must be a tick."""
        watermarks, others, final = self._event_time.watermarks(), self._event_time.others(), self._event_time.end.due
        last = self._chunk_context
        if last and not new and last.watermarks is watermarks and last.others is others and last.final == final:
            return last
        context = BatchContext(
            defaultdict(int, self.offsets.positions),
            self._slice_s,
            now=self.now,
            watermarks=watermarks,
            others=others,
            final=final,
        )
        if last:
            self._chunk_context = context
        return context

    def _process_appended(self, arrived: Iterable[Arrived]) -> None:
        self._require_started("process records")
        for partition, offset, record in arrived:
            self.offsets.ends[partition] = max(offset + 1, self.offsets.ends.get(partition, 0))
            self._arrivals.append(_Arrival(partition, offset, (record,), kept=True))
        self.drain()

    def _drain_records(self) -> None:
        self._begin_tasks()
        while (index := self._next_arrival()) is not None:
            arrival = self._arrivals.pop(index)
            try:
                self._process_at(arrival.offset, arrival.partition, *arrival.records)
            except SinkBackpressureError:
                self._arrivals.insert(index, arrival)
                raise
            if not arrival.kept:
                self.tables.arrived(arrival.partition, arrival.records)
            self._process_all(self._take_repartitioned())
        self._tick_tasks()

    def _process_record(self, partition: TopicPartition, record: WrittenRecord) -> None:
        self._process_at(self.offsets.ends.get(partition, 0), partition, record)

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
        former = self.offsets.ends.get(partition, 0)
        self.offsets.ends[partition] = max(end, former)
        try:
            self._feeding.process(chunk, self._make_context())
        except SinkBackpressureError:
            # The record was not accepted: the next record gets its offset.
            self.offsets.ends[partition] = former
            raise

    def _take_repartitioned(self) -> list[tuple[TopicPartition, WrittenRecord]]:
        """Return the records that group_by, broadcast and to_table have forwarded since the last call."""
        found: list[tuple[TopicPartition, WrittenRecord]] = []
        for name in (*self.topology.exchanges, *self._merged):
            written = self.clients.written(name)
            fresh = written[self._repartitioned.get(name, 0) :]
            self._repartitioned[name] = len(written)
            for record in fresh:
                found.append((self._target(name, record), record))
        return found

    def _target(self, exchange: str, record: WrittenRecord) -> TopicPartition:
        """Return the partition of a record in an exchange."""
        number = record.partition
        return TopicPartition(exchange, self._partition_of(exchange, record.key) if number < 0 else number)

    def _partition_of(self, topic: str, key: bytes | None) -> int:
        """Return the partition that a producer would choose; without a key, the first one."""
        count = self.offsets.counts[topic]
        return 0 if key is None or count == 1 else partition_for(key, count)

    def _handle_report(self, report: Report) -> None:
        self._sinks.write(report.sunk, self._pause)
        positions = {partition: done.end for partition, done in report.ranges.items()}
        self._event_time.report(report.times, report.sent)
        self._event_time.end.report(report.ended)
        self._event_time.processed(positions)
        self.offsets.positions.advance(positions)
        self.functions.add(report.metrics)
        for trouble in (*report.interrupted.values(), *report.locked.values()):
            raise RunnerError(trouble)
        self._outputs += report.collected
        self.tables.publish()
        self._display.show(report.shown)
        if self._on_message_processed is not None:
            for partition, offsets in report.processed.items():
                for offset in offsets:
                    self._on_message_processed(partition.topic, partition.partition, offset)
        if report.failure is not None:
            error = report.failure.error()
            topics = self._definition.topics.topics.values()
            change = schema_change(error, topics, lambda name: self._catalog().load(name))
            raise (change or error) from report.failure.cause

    # -- The run ---------------------------------------------------------------------------------------------------

    def enter_running(self) -> None:
        """Enter RUNNING, or PAUSED."""
        self._closed = False
        beginning = set(filter(self.topology.begins, self.topology.streams))
        tasks = map(self.topology.task, self.offsets.declared_partitions(self.topology.sources))
        self._to_begin = {task for task in tasks if task.stream in beginning}
        self._state.checkpoints.forget()
        self._state.control.works()
        self.apply_run_request()

    def apply_run_request(self) -> None:
        """Fulfil the current request: the tasks of paused topics wait, and hold back watermarks."""
        waiting = self._waiting_topics
        read = [topic for topic in self.topology.sources if topic not in waiting]
        self._event_time.ready({self.topology.task(partition) for partition in self.offsets.declared_partitions(read)})
        self._event_time.at_end()
        self._state.control.mark_fulfilled(self._state.control.run_request)

    def _require_started(self, what: str) -> None:
        """Raise if the application is stopped; start it again if it has failed, or was closed."""
        if self._state.status is ApplicationStatus.FAILED or (self._closed and not self._state.status.is_active):
            self._state.begin(follows=True)
            self.enter_running()
        self._state.require_active(what)

    @property
    def _waiting_topics(self) -> frozenset[str]:
        """The topics whose records wait: a group_by that needs no repartition topic here may merge more of them."""
        return self._state.paused_topics | unread_topics(self.topology, self._state.control.run_request)

    @contextlib.contextmanager
    def _end_on_error(self) -> Iterator[None]:
        """Let an error end the application. A sink that pauses does not."""
        try:
            yield
        except SinkBackpressureError:
            raise
        except BaseException as error:
            self._state.life.end(error)
            raise

    def _next_arrival(self) -> int | None:
        """Return the index of the next records to process."""
        waiting = self._waiting_topics if self._arrivals else ()
        return next((n for n, each in enumerate(self._arrivals) if each.partition.topic not in waiting), None)

    def close_stores(self) -> None:
        """Close the stores that stay open between records."""
        self._feeding.close()

    def close(self) -> None:
        """Close everything; further records open it again."""
        self._closed = True
        self._feeding.close()
        self._display.close()
        if self.watchdog is not None:
            self.watchdog.close()
        self.tasks.close()
        self._sinks.close()


def _downstream(topology: Topology) -> tuple[str, ...] | None:
    """Return the streams, each behind those that send into its inputs; None if one sends to itself."""
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(topology.streams, ()))
    for topic, node in topology.exchanges.items():
        sorter.add(topology.stream_of_topic[topic], topology.stream_of(node))
    try:
        return tuple(sorter.static_order())
    except CycleError:
        return None
