"""`sdf.group_by()`: names, what goes through the repartition topic, and what is left of it on topics of one partition."""

import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from streamrt import StreamingDataFrame
from streamrt.connectors import ListSink
from streamrt.errors import ColumnTypeError, ConfigurationError, InvalidOperationError, MissingColumnError
from streamrt.kafka import TopicConfig
from streamrt.serializers import IntegerSerializer, JSONDeserializer, JSONSerializer, StringDeserializer
from streamrt.state import MemoryStore, RocksDBStore, State
from streamrt.state.spec import StoreSpec
from streamrt.state.store import DEFAULT_STORE
from streamrt.testing import TopologyTestDriver
from streamrt.topology import Topology
from streamrt.topology.describe import as_text
from tests.unit.apps import Stage, Surroundings, application

REPARTITION = "repartition__group--in--a"
NESTED = "repartition__group--repartition.in.a--b"


def number(value: dict[str, Any], state: State) -> dict[str, Any]:
    count = state.get("n", 0) + 1
    state.set("n", count)
    return {**value, "n": count}


def whole_key(value: Any, key: Any, timestamp: int, headers: Any) -> Any:
    return key


def nested(stage: Stage) -> StreamingDataFrame:
    """Count by key, then by column a, then by column b; each count ends a branch."""
    stage.sdf.apply(number, stateful=True)
    by_a = stage.sdf.group_by("a")
    by_a.apply(number, stateful=True)
    by_b = by_a.group_by("b")
    by_b.apply(number, stateful=True)
    return by_b


# -- The repartition topic -------------------------------------------------------------------------------------------


def test_the_topic_is_named_after_group_input_and_column(stage: Stage) -> None:
    grouped = stage.sdf.group_by("a")
    assert [topic.name for topic in grouped.topics] == [REPARTITION]
    assert stage.app.topic_manager.repartition_topics == {REPARTITION: grouped.topics[0]}
    assert REPARTITION in stage.app.topic_manager.non_changelog_topics


@pytest.mark.parametrize("key", ["a", lambda value: value["a"]])
def test_a_name_can_be_given(stage: Stage, key: Any) -> None:
    assert stage.sdf.group_by(key, name="other").topics[0].name == "repartition__group--in--other"
    assert "group_by-1 (other)" in as_text(stage.app.topology)


def test_keys_and_values_are_json_by_default(stage: Stage) -> None:
    (topic,) = stage.sdf.group_by("a").topics
    assert isinstance(topic.value_deserializer, JSONDeserializer)
    assert isinstance(topic.key_deserializer, JSONDeserializer)
    assert isinstance(topic.value_serializer, JSONSerializer)
    assert isinstance(topic.key_serializer, JSONSerializer)


def test_serializers_can_be_chosen(stage: Stage) -> None:
    (topic,) = stage.sdf.group_by("a", key_serializer="int", key_deserializer="str").topics
    assert isinstance(topic.key_serializer, IntegerSerializer)
    assert isinstance(topic.key_deserializer, StringDeserializer)


@pytest.mark.rows("PF-D1")
def test_records_go_to_the_topic_under_their_new_key_and_nothing_leaves_the_branch(stage: Stage) -> None:
    stage.sdf["a"] = stage.sdf["a"] * 2
    stage.sdf.group_by("a").apply(number, stateful=True)
    around = Surroundings()
    headers = [("h", b"1"), ("h", None)]
    assert around.run(stage.app.topology, "in", {"a": 1}, {"a": 3}, headers=headers) == []
    assert around.sent == [(REPARTITION, {"a": 2}, 2, 0, headers), (REPARTITION, {"a": 6}, 6, 1, headers)]
    assert around.transactions == {}


@pytest.mark.parametrize("new_key", [None, "x", 5, 1.5, False, "", [1, {"b": None}]])
def test_a_key_may_be_anything_even_none(stage: Stage, new_key: Any) -> None:
    stage.sdf.group_by(lambda value: new_key, name="constant").apply(whole_key, metadata=True)
    for partitions in (1, 3):
        around = Surroundings()
        around.run(stage.app.topology.resolve({"in": partitions}), "in", {})
        assert [record[2] for record in around.sent] == ([] if partitions == 1 else [new_key])
        assert [output[0] for output in around.left] == ([new_key] if partitions == 1 else [])


