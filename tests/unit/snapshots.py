"""The stores of a task on a real disk, with a changelog in memory and snapshots in a folder."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from streamrt.common.file_lock import FileLock
from streamrt.records import TopicPartition
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.state import Stamp, StoreIdentity
from streamrt.state.snapshots import SnapshotRepository, SnapshotStorage, StateSnapshots
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import state_of
from streamrt.testing.memory import MemoryClients
from streamrt.topology import TaskId, TaskStore

IN, LOG, TASK = TopicPartition("orders", 0), TopicPartition("log", 0), TaskId("orders", 0)
ABSENCE_MS = 60_000
IDENTITY = StoreIdentity("shop", "orders", 0, "default", "topic", "changelog", 1)


class CountingClients(MemoryClients):
    """Counts the changelog records that are read, and has a clock."""

    def __init__(self) -> None:
        self.clock_ms = time.time_ns() // 1_000_000
        self.read_offsets: list[tuple[int, int]] = []
        super().__init__(lambda: self.clock_ms)

    def changelog(self, partition: TopicPartition, start: int, end: int) -> Iterator[Any]:
        self.read_offsets.append((start, end))
        return super().changelog(partition, start, end)

    def log_end(self, partition: TopicPartition) -> int:
        return self.bounds(partition)[1]

    def truncate(self, end: int) -> None:
        """Lose the end of the changelog."""
        del self._partition_log(LOG)[end:]


class World:
    """A task whose process ends, loses its disk, and begins again."""

    def __init__(self, directory: Path, url: str | None = None, *, transactional: bool = True, **settings: Any) -> None:
        self.disk, self.remote = directory / "disk", directory / "remote"
        self.transactional = transactional
        self.clients = CountingClients()
        self.snapshots = StateSnapshots(url or self.remote.as_uri(), **{"commits": 1, "least_replay": 1, **settings})
        self.changelog_id, self.partitions = "changelog", 1
        self.catalog: StoreCatalog
        self.stores: TaskStores | None = None
        self.epoch = 0

    @property
    def repository(self) -> SnapshotRepository:
        return SnapshotStorage(self.snapshots).repository(IDENTITY)

    @property
    def folder(self) -> Path:
        """The folder of the snapshots of the partition."""
        return self.remote / "shop" / "orders" / "default" / "changelog" / "0"

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        return {IN: self.clients.offsets.get(IN, 0)}

    def open(self, deadline: float | None = None) -> None:
        """Begin a process."""
        self.catalog = self.new_catalog()
        self.epoch += 1
        stores = TaskStores(
            self.catalog,
            {"default": TaskStore("orders", StoreSpec())},
            TASK,
            self.clients,
            transactional=self.transactional,
            claims={IN: self.epoch},
        )
        self.clients.read_offsets.clear()
        stores.open(self.committed, stateful=(), deadline=deadline)
        self.stores = stores

    def new_catalog(self) -> StoreCatalog:
        changelog = ChangelogSettings("log", self.changelog_id, ABSENCE_MS)
        scope = ScopeInfo("topic", self.partitions, {"default": changelog})
        return StoreCatalog(StateSettings("shop", self.disk, None, {"orders": scope}, snapshots=self.snapshots))

    def work(self, changes: Mapping[str, Any]) -> None:
        """Change state in the open transaction."""
        assert self.stores is not None
        transaction = self.stores.transaction("default")
        for key, value in changes.items():
            state = state_of("default", transaction)(key.encode(), 0)
            if value is None:
                state.delete("v")
            else:
                state.set("v", value)

    def commit(self, **changes: Any) -> None:
        """Commit changes of one input record, and wait until its snapshot is uploaded."""
        self.work(changes)
        self.finish()
        if self.snapshots.commits == 1:
            self.await_uploads()

    def finish(self) -> None:
        assert self.stores is not None
        ends = {IN: self.committed[IN] + 1}
        if self.transactional:
            writer = self.clients.transactional(TASK, IN)
            self.stores.prepare(writer, ends)
            writer.commit(ends)
        else:
            self.stores.prepare(self.clients, ends)
            self.stores.match_changelogs(self.clients)
            self.clients.commit_offsets(ends, None)
        self.stores.flush(ends)
        self.stores.renew()

    def await_uploads(self) -> None:
        """Wait until the thread of uploads has nothing to do."""
        assert self.catalog.snapshots is not None
        folder = self.catalog.snapshots._folder(IDENTITY) / "upload"
        if folder.exists():
            # An upload holds this lock.
            FileLock.acquire(folder, os.O_RDONLY | os.O_DIRECTORY).release()

    def close(self) -> None:
        if self.stores is not None:
            self.stores.close()
            self.stores = None

    def lose_disk(self) -> None:
        """End the process, and delete its disk."""
        self.close()
        shutil.rmtree(self.disk, ignore_errors=True)

    def state(self, keys: str = "abcdefgh") -> dict[str, Any]:
        """Return the committed state."""
        assert self.stores is not None
        transaction = self.stores.transaction("default")
        found = {key: state_of("default", transaction)(key.encode(), 0).get("v") for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def stamp(self) -> Stamp:
        assert self.stores is not None
        stamp = self.stores._open["default"].partition.stamp
        assert stamp is not None
        return stamp

    def counted(self) -> dict[str, float]:
        assert self.catalog.snapshots is not None
        return {tally.kind: count for tally, count in self.catalog.snapshots.take_tallies().items() if count}


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.005)
