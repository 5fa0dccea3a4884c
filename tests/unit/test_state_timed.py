"""Transactions for time: what they keep, what they read and write, how they end, and what they refuse."""

import inspect
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from streamrt.dataframe.trial import TrialContext, TrialStores
from streamrt.errors import (
    ConfigurationError,
    InvalidOperationError,
    SerializationError,
    StateError,
    StoreCorruptedError,
    StoreVersionError,
)
from streamrt.operators import Apply
from streamrt.state import MemoryStore, RocksDBOptions, RocksDBStore, Stamp, StoreIdentity, StorePartition
from streamrt.state.base import budget
from streamrt.state.base.status import TransactionStatus
from streamrt.state.changelog import restore_changes
from streamrt.state.layout import FIRST_KEY, expiry_key
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import StoreTransaction, state_of
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.state.transactions.timeline import Timelines
from streamrt.topics import Topic
from streamrt.topology import SourceOperator, TopologyBuilder
from tests.support import LONG

IDENTITY = StoreIdentity("shop", "orders", 0, "default", None, None, 1)
KEY = TimedTransaction.prefix(b"key")
HEAD = b"\x02" + KEY


class Watched(StorePartition):
    """A partition in memory that notes what is read from it, and can be told to fail."""

    def __init__(self) -> None:
        self.data = MemoryStore("default", "orders", Path("unused")).open(0)
        self.reads: list[bytes] = []
        self.scans: list[bytes] = []
        self.fails = False

    @property
    def stamp(self) -> Stamp | None:
        return self.data.stamp

    def get(self, key: bytes) -> bytes | None:
        self.reads.append(key)
        return self.data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads += keys
        return self.data.get_many(keys)

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self.scans.append(start)
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
def partition() -> Watched:
    return Watched()


@pytest.fixture
def transaction(partition: Watched) -> TimedTransaction:
    return TimedTransaction(partition)


def commit(transaction: TimedTransaction, offset: int = 1) -> list[tuple[bytes, bytes | None]]:
    changes = transaction.prepare()
    transaction.flush(Stamp(IDENTITY, offset, offset, transaction.stream_time, 0))
    return changes


def moment(number: int) -> bytes:
    return number.to_bytes(8, "big")


def test_the_layout(partition: Watched, transaction: TimedTransaction) -> None:
    transaction.head(KEY)
    transaction.set_head(KEY, [1, None], 500)
    other = transaction.prefix("key")
    transaction.set_head(other, [float("inf")])
    transaction.timelines.add(KEY, 7, {"a": 1})
    transaction.timelines.add(KEY, 6, None)
    changes = commit(transaction)
    assert changes == [
        (b"\x04arrival", b"\x00" + moment(2)),
        (b"\x02\x01\x03key", b"\x01" + moment(500) + b"[1,null]"),
        (b'\x02\x02\x05"key"', b"\x00~[Infinity]"),
        (b"\x03\x01\x03key" + moment(7) + moment(0), b'\x00{"a":1}'),
        (b"\x03\x01\x03key" + moment(6) + moment(1), b"\x00null"),
    ]
    local = [(b"\xf0" + moment(500) + HEAD, b""), (FIRST_KEY, moment(500))]
    assert list(partition.scan(b"", None)) == sorted([*changes, *local])


def test_prefixes() -> None:
    prefix, key_of = TimedTransaction.prefix, TimedTransaction.key_of
    keys = [None, b"", "", b"a", "a", 1, 1.0, True, [1], {"a": 1}, b"x" * 200, "x" * 200, 2**70, "\ud800", -0.0]
    assert len({prefix(key) for key in keys}) == len(keys)
    assert [key_of(prefix(key)) for key in keys] == keys
    assert key_of(prefix(bytearray(b"a"))) == b"a"
    with pytest.raises(SerializationError, match=r"the record key \{1\} cannot have state"):
        prefix({1})