def test_a_branch_taken_before_stays_on_the_input(stage: Stage) -> None:
    grouped = stage.sdf.group_by("a")
    grouped["where"] = "grouped"
    stage.sdf["where"] = "input"
    around = Surroundings()
    assert around.run(stage.app.topology, "in", {"a": 1}) == [{"a": 1, "where": "input"}]
    assert around.run(stage.app.topology, REPARTITION, {"a": 1}) == [{"a": 1, "where": "grouped"}]


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_missing_column_is_a_key_error_that_names_it(stage: Stage, partitions: int) -> None:
    stage.sdf.group_by("a")
    topology = stage.app.topology.resolve({"in": partitions})
    with pytest.raises(MissingColumnError, match="column 'a' is missing; the value has 'b'"):
        Surroundings().run(topology, "in", {"b": 1})
    with pytest.raises(ColumnTypeError, match="cannot read column 'a': the value is of type int"):
        Surroundings().run(topology, "in", 5)


# -- Several columns ---------------------------------------------------------------------------------------------------


def test_several_columns_make_a_list_and_name_the_topic_in_their_order(stage: Stage) -> None:
    grouped = stage.sdf.group_by(["a", "b"])
    assert grouped.topics[0].name == "repartition__group--in--a-b"
    grouped.apply(whole_key, metadata=True)
    stage.sdf.group_by(["a", "b"], name="again")
    for partitions in (1, 3):
        around = Surroundings()
        around.run(stage.app.topology.resolve({"in": partitions}), "in", {"b": "x", "a": 1})
        assert [record[2] for record in around.sent] == ([] if partitions == 1 else [[1, "x"]] * 2)
    assert stage.sdf.group_by(("b", "a")).topics[0].name == "repartition__group--in--b-a"


@pytest.mark.parametrize("partitions", [1, 3])
def test_records_with_equal_values_of_several_columns_meet(partitions: int) -> None:
    app = application()
    topic = app.topic("in", config=TopicConfig(num_partitions=partitions, replication_factor=1))
    grouped = app.dataframe(topic).group_by(["a", "b"])
    grouped.apply(number, stateful=True)
    grouped.tumbling_window(10).count().current()
    with TopologyTestDriver(app) as driver:
        for place, value in enumerate(({"a": 1, "b": None}, {"a": 1, "b": "x"}, {"b": None, "a": 1})):
            driver.pipe("in", value, key=b"k", partition=place % partitions, timestamp=1)
        counts = [(output[0].get("n", output[0].get("value")), output[1]) for output in driver.outputs()]
    expected = [(1, [1, None]), (1, [1, None]), (1, [1, "x"]), (1, [1, "x"]), (2, [1, None]), (2, [1, None])]
    assert counts == expected


def test_a_missing_one_of_several_columns_is_an_error_that_names_it(stage: Stage) -> None:
    stage.sdf.group_by(["a", "b"])
    with pytest.raises(MissingColumnError, match="column 'b' is missing; the value has 'a'"):
        Surroundings().run(stage.app.topology, "in", {"a": 1})


# -- What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": lambda value: value}, r"group_by\(\) with a function needs a name"),
        ({"key": ""}, "needs the name of a column, got an empty string"),
        (
            {"key": None, "name": "x"},
            "takes the name of a column, a list of names or a function of the value; it needs a function, got NoneType",
        ),
        ({"key": []}, r"needs the name of at least one column, and none that is empty, got \[\]"),
        ({"key": ["a", ""]}, "none that is empty"),
        ({"key": ["a", 5]}, "takes names of columns, which are strings, got 5"),
        ({"key": ["a", "b", "a"]}, "got a column twice: a, b, a"),
        (
            {"key": ["a"], "key_serializer": "str"},
            r"group_by\(key_serializer='str'\) cannot hold a key of several columns",
        ),
        ({"key": ["a"], "key_deserializer": "int"}, r"group_by\(key_deserializer='int'\) cannot hold"),
        ({"key": 5}, "got int"),
        ({"key": "a", "name": ""}, r"group_by\(name=...\) must be a non-empty string, got ''"),
        ({"key": "a", "name": 5}, "got 5"),
    ],
)
def test_a_grouping_must_have_a_key_and_a_name(stage: Stage, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOperationError, match=message):
        stage.sdf.group_by(**arguments)
    assert len(stage.app.topology.nodes) == 1


