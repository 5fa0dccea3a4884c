"""State as operators see it: keys, values, missing and stored None, bytes."""

import datetime
import enum
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import SerializationError, StateError
from streamrt.state import MemoryStore, RocksDBOptions, State
from streamrt.state.transactions.keyed import StoreTransaction


def transaction(options: RocksDBOptions | None = None) -> StoreTransaction:
    return StoreTransaction(MemoryStore("default", "orders", Path("unused")).open(0), options)


@pytest.fixture
def state() -> State:
    return transaction().state(b"key", 1_000)


def test_missing_keys_give_the_default(state: State) -> None:
    assert state.get("a") is None
    assert state.get("a", 5) == 5
    assert state.get_bytes("a") is None
    assert state.get_bytes("a", b"x") == b"x"
    assert not state.exists("a")


def test_none_is_a_value(state: State) -> None:
    state.set("a", None)
    assert state.exists("a")
    assert state.get("a", 5) is None
    assert state.get_bytes("a") == b"null"


def test_what_was_set_is_read(state: State) -> None:
    state.set("a", {"n": [1, 2.5, "ä", True, None]})
    assert state.get("a") == {"n": [1, 2.5, "ä", True, None]}
    state.set("a", 2)
    assert state.get("a") == 2


def test_deleted_keys_are_missing(state: State) -> None:
    state.set("a", 1)
    state.delete("a")
    state.delete("never")
    assert not state.exists("a")
    assert state.get("a", "default") == "default"
    state.set("a", 2)
    assert state.get("a") == 2


def test_writes_return_nothing(state: State) -> None:
    calls: list[Callable[[], object]] = [
        lambda: state.set("a", 1),
        lambda: state.set_bytes("b", b""),
        lambda: state.delete("a"),
    ]
    assert [call() for call in calls] == [None, None, None]


def test_values_are_what_json_makes_of_them(state: State) -> None:
    class Color(enum.Enum):
        RED = "red"

    identifier = uuid.UUID(int=1)
    state.set("a", ((1, 2), Color.RED, identifier, float("nan")))
    assert state.get("a") == [[1, 2], "red", str(identifier), None]


def test_each_get_gives_an_object_of_its_own(state: State) -> None:
    value = [1]
    state.set("a", value)
    value.append(2)
    state.get("a").append(3)
    assert state.get("a") == [1]


def test_keys_differ_where_their_json_differs(state: State) -> None:
    keys: list[Any] = [5, "5", 1, True, 1.0, None, "null", [1], "[1]", {"a": 1}, "", 0, False, "ä"]
    for number, key in enumerate(keys):
        state.set(key, number)
    assert [state.get(key) for key in keys] == list(range(len(keys)))
    assert state.get((1,)) == keys.index([1])


@pytest.mark.parametrize(
    "key",
    [None, b"", b"key", b"key\x00", b"k" * 127, b"k" * 128, b"k" * 20_000, "key", "", 5, "5", 5.0, True, [5], {"a": 1}],
)
def test_record_keys_are_apart(key: Any) -> None:
    others: list[Any] = [
        None,
        b"",
        b"\x00",
        b"key",
        b"k" * 127,
        b"k" * 128,
        b"k" * 300,
        "key",
        "",
        5,
        "5",
        5.0,
        1,
        True,
    ]
    running = transaction()
    for other in others:
        if not (type(other) is type(key) and other == key):
            running.state(other, 0).set("a", repr(other))
    assert not running.state(key, 0).exists("a")
    running.state(key, 0).set("a", "mine")
    assert running.state(key, 0).get("a") == "mine"
    for other in others:
        if not (type(other) is type(key) and other == key):
            assert running.state(other, 0).get("a") == repr(other)


def test_bytes_like_record_keys_are_bytes() -> None:
    running = transaction()
    running.state(b"key", 0).set("a", 1)
    assert running.state(bytearray(b"key"), 0).get("a") == 1
    assert running.state(memoryview(b"key"), 0).get("a") == 1


