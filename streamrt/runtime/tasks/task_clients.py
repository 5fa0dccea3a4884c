"""The Kafka interface of a task. The Spark runner implements it with Kafka clients, tests with memory."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.records import Headers, TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.topology import TaskId


class RecordWriter(Protocol):
    """Writes records to topics; implemented by Kafka's producer and by the memory of the test driver."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        """Accept a record for delivery; may return before it is delivered.

        Args:
            topic: the target topic.
            value: the value; None is a tombstone.
            key: the key.
            timestamp: milliseconds since the Unix epoch; None stands for the wall clock, and 0 is written
                as 1.
            headers: the headers.
            partition: the partition; -1 to choose it by the key.

        Raises:
            ProducerError: if the record is rejected at once, for example because it is too large.
            WriterFailedError: if the writer cannot continue, and may have lost accepted records.
        """

    def flush(self) -> list[Exception]:
        """Wait until each record is delivered or has failed; return one error for each failed record.

        Raises:
            WriterFailedError: if the writer cannot continue, and may have lost accepted records.
        """


class TransactionalRecordWriter(RecordWriter, Protocol):
    """A transactional record writer: its records become visible together with committed offsets, or never."""

    @property
    def usable(self) -> bool:
        """Whether another transaction may begin; False after any error, and then a new writer is needed."""

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> None:
        """Commit the records and the offsets of the input.

        Raises:
            TransactionError: if the transaction was aborted or fenced, or its outcome is unknown.
        """

    def abort(self) -> None:
        """Drop the records; `read_committed` consumers never see them."""


class ChangelogRecords(Protocol):
    """Consecutive records of a changelog partition, as columns."""

    @property
    def keys(self) -> Sequence[bytes]:
        """Keys in the format of the store."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values in the format of the store; None deletes."""

    @property
    def timestamps(self) -> Sequence[int]:
        """Milliseconds since the Unix epoch."""

    @property
    def next_offset(self) -> int:
        """The offset after the range that these records cover."""

    @property
    def epochs(self) -> Sequence[bytes | None]:
        """With at-least-once, the epochs of their writers; None for a record without one."""


class TaskClients(Protocol):
    """Kafka writers and readers for tasks. Used by one thread."""

    @property
    def worker(self) -> str:
        """A unique name of this process among those that run tasks of the application."""

    def writer(self) -> RecordWriter:
        """Return the writer for at-least-once; tasks share it."""

    def kept(self, task: TaskId) -> TransactionalRecordWriter | None:
        """Return the transactional writer that this process has for a task, if it is still usable."""

    def prepare_writers(self, owners: Mapping[TaskId, TopicPartition]) -> None:
        """Start the transactional writers of several tasks at once, since each waits for brokers.

        `transactional` returns them, and raises what failed.

        Args:
            owners: the tasks, each with the input partition that its transactional id is named after.
        """

    def transactional(self, task: TaskId, owner: TopicPartition) -> TransactionalRecordWriter:
        """Create and keep a transactional writer for a task; it fences every earlier writer with the same id.

        Args:
            task: the task.
            owner: the input partition that the transactional id is named after.

        Raises:
            TransactionError: if Kafka rejects the start of the writer.
        """

    def claiming(self, owner: TopicPartition, topic: str) -> AbstractContextManager[TransactionalRecordWriter]:
        """Return a temporary transactional writer; it fences every earlier writer with the same id.

        Args:
            owner: the task or input partition that the transactional id is named after.
            topic: any existing topic.

        Raises:
            TransactionError: if Kafka rejects the start of the writer.
        """

    @property
    def delivered(self) -> bool:
        """Whether all records of the at-least-once writer were delivered or rejected."""

    def send_pending(self) -> None:
        """Send lingering records now; called when the task is idle."""

    def release(self, task: TaskId) -> None:
        """Drop the transactional writer of a task."""

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of the group, after pending transactions on it have ended."""

    def noted(self, partitions: Iterable[TopicPartition], *, stable: bool) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of input partitions with their metadata.

        Args:
            partitions: the input partitions.
            stable: whether to wait until pending transactions on these offsets have ended.
        """

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the first offset and the high watermark of a partition; records of open transactions count."""

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks of partitions, with one request; see `bounds`."""

    def changelog(self, partition: TopicPartition, start: int, end: int) -> Iterator[ChangelogRecords]:
        """Yield the committed records of a changelog partition from `start` to `end`.

        Raises:
            ChangelogError: if `end` cannot be reached.
        """

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str | None]:
        """Return Kafka's ids of topics; None for one that does not exist.

        Raises:
            KafkaRequestError: if brokers refuse or do not answer.
        """

    def log_end(self, partition: TopicPartition) -> int:
        """Return the last stable offset of an input partition."""

    def read(self, partition: TopicPartition, start: int, end: int) -> Iterator[Chunk]:
        """Yield the committed records of an input partition from `start` to below `end`, before they are delivered.

        Args:
            partition: the input partition.
            start: first offset.
            end: offset after the last one; at most `log_end`.

        Raises:
            KafkaRequestError: if the records cannot be read.
        """

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        """Return whether an offset range of a partition has committed records, and not only transaction markers."""

    def now(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""


class _NoWriter:
    """The writer while no task is open; it rejects all records."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        raise RuntimeError(f"a record for topic {topic!r} was produced while no task is open")

    def flush(self) -> list[Exception]:
        return []


no_writer: RecordWriter = _NoWriter()
