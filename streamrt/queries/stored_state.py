"""The stores of an application as state queries see them: names, keys and values, as users see them, and bytes."""

import base64
import binascii
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from streamrt.arguments import checked, type_name
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    SerializationError,
    StateQueryError,
    StreamRTError,
)
from streamrt.records import TopicPartition
from streamrt.relations import Maintain, Materialize, StreamTableJoin, TableJoin
from streamrt.relations.change import decode_row
from streamrt.runtime.driver.starting.key_partitions import partition_of_key, partitioner_of, topic_of_keys
from streamrt.serializers import (
    BytesDeserializer,
    DoubleDeserializer,
    IntegerDeserializer,
    StringDeserializer,
)
from streamrt.state import MemoryStore, RocksDBOptions, Stamp, StorePartition
from streamrt.state.encoding import dumps_of, loads_of
from streamrt.state.layout import (
    BYTES_KEY,
    DATA_SPACE,
    HEAD_SPACE,
    JSON_KEY,
    NO_KEY,
    NO_KEY_PREFIX,
    Expiring,
    WallExpiring,
    after_prefix,
    decode_value,
    record_prefix,
    split_key,
    split_pane,
)
from streamrt.state.reading import KeyRange, StoredRows, StoreRead
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.state.transactions.panes import PaneTransaction, contents_of
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics import Topic
from streamrt.topology import TaskId, Topology
from streamrt.windows.closing import WindowOperator
from streamrt.windows.triggered import TriggeredWindow
from streamrt.windows.window import Window

__all__ = ["QueriedStore", "StateAnswer", "StateEntry", "StoreKind", "StoreListing", "StoredState"]

StoreKind = Literal["state", "windows", "other"]

_NO_STATE_KEY: Any = object()


@dataclass(frozen=True)
class StateEntry:
    """One value of a store, or one open window.

    Attributes:
        key: the message key.
        state_key: the key in the state; None for a window.
        value: the value; what `set_bytes` has stored as bytes. For a window, its aggregate, or a dict of several.
        start_ms: start of the window, in milliseconds; None for a value.
        end_ms: end of the window; None for a value.
    """

    key: Any
    state_key: Any
    value: Any
    start_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True)
class StateAnswer:
    """Committed state at a position.

    Attributes:
        store: name of the store.
        topic: the topic of the store; the names of merged ones, joined by `--`.
        partition: the partition.
        entries: the entries, in the order of the store.
        position: the next offset of each input partition: the state contains all records below, and no others.
        cursor: where to go on; None if there are no more entries.
        member: id of the group's member that owned the partition; empty if there is no group.
    """

    store: str
    topic: str
    partition: int
    entries: tuple[StateEntry, ...]
    position: Mapping[TopicPartition, int] = field(default_factory=dict)
    cursor: str | None = None
    member: str = ""

    @property
    def found(self) -> bool:
        """Whether there is any entry."""
        return bool(self.entries)

    def get(self, state_key: Any, default: Any = None) -> Any:
        """Return the value of a state key, as `State.get` does; for answers about one message key.

        Args:
            state_key: the key in the state.
            default: result for a missing key.
        """
        # Keys differ if their JSON differs.
        wanted = _make_comparable(state_key)
        found = (
            entry.value
            for entry in self.entries
            if entry.start_ms is None and _make_comparable(entry.state_key) == wanted
        )
        return next(found, default)


@dataclass(frozen=True)
class StoreListing:
    """A store that exists.

    Attributes:
        store: its name.
        topic: its topic; the names of merged ones, joined by `--`.
        partitions: number of its partitions.
        kind: "state" for values of message keys, "windows", or "other" for what cannot be queried, such as joins.
    """

    store: str
    topic: str
    partitions: int
    kind: StoreKind


