"""Snapshots of stores in a simulated object store, which outlives machines; and machines that lose their disks."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamrt.runtime.tasks.stores.snapshot_restores import FoundSnapshot
from streamrt.runtime.tasks.stores.snapshot_rules import SnapshotRules
from streamrt.runtime.tasks.stores.snapshots import Snapshots
from streamrt.state import StoreIdentity, StorePartition
from streamrt.state.snapshots import SnapshotManifest, StoredFile
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation
from tests.sim.stores import Content, ProcessCatalog, SimPartition

if TYPE_CHECKING:
    from tests.sim.simulation import Process


class SnapshotSimulation(Simulation):
    """A world with snapshots, in micro-batches."""

    def __init__(self, seed: int, *settings: Any, **named: Any) -> None:
        self.own = random.Random(f"snapshots {seed}")
        self.restored = 0
        self.index: dict[StoreIdentity, list[Path]] = {}
        super().__init__(seed, *settings, **named)

    def new_catalog(self, process: "Process") -> ProcessCatalog:
        """Return the stores of a process, whose machine may have lost parts of its disk."""
        for name in process.machine.partitions():
            if not self.calm and self.own.random() < 0.3:
                process.machine.put(name, ({}, None))
        catalog = super().new_catalog(process)
        catalog.snapshots = SimSnapshots(self, process)
        return catalog

    def upload(self, identity: StoreIdentity, content: Content) -> None:
        """Keep a snapshot. Its folder is a number."""
        folder = Path(str(len(self.objects)))
        self.objects[folder] = content
        self.index.setdefault(identity, []).append(folder)


class ResidentSnapshotSimulation(SnapshotSimulation, ResidentSimulation):
    """A world with snapshots, with resident tasks."""


@dataclass(frozen=True)
class _Found(FoundSnapshot):
    def release(self) -> None: ...


class SimSnapshots(Snapshots):
    """Takes snapshots now and then, and finds them at once."""

    def __init__(self, sim: SnapshotSimulation, process: "Process") -> None:
        self.least_replay = 1
        self.sim = sim
        self._process = process

    def offer(self, identity: StoreIdentity, partition: StorePartition, *, after_commit: bool = True) -> None:
        self.sim.step(self._process, "snapshot")
        if self.sim.own.random() < 0.4:
            assert isinstance(partition, SimPartition)
            self.sim.upload(identity, partition.content())

    def find(self, identity: StoreIdentity, rules: SnapshotRules, deadline: Any, on_progress: Any) -> Any:
        self.sim.step(self._process, "find snapshot")
        stamps = [
            (stamp, folder) for folder in self.sim.index.get(identity, ()) if (stamp := self.sim.objects[folder][1])
        ]
        stamps.sort(key=lambda found: (found[0].changelog_offset or 0, int(str(found[1]))), reverse=True)
        # The newest ones may be damaged.
        for stamp, folder in stamps[self.sim.own.choice((0, 0, 0, 1, 3)) :]:
            if (stamp.changelog_offset or 0) > rules.after and not rules.refusal(stamp):
                self.sim.restored += 1
                lock: Any = None
                return _Found(SnapshotManifest(stamp, 0, {"CURRENT": StoredFile(0, "")}), folder, lock)
        return None

    def note_restore(self, identity: StoreIdentity, *, from_snapshot: bool) -> None: ...

    def newest(self, identity: StoreIdentity) -> None: ...

    def take_tallies(self) -> dict[Any, float]:
        return {}
