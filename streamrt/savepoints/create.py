"""Makes savepoints of stopped applications.

A changelog is compacted, so an earlier moment of it cannot be read any more: a savepoint is a copy. It is made while no
instance runs, and all of it belongs to one moment. The changelog partition of a task and the offsets of its inputs fit
together then, as they must for a restart, and what one task has sent to the next one is in the repartition topics, from
which the unprocessed records are copied. Offsets and ends of changelogs are compared before and after the copy: an
instance that stood still, and that the group has given up, may have committed meanwhile.
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamrt.errors import ChangelogError, InvalidOperationError, SavepointError, TopicNotFoundError
from streamrt.kafka import ConnectionConfig, TopicAdmin, TopicConfig
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.records import TopicPartition
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.runtime.driver.starting.group_layout import LayoutTopic
from streamrt.runtime.layout_record import LaidInput
from streamrt.runtime.metadata import CommittedMetadata, first_counts
from streamrt.runtime.topic_identity import refuse_late_offsets
from streamrt.savepoints.copying import Copies
from streamrt.savepoints.format import (
    SavedInput,
    SavedLog,
    SavedName,
    SavedStore,
    Savepoint,
    group_record,
    manifest_record,
    refuse_taken,
    savepoint_topic,
    topic_settings,
)
from streamrt.state.changelog import POSITION_KEY
from streamrt.topics import Topic, changelog_topic_name
from streamrt.topology import Topology

__all__ = ["create_savepoint", "partition_counts", "refuse_members", "resolved"]

logger = logging.getLogger("streamrt")


def create_savepoint(
    admin: TopicAdmin, connection: ConnectionConfig, definition: ApplicationDefinition, name: str
) -> Savepoint:
    """Make a savepoint of a stopped application.

    Args:
        admin: client for topics and offsets.
        connection: connection to the brokers.
        definition: the application.
        name: name of the savepoint.

    Raises:
        InvalidOperationError: if an instance runs.
        SavepointError: if there is nothing to save, the application is not the one that has committed, the name is taken, or
            an instance has committed meanwhile.
        ChangelogError: if a changelog is missing, or was created again.
        StaleTokenError: if an input was created again, and an offset is one of the former topic.
        KafkaRequestError: if Kafka does not respond.
    """
    config = definition.config
    group, timeout = config.consumer_group, config.request_timeout
    topic = savepoint_topic(group, name)
    refuse_members(admin, group, timeout, "make a savepoint")
    refuse_taken(admin, connection, group, name, timeout)
    looked = _Look.at(admin, connection, definition, timeout)
    found = looked.savepoint(name)
    # What an attempt that ended in the middle has left.
    admin.delete_topics([topic], timeout)
    settings = topic_settings(looked.settings, found.partitions, {"cleanup.policy": "delete"})
    admin.create_topics([Topic(topic, settings)], timeout=timeout, finalize_timeout=config.topic_create_timeout)
    with Copies(admin, connection, timeout) as copies:
        copies.write_pair(TopicPartition(topic, 0), *group_record(group))
        copies.flush()
        _copy_topics(copies, found, looked)
        copies.flush()
        refuse_members(admin, group, timeout, "make a savepoint")
        if _Look.at(admin, connection, definition, timeout).moving != looked.moving:
            admin.delete_topics([topic], timeout)
            raise SavepointError(
                f"an instance of consumer group {group!r} has committed while savepoint {name!r} was made, although the "
                "group has no members: end this instance, and try again"
            )
        # Each process that makes it creates the topic, and deletes what another one has left, or is writing.
        if not copies.is_alone(topic, found.partitions):
            admin.delete_topics([topic], timeout)
            raise SavepointError(
                f"another process makes a savepoint {name!r} of consumer group {group!r} at the same time: let one of them "
                "do it, and try again"
            )
        copies.write_pair(TopicPartition(topic, 0), *manifest_record(found))
        copies.flush()
    logger.info("savepoint %r of consumer group %r is in the topic %s", name, group, topic)
    return found


def refuse_members(admin: TopicAdmin, group: str, timeout: float, what: str) -> None:
    """Raise if a consumer group has members.

    Raises:
        InvalidOperationError: if it has some.
    """
    if admin.group_is_active(group, timeout=timeout):
        raise InvalidOperationError(
            f"consumer group {group!r} has members: stop all instances of the application before you {what}; killed "
            "instances count until their sessions time out"
        )


def partition_counts(admin: TopicAdmin, topics: Collection[str], timeout: float) -> dict[str, TopicConfig]:
    """Return the settings of topics.

    Raises:
        TopicNotFoundError: if one does not exist.
    """
    found = admin.inspect_topics(topics, timeout=timeout)
    missing = [topic for topic, each in found.items() if each is None]
    if missing:
        raise TopicNotFoundError(
            f"the topic {missing[0]} of the application does not exist: nothing can be saved before the first start"
        )
    return {topic: each for topic, each in found.items() if each is not None}


def resolved(
    admin: TopicAdmin, connection: ConnectionConfig, definition: ApplicationDefinition
) -> tuple[Topology, dict[str, TopicConfig]]:
    """Return the topology for the partitions that the state of an application has, and the settings of its topics.

    Somebody may have added partitions to an input since, for another application that reads it. Inputs that state belongs
    to have the partitions of the state here.

    Args:
        admin: client for topics and offsets.
        connection: connection to the brokers.
        definition: the application.

    Raises:
        TopicNotFoundError: if a topic does not exist.
        StateError: if the layout of the group cannot be read.
    """
    declared, config = definition.topology, definition.config
    inputs = declared.outer_topics
    configs = partition_counts(admin, inputs, config.request_timeout)
    counts = {topic: config.num_partitions or 0 for topic, config in configs.items()}
    former = _former_counts(admin, connection, definition, counts)
    topology = declared.resolve(former)
    kept = {topic for scope, topics in topology.scopes.items() if topology.stores(scope) for topic in topics}
    configs = {
        topic: replace(each, num_partitions=former[topic]) if topic in kept else each for topic, each in configs.items()
    }
    configs |= partition_counts(admin, list(topology.exchanges), config.request_timeout)
    return topology.separate({topic: each.num_partitions or 0 for topic, each in configs.items()}), configs


def _former_counts(
    admin: TopicAdmin, connection: ConnectionConfig, definition: ApplicationDefinition, counts: Mapping[str, int]
) -> dict[str, int]:
    """Return how many partitions inputs had when their state was made; without state, how many they have.

    Args:
        admin: client for topics and offsets.
        connection: connection to the brokers.
        definition: the application.
        counts: how many partitions they have.
    """
    config = definition.config
    layout = LayoutTopic(admin, connection, config.consumer_group, config.request_timeout).read()
    if layout is not None:
        ids = admin.topic_ids(list(counts), timeout=config.request_timeout)
        return {
            topic: layout.inputs[topic].partitions if _is_same(layout.inputs.get(topic), ids[topic]) else count
            for topic, count in counts.items()
        }
    # A group of an earlier version: changelogs have the partitions of their inputs.
    topology = definition.topology.resolve(counts)
    logs = {
        changelog_topic_name(config.consumer_group, scope, store.name): topics
        for scope, topics in topology.scopes.items()
        for store in topology.stores(scope)
    }
    found = admin.inspect_topics(list(logs), timeout=config.request_timeout)
    kept = {
        topic: each.num_partitions
        for log, topics in logs.items()
        for topic in topics
        if (each := found[log]) is not None and each.num_partitions
    }
    return {topic: kept.get(topic, count) for topic, count in counts.items()}


def _is_same(laid: LaidInput | None, topic_id: str | None) -> bool:
    """Return whether an input is the topic that a layout names."""
    return laid is not None and (None in (laid.id, topic_id) or laid.id == topic_id)


@dataclass(frozen=True)
class _Look:
    """The data of an application in Kafka."""

    definition: ApplicationDefinition
    topology: Topology
    configs: Mapping[str, TopicConfig]
    ids: Mapping[str, str | None]
    committed: Mapping[TopicPartition, CommittedOffset]
    changelogs: Mapping[tuple[str, str], tuple[str, str | None]]
    sources: Mapping[str, int]
    bounds: Mapping[TopicPartition, tuple[int, int]]

    @classmethod
    def at(
        cls, admin: TopicAdmin, connection: ConnectionConfig, definition: ApplicationDefinition, timeout: float
    ) -> "_Look":
        group = definition.config.consumer_group
        topology, configs = resolved(admin, connection, definition)
        places = [
            TopicPartition(topic, n) for topic in topology.sources for n in range(configs[topic].num_partitions or 0)
        ]
        # Waits for transactions that move offsets.
        committed = admin.committed_stable(group, places, timeout=timeout)
        notes = {each: CommittedMetadata.decode(entry.metadata) for each, entry in committed.items()}
        if all(entry.offset is None for entry in committed.values()):
            raise SavepointError(
                f"consumer group {group!r} has committed nothing for the topics of this application: run it first, or check "
                "its consumer_group"
            )
        changelogs = _changelog_topics(admin, topology, notes, definition, timeout)
        kept = [topic.name for topic in definition.sources.changelog_topics()]
        found = admin.inspect_topics(kept, timeout=timeout)
        sources = {name: each.num_partitions or 1 for name, each in found.items() if each is not None}
        logs = [
            TopicPartition(log, number)
            for (scope, _), (log, _) in changelogs.items()
            for number in range(configs[topology.scopes[scope][0]].num_partitions or 0)
        ]
        logs += [TopicPartition(topic, number) for topic, count in sources.items() for number in range(count)]
        internal = [each for each in places if each.topic in topology.exchanges]
        bounds = admin.offset_bounds([*logs, *internal], timeout=timeout)
        ids = admin.topic_ids(sorted(configs), timeout=timeout)
        refuse_late_offsets(admin.topic_ids, committed, ids, timeout)
        return cls(definition, topology, configs, ids, committed, changelogs, sources, bounds)

    @property
    def moving(self) -> tuple[Mapping[Any, Any], ...]:
        """The parts that an instance changes when it commits."""
        return self.committed, {each: end for each, (_, end) in self.bounds.items()}, self.ids, self.changelogs

    @property
    def settings(self) -> TopicConfig:
        """Settings of the topic with the largest records."""
        return max(self.configs.values(), key=lambda each: int(each.extra_config.get("max.message.bytes", "0")))

    def savepoint(self, name: str) -> Savepoint:
        """Return the savepoint, which is to be filled."""
        config, topology = self.definition.config, self.topology
        counts = {topic: self.configs[topic].num_partitions or 0 for topic in topology.sources}
        begin = 1
        stores, sources, exchanges = [], [], []
        for (scope, store), (log, changelog_id) in self.changelogs.items():
            topics = topology.scopes[scope]
            stores.append(SavedStore(scope, topics, store, changelog_id, SavedLog(log, counts[topics[0]], begin)))
            begin += counts[topics[0]]
        for topic, count in self.sources.items():
            sources.append(SavedLog(topic, count, begin))
            begin += count
        for topic in topology.exchanges:
            exchanges.append(SavedLog(topic, counts[topic], begin))
            begin += counts[topic]
        return Savepoint(
            name,
            config.consumer_group,
            time.time_ns() // 1_000_000,
            config.processing_guarantee,
            {topic: self._save_input(topic, counts) for topic in topology.sources},
            tuple(tuple(topics) for topics in topology.streams.values()),
            tuple(stores),
            tuple(sources),
            tuple(exchanges),
            {topic: SavedName(*parts) for topic, parts in self.definition.topics.names().items()},
        )

    def _save_input(self, topic: str, counts: Mapping[str, int]) -> SavedInput:
        mine = {each.partition: entry for each, entry in self.committed.items() if each.topic == topic}
        notes = {number: CommittedMetadata.decode(entry.metadata) for number, entry in mine.items()}
        told = any(note.partitions for note in notes.values())
        sent = {
            number: {
                exchange: time for exchange in self.topology.exchanges if (time := note.sent_into(exchange)) is not None
            }
            for number, note in notes.items()
        }
        return SavedInput(
            self.ids[topic],
            counts[topic],
            first_counts(self.committed, {topic: counts[topic]})[topic] if told else 0,
            {number: entry.offset for number, entry in sorted(mine.items()) if entry.offset is not None},
            {number: times for number, times in sent.items() if times},
        )


def _changelog_topics(
    admin: TopicAdmin,
    topology: Topology,
    notes: Mapping[TopicPartition, CommittedMetadata],
    definition: ApplicationDefinition,
    timeout: float,
) -> dict[tuple[str, str], tuple[str, str | None]]:
    """Return name and id of the changelog of each store, by scope and store.

    Raises:
        ChangelogError: if a changelog with state is missing, or is not the one that committed offsets name.
        SavepointError: if committed offsets name other stores, or state has no changelogs.
    """
    group = definition.config.consumer_group
    stores = [(scope, store.name) for scope in topology.scopes for store in topology.stores(scope)]
    if stores and not definition.config.use_changelog_topics:
        raise SavepointError("with use_changelog_topics=False, state is on local disks alone, and cannot be saved")
    for partition, note in notes.items():
        for scope, named in note.stores.items():
            other = next((store for store in named if (scope, store) not in stores), None)
            if other is not None:
                raise SavepointError(
                    f"the committed offset of {partition} names the store {other!r} of {scope}, which this version of the "
                    "application does not have: use the version that has run last"
                )
    names = {each: changelog_topic_name(group, *each) for each in stores}
    ids = admin.topic_ids(list(names.values()), timeout=timeout)
    found: dict[tuple[str, str], tuple[str, str | None]] = {}
    for (scope, store), log in names.items():
        mine = [(place, note) for place, note in notes.items() if place.topic in topology.scopes[scope]]
        for partition, note in mine:
            if ids[log] is None and note.names(scope, store):
                raise ChangelogError(
                    f"the changelog topic {log} with the state of {partition} is missing: bring it back"
                )
            if note.contradicts(scope, store, ids[log]):
                raise ChangelogError(
                    f"the changelog topic {log} was deleted and created again since the last commit of {partition}, so its "
                    "state is lost"
                )
        if ids[log] is not None:
            found[scope, store] = log, ids[log]
    return found


def _copy_topics(copies: Copies, savepoint: Savepoint, looked: _Look) -> None:
    """Copy changelogs, and the records that wait in repartition topics."""
    topic = savepoint.topic
    for store in savepoint.stores:
        for source, target in _partition_pairs(store.log, topic):
            changes = copies.changes(source, looked.bounds[source][1])
            for record in changes:
                copies.write(target, record)
            if changes.position is not None:
                copies.write_pair(target, POSITION_KEY, changes.position.encode())
            copies.flush()
    for log in savepoint.sources:
        for source, target in _partition_pairs(log, topic):
            for record in copies.read(source, 0, looked.bounds[source][1]):
                copies.write(target, record, record.headers)
    for log in savepoint.exchanges:
        for source, target in _partition_pairs(log, topic):
            start = savepoint.inputs[log.topic].at.get(source.partition, 0)
            for record in copies.read(source, start, looked.bounds[source][1]):
                copies.write(target, record, record.headers)


def _partition_pairs(log: SavedLog, savepoint: str) -> Iterable[tuple[TopicPartition, TopicPartition]]:
    return ((TopicPartition(log.topic, n), log.copy_of(savepoint, n)) for n in range(log.partitions))
