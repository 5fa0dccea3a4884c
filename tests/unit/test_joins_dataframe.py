"""Joins of dataframes, through the tasks that run in production."""

import pickle
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import cloudpickle
import pytest

from streamrt import Application, StreamingDataFrame, Topic
from streamrt.errors import InvalidOperationError, ProcessingError
from streamrt.state import MemoryStore
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.testing import TopologyTestDriver
from tests.unit.apps import application
from tests.unit.joined import Model, pair, records

pytestmark = pytest.mark.usefixtures("processing_mode")


class Two:
    """An application with dataframes on the topics `left` and `right`."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.app: Application = application(**settings)
        config = self.app.topic_manager.topic_config(num_partitions=partitions)
        self.topics: tuple[Topic, Topic] = (
            self.app.topic("left", key_deserializer="json", key_serializer="json", config=config),
            self.app.topic("right", key_deserializer="json", key_serializer="json", config=config),
        )
        self.left: StreamingDataFrame = self.app.dataframe(self.topics[0])
        self.right: StreamingDataFrame = self.app.dataframe(self.topics[1])

    def run(self, *inputs: tuple[int, Any, Any, int]) -> list[tuple[Any, Any, int, Any]]:
        """Send records, given as side, value, key and timestamp; return what leaves the branches."""
        with TopologyTestDriver(self.app) as driver:
            for side, value, key, timestamp in inputs:
                driver.pipe(self.topics[side], value, key=key, timestamp=timestamp)
            return driver.outputs()


INPUTS = [(1, {"r": 1}, "k", 10), (0, {"l": 1}, "k", 15), (1, {"r": 2}, "k", 20), (0, {"l": 2}, "k", 25)]


def test_asof() -> None:
    two = Two()
    two.left.join_asof(two.right)
    assert two.run(*INPUTS) == [({"l": 1, "r": 1}, "k", 15, None), ({"l": 2, "r": 2}, "k", 25, None)]


def test_interval() -> None:
    two = Two()
    two.left.join_interval(two.right, backward_ms=timedelta(milliseconds=5), forward_ms=5)
    assert two.run(*INPUTS) == [
        ({"l": 1, "r": 1}, "k", 15, None),
        ({"l": 1, "r": 2}, "k", 20, None),
        ({"l": 2, "r": 2}, "k", 25, None),
    ]


def test_what_follows_a_join_is_an_ordinary_dataframe() -> None:
    two = Two()
    joined = two.left.join_asof(two.right, how="left", on_merge=lambda left, right: {**left, "right": right})
    joined["found"] = joined["right"].notnull()
    joined = joined[joined["found"]].apply(lambda value, state: state.get("n", 0) or state.set("n", 7), stateful=True)
    assert [topic.name for topic in joined.topics] == ["left", "right"]
    assert [output[0] for output in two.run(*INPUTS)] == [None, 7]


def test_joins_in_a_row() -> None:
    two = Two()
    third = two.app.topic("third", key_deserializer="json", key_serializer="json")
    two.left.join_asof(two.right).join_asof(two.app.dataframe(third), how="left")
    with TopologyTestDriver(two.app) as driver:
        driver.pipe(third, {"t": 1}, key="k", timestamp=1)
        driver.pipe(two.topics[1], {"r": 1}, key="k", timestamp=1)
        driver.pipe(two.topics[0], {"l": 1}, key="k", timestamp=1)
        assert driver.outputs() == [({"l": 1, "r": 1, "t": 1}, "k", 1, None)]


def test_stores_of_joins() -> None:
    two = Two()
    two.right.register_store(MemoryStore)
    two.left.join_asof(two.right, name="limits").join_interval(two.right)
    (stream,) = two.app.topology.streams
    stores = {store.name: store for _, store in two.app.topology.task_stores(stream).values()}
    assert {store.store_type for store in stores.values()} == {MemoryStore}
    # The one that was registered is for other operations.
    assert {name: store.transaction for name, store in stores.items() if name != "default"} == {
        "join_interval": TimedTransaction,
        "limits": TimedTransaction,
    }


def test_a_second_join_of_the_same_topics_needs_a_name() -> None:
    two = Two()
    two.left.join_asof(two.right)
    with pytest.raises(
        InvalidOperationError, match=r"store 'join_asof' of topic 'left--right' is in use .* name='\.\.\.'"
    ):
        two.left.join_asof(two.right)
    two.left.join_asof(two.right, name="second")
    two.left.join_interval(two.right)
    with pytest.raises(InvalidOperationError, match="in use by another operation: give one of the joins a name"):
        two.left.join_interval(two.right)


def test_groupings_have_stores_of_their_own() -> None:
    two = Two()
    two.left.group_by("g").join_asof(two.right, on_merge="keep-left").apply(lambda value: ("left grouped", value["r"]))
    two.left.join_asof(two.right.group_by("g"), on_merge="keep-left").apply(lambda value: ("right grouped", value["r"]))
    two.left.join_asof(two.right, on_merge="keep-left").apply(lambda value: ("plain", value["r"]))
    outputs = two.run((1, {"r": 1, "g": "k"}, "z", 1), (0, {"l": 1, "g": "z"}, "k", 2), (0, {"l": 1, "g": "x"}, "z", 3))
    assert [output[:2] for output in outputs] == [
        (("left grouped", 1), "z"),
        (("right grouped", 1), "k"),
        (("plain", 1), "z"),
    ]


def test_a_frame_joined_with_its_own_branch() -> None:
    two = Two()
    starts = two.left.filter(lambda value: value["kind"] == "start").apply(lambda value: {"started": value["at"]})
    ends = two.left.filter(lambda value: value["kind"] == "end")
    ends.join_asof(starts)
    inputs = [
        (0, {"kind": kind, "at": at}, "k", at) for at, kind in ((1, "start"), (5, "end"), (6, "start"), (9, "end"))
    ]
    assert [output[0]["started"] for output in two.run(*inputs)] == [1, 6]


def test_a_frame_joined_with_itself() -> None:
    two = Two()
    two.left.join_interval(two.left, on_merge=pair, backward_ms=5)
    outputs = two.run((0, 1, "k", 10), (0, 2, "k", 13), (0, 3, "k", 16))
    assert [output[0] for output in outputs] == [[1, 1], [2, 1], [2, 2], [3, 2], [3, 3]]


def test_a_frame_joined_asof_with_itself_meets_what_came_before() -> None:
    two = Two()
    two.left.join_asof(two.left, how="left", on_merge=pair)
    outputs = two.run((0, 1, "k", 10), (0, 2, "k", 13), (0, 3, "k", 13), (0, 4, "k", 12))
    assert [output[0] for output in outputs] == [[1, None], [2, 1], [3, 2], [4, 1]]


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (
            lambda left, right: left.join_asof(right, how="outer"),
            r"join_asof\(how=\.\.\.\) must be one of 'inner', 'left'",
        ),
        (lambda left, right: left.join_interval(right, how="full"), r"'inner', 'left', 'right', 'outer', got 'full'"),
        (lambda left, right: left.join_asof(right, grace_ms=-1), r"join_asof\(grace_ms=\.\.\.\) must be 0 ms or more"),
        (lambda left, right: left.join_asof(right, grace_ms=1.5), "must be an int of milliseconds or a timedelta"),
        (lambda left, right: left.join_asof(right, name=""), "name=.* must be a non-empty string"),
        (lambda left, right: left.join_asof(right, on_merge="both"), "on_merge=.* got 'both'"),
        (lambda left, right: left.join_asof("right"), "needs another dataframe, got str"),
        (
            lambda left, right: left.join_interval(right, backward_ms=11, grace_ms=10),
            "backward_ms=.* is 11 ms, but records",
        ),
        (
            lambda left, right: left.join_interval(right, forward_ms=11, grace_ms=10),
            "forward_ms=.* is 11 ms, but records",
        ),
        (lambda left, right: left.join_interval(right, forward_ms=-1), "forward_ms=.* must be 0 ms or more"),
        (lambda left, right: left.join_asof(Two().right), "dataframe of another application"),
    ],
)
def test_what_has_no_meaning_is_refused(join: Callable[..., Any], message: str) -> None:
    two = Two()
    nodes = two.app.topology.nodes
    with pytest.raises(InvalidOperationError, match=message):
        join(two.left, two.right)
    assert two.app.topology.nodes == nodes


def test_a_failing_merge_tells_where() -> None:
    two = Two()
    two.left.join_asof(two.right)
    with pytest.raises(ProcessingError, match=r"join_asof-2 .* failed on left\[0\] at offset 0: .*both have: 'x'"):
        two.run((1, {"x": 1}, "k", 1), (0, {"x": 2}, "k", 1))


def test_trying_a_join_out() -> None:
    two = Two()
    joined = two.left.join_asof(two.right)
    assert joined.test({"r": 1}, timestamp=1, topic=two.topics[1]) == []
    assert joined.test({"l": 1}, timestamp=2, topic=two.topics[0]) == [({"l": 1, "r": 1}, b"key", 2, None)]


def test_a_join_travels() -> None:
    two = Two()
    two.left.join_asof(two.right).join_interval(two.right, on_merge="keep-left")
    topology = pickle.loads(cloudpickle.dumps(two.app.topology))
    assert [node.operator.name for node in topology.nodes] == ["source", "source", "join_asof", "join_interval"]


@pytest.mark.slow
def test_random_histories() -> None:
    for seed in range(6):
        rng = random.Random(seed)
        grace = rng.choice((0, 5, 20, 1000))
        backward, forward = (min(grace, rng.choice((0, 3, 20))) for _ in range(2))
        two = Two()
        two.left.join_asof(two.right, how="left", on_merge=pair, grace_ms=grace).to_topic(
            two.app.topic("asof", key_serializer="json")
        )
        two.left.join_interval(
            two.right, how="outer", on_merge=pair, grace_ms=grace, backward_ms=backward, forward_ms=forward
        ).to_topic(two.app.topic("interval", key_serializer="json"))
        asof, interval = Model(grace), Model(grace)
        with TopologyTestDriver(two.app) as driver:
            for sent in records(rng, 25):
                # Bytes are not JSON; a record without a value is also None.
                key = sent.key.decode() if isinstance(sent.key, bytes) else sent.key
                known = type(sent)(sent.side, key, sent.timestamp + 1, sent.value, None)
                driver.pipe(two.topics[sent.side], known.value, key=key, timestamp=known.timestamp)
                for topic, expected in (
                    ("asof", asof.asof(known, "left")),
                    ("interval", interval.interval(known, "outer", backward, forward)),
                ):
                    found = [(one.value, one.timestamp) for one in driver.read(topic)]
                    assert found == [(output[0], output[2]) for output in expected], f"seed {seed}"
