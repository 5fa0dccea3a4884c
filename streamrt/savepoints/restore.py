"""Lets a consumer group begin at a savepoint.

Topics of the group are named after it, so repartition topics and changelogs get other names, and positions in
changelogs other topic ids. What was saved stays as it is, and so does the group that it is from.

The group must have nothing that a restore would replace. Until all of it is there, the committed offsets name
changelogs that do not exist: a start is refused, and the restore can be run again. The steps:

1. Repartition topics are created.
2. The offsets are committed, with the **mark** in their metadata: instead of the id of each changelog, `restoring:` and
   the id of the savepoint's topic.
3. Changelogs are deleted if an earlier attempt has left some, created and filled; so are the repartition topics.
4. The offsets are committed again, with the ids of the changelogs, in one request.
"""

import functools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from streamrt.errors import (
    InvalidOperationError,
    OffsetOutOfRangeError,
    SavepointError,
    StaleTokenError,
    TopicConfigurationError,
)
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.records import TopicPartition
from streamrt.runtime.driver.starting.group_claim import claimed_group
from streamrt.runtime.driver.starting.group_layout import LayoutTopic
from streamrt.runtime.driver.starting.half_restored import MARK
from streamrt.runtime.layout_record import GroupLayout, LaidInput, LaidStore, merged_layout
from streamrt.runtime.metadata import CommitMetadata, CommittedMetadata
from streamrt.runtime.tasks.stores.foreign import epoch_headers
from streamrt.savepoints.copying import Copies
from streamrt.savepoints.create import refuse_members
from streamrt.savepoints.format import SavedStore, Savepoint, topic_settings
from streamrt.state.changelog import POSITION_KEY, Position, epoch_of
from streamrt.topics import Topic, changelog_topic_name, repartition_topic_name
from streamrt.topics.internal import changelog_prefix, repartition_prefix
from streamrt.topology import stream_id

__all__ = ["TargetGroup", "rename_topics", "restore_savepoint"]

logger = logging.getLogger("streamrt")

Fill = Callable[[Copies, SavedStore, int], None]


