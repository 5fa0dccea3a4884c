"""The report of a task about its work on an offset range."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamrt.common.replica_sizes import ReplicaSize
from streamrt.connectors import SinkBatch
from streamrt.errors import (
    ChangelogError,
    ConsumerError,
    ProcessingError,
    ProducerError,
    SchemaRegistryError,
    SinkError,
    StaleTokenError,
    StateError,
    StoreCorruptedError,
    StoreLockedError,
    StoreVersionError,
    StreamRTError,
)
from streamrt.records import OffsetRange, TopicPartition
from streamrt.secret import concealed, masked
from streamrt.topology import Measured, MetricId, Tally, TaskId, add_tallies, merged

_ERRORS: Mapping[str, type[StreamRTError]] = {
    "callback": ProcessingError,
    "consumer": ConsumerError,
    "processing": ProcessingError,
    "producer": ProducerError,
    "registry": SchemaRegistryError,
    "sink": SinkError,
    "state": StateError,
}
_STATE_ERRORS: tuple[type[StreamRTError], ...] = (
    ChangelogError,
    StaleTokenError,
    StoreCorruptedError,
    StoreLockedError,
    StoreVersionError,
)


class Pause(NamedTuple):
    """A pause that a sink has asked for, or a new attempt without a record that it rejects.

    Attributes:
        seconds: until the task is retried.
        reason: why; empty if the sink does not say.
        rejected: whether the sink rejects a record, which does not reach it again.
        sink: name of the sink; empty if it is unknown.
    """

    seconds: float
    reason: str = ""
    rejected: bool = False
    sink: str = ""

    def of(self, task: TaskId) -> str:
        """Return what happens to a task, for the log."""
        if self.rejected:
            return f"{task} begins again at its committed offsets, without a record that a sink rejects ({self.reason})"
        return f"a sink paused {task} for {self.seconds:.1f} s" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True)
class Failure:
    """The reason why a task stopped before the end of its range.

    Attributes:
        kind: the error callback that was called, "consumer", "processing" or "producer"; "callback" if a callback
            itself failed; "sink", "state" or "registry" for errors without a callback.
        partition: the input partition of the record; the task if the error has no record.
        offset: the offset of the record; None for a failed asynchronous delivery, which has no single input record.
        message: the error message; secrets are masked in it, and in what follows.
        cause: the original exception, if it can be pickled.
        traceback: its traceback as text, for the debug log.
        sink: name of the sink that failed; empty if none did.
    """

    kind: str
    partition: TopicPartition | TaskId
    offset: int | None
    message: str
    cause: Exception | None = None
    traceback: str = ""
    sink: str = ""

    def __post_init__(self) -> None:
        # Here, in the process that may have the secrets.
        object.__setattr__(self, "message", masked(self.message))
        object.__setattr__(self, "traceback", masked(self.traceback))
        object.__setattr__(self, "cause", None if self.cause is None else concealed(self.cause, sent=True))

    def error(self) -> StreamRTError:
        """Return the exception for `run()`; for errors of state and of inputs, of the most specific class."""
        kind = _ERRORS[self.kind]
        for special in _STATE_ERRORS if kind is StateError else ():
            if isinstance(self.cause, special):
                kind = special
        return kind(self.message)


@dataclass(frozen=True)
class Output:
    """An output of the last operator of a branch."""

    value: Any
    key: Any
    timestamp: int
    headers: Any
    topic: str
    partition: int
    offset: int

    def as_dict(self, metadata: bool) -> dict[str, Any]:
        """Return the value as a dict; any other value becomes the entry `_value`.

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
    """The progress of the restore of one store partition.

    Attributes:
        done: changelog offsets replayed so far.
        total: total changelog offsets to replay.
        records: records applied.
        finished: whether the store is ready for use.
    """

    done: int
    total: int
    records: int
    finished: bool


@dataclass(frozen=True)
class StoreTime:
    """The event time in one store partition, for stores that need a watermark.

    Attributes:
        observed: highest event time of any record since the store was opened, in milliseconds; None before the first.
        next_deadline: event time of the store's next work, in milliseconds; None if there is none.
        remembered: the stored stream time, in milliseconds, before the first record; None if there is none.
        next_processing_deadline: wall clock time of the store's next work, in milliseconds, for a store with deadlines of
            both kinds; None if there is none.
    """

    observed: int | None
    next_deadline: int | None
    remembered: int | None = None
    next_processing_deadline: int | None = None

    @property
    def reached(self) -> int | None:
        """The current event time of the store, in milliseconds; None if there is none."""
        return self.remembered if self.observed is None else self.observed


@dataclass(frozen=True)
class FailedRecord:
    """A record that failed and was skipped, or became a dead letter: the first one of its kind in some time.

    Attributes:
        task: the task.
        kind: "skipped record" or "dead letter".
        stage: where it failed: "deserialize", "process", "produce" or "sink".
        topic: topic of the record.
        offset: its offset; its partition is that of the task.
        operator: the operator that failed; empty if it was none. For a sink, its name.
        message: class and text of the error, without secrets.
        more: how many others of the kind have failed since the last one that was reported.
    """

    task: TaskId
    kind: str
    stage: str
    topic: str
    offset: int
    operator: str
    message: str
    more: int = 0


