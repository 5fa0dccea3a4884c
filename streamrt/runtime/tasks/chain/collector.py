"""Receives the outputs of operators: records for topics and sinks, printed items, and collected results."""

from collections import deque
from collections.abc import Callable, Mapping, Set
from functools import cache, partial
from typing import Any, Protocol

from streamrt.connectors import BaseSink
from streamrt.errors import InvalidOperationError, SchemaRegistryError, TransactionError
from streamrt.kafka.wire import client_headers, client_timestamp, record_size, require_size
from streamrt.kafka.writing.record_writer import WriterFailedError
from streamrt.operators import PrintTable
from streamrt.records import Headers, Tick, merge_headers
from streamrt.records.timestamps import LATEST_TIMESTAMP_MS
from streamrt.runtime.report import Output
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.chain.effects import MOST_HELD, Effects
from streamrt.runtime.tasks.chain.last_outputs import last_outputs
from streamrt.runtime.tasks.chain.output_errors import OutputRefused, explain
from streamrt.runtime.tasks.chain.passage import BehindExchange, ExchangePassage, NothingBehind, passes_as_read
from streamrt.runtime.tasks.chain.task_sinks import TaskSinks
from streamrt.runtime.tasks.task_clients import RecordWriter, no_writer
from streamrt.serializers import BoundSerializer, BytesSerializer, MessageField, Serializer
from streamrt.serializers.json import DUMP_OPTION, bare_dumps
from streamrt.state.access.keyed_state import KeyedState
from streamrt.state.base import Transaction
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.topics import Topic
from streamrt.topology import (
    AsyncCalls,
    HeldRecords,
    InlinedCode,
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

_PORTION_S = 0.4
"""Limit for one portion of due work. Its commit takes about as long, and both together take less than a second."""

_NOT_THE_OUTPUTS_FAULT = (SchemaRegistryError, TransactionError, WriterFailedError)

_SEND = """
try:
    data = {data}
    raw_key = key if type(key) in {kept_keys} else {to_key}(key, headers)
    produce({topic}, data, raw_key, timestamp, {client_headers}(headers, {topic}) if headers else None)
    produced += 1
    produced_bytes += len(data or b"") + len(raw_key or b"")
except {not_its_fault}:
    raise
except Exception as error:
    {refuse}(error, value, key, timestamp, headers)
"""

_Refusal = Callable[[Exception, Any, Any, int, Headers | None], None]


class _Sender(Protocol):
    def __call__(
        self, value: Any, key: Any, timestamp: int, headers: Headers | None, partition: int = -1, /
    ) -> None: ...


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
        repeats_records: whether records may be repeated after some of their effects.
        writer: the target of produced records; that of the active task.
        states: functions that return the state of a key, by store name; those of the active task, set by `use`.
        transactions: the open transactions, by store name; those of the active task, set by `use`.
        ticks: the tick functions of operators, each with its node.
        behind: handles the errors behind exchanges in memory; set by the chain.
        asynchronous: returns the function that begins asynchronous calls of an operator; set by the chain.
        hold: has held records passed on, and returns the function that does it at once; set by the chain.
        effects: what the current record has done; None if no record is skipped.
        has_shortcuts: whether an exchange in memory may pass on values as they were read.
        largest_value: size of the largest value of the current chunk, in bytes, if so; set by the chain.
        closing: functions of operators that are called when the process has no more work for the application.
        sent: the highest event time sent into each exchange that watermarks pass, by topic; that of the active task.
        deadline: value of `clock` at which the time slice ends; set before records and ticks.
        unfinished: whether an operator had to stop early since this was set to False.
        below: returns the ids of the nodes below a node.
        waiting: what operators do when they have all of the current record, by id of their nodes; it is always this dict.
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
        self.repeats_records = not spec.transactional
        self.writer: RecordWriter = no_writer
        self.deadline = float("inf")
        self.unfinished = False
        self.waiting: dict[int, Callable[[], None]] = {}
        self._multiplied = spec.topology.multiplied
        self.below: Callable[[int], frozenset[int]] = cache(spec.topology.below)
        self._clock = clock
        self.states: dict[str, StateAccess] = {}
        self.transactions: dict[str, Transaction] = {}
        self._followers: list[tuple[str, Callable[[Transaction], None]]] = []
        self.ticks: list[tuple[Node, Callable[[Tick], None]]] = []
        self.asynchronous: Callable[[Node, AsyncCalls], RecordHandler] = _refuse_calls
        self.hold: Callable[[HeldRecords, RecordHandler], Callable[[], None]] = _hold_nothing
        self.behind: BehindExchange = NothingBehind()
        # Only where a record may be skipped.
        skips = spec.callbacks.processing is not None or spec.policies.skipped or spec.policies.topics
        self.effects = Effects() if skips else None
        self._last_outputs = last_outputs(spec.topology) if skips else frozenset()
        self.has_shortcuts = False
        self.largest_value = 0
        self.closing: list[Callable[[], None]] = []
        self.sent: dict[str, int] = {}
        self._timed = spec.topology.timed_exchanges.keys()
        self._exchanges = {name: node.operator.name for name, node in spec.topology.exchanges.items()}
        self._partition_counts = spec.partition_counts
        self._spec = spec
        self._metrics: dict[str, Metrics] = {}
        self.tallies = Tallies()
        self._sinks = sinks
        self.on_error = on_error
        self._position = position
        self._lines = lines
        self._collect = spec.collect
        self._tables = {
            node.id: node.operator.size
            for node in spec.topology.nodes
            if isinstance(node.operator, PrintTable) and node.operator.live and spec.live_tables
        }
        self.leaf: RecordHandler = self._collect_output if spec.collect or spec.count_outputs else _drop_output
        self.reset()

    def reset(self) -> None:
        """Reset counters and collected outputs."""
        self.produced = 0
        self.produced_bytes = 0
        self.outputs = 0
        self.collected: list[Output] = []
        self._rows: dict[int, deque[Any]] = {node: deque(maxlen=size) for node, size in self._tables.items()}

    @property
    def drops_outputs(self) -> bool:
        """Whether no one asks for the outputs of the last operators."""
        return self.leaf is _drop_output

    def drain_rows(self) -> list[tuple[int, Any]]:
        """Return the last rows of live tables since the last call or reset."""
        taken = [(node, row) for node, rows in self._rows.items() for row in rows]
        for rows in self._rows.values():
            rows.clear()
        return taken

    def sender(self, topic: Topic, copies: int = 0) -> RecordHandler:
        """Return the function that serializes a record and hands it to the writer, for one partition or for several."""
        return self._make_sender(topic, copies)

    def partition_sender(self, topic: Topic) -> tuple[PartitionSender, int]:
        """Return the function that does so for a partition of the topic, and the number of partitions."""
        count = self._partition_counts.get(topic.name)
        if count is None:
            raise InvalidOperationError(
                f"topic {topic.name!r} is unknown to the application, so a partitioner cannot choose a partition of it: "
                "declare it with Application.topic() before run()"
            )
        return self._make_sender(topic), count

    def _make_sender(self, topic: Topic, copies: int = 0) -> "_Sender":
        name = topic.name
        records = copies or 1
        to_value = topic.value_serializer.bind(name, MessageField.VALUE)
        to_key = topic.key_serializer.bind(name, MessageField.KEY)
        extra = {**topic.key_serializer.extra_headers, **topic.value_serializer.extra_headers}
        # If serializers append to the headers, copy them: those of the input record must not change.
        own_headers = topic.key_serializer.writes_headers or topic.value_serializer.writes_headers

        timed, limit = name in self._timed, self._spec.max_record_bytes
        effects = None if name in self._last_outputs and not copies else self.effects
        plain = not copies and not timed
        surely_fits = limit - record_size(None, None, None)

        def produce(
            data: bytes | None, raw_key: bytes | None, timestamp: int, sent: Headers | None, partition: int
        ) -> None:
            if copies:
                for each in range(copies):
                    self.writer.produce(name, data, raw_key, timestamp, sent, each)
            else:
                self.writer.produce(name, data, raw_key, timestamp, sent, partition)
            self.produced += records
            self.produced_bytes += records * (len(data or b"") + len(raw_key or b""))
            if timed and timestamp > self.sent.get(name, -1):
                self.sent[name] = timestamp

        def produce_held(output: tuple[Any, ...]) -> None:
            value, key, timestamp, headers, data, raw_key, sent, partition = output
            try:
                if plain:
                    self.writer.produce(name, data, raw_key, timestamp, sent, partition)
                    self.produced += 1
                    self.produced_bytes += len(data or b"") + len(raw_key or b"")
                else:
                    produce(data, raw_key, timestamp, sent, partition)
            except _NOT_THE_OUTPUTS_FAULT:
                raise
            except Exception as error:
                if not self.on_error(error, value, key, timestamp, headers):
                    raise OutputRefused(error) from error

        # Save a call for most values and keys; `explain` finds the error of the serializer.
        dumps, kept_keys = bare_dumps(to_value), _unchanged_keys(topic.key_serializer)

        refuse = self._make_refusal(topic, to_value, to_key)

        def send(value: Any, key: Any, timestamp: int, headers: Headers | None, partition: int = -1, /) -> None:
            try:
                if extra:
                    headers = merge_headers(headers, extra)
                elif own_headers:
                    headers = list(headers or ())
                data = to_value(value, headers) if dumps is None else dumps(value, None, DUMP_OPTION)
                # A key of None is not serialized: JSON would write `null`, and all such records would share a
                # partition.
                raw_key = key if type(key) in kept_keys else to_key(key, headers)
                sent = client_headers(headers, name) if headers else None
                if effects is not None:
                    # What the client would refuse is refused before anything of the record is produced.
                    if not 0 < timestamp <= LATEST_TIMESTAMP_MS:
                        client_timestamp(timestamp, name)
                    if sent or len(data or b"") + len(raw_key or b"") > surely_fits:
                        require_size(name, data, raw_key, sent, limit)
                    # `Effects.hold` inlined.
                    held = effects.held
                    held.append((produce_held, (value, key, timestamp, headers, data, raw_key, sent, partition)))
                    if len(held) >= MOST_HELD:
                        effects.release()
                elif plain:
                    # `produce` inlined, for most applications.
                    self.writer.produce(name, data, raw_key, timestamp, sent, partition)
                    self.produced += 1
                    self.produced_bytes += len(data or b"") + len(raw_key or b"")
                else:
                    produce(data, raw_key, timestamp, sent, partition)
            except _NOT_THE_OUTPUTS_FAULT:
                # The cause is not this record: the whole range is processed again.
                raise
            except Exception as error:  # noqa: BLE001 - the callback decides
                refuse(error, value, key, timestamp, headers)

        return send

    def _make_refusal(self, topic: Topic, to_value: BoundSerializer, to_key: BoundSerializer) -> _Refusal:
        """Return the function that takes the error of a record that cannot be produced."""

        def refuse(error: Exception, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            clear = explain(error, topic, (to_value, value), (to_key, key), headers, self._exchanges.get(topic.name))
            if not self.on_error(clear, value, key, timestamp, headers):
                raise OutputRefused(clear) from error

        return refuse

    def inline_sender(self, topic: Topic, code: InlinedCode) -> bool:
        """Add the lines that do what `sender` does, if that needs no more than to serialize a record and to produce it.

        They use `produce` of the writer, and add to `produced` and `produced_bytes`.

        Returns:
            Whether they were added.
        """
        name = topic.name
        value_serializer, key_serializer = topic.value_serializer, topic.key_serializer
        changes_headers = any(each.extra_headers or each.writes_headers for each in (value_serializer, key_serializer))
        if changes_headers or name in self._timed or not (self.effects is None or name in self._last_outputs):
            return False
        to_value = value_serializer.bind(name, MessageField.VALUE)
        to_key = key_serializer.bind(name, MessageField.KEY)
        dumps, kept_keys = bare_dumps(to_value), _unchanged_keys(key_serializer)
        data = (
            f"{code.name_object(to_value)}(value, headers)"
            if dumps is None
            else f"{code.name_object(dumps)}(value, None, {DUMP_OPTION})"
        )
        code.is_plain = code.is_plain and dumps is not None
        code.add_lines(
            _SEND.format(
                topic=code.name_object(name),
                data=data,
                kept_keys=code.name_object(kept_keys),
                to_key=code.name_object(to_key),
                client_headers=code.name_object(client_headers),
                not_its_fault=code.name_object(_NOT_THE_OUTPUTS_FAULT),
                refuse=code.name_object(self._make_refusal(topic, to_value, to_key)),
            )
        )
        return True

    def make_passage(self, topic: Topic, node: Node, child: RecordHandler) -> RecordHandler:
        """Return the function that passes a record to `child` as if it had been produced to a topic and read from it."""
        topology, below = self._spec.topology, self.below(node.id)
        as_read = passes_as_read(node, topology)
        self.has_shortcuts = self.has_shortcuts or as_read
        passage = ExchangePassage(self, topic, node, child, self._spec.max_record_bytes, as_read=as_read)
        stopping = next((each for each in topology.nodes if each.id in below and each.operator.resumes()), None)
        # A dead letter is the whole input record, which is committed while others of it wait.
        if stopping is not None and "process" not in self._spec.policies.topics:
            store = topology.task_names(stopping)[stopping.operator.stores()[0].name]
            passage.keep_in(partial(self.transactions.__getitem__, store))
            self.on_tick(node, passage.tick)
        return passage.send

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
        if self.effects is not None:
            for transaction in transactions.values():
                transaction.follow(self.effects)
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
        add, effects = self._sinks.executor(sink, self._position, check), self.effects
        if effects is None or id(sink) in self._last_outputs:
            return add

        def add_held(output: tuple[Any, Any, int, Headers | None]) -> None:
            add(*output)

        def hold(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            effects.hold(add_held, (value, key, timestamp, headers))

        return hold

    def on_tick(self, node: Node, callback: Callable[[Tick], None]) -> None:
        """Register a function to be called for each tick."""
        self.ticks.append((node, callback))

    def hold_records(self, held: HeldRecords, child: RecordHandler) -> Callable[[], None] | None:
        """Have held records passed on before a commit; None if records may be skipped."""
        return self.hold(held, child) if self.effects is None else None

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a function to be called at the end."""
        self.closing.append(callback)

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        """Have a count read at each report."""
        self.tallies.watch(kind, name, total)

    def begin_portion(self, node: Node) -> Callable[[], bool]:
        """Return a function that checks whether the time slice or portion is over; if so, it sets `unfinished`."""
        clock, waiting = self._clock, self.waiting
        end = min(self.deadline, clock() + _PORTION_S)
        first, below = True, self.below(node.id)

        def must_stop() -> bool:
            nonlocal first
            if waiting:
                self.do_waiting(below)
            # The first step is done in any case, so that there is progress.
            self.unfinished = self.unfinished or (not first and clock() >= end)
            first = False
            return self.unfinished

        return must_stop

    def when_complete(self, node: Node, work: Callable[[], None]) -> None:
        """Do work at once, or after the current record if the operator may get more of it."""
        if node.id in self._multiplied:
            self.waiting[node.id] = work
        else:
            work()

    def do_waiting(self, below: Set[int] | None = None) -> None:
        """Do what operators do after a record. When one must stop, ticks find the rest in the stores.

        Args:
            below: ids of the operators; None for all.
        """
        waiting = self.waiting
        while mine := waiting.keys() if below is None else waiting.keys() & below:
            # Those below first, as in ticks: what they do was due before what those above send them.
            work = waiting.pop(max(mine))
            if not self.unfinished:
                work()

    def show(self, node_id: int, item: Any) -> None:
        """Keep an item for the report; for a live table, only the last rows."""
        rows = self._rows.get(node_id)
        if rows is None:
            self._lines.append((node_id, item))
        else:
            rows.append(item)

    def _collect_output(self, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        self.outputs += 1
        if self._collect:
            self.collected.append(Output(value, key, timestamp, headers, *self._position()))
        if self.effects is not None:
            self.effects.entries.append((self._uncount_outputs, ()))

    def _uncount_outputs(self) -> None:
        self.outputs -= 1
        if self._collect:
            self.collected.pop()


def _unchanged_keys(serializer: Serializer) -> frozenset[type]:
    """Return the types of the keys that are their own bytes."""
    return frozenset((bytes, type(None))) if type(serializer) is BytesSerializer else frozenset((type(None),))


def _refuse_calls(node: Node, calls: AsyncCalls) -> RecordHandler:
    raise RuntimeError(f"{node} needs a chain for its calls")


def _hold_nothing(held: HeldRecords, child: RecordHandler) -> Callable[[], None]:
    raise RuntimeError("held records need a chain")


def _drop_output(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
    """Drop an output that is neither counted nor collected."""
