"""Transactions: what they return, in which order they may be used, and what they leave to the next one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from streamrt.errors import StateError
from streamrt.state import MemoryStore, RocksDBOptions, Stamp, State, StoreIdentity, StorePartition
from streamrt.state.base import budget
from streamrt.state.base.status import TransactionStatus
from streamrt.state.layout import FIRST_KEY, WALL_FIRST_KEY
from streamrt.state.transactions.keyed import StoreTransaction

IDENTITY = StoreIdentity("shop", "orders", 0, "default", None, None, 1)
PREFIX = b"\x01\x01\x03key"


class CountingPartition(StorePartition):
    """A partition in memory that counts what is read of its data, and can be told to fail."""

    def __init__(self) -> None:
        self.data = MemoryStore("default", "orders", Path("unused")).open(0)
        self.reads: list[bytes] = []
        self.fails = False

    @property
    def stamp(self) -> Stamp | None:
        return self.data.stamp

    def get(self, key: bytes) -> bytes | None:
        if key not in (FIRST_KEY, WALL_FIRST_KEY):
            # Where the index begins is read once for each opening.
            self.reads.append(key)
        return self.data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads += keys
        return self.data.get_many(keys)

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if self.fails:
            raise StateError("the disk is gone")
        return self.data.scan(start, end, reverse=reverse)

    def write(self, changes: Iterable[tuple[bytes, bytes | None]], stamp: Stamp) -> None:
        if self.fails:
            raise StateError("the disk is full")
        self.data.write(changes, stamp)

    def approximate_size(self) -> int:
        return self.data.approximate_size()

    def close(self) -> None:
        self.data.close()


@pytest.fixture
def partition() -> CountingPartition:
    return CountingPartition()


def stamp(transaction: StoreTransaction, offset: int) -> Stamp:
    return Stamp(IDENTITY, offset, offset, transaction.stream_time, 0)


def commit(transaction: StoreTransaction, offset: int) -> list[tuple[bytes, bytes | None]]:
    changes = transaction.prepare()
    transaction.flush(stamp(transaction, offset))
    return changes


def test_one_change_for_each_key(partition: CountingPartition) -> None:
    transaction = StoreTransaction(partition)
    state = transaction.state(b"key", 1)
    state.set("b", 1)
    state.set("a", 1)
    state.set("b", 2)
    state.set("c", 1)
    state.delete("c")
    assert transaction.prepare() == [(PREFIX + b'"b"', b"\x002"), (PREFIX + b'"a"', b"\x001"), (PREFIX + b'"c"', None)]


def test_values_that_expire_say_when(partition: CountingPartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1_000).set("a", 1, ttl=timedelta(seconds=1))
    assert transaction.prepare() == [(PREFIX + b'"a"', b"\x01" + (2_000).to_bytes(8, "big") + b"1")]


def test_nothing_is_written_before_the_flush(partition: CountingPartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1).set("a", 1)
    assert partition.data.get(PREFIX + b'"a"') is None
    transaction.prepare()
    assert partition.data.get(PREFIX + b'"a"') is None
    transaction.flush(stamp(transaction, 1))
    assert partition.data.get(PREFIX + b'"a"') == b"\x001"
    assert partition.stamp == Stamp(IDENTITY, 1, 1, 1, 0)


def test_what_is_discarded_is_gone(partition: CountingPartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1).set("a", 1)
    commit(transaction, 1)
    for prepared in (False, True):
        transaction = StoreTransaction(partition)
        transaction.state(b"key", 5).set("a", 2)
        transaction.state(b"key", 5).delete("b")
        if prepared:
            transaction.prepare()
        transaction.discard()
        transaction = StoreTransaction(partition)
        assert transaction.stream_time == 1
        assert transaction.state(b"key", 1).get("a") == 1
        transaction.discard()


def test_a_transaction_that_was_dropped_leaves_nothing(partition: CountingPartition) -> None:
    StoreTransaction(partition).state(b"key", 1).set("a", 1)
    assert not StoreTransaction(partition).state(b"key", 1).exists("a")


def test_stream_time_is_the_highest_timestamp(partition: CountingPartition) -> None:
    transaction = StoreTransaction(partition)
    assert transaction.stream_time is None
    for timestamp, expected in ((5, 5), (3, 5), (9, 9)):
        transaction.state(b"key", timestamp)
        assert transaction.stream_time == expected
    commit(transaction, 1)
    transaction = StoreTransaction(partition)
    assert transaction.stream_time == 9
    transaction.state(None, 2)
    assert transaction.stream_time == 9


def test_states_follow_each_other() -> None:
    for status in TransactionStatus:
        assert status.final == (not status.next)
    assert TransactionStatus.STARTED.next == {TransactionStatus.PREPARED, TransactionStatus.FAILED}
    assert TransactionStatus.PREPARED.next == {TransactionStatus.COMPLETE, TransactionStatus.FAILED}


def prepared(transaction: StoreTransaction) -> None:
    transaction.prepare()


def complete(transaction: StoreTransaction) -> None:
    commit(transaction, 1)


def failed(transaction: StoreTransaction) -> None:
    transaction.discard()


@pytest.mark.parametrize(
    ("reach", "act"),
    [
        (prepared, lambda transaction: transaction.prepare()),
        (complete, lambda transaction: transaction.prepare()),
        (failed, lambda transaction: transaction.prepare()),
        (lambda transaction: None, lambda transaction: transaction.flush(stamp(transaction, 1))),
        (complete, lambda transaction: transaction.flush(stamp(transaction, 1))),
        (failed, lambda transaction: transaction.flush(stamp(transaction, 1))),
        (complete, lambda transaction: transaction.discard()),
        (prepared, lambda transaction: transaction.state(b"key", 1)),
        (complete, lambda transaction: transaction.state(b"key", 1)),
        (failed, lambda transaction: transaction.state(b"key", 1)),
    ],
)
def test_wrong_orders_are_refused(
    partition: CountingPartition, reach: Callable[[StoreTransaction], None], act: Callable[[StoreTransaction], object]
) -> None:
    transaction = StoreTransaction(partition)
    reach(transaction)
    before = transaction.status
    with pytest.raises(StateError, match=before.value):
        act(transaction)
    assert transaction.status is before


def test_a_failed_transaction_may_be_discarded_again(partition: CountingPartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.discard()
    transaction.discard()
    assert transaction.status is TransactionStatus.FAILED


@pytest.mark.parametrize("reach", [prepared, complete, failed])
@pytest.mark.parametrize(
    "write",
    [lambda state: state.set("a", 2), lambda state: state.delete("a"), lambda state: state.set_bytes("new", b"")],
)
def test_a_state_must_not_be_kept(
    partition: CountingPartition, reach: Callable[[StoreTransaction], None], write: Callable[[State], None]
) -> None:
    transaction = StoreTransaction(partition)
    state = transaction.state(b"key", 1)
    state.set("a", 1)
    reach(transaction)
    with pytest.raises(StateError, match="do not keep it"):
        write(state)


def test_a_state_that_was_kept_reads_nothing(partition: CountingPartition) -> None:
    transaction = StoreTransaction(partition)
    state = transaction.state(b"key", 1)
    transaction.discard()
    with pytest.raises(StateError, match="failed"):
        state.get("a")


def test_a_flush_that_fails(partition: CountingPartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1).set("a", 1)
    transaction.prepare()
    partition.fails = True
    with pytest.raises(StateError, match="disk is full"):
        transaction.flush(stamp(transaction, 1))
    assert transaction.status is TransactionStatus.FAILED
    partition.fails = False
    assert not StoreTransaction(partition).state(b"key", 1).exists("a")


def test_a_preparation_that_fails(partition: CountingPartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1).set("a", 1)
    partition.fails = True
    with pytest.raises(StateError, match="disk is gone"):
        transaction.prepare()
    assert transaction.status is TransactionStatus.FAILED


def test_each_key_is_read_once(partition: CountingPartition) -> None:
    for offset in range(3):
        transaction = StoreTransaction(partition)
        for number in range(300):
            state = transaction.state(b"key-%d" % (number % 100), number)
            state.set("n", state.get("n", 0) + 1)
            assert not state.exists("missing")
        assert len(commit(transaction, offset)) == 100
    assert len(partition.reads) == 200
    assert StoreTransaction(partition).state(b"key-7", 0).get("n") == 9


def test_writes_do_not_read(partition: CountingPartition) -> None:
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1).set("a", 1)
    transaction.state(b"key", 1).delete("b")
    commit(transaction, 1)
    assert partition.reads == []


def test_what_others_write_is_seen(partition: CountingPartition) -> None:
    """A restore writes without a transaction: what was remembered before counts no more."""
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1).set("a", 1)
    commit(transaction, 1)
    partition.write([(PREFIX + b'"a"', b"\x002")], Stamp(IDENTITY, 2, 2, 1, 0))
    assert StoreTransaction(partition).state(b"key", 1).get("a") == 2


def test_memory_is_bounded(partition: CountingPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget._budgets, "cache", budget.CacheBudget())
    small = RocksDBOptions(object_cache_size=50_000)
    value = "x" * 1_000
    for offset in range(4):
        transaction = StoreTransaction(partition, small)
        for number in range(40):
            transaction.state(b"%d" % (offset * 40 + number), 1).set("a", value)
        commit(transaction, offset)
    transaction = StoreTransaction(partition, small)
    transaction.state(b"own", 1).set("a", "mine")
    for number in range(160):
        assert transaction.state(b"%d" % number, 1).get("a") == value
        assert len(transaction._entries) < 60
    assert transaction.state(b"own", 1).get("a") == "mine"
    assert commit(transaction, 9) == [(b'\x01\x01\x03own"a"', b'\x00"mine"')]
    assert partition.read_cache is None or partition.read_cache[2] <= 50_000


def test_options_may_be_missing(partition: CountingPartition) -> None:
    assert StoreTransaction(partition, None).status is StoreTransaction(partition, RocksDBOptions()).status
