"""Handles of state against a naive model: random operations, commits, failures, restarts, restores and expiry."""

import copy
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.state import (
    AggregatingState,
    MemoryStore,
    ReducingState,
    RocksDBStore,
    State,
    StateTtl,
    Store,
)
from streamrt.state.base import budget
from streamrt.state.transactions.keyed import StoreTransaction, _size_of
from streamrt.state.transactions.timed import TimedTransaction
from tests.support import LONG
from tests.unit.state_timed import Run, check_store

KEYS: list[Any] = [None, b"", b"a", b"ab", "a", 1]
NAMES = ["", "a", "ab"]
FIVE = timedelta(milliseconds=5)
TTLS: list[Any] = [None]
TTLS += [StateTtl(FIVE, update, time) for time in ("event", "processing") for update in ("write", "read-and-write")]
KINDS = ["set", "get", "delete", "append", "append", "list", "list_update", "list_clear"]
KINDS += ["put", "put", "map_get", "map_delete", "items", "map_clear", "clear", "advance", "pass"]
KINDS += ["add_all", "list_empty", "put_all", "pop", "contains", "keys", "map_values", "map_empty"]
KINDS += [f"{kind}_{what}" for kind in ("reduce", "aggregate") for what in ("add", "add", "get", "clear")]
SOME = 3
"""Elements of `add_all` and `put_all`."""


@dataclass(frozen=True)
class Op:
    """Effect of one record."""

    kind: str
    key: int
    name: int
    ttl: int
    number: int


def reduce(old: int, new: int) -> int:
    """Combine two numbers so that their order, and each of them, shows."""
    return (old * 7 + new + 1) % 1_000_003


class Digits:
    """Aggregates numbers, and the timestamps that they come with, in their order."""

    def initialize(self) -> list[int]:
        return [1]

    def agg(self, old: list[int], new: int, timestamp: int) -> list[int]:
        return [*old[-3:], new, timestamp]

    def result(self, value: list[int]) -> str:
        return ",".join(map(str, value))


@dataclass
class Entry:
    value: Any
    expiry: float
    by_wall: bool = False


