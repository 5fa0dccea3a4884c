"""`sdf.sink()`: what reaches a sink, and which sinks a topology has."""

import pickle
from typing import Any

import cloudpickle
import pytest

from streamrt.connectors import BaseSink, ListSink
from streamrt.errors import InvalidOperationError
from streamrt.topology.describe import as_text
from tests.unit.apps import Stage, Surroundings


@pytest.mark.rows("PF-M1")
def test_a_sink_gets_values_with_their_metadata_and_ends_the_branch(stage: Stage) -> None:
    sink = ListSink()
    sdf = stage.sdf.set_timestamp(lambda value, key, timestamp, headers: timestamp + 100)
    sdf = sdf.set_headers(lambda value, key, timestamp, headers: [("h", b"1")])
    assert sdf.apply(lambda value: value * 2).sink(sink) is None  # type: ignore[func-returns-value]
    around = Surroundings()
    around.run(stage.app.topology, "in", 1, 2, key="a")
    assert around.sunk == [(sink, 2, "a", 100, [("h", b"1")]), (sink, 4, "a", 101, [("h", b"1")])]


def test_what_a_sink_took_is_an_output(stage: Stage) -> None:
    stage.sdf.sink(ListSink())
    assert Surroundings().run(stage.app.topology, "in", 1, 2) == [1, 2]


def test_what_is_added_to_a_frame_after_its_sink_is_another_branch(stage: Stage) -> None:
    stage.sdf.sink(ListSink())
    stage.sdf["n"] = 5
    around = Surroundings()
    assert around.run(stage.app.topology, "in", {}) == [{}, {"n": 5}]
    assert [value for _, value, *_ in around.sunk] == [{}]
    assert as_text(stage.app.topology).splitlines()[1:] == ["  sink-1 (ListSink)", "  assign-2 (n = 5)"]


@pytest.mark.parametrize("sink", ["list", [], ListSink, None, print])
def test_only_sinks_are_taken(stage: Stage, sink: Any) -> None:
    with pytest.raises(InvalidOperationError, match=r"sink\(\) needs an object of a class derived from BaseSink"):
        stage.sdf.sink(sink)
    assert len(stage.app.topology.nodes) == 1


def test_an_object_in_two_places_is_one_sink_and_equal_objects_are_two(stage: Stage) -> None:
    one, two = ListSink(), ListSink()
    assert one == two
    stage.sdf.sink(one)
    stage.sdf.sink(two)
    stage.sdf.filter(bool).sink(one)
    topology = stage.app.topology
    assert {node: id(sink) for node, sink in topology.sinks.items()} == {1: id(one), 2: id(two)}

    shipped = pickle.loads(cloudpickle.dumps(topology))
    assert list(shipped.sinks) == [1, 2]
    around = Surroundings()
    around.run(shipped, "in", 1)
    places = [next(node for node, own in shipped.sinks.items() if own is sink) for sink, *_ in around.sunk]
    assert places == [1, 2, 1]


def test_a_trial_writes_to_no_sink(stage: Stage) -> None:
    class Forbidden(ListSink):
        def add(self, *record: Any) -> None:
            raise AssertionError("a trial must not write")

    sink: BaseSink = Forbidden()
    sdf = stage.sdf.apply(lambda value: value + 1)
    sdf.sink(sink)
    assert sdf.test(1) == [(2, b"key", 0, None)]