@pytest.mark.parametrize("again", [{"key": "a"}, {"key": lambda value: 1, "name": "a"}, {"key": "b", "name": "a"}])
def test_two_groupings_of_a_topic_need_different_names(stage: Stage, again: dict[str, Any]) -> None:
    stage.sdf.group_by("a")
    with pytest.raises(InvalidOperationError) as caught:
        stage.sdf.filter(bool).group_by(**again)
    assert "group_by(a) on this topic was defined before (at test_group_by.py:" in str(caught.value)
    assert "group_by(..., name='...')" in str(caught.value)
    stage.sdf.group_by("a", name="second")


def test_two_groupings_of_one_name_with_different_serializers_are_refused_too(stage: Stage) -> None:
    stage.sdf.group_by("a")
    with pytest.raises(ConfigurationError, match="group_by 'a' of topic in is declared twice with different key_ser"):
        stage.sdf.group_by("a", key_serializer="int")


def test_different_topics_may_have_groupings_of_one_name(stage: Stage) -> None:
    other = stage.app.dataframe(stage.app.topic("other"))
    names = {frame.group_by("a").topics[0].name for frame in (stage.sdf, other)}
    assert names == {REPARTITION, "repartition__group--other--a"}


@pytest.mark.parametrize(
    ("group", "name", "message"),
    [
        ("group", "order id", r"use letters, digits, '.', '_' and '-' only in group_by\(name='...'\)"),
        ("a/b", "a", "only in consumer_group"),
        ("a b", "ä", r"only in consumer_group and group_by\(name='...'\)"),
        ("g" * 249, "a", "a name of 269 characters, but Kafka allows 249: shorten consumer_group or group_by"),
    ],
)
def test_a_name_that_no_topic_can_have_is_refused(group: str, name: str, message: str) -> None:
    app = application(consumer_group=group)
    sdf = app.dataframe(app.topic("in"))
    with pytest.raises(ConfigurationError, match=message):
        sdf.group_by(name)
    assert len(app.topology.nodes) == 1


def test_groupings_that_could_not_be_told_apart_are_refused(stage: Stage) -> None:
    stage.sdf.group_by("b--c")
    other = stage.app.dataframe(stage.app.topic("in--b"))
    # Its topic is repartition__group--in--b--c; that of the first one is repartition__group--in---.b-.-.c.
    other.group_by("c")
    third = stage.app.dataframe(stage.app.topic("in.b"))
    with pytest.raises(ConfigurationError, match="collides with topic repartition__group--in--b--c"):
        third.group_by("c")


def test_groupings_whose_stores_would_have_one_name_are_refused(stage: Stage) -> None:
    stage.sdf.group_by("b.c")
    by_b = stage.sdf.group_by("b")
    # On one partition both would keep their state in the store "default.b.c" of the input.
    with pytest.raises(ConfigurationError, match=r"collides with topic repartition__group--in--b\.c in the names"):
        by_b.group_by("c")
    other = stage.app.dataframe(stage.app.topic("other"))
    other.group_by("b").group_by("c")
    assert by_b.group_by("d").topics[0].name == "repartition__group--repartition.in.b--d"


def test_a_series_cannot_cross_a_grouping(stage: Stage) -> None:
    grouped = stage.sdf.group_by("a")
    with pytest.raises(InvalidOperationError, match="derived from the frame in which it is used"):
        stage.sdf["b"] = grouped
    with pytest.raises(InvalidOperationError, match="only be set from columns of the same dataframe"):
        stage.sdf["b"] = grouped["a"]


# -- Several groupings -----------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-A20", "PF-D2")
def test_groupings_can_be_nested(stage: Stage) -> None:
    assert nested(stage).topics[0].name == NESTED
    topology = stage.app.topology
    assert list(topology.sources) == ["in", REPARTITION, NESTED]
    assert [topology.origin(name) for name in topology.sources] == ["in", "in", "in"]
    assert {name: node.id for name, node in topology.exchanges.items()} == {REPARTITION: 2, NESTED: 5}


def test_each_grouping_has_a_store_of_its_own(stage: Stage) -> None:
    nested(stage)
    topology = stage.app.topology
    names = {topic: [store.name for store in topology.stores(topic)] for topic in topology.sources}
    assert names == {"in": [DEFAULT_STORE], REPARTITION: ["default.a"], NESTED: ["default.a.b"]}


