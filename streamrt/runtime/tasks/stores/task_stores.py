"""The store partitions of one task: open, restore, prepare, flush, then renew or close."""

import contextlib
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from streamrt.errors import StateError, StoreCorruptedError
from streamrt.kafka import KafkaRequestError
from streamrt.records import TopicPartition
from streamrt.runtime.placement import ChangelogSettings, StorePlacement, identity_of, placement_of, topic_ids
from streamrt.runtime.read_messages import TaskRows
from streamrt.runtime.report import StoreSize, StoreTime
from streamrt.runtime.tasks.stores.changelog_restore import (
    RestoreAction,
    Restored,
    RestorePlan,
    check_owner,
    check_partitions,
    check_position,
    plan_restore,
    refuse_without_changelog,
    replay,
)
from streamrt.runtime.tasks.stores.foreign import (
    check_ownership,
    epoch_headers,
    refuse_later_owner,
    restore_overwritten_keys,
)
from streamrt.runtime.tasks.stores.local_data import adopt_snapshot, open_empty, refuse_lost_records
from streamrt.runtime.tasks.stores.open_store import OpenStore, RestoreInterrupted, RestoreProgress
from streamrt.runtime.tasks.stores.snapshot_rules import SnapshotRules
from streamrt.runtime.tasks.stores.snapshots import Snapshots
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.task_clients import RecordWriter, TaskClients
from streamrt.state import RocksDBOptions, Stamp, Store, StoreIdentity, StorePartition
from streamrt.state.base import Transaction
from streamrt.state.changelog import POSITION_KEY, Position, epoch_of
from streamrt.state.reading import StoreRead, read_rows
from streamrt.topology import TaskId, TaskStore

logger = logging.getLogger("streamrt")

_HOLD_BACK_MS = 300_000
"""Maximum time that changes of an open store may wait in a write buffer; a crash replays them."""


def ask_ends(clients: TaskClients, several: Collection["TaskStores"]) -> None:
    """Ask for the ends of the changelogs of several tasks with one request, for `is_alone` and `match_changelogs`.

    One request for each of a hundred changelogs takes forty times as long. Without an answer, each task asks for itself.
    """
    for stores in several:
        stores._ends = {}
    with contextlib.suppress(KafkaRequestError):
        ends = clients.ends([log for stores in several for log, _, _ in stores._shared()])
        for stores in several:
            stores._ends = {log: ends[log] for log, _, _ in stores._shared()}


