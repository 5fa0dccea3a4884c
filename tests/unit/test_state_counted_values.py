"""Counted values against a model: random changes, commits, undone records, dropped caches, and further transactions."""

import random
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import StateError
from streamrt.state import MemoryStore, RocksDBStore, Stamp, Store, StoreIdentity
from streamrt.state.journal import Journal
from streamrt.state.options import RocksDBOptions
from streamrt.state.transactions.timed import TimedTransaction
from tests.support import LONG

IDENTITY = StoreIdentity("shop", "orders", 0, "default", None, None, 1)
Model = dict[int, dict[bytes, tuple[int, Any]]]


class Machine:
    """A store partition, and what it should hold."""

    def __init__(self, dice: random.Random, store: Store) -> None:
        self.dice = dice
        self.store = store
        self.partition = self.store.open(0)
        # So small that caches are dropped.
        self.options = RocksDBOptions(object_cache_size=dice.choice([2_000, 20_000, 1 << 20]))
        self.model: Model = {}
        self.commits = 0
        self.begin()

    def begin(self) -> None:
        self.transaction = TimedTransaction(self.partition, self.options)
        self.prefix = self.transaction.prefix("customer")
        self.journal = Journal()
        if self.dice.random() < 0.5:
            self.transaction.follow(self.journal)

    def commit(self) -> None:
        self.transaction.prepare()
        self.commits += 1
        self.transaction.flush(Stamp(IDENTITY, self.commits, None, None, 0))
        if self.dice.random() < 0.3:
            self.partition.read_cache = None
            self.partition.close()
            self.partition = self.store.open(0)
        self.begin()

    def change(self) -> None:
        dice, sets, model = self.dice, self.transaction.counted, self.model
        choice = dice.random()
        if not model or choice < 0.1:
            model[sets.create(self.prefix)] = {}
            return
        number = dice.choice(list(model))
        if choice < 0.15:
            sets.delete(self.prefix, number)
            del model[number]
        elif choice < 0.2 and len(model) > 1:
            other = dice.choice([each for each in model if each != number])
            fresh = sets.merge(self.prefix, number, other)
            assert fresh == len(model[other].keys() - model[number].keys())
            for value, (count, cell) in model.pop(other).items():
                old, kept = model[number].get(value, (0, cell))
                model[number][value] = (old + count, kept)
        else:
            value, cell = bytes((dice.randrange(8),)) * dice.randrange(1, 3), dice.choice([None, 5, "a", float("inf")])
            by = dice.choice([1, 1, 2, -1, -2])
            old, kept = model[number].get(value, (0, cell))
            count = max(0, old + by)
            assert sets.add(self.prefix, number, value, by, cell) == count
            model[number].pop(value, None)
            if count:
                model[number][value] = (count, kept)

    def check(self) -> None:
        sets = self.transaction.counted
        for number, values in self.model.items():
            ordered = [(value, *values[value]) for value in sorted(values)]
            if self.dice.random() < 0.5:
                first, last = sets.edge(self.prefix, number), sets.edge(self.prefix, number, last=True)
                assert first == ((ordered[0][0], ordered[0][2]) if ordered else None)
                assert last == ((ordered[-1][0], ordered[-1][2]) if ordered else None)
            if self.dice.random() < 0.3:
                assert list(sets.items(self.prefix, number)) == ordered


@pytest.mark.parametrize("seed", range(500 if LONG else 25))
def test_counted_values_are_those_of_the_model(seed: int, tmp_path: Path) -> None:
    kind = RocksDBStore if seed % 5 == 0 else MemoryStore
    run_machine(random.Random(seed), kind("default", "orders", tmp_path))


def run_machine(dice: random.Random, store: Store) -> None:
    machine = Machine(dice, store)
    for _ in range(120):
        before = {number: dict(values) for number, values in machine.model.items()}
        machine.journal.begin()
        for _ in range(dice.randrange(3)):
            machine.change()
        if machine.transaction.journal is not None and dice.random() < 0.3:
            machine.journal.undo()
            machine.model = before
        machine.check()
        if dice.random() < 0.1:
            machine.commit()
    for number in list(machine.model):
        machine.transaction.counted.delete(machine.prefix, number)
    machine.commit()
    # Nothing is left but the counter.
    assert [key for key, _ in machine.partition.scan(b"\x05", b"\x06")] == []
    machine.transaction.discard()
    machine.partition.close()


def test_a_transaction_that_is_over_cannot_be_used() -> None:
    transaction = TimedTransaction(MemoryStore("default", "orders", Path("unused")).open(0))
    prefix = transaction.prefix(None)
    number = transaction.counted.create(prefix)
    sets = transaction.counted
    transaction.prepare()
    for use in (lambda: sets.add(prefix, number, b"a", 1), lambda: sets.edge(prefix, number)):
        with pytest.raises(StateError, match="a transaction that is prepared was used"):
            use()


def test_values_are_entries_of_a_map_in_order() -> None:
    store = MemoryStore("default", "orders", Path("unused"))
    partition = store.open(0)
    transaction = TimedTransaction(partition)
    prefix = transaction.prefix(b"ab")
    number = transaction.counted.create(prefix)
    transaction.counted.add(prefix, number, b"x", 2)
    transaction.counted.add(prefix, number, b"y", 1, '"y"')
    transaction.prepare()
    transaction.flush(Stamp(IDENTITY, 1, None, None, 0))
    assert list(partition.scan(b"\x05", b"\x06")) == [
        (b"\x05\x01\x02ab\x010x", b"\x002"),
        (b"\x05\x01\x02ab\x010y", b'\x00[1,"\\"y\\""]'),
    ]
