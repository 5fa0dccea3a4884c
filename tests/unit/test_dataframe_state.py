"""Stateful operations of a `StreamingDataFrame`, the store that they share, and how that store is chosen."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

from streamrt import StreamingDataFrame
from streamrt.errors import ConfigurationError, InvalidOperationError
from streamrt.operators.expression import METADATA, StatefulCall
from streamrt.state import MemoryStore, RocksDBStore, State
from streamrt.state.spec import StoreSpec
from streamrt.state.store import DEFAULT_STORE
from streamrt.topology import Topology
from streamrt.topology.describe import as_text
from tests.unit.apps import Stage, Surroundings

DEFAULT = StoreSpec()


class OwnStore(MemoryStore):
    pass


def count(state: State) -> int:
    number: int = state.get("n", 0) + 1
    state.set("n", number)
    return number


def number(value: Any, state: State) -> dict[str, Any]:
    return {**value, "n": count(state)}


def number_with_metadata(value: Any, key: Any, timestamp: int, headers: Any, state: State) -> dict[str, Any]:
    return {"n": count(state), "key": key, "timestamp": timestamp, "headers": headers}


def shipped(topology: Topology) -> Topology:
    copy = pickle.loads(cloudpickle.dumps(topology))
    assert isinstance(copy, Topology)
    return copy


# -- Functions with state --------------------------------------------------------------------------------------------


def test_apply_gets_the_state_as_last_argument(stage: Stage) -> None:
    stage.sdf.apply(number, stateful=True)
    assert Surroundings().run(stage.app.topology, "in", {"a": 1}, {"a": 2}) == [{"a": 1, "n": 1}, {"a": 2, "n": 2}]


def test_with_metadata_the_state_comes_after_it(stage: Stage) -> None:
    stage.sdf.apply(number_with_metadata, stateful=True, metadata=True)
    values = Surroundings().run(stage.app.topology, "in", {}, {}, key="a", headers=[("h", b"1")])
    assert values == [{"n": n, "key": "a", "timestamp": n - 1, "headers": [("h", b"1")]} for n in (1, 2)]


@pytest.mark.parametrize("metadata", [False, True])
def test_update_changes_the_value_by_what_is_in_the_state(stage: Stage, metadata: bool) -> None:
    def update(value: dict[str, Any], *rest: Any) -> None:
        assert len(rest) == (4 if metadata else 1)
        value["n"] = count(rest[-1])

    stage.sdf.update(update, stateful=True, metadata=metadata)
    assert Surroundings().run(stage.app.topology, "in", {}, {}) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("metadata", [False, True])
def test_filter_decides_by_what_is_in_the_state(stage: Stage, metadata: bool) -> None:
    def is_new(value: Any, *rest: Any) -> bool:
        assert len(rest) == (4 if metadata else 1)
        state: State = rest[-1]
        seen = state.exists(value)
        state.set(value, True)
        return not seen

    stage.sdf.filter(is_new, stateful=True, metadata=metadata)
    assert Surroundings().run(stage.app.topology, "in", 1, 2, 1, "1", 2) == [1, 2, "1"]


@pytest.mark.parametrize("metadata", [False, True])
def test_expand_writes_state_as_the_items_are_pulled(stage: Stage, metadata: bool) -> None:
    seen: list[tuple[Any, int]] = []

    def two(value: Any, *rest: Any) -> Iterator[Any]:
        for letter in "ab":
            count(rest[-1])
            yield value + letter

    def look(value: Any, state: State) -> None:
        seen.append((value, state.get("n")))

    stage.sdf = stage.sdf.apply(two, stateful=True, expand=True, metadata=metadata)
    stage.sdf.update(look, stateful=True)
    Surroundings().run(stage.app.topology, "in", "x", "y")
    assert seen == [("xa", 1), ("xb", 2), ("ya", 3), ("yb", 4)]


def test_keys_have_states_of_their_own(stage: Stage) -> None:
    stage.sdf.apply(number, stateful=True)
    around = Surroundings()
    for key, expected in ((b"a", 1), (b"b", 1), (None, 1), (b"", 1), (b"a", 2), (None, 2), ("a", 1)):
        assert around.run(stage.app.topology, "in", {}, key=key) == [{"n": expected}]


@pytest.mark.rows("PF-F7")
def test_all_operations_and_branches_of_a_frame_share_one_state(stage: Stage) -> None:
    branch = stage.sdf.apply(number, stateful=True)
    stage.sdf.update(lambda value, state: value.update(n=count(state)), stateful=True)
    branch.apply(number, stateful=True)
    around = Surroundings()
    assert around.run(stage.app.topology, "in", {}) == [{"n": 2}, {"n": 3}]
    assert list(around.transactions) == [DEFAULT_STORE]


def test_the_event_time_moves_the_clock_of_the_store(stage: Stage) -> None:
    stage.sdf.apply(number, stateful=True)
    around = Surroundings()
    around.run(stage.app.topology, "in", {}, {}, {})
    assert around.transactions[DEFAULT_STORE].stream_time == 2


def test_a_stateful_function_can_make_a_column_or_a_condition(stage: Stage) -> None:
    sdf = stage.sdf
    sdf["n"] = sdf.apply(lambda value, state: count(state), stateful=True).apply(lambda number: number * 10)
    sdf["at"] = sdf.apply(number_with_metadata, stateful=True, metadata=True)
    sdf = sdf[sdf.apply(lambda value, state: count(state) > 3, stateful=True)]
    topology = shipped(stage.app.topology)
    values = Surroundings().run(topology, "in", {}, {})
    assert values == [{"n": 40, "at": {"n": 5, "key": b"k", "timestamp": 1, "headers": None}}]
    assert topology.stores("in") == (DEFAULT,)
    assert "state" in as_text(topology)


def test_an_expression_with_state_needs_something_that_gives_it() -> None:
    with pytest.raises(ValueError, match="store 'default' is compiled without a context"):
        StatefulCall(len, METADATA[0], metadata=False, store=DEFAULT).compile()


def test_without_state_no_store_is_needed(stage: Stage) -> None:
    around = Surroundings()
    stage.sdf["b"] = stage.sdf["a"] + 1
    stage.sdf.apply(lambda value: value).filter(bool).update(lambda value: None)
    assert around.run(stage.app.topology, "in", {"a": 1}) == [{"a": 1, "b": 2}]
    assert stage.app.topology.stores("in") == ()
    assert around.transactions == {}


# -- Which store -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "add",
    [
        lambda sdf: sdf.apply(number, stateful=True),
        lambda sdf: sdf.update(number, stateful=True),
        lambda sdf: sdf.filter(number, stateful=True),
        lambda sdf: sdf.__setitem__("n", sdf.apply(number, stateful=True)),
        lambda sdf: sdf[sdf.apply(number, stateful=True)],
    ],
)
def test_a_stateful_operation_brings_the_default_store(stage: Stage, add: Callable[[StreamingDataFrame], Any]) -> None:
    add(stage.sdf)
    add(stage.sdf)
    topology = shipped(stage.app.topology)
    assert topology.stores("in") == topology.stores(topology.sources["in"]) == (DEFAULT,)


@pytest.mark.parametrize("kind", [MemoryStore, RocksDBStore, OwnStore])
def test_the_type_of_the_store_can_be_chosen(stage: Stage, kind: type[Any]) -> None:
    stage.sdf.register_store(kind)
    assert stage.app.topology.stores("in") == (StoreSpec(DEFAULT_STORE, kind),)
    stage.sdf.apply(number, stateful=True)
    branch = stage.sdf.filter(bool)
    branch.register_store(kind)
    branch.apply(number, stateful=True)
    assert shipped(stage.app.topology).stores("in") == (StoreSpec(DEFAULT_STORE, kind),)
    assert Surroundings().run(stage.app.topology, "in", {"a": 1}) == [{"a": 1, "n": 1}, {"a": 1, "n": 2}]


def test_registering_without_a_type_keeps_the_type_that_was_chosen(stage: Stage) -> None:
    stage.sdf.register_store()
    assert stage.app.topology.stores("in") == (DEFAULT,)
    other = Stage()
    other.sdf.register_store(MemoryStore)
    other.sdf.register_store()
    assert other.app.topology.stores("in") == (StoreSpec(DEFAULT_STORE, MemoryStore),)


def test_the_type_cannot_change(stage: Stage) -> None:
    stage.sdf.register_store(MemoryStore)
    stage.sdf.register_store(MemoryStore)
    with pytest.raises(InvalidOperationError) as caught:
        stage.sdf.apply(number, stateful=True).register_store(RocksDBStore)
    assert str(caught.value) == (
        "store 'default' of topic 'in' is already a MemoryStore and cannot become a RocksDBStore: "
        "call register_store() once, before the first stateful operation"
    )


def test_the_type_must_be_chosen_before_the_first_stateful_operation(stage: Stage) -> None:
    stage.sdf["n"] = stage.sdf.apply(number, stateful=True)
    with pytest.raises(InvalidOperationError, match="is already a RocksDBStore and cannot become a MemoryStore"):
        stage.sdf.register_store(MemoryStore)
    stage.sdf.register_store(RocksDBStore)


@pytest.mark.parametrize("kind", ["memory", dict, "", 5])
def test_the_type_must_be_a_class_of_stores(stage: Stage, kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a store class"):
        stage.sdf.register_store(kind)
    assert stage.app.topology.stores("in") == ()


def test_topics_have_stores_of_their_own() -> None:
    stage = Stage()
    other = stage.app.dataframe(stage.app.topic("other"))
    other.register_store(MemoryStore)
    other.apply(number, stateful=True)
    stage.sdf.apply(number, stateful=True)
    topology = stage.app.topology
    assert topology.stores("in") == (DEFAULT,)
    assert topology.stores("other") == (StoreSpec(DEFAULT_STORE, MemoryStore),)


# -- Trying out ------------------------------------------------------------------------------------------------------


def test_a_trial_remembers_the_state_of_the_trials_before(stage: Stage) -> None:
    sdf = stage.sdf.apply(number, stateful=True)
    values = [sdf.test({}, key=key)[0][0] for key in ("a", "a", "b", "a")]
    assert values == [{"n": 1}, {"n": 2}, {"n": 1}, {"n": 3}]


def test_each_frame_tries_with_its_own_state(stage: Stage) -> None:
    sdf = stage.sdf.apply(number, stateful=True)
    assert [frame.test({})[0][0]["n"] for frame in (sdf, stage.sdf, sdf)] == [1, 1, 2]


def test_each_topic_is_tried_with_its_own_state(stage: Stage) -> None:
    other = stage.app.topic("other")
    stage.app.dataframe(other).apply(number, stateful=True)
    sdf = stage.sdf.apply(number, stateful=True)
    assert [sdf.test({}, topic=topic)[0][0]["n"] for topic in (stage.source, other, stage.source)] == [1, 1, 2]


def test_what_failed_in_a_trial_keeps_the_state_that_it_wrote(stage: Stage) -> None:
    def fail_once(value: Any, state: State) -> int:
        if count(state) == 1:
            raise RuntimeError("first")
        return count(state)

    sdf = stage.sdf.apply(fail_once, stateful=True)
    with pytest.raises(RuntimeError, match="first"):
        sdf.test(1)
    assert sdf.test(1)[0][0] == 3


def test_a_composed_frame_keeps_its_state(stage: Stage) -> None:
    outputs: list[Any] = []
    sdf = stage.sdf.apply(number, stateful=True)
    process = sdf.compose(lambda value, key, timestamp, headers: outputs.append(value))["in"]
    for _ in range(2):
        process({}, b"k", 0, None)
    assert outputs == [{"n": 1}, {"n": 2}]


def test_the_kind_of_store_makes_no_difference_to_a_trial(stage: Stage) -> None:
    stage.sdf.register_store(OwnStore)
    assert stage.sdf.apply(number, stateful=True).test({})[0][0] == {"n": 1}