def test_drawings_show_where_records_go_through_a_topic(stage: Stage) -> None:
    nested(stage).sink(ListSink())
    topology = stage.app.topology
    assert as_text(topology).splitlines() == [
        "source-0 (in)",
        "  apply-1 (number)",
        "  group_by-2 (a)",
        f"    source-3 ({REPARTITION})",
        "      apply-4 (number)",
        "      group_by-5 (b)",
        f"        source-6 ({NESTED})",
        "          apply-7 (number)",
        "          sink-8 (ListSink)",
    ]


# -- Topics of one partition -----------------------------------------------------------------------------------------


def test_on_one_partition_the_key_is_replaced_in_memory(stage: Stage) -> None:
    nested(stage)
    topology = stage.app.topology
    resolved = topology.resolve({"in": 1})
    assert as_text(resolved).splitlines() == [
        "source-0 (in)",
        "  apply-1 (number)",
        "  group_by-2 (a)",
        "    apply-4 (number)",
        "    group_by-5 (b)",
        "      apply-7 (number)",
    ]
    assert list(resolved.sources) == ["in"]
    assert resolved.exchanges == {}
    assert list(topology.sources) == ["in", REPARTITION, NESTED]
    assert resolved.resolve({"in": 1}) == resolved


def test_nodes_keep_their_ids_and_places_and_parents_come_first(stage: Stage) -> None:
    nested(stage)
    topology = stage.app.topology
    known = {node.id: node for node in topology.nodes}
    for resolved in (topology.resolve({"in": 1}), topology.resolve({"in": 2})):
        seen: set[int] = set()
        for node in resolved.nodes:
            assert seen.issuperset(node.parents)
            assert node.location == known[node.id].location
            assert node.label == known[node.id].label
            seen.add(node.id)


@pytest.mark.parametrize("partitions", [2, 3, 100])
def test_on_several_partitions_nothing_changes(stage: Stage, partitions: int) -> None:
    nested(stage)
    assert stage.app.topology.resolve({"in": partitions}) == stage.app.topology


def test_only_inputs_of_one_partition_do_without_a_topic(stage: Stage) -> None:
    other = stage.app.dataframe(stage.app.topic("other"))
    other.group_by("a")
    stage.sdf.group_by("a")
    resolved = stage.app.topology.resolve({"in": 1, "other": 4})
    assert list(resolved.sources) == ["in", "other", "repartition__group--other--a"]


def test_in_memory_the_groupings_go_on_in_the_same_record(stage: Stage) -> None:
    nested(stage).apply(whole_key, metadata=True)
    around = Surroundings()
    resolved = stage.app.topology.resolve({"in": 1})
    values = around.run(resolved, "in", {"a": 1, "b": 5}, {"a": 2, "b": 5}, headers=[("h", b"1")])
    counts = [value["n"] if isinstance(value, dict) else value for value in values]
    # By the record's own key 1, 2; by a 1, 1; by b 1, 2.
    assert counts == [1, 1, 1, 5, 2, 1, 2, 5]
    assert [output[2:] for output in around.left] == [(at, [("h", b"1")]) for at in (0,) * 4 + (1,) * 4]
    assert around.sent == []


def test_in_memory_state_belongs_to_the_input(stage: Stage) -> None:
    nested(stage)
    resolved = stage.app.topology.resolve({"in": 1})
    assert [store.name for store in resolved.stores("in")] == [DEFAULT_STORE, "default.a", "default.a.b"]


def test_sinks_keep_their_ids(stage: Stage) -> None:
    sink = ListSink()
    nested(stage).sink(sink)
    assert stage.app.topology.sinks == stage.app.topology.resolve({"in": 1}).sinks == {8: sink}


@pytest.mark.parametrize("partitions", [1, 3])
def test_every_topology_can_be_shipped(stage: Stage, partitions: int) -> None:
    nested(stage).group_by(lambda value: value["n"] % 2, name="odd").sink(ListSink())
    topology = stage.app.topology.resolve({"in": partitions})
    copy: Topology = pickle.loads(cloudpickle.dumps(topology))
    assert as_text(copy) == as_text(topology)
    assert [copy.stores(name) for name in copy.sources] == [topology.stores(name) for name in topology.sources]
    values = Surroundings().run(copy, "in", {"a": 1, "b": 2, "n": 3})
    assert values == Surroundings().run(topology, "in", {"a": 1, "b": 2, "n": 3})
    assert len(values) == (4 if partitions == 1 else 1)


# -- Which store -----------------------------------------------------------------------------------------------------


