"""What a task tells about the offset range that it worked on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamrt.errors import ConsumerError, ProcessingError, ProducerError, StreamRTError
from streamrt.models import OffsetRange, TopicPartition

_ERRORS: Mapping[str, type[StreamRTError]] = {
    "callback": ProcessingError,
    "consumer": ConsumerError,
    "processing": ProcessingError,
    "producer": ProducerError,
}


@dataclass(frozen=True)
class Failure:
    """Why a task stopped before the end of its range.

    Attributes:
        kind: which error callback was asked, "consumer", "processing" or "producer"; "callback" if one failed itself.
        partition: where.
        offset: at which record; None where an asynchronous delivery failed, which has no single input record.
        message: one sentence.
        cause: the exception as it was raised, if it can be pickled.
        traceback: its traceback as text, for the debug log.
    """

    kind: str
    partition: TopicPartition
    offset: int | None
    message: str
    cause: Exception | None = None
    traceback: str = ""

    def error(self) -> StreamRTError:
        """Return the exception for whoever runs the application."""
        return _ERRORS[self.kind](self.message)


@dataclass(frozen=True)
class Output:
    """What left the last operator of a branch."""

    value: Any
    key: Any
    timestamp: int
    headers: Any
    topic: str
    partition: int
    offset: int


@dataclass
class Report:
    """Sums up the work of one task, or of several after `merge`.

    Attributes:
        ranges: the offsets that are done, per partition: everything below `end` is processed and its output durable.
        complete: False if a range was cut short, because time was up or enough outputs were there.
        records: records read.
        produced: records sent to topics.
        outputs: results that left the last operator of each branch.
        collected: those results, if the specification asked for them.
        shown: what `print` and `print_table` want people to see, as pairs of a node's id and an item.
        processed: offsets of the processed records by partition, if the specification asked for them.
        failure: why the task stopped early.
        seconds: time spent.
    """

    ranges: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    complete: bool = True
    records: int = 0
    produced: int = 0
    outputs: int = 0
    collected: list[Output] = field(default_factory=list)
    shown: list[tuple[int, Any]] = field(default_factory=list)
    processed: dict[TopicPartition, list[int]] = field(default_factory=dict)
    failure: Failure | None = None
    seconds: float = 0.0

    def merge(self, other: "Report") -> None:
        """Add the report of another task; of two failures the first stays."""
        self.ranges.update(other.ranges)
        self.complete = self.complete and other.complete
        self.records += other.records
        self.produced += other.produced
        self.outputs += other.outputs
        self.collected += other.collected
        self.shown += other.shown
        for partition, offsets in other.processed.items():
            self.processed.setdefault(partition, []).extend(offsets)
        self.failure = self.failure or other.failure
        self.seconds = max(self.seconds, other.seconds)
