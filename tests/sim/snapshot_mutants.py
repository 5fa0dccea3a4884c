"""Deliberate mistakes with snapshots."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import streamrt.runtime.tasks.stores.followed_stores as followed_module
import streamrt.runtime.tasks.stores.snapshot_rules as rules_module
import streamrt.runtime.tasks.stores.task_stores as stores_module
from streamrt.runtime.tasks.stores.changelog_restore import plan_restore
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.state import Stamp, StoreIdentity, StorePartition
from tests.sim.snapshots import (
    AgingSnapshotSimulation,
    AgingStandbySimulation,
    ResidentSnapshotSimulation,
    SimSnapshots,
    SnapshotSimulation,
    StandbySnapshotSimulation,
)
from tests.sim.standby_mutants import STANDBY_MISTAKES
from tests.sim.stores import SimPartition

SNAPSHOTS: Final = "snapshots"
_AGE: Final = "snapshots of any age are used"

_REAL_PREPARE = TaskStores.prepare
_REAL_OFFER = SimSnapshots.offer


def _plan_without_age(*args: Any, longest_absence_ms: int, **options: Any) -> Any:
    return plan_restore(*args, longest_absence_ms=1 << 62, **options)


def _take_before_the_commit(self: TaskStores, writer: Any, ends: Any) -> None:
    """Take snapshots with the changes of a transaction that may be aborted, stamped as if it were committed."""
    _REAL_PREPARE(self, writer, ends)
    for store in self._open.values():
        snapshots, partition = self._snapshots, store.partition
        if not isinstance(snapshots, SimSnapshots) or not isinstance(partition, SimPartition):
            continue
        entries, _ = partition.content()
        entries.update({key: value for key, value in store.prepared if value is not None})
        for key, value in store.prepared:
            if value is None:
                entries.pop(key, None)
        stamp = Stamp(
            store.identity,
            store.placement.total(ends),
            store.changelog_end + store.changes,
            store.transaction.stream_time,
            self._clients.now(),
            store.placement.each(ends),
            store.transaction.observed_time,
            store.epoch,
        )
        snapshots.sim.upload(store.identity, (entries, stamp))


def _stamp_too_high(
    self: SimSnapshots, identity: StoreIdentity, partition: StorePartition, *, after_commit: bool = True
) -> None:
    _REAL_OFFER(self, identity, partition)
    for folder in self.sim.index.get(identity, ())[-1:]:
        entries, stamp = self.sim.objects[folder]
        if stamp is not None and stamp == partition.stamp:
            later = replace(stamp, changelog_offset=(stamp.changelog_offset or 0) + 2)
            self.sim.objects[folder] = (entries, later)


_MISTAKES: Mapping[str, tuple[tuple[Any, str, Any], ...]] = {
    # A restore compares the stamp once more after a snapshot has taken the place of a store.
    _AGE: (
        (rules_module, "plan_restore", _plan_without_age),
        (followed_module, "plan_restore", _plan_without_age),
        (stores_module, "plan_restore", _plan_without_age),
    ),
    "snapshots have what may be aborted": ((TaskStores, "prepare", _take_before_the_commit),),
    "stamps of snapshots are too high": ((SimSnapshots, "offer", _stamp_too_high),),
}

SNAPSHOT_MUTANTS: Final[Mapping[str, tuple[str, bool, tuple[tuple[Any, str, Any], ...]]]] = {
    **{f"{SNAPSHOTS}, {name}": ("", True, patches) for name, patches in _MISTAKES.items()},
    **{f"resident {SNAPSHOTS}, {name}": ("", True, patches) for name, patches in _MISTAKES.items()},
    **{f"{SNAPSHOTS}, at least once, {name}": ("", False, patches) for name, patches in _MISTAKES.items()},
    **{
        f"standby {SNAPSHOTS}, {name}": ("", True, patches)
        for name, patches in {**_MISTAKES, **STANDBY_MISTAKES}.items()
    },
}


def snapshot_world(name: str) -> type[SnapshotSimulation]:
    """Return the kind of world in which a mutant is looked for."""
    if name.startswith("standby"):
        return AgingStandbySimulation if _AGE in name else StandbySnapshotSimulation
    if name.startswith("resident"):
        # Resident tasks keep their stores open and have young snapshots.
        return AgingSnapshotSimulation if _AGE in name else ResidentSnapshotSimulation
    return SnapshotSimulation
