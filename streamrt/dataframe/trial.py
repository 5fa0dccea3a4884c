"""Stand-ins that run a dataframe's closures on single values, without tasks, topics or Kafka."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamrt.common.event_loop import EventLoopThread
from streamrt.connectors import BaseSink
from streamrt.context import current_provider
from streamrt.kafka.wire import client_headers
from streamrt.operators.metadata import checked_headers, checked_timestamp
from streamrt.records import Headers, MessageContext, MessageTimestamp, Tick, TimestampType
from streamrt.serializers import MessageField
from streamrt.state import MemoryStore
from streamrt.state.base import Transaction
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import state_of
from streamrt.topics import Topic
from streamrt.topology import (
    AsyncCalls,
    HeldRecords,
    Node,
    PartitionSender,
    RecordHandler,
    StateAccess,
    TaskAccess,
    Topology,
    compose_stream,
)


class TrialStores:
    """The stores of a dataframe under test: in memory, whatever their type. They live as long as the dataframe."""

    def __init__(self) -> None:
        self._transactions: dict[tuple[str, str], Transaction] = {}

    def state(self, topic: str, store: StoreSpec) -> StateAccess:
        """Return the function that returns the state of a key in a topic's store."""
        return state_of(store.name, self.transaction(topic, store))

    def transaction(self, topic: str, store: StoreSpec) -> Transaction:
        """Return the transaction of a topic's store."""
        transaction = self._transactions.get((topic, store.name))
        if transaction is None:
            # Never flushed: a transaction reads its own writes, and it is their only reader.
            partition = MemoryStore(store.name, topic, Path()).open(0)
            transaction = self._transactions[topic, store.name] = store.begin(partition, changelog=False)
        return transaction


