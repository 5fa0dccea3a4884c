"""Test double of Kafka for tables: topics in memory, with transactions and read_committed readers."""

import threading
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from streamrt.errors import OffsetOutOfRangeError, ProducerError, TopicCreationError, TransactionError
from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.cluster.topic_config import PartitionReplicas, TopicConfig, TopicDefinition
from streamrt.kafka.cluster.topic_options import option_fault
from streamrt.kafka.partitioner import partition_for
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.kafka.wire import client_headers, client_max_bytes, client_timestamp, exceeds_topic, require_size
from streamrt.kafka.writing.portion import Portion, produce_each
from streamrt.kafka.writing.sender import Delivered
from streamrt.records import Headers, TopicPartition
from streamrt.tables.access.links import RecordFeed, RecordSender, TableAdmin

__all__ = ["MemoryLinks"]

_CREATE_TIME = 1
_POLL_EVERY = 2_000


class _Transaction:
    """Which partitions have records of a transaction, and whether it has ended."""

    def __init__(self) -> None:
        self.open = True
        self.aborted = False
        self.partitions: set[TopicPartition] = set()


@dataclass(frozen=True)
class _Entry:
    """A record, or the marker at the end of a transaction, whose `transaction` is None and `is_marker` is True."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers | None
    transaction: _Transaction | None = None
    is_marker: bool = False


@dataclass
class _Partition:
    entries: list[_Entry] = field(default_factory=list)
    low: int = 0
    # First offset of each open transaction.
    open: dict[int, int] = field(default_factory=dict)

    @property
    def high(self) -> int:
        return self.low + len(self.entries)

    def stable(self) -> int:
        """Return the last stable offset: no transaction is open below it."""
        return min(self.open.values(), default=self.high)

    def append(self, entry: _Entry) -> int:
        """Append a record, and return its offset."""
        if entry.transaction is not None:
            self.open.setdefault(id(entry.transaction), self.high)
        self.entries.append(entry)
        return self.high - 1

    def end(self, transaction: _Transaction) -> None:
        """Append the marker of the end of a transaction."""
        self.open.pop(id(transaction), None)
        self.entries.append(_Entry(None, None, time.time_ns() // 1_000_000, None, is_marker=True))

    def is_visible(self, entry: _Entry) -> bool:
        return not entry.is_marker and not (entry.transaction is not None and entry.transaction.aborted)


@dataclass
class _Topic:
    config: TopicConfig
    partitions: list[_Partition]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


class MemoryLinks:
    """Topics in memory. They may be used in any thread, and end with this object.

    Args:
        auto_create: whether a record for a topic that does not exist creates it with one partition.

    Example:
        >>> links = MemoryLinks(auto_create=True)
        >>> links.sender().produce("orders", b"1", b"ann")
        >>> links.admin().offset_bounds([TopicPartition("orders", 0)])[TopicPartition("orders", 0)]
        (0, 1)
    """

    def __init__(self, auto_create: bool = False) -> None:
        self._auto_create = auto_create
        self._changed = threading.Condition()
        self._topics: dict[str, _Topic] = {}
        self._epochs: dict[str, _MemorySender] = {}
        self._committed: dict[str, dict[TopicPartition, int]] = {}

    def admin(self) -> TableAdmin:
        """Return the administration."""
        return _MemoryAdmin(self)

    def feed(self, options: Mapping[str, Any] | None = None) -> RecordFeed:
        """Return a new reader.

        Args:
            options: consumer options; they mean nothing here.
        """
        return _MemoryFeed(self)

    def sender(self, options: Mapping[str, Any] | None = None, transactional_id: str | None = None) -> RecordSender:
        """Return a new writer.

        Args:
            options: producer options, of which `message.max.bytes` counts.
            transactional_id: id under which one writer at a time can commit.
        """
        sender = _MemorySender(self, transactional_id, client_max_bytes(options or {}))
        if transactional_id is not None:
            with self._changed:
                former = self._epochs.get(transactional_id)
                self._epochs[transactional_id] = sender
            if former is not None:
                former.end(aborted=True)
        return sender

    def set_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a consumer group.

        Args:
            group: name of the group.
            offsets: the next offset to read of each partition.
        """
        with self._changed:
            self._committed.setdefault(group, {}).update(offsets)

    def close(self) -> None:
        """Nothing is open."""

    def _partition_log(self, partition: TopicPartition) -> _Partition:
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            raise KafkaRequestError(f"{partition} does not exist")
        return topic.partitions[partition.partition]


