"""How tables reach their topics: Kafka, or topics in memory."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, Protocol

from streamrt.kafka.cluster.topic_config import PartitionReplicas, TopicConfig, TopicDefinition
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.kafka.writing.portion import Portion
from streamrt.kafka.writing.sender import Delivered
from streamrt.records import Headers, TopicPartition

__all__ = ["RecordFeed", "RecordSender", "TableAdmin", "TableLinks"]


class TableAdmin(Protocol):
    """Looks at topics and changes them; `TopicAdmin` is one."""

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        """Return settings of topics, or None for those that do not exist."""

    def create_topics(
        self, topics: Iterable[TopicDefinition], timeout: float = 30, finalize_timeout: float = 60
    ) -> None:
        """Create topics."""

    def change_settings(self, topic_name: str, settings: Mapping[str, str | None], timeout: float = 30) -> None:
        """Change settings of a topic; None returns to the cluster's."""

    def delete_topics(self, topic_names: Collection[str], timeout: float = 30) -> None:
        """Delete topics."""

    def topic_ids(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, str | None]:
        """Return Kafka's ids of topics."""

    def partition_replicas(self, topic_name: str, timeout: float = 30) -> list[PartitionReplicas]:
        """Return where the partitions of a topic are; none if it does not exist."""

    def offset_bounds(
        self,
        partitions: Collection[TopicPartition],
        timeout: float = 30,
        *,
        isolation_level: Literal["read_committed", "read_uncommitted"] = "read_uncommitted",
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end offset of partitions."""

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int, timeout: float = 30
    ) -> dict[TopicPartition, int]:
        """Return the offsets of the first records that are not older than a time."""

    def close(self) -> None:
        """Close the connections."""


class RecordFeed(Protocol):
    """Reads committed records of many partitions; `PartitionFeed` is one, and says what each method does."""

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Assign partitions at offsets, paused."""

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Unassign partitions."""

    def poll(self, timeout_s: float, records: int) -> list[tuple[TopicPartition, InputBatch]]:
        """Return available records."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of partitions."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of partitions again."""

    def ends(self) -> dict[TopicPartition, int]:
        """Return the end offsets of partitions that are read to their ends."""

    def close(self) -> None:
        """Close the connections."""


class RecordSender(Protocol):
    """Writes records, and, with a transactional id, in transactions: the first record begins one.

    Use it in one thread at a time. In a transaction, methods raise TransactionError as soon as it cannot be committed;
    its `fenced` says whether another sender has probably taken the id.
    """

    @property
    def usable(self) -> bool:
        """Whether it takes more records. If not, a new one is necessary.

        So it is after an error, and after a commit during which one occurred. A new sender with the same id fences
        any process that has taken it meanwhile, so look first whether one has.
        """

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
        """Accept a record, and wait while the queue is full; without a partition, the key decides (murmur2), or chance.

        Raises:
            ProducerError: if the record is refused at once, for example because it is too large.
        """

    def produce_all(self, topic: str, portion: Portion) -> None:
        """Accept the records of a portion in their order, and wait while the queue is full.

        Raises:
            ProducerError: if a record is refused at once; `portion.accepted` says how many are not.
        """

    def partitions(self, topic: str, timeout: float) -> int | None:
        """Return how many partitions a topic has now; None if that is not known in time."""

    def poll(self, timeout: float = 0.0) -> None:
        """Call `on_delivery` of what was delivered, and tell portions of it."""

    def flush(self, timeout: float) -> int:
        """Wait until all records are delivered or lost; return how many are neither."""

    def commit(self) -> None:
        """Commit the transaction, if one is open. After a TransactionError it may or may not be committed."""

    def abort(self) -> None:
        """Abort the transaction, if one is open."""

    def close(self) -> None:
        """Drop what was not delivered, and close the connections."""


class TableLinks(Protocol):
    """Makes what tables read and write with."""

    def admin(self) -> TableAdmin:
        """Return the administration; one for all callers, closed with the catalogue."""

    def feed(self, options: Mapping[str, Any] | None = None) -> RecordFeed:
        """Return a new reader; the caller closes it."""

    def sender(self, options: Mapping[str, Any] | None = None, transactional_id: str | None = None) -> RecordSender:
        """Return a new writer; the caller closes it.

        Args:
            options: producer options of librdkafka.
            transactional_id: id under which one writer at a time can commit: earlier ones with it are fenced, and their open
                transactions aborted, before this returns.
        """
