"""Test double of Kafka for the test driver: topics, changelogs and committed offsets in memory."""

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamrt.context import current_provider
from streamrt.errors import ProducerError, TransactionError
from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.wire import CLIENT_MAX_BYTES, client_headers, client_timestamp, exceeds_topic, require_size
from streamrt.records import Headers, TopicPartition
from streamrt.records.headers import EPOCH_HEADER
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.chain.operator_chain import OperatorChain
from streamrt.runtime.tasks.task_clients import RecordWriter, TransactionalRecordWriter
from streamrt.topology import TaskId

__all__ = ["MemoryClients", "Origin", "WrittenRecord"]

Origin = tuple[str, int, int]
"""Topic, partition and offset of the input record from which a produced one comes."""


class WrittenRecord(NamedTuple):
    """A produced record.

    Attributes:
        value: the value's bytes; None is a tombstone.
        key: the key's bytes.
        timestamp: milliseconds since the Unix epoch.
        headers: the headers.
        partition: the partition that the producer chose; -1 if the key decides.
    """

    value: bytes | None
    key: bytes | None
    timestamp: int
    headers: Headers | None
    partition: int = -1


@dataclass(frozen=True)
class _Batch:
    keys: list[bytes]
    values: list[bytes | None]
    timestamps: list[int]
    next_offset: int
    epochs: list[bytes | None]


@dataclass
class _Log:
    """The records of one topic; only changelogs have partitions."""

    records: list[WrittenRecord] = field(default_factory=list)
    partitions: dict[int, list[WrittenRecord | None]] = field(default_factory=dict)

    def ends(self) -> tuple[int, dict[int, int]]:
        """Return the number of records, and the end of each partition."""
        return len(self.records), {number: len(records) for number, records in self.partitions.items()}

    def cut(self, count: int, ends: Mapping[int, int]) -> None:
        """Remove what came after `ends` was called."""
        del self.records[count:]
        for number, records in self.partitions.items():
            del records[ends.get(number, 0) :]

    def append(self, record: WrittenRecord) -> None:
        self.records.append(record)
        if record.partition >= 0:
            self.partitions.setdefault(record.partition, []).append(record)


