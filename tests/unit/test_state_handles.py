"""Handles of state: values, lists, maps, reducing and aggregating states."""

import functools
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import ArgumentValueError, SerializationError, StateError
from streamrt.state import MemoryStore, RocksDBOptions, RocksDBStore, Stamp, State, StateTtl, Store, StorePartition
from streamrt.state.changelog import restore_changes
from streamrt.state.layout import ARRIVAL_KEY, NAME_SPACE
from streamrt.state.transactions.keyed import StoreTransaction, _size_of
from streamrt.windows import Count, Earliest, Max, Mean, Min, Sum
from tests.unit.apps import Stage
from tests.unit.state_timed import IDENTITY

SECOND = timedelta(seconds=1)


@pytest.fixture(params=[MemoryStore, RocksDBStore])
def partition(request: pytest.FixtureRequest, tmp_path: Path) -> StorePartition:
    kind: type[Store] = request.param
    return kind("default", "orders", tmp_path).open(0)


def memory() -> StorePartition:
    return MemoryStore("default", "orders", Path("unused")).open(0)


def commit(transaction: StoreTransaction, offset: int = 1) -> list[tuple[bytes, bytes | None]]:
    changes = transaction.prepare()
    transaction.flush(Stamp(IDENTITY, offset, offset, transaction.stream_time, 0))
    return changes


def state_of(partition: StorePartition, key: Any = b"k", time: int = 0) -> tuple[StoreTransaction, State]:
    transaction = StoreTransaction(partition)
    return transaction, transaction.state(key, time)


@pytest.mark.rows("PF-F1")
def test_a_value_is_the_entry_that_get_reads(partition: StorePartition) -> None:
    _, state = state_of(partition)
    count = state.value("count", default=0)
    assert count.value() == 0
    count.update(5)
    assert (state.get("count"), count.value()) == (5, 5)
    state.set("count", None)
    assert (count.value(), state.exists("count")) == (None, True)
    count.update(None)
    assert state.exists("count")
    count.clear()
    assert (count.value(), state.exists("count")) == (0, False)


@pytest.mark.rows("PF-F2", "PF-N2")
def test_a_list_keeps_the_order_of_arrival(partition: StorePartition) -> None:
    transaction, state = state_of(partition)
    orders = state.list("orders")
    assert orders.is_empty()
    assert not orders
    orders.add({"n": 1})
    orders.add_all([2, (3,)])
    assert list(orders) == [{"n": 1}, 2, [3]]
    commit(transaction)
    transaction, state = state_of(partition)
    state.list("orders").add(4)
    assert list(state.list("orders").get()) == [{"n": 1}, 2, [3], 4]
    state.list("orders").update(value for value in state.list("orders") if value != 2)
    assert list(state.list("orders")) == [{"n": 1}, [3], 4]
    commit(transaction)
    transaction, state = state_of(partition)
    assert list(state.list("orders")) == [{"n": 1}, [3], 4]
    state.list("orders").clear()
    assert list(state.list("orders")) == []
    state.list("orders").add(5)
    assert list(state.list("orders")) == [5]


@pytest.mark.rows("PF-F3")
def test_a_map_is_used_like_a_dict(partition: StorePartition) -> None:
    transaction, state = state_of(partition)
    prices = state.map("prices")
    prices["b"] = 2
    prices.put_all({"a": 1, 5: None})
    commit(transaction)
    transaction, state = state_of(partition)
    prices = state.map("prices")
    prices["aa"] = [3]
    del prices["b"]
    assert list(prices.items()) == [("a", 1), ("aa", [3]), (5, None)]
    assert (list(prices), list(prices.values())) == (["a", "aa", 5], [1, [3], None])
    assert (prices["a"], prices.get("b", "none"), prices.get(5, "none"), "5" in prices) == (1, "none", None, False)
    assert (prices.pop("a"), prices.pop("a", "gone")) == (1, "gone")
    for missing in (lambda: prices["a"], lambda: prices.pop("a"), lambda: prices.__delitem__("a")):
        with pytest.raises(KeyError):
            missing()
    prices.discard("a")
    assert prices
    prices.clear()
    assert prices.is_empty()
    with pytest.raises(TypeError):
        len(prices)  # type: ignore[arg-type]


