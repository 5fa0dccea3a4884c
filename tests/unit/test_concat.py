"""`concat`: which frames can be merged, what belongs to one task then, whose state is whose, and the test driver."""

import pickle
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application, TopicConfig
from streamrt.app import definition_of
from streamrt.dataframe.branch import branch_of
from streamrt.errors import InvalidOperationError, StateError, TopicConfigurationError
from streamrt.models import TopicPartition
from streamrt.operators import Concat
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.tasks.fencing import fence_owners
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.state import MemoryStore, RocksDBStore, Stamp, State, StoreIdentity
from streamrt.state.changelog import POSITION_KEY, Position
from streamrt.testing import TopologyTestDriver
from streamrt.testing.memory import MemoryClients
from streamrt.topics import Topic, changelog_topic_name
from streamrt.topology import Node, SourceOperator, TaskId, Topology, TopologyBuilder, compose_stream
from streamrt.topology.describe import as_text
from tests.unit.apps import Surroundings, application
from tests.unit.tasks import Process, numbers


def count(value: Any, state: State) -> list[Any]:
    n: int = state.get("n", 0) + 1
    state.set("n", n)
    return [value, n]


def frames(app: Application, *names: str, partitions: int = 1) -> list[Any]:
    return [app.dataframe(app.topic(name, config=TopicConfig(partitions, 1))) for name in names]


# -- Topology ----------------------------------------------------------------------------------------------------------


def test_merged_sources_are_one_stream() -> None:
    app = application()
    a, b, c, _ = frames(app, "a", "b", "c", "d")
    b.concat(a)
    a.concat(c)
    topology = app.topology
    assert {name: list(sources) for name, sources in topology.streams.items()} == {
        "a--b--c": ["a", "b", "c"],
        "d": ["d"],
    }
    assert topology.merged
    assert topology.scopes == {
        "a": ("a",),
        "b": ("b",),
        "c": ("c",),
        "d": ("d",),
        "a--b": ("a", "b"),
        "a--c": ("a", "c"),
    }
    assert topology.task(TopicPartition("b", 3)) == TaskId("a--b--c", 3)
    assert topology.inputs(TaskId("a--b--c", 3)) == tuple(TopicPartition(name, 3) for name in "abc")
    assert topology.task(TopicPartition("d", 1)) == TaskId("d", 1)
    assert [node.label for node in topology.members("d")] == ["source-3"]
    assert not frames_only("a").merged
    assert pickle.loads(pickle.dumps(topology)).streams.keys() == topology.streams.keys()


def frames_only(*names: str) -> Topology:
    app = application()
    frames(app, *names)
    return app.topology


def test_a_merged_frame_tells_its_topics() -> None:
    a, b = frames(application(), "b", "a")
    merged = a.concat(b)
    assert [topic.name for topic in merged.topics] == ["a", "b"]
    assert (merged.stream_id, a.stream_id) == ("a--b", "b")
    assert repr(merged) == "StreamingDataFrame(a, b, at concat-2)"


def test_a_node_with_several_inputs_builds_one_function_for_each() -> None:
    a, b = frames(application(), "a", "b")
    node = branch_of(a.concat(b)).node
    assert node.parents == (0, 1)
    with pytest.raises(TypeError, match=r"concat-2 defined at test_concat.py:\d+ has 2 inputs: build_inputs"):
        Concat().build(lambda *record: None, node, Surroundings())


def test_only_frames_of_one_application_can_be_merged() -> None:
    (a,), (b,) = frames(application(), "a"), frames(application(), "b")
    with pytest.raises(InvalidOperationError, match=r"concat\(\) got a dataframe of another application"):
        a.concat(b)
    with pytest.raises(InvalidOperationError, match=r"concat\(\) needs another dataframe, got int"):
        a.concat(5)


def test_a_topic_that_could_be_taken_for_merged_ones_is_refused() -> None:
    app = application()
    a, b, _ = frames(app, "a", "b", "a--b")
    with pytest.raises(InvalidOperationError, match="collides with the internal name of the merged topics a and b"):
        a.concat(b)
    # The refused merge has left nothing behind.
    assert list(app.topology.streams) == ["a", "b", "a--b"]


@pytest.mark.rows("PF-C5", "PF-I3")
def test_branches_of_one_frame_can_be_merged() -> None:
    app = application()
    (a,) = frames(app, "a")
    even, odd = a.filter(lambda value: value % 2 == 0), a.filter(lambda value: value % 2)
    both = even.apply(lambda value: value * 10).concat(odd)
    assert (both.stream_id, list(app.topology.streams), app.topology.merged) == ("a", ["a"], False)
    assert [both.test(value)[0][0] for value in (1, 2, 3)] == [1, 20, 3]
    twice = a.concat(a)
    assert [output[0] for output in twice.test(5)] == [5, 5, 5]


