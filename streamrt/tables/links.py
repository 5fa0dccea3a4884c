"""How tables reach their topics: Kafka, or topics in memory."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, Protocol

from streamrt.kafka.inputs import InputBatch
from streamrt.kafka.topic_config import TopicConfig, TopicDefinition
from streamrt.records import Headers, TopicPartition

__all__ = ["Delivered", "RecordFeed", "RecordSender", "TableAdmin", "TableLinks"]

Delivered = Callable[[Exception | None, int, int, int], None]
"""Called when a record is delivered or lost: error or None, partition, offset, timestamp in ms. It must not raise, and may be
called in any thread that uses the sender."""


class TableAdmin(Protocol):
    """Looks at topics and changes them; `TopicAdmin` is one."""

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        """Return settings of topics, or None for those that do not exist."""

    def create_topics(
        self, topics: Iterable[TopicDefinition], timeout: float = 30, finalize_timeout: float = 60
    ) -> None:
        """Create topics."""

    def delete_topics(self, topic_names: Collection[str], timeout: float = 30) -> None:
        """Delete topics."""

    def topic_ids(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, str | None]:
        """Return Kafka's ids of topics."""

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
    """Writes records; with a transactional id, in transactions that `begin` and `commit` delimit."""

    def begin(self) -> None:
        """Begin a transaction."""

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
        """Accept a record; without a partition, the key decides (murmur2), or chance."""

    def poll(self, timeout: float = 0.0) -> None:
        """Call `on_delivery` of what was delivered."""

    def flush(self, timeout: float) -> int:
        """Wait until all is delivered or lost; return how many records are neither."""

    def commit(self, timeout: float) -> None:
        """Commit the transaction."""

    def abort(self, timeout: float) -> None:
        """Abort the transaction."""

    def close(self) -> None:
        """Drop what was not delivered, and close the connections."""


class TableLinks(Protocol):
    """Makes what tables read and write with."""

    def admin(self) -> TableAdmin:
        """Return the administration; one for all callers, closed with the catalogue."""

    def feed(self, options: Mapping[str, Any] | None = None) -> RecordFeed:
        """Return a new reader; the caller closes it."""

    def sender(self, options: Mapping[str, Any] | None = None, transactional_id: str | None = None) -> RecordSender:
        """Return a new writer; the caller closes it. A transactional id fences earlier writers with it."""
