"""Records and their metadata."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from streamrt.records.headers import Headers
from streamrt.records.timestamps import MessageTimestamp, TimestampType


@dataclass(frozen=True)
class MessageContext:
    """Origin and metadata of the record that is being processed.

    Attributes:
        topic: name of its topic.
        partition: number of its partition.
        offset: its offset.
        size: size of its key and value together, in bytes.
        key: its key, deserialized.
        timestamp: its timestamp with the type, as delivered by the broker.
        headers: its headers, or None if it has none.
        leader_epoch: epoch of the partition's leader; None, because Spark's Kafka source does not provide it.
    """

    topic: str
    partition: int
    offset: int
    size: int
    key: Any = None
    timestamp: MessageTimestamp | None = None
    headers: Headers | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True)
class Record:
    """A deserialized record, as passed to error callbacks."""

    value: Any
    key: Any
    timestamp: int
    headers: Headers | None
    context: MessageContext

    @property
    def topic(self) -> str:
        """Name of the input topic."""
        return self.context.topic

    @property
    def partition(self) -> int:
        """Number of the input partition."""
        return self.context.partition

    @property
    def offset(self) -> int:
        """Offset in the input partition."""
        return self.context.offset

    @property
    def size(self) -> int:
        """Size of key and value together, in bytes."""
        return self.context.size

    @property
    def leader_epoch(self) -> int | None:
        """Epoch of the partition's leader, if known."""
        return self.context.leader_epoch


@runtime_checkable
class ConsumedMessage(Protocol):
    """A record from a consumer, with the methods of `confluent_kafka.Message`."""

    def topic(self) -> str:
        """Name of the topic."""

    def partition(self) -> int:
        """Number of the partition."""

    def offset(self) -> int:
        """Offset in the partition."""

    def key(self) -> bytes | None:
        """The key's bytes, or None."""

    def value(self) -> bytes | None:
        """The value's bytes, or None for a tombstone."""

    def timestamp(self) -> tuple[int, int]:
        """Type (see `TimestampType`) and milliseconds since the Unix epoch."""

    def headers(self) -> Headers | None:
        """The headers, or None."""

    def leader_epoch(self) -> int | None:
        """Epoch of the partition's leader, if known."""


class RawRecord:
    """A record as stored in Kafka, before deserialization.

    It has the methods of `confluent_kafka.Message`, so consumer error callbacks for that class work unchanged.
    """

    __slots__ = (
        "_headers",
        "_key",
        "_offset",
        "_partition",
        "_timestamp",
        "_timestamp_type",
        "_topic",
        "_value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        timestamp_type: int = TimestampType.TIMESTAMP_CREATE_TIME,
        headers: Headers | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._timestamp = timestamp
        self._timestamp_type = timestamp_type
        self._headers = headers

    def topic(self) -> str:
        """Name of the topic."""
        return self._topic

    def partition(self) -> int:
        """Number of the partition."""
        return self._partition

    def offset(self) -> int:
        """Offset in the partition."""
        return self._offset

    def key(self) -> bytes | None:
        """The key's bytes, or None."""
        return self._key

    def value(self) -> bytes | None:
        """The value's bytes, or None for a tombstone."""
        return self._value

    def timestamp(self) -> tuple[int, int]:
        """Type (see `TimestampType`) and milliseconds since the Unix epoch."""
        return self._timestamp_type, self._timestamp

    def headers(self) -> Headers | None:
        """The headers, or None."""
        return self._headers

    def latency(self) -> float | None:
        """None: only produced records have a latency."""
        return None

    def leader_epoch(self) -> int | None:
        """None: Spark's Kafka source does not provide it."""
        return None

    def error(self) -> None:
        """None: a received record has no error."""

    def __len__(self) -> int:
        return len(self._key or b"") + len(self._value or b"")

    def __repr__(self) -> str:
        return f"RawRecord({self._topic}[{self._partition}] at offset {self._offset}, {len(self)} bytes)"
