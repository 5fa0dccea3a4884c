"""State that expires by the wall clock: its format, its index, and what programs see."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application, ProcessFunction
from streamrt.errors import StoreCorruptedError, StoreVersionError
from streamrt.state import (
    MemoryStore,
    RocksDBOptions,
    RocksDBStore,
    Stamp,
    State,
    StateTtl,
    Store,
    StorePartition,
    layout,
)
from streamrt.state.changelog import restore_changes
from streamrt.state.layout import WALL_FIRST_KEY, Expiring, WallExpiring
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.testing import TopologyTestDriver
from tests.unit.state_timed import IDENTITY, check_bounds

MINUTE = 60_000
HOUR = timedelta(hours=1)
SECOND = StateTtl(timedelta(seconds=1), time="processing")


@pytest.fixture(params=[MemoryStore, RocksDBStore])
def partition(request: pytest.FixtureRequest, tmp_path: Path) -> StorePartition:
    kind: type[Store] = request.param
    return kind("default", "orders", tmp_path).open(0)


def memory() -> StorePartition:
    return MemoryStore("default", "orders", Path("unused")).open(0)


def at(
    partition: StorePartition, wall: int, time: int = 0, options: RocksDBOptions | None = None
) -> tuple[StoreTransaction, State]:
    transaction = StoreTransaction(partition, options)
    transaction.now = lambda: wall
    return transaction, transaction.state(b"k", time)


def commit(transaction: StoreTransaction) -> list[tuple[bytes, bytes | None]]:
    changes = transaction.prepare()
    transaction.flush(Stamp(IDENTITY, 1, 1, transaction.stream_time, 0))
    return changes


def index(partition: StorePartition, space: int = 0xF2) -> list[tuple[int, bytes]]:
    return [layout.split_expiry_key(key) for key, _ in partition.scan(bytes((space,)), bytes((space + 1,)))]


def test_the_format() -> None:
    """Changing this breaks state that exists."""
    value = WallExpiring(258, b"5")
    assert layout.encode_value(value) == b"\x02\x00\x00\x00\x00\x00\x00\x01\x025"
    assert value.index_key(b"\x01key") == b"\xf2\x00\x00\x00\x00\x00\x00\x01\x02\x01key"
    assert Expiring(258, b"5").index_key(b"\x01key") == b"\xf0\x00\x00\x00\x00\x00\x00\x01\x02\x01key"
    assert WALL_FIRST_KEY == b"\xf1first-wall"
    decoded = layout.decode_value(layout.encode_value(value))
    assert isinstance(decoded, WallExpiring)
    assert (decoded.expiry, decoded.payload) == (258, b"5")
    with pytest.raises(StoreCorruptedError, match="truncated"):
        layout.decode_value(b"\x02abc")
    with pytest.raises(StoreVersionError, match="flag 3"):
        layout.decode_value(b"\x03" + bytes(9))


def test_each_clock_has_its_index(partition: StorePartition) -> None:
    transaction, state = at(partition, 500)
    state.value("event", ttl=timedelta(seconds=1)).update(1)
    state.value("wall", ttl=SECOND).update(2)
    commit(transaction)
    prefix = b"\x01\x01\x01k"
    assert index(partition, 0xF0) == [(1_000, prefix + b'"event"')]
    assert index(partition) == [(1_500, prefix + b'"wall"')]
    # Each is deaf to the clock of the other.
    transaction, state = at(partition, 1_499, 5_000)
    assert (state.get("event"), state.get("wall")) == (None, 2)
    assert [key for key, value in commit(transaction) if value is None] == [prefix + b'"event"']
    transaction, state = at(partition, 1_500, 5_000)
    assert state.get("wall") is None
    assert commit(transaction) == [(prefix + b'"wall"', None)]
    assert index(partition, 0xF0) == index(partition) == []


def test_a_write_with_another_clock_moves_the_entry(partition: StorePartition) -> None:
    ttls: list[Any] = [SECOND, timedelta(seconds=1), SECOND, None]
    for remembered in (True, False):
        for ttl in ttls:
            if not remembered:
                partition.read_cache = None
            transaction, state = at(partition, 0)
            state.value("it", ttl=ttl).update(1)
            commit(transaction)
            event = 1 if isinstance(ttl, timedelta) else 0
            assert (len(index(partition, 0xF0)), len(index(partition))) == (event, 1 if ttl is SECOND else 0)


def test_a_clock_that_is_set_back_lowers_the_bound() -> None:
    partition = memory()
    for wall, name in ((10_000, "a"), (20_000, "b"), (3_000, "c")):
        transaction, state = at(partition, wall)
        state.value(name, ttl=SECOND).update(1)
        commit(transaction)
        check_bounds(partition)
    # "a" went with the second commit.
    assert [expiry for expiry, _ in index(partition)] == [4_000, 21_000]
    transaction, state = at(partition, 4_000)
    assert (state.get("b"), state.get("c")) == (1, None)
    assert len(commit(transaction)) == 1
    check_bounds(partition)


def test_the_clock_does_not_go_back_within_a_transaction() -> None:
    times = iter([0, 1_500, 100])
    transaction = StoreTransaction(memory())
    transaction.now = lambda: next(times)
    state = transaction.state(b"k", 0)
    value = state.value("it", ttl=SECOND)
    value.update(1)
    assert (value.value(), value.value()) == (None, None)


@pytest.mark.parametrize("most", [1, 2, 4, 100])
def test_a_commit_deletes_a_bounded_number(most: int) -> None:
    options = RocksDBOptions(max_evictions_per_flush=most)
    partition = memory()
    transaction, state = at(partition, 0, 0, options)
    for number in range(10):
        state.map("event", ttl=timedelta(seconds=1))[number] = 1
        state.map("wall", ttl=SECOND)[number] = 1
    commit(transaction)
    deleted = []
    while index(partition) or index(partition, 0xF0):
        transaction, _ = at(partition, 1_000, 1_000, options)
        changes = commit(transaction)
        check_bounds(partition)
        deleted.append(len(changes))
    assert max(deleted) <= most
    assert sum(deleted) == 20
    if most == 4:
        # Neither waits for the other.
        assert deleted == [4] * 5


def test_without_a_changelog_deletions_are_local() -> None:
    partition = memory()
    for wall in (0, 1_000):
        transaction = StoreTransaction(partition, changelog=False)
        transaction.now = lambda wall=wall: wall  # type: ignore[misc]
        if not wall:
            transaction.state(b"k", 0).value("it", ttl=SECOND).update(1)
        changes = commit(transaction)
    assert changes == []
    # The type of the name stays.
    assert [key[0] for key, _ in partition.scan(b"", None)] == [0x08, 0xF1]


def test_a_restore_builds_the_index_and_its_bound(partition: StorePartition) -> None:
    source = memory()
    log: list[tuple[bytes | None, bytes | None]] = []
    for wall, name in ((5_000, "a"), (5_500, "b"), (5_200, "a"), (2_000, "c")):
        transaction, state = at(source, wall)
        state.value(name, ttl=SECOND).update(wall)
        changes = commit(transaction)
        log += changes
        # Commit by commit, as a standby would; "a" is written again.
        partition.write(restore_changes(changes, partition).changes, Stamp(IDENTITY, None, 1, None, 0))
        check_bounds(partition)
    at_once = memory()
    at_once.write(restore_changes(log).changes, Stamp(IDENTITY, None, 1, None, 0))
    assert index(source) == index(partition) == index(at_once)
    assert [expiry for expiry, _ in index(partition)] == [3_000, 6_200, 6_500]
    for restored in (partition, at_once):
        transaction, _ = at(restored, 6_200)
        assert len(commit(transaction)) == 2
        check_bounds(restored)


def seen_once(ttl: StateTtl) -> Any:
    def is_new(_: Any, state: State) -> bool:
        seen = state.value("seen", ttl=ttl)
        if seen.value() is not None:
            return False
        seen.update(True)
        return True

    return is_new


class Once(ProcessFunction):
    def __init__(self, ttl: StateTtl) -> None:
        self.ttl = ttl

    def process_element(self, value: Any, ctx: Any) -> Any:
        if seen_once(self.ttl)(value, ctx.state):
            yield value


@pytest.mark.rows("PF-A19", "PF-E16", "PF-F12", "PF-F16")
@pytest.mark.parametrize("mode", ["micro-batch", "resident"])
@pytest.mark.parametrize("stage", ["process", "filter"])
@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        (StateTtl(HOUR, time="processing"), [0, 60]),
        (StateTtl(HOUR, "read-and-write", "processing"), [0]),
        (StateTtl(HOUR), [0, 60]),
    ],
)
def test_duplicates_within_an_hour(mode: Any, stage: str, ttl: StateTtl, expected: list[int]) -> None:
    app = Application("unused:9092", consumer_group="shop", processing_mode=mode)
    orders = app.topic("orders")
    frame = app.dataframe(orders)
    frame = frame.process(Once(ttl)) if stage == "process" else frame.filter(seen_once(ttl), stateful=True)
    with TopologyTestDriver(app) as driver:
        for minute in (0, 59, 60, 61):
            driver.advance(minute * MINUTE - driver.now)
            # In event time, all are at once, unless that is what counts.
            driver.pipe(orders, minute, key="ann", timestamp=minute * MINUTE if ttl.time == "event" else 0)
        assert [output[0] for output in driver.outputs()] == expected
        store = "process_Once" if stage == "process" else "default"
        view = driver.state(orders, b"ann", store=store)
        if stage == "filter":
            assert driver.query_state(store, "ann").get("seen") is True
        assert view.exists("seen")
        driver.advance(timedelta(hours=2))
        assert view.exists("seen") == (ttl.time == "event")
        if stage == "filter":
            assert driver.query_state(store, "ann").found == (ttl.time == "event")
