"""The graph of operators: immutable data, and how one closure per sub-topology is made from it."""

from streamrt.topology.compose import compose
from streamrt.topology.graph import Topology, TopologyBuilder
from streamrt.topology.node import (
    ExchangeOperator,
    Executor,
    Node,
    Operator,
    OperatorContext,
    OutletOperator,
    SourceOperator,
    StateAccess,
)

__all__ = [
    "ExchangeOperator",
    "Executor",
    "Node",
    "Operator",
    "OperatorContext",
    "OutletOperator",
    "SourceOperator",
    "StateAccess",
    "Topology",
    "TopologyBuilder",
    "compose",
]