def test_each_branch_gets_a_copy_before_a_merge() -> None:
    app = application()
    (a,) = frames(app, "a")
    seen: list[Any] = []
    changed = a.update(lambda value: value.append("first"))
    changed.apply(lambda value: value).concat(changed.update(lambda value: value.append("second"))).update(seen.append)
    changed.test([0])
    assert seen == [[0, "first"], [0, "first", "second"]]


def test_a_node_may_be_parent_twice() -> None:
    class Sides(Concat):
        def build_inputs(self, child: Any, node: Node, context: Any) -> Any:
            left = lambda value, *rest: child(("left", value), *rest)  # noqa: E731
            right = lambda value, *rest: child(("right", value), *rest)  # noqa: E731
            return left, right

    builder = TopologyBuilder()
    source = builder.add_source(SourceOperator(Topic("in")))
    node = builder.add_merge([source, source], Sides())
    topology = builder.build()
    assert (node.parents, topology.children[source.id]) == ((0, 0), (node,))
    found: list[Any] = []
    execute = compose_stream(topology, "in", Surroundings(), lambda value, *rest: found.append(value))["in"]
    execute({"a": 1}, None, 0, None)
    assert found == [("left", {"a": 1}), ("right", {"a": 1})]
    assert found[0][1] is not found[1][1]


def test_drawings_show_merges() -> None:
    app = application()
    a, b = frames(app, "a", "b")
    a.filter(bool).concat(b).apply(str)
    assert as_text(app.topology).splitlines() == [
        "source-0 (a)",
        "  filter-2 (bool)",
        "    -> concat-3",
        "source-1 (b)",
        "  concat-3",
        "    apply-4 (str)",
    ]


def test_a_merged_frame_is_no_column() -> None:
    a, b = frames(application(), "a", "b")
    with pytest.raises(InvalidOperationError, match="only apply\\(\\) without expand, not concat"):
        a["x"] = a.concat(b)
    with pytest.raises(InvalidOperationError, match="derived from the frame in which it is used"):
        a["x"] = b.concat(b)


# -- Groupings ---------------------------------------------------------------------------------------------------------


def test_groupings_of_merged_frames_are_named_after_all_topics() -> None:
    app = application()
    a, b = frames(app, "b", "a", partitions=3)
    grouped = a.concat(b).group_by("k").apply(count, stateful=True)
    assert grouped.stream_id == "repartition__group--a--b--k"
    topology = app.topology.resolve({"a": 3, "b": 3})
    assert list(topology.streams) == ["a--b", "repartition__group--a--b--k"]
    assert topology.origin("repartition__group--a--b--k") == "b"
    assert [store.name for store in topology.stores(grouped.stream_id)] == ["default.k"]
    name = changelog_topic_name("group", grouped.stream_id, "default.k")
    assert name == "changelog__group--repartition.a.b.k--default"
    single = app.topology.resolve({"a": 1, "b": 1})
    assert list(single.streams) == ["a--b"]
    assert app.topology.resolved_scope("repartition__group--a--b--k", single) == "a--b"
    assert single.task_stores("a--b").keys() == {"default.k"}


def test_groupings_in_memory_can_bring_a_merge_to_one_topic() -> None:
    app = application()
    (a,) = frames(app, "a")
    left, right = a.group_by("x"), a.group_by("y")
    merged = left.apply(count, stateful=True).concat(right).apply(count, stateful=True)
    assert merged.stream_id == "repartition__group--a--x--repartition__group--a--y"
    topology = app.topology.resolve({"a": 1})
    assert (list(topology.streams), topology.merged) == (["a"], False)
    # No two of them share state by accident.
    assert [store.name for store in topology.stores("a")] == ["default.x", "default.x--y"]
    # With its own input, a grouping makes a stream that feeds itself.
    a.concat(left)
    several = app.topology.resolve({"a": 2})
    assert len(several.streams) == 1
    assert several.origin("repartition__group--a--x") == "a"