def test_heads_are_kept_as_they_are(partition: Watched) -> None:
    """One object over records and commits, encoded once for each commit, read once."""
    transaction = TimedTransaction(partition)
    head = [0]
    assert transaction.head(KEY) is None
    transaction.set_head(KEY, head)
    for offset in range(3):
        for _ in range(5):
            assert transaction.head(KEY) is head
            head[0] += 1
            transaction.set_head(KEY, head)
        assert commit(transaction, offset) == [(HEAD, b"\x00[%d]" % head[0])]
        transaction = TimedTransaction(partition)
    assert partition.reads == [HEAD]
    assert commit(transaction, 9) == []


def test_nothing_is_left_of_what_fails(partition: Watched, transaction: TimedTransaction) -> None:
    transaction.set_head(KEY, [1], 10)
    transaction.timelines.add(KEY, 1, "a")
    transaction.observed = 5
    commit(transaction)
    for fail in ("discard", "prepared", "flush"):
        transaction = TimedTransaction(partition)
        assert transaction.observed == (5 if fail == "discard" else None)
        head = transaction.head(KEY)
        head[0] = 2
        transaction.set_head(KEY, head, 5)
        transaction.timelines.add(KEY, 2, "b")
        transaction.timelines.delete(KEY, 1, 2)
        transaction.advance(99)
        transaction.observed = 99
        if fail != "discard":
            transaction.prepare()
        if fail == "flush":
            partition.fails = True
            with pytest.raises(StateError, match="disk is full"):
                transaction.flush(Stamp(IDENTITY, 2, 2, 99, 0))
            partition.fails = False
        transaction.discard()
        assert transaction.status is TransactionStatus.FAILED
    transaction = TimedTransaction(partition)
    assert (transaction.head(KEY), transaction.next_deadline) == ([1], 10)
    assert transaction.timelines.items(KEY, 0, 10) == [(1, "a")]
    assert (transaction.stream_time, transaction.observed) == (None, None)


USES: list[Callable[[TimedTransaction], Any]] = [
    lambda transaction: transaction.head(KEY),
    lambda transaction: transaction.set_head(KEY, [2]),
    lambda transaction: transaction.delete_head(KEY),
    lambda transaction: transaction.timelines.add(KEY, 1, 1),
    lambda transaction: transaction.timelines.items(KEY, 0, 1),
    lambda transaction: transaction.timelines.latest(KEY, 1),
    lambda transaction: transaction.timelines.delete(KEY, 0, 1),
    lambda transaction: list(transaction.due(5)),
    lambda transaction: transaction.next_deadline,
]


@pytest.mark.parametrize("use", USES, ids=[str(number) for number in range(len(USES))])
@pytest.mark.parametrize("ending", ["prepare", "commit", "discard"])
def test_a_transaction_that_is_over_must_not_be_used(
    transaction: TimedTransaction, use: Callable[[TimedTransaction], Any], ending: str
) -> None:
    transaction.set_head(KEY, [1], 5)
    transaction.timelines.add(KEY, 1, 1)
    if ending == "prepare":
        transaction.prepare()
    elif ending == "commit":
        commit(transaction)
    else:
        transaction.discard()
    with pytest.raises(StateError, match=f"a transaction that is {transaction.status.value} was used"):
        use(transaction)


def test_what_the_store_says_of_a_transaction(partition: Watched, transaction: TimedTransaction) -> None:
    assert not transaction.dirty
    transaction.head(KEY)
    transaction.timelines.items(KEY, 0, 5)
    transaction.advance(7)
    reads_only = transaction.dirty
    transaction.timelines.add(KEY, 1, 1)
    assert (reads_only, transaction.dirty) == (False, True)
    commit(transaction)
    assert TimedTransaction(partition).clock == TimedTransaction(partition).stream_time == 7


def test_caches_of_other_transactions_are_left_alone(partition: Watched) -> None:
    other = StoreTransaction(partition)
    other.prepare()
    other.flush(Stamp(IDENTITY, 1, 1, None, 0))
    transaction = TimedTransaction(partition)
    transaction.set_head(KEY, [1])
    commit(transaction)
    other = StoreTransaction(partition)
    assert not other.state(b"key", 1).exists("a")