def test_bytes(state: State) -> None:
    for value in (b"", b"\x00\xff", b"null"):
        state.set_bytes("a", value)
        assert state.get_bytes("a") == value
        assert state.exists("a")
    state.set_bytes("a", bytearray(b"ab"))  # type: ignore[arg-type]
    assert state.get_bytes("a") == b"ab"
    assert type(state.get_bytes("a")) is bytes
    state.set("a", {"n": 1})
    assert state.get_bytes("a") == b'{"n":1}'
    state.set_bytes("a", b'{"n": 2}')
    assert state.get("a") == {"n": 2}


def test_bytes_that_are_no_json(state: State) -> None:
    state.set_bytes("a", b"\xff")
    with pytest.raises(SerializationError, match=r"state key 'a'.*get_bytes"):
        state.get("a")


@pytest.mark.parametrize(
    "value", [b"bytes", {1, 2}, object(), Decimal(1), datetime.datetime(2020, 1, 1), 2**64, {1: 2}]
)
def test_values_without_json(state: State, value: Any) -> None:
    state.set("total", 1)
    with pytest.raises(SerializationError, match=type(value).__name__) as caught:
        state.set("total", value)
    assert "'total'" in str(caught.value)
    assert state.get("total") == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda state, key: state.get(key),
        lambda state, key: state.set(key, 1),
        lambda state, key: state.delete(key),
        lambda state, key: state.exists(key),
        lambda state, key: state.get_bytes(key),
        lambda state, key: state.set_bytes(key, b""),
    ],
    ids=["get", "set", "delete", "exists", "get_bytes", "set_bytes"],
)
def test_keys_without_json(state: State, use: Callable[[State, Any], object]) -> None:
    with pytest.raises(SerializationError, match=r"state key b'x' of type bytes"):
        use(state, b"x")


def test_record_keys_without_json() -> None:
    with pytest.raises(SerializationError, match=r"record key .* of type set"):
        transaction().state({1}, 0)


def test_only_bytes_are_bytes(state: State) -> None:
    with pytest.raises(SerializationError, match=r"not str, for state key 'a'"):
        state.set_bytes("a", "text")  # type: ignore[arg-type]


def test_own_functions() -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    def dumps(value: Any) -> str:
        return json.dumps(value, default=lambda point: {"x": point.x}, sort_keys=True)

    def loads(data: bytes) -> Any:
        return json.loads(data, object_hook=lambda fields: Point(fields["x"]) if "x" in fields else fields)

    running = transaction(RocksDBOptions(dumps=dumps, loads=loads))
    state = running.state(Point(1), 0)
    state.set({"b": 1, "a": 2}, Point(7))
    assert state.get({"a": 2, "b": 1}).x == 7
    assert running.state({"x": 1}, 0).get_bytes({"a": 2, "b": 1}) == b'{"x": 7}'


def test_own_functions_that_fail() -> None:
    state = transaction(RocksDBOptions(dumps=json.dumps)).state(b"key", 0)
    with pytest.raises(SerializationError, match="set for state key 'a'"):
        state.set("a", {1})
    with pytest.raises(SerializationError, match="state key"):
        state.get({1})
    state = transaction(RocksDBOptions(dumps=lambda value: value)).state(b"key", 0)
    with pytest.raises(SerializationError, match="int instead of bytes"):
        state.set("a", 1)


@pytest.mark.parametrize("ttl", [datetime.timedelta(0), datetime.timedelta(seconds=-1)])
def test_nothing_lives_for_no_time(ttl: datetime.timedelta) -> None:
    running = transaction()
    state = running.state(b"key", 1_000)
    with pytest.raises(StateError, match="ttl"):
        state.set("a", 1, ttl=ttl)
    with pytest.raises(StateError, match="ttl"):
        state.set_bytes("a", b"1", ttl=ttl)


def test_a_ttl_is_a_timedelta(state: State) -> None:
    with pytest.raises(StateError, match="timedelta, not int"):
        state.set("a", 1, ttl=5)  # type: ignore[arg-type]
