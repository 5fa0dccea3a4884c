"""Values that stay as they are until the commit: they read as if they had been encoded at once."""

import enum
import math
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.errors import SerializationError
from streamrt.state import MemoryStore, RocksDBOptions, Stamp, State, StoreIdentity, StorePartition
from streamrt.state.journal import Journal
from streamrt.state.transactions.keyed import StoreTransaction

IDENTITY = StoreIdentity("app", "orders", 0, "default", None, None, 1)
WORD = enum.Enum("WORD", {"ONE": "one"}, type=str)
numbers = st.integers() | st.integers(-(2**63) - 2, 2**64 + 2)
values = st.one_of(numbers, st.floats(), st.booleans(), st.none(), st.text(), st.characters(), st.sampled_from(WORD))


def open_store() -> StorePartition:
    return MemoryStore("default", "orders", Path("unused")).open(0)


def commit(transaction: StoreTransaction) -> list[tuple[bytes, bytes | None]]:
    changes = transaction.prepare()
    transaction.flush(Stamp(IDENTITY, 1, 1, 1, 0))
    return changes


def outcome(state: State, value: Any) -> Any:
    """Return what a value reads as after it was set, or the error."""
    try:
        state.set("a", value)
    except SerializationError:
        return SerializationError
    found = state.get("a")
    return type(found), repr(found), state.get_bytes("a"), state.exists("a")


@given(values)
def test_any_value_reads_as_json_does(value: Any) -> None:
    plain = StoreTransaction(open_store()).state(b"key", 1)
    # Values of users' functions are encoded at once.
    encoded = StoreTransaction(open_store(), RocksDBOptions(dumps=orjson.dumps)).state(b"key", 1)
    assert outcome(plain, value) == outcome(encoded, value)


@pytest.mark.parametrize("value", [5, -(2**63), 2**64 - 1, 0.1, -0.0, math.pi, "five", "fünf", True, "", [1]])
def test_the_commit_writes_json_and_later_transactions_read_it(value: Any) -> None:
    partition = open_store()
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 1).set("a", value)
    key = b'\x01\x01\x03key"a"'
    assert commit(transaction) == [(key, b"\x00" + orjson.dumps(value))]
    assert partition.get(key) == b"\x00" + orjson.dumps(value)
    cached = StoreTransaction(partition).state(b"key", 1).get("a")
    # That transaction has taken the cache with it.
    fresh = StoreTransaction(partition).state(b"key", 1).get("a")
    assert repr(cached) == repr(fresh) == repr(value)


def test_what_a_function_does_to_a_value_does_not_change_state() -> None:
    state = StoreTransaction(open_store()).state(b"key", 1)
    items = [1]
    state.set("items", items)
    items.append(2)
    state.get("items").append(3)
    assert state.get("items") == [1]


def test_a_plain_value_is_undone() -> None:
    transaction = StoreTransaction(open_store())
    journal = Journal()
    transaction.follow(journal)
    state = transaction.state(b"key", 1)
    state.set("a", 1)
    journal.begin()
    state.set("a", 2)
    state.set("b", "two")
    journal.undo()
    assert (state.get("a"), state.get("b")) == (1, None)


def test_a_state_key_is_told_from_equal_ones_of_another_type() -> None:
    state = StoreTransaction(open_store()).state(b"key", 1)
    for number, key in enumerate([1, "1", True, 1.0, "True"]):
        state.set(key, number)
    assert [state.get(key) for key in (1, "1", True, 1.0, "True")] == [0, 1, 2, 3, 4]


def test_handles_and_keys_share_plain_values() -> None:
    state = StoreTransaction(open_store()).state(b"key", 1)
    state.value("n").update(5)
    assert state.get("n") == 5
    highest = state.reducing("highest", max)
    highest.add(3)
    highest.add(2)
    assert (highest.get(), state.get("highest")) == (3, 3)
    state.set("n", "six")
    assert (state.value("n").value(), state.get_bytes("n")) == ("six", b'"six"')


def test_many_state_keys_are_not_all_remembered() -> None:
    transaction = StoreTransaction(open_store())
    state = transaction.state(b"key", 1)
    for number in range(1_000):
        state.set(f"key {number}", number)
    assert [state.get(f"key {number}") for number in range(1_000)] == list(range(1_000))
    assert len(transaction._names) <= 256
