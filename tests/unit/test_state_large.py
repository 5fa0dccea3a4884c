"""Collections that are larger than what may be kept of them in memory."""

import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from streamrt.state import RocksDBOptions, RocksDBStore, Stamp, State, StorePartition
from streamrt.state.rocksdb.store import RocksDBStorePartition
from streamrt.state.transactions.keyed import StoreTransaction
from tests.unit.state_timed import IDENTITY

ELEMENTS, ENTRIES = 100_000, 30_000
"""How many a list and a map have."""
SMALL = RocksDBOptions(block_cache_size=1 << 20, write_buffer_size=1 << 20, object_cache_size=1 << 16)
MOST_BYTES = 1 << 20
"""More than a chunk of a scan takes, and a fraction of what all elements would."""

pytestmark = pytest.mark.slow


def commit(transaction: StoreTransaction) -> None:
    transaction.prepare()
    transaction.flush(Stamp(IDENTITY, 1, 1, 0, 0))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorePartition]:
    """Return a partition with a list and a map of many elements."""
    partition = RocksDBStore("default", "orders", tmp_path_factory.mktemp("large"), SMALL).open(0)
    for first in range(0, ELEMENTS, 10_000):
        transaction = StoreTransaction(partition, SMALL)
        state = transaction.state(b"key", 0)
        numbers = range(first, first + 10_000)
        state.list("list").add_all(numbers)
        if first < ENTRIES:
            state.map("map").put_all({f"{number:06}": number for number in numbers})
        commit(transaction)
    partition.read_cache = None
    yield partition
    partition.close()


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the size of each chunk that is read of a store."""
    sizes: list[int] = []
    read = RocksDBStorePartition._read_chunk

    def noted(self: RocksDBStorePartition, *arguments: Any, **options: Any) -> Any:
        found = read(self, *arguments, **options)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(RocksDBStorePartition, "_read_chunk", noted)
    return sizes


def peak_of(work: Callable[[], Any]) -> int:
    """Return how many bytes are allocated at most while something is done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


READS: dict[str, Callable[[State], Iterator[Any]]] = {
    "list": lambda state: iter(state.list("list")),
    "map keys": lambda state: (int(key) for key in state.map("map")),
    "map values": lambda state: state.map("map").values(),
    "map items": lambda state: (value for _, value in state.map("map").items()),
}


@pytest.mark.parametrize(("kind", "number"), [("list", ELEMENTS), ("map items", ENTRIES)])
def test_an_iteration_reads_chunk_by_chunk(kind: str, number: int, filled: StorePartition, chunks: list[int]) -> None:
    transaction = StoreTransaction(filled, SMALL)
    state = transaction.state(b"key", 0)
    # The types of names are read once.
    state.list("list")
    chunks.clear()
    read = READS[kind]
    assert peak_of(lambda: sum(1 for _ in read(state))) < MOST_BYTES
    assert sum(chunks) == number
    assert max(chunks) <= 1_024
    assert [*islice(read(state), 5)] == [0, 1, 2, 3, 4]
    assert len(transaction._entries) == 0
    transaction.discard()


@pytest.mark.parametrize("kind", READS)
def test_an_iteration_that_is_broken_off_reads_the_first_chunk(
    kind: str, filled: StorePartition, chunks: list[int]
) -> None:
    transaction = StoreTransaction(filled, SMALL)
    state = transaction.state(b"key", 0)
    state.list("list")
    chunks.clear()
    assert next(READS[kind](state)) == 0
    assert chunks == [8]
    assert not state.list("list").is_empty()
    assert state.map("map")
    assert chunks == [8, 8, 8]
    transaction.discard()


def test_an_append_to_a_large_list_reads_and_writes_what_one_to_an_empty_list_does(
    filled: StorePartition, chunks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = RocksDBStore("default", "orders", tmp_path, SMALL).open(0)
    transaction = StoreTransaction(empty, SMALL)
    transaction.state(b"key", 0).list("list")
    commit(transaction)
    looked: list[bytes] = []
    get = RocksDBStorePartition.get

    def noted(self: RocksDBStorePartition, key: bytes) -> bytes | None:
        looked.append(key)
        return get(self, key)

    monkeypatch.setattr(RocksDBStorePartition, "get", noted)
    found = []
    for partition in (empty, filled):
        partition.read_cache = None
        transaction = StoreTransaction(partition, SMALL)
        chunks.clear()
        looked.clear()
        items = transaction.state(b"key", 0).list("list")
        names = list(chunks)
        peak = peak_of(lambda items=items: items.add("one more"))  # type: ignore[misc]
        changes = transaction.prepare()
        transaction.discard()
        found.append((list(looked), list(chunks) == names, [len(key) + len(value or b"") for key, value in changes]))
        assert peak < 100_000
    assert found[0] == found[1]
    empty.close()
