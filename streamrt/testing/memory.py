"""Test double of Kafka for the test driver: topics, changelogs and committed offsets in memory."""

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.committed import CommittedOffset
from streamrt.kafka.stamps import client_timestamp
from streamrt.records import Headers, TopicPartition
from streamrt.records.headers import EPOCH_HEADER
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.clients import RecordWriter, TransactionalRecordWriter
from streamrt.topology import TaskId

__all__ = ["MemoryClients", "WrittenRecord"]


@dataclass(frozen=True)
class WrittenRecord:
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

    def append(self, record: WrittenRecord) -> None:
        self.records.append(record)
        if record.partition >= 0:
            self.partitions.setdefault(record.partition, []).append(record)


class MemoryClients:
    """Implements `TaskClients` without Kafka: records stay in memory.

    Args:
        now: returns the wall clock in milliseconds since the Unix epoch.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._worker = uuid.uuid4().hex
        self._logs: dict[str, _Log] = {}
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
        return 0, len(self._partition(partition))

    def changelog(self, partition: TopicPartition, start: int, end: int) -> Iterator[_Batch]:
        """Yield the records of a changelog partition."""
        found = [record for record in self._partition(partition)[start:end] if record is not None]
        keys = [record.key or b"" for record in found]
        headers = [dict(record.headers or ()).get(EPOCH_HEADER) for record in found]
        epochs = [value if isinstance(value, bytes) else None for value in headers]
        yield _Batch(keys, [record.value for record in found], [record.timestamp for record in found], end, epochs)

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
        """Keep a record."""
        record = WrittenRecord(value, key, client_timestamp(timestamp, topic) or self._now(), headers, partition)
        self._logs.setdefault(topic, _Log()).append(record)

    def flush(self) -> list[Exception]:
        """Return no errors: no record is lost."""
        return []

    def end_transaction(
        self, topics: set[TopicPartition], offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None
    ) -> None:
        """Commit offsets, and write a marker to each changelog partition that was written to."""
        for partition in topics:
            self._partition(partition).append(None)
        self.commit_offsets(offsets, metadata)

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata) -> None:
        """Store offsets and their metadata."""
        self.offsets.update(offsets)
        for partition in offsets:
            self.metadata[partition] = metadata.get(partition) if isinstance(metadata, Mapping) else metadata

    def _partition(self, partition: TopicPartition) -> list[WrittenRecord | None]:
        return self._logs.setdefault(partition.topic, _Log()).partitions.setdefault(partition.partition, [])


class _MemoryTransaction:
    """Holds records back until they are committed."""

    usable = True

    def __init__(self, clients: MemoryClients) -> None:
        self._clients = clients
        self._held: list[tuple[str, bytes | None, bytes | None, int | None, Headers | None, int]] = []

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        # Kafka's client refuses it here, too, and not at the end of the transaction.
        client_timestamp(timestamp, topic)
        self._held.append((topic, value, key, timestamp, headers, partition))

    def flush(self) -> list[Exception]:
        return []

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> None:
        for record in self._held:
            self._clients.produce(*record)
        touched = {TopicPartition(record[0], record[5]) for record in self._held if record[5] >= 0}
        self._held = []
        self._clients.end_transaction(touched, offsets, metadata)

    def abort(self) -> None:
        self._held = []
