"""What a task tells about the offset range that it worked on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamrt.connectors import SinkBatch
from streamrt.errors import (
    ChangelogError,
    ConsumerError,
    ProcessingError,
    ProducerError,
    SchemaRegistryError,
    SinkError,
    StateError,
    StoreCorruptedError,
    StoreLockedError,
    StoreVersionError,
    StreamRTError,
)
from streamrt.models import OffsetRange, TopicPartition

_ERRORS: Mapping[str, type[StreamRTError]] = {
    "callback": ProcessingError,
    "consumer": ConsumerError,
    "processing": ProcessingError,
    "producer": ProducerError,
    "registry": SchemaRegistryError,
    "sink": SinkError,
    "state": StateError,
}
_STATE_ERRORS = (ChangelogError, StoreCorruptedError, StoreLockedError, StoreVersionError)


@dataclass(frozen=True)
class Failure:
    """Why a task stopped before the end of its range.

    Attributes:
        kind: which error callback was asked, "consumer", "processing" or "producer"; "callback" if one failed itself; "sink",
            "state" or "registry" for what has no callback.
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
        """Return the exception for whoever runs the application; where state is the trouble, of the most telling class."""
        kind = _ERRORS[self.kind]
        for special in _STATE_ERRORS if kind is StateError else ():
            if isinstance(self.cause, special):
                kind = special
        return kind(self.message)


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

    def as_dict(self, metadata: bool) -> dict[str, Any]:
        """Return the value as a dict; one that is none is put under `_value`.

        Args:
            metadata: whether to add `_key`, `_timestamp`, `_headers`, `_topic`, `_partition` and `_offset`.

        Example:
            >>> Output(5, b"k", 0, None, "in", 0, 7).as_dict(metadata=False)
            {'_value': 5}
        """
        value = self.value if isinstance(self.value, Mapping) else {"_value": self.value}
        if not metadata:
            return dict(value)
        return {
            "_key": self.key,
            "_timestamp": self.timestamp,
            "_headers": self.headers,
            "_topic": self.topic,
            "_partition": self.partition,
            "_offset": self.offset,
            **value,
        }


@dataclass(frozen=True)
class RestoredPart:
    """How far the restore of one store partition is.

    Attributes:
        done: changelog offsets replayed so far.
        total: changelog offsets to replay in all.
        records: records applied.
        finished: whether the store can be used.
    """

    done: int
    total: int
    records: int
    finished: bool


@dataclass(frozen=True)
class StoreTime:
    """Where event time is in one store partition, for stores that want a watermark.

    Attributes:
        observed: highest event time that any record has brought since the store was opened, in milliseconds; None before
            the first.
        next_deadline: event time at which the store has something to do; None if it waits for nothing.
        remembered: before the first record, up to where time was applied to the store; None if that was never.
    """

    observed: int | None
    next_deadline: int | None
    remembered: int | None = None

    @property
    def reached(self) -> int | None:
        """Up to where event time has come in the store; None if it has not begun."""
        return self.remembered if self.observed is None else self.observed


@dataclass
class Report:
    """Sums up the work of one task, or of several after `merge`.

    Attributes:
        ranges: the offsets that are done, per input partition: everything below `end` is processed and its output durable.
        complete: False if a range was cut short, because time was up or enough outputs were there.
        records: records read.
        produced: records sent to topics.
        outputs: results that left the last operator of each branch.
        collected: those results, if the specification asked for them.
        shown: what `print` and `print_table` want people to see, as pairs of a node's id and an item.
        processed: offsets of the processed records by partition, if the specification asked for them.
        failure: why the task stopped early, if the application must end for it.
        stalled: seconds after which tasks shall be tried again, because a sink wants no records now.
        interrupted: why tasks must be tried again, from what is committed.
        locked: the same for tasks whose stores another process uses.
        sunk: what sinks of the driver shall write, as pairs of a node's id and a batch.
        restores: restores under way, by task and store.
        restored: the tasks whose stores are ready after a restore.
        workers: the process that made the commit, or found it made, by task.
        times: where event time is, by task and store.
        sent: the highest event time that was sent into an exchange, and is durable there, by task and topic.
        unfinished: whether tasks have work left over, which ticks must go on with before their next records, by task.
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
    stalled: dict[TopicPartition, float] = field(default_factory=dict)
    interrupted: dict[TopicPartition, str] = field(default_factory=dict)
    locked: dict[TopicPartition, str] = field(default_factory=dict)
    sunk: list[tuple[int, SinkBatch]] = field(default_factory=list)
    restores: dict[tuple[TopicPartition, str], RestoredPart] = field(default_factory=dict)
    restored: set[TopicPartition] = field(default_factory=set)
    workers: dict[TopicPartition, str] = field(default_factory=dict)
    times: dict[tuple[TopicPartition, str], StoreTime] = field(default_factory=dict)
    sent: dict[tuple[TopicPartition, str], int] = field(default_factory=dict)
    unfinished: dict[TopicPartition, bool] = field(default_factory=dict)
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
        self.stalled.update(other.stalled)
        self.interrupted.update(other.interrupted)
        self.locked.update(other.locked)
        self.sunk += other.sunk
        self.restores.update(other.restores)
        self.restored |= other.restored
        self.workers.update(other.workers)
        self.unfinished.update(other.unfinished)
        self.times.update(other.times)
        self.sent.update(other.sent)
        self.seconds = max(self.seconds, other.seconds)
