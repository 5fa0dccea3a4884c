"""The store partitions of one task: open, restore, prepare, flush, and then renew or close."""

import contextlib
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from streamrt.errors import ChangelogError, StateError, StoreCorruptedError
from streamrt.models import TopicPartition
from streamrt.runtime.clients import RecordWriter, TaskClients
from streamrt.runtime.homes import ChangelogSettings, StateSettings, StoreHome, home_of, topic_ids
from streamrt.runtime.report import StoreTime
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
    TimedTransaction,
    Transaction,
)
from streamrt.topology import TaskStore

logger = logging.getLogger("streamrt")


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

    home: StoreHome
    identity: StoreIdentity
    partition: StorePartition
    transaction: Transaction
    changelog: TopicPartition | None
    changelog_end: int
    changes: int = 0
    disputed: bool = False
    """Whether another writer's records are in the changelog, which the store lacks."""


class StoreCatalog:
    """The `Store` objects of one process; memory stores keep their data in them.

    Args:
        settings: where stores lie, and their changelogs.
    """

    def __init__(self, settings: StateSettings) -> None:
        self.settings = settings
        self._stores: dict[tuple[str, str], Store] = {}

    def store(self, topic: str, spec: StoreSpec) -> Store:
        """Return the store of a source topic, or of several."""
        store = self._stores.get((topic, spec.name))
        if store is None:
            kind = MemoryStore if self.settings.in_memory and spec.kind is RocksDBStore else spec.kind
            store = kind(spec.name, topic, Path(self.settings.base_dir), self.settings.options)
            self._stores[topic, spec.name] = store
        return store


