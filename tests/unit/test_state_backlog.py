"""Records that wait behind an exchange in memory: in order, in store and changelog, and without what is undone."""

from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import StateError, StoreCorruptedError
from streamrt.runtime.tasks.chain.passage import decode_record, encode_record
from streamrt.state import MemoryStore, RocksDBStore, Stamp, Store, StorePartition
from streamrt.state.base import Transaction
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.state.transactions.timed import TimedTransaction
from tests.unit.state_timed import IDENTITY

STORES = pytest.mark.parametrize("store", [MemoryStore, RocksDBStore])


def commit(transaction: Transaction) -> list[tuple[bytes, bytes | None]]:
    changes = transaction.prepare()
    transaction.flush(Stamp(IDENTITY, 1, 1, transaction.stream_time, 0))
    return changes


def taken(partition: StorePartition, name: str = "g") -> list[bytes]:
    backlog = ProcessTransaction(partition).backlog(name)
    return [backlog.pop() for _ in iter(lambda: bool(backlog), False)]


@STORES
@pytest.mark.parametrize("kind", [ProcessTransaction, TimedTransaction])
def test_records_come_in_the_order_in_which_they_were_added(
    store: type[Store], kind: type[ProcessTransaction | TimedTransaction], tmp_path: Path
) -> None:
    partition = store("process_it", "orders", tmp_path).open(0)
    transaction = kind(partition)
    for number in range(300):
        transaction.backlog("g").append(b"%d" % number)
    transaction.backlog("other").append(b"of another exchange")
    assert transaction.changed
    assert len(commit(transaction)) == 301
    transaction = kind(partition)
    backlog = transaction.backlog("g")
    assert not transaction.changed
    backlog.append(b"300")
    assert [backlog.pop() for _ in range(200)] == [b"%d" % number for number in range(200)]
    changes = commit(transaction)
    assert [change for _, change in changes] == [None] * 200 + [b"\x00300"]
    assert taken(partition) == [b"%d" % number for number in range(200, 301)]
    assert taken(partition, "other") == [b"of another exchange"]
    partition.close()


def test_what_is_added_and_taken_in_one_transaction_is_never_stored() -> None:
    partition = MemoryStore("process_it", "orders", Path("unused")).open(0)
    transaction = ProcessTransaction(partition)
    backlog = transaction.backlog("g")
    assert not backlog
    backlog.append(b"1")
    backlog.append(b"2")
    backlog.withdraw()
    assert backlog.pop() == b"1"
    assert not backlog
    assert commit(transaction) == []
    with pytest.raises(StateError, match="complete"):
        transaction.backlog("g")


@pytest.mark.parametrize(
    "record",
    [(b'{"a":1}', b"key", 5, None), (None, None, 0, []), (b"\xff\x00", b"", 1 << 62, [("h", b"\xff"), ("h", None)])],
)
def test_a_record_comes_back_as_it_was(record: Any) -> None:
    assert decode_record(encode_record(*record)) == record


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"[1,2,3,4]", b'["a","!",0,null]', b'[null,null,0,[["h"]]]'])
def test_damaged_records_are_refused(data: bytes) -> None:
    with pytest.raises(StoreCorruptedError, match="damaged"):
        decode_record(data)
