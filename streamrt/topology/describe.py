"""Drawings of a topology as text."""

from streamrt.topics.internal import changelog_topic_name
from streamrt.topology.graph import Topology
from streamrt.topology.node import Node


def as_text(topology: Topology) -> str:
    """Draw the graph as an indented tree, one line per node. A source fed by a `group_by` is drawn below it.

    A node with several inputs is drawn with its descendants below the last input, and only named below the others.

    Example:
        ```text
        source-0 (flights)
          filter-1 (is_late)
            to_topic-2 (late-flights)
          group_by-3 (carrier)
            source-4 (repartition__delays--flights--carrier)
              apply-5 (count)
        source-6 (cancellations)
          ...
        ```
    """
    lines: list[str] = []
    fed = {exchange.id: topology.sources[topic] for topic, exchange in topology.exchanges.items()}
    left = {node.id: len(set(node.parents)) for node in topology.nodes}
    waiting = [(node, 0) for topic, node in reversed(topology.sources.items()) if topic not in topology.exchanges]
    while waiting:
        node, depth = waiting.pop()
        left[node.id] -= 1
        if left[node.id] > 0:
            lines.append("  " * depth + f"-> {node.label}")
            continue
        lines.append("  " * depth + _describe_node(node))
        below = (fed[node.id],) if node.id in fed else topology.children.get(node.id, ())
        waiting += [(child, depth + 1) for child in reversed(below)]
    return "\n".join(lines)


def describe(topology: Topology, group: str, *, changelogs: bool) -> str:
    """Return the graph as a tree, followed by the streams, their stores and their internal topics.

    Args:
        topology: the graph.
        group: the consumer group, which is part of the names of internal topics.
        changelogs: whether stores have changelog topics.
    """
    lines = [as_text(topology)]
    for stream, sources in topology.streams.items():
        lines += ["", f"stream {stream}: a task for each partition of {' and '.join(sources)}"]
        for name, store in topology.task_stores(stream).items():
            log = f", changelog {changelog_topic_name(group, store.scope, store.spec.name)}" if changelogs else ""
            lines.append(f"  store {name}{log}")
        for topic, node in topology.exchanges.items():
            if topology.stream_of(node) == stream:
                lines.append(f"  sends to {topic}")
    return "\n".join(lines)


def _describe_node(node: Node) -> str:
    description = node.operator.describe()
    return f"{node.label} ({description})" if description else node.label