@dataclass
class Model:
    """Lists of entries by record key and name, and dictionaries, in the simplest way."""

    values: dict[tuple[int, int], Entry] = field(default_factory=dict)
    lists: dict[tuple[int, int], list[Entry]] = field(default_factory=dict)
    maps: dict[tuple[int, int], dict[int, Entry]] = field(default_factory=dict)
    reduced: dict[tuple[int, int], Entry] = field(default_factory=dict)
    aggregated: dict[tuple[int, int], Entry] = field(default_factory=dict)
    clock: int = 0
    wall: int = 0

    def now(self, by_wall: bool) -> int:
        return self.wall if by_wall else self.clock

    def live(self, entry: Entry | None, ttl: int, *, reading: bool = True) -> Entry | None:
        if entry is None or entry.expiry <= self.now(entry.by_wall):
            return None
        if reading and ttl in (2, 4):
            entry.by_wall = ttl == 4
            entry.expiry = self.now(entry.by_wall) + 5
        return entry

    def entry(self, op: Op, value: Any = None) -> Entry:
        by_wall = op.ttl > 2
        return Entry(op.number if value is None else value, self.now(by_wall) + 5 if op.ttl else float("inf"), by_wall)

    def act(self, op: Op) -> Any:
        at = op.key, op.name
        values, items, entries = self.values, self.lists.setdefault(at, []), self.maps.setdefault(at, {})
        if op.kind == "advance":
            self.clock += op.number
        elif op.kind == "pass":
            self.wall += op.number
        elif op.kind == "set":
            values[at] = self.entry(op)
        elif op.kind == "get":
            found = self.live(values.get(at), op.ttl)
            return None if found is None else found.value
        elif op.kind == "delete":
            values.pop(at, None)
        elif op.kind == "append":
            items.append(self.entry(op))
        elif op.kind == "list":
            return [entry.value for entry in items if self.live(entry, op.ttl)]
        elif op.kind == "list_update":
            items[:] = [self.entry(op), self.entry(op)]
        elif op.kind == "list_clear":
            items.clear()
        elif op.kind == "put":
            entries[op.number] = self.entry(op)
        elif op.kind == "map_get":
            found = self.live(entries.get(op.number), op.ttl)
            return None if found is None else found.value
        elif op.kind == "map_delete":
            entries.pop(op.number, None)
        elif op.kind == "items":
            ordered = sorted(entries.items(), key=lambda item: orjson.dumps(item[0]))
            return [(number, entry.value) for number, entry in ordered if self.live(entry, op.ttl)]
        elif op.kind == "map_clear":
            entries.clear()
        elif op.kind == "add_all":
            items += [self.entry(op, op.number + number) for number in range(SOME)]
        elif op.kind == "list_empty":
            # It reads until the first one that has not expired.
            return next((False for entry in items if self.live(entry, 0)), True)
        elif op.kind == "put_all":
            entries.update({op.number + number: self.entry(op, number) for number in range(SOME)})
        elif op.kind == "pop":
            found = self.live(entries.get(op.number), 0)
            if found is not None:
                del entries[op.number]
            return "none" if found is None else found.value
        elif op.kind == "contains":
            return self.live(entries.get(op.number), op.ttl) is not None
        elif op.kind in ("keys", "map_values"):
            ordered = sorted(entries.items(), key=lambda item: orjson.dumps(item[0]))
            live = [(number, entry.value) for number, entry in ordered if self.live(entry, op.ttl)]
            return [pair[op.kind != "keys"] for pair in live]
        elif op.kind == "map_empty":
            return next((False for entry in entries.values() if self.live(entry, 0)), True)
        elif op.kind.startswith(("reduce", "aggregate")):
            return self.act_single(op, at)
        elif op.kind == "clear":
            for each in (values, self.lists, self.maps, self.reduced, self.aggregated):
                for owner in [owner for owner in each if owner[0] == op.key]:
                    del each[owner]
        return None

    def act_single(self, op: Op, at: tuple[int, int]) -> Any:
        kind, what = op.kind.split("_")
        one = self.reduced if kind == "reduce" else self.aggregated
        if what == "clear":
            one.pop(at, None)
        elif what == "get":
            found = self.live(one.get(at), op.ttl)
            return None if found is None else found.value if kind == "reduce" else Digits().result(found.value)
        else:
            old = self.live(one.get(at), 0)
            if kind == "reduce":
                value: Any = op.number if old is None else reduce(old.value, op.number)
            else:
                value = Digits().agg(Digits().initialize() if old is None else old.value, op.number, self.clock)
            one[at] = self.entry(op, value)
        return None


def act(op: Op, transaction: StoreTransaction) -> Any:
    """Do it to a store."""
    state: State = transaction.state(KEYS[op.key], transaction.clock)
    # A name has one type.
    name, ttl = NAMES[op.name], TTLS[op.ttl]
    value = state.value(name + "v", ttl=ttl)
    items, entries = state.list(name + "l", ttl=ttl), state.map(name + "m", ttl=ttl)
    if op.kind == "advance":
        transaction.advance(transaction.clock + op.number)
    elif op.kind == "set":
        value.update(op.number)
    elif op.kind == "get":
        return value.value()
    elif op.kind == "delete":
        value.clear()
    elif op.kind == "append":
        items.add(op.number)
    elif op.kind == "list":
        return list(items)
    elif op.kind == "list_update":
        items.update([op.number, op.number])
    elif op.kind == "list_clear":
        items.clear()
    elif op.kind == "put":
        entries[op.number] = op.number
    elif op.kind == "map_get":
        return entries.get(op.number)
    elif op.kind == "map_delete":
        entries.discard(op.number)
    elif op.kind == "items":
        return list(entries.items())
    elif op.kind == "map_clear":
        entries.clear()
    elif op.kind == "add_all":
        items.add_all(op.number + number for number in range(SOME))
    elif op.kind == "list_empty":
        return items.is_empty()
    elif op.kind == "put_all":
        entries.put_all({op.number + number: number for number in range(SOME)})
    elif op.kind == "pop":
        return entries.pop(op.number, "none")
    elif op.kind == "contains":
        return op.number in entries
    elif op.kind == "keys":
        return list(entries.keys())
    elif op.kind == "map_values":
        return list(entries.values())
    elif op.kind == "map_empty":
        return entries.is_empty()
    elif op.kind.startswith("reduce"):
        return act_single(op, state.reducing(name + "r", reduce, ttl=ttl))
    elif op.kind.startswith("aggregate"):
        return act_single(op, state.aggregating(name + "a", Digits(), ttl=ttl))
    elif op.kind == "clear":
        state.clear()
    return None


