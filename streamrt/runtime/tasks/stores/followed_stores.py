"""Copies of the stores of a task of another instance, which follow the changelogs so that a takeover restores little.

Nobody reads a copy. It is a cache as any local store: a task that takes it over compares its stamp with Kafka, and
replays what it lacks. So a copy may be behind, and must only never be ahead of what is committed: it follows up to the
last stable offset.
"""

import contextlib
from collections.abc import Callable, Iterable

from streamrt.errors import ChangelogError, StateError
from streamrt.records import TopicPartition
from streamrt.runtime.placement import ChangelogSettings, StateSettings, StorePlacement, identity_of, placement_of
from streamrt.runtime.tasks.stores.changelog_restore import RestoreAction, check_owner, plan_restore, replay
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.task_clients import TaskClients
from streamrt.state import Store, StorePartition
from streamrt.topology import TaskId, TaskStore

__all__ = ["FollowedStores"]

_ANY_OFFSET = 1 << 62


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
        for store in stores:
            placement = placement_of(catalog.settings, task, store)
            changelog, log = placement.changelog, placement.changelog_partition
            if changelog is not None and log is not None:
                kept = catalog.store(placement.scope.topic, placement.spec)
                self._copies.append(_Copy(kept, placement, changelog, log, catalog.settings, clients))

    def catch_up(self, in_time: Callable[[], bool]) -> int:
        """Apply what is new in the changelogs.

        Args:
            in_time: whether there is time for more records.

        Returns:
            The number of changelog offsets that are left.

        Raises:
            StateError: if a copy cannot be used; a takeover would say the same.
            KafkaRequestError: if the brokers do not answer.
        """
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
    ) -> None:
        self._store = store
        self._number = placement.scope.partition
        self._identity = identity_of(settings, placement)
        self._longest_absence_ms = changelog.longest_absence_ms
        self._log = log
        self._clients = clients
        self._partition: StorePartition | None = None
        self._reached = -1

    def catch_up(self, in_time: Callable[[], bool]) -> int:
        end = self._clients.log_end(self._log)
        if end == self._reached:
            return 0
        if self._partition is None:
            self._partition = self._store.open(self._number)
        partition = self._partition
        stamp = partition.stamp
        if stamp is not None:
            check_owner(stamp.identity, self._identity)
            if stamp.identity == self._identity and stamp.changelog_offset == end + 1:
                # The stamp of a former owner counts the marker of its last transaction, which is not written yet.
                return 0
        low, _ = self._clients.bounds(self._log)
        plan = plan_restore(
            stamp,
            self._identity,
            (low, end),
            _ANY_OFFSET,
            transactional=False,
            now=self._clients.now(),
            longest_absence_ms=self._longest_absence_ms,
        )
        if low > 0 and (stamp is None or plan.action is RestoreAction.WIPE):
            raise ChangelogError(f"the records of changelog {self._log} below offset {low} were deleted")
        if plan.action is RestoreAction.WIPE:
            partition.close()
            self._partition = None
            self._store.destroy(self._number)
            partition = self._partition = self._store.open(self._number)
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
        if partition is not None:
            partition.close()