@dataclass(frozen=True)
class TargetGroup:
    """The state of a consumer group after a restore, and how far the restore has come.

    Attributes:
        admin: client for topics and offsets.
        connection: connection to the brokers.
        savepoint: the savepoint, with names of topics as the group has them.
        topic: the topic of the savepoint.
        timeout: seconds to wait for each response of the cluster.
    """

    admin: TopicAdmin
    connection: ConnectionConfig
    savepoint: Savepoint
    topic: str
    timeout: float

    def begun(self) -> bool:
        """Return whether the committed offsets have the mark of a restore that has not ended."""
        marks = self._make_mark()
        inputs = self.savepoint.inputs
        places = [
            TopicPartition(topic, number)
            for topic in sorted({topic for store in self.savepoint.stores for topic in store.topics})
            for number in range(inputs[topic].partitions)
        ]
        committed = self.admin.committed_stable(self.savepoint.group, places, timeout=self.timeout)
        notes = {each: CommittedMetadata.decode(entry.metadata) for each, entry in committed.items()}
        return any(
            note.names(store.scope, store.store)
            and not note.contradicts(store.scope, store.store, marks[store.log.topic])
            for store in self.savepoint.stores
            for place, note in notes.items()
            if place.topic in store.topics
        )

    def mark(self) -> None:
        """Commit the offsets with the mark: a start is refused from now on."""
        self._commit_offsets(self._make_mark())

    def finish(self, claim: int) -> None:
        """Commit the offsets with the ids of the changelogs.

        Args:
            claim: with at-least-once, the number of the claim in the changelog records.
        """
        names = [store.log.topic for store in self.savepoint.stores]
        ids = self.admin.topic_ids(names, timeout=self.timeout)
        lost = [name for name in names if ids[name] is None]
        if lost:
            raise SavepointError(f"the changelog topic {lost[0]} was deleted during the restore: run it again")
        known = {name: str(ids[name]) for name in names}
        self._write_layout(known)
        self._commit_offsets(known, claim)

    def _write_layout(self, ids: Mapping[str, str]) -> None:
        """Write the layout of the group: with fewer partitions than the inputs have now, its next start is refused."""
        saved = self.savepoint
        if not saved.stores:
            return
        topic = LayoutTopic(self.admin, self.connection, saved.group, self.timeout)
        settings = self.admin.inspect_topics([self.topic], timeout=self.timeout)[self.topic]
        if settings is not None:
            topic.create(settings, self.timeout)
        former = topic.read()
        stores = {
            (each.scope, each.store): LaidStore(
                each.log.topic,
                ids[each.log.topic],
                each.log.partitions,
                None
                if former is None or (each.scope, each.store) not in former.stores
                else former.stores[each.scope, each.store].folds,
            )
            for each in saved.stores
        }
        inputs = {name: LaidInput(each.id, each.partitions) for name, each in saved.inputs.items()}
        topic.write(merged_layout(former, GroupLayout(saved.group, inputs, stores)))

    def create_changelogs(self, create_timeout: float) -> None:
        """Create the changelogs, empty."""
        names = [store.log.topic for store in self.savepoint.stores]
        ids = self.admin.topic_ids(names, timeout=self.timeout)
        self.admin.delete_topics([name for name in names if ids[name] is not None], self.timeout)
        settings = self.admin.inspect_topics([self.topic], timeout=self.timeout)[self.topic]
        if settings is None:
            raise SavepointError(f"the topic {self.topic} of the savepoint does not exist any more")
        self.admin.create_topics(
            [
                Topic(store.log.topic, topic_settings(settings, store.log.partitions, {"cleanup.policy": "compact"}))
                for store in self.savepoint.stores
            ],
            timeout=self.timeout,
            finalize_timeout=create_timeout,
        )

    def position(self, store: SavedStore, partition: int, *found: Position | None) -> Position | None:
        """Return the position of a partition of a store that contains all of some positions; None without any.

        Stream time is the highest one, as if the records of all had been in one partition.
        """
        known = [each for each in found if each is not None]
        if not known:
            return None
        inputs = {topic: self.savepoint.inputs[topic] for topic in store.topics}
        at = {topic: each.at.get(partition, 0) for topic, each in inputs.items()}
        ids = [each.id for each in inputs.values()]
        times = [each.stream_time for each in known if each.stream_time is not None]
        seen = [each.observed for each in known if each.observed is not None]
        return Position(
            sum(at.values()),
            None if None in ids else ",".join(map(str, ids)),
            next(iter(inputs.values())).partitions,
            max(times, default=None),
            at if len(at) > 1 else None,
            max(seen, default=None),
        )

    def _make_mark(self) -> dict[str, str]:
        own = self.admin.topic_ids([self.topic], timeout=self.timeout)[self.topic]
        return {store.log.topic: f"{MARK}{own}" for store in self.savepoint.stores}

    def _make_metadata(self, ids: Mapping[str, str], claim: int = 0) -> dict[TopicPartition, str | None]:
        saved = self.savepoint
        stores: dict[str, dict[str, str | None]] = {}
        for store in saved.stores:
            stores.setdefault(store.scope, {})[store.store] = ids[store.log.topic]
        composed = CommitMetadata(
            stores,
            {store.scope: store.topics for store in saved.stores if len(store.topics) > 1},
            {topic: min(topics) for topics in saved.streams for topic in topics if topic != min(topics)},
            {topic: each.first for topic, each in saved.inputs.items() if each.first},
            {topic: each.id for topic, each in saved.inputs.items()},
        )
        return {
            each: composed.encode(each, claim=claim, sent=saved.inputs[each.topic].sent.get(each.partition))
            for each in saved.offsets
        }

    def _commit_offsets(self, ids: Mapping[str, str], claim: int = 0) -> None:
        # Kafka refuses this if an instance has joined the group meanwhile.
        self.admin.set_committed(self.savepoint.group, self.savepoint.offsets, self._make_metadata(ids, claim))


def restore_savepoint(
    admin: TopicAdmin,
    connection: ConnectionConfig,
    savepoint: Savepoint,
    group: str,
    *,
    timeout: float = 30.0,
    create_timeout: float = 60.0,
) -> dict[TopicPartition, int]:
    """Let a consumer group begin at a savepoint, which stays as it is.

    Args:
        admin: client for topics and offsets.
        connection: connection to the brokers.
        savepoint: the savepoint.
        group: the consumer group: a new one, or that of the savepoint after a reset.
        timeout: seconds to wait for each response of the cluster.
        create_timeout: seconds to wait until topics are ready.

    Returns:
        The offsets of the inputs at which the group begins.

    Raises:
        InvalidOperationError: if an instance of the group runs, or the group has state or offsets.
        StaleTokenError: if an input topic was deleted since.
        TopicConfigurationError: if partitions were added to an input topic since.
        OffsetOutOfRangeError: if retention has deleted records of an input that come after the savepoint.
        KafkaRequestError: if Kafka does not respond.
    """
    own = group == savepoint.group
    moved = rename_topics(savepoint, group)
    state = TargetGroup(admin, connection, moved, savepoint.topic, timeout)
    sources = [] if own else [log.topic for log in moved.sources]

    def look() -> None:
        refuse_members(admin, group, timeout, "restore a savepoint")
        _refuse_other_inputs(admin, savepoint, timeout)
        if not state.begun():
            _refuse_used(admin, state, sources, own=own, timeout=timeout)

    with claimed_group(admin, connection, group, [savepoint.topic], look, timeout) as (_, held):
        return _restore_savepoint(state, savepoint, sources, create_timeout, held.confirm)


