"""A name of a handle has one type in its store: after restarts and restores, and through versions that do not know types."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import ProcessingError, StateError
from streamrt.state import MemoryStore, RocksDBStore, Stamp, State, Store, StorePartition
from streamrt.state.changelog import restore_changes
from streamrt.state.layout import NAME_SPACE, following, name_key
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.windows import Sum
from tests.unit.apps import Stage
from tests.unit.state_timed import IDENTITY

USES: dict[str, Callable[[State, str], Any]] = {
    "value": lambda state, name: state.value(name),
    "list": lambda state, name: state.list(name),
    "map": lambda state, name: state.map(name),
    "reducing": lambda state, name: state.reducing(name, max),
    "aggregating": lambda state, name: state.aggregating(name, Sum()),
}
NAMES = bytes((NAME_SPACE,)), following(bytes((NAME_SPACE,)))


def memory() -> StorePartition:
    return MemoryStore("default", "orders", Path("unused")).open(0)


def commit(transaction: StoreTransaction) -> list[tuple[bytes, bytes | None]]:
    changes = transaction.prepare()
    transaction.flush(Stamp(IDENTITY, 1, 1, transaction.stream_time, 0))
    return changes


def restarted(partition: StorePartition) -> State:
    """Return the state of a transaction in a process that knows nothing of the ones before."""
    partition.read_cache = None
    transaction = StoreSpec("totals", MemoryStore).begin(partition)
    assert isinstance(transaction, StoreTransaction)
    return transaction.state(b"other", 0)


def check_refused(state: State, name: str, known: str) -> None:
    USES[known](state, name)
    for kind, use in USES.items():
        if kind != known:
            with pytest.raises(StateError) as caught:
                use(state, name)
            assert str(caught.value) == (
                f"the name {name!r} in store 'totals' belongs to a state of type {known!r}, and is used for one of type "
                f"{kind!r}: give the new state another name, or delete the store with 'streamrt state forget' if nothing in "
                "it is needed"
            )


@pytest.mark.parametrize("known", USES)
def test_after_a_restart_and_a_restore(known: str, tmp_path: Path) -> None:
    store = RocksDBStore("default", "orders", tmp_path)
    partition = store.open(0)
    transaction = StoreTransaction(partition)
    names = ["orders", "", "\xe4\U0001f600", "a" * 300]
    for name in names:
        USES[known](transaction.state(b"key", 0), name)
    changes = commit(transaction)
    assert changes == [(name_key(name), b"\x00" + known.encode()) for name in names]
    partition.close()
    partition = store.open(0)
    restored = memory()
    restored.write(restore_changes(changes).changes, Stamp(IDENTITY, None, 1, None, 0))
    for each in (partition, restored):
        for name in names:
            check_refused(restarted(each), name, known)
    partition.close()


def test_a_name_is_written_once_and_not_by_what_is_discarded() -> None:
    partition = memory()
    transaction = StoreTransaction(partition)
    transaction.state(b"a", 0).list("l")
    transaction.discard()
    written: list[Any] = []
    for _ in range(3):
        transaction = StoreTransaction(partition)
        for key in (b"a", b"b"):
            transaction.state(key, 0).list("l")
        assert transaction.dirty is not bool(written)
        written += commit(transaction)
    assert written == [(name_key("l"), b"\x00list")]
    # Another process may have decided meanwhile.
    transaction = StoreTransaction(partition)
    transaction.state(b"a", 0).clear()
    commit(transaction)
    check_refused(restarted(partition), "l", "list")


def test_stores_of_earlier_versions_are_accepted_and_their_names_noted() -> None:
    partition = memory()
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 0).list("orders").add(1)
    commit(transaction)
    # As versions before names had types have written it.
    partition.write([(name_key("orders"), None)], Stamp(IDENTITY, 1, 1, 0, 0))
    partition.read_cache = None
    transaction = StoreTransaction(partition)
    assert list(transaction.state(b"key", 0).list("orders")) == [1]
    assert commit(transaction) == [(name_key("orders"), b"\x00list")]
    check_refused(restarted(partition), "orders", "list")


@pytest.mark.parametrize("kind", [MemoryStore, RocksDBStore])
def test_versions_that_do_not_know_the_entries_keep_them(kind: type[Store], tmp_path: Path) -> None:
    """They restore whatever is below 0xF0, read and write entries of keys, and clear keys by their spaces."""
    transaction = StoreTransaction(memory())
    transaction.state(b"key", 0).list("orders").add(1)
    changes = commit(transaction)
    assert restore_changes(changes).changes == changes
    partition = kind("default", "orders", tmp_path).open(0)
    partition.write(restore_changes(changes, partition).changes, Stamp(IDENTITY, 1, 1, 0, 0))
    transaction = StoreTransaction(partition)
    transaction.state(b"key", 0).clear()
    commit(transaction)
    assert list(partition.scan(*NAMES)) == [(name_key("orders"), b"\x00list")]
    partition.close()


def test_types_of_later_versions_are_refused_by_their_name() -> None:
    partition = memory()
    partition.write([(name_key("orders"), b"\x00heap")], Stamp(IDENTITY, 1, 1, 0, 0))
    with pytest.raises(
        StateError, match="'orders' in store 'totals' belongs to a state of type 'heap', and is used for"
    ):
        restarted(partition).list("orders")


def test_names_that_are_made_from_data_do_not_fill_the_store() -> None:
    partition = memory()
    for begin in (0, 600):
        transaction = StoreTransaction(partition)
        for number in range(begin, begin + 600):
            transaction.state(b"key", 0).value(f"name {number}").update(number)
        commit(transaction)
        partition.read_cache = None
    assert len(list(partition.scan(*NAMES))) == 1_000
    assert restarted(partition).value("name 5").value() is None
    assert StoreTransaction(partition).state(b"key", 0).value("name 1100").value() == 1_100


def test_an_application_that_changes_the_type_of_a_name_stops_at_its_first_record() -> None:
    def build(use: Callable[[State], Any]) -> Stage:
        stage = Stage()
        stage.sdf.apply(lambda value, state: use(state), stateful=True).to_topic(stage.out)
        return stage

    stage = build(lambda state: state.list("orders").add(1))
    driver = stage.drive()
    driver.pipe(stage.source, 1, key=b"a")
    stage = build(lambda state: [*state.list("orders"), *state.map("orders")])
    with pytest.raises(ProcessingError, match="the name 'orders' in store 'default' belongs to a state of type 'list'"):
        stage.drive().pipe(stage.source, 1, key=b"b")