def test_the_keys_of_a_map_behind_one(partition: StorePartition) -> None:
    transaction, state = state_of(partition)
    state.map("seen").put_all(dict.fromkeys(("a", "b", "bb", "c"), 1))
    state.map("seem").put_all({"x": 1})
    commit(transaction)
    transaction, state = state_of(partition)
    seen = state.map("seen", ttl=StateTtl(SECOND, update="read-and-write"))
    seen.discard("c")
    seen["ba"] = seen["d"] = 2
    assert list(seen.keys(after="b")) == ["ba", "bb", "d"]
    assert (list(seen.keys(after="aa")), list(seen.keys(after="d"))) == (["b", "ba", "bb", "d"], [])
    assert list(state.map("seen").keys(after="a")) == ["b", "ba", "bb", "d"]
    seen.clear()
    assert list(seen.keys(after="a")) == []


@pytest.mark.rows("PF-F4", "PF-F5", "PF-F8")
def test_reducing_and_aggregating() -> None:
    partition = memory()
    found = []
    for price in (3, 9, 5):
        transaction, state = state_of(partition, time=price)
        highest, mean = state.reducing("highest", max), state.aggregating("mean", Mean("price"))
        highest.add(price)
        mean.add({"price": price})
        found.append((highest.get(), mean.get(), state.get("highest")))
        commit(transaction)
    assert found == [(3, 3.0, 3), (9, 6.0, 9), (9, 17 / 3, 9)]
    transaction, state = state_of(partition)
    state.reducing("highest", max).clear()
    state.aggregating("mean", Mean("price")).clear()
    assert (state.reducing("highest", max).get(), state.aggregating("mean", Mean("price")).get()) == (None, None)


@pytest.mark.parametrize("aggregator", [Sum(), Count(), Min(), Max(), Earliest()])
def test_aggregates_are_kept_exactly(aggregator: Any) -> None:
    values = [2**70, float("inf"), -1]
    partition = memory()
    expected = aggregator.initialize()
    for number, value in enumerate(values):
        transaction, state = state_of(partition, time=number)
        state.aggregating("it", aggregator).add(value)
        expected = aggregator.agg(expected, value, number)
        commit(transaction)
    assert state_of(partition)[1].aggregating("it", aggregator).get() == aggregator.result(expected)


def test_clear_removes_all_of_a_key_and_nothing_of_others(partition: StorePartition) -> None:
    keys = [None, b"", b"k", b"kk", "k", 1, 1.0, True, b"x" * 300]

    def fill(state: State) -> None:
        for name in ("", "a", "ab"):
            state.set(name, name)
            state.list(f"{name}l").add_all([name, 1])
            state.map(f"{name}m").put_all({"": 0, name: 1, 7: 2})

    def everything(state: State) -> list[Any]:
        return [
            [state.get(name), list(state.list(f"{name}l")), dict(state.map(f"{name}m").items())]
            for name in ("", "a", "ab")
        ]

    nothing: list[Any] = [[None, [], {}]] * 3
    transaction = StoreTransaction(partition)
    for key in keys:
        fill(transaction.state(key, 0))
    full = everything(transaction.state(b"k", 0))
    commit(transaction)
    for number, key in enumerate(keys):
        transaction = StoreTransaction(partition)
        state = transaction.state(key, 0)
        state.set("new", 1)
        state.map("other")["new"] = 1
        state.clear()
        assert everything(state) == nothing
        assert not state.exists("new")
        assert not state.map("other")
        state.list("l").add("again")
        state.clear()
        commit(transaction)
        transaction = StoreTransaction(partition)
        for other in keys[: number + 1]:
            assert everything(transaction.state(other, 0)) == nothing
        for other in keys[number + 1 :]:
            assert everything(transaction.state(other, 0)) == full
        transaction.discard()
    # The types of names stay, and belong to no key.
    assert [key for key, _ in partition.scan(b"", None) if key != ARRIVAL_KEY and key[0] != NAME_SPACE] == []


