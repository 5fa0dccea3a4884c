"""Restores of a store after a lost disk: from a snapshot and from the changelog.

    python -m bench.snapshots [keys]

An embedded broker and one process, no Spark. Seconds are those of the clock, and those of processors for this process without
the broker.
"""

import hashlib
import logging
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from streamrt.kafka import ConnectionConfig, TopicAdmin, TopicConfig
from streamrt.records import TopicPartition
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.state.snapshots import StateSnapshots
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import state_of
from streamrt.testing.kafka import EmbeddedKafka
from streamrt.topics import Topic
from streamrt.topology import TaskId, TaskStore

IN, TASK = TopicPartition("orders", 0), TaskId("orders", 0)
CHUNK = 20_000


class Bench:
    """A task that writes keys, loses its disk, and restores."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder = address, folder
        self.committed = {IN: 0}

    def open(self, *, snapshots: bool) -> TaskStores:
        """Begin a process."""
        where = StateSnapshots((self.folder / "remote").as_uri(), interval_s=1e9) if snapshots else None
        scope = ScopeInfo("topic", 1, {"default": ChangelogSettings("log", "id")})
        settings = StateSettings("shop", self.folder / "disk", None, {"orders": scope}, snapshots=where)
        self.catalog = StoreCatalog(settings)
        self.clients = KafkaTaskClients(ConnectionConfig(bootstrap_servers=self.address), "shop")
        spec = {"default": TaskStore("orders", StoreSpec())}
        stores = TaskStores(self.catalog, spec, TASK, self.clients, transactional=False, claims={IN: 1})
        stores.open(self.committed, stateful=())
        return stores

    def commit(self, stores: TaskStores, keys: range) -> None:
        """Commit values of 64 hexadecimal digits, which compress to half of that."""
        transaction = stores.transaction("default")
        for key in keys:
            state_of("default", transaction)(b"%d" % key, 0).set("v", hashlib.sha256(b"%d" % key).hexdigest())
        ends = {IN: self.committed[IN] + len(keys)}
        writer = self.clients.writer()
        stores.prepare(writer, ends)
        writer.flush()
        stores.match_changelogs(writer)
        begun = time.monotonic()
        stores.flush(ends)
        self.flushed_s = time.monotonic() - begun
        stores.renew()
        self.committed = ends

    def restore(self, *, snapshots: bool) -> tuple[float, float]:
        """Lose the disk; return the seconds of a restore, by the clock and by the processors."""
        shutil.rmtree(self.folder / "disk")
        begun, used = time.monotonic(), sum(os.times()[:2])
        stores = self.open(snapshots=snapshots)
        found = time.monotonic() - begun, sum(os.times()[:2]) - used
        stores.close()
        return found


def main(keys: int) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as broker:
        TopicAdmin(broker.bootstrap_servers).create_topics(
            [Topic("log", TopicConfig(1, 1, {"cleanup.policy": "compact"}))]
        )
        bench = Bench(broker.bootstrap_servers, Path(folder))
        stores = bench.open(snapshots=False)
        for start in range(0, keys - CHUNK, CHUNK):
            bench.commit(stores, range(start, start + CHUNK))
        plain_s = bench.flushed_s
        stores.close()
        # The first commit of this process takes a snapshot.
        stores = bench.open(snapshots=True)
        bench.commit(stores, range(keys - CHUNK, keys))
        print(f"a commit of {CHUNK} keys is written in {plain_s:.3f} s, and in {bench.flushed_s:.3f} s with a snapshot")
        begun = time.monotonic()
        while not list((bench.folder / "remote").rglob("*.manifest")):
            time.sleep(0.01)
        size = sum(path.stat().st_size for path in (bench.folder / "remote").rglob("*") if path.is_file())
        print(f"{size / 1e6:.1f} MB are uploaded in {time.monotonic() - begun:.1f} s")
        # A tail for the changelog.
        bench.commit(stores, range(CHUNK // 10))
        stores.close()
        for snapshots in (True, False, True, False):
            clock_s, used_s = bench.restore(snapshots=snapshots)
            origin = "a snapshot and the tail" if snapshots else "the changelog"
            print(
                f"{keys} keys from {origin}: {clock_s:.1f} s, {used_s:.1f} s of processors, {keys / used_s:,.0f} keys/s"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
