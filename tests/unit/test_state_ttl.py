"""Entries that expire: when exactly, what is deleted when, and what is left in the store."""

from datetime import timedelta
from pathlib import Path

import pytest

from streamrt.state import (
    MemoryStore,
    RocksDBOptions,
    RocksDBStore,
    Stamp,
    Store,
    StoreIdentity,
    StorePartition,
    StoreTransaction,
    restore_changes,
)

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


def entries(partition: StorePartition) -> int:
    """How many entries there are, those of the index included."""
    return len(list(partition.scan(b"", None)))


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


def test_an_early_timestamp_counts_from_itself(partition: StorePartition) -> None:
    transaction = at(partition, 10_000)
    transaction.state(b"key", 1_000).set("late", 1, ttl=SECOND)
    assert not transaction.state(b"key", 1_000).exists("late")
    transaction.state(b"key", 9_500).set("just", 1, ttl=SECOND)
    assert transaction.state(b"key", 1_000).get("just") == 1


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
    assert [key for key, _ in partition.scan(b"", None)] == [b'\x01\x01\x03key"b"']


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
    assert list(copy.scan(b"", None)) == list(partition.scan(b"", None))
    assert commit(at(copy, 2_000)) == [(b'\x01\x01\x03key"a"', None)]
    assert entries(copy) == 1


@pytest.mark.parametrize("looks", [True, False])
def test_a_restore_over_old_data(store: Store, partition: StorePartition, looks: bool) -> None:
    """What it cannot see without looking has no effect, and goes when its time has come."""
    live = store.open(1)
    for offset, (time, ttl) in enumerate(((1_000, SECOND), (1_500, SECOND), (1_600, None)), 1):
        transaction = StoreTransaction(live)
        transaction.state(b"key", time).set("a", offset, ttl=ttl)
        transaction.state(b"key", time).set("b", offset, ttl=SECOND)
        restored = restore_changes(commit(transaction, offset), partition if looks else None)
        partition.write(restored.changes, Stamp(IDENTITY, offset, offset, time, 0))
        if looks:
            assert list(partition.scan(b"", None)) == list(live.scan(b"", None))
    assert commit(at(partition, 2_599)) == []
    assert StoreTransaction(partition).state(b"key", 0).get("b") == 3
    assert commit(at(partition, 2_600)) == [(b'\x01\x01\x03key"b"', None)]
    assert StoreTransaction(partition).state(b"key", 0).get("a") == 3
    assert entries(partition) == 1
