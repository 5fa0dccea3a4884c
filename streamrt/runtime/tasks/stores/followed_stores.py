"""Copies of the stores of a task of another instance, which follow the changelogs so that a takeover restores little.

Nobody reads a copy. It is a cache as any local store: a task that takes it over compares its stamp with Kafka, and
replays what it lacks. So a copy may be behind, and must only never be ahead of what is committed: it follows up to the
last stable offset. One that is far behind begins with a snapshot, if there are any.
"""

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from streamrt.errors import StateError, StoreCorruptedError
from streamrt.records import TopicPartition
from streamrt.runtime.placement import ChangelogSettings, StateSettings, StorePlacement, identity_of, placement_of
from streamrt.runtime.tasks.stores.changelog_restore import (
    RestoreAction,
    RestorePlan,
    check_owner,
    plan_restore,
    replay,
)
from streamrt.runtime.tasks.stores.local_data import adopt_snapshot, open_empty, refuse_lost_records
from streamrt.runtime.tasks.stores.open_store import RestoreInterrupted
from streamrt.runtime.tasks.stores.snapshot_rules import ANY_OFFSET, SnapshotRules
from streamrt.runtime.tasks.stores.snapshots import Snapshots
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.task_clients import TaskClients
from streamrt.state import RocksDBOptions, Stamp, Store, StorePartition
from streamrt.topology import TaskId, TaskStore

__all__ = ["FollowedStores"]

logger = logging.getLogger("streamrt")

_LEAST_FREE = 512 * 1024 * 1024
"""Bytes of the disk that copies leave to the own tasks of the instance."""


class FollowedStores:
    """Copies of the stores of one task.

    Args:
        catalog: the stores of this process.
        stores: the stores of the task; those without a changelog have no copy.
        task: the task.
        clients: reads the changelogs.
    """

    def __init__(self, catalog: StoreCatalog, stores: Iterable[TaskStore], task: TaskId, clients: TaskClients) -> None:
        self._copies: list[_Copy] = []
        self._directory = catalog.settings.base_dir
        for store in stores:
            placement = placement_of(catalog.settings, task, store)
            changelog, log = placement.changelog, placement.changelog_partition
            if changelog is not None and log is not None:
                kept = catalog.store(placement.scope.topic, placement.spec)
                snapshots = catalog.snapshots if kept.adopts else None
                self._copies.append(_Copy(kept, placement, changelog, log, catalog.settings, clients, snapshots))

    def catch_up(self, in_time: Callable[[], bool]) -> int:
        """Apply what is new in the changelogs.

        Args:
            in_time: whether there is time for more records.

        Returns:
            The number of changelog offsets that are left, although there may be time: a snapshot is being downloaded.

        Raises:
            StateError: if a copy cannot be used; a takeover would say the same.
            KafkaRequestError: if the brokers do not answer.
        """
        _refuse_full_disk(self._directory)
        return sum(copy.catch_up(in_time) for copy in self._copies)

    def close(self) -> None:
        """Close the copies; their files stay. The next `catch_up` opens them again."""
        for copy in self._copies:
            # Whoever opens the files next reports what is wrong with them.
            with contextlib.suppress(StateError):
                copy.close()


