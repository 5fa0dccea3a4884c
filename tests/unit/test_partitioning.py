"""Partitioners of outputs and groupings, and `rebalance`."""

from collections.abc import Callable
from typing import Any

import pytest

from streamrt import StreamingDataFrame
from streamrt.config import ProcessingMode
from streamrt.errors import ArgumentValueError, ConfigurationError, InvalidOperationError, SavepointError
from streamrt.kafka import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.models import Headers
from streamrt.runtime.sent import Sent
from streamrt.savepoints.format import SavedInput, SavedLog, SavedName, SavedStore, Savepoint
from streamrt.savepoints.repartition import KeyPlaces
from streamrt.state import State
from streamrt.state.access.broadcast import BROADCAST_PREFIX
from streamrt.state.layout import (
    ARRIVAL_KEY,
    JSON_KEY,
    LIST_SPACE,
    MAP_SPACE,
    NO_KEY,
    collection_prefix,
    key_prefix,
    name_key,
    pane_prefix,
    timer_key,
)
from streamrt.state.transactions.timed import TimedTransaction
from tests.support import PROCESSING_MODES
from tests.unit.apps import Stage, completed, fails

THREE = {"config": TopicConfig(3, 1)}


def count(value: dict[str, Any], state: State) -> dict[str, Any]:
    number = state.get("n", 0) + 1
    state.set("n", number)
    return {**value, "n": number}


def by_length(key: str, partitions: int) -> int:
    return len(key) % partitions


@pytest.mark.rows("PF-D4")
@pytest.mark.parametrize("mode", PROCESSING_MODES)
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_outputs_go_to_the_partition_that_is_chosen(mode: ProcessingMode, guarantee: str) -> None:
    stage = Stage(out=THREE, processing_mode=mode, processing_guarantee=guarantee)
    seen: list[Any] = []

    def choose(value: Any, key: Any, partitions: int) -> int:
        seen.append((value, key, partitions))
        return int(value) % partitions

    stage.sdf.to_topic(stage.out, key=lambda value: b"k%d" % value, partition=choose)
    driver = stage.drive()
    for value in range(4):
        driver.pipe(stage.source, value, key="other")
    assert [(record.value, record.partition) for record in driver.read(stage.out)] == [(0, 0), (1, 1), (2, 2), (3, 0)]
    assert seen == [(value, b"k%d" % value, 3) for value in range(4)]


@pytest.mark.parametrize("mode", PROCESSING_MODES)
def test_outputs_go_to_the_partitions_in_turn(mode: ProcessingMode) -> None:
    stage = Stage(out=THREE, processing_mode=mode)
    stage.sdf.to_topic(stage.out, key=lambda value: b"same", partition="rebalance")
    out = stage.out
    stage.sdf.to_topic(lambda *record: out, partition="rebalance")
    driver = stage.drive()
    for value in range(4):
        driver.pipe(stage.source, value, key="other")
    assert [record.partition for record in driver.read(stage.out) if record.key == b"same"] == [0, 1, 2, 0]
    with pytest.raises(
        ArgumentValueError, match=r"to_topic\(partition='shuffle'\): it must be 'rebalance', or a function"
    ):
        stage.sdf.to_topic(stage.out, partition="shuffle")  # type: ignore[arg-type]


def test_without_a_partitioner_the_key_decides() -> None:
    stage = Stage()
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe(stage.source, 1, key="k")
    assert [record.partition for record in driver.read(stage.out)] == [-1]


