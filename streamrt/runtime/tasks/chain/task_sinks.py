"""The sinks of a process: those in tasks, started once and flushed with each commit, and those in the driver."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from streamrt.connectors import BaseSink, BatchingSink, DriverSink, SinkBatch, SparkSink, TransactionalSink
from streamrt.connectors.sinks.spark import DataFrameFactory
from streamrt.errors import SerializationError, SinkBackpressureError, SinkError, SinkFencedError
from streamrt.records import Headers, TopicPartition
from streamrt.runtime.tasks.chain.sink_positions import SinkPositions, causes_of_time
from streamrt.secret import masked
from streamrt.topology import RecordHandler, Topology

logger = logging.getLogger("streamrt")

_LONGEST_PAUSE_S = 3_600.0

E = TypeVar("E", SinkBackpressureError, SinkError)


class TaskSinks:
    """Starts the sinks of tasks when they are first used, and flushes them with each commit.

    Args:
        topology: has the nodes of the sinks.
        group: the consumer group.
        topic_ids: Kafka's ids of input topics, as far as they are known.
    """

    def __init__(self, topology: Topology, group: str = "", topic_ids: Mapping[str, str | None] | None = None) -> None:
        self._nodes = {id(sink): node for node, sink in topology.sinks.items()}
        self._group = group
        self._topic_ids = topic_ids or {}
        self._of_time = causes_of_time(topology)
        self._of_stream = {
            stream: frozenset(id(getattr(node.operator, "sink", None)) for node in topology.members(stream))
            for stream in topology.streams
        }
        self._used: dict[int, BaseSink] = {}
        self._positions: dict[int, SinkPositions] = {}
        self._exclusive = any(_as_partitioned(sink) is None for sink in topology.sinks.values())

    @property
    def exclusive(self) -> bool:
        """Whether a sink must not hold uncommitted records of several tasks, because it cannot separate them."""
        return self._exclusive

    def executor(
        self,
        sink: BaseSink,
        position: Callable[[], tuple[str, int, int]],
        check: Callable[[Any], Any] | None = None,
    ) -> RecordHandler:
        """Return the function that hands a record to a sink.

        Args:
            sink: the sink.
            position: returns topic, partition and offset of the input record.
            check: returns what the sink gets instead of the value; its SerializationError becomes a SinkError.

        Raises:
            SinkError: if the sink cannot be started.
        """
        if id(sink) not in self._used:
            if not isinstance(sink, DriverSink):
                start_sink(sink)
            self._used[id(sink)] = sink
        add = sink.add if check is None else _add_checked(sink, check)

        def add_record(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            try:
                add(value, key, timestamp, headers, *position())
            except SinkBackpressureError as error:
                _name_sink(error, sink)
                raise

        if not isinstance(sink, TransactionalSink):
            return add_record
        positions = self._positions.setdefault(
            id(sink),
            SinkPositions(sink, self._group, self._topic_ids, repeatable=id(sink) not in self._of_time),
        )
        below = positions.below

        def add_new_record(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            topic, partition, offset = position()
            if not below or not 0 <= offset < below.get((topic, partition), 0):
                add(value, key, timestamp, headers, topic, partition, offset)

        return add_new_record

    def begin(self, stream: str, start: Mapping[TopicPartition, int]) -> None:
        """Read the positions of a task's inputs in its transactional sinks, unless they are known.

        Args:
            stream: the stream of the task. Sinks of other streams may be away without any effect on it.
            start: offset of the next record of each input.

        Raises:
            SinkBackpressureError: if a sink asks to retry later.
            SinkError: if a sink failed.
        """
        own = self._of_stream[stream]
        for number, positions in self._positions.items():
            if number not in own or positions.known(start):
                continue
            try:
                positions.read(start)
            except SinkBackpressureError as error:
                _name_sink(error, positions.sink)
                raise
            except Exception as error:
                where = ", ".join(map(str, start))
                failure = SinkError(
                    f"the sink {positions.sink.name} failed to read its positions of {where}: {_describe_error(error)}"
                )
                raise _name_sink(failure, positions.sink) from error

    def forget(self, inputs: Collection[TopicPartition]) -> None:
        """Forget the positions of a task that ends or begins again."""
        for positions in self._positions.values():
            positions.forget(inputs)

    def replayed(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset up to which each input repeats records whose values a sink has already.

        Args:
            at: offset of the next record of each input.

        Returns:
            An offset for each input; empty if no record is delivered again.
        """
        until = dict(at)
        for positions in self._positions.values():
            for partition, offset in at.items():
                until[partition] = max(until[partition], positions.below.get(partition, offset))
        return until if until != at else {}

    def flush(self, end: Mapping[TopicPartition, int]) -> None:
        """Make the records of one task's partitions durable in the sinks.

        Args:
            end: offset of the next record of each input partition.

        Raises:
            SinkBackpressureError: if a sink asks to retry later.
            SinkFencedError: if another process has written to a transactional sink.
            SinkError: if a sink failed.
        """
        for number, sink in self._used.items():
            if isinstance(sink, DriverSink):
                continue
            try:
                self._flush_sink(number, sink, end)
            except SinkFencedError:
                raise
            except SinkBackpressureError as error:
                _name_sink(error, sink)
                raise
            except Exception as error:
                where = ", ".join(map(str, end))
                failure = SinkError(
                    f"the sink {type(sink).__name__} failed on records of {where}: {_describe_error(error)}",
                    record=error.record if isinstance(error, SinkError) else None,
                )
                raise _name_sink(failure, sink) from error

    def _flush_sink(self, number: int, sink: BaseSink, end: Mapping[TopicPartition, int]) -> None:
        partitioned = _as_partitioned(sink)
        if isinstance(sink, TransactionalSink):
            self._positions[number].write(sink.take_batches(end), end)
        elif partitioned is None:
            sink.flush()
        else:
            partitioned.flush_partitions(end)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Make the sinks drop the records of one task's partitions, after its commit was aborted.

        Raises:
            SinkError: if a sink failed.
        """
        for sink in self._used.values():
            partitioned = _as_partitioned(sink)
            try:
                if partitioned is None:
                    sink.on_paused()
                else:
                    partitioned.drop_partitions(partitions)
            except Exception as error:
                where = ", ".join(map(str, partitions))
                raise SinkError(
                    f"the sink {type(sink).__name__} failed to drop records of {where}: {_describe_error(error)}"
                ) from error

    def drain(self, partitions: Collection[TopicPartition]) -> list[tuple[int, SinkBatch]]:
        """Return the records of one task's partitions for the driver's sinks, with the ids of their nodes."""
        return [
            (self._nodes[id(sink)], batch)
            for sink in self._used.values()
            if isinstance(sink, DriverSink)
            for batch in sink.take_batches(partitions)
        ]

    def close(self) -> None:
        """Close the sinks that were started: no task works after that."""
        used, self._used = self._used, {}
        for sink in used.values():
            if not isinstance(sink, DriverSink):
                close_sink(sink)


def _add_checked(sink: BaseSink, check: Callable[[Any], Any]) -> Callable[..., None]:
    """Return the function that adds a value to a sink after a check."""
    add, name = sink.add, type(sink).__name__

    def add_checked(
        value: Any, key: Any, timestamp: int, headers: Headers | None, topic: str, partition: int, offset: int
    ) -> None:
        try:
            fitting = check(value)
        except SerializationError as error:
            raise SinkError(
                f"{name} gets no value of {topic}[{partition}] offset {offset}: {error}", (topic, partition, offset)
            ) from None
        add(fitting, key, timestamp, headers, topic, partition, offset)

    return add_checked


def _as_partitioned(sink: BaseSink) -> BatchingSink | None:
    """Return a sink if it separates the records of partitions; None if its class overrides that behaviour."""
    own = (type(sink).add, type(sink).flush, type(sink).on_paused)
    whole = (BatchingSink.add, BatchingSink.flush, BatchingSink.on_paused)
    return sink if isinstance(sink, BatchingSink) and own == whole else None


def _name_sink(error: E, sink: BaseSink) -> E:
    """Return an error with the name of the sink that raised it."""
    error.sink = error.sink or type(sink).__name__
    return error


def start_sink(sink: BaseSink) -> None:
    """Start a sink.

    Raises:
        SinkError: if it cannot be started.
    """
    try:
        sink.start()
    except Exception as error:
        failure = SinkError(f"the sink {type(sink).__name__} cannot start: {_describe_error(error)}")
        raise _name_sink(failure, sink) from error


def close_sink(sink: BaseSink) -> None:
    """Close a sink. What it has flushed is durable, so an error is logged and changes nothing."""
    try:
        sink.close()
    except Exception as error:  # noqa: BLE001 - the code of users
        logger.warning("the sink %s could not be closed: %s", type(sink).__name__, _describe_error(error))


def finish_sinks(topology: Topology, group: str, inputs: Collection[tuple[str, int]]) -> None:
    """Finish what tasks that were killed have left in transactional sinks. It is durable, so an error is logged only.

    Args:
        topology: has the sinks.
        group: the consumer group.
        inputs: topics and partitions.
    """
    for sink in topology.sinks.values():
        if isinstance(sink, TransactionalSink):
            try:
                sink.finish(group, inputs)
            except Exception as error:  # noqa: BLE001 - the code of users
                logger.warning("the sink %s leaves work to the next start: %s", sink.name, _describe_error(error))


def pause_of(error: SinkBackpressureError) -> float:
    """Return the pause in seconds that a sink asks for, within limits."""
    asked = error.retry_after
    return min(max(float(asked), 0.0), _LONGEST_PAUSE_S) if asked == asked else 0.0


class DriverSinks:
    """The sinks in the process that called `run()`.

    Args:
        topology: has the sinks.
    """

    def __init__(self, topology: Topology) -> None:
        self._sinks = {node: sink for node, sink in topology.sinks.items() if isinstance(sink, DriverSink)}
        self._started: list[DriverSink] = []

    def start(self, session: DataFrameFactory | None = None) -> None:
        """Start the sinks.

        Args:
            session: creates Spark DataFrames.

        Raises:
            SinkError: if a sink cannot be started.
        """
        for sink in self._sinks.values():
            if isinstance(sink, SparkSink) and session is not None:
                sink.use(session)
            start_sink(sink)
            self._started.append(sink)

    def close(self) -> None:
        """Close the sinks that were started."""
        started, self._started = self._started, []
        for sink in started:
            close_sink(sink)

    def write(self, sunk: Iterable[tuple[int, SinkBatch]], stop: threading.Event) -> None:
        """Write the batches that tasks collected. While a sink pauses, no further records are processed.

        Args:
            sunk: ids of nodes with their batches.
            stop: ends a pause.

        Raises:
            SinkError: if a sink failed, or `stop` was set during a pause; the records will be reprocessed.
        """
        batches: dict[int, list[SinkBatch]] = {}
        for node, batch in sunk:
            batches.setdefault(node, []).append(batch)
        for node, gathered in batches.items():
            self._write_batches(self._sinks[node], gathered, stop)

    def _write_batches(self, sink: DriverSink, batches: list[SinkBatch], stop: threading.Event) -> None:
        name = type(sink).__name__
        while True:
            try:
                sink.write_batches(batches)
            except SinkBackpressureError as error:
                pause = pause_of(error)
                logger.warning("the sink %s asked to retry after %.1f s; processing pauses", name, pause)
                if stop.wait(pause):
                    raise SinkError(f"the application was stopped while it waited to retry the sink {name}") from error
            except Exception as error:
                partitions = ", ".join(f"{batch.topic}[{batch.partition}]" for batch in batches)
                raise SinkError(
                    f"the sink {name} failed on records of {partitions}: {_describe_error(error)}"
                ) from error
            else:
                return


def _describe_error(error: Exception) -> str:
    """Return class and first line of an error; Spark adds whole query plans, which remain in the exception's cause."""
    lines = masked(str(error)).strip().splitlines() or [""]
    return lines[0] if isinstance(error, SinkError) else f"{type(error).__name__}: {lines[0]}"
