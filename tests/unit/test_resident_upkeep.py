"""Work of a resident task between two slices: stores reach the disk, garbage goes."""

import gc
import subprocess
import sys
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application
from streamrt.runtime.resident.upkeep import Garbage, Upkeep
from streamrt.state import RocksDBOptions, RocksDBStore
from tests.unit.resident_world import FIRST, World, counting

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024


@pytest.mark.slow
@pytest.mark.parametrize(("how", "committed", "on_disk"), [("never", 2, 1), ("by time", 3, 2), ("after a pause", 4, 3)])
def test_fault_16_a_killed_process_has_most_of_its_store_on_disk(
    tmp_path: Path, how: str, committed: int, on_disk: int
) -> None:
    command = [sys.executable, "-m", "tests.unit.resident_flushes", str(tmp_path), how]
    died = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (died.returncode, died.stdout) == (9, f"{committed}\n"), died.stderr
    partition = RocksDBStore("default", "in", tmp_path, RocksDBOptions(open_max_retries=0)).open(0)
    assert partition.stamp is not None
    assert partition.stamp.input_offset == on_disk
    partition.close()


def test_fault_16_a_clock_that_was_set_back_does_not_hold_changes_back(tmp_path: Path) -> None:
    world = World(counting, partitions=1, disk=tmp_path)
    wall = [10_000_000]
    world.clients._now = lambda: wall[0]
    world.begin(FIRST)
    world.put(FIRST, 1)
    world.commit()
    (task,) = world.tasks.assigned.values()
    assert not task.stores.flush_held_back()
    wall[0] = 5
    assert task.stores.flush_held_back()
    assert not task.stores.flush_held_back()
    world.task._release_all()


# -- Garbage ---------------------------------------------------------------------------------------------------------


class Collected:
    """Garbage with a clock, memory and collections of the test's own."""

    def __init__(self) -> None:
        self.memory = 100 * MIB
        self.now = 0.0
        self.collections = 0
        self.seconds = 0.1
        self.kept: list[Any] = []
        self.garbage = Garbage(lambda: self.memory, self._collect, lambda: self.now)

    def _collect(self) -> None:
        self.collections += 1
        self.now += self.seconds

    def step(self, *, worked_at: float = -1e9) -> bool:
        return self.garbage.step(self.now, worked_at=worked_at)


def test_fault_20_growth_asks_for_a_collection() -> None:
    world = Collected()
    world.memory += 63 * MIB
    assert not world.step(worked_at=world.now)
    world.memory += 2 * MIB
    assert world.step(worked_at=world.now)


def test_growth_by_what_is_in_use_asks_for_fewer_and_fewer() -> None:
    world = Collected()
    for _ in range(1_000):
        world.now += 60
        world.memory += 10 * MIB
        world.step(worked_at=world.now)
    # 100 MiB to 10 GB.
    assert 15 <= world.collections <= 30


def test_memory_that_holds_garbage_does_not_grow_beyond_the_level() -> None:
    """A collection that frees much leaves the level where it is, though the system does not get the memory back."""
    world = Collected()
    world.memory += 70 * MIB
    for number in range(1, 5):
        # Of a kind that the interpreter's own collections do not look at.
        world.kept = [object() for _ in range(sys.getallocatedblocks() // 2)]
        world.garbage._collect = lambda: world.kept.clear()
        assert world.step(worked_at=world.now), number
        world.now += 60


def test_collections_take_little_of_the_time() -> None:
    world = Collected()
    world.seconds = 0.5
    for _ in range(1_000):
        world.memory += 1_000 * MIB
        world.step(worked_at=world.now)
        world.now += 0.1
    assert world.collections <= 5


def test_fault_20_garbage_is_collected_when_there_is_nothing_to_do() -> None:
    world = Collected()
    assert not world.step(worked_at=-0.5)
    world.now = 100.0
    assert not world.step(worked_at=99.5)
    assert world.step(worked_at=98.0)
    world.now = 200.0
    # Nothing has happened since.
    assert not world.step(worked_at=98.0)
    assert world.step(worked_at=150.0)


class Node:
    """Refers to itself: nothing but a full collection finds that no other object does, once it has lived for a while."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def thresholds() -> Iterator[None]:
    """Those of worker processes."""
    former = gc.get_threshold()
    gc.set_threshold(100_000, 50, 1_000)
    yield
    gc.set_threshold(*former)


@pytest.mark.usefixtures("thresholds")
def test_fault_20_cycles_of_a_function_go_while_the_task_waits() -> None:
    """Objects that lived in a cache, were pushed out of it, and refer to themselves."""
    cache: OrderedDict[int, Node] = OrderedDict()
    seen: list[weakref.ref[Node]] = []

    def remember(value: int) -> int:
        node = cache[value] = Node()
        seen.append(weakref.ref(node))
        if len(cache) > 10:
            cache.popitem(last=False)
        return value

    def build(app: Application) -> None:
        app.dataframe(app.topic("in")).apply(remember).to_topic(app.topic("out"))

    world = World(build, partitions=1)
    world.task._upkeep = Upkeep(world.clock, Garbage(clock=world.clock))
    world.begin(FIRST)
    world.put(FIRST, *range(50))
    world.until(lambda: len(seen) == 50)
    # Old enough for no young collection to look at them again.
    gc.collect(1)
    assert sum(node() is not None for node in seen) >= 10
    world.clock.seconds += 20
    world.until(lambda: sum(node() is not None for node in seen) == 10)


def test_memory_is_told() -> None:
    # In a process of its own: other threads may give memory back meanwhile.
    program = (
        "from streamrt.runtime.resident.upkeep import resident_memory; before = resident_memory(); "
        f"block = bytearray({64 * MIB}); print(resident_memory() - before)"
    )
    grown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert int(grown) >= 60 * MIB
