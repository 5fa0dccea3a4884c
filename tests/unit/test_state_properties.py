"""Random operations against a dictionary: reads, commits, crashes, expiry, and restores from the changelog."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.state import MemoryStore, RocksDBOptions, RocksDBStore, Stamp, Store, StoreIdentity, StorePartition
from streamrt.state.changelog import POSITION_KEY, Position, restore_changes
from streamrt.state.layout import FIRST_KEY
from streamrt.state.transactions.keyed import StoreTransaction

IDENTITY = StoreIdentity("shop", "orders", 0, "default", None, "changelog", 1)
MISSING = "<missing>"
Change = tuple[bytes, "bytes | None"]

RECORD_KEYS: list[Any] = [None, b"", b"a", b"aa", "a", 1]
STATE_KEYS: list[Any] = ["a", 1, True]


@dataclass(frozen=True)
class Op:
    """Effect of one record."""

    name: str
    record_key: Any
    key: Any
    value: Any
    ttl: int | None
    timestamp: int


ops = st.builds(
    Op,
    st.sampled_from(["set", "set", "set", "get", "get_bytes", "exists", "delete"]),
    st.sampled_from(RECORD_KEYS),
    st.sampled_from(STATE_KEYS),
    st.one_of(st.none(), st.integers(0, 3), st.text(max_size=2), st.lists(st.integers(0, 3), max_size=2)),
    st.one_of(st.none(), st.integers(1, 30)),
    st.integers(0, 60),
)
endings = st.sampled_from(["commit", "commit", "commit", "discard", "reopen", "forget"])
histories = st.lists(st.tuples(st.lists(ops, max_size=8), endings), max_size=8)

thoroughly = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass
class Model:
    """Meaning of state, in the simplest way."""

    entries: dict[tuple[str, str], tuple[bytes, int | None]] = field(default_factory=dict)
    clock: int = -1

    def copy(self) -> "Model":
        return Model(dict(self.entries), self.clock)

    def act(self, op: Op) -> Any:
        self.clock = max(self.clock, op.timestamp)
        place = (repr(op.record_key), repr(op.key))
        data, expiry = self.entries.get(place, (None, None))
        if expiry is not None and expiry <= self.clock:
            data = None
        if op.name == "set":
            self.entries[place] = (orjson.dumps(op.value), None if op.ttl is None else self.clock + op.ttl)
        elif op.name == "delete":
            self.entries.pop(place, None)
        elif op.name == "exists":
            return data is not None
        elif op.name == "get_bytes":
            return data
        elif op.name == "get":
            return MISSING if data is None else orjson.loads(data)
        return None


def act(transaction: StoreTransaction, op: Op) -> Any:
    state = transaction.state(op.record_key, op.timestamp)
    if op.name == "set":
        return state.set(op.key, op.value, ttl=None if op.ttl is None else timedelta(milliseconds=op.ttl))
    if op.name == "get":
        return state.get(op.key, MISSING)
    method: Callable[[Any], Any] = getattr(state, op.name)
    return method(op.key)


class Run:
    """A store with its changelog."""

    def __init__(self, kind: type[Store], folder: Path, limit: int) -> None:
        self.options = RocksDBOptions(max_evictions_per_flush=limit, open_max_retries=0)
        self.store = kind("default", "orders", folder, self.options)
        self.partition = self.store.open(0)
        self.changelog: list[Change] = []
        self.commits = 0

    def begin(self) -> StoreTransaction:
        return StoreTransaction(self.partition, self.options)

    def commit(self, transaction: StoreTransaction) -> None:
        changes = transaction.prepare()
        assert len({key for key, _ in changes}) == len(changes)
        self.commits += 1
        position = Position(self.commits, None, 1, transaction.stream_time)
        self.changelog += [*changes, (POSITION_KEY, position.encode())]
        transaction.flush(Stamp(IDENTITY, self.commits, len(self.changelog), transaction.stream_time, 0))

    def reopen(self) -> None:
        self.partition.close()
        self.partition = self.store.open(0)


def contents(partition: StorePartition) -> list[tuple[bytes, bytes]]:
    """All entries but the note where the index begins, which depends on when one looks."""
    return [entry for entry in partition.scan(b"", None) if entry[0] != FIRST_KEY]


def check_restores(run: Run, batch: int) -> None:
    """The changelog, whole or compacted, gives the same store again."""
    compacted = {key: number for number, (key, _) in enumerate(run.changelog)}
    for records in (run.changelog, [run.changelog[number] for number in sorted(compacted.values())]):
        for looks in (True, False):
            partition = MemoryStore("default", "orders", Path("unused")).open(0)
            position = None
            for first in range(0, len(records), batch):
                changes, found = restore_changes(records[first : first + batch], partition if looks else None)
                position = found or position
                partition.write(changes, Stamp(IDENTITY, None, first, None, 0))
            assert position is not None
            assert position.input_offset == run.commits
            if looks:
                assert contents(partition) == contents(run.partition)
            else:
                # Entries of the index that nothing refers to may also be there.
                assert set(contents(run.partition)) <= set(contents(partition))
                assert [item for item in contents(partition) if item[0][0] < 0xF0] == [
                    item for item in contents(run.partition) if item[0][0] < 0xF0
                ]


def check_history(kind: type[Store], folder: Path, history: list[tuple[list[Op], str]], limit: int, batch: int) -> None:
    run = Run(kind, folder, limit)
    model = Model()
    for number, (records, ending) in enumerate(history):
        transaction = run.begin()
        running = model.copy()
        for op in records:
            assert act(transaction, op) == running.act(op), (number, op)
        if ending == "discard":
            transaction.discard()
            continue
        run.commit(transaction)
        model = running
        if ending == "reopen":
            run.reopen()
        elif ending == "forget":
            run.partition.read_cache = None
    if run.commits:
        check_restores(run, batch)
        # In the end, when all that expires has expired and has been deleted, no shell is left.
        for _ in range(200):
            transaction = run.begin()
            transaction.state(b"other", 1_000)
            run.commit(transaction)
            if not run.changelog[-2:-1] or run.changelog[-2][0] == POSITION_KEY:
                break
        left = [entry for entry in model.entries.values() if entry[1] is None]
        assert len(contents(run.partition)) == len(left)
        check_restores(run, batch)
    run.partition.close()


@pytest.mark.slow
@given(history=histories, limit=st.integers(1, 3), batch=st.integers(1, 10))
@thoroughly
def test_memory_store(history: list[tuple[list[Op], str]], limit: int, batch: int) -> None:
    check_history(MemoryStore, Path("unused"), history, limit, batch)


@pytest.mark.slow
@given(history=histories, limit=st.integers(1, 3), batch=st.integers(1, 10))
@settings(thoroughly, max_examples=40)
def test_rocksdb_store(history: list[tuple[list[Op], str]], limit: int, batch: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_history(RocksDBStore, Path(folder), history, limit, batch)


@pytest.mark.slow
@given(
    records=st.lists(ops, max_size=40),
    cuts=st.lists(st.sets(st.integers(0, 40), max_size=8), min_size=2, max_size=3),
    limits=st.lists(st.integers(1, 5), min_size=3, max_size=3),
)
@thoroughly
def test_results_do_not_depend_on_commits(records: list[Op], cuts: list[set[int]], limits: list[int]) -> None:
    outcomes = []
    for ends, limit in zip(cuts, limits, strict=False):
        run = Run(MemoryStore, Path("unused"), limit)
        transaction = run.begin()
        results = []
        for number, op in enumerate(records):
            if number in ends:
                run.commit(transaction)
                transaction = run.begin()
            results.append(act(transaction, op))
        run.commit(transaction)
        outcomes.append(results)
    assert all(outcome == outcomes[0] for outcome in outcomes)