def test_heads_that_make_no_sense(transaction: TimedTransaction) -> None:
    with pytest.raises(StateError, match="call delete_head instead"):
        transaction.set_head(KEY, None)
    transaction.set_head(KEY, [{1}])
    with pytest.raises(SerializationError, match="cannot be stored exactly"):
        transaction.prepare()
    assert transaction.status is TransactionStatus.FAILED


def test_deleting_what_was_never_stored(partition: Watched, transaction: TimedTransaction) -> None:
    transaction.set_head(KEY, [1], 5)
    transaction.delete_head(KEY)
    transaction.delete_head(KEY)
    transaction.delete_head(transaction.prefix("never"))
    transaction.timelines.delete(KEY, 0, 100)
    assert transaction.next_deadline is None
    assert commit(transaction) == []
    assert [key for key, _ in partition.scan(b"", None)] == [FIRST_KEY]


# -- Deadlines -------------------------------------------------------------------------------------------------------


def test_deadlines_come_in_order(partition: Watched) -> None:
    """Those of earlier commits and of this one, each as it is now."""
    transaction = TimedTransaction(partition)
    prefixes = [transaction.prefix(b"%d" % number) for number in range(6)]
    for number, deadline in enumerate([50, 10, 30, 10, 20]):
        transaction.set_head(prefixes[number], [number], deadline)
    commit(transaction)
    transaction = TimedTransaction(partition)
    transaction.set_head(prefixes[5], [5], 15)
    transaction.set_head(prefixes[2], [2], 5)
    transaction.set_head(prefixes[4], [4])
    assert transaction.next_deadline == transaction.due_from == 5
    found = []
    for deadline, prefix, head in transaction.due(20):
        found.append((deadline, head))
        if head == [3]:
            # A later deadline that is also due; and one that another key gets meanwhile.
            transaction.set_head(prefix, [33], 18)
            transaction.set_head(prefixes[4], [4], 17)
        elif head == [5]:
            transaction.set_head(prefix, [5], 21)
        else:
            transaction.delete_head(prefix)
    assert found == [(5, [2]), (10, [1]), (10, [3]), (15, [5]), (17, [4]), (18, [33])]
    assert (transaction.next_deadline, transaction.due_from) == (21, 21)
    assert list(transaction.due(20)) == []


def test_no_deadlines(transaction: TimedTransaction) -> None:
    assert transaction.due_from < 0
    assert list(transaction.due(NEVER)) == []
    assert transaction.due_from == NEVER
    assert transaction.next_deadline is None


def test_deadlines_are_cut_to_what_can_be_stored(partition: Watched, transaction: TimedTransaction) -> None:
    transaction.set_head(KEY, [1], -5)
    transaction.set_head(KEY, [1], -5)
    assert transaction.next_deadline == 0
    transaction.set_head(transaction.prefix("b"), [1], 1 << 80)
    commit(transaction)
    transaction = TimedTransaction(partition)
    found = []
    for deadline, prefix, _ in transaction.due(1 << 80):
        found.append(deadline)
        transaction.delete_head(prefix)
    assert found == [0, NEVER - 1]


@pytest.mark.parametrize("leave", [lambda *_: None, lambda transaction, prefix: transaction.set_head(prefix, [1], 5)])
def test_who_leaves_a_deadline_is_told(transaction: TimedTransaction, leave: Callable[..., None]) -> None:
    transaction.set_head(KEY, [1], 5)
    due = transaction.due(9)
    _, prefix, _ = next(due)
    leave(transaction, prefix)
    with pytest.raises(StateError, match=r"record key b'key' was due at 5 and still has the deadline 5"):
        next(due)


