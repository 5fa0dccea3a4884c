"""Space is given back: windows that come and go leave a small directory behind, and reading deadlines stays cheap."""

import time
from pathlib import Path

import pytest

from streamrt.state import RocksDBStore, Stamp, StoreIdentity
from streamrt.state.transactions.timed import TimedTransaction
from tests.support import LONG

WINDOWS = 10_000_000 if LONG else 60_000
COMMIT = 10_000
IDENTITY = StoreIdentity("shop", "orders", 0, "windows", None, "changelog", 1)
MIB = 1024 * 1024


def directory_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_windows_that_go_through_leave_no_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each key has one window, which is closed 20,000 records later. The store is closed and opened as sessions do it."""
    store = RocksDBStore("windows", "orders", tmp_path)
    largest = 0
    begun = time.monotonic()
    for first in range(0, WINDOWS + 30_000, COMMIT):
        partition = store.open(0)
        transaction = TimedTransaction(partition)
        for number in range(first, min(first + COMMIT, WINDOWS)):
            prefix = transaction.prefix(b"customer-%d" % (number * 7919 % WINDOWS))
            assert transaction.head(prefix) is None
            transaction.set_head(prefix, [number, [[number, number + 1_000, 1]]], number + 20_000)
            if number % 10 == 0:
                transaction.timelines.add(prefix, number, number)
        for deadline, prefix, head in transaction.due(first + COMMIT):
            assert deadline == head[0] + 20_000
            if head[0] % 10 == 0:
                transaction.timelines.delete(prefix, head[0], head[0] + 1)
            transaction.delete_head(prefix)
        transaction.advance(first + COMMIT)
        transaction.prepare()
        transaction.flush(Stamp(IDENTITY, first, first, first, 0))
        partition.close()
        size = directory_size(tmp_path)
        largest = max(largest, size)
        if LONG and first % 500_000 == 0:
            with capsys.disabled():
                print(f"{first:>10,} windows, {size / MIB:6.1f} MiB, {time.monotonic() - begun:5.0f} s", flush=True)
    partition = store.open(0)
    # What is left: the number of the next item, and where the index begins.
    assert [key[0] for key, _ in partition.scan(b"", None)] == [0x04, 0xF1]
    assert TimedTransaction(partition).next_deadline is None
    partition.close()
    # Some 25,000 windows are open at a time; they and what is left of the closed ones take less than this.
    assert largest < 20 * MIB