def test_a_topic_that_a_function_chooses_counts_its_own_partitions() -> None:
    stage = Stage(out=THREE)
    other = stage.app.topic("other", config=TopicConfig(5, 1))
    out = stage.out
    stage.sdf.to_topic(
        lambda value, *_: other if value else out, partition=lambda value, key, partitions: partitions - 1
    )
    driver = stage.drive()
    driver.pipe(stage.source, 0)
    driver.pipe(stage.source, 1)
    assert [driver.read(topic)[0].partition for topic in (stage.out, other)] == [2, 4]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (3, r"returned 3 for topic 'out', which has the partitions 0 to 2"),
        (-1, "returned -1 for topic 'out'"),
        (1.0, "must return an int for topic 'out', got float"),
        (True, "must return an int for topic 'out', got bool"),
        (None, "got NoneType"),
    ],
)
def test_what_is_no_partition_is_an_error_of_the_operator(result: Any, words: str) -> None:
    stage = Stage(out=THREE)
    stage.sdf.to_topic(stage.out, partition=lambda value, key, partitions: result)
    said = fails(stage, 1)
    assert "to_topic-1 (out) defined at test_partitioning.py" in said
    assert words.split(" for")[0] in said


@pytest.mark.rows("PF-C7", "PF-D4")
def test_a_grouping_names_itself_as_well() -> None:
    stage = Stage(source=THREE)
    stage.sdf.group_by("a", partitioner=lambda key, partitions: partitions).apply(count, stateful=True)
    assert "group_by-1 (a) defined at" in fails(stage, {"a": "x"})


@pytest.mark.parametrize("mode", PROCESSING_MODES)
def test_state_is_where_the_partitioner_says_and_queries_find_it(mode: ProcessingMode) -> None:
    stage = Stage(source=THREE, processing_mode=mode)
    grouped = stage.sdf.group_by("a", partitioner=by_length)
    grouped.apply(count, stateful=True).to_topic(stage.out)
    driver = stage.drive()
    for number, name in enumerate(("x", "yy", "zzz", "x", "x")):
        driver.pipe(stage.source, {"a": name}, partition=number % 3)
    assert [record.value["n"] for record in driver.read(stage.out)] == [1, 1, 1, 2, 3]
    for name, partition in (("x", 1), ("yy", 2), ("zzz", 0)):
        answer = driver.query_state("default", name, "n")
        assert (answer.partition, answer.found) == (partition, True)
    assert driver.state(grouped.topics[0], "x").get("n") == 3


def test_queries_say_so_if_the_partitioner_refuses_a_key() -> None:
    stage = Stage(source=THREE)
    stage.sdf.group_by("a", partitioner=by_length).apply(count, stateful=True)
    with pytest.raises(
        ArgumentValueError, match=r"the key of type int does not fit topic .*: give the partition|has no len"
    ):
        stage.drive().query_state("default", 7)


def test_a_partitioner_of_one_partition_is_not_needed() -> None:
    stage = Stage()
    stage.sdf.group_by("a", partitioner=by_length).apply(count, stateful=True).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe(stage.source, {"a": "x"})
    assert driver.read(stage.out)[0].value == {"a": "x", "n": 1}


def test_sides_of_a_join_have_one_partitioner() -> None:
    def joined(left: Any, right: Any) -> Stage:
        stage = Stage(source=THREE)
        other = stage.app.dataframe(stage.app.topic("other", config=TopicConfig(3, 1)))
        stage.sdf.group_by("a", partitioner=left).join_asof(other.group_by("a", partitioner=right))
        return stage

    completed(joined(by_length, by_length).app)
    completed(joined(None, None).app)
    with pytest.raises(ConfigurationError, match="joins topics whose records have different partitioners"):
        completed(joined(by_length, None).app)


@pytest.mark.rows("PF-D5", "PF-D6")
@pytest.mark.parametrize("mode", PROCESSING_MODES)
def test_rebalance_gives_each_partition_its_turn(mode: ProcessingMode) -> None:
    stage = Stage(source={**THREE, "key_deserializer": "str"}, processing_mode=mode)
    balanced = stage.sdf.rebalance()
    seen: list[Any] = []
    balanced.update(lambda value, key, timestamp, headers: seen.append((value, key, timestamp, headers)), metadata=True)
    driver = stage.drive()
    headers: Headers = [("h", b"1")]
    for value in range(7):
        driver.pipe(stage.source, value, key="k", timestamp=value + 5, headers=headers)
    assert seen == [(value, "k", value + 5, headers) for value in range(7)]
    assert [record.partition for record in driver.read(balanced.topics[0])] == [0, 1, 2, 0, 1, 2, 0]
    assert balanced.topics[0].name == "repartition__group--in--rebalance"


