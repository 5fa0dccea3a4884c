"""The graph of operators: immutable data, and how one closure per sub-topology is made from it."""

from streamrt.topology.compose import compose
from streamrt.topology.graph import Topology, TopologyBuilder
from streamrt.topology.node import Executor, Node, Operator, OperatorContext, SourceOperator

__all__ = [
    "Executor",
    "Node",
    "Operator",
    "OperatorContext",
    "SourceOperator",
    "Topology",
    "TopologyBuilder",
    "compose",
]
