"""The operators of a stream, composed: they process the records of its tasks, one task after the other.

A chain is independent of its runner. It processes chunks of consecutive records up to given limits, and returns its
progress. Its outputs go to its collector; its errors become a `Failure` that names the record.
"""

import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from streamrt.common.logs import log_context
from streamrt.context import current_provider
from streamrt.errors import (
    IgnoreMessage,
    KeyDeserializationError,
    LookupUnavailableError,
    SchemaRegistryError,
    SinkBackpressureError,
    SinkError,
    SinkFencedError,
    StaleTokenError,
    StoreCorruptedError,
    StoreLockedError,
    StoreVersionError,
    TransactionError,
    ValueDeserializationError,
)
from streamrt.kafka.writing.record_writer import WriterFailedError
from streamrt.operators.functions import state_advice
from streamrt.operators.metadata import checked_timestamp
from streamrt.records import (
    Headers,
    MessageContext,
    RawRecord,
    Record,
    Tick,
    TimestampType,
    TopicPartition,
)
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.report import Failure
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.chain.collector import OutputCollector
from streamrt.runtime.tasks.chain.failed_records import DeadLetterRefused, FailedRecords, RejectedRecords
from streamrt.runtime.tasks.chain.load_ahead import FEWEST_AHEAD, load_ahead
from streamrt.runtime.tasks.chain.operator_times import OperatorTimes
from streamrt.runtime.tasks.chain.output_errors import OutputRefused
from streamrt.runtime.tasks.chain.passage import RawParts
from streamrt.runtime.tasks.chain.record_place import Input, RecordPlace, context_of
from streamrt.runtime.tasks.chain.stack_frames import failed_operator, operator_at_work, user_frame
from streamrt.runtime.tasks.chain.task_inputs import error_of, input_of, time_of, warn_of_seconds
from streamrt.runtime.tasks.chain.task_sinks import TaskSinks
from streamrt.runtime.tasks.chain.whole_run import WholeRun
from streamrt.runtime.tasks.chain.work_in_flight import Place, WorkInFlight
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.runtime.tasks.ticks import calls_of
from streamrt.runtime.tasks.watchdog import RecordId, Watchdog
from streamrt.serializers import BoundDeserializer
from streamrt.serializers.json import bare_loads, loader_of
from streamrt.state.journal import next_turn
from streamrt.topics import ErrorStage
from streamrt.topology import Node, NodeClosures, RecordHandler, SourceOperator, compose_stream

logger = logging.getLogger("streamrt")

_NOT_THE_RECORDS_FAULT = (
    LookupUnavailableError,
    SchemaRegistryError,
    SinkBackpressureError,
    SinkFencedError,
    StaleTokenError,
    StoreCorruptedError,
    StoreLockedError,
    StoreVersionError,
    TransactionError,
    WriterFailedError,
)
"""Errors of operators and serializers that no error callback may skip: the record is processed again, or the run ends."""


_NO_RECORD = -1
_TICKS_PER_MS = 1_000
"""Number of ticks per millisecond with unique numbers; further ticks use numbers of the next millisecond."""


@dataclass(frozen=True)
class Limits:
    """The limits at which a task stops although there are more records.

    Attributes:
        deadline: value of the tasks' clock after which no further record is started.
        outputs: number of outputs after which no further record is started; None for no limit.
    """

    deadline: float = float("inf")
    outputs: int | None = None


