"""Exchanges in memory: records pass as if they had been produced to a topic and read from it.

The serializers decide what a record is behind the topic, and which records are refused. They are left out only for values
as they were read from JSON (`passes_as_read`), which would be written as JSON and read again: to the same value. When an
operator below has stopped (`OperatorContext.begin_portion`), further records wait, as they would in the topic: in a store of
such an operator, which commits them. Ticks pass them on.
"""

import base64
from collections.abc import Callable, Mapping, Set
from typing import Any, Protocol

import orjson

from streamrt.errors import IgnoreMessage, SchemaRegistryError, StoreCorruptedError
from streamrt.kafka.wire import client_headers, client_timestamp, record_size, require_size
from streamrt.operators import ColumnKey, Repartition, Where
from streamrt.records import Headers, Tick, merge_headers
from streamrt.records.timestamps import LATEST_TIMESTAMP_MS
from streamrt.runtime.tasks.chain.effects import Effects
from streamrt.runtime.tasks.chain.last_outputs import nodes_above
from streamrt.runtime.tasks.chain.output_errors import OutputRefused, explain
from streamrt.runtime.tasks.chain.record_place import Input
from streamrt.runtime.tasks.chain.task_inputs import input_of
from streamrt.serializers import MessageField
from streamrt.serializers.json import (
    DUMP_OPTION,
    MOST_GROWTH,
    bare_dumps,
    kept_types,
    reads_plainly,
    writes_plainly,
)
from streamrt.state.base import Transaction
from streamrt.topics import Topic
from streamrt.topology import InMemoryExchange, Node, RecordHandler, SourceOperator, Topology

__all__ = [
    "BehindExchange",
    "ExchangePassage",
    "NothingBehind",
    "RawParts",
    "decode_record",
    "encode_record",
    "passes_as_read",
]

RawParts = tuple[str, "bytes | None", "bytes | None", int, "Headers | None"]
"""Topic, value, key, timestamp and headers of a record that has no place in Kafka."""


class BehindExchange(Protocol):
    """Handling of records that fail behind an exchange in memory; the chain implements it."""

    def refuse(self, error: Exception, source: Input, parts: RawParts) -> None:
        """Skip a record that cannot be deserialized, or raise."""

    def skip(self, error: Exception, value: Any, key: Any, timestamp: int, headers: Headers | None) -> bool:
        """Skip a record that an operator could not process, or raise; False if the whole input record fails."""


class NothingBehind:
    """Fails the whole input record."""

    def refuse(self, error: Exception, source: Input, parts: RawParts) -> None:  # noqa: D102
        raise error

    def skip(self, error: Exception, value: Any, key: Any, timestamp: int, headers: Headers | None) -> bool:  # noqa: D102
        return False


class Crossing(Protocol):
    """The parts of its task that a passage needs; see `OutputCollector`."""

    effects: Effects | None
    behind: BehindExchange
    unfinished: bool
    waiting: dict[int, Callable[[], None]]
    on_error: Callable[[Exception, Any, Any, int, Headers | None], bool]
    below: Callable[[int], frozenset[int]]
    largest_value: int

    def do_waiting(self, below: Set[int] | None = None) -> None:
        """Do what operators do after a record."""

    def begin_portion(self, node: Node) -> Callable[[], bool]:
        """Return a function that checks whether the time slice or portion is over."""


