"""Exchanges in memory that pass on values as they were read: to write and read them again would change nothing."""

from streamrt.operators import ColumnKey, Repartition, Where
from streamrt.runtime.tasks.chain.last_outputs import nodes_above
from streamrt.serializers import MessageField
from streamrt.serializers.json import reads_plainly
from streamrt.topology import InMemoryExchange, Node, SourceOperator, Topology

__all__ = ["passes_as_read"]


def passes_as_read(node: Node, topology: Topology) -> bool:
    """Return whether an exchange passes on values as they were read from JSON, and takes its keys out of them.

    No function of users may see a value before: it could change it, or keep it.

    Args:
        node: the node of the exchange.
        topology: the operators.
    """
    exchange = node.operator.exchange if isinstance(node.operator, InMemoryExchange) else None
    if not (isinstance(exchange, Repartition) and isinstance(exchange.key, ColumnKey) and exchange.partitioner is None):
        return False
    for above in nodes_above(node, {each.id: each for each in topology.nodes}):
        operator = None if above is None else above.operator
        if isinstance(operator, SourceOperator):
            topic = operator.topic
            load, split = (
                topic.value_deserializer.bind(topic.name, MessageField.VALUE),
                topic.value_deserializer.split_values,
            )
            return topic.timestamp_extractor is None and not split and reads_plainly(load)
        if not (isinstance(operator, Where) and operator.expression.is_plain()):
            return False
    return False
