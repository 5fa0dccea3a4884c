"""Where stores are at home: topics, changelogs and directories, as the driver has found them, and the partition of a task."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamrt.models import TopicPartition
from streamrt.state import Position, RocksDBOptions, Stamp, StoreSpec
from streamrt.topology import TaskStore

_FOR_EVER_MS = 1 << 62


@dataclass(frozen=True)
class ChangelogSettings:
    """A changelog topic.

    Attributes:
        topic: its name.
        id: Kafka's id of it.
        longest_absence_ms: how long a store may miss changes before it must be restored as a whole, because the topic may
            have forgotten deletions: half of `delete.retention.ms`.
    """

    topic: str
    id: str | None = None
    longest_absence_ms: int = _FOR_EVER_MS


@dataclass(frozen=True)
class SourceState:
    """What the stores of one source topic, or of several that were merged, need to know about Kafka.

    Attributes:
        topic_id: Kafka's id of the source topic; of several, their ids in the order of their names, joined by commas.
        partitions: its partition count, which that of all is.
        stores: the changelog of each store, or None where it has none.
        topics: the sorted names of the topics where there are several.
    """

    topic_id: str | None = None
    partitions: int = 1
    stores: Mapping[str, ChangelogSettings | None] = field(default_factory=dict)
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class StateSettings:
    """What tasks need to know about state beside the topology.

    Attributes:
        group: the consumer group.
        base_dir: directory of the store partitions.
        options: how RocksDB works.
        sources: one entry for each source topic with stores; what several have in common is named as in `Topology.scopes`.
        in_memory: whether stores of RocksDB are kept in memory instead, for tests.
    """

    group: str
    base_dir: Path
    options: RocksDBOptions | None = None
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    in_memory: bool = False


@dataclass(frozen=True)
class StoreHome:
    """Which store partition it is, and what of.

    Attributes:
        spec: the store.
        place: the topics that it belongs to, and the partition.
        inputs: the partitions of these topics. Where the task has others, too, they have no effect on this store.
        source: what is known of the topics.
    """

    spec: StoreSpec
    place: TopicPartition
    inputs: tuple[TopicPartition, ...]
    source: SourceState

    @property
    def changelog(self) -> ChangelogSettings | None:
        """The changelog topic."""
        return self.source.stores.get(self.spec.name)

    @property
    def changelog_partition(self) -> TopicPartition | None:
        """The partition of the changelog topic."""
        return None if self.changelog is None else TopicPartition(self.changelog.topic, self.place.partition)

    def total(self, offsets: Mapping[TopicPartition, int]) -> int:
        """Return what stands for the offsets of all inputs: their sum. It grows with each of them."""
        return sum(offsets[place] for place in self.inputs)

    def each(self, offsets: Mapping[TopicPartition, int]) -> dict[str, int] | None:
        """Return the offsets by topic, or None where the sum tells everything."""
        return None if len(self.inputs) == 1 else {place.topic: offsets[place] for place in self.inputs}

    def split(self, found: Position | Stamp | None) -> dict[TopicPartition, int] | None:
        """Return the offset of each input that a stamp or a position tells; None if it tells none."""
        if found is None or found.input_offset is None:
            return None
        if len(self.inputs) == 1:
            return {self.inputs[0]: found.input_offset}
        return {place: (found.inputs or {})[place.topic] for place in self.inputs}


def home_of(settings: StateSettings, task: TopicPartition, store: TaskStore) -> StoreHome:
    """Return which store partition a store of a task is."""
    source = settings.sources.get(store.scope, SourceState())
    inputs = tuple(TopicPartition(topic, task.partition) for topic in source.topics or (store.scope,))
    return StoreHome(store.spec, TopicPartition(store.scope, task.partition), inputs, source)


def topic_ids(topic_id: str | None, home: StoreHome) -> Mapping[str, str | None]:
    """Return the ids of the topics that a store belongs to, by name."""
    ids = topic_id.split(",") if topic_id is not None else []
    return {place.topic: ids[index] if index < len(ids) else None for index, place in enumerate(home.inputs)}