class ExchangePassage:
    """An exchange in memory.

    Args:
        crossing: the task.
        topic: the topic that there is not.
        node: the node of the exchange.
        child: takes the records behind it.
        limit: maximum size of a record in bytes.
        as_read: whether values are as they were read from JSON, and keys parts of them.

    Attributes:
        send: passes a record on.
    """

    def __init__(
        self, crossing: Crossing, topic: Topic, node: Node, child: RecordHandler, limit: int, *, as_read: bool
    ) -> None:
        self._crossing, self._node, self._topic = crossing, node, topic.name
        self._transaction: Callable[[], Transaction] | None = None
        self._source = input_of(topic, child)
        to_value = topic.value_serializer.bind(topic.name, MessageField.VALUE)
        to_key = topic.key_serializer.bind(topic.name, MessageField.KEY)
        self._kept_keys = kept_types(to_key, self._source.load_key)
        self._plain = writes_plainly(to_value) and reads_plainly(self._source.load_value)
        self._extra: Mapping[str, Any] = {**topic.key_serializer.extra_headers, **topic.value_serializer.extra_headers}
        self._deliver = self._make_delivery(child)
        self.send = self._make_sender(topic, to_value, to_key, limit)
        if as_read and self._plain and not self._extra:
            self.send = self._make_shortcut(child, limit)

    def keep_in(self, transaction: Callable[[], Transaction]) -> None:
        """Let records wait in the store of a transaction while an operator below has stopped."""
        self._transaction = transaction

    def tick(self, moment: Tick) -> None:
        """Pass on the records that wait."""
        # For errors: what fails here is not an input.
        _node = self._node
        if self._transaction is None or not (backlog := self._transaction().backlog(self._topic)):
            return
        must_stop = self._crossing.begin_portion(_node)
        while backlog and not must_stop():
            data, raw_key, time, sent = decode_record(backlog.pop())
            self._deliver(_READ, _READ, data, raw_key, time, sent)

    def _make_sender(self, topic: Topic, to_value: Any, to_key: Any, limit: int) -> RecordHandler:
        name, node, crossing, deliver, extra = topic.name, self._node, self._crossing, self._deliver, self._extra
        own_headers = topic.key_serializer.writes_headers or topic.value_serializer.writes_headers
        # Without headers, a smaller record is never too large.
        surely_fits = limit - record_size(None, None, None)
        # Save calls; `explain` finds the errors of the serializers.
        dumps, dumps_key = bare_dumps(to_value), bare_dumps(to_key)

        def send(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            try:
                if extra:
                    headers = merge_headers(headers, extra)
                elif own_headers:
                    headers = list(headers or ())
                data = to_value(value, headers) if dumps is None else dumps(value, None, DUMP_OPTION)
                if key is None:
                    raw_key = None
                else:
                    raw_key = to_key(key, headers) if dumps_key is None else dumps_key(key, None, DUMP_OPTION)
                sent = client_headers(headers, name) if headers else None
                time = timestamp if 0 < timestamp <= LATEST_TIMESTAMP_MS else client_timestamp(timestamp, name)
                if sent or len(data or b"") + len(raw_key or b"") > surely_fits:
                    require_size(name, data, raw_key, sent, limit)
            except SchemaRegistryError:
                raise
            except Exception as error:
                clear = explain(error, topic, (to_value, value), (to_key, key), headers, node.operator.name)
                if not crossing.on_error(clear, value, key, timestamp, headers):
                    raise OutputRefused(clear) from error
                return
            if crossing.unfinished and self._transaction is not None:
                self._keep_record(self._transaction(), data, raw_key, time, sent)
            else:
                deliver(value, key, data, raw_key, time, sent)

        return send

    def _make_delivery(self, child: RecordHandler) -> Callable[..., None]:
        source, kept_keys, plain, name = self._source, self._kept_keys, self._plain, self._topic
        loads = orjson.loads
        load_value, load_key, split = source.load_value, source.load_key, source.split
        crossing, effects, waiting = self._crossing, self._crossing.effects, self._crossing.waiting
        below = crossing.below(self._node.id)

        def deliver(
            value: Any, key: Any, data: bytes | None, raw_key: bytes | None, time: int, sent: Headers | None
        ) -> None:
            try:
                if data is None:
                    value = None
                elif plain and value is not _READ:
                    # No integer is beyond 64 bits: it would not have been written.
                    value = loads(data)
                else:
                    value = load_value(data, sent)
                if type(key) not in kept_keys:
                    key = raw_key if load_key is None or raw_key is None else load_key(raw_key, sent)
                items = list(value) if split and value is not None else None
            except IgnoreMessage:
                return
            except SchemaRegistryError:
                raise
            except Exception as error:  # noqa: BLE001 - the callback decides
                crossing.behind.refuse(error, source, (name, data, raw_key, time, sent))
                return
            mark = None if effects is None else effects.mark()
            try:
                if items is None:
                    child(value, key, time, sent)
                else:
                    for item in items:
                        child(item, key, time, sent)
                        if effects is not None:
                            mark = effects.mark()
                if waiting:
                    crossing.do_waiting(below)
            except BaseException as error:
                if not self._skips_record(error, mark, value, key, time, sent):
                    raise

        return deliver

    def _make_shortcut(self, child: RecordHandler, limit: int) -> RecordHandler:
        """Return the function that passes on a value as it was read, unless it may be refused or is to wait."""
        send, kept_keys, node = self.send, self._kept_keys, self._node
        crossing, effects, waiting = self._crossing, self._crossing.effects, self._crossing.waiting
        below = crossing.below(node.id)
        # The key is a part of the value.
        surely_fits = (limit - record_size(None, None, None)) // (2 * MOST_GROWTH)

        def pass_on(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            if (
                headers
                or type(key) not in kept_keys
                or not 0 < timestamp <= LATEST_TIMESTAMP_MS
                or crossing.unfinished
                or crossing.largest_value > surely_fits
            ):
                send(value, key, timestamp, headers)
                return
            mark = None if effects is None else effects.mark()
            try:
                child(value, key, timestamp, None)
                if waiting:
                    crossing.do_waiting(below)
            except BaseException as error:
                if not self._skips_record(error, mark, value, key, timestamp, None):
                    raise

        return pass_on

    def _skips_record(
        self, error: BaseException, mark: Any, value: Any, key: Any, time: int, sent: Headers | None
    ) -> bool:
        """Undo what a record has done behind the exchange; return whether it is skipped."""
        if self._crossing.effects is not None:
            self._crossing.effects.undo(mark)
        # Behind a topic it would be a record of its own, so what is above goes on.
        return isinstance(error, Exception) and self._crossing.behind.skip(error, value, key, time, sent)

    def _keep_record(
        self, transaction: Transaction, data: bytes | None, raw_key: bytes | None, time: int, sent: Headers | None
    ) -> None:
        backlog = transaction.backlog(self._topic)
        backlog.append(encode_record(data, raw_key, time, sent))
        if transaction.journal is not None:
            transaction.journal.entries.append((backlog.withdraw, ()))


class _Read:
    """Stands for a key or value that is still to be read from its bytes."""


_READ = _Read()


def passes_as_read(node: Node, topology: Topology) -> bool:
    """Return whether an exchange passes on values as they were read from JSON, and takes its keys out of them.

    No function of users may see a value before: it could change it, or keep it.

    Args:
        node: the node of the exchange.
        topology: the operators.
    """
    exchange = node.operator.exchange if isinstance(node.operator, InMemoryExchange) else None
    if not (isinstance(exchange, Repartition) and isinstance(exchange.key, ColumnKey) and exchange.partitioner is None):
        return False
    for above in nodes_above(node, {each.id: each for each in topology.nodes}):
        operator = None if above is None else above.operator
        if isinstance(operator, SourceOperator):
            topic = operator.topic
            load, split = (
                topic.value_deserializer.bind(topic.name, MessageField.VALUE),
                topic.value_deserializer.split_values,
            )
            return topic.timestamp_extractor is None and not split and reads_plainly(load)
        if not (isinstance(operator, Where) and operator.expression.is_plain()):
            return False
    return False


def encode_record(data: bytes | None, raw_key: bytes | None, time: int, sent: Headers | None) -> bytes:
    r"""Return the bytes of a record that waits; see `streamrt.state.layout`.

    Args:
        data: its value.
        raw_key: its key.
        time: its timestamp, in milliseconds.
        sent: its headers.

    Example:
        >>> encode_record(b"1", None, 5, None)
        b'["MQ==",null,5,null]'
    """
    headers = None if sent is None else [(name, _to_text(value)) for name, value in sent]
    return orjson.dumps((_to_text(data), _to_text(raw_key), time, headers))


def decode_record(record: bytes) -> tuple[bytes | None, bytes | None, int, Headers | None]:
    """Return value, key, timestamp and headers of a record that waits.

    Raises:
        StoreCorruptedError: if the bytes are none of a record.
    """
    try:
        data, raw_key, time, headers = orjson.loads(record)
        sent: Any = None if headers is None else [(name, _to_bytes(value)) for name, value in headers]
        return _to_bytes(data), _to_bytes(raw_key), int(time), sent
    except (ValueError, TypeError) as error:
        raise StoreCorruptedError(f"a record that waits in the store is damaged: {record[:80]!r}") from error


def _to_text(data: Any) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
