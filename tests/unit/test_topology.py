"""The topology as data: which source a node belongs to, which stores are used, and what resolving must not change."""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.connectors import ListSink
from streamrt.errors import InvalidOperationError
from streamrt.operators import Apply, Repartition, SinkOperator
from streamrt.state import MemoryStore, RocksDBStore, State
from streamrt.state.spec import StoreSpec
from streamrt.topics import Topic
from streamrt.topology import SourceOperator, Topology, TopologyBuilder
from tests.unit.apps import Stage, Surroundings

STEPS = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from(["count", "filter", "expand", "group", "column"])),
    max_size=12,
)


def keep(value: Any) -> Any:
    return value


def stateful(store: StoreSpec) -> Apply:
    return Apply(keep, store=store)


def test_a_node_belongs_to_the_source_above_it() -> None:
    builder = TopologyBuilder()
    source = builder.add_source(SourceOperator(Topic("in")))
    middle = builder.add(source, Apply(keep))
    behind = builder.add_exchange(middle, Repartition(Topic("between"), keep, "a"))
    last = builder.add(behind, Apply(keep))
    topology = builder.build()
    assert [topology.source_of(node) for node in (source, middle, behind, last)] == [source, source, behind, behind]
    assert topology.source_of(topology.exchanges["between"]) == source
    assert [topology.origin(name) for name in ("in", "between")] == ["in", "in"]
    assert topology.members("in")[-1] == topology.exchanges["between"]
    assert topology.members("between") == (behind, last)


def test_stores_of_one_name_must_be_of_one_kind() -> None:
    builder = TopologyBuilder()
    source = builder.add_source(SourceOperator(Topic("in")))
    builder.add(source, stateful(StoreSpec("a", MemoryStore)))
    builder.add(source, stateful(StoreSpec("b", RocksDBStore)))
    assert builder.build().stores("in") == (StoreSpec("a", MemoryStore), StoreSpec("b", RocksDBStore))
    builder.add(source, stateful(StoreSpec("a", RocksDBStore)))
    topology = builder.build()
    for check in (lambda: topology.stores("in"), lambda: topology.resolve({"in": 1})):
        with pytest.raises(
            InvalidOperationError, match="store 'a' of topic 'in' cannot be both a MemoryStore and a RocksDBStore"
        ):
            check()


def test_registered_stores_come_first_and_only_once() -> None:
    builder = TopologyBuilder()
    source = builder.add_source(SourceOperator(Topic("in")))
    for name in ("b", "a", "b"):
        builder.register_store(source, StoreSpec(name))
    builder.add(source, stateful(StoreSpec("a")))
    builder.add(source, stateful(StoreSpec("c")))
    assert [store.name for store in builder.build().stores("in")] == ["b", "a", "c"]


def test_only_sources_have_stores() -> None:
    builder = TopologyBuilder()
    node = builder.add(builder.add_source(SourceOperator(Topic("in"))), stateful(StoreSpec("a")))
    with pytest.raises(TypeError, match="is not a source"):
        builder.register_store(node, StoreSpec("a", MemoryStore))


def test_a_topology_without_sinks_stores_and_exchanges_has_none() -> None:
    topology = Stage().app.topology
    assert (topology.sinks, topology.exchanges, topology.stores("in")) == ({}, {}, ())
    assert Topology(()).resolve({}) == Topology(())


# -- Resolving changes the way of the records, and nothing else ------------------------------------------------------


class Step:
    """Counts what passes, under the same name as all others: only stores keep their counts apart."""

    def __init__(self, place: int) -> None:
        self.place = place

    def count(self, value: int, state: State) -> int:
        number: int = state.get("n", 0) + 1
        state.set("n", number)
        return value * 3 + number

    def first_two(self, value: int, state: State) -> bool:
        return self.count(value, state) - value * 3 <= 2

    def expand(self, value: int, state: State) -> Iterator[int]:
        yield self.count(value, state)
        yield value + self.place


def build(steps: list[tuple[int, str]]) -> Topology:
    stage = Stage()
    frames: list[Any] = [stage.sdf]
    for place, (choice, kind) in enumerate(steps):
        step, frame = Step(place), frames[choice % len(frames)]
        if kind == "count":
            frames.append(frame.apply(step.count, stateful=True))
        elif kind == "filter":
            frames.append(frame.filter(step.first_two, stateful=True))
        elif kind == "expand":
            frames.append(frame.apply(step.expand, stateful=True, expand=True))
        elif kind == "column":
            frames.append(frame[frame.apply(step.first_two, stateful=True)])
        else:
            frames.append(frame.group_by(lambda value, place=place: value % (place + 2), name=f"g{place}"))
    # A sink at each frame tells which frame an output belongs to.
    for frame in frames:
        frame.sink(ListSink())
    return stage.app.topology


def outputs(topology: Topology, records: list[tuple[int, int]]) -> dict[int, list[tuple[Any, ...]]]:
    """Run records through all sub-topologies, as through topics of which each has its own stores."""
    arounds: dict[str, Surroundings] = defaultdict(Surroundings)
    waiting = deque(("in", value, key) for value, key in records)
    while waiting:
        topic, value, key = waiting.popleft()
        arounds[topic].run(topology, topic, value, key=key)
        waiting += [(sent[0], sent[1], sent[2]) for sent in arounds[topic].sent]
        arounds[topic].sent.clear()
    numbers = {id(sink): node for node, sink in topology.sinks.items()}
    result: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for around in arounds.values():
        for sink, *record in around.sunk:
            result[numbers[id(sink)]].append(tuple(record))
    return result


@pytest.mark.slow
@given(STEPS, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), max_size=8))
def test_with_and_without_repartition_topics_the_results_are_the_same(
    steps: list[tuple[int, str]], records: list[tuple[int, int]]
) -> None:
    topology = build(steps)
    resolved = topology.resolve({"in": 1})
    assert list(resolved.sources) == ["in"]
    assert list(resolved.sinks) == list(topology.sinks)
    assert [isinstance(node.operator, SinkOperator) for node in resolved.nodes].count(True) == len(steps) + 1
    seen: set[int] = set()
    for node in resolved.nodes:
        assert seen.issuperset(node.parents)
        seen.add(node.id)
    assert outputs(resolved, records) == outputs(topology, records)