def test_an_append_costs_the_same_however_long_the_list_is(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = memory()
    written = []
    # The first use of the name writes its type.
    transaction, state = state_of(partition)
    state.list("l")
    commit(transaction)
    for _ in range(5):
        transaction, state = state_of(partition)
        state.list("l").add_all(range(100))
        written.append(sum(len(key) + len(value or b"") for key, value in commit(transaction)))
    assert len(set(written)) == 1
    partition.read_cache = None
    read: list[bytes] = []
    get = partition.get

    def noted(key: bytes) -> bytes | None:
        read.append(key)
        return get(key)

    monkeypatch.setattr(partition, "get", noted)
    _, state = state_of(partition)
    state.list("l").add_all(range(100))
    assert read == [ARRIVAL_KEY]


def test_the_counter_precedes_the_elements_of_a_commit() -> None:
    partition = memory()
    transaction, state = state_of(partition)
    state.set("a", 1)
    state.list("l").add(1)
    state.list("m").add(2)
    keys = [key for key, _ in commit(transaction)]
    assert keys[2] == ARRIVAL_KEY
    assert [key[0] for key in keys] == [1, 8, 4, 6, 8, 6]


def test_golden_bytes() -> None:
    partition = memory()
    transaction, state = state_of(partition, b"ab")
    state.list("l").add("x")
    state.map("m", ttl=SECOND)["k"] = 1
    state.value("v").update(2)
    assert commit(transaction) == [
        (b"\x08l", b"\x00list"),
        (b"\x04arrival", b"\x00" + (1).to_bytes(8, "big")),
        (b"\x06\x01\x02ab\x01l" + bytes(8), b'\x00"x"'),
        (b"\x08m", b"\x00map"),
        (b'\x05\x01\x02ab\x01m"k"', b"\x01" + (1_000).to_bytes(8, "big") + b"1"),
        (b"\x08v", b"\x00value"),
        (b'\x01\x01\x02ab"v"', b"\x002"),
    ]


def test_what_was_added_and_removed_between_two_commits_is_not_in_the_changelog() -> None:
    transaction, state = state_of(memory())
    state.list("l").add(1)
    state.list("l").clear()
    assert [key for key, _ in commit(transaction)] == [b"\x08l", ARRIVAL_KEY]


def test_iteration_does_not_fill_the_cache_and_lists_leave_it() -> None:
    partition = memory()
    transaction, state = state_of(partition)
    state.list("l").add_all(range(500))
    state.map("m").put_all({number: number for number in range(500)})
    commit(transaction)
    partition.read_cache = None
    transaction, state = state_of(partition)
    assert (sum(state.list("l")), sum(state.map("m").values())) == (124_750, 124_750)
    assert len(transaction._entries) == 0
    state.list("l").add_all(range(100))
    state.list("l").clear()
    state.map("m")[1] = 2
    commit(transaction)
    transaction, state = state_of(partition)
    assert len([key for key in transaction._entries if key[0] != NAME_SPACE]) == 2
    assert transaction._size == sum(_size_of(key, value) for key, value in transaction._entries.items())


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.map("m").put_all({"new": 1}),
        lambda state: state.map("m").__setitem__("a", 1),
        lambda state: state.map("m").pop("a"),
        lambda state: state.map("m").clear(),
        lambda state: state.clear(),
    ],
)
def test_a_map_must_not_change_while_it_is_iterated(change: Callable[[State], Any]) -> None:
    transaction, state = state_of(memory())
    state.map("m").put_all({"a": 1, "b": 2})
    commit(transaction)
    state = StoreTransaction(transaction._partition).state(b"k", 0)
    reader = iter(state.map("m"))
    next(reader)
    change(state)
    with pytest.raises(RuntimeError, match="'m' changed while it was iterated"):
        next(reader)


def test_other_maps_may_change_meanwhile() -> None:
    _, state = state_of(memory())
    state.map("m").put_all({"a": 1, "b": 2})
    for key, value in state.map("m").items():
        state.map("n")[key] = value
        state.list("l").add(value)
    assert dict(state.map("n").items()) == {"a": 1, "b": 2}


def test_handles_are_refused_after_their_transaction(partition: StorePartition) -> None:
    transaction, state = state_of(partition)
    orders, prices, count = state.list("l"), state.map("m"), state.value("v")
    orders.add(1)
    prices["a"] = 1
    reader = iter(prices)
    commit(transaction)
    uses: list[Callable[[], Any]] = [
        *(lambda: orders.add(1), orders.clear, lambda: list(orders), orders.is_empty),
        *(lambda: prices["a"], lambda: prices.__setitem__("a", 1), prices.clear, lambda: next(reader)),
        *(count.value, lambda: count.update(1), count.clear, state.clear),
        lambda: state.reducing("r", max).add(1),
    ]
    for use in uses:
        with pytest.raises(StateError, match="after its transaction was"):
            use()