class _MemoryAdmin:
    def __init__(self, links: MemoryLinks) -> None:
        self._links = links

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        with self._links._changed:
            found = {name: self._links._topics.get(name) for name in topic_names}
            return {name: None if topic is None else topic.config for name, topic in found.items()}

    def create_topics(
        self, topics: Iterable[TopicDefinition], timeout: float = 30, finalize_timeout: float = 60
    ) -> None:
        with self._links._changed:
            for topic in topics:
                config = topic.config or TopicConfig(1, 1)
                count = config.num_partitions or 1
                if count < 1:
                    raise TopicCreationError(f"topic {topic.name!r} was not created: it needs 1 or more partitions")
                for name, value in config.extra_config.items():
                    fault = option_fault(name, str(value))
                    if fault is not None:
                        raise TopicCreationError(f"topic {topic.name!r} was not created: {fault}")
                actual = TopicConfig(count, config.replication_factor or 1, dict(config.extra_config))
                self._links._topics.setdefault(topic.name, _Topic(actual, [_Partition() for _ in range(count)]))
            self._links._changed.notify_all()

    def change_settings(self, topic_name: str, settings: Mapping[str, str | None], timeout: float = 30) -> None:
        with self._links._changed:
            topic = self._links._topics.get(topic_name)
            if topic is None:
                raise KafkaRequestError(f"the settings of topic {topic_name} could not be changed: it does not exist")
            for name, value in settings.items():
                fault = None if value is None else option_fault(name, value)
                if fault is not None:
                    raise KafkaRequestError(f"the settings of topic {topic_name} could not be changed: {fault}")
            merged = {**topic.config.extra_config, **settings}
            topic.config.extra_config = {name: value for name, value in merged.items() if value is not None}

    def delete_topics(self, topic_names: Collection[str], timeout: float = 30) -> None:
        with self._links._changed:
            for name in topic_names:
                self._links._topics.pop(name, None)
            self._links._changed.notify_all()

    def topic_ids(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, str | None]:
        with self._links._changed:
            found = {name: self._links._topics.get(name) for name in topic_names}
            return {name: None if topic is None else topic.id for name, topic in found.items()}

    def partition_replicas(self, topic_name: str, timeout: float = 30) -> list[PartitionReplicas]:
        with self._links._changed:
            topic = self._links._topics.get(topic_name)
            count = 0 if topic is None else len(topic.partitions)
            return [PartitionReplicas(number, 1, [1], [1]) for number in range(count)]

    def offset_bounds(
        self,
        partitions: Collection[TopicPartition],
        timeout: float = 30,
        *,
        isolation_level: Literal["read_committed", "read_uncommitted"] = "read_uncommitted",
    ) -> dict[TopicPartition, tuple[int, int]]:
        with self._links._changed:
            found = {each: self._links._partition_log(each) for each in partitions}
            is_committed = isolation_level == "read_committed"
            return {each: (log.low, log.stable() if is_committed else log.high) for each, log in found.items()}

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int, timeout: float = 30
    ) -> dict[TopicPartition, int]:
        with self._links._changed:
            return {each: _offset_at(self._links._partition_log(each), timestamp_ms) for each in partitions}

    def committed_stable(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> dict[TopicPartition, CommittedOffset]:
        with self._links._changed:
            found = self._links._committed.get(group, {})
            return {each: CommittedOffset(found.get(each)) for each in partitions}

    def delete_records(self, offsets: Mapping[TopicPartition, int], timeout: float = 30) -> None:
        with self._links._changed:
            for each, offset in offsets.items():
                log = self._links._partition_log(each)
                offset = min(max(offset, log.low), log.high)
                del log.entries[: offset - log.low]
                log.low = offset

    def close(self) -> None:
        """Nothing is open."""


class _MemorySender:
    def __init__(self, links: MemoryLinks, transactional_id: str | None, max_record_bytes: int) -> None:
        self._links = links
        self._id = transactional_id
        self._transaction: _Transaction | None = None
        self._closed = False
        # Whether a request was answered by an error: as that of Kafka, the sender does not know before.
        self._failed = False
        self._reports: list[tuple[Delivered, Exception | None, int, int, int]] = []
        self._max_record_bytes = max_record_bytes
        # Why the open transaction cannot be committed.
        self._lost: Exception | None = None

    @property
    def usable(self) -> bool:
        return not self._closed and not self._failed

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        on_delivery: Delivered | None = None,
    ) -> None:
        links = self._links
        with links._changed:
            self._require_id()
            if topic not in links._topics:
                if not links._auto_create:
                    raise ProducerError(f"a record for topic {topic!r} was refused: the topic does not exist", topic)
                links._topics[topic] = _Topic(TopicConfig(1, 1), [_Partition()])
            partitions = links._topics[topic].partitions
            if partition is None:
                partition = 0 if key is None else partition_for(key, len(partitions))
            if not 0 <= partition < len(partitions):
                raise ProducerError(f"a record for topic {topic!r} was refused: it has no partition {partition}", topic)
            if self._id is not None and self._transaction is None:
                self._transaction = _Transaction()
            if self._transaction is not None:
                self._transaction.partitions.add(TopicPartition(topic, partition))
            sent_at = client_timestamp(timestamp, topic) or time.time_ns() // 1_000_000
            headers = client_headers(headers, topic)
            require_size(topic, value, key, headers, self._max_record_bytes)
            error = exceeds_topic(topic, value, key, headers, links._topics[topic].config.extra_config)
            if error is not None:
                self._lost = error
                if on_delivery is not None:
                    self._reports.append((on_delivery, error, partition, -1, sent_at))
                return
            offset = partitions[partition].append(_Entry(key, value, sent_at, headers, self._transaction))
            if on_delivery is not None:
                self._reports.append((on_delivery, None, partition, offset, sent_at))
            links._changed.notify_all()
        if len(self._reports) >= _POLL_EVERY:
            # As Kafka's sender does.
            self.poll()

    def produce_all(self, topic: str, portion: Portion) -> None:
        produce_each(self.produce, topic, portion)

    def partitions(self, topic: str, timeout: float) -> int | None:
        with self._links._changed:
            found = self._links._topics.get(topic)
            return None if found is None else len(found.partitions)

    def poll(self, timeout: float = 0.0) -> None:
        reports, self._reports = self._reports, []
        for on_delivery, error, partition, offset, sent_at in reports:
            on_delivery(error, partition, offset, sent_at)

    def flush(self, timeout: float) -> int:
        with self._links._changed:
            self._require_id()
        self.poll()
        return 0

    def commit(self) -> None:
        with self._links._changed:
            self._require_id()
        self.poll()
        if self._lost is not None:
            self._failed = True
            raise TransactionError(f"the transaction of {self._id} failed: {self._lost}", False) from self._lost
        self.end(aborted=False)

    def abort(self) -> None:
        self._reports.clear()
        self._lost = None
        self.end(aborted=True)

    def close(self) -> None:
        self.abort()
        self._closed = True

    def end(self, aborted: bool) -> None:
        """End the transaction, if one is open."""
        with self._links._changed:
            transaction, self._transaction = self._transaction, None
            if transaction is None or not transaction.open:
                return
            transaction.open, transaction.aborted = False, aborted
            for each in sorted(transaction.partitions):
                if each.topic in self._links._topics:
                    self._links._partition_log(each).end(transaction)
            self._links._changed.notify_all()

    def _owns_id(self) -> bool:
        return self._id is None or self._links._epochs.get(self._id) is self

    def _require_id(self) -> None:
        if not self._owns_id():
            self._failed = True
            raise TransactionError(
                f"the transaction of {self._id} failed: another producer has taken its id (fenced)", True
            )
        if self._closed:
            raise ProducerError("the sender is closed")