def test_topics_of_different_numbers_of_partitions_are_streams_of_their_own_where_nothing_binds_them() -> None:
    app = application()
    a, b, c = frames(app, "a", "b", "c")
    merged = a.apply(count, stateful=True).concat(b)
    merged.apply(str)
    topology = app.topology
    separated = topology.separate({"a": 2, "b": 3, "c": 3})
    assert (list(separated.streams), separated.merged) == (["a", "b", "c"], False)
    assert {stream: [node.label for node in separated.members(stream)] for stream in "abc"} == {
        "a": ["source-0", "apply-3", "concat-4", "apply-5"],
        "b": ["source-1", "concat-4", "apply-5"],
        "c": ["source-2"],
    }
    assert [separated.task_stores(stream).keys() for stream in "abc"] == [{"default"}, set(), set()]
    assert separated.task(TopicPartition("b", 2)) == TaskId("b", 2)
    assert pickle.loads(pickle.dumps(separated)).streams.keys() == separated.streams.keys()
    assert topology.separate({"a": 3, "b": 3, "c": 1}) is topology
    c.concat(b)
    assert list(app.topology.separate({"a": 2, "b": 2, "c": 3}).streams) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "build",
    [
        lambda merged: merged.apply(count, stateful=True),
        lambda merged: merged.apply(str).group_by("k"),
        lambda merged: merged.tumbling_window(10).count().final(),
        lambda merged: merged.register_store(MemoryStore),
    ],
)
def test_topics_that_meet_in_state_or_in_a_group_by_stay_one_stream(build: Any) -> None:
    app = application()
    a, b = frames(app, "a", "b")
    build(a.concat(b))
    assert "a--b" in app.topology.separate({"a": 2, "b": 3}).streams
    # The first topic decides whether a group_by needs a topic in between.
    counts = {"a": 1, "b": 3}
    assert "a--b" in app.topology.resolve(counts).separate(counts).streams


# -- State -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("processing_mode")
def test_state_is_shared_below_a_concat_and_not_above() -> None:
    app = application()
    a, b = frames(app, "a", "b")
    a.apply(count, stateful=True).concat(b.apply(count, stateful=True)).apply(count, stateful=True)
    stores = app.topology.task_stores("a--b")
    assert {name: store.scope for name, store in stores.items()} == {
        "default": "a--b",
        "default--2": "a",
        "default--3": "b",
    }
    with TopologyTestDriver(app) as driver:
        for topic in ("a", "a", "b"):
            driver.pipe(topic, topic, key="k")
        assert [output[0] for output in driver.outputs()] == [[["a", 1], 1], [["a", 2], 2], [["b", 1], 3]]
        assert [driver.state(topic, b"k").get("n") for topic in ("a", "b", "a--b")] == [2, 1, 3]


def test_the_kind_of_a_merged_store_is_that_of_its_parts_unless_it_is_chosen() -> None:
    app = application()
    a, b = frames(app, "a", "b")
    b.register_store(MemoryStore)
    merged = a.concat(b)
    merged.apply(count, stateful=True)
    assert {store.store_type for store in app.topology.stores("a--b")} == {MemoryStore}
    with pytest.raises(InvalidOperationError, match="store 'default' of topic 'a--b' is already a MemoryStore"):
        merged.register_store(RocksDBStore)
    other = a.concat(b).group_by("x")
    other.apply(count, stateful=True)
    assert {store.store_type for store in app.topology.stores(other.stream_id)} == {MemoryStore}


def test_stamps_and_positions_of_several_inputs() -> None:
    identity = StoreIdentity("shop", "a--b", 0, "default", "ida,idb", None, 4)
    stamp = Stamp(identity, 5, 10, None, 0, {"a": 2, "b": 3})
    assert Stamp.decode(stamp.encode()) == stamp
    assert stamp.encode().startswith(b'{"v":2,')
    assert replace(stamp, inputs=None).encode().startswith(b'{"v":1,')
    position = Position(5, "ida,idb", 4, None, {"a": 2, "b": 3})
    assert Position.decode(position.encode()) == position
    assert position.encode() == (
        b'{"v":2,"input_offset":5,"topic_id":"ida,idb","partitions":4,"stream_time":null,"inputs":{"a":2,"b":3}}'
    )


A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class World:
    """Exactly-once tasks of an application over Kafka in memory, which any number of processes share."""

    def __init__(self) -> None:
        self.clients = MemoryClients(lambda: 0)

    def tasks(self, *, merged: bool = True) -> Process:
        app = application(processing_guarantee="exactly-once")
        a, b = frames(app, "a", "b")
        a = a.apply(count, stateful=True)
        if merged:
            a = a.concat(b).apply(count, stateful=True)
        a.to_topic(app.topic("out"))
        spec = definition_of(app).task_spec(count_outputs=True, collect=True)
        sources = {
            name: ScopeInfo(
                ",".join(f"id-{topic}" for topic in topics),
                1,
                {store.name: ChangelogSettings(changelog_topic_name("g", name, store.name)) for store in stores},
                topics if len(topics) > 1 else (),
            )
            for name, topics in spec.topology.scopes.items()
            if (stores := spec.topology.stores(name))
        }
        state = StateSettings("g", Path("unused"), None, sources, in_memory=True)
        metadata = CommitMetadata.of(state, spec.topology.streams)
        # As a driver does before it looks where to begin.
        inputs = [TopicPartition(topic, 0) for topics in spec.topology.streams.values() for topic in topics]
        fence_owners(self.clients, inputs, metadata)
        tasks = TaskExecutor(replace(spec, state=state, commit_metadata=metadata), self.clients)
        return Process(tasks, app.config.processing_mode)

    def run(self, work: Process, *chunks: Any, **positions: int) -> list[Any]:
        at = defaultdict(int, {TopicPartition(topic, 0): offset for topic, offset in positions.items()})
        report = work.run(chunks, BatchContext(at))
        if report.failure is not None:
            raise report.failure.error()
        assert not report.interrupted
        return [output.value for output in report.collected]

    def positions(self, changelog: str) -> list[Position]:
        records = self.clients.written(changelog)
        return [Position.decode(record.value or b"") for record in records if record.key == POSITION_KEY]


