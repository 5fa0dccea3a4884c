"""Common parts of unit tests: an application that contacts no one, and short ways to send records through it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application, StreamingDataFrame, Topic
from streamrt.app import definition_of
from streamrt.connectors import BaseSink
from streamrt.errors import ProcessingError
from streamrt.models import Headers, Tick
from streamrt.runtime.spec import TaskSpec
from streamrt.state import MemoryStore
from streamrt.state.base import Transaction
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.testing import TopologyTestDriver
from streamrt.testing.cluster import MemoryCluster
from streamrt.topology import Node, PartitionSender, RecordHandler, StateAccess, TaskAccess, Topology, compose_stream

START = 1_000_000
"""Wall clock of the drivers, in milliseconds."""

Output = tuple[Any, Any, int, Any]


def application(**settings: Any) -> Application:
    """Return an application; its broker does not exist and is never asked."""
    return Application("unused.invalid:9092", **{"consumer_group": "group", "loglevel": None, **settings})


def completed(app: Application) -> TaskSpec:
    """Return what tasks of an application are given when it starts; stores of RocksDB are in memory."""
    spec = definition_of(app).rehearse_start(
        definition_of(app).task_spec(count_outputs=True, collect=True), MemoryCluster(), Path("unused")
    )
    return spec if spec.state is None else replace(spec, state=replace(spec.state, in_memory=True))


class Stage:
    """An application with the topics `in` and `out`, and a dataframe on `in`."""

    def __init__(
        self, source: dict[str, Any] | None = None, out: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        self.app = application(**settings)
        self.source: Topic = self.app.topic("in", **(source or {}))
        self.out: Topic = self.app.topic("out", **(out or {}))
        self.sdf: StreamingDataFrame = self.app.dataframe(self.source)

    def drive(self) -> TopologyTestDriver:
        """Return a driver for the application as it is now."""
        return TopologyTestDriver(self.app, start=START)

    def outputs(self, *values: Any, **record: Any) -> list[Output]:
        """Send values through and return everything that leaves the branches."""
        driver = self.drive()
        for value in values:
            driver.pipe(self.source, value, **record)
        return driver.outputs()

    def values(self, *values: Any, **record: Any) -> list[Any]:
        """Send values through and return the values that leave the branches."""
        return [output[0] for output in self.outputs(*values, **record)]


def through(build: Callable[[StreamingDataFrame], Any], *values: Any, **record: Any) -> list[Any]:
    """Build something on a fresh dataframe, send values through, and return the values that leave its branches."""
    stage = Stage()
    build(stage.sdf)
    return stage.values(*values, **record)


def fails(stage: Stage, value: Any, **record: Any) -> str:
    """Send one value that an operator must refuse; return the message."""
    with pytest.raises(ProcessingError) as caught:
        stage.drive().pipe(stage.source, value, **record)
    return str(caught.value)


class Surroundings:
    """Things that operators get from their task, kept in lists; stores are in memory.

    Attributes:
        sent: topic, value, key, timestamp and headers of what went to topics.
        sunk: the sink, value, key, timestamp and headers of what went to sinks.
        left: value, key, timestamp and headers of what left the branches.
    """

    repeats_records = False

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any, Any, int, Headers | None]] = []
        self.sunk: list[tuple[BaseSink, Any, Any, int, Headers | None]] = []
        self.left: list[Output] = []
        self.transactions: dict[str, StoreTransaction] = {}

    def sender(self, topic: Topic, copies: int = 0) -> RecordHandler:
        return lambda *record: self.sent.append((topic.name, *record))

    def make_passage(self, topic: Topic, node: Node, child: RecordHandler) -> RecordHandler:
        return child

    def partition_sender(self, topic: Topic) -> tuple[PartitionSender, int]:
        raise AssertionError(f"no test has a partitioner for {topic}")

    def state(self, store: StoreSpec) -> StateAccess:
        if store.name not in self.transactions:
            partition = MemoryStore(store.name, "in", Path()).open(0)
            self.transactions[store.name] = StoreTransaction(partition)
        return self.transactions[store.name].state

    def access(self, store: StoreSpec) -> TaskAccess:
        return TaskAccess.of_test(store.name)

    def sink(self, sink: BaseSink, check: Any = None) -> RecordHandler:
        return lambda *record: self.sunk.append((sink, *record))

    def store(self, store: StoreSpec) -> Callable[[], Transaction]:
        self.state(store)
        return lambda: self.transactions[store.name]

    def follow(self, store: StoreSpec, changed: Callable[[Any], None]) -> None:
        self.state(store)
        changed(self.transactions[store.name])

    def on_tick(self, node: Node, callback: Callable[[Tick], None]) -> None:
        """No time passes."""

    def side_output(self, tag: str) -> None:
        """No one reads it."""

    def hold_records(self, held: Any, child: RecordHandler) -> None:
        """Nothing is held."""

    def asynchronous(self, node: Node, calls: Any) -> RecordHandler:
        raise AssertionError("nothing is called")

    def on_close(self, callback: Callable[[], None]) -> None:
        """Nothing ends."""

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        """Nothing is counted."""

    def when_complete(self, node: Node, work: Callable[[], None]) -> None:
        work()

    def begin_portion(self, node: Node) -> Callable[[], bool]:
        return lambda: False

    def show(self, node_id: int, item: Any) -> None:
        """No one watches."""

    def run(self, topology: Topology, topic: str, *values: Any, key: Any = b"k", headers: Any = None) -> list[Any]:
        """Send values through the sub-topology of a topic, at 0, 1, 2, ... ms; return the values that leave it."""
        stream = topology.stream_of_topic[topic]
        execute = compose_stream(topology, stream, self, lambda *output: self.left.append(output))[topic]
        before = len(self.left)
        for timestamp, value in enumerate(values):
            execute(value, key, timestamp, headers)
        return [output[0] for output in self.left[before:]]