class _MemoryFeed:
    def __init__(self, links: MemoryLinks) -> None:
        self._links = links
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions.update(positions)
        self._paused.update(positions)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._positions.pop(each, None)
            self._paused.discard(each)
            self._ends.pop(each, None)

    def poll(self, timeout_s: float, records: int) -> list[tuple[TopicPartition, InputBatch]]:
        deadline = time.monotonic() + timeout_s
        with self._links._changed:
            while True:
                known = self._ends.copy()
                found = self._take_records(records)
                left = deadline - time.monotonic()
                if found or self._ends != known or left <= 0:
                    return found
                self._links._changed.wait(left)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset
        self._ends.pop(partition, None)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(each for each in partitions if each in self._positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def ends(self) -> dict[TopicPartition, int]:
        return dict(self._ends)

    def close(self) -> None:
        self._positions.clear()

    def _take_records(self, most: int) -> list[tuple[TopicPartition, InputBatch]]:
        batches: list[tuple[TopicPartition, InputBatch]] = []
        for partition, position in self._positions.items():
            if partition in self._paused or most <= 0:
                continue
            log = self._links._partition_log(partition)
            if not log.low <= position <= log.high:
                if batches:
                    # The next poll raises it.
                    continue
                raise OffsetOutOfRangeError(
                    f"offset {position} of {partition} does not exist any more: it has {log.low} to {log.high}"
                )
            end = log.stable()
            taken: list[int] = []
            while position < end and len(taken) < most:
                if log.is_visible(log.entries[position - log.low]):
                    taken.append(position)
                position += 1
            self._positions[partition] = position
            if taken:
                batches.append((partition, _make_batch(log, taken)))
                most -= len(taken)
                self._ends.pop(partition, None)
            if position == end:
                self._ends[partition] = end
        return batches


def _make_batch(log: _Partition, offsets: list[int]) -> InputBatch:
    entries = [log.entries[offset - log.low] for offset in offsets]
    headers = [entry.headers for entry in entries]
    return InputBatch(
        offsets,
        [entry.key for entry in entries],
        [entry.value for entry in entries],
        [entry.timestamp for entry in entries],
        [_CREATE_TIME] * len(entries),
        headers if any(headers) else None,
    )


def _offset_at(log: _Partition, timestamp_ms: int) -> int:
    for number, entry in enumerate(log.entries):
        if not entry.is_marker and entry.timestamp >= timestamp_ms:
            return log.low + number
    return log.high
