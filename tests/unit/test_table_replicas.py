"""Replicas of tables: the rows of a dict, through crashes, compaction, absences, new partitions and new topics."""

import contextlib
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt import Offsets
from streamrt.errors import (
    ArgumentValueError,
    ConfigurationError,
    InvalidOperationError,
    LookupTimeoutError,
    SchemaError,
    StaleTokenError,
    StateError,
    StoreLockedError,
    StoreVersionError,
)
from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.partitioner import partition_for
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.state import MemoryStore, RocksDBStore
from streamrt.tables.replicas import follower
from streamrt.tables.replicas.partition_rows import PartitionRows, StoredRow, following_bytes
from streamrt.tables.replicas.replica import TableReplica
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import _Partition
from tests.keyed_tables import CompactingLinks, by_key, customer, keyed_table, put
from tests.table_home import created_again


@pytest.fixture(autouse=True)
def fast_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replicas notice within milliseconds that they are closed, and look at their topics as often."""
    monkeypatch.setattr(follower, "_POLL_S", 0.002)
    monkeypatch.setattr(follower, "_PAUSE_S", 0.002)
    monkeypatch.setattr(follower, "_LOOK_S", 0.002)


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def rows_of(replica: TableReplica, table: Table) -> dict[Any, dict[str, Any]]:
    """Return the rows of a replica that has all that was written."""
    replica.wait_for(table.offsets())
    rows = by_key(replica.scan())
    for key, row in rows.items():
        assert replica.get(key) == row
    return rows


@pytest.fixture
def customers() -> Iterator[Table]:
    table = keyed_table(2)
    put(table, customer("FR", 1, "ann"), customer("FR", 2, "bob"), customer("DE", 1, "eve"))
    put(table, customer("FR", 2), deletes=True)
    yield table
    table.home.resources.close()


def open_replica(table: Table, kind: str, folder: Path, **options: Any) -> TableReplica:
    """Return a replica in memory or on disk."""
    if kind == "memory":
        return table.replica(**options)
    return table.replica(store=RocksDBStore, directory=folder, **options)


@pytest.mark.rows("FL-053", "FL-173")
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_replica_follows(customers: Table, kind: str, tmp_path: Path) -> None:
    with open_replica(customers, kind, tmp_path) as replica:
        assert by_key(replica.scan()) == by_key([customer("FR", 1, "ann"), customer("DE", 1, "eve")])
        assert replica.get(("FR", 1)) == customer("FR", 1, "ann")
        assert replica.get(("FR", 2)) is None
        assert sorted(row["id"] for row in replica.scan([3])) == [1, 1]
        token = customers.upsert([customer("FR", 3), customer("FR", 1, "ann2")])
        assert len(replica.prefix("FR", after=token)) == 2
        assert replica.get_many([("FR", 1), ("FR", 9)], after=str(token)) == [customer("FR", 1, "ann2"), None]
        put(customers, customer("DE", 1), deletes=True)
        assert replica.get({"id": 1, "country": "DE"}, fresh=True) is None
        replica.wait_for(customers.offsets())
        assert replica.position == customers.offsets()
        assert replica.partitions == [0, 1]
        assert replica.error is None
        assert repr(replica) == "<TableReplica of 'shop.customers', partitions [0, 1]>"
        with pytest.raises(SchemaError):
            replica.scan(["nope"])
    assert replica.closed
    for use in (lambda: replica.get(("FR", 1)), lambda: list(replica.scan()), lambda: replica.wait_for()):
        with pytest.raises(InvalidOperationError, match=r"the replica of table 'shop.customers' is closed"):
            use()
    replica.close()


def test_some_partitions(customers: Table) -> None:
    keys_as = customers.home.key_format(customers.info)
    assert keys_as is not None
    keys = [("FR", number) for number in range(30)]
    put(customers, *(customer(*key) for key in keys))
    held = [key for key in keys if partition_for(keys_as.encode(customer(*key)), 2) == 1]
    with customers.replica(partitions=[1]) as replica:
        assert replica.get_many(held) == [customer(*key) for key in held]
        with pytest.raises(
            InvalidOperationError, match="the key lies in partition 0, and the replica has partitions 1"
        ):
            replica.get(next(key for key in keys if key not in held))
        assert len(replica.prefix("FR")) == len(held)
    with pytest.raises(ArgumentValueError, match="no partition 7"):
        customers.replica(partitions=[7])


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"store": RocksDBStore}, "needs directory="),
        ({"directory": "/tmp/x"}, "this store writes no files"),
        ({"store": "RocksDBStore"}, "must be a class such as RocksDBStore"),
        ({"store": MemoryStore("a", "b", Path("c"))}, "must be a class"),
    ],
)
def test_stores_that_are_refused(customers: Table, options: Any, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        customers.replica(**options)


def test_a_replica_on_disk_goes_on(customers: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamrt.state.rocksdb.directory.time.sleep", lambda seconds: None)
    with open_replica(customers, "disk", tmp_path) as replica:
        rows_of(replica, customers)
    links = customers.home.links
    assert isinstance(links, CompactingLinks)
    # What it has is not read again.
    links.gone.update((place, offset) for place, end in customers.offsets().items() for offset in range(end))
    put(customers, customer("IT", 5))
    with open_replica(customers, "disk", tmp_path) as replica:
        assert set(rows_of(replica, customers)) == {("FR", 1), ("DE", 1), ("IT", 5)}
        with pytest.raises(StoreLockedError):
            open_replica(customers, "disk", tmp_path)
        assert replica.get(("IT", 5)) is not None


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_topic_that_is_created_again(customers: Table, kind: str, tmp_path: Path, caplog: Any) -> None:
    with open_replica(customers, kind, tmp_path) as replica:
        token = customers.offsets()
        rows_of(replica, customers)
        created_again(customers.home.links, customers)
        put(customers, customer("FR", 1, "new"))
        wait_until(lambda: replica.error)
        with pytest.raises(StaleTokenError):
            replica.get(("FR", 1))
        assert isinstance(replica.error, StaleTokenError)
    caplog.clear()
    with open_replica(customers, kind, tmp_path) as replica:
        assert rows_of(replica, customers) == {("FR", 1): customer("FR", 1, "new")}
        assert ("deleted and created again" in caplog.text) == (kind == "disk")
        with pytest.raises(StaleTokenError):
            replica.wait_for(token)


def test_new_partitions_are_followed(customers: Table) -> None:
    links = customers.home.links
    with customers.replica() as replica:
        rows_of(replica, customers)
        links._topics["customers"].partitions.append(_Partition())  # type: ignore[attr-defined]
        put(customers, customer("XX", 1), partition=2)
        wait_until(lambda: replica.partitions == [0, 1, 2])
        assert len(rows_of(replica, customers)) == 3


def test_an_absence_in_which_deletes_are_forgotten(
    customers: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    links, hour_ms = customers.home.links, 3_600_000
    assert isinstance(links, CompactingLinks)
    links.admin().change_settings("customers", {"delete.retention.ms": str(4 * hour_ms)})
    with open_replica(customers, "disk", tmp_path) as replica:
        assert len(rows_of(replica, customers)) == 2
    now_ms = follower._now_ms()
    put(customers, customer("FR", 1), deletes=True)
    put(customers, customer("ZZ", 1))
    monkeypatch.setattr(follower, "_now_ms", lambda: now_ms + hour_ms)
    with open_replica(customers, "disk", tmp_path) as replica:
        assert len(rows_of(replica, customers)) == 2
    assert "read again" not in caplog.text
    put(customers, customer("ZZ", 1), deletes=True)
    links.compact("customers", tombstones=True)
    monkeypatch.setattr(follower, "_now_ms", lambda: now_ms + 4 * hour_ms)
    with open_replica(customers, "disk", tmp_path) as replica:
        assert set(rows_of(replica, customers)) == {("DE", 1)}
    assert "so old that compaction may have removed deletes" in caplog.text
    monkeypatch.setattr(follower, "_now_ms", lambda: now_ms)
    with open_replica(customers, "disk", tmp_path) as replica:
        assert set(rows_of(replica, customers)) == {("DE", 1)}
    assert "the clock was set back" in caplog.text


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_an_absence_of_brokers(
    customers: Table, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The process was stopped, or brokers did not answer, for so long that deletes are gone."""
    links = customers.home.links
    assert isinstance(links, CompactingLinks)
    with open_replica(customers, kind, tmp_path) as replica:
        assert len(rows_of(replica, customers)) == 2
        clock = [follower._now_ms]
        monkeypatch.setattr(follower, "_now_ms", lambda: clock[0]())
        with links._changed:
            # Neither polls nor looks get an answer meanwhile.
            for number, log in enumerate(links._topics["customers"].partitions):
                for entry in list(log.entries):
                    if entry.key == b'["FR",1]':
                        log.append(type(entry)(entry.key, None, entry.timestamp, None))
                        links.gone.add((TopicPartition("customers", number), log.high - 1))
                log.append(type(log.entries[0])(b'["ZZ",%d]' % number, b'{"country":"ZZ","id":%d}' % number, 0, None))
            links.compact("customers", tombstones=True)
            later = time.time_ns() // 1_000_000 + 24 * 3_600_000
            clock[0] = lambda: later
            links._changed.notify_all()
        wait_until(lambda: "read again: brokers were not reached for" in caplog.text)
        assert {key[0] for key in rows_of(replica, customers)} == {"DE", "ZZ"}
        assert replica.error is None


