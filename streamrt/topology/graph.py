"""The topology and how it grows."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from streamrt.errors import InvalidOperationError
from streamrt.topology.node import ExchangeOperator, Node, Operator, OutletOperator, SourceOperator

if TYPE_CHECKING:
    from streamrt.connectors import BaseSink
    from streamrt.state import Store, StoreSpec

_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True)
class Topology:
    """An immutable graph of nodes, ordered so that parents come before their children.

    Attributes:
        nodes: the nodes.
        registered: stores that were chosen explicitly, each with the id of the source that it belongs to.
    """

    nodes: tuple[Node, ...]
    registered: tuple[tuple[int, "StoreSpec"], ...] = ()

    @cached_property
    def sources(self) -> dict[str, Node]:
        """The source nodes by topic name."""
        return {node.operator.topic.name: node for node in self.nodes if isinstance(node.operator, SourceOperator)}

    @cached_property
    def children(self) -> dict[int, tuple[Node, ...]]:
        """The children of each node that has some, in the order in which they were declared."""
        result: dict[int, list[Node]] = {}
        for node in self.nodes:
            if node.parent is not None:
                result.setdefault(node.parent, []).append(node)
        return {parent: tuple(nodes) for parent, nodes in result.items()}

    @cached_property
    def exchanges(self) -> dict[str, Node]:
        """The nodes that feed sources of this topology, by the name of the repartition topic in between."""
        return {node.operator.topic.name: node for node in self.nodes if isinstance(node.operator, ExchangeOperator)}

    @cached_property
    def sinks(self) -> dict[int, "BaseSink"]:
        """The sinks by the id of the first node that writes to them: an object used in two places is one sink."""
        result: dict[int, BaseSink] = {}
        for node in self.nodes:
            if isinstance(node.operator, OutletOperator):
                sink = node.operator.sink
                if not any(known is sink for known in result.values()):
                    result[node.id] = sink
        return result

    def subtree(self, root: Node) -> tuple[Node, ...]:
        """Return `root` and all nodes below it, parents first."""
        inside = {root.id}
        members = [root]
        for node in self.nodes:
            if node.parent in inside:
                inside.add(node.id)
                members.append(node)
        return tuple(members)

    def source_of(self, node: Node) -> Node:
        """Return the source of the sub-topology that a node is in."""
        while node.parent is not None:
            node = self._by_id[node.parent]
        return node

    def stores(self, source: str | Node) -> tuple["StoreSpec", ...]:
        """Return the stores of a sub-topology: those that its operators use and those that were registered.

        Args:
            source: the source node, or the name of its topic.

        Raises:
            InvalidOperationError: if two stores of the same name are of different kinds.
        """
        root = self.sources[source] if isinstance(source, str) else source
        found: dict[str, StoreSpec] = {}
        registered = [store for source_id, store in self.registered if source_id == root.id]
        used = [store for node in self.subtree(root) for store in node.operator.stores()]
        for store in (*registered, *used):
            other = found.setdefault(store.name, store)
            if other.kind is not store.kind:
                raise InvalidOperationError(
                    f"store {store.name!r} of topic {_topic_of(root)!r} is to be a {other.kind.__name__} and a "
                    f"{store.kind.__name__} at once: call register_store() with the same type on all frames that share "
                    "the store"
                )
        return tuple(found.values())

    def origin(self, topic: str) -> str:
        """Return the input topic that a source's records come from: another one only for repartition topics.

        Args:
            topic: the name of a source's topic.
        """
        while topic in self.exchanges:
            topic = _topic_of(self.source_of(self.exchanges[topic]))
        return topic

    def resolve(self, partitions: Mapping[str, int]) -> "Topology":
        """Return the topology as it runs on topics of so many partitions.

        Where an input has one partition, records of all keys are in it anyway: a `group_by` then needs no topic, it
        replaces the key in memory, and what hangs below goes on in the same task. Nodes keep their ids.

        Args:
            partitions: number of partitions by input topic.

        Raises:
            InvalidOperationError: if a store of one name is to be of different kinds.
        """
        needless = {name: node for name, node in self.exchanges.items() if partitions[self.origin(name)] == 1}
        # What hangs below a source that is left out is adopted by the node that would have fed it.
        adopters = {self.sources[name].id: node.id for name, node in needless.items()}
        inputs = {self.sources[name].id: self.sources[self.origin(name)].id for name in needless}
        nodes: list[Node] = []
        for node in self.nodes:
            if node.id in adopters:
                continue
            operator = node.operator
            if isinstance(operator, ExchangeOperator) and operator.topic.name in needless:
                operator = operator.in_memory()
            parent = None if node.parent is None else adopters.get(node.parent, node.parent)
            nodes.append(replace(node, parent=parent, operator=operator))
        registered = dict.fromkeys((inputs.get(source, source), store) for source, store in self.registered)
        resolved = Topology(tuple(nodes), tuple(registered))
        for source in resolved.sources:
            resolved.stores(source)
        return resolved

    @cached_property
    def _by_id(self) -> dict[int, Node]:
        return {node.id: node for node in self.nodes}


@dataclass
class TopologyBuilder:
    """Collects nodes while the user defines dataframes."""

    _nodes: dict[int, Node] = field(default_factory=dict)
    # Nodes that an operator has taken over. Frames may still stand on them, and bring them back when they grow.
    _removed: dict[int, Node] = field(default_factory=dict)
    _registered: dict[tuple[int, str], "StoreSpec"] = field(default_factory=dict)
    _next_id: int = 0

    def add_source(self, operator: SourceOperator) -> Node:
        """Add a source.

        Raises:
            InvalidOperationError: if the topic has a source already.
        """
        name = operator.topic.name
        former = self._source(name)
        if former is not None:
            raise InvalidOperationError(
                f"topic {name!r} has a dataframe already (defined at {former.location}): branch that one instead of "
                "making a second, such as `left = sdf.apply(...)` and `right = sdf.filter(...)`"
            )
        return self._add(None, operator)

    def add(self, parent: Node, operator: Operator) -> Node:
        """Add a node below `parent` and return it."""
        above: int | None = parent.id
        while above is not None and above in self._removed:
            node = self._nodes[above] = self._removed.pop(above)
            above = node.parent
        return self._add(parent.id, operator)

    def add_exchange(self, parent: Node, operator: ExchangeOperator) -> Node:
        """Add an exchange below `parent` and return the source that it feeds.

        Raises:
            InvalidOperationError: if the topic in between has a source already.
        """
        former = self._source(operator.topic.name)
        if former is not None:
            raise InvalidOperationError(
                f"{operator.name}({operator.describe()}) on this topic was defined before (at {former.location}): use the "
                f"frame that it returned, or tell the two apart by {operator.name}(..., name='...')"
            )
        self.add(parent, operator)
        return self._add(None, SourceOperator(operator.topic))

    def register_store(self, source: Node, store: "StoreSpec") -> None:
        """Choose a store for the operators below a source, before they are added.

        Raises:
            InvalidOperationError: if a store of this name is in use, or was registered, with another kind.
        """
        used = [other for node in self.build().subtree(source) for other in node.operator.stores()]
        for other in (*used, *(known for (owner, _), known in self._registered.items() if owner == source.id)):
            if other.name == store.name and other.kind is not store.kind:
                raise InvalidOperationError(
                    f"store {store.name!r} of topic {_topic_of(source)!r} is a {other.kind.__name__} already and "
                    f"cannot become a {store.kind.__name__}: call register_store() once, before the first stateful operation"
                )
        self._registered[source.id, store.name] = store

    def store_kind(self, source: Node) -> "type[Store] | None":
        """Return the kind that was chosen for the stores of a source, or of the nearest source that feeds it, or None."""
        topology = self.build()
        while True:
            for (owner, _), store in self._registered.items():
                if owner == source.id:
                    return store.kind
            exchange = topology.exchanges.get(_topic_of(source))
            if exchange is None:
                return None
            source = topology.source_of(exchange)

    def path(self, ancestor: Node, node: Node) -> list[Node] | None:
        """Return the nodes from below `ancestor` down to `node`, or None if it is no descendant."""
        steps: list[Node] = []
        current: Node | None = node
        while current is not None and current.id != ancestor.id:
            steps.append(current)
            parent = current.parent
            current = None if parent is None else self._nodes.get(parent) or self._removed[parent]
        return None if current is None else steps[::-1]

    def remove(self, nodes: Iterable[Node]) -> None:
        """Remove nodes that another operator has taken over; those that still have children stay."""
        for node in sorted(nodes, key=lambda node: -node.id):
            if node.id in self._nodes and all(other.parent != node.id for other in self._nodes.values()):
                self._removed[node.id] = self._nodes.pop(node.id)

    def build(self) -> Topology:
        """Return the graph as it stands."""
        nodes = sorted(self._nodes.values(), key=lambda node: node.id)
        return Topology(tuple(nodes), tuple((source, store) for (source, _), store in self._registered.items()))

    def _source(self, topic: str) -> Node | None:
        sources = (node for node in self._nodes.values() if isinstance(node.operator, SourceOperator))
        return next((node for node in sources if _topic_of(node) == topic), None)

    def _add(self, parent: int | None, operator: Operator) -> Node:
        node = Node(self._next_id, parent, operator, _caller())
        self._nodes[node.id] = node
        self._next_id += 1
        return node


def _topic_of(source: Node) -> str:
    if not isinstance(source.operator, SourceOperator):
        raise TypeError(f"{source} is no source")
    return source.operator.topic.name


def _caller() -> str:
    """Return file and line of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
