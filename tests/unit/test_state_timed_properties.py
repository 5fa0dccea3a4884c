"""Stores for time against a naive model: random operations, commits, failures, restarts, and restores from the changelog."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.state import MemoryStore, RocksDBStore, Store
from streamrt.state.base import budget
from streamrt.state.transactions.timed import TimedTransaction
from tests.support import LONG
from tests.unit.state_timed import KEYS, Model, Op, Run, act, check_store, contents, expect

NAMES = ["set", "set", "change", "change", "head", "delete_head", "due", "due", "next", "advance"]
NAMES += ["add", "add", "add", "add", "items", "arrivals", "latest", "latest", "delete", "delete_front", "delete_parts"]

values = st.one_of(
    st.integers(0, 3), st.floats(0, 1), st.text(max_size=2), st.lists(st.none(), max_size=2), st.just({"a": [1]})
)
ops = st.builds(
    Op, st.sampled_from(NAMES), st.integers(0, len(KEYS) - 1), st.integers(0, 30), st.integers(0, 9), values
)
endings = st.sampled_from(["commit", "commit", "commit", "discard", "prepare", "reopen", "forget", "move", "move"])
histories = st.lists(st.tuples(st.lists(ops, max_size=10), endings), max_size=8)

thoroughly = settings(max_examples=5_000 if LONG else 60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check_history(
    kind: type[Store], folder: Path, history: list[tuple[list[Op], str]], batch: int, *, memory: int
) -> None:
    # Without what others have left in this process.
    budget._budgets.cache = budget.CacheBudget()
    run = Run(kind, folder, memory)
    model = Model()
    # Another store of the process, which also wants the memory.
    other = TimedTransaction(MemoryStore("other", "orders", folder).open(0), run.options)
    for number, (records, ending) in enumerate(history):
        transaction = run.begin()
        running = model.copy()
        for at, op in enumerate(records):
            assert act(op, transaction) == expect(op, running), (number, op)
            other.head(other.prefix((number, at)))
        if ending in ("discard", "prepare"):
            if ending == "prepare":
                transaction.prepare()
            transaction.discard()
            continue
        run.commit(transaction)
        model = running
        if ending == "reopen":
            run.reopen()
        elif ending == "forget":
            run.partition.read_cache = None
        elif ending == "move":
            run.move()
    if run.commits:
        check_store(run, batch)
        empty(run)
        check_store(run, batch)
    run.partition.close()


def empty(run: Run) -> None:
    """When all is deleted, nothing is left but the number of the next item."""
    transaction = run.begin()
    for key in KEYS:
        transaction.delete_head(transaction.prefix(key))
        transaction.timelines.delete(transaction.prefix(key), 0, 1_000)
    assert transaction.next_deadline is None
    run.commit(transaction)
    assert [key for key, _ in contents(run.partition) if key[0] != 4] == []


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


@pytest.mark.slow
@given(
    records=st.lists(ops, max_size=40),
    cuts=st.lists(st.sets(st.integers(0, 40), max_size=8), min_size=2, max_size=3),
)
@thoroughly
def test_results_do_not_depend_on_commits(records: list[Op], cuts: list[set[int]]) -> None:
    outcomes = []
    for ends in cuts:
        run = Run(MemoryStore, Path("unused"))
        transaction = run.begin()
        results: list[Any] = []
        for number, op in enumerate(records):
            if number in ends:
                run.commit(transaction)
                transaction = run.begin()
            results.append(act(op, transaction))
        run.commit(transaction)
        outcomes.append((results, contents(run.partition)))
    assert all(outcome == outcomes[0] for outcome in outcomes)


@given(st.one_of(st.none(), st.binary(max_size=300), st.text(max_size=200), st.integers(), st.floats(allow_nan=False)))
def test_record_keys_come_back(key: Any) -> None:
    prefix = TimedTransaction.prefix(key)
    back = TimedTransaction.key_of(prefix)
    assert back == key
    assert type(back) is type(key)