def _restore_savepoint(
    state: TargetGroup,
    savepoint: Savepoint,
    sources: list[str],
    create_timeout: float,
    confirm: Callable[[], object],
) -> dict[TopicPartition, int]:
    admin, connection, moved, timeout = state.admin, state.connection, state.savepoint, state.timeout
    group = moved.group
    exchanges = {log.topic: log.partitions for log in moved.exchanges}
    settings = admin.inspect_topics([savepoint.topic], timeout=timeout)[savepoint.topic]
    if settings is None:
        raise SavepointError(f"the savepoint {savepoint.name!r} of consumer group {savepoint.group!r} was deleted")
    created = [
        Topic(topic, topic_settings(settings, count, {"cleanup.policy": "delete"}))
        for topic, count in exchanges.items()
    ]
    admin.create_topics(created, timeout=timeout, finalize_timeout=create_timeout)
    state = replace(state, savepoint=_place_repartitions(admin, moved, timeout))
    # What somebody who deleted the topics of the group by hand has left.
    LayoutTopic(admin, connection, group, timeout).delete()
    confirm()
    if moved.stores:
        state.mark()
    state.create_changelogs(create_timeout)
    admin.delete_topics(sources, timeout)
    admin.create_topics(
        [
            Topic(log.topic, topic_settings(settings, log.partitions, {"cleanup.policy": "compact"}))
            for log in moved.sources
            if log.topic in sources
        ],
        timeout=timeout,
        finalize_timeout=create_timeout,
    )
    claim = time.time_ns() // 1_000_000 if savepoint.guarantee == "at-least-once" else 0
    with Copies(admin, connection, timeout) as copies:
        _fill_topics(copies, state, sources, claim)
    confirm()
    state.finish(claim)
    logger.info("consumer group %r begins at savepoint %r of %r", group, savepoint.name, savepoint.group)
    internal = {log.topic for log in savepoint.exchanges}
    return {each: offset for each, offset in savepoint.offsets.items() if each.topic not in internal}


def _fill_topics(copies: Copies, state: TargetGroup, sources: list[str], claim: int) -> None:
    saved = state.savepoint
    headers = epoch_headers(epoch_of(claim, 0)) if claim else None
    for store in saved.stores:
        for number in range(store.log.partitions):
            target = TopicPartition(store.log.topic, number)
            changes = copies.changes(store.log.copy_of(state.topic, number))
            for record in changes:
                copies.write(target, record, headers)
            position = state.position(store, number, changes.position)
            if position is not None:
                copies.write_pair(target, POSITION_KEY, position.encode(), headers)
            copies.flush()
    for log in (*(log for log in saved.sources if log.topic in sources), *saved.exchanges):
        for number in range(log.partitions):
            for record in copies.read(log.copy_of(state.topic, number)):
                copies.write(TopicPartition(log.topic, number), record, record.headers)
    copies.flush()


def rename_topics(savepoint: Savepoint, group: str) -> Savepoint:
    """Return a savepoint with the names of topics that another group has."""
    before, after = repartition_prefix(savepoint.group), repartition_prefix(group)

    @functools.cache
    def named(topic: str) -> str:
        made = savepoint.names.get(topic)
        if made is None:
            # Of an earlier version: names behind merged topics have the prefix in their middle.
            return topic.replace(before, after) if topic.startswith(before) else topic
        return repartition_topic_name(group, stream_id(map(named, made.reads)), made.operation, short=made.short)

    logs = changelog_prefix(savepoint.group)
    stores = []
    for store in savepoint.stores:
        topics = tuple(sorted(map(named, store.topics)))
        scope = stream_id(topics)
        log = replace(store.log, topic=changelog_topic_name(group, scope, store.store))
        stores.append(replace(store, scope=scope, topics=topics, log=log))
    return replace(
        savepoint,
        group=group,
        inputs={
            named(topic): replace(
                each,
                sent={n: {named(name): at for name, at in times.items()} for n, times in each.sent.items()},
            )
            for topic, each in savepoint.inputs.items()
        },
        streams=tuple(tuple(sorted(map(named, topics))) for topics in savepoint.streams),
        stores=tuple(stores),
        sources=tuple(
            replace(log, topic=changelog_prefix(group) + log.topic.removeprefix(logs)) for log in savepoint.sources
        ),
        exchanges=tuple(replace(log, topic=named(log.topic)) for log in savepoint.exchanges),
    )


