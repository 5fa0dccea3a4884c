"""Tables that operators read by themselves, in the test driver: they are those in the memory of the driver."""

from collections.abc import Callable
from dataclasses import replace

from streamrt.joins.lookup import LookupJoin
from streamrt.joins.lookups import TableLookup
from streamrt.relations import Maintain
from streamrt.tables.table import Table
from streamrt.topology import Node, Topology

__all__ = ["bind_lookups"]


def bind_lookups(topology: Topology, table_in_memory: Callable[[Table], Table]) -> Topology:
    """Return a topology whose lookups in tables find rows in memory, at once, and whose maintained tables begin without rows.

    Args:
        topology: the operators of an application.
        table_in_memory: returns the table in memory for one of the catalogue.
    """

    def bind(node: Node) -> Node:
        operator = node.operator
        if isinstance(operator, Maintain):
            return replace(node, operator=replace(operator, task_links=None))
        if not isinstance(operator, LookupJoin) or not isinstance(operator.lookup, TableLookup):
            return node
        lookup = operator.lookup.reading(table_in_memory(operator.lookup.table))
        return replace(node, operator=replace(operator, lookup=lookup))

    return replace(topology, nodes=tuple(map(bind, topology.nodes)))