class TrialContext:
    """Stands in for a task: knows the record, and serializes and drops outputs to topics.

    Sinks receive nothing: a test of a dataframe must not write anywhere.

    Args:
        stores: the stores of stateful functions.
        key: key of the record.
        timestamp: its timestamp in milliseconds.
        headers: its headers.
        context: result of `message_context()`; by default topic "test", partition 0, offset 0.

    Attributes:
        source: the topic whose operators are being composed; each topic has separate stores.
    """

    repeats_records = False

    def __init__(
        self,
        stores: TrialStores,
        key: Any = None,
        timestamp: int = 0,
        headers: Headers | None = None,
        context: MessageContext | None = None,
    ) -> None:
        self.source = "test"
        self._stores = stores
        self._own = context or MessageContext(
            topic="test",
            partition=0,
            offset=0,
            size=0,
            key=key,
            timestamp=MessageTimestamp.create(TimestampType.TIMESTAMP_CREATE_TIME, timestamp),
            headers=headers,
        )
        self._current = self._own

    def message_context(self) -> MessageContext:
        """Return the context of the record."""
        return self._current

    def set_message_context(self, context: MessageContext | None) -> None:
        """Replace the context; None restores the context of the record."""
        self._current = context or self._own

    def sender(self, topic: Topic, copies: int = 0) -> RecordHandler:
        """Return a function that serializes a record as a task does, and drops the bytes."""
        to_value = topic.value_serializer.bind(topic.name, MessageField.VALUE)
        to_key = topic.key_serializer.bind(topic.name, MessageField.KEY)

        def send(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            checked_timestamp(timestamp)
            checked_headers(headers)
            if key is not None:
                to_key(key, headers)
            to_value(value, headers)

        return send

    def partition_sender(self, topic: Topic) -> tuple[PartitionSender, int]:
        """Return such a function, which ignores the partition, and the declared number of partitions, or 1."""
        send = self.sender(topic)

        def place(value: Any, key: Any, timestamp: int, headers: Headers | None, partition: int) -> None:
            send(value, key, timestamp, headers)

        return place, (topic.config.num_partitions if topic.config else None) or 1

    def make_passage(self, topic: Topic, node: Node, child: RecordHandler) -> RecordHandler:
        """Return a function that serializes a record, deserializes it, and passes it to `child`."""
        to_value = topic.value_serializer.bind(topic.name, MessageField.VALUE)
        to_key = topic.key_serializer.bind(topic.name, MessageField.KEY)
        load_value = topic.value_deserializer.bind(topic.name, MessageField.VALUE)
        load_key = topic.key_deserializer.bind(topic.name, MessageField.KEY)

        def send(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            checked_timestamp(timestamp)
            data, sent = to_value(value, headers), client_headers(headers, topic.name)
            # The key of a test is what the caller gives, of any type; that of a group_by comes from the value.
            if node.operator.name == "group_by" and key is not None:
                raw_key = to_key(key, headers)
                key = None if raw_key is None else load_key(raw_key, sent)
            child(None if data is None else load_value(data, sent), key, timestamp, sent)

        return send

    def state(self, store: StoreSpec) -> StateAccess:
        """Return the function that returns the state of a key, which is in memory."""
        return self._stores.state(self.source, store)

    def store(self, store: StoreSpec) -> Callable[[], Transaction]:
        """Return the function that returns the only transaction of a store."""
        transaction = self._stores.transaction(self.source, store)
        return lambda: transaction

    def follow(self, store: StoreSpec, changed: Callable[[Transaction], None]) -> None:
        """Pass on the only transaction of a store."""
        changed(self._stores.transaction(self.source, store))

    def access(self, store: StoreSpec) -> TaskAccess:
        """Return the access to a task that does not exist."""
        return TaskAccess.of_test(store.name)

    def sink(self, sink: BaseSink, check: Callable[[Any], Any] | None = None) -> RecordHandler:
        """Return a function that checks the value of a record, and drops it."""

        def drop(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            checked_timestamp(timestamp)
            checked_headers(headers)
            if check is not None:
                check(value)

        return drop

    def on_tick(self, node: Node, callback: Callable[[Tick], None]) -> None:
        """Do nothing: no time passes in a test of a dataframe."""

    def hold_records(self, held: HeldRecords, child: RecordHandler) -> Callable[[], None] | None:
        """Let no operator keep records: each is passed on."""
        return None

    def asynchronous(self, node: Node, calls: AsyncCalls) -> RecordHandler:
        """Return a function that waits for the result of each call."""

        def call(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            record = value, key, timestamp, headers

            async def perform() -> Any:
                current_provider.set(self)
                return await calls.start(*record)

            loop = EventLoopThread.acquire()
            try:
                result, error, late = loop.run(perform(), calls.timeout_s)
            finally:
                EventLoopThread.release()
            calls.finish(result, error, late, *record)

        return call

    def on_close(self, callback: Callable[[], None]) -> None:
        """Do nothing: a dataframe under test has no end."""

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        """Do nothing: a dataframe under test has no reports."""

    def begin_portion(self, node: Node) -> Callable[[], bool]:
        """Return a function that always returns False: there is no time slice."""
        return lambda: False

    def when_complete(self, node: Node, work: Callable[[], None]) -> None:
        """Do the work at once."""
        work()

    def show(self, node_id: int, item: Any) -> None:
        """Print text as `sdf.print()` does; rows of tables are left out."""
        if isinstance(item, str):
            print(item)  # noqa: T201 - printing is what sdf.print() is for


def compose_all(topology: Topology, context: TrialContext, sink: RecordHandler | None) -> dict[str, RecordHandler]:
    """Compose all streams of a topology into closures, by topic. Topics count as having one partition.

    Args:
        topology: the graph.
        context: services for the operators.
        sink: called with each output of the last operator of each branch.
    """
    # One partition per topic, so that records pass a group_by without a repartition topic.
    topology = topology.resolve(dict.fromkeys(topology.sources, 1))
    executors: dict[str, RecordHandler] = {}
    for name in topology.streams:
        context.source = name
        executors.update(compose_stream(topology, name, context, sink or _drop_output))
    return executors


def _drop_output(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
    """Drop an output."""