class TaskStores:
    """Opens the store partitions of one task, and carries them through one commit, or through many.

    Args:
        catalog: the stores of this process.
        stores: the stores of the task, by the names that they have in it.
        place: the task.
        clients: reads changelogs.
        transactional: whether commits are exactly-once.
    """

    def __init__(
        self,
        catalog: StoreCatalog,
        stores: Mapping[str, TaskStore],
        place: TopicPartition,
        clients: TaskClients,
        *,
        transactional: bool,
    ) -> None:
        self._catalog = catalog
        self._homes = {name: home_of(catalog.settings, place, store) for name, store in stores.items()}
        self._clients = clients
        self._transactional = transactional
        self._open: dict[str, _OpenStore] = {}
        self._repairs = (catalog.settings.options or RocksDBOptions()).on_corrupted_recreate
        self.progress: dict[str, RestoreProgress] = {}

    def open(
        self,
        committed: Mapping[TopicPartition, int],
        *,
        known: Collection[TopicPartition],
        deadline: float | None = None,
    ) -> None:
        """Open all stores and bring them to the end of their changelogs.

        Args:
            committed: committed offset of each input partition.
            known: topics, and partition, of which the group's last commit tells that they have state.
            deadline: value of `time.monotonic()` at which a restore is interrupted; None lets it end.

        Raises:
            RestoreInterrupted: at the deadline.
            StateError: if the state cannot be used; a subclass tells why.
        """
        for name, home in self._homes.items():
            self._open[name] = self._open_store(name, home, committed, known=home.place in known, deadline=deadline)

    def pending(self, committed: Mapping[TopicPartition, int]) -> int:
        """Return how many changelog offsets a restore would have to replay, over all stores; restores nothing.

        Args:
            committed: committed offset of each input partition.
        """
        total = 0
        for home in self._homes.values():
            changelog, log = home.changelog, home.changelog_partition
            if changelog is None or log is None:
                continue
            bounds = self._clients.bounds(log)
            stamp = None
            with (
                contextlib.suppress(StateError),
                contextlib.closing(self._store(home).open(home.place.partition)) as partition,
            ):
                stamp = partition.stamp
            plan = self._plan(stamp, self._identity(home), bounds, home.total(committed), changelog)
            total += max(0, bounds[1] - plan.start)
        return total

    def transaction(self, name: str) -> Transaction:
        """Return the running transaction of a store."""
        return self._open[name].transaction

    @property
    def dirty(self) -> bool:
        """Whether anything was written since the stores were opened."""
        return any(store.transaction.dirty for store in self._open.values())

    def times(self) -> dict[str, StoreTime]:
        """Return where event time is in the stores that keep deadlines."""
        times: dict[str, StoreTime] = {}
        for name, store in self._open.items():
            timed = store.transaction
            if isinstance(timed, TimedTransaction):
                remembered = timed.stream_time if timed.observed is None else None
                times[name] = StoreTime(timed.observed, timed.next_deadline, remembered)
        return times

    def prepare(self, writer: RecordWriter, ends: Mapping[TopicPartition, int]) -> None:
        """Produce the changes of all stores, and the position that they stand for.

        Args:
            writer: where changelog records go.
            ends: next offset of each input partition.
        """
        now = self._clients.now()
        for store in self._open.values():
            changes = store.transaction.prepare()
            if store.changelog is None:
                continue
            topic, partition = store.changelog
            for key, value in changes:
                writer.produce(topic, value, key, now, None, partition)
            position = Position(
                store.home.total(ends),
                store.identity.topic_id,
                store.identity.partitions,
                store.transaction.stream_time,
                store.home.each(ends),
            )
            writer.produce(topic, position.encode(), POSITION_KEY, now, None, partition)
            store.changes = len(changes) + 1

    def flush(self, ends: Mapping[TopicPartition, int]) -> None:
        """Write the changes to the stores; what was produced for them is durable.

        Args:
            ends: next offset of each input partition.
        """
        now = self._clients.now()
        for store in self._open.values():
            stamp = Stamp(
                store.identity,
                store.home.total(ends),
                self._next_changelog_offset(store),
                store.transaction.stream_time,
                now,
                store.home.each(ends),
            )
            store.transaction.flush(stamp)
            store.changelog_end = stamp.changelog_offset or 0

    def renew(self) -> bool:
        """Begin new transactions over the open store partitions, after `flush`.

        Returns:
            False if the stores must be opened anew, because a changelog has records that its store lacks.
        """
        if any(store.disputed for store in self._open.values()):
            return False
        for store in self._open.values():
            store.transaction = self._begin(store.home, store.partition)
            store.changes = 0
        return True

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
        for home in self._homes.values():
            if home.changelog is None:
                raise StateError(
                    f"{damage}; use_changelog_topics=False leaves nothing to restore store {home.spec.name!r} of "
                    f"{home.place} from: bring the directory back, or start over with another consumer_group"
                )
        logger.warning("%s; restoring it from its changelog", damage)
        for home in self._homes.values():
            self._store(home).destroy(home.place.partition)

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
        store.disputed = True
        # Somebody else wrote, too, such as a process that believes to own the partition still. Replay all of it next time.
        logger.warning(
            "changelog %s: %d records of another writer came in between; the state is replayed from there",
            store.changelog,
            high - expected,
        )
        return store.changelog_end

    def _open_store(
        self,
        name: str,
        home: StoreHome,
        committed: Mapping[TopicPartition, int],
        *,
        known: bool,
        deadline: float | None,
    ) -> _OpenStore:
        identity = self._identity(home)
        partition = self._open_partition(home)
        try:
            end = 0
            if home.changelog is None:
                refuse_without_changelog(partition.stamp, home.place, home.spec.name, known=known)
                stamp = partition.stamp
                if stamp is not None:
                    check_owner(stamp.identity, identity)
                    self._check(home, stamp, stamp.identity.topic_id, committed, identity)
            else:
                partition, end = self._restore(name, home, partition, identity, committed, deadline)
            transaction = self._begin(home, partition)
        except BaseException:
            partition.close()
            raise
        return _OpenStore(home, identity, partition, transaction, home.changelog_partition, end)

    def _begin(self, home: StoreHome, partition: StorePartition) -> Transaction:
        return home.spec.transaction(partition, self._catalog.settings.options, home.changelog is not None)

    def _store(self, home: StoreHome) -> Store:
        return self._catalog.store(home.place.topic, home.spec)

    def _identity(self, home: StoreHome) -> StoreIdentity:
        return StoreIdentity(
            self._catalog.settings.group,
            home.place.topic,
            home.place.partition,
            home.spec.name,
            home.source.topic_id,
            None if home.changelog is None else home.changelog.id,
            home.source.partitions,
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

    def _open_partition(self, home: StoreHome) -> StorePartition:
        store, number = self._store(home), home.place.partition
        try:
            return store.open(number)
        except StoreCorruptedError as damage:
            if home.changelog is None or not self._repairs:
                raise
            logger.warning("%s; restoring it from its changelog", damage)
            store.destroy(number)
            return store.open(number)

    def _restore(
        self,
        name: str,
        home: StoreHome,
        partition: StorePartition,
        identity: StoreIdentity,
        committed: Mapping[TopicPartition, int],
        deadline: float | None,
    ) -> tuple[StorePartition, int]:
        """Bring a store partition to the end of its changelog; return it, maybe reopened, and that end."""
        changelog, log = home.changelog, home.changelog_partition
        if changelog is None or log is None:
            raise ValueError(f"store {home.spec.name!r} of {home.place} has no changelog")
        bounds = self._clients.bounds(log)
        stamp = partition.stamp
        if stamp is not None:
            check_owner(stamp.identity, identity)
        plan = self._plan(stamp, identity, bounds, home.total(committed), changelog)
        if bounds[0] > 0 and (stamp is None or plan.action is RestoreAction.WIPE):
            raise ChangelogError(
                f"the records of changelog {log} below offset {bounds[0]} were deleted, so the state of {home.place} "
                "cannot be restored: compaction never does that, so check the topic's cleanup.policy; start over with "
                "another consumer_group"
            )
        if plan.action is RestoreAction.READY:
            self._check(home, stamp, None, committed, identity)
            return partition, plan.start
        if plan.action is RestoreAction.WIPE:
            taken = 0 if stamp is None or stamp.identity != identity else stamp.changelog_offset or 0
            if taken > bounds[1] == 0:
                raise ChangelogError(
                    f"changelog {log} is empty, but store {home.spec.name!r} of {home.place} has its records up to offset "
                    f"{taken}: brokers have lost them; start over with another consumer_group"
                )
            logger.warning("store %r of %s is restored as a whole: %s", home.spec.name, home.place, plan.reason)
            partition.close()
            store = self._store(home)
            store.destroy(home.place.partition)
            partition = store.open(home.place.partition)
        try:
            self._replay(name, home, partition, identity, (plan.start, bounds[1]), committed, deadline)
        except BaseException:
            partition.close()
            raise
        return partition, bounds[1]

    def _replay(
        self,
        name: str,
        home: StoreHome,
        partition: StorePartition,
        identity: StoreIdentity,
        bounds: tuple[int, int],
        committed: Mapping[TopicPartition, int],
        deadline: float | None,
    ) -> None:
        log = home.changelog_partition
        if log is None:
            raise ValueError(f"store {home.spec.name!r} of {home.place} has no changelog")
        start, end = bounds
        progress = self.progress[name] = RestoreProgress(0, end - start)
        begun = time.monotonic()

        def advance(records: int, at: int) -> bool:
            progress.records, progress.done = records, at - start
            return deadline is None or time.monotonic() < deadline

        found = replay(partition, identity, log, start, end, self._clients, advance)
        if found is None:
            raise RestoreInterrupted
        seconds = time.monotonic() - begun
        if found.records:
            logger.info("restored %d records of %s in %.1f s", found.records, log, seconds)
        position = found.position
        topic_id = None if position is None else position.topic_id
        self._check(home, partition.stamp if position is None else position, topic_id, committed, identity)
        if position is not None:
            check_partitions(position.partitions, identity)

    def _check(
        self,
        home: StoreHome,
        found: Position | Stamp | None,
        topic_id: str | None,
        committed: Mapping[TopicPartition, int],
        identity: StoreIdentity,
    ) -> None:
        """Compare the offset of each input that state stands for with the committed one."""
        at = home.split(found) or {}
        if len(home.inputs) == 1:
            self._check_input(home, home.inputs[0], at, topic_id, committed, identity)
            return
        former, current = topic_ids(topic_id, home), topic_ids(identity.topic_id, home)
        for place in home.inputs:
            own = replace(identity, topic_id=current[place.topic])
            self._check_input(home, place, at, former[place.topic], committed, own)

    def _check_input(
        self,
        home: StoreHome,
        place: TopicPartition,
        at: Mapping[TopicPartition, int],
        topic_id: str | None,
        committed: Mapping[TopicPartition, int],
        identity: StoreIdentity,
    ) -> None:
        check_position(
            at.get(place),
            topic_id,
            place,
            home.spec.name,
            committed[place],
            identity,
            self._clients,
            transactional=self._transactional,
        )
