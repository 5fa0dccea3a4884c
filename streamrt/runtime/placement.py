"""The placement of stores: topics, changelogs and directories, as found by the driver, and the partition of a task."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamrt.records import TopicPartition
from streamrt.state import RocksDBOptions, Stamp, StoreIdentity
from streamrt.state.changelog import Position
from streamrt.state.snapshots import StateSnapshots
from streamrt.state.spec import StoreSpec
from streamrt.topology import TaskId, TaskStore

_FOR_EVER_MS = 1 << 62


@dataclass(frozen=True)
class ChangelogSettings:
    """A changelog topic.

    Attributes:
        topic: its name.
        id: Kafka's id of it.
        longest_absence_ms: milliseconds for which a store may miss changes before it must be restored completely,
            because compaction may have removed tombstones: half of `delete.retention.ms`.
    """

    topic: str
    id: str | None = None
    longest_absence_ms: int = _FOR_EVER_MS


@dataclass(frozen=True)
class ScopeInfo:
    """Kafka's data about one source topic with stores, or about merged ones.

    Attributes:
        topic_id: Kafka's id of the source topic; for merged topics, their ids in the order of their names, joined by
            commas.
        partitions: partition count of each of these topics.
        stores: the changelog of each store; None for a store without one.
        topics: the sorted names of merged topics; empty for a single topic.
    """

    topic_id: str | None = None
    partitions: int = 1
    stores: Mapping[str, ChangelogSettings | None] = field(default_factory=dict)
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class StateSettings:
    """The settings of state for tasks.

    Attributes:
        group: the consumer group.
        base_dir: directory of the store partitions.
        options: options of RocksDB.
        sources: one entry for each source topic with stores; merged topics are named as in `Topology.scopes`.
        in_memory: whether RocksDB stores are replaced by stores in memory, for tests.
        snapshots: where snapshots of stores go; None for nowhere.
    """

    group: str
    base_dir: Path
    options: RocksDBOptions | None = None
    sources: Mapping[str, ScopeInfo] = field(default_factory=dict)
    in_memory: bool = False
    snapshots: StateSnapshots | None = None


@dataclass(frozen=True)
class StorePlacement:
    """The identity of a store partition, and its inputs.

    Attributes:
        spec: the store.
        scope: the scope of the store, and the partition.
        inputs: the input partitions of the store. Other inputs of the task have no effect on it.
        source: Kafka's data about these topics.
    """

    spec: StoreSpec
    scope: TopicPartition
    inputs: tuple[TopicPartition, ...]
    source: ScopeInfo

    @property
    def changelog(self) -> ChangelogSettings | None:
        """The changelog topic."""
        return self.source.stores.get(self.spec.name)

    @property
    def changelog_partition(self) -> TopicPartition | None:
        """The partition of the changelog topic."""
        return None if self.changelog is None else TopicPartition(self.changelog.topic, self.scope.partition)

    def total(self, offsets: Mapping[TopicPartition, int]) -> int:
        """Return the sum of the offsets of all inputs, which grows with each of them."""
        return sum(offsets[partition] for partition in self.inputs)

    def each(self, offsets: Mapping[TopicPartition, int]) -> dict[str, int] | None:
        """Return the offsets by topic; None for a single input, where the sum is sufficient."""
        return None if len(self.inputs) == 1 else {partition.topic: offsets[partition] for partition in self.inputs}

    def split(self, found: Position | Stamp | None) -> dict[TopicPartition, int] | None:
        """Return the offset of each input from a stamp or a position; None if it has none."""
        if found is None or found.input_offset is None:
            return None
        if len(self.inputs) == 1:
            return {self.inputs[0]: found.input_offset}
        return {partition: (found.inputs or {})[partition.topic] for partition in self.inputs}


def placement_of(settings: StateSettings, task: TaskId, store: TaskStore) -> StorePlacement:
    """Return the store partition of a store of a task."""
    source = settings.sources.get(store.scope, ScopeInfo())
    inputs = tuple(TopicPartition(topic, task.partition) for topic in source.topics or (store.scope,))
    return StorePlacement(store.spec, TopicPartition(store.scope, task.partition), inputs, source)


def identity_of(settings: StateSettings, placement: StorePlacement) -> StoreIdentity:
    """Return the identity that the data of a store partition must have."""
    return StoreIdentity(
        settings.group,
        placement.scope.topic,
        placement.scope.partition,
        placement.spec.name,
        placement.source.topic_id,
        None if placement.changelog is None else placement.changelog.id,
        placement.source.partitions,
    )


def topic_ids(topic_id: str | None, placement: StorePlacement) -> Mapping[str, str | None]:
    """Return the ids of a store's topics, by name."""
    ids = topic_id.split(",") if topic_id is not None else []
    return {
        partition.topic: ids[index] if index < len(ids) else None for index, partition in enumerate(placement.inputs)
    }