def test_the_index_is_read_from_where_it_begins(partition: Watched) -> None:
    """Not over the remains of what was deleted, also in a new process."""
    transaction = TimedTransaction(partition)
    for number in range(20):
        transaction.set_head(transaction.prefix(number), [number], 100 + number)
    commit(transaction, 0)
    for round_ in range(3):
        partition.scans.clear()
        partition.read_cache = None
        transaction = TimedTransaction(partition)
        for _, prefix, _ in transaction.due(104 + 5 * round_):
            transaction.delete_head(prefix)
        commit(transaction, round_ + 1)
        assert partition.scans == [expiry_key(100 + 5 * round_, b"")]
    # An earlier one than all that are left.
    transaction = TimedTransaction(partition)
    transaction.set_head(KEY, [1], 3)
    commit(transaction, 9)
    partition.read_cache = None
    assert TimedTransaction(partition).next_deadline == 3


def test_what_a_restore_leaves_in_the_index(partition: Watched, transaction: TimedTransaction) -> None:
    """A restore that does not look leaves entries of deadlines that were moved; they count for nothing."""
    transaction.set_head(KEY, [1], 5)
    first = commit(transaction)
    transaction = TimedTransaction(partition)
    transaction.set_head(KEY, [1], 50)
    second = commit(transaction)
    restored = Watched()
    for changes in (first, second):
        restored.write(restore_changes(changes).changes, Stamp(IDENTITY, 1, 1, 1, 0))
    transaction = TimedTransaction(restored)
    assert transaction.next_deadline == 5
    assert list(transaction.due(10)) == []
    assert transaction.next_deadline == 50
    assert transaction.dirty
    commit(transaction)
    assert list(restored.scan(b"", None)) == list(partition.scan(b"", None))


def test_many_moves_do_not_pile_up(transaction: TimedTransaction) -> None:
    prefixes = [transaction.prefix(number) for number in range(10)]
    for number in range(50_000):
        transaction.set_head(prefixes[number % 10], [number], 1_000 + number)
    assert len(transaction._heap) < 5_000
    assert transaction.next_deadline == 1_000 + 49_990


# -- Timelines -------------------------------------------------------------------------------------------------------


def test_items_are_what_was_stored(partition: Watched, transaction: TimedTransaction) -> None:
    """Whatever happens to the object later, and whether it is read from the cache or from the store."""
    value: dict[str, Any] = {"a": [1], "b": (float("nan"), 2**70)}
    transaction.timelines.add(KEY, 5, value)
    value["a"] = "changed"
    for _ in range(2):
        ((time, found),) = transaction.timelines.items(KEY, 0, 10)
        assert time == 5
        assert str(found) == str({"a": [1], "b": [float("nan"), 2**70]})
        commit(transaction)
        transaction = TimedTransaction(partition)


def test_users_functions_make_items_and_cells(partition: Watched) -> None:
    options = RocksDBOptions(dumps=pickle.dumps, loads=pickle.loads)
    transaction = TimedTransaction(partition, options)
    transaction.timelines.add(KEY, 5, {1, 2})
    transaction.set_head(KEY, [transaction.pack({3})])
    for _ in range(2):
        assert transaction.timelines.items(KEY, 0, 10) == [(5, {1, 2})]
        assert transaction.unpack(transaction.head(KEY)[0]) == {3}
        commit(transaction)
        transaction = TimedTransaction(partition, options)
    with pytest.raises(SerializationError, match=r"type function has no stored form"):
        transaction.timelines.add(KEY, 6, lambda: None)


@pytest.mark.parametrize("timestamp", [-1, NEVER])
def test_times_that_cannot_be_stored(transaction: TimedTransaction, timestamp: int) -> None:
    with pytest.raises(StateError, match=rf"timestamp {timestamp} cannot be stored.*set_timestamp"):
        transaction.timelines.add(KEY, timestamp, 1)
    assert transaction.timelines.items(KEY, -10, NEVER) == []


def test_equal_times_come_as_they_arrived(partition: Watched, transaction: TimedTransaction) -> None:
    transaction.timelines.add(KEY, 5, "a")
    transaction.timelines.add(transaction.prefix("other"), 5, "x")
    transaction.timelines.add(KEY, 4, "b")
    commit(transaction)
    partition.read_cache = None
    transaction = TimedTransaction(partition)
    transaction.timelines.add(KEY, 5, "c")
    assert transaction.timelines.items_with_arrival(KEY, 0, 10) == [(4, 2, "b"), (5, 0, "a"), (5, 3, "c")]
    assert transaction.timelines.latest(KEY, 5) == (5, "c")
    assert transaction.timelines.latest(KEY, 4) == (4, "b")
    assert transaction.timelines.latest(KEY, 3) is None


