"""The builder of a topology, used while the user defines dataframes."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.topology.graph import Topology, stream_id, topic_of
from streamrt.topology.node import ExchangeOperator, MergeOperator, Node, Operator, SourceOperator

if TYPE_CHECKING:
    from streamrt.state import Store
    from streamrt.state.spec import StoreSpec

_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclass
class TopologyBuilder:
    """Collects nodes while the user defines dataframes."""

    _nodes: dict[int, Node] = field(default_factory=dict)
    # Nodes that became part of another operator. A frame may still end at one; adding an operator there restores it.
    _removed: dict[int, Node] = field(default_factory=dict)
    _registered: dict[tuple[tuple[int, ...], str], "StoreSpec"] = field(default_factory=dict)
    _unemitted: dict[int, str] = field(default_factory=dict)
    _queries: dict[str, str] = field(default_factory=dict)
    _next_id: int = 0

    @property
    def unemitted_windows(self) -> tuple[str, ...]:
        """Where windows are defined of which nothing is emitted."""
        return tuple(self._unemitted.values())

    def expect_window(self, location: str) -> Callable[[], object]:
        """Note the definition of a window, which adds no node yet.

        Args:
            location: where it is defined.

        Returns:
            A function to call when the window is added.
        """
        number = len(self._unemitted) and max(self._unemitted) + 1
        self._unemitted[number] = location
        return lambda: self._unemitted.pop(number, None)

    def note_query(self, name: str, digest: str) -> None:
        """Note a query that operators are made of.

        Args:
            name: its name.
            digest: differs if its plan does.
        """
        self._queries[name] = digest

    def add_source(self, operator: SourceOperator) -> Node:
        """Add a source.

        Raises:
            InvalidOperationError: if the topic already has a source.
        """
        name = operator.topic.name
        former = self.find_source(name)
        if former is not None:
            raise InvalidOperationError(
                f"topic {name!r} already has a dataframe (defined at {former.location}): branch it instead of "
                "making a second one, such as `left = sdf.apply(...)` and `right = sdf.filter(...)`"
            )
        return self._add_node((), operator)

    def add(self, parent: Node, operator: Operator) -> Node:
        """Add a node below `parent` and return it."""
        self._bring_back(parent)
        return self._add_node((parent.id,), operator)

    def add_side_output(self, node: Node, tag: str) -> Node:
        """Add the side output of a node, or of the nearest one above it that changes its frame in place, and return it.

        Raises:
            ArgumentValueError: if the node has no side output of this name.
        """
        while node.operator.in_place and len(node.parents) == 1:
            node = self._nodes[node.parents[0]]
        known = {side.tag: side for side in node.operator.side_outputs()}
        if tag not in known:
            what = f"its side outputs are {', '.join(map(repr, known))}" if known else "it has no side outputs"
            raise ArgumentValueError(f"{node} has no side output {tag!r}: {what}")
        return self.add(node, known[tag])

    def add_merge(self, parents: Sequence[Node], operator: MergeOperator) -> Node:
        """Add a node with several inputs, and return it. Its inputs are then in one task.

        Args:
            parents: the parents of the node, in the order of its inputs; one of them may occur twice.
            operator: the operator of the node.

        Raises:
            InvalidOperationError: if the name of the merged topics collides with the name of a topic.
        """
        for parent in parents:
            self._bring_back(parent)
        node = self._add_node(tuple(parent.id for parent in parents), operator)
        try:
            topology = self.build()
            _ = topology.streams, topology.scopes
        except InvalidOperationError:
            del self._nodes[node.id]
            raise
        return node

    def add_exchange(self, parent: Node, operator: ExchangeOperator) -> Node:
        """Add an exchange below `parent` and return the source that it feeds.

        Raises:
            InvalidOperationError: if the topic in between already has a source.
        """
        former = self.find_source(operator.topic.name)
        if former is not None:
            raise InvalidOperationError(
                f"{operator.name}({operator.describe()}) on this topic was defined before (at {former.location}): use the "
                f"frame that it returned, or give one of the two a name, {operator.name}(..., name='...')"
            )
        self.add(parent, operator)
        return self._add_node((), SourceOperator(operator.topic))

    def register_store(self, sources: Node | Sequence[Node], store: "StoreSpec") -> None:
        """Choose a store for the operators below a source, or below a merge of several, before they are added.

        Raises:
            InvalidOperationError: if a store of this name is in use or registered with another type.
        """
        owners = _node_ids(sources)
        topology = self.build()
        name = stream_id(topic_of(self._nodes[owner]) for owner in owners)
        used = topology.stores(name) if name in topology.scopes else ()
        for other in used:
            if other.name == store.name and other.store_type is not store.store_type:
                raise InvalidOperationError(
                    f"store {store.name!r} of topic {name!r} is already a {other.store_type.__name__} and "
                    f"cannot become a {store.store_type.__name__}: call register_store() once, before the first stateful "
                    "operation"
                )
            if other.name == store.name and other.transaction is not store.transaction:
                raise InvalidOperationError(
                    f"store {store.name!r} of topic {name!r} is in use by operators that keep other data in it "
                    f"({other.transaction.__name__}, not {store.transaction.__name__}): give the store another name"
                )
        self._registered[owners, store.name] = store

    def store_type_of(self, sources: Node | Sequence[Node]) -> "type[Store] | None":
        """Return the registered store type of a source, or of the nearest source upstream that has one, or None.

        For a merge of several sources, it is the type registered for the merge, or else for the first source that has
        one.
        """
        owners = _node_ids(sources)
        for (registered, _), store in self._registered.items():
            if registered == owners:
                return store.store_type
        if len(owners) > 1:
            return next(filter(None, (self.store_type_of(self._nodes[owner]) for owner in owners)), None)
        topology = self.build()
        exchange = topology.exchanges.get(topic_of(self._nodes[owners[0]]))
        return None if exchange is None else self.store_type_of(topology.roots(exchange))

    def path(self, ancestor: Node, node: Node) -> list[Node] | None:
        """Return the nodes from below `ancestor` down to `node`, or None if `node` is not a descendant.

        A path through a merge uses the first of its inputs that comes from `ancestor`.
        """
        if node.id == ancestor.id:
            return []
        for parent in node.parents:
            above = self.path(ancestor, self._nodes.get(parent) or self._removed[parent])
            if above is not None:
                return [*above, node]
        return None

    def remove(self, nodes: Iterable[Node]) -> None:
        """Remove nodes that became part of another operator; nodes that still have children stay."""
        for node in sorted(nodes, key=lambda node: -node.id):
            if node.id in self._nodes and not any(node.id in other.parents for other in self._nodes.values()):
                self._removed[node.id] = self._nodes.pop(node.id)

    def build(self, *, removed: bool = False) -> Topology:
        """Return the current graph.

        Args:
            removed: whether to include nodes that were removed, and may come back.
        """
        known = {**self._removed, **self._nodes} if removed else self._nodes
        nodes = sorted(known.values(), key=lambda node: node.id)
        registered = tuple((owners, store) for (owners, _), store in self._registered.items())
        return Topology(tuple(nodes), registered, queries=tuple(self._queries.items()))

    def find_source(self, topic: str) -> Node | None:
        """Return the source of a topic, by its name; None if it has none."""
        sources = (node for node in self._nodes.values() if isinstance(node.operator, SourceOperator))
        return next((node for node in sources if topic_of(node) == topic), None)

    def _bring_back(self, node: Node) -> None:
        if node.id in self._removed:
            self._nodes[node.id] = self._removed.pop(node.id)
            for parent in node.parents:
                if parent in self._removed:
                    self._bring_back(self._removed[parent])

    def _add_node(self, parents: tuple[int, ...], operator: Operator) -> Node:
        node = Node(self._next_id, parents, operator, caller())
        self._nodes[node.id] = node
        self._next_id += 1
        return node


def _node_ids(sources: Node | Sequence[Node]) -> tuple[int, ...]:
    nodes = [sources] if isinstance(sources, Node) else sources
    for node in nodes:
        topic_of(node)
    return tuple(sorted({node.id for node in nodes}))


def caller() -> str:
    """Return file and line of the innermost frame outside this package: the call in the user's code."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
