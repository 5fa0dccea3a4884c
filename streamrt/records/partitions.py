"""Partitions and offset ranges of Kafka topics."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class OffsetRange(NamedTuple):
    """The records of one partition from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int