def test_known_keys_need_no_scan(partition: Watched) -> None:
    transaction = TimedTransaction(partition)
    transaction.timelines.items(KEY, 0, 1)
    partition.scans.clear()
    for offset in range(3):
        for number in range(100):
            now = offset * 100 + number
            transaction.timelines.add(KEY, now, now)
            transaction.timelines.delete(KEY, 0, now - 20)
            assert transaction.timelines.latest(KEY, now) == (now, now)
            assert len(transaction.timelines.items(KEY, now - 20, now + 1)) == min(now + 1, 21)
        assert len(transaction.timelines._lines[KEY].items) < 60
        commit(transaction, offset)
        transaction = TimedTransaction(partition)
    assert partition.scans == []


def test_adding_reads_nothing(partition: Watched, transaction: TimedTransaction) -> None:
    transaction.timelines.add(KEY, 5, 1)
    transaction.timelines.add(KEY, 3, 1)
    commit(transaction)
    assert partition.scans == []
    assert partition.reads == [b"\x04arrival"]


def test_the_latest_item_is_found_from_the_end(partition: Watched, transaction: TimedTransaction) -> None:
    """Without reading all that came long before; however far away it is."""
    for time in (0, 10_000, 20_000_000, 1_700_000_000_000):
        transaction.timelines.add(KEY, time, time)
    commit(transaction)
    for at, expected in [(1_700_000_000_500, 1_700_000_000_000), (1_699_999_999_999, 20_000_000), (9_999, 0)]:
        partition.read_cache = None
        transaction = TimedTransaction(partition)
        assert transaction.timelines.latest(KEY, at) == (expected, expected)
        assert (transaction.timelines._lines[KEY].complete > 0) == (expected != 0 and at > 1_700_000_000_000)
    transaction = TimedTransaction(partition)
    # An item that this transaction adds does not hide a later one in the store.
    transaction.timelines.add(KEY, 10_001, "new")
    assert transaction.timelines.latest(KEY, 20_000_001) == (20_000_000, 20_000_000)
    assert transaction.timelines.latest(KEY, 10_001) == (10_001, "new")


# -- Size ------------------------------------------------------------------------------------------------------------


def test_memory_is_bounded(partition: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget._budgets, "cache", budget.CacheBudget())
    small = RocksDBOptions(object_cache_size=100_000)
    transaction = TimedTransaction(partition, small)
    prefixes = [transaction.prefix(number) for number in range(1_000)]
    for prefix in prefixes:
        transaction.set_head(prefix, ["x" * 50])
        transaction.timelines.add(prefix, 1, "y" * 50)
    assert len(transaction._heads) == len(transaction.timelines._lines) == 1_000
    commit(transaction)
    transaction = TimedTransaction(partition, small)
    own = transaction.prefix("own")
    transaction.set_head(own, ["mine"])
    transaction.timelines.add(own, 1, "mine")
    for prefix in prefixes:
        assert transaction.head(prefix) == ["x" * 50]
        assert transaction.timelines.items(prefix, 0, 5) == [(1, "y" * 50)]
        assert len(transaction._heads) + len(transaction.timelines._lines) < 300
        assert transaction._used < 110_000
    assert transaction.head(own) == ["mine"]
    assert transaction.timelines.items(own, 0, 5) == [(1, "mine")]
    assert len(commit(transaction)) == 3