def test_what_follows_keeps_state_as_the_input_does(stage: Stage) -> None:
    stage.sdf.register_store(MemoryStore)
    nested(stage)
    topology = stage.app.topology
    assert {store.store_type for topic in topology.sources for store in topology.stores(topic)} == {MemoryStore}


def test_a_choice_for_the_input_does_not_make_a_store_behind_the_grouping(stage: Stage) -> None:
    stage.sdf.register_store(MemoryStore)
    stage.sdf.group_by("a")
    assert stage.app.topology.stores(REPARTITION) == ()


@pytest.mark.parametrize("partitions", [1, 2])
def test_what_follows_may_keep_state_another_way(stage: Stage, partitions: int) -> None:
    grouped = stage.sdf.group_by("a")
    grouped.register_store(MemoryStore)
    grouped.apply(number, stateful=True)
    stage.sdf.apply(number, stateful=True)
    topology = stage.app.topology.resolve({"in": partitions})
    found = {store for topic in topology.sources for store in topology.stores(topic)}
    assert found == {StoreSpec("default.a", MemoryStore), StoreSpec(DEFAULT_STORE, RocksDBStore)}


def test_a_registered_store_without_operators_goes_to_the_input_too(stage: Stage) -> None:
    stage.sdf.group_by("a").register_store(MemoryStore)
    assert stage.app.topology.stores(REPARTITION) == (StoreSpec("default.a", MemoryStore),)
    assert stage.app.topology.resolve({"in": 1}).stores("in") == (StoreSpec("default.a", MemoryStore),)


# -- Independence of the number of partitions ------------------------------------------------------------------------


def counts_by(partitions: int, guarantee: str = "at-least-once") -> list[tuple[Any, Any, int]]:
    """Count by key, by `a` and by `a` and `b`; return key, value and count of each output, sorted."""
    stage = Stage(
        {"key_serializer": "str", "key_deserializer": "str", "config": TopicConfig(partitions, 1)},
        processing_guarantee=guarantee,
    )
    by_b = nested(stage)
    with stage.drive() as driver:
        for index in range(12):
            driver.pipe("in", {"a": index % 2, "b": index % 3}, key="k")
        outputs = [(repr(key), repr(value), value["n"]) for value, key, *_ in driver.outputs()]
        by_a = stage.app.topic_manager.repartition_topics[REPARTITION]
        assert [driver.state(by_a, a).get("n") for a in (0, 1, 2)] == [6, 6, None]
        assert [driver.state(by_b.topics[0], b).get("n") for b in (0, 1, 2)] == [4, 4, 4]
        assert driver.state("in", "k").get("n") == 12
    return sorted(outputs)


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_results_do_not_depend_on_the_number_of_partitions(guarantee: str) -> None:
    one = counts_by(1, guarantee)
    assert len(one) == 36
    assert counts_by(3, guarantee) == one


# -- Trying out ------------------------------------------------------------------------------------------------------


def test_a_trial_goes_through_the_grouping_as_on_one_partition(stage: Stage) -> None:
    grouped = stage.sdf.group_by("a").apply(number, stateful=True)
    outputs = [grouped.test({"a": a})[0] for a in ("x", "y", "x")]
    assert [(value["n"], key) for value, key, _, _ in outputs] == [(1, "x"), (1, "y"), (2, "x")]


def test_a_trial_of_a_nested_grouping_begins_at_the_input(stage: Stage) -> None:
    by_b = nested(stage)
    assert [output[1] for output in by_b.test({"a": 1, "b": 2}, topic=stage.source)] == [b"key", 1, 2]
    assert len(by_b.test({"a": 1, "b": 2})) == 3
    assert list(by_b.compose()) == ["in"]


@pytest.mark.parametrize(
    "build",
    [
        lambda grouped: grouped.apply(lambda value: value),
        lambda grouped: grouped.filter(bool),
        lambda grouped: grouped[["a"]],
        lambda grouped: grouped[grouped["a"] > 0],
        lambda grouped: grouped.update(lambda value: None),
    ],
)
def test_a_grouped_frame_is_a_frame_like_any_other(stage: Stage, build: Callable[[Any], StreamingDataFrame]) -> None:
    frame = build(stage.sdf.group_by("a"))
    assert [topic.name for topic in frame.topics] == [REPARTITION]
    assert frame.group_by("b").topics[0].name == NESTED
