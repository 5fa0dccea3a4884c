"""Entries that expire: when exactly, what is deleted when, and what is left in the store."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from streamrt.state import MemoryStore, RocksDBOptions, RocksDBStore, Stamp, Store, StoreIdentity, StorePartition
from streamrt.state.changelog import restore_changes
from streamrt.state.layout import EXPIRY_SPACE, FIRST_KEY
from streamrt.state.rocksdb import RocksDBStorePartition
from streamrt.state.transactions.keyed import StoreTransaction

IDENTITY = StoreIdentity("shop", "orders", 0, "default", None, "changelog", 1)
SECOND = timedelta(seconds=1)
Change = tuple[bytes, "bytes | None"]


@pytest.fixture(params=[MemoryStore, RocksDBStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    kind: type[Store] = request.param
    return kind("default", "orders", tmp_path)


@pytest.fixture
def partition(store: Store) -> StorePartition:
    return store.open(0)


def commit(transaction: StoreTransaction, offset: int = 1) -> list[Change]:
    changes = transaction.prepare()
    transaction.flush(Stamp(IDENTITY, offset, offset, transaction.stream_time, 0))
    return changes


def at(partition: StorePartition, time: int, limit: int = 100, changelog: bool = True) -> StoreTransaction:
    """A transaction whose stream time is at least so high."""
    transaction = StoreTransaction(partition, RocksDBOptions(max_evictions_per_flush=limit), changelog)
    transaction.state(b"other", time)
    return transaction


def contents(partition: StorePartition) -> list[tuple[bytes, bytes]]:
    """All entries, those of the index included, without the note where the index begins."""
    return [entry for entry in partition.scan(b"", None) if entry[0] != FIRST_KEY]


def entries(partition: StorePartition) -> int:
    """How many entries there are."""
    return len(contents(partition))


def test_the_boundary(partition: StorePartition) -> None:
    transaction = StoreTransaction(partition)
    state = transaction.state(b"key", 1_000)
    state.set("a", 1, ttl=SECOND)
    state.set_bytes("b", b"x", ttl=SECOND)
    assert (state.get("a"), state.get_bytes("b")) == (1, b"x")
    transaction.state(b"other", 1_999)
    assert (state.get("a"), state.get_bytes("b")) == (1, b"x")
    transaction.state(b"other", 2_000)
    assert state.get("a", "gone") == "gone"
    assert state.get_bytes("b") is None
    assert not state.exists("a")


def test_the_boundary_across_commits(partition: StorePartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1_000).set("a", 1, ttl=SECOND)
    commit(transaction)
    for time, expected in ((1_999, 1), (2_000, None)):
        # Read from the store, not from what the last transaction remembers.
        partition.read_cache = None
        transaction = at(partition, time)
        assert transaction.state(b"key", 0).get("a") == expected
        commit(transaction)


def test_what_a_late_record_writes_lives_from_stream_time_on(partition: StorePartition) -> None:
    transaction = at(partition, 10_000)
    transaction.state(b"key", 1_000).set("late", 1, ttl=SECOND)
    assert transaction.state(b"key", 1_000).get("late") == 1
    assert transaction.state(b"other", 10_999).get("late") is None
    assert transaction.state(b"key", 1_000).get("late") == 1
    transaction.state(b"other", 11_000)
    assert not transaction.state(b"key", 1_000).exists("late")


def test_a_late_record_loses_nothing_of_a_list_that_it_adds_to(partition: StorePartition) -> None:
    """A list that was written at 10 s to live for 5 s was gone when a record of 3 s had added to it."""
    transaction = StoreTransaction(partition)

    def alert(timestamp: int, text: str) -> list[str]:
        state = transaction.state(b"sensor", timestamp)
        alerts = [*state.get("alerts", []), text]
        state.set("alerts", alerts, ttl=5 * SECOND)
        return alerts

    assert alert(10_000, "hot") == ["hot"]
    assert alert(3_000, "was cold") == ["hot", "was cold"]
    commit(transaction)
    transaction = StoreTransaction(partition)
    assert alert(14_999, "hotter") == ["hot", "was cold", "hotter"]
    assert alert(20_000, "hot again") == ["hot again"]


def test_less_than_a_millisecond_is_one(partition: StorePartition) -> None:
    transaction = StoreTransaction(partition)
    state = transaction.state(b"key", 5)
    state.set("a", 1, ttl=timedelta(microseconds=1))
    assert state.get("a") == 1
    transaction.state(b"key", 6)
    assert not state.exists("a")


@pytest.mark.parametrize(("timestamp", "ttl"), [(1 << 62, timedelta.max), (-5_000, SECOND), (0, timedelta.max)])
def test_extreme_times(partition: StorePartition, timestamp: int, ttl: timedelta) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", timestamp).set("a", 1, ttl=ttl)
    commit(transaction)
    transaction = StoreTransaction(partition)
    assert transaction.state(b"key", timestamp).get("a") == 1
    transaction.state(b"key", (1 << 63) - 1)
    assert not transaction.state(b"key", timestamp).exists("a")
    commit(transaction)
    assert entries(partition) == 0


def test_expired_entries_are_deleted_with_tombstones(partition: StorePartition) -> None:
    transaction = StoreTransaction(partition)
    for number in range(3):
        transaction.state(b"key", 1_000 + number).set(number, number, ttl=SECOND)
    transaction.state(b"key", 1_000).set("stays", 1)
    commit(transaction)
    assert entries(partition) == 7
    assert commit(at(partition, 2_001)) == [(b"\x01\x01\x03key0", None), (b"\x01\x01\x03key1", None)]
    assert entries(partition) == 3
    assert commit(at(partition, 2_002)) == [(b"\x01\x01\x03key2", None)]
    assert entries(partition) == 1
    assert commit(at(partition, 9_999)) == []


def test_each_commit_deletes_a_bounded_number(partition: StorePartition) -> None:
    transaction = StoreTransaction(partition)
    for number in range(10):
        transaction.state(b"key", 1_000).set(number, number, ttl=SECOND)
    commit(transaction)
    numbers = []
    for _ in range(4):
        transaction = at(partition, 5_000, limit=4)
        assert not any(transaction.state(b"key", 5_000).exists(number) for number in range(10))
        numbers.append(len(commit(transaction)))
    assert numbers == [4, 4, 2, 0]
    assert entries(partition) == 0


def test_without_changelog_nobody_is_told(partition: StorePartition) -> None:
    transaction = StoreTransaction(partition, None, False)
    transaction.state(b"key", 1_000).set("a", 1, ttl=SECOND)
    commit(transaction)
    transaction = at(partition, 2_000, changelog=False)
    transaction.state(b"key", 2_000).set("b", 2)
    assert commit(transaction) == [(b'\x01\x01\x03key"b"', b"\x002")]
    assert [key for key, _ in contents(partition)] == [b'\x01\x01\x03key"b"']


@pytest.mark.parametrize("read", [True, False], ids=["read before", "not read before"])
@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "forgotten"])
def test_writing_again_leaves_no_shell(partition: StorePartition, read: bool, remembered: bool) -> None:
    def later(time: int) -> StoreTransaction:
        if not remembered:
            partition.read_cache = None
        transaction = StoreTransaction(partition)
        if read:
            transaction.state(b"key", time).get("a")
        return transaction

    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1_000).set("a", 1, ttl=SECOND)
    commit(transaction)
    assert entries(partition) == 2
    transaction = later(1_500)
    transaction.state(b"key", 1_500).set("a", 2, ttl=SECOND)
    commit(transaction)
    assert entries(partition) == 2
    # It was prolonged: the first expiry does nothing any more.
    assert commit(at(partition, 2_000)) == []
    assert StoreTransaction(partition).state(b"key", 2_000).get("a") == 2
    # The same expiry once more.
    transaction = later(1_500)
    transaction.state(b"key", 1_500).set("a", 3, ttl=SECOND)
    commit(transaction)
    assert entries(partition) == 2
    transaction = later(2_000)
    transaction.state(b"key", 2_000).set("a", 4)
    commit(transaction)
    assert entries(partition) == 1
    assert commit(at(partition, 90_000)) == []
    transaction = later(90_000)
    transaction.state(b"key", 90_000).set("a", 5, ttl=SECOND)
    commit(transaction)
    transaction = later(90_000)
    transaction.state(b"key", 90_000).delete("a")
    commit(transaction)
    assert entries(partition) == 0


def test_an_expired_entry_may_be_written_again(partition: StorePartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1_000).set("a", 1, ttl=SECOND)
    commit(transaction)
    transaction = at(partition, 5_000)
    transaction.state(b"key", 5_000).set("a", 2)
    assert commit(transaction) == [(b'\x01\x01\x03key"a"', b"\x002")]
    assert entries(partition) == 1
    assert commit(at(partition, 9_000)) == []
    assert StoreTransaction(partition).state(b"key", 0).get("a") == 2


def test_what_is_written_and_expired_in_one_commit_is_never_stored(partition: StorePartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1_000).set("a", 1, ttl=SECOND)
    transaction.state(b"key", 9_000)
    assert commit(transaction) == [(b'\x01\x01\x03key"a"', None)]
    assert entries(partition) == 0
    assert not StoreTransaction(partition).state(b"key", 0).exists("a")


def test_a_restore_makes_the_index(store: Store, partition: StorePartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1_000).set("a", 1, ttl=SECOND)
    transaction.state(b"key", 1_000).set("b", 1)
    changes = commit(transaction)
    copy = store.open(1)
    copy.write(restore_changes(changes).changes, Stamp(IDENTITY, 1, 1, 1_000, 0))
    assert contents(copy) == contents(partition)
    assert commit(at(copy, 2_000)) == [(b'\x01\x01\x03key"a"', None)]
    assert entries(copy) == 1


@pytest.mark.parametrize("looks", [True, False])
def test_a_restore_over_old_data(store: Store, partition: StorePartition, looks: bool) -> None:
    """Data that it cannot see without looking has no effect, and goes when its time has come."""
    live = store.open(1)
    for offset, (time, ttl) in enumerate(((1_000, SECOND), (1_500, SECOND), (1_600, None)), 1):
        transaction = StoreTransaction(live)
        transaction.state(b"key", time).set("a", offset, ttl=ttl)
        transaction.state(b"key", time).set("b", offset, ttl=SECOND)
        restored = restore_changes(commit(transaction, offset), partition if looks else None)
        partition.write(restored.changes, Stamp(IDENTITY, offset, offset, time, 0))
        if looks:
            assert contents(partition) == contents(live)
    assert commit(at(partition, 2_599)) == []
    assert StoreTransaction(partition).state(b"key", 0).get("b") == 3
    assert commit(at(partition, 2_600)) == [(b'\x01\x01\x03key"b"', None)]
    assert StoreTransaction(partition).state(b"key", 0).get("a") == 3
    assert entries(partition) == 1


class _Watched(RocksDBStorePartition):
    """Counts the remains of deleted index entries that scans pass: RocksDB does not show them, but reads over them."""

    passed = 0
    deleted: frozenset[bytes] = frozenset()

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self.passed += sum(start <= key and (end is None or key < end) for key in self.deleted)
        return super().scan(start, end, reverse=reverse)

    def write(self, changes: Iterable[tuple[bytes, bytes | None]], stamp: Stamp) -> None:
        changes = list(changes)
        self.deleted |= {key for key, value in changes if value is None and key[0] == EXPIRY_SPACE}
        super().write(changes, stamp)


def _watch(partition: StorePartition) -> _Watched:
    partition.__class__ = _Watched
    assert isinstance(partition, _Watched)
    return partition


@pytest.mark.slow
@pytest.mark.parametrize("remembered", [True, False], ids=["resident", "micro-batch"])
def test_fault_12_commits_do_not_read_over_what_was_deleted(tmp_path: Path, remembered: bool) -> None:
    """Each key lives for 10 of 300 commits, some are written again: what was deleted is passed once, not by each commit."""
    store = RocksDBStore("default", "orders", tmp_path)
    partition = _watch(store.open(0))
    passed = []
    for number in range(300):
        if not remembered:
            partition.read_cache = None
        transaction = StoreTransaction(partition)
        for key in range(5):
            transaction.state(b"%d-%d" % (number, key), number * 1_000).set("a", 1, ttl=10 * SECOND)
        transaction.state(b"again", number * 1_000).set("a", 1, ttl=10 * SECOND)
        before = partition.passed
        commit(transaction, number + 1)
        passed.append(partition.passed - before)
    # The five keys are gone but for those of the last ten commits.
    assert entries(partition) == 2 * (5 * 10 + 1)
    assert len(partition.deleted) > 1_000
    # No more than the one key that was written again leaves behind in the time to live.
    assert max(passed) <= 12
    partition.close()


@pytest.mark.slow
def test_fault_12_a_store_of_a_former_version_begins_with_one_look(tmp_path: Path) -> None:
    store = RocksDBStore("default", "orders", tmp_path)
    partition = store.open(0)
    for number in range(20):
        commit(at(partition, number * 1_000), number)
        transaction = at(partition, number * 1_000)
        transaction.state(b"%d" % number, number * 1_000).set("a", 1, ttl=5 * SECOND)
        commit(transaction, number)
    # Without the note, as former versions have left it.
    partition.write([(FIRST_KEY, None)], Stamp(IDENTITY, 20, 20, 19_000, 0))
    partition.close()
    partition = _watch(store.open(0))
    assert len(commit(at(partition, 20_000), 21)) == 1
    assert len(commit(at(partition, 21_000), 22)) == 1
    assert partition.passed == 0
    assert len(commit(at(partition, 99_000), 23)) == 3
    assert entries(partition) == 0
    partition.close()


def test_fault_12_a_replay_of_earlier_expiries_lowers_the_bound(store: Store, partition: StorePartition) -> None:
    commit(at(partition, 1_000))
    transaction = at(partition, 1_000)
    transaction.state(b"late", 1_000).set("a", 1, ttl=9 * SECOND)
    commit(transaction)
    commit(at(partition, 5_000))
    live = store.open(1)
    transaction = StoreTransaction(live)
    transaction.state(b"early", 1_000).set("a", 1, ttl=SECOND)
    partition.write(restore_changes(commit(transaction), partition).changes, Stamp(IDENTITY, 9, 9, 5_000, 0))
    assert commit(at(partition, 6_000)) == [(b'\x01\x01\x05early"a"', None)]
    assert commit(at(partition, 10_000)) == [(b'\x01\x01\x04late"a"', None)]
    assert entries(partition) == 0