def test_sizes_add_up(partition: Watched, transaction: TimedTransaction) -> None:
    """Counts go with what is deleted: else the cache would be dropped for nothing, or grow without bound."""
    for offset in range(50):
        prefixes = [transaction.prefix((offset, number)) for number in range(20)]
        for prefix in prefixes:
            transaction.set_head(prefix, [1, 2, 3], offset)
            for time in range(10):
                transaction.timelines.add(prefix, time, "x" * time)
            transaction.timelines.items(prefix, 3, 5)
        commit(transaction, 2 * offset)
        transaction = TimedTransaction(partition)
        for prefix in prefixes:
            transaction.delete_head(prefix)
            transaction.timelines.delete(prefix, 0, 5)
            transaction.timelines.delete(prefix, 7, 10)
            transaction.timelines.delete(prefix, 0, 10)
        commit(transaction, 2 * offset + 1)
        transaction = TimedTransaction(partition)
        assert len(transaction._heads) == len(transaction.timelines._lines) == 0
        assert 0 <= transaction._used < 1_000


@pytest.mark.slow
def test_a_commit_of_a_million_keys(tmp_path: Path) -> None:
    """Fewer for each day. A commit has no bound but memory."""
    keys = 1_000_000 if LONG else 20_000
    partition = RocksDBStore("default", "orders", tmp_path).open(0)
    transaction = TimedTransaction(partition)
    for number in range(keys):
        transaction.set_head(transaction.prefix(b"%d" % number), [number], number)
    assert len(commit(transaction)) == keys
    transaction = TimedTransaction(partition)
    assert transaction.head(transaction.prefix(b"%d" % (keys - 1))) == [keys - 1]
    partition.close()


# -- Stores ----------------------------------------------------------------------------------------------------------


def test_damaged_heads(partition: Watched) -> None:
    for data, error in [
        (b"\x01abc", StoreCorruptedError),
        (b"\x00{", StoreCorruptedError),
        (b"\x07abc", StoreVersionError),
        (b"\x01" + moment(5), StoreCorruptedError),
    ]:
        partition.write([(HEAD, data)], Stamp(IDENTITY, 1, 1, 1, 0))
        with pytest.raises(error):
            TimedTransaction(partition).head(KEY)


def test_specs_say_which_transactions_a_store_has() -> None:
    spec = StoreSpec("windows", MemoryStore, TimedTransaction)
    assert pickle.loads(pickle.dumps(spec)) == spec != StoreSpec("windows", MemoryStore)
    assert StoreSpec().transaction is StoreTransaction
    with pytest.raises(StateError, match="'windows' uses TimedTransaction, which has no State"):
        state_of("windows", TimedTransaction(MemoryStore("a", "b", Path("unused")).open(0)))


def test_one_store_has_one_class_of_transactions() -> None:
    builder = TopologyBuilder()
    source = builder.add_source(SourceOperator(Topic("in")))
    builder.add(source, Apply(str, store=StoreSpec("a")))
    with pytest.raises(InvalidOperationError, match=r"store 'a' of topic 'in' is in use.*give the store another name"):
        builder.register_store(source, StoreSpec("a", transaction=TimedTransaction))
    builder.add(source, Apply(str, store=StoreSpec("a", transaction=TimedTransaction)))
    with pytest.raises(
        InvalidOperationError, match=r"StoreTransaction and TimedTransaction\): give one of them another"
    ):
        builder.build().stores("in")


def test_stores_on_trial() -> None:
    stores = TrialStores()
    spec = StoreSpec("windows", RocksDBStore, TimedTransaction)
    first, second = TrialContext(stores).store(spec)(), TrialContext(stores).store(spec)()
    assert isinstance(first, TimedTransaction)
    assert first is second
    with pytest.raises(StateError, match="has no State"):
        TrialContext(stores).state(spec)
    assert isinstance(TrialContext(stores).store(StoreSpec())(), StoreTransaction)


@pytest.mark.parametrize("transaction", [None, dict, "TimedTransaction", RocksDBStore])
def test_classes_that_are_none_of_transactions(transaction: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a transaction class: use StoreTransaction, TimedTransaction"):
        StoreSpec("a", MemoryStore, transaction)


@pytest.mark.parametrize("kind", [TimedTransaction, Timelines])
def test_all_public_names_are_explained(kind: type) -> None:
    for name, member in inspect.getmembers(kind):
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert inspect.getdoc(member), name
