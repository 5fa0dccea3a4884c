"""Composition of nodes into closures: one function for each topic of a stream."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamrt.common.copies import copier
from streamrt.records import Headers, Tick
from streamrt.topology.graph import Topology
from streamrt.topology.node import (
    AsyncCalls,
    HeldRecords,
    MergeOperator,
    Node,
    OperatorContext,
    PartitionSender,
    RecordHandler,
    SideOutput,
    StateAccess,
    TaskServices,
)
from streamrt.topology.task_access import TaskAccess

if TYPE_CHECKING:
    from streamrt.connectors import BaseSink
    from streamrt.state.base import Transaction
    from streamrt.state.spec import StoreSpec
    from streamrt.topics import Topic

# Each operator is one Python call below its parent; users' functions need additional frames.
_FRAMES_PER_NODE = 3
_FRAMES_FOR_USERS = 1_000


@dataclass(frozen=True)
class NodeClosures:
    """The closures of a node.

    Attributes:
        inputs: one for each of its inputs.
        below: takes its results.
        context: the services that it has.
    """

    inputs: tuple[RecordHandler, ...]
    below: RecordHandler
    context: OperatorContext


def compose_stream(
    topology: Topology,
    stream: str,
    context: TaskServices,
    leaf: RecordHandler,
    built: "dict[int, NodeClosures] | None" = None,
) -> dict[str, RecordHandler]:
    """Compose the sources of a stream, and all nodes below them, into closures.

    Records are processed one at a time and depth first: each output of an operator passes through all branches below,
    in the order of their declaration, before the next item is processed.

    Args:
        topology: the graph.
        stream: id of the stream.
        context: services for the operators.
        leaf: called with each output of the last operator of each branch.
        built: receives the closures of each node by its id; deeper nodes come first.

    Returns:
        The closure that takes the records of a source, by topic.
    """
    members = topology.members(stream)
    needed = _FRAMES_PER_NODE * len(members) + _FRAMES_FOR_USERS
    if sys.getrecursionlimit() < needed:
        sys.setrecursionlimit(needed)
    single = len(topology.streams[stream]) == 1
    # One executor for each input of a node.
    executors: dict[int, tuple[RecordHandler, ...]] = {}
    for node in reversed(members):
        # What is below the node: its results, and its side outputs by their tags.
        below: dict[str | None, list[RecordHandler]] = {None: []}
        for follower in topology.children.get(node.id, ()):
            tag = follower.operator.tag if isinstance(follower.operator, SideOutput) else None
            for parent, executor in zip(follower.parents, executors[follower.id], strict=True):
                if parent == node.id:
                    below.setdefault(tag, []).append(executor)
        child_of = {tag: _call_children(each) for tag, each in below.items() if each}
        child = child_of.pop(None, leaf)
        names = None if single else topology.task_names(node)
        own = _NodeContext(context, names, child_of)
        if isinstance(node.operator, MergeOperator):
            executors[node.id] = node.operator.build_inputs(child, node, own)
        else:
            executors[node.id] = (node.operator.build(child, node, own),)
        if built is not None:
            built[node.id] = NodeClosures(executors[node.id], child, own)
    return {topic: executors[source.id][0] for topic, source in topology.streams[stream].items()}


class _NodeContext:
    """The services of a task for one node.

    In a stream with several sources, frames may have different stores with the same name. In their common task, each store
    has a unique name.

    Args:
        context: the services of the task.
        names: the names of the stores in the task, by the node's names of them; None if they are equal.
        sides: functions that take the records of side outputs, by tag.
    """

    def __init__(
        self, context: TaskServices, names: Mapping[str, str] | None, sides: Mapping[str | None, RecordHandler]
    ) -> None:
        self._context = context
        self._names = names
        self.repeats_records: bool = context.repeats_records
        self.side_output: Callable[[str], RecordHandler | None] = sides.get
        self.sender: Callable[..., RecordHandler] = context.sender
        self.show: Callable[[int, Any], None] = context.show
        self.asynchronous: Callable[[Node, AsyncCalls], RecordHandler] = context.asynchronous
        self.hold_records: Callable[[HeldRecords, RecordHandler], Callable[[], None] | None] = context.hold_records
        self.on_close: Callable[[Callable[[], None]], None] = context.on_close
        self.begin_portion: Callable[[Node], Callable[[], bool]] = context.begin_portion
        self.when_complete: Callable[[Node, Callable[[], None]], None] = context.when_complete

    def state(self, store: "StoreSpec") -> StateAccess:
        return self._context.state(self._own_store(store))

    def store(self, store: "StoreSpec") -> "Callable[[], Transaction]":
        return self._context.store(self._own_store(store))

    def follow(self, store: "StoreSpec", changed: "Callable[[Transaction], None]") -> None:
        self._context.follow(self._own_store(store), changed)

    def access(self, store: "StoreSpec") -> TaskAccess:
        return self._context.access(self._own_store(store))

    def partition_sender(self, topic: "Topic") -> tuple[PartitionSender, int]:
        return self._context.partition_sender(topic)

    def make_passage(self, topic: "Topic", node: Node, child: RecordHandler) -> RecordHandler:
        return self._context.make_passage(topic, node, child)

    def sink(self, sink: "BaseSink", check: Callable[[Any], Any] | None = None) -> RecordHandler:
        return self._context.sink(sink, check)

    def on_tick(self, node: Node, callback: Callable[[Tick], None]) -> None:
        names = self._names
        if names is None:
            self._context.on_tick(node, callback)
            return

        def translated(tick: Tick) -> None:
            marks = {name: tick.watermarks[own] for name, own in names.items() if own in tick.watermarks}
            callback(replace(tick, watermarks=marks))

        self._context.on_tick(node, translated)

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        self._context.watch(kind, name if self._names is None else self._names.get(name, name), total)

    def _own_store(self, store: "StoreSpec") -> "StoreSpec":
        return store if self._names is None else replace(store, name=self._names[store.name])


def _call_children(children: Sequence[RecordHandler]) -> RecordHandler:
    *others, last = children
    if not others:
        return last

    def run(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        # Every branch except the last gets a copy of the value from before any branch ran; the last gets the original.
        copies = copier(value)
        for child in others:
            child(copies(), key, timestamp, headers)
        last(value, key, timestamp, headers)

    return run