@dataclass(frozen=True)
class QueriedStore:
    """A store that can be queried.

    Attributes:
        spec: the store.
        scope: the topic of the store, or merged ones.
        name: name of the store in its tasks.
        topic: the topic whose keys are partitioned.
        stream: the stream of its tasks.
        partitions: number of partitions.
        kind: what is in it.
        window: the operator of the windows; None for other kinds.
        rekeyed: whether records get other keys, in memory, between topic and store.
        of_rows: whether it holds rows of tables, as their operators encode them.
    """

    spec: StoreSpec
    scope: str
    name: str
    topic: Topic
    stream: str
    partitions: int
    kind: StoreKind
    window: WindowOperator | TriggeredWindow | None
    rekeyed: bool
    of_rows: bool = False

    def task(self, partition: int) -> TaskId:
        """Return the task of a partition.

        Raises:
            ArgumentValueError: if there is no such partition.
        """
        checked("partition", partition, int, "an int", show=type_name)
        if not 0 <= partition < self.partitions:
            raise ArgumentValueError(
                f"store {self.spec.name!r} of {self.scope} has {self.partitions} partitions, and no partition {partition}"
            )
        return TaskId(self.stream, partition)


class StoredState:
    """Finds stores, encodes keys, and decodes rows.

    Args:
        topology: the operators, resolved.
        declared: the operators as they were declared, for the names of groupings that need no topic.
        partitions: number of partitions of each topic.
        options: the encoding of keys and values.
        now: returns the wall clock in milliseconds since the Unix epoch.
    """

    def __init__(
        self,
        topology: Topology,
        declared: Topology,
        partitions: Mapping[str, int],
        options: RocksDBOptions | None,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._now = now
        self._topology = topology
        self._declared = declared
        self._partitions = partitions
        self._options = RocksDBOptions() if options is None else options
        self._dumps, self._loads = dumps_of(self._options), loads_of(self._options)

    # -- Stores --------------------------------------------------------------------------------------------------------

    def listing(self) -> list[StoreListing]:
        """Return all stores, by name and topic."""
        found = [
            StoreListing(spec.name, scope, self._count_partitions(scope), self._kind_of(scope, spec)[0])
            for scope in self._topology.scopes
            for spec in self._topology.stores(scope)
        ]
        return sorted(found, key=lambda each: (each.store, each.topic))

    def find(self, store: str, topic: str | None = None) -> QueriedStore:
        """Return a store.

        Args:
            store: its name; names of groupings at its end may be left out.
            topic: its topic; None if only one topic has a store of this name.

        Raises:
            ArgumentValueError: if there is no such store, or more than one.
            StateQueryError: if it holds what cannot be queried.
        """
        scopes = list(self._topology.scopes) if topic is None else [self._scope_of(topic)]
        known = [(scope, spec) for scope in scopes for spec in self._topology.stores(scope)]
        found = [each for each in known if each[1].name == store]
        found = found or [each for each in known if each[1].name.partition(".")[0] == store]
        if not found:
            names = ", ".join(f"{spec.name!r} of {scope}" for scope, spec in known) or "none"
            where = "the application" if topic is None else f"topic {topic!r}"
            raise ArgumentValueError(f"{where} has no store {store!r}; its stores: {names}")
        if len(found) > 1:
            names = ", ".join(f"{spec.name!r} of {scope}" for scope, spec in found)
            raise ArgumentValueError(f"there are several stores {store!r}: {names}; give the topic, too")
        scope, spec = found[0]
        kind, window = self._kind_of(scope, spec)
        if kind == "other":
            raise StateQueryError(
                f"store {spec.name!r} of {scope} holds the data of a join or of another operator, which cannot be queried"
            )
        topics = self._topology.scopes[scope]
        stream = self._topology.stream_of_topic[topics[0]]
        stores = self._topology.task_stores(stream).items()
        name = next(name for name, each in stores if (each.scope, each.spec.name) == (scope, spec.name))
        rekeyed = self._is_rekeyed(scope, spec)
        keys, count, of_rows = (
            topic_of_keys(self._topology, scope),
            self._count_partitions(scope),
            self._of_rows(scope, spec),
        )
        return QueriedStore(spec, scope, name, keys, stream, count, kind, window, rekeyed, of_rows)

    def _scope_of(self, topic: str) -> str:
        if topic in self._topology.scopes:
            return topic
        if topic not in self._declared.scopes:
            known = ", ".join(self._topology.scopes)
            raise ArgumentValueError(f"the application has no topic {topic!r}; its topics: {known}")
        # If all records are in one partition, the part after a group_by belongs to the task of the input.
        return self._declared.resolved_scope(topic, self._topology)

    def _count_partitions(self, scope: str) -> int:
        return self._partitions.get(self._topology.scopes[scope][0], 1)

    def _kind_of(self, scope: str, spec: StoreSpec) -> tuple[StoreKind, WindowOperator | TriggeredWindow | None]:
        if issubclass(spec.transaction, StoreTransaction) and not issubclass(spec.transaction, PaneTransaction):
            return "state", None
        for node in self._topology.nodes:
            operator = node.operator
            if not isinstance(operator, WindowOperator | TriggeredWindow) or operator.store.name != spec.name:
                continue
            if self._topology.scope(node) == scope:
                return "windows", operator
        return "other", None

    def _of_rows(self, scope: str, spec: StoreSpec) -> bool:
        return any(
            isinstance(node.operator, Maintain | Materialize | TableJoin | StreamTableJoin)
            and node.operator.store.name == spec.name
            and self._topology.scope(node) == scope
            for node in self._topology.nodes
        )

    def _is_rekeyed(self, scope: str, spec: StoreSpec) -> bool:
        """Return whether an operator above the store replaces keys in memory."""
        nodes = {node.id: node for node in self._topology.nodes}
        waiting = [
            node
            for node in nodes.values()
            if any(each.name == spec.name for each in node.operator.stores()) and self._topology.scope(node) == scope
        ]
        while waiting:
            node = waiting.pop()
            if node.operator.regroups:
                return True
            waiting += [nodes[parent] for parent in node.parents]
        return False

    # -- Keys ----------------------------------------------------------------------------------------------------------

    def partition_of(self, store: QueriedStore, key: Any) -> int:
        """Return the partition of the records of a key, as Kafka's producers choose it.

        Raises:
            ArgumentValueError: if it cannot be known from the key.
        """
        if store.partitions == 1:
            return 0
        advice = "give the partition, too"
        if key is None:
            raise ArgumentValueError(f"records without a key may be in each partition of {store.topic.name}: {advice}")
        if store.rekeyed:
            raise ArgumentValueError(f"the keys of store {store.spec.name!r} do not tell their partitions: {advice}")
        partitioner = partitioner_of(self._topology, store.topic.name)
        try:
            return partition_of_key(store.topic, partitioner, key, store.partitions)
        except (StreamRTError, TypeError, ValueError) as error:
            raise ArgumentValueError(
                f"the key of type {type(key).__name__} does not fit topic {store.topic.name}: {error}; {advice}"
            ) from None

    def key_of_text(self, store: QueriedStore, text: str, form: str = "text") -> Any:
        """Return a message key from text, as operators see it.

        Args:
            store: the store.
            text: the text.
            form: "text": what the key deserializer of the topic makes of such a key; "json"; or "base64" for bytes.

        Raises:
            ArgumentValueError: if the text is not a key of this form.
        """
        try:
            if form == "base64":
                return base64.urlsafe_b64decode(text)
            if form == "json":
                return orjson.loads(text)
            if form == "text":
                return _key_of(store, text)
        except ValueError as error:
            raise ArgumentValueError(f"the key cannot be read as {form}: {error}") from None
        raise ArgumentValueError(f"the form of a key is 'text', 'json' or 'base64', got {form!r}")

    def read_of_key(self, store: QueriedStore, key: Any, state_key: Any, limit: int) -> StoreRead:
        """Return the read of one message key.

        Args:
            store: the store.
            key: the message key.
            state_key: a key in the state; `no_state_key` for all.
            limit: maximum number of entries.

        Raises:
            ArgumentValueError: if windows are asked for a state key.
            SerializationError: if a key has no JSON form.
        """
        if store.window is not None:
            if state_key is not _NO_STATE_KEY:
                raise ArgumentValueError(f"store {store.spec.name!r} holds windows, which have no state key")
            if isinstance(store.window, TriggeredWindow):
                panes = contents_of(self._key_prefix(key)[1:])
                return StoreRead(panes, after_prefix(panes), limit, items=store.window.collects)
            head = bytes((HEAD_SPACE,)) + TimedTransaction.prefix(key)
            return StoreRead(head, head + b"\0", 1, items=store.window.collects)
        prefix = self._key_prefix(key)
        if state_key is _NO_STATE_KEY:
            return StoreRead(prefix, after_prefix(prefix), limit)
        full = prefix + self._encode_key(state_key, "state key")
        return StoreRead(full, full + b"\0", 1)

    def read_of_range(self, store: QueriedStore, prefix: Any, start: Any, end: Any, limit: int) -> StoreRead:
        """Return the read of several message keys, in the order of the store.

        Args:
            store: the store.
            prefix: the beginning of the keys: a str or bytes; None for all.
            start: the first key, inclusive; None for no bound.
            end: the end, exclusive; None for no bound.
            limit: maximum number of entries.

        Raises:
            ArgumentTypeError: if a bound is neither str nor bytes, or their types differ.
            ArgumentValueError: if there are both a prefix and bounds.
        """
        keys: KeyRange | None = None
        bounds = [each for each in (prefix, start, end) if each is not None]
        if prefix is not None and len(bounds) > 1:
            raise ArgumentValueError("give a prefix, or start and end, not both")
        if bounds:
            kind = type(bounds[0])
            if kind not in (str, bytes) or any(type(each) is not kind for each in bounds):
                raise ArgumentTypeError("prefix, start and end are all str, or all bytes")
            tag = BYTES_KEY if kind is bytes else JSON_KEY
            if prefix is not None:
                low = self._encode_bound(prefix)
                keys = KeyRange(tag, low, after_prefix(low))
            else:
                least = b"" if tag == BYTES_KEY else b'"'
                keys = KeyRange(
                    tag,
                    least if start is None else self._encode_bound(start),
                    None if end is None else self._encode_bound(end),
                )
        if isinstance(store.window, TriggeredWindow):
            return StoreRead.of_panes(limit, keys, items=store.window.collects)
        space = DATA_SPACE if store.window is None else HEAD_SPACE
        return StoreRead.of_space(space, limit, keys, items=store.window is not None and store.window.collects)

    def _encode_bound(self, key: str | bytes) -> bytes:
        if isinstance(key, bytes):
            return key
        encoded = self._dumps(key)
        if encoded[:1] != b'"' or encoded[-1:] != b'"':
            raise StateQueryError("keys that RocksDBOptions.dumps encodes in another way than JSON have no ranges")
        return encoded[:-1]

    def _key_prefix(self, key: Any) -> bytes:
        if key is None:
            return NO_KEY_PREFIX
        if isinstance(key, bytes | bytearray | memoryview):
            return record_prefix(BYTES_KEY, bytes(key))
        return record_prefix(JSON_KEY, self._encode_key(key, "message key"))

    def _encode_key(self, key: Any, what: str) -> bytes:
        try:
            return self._dumps(key)
        except TypeError as error:
            raise SerializationError(f"the {what} of type {type(key).__name__} has no JSON form: {error}") from error

    # -- Rows ----------------------------------------------------------------------------------------------------------

    def entries(self, store: QueriedStore, found: StoredRows) -> Iterator[StateEntry]:
        """Yield the entries in the rows of a read, without those that have expired."""
        if isinstance(store.window, TriggeredWindow):
            yield from self._pane_entries(store, store.window, found)
            return
        if store.window is not None:
            yield from self._window_entries(store, store.window, found)
            return
        clock = store.spec.transaction.expiry_clock(found.stamp)
        for full, data in found.rows:
            value = decode_value(data)
            if isinstance(value, Expiring):
                now = self._now() if isinstance(value, WallExpiring) else clock
                if now is not None and value.expiry <= now:
                    continue
                value = value.payload
            tag, key, rest = split_key(full)
            message_key = None if tag == NO_KEY else key if tag == BYTES_KEY else self._decode_key(key)
            decoded = decode_row(value) if store.of_rows else self._decode_key(value)
            yield StateEntry(message_key, self._decode_key(rest), decoded)

    def _window_entries(self, store: QueriedStore, window: WindowOperator, found: StoredRows) -> Iterator[StateEntry]:
        if found.stamp is None or not found.rows:
            return
        transaction = TimedTransaction(self._copy_store(store, found, found.stamp), self._options, changelog=False)
        try:
            for head, _ in found.rows:
                prefix = head[1:]
                key = transaction.key_of(prefix)
                for output in window.read(transaction, prefix):
                    start, end = output.pop("start"), output.pop("end")
                    value = output["value"] if window.aggregation.single else output
                    yield StateEntry(key, None, value, start, end)
        finally:
            transaction.discard()

    def _pane_entries(self, store: QueriedStore, operator: TriggeredWindow, found: StoredRows) -> Iterator[StateEntry]:
        if found.stamp is None or not found.rows:
            return
        transaction = PaneTransaction(self._copy_store(store, found, found.stamp), self._options, changelog=False)
        try:
            for full, _ in found.rows:
                prefix, _, start, end = split_pane(full[1:])
                read = operator.read(transaction, prefix, Window(start, end))
                if read is not None:
                    window, value = read
                    yield StateEntry(transaction.key_of(prefix), None, value, window.start, window.end)
        finally:
            transaction.discard()

    def _copy_store(self, store: QueriedStore, found: StoredRows, stamp: Stamp) -> StorePartition:
        """Return a store with the rows of a read: the code that emits windows reads a copy of their data."""
        partition = MemoryStore(store.spec.name, store.scope, Path("unused"), self._options).open(0)
        partition.write([*found.rows, *found.items], stamp)
        return partition

    def _decode_key(self, data: bytes) -> Any:
        """Return what the bytes stand for; bytes that are not JSON as they are."""
        try:
            return self._loads(data)
        except (ValueError, SerializationError):
            return data


def no_state_key() -> Any:
    """Return the mark for all state keys; None is a state key."""
    return _NO_STATE_KEY


def cursor_of(key: bytes | None) -> str | None:
    """Return the cursor for the next store key."""
    return None if key is None else base64.urlsafe_b64encode(key).decode()


def key_of_cursor(cursor: str) -> bytes:
    """Return the store key of a cursor.

    Raises:
        ArgumentValueError: if it is none.
    """
    try:
        return base64.b64decode(cursor.encode("ascii"), b"-_", validate=True)
    except (AttributeError, UnicodeError, binascii.Error):
        raise ArgumentValueError("cursor is not one of an answer: pass it on unchanged") from None


def _key_of(store: QueriedStore, text: str) -> Any:
    reader = None if store.rekeyed else store.topic.key_deserializer
    if isinstance(reader, BytesDeserializer):
        return text.encode()
    if isinstance(reader, StringDeserializer):
        return text
    if isinstance(reader, IntegerDeserializer):
        return int(text)
    if isinstance(reader, DoubleDeserializer):
        return float(text)
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def _make_comparable(key: Any) -> Any:
    try:
        return orjson.dumps(key)
    except TypeError:
        return key
