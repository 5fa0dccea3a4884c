"""Receives the outputs of operators: records for topics and sinks, printed items, and collected results."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from streamrt.connectors import BaseSink
from streamrt.errors import (
    InvalidOperationError,
    KeySerializationError,
    SchemaRegistryError,
    TransactionError,
    ValueSerializationError,
)
from streamrt.kafka.writer import WriterFailedError
from streamrt.operators import PrintTable
from streamrt.operators.metadata import checked_headers
from streamrt.records import Headers, Tick, merge_headers
from streamrt.runtime.report import Output
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.clients import RecordWriter, no_writer
from streamrt.runtime.tasks.sinks import TaskSinks
from streamrt.serializers import SERIALIZERS, BoundSerializer, MessageField, Serializer
from streamrt.state.base import Transaction
from streamrt.state.keyed_state import KeyedState
from streamrt.state.spec import StoreSpec
from streamrt.state.transaction import StoreTransaction
from streamrt.topics import Topic
from streamrt.topology import (
    AsyncCalls,
    Measured,
    MetricId,
    Metrics,
    Node,
    PartitionSender,
    RecordHandler,
    StateAccess,
    Tallies,
    TaskAccess,
    TaskId,
)

_PORTION_S = 1.0
"""Limit for one portion of due work. Its commit takes about as long, and both together fit into a time slice."""

_BY_TYPE = {bytes: "bytes", str: "str", int: "int", float: "double"}
"""Names of the serializers for plain types; JSON can represent most others."""
_PLAIN = frozenset(SERIALIZERS[name] for name in (*_BY_TYPE.values(), "json"))


class _Sender(Protocol):
    def __call__(
        self, value: Any, key: Any, timestamp: int, headers: Headers | None, partition: int = -1, /
    ) -> None: ...


class OutputRefused(Exception):  # noqa: N818 - control flow inside the runtime; never seen by users
    """A record could not be produced, and no callback skipped it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class OutputCollector:
    """Implements `OperatorContext`, the interface of operators, and counts their outputs.

    Args:
        spec: the application.
        sinks: the sinks of this process.
        on_error: called for a record that cannot be produced; True skips it.
        position: returns topic, partition and offset of the input record.
        lines: receives the items that operators show, in order, as pairs of node id and item.
        clock: returns seconds; only differences count.

    Attributes:
        task: the active task.
        writer: the target of produced records; that of the active task.
        states: functions that return the state of a key, by store name; those of the active task, set by `use`.
        transactions: the open transactions, by store name; those of the active task, set by `use`.
        ticks: the tick functions of operators, each with its node.
        asynchronous: returns the function that begins asynchronous calls of an operator; set by the chain.
        closing: functions of operators that are called when the process has no more work for the application.
        sent: the highest event time sent into each exchange that watermarks pass, by topic; that of the active task.
        deadline: value of `clock` at which the time slice ends; set before records and ticks.
        unfinished: whether an operator had to stop early since this was set to False.
        tallies: what operators count.
    """

    def __init__(
        self,
        spec: TaskSpec,
        sinks: TaskSinks,
        on_error: Callable[[Exception, Any, Any, int, "Headers | None"], bool],
        position: Callable[[], tuple[str, int, int]],
        lines: list[tuple[int, Any]],
        clock: Callable[[], float],
    ) -> None:
        self.task = TaskId("", 0)
        self.writer: RecordWriter = no_writer
        self.deadline = float("inf")
        self.unfinished = False
        self._clock = clock
        self.states: dict[str, StateAccess] = {}
        self.transactions: dict[str, Transaction] = {}
        self._followers: list[tuple[str, Callable[[Transaction], None]]] = []
        self.ticks: list[tuple[Node, Callable[[Tick], None]]] = []
        self.asynchronous: Callable[[Node, AsyncCalls], RecordHandler] = _refuse_calls
        self.closing: list[Callable[[], None]] = []
        self.sent: dict[str, int] = {}
        self._timed = spec.topology.timed_exchanges.keys()
        self._exchanges = {name: node.operator.name for name, node in spec.topology.exchanges.items()}
        self._partition_counts = spec.partition_counts
        self._spec = spec
        self._metrics: dict[str, Metrics] = {}
        self.tallies = Tallies()
        self._sinks = sinks
        self._on_error = on_error
        self._position = position
        self._lines = lines
        self._collect = spec.collect
        self._tables = {
            node.id: node.operator.size
            for node in spec.topology.nodes
            if isinstance(node.operator, PrintTable) and node.operator.live and spec.live_tables
        }
        self.leaf: RecordHandler = self._leaf if spec.collect or spec.count_outputs else _nothing
        self.reset()

    def reset(self) -> None:
        """Reset counters and collected outputs."""
        self.produced = 0
        self.produced_bytes = 0
        self.outputs = 0
        self.collected: list[Output] = []
        self._rows: dict[int, deque[Any]] = {node: deque(maxlen=size) for node, size in self._tables.items()}

    def drain_rows(self) -> list[tuple[int, Any]]:
        """Return the last rows of live tables since the last call or reset."""
        taken = [(node, row) for node, rows in self._rows.items() for row in rows]
        for rows in self._rows.values():
            rows.clear()
        return taken

    def sender(self, topic: Topic, copies: int = 0) -> RecordHandler:
        """Return the function that serializes a record and hands it to the writer, for one partition or for several."""
        return self._sender(topic, copies)

    def partition_sender(self, topic: Topic) -> tuple[PartitionSender, int]:
        """Return the function that does so for a partition of the topic, and the number of partitions."""
        count = self._partition_counts.get(topic.name)
        if count is None:
            raise InvalidOperationError(
                f"topic {topic.name!r} is unknown to the application, so a partitioner cannot choose a partition of it: "
                "declare it with Application.topic() before run()"
            )
        return self._sender(topic), count

    def _sender(self, topic: Topic, copies: int = 0) -> "_Sender":
        name = topic.name
        records = copies or 1
        to_value = topic.value_serializer.bind(name, MessageField.VALUE)
        to_key = topic.key_serializer.bind(name, MessageField.KEY)
        extra = {**topic.key_serializer.extra_headers, **topic.value_serializer.extra_headers}
        # If serializers append to the headers, copy them: those of the input record must not change.
        own_headers = topic.key_serializer.writes_headers or topic.value_serializer.writes_headers

        def send(value: Any, key: Any, timestamp: int, headers: Headers | None, partition: int = -1, /) -> None:
            try:
                if extra:
                    headers = merge_headers(headers, extra)
                elif own_headers:
                    headers = list(headers or ())
                data = to_value(value, headers)
                # A key of None is not serialized: JSON would write `null`, and all such records would share a
                # partition.
                raw_key = None if key is None else to_key(key, headers)
                # Kafka has no empty list of headers.
                sent = checked_headers(headers) or None if headers else None
                if copies:
                    for each in range(copies):
                        self.writer.produce(name, data, raw_key, timestamp, sent, each)
                else:
                    self.writer.produce(name, data, raw_key, timestamp, sent, partition)
            except (SchemaRegistryError, TransactionError, WriterFailedError):
                # The cause is not this record: the whole range is processed again.
                raise
            except Exception as error:
                clear = _explain(error, topic, (to_value, value), (to_key, key), headers, self._exchanges.get(name))
                if not self._on_error(clear, value, key, timestamp, headers):
                    raise OutputRefused(clear) from error
            else:
                self.produced += records
                self.produced_bytes += records * (len(data or b"") + len(raw_key or b""))

        def send_timed(value: Any, key: Any, timestamp: int, headers: Headers | None, partition: int = -1, /) -> None:
            send(value, key, timestamp, headers, partition)
            if timestamp > self.sent.get(name, -1):
                self.sent[name] = timestamp

        return send_timed if name in self._timed else send

    def state(self, store: StoreSpec) -> StateAccess:
        """Return a function that returns the state of a record's key in a store of the active task."""
        name = store.name
        states = self.states

        def state(key: Any, timestamp: int) -> KeyedState:
            return states[name](key, timestamp)

        return state

    def store(self, store: StoreSpec) -> Callable[[], Transaction]:
        """Return a function that returns the open transaction of a store; each commit interval has a new one."""
        return partial(self.transactions.__getitem__, store.name)

    def follow(self, store: StoreSpec, changed: Callable[[Transaction], None]) -> None:
        """Have a function called with the transaction of a store of each task that becomes active."""
        self._followers.append((store.name, changed))

    def access(self, store: StoreSpec) -> TaskAccess:
        """Return the access to the active task, and the metrics of the operator with a store."""
        name, spec = store.name, self._spec

        def partitions() -> int:
            scope = spec.topology.task_stores(self.task.stream)[name].scope
            known = None if spec.state is None else spec.state.sources.get(scope)
            return 1 if known is None else known.partitions

        metrics = self._metrics.setdefault(name, Metrics(name, lambda: self.task.partition))
        return TaskAccess(lambda: self.task, partitions, metrics)

    def drain_metrics(self) -> dict[MetricId, Measured]:
        """Return what users' metrics have measured since the last call."""
        return {
            MetricId(self.task.stream, operator, name, partition): measured
            for operator, metrics in self._metrics.items()
            for (name, partition), measured in metrics.drain().items()
        }

    def use(self, transactions: Mapping[str, Transaction]) -> None:
        """Use the transactions of a task, given by store name, for operators."""
        self.transactions.update(transactions)
        for name, changed in self._followers:
            changed(transactions[name])
        self.states.update(
            {
                name: transaction.state
                for name, transaction in transactions.items()
                if isinstance(transaction, StoreTransaction)
            }
        )

    def sink(self, sink: BaseSink, check: Callable[[Any], Any] | None = None) -> RecordHandler:
        """Return the function that hands a record to a sink, after its value was checked."""
        return self._sinks.executor(sink, self._position, check)

    def on_tick(self, node: Node, callback: Callable[[Tick], None]) -> None:
        """Register a function to be called for each tick."""
        self.ticks.append((node, callback))

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a function to be called at the end."""
        self.closing.append(callback)

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        """Have a count read at each report."""
        self.tallies.watch(kind, name, total)

    def begin_portion(self) -> Callable[[], bool]:
        """Return a function that checks whether the time slice or portion is over; if so, it sets `unfinished`."""
        clock = self._clock
        end = min(self.deadline, clock() + _PORTION_S)

        def must_stop() -> bool:
            self.unfinished = self.unfinished or clock() >= end
            return self.unfinished

        return must_stop

    def show(self, node_id: int, item: Any) -> None:
        """Keep an item for the report; for a live table, only the last rows."""
        rows = self._rows.get(node_id)
        if rows is None:
            self._lines.append((node_id, item))
        else:
            rows.append(item)

    def _leaf(self, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        self.outputs += 1
        if self._collect:
            self.collected.append(Output(value, key, timestamp, headers, *self._position()))


def _explain(
    error: Exception,
    topic: Topic,
    value: tuple[BoundSerializer, Any],
    key: tuple[BoundSerializer, Any],
    headers: Headers | None,
    exchange: str | None,
) -> Exception:
    """Return an error that names the part that could not be serialized, value or key, and a suitable serializer."""
    for part, (serialize, item), kind, serializer in (
        ("value", value, ValueSerializationError, topic.value_serializer),
        ("key", key, KeySerializationError, topic.key_serializer),
    ):
        if item is None and kind is KeySerializationError:
            continue
        try:
            serialize(item, headers)
        except Exception as again:  # noqa: BLE001 - serializers are users' code
            reason = str(again) or type(again).__name__
            message = f"the {part} of a record for topic {topic.name!r} cannot be serialized: {reason}"
            fitting = _fitting(item, serializer)
            if fitting is not None and exchange is not None:
                message += f"; give {exchange}() {part}_serializer={fitting!r} and {part}_deserializer={fitting!r}"
            elif fitting is not None:
                message += (
                    f"; declare the topic with {part}_serializer={fitting!r} for {part}s of type {type(item).__name__}"
                )
            clear = kind(message)
            clear.__cause__ = error
            return clear
    return error


def _fitting(item: Any, refusing: Serializer) -> str | None:
    """Return the name of another plain serializer for an item that a plain serializer rejects, if there is one."""
    if type(refusing) not in _PLAIN:
        return None
    for name in (_BY_TYPE.get(type(item), "json"), "json"):
        serializer = SERIALIZERS[name]()
        try:
            serializer.bind("", MessageField.VALUE)(item, None)
        except Exception:  # noqa: BLE001, S112 - an unsuitable serializer
            continue
        return None if type(serializer) is type(refusing) else name
    return None


def _refuse_calls(node: Node, calls: AsyncCalls) -> RecordHandler:
    raise RuntimeError(f"{node} needs a chain for its calls")


def _nothing(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
    """Drop an output that is neither counted nor collected."""