@pytest.mark.rows("PF-F6")
def test_a_name_has_one_type() -> None:
    partition = memory()
    transaction, state = state_of(partition)
    state.list("orders").add(1)
    with pytest.raises(StateError, match="'orders' in store 'default' belongs to a state of type 'list', and is used"):
        state.map("orders")
    commit(transaction)
    _, state = state_of(partition)
    with pytest.raises(StateError, match="of type 'list', and is used for one of type 'value'"):
        state.value("orders")
    with pytest.raises(StateError, match="must be a str, got int"):
        state.value(5)  # type: ignore[arg-type]


@pytest.mark.rows("PF-F10")
@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1), 5])
def test_wrong_times_to_live(ttl: Any) -> None:
    _, state = state_of(memory())
    with pytest.raises(StateError, match="ttl must be"):
        state.list("l", ttl=ttl)
    with pytest.raises(StateError, match="ttl must be"):
        StateTtl(ttl)


def test_wrong_options_of_a_time_to_live() -> None:
    with pytest.raises(ArgumentValueError, match="'write' or 'read-and-write'"):
        StateTtl(SECOND, update="read")  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="'event' or 'processing'"):
        StateTtl(SECOND, time="stream")  # type: ignore[arg-type]


def test_values_without_a_json_form() -> None:
    _, state = state_of(memory())
    for use in (
        lambda: state.value("v").update({1, 2}),
        lambda: state.list("l").add_all([1, {2}]),
        lambda: state.map("m").put_all({"a": 1, "b": {2}}),
        lambda: state.map("m").get({1}),
        lambda: state.aggregating("a", Earliest()).add({1}),
    ):
        with pytest.raises(SerializationError):
            use()
    # All or nothing.
    assert (list(state.list("l")), list(state.map("m"))) == ([], [])


@pytest.mark.rows("PF-F10", "PF-F11", "PF-F12", "PF-F14", "PF-F16", "PF-F18")
@pytest.mark.parametrize("clock", ["event", "processing"])
@pytest.mark.parametrize("update", ["write", "read-and-write"])
@pytest.mark.parametrize("kind", ["value", "reducing", "aggregating", "map", "list"])
def test_times_to_live(kind: str, update: Any, clock: Any) -> None:
    ttl = StateTtl(SECOND, update=update, time=clock)
    partition = memory()

    def state_at(time: int) -> tuple[StoreTransaction, State]:
        transaction = StoreTransaction(partition)
        transaction.now = lambda: time if clock == "processing" else 0
        return transaction, transaction.state(b"k", 0 if clock == "processing" else time)

    def write(state: State) -> None:
        if kind == "value":
            state.value("it", ttl=ttl).update(1)
        elif kind == "map":
            state.map("it", ttl=ttl)["k"] = 1
        elif kind == "reducing":
            state.reducing("it", max, ttl=ttl).add(1)
        elif kind == "aggregating":
            state.aggregating("it", Sum(), ttl=ttl).add(1)
        else:
            state.list("it", ttl=ttl).add(1)

    def read(state: State) -> Any:
        if kind == "value":
            return state.value("it", ttl=ttl).value()
        if kind == "map":
            return state.map("it", ttl=ttl).get("k")
        if kind == "list":
            return next(iter(state.list("it", ttl=ttl)), None)
        return (
            state.reducing("it", max, ttl=ttl) if kind == "reducing" else state.aggregating("it", Sum(), ttl=ttl)
        ).get()

    found = []
    transaction, state = state_at(0)
    write(state)
    commit(transaction)
    for time in (999, 1_000, 1_998, 2_998):
        partition.read_cache = None
        transaction, state = state_at(time)
        found.append(read(state))
        commit(transaction)
    assert found == ([1, None, None, None] if update == "write" else [1, 1, 1, None])
    # What has expired is deleted, with its entry of the index.
    transaction, _ = state_at(5_000)
    commit(transaction)
    assert {key[0] for key, _ in partition.scan(b"", None)} <= {0x04, 0x08, 0xF1}