def _place_repartitions(admin: TopicAdmin, savepoint: Savepoint, timeout: float) -> Savepoint:
    """Return a savepoint with the ids of the repartition topics that a group has, and the offsets of copies in them."""
    names = [log.topic for log in savepoint.exchanges]
    ids = admin.topic_ids(names, timeout=timeout)
    places = [TopicPartition(log.topic, n) for log in savepoint.exchanges for n in range(log.partitions)]
    # An attempt that ended in the middle may have left records.
    ends = admin.offset_bounds(places, timeout=timeout)
    inputs = dict(savepoint.inputs)
    for name in names:
        at = {each.partition: high for each, (_, high) in ends.items() if each.topic == name}
        inputs[name] = replace(inputs[name], id=ids[name], at=at)
    return replace(savepoint, inputs=inputs)


def _refuse_other_inputs(admin: TopicAdmin, savepoint: Savepoint, timeout: float) -> None:
    internal = {log.topic for log in savepoint.exchanges}
    inputs = {topic: each for topic, each in savepoint.inputs.items() if topic not in internal}
    before = {topic: each.id for topic, each in inputs.items()}
    ids = confirmed_ids(admin.topic_ids, before, timeout=timeout)
    found = admin.inspect_topics(list(inputs), timeout=timeout)
    for topic, each in inputs.items():
        config = found[topic]
        if config is None or (each.id is not None and ids[topic] != each.id):
            raise StaleTokenError(
                f"topic {topic!r} was deleted since savepoint {savepoint.name!r} was made, so its offsets mean no records "
                "that exist"
            )
        if config.num_partitions == each.partitions or not any(topic in store.topics for store in savepoint.stores):
            continue
        what = (
            f"topic {topic!r} has {config.num_partitions} partitions, and had {each.partitions} when savepoint "
            f"{savepoint.name!r} was made: keys are in other partitions than their state"
        )
        if (config.num_partitions or 0) < each.partitions:
            raise TopicConfigurationError(what)
        logger.warning(
            "%s; give the restored group %d partitions with `streamrt repartition`", what, config.num_partitions
        )
    offsets = {each: offset for each, offset in savepoint.offsets.items() if each.topic in inputs}
    for partition, (low, high) in admin.offset_bounds(list(offsets), timeout=timeout).items():
        if not low <= offsets[partition] <= high:
            raise OffsetOutOfRangeError(
                f"savepoint {savepoint.name!r} continues at offset {offsets[partition]} of {partition}, which has offsets "
                f"{low} to {high}: retention has deleted what comes next"
            )


def _refuse_used(admin: TopicAdmin, state: TargetGroup, sources: list[str], *, own: bool, timeout: float) -> None:
    """Raise if a group has anything that a restore would replace."""
    saved = state.savepoint
    advice = (
        f"`streamrt reset` lets consumer group {saved.group!r} start over"
        if own
        else "choose a consumer group that does not exist yet"
    )
    names = [*(store.log.topic for store in saved.stores), *sources]
    ids = admin.topic_ids(names, timeout=timeout)
    existing = [name for name in names if ids[name] is not None]
    if existing:
        raise InvalidOperationError(f"consumer group {saved.group!r} has state in {existing[0]}: {advice}")
    committed = admin.committed_stable(saved.group, list(saved.offsets), timeout=timeout)
    for partition, entry in committed.items():
        note = CommittedMetadata.decode(entry.metadata)
        # A reset leaves offsets without metadata.
        if entry.offset is not None and (not own or note.format):
            raise InvalidOperationError(
                f"consumer group {saved.group!r} has a committed offset of {partition}: {advice}"
            )
    internal = [log.topic for log in saved.exchanges]
    for topic, config in admin.inspect_topics(internal, timeout=timeout).items():
        if config is None:
            continue
        if config.num_partitions != saved.inputs[topic].partitions:
            raise InvalidOperationError(f"{topic} has another number of partitions than in the savepoint: delete it")
        places = [TopicPartition(topic, number) for number in range(config.num_partitions or 0)]
        if any(high > low for low, high in admin.offset_bounds(places, timeout=timeout).values()):
            raise InvalidOperationError(f"consumer group {saved.group!r} has records in {topic}: {advice}")
