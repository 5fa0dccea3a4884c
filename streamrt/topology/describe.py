"""Drawings of a topology, for people."""

from streamrt.topology.graph import Topology
from streamrt.topology.node import Node


def as_text(topology: Topology) -> str:
    """Draw the graph as an indented tree, one line per node.

    Example:
        ```text
        source-0 (flights)
          filter-1 (is_late)
            to_topic-2 (late-flights)
        ```
    """
    lines: list[str] = []
    waiting = [(source, 0) for source in reversed(topology.sources.values())]
    while waiting:
        node, depth = waiting.pop()
        lines.append("  " * depth + _words(node))
        waiting += [(child, depth + 1) for child in reversed(topology.children.get(node.id, ()))]
    return "\n".join(lines)


def as_mermaid(topology: Topology) -> str:
    """Draw the graph in Mermaid's flowchart language."""
    lines = ["flowchart TD"]
    for node in topology.nodes:
        label = _words(node).replace('"', "'")
        lines.append(f'    n{node.id}["{label}"]')
    lines += [f"    n{node.parent} --> n{node.id}" for node in topology.nodes if node.parent is not None]
    return "\n".join(lines)


def _words(node: Node) -> str:
    description = node.operator.describe()
    return f"{node.label} ({description})" if description else node.label