class _Copy:
    """A copy of one store partition."""

    def __init__(
        self,
        store: Store,
        placement: StorePlacement,
        changelog: ChangelogSettings,
        log: TopicPartition,
        settings: StateSettings,
        clients: TaskClients,
        snapshots: Snapshots | None,
    ) -> None:
        self._store = store
        self._placement = placement
        self._identity = identity_of(settings, placement)
        self._longest_absence_ms = changelog.longest_absence_ms
        self._log = log
        self._clients = clients
        self._snapshots = snapshots
        self._repairs = (settings.options or RocksDBOptions()).on_corrupted_recreate
        self._partition: StorePartition | None = None
        self._reached = -1

    def catch_up(self, in_time: Callable[[], bool]) -> int:
        try:
            return self._follow(in_time)
        except StoreCorruptedError as damage:
            if not self._repairs:
                raise
            logger.warning("%s; the standby begins again", damage)
            with contextlib.suppress(StateError):
                self.close()
            self._store.destroy(self._placement.scope.partition)
            return self._clients.log_end(self._log)

    def _follow(self, in_time: Callable[[], bool]) -> int:
        end = self._clients.log_end(self._log)
        if end == self._reached:
            return 0
        partition = self._partition or self._open()
        bounds = self._clients.bounds(self._log)
        if self._is_ahead(partition.stamp, end, bounds[1]):
            return 0
        plan = self._plan(partition.stamp, bounds)
        if self._snapshots is not None and end - plan.start >= self._snapshots.least_replay:
            try:
                partition = self._adopt_snapshot(self._snapshots, partition, bounds, plan.start)
            except RestoreInterrupted:
                return end - plan.start
            if self._is_ahead(partition.stamp, end, bounds[1]):
                return 0
            plan = self._plan(partition.stamp, bounds)
        refuse_lost_records(self._placement, self._log, bounds, partition.stamp, self._identity, plan)
        if plan.action is RestoreAction.WIPE:
            self._partition = None
            partition = self._partition = open_empty(self._store, self._placement.scope.partition, partition)
        if plan.action is not RestoreAction.READY:
            at = plan.start

            def advance(_: int, reached: int) -> bool:
                nonlocal at
                at = reached
                return in_time()

            if replay(partition, self._identity, self._log, plan.start, end, self._clients, advance) is None:
                return end - at
        self._reached = end
        return 0

    def close(self) -> None:
        partition, self._partition, self._reached = self._partition, None, -1
        if self._snapshots is not None:
            self._snapshots.abandon(self._identity)
        if partition is not None:
            partition.close()

    def _open(self) -> StorePartition:
        self._partition = self._store.open(self._placement.scope.partition)
        return self._partition

    def _is_ahead(self, stamp: Stamp | None, end: int, high: int) -> bool:
        """Return whether a copy has committed records behind the last stable offset, so that only a takeover compares it.

        The stamp of a former owner counts the marker of its last transaction, which may not be written yet.
        """
        return (
            stamp is not None and stamp.identity == self._identity and end < (stamp.changelog_offset or 0) <= high + 1
        )

    def _plan(self, stamp: Stamp | None, bounds: tuple[int, int]) -> RestorePlan:
        if stamp is not None:
            check_owner(stamp.identity, self._identity)
        return plan_restore(
            stamp,
            self._identity,
            bounds,
            ANY_OFFSET,
            transactional=False,
            now=self._clients.now(),
            longest_absence_ms=self._longest_absence_ms,
        )

    def _adopt_snapshot(
        self, snapshots: Snapshots, partition: StorePartition, bounds: tuple[int, int], start: int
    ) -> StorePartition:
        """Replace a copy by the newest snapshot, if one is here.

        Raises:
            RestoreInterrupted: while it is being downloaded.
        """
        identity, now = self._identity, self._clients.now()
        if not snapshots.can_find(identity):
            raise RestoreInterrupted
        rules = SnapshotRules(identity, bounds, ANY_OFFSET, False, now, self._longest_absence_ms, start)
        found = snapshots.find(identity, rules, time.monotonic(), lambda _share, _offset: None)
        if found is None:
            return partition
        self._partition = None
        partition, adopted = adopt_snapshot(self._store, self._placement, partition, found)
        self._partition = partition
        if adopted:
            logger.info(
                "the standby of store %r of %s begins at changelog offset %d, with a snapshot of %.1f MB",
                self._placement.spec.name,
                self._placement.scope,
                found.manifest.stamp.changelog_offset,
                found.manifest.size / 1e6,
            )
        return partition


def _refuse_full_disk(directory: Path) -> None:
    # Without a directory, nothing has been written to it.
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(directory).free
        if free < _LEAST_FREE:
            raise StateError(
                f"only {free // 1_000_000} MB are free for {directory}, which the instance's own tasks need: free space "
                "there, or move the state directory to a larger disk"
            )
