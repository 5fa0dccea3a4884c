"""The driver's checks of topics and state when an application starts, before records are processed."""

import itertools
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from streamrt.config import ApplicationConfig
from streamrt.connectors import DriverSink, ListSink, TransactionalSink
from streamrt.errors import ChangelogError, ConfigurationError, TopicConfigurationError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.cluster.topic_ids import is_absent
from streamrt.records import TopicPartition
from streamrt.runtime.driver.starting.half_restored import refuse_half_restored
from streamrt.runtime.driver.starting.key_partitions import refuse_unlike_partitioners
from streamrt.runtime.driver.starting.topology_warnings import check_unlike_keys, warn_of_dropped_results
from streamrt.runtime.metadata import CommitMetadata, CommittedMetadata, first_counts
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.chain.sink_positions import causes_of_time
from streamrt.state import RocksDBOptions
from streamrt.topics import Topic, TopicAdministration, TopicManager
from streamrt.topology import Topology

logger = logging.getLogger("streamrt")

_SAFE_COPIES = 3
_DELETE_RETENTION_MS = 86_400_000
"""Kafka's default of `delete.retention.ms`."""


class ClusterAdministration(TopicAdministration, Protocol):
    """The cluster operations of a start; implemented by `streamrt.kafka.TopicAdmin`."""

    def topic_ids(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, str | None]:
        """Return the ids of topics; None for a topic that does not exist."""

    def broker_count(self, timeout: float = 30) -> int:
        """Return the number of brokers in the cluster."""

    def committed_stable(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a consumer group, after pending transactions on them have ended."""

    def committed_now(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a consumer group, without waiting for pending transactions."""


def set_up_topics(topics: TopicManager, others: Sequence[Topic], *, create: bool) -> None:
    """Create missing topics, and check that all exist and are compatible, except changelogs of stores.

    Args:
        topics: the topics of the application.
        others: topics that are created but not checked.
        create: whether missing topics may be created.

    Raises:
        TopicNotFoundError: if a topic is missing and may not be created.
        TopicCreationError: if a topic cannot be created.
        TopicConfigurationError: if a repartition topic does not match its input.
    """
    if create:
        topics.create_all_topics()
        topics.create_topics(others)
    topics.validate_all_topics()


def complete_spec(
    spec: TaskSpec,
    topics: TopicManager,
    admin: ClusterAdministration,
    base_dir: Path,
    options: RocksDBOptions | None,
    config: ApplicationConfig,
) -> TaskSpec:
    """Complete a specification once the topics exist: resolve `group_by`, and add the settings of state.

    Args:
        spec: the specification.
        topics: all topics, which exist and are validated.
        admin: client for topics and offsets.
        base_dir: directory of the store partitions.
        options: options of RocksDB.
        config: the application's configuration.

    Raises:
        StateError: if existing state cannot be used; the subclass gives the reason.
        ConfigurationError: if the guarantee cannot be given.
        TopicConfigurationError: if topics that share state have different numbers of partitions, or partitions were
            added to a topic whose state depends on their number.
    """
    counts = topics.partition_counts()
    topology = spec.topology.resolve(counts).separate(counts)
    if topology.apart:
        listed = (
            f"{name} has {counts[name]}" for name, source in topology.sources.items() if source.id in topology.apart
        )
        logger.info(
            "merged topics with different numbers of partitions (%s) are processed by separate tasks: each topic keeps the "
            "order of its records, but there is no order between the topics",
            ", ".join(listed),
        )
    for sources in topology.streams.values():
        topics.ensure_topics_copartitioned(*(topics.non_changelog_topics[name] for name in sources))
    check_unlike_keys(topology)
    refuse_unlike_partitioners(topology)
    warn_of_dropped_results(spec.topology, collected=spec.collect)
    inputs = {name: counts[name] for name in topology.sources if name not in topology.exchanges}
    partitions = [TopicPartition(name, number) for name, count in inputs.items() for number in range(count)]
    committed = admin.committed_now(config.consumer_group, partitions, timeout=config.request_timeout)
    refuse_half_restored(committed)
    refuse_grown(spec.topology, inputs, committed)
    state = prepare_state(
        topology,
        topics,
        admin,
        base_dir,
        options,
        use_changelogs=config.use_changelog_topics,
        transactional=spec.transactional,
        timeout=config.request_timeout,
    )
    if state is not None:
        state = replace(state, snapshots=spec.snapshots)
    if spec.transactional:
        for node, sink in topology.sinks.items():
            if isinstance(sink, DriverSink) and not isinstance(sink, ListSink):
                raise ConfigurationError(
                    f"the sink {type(sink).__name__} (node {node}) is written after exactly-once processing has committed "
                    "the offsets, and would miss records after a crash: use processing_guarantee='at-least-once', or a "
                    "sink that runs in tasks"
                )
    if transactional_sinks(topology):
        warn_of_values_of_time(topology)
    ids = admin.topic_ids(sorted(topology.sources), timeout=config.request_timeout)
    return replace(
        spec,
        topology=topology,
        state=state,
        topic_ids=ids,
        partition_counts=counts,
        commit_metadata=CommitMetadata.of(
            state,
            topology.streams,
            {stream: topology.sends(stream) for stream in topology.streams},
            first_counts(committed, inputs),
            ids,
        ),
    )


def transactional_sinks(topology: Topology) -> list[TransactionalSink]:
    """Return the sinks that store positions.

    Raises:
        ConfigurationError: if two of them would store the same positions.
    """
    sinks = [sink for sink in topology.sinks.values() if isinstance(sink, TransactionalSink)]
    for one, other in itertools.combinations(sinks, 2):
        if (type(one), one.name) == (type(other), other.name):
            raise ConfigurationError(
                f"two sinks of the class {type(one).__name__} have the name {one.name!r}, under which they store their "
                "positions: use one object in both places, or give one of them another name=..."
            )
    return sinks


def warn_of_values_of_time(topology: Topology) -> None:
    """Warn about sinks with positions that may get values twice."""
    sinks = {id(sink): sink for sink in transactional_sinks(topology)}
    for number, cause in causes_of_time(topology).items():
        logger.warning(
            "the sink %s gets results that time causes (%s), so it is written at least once: after a crash, results may "
            "come twice; to write each once, send them to a topic with to_topic(), and that topic to the sink",
            sinks[number].name,
            cause,
        )


def refuse_grown(
    topology: Topology, counts: Mapping[str, int], committed: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Raise if an input with state behind a `group_by` or broadcast had one partition at that time, and has more now.

    Such state belongs to the input topic. With more partitions, it would be expected at a repartition topic instead.

    Args:
        topology: the operators, not resolved yet.
        counts: partition count of each input topic.
        committed: the committed offsets of these topics.

    Raises:
        TopicConfigurationError: if there is such an input.
    """
    now = topology.resolve(counts)
    # Of the inputs of a broadcast or a join by foreign key, one may have had several partitions before.
    grown = [{**counts, name: 1} for name, count in counts.items() if count > 1] if topology.has_sized_exchanges else []
    former = [topology.resolve(each) for each in (dict.fromkeys(counts, 1), *grown)]
    for (partition, entry), before in itertools.product(committed.items(), former):
        note = CommittedMetadata.decode(entry.metadata)
        for scope in (name for name, topics in before.scopes.items() if partition.topic in topics):
            kept = {store.name for store in now.stores(scope)} if scope in now.scopes else set()
            gone = [store.name for store in before.stores(scope) if store.name not in kept]
            lost = next((store for store in gone if note.names(scope, store)), None)
            if lost is not None and counts[partition.topic] > 1:
                raise TopicConfigurationError(
                    f"topic {partition.topic!r} has {counts[partition.topic]} partitions now, and had 1 when the state "
                    f"behind its group_by() or broadcast() was made (store {lost!r}): keys would not find their state; copy "
                    "the topic to one with 1 partition, or start over with another consumer_group"
                )


def prepare_state(
    topology: Topology,
    topics: TopicManager,
    admin: ClusterAdministration,
    base_dir: Path,
    options: RocksDBOptions | None,
    *,
    use_changelogs: bool,
    transactional: bool,
    timeout: float,
) -> StateSettings | None:
    """Create missing changelog topics unless their state was lost, check the others, and return the settings of state.

    Args:
        topology: the operators, resolved.
        topics: all topics; the sources exist and are validated.
        admin: client for topics and offsets.
        base_dir: directory of the store partitions.
        options: options of RocksDB.
        use_changelogs: whether state is backed by changelogs.
        transactional: whether commits are exactly-once.
        timeout: seconds to wait for each response of the cluster.

    Returns:
        The settings, or None if no dataframe has state.

    Raises:
        ChangelogError: if a changelog with state is missing.
        TopicConfigurationError: if a changelog does not match its source.
        ConfigurationError: if the guarantee cannot be given.
    """
    stores = {name: [store.name for store in topology.stores(name)] for name in topology.scopes}
    stores = {name: names for name, names in stores.items() if names}
    if not stores:
        return None
    if transactional and not use_changelogs:
        raise ConfigurationError(
            "processing_guarantee='exactly-once' needs changelog topics for its state, because without them a crash can lose "
            "committed changes: keep use_changelog_topics=True"
        )
    members = {name: topology.scopes[name] for name in stores}
    ids = admin.topic_ids(sorted({topic for names in members.values() for topic in names}), timeout=timeout)
    partitions = {name: topics.broker_config(names[0]).num_partitions or 1 for name, names in members.items()}
    changelogs: dict[tuple[str, str], Topic] = {}
    for together in members.values():
        topics.declare_together(together)
    if use_changelogs:
        changelogs = {
            (name, store): topics.changelog_topic(name, store) for name, names in stores.items() for store in names
        }
        _create_changelogs(topics, admin, changelogs, members, partitions, timeout)
    settings = _changelog_settings(topics, admin, changelogs, timeout)
    sources = {
        name: ScopeInfo(
            _join_ids([ids[topic] for topic in members[name]]),
            partitions[name],
            {store: settings.get((name, store)) for store in names},
            members[name] if len(members[name]) > 1 else (),
        )
        for name, names in stores.items()
    }
    return StateSettings(topics.consumer_group, base_dir, options, sources)


def check_changelogs(state: StateSettings | None, metadata: Iterable[tuple[TopicPartition, str]]) -> None:
    """Raise if a changelog was deleted and created again since the last commit.

    Args:
        state: the settings with the current changelogs.
        metadata: metadata of the committed offset of each input partition.

    Raises:
        ChangelogError: if a changelog differs from the one in the metadata.
    """
    for partition, text in metadata if state is not None else ():
        former = CommittedMetadata.decode(text)
        for name, store, changelog in (
            (name, store, changelog)
            for name, source in ({} if state is None else state.sources).items()
            if partition.topic in (source.topics or (name,))
            for store, changelog in source.stores.items()
        ):
            if changelog is not None and former.contradicts(name, store, changelog.id):
                raise ChangelogError(
                    f"the changelog topic {changelog.topic} was deleted and created again since the last commit of "
                    f"{partition}, so the state of store {store!r} is lost: bring the topic back, or start over with another "
                    "consumer_group"
                )


def _create_changelogs(
    topics: TopicManager,
    admin: ClusterAdministration,
    changelogs: Mapping[tuple[str, str], Topic],
    members: Mapping[str, tuple[str, ...]],
    partitions: Mapping[str, int],
    timeout: float,
) -> None:
    """Create missing changelogs, unless their state was lost."""
    names = [topic.name for topic in changelogs.values()]
    found = admin.inspect_topics(names, timeout=timeout)
    missing = {partition: topic for partition, topic in changelogs.items() if found[topic.name] is None}
    if missing:
        inputs = sorted(
            {
                TopicPartition(topic, number)
                for name, _ in missing
                for topic in members[name]
                for number in range(partitions[name])
            }
        )
        committed = admin.committed_stable(topics.consumer_group, inputs, timeout=timeout)
        for (name, store), topic in missing.items():
            for partition in (partition for partition in inputs if partition.topic in members[name]):
                named = CommittedMetadata.decode(committed[partition].metadata).names(name, store)
                if named and is_absent(admin.topic_ids, topic.name, timeout):
                    raise ChangelogError(
                        f"the changelog topic {topic.name} is missing, but the consumer group has processed {partition} "
                        "with state in it, and would continue without this state: bring the topic back, or start "
                        "over with another consumer_group"
                    )
    topics.create_changelog_topics()
    topics.validate_changelog_topics()


def _join_ids(ids: list[str | None]) -> str | None:
    known = [topic_id for topic_id in ids if topic_id is not None]
    return ",".join(known) if len(known) == len(ids) else None


def _changelog_settings(
    topics: TopicManager, admin: ClusterAdministration, changelogs: Mapping[tuple[str, str], Topic], timeout: float
) -> dict[tuple[str, str], ChangelogSettings]:
    names = [topic.name for topic in changelogs.values()]
    if not names:
        return {}
    ids = admin.topic_ids(names, timeout=timeout)
    possible = min(_SAFE_COPIES, admin.broker_count(timeout=timeout))
    settings = {}
    for partition, topic in changelogs.items():
        config = topics.broker_config(topic.name)
        if config.replication_factor is not None and config.replication_factor < possible:
            logger.warning(
                "changelog topic %s has %d replicas, but the cluster could keep %d: the loss of a disk can lose state; "
                "raise its replication factor, and that of topic %s for future changelogs",
                topic.name,
                config.replication_factor,
                possible,
                partition[0],
            )
        kept_ms = int(config.extra_config.get("delete.retention.ms", _DELETE_RETENTION_MS))
        settings[partition] = ChangelogSettings(topic.name, ids[topic.name], max(1, kept_ms // 2))
    return settings