def act_single(op: Op, handle: ReducingState | AggregatingState) -> Any:
    what = op.kind.split("_")[1]
    if what == "add":
        handle.add(op.number)
    elif what == "clear":
        handle.clear()
    else:
        return handle.get()
    return None


class HandlesRun(Run):
    """A store partition with its changelog, used through handles."""

    wall = 0

    def begin(self) -> TimedTransaction:
        transaction = StoreTransaction(self.partition, self.options)
        transaction.now = lambda: self.wall
        if transaction.stream_time is None:
            transaction.advance(0)
        # The base class is for stores of time; what it does with a transaction, all of them can.
        return cast("TimedTransaction", transaction)


endings = st.sampled_from(["commit", "commit", "commit", "discard", "prepare", "reopen", "forget", "move", "move"])


def histories_of(kinds: list[str], keys: int, names: int) -> st.SearchStrategy[list[tuple[list[Op], str]]]:
    ops = st.builds(
        Op,
        st.sampled_from(kinds),
        st.integers(0, keys - 1),
        st.integers(0, names - 1),
        st.integers(0, len(TTLS) - 1),
        st.integers(0, 4),
    )
    return st.lists(st.tuples(st.lists(ops, max_size=12), endings), max_size=8)


FEW = [
    [kind for kind in KINDS if kind.startswith(("reduce", "aggregate", "set", "get", "delete"))],
    [kind for kind in KINDS if kind.startswith(("append", "add_all", "list"))],
    [kind for kind in KINDS if kind.startswith(("put", "map", "items", "pop", "contains", "keys"))],
]
# All together, and few on one name, so that each finds what others have left.
histories = st.one_of(
    histories_of(KINDS, len(KEYS), len(NAMES)),
    *(histories_of([*kinds, "clear", "advance", "pass"], 2, 1) for kinds in FEW),
)

thoroughly = settings(max_examples=5_000 if LONG else 120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


READS = ["get", "list", "items", "reduce_get", "aggregate_get"]


def check_history(
    store_type: type[Store], folder: Path, history: list[tuple[list[Op], str]], batch: int, *, memory: int
) -> None:
    # Without what others have left in this process.
    budget._budgets.cache = budget.CacheBudget()
    run = HandlesRun(store_type, folder, memory)
    model = Model()
    before: list[Op] = []
    for number, (records, ending) in enumerate(history):
        transaction = cast("StoreTransaction", run.begin())
        running = copy.deepcopy(model)
        # Every fifth time, the clock is set back: to another machine, or by hand.
        run.wall = running.wall = max(0, running.wall - 3) if number % 5 == 4 else running.wall
        for op in records:
            if op.kind == "pass":
                run.wall += op.number
            assert act(op, transaction) == running.act(op), (number, op)
        if number % 2:
            # Every other time, because reads fill the cache that writes go to.
            for key, name in sorted({(op.key, op.name) for op in [*records, *before]}):
                for kind in READS:
                    look = Op(kind, key, name, 0, 0)
                    assert act(look, transaction) == running.act(look), (number, look)
        before = records
        model.wall = running.wall
        if ending in ("discard", "prepare"):
            if ending == "prepare":
                transaction.prepare()
            transaction.discard()
            continue
        run.commit(cast("TimedTransaction", transaction))
        model = running
        cache = run.partition.read_cache
        assert cache[2] == sum(_size_of(key, value) for key, value in cache[1].items())
        if ending == "reopen":
            run.reopen()
        elif ending == "forget":
            run.partition.read_cache = None
        elif ending == "move":
            run.move()
    if run.commits:
        check_store(run, batch)
    run.partition.close()


@pytest.mark.slow
@given(history=histories, batch=st.integers(1, 10), memory=st.sampled_from([1, 1_500, 1 << 26]))
@thoroughly
def test_memory_store(history: list[tuple[list[Op], str]], batch: int, memory: int) -> None:
    check_history(MemoryStore, Path("unused"), history, batch, memory=memory)


@pytest.mark.slow
@given(history=histories, batch=st.integers(1, 10), memory=st.sampled_from([1, 1 << 26]))
@settings(thoroughly, max_examples=500 if LONG else 25)
def test_rocksdb_store(history: list[tuple[list[Op], str]], batch: int, memory: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_history(RocksDBStore, Path(folder), history, batch, memory=memory)
