"""Replicas that begin with snapshots of others have the rows of the table, whatever happened to topic and snapshots."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import ConfigurationError
from streamrt.kafka.partitioner import partition_for
from streamrt.state import MemoryStore, RocksDBStore
from streamrt.state.snapshots import StateSnapshots
from streamrt.tables.replicas import follower
from streamrt.tables.replicas.replica import TableReplica
from streamrt.tables.table import Table
from tests.keyed_tables import CompactingLinks, by_key, customer, keyed_table, put
from tests.support import LONG
from tests.table_home import created_again


@pytest.fixture(autouse=True)
def fast_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_POLL_S", "_PAUSE_S", "_LOOK_S"):
        monkeypatch.setattr(follower, name, 0.002)
    monkeypatch.setattr(follower, "_OFFER_S", 0.0)


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def customers() -> Iterator[Table]:
    table = keyed_table(2)
    put(table, *(customer("FR", number, "ann") for number in range(10)))
    put(table, customer("FR", 2), deletes=True)
    yield table
    table.home.resources.close()


class Replicas:
    """Replicas with directories of their own, and one object store."""

    def __init__(self, table: Table, folder: Path) -> None:
        self.table = table
        self.store = folder / "snapshots"
        self._folder = folder
        self._count = 0

    def open(self, **options: Any) -> TableReplica:
        self._count += 1
        settings = StateSnapshots(self.store.as_uri(), **{"interval_s": 3_600.0, "least_replay": 1, **options})
        folder = self._folder / f"replica-{self._count}"
        return self.table.replica(store=RocksDBStore, directory=folder, snapshots=settings)

    def leave_snapshot(self, **options: Any) -> None:
        """Let a replica leave a snapshot of each partition."""
        with self.open(**options) as replica:
            rows_of(replica, self.table)
            before = len(self.manifests())
            wait_until(lambda: len(self.manifests()) >= max(2, before))
            wait_until(lambda: not list(self._folder.glob("replica-*/.snapshots/*/*/upload/checkpoint")))

    def manifests(self) -> list[Path]:
        return sorted(self.store.rglob("*.manifest"))

    def newest(self) -> list[int]:
        """Return the offsets of the newest snapshots of partitions, in the order of the offsets."""
        found: dict[Path, int] = {}
        for path in self.manifests():
            found[path.parent] = max(found.get(path.parent, 0), int(path.name.partition("-")[0]))
        return sorted(found.values())


@pytest.fixture
def replicas(customers: Table, tmp_path: Path) -> Replicas:
    return Replicas(customers, tmp_path)


def rows_of(replica: TableReplica, table: Table) -> dict[Any, dict[str, Any]]:
    replica.wait_for(table.offsets())
    return by_key(replica.scan())


def forget_records(table: Table) -> None:
    """Remove all records from the topic, as if all of them were superseded: only a snapshot has their rows."""
    links = table.home.links
    assert isinstance(links, CompactingLinks)
    links.gone.update((place, offset) for place, end in table.offsets().items() for offset in range(end))


def test_a_replica_begins_with_a_snapshot_and_reads_the_rest(customers: Table, replicas: Replicas, caplog: Any) -> None:
    caplog.set_level("INFO")
    replicas.leave_snapshot()
    assert len(replicas.manifests()) == 2
    forget_records(customers)
    put(customers, customer("FR", 1), deletes=True)
    put(customers, customer("IT", 5))
    with replicas.open() as replica:
        expected = {("FR", number) for number in (0, *range(3, 10))} | {("IT", 5)}
        assert set(rows_of(replica, customers)) == expected
        assert replica.get(("FR", 2)) is None
        assert caplog.text.count("begins with a snapshot, at offset") == 2
        # The former one left a snapshot within the interval.
        wait_until(lambda: len(list(replicas._folder.glob("replica-2/.snapshots/*/*/upload/taken"))) == 2)
        wait_until(lambda: not list(replicas._folder.glob("replica-2/.snapshots/*/*/upload/checkpoint")))
        assert len(replicas.manifests()) == 2


def test_snapshots_follow_the_table(customers: Table, replicas: Replicas) -> None:
    with replicas.open(interval_s=0.01, keep=2) as replica:
        rows_of(replica, customers)
        for number in range(3):
            put(customers, *(customer("DE", each, str(number)) for each in range(10)))
            ends = sorted(end for _, end in customers.offsets().items())
            wait_until(lambda ends=ends: replicas.newest() == ends)  # type: ignore[misc]
        wait_until(lambda: len(replicas.manifests()) <= 4)
        token = customers.offsets()
    forget_records(customers)
    with replicas.open(interval_s=3_600) as replica:
        replica.wait_for(token)
        assert by_key(replica.prefix("DE")) == by_key(customer("DE", each, "2") for each in range(10))


def test_a_short_topic_is_read(customers: Table, replicas: Replicas, caplog: Any) -> None:
    caplog.set_level("INFO")
    replicas.leave_snapshot()
    with replicas.open(least_replay=1_000) as replica:
        assert len(rows_of(replica, customers)) == 9
    assert "begins with a snapshot" not in caplog.text


@pytest.mark.parametrize("harm", ["damage", "delete"])
def test_a_snapshot_that_is_damaged(customers: Table, replicas: Replicas, harm: str, caplog: Any) -> None:
    replicas.leave_snapshot()
    for path in replicas.store.rglob("files/*"):
        if harm == "damage":
            path.write_bytes(b"x" * path.stat().st_size)
        else:
            path.unlink()
    with replicas.open() as replica:
        assert len(rows_of(replica, customers)) == 9
    assert "is passed over: its file" in caplog.text


def test_a_snapshot_that_is_too_old(
    customers: Table, replicas: Replicas, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas.leave_snapshot()
    links = customers.home.links
    assert isinstance(links, CompactingLinks)
    put(customers, customer("FR", 1), deletes=True)
    put(customers, customer("IT", 5))
    links.compact("customers", tombstones=True)
    later = follower._now_ms() + 24 * 3_600_000
    monkeypatch.setattr(follower, "_now_ms", lambda: later)
    with replicas.open() as replica:
        assert ("FR", 1) not in rows_of(replica, customers)
    assert "so old that compaction may have removed deletes" in caplog.text


def test_a_topic_that_is_created_again(customers: Table, replicas: Replicas, caplog: Any) -> None:
    caplog.set_level("INFO")
    replicas.leave_snapshot()
    created_again(customers.home.links, customers)
    put(customers, customer("FR", 1, "new"))
    with replicas.open() as replica:
        assert rows_of(replica, customers) == {("FR", 1): customer("FR", 1, "new")}
    assert "begins with a snapshot" not in caplog.text


def test_an_object_store_that_fails(
    customers: Table, replicas: Replicas, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamrt.state.snapshots.downloads._PAUSES_S", (0.0,))
    replicas.store.write_text("not a folder")
    with replicas.open() as replica:
        assert len(rows_of(replica, customers)) == 9
        wait_until(lambda: "no snapshot of store 'table'" in caplog.text)
        put(customers, customer("IT", 5))
        assert len(rows_of(replica, customers)) == 10


def test_a_replica_that_is_closed_while_it_begins(customers: Table, replicas: Replicas) -> None:
    replicas.leave_snapshot()
    for _ in range(3):
        replicas.open().close()
    with replicas.open() as replica:
        assert len(rows_of(replica, customers)) == 9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40 if LONG else 2))
def test_rows_are_those_of_the_table(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    table = keyed_table(2)
    links, replicas, now = table.home.links, Replicas(table, tmp_path), dict[Any, Any]()
    assert isinstance(links, CompactingLinks)
    keys_as = table.home.key_format(table.info)
    assert keys_as is not None
    for _ in range(6):
        for number in range(dice.randrange(1, 20)):
            row = customer("FR", dice.randrange(8), str(number))
            is_deleted = dice.random() < 0.3
            put(table, row, deletes=is_deleted, partition=partition_for(keys_as.encode(row), 2))
            now.pop(("FR", row["id"]), None)
            if not is_deleted:
                now["FR", row["id"]] = row
        if dice.random() < 0.5:
            links.compact("customers", [dice.randrange(100) for _ in range(5)])
        with replicas.open(interval_s=dice.choice((0.001, 3_600))) as replica:
            assert rows_of(replica, table) == now
            if dice.random() < 0.7:
                wait_until(lambda: len(replicas.manifests()) >= 2 or not replica.get(("FR", 0)))
    table.home.resources.close()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"store": MemoryStore, "directory": None, "snapshots": "file:///tmp/x"}, "only stores on disk have snapshots"),
        ({"snapshots": 5}, "takes a StateSnapshots or a URL"),
        ({"snapshots": "nowhere"}, "must be a URL"),
        ({"snapshots": StateSnapshots("file:///tmp/x", commits=5)}, "has no commits"),
    ],
)
def test_what_is_refused(customers: Table, tmp_path: Path, options: Any, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        customers.replica(**{"store": RocksDBStore, "directory": tmp_path, **options})