@pytest.mark.usefixtures("processing_mode")
def test_one_transaction_commits_all_inputs_and_each_store_tells_those_that_it_is_made_from() -> None:
    world = World()
    assert world.run(world.tasks(), numbers(2, topic="a"), numbers(3, topic="b")) == [
        [[0, 1], 1],
        [[1, 2], 2],
        *[[0, 3], [1, 4], [2, 5]],
    ]
    assert world.clients.offsets == {A: 2, B: 3}
    assert world.positions("changelog__g--a--b--default") == [Position(5, "id-a,id-b", 1, 0, {"a": 2, "b": 3})]
    assert world.positions("changelog__g--a--default") == [Position(2, "id-a", 1, 0)]


@pytest.mark.usefixtures("processing_mode")
def test_state_is_restored_and_compared_with_each_input() -> None:
    world = World()
    world.run(world.tasks(), numbers(2, topic="a"), numbers(3, topic="b"))
    # Another process, without local stores.
    assert world.run(world.tasks(), numbers(1, start=3, topic="b"), a=2, b=3) == [[3, 6]]
    world.clients.offsets[B] = 3
    with pytest.raises(StateError, match=r"store 'default' of b\[0\] contains the records up to offset 4, .* is at 3"):
        world.run(world.tasks(), numbers(1, start=3, topic="b"), a=2, b=3)
    # The sum is the same, and it is not the same state.
    world.clients.offsets.update({A: 3, B: 3})
    missed = r"store 'default' of a--b\[0\] contains the records of a\[0\] up to offset 2, .* is at 3"
    with pytest.raises(StateError, match=missed):
        world.run(world.tasks(), numbers(1, start=3, topic="a"), a=3, b=3)


@pytest.mark.usefixtures("processing_mode")
def test_state_of_a_frame_stays_when_another_one_is_merged_with_it() -> None:
    world = World()
    assert world.run(world.tasks(merged=False), numbers(2, topic="a")) == [[0, 1], [1, 2]]
    world.run(world.tasks(merged=False), numbers(1, topic="b"))
    assert world.run(world.tasks(), numbers(1, start=2, topic="a"), a=2, b=1) == [[[2, 3], 1]]
    assert world.run(world.tasks(merged=False), numbers(1, start=3, topic="a"), a=3) == [[3, 4]]


# -- The test driver ---------------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-C5")
@pytest.mark.usefixtures("processing_mode")
def test_the_driver_processes_each_record_at_once() -> None:
    app = application()
    a, b = frames(app, "a", "b", partitions=2)
    a.concat(b).apply(count, stateful=True)
    with TopologyTestDriver(app) as driver:
        driver.pipe("a", 1, key="k", timestamp=100)
        driver.pipe("b", 2, key="k", timestamp=50)
        driver.pipe("b", 3, key="k", timestamp=50, partition=1)
        assert [output[0] for output in driver.outputs()] == [[1, 1], [2, 2], [3, 1]]
        assert driver.state("a--b", b"k", partition=1).get("n") == 1
        with pytest.raises(InvalidOperationError, match="the application reads a, b, a--b"):
            driver.state("c", b"k")


@pytest.mark.usefixtures("processing_mode")
def test_the_driver_goes_through_repartition_topics_of_merged_frames() -> None:
    app = application()
    a, b = frames(app, "a", "b", partitions=3)
    grouped = a.concat(b).group_by("k")
    totals = grouped.apply(count, stateful=True)
    with TopologyTestDriver(app) as driver:
        for number, topic in enumerate(("a", "b", "a")):
            driver.pipe(topic, {"k": "x"}, partition=number)
        assert [output[0][1] for output in driver.outputs()] == [1, 2, 3]
        assert driver.state(totals.stream_id, "x").get("n") == 3


@pytest.mark.usefixtures("processing_mode")
def test_the_driver_refuses_topics_with_different_numbers_of_partitions() -> None:
    app = application()
    left, right = app.topic("a", config=TopicConfig(2, 1)), app.topic("b", config=TopicConfig(3, 1))
    app.dataframe(left).concat(app.dataframe(right)).apply(count, stateful=True)
    with pytest.raises(TopicConfigurationError, match=r"\(a has 2, b has 3\).*; copy one of them, with to_topic\(\)"):
        TopologyTestDriver(app)