class StoreSize(NamedTuple):
    """The size of one store partition.

    Attributes:
        size: approximate size in bytes.
        entries: approximate number of keys, those of indexes included; None if it is unknown.
        snapshot_at: wall clock of its newest snapshot, in milliseconds; None if the process knows none.
        snapshot_size: size of that snapshot in bytes.
    """

    size: int
    entries: int | None
    snapshot_at: int | None = None
    snapshot_size: int | None = None


@dataclass
class Report:
    """Summary of the work of one task, or of several after `merge`.

    Attributes:
        ranges: the processed offsets, per input partition: everything below `end` is processed, and its output is
            durable.
        complete: False if a range was cut short by the time slice or the output limit.
        records: records read.
        produced: records sent to topics.
        skipped: records that failed and were skipped.
        dead_letters: records that failed and were written to the topic for dead letters.
        outputs: number of outputs of the last operator of each branch.
        collected: those outputs, if the specification requests them.
        shown: the items of `print` and `print_table`, as pairs of node id and item.
        processed: offsets of the processed records by partition, if the specification requests them.
        failure: the reason for an early stop that must end the application.
        stalled: the pauses that sinks have asked for, by task.
        interrupted: reasons why tasks must be retried from their committed offsets, by task.
        locked: the same for tasks whose stores another process has locked.
        sunk: batches for the sinks of the driver, as pairs of node id and batch.
        restores: restores under way, by task and store.
        restored: the tasks whose stores are restored and ready.
        workers: the process that made the commit, or found it made, by task.
        times: event times, by task and store.
        sent: the highest event time that is durable in an exchange, by task and topic.
        unfinished: whether tasks have unfinished work, which ticks must continue before their next records, by task.
        ended: the ids of the operators that have finished their work at the end of a bounded run, by task.
        seconds: elapsed time in seconds; 0 in resident mode.
        commit_seconds: time of it that commits took, in seconds; 0 if nothing was committed.
        read_bytes: size of the keys and values that were read.
        produced_bytes: size of the keys and values that were sent to topics.
        memory: resident memory of processes, in bytes, by name.
        metrics: what users' metrics have measured since the last report of their process; work that was aborted counts.
        tallies: what operators and the runtime have counted since then; work that was aborted counts.
        sizes: sizes of stores, by task and store; each is measured from time to time.
        block_cache: bytes in the block caches of processes, by name.
        replicas: sizes of the copies of tables, by the name of the process and table.
        standbys: what the copies of other instances' stores lack, in changelog offsets, by the name of the process and task.
        failed: records that failed and did not end the application; of each kind, one in a while.
    """

    ranges: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    complete: bool = True
    records: int = 0
    produced: int = 0
    skipped: int = 0
    dead_letters: int = 0
    outputs: int = 0
    collected: list[Output] = field(default_factory=list)
    shown: list[tuple[int, Any]] = field(default_factory=list)
    processed: dict[TopicPartition, list[int]] = field(default_factory=dict)
    failure: Failure | None = None
    stalled: dict[TaskId, Pause] = field(default_factory=dict)
    interrupted: dict[TaskId, str] = field(default_factory=dict)
    locked: dict[TaskId, str] = field(default_factory=dict)
    sunk: list[tuple[int, SinkBatch]] = field(default_factory=list)
    restores: dict[tuple[TaskId, str], RestoredPart] = field(default_factory=dict)
    restored: set[TaskId] = field(default_factory=set)
    workers: dict[TaskId, str] = field(default_factory=dict)
    times: dict[tuple[TaskId, str], StoreTime] = field(default_factory=dict)
    sent: dict[tuple[TaskId, str], int] = field(default_factory=dict)
    unfinished: dict[TaskId, bool] = field(default_factory=dict)
    ended: dict[TaskId, frozenset[int]] = field(default_factory=dict)
    seconds: float = 0.0
    commit_seconds: float = 0.0
    read_bytes: int = 0
    produced_bytes: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    metrics: dict[MetricId, Measured] = field(default_factory=dict)
    tallies: dict[Tally, float] = field(default_factory=dict)
    sizes: dict[tuple[TaskId, str], StoreSize] = field(default_factory=dict)
    block_cache: dict[str, int] = field(default_factory=dict)
    replicas: dict[str, dict[str, ReplicaSize]] = field(default_factory=dict)
    standbys: dict[str, dict[TaskId, int]] = field(default_factory=dict)
    failed: list[FailedRecord] = field(default_factory=list)

    def merge(self, other: "Report") -> None:
        """Add the report of another task; the first failure is kept."""
        self.ranges.update(other.ranges)
        self.complete = self.complete and other.complete
        self.records += other.records
        self.produced += other.produced
        self.skipped += other.skipped
        self.dead_letters += other.dead_letters
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
        self.ended.update(other.ended)
        self.times.update(other.times)
        self.sent.update(other.sent)
        self.seconds = max(self.seconds, other.seconds)
        # Tasks commit at the same time.
        self.commit_seconds = max(self.commit_seconds, other.commit_seconds)
        self.read_bytes += other.read_bytes
        self.produced_bytes += other.produced_bytes
        self.memory.update(other.memory)
        for name, measured in other.metrics.items():
            self.metrics[name] = merged(self.metrics.get(name), measured)
        add_tallies(self.tallies, other.tallies)
        self.sizes.update(other.sizes)
        self.block_cache.update(other.block_cache)
        self.replicas.update(other.replicas)
        self.standbys.update(other.standbys)
        self.failed += other.failed