class TaskStores:
    """Opens the store partitions of one task, and writes them with one or more commits.

    Args:
        catalog: the stores of this process.
        stores: the stores of the task, by their names in the task.
        task: the task.
        clients: reads changelogs.
        transactional: whether commits are exactly-once.
        claims: with at-least-once, the numbers of the claims of the input partitions.
        attempt: number of the processing attempt.
    """

    def __init__(
        self,
        catalog: StoreCatalog,
        stores: Mapping[str, TaskStore],
        task: TaskId,
        clients: TaskClients,
        *,
        transactional: bool,
        claims: Mapping[TopicPartition, int] | None = None,
        attempt: int = 0,
    ) -> None:
        self._catalog = catalog
        self._placements = {name: placement_of(catalog.settings, task, store) for name, store in stores.items()}
        self._clients = clients
        self._transactional = transactional
        self._claims = claims or {}
        self._attempt = attempt
        self._open: dict[str, OpenStore] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._snapshots = catalog.snapshots
        self._repairs = (catalog.settings.options or RocksDBOptions()).on_corrupted_recreate
        self.progress: dict[str, RestoreProgress] = {}

    def open(
        self,
        committed: Mapping[TopicPartition, int],
        *,
        stateful: Collection[TopicPartition],
        deadline: float | None = None,
    ) -> None:
        """Open all stores and restore them to the ends of their changelogs.

        Args:
            committed: committed offset of each input partition.
            stateful: store scopes with their partition for which the last commit of the group records state.
            deadline: value of `time.monotonic()` at which a restore is interrupted; None for no deadline.

        Raises:
            RestoreInterrupted: at the deadline.
            StateError: if the state cannot be used; the subclass gives the reason.
        """
        for name, placement in self._placements.items():
            self._open[name] = self._open_store(
                name, placement, committed, has_committed_state=placement.scope in stateful, deadline=deadline
            )

    def pending(self, committed: Mapping[TopicPartition, int]) -> int:
        """Return the number of changelog offsets that a restore of all stores would replay, without restoring.

        Args:
            committed: committed offset of each input partition.
        """
        total = 0
        for placement in self._placements.values():
            changelog, log = placement.changelog, placement.changelog_partition
            if changelog is None or log is None:
                continue
            bounds = self._clients.bounds(log)
            stamp = None
            with (
                contextlib.suppress(StateError),
                contextlib.closing(self._store_of(placement).open(placement.scope.partition)) as partition,
            ):
                stamp = partition.stamp
            plan = self._plan_restore(
                stamp, identity_of(self._catalog.settings, placement), bounds, placement.total(committed), changelog
            )
            total += max(0, bounds[1] - plan.start)
        return total

    def transaction(self, name: str) -> Transaction:
        """Return the open transaction of a store."""
        return self._open[name].transaction

    def read(self, name: str, read: StoreRead) -> TaskRows:
        """Read committed state, between two commits.

        Args:
            name: name of the store in the task.
            read: the range of keys.

        Raises:
            StateError: if the data is damaged.
        """
        store = self._open[name]
        found = read_rows(store.partition, read)
        return TaskRows(found, store.placement.split(found.stamp))

    @property
    def dirty(self) -> bool:
        """Whether there are writes since the stores were opened."""
        return any(store.transaction.changed for store in self._open.values())

    @property
    def logged(self) -> bool:
        """Whether changes of a store go to a changelog."""
        return any(store.changelog is not None for store in self._open.values())

    def times(self) -> dict[str, StoreTime]:
        """Return the event times of the stores with deadlines."""
        times: dict[str, StoreTime] = {}
        for name, store in self._open.items():
            timed = store.transaction
            if timed.timed:
                observed = timed.own_watermark
                remembered = timed.stream_time if observed is None else None
                times[name] = StoreTime(observed, timed.next_deadline, remembered, timed.next_processing_deadline)
        return times

    def take_reads(self) -> dict[str, tuple[int, int]]:
        """Return, by store, how many reads its cache and the store itself have answered since the last call."""
        return {name: store.transaction.take_reads() for name, store in self._open.items()}

    def sizes(self) -> dict[str, StoreSize]:
        """Return the approximate sizes of the open stores, without those that cannot be read."""
        found = {}
        for name, store in self._open.items():
            # The next use of the store reports the error.
            with contextlib.suppress(StateError):
                size, entries = store.partition.approximate_size(), store.partition.approximate_entries()
                newest = self._snapshots.newest(store.identity) if self._snapshots is not None else None
                found[name] = StoreSize(size, entries, *(newest or ()))
        return found

    def prepare(self, writer: RecordWriter, ends: Mapping[TopicPartition, int]) -> None:
        """Produce the changes of all stores, with a position record for each.

        Args:
            writer: the writer of changelog records.
            ends: next offset of each input partition.
        """
        now = self._clients.now()
        for store in self._open.values():
            changes = store.transaction.prepare()
            if store.changelog is None:
                continue
            topic, partition = store.changelog
            headers = None if self._transactional else epoch_headers(store.epoch)
            for key, value in changes:
                writer.produce(topic, value, key, now, headers, partition)
            position = Position(
                store.placement.total(ends),
                store.identity.topic_id,
                store.identity.partitions,
                store.transaction.stream_time,
                store.placement.each(ends),
                store.transaction.observed_time,
            )
            store.prepared, store.position = changes, position.encode()
            writer.produce(topic, store.position, POSITION_KEY, now, headers, partition)
            # The transaction marker also takes one offset. With exactly-once, the partition has no other writer.
            store.changes = len(changes) + (2 if self._transactional else 1)

    def is_alone(self) -> bool:
        """Return whether no other writer has changed the changelogs since the last commit; True with exactly-once.

        Raises:
            KafkaRequestError: if the changelogs cannot be checked.
        """
        return all(self._end_of(log) == store.changelog_end for log, _, store in self._shared())

    def match_changelogs(self, writer: RecordWriter) -> None:
        """With at-least-once, make the changelogs match the stores; the produced changelog records are durable.

        Args:
            writer: the writer of changelog records.

        Raises:
            TransactionError: if the partition was reassigned to another process.
            KafkaRequestError: if the changelogs cannot be checked or repaired.
        """
        for log, own, store in self._shared():
            store.changes = check_ownership(
                self._clients,
                writer,
                log,
                self._end_of(log),
                (store.changelog_end, store.changelog_end + store.changes),
                store.prepared,
                store.partition,
                store.position,
                own,
            )

    def _shared(self) -> Iterator[tuple[TopicPartition, bytes, OpenStore]]:
        """Yield the changelogs to which another writer may write, with the epoch of this process and the store."""
        for store in () if self._transactional else self._open.values():
            if store.changelog is not None and store.epoch is not None:
                yield store.changelog, store.epoch, store

    def _end_of(self, log: TopicPartition) -> int:
        """Return the end of a changelog: what `ask_ends` has heard, which counts once, or an answer of its own."""
        end = self._ends.pop(log, None)
        return self._clients.ends([log])[log] if end is None else end

    def flush(self, ends: Mapping[TopicPartition, int]) -> None:
        """Write the changes to the stores; the produced changelog records are durable.

        Args:
            ends: next offset of each input partition.
        """
        now = self._clients.now()
        for store in self._open.values():
            stamp = Stamp(
                store.identity,
                store.placement.total(ends),
                None if store.changelog is None else store.changelog_end + store.changes,
                store.transaction.stream_time,
                now,
                store.placement.each(ends),
                store.transaction.observed_time,
                store.epoch if store.changelog is not None else None,
            )
            store.transaction.flush(stamp)
            store.changelog_end = stamp.changelog_offset or 0
            store.changes, store.prepared = 0, ()
            if store.held_back_since is None:
                store.held_back_since = now
            if now - store.flushed_at >= store.patience_ms:
                # After a long idle time, a crash must not bring back the old stamp, which would force a complete
                # restore.
                self._flush_store(store, now)
            if self._snapshots is not None and store.changelog is not None:
                # The store has what is committed, and nothing else.
                self._snapshots.offer(store.identity, store.partition)

    def take_due_snapshots(self) -> None:
        """Take the snapshots that are due although no commit follows the last one."""
        if self._snapshots is not None:
            for store in self._open.values():
                if store.changelog is not None:
                    self._snapshots.offer(store.identity, store.partition, after_commit=False)

    def flush_held_back(self) -> bool:
        """Start writing to disk the overdue changes of one store at most, without waiting.

        Returns:
            Whether a store had overdue changes.

        Raises:
            StateError: if they cannot be written.
        """
        now = self._clients.now()
        for store in self._open.values():
            since = store.held_back_since
            # A clock that was set back must not delay changes by the difference.
            if since is not None and not 0 <= now - since < min(_HOLD_BACK_MS, store.patience_ms):
                self._flush_store(store, now)
                return True
        return False

    @staticmethod
    def _flush_store(store: OpenStore, now: int) -> None:
        store.partition.flush(wait=False)
        store.flushed_at, store.held_back_since = now, None

    def renew(self) -> None:
        """Begin new transactions over the open store partitions, after `flush`."""
        for store in self._open.values():
            store.transaction = self._begin_transaction(store.placement, store.partition)

    def close(self) -> None:
        """Drop unflushed changes, and close the store partitions.

        Raises:
            StateError: if a store cannot be closed, because the disk is full or its data is damaged; the others are
                closed.
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
            # Damaged stores are restored automatically; other errors need the user, so they come first.
            raise min(errors, key=lambda error: isinstance(error, StoreCorruptedError))

    def destroy(self, damage: StoreCorruptedError) -> None:
        """Close the store partitions and delete their data, so that they are restored completely.

        Args:
            damage: the reason.

        Raises:
            StateError: if one of them has no changelog, or `on_corrupted_recreate` is False; then nothing is deleted.
        """
        with contextlib.suppress(StateError):
            self.close()
        if not self._repairs:
            raise damage
        for placement in self._placements.values():
            if placement.changelog is None:
                raise StateError(
                    f"{damage}; with use_changelog_topics=False there is no changelog to restore store "
                    f"{placement.spec.name!r} of {placement.scope} from: bring the directory back, or start over with "
                    "another consumer_group"
                )
        logger.warning("%s; restoring it from its changelog", damage)
        for placement in self._placements.values():
            self._store_of(placement).destroy(placement.scope.partition)

    def _open_store(
        self,
        name: str,
        placement: StorePlacement,
        committed: Mapping[TopicPartition, int],
        *,
        has_committed_state: bool,
        deadline: float | None,
    ) -> OpenStore:
        identity = identity_of(self._catalog.settings, placement)
        partition = self._open_partition(placement)
        try:
            end, epoch = 0, self._changelog_epoch(placement)
            log = placement.changelog_partition
            if log is None:
                refuse_without_changelog(
                    partition.stamp, placement.scope, placement.spec.name, has_committed_state=has_committed_state
                )
                stamp = partition.stamp
                if stamp is not None:
                    check_owner(stamp.identity, identity)
                    self._check_position(placement, stamp, stamp.identity.topic_id, committed, identity)
            else:
                bounds = self._clients.bounds(log)
                if self._snapshots is not None and self._store_of(placement).adopts:
                    partition, bounds = self._adopt_snapshot(
                        self._snapshots, name, placement, partition, identity, bounds, committed, deadline
                    )
                partition, end, found = self._restore_store(
                    name, placement, partition, identity, bounds, committed, deadline
                )
                epoch = epoch or found
            transaction = self._begin_transaction(placement, partition)
        except BaseException:
            partition.close()
            raise
        stamp = partition.stamp
        flushed_at = 0 if stamp is None else stamp.written_at
        return OpenStore(
            placement,
            identity,
            partition,
            transaction,
            placement.changelog_partition,
            end,
            epoch,
            flushed_at=flushed_at,
        )

    def _changelog_epoch(self, placement: StorePlacement) -> bytes | None:
        """Return the epoch of this process's changelog records; None with exactly-once."""
        if self._transactional:
            return None
        return epoch_of(max(self._claims.get(partition, 0) for partition in placement.inputs), self._attempt)

    def _begin_transaction(self, placement: StorePlacement, partition: StorePartition) -> Transaction:
        transaction = placement.spec.begin(partition, self._catalog.settings.options, placement.changelog is not None)
        transaction.now = self._clients.now
        return transaction

    def _store_of(self, placement: StorePlacement) -> Store:
        return self._catalog.store(placement.scope.topic, placement.spec)

    def _plan_restore(
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

    def _open_partition(self, placement: StorePlacement) -> StorePartition:
        store, number = self._store_of(placement), placement.scope.partition
        try:
            return store.open(number)
        except StoreCorruptedError as damage:
            if placement.changelog is None or not self._repairs:
                raise
            logger.warning("%s; restoring it from its changelog", damage)
            store.destroy(number)
            return store.open(number)

    def _restore_store(
        self,
        name: str,
        placement: StorePlacement,
        partition: StorePartition,
        identity: StoreIdentity,
        bounds: tuple[int, int],
        committed: Mapping[TopicPartition, int],
        deadline: float | None,
    ) -> tuple[StorePartition, int, bytes | None]:
        """Restore a store partition to the end of its changelog; return it, maybe reopened, that end and its epoch."""
        changelog, log = placement.changelog, placement.changelog_partition
        if changelog is None or log is None:
            raise ValueError(f"store {placement.spec.name!r} of {placement.scope} has no changelog")
        stamp = partition.stamp
        if stamp is not None:
            check_owner(stamp.identity, identity)
        plan = self._plan_restore(stamp, identity, bounds, placement.total(committed), changelog)
        refuse_lost_records(placement, log, bounds, stamp, identity, plan)
        if plan.action is RestoreAction.READY:
            epoch = None if stamp is None else stamp.epoch
            refuse_later_owner(placement.scope, epoch, self._changelog_epoch(placement))
            self._check_position(placement, stamp, None, committed, identity)
            return partition, plan.start, epoch
        if plan.action is RestoreAction.WIPE:
            logger.warning(
                "store %r of %s is restored completely: %s", placement.spec.name, placement.scope, plan.reason
            )
            partition = open_empty(self._store_of(placement), placement.scope.partition, partition)
        try:
            found = self._replay_changelog(
                name, placement, partition, identity, (plan.start, bounds[1]), committed, deadline
            )
            end = self._set_right(placement, partition, found, bounds[1])
            # Otherwise an idle store would keep its old stamp on disk.
            partition.flush(wait=False)
        except BaseException:
            partition.close()
            raise
        return partition, end, found.epoch

    def _adopt_snapshot(
        self,
        snapshots: Snapshots,
        name: str,
        placement: StorePlacement,
        partition: StorePartition,
        identity: StoreIdentity,
        bounds: tuple[int, int],
        committed: Mapping[TopicPartition, int],
        deadline: float | None,
    ) -> tuple[StorePartition, tuple[int, int]]:
        """Replace the data of a store by its newest snapshot, if that saves a long replay.

        Returns:
            The open data, and the bounds of the changelog, which may have changed during a search.
        """
        changelog, log = placement.changelog, placement.changelog_partition
        if changelog is None or log is None:
            return partition, bounds
        now, total = self._clients.now(), placement.total(committed)
        stamp = partition.stamp
        if stamp is not None:
            check_owner(stamp.identity, identity)
        plan = self._plan_restore(stamp, identity, bounds, total, changelog)
        found = None
        if bounds[1] - plan.start >= snapshots.least_replay:
            absence = changelog.longest_absence_ms
            rules = SnapshotRules(identity, bounds, total, self._transactional, now, absence, plan.start)
            progress = self.progress[name] = RestoreProgress(0, bounds[1] - plan.start)

            def advance(share: float, offset: int) -> None:
                progress.done = int(share * (offset - plan.start))

            found = snapshots.find(identity, rules, deadline, advance)
            if found is None:
                bounds = self._clients.bounds(log)
        if found is None:
            if plan.start < bounds[1] and (stamp is None or plan.action is RestoreAction.WIPE):
                snapshots.note_restore(identity, from_snapshot=False)
            return partition, bounds
        partition, adopted = adopt_snapshot(self._store_of(placement), placement, partition, found)
        try:
            bounds = self._clients.bounds(log)
        except BaseException:
            # The caller knows only the partition that was open before.
            partition.close()
            raise
        if not adopted:
            return partition, bounds
        snapshots.note_restore(identity, from_snapshot=True)
        logger.info(
            "restored store %r of %s up to changelog offset %d from a snapshot of %.1f MB",
            placement.spec.name,
            placement.scope,
            found.manifest.stamp.changelog_offset,
            found.manifest.size / 1e6,
        )
        return partition, bounds

    def _set_right(self, placement: StorePlacement, partition: StorePartition, found: Restored, end: int) -> int:
        """Rewrite the keys whose last records in the changelog were skipped; return the new end of the changelog."""
        own, log, stamp = self._changelog_epoch(placement), placement.changelog_partition, partition.stamp
        if own is None or log is None or stamp is None or not found.passed_over:
            # With exactly-once, each restore skips these records again.
            return end
        end = restore_overwritten_keys(
            self._clients, self._clients.writer(), log, end, found.passed_over, partition, own
        )
        partition.write((), replace(stamp, changelog_offset=end, epoch=own))
        return end

    def _replay_changelog(
        self,
        name: str,
        placement: StorePlacement,
        partition: StorePartition,
        identity: StoreIdentity,
        bounds: tuple[int, int],
        committed: Mapping[TopicPartition, int],
        deadline: float | None,
    ) -> Restored:
        log = placement.changelog_partition
        if log is None:
            raise ValueError(f"store {placement.spec.name!r} of {placement.scope} has no changelog")
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
        refuse_later_owner(placement.scope, found.epoch, self._changelog_epoch(placement))
        position = found.position
        topic_id = None if position is None else position.topic_id
        self._check_position(placement, position, topic_id, committed, identity)
        if position is not None:
            check_partitions(position.partitions, identity)
        return found

    def _check_position(
        self,
        placement: StorePlacement,
        found: Position | Stamp | None,
        topic_id: str | None,
        committed: Mapping[TopicPartition, int],
        identity: StoreIdentity,
    ) -> None:
        """Compare the state's offset of each input with the committed offset."""
        at = placement.split(found) or {}
        if len(placement.inputs) == 1:
            self._check_input(placement, placement.inputs[0], at, topic_id, committed, identity)
            return
        former, current = topic_ids(topic_id, placement), topic_ids(identity.topic_id, placement)
        for partition in placement.inputs:
            own = replace(identity, topic_id=current[partition.topic])
            self._check_input(placement, partition, at, former[partition.topic], committed, own)

    def _check_input(
        self,
        placement: StorePlacement,
        partition: TopicPartition,
        at: Mapping[TopicPartition, int],
        topic_id: str | None,
        committed: Mapping[TopicPartition, int],
        identity: StoreIdentity,
    ) -> None:
        check_position(
            at.get(partition),
            topic_id,
            partition,
            placement,
            committed[partition],
            identity,
            self._clients,
            transactional=self._transactional,
        )
