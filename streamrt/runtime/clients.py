"""The edges of a task: what it needs from Kafka. The Spark runner gives it real clients, tests give it memory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from streamrt.kafka import CommittedOffset, OffsetMetadata
from streamrt.models import Headers, TopicPartition
from streamrt.runtime.chunk import Chunk


class RecordWriter(Protocol):
    """Takes records for topics. Kafka's producer is one, the test driver's memory another."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        """Take a record for delivery; may return before it is delivered.

        Args:
            topic: where to.
            value: the value; None is a tombstone.
            key: the key.
            timestamp: milliseconds since the Unix epoch; 0 is the wall clock.
            headers: the headers.
            partition: the partition; -1 lets the key decide.

        Raises:
            ProducerError: if the record is refused at once, such as one that is too large.
            WriterFailedError: if the writer cannot go on, and may have lost what it had taken.
        """

    def flush(self) -> list[Exception]:
        """Wait until each record is delivered or has failed; return one error for each that failed.

        Raises:
            WriterFailedError: if the writer cannot go on, and may have lost what it had taken.
        """


class TransactionWriter(RecordWriter, Protocol):
    """A record writer whose records become visible together with committed offsets, or never."""

    @property
    def usable(self) -> bool:
        """Whether another transaction may begin; after any trouble a new writer must be made."""

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> None:
        """Commit the records and the offsets of the input.

        Raises:
            TransactionError: if the transaction was aborted or fenced, or its outcome is not known.
        """

    def abort(self) -> None:
        """Drop the records; whoever reads committed records never sees them."""


class ChangelogRecords(Protocol):
    """Consecutive records of a changelog partition, column by column."""

    @property
    def keys(self) -> Sequence[bytes]:
        """Keys as the store has them."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values as the store has them; None deletes."""

    @property
    def timestamps(self) -> Sequence[int]:
        """Milliseconds since the Unix epoch."""

    @property
    def next_offset(self) -> int:
        """The offset after all that these records cover."""

    @property
    def epochs(self) -> Sequence[bytes | None]:
        """The epochs of their writers, at least once; None where a record has none."""


class TaskClients(Protocol):
    """Gives tasks what they need from Kafka. Used by one thread."""

    @property
    def worker(self) -> str:
        """Tells this process from all others that run tasks of the application."""

    def writer(self) -> RecordWriter:
        """Return the writer of tasks that produce at least once; the same one each time."""

    def kept(self, task: TopicPartition) -> TransactionWriter | None:
        """Return the transactional writer that this process has for a task, if it may go on."""

    def transactional(self, task: TopicPartition, owner: TopicPartition) -> TransactionWriter:
        """Return a new writer for a task, which is kept; fences every earlier writer with the same id.

        Args:
            task: the task: an input partition, or what stands for those of several topics.
            owner: the input partition that the transactional id belongs to.

        Raises:
            TransactionError: if Kafka does not let the writer begin.
        """

    def claiming(self, owner: TopicPartition, topic: str) -> AbstractContextManager[TransactionWriter]:
        """Return a new writer for a moment; fences every earlier writer with the same id.

        Args:
            owner: what the transactional id belongs to.
            topic: a topic that exists.

        Raises:
            TransactionError: if Kafka does not let the writer begin.
        """

    @property
    def delivered(self) -> bool:
        """Whether all that was handed to the writer of tasks is in Kafka, or was refused."""

    def hurry(self) -> None:
        """Send what writers hold back to send it with more; called when there is nothing more to do."""

    def release(self, task: TopicPartition) -> None:
        """Let go of the transactional writer of a task."""

    def committed(self, place: TopicPartition) -> int | None:
        """Return the committed offset of the group, once no transaction is about to move it."""

    def noted(self, places: Iterable[TopicPartition], *, stable: bool) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of input partitions with what is stored with them.

        Args:
            places: the input partitions.
            stable: whether to wait until no transaction is about to move one of them.
        """

    def bounds(self, place: TopicPartition) -> tuple[int, int]:
        """Return the first offset of a partition and its high watermark, whatever transactions are open."""

    def changelog(self, place: TopicPartition, start: int, end: int) -> Iterator[ChangelogRecords]:
        """Yield the committed records of a changelog partition from `start` until `end` is reached.

        Raises:
            ChangelogError: if `end` cannot be reached.
        """

    def log_end(self, place: TopicPartition) -> int:
        """Return the offset before which the records of an input partition can be read now: no open transaction has any."""

    def read(self, place: TopicPartition, start: int, end: int) -> Iterator[Chunk]:
        """Yield the committed records of an input partition from `start` to below `end`, ahead of whoever delivers them.

        Args:
            place: the input partition.
            start: first offset.
            end: offset after the last one, as `log_end` has told it.

        Raises:
            KafkaRequestError: if they cannot be read.
        """

    def has_records(self, place: TopicPartition, start: int, end: int) -> bool:
        """Tell whether a partition has committed records in an offset range, which may hold markers only."""

    def now(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""


class _NoWriter:
    """Stands where no session is open."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        raise RuntimeError(f"a record for topic {topic!r} was produced while no session is open")

    def flush(self) -> list[Exception]:
        return []


no_writer: RecordWriter = _NoWriter()