def test_brokers_that_do_not_answer(customers: Table, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    with customers.replica() as replica:
        rows_of(replica, customers)
        positions = replica._follower._positions
        answers = type(positions).topic_id

        def fail(*_: Any) -> str:
            raise KafkaRequestError("no broker", retriable=True)

        monkeypatch.setattr(type(positions), "topic_id", fail)
        put(customers, customer("FR", 1, "later"))
        wait_until(lambda: "is not up to date, because brokers do not answer" in caplog.text)
        with pytest.raises(LookupTimeoutError, match="brokers do not answer: no broker"):
            replica.wait_for(Offsets({("customers", 0): 99}), timeout=0.01)
        assert replica.get(("FR", 1)) == customer("FR", 1, "ann")
        monkeypatch.setattr(type(positions), "topic_id", answers)
        assert rows_of(replica, customers)["FR", 1]["name"] == "later"


def test_records_that_were_deleted(customers: Table, caplog: Any) -> None:
    links = customers.home.links
    with customers.replica() as replica:
        rows_of(replica, customers)
        with links._changed:  # type: ignore[attr-defined]
            for number, log in enumerate(links._topics["customers"].partitions):  # type: ignore[attr-defined]
                log.entries += log.entries * 5
                links.admin().delete_records({TopicPartition("customers", number): log.high})  # type: ignore[attr-defined]
        put(customers, customer("XX", 1))
        wait_until(lambda: set(rows_of(replica, customers)) == {("XX", 1)})
        assert "is read again: it was at offset" in caplog.text


def damage(path: Path) -> None:
    """Change a file of RocksDB."""
    next(path.rglob("CURRENT")).write_bytes(b"MANIFEST-999999\n")


@pytest.mark.parametrize("harm", [damage, lambda path: next(path.rglob("MANIFEST-*")).unlink()])
def test_a_damaged_directory_is_read_again(customers: Table, harm: Any, tmp_path: Path, caplog: Any) -> None:
    with open_replica(customers, "disk", tmp_path) as replica:
        expected = rows_of(replica, customers)
    harm(tmp_path)
    with open_replica(customers, "disk", tmp_path) as replica:
        assert rows_of(replica, customers) == expected
    assert "is read again" in caplog.text


def test_a_directory_with_other_files(customers: Table, tmp_path: Path) -> None:
    with open_replica(customers, "disk", tmp_path) as replica:
        rows_of(replica, customers)
    folder = next(tmp_path.rglob("CURRENT")).parent
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(StateError, match=r"notes\.txt"):
        open_replica(customers, "disk", tmp_path)
    assert (folder / "notes.txt").exists()


def test_a_forked_process(customers: Table) -> None:
    with customers.replica() as replica:
        assert replica.get(("FR", 1)) is not None
        assert customers.get(("FR", 1)) is not None
        child = os.fork()
        if not child:
            code = 1
            try:
                assert customers.get(("FR", 1), timeout=20) is not None
                with pytest.raises(InvalidOperationError, match="forked"):
                    replica.get(("FR", 1))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


KEYS = st.tuples(st.sampled_from(["", "é", "FR"]), st.integers(-1, 2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 3)),
        st.tuples(st.just("delete"), KEYS, st.none()),
        st.tuples(st.just("abort"), KEYS, st.integers(0, 3)),
        st.tuples(st.just("compact"), st.none(), st.lists(st.integers(0, 100), max_size=5)),
        st.tuples(st.sampled_from(["close", "crash", "look"]), st.none(), st.none()),
    ),
    min_size=5,
    max_size=30,
)


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_replica_is_a_dict(kind: str, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(follower, "_LOOK_S", 0.1)

    @settings(max_examples=6 if kind == "disk" else 50)
    @given(partitions=st.integers(1, 2), steps=STEPS)
    def run(partitions: int, steps: list[Any]) -> None:
        table, model, number = keyed_table(partitions), dict[Any, Any](), 0
        links = table.home.links
        assert isinstance(links, CompactingLinks)
        with tempfile.TemporaryDirectory() as folder:
            replica = open_replica(table, kind, Path(folder) / "0")
            for what, key, more in [*steps, ("crash", None, None), ("look", None, None)]:
                if what == "compact":
                    links.compact("customers", more)
                elif what == "look":
                    assert rows_of(replica, table) == model
                    assert sorted(row["id"] for row in replica.prefix("FR")) == sorted(i for c, i in model if c == "FR")
                elif what == "close" or (what == "crash" and kind == "memory"):
                    replica.close()
                    replica = open_replica(table, kind, Path(folder) / str(number))
                elif what == "crash":
                    # The files as a process leaves them that is killed now, or damaged ones if RocksDB deletes some.
                    number += 1
                    with contextlib.suppress(shutil.Error):
                        shutil.copytree(Path(folder) / str(number - 1), Path(folder) / str(number))
                    replica.close()
                    replica = open_replica(table, kind, Path(folder) / str(number))
                else:
                    country, place = key
                    row = customer(country, place, None if more is None else str(more))
                    put(table, row, deletes=what == "delete", abort=what == "abort")
                    if what == "put":
                        model[key] = row
                    elif what == "delete":
                        model.pop(key, None)
            replica.close()

    run()


def _refusal(read: Callable[..., Any], key: Any) -> str:
    with pytest.raises(LookupTimeoutError) as caught:
        read(key, timeout=0.2)
    return str(caught.value)


def test_lookups_wait_for_the_first_reading(customers: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    fetch = follower.TableFollower._fetch_records

    def fetch_later(self: follower.TableFollower) -> None:
        if goes_on.wait(0.01):
            fetch(self)

    monkeypatch.setattr(follower.TableFollower, "_fetch_records", fetch_later)
    with customers.replica() as replica:
        for read in (replica.get, replica.prefix, customers.get):
            key: Any = "FR" if read == replica.prefix else ("FR", 1)
            # The copy is open after a moment.
            reading = re.compile(r"customers\[\d\] is at offset 0, and must reach \d; it goes on")
            wait_until(lambda: reading.search(_refusal(read, key)))  # noqa: B023 - it is called at once
        goes_on.set()
        assert replica.get(("FR", 1)) == customers.get(("FR", 1)) == customer("FR", 1, "ann")


def test_the_stamp_is_that_of_the_rows() -> None:
    rows = PartitionRows(MemoryStore("table", "t", Path("unused")), "id", 0)
    rows.begin(5, 9, 1_000, 1_000)
    assert rows.position == 5
    assert rows.apply(InputBatch([5, 7], [b"a", None], [b"1", b"2"], [3, 4], [1, 1], None)) == 1
    stamp = rows._data.stamp
    assert stamp is not None
    assert (stamp.changelog_offset, rows.position, stamp.written_at) == (8, 8, 1_000)
    assert rows.get(b"a") == StoredRow(b"a", b"1", 3, 5)
    rows._data.write([(b"\x05b", b"\x01" + bytes(16))], stamp)
    with pytest.raises(StoreVersionError, match="format version 1"):
        rows.get(b"b")


def test_bytes_that_follow_a_prefix() -> None:
    assert following_bytes(b"\xff\xff") is None
    assert following_bytes(b"") is None
