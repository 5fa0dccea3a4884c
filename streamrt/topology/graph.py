"""The topology and how it grows."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from streamrt.errors import InvalidOperationError
from streamrt.topology.node import Node, Operator, SourceOperator

_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True)
class Topology:
    """An immutable graph of nodes, ordered so that parents come before their children."""

    nodes: tuple[Node, ...]

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

    def subtree(self, root: Node) -> tuple[Node, ...]:
        """Return `root` and all nodes below it, parents first."""
        inside = {root.id}
        members = [root]
        for node in self.nodes:
            if node.parent in inside:
                inside.add(node.id)
                members.append(node)
        return tuple(members)


@dataclass
class TopologyBuilder:
    """Collects nodes while the user defines dataframes."""

    _nodes: dict[int, Node] = field(default_factory=dict)
    # Nodes that an operator has taken over. Frames may still stand on them, and bring them back when they grow.
    _removed: dict[int, Node] = field(default_factory=dict)
    _next_id: int = 0

    def add_source(self, operator: SourceOperator) -> Node:
        """Add a source.

        Raises:
            InvalidOperationError: if the topic has a source already.
        """
        name = operator.topic.name
        for node in self._nodes.values():
            if isinstance(node.operator, SourceOperator) and node.operator.topic.name == name:
                raise InvalidOperationError(
                    f"topic {name!r} has a dataframe already (defined at {node.location}): branch that one instead of "
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
        return Topology(tuple(sorted(self._nodes.values(), key=lambda node: node.id)))

    def _add(self, parent: int | None, operator: Operator) -> Node:
        node = Node(self._next_id, parent, operator, _caller())
        self._nodes[node.id] = node
        self._next_id += 1
        return node


def _caller() -> str:
    """Return file and line of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
