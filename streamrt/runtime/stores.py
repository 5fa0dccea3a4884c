"""The store partitions of one task for one micro-batch: open, restore, prepare, flush, close."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamrt.errors import ChangelogError, StateError, StoreCorruptedError
from streamrt.models import TopicPartition
from streamrt.runtime.clients import RecordWriter, TaskClients
from streamrt.runtime.restore import (
    RestoreAction,
    RestorePlan,
    check_owner,
    check_partitions,
    check_position,
    plan_restore,
    refuse_without_changelog,
    replay,
)
from streamrt.state import (
    POSITION_KEY,
    MemoryStore,
    Position,
    RocksDBOptions,
    RocksDBStore,
    Stamp,
    Store,
    StoreIdentity,
    StorePartition,
    StoreSpec,
    StoreTransaction,
)

logger = logging.getLogger("streamrt")

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
    """What the stores of one source topic need to know about Kafka.

    Attributes:
        topic_id: Kafka's id of the source topic.
        partitions: its partition count.
        stores: the changelog of each store, or None where it has none.
    """

    topic_id: str | None = None
    partitions: int = 1
    stores: Mapping[str, ChangelogSettings | None] = field(default_factory=dict)


@dataclass(frozen=True)
class StateSettings:
    """What tasks need to know about state beside the topology.

    Attributes:
        group: the consumer group.
        base_dir: directory of the store partitions.
        options: how RocksDB works.
        sources: one entry for each source topic with stores.
        in_memory: whether stores of RocksDB are kept in memory instead, for tests.
    """

    group: str
    base_dir: Path
    options: RocksDBOptions | None = None
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    in_memory: bool = False


class RestoreInterrupted(Exception):  # noqa: N818 - control flow inside the runtime
    """The time for a restore is over; the next one goes on from there."""


@dataclass
class RestoreProgress:
    """How far the restore of one store partition is.

    Attributes:
        done: changelog offsets replayed.
        total: changelog offsets to replay in all.
        records: records applied.
    """

    done: int
    total: int
    records: int = 0


@dataclass
class _OpenStore:
    """A store partition in use."""

    spec: StoreSpec
    identity: StoreIdentity
    partition: StorePartition
    transaction: StoreTransaction
    changelog: TopicPartition | None
    changelog_end: int
    changes: int = 0


class StoreCatalog:
    """The `Store` objects of one process; memory stores keep their data in them.

    Args:
        settings: where stores lie, and their changelogs.
    """

    def __init__(self, settings: StateSettings) -> None:
        self.settings = settings
        self._stores: dict[tuple[str, str], Store] = {}

    def store(self, topic: str, spec: StoreSpec) -> Store:
        """Return the store of a source topic."""
        store = self._stores.get((topic, spec.name))
        if store is None:
            kind = MemoryStore if self.settings.in_memory and spec.kind is RocksDBStore else spec.kind
            store = kind(spec.name, topic, Path(self.settings.base_dir), self.settings.options)
            self._stores[topic, spec.name] = store
        return store


class TaskStores:
    """Opens the store partitions of one task, and carries them through one commit.

    Args:
        catalog: the stores of this process.
        specs: the stores of the task's sub-topology.
        place: the input partition.
        clients: reads changelogs.
        transactional: whether commits are exactly-once.
    """

    def __init__(
        self,
        catalog: StoreCatalog,
        specs: tuple[StoreSpec, ...],
        place: TopicPartition,
        clients: TaskClients,
        *,
        transactional: bool,
    ) -> None:
        self._catalog = catalog
        self._specs = specs
        self._place = place
        self._clients = clients
        self._transactional = transactional
        self._source = catalog.settings.sources.get(place.topic, SourceState())
        self._open: dict[str, _OpenStore] = {}
        self._repairs = (catalog.settings.options or RocksDBOptions()).on_corrupted_recreate
        self.progress: dict[str, RestoreProgress] = {}

    def open(self, committed: int, *, known: bool, deadline: float | None = None) -> None:
        """Open all stores and bring them to the end of their changelogs.

        Args:
            committed: committed offset of the input partition.
            known: whether the group's last commit tells that the partition has state.
            deadline: value of `time.monotonic()` at which a restore is interrupted; None lets it end.

        Raises:
            RestoreInterrupted: at the deadline.
            StateError: if the state cannot be used; a subclass tells why.
        """
        for spec in self._specs:
            self._open[spec.name] = self._open_store(spec, committed, known=known, deadline=deadline)

    def pending(self, committed: int) -> int:
        """Return how many changelog offsets a restore would have to replay, over all stores; restores nothing.

        Args:
            committed: committed offset of the input partition.
        """
        total = 0
        for spec in self._specs:
            changelog = self._source.stores.get(spec.name)
            if changelog is None:
                continue
            bounds = self._clients.bounds(TopicPartition(changelog.topic, self._place.partition))
            stamp = None
            with (
                contextlib.suppress(StateError),
                contextlib.closing(
                    self._catalog.store(self._place.topic, spec).open(self._place.partition)
                ) as partition,
            ):
                stamp = partition.stamp
            plan = self._plan(stamp, self._identity(spec, changelog), bounds, committed, changelog)
            total += max(0, bounds[1] - plan.start)
        return total

    def states(self, name: str) -> Callable[[Any, int], Any]:
        """Return the function that gives the state of a key at a time, from the running transaction."""
        return self._open[name].transaction.state

    def prepare(self, writer: RecordWriter, end: int) -> int:
        """Produce the changes of all stores, and the position that they stand for.

        Args:
            writer: where changelog records go.
            end: next input offset.

        Returns:
            The number of records produced.
        """
        now = self._clients.now()
        produced = 0
        for store in self._open.values():
            changes = store.transaction.prepare()
            if store.changelog is None:
                continue
            topic, partition = store.changelog
            for key, value in changes:
                writer.produce(topic, value, key, now, None, partition)
            position = Position(end, store.identity.topic_id, store.identity.partitions, store.transaction.stream_time)
            writer.produce(topic, position.encode(), POSITION_KEY, now, None, partition)
            store.changes = len(changes) + 1
            produced += store.changes
        return produced

    def flush(self, end: int) -> None:
        """Write the changes to the stores; what was produced for them is durable.

        Args:
            end: next input offset.
        """
        now = self._clients.now()
        for store in self._open.values():
            stamp = Stamp(store.identity, end, self._next_changelog_offset(store), store.transaction.stream_time, now)
            store.transaction.flush(stamp)

    def close(self) -> None:
        """Drop what was not flushed, and close the store partitions.

        Raises:
            StateError: if a store cannot be closed, because the disk is full or its data damaged; the others are closed.
        """
        errors: list[StateError] = []
        for store in self._open.values():
            if not store.transaction.status.final:
                store.transaction.discard()
            try:
                store.partition.close()
            except StateError as error:
                errors.append(error)
        self._open.clear()
        if errors:
            raise errors[0]

    def destroy(self, damage: StoreCorruptedError) -> None:
        """Close the store partitions and delete their data, so that they are restored as a whole.

        Args:
            damage: why.

        Raises:
            StateError: if one of them has no changelog to be restored from, or `on_corrupted_recreate` forbids it; then
                nothing is deleted.
        """
        with contextlib.suppress(StateError):
            self.close()
        if not self._repairs:
            raise damage
        for spec in self._specs:
            if self._source.stores.get(spec.name) is None:
                raise StateError(
                    f"{damage}; use_changelog_topics=False leaves nothing to restore store {spec.name!r} of {self._place} "
                    "from: bring the directory back, or start over with another consumer_group"
                )
        logger.warning("%s; restoring it from its changelog", damage)
        for spec in self._specs:
            self._catalog.store(self._place.topic, spec).destroy(self._place.partition)

    def _next_changelog_offset(self, store: _OpenStore) -> int | None:
        if store.changelog is None:
            return None
        expected = store.changelog_end + store.changes
        if self._transactional:
            # The transaction's marker takes one offset; the partition has no other writer, which is fenced.
            return expected + 1
        _, high = self._clients.bounds(store.changelog)
        if high == expected:
            return high
        # Somebody else wrote, too, such as a process that believes to own the partition still. Replay all of it next time.
        logger.warning(
            "changelog %s: %d records of another writer came in between; the state is replayed from there",
            store.changelog,
            high - expected,
        )
        return store.changelog_end

    def _open_store(self, spec: StoreSpec, committed: int, *, known: bool, deadline: float | None) -> _OpenStore:
        settings = self._catalog.settings
        changelog = self._source.stores.get(spec.name)
        identity = self._identity(spec, changelog)
        store = self._catalog.store(self._place.topic, spec)
        partition = self._open_partition(store, repairable=changelog is not None)
        try:
            place = None
            end = 0
            if changelog is None:
                refuse_without_changelog(partition.stamp, self._place, spec.name, known=known)
                stamp = partition.stamp
                if stamp is not None:
                    check_owner(stamp.identity, identity)
                    self._check(stamp.input_offset, stamp.identity.topic_id, spec.name, committed, identity)
            else:
                place = TopicPartition(changelog.topic, self._place.partition)
                partition, end = self._restore(store, partition, identity, place, changelog, committed, deadline)
            transaction = StoreTransaction(partition, settings.options, changelog is not None)
        except BaseException:
            partition.close()
            raise
        return _OpenStore(spec, identity, partition, transaction, place, end)

    def _identity(self, spec: StoreSpec, changelog: ChangelogSettings | None) -> StoreIdentity:
        return StoreIdentity(
            self._catalog.settings.group,
            self._place.topic,
            self._place.partition,
            spec.name,
            self._source.topic_id,
            None if changelog is None else changelog.id,
            self._source.partitions,
        )

    def _plan(
        self,
        stamp: Stamp | None,
        identity: StoreIdentity,
        bounds: tuple[int, int],
        committed: int,
        changelog: ChangelogSettings,
    ) -> RestorePlan:
        return plan_restore(
            stamp,
            identity,
            bounds,
            committed,
            transactional=self._transactional,
            now=self._clients.now(),
            longest_absence_ms=changelog.longest_absence_ms,
        )

    def _open_partition(self, store: Store, *, repairable: bool) -> StorePartition:
        try:
            return store.open(self._place.partition)
        except StoreCorruptedError as damage:
            if not repairable or not self._repairs:
                raise
            logger.warning("%s; restoring it from its changelog", damage)
            store.destroy(self._place.partition)
            return store.open(self._place.partition)

    def _restore(
        self,
        store: Store,
        partition: StorePartition,
        identity: StoreIdentity,
        place: TopicPartition,
        changelog: ChangelogSettings,
        committed: int,
        deadline: float | None,
    ) -> tuple[StorePartition, int]:
        """Bring a store partition to the end of its changelog; return it, maybe reopened, and that end."""
        bounds = self._clients.bounds(place)
        stamp = partition.stamp
        if stamp is not None:
            check_owner(stamp.identity, identity)
        plan = self._plan(stamp, identity, bounds, committed, changelog)
        if bounds[0] > 0 and (stamp is None or plan.action is RestoreAction.WIPE):
            raise ChangelogError(
                f"the records of changelog {place} below offset {bounds[0]} were deleted, so the state of {self._place} "
                "cannot be restored: compaction never does that, so check the topic's cleanup.policy; start over with "
                "another consumer_group"
            )
        if plan.action is RestoreAction.READY:
            if stamp is not None:
                self._check(stamp.input_offset, None, store.name, committed, identity)
            return partition, plan.start
        if plan.action is RestoreAction.WIPE:
            logger.warning("store %r of %s is restored as a whole: %s", store.name, self._place, plan.reason)
            partition.close()
            store.destroy(self._place.partition)
            partition = store.open(self._place.partition)
        try:
            self._replay(store.name, partition, identity, place, plan.start, bounds[1], committed, deadline)
        except BaseException:
            partition.close()
            raise
        return partition, bounds[1]

    def _replay(
        self,
        name: str,
        partition: StorePartition,
        identity: StoreIdentity,
        place: TopicPartition,
        start: int,
        end: int,
        committed: int,
        deadline: float | None,
    ) -> None:
        progress = self.progress[name] = RestoreProgress(0, end - start)
        begun = time.monotonic()

        def advance(records: int, at: int) -> bool:
            progress.records, progress.done = records, at - start
            return deadline is None or time.monotonic() < deadline

        found = replay(partition, identity, place, start, end, self._clients, advance)
        if found is None:
            raise RestoreInterrupted
        seconds = time.monotonic() - begun
        if found.records:
            logger.info("restored %d records of %s in %.1f s", found.records, place, seconds)
        position = found.position
        stamp = partition.stamp
        at = position.input_offset if position is not None else None if stamp is None else stamp.input_offset
        self._check(at, None if position is None else position.topic_id, name, committed, identity)
        if position is not None:
            check_partitions(position.partitions, identity)

    def _check(
        self, position: int | None, topic_id: str | None, store: str, committed: int, identity: StoreIdentity
    ) -> None:
        check_position(
            position,
            topic_id,
            self._place,
            store,
            committed,
            identity,
            self._clients,
            transactional=self._transactional,
        )
