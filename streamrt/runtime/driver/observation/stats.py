"""Statistics of an application at one moment, from its own counters and from Kafka."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from streamrt.records import TopicPartition
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.observation.meters import MetersSnapshot
from streamrt.runtime.driver.observation.recent import RecentError
from streamrt.runtime.sources.manager import SourceStats

__all__ = ["ApplicationStats", "PartitionStats", "StoreStats", "store_stats"]


@dataclass(frozen=True)
class PartitionStats:
    """One partition of a topic that the application reads, a repartition topic included.

    Attributes:
        position: the next offset to process, if the partition is assigned to this instance.
        committed: the next offset to process after a restart, of all instances; None if there is none, or if Kafka did not
            answer.
        end: the offset after the last record; None if Kafka did not answer.
        lag: the number of offsets between the two; None if Kafka did not answer. Transaction markers count.
        paused: whether this instance is to read it only after `resume`.
    """

    position: int | None
    committed: int | None
    end: int | None
    lag: int | None
    paused: bool

    @classmethod
    def of(
        cls, position: int | None, committed: int | None, bounds: tuple[int, int] | None, *, paused: bool
    ) -> "PartitionStats":
        """Return the numbers of a partition.

        Args:
            position: the next offset to process.
            committed: the committed offset.
            bounds: the first offset and the end offset; None if Kafka did not answer.
            paused: whether the topic is paused.

        Example:
            >>> PartitionStats.of(7, 5, (0, 9), paused=False).lag, PartitionStats.of(None, None, (4, 9), paused=False).lag
            (4, 5)
        """
        if bounds is None:
            return cls(position, None, None, None, paused)
        first, end = bounds
        return cls(position, committed, end, max(0, end - max(first, committed or 0)), paused)


@dataclass(frozen=True)
class StoreStats:
    """A store in this instance, over its partitions here.

    Attributes:
        partitions: how many of them were measured.
        rows: approximate number of keys, those of indexes included; None if it is unknown. Keys that were deleted or written
            several times may count too often until RocksDB merges its files.
        bytes: approximate size of the data.
        restored: how many partitions were restored since the process began.
        restoring: changelog offsets left to replay in those that are being restored.
    """

    partitions: int = 0
    rows: int | None = None
    bytes: int = 0
    restored: int = 0
    restoring: int = 0


def store_stats(meters: MetersSnapshot) -> dict[str, dict[str, StoreStats]]:
    """Return the numbers of the stores, by stream and name.

    Args:
        meters: what reports have said.
    """
    found: dict[tuple[str, str], StoreStats] = {}
    for (task, store), size in meters.sizes.items():
        known = found.get((task.stream, store), StoreStats(rows=0))
        found[task.stream, store] = replace(
            known,
            partitions=known.partitions + 1,
            rows=None if known.rows is None or size.entries is None else known.rows + size.entries,
            bytes=known.bytes + size.size,
        )
    for name, count in meters.restored_stores.items():
        found[name] = replace(found.get(name, StoreStats()), restored=count)
    for (task, store), part in meters.restoring.items():
        known = found.get((task.stream, store), StoreStats())
        found[task.stream, store] = replace(known, restoring=known.restoring + max(0, part.total - part.done))
    streams: dict[str, dict[str, StoreStats]] = {}
    for (stream, store), numbers in sorted(found.items()):
        streams.setdefault(stream, {})[store] = numbers
    return streams


@dataclass(frozen=True)
class ApplicationStats:
    """The numbers of an application in this process.

    Attributes:
        status: the state.
        desired_status: the state that callers have asked for last.
        started_at: when the current or last run began; None before the first one.
        uptime: seconds since then; 0 if nothing runs.
        restarts: number of restarts after failures, by a `RestartPolicy`, since `run()` or `start()`.
        error: the error that has ended the last run; empty without one.
        records: records read since the current or last run began.
        outputs: records sent to topics.
        batches: micro-batches processed; in resident mode, commits made.
        rate: records read per second, over the last seconds.
        waiting_for: what the start waits for; empty after the start.
        partitions: the partitions of all topics that the application reads, those of other instances included.
        sources: the sources, by name.
        kafka_error: why Kafka did not answer; then offsets are missing.
        skipped: records that failed and were skipped.
        dead_letters: records that failed and were written to the topic for dead letters.
        late_records: records that came too late for all of their windows, since the process began.
        rates: offsets processed per second in this instance, over the last seconds, by topic.
        stores: the stores in this instance, by stream and name. They are measured with commits, every 30 seconds.
        errors: the last twenty errors of each part, by kind ("source", "sink" or "topic") and name, the oldest first. If many
            records of a topic fail in the same way, one in ten seconds is listed.
    """

    status: ApplicationStatus
    desired_status: ApplicationStatus
    started_at: datetime | None
    uptime: float
    restarts: int
    error: str
    records: int
    outputs: int
    batches: int
    rate: float
    waiting_for: str
    partitions: Mapping[TopicPartition, PartitionStats]
    sources: Mapping[str, SourceStats]
    kafka_error: str = ""
    skipped: int = 0
    dead_letters: int = 0
    late_records: int = 0
    rates: Mapping[str, float] = field(default_factory=dict)
    stores: Mapping[str, Mapping[str, StoreStats]] = field(default_factory=dict)
    errors: Mapping[str, Mapping[str, tuple[RecentError, ...]]] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """The lag of all partitions together, as far as it is known."""
        return sum(each.lag or 0 for each in self.partitions.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON has them: names of states, times as ISO 8601, partitions by topic and number."""
        found = asdict(self)
        topics: dict[str, dict[str, Any]] = {}
        for partition, numbers in sorted(self.partitions.items()):
            topics.setdefault(partition.topic, {})[str(partition.partition)] = asdict(numbers)
        return {
            **found,
            "status": self.status.value,
            "desired_status": self.desired_status.value,
            "started_at": None if self.started_at is None else self.started_at.isoformat(),
            "partitions": topics,
            "sources": {name: asdict(source) for name, source in self.sources.items()},
            "errors": {
                kind: {name: [asdict(each) for each in errors] for name, errors in parts.items()}
                for kind, parts in self.errors.items()
            },
        }

    @classmethod
    def of_dict(cls, found: Mapping[str, Any]) -> "ApplicationStats":
        """Return the numbers from what `as_dict` returned."""
        began = found["started_at"]
        return cls(
            **{
                **found,
                "status": ApplicationStatus(found["status"]),
                "desired_status": ApplicationStatus(found["desired_status"]),
                "started_at": None if began is None else datetime.fromisoformat(began),
                "partitions": {
                    TopicPartition(topic, int(number)): PartitionStats(**numbers)
                    for topic, partitions in found["partitions"].items()
                    for number, numbers in partitions.items()
                },
                "sources": {name: SourceStats(**numbers) for name, numbers in found["sources"].items()},
                "stores": {
                    stream: {name: StoreStats(**numbers) for name, numbers in stores.items()}
                    for stream, stores in found.get("stores", {}).items()
                },
                "errors": {
                    kind: {name: tuple(RecentError(**each) for each in errors) for name, errors in parts.items()}
                    for kind, parts in found.get("errors", {}).items()
                },
            }
        )
