"""The outputs after which nothing else is done with a record: nothing can fail any more, so they need not be held."""

from collections.abc import Iterator
from typing import Any

from streamrt.operators import Apply, ToTopic
from streamrt.topics import Topic
from streamrt.topology import ExchangeOperator, InMemoryExchange, Node, OutletOperator, SourceOperator, Topology
from streamrt.windows.fixed import FixedWindow

__all__ = ["last_outputs", "nodes_above"]


def last_outputs(topology: Topology) -> frozenset[Any]:
    """Return the names of topics, and the ids of sinks, that get a record only as the last thing that is done with it.

    Args:
        topology: the operators.

    Example:
        >>> last_outputs(Topology([]))
        frozenset()
    """
    last: set[Any] = set()
    others: set[Any] = set()
    nodes = {node.id: node for node in topology.nodes}
    for node in topology.nodes:
        operator = node.operator
        target: Any = None
        if isinstance(operator, ToTopic):
            if not isinstance(operator.topic, Topic):
                # It may choose any of the others.
                return frozenset()
            target = operator.topic.name
        elif isinstance(operator, ExchangeOperator):
            target = operator.topic.name
        elif isinstance(operator, OutletOperator):
            target = id(operator.sink)
        if target is not None:
            ends = node.id not in topology.children and all(
                _passes_once(each, topology) for each in nodes_above(node, nodes)
            )
            (last if ends else others).add(target)
    return frozenset(last - others)


def nodes_above(node: Node, nodes: dict[int, Node]) -> Iterator[Node | None]:
    """Yield the operators above a node; None if there are several paths."""
    while node.parents:
        if len(node.parents) > 1:
            yield None
            return
        node = nodes[node.parents[0]]
        yield node


def _passes_once(node: Node | None, topology: Topology) -> bool:
    if node is None or len(topology.children[node.id]) > 1:
        return False
    operator = node.operator
    if isinstance(operator, SourceOperator):
        return not operator.topic.value_deserializer.split_values
    if isinstance(operator, InMemoryExchange):
        return not operator.exchange.topic.value_deserializer.split_values
    if isinstance(operator, FixedWindow):
        return operator.passes_once
    return operator.passes_on_last or (isinstance(operator, Apply) and not operator.expand)
