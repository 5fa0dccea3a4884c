"""The driver's part of the layout of a group: reads and compares it at a start, and writes that of this version.

For its format, see `streamrt.runtime.layout_record`.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from streamrt.config import ApplicationConfig
from streamrt.errors import ChangelogError, TopicCreationError
from streamrt.kafka import ConnectionConfig, KafkaRequestError, TopicAdmin, TopicConfig
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.kafka.reading.pairs import read_pairs, write_pairs
from streamrt.records import TopicPartition
from streamrt.runtime.driver.starting.group_claim import claimed_group
from streamrt.runtime.driver.starting.layout_changes import Deployed, Kind, store_changes
from streamrt.runtime.driver.starting.row_stores import describe_rows, find_row_stores, warn_of_missing_rows
from streamrt.runtime.layout_record import (
    LAYOUT_KEY,
    LAYOUT_PARTITION,
    LAYOUT_PARTITIONS,
    POSITIONS_PARTITION,
    GroupLayout,
    InputPositions,
    LaidInput,
    LaidStore,
    decode_position,
    merged_layout,
    position_key,
)
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.topic_identity import refuse_recreated
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.topics import Topic, TopicManager
from streamrt.topics.internal import changelog_config, layout_topic_name
from streamrt.topology import Topology

__all__ = [
    "LayoutTopic",
    "begin_layout",
    "compare_layout",
    "input_positions",
    "layout_of",
]

logger = logging.getLogger("streamrt")

_OF_STREAMS = (
    "the state stays, and what is new in it begins empty, so results of open windows and of joins may lack earlier records; "
    "give the changed operator another name, or let the store begin again with `streamrt state forget`"
)
_OF_ROWS = (
    "rows that are there stay as the last version has made them until they are written again, and so do results of them; "
    "`streamrt reset` lets the application make all of them again"
)
_OF_QUERIES = (
    "its state, and rows that are there, stay as the last version has made them, and what is new follows this one, so its "
    "rows may mix both; `streamrt reset` lets the application make all of them again"
)
_SEGMENT_BYTES = 16 * 1024 * 1024
"""Bytes after which compaction may begin: a start after a long pause reads what is left."""


@dataclass(frozen=True)
class LayoutTopic:
    """The topic with the layout of a group.

    Attributes:
        admin: client for topics.
        connection: connection to the brokers.
        group: the consumer group.
        timeout: seconds to wait for each response of the cluster.
    """

    admin: TopicAdmin
    connection: ConnectionConfig
    group: str
    timeout: float

    @property
    def name(self) -> str:
        """Its name."""
        return layout_topic_name(self.group)

    def read(self) -> GroupLayout | None:
        """Return the layout; None if the group has none, because an earlier version wrote its state.

        Raises:
            StoreVersionError: if a newer version of StreamRT wrote it.
            ChangelogError: if it is unreadable, or that of another group.
            KafkaRequestError: if Kafka does not respond.
        """
        data = self._partition_pairs(LAYOUT_PARTITION).get(LAYOUT_KEY)
        if data is None:
            return None
        layout = GroupLayout.decode(data, self.name)
        if layout.group != self.group:
            raise ChangelogError(f"the topic {self.name} has the layout of consumer group {layout.group!r}: delete it")
        return layout

    def positions(self, ids: Mapping[str, str | None]) -> dict[TopicPartition, int]:
        """Return the known positions of input partitions.

        Args:
            ids: Kafka's ids of the inputs; positions in other topics of these names are left out.

        Raises:
            StoreVersionError: if a newer version of StreamRT wrote one.
            ChangelogError: if one is unreadable.
            KafkaRequestError: if Kafka does not respond.
        """
        pairs = self._partition_pairs(POSITIONS_PARTITION)
        counts = self.admin.inspect_topics(list(ids), timeout=self.timeout) if pairs else {}
        known: dict[TopicPartition, int] = {}
        for topic, config in counts.items():
            for number in range(0 if config is None else config.num_partitions or 0):
                partition = TopicPartition(topic, number)
                data = pairs.get(position_key(partition))
                if data is not None:
                    topic_id, offset = decode_position(data, self.name)
                    if None in (topic_id, ids[topic]) or topic_id == ids[topic]:
                        known[partition] = offset
        return known

    def write(self, layout: GroupLayout) -> None:
        """Write the layout.

        Raises:
            KafkaRequestError: if it is not written.
        """
        write_pairs(self.connection, TopicPartition(self.name, LAYOUT_PARTITION), [(LAYOUT_KEY, layout.encode())])

    def note(self, positions: Mapping[TopicPartition, int], ids: Mapping[str, str | None]) -> None:
        """Write the positions of inputs.

        Args:
            positions: the next offsets.
            ids: Kafka's ids of the inputs; other inputs are left out.

        Raises:
            KafkaRequestError: if they are not written.
        """
        pairs = list(InputPositions(self.name, ids).records(positions))
        if pairs:
            write_pairs(self.connection, TopicPartition(self.name, POSITIONS_PARTITION), pairs)

    def create(self, like: TopicConfig, create_timeout: float) -> None:
        """Create the topic, unless it exists.

        Args:
            like: settings of a topic of the application, whose replicas it gets.
            create_timeout: seconds to wait until it is ready.

        Raises:
            TopicCreationError: if it cannot be created.
        """
        config = changelog_config(like)
        options = {**config.extra_config, "segment.bytes": str(_SEGMENT_BYTES)}
        topic = Topic(self.name, TopicConfig(LAYOUT_PARTITIONS, config.replication_factor, options))
        if not self.exists():
            self.admin.create_topics([topic], timeout=self.timeout, finalize_timeout=create_timeout)

    def exists(self) -> bool:
        """Return whether the topic exists."""
        return self.admin.topic_ids([self.name], timeout=self.timeout)[self.name] is not None

    def delete(self) -> None:
        """Delete the topic, and wait until it is gone."""
        if self.exists():
            self.admin.delete_topics([self.name], self.timeout)

    def _partition_pairs(self, partition: int) -> dict[bytes, bytes]:
        config = self.admin.inspect_topics([self.name], timeout=self.timeout)[self.name]
        if config is None:
            return {}
        if config.num_partitions != LAYOUT_PARTITIONS:
            raise ChangelogError(
                f"the topic {self.name} has {config.num_partitions} partitions and must have {LAYOUT_PARTITIONS}: delete it; "
                "the next start creates it"
            )
        return read_pairs(self.admin, self.connection, TopicPartition(self.name, partition), self.timeout)


def layout_of(spec: TaskSpec) -> GroupLayout | None:
    """Return the layout of an application; None if it has no state in changelogs.

    Args:
        spec: the complete specification.
    """
    state = spec.state
    if state is None:
        return None
    stores = {
        (scope, store): LaidStore(log.topic, log.id, source.partitions, _kept_in(spec.topology, scope, store))
        for scope, source in state.sources.items()
        for store, log in source.stores.items()
        if log is not None
    }
    inputs = {
        topic: LaidInput(spec.topic_ids.get(topic), spec.partition_counts.get(topic, 1))
        for topic in spec.topology.sources
    }
    return GroupLayout(state.group, inputs, stores, dict(spec.topology.queries)) if stores else None


def _kept_in(topology: Topology, scope: str, store: str) -> tuple[str, ...]:
    """Return what operators keep in a store; nothing for one that any operators may share."""
    rows = find_row_stores(topology).get((scope, store))
    if rows is not None:
        return (*rows.operator.keeps(), *describe_rows(topology, rows))
    users = [
        node.operator
        for node in topology.nodes
        if topology.scope(node) == scope and any(each.name == store for each in node.operator.stores())
    ]
    if any(each.transaction is StoreTransaction for user in users for each in user.stores()):
        return ()
    return tuple(dict.fromkeys(text for user in users for text in user.keeps()))


def input_positions(spec: TaskSpec, topic: str) -> InputPositions:
    """Return what writes the positions of inputs that no changelog has.

    Args:
        spec: the complete specification.
        topic: the topic of the layout.
    """
    now = layout_of(spec)
    covered = _find_covered_inputs(spec, {} if now is None else now.stores)
    return InputPositions(
        topic, {name: spec.topic_ids.get(name) for name in spec.topology.sources if name not in covered}
    )


def _find_covered_inputs(spec: TaskSpec, stores: Collection[tuple[str, str]]) -> set[str]:
    """Return the inputs whose positions are in the changelogs of some stores."""
    sources = {} if spec.state is None else spec.state.sources
    return {
        member
        for scope, source in sources.items()
        if any(log is not None and (scope, store) in stores for store, log in source.stores.items())
        for member in source.topics or (scope,)
    }


def compare_layout(
    spec: TaskSpec, admin: TopicAdmin, connection: ConnectionConfig, config: ApplicationConfig
) -> TaskSpec:
    """Compare the layout of a group with that of an application, and return the specification with the former one.

    Args:
        spec: the complete specification.
        admin: client for topics and offsets.
        connection: connection to the brokers.
        config: the application's configuration.

    Raises:
        StaleTokenError: if an input was deleted and created again.
        StateError: if the layout is unreadable or newer, or state is lost.
        KafkaRequestError: if Kafka does not respond.
    """
    now = layout_of(spec)
    if now is None:
        return spec
    topic = LayoutTopic(admin, connection, config.consumer_group, config.request_timeout)
    former = topic.read()
    if former is None:
        return spec
    inputs = [TopicPartition(name, n) for name in spec.topology.sources for n in range(spec.partition_counts[name])]
    found = admin.committed_now(config.consumer_group, inputs, timeout=config.request_timeout)
    if all(each.offset is None for each in found.values()):
        if _is_abandoned(topic, former):
            logger.warning(
                "the changelogs and the committed offsets of consumer group %r were deleted, so it starts over, and its "
                "former positions in %s do not count",
                topic.group,
                topic.name,
            )
            return spec
        _refuse_lost_state(former, now)
    # Changelogs have the ids of the inputs of their stores, and tasks compare these.
    covered = _find_covered_inputs(spec, former.stores)
    before = {name: each.id for name, each in former.inputs.items() if name in spec.topic_ids and name not in covered}
    differing = {name: each for name, each in before.items() if spec.topic_ids[name] not in (None, each)}
    ids = spec.topic_ids
    if differing:
        ids = {**ids, **confirmed_ids(admin.topic_ids, differing, timeout=config.request_timeout)}
    refuse_recreated(before, ids)
    _warn_of_other_contents(former, now, find_row_stores(spec.topology))
    return replace(spec, layout=former, topic_ids=ids)


def begin_layout(
    spec: TaskSpec, topics: TopicManager, admin: TopicAdmin, connection: ConnectionConfig, config: ApplicationConfig
) -> TaskSpec:
    """Compare the layout of a group with that of an application, write it, and return the specification with both.

    Args:
        spec: the complete specification.
        topics: the topics of the application, validated.
        admin: client for topics and offsets.
        connection: connection to the brokers.
        config: the application's configuration.

    Raises:
        StreamRTError: as `compare_layout`.
    """
    now = layout_of(spec)
    topic = LayoutTopic(admin, connection, config.consumer_group, config.request_timeout)
    if now is None:
        # The layout of a version with changelogs stays, for a later one.
        _warn_of_lacking_stores(spec, topic, topic.read(), config)
        return spec
    spec = compare_layout(spec, admin, connection, config)
    warn_of_missing_rows(spec, admin, spec.layout, config.request_timeout)
    _warn_of_lacking_stores(spec, topic, spec.layout, config)
    if spec.layout is None and _has_abandoned(topic):
        _delete_abandoned(topic, min(spec.topology.sources))
    if not topic.exists():
        try:
            if not config.auto_create_topics:
                raise TopicCreationError("auto_create_topics is False")
            topic.create(topics.broker_config(min(spec.topology.sources)), config.topic_create_timeout)
        except (TopicCreationError, KafkaRequestError) as error:
            logger.warning(
                "the topic %s was not created (%s), so nothing remembers the positions of the group when Kafka forgets its "
                "offsets after a pause: create it with %d partitions and cleanup.policy=compact",
                topic.name,
                error,
                LAYOUT_PARTITIONS,
            )
            return spec
    merged = merged_layout(spec.layout, now)
    if merged != spec.layout:
        topic.write(merged)
    return replace(spec, positions=input_positions(spec, topic.name))


def _warn_of_other_contents(former: GroupLayout, now: GroupLayout, rows: Collection[tuple[str, str]] = ()) -> None:
    """Warn of stores and queries that are something else in this version than in the last one under the same name.

    Args:
        former: the layout of the last version.
        now: that of this one.
        rows: the stores with rows of tables.
    """
    for (scope, store), kept in now.stores.items():
        before = former.stores.get((scope, store))
        # With another changelog, the store begins empty.
        if before is None or before.id != kept.id or before.folds is None or kept.folds is None:
            continue
        if (scope, store) in rows and not before.folds:
            # An earlier version of StreamRT has not said what it keeps.
            continue
        gone = [text for text in before.folds if text not in kept.folds]
        new = [text for text in kept.folds if text not in before.folds]
        if gone or new:
            told = [f"does not have {', '.join(gone)} any more"] if gone else []
            told += [f"has {', '.join(new)}, which is new"] if new else []
            logger.warning(
                "store %r of %s: this version %s; %s",
                store,
                scope,
                " and ".join(told),
                _OF_ROWS if (scope, store) in rows else _OF_STREAMS,
            )
    for name, digest in now.queries.items():
        if former.queries.get(name, digest) != digest:
            logger.warning("query %r of SQL has another plan than in the last version: %s", name, _OF_QUERIES)


def _warn_of_lacking_stores(
    spec: TaskSpec, topic: LayoutTopic, former: GroupLayout | None, config: ApplicationConfig
) -> None:
    """Warn of each store that committed offsets name and that this version does not have, or keeps without a changelog."""
    counts = {name: each.partitions for name, each in ({} if former is None else former.inputs).items()}
    counts |= {name: spec.partition_counts[name] for name in spec.topology.sources}
    places = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
    deployed = Deployed.of(topic.admin.committed_now(topic.group, places, timeout=topic.timeout))
    topology = spec.topology
    stores = {
        (scope, store.name): topology.scopes[scope] for scope in topology.scopes for store in topology.stores(scope)
    }
    for change in store_changes(deployed, stores, changelogs=config.use_changelog_topics):
        if change.kind is Kind.LOSES_STATE:
            logger.warning("%s %s: %s", change.subject, change.detail, change.remedy)


def _has_abandoned(topic: LayoutTopic) -> bool:
    """Return whether the topic has an abandoned layout, and not one that another instance has written meanwhile."""
    left = topic.read()
    return left is not None and _is_abandoned(topic, left)


def _delete_abandoned(topic: LayoutTopic, source: str) -> None:
    """Delete the topic of an abandoned layout, but never that of an instance that starts at the same time."""
    look = partial(_has_abandoned, topic)
    with claimed_group(topic.admin, topic.connection, topic.group, [source], look, topic.timeout) as (is_left, _):
        if is_left:
            topic.delete()


def _is_abandoned(topic: LayoutTopic, layout: GroupLayout) -> bool:
    """Return whether no changelog of a layout exists any more: somebody has deleted them, and the offsets, to start over."""
    before = {each.changelog: each.id for each in layout.stores.values()}
    ids = confirmed_ids(topic.admin.topic_ids, before, timeout=topic.timeout)
    return all(ids[changelog] != each for changelog, each in before.items())


def _refuse_lost_state(former: GroupLayout, now: GroupLayout) -> None:
    """Raise if a changelog was lost while Kafka had forgotten the offsets, whose metadata would tell otherwise."""
    for name, store in former.stores.items():
        if name in now.stores and now.stores[name].id != store.id:
            raise ChangelogError(
                f"the changelog topic {store.changelog} was deleted since the last commit of consumer group "
                f"{former.group!r}, so the state of store {name[1]!r} of {name[0]} is lost: bring the topic back, or start "
                "over with `streamrt reset`, or with another consumer_group"
            )
