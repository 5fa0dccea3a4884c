"""Timestamps of records, and their types."""

import enum
from dataclasses import dataclass
from typing import Final

LATEST_TIMESTAMP_MS: Final = ((1 << 63) - 1) // 1_000
"""The latest timestamp of a record, in milliseconds: in microseconds, as Spark and databases count, it fits into 64 bits."""


class TimestampType(enum.IntEnum):
    """Meaning of a record's timestamp, with librdkafka's numbers."""

    TIMESTAMP_NOT_AVAILABLE = 0
    """The record has no timestamp."""
    TIMESTAMP_CREATE_TIME = 1
    """Set by the producer or the source of the data."""
    TIMESTAMP_LOG_APPEND_TIME = 2
    """Set by the broker when it appended the record."""


@dataclass(frozen=True)
class MessageTimestamp:
    """A record's timestamp with its type.

    Attributes:
        milliseconds: milliseconds since the Unix epoch (UTC), or None if there is no timestamp.
        type: meaning of the number.

    Example:
        >>> MessageTimestamp.create(1, 1_700_000_000_000).milliseconds
        1700000000000
        >>> MessageTimestamp.create(0, -1).milliseconds is None
        True
    """

    milliseconds: int | None
    type: TimestampType

    @classmethod
    def create(cls, timestamp_type: int, milliseconds: int) -> "MessageTimestamp":
        """Build a timestamp from the pair that `confluent_kafka.Message.timestamp()` returns.

        Args:
            timestamp_type: a member of `TimestampType`, or its number.
            milliseconds: milliseconds since the Unix epoch; ignored if there is no timestamp.

        Raises:
            ValueError: if `timestamp_type` is unknown.
        """
        kind = TimestampType(timestamp_type)
        if kind is TimestampType.TIMESTAMP_NOT_AVAILABLE:
            return cls(None, kind)
        return cls(milliseconds, kind)
