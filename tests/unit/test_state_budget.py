"""The memory that the open stores of a process share: who gets how much, and who gives back."""

import threading
from pathlib import Path

import pytest

from streamrt.state import MemoryStore, RocksDBOptions, Stamp, StoreIdentity
from streamrt.state.base import Transaction
from streamrt.state.base import budget as budget_module
from streamrt.state.base.budget import CacheBudget, cache_budget
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.state.transactions.timed import TimedTransaction

IDENTITY = StoreIdentity("shop", "orders", 0, "default", None, "changelog", 1)


class Holder:
    """Keeps what it is granted; some of it was changed and stays."""

    def __init__(self, budget: CacheBudget, changed: int = 0) -> None:
        self.cache_size = 1_000_000
        self.held = 0
        self.changed = changed
        self.asked: list[int] = []
        self._budget = budget
        budget.enter(self)

    def give_back(self, size: int) -> None:
        self.asked.append(size)
        self.held = max(self.changed, self.held - size)

    def take(self, size: int) -> None:
        """As transactions do it: what was not granted is dropped."""
        self.held = min(self.held + size, self._budget.grow(self, self.held + size))


@pytest.fixture
def budget() -> CacheBudget:
    return CacheBudget()


def total(*holders: Holder) -> int:
    return sum(holder.held for holder in holders)


def test_one_may_have_all(budget: CacheBudget) -> None:
    holder, _other = Holder(budget), Holder(budget)
    for _ in range(200):
        holder.take(10_000)
    assert 950_000 < holder.held <= 1_000_000


def test_fault_13_the_sum_stays_within_the_budget(budget: CacheBudget) -> None:
    holders = [Holder(budget) for _ in range(100)]
    for number in range(5_000):
        holders[number * number % 100].take(7_000)
        assert total(*holders) <= 1_000_000
    assert total(*holders) > 900_000


def test_busy_stores_keep_their_share(budget: CacheBudget) -> None:
    """They take turns and want more than there is: each finds something left at its next turn."""
    holders = [Holder(budget) for _ in range(10)]
    for number in range(500):
        holder = holders[number % 10]
        if number >= 100:
            assert holder.held >= 90_000
        holder.take(50_000)


def test_those_that_are_unused_give_back_first(budget: CacheBudget) -> None:
    unused, busy, more = (Holder(budget) for _ in range(3))
    unused.take(200_000)
    for _ in range(60):
        more.take(9_000)
        busy.take(9_000)
        if unused.held:
            assert busy.asked + more.asked == []
    assert unused.held == 0
    assert busy.held > 300_000
    assert more.held > 300_000


def test_changes_count_but_stay(budget: CacheBudget) -> None:
    changed, other = Holder(budget, changed=900_000), Holder(budget)
    changed.held = 900_000
    for _ in range(100):
        other.take(10_000)
    assert changed.held == 900_000
    # A part of its share is left to everybody.
    assert 90_000 <= other.held <= 250_000


def test_the_largest_wish_counts(budget: CacheBudget) -> None:
    small, large = Holder(budget), Holder(budget)
    small.cache_size = 1_000
    small.take(400_000)
    assert small.held == 400_000
    budget.leave(large)
    small.take(1)
    assert small.held == 1_000


def test_who_is_dropped_counts_no_more(budget: CacheBudget) -> None:
    Holder(budget).held = 999_999
    holder = Holder(budget)
    holder.take(900_000)
    assert holder.held == 900_000


def test_each_thread_has_a_budget() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(cache_budget()))
    thread.start()
    thread.join()
    assert found[0] is not cache_budget()
    assert cache_budget() is cache_budget()


# -- Transactions ----------------------------------------------------------------------------------------------------


def commit(transaction: Transaction, offset: int) -> None:
    transaction.prepare()
    transaction.flush(Stamp(IDENTITY, offset, offset, transaction.stream_time, 0))


@pytest.mark.slow
def test_fault_13_open_stores_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty partitions with a window store and a state store each."""
    monkeypatch.setattr(budget_module._budgets, "cache", CacheBudget())
    options = RocksDBOptions(object_cache_size=1_000_000)
    store = MemoryStore("default", "orders", Path("unused"))
    partitions = [store.open(number) for number in range(40)]
    transactions: list[Transaction] = []
    for number, partition in enumerate(partitions):
        kind = (TimedTransaction, StoreTransaction)[number % 2]
        transactions.append(kind(partition, options))
    for offset in range(1, 6):
        for number, partition in enumerate(partitions):
            transaction = transactions[number]
            for key in range(100):
                name = b"%d-%d" % (offset, key)
                if isinstance(transaction, TimedTransaction):
                    prefix = transaction.prefix(name)
                    assert transaction.head(prefix) is None
                    transaction.set_head(prefix, ["x" * 50])
                    transaction.timelines.add(prefix, 5, "y" * 50)
                elif isinstance(transaction, StoreTransaction):
                    state = transaction.state(name, 0)
                    assert state.get("a") is None
                    state.set("a", "x" * 100)
            commit(transaction, offset)
            transactions[number] = type(transaction)(partition, options)
            # The last one's changes could not be given back before.
            assert sum(each.held for each in transactions) <= 1_100_000
    for transaction in transactions:
        for key in range(100):
            name = b"%d-%d" % (3, key)
            if isinstance(transaction, TimedTransaction):
                assert transaction.head(transaction.prefix(name)) == ["x" * 50]
                assert transaction.timelines.items(transaction.prefix(name), 0, 9) == [(5, "y" * 50)]
            elif isinstance(transaction, StoreTransaction):
                assert transaction.state(name, 0).get("a") == "x" * 100
        assert sum(each.held for each in transactions) <= 1_100_000


def test_a_head_that_is_due_may_be_given_back_while_it_is_looked_at() -> None:
    store = MemoryStore("default", "orders", Path("unused"))
    partition = store.open(0)
    transaction = TimedTransaction(partition)
    prefix = transaction.prefix("key")
    transaction.set_head(prefix, [1], deadline=5)
    commit(transaction, 1)
    transaction = TimedTransaction(partition)
    found = []
    for deadline, due, head in transaction.due(10):
        transaction.give_back(1 << 20)
        assert not transaction._heads
        found.append((deadline, due, head))
        head.append(2)
        transaction.set_head(due, head, deadline=20)
    assert found == [(5, prefix, [1, 2])]
    commit(transaction, 2)
    transaction = TimedTransaction(partition)
    assert (transaction.head(prefix), transaction.next_deadline) == ([1, 2], 20)


def test_what_is_prepared_is_not_given_back() -> None:
    partition = MemoryStore("default", "orders", Path("unused")).open(0)
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1).set("a", 1)
    transaction.prepare()
    transaction.give_back(1 << 20)
    transaction.flush(Stamp(IDENTITY, 1, 1, 1, 0))
    assert StoreTransaction(partition)._entries == {b'\x01\x01\x03key"a"': 1}