class TaskFailed(Exception):  # noqa: N818 - control flow inside the runtime; users see the errors made from `failure`
    """A record could not be processed, and no callback skipped it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class OperatorChain:
    """Processes the records of a stream with the operators below its sources.

    It serves the tasks of its stream one after the other; each provides its stores and its writer.

    Args:
        spec: the application.
        stream: id of the stream.
        sinks: the sinks of this process.
        lines: receives the items that operators show, in order.
        clock: returns seconds; only differences count.
        watchdog: limits the processing time of each record.
        rejected: the records whose values sinks reject.

    Raises:
        SinkError: if a sink of the sub-topology cannot be started.

    Attributes:
        collector: receives the outputs of the operators.
        failed: skips records that fail, or makes them dead letters.
        stores: names of the stores of each task.
        processed: offsets of the records processed so far, or None if the specification does not request them.
        in_flight: what operators have begun and not passed on.
        clock: returns seconds; only differences count.
    """

    def __init__(
        self,
        spec: TaskSpec,
        stream: str,
        sinks: TaskSinks,
        lines: list[tuple[int, Any]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        watchdog: Watchdog | None = None,
        rejected: RejectedRecords | None = None,
    ) -> None:
        self._callbacks = spec.callbacks
        self._rejected = rejected or RejectedRecords()
        self.failed = FailedRecords(spec)
        self.clock = clock
        self._watchdog = watchdog
        self._calls = 0
        # The last chunk of each topic, with the deserializer of its values, and the size of the largest.
        self._loaders: dict[str, tuple[Chunk, BoundDeserializer, int]] = {}
        # Topics whose extractor has returned a timestamp.
        self._timed_topics: set[str] = set()
        self._chunk: Chunk | None = None
        self._index = 0
        self._override: tuple[int, MessageContext] | None = None
        self._ticks = 0
        self._ticking = False
        # The chunk of the last record, and whether it was a tick.
        self._last: tuple[Chunk | None, bool] = None, False
        # Value, key, timestamp and headers as the source has them, for the errors of asynchronous calls.
        self._item: tuple[Any, Any, int, Headers | None] = (None, None, 0, None)
        self.in_flight = WorkInFlight(self)
        self.collector = OutputCollector(
            spec, sinks, self._skip_output, self._record_origin, [] if lines is None else lines, clock
        )
        self.stores = list(spec.topology.task_stores(stream))
        self.collector.asynchronous = self.in_flight.add
        self.collector.hold = self.in_flight.hold
        self.collector.behind = _Behind(self)
        built: dict[int, NodeClosures] = {}
        executors = compose_stream(spec.topology, stream, self.collector, self.collector.leaf, built)
        labels = {node.id: node.label for node in spec.topology.members(stream)}
        self._times = OperatorTimes(
            {labels[each]: closures.inputs for each, closures in built.items()}, self.collector.tallies
        )
        self._sources = {name: source.label for name, source in spec.topology.streams[stream].items()}
        self._inputs = {
            name: replace(
                input_of(source.operator.topic, executors[name]),
                whole=WholeRun(spec.topology, source, built, self.collector, _NOT_THE_RECORDS_FAULT),
            )
            for name, source in spec.topology.streams[stream].items()
            if isinstance(source.operator, SourceOperator)
        }
        self._input = next(iter(self._inputs.values()))
        self.processed: list[int] | None = [] if spec.processed_offsets else None

    def work_for(self, task: StreamTask) -> None:
        """Use the stores and the writer of a task for the next records."""
        self.collector.waiting.clear()
        self.collector.task = task.id
        self.collector.writer = task.writer
        self.collector.sent = task.sent
        self.collector.use({name: task.stores.transaction(name) for name in self.stores})

    def close(self) -> None:
        """Let operators release what they have opened; errors are logged."""
        self.in_flight.close()
        for callback in self.collector.closing:
            try:
                callback()
            except Exception:
                logger.exception("an operator could not release what it has opened")

    def times(self, chunk: Chunk) -> list[int]:
        """Return the timestamp of each record, in milliseconds, by which inputs are merged.

        If no timestamp can be extracted from a value, the timestamp of its record is used; the record fails when it is
        processed.
        """
        source = self._input = self._inputs[chunk.topic]
        if source.extract_timestamp is None:
            return chunk.timestamps
        noted = self._noted_errors(chunk)
        times = list(chunk.timestamps)
        self._chunk, self._override = chunk, None
        with self._set_current():
            for self._index, offset in enumerate(chunk.offsets):
                if offset not in noted:
                    times[self._index] = time_of(source, chunk, self._index)
        return times

    def run(self, chunk: Chunk, limits: Limits, start: int = 0, stop: int | None = None) -> tuple[int, bool]:
        """Process records up to the end of the requested range, or until a limit is reached.

        Args:
            chunk: the records.
            limits: the limits for an early stop.
            start: index of the first record.
            stop: index after the last record, at least `start + 1`; None for the end of the chunk.

        Returns:
            The offset of the next record to process, and whether all requested records are done.

        Raises:
            TaskFailed: at the first record that fails and that no callback skips.
            SinkBackpressureError: if a sink asks to retry later.
            StoreCorruptedError: if a store is damaged.
        """
        last, execute = len(chunk.offsets) if stop is None else stop, self._inputs[chunk.topic].execute
        timed = self._times.timed(execute) if self._times.is_due() else None
        if timed is None:
            return self._run_chunk(chunk, limits, start, last, execute)
        end, chosen = 0, self._times.choose(start, last)
        if chosen > start:
            end, finished = self._run_chunk(chunk, limits, start, chosen, execute)
            if not finished or self._is_over(limits):
                return end, False
        with self._times.measuring(self._sources[chunk.topic]):
            end, _ = self._run_chunk(chunk, limits, chosen, chosen + 1, timed)
        if chosen + 1 == last or self._is_over(limits):
            return end, chosen + 1 == last
        return self._run_chunk(chunk, limits, chosen + 1, last, execute)

    def _is_over(self, limits: Limits) -> bool:
        collector, wanted = self.collector, limits.outputs
        enough = wanted is not None and collector.outputs >= wanted
        return enough or collector.unfinished or self.clock() >= limits.deadline

    def _run_chunk(
        self, chunk: Chunk, limits: Limits, start: int, last: int, execute: RecordHandler
    ) -> tuple[int, bool]:
        source = self._input = self._inputs[chunk.topic]
        load_value, load_key, processed = self._make_loader(chunk, source), source.load_key, self.processed
        # Saves a call for each record.
        loads = bare_loads(load_value)
        simple = not source.split and source.extract_timestamp is None
        clock, deadline, wanted, collector = self.clock, limits.deadline, limits.outputs, self.collector
        collector.deadline = deadline
        part = slice(start, last)
        raw_values = chunk.values[part]
        headers_column = repeat(None) if chunk.headers is None else chunk.headers[part]
        index = start
        self._chunk = chunk
        self._override = None
        noted = self._noted_errors(chunk)
        work = self.in_flight
        in_flight = work if work.has_calls or (work and (work.serial or wanted is not None)) else None
        if (
            source.whole is not None
            and execute is source.execute
            and simple
            and not (noted or in_flight)
            and processed is None
        ):
            with self._set_current():
                run = source.whole.with_loads if loads is None else source.whole.with_bare_loads
                values: Iterable[Any] = raw_values
                if source.load_batch is not None and chunk.headers is None and last - start >= FEWEST_AHEAD:
                    run, values = source.whole.with_batches, load_ahead(raw_values, source.load_batch)
                columns = zip(chunk.keys[part], values, chunk.timestamps[part], headers_column, strict=False)
                index = run(self, columns, start, limits, loads or load_value, load_key)
                return chunk.offsets[index] + 1, index + 1 == last
        columns = zip(chunk.keys[part], raw_values, chunk.timestamps[part], headers_column, strict=False)
        effects, waiting = collector.effects, collector.waiting
        entries, held = ([], []) if effects is None else (effects.entries, effects.held)
        with self._set_current():
            for index, (raw_key, raw_value, timestamp, headers) in enumerate(columns, start):
                self._index = index
                if effects is not None:
                    if held or effects.kept:
                        effects.begin()
                    elif entries:
                        # `begin` inlined, as far as it is necessary.
                        entries.clear()
                        effects.turn = next_turn()
                try:
                    if raw_value is None:
                        value = None
                    elif loads is not None:
                        value = loads(raw_value)
                    else:
                        value = load_value(raw_value, headers)
                    key = raw_key if load_key is None or raw_key is None else load_key(raw_key, headers)
                    items = None if simple else self._split_items(value, headers, timestamp)
                except IgnoreMessage:
                    pass
                except SchemaRegistryError:
                    raise
                except Exception as error:  # noqa: BLE001 - the callback decides
                    self.skip_unread(error, again=loads is not None)
                else:
                    if in_flight is not None:
                        self._item = value, key, timestamp, headers
                    try:
                        if noted and chunk.offsets[index] in noted:
                            raise noted[chunk.offsets[index]]
                        if items is None:
                            execute(value, key, timestamp, headers)
                        else:
                            for item, item_timestamp in items:
                                execute(item, key, item_timestamp, headers)
                        if waiting:
                            collector.do_waiting()
                        if held and effects is not None:
                            if effects.kept:
                                effects.release()
                            else:
                                # `release` inlined.
                                for release, output in held:
                                    release(output)
                                held.clear()
                    except _NOT_THE_RECORDS_FAULT:
                        raise
                    except (Exception, SystemExit) as error:  # noqa: BLE001 - the callback decides
                        # What is due all the same is done with the next record, or in a tick.
                        waiting.clear()
                        self.skip_record(error, value, key, timestamp, headers)
                    else:
                        if processed is not None:
                            processed.append(chunk.offsets[index])
                if in_flight is not None and (
                    in_flight.serial or (wanted is not None and collector.outputs + in_flight.count >= wanted)
                ):
                    in_flight.drain()
                if clock() >= deadline or collector.unfinished or (wanted is not None and collector.outputs >= wanted):
                    break
            return chunk.offsets[index] + 1, index + 1 == last

    def _make_loader(self, chunk: Chunk, source: Input) -> BoundDeserializer:
        last = self._loaders.get(chunk.topic)
        if last is None or last[0] is not chunk:
            largest = max(map(len, filter(None, chunk.values)), default=0) if self.collector.has_shortcuts else 0
            last = self._loaders[chunk.topic] = chunk, loader_of(source.load_value, chunk.values), largest
        self.collector.largest_value = last[2]
        return last[1]

    def _noted_errors(self, chunk: Chunk) -> Mapping[int, Exception]:
        """Return, by offset, the errors of records that have failed in earlier attempts."""
        rejected = self._rejected.offsets.get(TopicPartition(chunk.topic, chunk.partition), {})
        noted = {} if self._watchdog is None else self._watchdog.noted(chunk.topic, chunk.partition)
        return {**noted, **rejected} if noted else rejected

    def tick(self, tick: Tick, partition: TopicPartition, offset: int, final: frozenset[int] = frozenset()) -> None:
        """Call the tick functions of the operators.

        Args:
            tick: the current time and watermarks.
            partition: an input partition.
            offset: offset of its next record; errors report it, because a tick has no record.
            final: ids of the operators whose inputs have ended; each finishes its work after all operators above it.

        Raises:
            TaskFailed: if an operator fails and no callback skips the error.
            SinkBackpressureError: if a sink asks to retry later.
            StoreCorruptedError: if a store is damaged.
        """
        none, collector = TimestampType.TIMESTAMP_NOT_AVAILABLE, self.collector
        self._chunk = Chunk(partition.topic, partition.partition, [offset], [None], [None], [-1], [none])
        self._input = self._inputs[partition.topic]
        self._index = 0
        self._override = None
        # Later ticks have higher numbers, also within the same millisecond and after a restart.
        self._ticks = max(tick.now * _TICKS_PER_MS, self._ticks + 1)
        self._ticking = True
        self._item = None, None, tick.now, None
        effects = collector.effects
        # Operators find it in their stores.
        collector.waiting.clear()
        with self._set_current():
            # `failed_operator` finds the node by the name of this variable.
            for _node, callback, moment in calls_of(collector.ticks, tick, final, lambda: collector.unfinished):
                try:
                    if effects is not None:
                        effects.begin()
                    callback(moment)
                    collector.do_waiting()
                    if effects is not None:
                        effects.release()
                    # The next operator may be below, and must not see the time before these results.
                    self.in_flight.drain()
                except _NOT_THE_RECORDS_FAULT:
                    raise
                except (Exception, SystemExit) as error:  # noqa: BLE001 - the callback decides
                    if effects is not None:
                        # What an operator has done in a tick belongs to many records.
                        effects.keep()
                    collector.waiting.clear()
                    self.skip_record(error, None, None, tick.now, None)
                    # Records that the operator has not finished are delivered again.
                    collector.unfinished = collector.unfinished or moment.final

    def moment(self) -> tuple[object, RecordId] | None:
        """Return a unique id of the current record or tick, and its topic, partition and offset; None between records."""
        chunk, index = self._chunk, self._index
        if chunk is None or index >= len(chunk.offsets):
            return None
        offset = _NO_RECORD if self._ticking else chunk.offsets[index]
        return (self._calls, index), (chunk.topic, chunk.partition, offset)

    @contextlib.contextmanager
    def _set_current(self) -> Iterator[None]:
        """Make the current record available to the user's functions and to the watchdog."""
        token = current_provider.set(self)
        try:
            watching = contextlib.nullcontext() if self._watchdog is None else self._watchdog.watching(self)
            with log_context(self._log_fields), watching:
                self._calls += 1
                yield
        finally:
            current_provider.reset(token)
            self._last = (self._chunk, self._ticking) if self.in_flight else (None, False)
            self._chunk = None
            self._ticking = False

    def drain(self, patience_s: float | None = None) -> bool:
        """Pass on what is in flight, between records, at the place of the last one; see `WorkInFlight.drain`.

        Raises:
            TaskFailed: if a call fails and no callback skips its record.
            SinkBackpressureError: if a sink asks to retry later.
            StoreCorruptedError: if a store is damaged.
        """
        self._chunk, self._ticking = self._last
        with self._set_current():
            return self.in_flight.drain(patience_s)

    def place(self) -> RecordPlace:
        """Return the place of the current record, with what its results need later."""
        chunk, override = self._chunk, self._override
        if chunk is None:
            raise RuntimeError("there is a current record only while operators run")
        context = None if override is None or override[0] != self._index else override[1]
        writer, processed = self.collector.writer, self.processed
        return RecordPlace(chunk, self._index, self._input, self._ticking, self._item, context, writer, processed)

    def resume(self, place: Place, proceed: Callable[..., None], *arguments: Any) -> None:
        """Call a function while the record of a place is the current one; its error is one of this record."""
        if not isinstance(place, RecordPlace):
            raise TypeError(f"{type(place).__name__} is not a place of this chain")
        effects = self.collector.effects
        try:
            if effects is not None:
                # The record that is interrupted has done what it has done, at its own place.
                effects.release()
        finally:
            self._proceed_from(place, proceed, arguments)

    def _proceed_from(self, place: RecordPlace, proceed: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        collector = self.collector
        before = (self._chunk, self._index, self._input, self._ticking, self._item, self._override)
        writer, collector.writer = collector.writer, place.writer
        # The record that is interrupted does its work at its own end.
        waiting = dict(collector.waiting)
        collector.waiting.clear()
        self._chunk, self._index, self._input, self._ticking, self._item = place.where
        self._override = None if place.context is None else (self._index, place.context)
        self._calls += 1
        effects = collector.effects
        try:
            if effects is not None:
                effects.begin()
            proceed(*arguments)
            collector.do_waiting()
            if effects is not None:
                effects.release()
        except _NOT_THE_RECORDS_FAULT:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the callback decides
            place.fail()
            self.skip_record(error, *self._item)
        finally:
            self._chunk, self._index, self._input, self._ticking, self._item, self._override = before
            collector.writer = writer
            collector.waiting.clear()
            collector.waiting.update(waiting)
            if effects is not None:
                effects.begin()
            self._calls += 1

    def message_context(self) -> MessageContext:
        """Build the context of the current record."""
        if self._override is not None and self._override[0] == self._index:
            return self._override[1]
        return context_of(self._raw_record(), self._input)

    def set_message_context(self, context: MessageContext | None) -> None:
        """Replace the context until the next record; None restores the record's own."""
        self._override = None if context is None else (self._index, context)

    def _log_fields(self) -> dict[str, Any]:
        """Return what log lines of the current record say about it; called only when a line is written."""
        operator, moment = operator_at_work(), self.moment()
        fields = {} if operator is None else {"operator": operator}
        if moment is None or self._ticking:
            return fields
        topic, _, offset = moment[1]
        return {"topic": topic, "offset": offset, **fields}

    def _raw_record(self) -> RawRecord:
        if self._chunk is None:
            raise RuntimeError("there is a current record only while operators run")
        return self._chunk.raw(self._index)

    def _record_place(self) -> tuple[str, int, int]:
        chunk = self._chunk
        if chunk is None:
            raise RuntimeError("there is a current record only while operators run")
        return chunk.topic, chunk.partition, chunk.offsets[self._index]

    def _record_origin(self) -> tuple[str, int, int]:
        """Return topic, partition and offset of the input record of an output.

        Outputs of a tick have no input record. Instead of an offset they have a negative number that is unique for each
        tick of the partition; with an offset, sinks could take them for results of that record.
        """
        topic, partition, offset = self._record_place()
        return topic, partition, -self._ticks if self._ticking else offset

    def _split_items(self, value: Any, headers: Headers | None, timestamp: int) -> list[tuple[Any, int]]:
        """Split a value that contains several records, and return each with its timestamp."""
        values = value if self._input.split and value is not None else [value]
        extract = self._input.extract_timestamp
        if extract is None:
            return [(item, timestamp) for item in values]
        kind = TimestampType(self._raw_record().timestamp()[0])
        items = [(item, checked_timestamp(extract(item, headers, timestamp, kind))) for item in values]
        topic = self._record_place()[0]
        if topic not in self._timed_topics and items:
            self._timed_topics.add(topic)
            warn_of_seconds(topic, items[0][1], timestamp)
        return items

    # -- Errors --------------------------------------------------------------------------------------------------

    def skip_unread(self, error: Exception, *, again: bool) -> None:
        """Skip the current record, which cannot be deserialized, if callbacks and policies say so.

        Args:
            error: the error.
            again: whether it is to be that of the deserializer, which was not asked.

        Raises:
            TaskFailed: if they do not.
        """
        raw = self._raw_record()
        data = raw.value()
        clear = error_of(self._input.load_value, data, raw.headers()) if again and data is not None else None
        self._skip_input(clear or error)

    def _skip_input(self, error: Exception, raw: RawRecord | None = None, source: Input | None = None) -> None:
        """Skip a record that cannot be read: the current one, or one behind an exchange in memory."""
        raw, source = raw or self._raw_record(), source or self._input
        where = f"{raw.topic()}[{raw.partition()}] at offset {raw.offset()}"
        reason = str(error) or type(error).__name__
        wrapped: Exception
        # The value is deserialized again, with a new time limit.
        self._calls += 1
        # In the original order: the first part that fails is the cause.
        if _value_fails(raw, source):
            wrapped = ValueDeserializationError(f"the value of {where} cannot be deserialized: {reason}")
        elif _key_fails(raw, source):
            wrapped = KeyDeserializationError(f"the key of {where} cannot be deserialized: {reason}")
        else:
            wrapped = ValueDeserializationError(f"the timestamp of {where} cannot be extracted: {reason}")
        wrapped.__cause__ = error
        callback = self._callbacks.consumer
        if callback is not None and self._ask_callback("on_consumer_error", callback, wrapped, raw):
            self.failed.skip_quietly("deserialize", wrapped, self._raw_record, None)
        elif not self._tolerate_error("deserialize", wrapped, None):
            advice = (
                "skip such records with on_consumer_error, keep them with on_error, or set another deserializer for the "
                "topic"
            )
            raise TaskFailed(self._make_failure("consumer", f"{wrapped}; {advice}", wrapped)) from error

    def skip_record(
        self,
        error: BaseException,
        value: Any,
        key: Any,
        timestamp: int,
        headers: Headers | None,
        *,
        undo: bool = True,
    ) -> None:
        """Skip the current record, whose operators have failed, if callbacks and policies say so.

        Args:
            error: the error.
            value: the value, as the source has it.
            key: the key.
            timestamp: the timestamp in milliseconds.
            headers: the headers.
            undo: whether to undo what the record has done.

        Raises:
            TaskFailed: if they do not.
        """
        if isinstance(error, TaskFailed):
            raise error
        if undo and self.collector.effects is not None:
            self.collector.effects.undo()
        topic, partition, offset = self._record_place()
        where = f"{topic}[{partition}] at offset {offset}"
        node = failed_operator(error.__traceback__)
        if isinstance(error, SinkError) and error.record == (topic, partition, offset):
            if not self._tolerate_error("sink", error, None):
                raise TaskFailed(self._make_failure("sink", str(error), error)) from error
            return
        if isinstance(error, OutputRefused):
            if self._tolerate_error("produce", error.cause, node):
                return
            message = (
                f"{error.cause} ({node or 'an operator'}, input {where}); skip such records with on_producer_error, or keep "
                "them with on_error"
            )
            raise TaskFailed(self._make_failure("producer", message, error.cause)) from error
        cause = error if isinstance(error, Exception) else RuntimeError(f"the function called {error!r}")
        callback = self._callbacks.processing
        record = Record(value, key, timestamp, headers, self.message_context())
        if callback is not None and self._ask_callback("on_processing_error", callback, cause, record, node):
            self.failed.skip_quietly("process", cause, self._raw_record, node)
        elif not self._tolerate_error("process", cause, node):
            location = user_frame(error.__traceback__)
            message = (
                f"{node or 'an operator'} failed on {where}{f' ({location})' if location else ''}: "
                f"{type(cause).__name__}: {cause}"
            )
            if node is not None and not node.operator.stores():
                message += state_advice(cause)
            raise TaskFailed(self._make_failure("processing", message, cause)) from error

    def _skip_output(self, error: Exception, value: Any, key: Any, timestamp: int, headers: Headers | None) -> bool:
        callback = self._callbacks.producer
        record = Record(value, key, timestamp, headers, self.message_context())
        if callback is not None and self._ask_callback("on_producer_error", callback, error, record):
            self.failed.skip_quietly("produce", error, self._raw_record, None)
            return True
        # A dead letter is the whole record, so its remaining outputs are not made.
        return self.failed.skips("produce") and self._tolerate_error("produce", error, None)

    def _tolerate_error(self, stage: ErrorStage, error: Exception, node: Node | None) -> bool:
        """Skip the current record, or make it a dead letter, if `on_error` says so; return whether it was done.

        Raises:
            TaskFailed: if the dead letter cannot be written.
        """
        with log_context({} if node is None else {"operator": str(node)}):
            return self._skip_or_keep(stage, error, node)

    def _skip_or_keep(self, stage: ErrorStage, error: Exception, node: Node | None) -> bool:
        if self.failed.skips(stage):
            self.failed.skip(stage, error, self._raw_record, node)
            return True
        # What fails in a tick is not a record.
        if not self.failed.keeps(stage) or self._ticking:
            return False
        try:
            self.failed.keep(stage, error, self._raw_record(), node, self.collector.writer)
        except DeadLetterRefused as refusal:
            message = f"{type(error).__name__}: {error}; the record must be kept, and {refusal}"
            raise TaskFailed(self._make_failure("producer", message, error)) from error
        return True

    def _ask_callback(
        self, name: str, callback: Callable[..., Any], error: Exception, record: Any, node: Node | None = None
    ) -> bool:
        self._calls += 1
        try:
            with log_context({} if node is None else {"operator": str(node)}):
                return bool(callback(error, record, logger))
        except Exception as raised:
            message = f"the callback {name} itself failed on {error!r}: {type(raised).__name__}: {raised}"
            raise TaskFailed(self._make_failure("callback", message, raised)) from raised

    def _make_failure(self, kind: str, message: str, cause: Exception) -> Failure:
        topic, partition, offset = self._record_place()
        text = "".join(traceback.format_exception(cause))
        return Failure(kind, TopicPartition(topic, partition), offset, message, cause, text)


class _Behind:
    """Handles the errors of records behind exchanges in memory like those of records behind topics."""

    def __init__(self, chain: OperatorChain) -> None:
        self._chain = chain

    def refuse(self, error: Exception, source: Input, parts: RawParts) -> None:
        name, value, key, timestamp, headers = parts
        _, partition, offset = self._chain._record_origin()
        created = TimestampType.TIMESTAMP_CREATE_TIME
        self._chain._skip_input(
            error, RawRecord(name, partition, offset, key, value, timestamp, created, headers), source
        )

    def skip(self, error: Exception, value: Any, key: Any, timestamp: int, headers: Headers | None) -> bool:
        # A dead letter is the whole input record, so nothing else of it goes on.
        if isinstance(error, (*_NOT_THE_RECORDS_FAULT, TaskFailed)) or self._chain.failed.keeps("process"):
            return False
        self._chain.skip_record(error, value, key, timestamp, headers, undo=False)
        return True


def _key_fails(raw: RawRecord, source: Input) -> bool:
    key, load_key = raw.key(), source.load_key
    return key is not None and load_key is not None and error_of(load_key, key, raw.headers()) is not None


def _value_fails(raw: RawRecord, source: Input) -> bool:
    value = raw.value()

    def load_items(data: bytes, headers: Headers | None) -> list[Any]:
        # A generator raises when it is consumed, not when it is created.
        return list(source.load_value(data, headers))

    load = load_items if source.split else source.load_value
    return value is not None and error_of(load, value, raw.headers()) is not None