def test_rebalance_of_one_partition_passes_records_on() -> None:
    stage = Stage()
    stage.sdf.rebalance().to_topic(stage.out)
    driver = stage.drive()
    driver.pipe(stage.source, 1, key=b"k")
    assert [(record.key, record.value) for record in driver.read(stage.out)] == [(b"k", 1)]


@pytest.mark.rows("PF-D2")
@pytest.mark.parametrize(
    "stateful",
    [
        lambda sdf, other: sdf.apply(count, stateful=True),
        lambda sdf, other: sdf.tumbling_window(1_000).count().final(),
        lambda sdf, other: sdf.tumbling_count_window(3).count().final(),
        lambda sdf, other: sdf.join_asof(other),
        lambda sdf, other: other.join_interval(sdf),
        lambda sdf, other: sdf.concat(other).apply(count, stateful=True),
        lambda sdf, other: other.concat(sdf).apply(count, stateful=True),
    ],
)
def test_state_below_rebalance_is_refused(stateful: Callable[[StreamingDataFrame, StreamingDataFrame], Any]) -> None:
    stage = Stage(source=THREE)
    other = stage.app.dataframe(stage.app.topic("other", config=TopicConfig(3, 1)))
    balanced = stage.sdf.rebalance()
    with pytest.raises(
        InvalidOperationError, match=r"below rebalance\(\) the records of a key are in several partitions"
    ):
        stateful(balanced, other)


def test_state_above_rebalance_and_behind_the_next_grouping_is_kept() -> None:
    stage = Stage(source=THREE)
    frame = stage.sdf.apply(count, stateful=True).rebalance("even").filter(bool).group_by("a")
    frame.apply(lambda value, state: {**value, "second": count({}, state)["n"]}, stateful=True).to_topic(stage.out)
    driver = stage.drive()
    for _ in range(2):
        driver.pipe(stage.source, {"a": "x"}, key=b"k")
    assert [record.value for record in driver.read(stage.out)] == [
        {"a": "x", "n": 1, "second": 1},
        {"a": "x", "n": 2, "second": 2},
    ]


def test_keys_of_other_formats_need_serializers() -> None:
    from streamrt.serializers import BytesDeserializer

    class Own(BytesDeserializer):
        pass

    stage = Stage(source={**THREE, "key_deserializer": Own()})
    with pytest.raises(ArgumentValueError, match=r"rebalance\(\) cannot know how to serialize the keys"):
        stage.sdf.rebalance()
    stage.sdf.rebalance(key_serializer="bytes", key_deserializer="bytes")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda stage: stage.sdf.to_topic(stage.out, partition=3),
        lambda stage: stage.sdf.group_by("a", partitioner="hash"),
    ],
)
def test_partitioners_are_functions(wrong: Callable[[Stage], Any]) -> None:
    with pytest.raises(InvalidOperationError, match="partition"):
        wrong(Stage())


def places(stage: Stage, store: str) -> KeyPlaces:
    topology = completed(stage.app).topology
    scope = next(scope for scope in topology.scopes if any(each.name == store for each in topology.stores(scope)))
    return KeyPlaces(topology, SavedStore(scope, topology.scopes[scope], store, None, SavedLog("log", 3, 1)), None)


@pytest.mark.parametrize("kind", ["str", "bytes"])
def test_both_sides_of_an_interval_join_follow_their_key(kind: str) -> None:
    stage = Stage(source={**THREE, "key_deserializer": kind})
    stage.sdf.join_interval(stage.sdf, on_merge=lambda left, right: left, backward_ms=10)
    found = places(stage, "join_interval")
    for name in ("x", "yy", "zzz"):
        for side in "<>":
            key = side.encode() + name.encode() if kind == "bytes" else [side, name]
            entry = b"\x03" + TimedTransaction.prefix(key) + bytes(16)
            assert found.find(entry, 7) == partition_for(name.encode(), 7)


