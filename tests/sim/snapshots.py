"""Snapshots of stores in a simulated object store, which outlives machines; and machines that lose their disks."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from streamrt.runtime.tasks.stores.open_store import RestoreInterrupted
from streamrt.runtime.tasks.stores.snapshot_rules import SnapshotRules
from streamrt.runtime.tasks.stores.snapshots import Snapshots
from streamrt.state import StoreIdentity, StorePartition
from streamrt.state.snapshots import FoundSnapshot, SnapshotManifest, StoredFile
from tests.sim.broker import TOMBSTONES_KEPT_MS
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation
from tests.sim.standbys import StandbySimulation
from tests.sim.stores import Content, ProcessCatalog, SimPartition

if TYPE_CHECKING:
    from tests.sim.simulation import Process


class SnapshotSimulation(Simulation):
    """A world with snapshots, in micro-batches."""

    aging: ClassVar[bool] = False
    """Whether time passes until compaction forgets tombstones, with nothing but the oldest snapshots."""

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

    def surroundings(self, *, often: bool = False) -> None:
        """Let the world around move."""
        super().surroundings(often=often)
        if self.aging and not self.calm and self.own.random() < 0.3:
            self.note("changelogs are compacted, and age")
            logs = [place for place in self.broker.logs if place.topic in self.changelogs.values()]
            for wait_ms in (TOMBSTONES_KEPT_MS + 1, 0):
                for place in logs:
                    self.broker.compact(place)
                self.broker.wait(wait_ms)

    def upload(self, identity: StoreIdentity, content: Content) -> None:
        """Keep a snapshot. Its folder is a number."""
        folder = Path(str(len(self.objects)))
        self.objects[folder] = content
        self.index.setdefault(identity, []).append(folder)


class ResidentSnapshotSimulation(SnapshotSimulation, ResidentSimulation):
    """A world with snapshots, with resident tasks."""


class AgingSnapshotSimulation(ResidentSnapshotSimulation):
    """A world with old snapshots, with resident tasks."""

    aging = True


class StandbySnapshotSimulation(SnapshotSimulation, StandbySimulation):
    """A world whose resident tasks have standbys that begin with snapshots."""

    mode = "standbys with snapshots"


class AgingStandbySimulation(StandbySnapshotSimulation):
    """A world with old snapshots, with which standbys begin."""

    aging = True


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
        if deadline is not None and not self.sim.calm and self.sim.own.random() < 0.5:
            # A download that a standby does not wait for.
            raise RestoreInterrupted
        stamps = [
            (stamp, folder) for folder in self.sim.index.get(identity, ()) if (stamp := self.sim.objects[folder][1])
        ]
        stamps.sort(key=lambda found: (found[0].changelog_offset or 0, int(str(found[1]))), reverse=True)
        # The newest ones may be damaged.
        damaged = len(stamps) - 1 if self.sim.aging else self.sim.own.choice((0, 0, 0, 1, 3))
        for stamp, folder in stamps[max(0, damaged) :]:
            if (stamp.changelog_offset or 0) > rules.after and not rules.refusal(stamp):
                self.sim.restored += 1
                lock: Any = None
                return _Found(SnapshotManifest(stamp, 0, {"CURRENT": StoredFile(0, "")}), folder, lock)
        return None

    def can_find(self, identity: StoreIdentity) -> bool:
        return True

    def abandon(self, identity: StoreIdentity) -> None: ...

    def note_restore(self, identity: StoreIdentity, *, from_snapshot: bool) -> None: ...

    def newest(self, identity: StoreIdentity) -> None: ...

    def take_tallies(self) -> dict[Any, float]:
        return {}