@pytest.mark.rows("PF-F13")
def test_without_a_time_to_live_nothing_expires() -> None:
    partition = memory()
    transaction, state = state_of(partition, time=0)
    state.value("v").update(1)
    state.list("l").add(2)
    state.map("m")["k"] = 3
    commit(transaction)
    transaction, state = state_of(partition, time=1 << 50)
    commit(transaction)
    _, state = state_of(partition, time=1 << 50)
    assert (state.value("v").value(), list(state.list("l")), state.map("m")["k"]) == (1, [2], 3)


@pytest.mark.rows("PF-F17")
def test_elements_expire_one_by_one(partition: StorePartition) -> None:
    for number in range(4):
        transaction, state = state_of(partition, time=number * 400)
        state.list("l", ttl=SECOND).add(number)
        state.map("m", ttl=SECOND)[number] = number
        found = (list(state.list("l")), list(state.map("m")))
        commit(transaction)
    assert found == ([1, 2, 3], [1, 2, 3])
    assert len(list(partition.scan(b"\x05", b"\x07"))) == 6


def test_a_read_that_prolongs_is_no_change_of_the_map() -> None:
    partition = memory()
    ttl = StateTtl(SECOND, update="read-and-write")
    transaction, state = state_of(partition)
    state.map("m", ttl=ttl).put_all({"a": 1, "b": 2, "c": 3})
    commit(transaction)
    transaction, state = state_of(partition, time=500)
    found = [(key, state.map("m", ttl=ttl)[key], state.map("m", ttl=ttl)["c"]) for key in state.map("m", ttl=ttl)]
    assert found == [("a", 1, 3), ("b", 2, 3), ("c", 3, 3)]
    changes = commit(transaction)
    assert [value for _, value in changes] == [
        b"\x01" + (1_500).to_bytes(8, "big") + digit for digit in (b"1", b"3", b"2")
    ]


@pytest.mark.rows("PF-N2")
def test_users_functions_encode_values_and_keys_of_maps() -> None:
    options = RocksDBOptions(dumps=lambda value: repr(value).encode(), loads=lambda data: eval(data))
    partition = memory()
    transaction = StoreTransaction(partition, options)
    state = transaction.state("k", 0)
    state.map("m")[(1, 2)] = {3}
    state.list("l").add({4})
    state.aggregating("a", functools.partial(Sum)()).add(5)
    commit(transaction)
    state = StoreTransaction(partition, options).state("k", 0)
    assert list(state.map("m").items()) == [((1, 2), {3})]
    assert (list(state.list("l")), state.aggregating("a", Sum()).get()) == ([{4}], 5)


def test_stores_are_restored_by_versions_that_do_not_know_the_spaces() -> None:
    # What a restore does depends only on flags: any space below 0xF0 is kept, and its expiry is in the index.
    changes = [(b"\x4eunknown", b"\x01" + (7).to_bytes(8, "big") + b"x"), (b"\x4fplain", b"\x00x")]
    assert restore_changes(changes).changes == [*changes, (b"\xf0" + (7).to_bytes(8, "big") + b"\x4eunknown", b"")]


@pytest.mark.usefixtures("processing_mode")
def test_functions_use_handles_and_the_driver_shows_them() -> None:
    stage = Stage()

    def gather(value: Any, state: State) -> Any:
        state.list("all").add(value)
        counts = state.map("counts")
        counts[value] = counts.get(value, 0) + 1
        state.value("last").update(value)
        return sum(state.list("all"))

    stage.sdf.apply(gather, stateful=True).to_topic(stage.out)
    driver = stage.drive()
    for value in (1, 2, 2):
        driver.pipe(stage.source, value, key=b"k")
    assert [record.value for record in driver.read(stage.out)] == [1, 3, 5]
    view = driver.state(stage.source, b"k")
    assert (view.list("all"), view.map("counts"), view.value("last"), view.get("last")) == (
        [1, 2, 2],
        {1: 1, 2: 2},
        2,
        2,
    )
    assert driver.state(stage.source, b"other").list("all") == []


def test_a_dataframe_under_test_has_handles() -> None:
    stage = Stage()
    sdf = stage.sdf.apply(lambda value, state: (state.list("l").add(value), list(state.list("l")))[1], stateful=True)
    assert [sdf.test(value)[0][0] for value in (1, 2)] == [[1], [1, 2]]
