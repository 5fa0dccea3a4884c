"""Places in Kafka's logs."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class OffsetRange(NamedTuple):
    """The records of one partition from `start` (included) to `end` (excluded)."""

    topic: str
    partition: int
    start: int
    end: int
