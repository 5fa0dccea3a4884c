"""Local disks of simulated machines: real stores in memory that outlive processes, and damage to them."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from streamrt.errors import StateError, StoreCorruptedError
from streamrt.runtime.placement import StateSettings
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.state import MemoryStore, Stamp, Store, StorePartition
from streamrt.state.layout import WALL_FIRST_KEY
from streamrt.state.spec import StoreSpec

if TYPE_CHECKING:
    from tests.sim.simulation import Process, Simulation

Name = tuple[str, str, int]
"""Topic, store and partition."""

Content = tuple[dict[bytes, bytes], Stamp | None]


class Machine:
    """A machine with a disk: one memory store for each store, shared by all processes that run here."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.disks: dict[tuple[str, str], MemoryStore] = {}
        self.damaged: set[Name] = set()
        self._copies: list[tuple[Name, Content]] = []

    def disk(self, topic: str, store: str) -> MemoryStore:
        """Return what keeps the data of a store."""
        found = self.disks.get((topic, store))
        if found is None:
            found = self.disks[topic, store] = MemoryStore(store, topic, Path("unused"))
        return found

    def partitions(self) -> list[Name]:
        """Return the store partitions that have data and that no task uses."""
        return [
            (topic, store, number)
            for (topic, store), disk in self.disks.items()
            for number, data in disk._partitions.items()
            if not data.open
        ]

    def content(self, name: Name) -> Content:
        """Return entries and stamp of a store partition."""
        topic, store, number = name
        data = self.disks[topic, store]._partitions[number]
        return dict(data.entries), data.stamp

    def put(self, name: Name, content: Content) -> None:
        """Replace a store partition that no task uses."""
        topic, store, number = name
        disk = self.disk(topic, store)
        held = disk._partitions.get(number)
        if held is not None and held.open:
            return
        disk.destroy(number)
        self.damaged.discard(name)
        entries, stamp = content
        if stamp is not None:
            partition = disk.open(number)
            partition.write(entries.items(), stamp)
            partition.close()

    def misfortune(self, rng: random.Random, others: "list[Machine]") -> str:
        """Do something to the disk that the promise of stores allows: lose data, or bring old data back as a whole."""
        names = self.partitions()
        if not names:
            return "nothing"
        name = rng.choice(names)
        kind = rng.choice(("wipe", "copy", "copy", "return", "return", "move", "damage"))
        if kind == "wipe":
            self.put(name, ({}, None))
        elif kind == "copy":
            self._copies.append((name, self.content(name)))
        elif kind == "return" and self._copies:
            self.put(*rng.choice(self._copies))
        elif kind == "move":
            rng.choice(others).put(name, self.content(name))
        elif kind == "damage":
            self.damaged.add(name)
        return f"{kind} {name}"


class SimPartition(StorePartition):
    """A store partition as a process sees it."""

    def __init__(self, inner: StorePartition, sim: "Simulation", process: "Process", name: Name) -> None:
        self._inner = inner
        self._sim = sim
        self._process = process
        self._name = name
        self._closed = False
        process.stores.append(self)

    @property
    def stamp(self) -> Stamp | None:
        return self._inner.stamp

    def get(self, key: bytes) -> bytes | None:
        # Each opening reads this bound once. Without a step there, seeds stay what they were.
        if key != WALL_FIRST_KEY:
            self._sim.step(self._process, "store get", self._damage)
        return self._inner.get(key)

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return self._inner.scan(start, end, reverse=reverse)

    def write(self, changes: Iterable[tuple[bytes, bytes | None]], stamp: Stamp) -> None:
        self._sim.step(self._process, "store write", lambda where: StateError(f"injected at {where}"))
        self._inner.write(changes, stamp)
        self._sim.step(self._process, "store written")

    def content(self) -> Content:
        """Return entries and stamp, as a checkpoint has them."""
        return dict(self._inner.scan(b"", None)), self._inner.stamp

    def approximate_size(self) -> int:
        return self._inner.approximate_size()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._process.stores.remove(self)
            self._inner.close()

    def _damage(self, where: str) -> Exception:
        self._process.machine.damaged.add(self._name)
        return StoreCorruptedError(f"injected at {where}")


class SimStore(Store):
    """A store as a process sees it."""

    persistent: ClassVar[bool] = True
    adopts: ClassVar[bool] = True

    def __init__(self, spec: StoreSpec, topic: str, sim: "Simulation", process: "Process") -> None:
        super().__init__(spec.name, topic, Path("unused"))
        self._sim = sim
        self._process = process

    def open(self, partition: int) -> StorePartition:
        self._sim.step(self._process, "store open")
        machine, name = self._process.machine, (self.topic, self.name, partition)
        if name in machine.damaged:
            raise StoreCorruptedError(f"injected: {name}")
        return SimPartition(machine.disk(self.topic, self.name).open(partition), self._sim, self._process, name)

    def destroy(self, partition: int) -> None:
        self._sim.step(self._process, "store destroy")
        machine = self._process.machine
        machine.disk(self.topic, self.name).destroy(partition)
        machine.damaged.discard((self.topic, self.name, partition))

    def adopt(self, partition: int, folder: Path) -> None:
        self._sim.step(self._process, "store adopt")
        self._process.machine.put((self.topic, self.name, partition), self._sim.objects[folder])


class ProcessCatalog(StoreCatalog):
    """Gives a process the disks of its machine."""

    def __init__(self, settings: StateSettings, sim: "Simulation", process: "Process") -> None:
        super().__init__(settings)
        self._sim = sim
        self._process = process
        self._seen: dict[tuple[str, str], Any] = {}

    def store(self, topic: str, spec: StoreSpec) -> Store:
        found = self._seen.get((topic, spec.name))
        if found is None:
            found = self._seen[topic, spec.name] = SimStore(spec, topic, self._sim, self._process)
        return found
