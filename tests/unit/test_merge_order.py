"""Which of several records of one timestamp comes first: that of the right side of `join_asof`, unless joins disagree."""

from collections.abc import Callable
from typing import Any

import pytest

from streamrt import StreamingDataFrame
from streamrt.kafka import TopicConfig
from streamrt.models import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.testing.memory import MemoryClients
from tests.unit.apps import application, completed
from tests.unit.tasks import Process, chunk

Frames = dict[str, StreamingDataFrame]


def chain(f: Frames) -> None:
    f["a"].join_asof(f["b"]).join_asof(f["c"])


def deep(f: Frames) -> None:
    f["a"].join_asof(f["b"].join_asof(f["c"].join_asof(f["d"])))


def contradiction(f: Frames) -> None:
    """And a third topic, which both of them want first."""
    f["b"].join_asof(f["a"]).join_asof(f["c"])
    f["a"].join_asof(f["b"], name="other")


def across(f: Frames) -> None:
    """That "c" comes before "a" follows from two joins."""
    f["a"].join_asof(f["b"])
    f["b"].join_asof(f["c"])


def grouped(f: Frames) -> None:
    f["a"].join_asof(f["b"].group_by("k"))


def grouped_itself(f: Frames) -> None:
    f["a"].join_asof(f["a"].group_by("k"))


ORDERS: list[tuple[Callable[[Frames], Any], list[str], list[str]]] = [
    (lambda f: f["a"].join_asof(f["b"]), ["b", "a"], ["b", "a"]),
    (lambda f: f["b"].join_asof(f["a"]), ["a", "b"], ["a", "b"]),
    (lambda f: f["b"].join_interval(f["a"]), ["a", "b"], ["a", "b"]),
    (lambda f: f["b"].concat(f["a"]), ["a", "b"], ["a", "b"]),
    (lambda f: f["b"].concat(f["c"]).join_asof(f["d"]).concat(f["a"]), ["a", "d", "b", "c"], ["a", "d", "b", "c"]),
    (lambda f: f["a"].concat(f["b"]).join_asof(f["b"]), ["b", "a"], ["b", "a"]),
    (lambda f: f["a"].join_asof(f["a"]), ["a"], ["a"]),
    (chain, ["c", "b", "a"], ["c", "b", "a"]),
    (deep, ["d", "c", "b", "a"], ["d", "c", "b", "a"]),
    (contradiction, ["c", "a", "b"], ["c", "a", "b"]),
    (across, ["c", "b", "a"], ["c", "b", "a"]),
    (grouped, ["b", "a"], ["repartition__group--b--k", "a"]),
    (grouped_itself, ["a"], ["repartition__group--a--k", "a"]),
]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(("build", "single", "several"), ORDERS)
def test_the_order_follows_from_the_topology(
    build: Callable[[Frames], Any], single: list[str], several: list[str], partitions: int
) -> None:
    app = application()
    config = TopicConfig(partitions, 1)
    build({name: app.dataframe(app.topic(name, config=config)) for name in "abcd"})
    topology = app.topology.resolve(dict.fromkeys("abcd", partitions))
    stream = topology.stream_of_topic["a"]
    assert list(topology.merge_order(stream)) == (single if partitions == 1 else several)
    assert sorted(topology.merge_order(stream)) == list(topology.streams[stream])


@pytest.mark.rows("PF-I7")
@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize(("left", "right"), [("a", "b"), ("b", "a")])
def test_a_left_record_finds_the_right_record_of_its_own_time(left: str, right: str) -> None:
    """Whatever the topics are called, and however the records are delivered."""
    app = application()
    frames = {name: app.dataframe(app.topic(name)) for name in (left, right)}
    frames[left].join_asof(frames[right], how="left", on_merge=lambda one, other: [one, other])
    tasks = TaskExecutor(completed(app), MemoryClients(lambda: 0))
    chunks = {
        name: chunk(b'"first"', b'"second"', topic=name, keys=[b"k"] * 2, timestamps=[5, 8]) for name in (left, right)
    }
    positions = {TopicPartition(name, 0): 0 for name in (left, right)}
    report = Process(tasks, app.config.processing_mode).run(
        [chunks[left], chunks[right]], BatchContext(positions=positions)
    )
    assert [output.value for output in report.collected] == [["first", "first"], ["second", "second"]]