class MemoryClients:
    """Implements `TaskClients` without Kafka: records stay in memory.

    Records are refused as Kafka's client and brokers refuse them: see `streamrt.kafka.wire`.

    Args:
        now: returns the wall clock in milliseconds since the Unix epoch.
        max_record_bytes: size of the largest record that the client accepts, in bytes.
        settings: returns the settings of a topic.

    Attributes:
        offsets: the committed offsets.
        metadata: their metadata.
        writes_through: whether records of transactions are in their topics before the commit.
    """

    def __init__(
        self,
        now: Callable[[], int],
        max_record_bytes: int = CLIENT_MAX_BYTES,
        settings: Callable[[str], Mapping[str, Any]] = lambda topic: {},
    ) -> None:
        self._now = now
        self._max_record_bytes = max_record_bytes
        self._settings = settings
        self._lost: list[Exception] = []
        self._worker = uuid.uuid4().hex
        self._logs: dict[str, _Log] = {}
        self.writes_through = False
        self._origins: dict[str, list[Origin]] | None = None
        self.offsets: dict[TopicPartition, int] = {}
        self.metadata: dict[TopicPartition, str | None] = {}

    @property
    def worker(self) -> str:
        """Identifies this process."""
        return self._worker

    def written(self, topic: str) -> list[WrittenRecord]:
        """Return the records produced to a topic."""
        log = self._logs.get(topic)
        return [] if log is None else log.records

    def writer(self) -> RecordWriter:
        """Return the writer of at-least-once tasks."""
        return self

    def kept(self, task: TaskId) -> TransactionalRecordWriter | None:
        """Return None: a new writer costs nothing here."""

    def prepare_writers(self, owners: Mapping[TaskId, TopicPartition]) -> None:
        """Do nothing: a new writer costs nothing here."""

    def transactional(self, task: TaskId, owner: TopicPartition) -> TransactionalRecordWriter:
        """Return the exactly-once writer of a task."""
        return _MemoryTransaction(self)

    @contextlib.contextmanager
    def claiming(self, owner: TopicPartition, topic: str) -> Iterator[TransactionalRecordWriter]:
        """Yield a temporary writer."""
        yield _MemoryTransaction(self)

    @property
    def delivered(self) -> bool:
        """Return True: all records are delivered at once."""
        return True

    def send_pending(self) -> None:
        """Do nothing: there are no lingering records."""

    def release(self, task: TaskId) -> None:
        """Do nothing: there is no connection to close."""

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of an input partition; 0 at the beginning."""
        return self.offsets.get(partition, 0)

    def noted(self, partitions: Iterable[TopicPartition], *, stable: bool) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of input partitions, with their metadata."""
        return {
            partition: CommittedOffset(self.offsets.get(partition, 0), self.metadata.get(partition) or "")
            for partition in partitions
        }

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the first offset of a changelog partition and its end."""
        return 0, len(self._partition_log(partition))

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of changelog partitions."""
        return {partition: self.bounds(partition)[1] for partition in partitions}

    def changelog(self, partition: TopicPartition, start: int, end: int) -> Iterator[_Batch]:
        """Yield the records of a changelog partition."""
        found = [record for record in self._partition_log(partition)[start:end] if record is not None]
        keys = [record.key or b"" for record in found]
        headers = [dict(record.headers or ()).get(EPOCH_HEADER) for record in found]
        epochs = [value if isinstance(value, bytes) else None for value in headers]
        yield _Batch(keys, [record.value for record in found], [record.timestamp for record in found], end, epochs)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str | None]:
        """Return no ids: topics in memory are not created again during a run."""
        return dict.fromkeys(topics)

    def log_end(self, partition: TopicPartition) -> int:
        """Return 0: the test passes records in directly, so there is nothing to read ahead."""
        return 0

    def read(self, partition: TopicPartition, start: int, end: int) -> Iterator[Chunk]:
        """Yield nothing."""
        yield from ()

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        """Return whether an input partition has records in a range: in memory there are no transaction markers."""
        return start < end

    def now(self) -> int:
        """Return the wall clock of the test."""
        return self._now()

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        """Keep a record, unless the client would refuse it at once, or brokers later."""
        self.keep(topic, self.accepted(topic, value, key, timestamp, headers, partition))

    def accepted(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int,
    ) -> WrittenRecord:
        """Return a record as Kafka would have it.

        Raises:
            ProducerError: if the client would refuse it.
        """
        headers, stamp = client_headers(headers, topic), client_timestamp(timestamp, topic)
        require_size(topic, value, key, headers, self._max_record_bytes)
        return WrittenRecord(value, key, stamp or self._now(), headers, partition)

    def undeliverable(self, topic: str, record: WrittenRecord) -> ProducerError | None:
        """Return the error with which brokers would refuse a record, or None."""
        return exceeds_topic(topic, record.value, record.key, record.headers, self._settings(topic))

    def keep(self, topic: str, record: WrittenRecord) -> None:
        """Keep a record, or note that it is lost."""
        error = self.undeliverable(topic, record)
        if error is None:
            self._logs.setdefault(topic, _Log()).append(record)
            if self._origins is not None:
                self._origins.setdefault(topic, []).append(_current_origin())
        else:
            self._lost.append(error)

    def flush(self) -> list[Exception]:
        """Return the errors of the records that were lost since the last call."""
        lost, self._lost = self._lost, []
        return lost

    @contextlib.contextmanager
    def reversible(self, *, ordered: bool) -> Iterator[None]:
        """Keep records when they are produced, also those of transactions; an error takes back all of it.

        Args:
            ordered: whether to note from which input record each comes, for `fresh` and `put_in_order`.
        """
        ends = {topic: log.ends() for topic, log in self._logs.items()}
        offsets, metadata = dict(self.offsets), dict(self.metadata)
        self.writes_through, self._origins = True, {} if ordered else None
        try:
            yield
        except BaseException:
            for topic, log in self._logs.items():
                log.cut(*ends.get(topic, (0, {})))
            self.offsets, self.metadata, self._lost = offsets, metadata, []
            raise
        finally:
            self.writes_through, self._origins = False, None

    def fresh(self, topic: str, start: int) -> list[tuple[Origin, WrittenRecord]]:
        """Return the last records of a topic, with the input records from which they come.

        Args:
            topic: the topic.
            start: index of the first record, none of which was there before `reversible`.
        """
        records = self.written(topic)[start:]
        origins = (self._origins or {}).get(topic, [])
        return list(zip(origins[len(origins) - len(records) :], records, strict=True))

    def put_in_order(self, rank: Callable[[Origin], Any]) -> None:
        """Sort what was produced since `reversible` by the rank of the input records."""
        for topic, origins in (self._origins or {}).items():
            log = self._logs[topic]
            start = len(log.records) - len(origins)
            records, ranks = log.records[start:], [*map(rank, origins)]
            # Pairs of rank and record would be looked through for garbage, over and over again.
            order = sorted(range(len(ranks)), key=ranks.__getitem__)
            moved = Counter(record.partition for record in records)
            log.cut(start, {number: len(own) - moved.get(number, 0) for number, own in log.partitions.items()})
            for index in order:
                log.append(records[index])
        self._origins = None

    @property
    def has_lost(self) -> bool:
        """Whether brokers would have refused a record since the last `flush`."""
        return bool(self._lost)

    def end_transaction(
        self, topics: set[TopicPartition], offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None
    ) -> None:
        """Commit offsets, and write a marker to each changelog partition that was written to."""
        for partition in topics:
            self._partition_log(partition).append(None)
        self.commit_offsets(offsets, metadata)

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata) -> None:
        """Store offsets and their metadata."""
        self.offsets.update(offsets)
        for partition in offsets:
            self.metadata[partition] = metadata.get(partition) if isinstance(metadata, Mapping) else metadata

    def _partition_log(self, partition: TopicPartition) -> list[WrittenRecord | None]:
        return self._logs.setdefault(partition.topic, _Log()).partitions.setdefault(partition.partition, [])


class _MemoryTransaction:
    """Holds records back until they are committed."""

    usable = True

    def __init__(self, clients: MemoryClients) -> None:
        self._clients = clients
        self._held: list[tuple[str, WrittenRecord]] = []

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        record = self._clients.accepted(topic, value, key, timestamp, headers, partition)
        self._held.append((topic, record))
        if self._clients.writes_through:
            self._clients.keep(topic, record)

    def flush(self) -> list[Exception]:
        return list(filter(None, (self._clients.undeliverable(*held) for held in self._held)))

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> None:
        for error in self.flush():
            raise TransactionError(f"the transaction of the test driver failed: {error}", False) from error
        for topic, record in () if self._clients.writes_through else self._held:
            self._clients.keep(topic, record)
        touched = {TopicPartition(topic, record.partition) for topic, record in self._held if record.partition >= 0}
        self._held = []
        self._clients.end_transaction(touched, offsets, metadata)

    def abort(self) -> None:
        self._held = []


def _current_origin() -> Origin:
    provider = current_provider.get()
    if not isinstance(provider, OperatorChain):
        raise RuntimeError("a record was produced while no input record is processed")
    chunk, index, *_ = provider.place().where
    return chunk.topic, chunk.partition, chunk.offsets[index]