@pytest.mark.rows("PF-I10")
def test_entries_of_all_kinds_follow_their_key() -> None:
    stage = Stage(source={**THREE, "key_deserializer": "str"})
    stage.sdf.apply(count, stateful=True)
    found = places(stage, "default")
    for name in ("x", "yy", "zzz", "\u00e4"):
        prefix = key_prefix(JSON_KEY, f'"{name}"'.encode())
        keys = [
            b"\x01" + prefix + b'"state key"',
            b"\x02" + prefix,
            b"\x03" + prefix + bytes(16),
            collection_prefix(MAP_SPACE, prefix, "m") + b"1",
            collection_prefix(LIST_SPACE, prefix, "l") + bytes(8),
            timer_key(prefix, 1, 5),
        ]
        # What windows with a trigger keep: contents, elements, and timers of the trigger.
        pane = pane_prefix(prefix, 2, 0, 1_000)
        keys += [b"\x01" + pane, collection_prefix(LIST_SPACE, pane, "7") + bytes(8), timer_key(pane, 0, 999)]
        for partitions in (3, 7):
            assert {found.find(key, partitions) for key in keys} == {partition_for(name.encode(), partitions)}
    assert found.find(ARRIVAL_KEY, 3) is None
    assert found.find(name_key("orders"), 3) is None
    with pytest.raises(SavepointError, match="has entries that belong to no key"):
        found.find(b"\x09x", 3)
    for keyless in (key_prefix(NO_KEY, b""), pane_prefix(key_prefix(NO_KEY, b""), 2, 0, 1_000)):
        with pytest.raises(SavepointError, match="has state of records without a key"):
            found.find(b"\x01" + keyless, 3)
    assert found.find(collection_prefix(MAP_SPACE, BROADCAST_PREFIX, "rules") + b"1", 3) is None
    with pytest.raises(SavepointError, match="has a key whose partition cannot be known"):
        found.find(b"\x01" + key_prefix(JSON_KEY, b"[1]"), 3)


def test_entries_behind_a_grouping_follow_its_partitioner() -> None:
    stage = Stage(source=THREE)
    stage.sdf.group_by("a", partitioner=by_length).apply(count, stateful=True)
    found = places(stage, "default.a")
    assert [found.find(b"\x02" + key_prefix(JSON_KEY, key), 7) for key in (b'"x"', b'"yyyy"')] == [1, 4]


def test_manifests_keep_everything() -> None:
    saved = Savepoint(
        "before",
        "shop",
        1_700_000_000_000,
        "exactly-once",
        {
            "orders": SavedInput(
                "id", 2, 2, {0: 5, 1: 7}, {1: {"repartition__shop--orders--c": Sent(9, pending=True)}}
            ),
            "repartition__shop--orders--c": SavedInput(None, 2),
        },
        (("orders",), ("repartition__shop--orders--c",)),
        (SavedStore("orders", ("orders",), "default", "x1", SavedLog("changelog__shop--orders--default", 2, 1)),),
        (SavedLog("changelog__shop--source-s", 1, 3),),
        (SavedLog("repartition__shop--orders--c", 2, 4),),
        {
            "repartition__shop--orders--c": SavedName(("orders",), "c"),
            "repartition__shop--1dbb2ce0d2--d": SavedName(("orders", "repartition__shop--orders--c"), "d", short=True),
        },
    )
    assert Savepoint.decode(saved.encode(), saved.topic) == saved
    assert saved.partitions == 6
    turned = saved.encode().replace(b'"reads":["orders"]', b'"reads":["repartition__shop--1dbb2ce0d2--d"]')
    for wrong, words in (
        (turned, "is damaged .*is before"),
        (b"{}", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"v":2}', "has format 2"),
    ):
        with pytest.raises(SavepointError, match=words):
            Savepoint.decode(wrong, "topic")
